"""Archives and bombs: what leads out of an archive or unpacks to too much is refused."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robustpll import InputError, read_table
from robustpll.datasets import bounded
from robustpll.datasets.bounded import read_content, read_members

ZEROS = bytes(10**6)
FILES = {"a/one.mat": b"1" * 3000, "two.mat": b"2", "readme": b"hello"}


def in_zip(
    files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED, mode: int = stat.S_IFREG
) -> bytes:
    """A zip archive whose last member has this mode."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, (name, content) in enumerate(files.items(), 1):
            info = zipfile.ZipInfo(name)
            info.external_attr = ((mode if number == len(files) else stat.S_IFREG) | 0o644) << 16
            archive.writestr(info, content, compression)
    return file.getvalue()


def in_tar(files: dict[str, bytes], mode: str = "w:gz", kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def members(tmp_path: Path) -> Callable[[bytes], dict[str, bytes]]:
    """Reads the .mat files of an archive with this content."""

    def read(content: bytes) -> dict[str, bytes]:
        path = tmp_path / "archive"
        path.write_bytes(content)
        return read_members(path, lambda name: name.endswith(".mat"))

    return read


PACKED = {"zip": in_zip(FILES), "zip, stored": in_zip(FILES, zipfile.ZIP_STORED)}
PACKED |= {f"tar {mode}": in_tar(FILES, mode) for mode in ("w", "w:gz")}


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED.keys())
def test_the_wanted_members_are_read_within_limits(
    members: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    assert members(content) == {"a/one.mat": b"1" * 3000, "two.mat": b"2"}
    assert bounded.is_archive(tmp_path / "archive")
    for limit, most in (("MOST_BYTES", 3000), ("MOST_MEMBERS", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(bounded, limit, most)
            with pytest.raises(InputError, match="too many"):
                members(content)


OUTSIDE = ("../a.mat", "a/../../a", "/tmp/a.mat", "..\\a.mat", "C:\\a.mat", "a/..", "../.bashrc")
MALICIOUS = {
    **{f"zip {name}": in_zip({"b.mat": b"1", name: b"1"}) for name in OUTSIDE},
    **{f"tar {name}": in_tar({"b.mat": b"1", name: b"1"}) for name in OUTSIDE},
    "zip, link": in_zip({"lost.mat": b"1", "readme": b"/etc/passwd"}, mode=stat.S_IFLNK),
    "tar, link": in_tar({"lost.mat": b""}, kind=tarfile.SYMTYPE),
    "tar, hard link": in_tar({"lost.mat": b""}, kind=tarfile.LNKTYPE),
    "tar, device": in_tar({"lost.mat": b""}, kind=tarfile.CHRTYPE),
}


@pytest.mark.parametrize("content", MALICIOUS.values(), ids=MALICIOUS.keys())
def test_members_that_lead_out_are_refused(
    members: Callable[..., Any], tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(InputError, match="a link or lies outside"):
        members(content)
    assert [file.name for file in tmp_path.iterdir()] == ["archive"]


def changed(content: bytes, position: int, new: bytes) -> bytes:
    return content[:position] + new + content[position + len(new) :]


NOISE = {"a.mat": np.random.default_rng(0).bytes(5000)}
LOCKED = bytearray(PACKED["zip"])  # claims to need a password
LOCKED[6] |= 1
LOCKED[LOCKED.index(b"PK\1\2") + 8] |= 1
BOMB = in_zip({"lost.mat": ZEROS})
DAMAGED = {
    "password": (bytes(LOCKED), "password"),
    "lzma": (in_zip(FILES, zipfile.ZIP_LZMA), "compressed in an unusual way"),
    "zip": (changed(in_zip(NOISE), 1250, bytes(50)), ""),
    "tar.gz": (changed(in_tar(NOISE), 1250, bytes(50)), ""),
    "half a tar.gz": (in_tar(NOISE)[:2000], "end-of-stream"),
    "wrong checksum": (in_tar(NOISE)[:-8] + bytes(8), "CRC"),
    "no tar": (gzip.compress(b"x" * 5000), ""),
    "empty": (b"", ""),
    "wrong size": (changed(BOMB, BOMB.index(b"PK\1\2") + 24, b"\x64\0\0\0"), ""),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_archives_are_named(
    members: Callable[..., Any], tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(InputError, match=f"archive cannot be read: .*{reason}") as caught:
        members(content)
    assert str(tmp_path / "archive") in str(caught.value)


class Counted(gzip.GzipFile):
    """Counts what is unpacked."""

    total = 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        Counted.total += len(content)
        return content


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many bytes of gzip files were unpacked so far."""
    monkeypatch.setattr(gzip, "GzipFile", Counted)
    Counted.total = 0
    return lambda: Counted.total


def test_a_file_is_unpacked_no_further_than_its_size_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    """However many headers or long names an archive has."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    assert len(read_content(path)) == unpacked() == 10**7
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10**5)
    Counted.total = 0
    for read in (read_content, lambda path: read_members(path, bool)):
        with pytest.raises(InputError, match="too many bytes"):
            read(path)
    assert unpacked() <= 2 * (10**5 + 200 * path.stat().st_size + bounded.PIECE)


def test_a_table_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    """Long before all of the packed file is read."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,label\n0,x|y\n") + gzip.compress(b"0,x|y\n" * 100_000) * 99)
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10_000)
    monkeypatch.setattr(bounded, "MOST_RATIO", 5)
    with pytest.raises(InputError, match="unpack it yourself") as caught:
        read_table(path, candidates="label")
    assert str(path) in str(caught.value)
    assert unpacked() < 3 * 10**6


def test_a_small_table_may_shrink_to_any_size(tmp_path: Path) -> None:
    path = tmp_path / "repetitive.csv.gz"
    path.write_bytes(gzip.compress(b"a,label\n" + b"0,x|y\n" * 20_000))
    assert 6 * 20_000 / path.stat().st_size > bounded.MOST_RATIO
    assert len(read_table(path, candidates="label").y) == 20_000
