"""Real-world datasets: .mat files with candidates and true labels.

Versions 5 to 7 are not read by SciPy: it trusts the types and sizes that a file states, so that one
wrong byte can crash the process.
"""

import hashlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from robustpll._files import refuse_replacing, write_whole
from robustpll.datasets import catalog
from robustpll.datasets.bounded import MOST_BYTES, is_archive, read_members, unpacked_limit
from robustpll.datasets.catalog import Entry
from robustpll.datasets.dataset import Dataset, unusual_counts
from robustpll.datasets.download import disk_errors_explained
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates

KEYS = ("data", "partial_target", "target")  # (n, d), (k, n), (k, n), each dense or sparse
LARGEST = 1e38  # so that float32 holds the difference of any two features
LEAST_VARIANCE = 1e-30  # features with no more are removed
FOREIGN = {b"Rar!": ".rar", b"7z\xbc\xaf": ".7z"}  # archives that Python cannot open
HDF5 = b"\x89HDF\r\n\x1a\n"  # at the start or, as MATLAB writes it, after 512 bytes
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
NUMBERS |= {12: "i8", 13: "u8"}  # the types of an element that are numbers
MATRIX, COMPRESSED = 14, 15  # further types of an element
SPARSE, LAST_DENSE = 5, 15  # the classes of matrices of numbers lie between
COMPLEX = 0x800
Matrix = tuple[str, NDArray[Any]]  # a name and what it stands for


def load(entry: Entry) -> Dataset:
    """Read a dataset from its .mat file, of version 5 to 7.3."""
    path = catalog.existing(entry, entry.files[0])
    return _dataset(entry, path, _read_bytes(path))


