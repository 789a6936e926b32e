"""Bombs: small files that unpack to much are refused before they are unpacked."""

import gzip
import io
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
from robustpll.datasets import archives, bounded, mat_file
from robustpll.datasets import idx as idx_files
from robustpll.datasets.archives import add
from robustpll.datasets.bounded import read_up_to
from robustpll.datasets.catalog import entry_of
from robustpll.datasets.idx import read_idx
from robustpll.datasets.mat_file import read_mat

ZEROS = bytes(10**6)


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


def idx(path: Path, declared: tuple[int, ...], content: bytes) -> Path:
    header = b"\0\0\x08" + bytes([len(declared)]) + struct.pack(f">{len(declared)}I", *declared)
    path.write_bytes(gzip.compress(header + content))
    return path


def test_an_idx_file_is_read_no_further_than_its_header_says(
    tmp_path: Path, unpacked: Callable[[], int]
) -> None:
    with pytest.raises(InputError, match="says it holds 1000 bytes, but holds 1001 or more"):
        read_idx(idx(tmp_path / "file", (1000,), ZEROS))
    assert unpacked() == 8 + 1001


def test_an_idx_file_that_declares_more_than_it_can_hold_is_not_unpacked(
    tmp_path: Path, unpacked: Callable[[], int]
) -> None:
    path = idx(tmp_path / "file", (2**31, 4, 4), ZEROS)
    with pytest.raises(InputError, match="at the most"):
        read_idx(path)
    assert unpacked() == 16
    path = idx(tmp_path / "file", (len(path.read_bytes()) * 2000,), ZEROS)  # gzip cannot do that
    with pytest.raises(InputError, match="a picture file of its size holds"):
        read_idx(path)


def test_an_idx_file_larger_than_any_set_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idx_files, "MOST_BYTES", 10**5)
    with pytest.raises(InputError, match="100000 at the most"):
        read_idx(idx(tmp_path / "file", (10**6,), ZEROS))


@pytest.mark.parametrize("axes", [4, 65, 255])
def test_an_idx_file_of_many_axes_is_refused(tmp_path: Path, axes: int) -> None:
    with pytest.raises(InputError, match=f"has {axes} axes"):
        read_idx(idx(tmp_path / "file", (1,) * axes, b"\0"))


def tar(path: Path, members: int, **headers: Any) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for number in range(members):
            member = tarfile.TarInfo(f"file-{number}")
            member.pax_headers = headers
            archive.addfile(member)
    return path


def test_a_tar_of_many_empty_files_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 10)
    path = tar(tmp_path / "many.tar.gz", 5000)
    taken: list[object] = []
    before = archives._refuse_outside
    monkeypatch.setattr(archives, "_refuse_outside", lambda *of: [taken.append(of), before(*of)])
    with pytest.raises(InputError, match="more than 10 files"):
        add(entry_of("lost"), path)
    assert len(taken) == 10


def test_a_tar_with_a_huge_header_is_refused_unread(
    tmp_path: Path, unpacked: Callable[[], int]
) -> None:
    path = tar(tmp_path / "long.tar.gz", 1, comment="x" * 3_000_000)
    with pytest.raises(InputError, match="cannot be unpacked: a header in it has"):
        add(entry_of("lost"), path)
    assert unpacked() < 100_000


def test_a_zip_of_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 10)
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(11):
            archive.writestr(f"file-{number}", b"")
    with pytest.raises(InputError, match="more than 10 files"):
        add(entry_of("lost"), path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_whose_members_cannot_be_unpacked_in_pieces_is_refused(
    tmp_path: Path, compression: int
) -> None:
    path = tmp_path / "lost.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("lost.mat", ZEROS)
    with pytest.raises(InputError, match=r"in an unusual way\. Get it anew, or unpack it by hand"):
        add(entry_of("lost"), path)


def mat_bomb(path: Path, declared: int, content: bytes) -> Path:
    """A .mat file of version 7 with one compressed matrix."""
    packed = zlib.compress(struct.pack("<II", 14, declared) + content)
    path.write_bytes(bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(packed)) + packed)
    return path


class CountedUnpacker:
    """Counts what zlib unpacks."""

    total = 0

    def __init__(self) -> None:
        self.inner = ZLIB()

    def decompress(self, content: Any, most: int = 0) -> bytes:
        found = self.inner.decompress(content, most)
        CountedUnpacker.total += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


ZLIB = zlib.decompressobj


@pytest.mark.parametrize(
    ("declared", "reason", "limit"),
    [
        (1000, "longer than it says", 1100),
        (6 * 10**6, "unpack to more than 5000000 bytes", 8),
        (2 * 10**6, "ends too soon", 10**6 + 8),
    ],
    ids=["longer", "too long", "shorter"],
)
def test_a_compressed_matrix_is_unpacked_no_further_than_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: int, reason: str, limit: int
) -> None:
    monkeypatch.setattr(mat_file, "MOST_BYTES", 5 * 10**6)
    monkeypatch.setattr(mat_file.zlib, "decompressobj", CountedUnpacker)
    CountedUnpacker.total = 0
    with pytest.raises(InputError, match=reason):
        read_mat(mat_bomb(tmp_path / "lost.mat", declared, ZEROS), ["data"])
    assert CountedUnpacker.total <= limit


