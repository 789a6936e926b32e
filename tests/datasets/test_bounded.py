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
from robustpll.datasets import bounded, mat
from robustpll.datasets.bounded import read_members, read_up_to
from robustpll.datasets.idx import read_idx
from robustpll.datasets.mat import read_mat

ZEROS = bytes(10**6)


def in_zip(compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
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
def members(tmp_path: Path) -> Callable[[bytes], tuple[dict[str, bytes], list[str]]]:
    """Reads the .mat files of an archive with this content."""

    def read(content: bytes) -> tuple[dict[str, bytes], list[str]]:
        path = tmp_path / "archive"
        path.write_bytes(content)
        return read_members(path, lambda name: name.endswith(".mat"))

    return read


FILES = {"a/one.mat": b"1" * 3000, "two.mat": b"2", "readme": b"hello"}
PACKED = {"zip": in_zip(**FILES), "zip, stored": in_zip(zipfile.ZIP_STORED, **FILES)}
PACKED |= {f"tar {mode}": in_tar(mode, **FILES) for mode in ("w", "w:gz", "w:bz2", "w:xz")}


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED.keys())
def test_the_wanted_members_are_read_and_the_others_named(
    members: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
) -> None:
    assert members(content) == ({"a/one.mat": b"1" * 3000, "two.mat": b"2"}, ["readme"])
    assert bounded.is_archive(tmp_path / "archive")
    monkeypatch.setattr(bounded, "MOST_BYTES", 3000)
    with pytest.raises(InputError, match="too many bytes"):
        members(content)
    monkeypatch.undo()
    monkeypatch.setattr(bounded, "MOST_MEMBERS", 2)
    with pytest.raises(InputError, match="more than 2 files"):
        members(content)


def zip_link() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("lost.mat", b"1")
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


OUTSIDE = (
    "../a.mat",
    "a/../../a.mat",
    "/tmp/a.mat",
    "..\\a.mat",
    "C:\\a.mat",
    "a/..",
    "../.bashrc",
)
MALICIOUS = {
    **{f"zip {name}": in_zip(**{"b.mat": b"1", name: b"1"}) for name in OUTSIDE},
    **{f"tar {name}": in_tar(**{"b.mat": b"1", name: b"1"}) for name in OUTSIDE},
    "zip, link": zip_link(),
    "tar, link": tar_link(tarfile.SYMTYPE),
    "tar, hard link": tar_link(tarfile.LNKTYPE),
    "tar, device": tar_link(tarfile.CHRTYPE),
}


