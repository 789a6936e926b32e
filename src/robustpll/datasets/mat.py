"""Real-world datasets: .mat files with candidates and true labels.

Versions 5 to 7 are not read by SciPy: it trusts the types and sizes that a file states, so that one
wrong byte can crash the process.
"""

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from robustpll._files import refuse_replacing, write_whole
from robustpll.datasets import bounded, catalog
from robustpll.datasets.catalog import Entry
from robustpll.datasets.dataset import Dataset
from robustpll.errors import InputError, counted, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import refuse_rows

KEYS = ("data", "partial_target", "target")  # (n, d), (k, n), (k, n), each dense or sparse
LARGEST = 1e38  # so that float32 holds the difference of any two features
HDF5 = b"\x89HDF\r\n\x1a\n"  # at the start or, as MATLAB writes it, after 512 bytes
# The types of an element of a .mat file: numbers, matrices, and compressed elements.
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}
NUMBERS |= {12: "<i8", 13: "<u8"}
MATRIX, COMPRESSED = 14, 15
# The classes of a matrix from SPARSE to LAST_DENSE are numbers.
SPARSE, LAST_DENSE, COMPLEX = 5, 15, 0x800
Matrix = tuple[str, NDArray[Any]]  # name and values


def load(entry: Entry) -> Dataset:
    """Read a dataset from its .mat file, of version 5 to 7.3."""
    (path,) = catalog.paths_of(entry)
    return _dataset(entry, path, bounded.read_content(path))


def add(entry: Entry, source: Path, say: Callable[[str], None]) -> Path:
    """Write a downloaded .mat file, or that of an archive, to its place if it is sound."""
    if entry.kind != "real-world":
        remedy = catalog.how_to_get(entry)
        raise InputError(f"Only real-world datasets can be added, not {entry.title}. {remedy}")
    target = catalog.data_folders()[0] / entry.files[0].path
    content = _mat_in(source)
    dataset = _dataset(entry, source, content)
    n, k = len(dataset), len(dataset.classes)
    if n != entry.rows and k != entry.classes:
        raise InputError(f"{source} has {n} rows and {k} classes: it is not {entry.title}.")
    for note in dataset.notes:
        say(f"{source}: {note}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    refuse_replacing(target, content.startswith, f"what {source} holds")
    write_whole(target, content)
    return target


def _mat_in(source: Path) -> bytes:
    """Return the content of a .mat file, or of the only one in an archive."""
    if not bounded.is_archive(source):
        return bounded.read_content(source)
    members = bounded.read_members(source, lambda name: name.lower().endswith(".mat"))
    names = [name for name in members if not PureWindowsPath(name).name.startswith("._")]
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise InputError(f"Pass a .mat file: {source} has {listed}, and should have one.")
    return members[names[0]]


def _dataset(entry: Entry, path: Path, raw: bytes) -> Dataset:
    """Check the content of a .mat file, and return its dataset; `path` is for messages."""
    data, partial, target = read_mat(path, raw, KEYS)
    if 0 in data.shape or partial.shape != target.shape or partial.shape[1] != data.shape[0]:
        raise InputError(
            f"{path}: 'data' must be n x d, and 'partial_target' and 'target' k x n; found "
            f"{data.shape}, {partial.shape} and {target.shape}. Transpose what is the wrong way."
        )
    faults = {
        f"NaN, infinity or numbers beyond {LARGEST:g}": ~(np.abs(data) <= LARGEST).all(-1),
        "targets other than 0 and 1": ~np.isin([partial, target], (0, 1)).all((0, 1)),
        "no candidate": partial.sum(0) == 0,
        "not exactly one true label": target.sum(0) != 1,
    }
    for fault, is_bad in faults.items():
        refuse_rows(is_bad, f"{path}: {fault}", "Correct or drop them.")
    near = np.flatnonzero(np.ptp(data, axis=0) <= 1e-10)  # no others have so small a variance
    constant = near[(data[:, near].astype(np.float64) - data[0, near]).var(0) <= 1e-30]
    if len(constant) == data.shape[1]:
        raise InputError(f"{path}: all features are constant. Download the file again.")
    candidates = Candidates.of(np.ascontiguousarray(partial.T.astype(bool)))
    labels = target.argmax(0)
    outside = np.flatnonzero(partial[labels, np.arange(len(labels))] == 0)
    rows = counted(len(outside), "row")
    removed = counted(len(constant), "constant feature was", "constant features were")
    notes = {
        f"the true label is no candidate in {rows} ({some_of(outside)})": outside,
        f"{removed} removed ({some_of(constant)})": constant,
    }
    return Dataset.of(
        entry,
        [raw],
        features=np.delete(data, constant, axis=1).astype(np.float64, copy=False),
        labels=labels,
        notes=tuple(note for note, indices in notes.items() if len(indices)),
        classes=candidates.classes,
        candidates=candidates,
    )


def read_mat(path: Path, raw: bytes, names: Sequence[str] = KEYS) -> list[NDArray[Any]]:
    """Return the matrices of these names from the content of a .mat file, sparse ones dense."""
    read = _hdf5_matrices if HDF5 in (raw[:8], raw[512:520]) else _matrices
    with bounded.damage_explained(path):
        matrices = dict(read(raw, names, bounded.unpacked_limit(len(raw))))
    missing = [name for name in names if name not in matrices]
    if missing:
        raise InputError(f"{path} has no {', '.join(missing)}. Download it again.")
    return [matrices[name] for name in names]


def _matrices(raw: bytes, names: Sequence[str], room: int) -> Iterator[Matrix]:
    """Yield name and matrix from a file of version 5 to 7; unpack at most `room` bytes."""
    if raw[126:128] != b"IM":  # the least significant byte of a number comes first
        raise ValueError("it is no .mat file of version 5 or newer, and no zip or tar archive")
    for kind, content in _elements(memoryview(raw)[128:], room):
        if kind != MATRIX:
            continue
        parts = _elements(content)  # read one by one: those of other variables may be odd
        flags, sides, letters = (next(parts)[1] for _ in range(3))
        name = bytes(letters).decode("latin-1")
        if name not in names:
            continue
        (about,) = struct.unpack_from("<I", flags)
        shape = tuple(np.frombuffer(sides, "<i4").tolist())
        is_number = SPARSE <= about & 0xFF <= LAST_DENSE and not about & COMPLEX
        if not is_number or len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"{name!r} must be a matrix of real numbers; it has shape {shape}")
        arrays = [np.frombuffer(part, NUMBERS[kind]) for kind, part in parts]
        if about & 0xFF == SPARSE:
            yield name, _dense(*arrays, height=shape[0])
        else:
            (values,) = arrays
            yield name, values.reshape(shape, order="F")


