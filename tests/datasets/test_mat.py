"""Real-world datasets: published facts, files of each form, broken ones, and `add`."""

import io
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy import sparse
from scipy.io import loadmat, savemat

from robustpll import InputError, load_dataset
from robustpll.datasets import bounded
from robustpll.datasets.catalog import CATALOG, entry_of, paths_of
from robustpll.datasets.mat import KEYS, add, read_mat

Parts = dict[str, Any]


def parts(n: int = 30, d: int = 4, k: int = 5, **changes: Any) -> Parts:
    """What a sound file holds: the true label and the next class are candidates of most rows."""
    drawn = np.random.default_rng(0)
    target = np.eye(k)[np.arange(n) % k].T
    partial = np.maximum(target, np.roll(target, 1, axis=0) * (drawn.random(n) < 0.7))
    data = drawn.normal(size=(n, d))
    return {"data": data, "partial_target": partial, "target": target} | changes


def mat_file(matrices: Parts, **options: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, matrices, **options)
    return file.getvalue()


def sparse_parts(matrices: Parts) -> Parts:
    dense = {key: value for key, value in matrices.items() if np.ndim(value) == 2 and value.size}
    return matrices | {key: sparse.csc_matrix(value) for key, value in dense.items()}


def write_hdf5(path: Path, matrices: Parts, userblock: int = 512) -> None:
    """As MATLAB writes version 7.3."""
    with h5py.File(path, "w", userblock_size=userblock) as file:
        for key, value in matrices.items():
            if not sparse.issparse(value):
                file[key] = value if isinstance(value, str) else np.asarray(value).T
                continue
            group = file.create_group(key)
            group.attrs["MATLAB_sparse"] = np.uint64(value.shape[0])
            group["jc"] = value.indptr.astype(np.uint64)
            if value.nnz:
                group["ir"], group["data"] = value.indices.astype(np.uint64), value.data
    if userblock:
        with path.open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")