@pytest.mark.parametrize("content", MALICIOUS.values(), ids=MALICIOUS.keys())
def test_members_that_lead_out_are_refused(
    members: Callable[..., Any], tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(InputError, match="a link or lies outside"):
        members(content)
    assert [file.name for file in tmp_path.iterdir()] == ["archive"]


def locked() -> bytes:
    """An archive that claims to need a password."""
    raw = bytearray(PACKED["zip"])
    raw[6] |= 1
    raw[raw.index(b"PK\1\2") + 8] |= 1
    return bytes(raw)


def damaged(content: bytes) -> bytes:
    middle = len(content) // 4
    return content[:middle] + bytes(50) + content[middle + 50 :]


NOISE = np.random.default_rng(0).bytes(5000)
DAMAGED = {
    "password": (locked(), "password"),
    "bzip2": (in_zip(zipfile.ZIP_BZIP2, **FILES), "compressed in an unusual way"),
    "lzma": (in_zip(zipfile.ZIP_LZMA, **FILES), "compressed in an unusual way"),
    "zip": (damaged(in_zip(**{"a.mat": NOISE})), ""),
    "tar.gz": (damaged(in_tar(**{"a.mat": NOISE})), ""),
    "tar.xz": (damaged(in_tar("w:xz", **{"a.mat": NOISE})), ""),
    "half a tar.gz": (in_tar(**{"a.mat": NOISE})[:2000], "end-of-stream"),
    "wrong checksum": (in_tar(**{"a.mat": NOISE})[:-8] + bytes(8), "CRC"),
    "no tar": (gzip.compress(b"x" * 5000), ""),
    "empty": (b"", ""),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_archives_are_named(
    members: Callable[..., Any], tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(InputError, match=f"archive cannot be unpacked: .*{reason}") as caught:
        members(content)
    assert str(tmp_path / "archive") in str(caught.value)


def test_a_zip_that_lies_about_its_size_gives_no_more(members: Callable[..., Any]) -> None:
    raw = bytearray(in_zip(**{"lost.mat": ZEROS}))
    start = raw.index(b"PK\1\2")
    raw[start + 24 : start + 28] = (100).to_bytes(4, "little")
    with pytest.raises(InputError, match="cannot be unpacked"):
        members(bytes(raw))


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


def test_an_archive_is_unpacked_no_further_than_its_size_allows(
    members: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    """However many headers or long names it has."""
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10**5)
    with pytest.raises(InputError, match="too many bytes"):
        members(gzip.compress(bytes(10**8)))
    assert unpacked() <= 200 * 97_500 + 1


def idx(path: Path, declared: tuple[int, ...], content: bytes) -> Path:
    header = b"\0\0\x08" + bytes([len(declared)]) + struct.pack(f">{len(declared)}I", *declared)
    path.write_bytes(gzip.compress(header + content))
    return path


def test_an_idx_file_is_unpacked_no_further_than_declared_or_allowed(
    tmp_path: Path, unpacked: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="declares 1000 bytes, but holds 1001 or more"):
        read_idx(idx(tmp_path / "file", (1000,), ZEROS))
    assert unpacked() == 8 + 1001
    monkeypatch.setattr(bounded, "MOST_BYTES", 10**5)
    with pytest.raises(InputError, match="declares 2147483648 x 4 x 4 bytes, but holds 100001"):
        read_idx(idx(tmp_path / "file", (2**31, 4, 4), ZEROS))
    assert unpacked() == 8 + 1001 + 16 + 100_001


def mat_bomb(declared: int, content: bytes) -> bytes:
    """A .mat file of version 7 with one compressed matrix."""
    packed = zlib.compress(struct.pack("<II", 14, declared) + content)
    return bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(packed)) + packed


ZLIB = zlib.decompressobj


class CountedUnpacker:
    """Counts what zlib unpacks."""

    total = 0

    def __init__(self) -> None:
        self.inner = ZLIB()

    def decompress(self, content: Any, most: int = 0) -> bytes:
        unpacked = self.inner.decompress(content, most)
        CountedUnpacker.total += len(unpacked)
        return unpacked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("declared", "reason", "limit"),
    [
        (1000, "longer than it declares", 1100),
        (6 * 10**6, "unpack to too many bytes", 8),
        (2 * 10**6, "ends too soon", 10**6 + 8),
    ],
    ids=["longer", "too long", "shorter"],
)
def test_a_compressed_matrix_is_unpacked_no_further_than_it_declares(
    monkeypatch: pytest.MonkeyPatch, declared: int, reason: str, limit: int
) -> None:
    monkeypatch.setattr(bounded, "MOST_BYTES", 5 * 10**6)
    monkeypatch.setattr(mat.zlib, "decompressobj", CountedUnpacker)
    CountedUnpacker.total = 0
    with pytest.raises(InputError, match=reason):
        read_mat(Path("lost.mat"), mat_bomb(declared, ZEROS), ["data"])
    assert CountedUnpacker.total <= limit


def test_a_small_file_unpacks_to_no_more_than_its_size_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10**6)
    file = io.BytesIO()
    zeros = np.zeros((500, 250))
    savemat(file, {"a": zeros, "data": zeros}, do_compression=True)  # a megabyte each
    with pytest.raises(InputError, match="unpack to too many bytes"):
        read_mat(Path("lost.mat"), file.getvalue(), ["data"])


