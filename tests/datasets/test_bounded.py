"""Archives and bombs: what leads out of an archive or unpacks to too much is refused."""

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from robustpll import InputError, read_table
from robustpll.datasets import bounded
from robustpll.datasets.bounded import read_content, read_members
from robustpll.datasets.mat import read_mat

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
def members(tmp_path: Path) -> Callable[[bytes], tuple[dict[str, bytes], list[str]]]:
    """Reads the .mat files of an archive with this content."""

    def read(content: bytes) -> tuple[dict[str, bytes], list[str]]:
        path = tmp_path / "archive"
        path.write_bytes(content)
        return read_members(path, lambda name: name.endswith(".mat"))

    return read


PACKED = {"zip": in_zip(FILES), "zip, stored": in_zip(FILES, zipfile.ZIP_STORED)}
PACKED |= {f"tar {mode}": in_tar(FILES, mode) for mode in ("w", "w:gz")}


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED.keys())
def test_the_wanted_members_are_read_within_limits_and_the_others_named(
    members: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    assert members(content) == ({"a/one.mat": b"1" * 3000, "two.mat": b"2"}, ["readme"])
    assert bounded.is_archive(tmp_path / "archive")
    for limit, most, reason in (("MOST_BYTES", 3000, "many bytes"), ("MOST_MEMBERS", 2, "2 files")):
        with monkeypatch.context() as patch:
            patch.setattr(bounded, limit, most)
            with pytest.raises(InputError, match=reason):
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


def mat_file(matrices: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, matrices, **options)
    return file.getvalue()


def mat_bomb(declared: int, size: int, cut: int = 0) -> bytes:
    """A .mat file of version 7 with one compressed matrix of zeros."""
    packed = zlib.compress(struct.pack("<II", 14, declared) + bytes(size))
    packed = packed[: len(packed) - cut]
    return bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (mat_bomb(10**6, 10**6), "too many bytes"),
        (mat_bomb(10**3, 10**6), "too many bytes"),
        (mat_file(dict.fromkeys("abc", np.zeros((200, 200))), do_compression=True), "too many"),
        (mat_bomb(10**4, 10**3), "ends too soon"),
        (mat_bomb(10**4, 10**4, cut=3), "are cut"),
    ],
    ids=["too long", "lies", "three", "shorter", "cut"],
)
def test_a_compressed_matrix_unpacks_to_no_more_than_the_files_size_allows(
    monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10**5)
    with pytest.raises(InputError, match=reason):
        read_mat(Path("lost.mat"), content, ["data"])


def hdf5(write: Callable[[h5py.File], Any]) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as content:
        write(content)
    return file.getvalue()


def sparse_group(file: h5py.File, height: int, starts: Any) -> None:
    group = file.create_group("data")
    group.attrs["MATLAB_sparse"] = np.uint64(height)
    group["jc"] = starts


def repeated_text(file: h5py.File) -> None:
    """Many references to one long text."""
    file.create_dataset("data", (100, 100), h5py.string_dtype(), fillvalue="x" * 10**6)


HUGE = {
    "dense": hdf5(lambda file: file.create_dataset("data", (10**6, 10**6), "f8", chunks=(99, 99))),
    "text": hdf5(repeated_text),
    "sparse": mat_file({"data": sparse.csc_matrix((2**31 - 1, 1000))}),
    "sparse, 7.3": hdf5(lambda file: sparse_group(file, 2**40, np.zeros(1001, np.uint64))),
}


@pytest.mark.parametrize("content", HUGE.values(), ids=HUGE.keys())
def test_matrices_that_would_fill_the_memory_are_refused(content: bytes) -> None:
    assert len(content) < 10**6 + 10**5
    with pytest.raises(InputError, match=r"too many bytes|a sparse matrix declares|real numbers"):
        read_mat(Path("lost.mat"), content, ["data"])


@pytest.mark.parametrize(
    "kind", ["external link", "soft link", "external storage", "virtual", "sparse"]
)
def test_a_matrix_that_lies_in_another_file_is_refused(tmp_path: Path, kind: str) -> None:
    other, raw = tmp_path / "other.h5", tmp_path / "raw.bin"
    with h5py.File(other, "w") as file:
        file["secret"] = np.eye(3)
    np.eye(3).tofile(raw)

    def write(file: h5py.File) -> None:
        external = h5py.ExternalLink(str(other), "/secret")
        if kind == "external link":
            file["data"] = external
        elif kind == "soft link":
            file["far"] = np.eye(3)
            file["data"] = h5py.SoftLink("/far")
        elif kind == "external storage":
            file.create_dataset("data", (3, 3), "f8", external=[(str(raw), 0, 72)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3, 3), "f8")
            layout[:] = h5py.VirtualSource(other, "secret", (3, 3))
            file.create_virtual_dataset("data", layout)
        else:
            sparse_group(file, 3, external)

    with pytest.raises(InputError, match=r"lost\.mat.*must be in the file itself"):
        read_mat(Path("lost.mat"), hdf5(write), ["data"])