def add(entry: Entry, source: Path, say: Callable[[str], None]) -> Path:
    """Write a downloaded .mat file, or that of an archive, to its place if it is sound."""
    if entry.kind != "real-world":
        remedy = catalog.how_to_get(entry)
        raise InputError(f"Only real-world datasets can be added, not {entry.title}. {remedy}")
    target = catalog.data_folders()[0] / entry.files[0].path
    with disk_errors_explained(target):
        content = _mat_in(source)
        dataset = _dataset(entry, source, content)
        n, k = len(dataset), len(dataset.classes)
        if n != entry.rows and k != entry.classes:
            raise InputError(
                f"{source} has {n} rows and {k} classes; {entry.title} has {entry.rows} and "
                f"{entry.classes}. It is another dataset: pass the name of that one."
            )
        for note in dataset.notes:
            say(f"{source}: {note}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_replacing(target, content.startswith, f"what {source} holds")
        write_whole(target, content)
    return target


def _mat_in(source: Path) -> bytes:
    """Return the content of a .mat file, or of the only one in an archive."""
    if not source.is_file():
        raise InputError(f"There is no file {source}.")
    with source.open("rb") as file:
        start = file.read(4)
    if start in FOREIGN:
        raise InputError(
            f"{source} is a {FOREIGN[start]} archive. Unpack it first and pass its .mat file."
        )
    if not is_archive(source):
        return _read_bytes(source)
    contents, _ = read_members(source, _is_mat)
    if len(contents) != 1:
        raise InputError(
            f"{source} must have one .mat file; found {', '.join(contents) or 'none'}. Unpack it "
            "and pass the right file."
        )
    return next(iter(contents.values()))


def _is_mat(name: str) -> bool:
    return name.lower().endswith(".mat") and not PureWindowsPath(name).name.startswith("._")


def _read_bytes(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise InputError(f"{path} has {size} bytes; no dataset here has more than {MOST_BYTES}.")
    return path.read_bytes()


def _dataset(entry: Entry, path: Path, raw: bytes) -> Dataset:
    """Check the content of a .mat file, and return its dataset; `path` is for messages."""
    data, partial, target = read_mat(path, raw, KEYS)
    version = catalog.checked_version(entry, [path], [hashlib.sha256(raw).hexdigest()])
    if 0 in data.shape or partial.shape != target.shape or partial.shape[1] != data.shape[0]:
        raise InputError(
            f"{path}: for 'data' of n rows and d features, 'partial_target' and 'target' must both "
            f"be k x n; found {data.shape}, {partial.shape} and {target.shape}. Transpose the "
            "matrix that is the wrong way round, or download the file again."
        )
    features, constant = _informative(path, data)
    candidates, truth = _zero_one(path, KEYS[1], partial), _zero_one(path, KEYS[2], target)
    _refuse_rows(path, candidates.sum(-1) == 0, "no candidate", "Drop them, or add candidates")
    _refuse_rows(path, truth.sum(-1) != 1, "not exactly one true label", "Correct or drop them")
    labels = truth.argmax(-1)
    notes = unusual_counts(entry, len(data), data.shape[1], len(partial))
    outside = np.flatnonzero(~candidates[np.arange(len(labels)), labels])
    facts = (
        (outside, f"the true label is no candidate in {len(outside)} rows"),
        (constant, f"{len(constant)} constant features were removed"),
    )
    notes += tuple(f"{fact}: {', '.join(map(str, rows))}" for rows, fact in facts if len(rows))
    y = Candidates.of(candidates)
    return Dataset.of(
        entry, features, labels, y.classes, candidates=y, notes=notes, content=version
    )


def _informative(path: Path, data: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the features (n, d) without the constant ones, and the indices of those."""
    low, high = (end.astype(np.float64) for end in (data.min(0), data.max(0)))
    if not (low.min() >= -LARGEST and high.max() <= LARGEST):  # NaN is neither
        odd = ~(np.abs(data) <= LARGEST).all(-1)
        _refuse_rows(path, odd, f"NaN, infinity or numbers beyond {LARGEST:g}", "Correct them")
    # so small a variance needs a range of no more than this: few features need a closer look
    near = np.flatnonzero(high - low <= 2 * np.sqrt(len(data) * LEAST_VARIANCE))
    constant = near[(data[:, near] - low[near]).var(0) <= LEAST_VARIANCE]
    features = np.delete(data, constant, axis=1) if len(constant) else data
    if features.shape[1] == 0:
        raise InputError(f"{path}: all features are constant. Download the file again.")
    return np.array(features, dtype=np.float64, order="K"), constant


def _zero_one(path: Path, key: str, matrix: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a matrix (k, n) of 0 and 1 as bool, (n, k)."""
    odd = matrix[~((matrix == 0) | (matrix == 1))]
    if odd.size:
        raise InputError(
            f"{path}: {key!r} must hold only 0 and 1; found {odd.size} other values "
            f"({some_of(np.unique(odd))}). Correct them."
        )
    return np.ascontiguousarray(matrix.astype(bool).T)


def _refuse_rows(path: Path, is_bad: NDArray[np.bool_], what: str, remedy: str) -> None:
    rows = np.flatnonzero(is_bad)
    if len(rows):
        raise InputError(f"{path}: {what} in {len(rows)} rows ({some_of(rows)}). {remedy}.")


def read_mat(path: Path, raw: bytes, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the matrices of these names from the content of a .mat file, sparse ones dense."""
    is_hdf5 = HDF5 in (raw[:8], raw[512:520])
    limit = unpacked_limit(len(raw))
    try:
        matrices = dict((_hdf5_matrices if is_hdf5 else _matrices)(raw, names, limit))
    except ImportError as error:
        raise InputError(
            f"{path} is a .mat file of version 7.3, which needs h5py. Run "
            "pip install 'robustpll[mat73]', or save the file from MATLAB with '-v7'."
        ) from error
    except Exception as error:  # h5py does not promise any type of error for damaged files
        raise InputError(
            f"{path} is not a readable .mat file: {error}. Download it again."
        ) from error
    missing = [name for name in names if name not in matrices]
    if missing:
        raise InputError(
            f"{path} must hold {', '.join(names)}; it has no {', '.join(missing)}. Download the "
            "file again, or rename its variables."
        )
    return [matrices[name] for name in names]


def _matrices(raw: bytes, names: Sequence[str], room: int) -> Iterator[Matrix]:
    """Yield name and matrix from a file of version 5 to 7; unpack at most `room` bytes."""
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128])
    if order is None:
        raise ValueError("it does not begin as a file of version 5 or newer")
    for kind, content in _elements(memoryview(raw)[128:], order, room):
        if kind == MATRIX:
            parts = _elements(content, order)
            flags, sides, letters = (part for _, part in islice(parts, 3))
            name = bytes(letters).decode("latin-1")
            if name in names:
                (about,) = struct.unpack_from(f"{order}I", flags)
                shape = np.frombuffer(sides, f"{order}i4").tolist()
                numbers = [
                    np.frombuffer(part if kind in NUMBERS else b"", order + NUMBERS.get(kind, "u1"))
                    for kind, part in parts
                ]
                yield name, _matrix(name, about, shape, numbers)


def _elements(raw: memoryview, order: str, room: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield type and content of each element: a type, a size, as many bytes, padded to 8."""
    position = 0
    while position < len(raw):
        kind, size = struct.unpack_from(f"{order}II", raw, position)
        start = position + 8
        position = start + (size if kind == COMPRESSED else -(-size // 8) * 8)
        if kind >> 16:  # up to four bytes, which stand in the place of the size
            kind, size, start, position = kind & 0xFFFF, min(kind >> 16, 4), start - 4, start
        if start + size > len(raw):
            raise ValueError("it ends too soon")
        content = raw[start : start + size]
        if kind == COMPRESSED:
            kind, content = _unpack(content, order, room)
            room -= len(content)
        yield kind, content


def _unpack(content: memoryview, order: str, room: int) -> tuple[int, memoryview]:
    """Return type and content of a compressed element; unpack no more than it declares."""
    unpacker = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", unpacker.decompress(content, 8))
    if size > room:
        raise ValueError("its matrices unpack to too many bytes for a file of its size")
    padded = -(-size // 8) * 8
    unpacked = unpacker.decompress(unpacker.unconsumed_tail, padded) if size else b""
    if unpacker.decompress(unpacker.unconsumed_tail, 1):
        raise ValueError("a compressed matrix is longer than it declares")
    if not unpacker.eof or len(unpacked) < size:
        raise ValueError("a compressed matrix ends too soon")
    return kind, memoryview(unpacked)[:size]


def _matrix(name: str, about: int, shape: list[int], parts: list[NDArray[Any]]) -> NDArray[Any]:
    kind = about & 0xFF
    if not SPARSE <= kind <= LAST_DENSE or about & COMPLEX or len(shape) != 2 or min(shape) < 0:
        what = f"class {kind}, shape {tuple(shape)}{', complex' if about & COMPLEX else ''}"
        raise ValueError(f"{name!r} must be a matrix of real numbers, but is of {what}")
    if kind != SPARSE:
        (values,) = parts
        return values.reshape(shape, order="F")
    rows, starts, values = parts
    if len(starts) != shape[1] + 1:
        raise ValueError(f"the number of columns of {name!r} differs from its shape")
    return _sparse(values, rows, starts, shape[0])


def _sparse(
    values: NDArray[Any], rows: NDArray[Any], starts: NDArray[Any], height: int
) -> NDArray[Any]:
    """Return a dense matrix from its values, column by column; refuse indices outside of it."""
    if rows.dtype.kind not in "iu" or starts.dtype.kind not in "iu" or not len(starts):
        raise ValueError("the indices of a sparse matrix must be integers")
    starts = starts.astype(np.int64)
    sizes, count = np.diff(starts), int(starts[-1])  # values beyond `count` are unused
    if height * len(sizes) > MOST_BYTES // 8:  # bytes of a dense number
        raise ValueError(f"a sparse matrix declares {height} x {len(sizes)} numbers")
    if starts[0] or (sizes < 0).any() or count > min(len(values), len(rows)):
        raise ValueError("the indices of a sparse matrix do not fit its values")
    indices = (rows[:count].astype(np.int64), np.repeat(np.arange(len(sizes)), sizes))
    return sparse.csc_array((values[:count], indices), shape=(height, len(sizes))).toarray()


def _hdf5_matrices(raw: bytes, names: Sequence[str], room: int) -> Iterator[Matrix]:
    """Yield name and matrix from a file of version 7.3, which stores matrices transposed."""
    import h5py  # type: ignore[import-untyped]

    def local(group: Any, key: str) -> Any:
        """Return a group or HDF5 dataset; refuse one that lies in another file."""
        is_link = not isinstance(group.get(key, getlink=True), h5py.HardLink)
        member = None if is_link else group[key]
        if is_link or (isinstance(member, h5py.Dataset) and (member.external or member.is_virtual)):
            raise ValueError(f"{key!r} is a link; matrices must be in the file itself")
        return member

    with h5py.File(io.BytesIO(raw)) as file:
        for name in names:
            if name not in file:
                continue
            matrix = local(file, name)
            height = matrix.attrs.get("MATLAB_sparse")  # None: a dense matrix
            keys = [key for key in ("data", "ir", "jc") if height is not None and key in matrix]
            parts = {key: local(matrix, key) for key in keys} or {"dense": matrix}
            room -= sum(part.nbytes for part in parts.values())
            if room < 0:
                raise ValueError("its matrices unpack to too many bytes for a file of its size")
            arrays = {key: np.asarray(part[()]) for key, part in parts.items()}
            yield name, _hdf5_matrix(name, arrays, height)


def _hdf5_matrix(name: str, arrays: dict[str, NDArray[Any]], height: Any) -> NDArray[Any]:
    if height is not None:
        values, rows = arrays.get("data", np.empty(0)), arrays.get("ir", np.empty(0, int))
        return _sparse(values, rows, arrays["jc"], int(height))
    dense = arrays["dense"].T
    if dense.dtype.kind not in "biuf" or dense.ndim != 2:
        what = f"{dense.dtype}, shape {dense.shape}"
        raise ValueError(f"{name!r} must be a matrix of real numbers, but is of {what}")
    return dense
