"""Files are written atomically, and nobody else's file is replaced."""

import errno
import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from robustpll import _files
from robustpll._files import (
    OutFolder,
    recorded,
    refuse_replacing,
    write_whole,
    writing,
)
from robustpll.errors import InputError

RECORD = ".robustpll-clean.json"


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_whole(path, b"older")

    def interrupted() -> None:
        with writing(path) as file:
            file.write(b"newer")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "older"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_folder_is_refused_as_the_name_of_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        write_whole(Path(name) if name else tmp_path, b"x")


def test_a_file_has_the_permissions_of_the_umask_which_is_never_changed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from robustpll._files import write_whole\n"
        "os.umask(0o027); os.umask = None; write_whole(Path(sys.argv[1]), b'x')"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "note.txt"], check=True)
    assert stat.S_IMODE((tmp_path / "note.txt").stat().st_mode) == 0o640


def test_errors_name_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match=r"model\.pll") as caught:
        write_whole(Path("/proc/model.pll"), b"x")
    assert caught.value.filename == "/proc/model.pll"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(tmp_path / "model.pll", b"x")
    assert caught.value.filename == str(tmp_path / "model.pll")
    assert [*tmp_path.iterdir()] == []


def test_only_what_we_wrote_or_what_is_empty_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    for content in (None, b"", b"ours"):
        if content is not None:
            path.write_bytes(content)
        refuse_replacing(path, lambda start: start == b"ours", "a list")
    with pytest.raises(InputError, match=r"is not a list: it would be lost\. Name another file"):
        refuse_replacing(path, lambda _: False, "a list")
    os.mkfifo(tmp_path / "pipe")  # reading it would block
    with pytest.raises(InputError, match="is no plain file"):
        refuse_replacing(tmp_path / "pipe", lambda _: False, "a list")


def test_a_recorded_file_that_someone_edited_is_not_replaced(tmp_path: Path) -> None:
    path, record = tmp_path / "list.csv", tmp_path / ".list.csv.sha256"
    for content in (b"older", b"newer"):
        with recorded(path):
            path.write_bytes(content)
        subprocess.run(["sha256sum", "--check", "--quiet", record.name], cwd=tmp_path, check=True)
    for edited in (b"edited", b""):
        path.write_bytes(edited)
        with pytest.raises(InputError, match=r"list\.csv was changed since.*lost"), recorded(path):
            pytest.fail("it would be replaced")
    path.write_bytes(b"newer")
    line = record.read_bytes()
    with suppress(OSError), recorded(path):
        assert not record.exists()  # a crash here leaves none
        raise OSError("the disk is full")
    assert record.read_bytes() == line
    record.unlink()
    with recorded(path):
        path.write_bytes(b"of others")
    assert record.exists()


@pytest.mark.parametrize(
    "record",
    [None, "", "{", "[]", '{"sha256": 3}', '{"sha256": {"a": 3}}', "[" * 10**5, " " * 2**21],
)
def test_a_file_is_not_replaced_if_no_sound_record_says_who_wrote_it(
    tmp_path: Path, record: str | None
) -> None:
    if record is not None:
        (tmp_path / RECORD).write_text(record)
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(InputError, match=f"holds table.csv, not .* its record {RECORD}"):
        OutFolder.of(tmp_path, "clean").refuse_others(["table.csv", "twins.csv"])


def test_folders_and_links_are_not_replaced_either(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "other").write_text("mine")
    (tmp_path / "link of a file").symlink_to(tmp_path / "other")
    for name in ("folder", "link", "dangling", "link of a file"):
        with pytest.raises(InputError, match=f"holds {name}, not written"):
            OutFolder.of(tmp_path, "clean").refuse_others([name])


def test_a_file_that_changes_in_the_meantime_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / ".writable").write_text("not a probe")
    folder = OutFolder.of(tmp_path, "clean")
    folder.write("table.csv", b"one")
    OutFolder.of(tmp_path, "clean").refuse_others(["table.csv"])
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(InputError, match=r"holds table\.csv"):
        folder.write("table.csv", b"two")
    assert (tmp_path / "table.csv").read_text() == "mine"
    assert (tmp_path / ".writable").read_text() == "not a probe"


@pytest.mark.parametrize("stops_at", [RECORD, "table.csv"])
def test_a_stop_between_the_record_and_the_file_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops_at: str
) -> None:
    def stopped(path: Path, content: bytes) -> None:
        if path.name == stops_at:
            raise KeyboardInterrupt
        write_whole(path, content)

    OutFolder.of(tmp_path, "clean").write("table.csv", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(_files, "write_whole", stopped)
        with pytest.raises(KeyboardInterrupt):
            OutFolder.of(tmp_path, "clean").write("table.csv", b"new")
    assert (tmp_path / "table.csv").read_bytes() == b"old"
    OutFolder.of(tmp_path, "clean").write("table.csv", b"newer")
    assert (tmp_path / "table.csv").read_bytes() == b"newer"
    sums = json.loads((tmp_path / RECORD).read_text())["sha256"]
    assert len(sums["table.csv"]) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_replaced_file_keeps_its_permissions_and_a_link_its_file(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