def hdf5(write: Callable[[h5py.File], Any]) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as content:
        write(content)
    return file.getvalue()


def huge_sparse(file: h5py.File) -> None:
    group = file.create_group("data")
    group.attrs["MATLAB_sparse"] = np.uint64(2**40)
    group["jc"] = np.zeros(1001, np.uint64)


def test_matrices_that_would_fill_the_memory_are_refused() -> None:
    dense = hdf5(lambda file: file.create_dataset("data", (10**6, 10**6), "f8", chunks=(100, 100)))
    assert len(dense) < 10**4
    with pytest.raises(InputError, match="unpack to too many bytes"):
        read_mat(Path("lost.mat"), dense, ["data"])
    version_5 = io.BytesIO()
    savemat(version_5, {"data": sparse.csc_matrix((2**31 - 1, 1000))})
    for content in (version_5.getvalue(), hdf5(huge_sparse)):
        with pytest.raises(InputError, match="a sparse matrix declares"):
            read_mat(Path("lost.mat"), content, ["data"])


def linked(folder: Path, kind: str) -> bytes:
    """A file whose matrix is in a file beside it."""
    with h5py.File(folder / "other.h5", "w") as other:
        other["secret"] = np.eye(3)
    np.eye(3).tofile(folder / "raw.bin")

    def write(file: h5py.File) -> None:
        external = h5py.ExternalLink(str(folder / "other.h5"), "/secret")
        if kind == "external link":
            file["data"] = external
        elif kind == "soft link":
            file["far"] = np.eye(3)
            file["data"] = h5py.SoftLink("/far")
        elif kind == "external storage":
            file.create_dataset("data", (3, 3), "f8", external=[(str(folder / "raw.bin"), 0, 72)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3, 3), "f8")
            layout[:] = h5py.VirtualSource(folder / "other.h5", "secret", (3, 3))
            file.create_virtual_dataset("data", layout)
        else:
            group = file.create_group("data")
            group.attrs["MATLAB_sparse"] = np.uint64(3)
            group["jc"] = external

    return hdf5(write)


@pytest.mark.parametrize(
    "kind", ["external link", "soft link", "external storage", "virtual", "sparse"]
)
def test_a_matrix_that_lies_in_another_file_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=r"lost\.mat.*must be in the file itself"):
        read_mat(Path("lost.mat"), linked(tmp_path, kind), ["data"])


def table(path: Path, rows: int, start: bytes = b"") -> Path:
    path.write_bytes(gzip.compress(b"a,label\n" + start + b"0,x|y\n" * rows))
    return path


@pytest.mark.parametrize("sound_rows", [0, 20_000])
def test_a_table_that_unpacks_without_end_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unpacked: Callable[[], int],
    sound_rows: int,
) -> None:
    numbers = np.random.default_rng(0).random(sound_rows)
    sound = "".join(f"{number},x|y\n" for number in numbers).encode()
    path = table(tmp_path / "bomb.csv.gz", 1_000_000, sound)
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10_000)
    with pytest.raises(InputError, match="unpack it yourself") as caught:
        read_table(path, candidates="label")
    assert str(path) in str(caught.value)
    assert 10_000 < unpacked() < 2 * len(sound) + 3 * 10**6


def test_a_small_table_may_shrink_to_any_size(tmp_path: Path) -> None:
    path = table(tmp_path / "repetitive.csv.gz", 20_000)
    assert 6 * 20_000 / path.stat().st_size > bounded.MOST_RATIO
    assert len(read_table(path, candidates="label").y) == 20_000


def test_no_more_is_read_than_one_byte_beyond() -> None:
    source = io.BytesIO(ZEROS)
    assert len(read_up_to(source, 500_000)) == 500_001
    assert source.tell() == 500_001