def test_a_small_file_unpacks_to_no_more_than_its_size_allows(tmp_path: Path) -> None:
    path = tmp_path / "lost.mat"
    savemat(path, {"data": np.zeros((9000, 1000))}, do_compression=True)
    assert path.stat().st_size < 10**5
    with pytest.raises(InputError, match="unpack to more than 67108864 bytes"):
        read_mat(path, ["data"])


def test_a_file_larger_than_any_dataset_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mat_file, "MOST_BYTES", 10**5)
    (tmp_path / "lost.mat").write_bytes(ZEROS)
    with pytest.raises(InputError, match="has 1000000 bytes"):
        read_mat(tmp_path / "lost.mat", ["data"])


def test_a_matrix_of_hdf5_that_declares_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "lost.mat"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", (10**6, 10**6), "f8", chunks=(100, 100))
    assert path.stat().st_size < 10**4
    with pytest.raises(InputError, match="unpack to more than 67108864 bytes"):
        read_mat(path, ["data"])


@pytest.mark.parametrize("form", ["version 5", "version 7.3"])
def test_a_sparse_matrix_that_would_fill_the_memory_is_refused(tmp_path: Path, form: str) -> None:
    path = tmp_path / "lost.mat"
    if form == "version 5":
        savemat(path, {"data": sparse.csc_matrix((2**31 - 1, 1000))})
    else:
        with h5py.File(path, "w") as file:
            group = file.create_group("data")
            group.attrs["MATLAB_sparse"] = np.uint64(2**40)
            group["jc"] = np.zeros(1001, np.uint64)
    with pytest.raises(InputError, match="a sparse matrix says it has"):
        read_mat(path, ["data"])


def linked(path: Path, kind: str) -> None:
    """A file whose matrix is somewhere else: beside it there is one with numbers."""
    with h5py.File(path.with_name("other.h5"), "w") as other:
        other["secret"] = np.eye(3)
    np.eye(3).tofile(path.with_name("raw.bin"))
    with h5py.File(path, "w") as file:
        if kind == "external link":
            file["data"] = h5py.ExternalLink(str(path.with_name("other.h5")), "/secret")
        elif kind == "soft link":
            file["far"] = np.eye(3)
            file["data"] = h5py.SoftLink("/far")
        elif kind == "external storage":
            raw = [(str(path.with_name("raw.bin")), 0, 72)]
            file.create_dataset("data", (3, 3), "f8", external=raw)
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3, 3), "f8")
            layout[:] = h5py.VirtualSource(path.with_name("other.h5"), "secret", (3, 3))
            file.create_virtual_dataset("data", layout)
        else:
            group = file.create_group("data")
            group.attrs["MATLAB_sparse"] = np.uint64(3)
            group["jc"] = h5py.ExternalLink(str(path.with_name("other.h5")), "/secret")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("external link", "'data' is a link"),
        ("soft link", "'data' is a link"),
        ("external storage", "'data' are in other files"),
        ("virtual", "'data' are in other files"),
        ("sparse", "'jc' is a link"),
    ],
)
def test_a_file_that_leads_to_another_is_refused(tmp_path: Path, kind: str, reason: str) -> None:
    linked(tmp_path / "lost.mat", kind)
    with pytest.raises(InputError, match=reason):
        read_mat(tmp_path / "lost.mat", ["data"])


def table(path: Path, rows: int) -> Path:
    path.write_bytes(gzip.compress(b"a,label\n" + b"0,x|y\n" * rows))
    return path


def test_a_table_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    path = table(tmp_path / "bomb.csv.gz", 2_000_000)
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10_000)
    with pytest.raises(InputError, match="unpack it yourself") as caught:
        read_table(path, candidates="label")
    assert str(path) in str(caught.value)
    assert 10_000 < unpacked() < 3 * 10**6  # of 12 million


def test_a_table_with_a_bomb_behind_sound_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    path = tmp_path / "late.csv.gz"
    numbers = np.random.default_rng(0).random(20_000)
    sound = "a,label\n" + "".join(f"{number},x|y\n" for number in numbers)
    path.write_bytes(gzip.compress(sound.encode() + b"0,x|y\n" * 2_000_000))
    monkeypatch.setattr(bounded, "UNSUSPICIOUS", 10_000)
    with pytest.raises(InputError, match="unpack it yourself"):
        read_table(path, candidates="label")
    assert len(sound) < unpacked() < 2 * len(sound) + 2 * 10**6


def test_a_small_table_may_shrink_as_it_will(tmp_path: Path) -> None:
    path = table(tmp_path / "repetitive.csv.gz", 30_000)
    assert 6 * 30_000 / path.stat().st_size > bounded.MOST_RATIO
    assert len(read_table(path, candidates="label").y) == 30_000


def test_no_more_is_read_than_one_byte_beyond(tmp_path: Path) -> None:
    source = io.BytesIO(ZEROS)
    assert len(read_up_to(source, 500_000)) == 500_001
    assert source.tell() == 500_001