def _elements(raw: memoryview, room: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield type and content of each element: a type, a size, as many bytes, padded to 8."""
    position = 0
    while position < len(raw):
        kind, size = struct.unpack_from("<II", raw, position)
        start = position + 8
        position = start + (size if kind == COMPRESSED else -(-size // 8) * 8)
        if kind >> 16:  # up to four bytes, which stand in the place of the size
            kind, size, start, position = kind & 0xFFFF, min(kind >> 16, 4), start - 4, start
        if start + size > len(raw):
            raise ValueError("it ends too soon")
        content = raw[start : start + size]
        if kind == COMPRESSED:  # elements, of which no more is unpacked than there is room for
            unpacker = zlib.decompressobj()
            unpacked = memoryview(unpacker.decompress(content, room + 1))
            room -= len(unpacked)
            if room < 0 or not unpacker.eof:
                raise ValueError("its matrices are cut, or unpack to too many bytes for its size")
            yield from _elements(unpacked)
        else:
            yield kind, content


def _dense(rows: Any, starts: Any, values: Any, *, height: int) -> NDArray[Any]:
    """Return a sparse matrix of these columns as a dense one; refuse indices outside of it."""
    starts = starts.astype(np.int64)
    width, count = len(starts) - 1, int(starts[-1])  # values beyond `count` are unused
    if height * width > bounded.MOST_BYTES // 8:  # bytes of a dense number
        raise ValueError(f"a sparse matrix declares {height} x {width} numbers")
    if starts[0] or not 0 <= count <= min(len(values), len(rows)):
        raise ValueError("the indices of a sparse matrix do not fit its values")
    columns = np.repeat(np.arange(width), np.diff(starts))  # refuses negative sizes
    indices = (rows[:count].astype(np.int64), columns)  # checked by SciPy in this form alone
    return sparse.coo_array((values[:count], indices), shape=(height, width)).toarray()


def _hdf5_matrices(raw: bytes, names: Sequence[str], room: int) -> Iterator[Matrix]:
    """Yield name and matrix from a file of version 7.3, where matrices are transposed."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        remedy = "Run pip install 'robustpll[mat73]', or save the file from MATLAB with '-v7'"
        raise InputError(f"A .mat file of version 7.3 needs h5py. {remedy}.") from error
    with h5py.File(io.BytesIO(raw)) as file:
        for name in names:
            arrays: dict[str, NDArray[Any]] = {}
            for key in (name, f"{name}/ir", f"{name}/jc", f"{name}/data"):
                link = file.get(key, getlink=True)
                part: Any = file[key] if isinstance(link, h5py.HardLink) else None
                if link is None or isinstance(part, h5py.Group):
                    continue
                if part is None or part.external or part.is_virtual:
                    raise ValueError(f"{key!r} is a link; matrices must be in the file itself")
                if part.dtype.kind not in "iuf" or part.ndim != (2 if key == name else 1):
                    raise ValueError(f"{key!r} must be a matrix of real numbers; it is {part}")
                room -= part.nbytes
                if room < 0:
                    raise ValueError("its matrices unpack to too many bytes for its size")
                arrays[key] = np.asarray(part[()])
            if name in arrays:
                yield name, arrays[name].T
            elif arrays:
                height = int(file[name].attrs["MATLAB_sparse"])
                yield name, _dense(*arrays.values(), height=height)  # ir, jc and data