def write_by_hand(path: Path, matrices: Parts) -> None:
    """As the format's description has it: numbers in small types, names in short elements."""

    def element(kind: int, content: bytes) -> bytes:
        if len(content) <= 4:
            return struct.pack("<I", len(content) << 16 | kind) + content.ljust(4, b"\0")
        padded = content.ljust(-(-len(content) // 8) * 8, b"\0")
        return struct.pack("<II", kind, len(content)) + padded

    whole = b"MATLAB 5.0".ljust(124) + b"\0\1IM"
    for key, value in matrices.items():
        kind, dtype = (9, "<f8") if key == "data" else (2, "u1")
        matrix = (
            element(6, struct.pack("<II", 6, 0)),  # of class double
            element(5, struct.pack("<ii", *value.shape)),
            element(1, key.encode()),
            element(kind, value.astype(dtype).tobytes("F")),
        )
        whole += element(14, b"".join(matrix))
    path.write_bytes(whole)


@pytest.fixture
def path(data: Path) -> Path:
    """Where the file of Lost is searched."""
    (data / "realworld").mkdir()
    return data / "realworld" / "lost.mat"


def integers(matrices: Parts) -> Parts:
    return matrices | {key: matrices[key].astype(np.uint8) for key in KEYS[1:]}


FORMS: dict[str, Callable[[Path, Parts], None]] = {
    "version 5": savemat,
    "compressed": lambda path, matrices: savemat(path, matrices, do_compression=True),
    "integers": lambda path, matrices: savemat(path, integers(matrices)),
    "small types": write_by_hand,
    "among others": lambda path, matrices: savemat(path, {"a": "text", "b": {"c": 1}} | matrices),
    "sparse": lambda path, matrices: savemat(path, sparse_parts(matrices)),
    "version 7.3": write_hdf5,
    "version 7.3, sparse": lambda path, matrices: write_hdf5(path, sparse_parts(matrices)),
    "HDF5": lambda path, matrices: write_hdf5(path, matrices, userblock=0),
}
FOUR_FORMS = [FORMS[name] for name in ("version 5", "sparse", "compressed", "version 7.3, sparse")]


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_file_say_the_same(path: Path, form: str) -> None:
    matrices = parts()
    FORMS[form](path, matrices)
    dataset = load_dataset("lost")
    assert (dataset.features == matrices["data"]).all()
    assert (dataset.features.dtype, dataset.labels.dtype) == (np.float64, np.int64)
    assert dataset.labels.tolist() == matrices["target"].argmax(0).tolist()
    assert (dataset.candidates.matrix == matrices["partial_target"].T).all()
    assert dataset.classes.tolist() == dataset.candidates.classes.tolist() == [*range(5)]
    assert dataset.image_shape is dataset.official is None
    assert dataset.notes == ()


def test_version_7_3_without_its_package_names_the_extra(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hdf5(path, parts())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install 'robustpll\[mat73\]'"):
        load_dataset("lost")


def test_what_is_removed_or_odd_is_noted(path: Path) -> None:
    matrices = parts(n=40, d=7)
    swing = np.tile([-1.0, 1.0], 20)
    matrices["data"][:, 1] = 0.0
    matrices["data"][:, 2] = 1e5 + 0.1  # whose mean does not round to it
    matrices["data"][:, 4] = 9e-16 * swing  # a variance of 8.1e-31
    matrices["data"][:, 5] = 1.1e-15 * swing  # a variance of 1.2e-30
    for row in (3, 17):
        label = matrices["target"][:, row].argmax()
        matrices["partial_target"][:, row] = np.arange(5) == (label + 2) % 5
    savemat(path, matrices)
    dataset = load_dataset("lost")
    assert dataset.notes == (
        "the true label is no candidate in 2 rows (3, 17)",
        "3 constant features were removed (1, 2, 4)",
    )
    assert (dataset.features == matrices["data"][:, [0, 3, 5, 6]]).all()


def with_cells(key: str, cell: Any, value: float) -> Parts:
    matrices = parts()
    matrices[key][cell] = value
    return matrices


TURNED = {key: parts()[key].T for key in KEYS[1:]}
ODD: dict[str, tuple[Parts, str]] = {
    "without data": ({key: parts()[key] for key in KEYS[1:]}, "has no data. Download"),
    "other keys": ({"X": np.eye(3), "y": np.eye(3)}, "no data, partial_target, target"),
    "too few rows": (parts(data=np.eye(29, 4)), r"\(29, 4\), \(5, 30\) and \(5, 30\)"),
    "targets the wrong way round": (parts(**TURNED), "'partial_target' and 'target' k x n"),
    "one class too many": (parts(target=np.eye(6, 30)), r"\(5, 30\) and \(6, 30\)"),
    "no rows": ({key: value[:, :0] for key, value in parts().items()}, r"found \(30, 0\)"),
    "NaN": (with_cells("data", (4, 1), np.nan), r"NaN, infinity.* in 1 row \(4\)"),
    "beyond float32": (with_cells("data", (6, 1), 1e39), r"NaN, infinity.* in 1 row \(6\)"),
    "all constant": (parts(data=np.ones((30, 4))), "all features are constant"),
    "a probability": (with_cells("partial_target", (0, 1), 0.5), r"targets.*0 and 1.*\(1\)"),
    "a label of two": (with_cells("target", (0, 3), 2.0), r"targets.*0 and 1 in 1 row \(3\)"),
    "NaN as label": (with_cells("target", (0, 3), np.nan), r"targets.*0 and 1 in 1 row \(3\)"),
    "no label": (with_cells("target", (1, 1), 0.0), r"one true label in 1 row \(1\)"),
    "two labels": (with_cells("target", (2, 1), 1.0), r"one true label in 1 row \(1\)"),
    "no candidates": (with_cells("partial_target", np.s_[:, [2, 7]], 0), r"no candidate.*\(2, 7\)"),
    "text": (parts(target="lost"), "'target' must be a matrix of real numbers"),
    "complex numbers": (parts(data=1j * parts()["data"]), "must be a matrix of real numbers"),
    "three axes": (parts(data=np.ones((30, 2, 2))), r"real numbers.*\(.*30.*\)"),
}


@pytest.mark.parametrize(("matrices", "reason"), ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("form", ["version 5", "sparse", "version 7.3", "version 7.3, sparse"])
def test_odd_content_is_refused_by_name(
    path: Path, matrices: Parts, reason: str, form: str
) -> None:
    FORMS[form](path, matrices)
    with pytest.raises(InputError, match=f"{path}.*{reason}"):
        load_dataset("lost")


@pytest.mark.parametrize(
    ("write", "attribute", "value"),
    [
        (savemat, "indices", 70_000),
        (savemat, "indices", -1),
        (write_hdf5, "indices", 70_000),
        (write_hdf5, "indptr", 7),
    ],
)
def test_a_sparse_matrix_that_points_outside_is_refused(
    path: Path, write: Any, attribute: str, value: int
) -> None:
    matrices = sparse_parts(parts())
    getattr(matrices["target"], attribute)[3] = value
    write(path, matrices)
    with pytest.raises(InputError, match="cannot be read"):
        load_dataset("lost")


@pytest.mark.parametrize("write", FOUR_FORMS)
def test_damaged_bytes_are_refused_or_leave_a_sound_dataset(path: Path, write: Any) -> None:
    write(path, parts(n=6, d=2, k=3))
    whole = path.read_bytes()
    for other in (b"", bytes(1000), whole[: len(whole) // 3], whole[: len(whole) * 9 // 10]):
        path.write_bytes(other)
        with pytest.raises(InputError, match=r"lost\.mat"):
            load_dataset("lost")
    drawn = np.random.default_rng(0)
    refused = 0
    for position in drawn.integers(0, len(whole), 60):
        path.write_bytes(whole[:position] + drawn.bytes(1) + whole[position + 1 :])
        try:
            dataset = load_dataset("lost")
        except InputError:
            refused += 1
        else:
            assert np.isfinite(dataset.features).all()
            assert dataset.candidates.matrix.any(-1).all()
    assert refused > 0


# Files that would fill the memory, or that lead to other files


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
    group["ir"], group["jc"], group["data"] = np.zeros(0), starts, np.zeros(0)


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


# Published facts

FACTS = {
    # shape, classes; candidates: average, most, share of rows with one alone in percent
    "bird-song": ((4998, 38), 13, (2.1755, 4, 32.7)),
    "lost": ((1122, 108), 16, (2.2317, 3, 6.0)),
    "msrc-v2": ((1758, 48), 23, (3.1564, 7, 8.0)),
    "fg-net": ((1002, 262), 78, (7.48, None, None)),
    "italian": ((21878, 519 - 36), 90, (1.60, None, None)),
}


@pytest.mark.data
@pytest.mark.parametrize("name", FACTS)
def test_the_published_facts_hold(name: str) -> None:
    """And a file that MATLAB wrote is read as by SciPy."""
    shape, k, (average, most, alone) = FACTS[name]
    dataset = load_dataset(name)
    assert not [note for note in dataset.notes if "constant features" not in note]
    assert dataset.features.shape == shape
    assert dataset.candidates.shape == (shape[0], k)
    sizes = dataset.candidates.sizes
    assert sizes.mean() == pytest.approx(average, abs=5e-5 if most else 5e-3)
    if most:
        assert dataset.notes == ()
        assert (sizes.min(), sizes.max()) == (1, most)
        assert 100 * (sizes == 1).mean() == pytest.approx(alone, abs=0.05)
    (path,) = paths_of(CATALOG[name])
    expected = loadmat(path)
    for key, matrix in zip(KEYS, read_mat(path, path.read_bytes(), KEYS), strict=True):
        dense = expected[key]
        assert np.array_equal(matrix, dense.toarray() if sparse.issparse(dense) else dense)


# Files that are added

TOY = replace(entry_of("lost"), rows=30, features=3, classes=5)


def in_zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


SOUND = mat_file(with_cells("data", np.s_[:, 2], 1.0))  # once, because it holds the time


@pytest.fixture
def bring(data: Path, tmp_path: Path) -> Callable[..., Path]:
    """Adds a file with this content to an empty data folder."""

    def bring(content: bytes, say: Callable[[str], None] = print) -> Path:
        (tmp_path / "given").write_bytes(content)
        return add(TOY, tmp_path / "given", say)

    return bring


READABLE = {
    "plain": SOUND,
    "zip": in_zip(**{"Lost/readme.txt": b"hello", "Lost/lost.MAT": SOUND}),
    "zip of a Mac": in_zip(**{"lost.mat": SOUND, "__MACOSX/._lost.mat": b"junk"}),
}


@pytest.mark.parametrize("content", READABLE.values(), ids=READABLE.keys())
def test_the_one_mat_file_is_put_at_its_place_and_what_is_odd_is_said(
    bring: Callable[..., Path], tmp_path: Path, content: bytes
) -> None:
    messages: list[str] = []
    path = bring(content, messages.append)
    assert messages == [f"{tmp_path / 'given'}: 1 constant feature was removed (2)."]
    assert path == tmp_path / "data" / "realworld" / "lost.mat"
    assert path.read_bytes() == SOUND
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert bring(content) == path  # the same once more
    path.write_bytes(b"a version of my own")
    with pytest.raises(InputError, match=r"is there already, and is not what .*given holds"):
        bring(content)
    assert path.read_bytes() == b"a version of my own"


UNSOUND = {
    "nothing": (b"", "cannot be read"),
    "a web page": (b"<html>not found</html>" * 50, "no .mat file of version 5 or newer"),
    "version 4": (mat_file(parts(), format="4"), "no .mat file of version 5 or newer"),
    "rar": (b"Rar!\x1a\7\1\0", "no zip or tar archive"),
    "no mat": (in_zip(readme=b"hello"), "has none"),
    "two mats": (in_zip(**{"a.mat": SOUND, "b.mat": SOUND}), "has a.mat, b.mat"),
    "a folder named so": (in_zip(**{"lost.mat/": b""}), "has none"),
    "an archive that leads out": (in_zip(**{"../lost.mat": SOUND}), "lies outside"),
    "words for labels": (in_zip(**{"lost.mat": mat_file(ODD["text"][0])}), "'target' must be"),
    "another dataset": (mat_file(parts(40, k=6)), "has 40 rows and 6 classes: it is not Lost"),
}


@pytest.mark.parametrize(("content", "reason"), UNSOUND.values(), ids=UNSOUND.keys())
def test_an_unsound_file_is_refused_by_name_and_replaces_nothing(
    bring: Callable[..., Path], tmp_path: Path, content: bytes, reason: str
) -> None:
    path = bring(SOUND)
    with pytest.raises(InputError, match=f"{tmp_path / 'given'}.*{reason}"):
        bring(content)
    assert path.read_bytes() == SOUND


def test_what_cannot_be_added_is_a_sentence(
    bring: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.mat"):
        add(TOY, Path("nowhere.mat"), print)
    with pytest.raises(InputError, match="robustpll datasets get mnist"):
        add(entry_of("mnist"), Path("some.mat"), print)
    path = bring(SOUND)
    with monkeypatch.context() as patch:
        patch.setattr(bounded, "MOST_BYTES", len(SOUND) - 1)
        with pytest.raises(InputError, match="too many bytes"):
            bring(SOUND)
    assert path.read_bytes() == SOUND
