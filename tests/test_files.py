"""Files are there and whole, or not there; and nobody else's file is lost."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from robustpll._files import refuse_replacing, write_whole, writing
from robustpll.errors import InputError


def no_file(start: bytes) -> bool:
    return False


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("older")

    def interrupted() -> None:
        with writing(path) as file:
            file.write(b"newer")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "older"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from robustpll._files import write_whole\n"
        "os.umask(0o027); write_whole(Path(sys.argv[1]), b'x')"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "note.txt"], check=True)
    assert stat.S_IMODE((tmp_path / "note.txt").stat().st_mode) == 0o640


def test_the_umask_of_other_threads_is_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[int] = []
    monkeypatch.setattr(os, "umask", lambda mask: changes.append(mask) or 0o022)
    threads = [
        threading.Thread(target=write_whole, args=(tmp_path / f"{at}.txt", b"x")) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([*tmp_path.iterdir()]) == 4
    assert changes == []


def test_a_full_disk_is_told_with_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(tmp_path / "model.pll", b"x")
    assert caught.value.filename == str(tmp_path / "model.pll")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_takes_no_files_is_told_by_the_name_that_was_asked_for() -> None:
    with pytest.raises(OSError, match=r"model\.pll") as caught:
        write_whole(Path("/proc/model.pll"), b"x")
    assert caught.value.filename == "/proc/model.pll"


def test_only_what_we_wrote_or_what_is_empty_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    refuse_replacing(path, no_file, "a list")
    path.write_bytes(b"")
    refuse_replacing(path, no_file, "a list")
    path.write_bytes(b"ours")
    refuse_replacing(path, lambda start: start == b"ours", "a list")
    with pytest.raises(InputError, match=r"is not a list: it would be lost\. Name another file"):
        refuse_replacing(path, no_file, "a list")


def test_a_pipe_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no plain file"):
        refuse_replacing(tmp_path / "pipe", no_file, "a list")
