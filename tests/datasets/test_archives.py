"""Taking in .mat files, alone and in archives, sound and malicious."""

import errno
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from robustpll.datasets import archives
from robustpll.datasets.archives import add
from robustpll.datasets.catalog import entry_of
from robustpll.errors import InputError, RobustPLLError

TOY = replace(entry_of("lost"), rows=30, features=4, classes=3)


def mat(rows: int = 30, classes: int = 3, **others: object) -> bytes:
    rng = np.random.default_rng(0)
    target = np.eye(classes)[rng.integers(classes, size=rows)].T
    partial = np.maximum(target, rng.random((classes, rows)) < 0.3)
    file = io.BytesIO()
    savemat(
        file, {"data": rng.random((rows, 4)), "partial_target": partial, "target": target, **others}
    )
    return file.getvalue()


SOUND = mat()  # once, as the time is in it


def in_zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def in_tar(mode: str = "w:gz", **members: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bytes], Path]:
    """Adds a file with this content; a data folder of its own is set."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))

    def bring(content: bytes, say: Callable[[str], None] = print) -> Path:
        source = tmp_path / "given"
        source.write_bytes(content)
        return add(TOY, source, say)

    return bring


READABLE = {
    "plain": SOUND,
    "zip": in_zip(**{"Lost/readme.txt": b"hello", "Lost/lost.mat": SOUND}),
    "zip of a Mac": in_zip(**{"lost.mat": SOUND, "__MACOSX/._lost.mat": b"junk"}),
    "tar": in_tar("w", **{"./lost.MAT": SOUND}),
    "tar.gz": in_tar(**{"lost.mat": SOUND, "readme": b"hello"}),
    "tar.xz": in_tar("w:xz", **{"lost.mat": SOUND}),
}


@pytest.mark.parametrize("content", READABLE.values(), ids=READABLE.keys())
def test_the_one_mat_file_is_put_at_its_place(
    bring: Callable[..., Path], tmp_path: Path, content: bytes
) -> None:
    path = bring(content)
    assert path == tmp_path / "data" / "realworld" / "lost.mat"
    assert path.read_bytes() == SOUND
    assert loadmat(path)["data"].shape == (30, 4)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def zip_link() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("lost.mat", SOUND)
        link = zipfile.ZipInfo("readme")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return file.getvalue()


def tar_link(kind: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("lost.mat")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return file.getvalue()


OUTSIDE = ("../lost.mat", "a/../../lost.mat", "/tmp/lost.mat", "..\\lost.mat", "C:\\lost.mat")
MALICIOUS = {
    **{f"zip {name}": in_zip(**{name: SOUND}) for name in OUTSIDE},
    **{f"tar {name}": in_tar(**{name: SOUND}) for name in OUTSIDE},
    "zip, beside": in_zip(**{"lost.mat": SOUND, "../.bashrc": b"evil"}),
    "zip, link": zip_link(),
    "tar, link": tar_link(tarfile.SYMTYPE),
    "tar, hard link": tar_link(tarfile.LNKTYPE),
    "tar, device": tar_link(tarfile.CHRTYPE),
}


@pytest.mark.parametrize("content", MALICIOUS.values(), ids=MALICIOUS.keys())
def test_members_that_lead_out_are_refused(
    bring: Callable[..., Path], tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(InputError, match="a link or lies outside"):
        bring(content)
    assert [file.name for file in tmp_path.iterdir()] == ["given"]


def locked() -> bytes:
    """An archive that claims to need a password."""
    raw = bytearray(in_zip(**{"lost.mat": SOUND}))
    raw[6] |= 1
    raw[raw.index(b"PK\1\2") + 8] |= 1
    return bytes(raw)


def damaged(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes(50) + content[at + 50 :]


UNSOUND = {
    "nothing": (b"", "no .mat file"),
    "a web page": (b"<html>", "no .mat file"),
    "rar": (b"Rar!\x1a\7\1\0", "is a .rar archive. Unpack it first"),
    "7z": (b"7z\xbc\xaf'\x1c", "is a .7z archive. Unpack it first"),
    "no mat": (in_zip(readme=b"hello"), "found none"),
    "two mats": (in_tar(**{"a.mat": SOUND, "b.mat": SOUND}), "found a.mat, b.mat"),
    "a folder named so": (in_zip(**{"lost.mat/": b""}), "found none"),
    "half a zip": (in_zip(**{"lost.mat": SOUND})[:500], "given"),
    "half a tar": (in_tar(**{"lost.mat": SOUND})[:500], "cannot be unpacked"),
    "damaged zip": (damaged(in_zip(**{"lost.mat": SOUND})), "cannot be unpacked"),
    "a password": (locked(), "cannot be unpacked.*password"),
    "zip of junk": (in_zip(**{"lost.mat": b"junk"}), "no .mat file"),
    "words for labels": (in_zip(**{"lost.mat": mat(target="x")}), "'target' must be"),
    "another dataset": (mat(rows=40, classes=5), "has 40 rows and 5 classes; Lost has 30 and 3"),
}


@pytest.mark.parametrize(("content", "reason"), UNSOUND.values(), ids=UNSOUND.keys())
def test_what_is_unsound_is_refused_with_its_name_and_replaces_nothing(
    bring: Callable[..., Path], tmp_path: Path, content: bytes, reason: str
) -> None:
    path = bring(SOUND)
    with pytest.raises(InputError, match=reason) as caught:
        bring(content)
    assert str(tmp_path / "given") in str(caught.value)
    assert path.read_bytes() == SOUND


def test_another_file_that_is_there_is_not_replaced(bring: Callable[..., Path]) -> None:
    path = bring(SOUND)
    assert bring(in_zip(**{"lost.mat": SOUND})) == path  # the same once more
    path.write_bytes(b"a version of my own")
    with pytest.raises(InputError, match=r"is there already, and is not what .*given holds"):
        bring(SOUND)
    assert path.read_bytes() == b"a version of my own"


def test_what_is_odd_but_sound_is_said(bring: Callable[..., Path], tmp_path: Path) -> None:
    said: list[str] = []
    bring(mat(rows=29), said.append)
    assert said == [f"{tmp_path / 'given'}: 29 rows, where 30 are usual."]


@pytest.mark.parametrize("pack", [in_zip, in_tar, lambda **members: members["lost.mat"]])
def test_a_bomb_is_refused(
    bring: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, pack: Callable[..., bytes]
) -> None:
    size = len(SOUND)
    monkeypatch.setattr(archives, "MOST_BYTES", size - 1)
    with pytest.raises(InputError, match="more than"):
        bring(pack(**{"lost.mat": SOUND}))
    monkeypatch.setattr(archives, "MOST_BYTES", size)
    bring(pack(**{"lost.mat": SOUND}))


def test_a_zip_that_lies_about_its_size_gives_no_more(bring: Callable[..., Path]) -> None:
    raw = bytearray(in_zip(**{"lost.mat": bytes(10**6)}))
    entry = raw.index(b"PK\1\2")
    raw[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
    with pytest.raises(InputError, match=r"cannot be unpacked|no .mat file"):
        bring(bytes(raw))


def test_no_file_and_no_room_are_sentences(
    bring: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"There is no file nowhere\.mat"):
        add(TOY, Path("nowhere.mat"))
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "file"))
    with pytest.raises(RobustPLLError, match="cannot be read or written"):
        bring(SOUND)


def test_a_full_disk_is_told_with_the_file_that_could_not_be_written(
    bring: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system names no file when there is no room for what is written to it."""
    path = bring(SOUND)
    full: list[Path] = []

    def write(file: Path, content: bytes) -> int:
        full.append(file)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(RobustPLLError, match="No space left on device") as caught:
        add(TOY, tmp_path / "given")
    assert str(caught.value).startswith(f"{full[0]} cannot be read or written")
    monkeypatch.undo()
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(archives, "write_whole", write)
    with pytest.raises(RobustPLLError, match="No space left on device") as caught:
        add(TOY, tmp_path / "given")
    assert str(caught.value).startswith(f"{path} cannot be read or written")
    assert path.read_bytes() == SOUND


@pytest.mark.parametrize("name", ["mnist", "notmnist"])
def test_pictures_are_fetched_rather_than_added(name: str) -> None:
    with pytest.raises(InputError, match=f"robustpll datasets get {name}"):
        add(entry_of(name), Path("some.mat"))
