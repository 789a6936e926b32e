"""Matrices of numbers from .mat files of versions 5 to 7.3, and refusals of damaged ones.

Versions 5 to 7 are not left to SciPy: its reader trusts the types and sizes that a file states, so
that one wrong byte can end the process.
"""

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from robustpll.datasets.bounded import Room, most_from
from robustpll.errors import InputError

HDF5 = b"\x89HDF\r\n\x1a\n"  # at the start or, as MATLAB writes it, after 512 bytes
HEADER = 128  # bytes before the first element of a file of version 5
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}  # the last two bytes of the header
INTEGERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 12: "i8", 13: "u8"}
NUMBERS = INTEGERS | {7: "f4", 9: "f8"}  # types of an element
MATRIX, COMPRESSED = 14, 15  # further types of an element
SPARSE, LAST_DENSE = 5, 15  # the classes of matrices of numbers lie between
COMPLEX = 0x800
MOST_BYTES = 10**9  # of a file and, apart from that, of all matrices in it; datasets have 120 MB
NUMBER = 8  # bytes of a number in a dense matrix


def read_bytes(path: Path) -> bytes:
    """The whole file, unless it is too large for any dataset."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise InputError(f"{path} has {size} bytes; no dataset here has more than {MOST_BYTES}.")
    return path.read_bytes()


def read_mat(path: Path, names: Sequence[str], raw: bytes | None = None) -> list[Any]:
    """The variables of these names, as arrays or sparse matrices; an error if one is not there.

    `raw` is what the file holds, if that was read before.
    """
    raw = read_bytes(path) if raw is None else raw
    if HDF5 in (raw[:8], raw[512:520]):
        found = _read_hdf5(path, raw, names)
    else:
        try:
            found = dict(_variables(raw, names))
        except (ValueError, IndexError, struct.error, zlib.error) as error:
            raise _unreadable(path, error) from error
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"{path} must hold {', '.join(names)}; it has no {', '.join(missing)}. Get the file "
            "anew, or rename its variables."
        )
    return [found[name] for name in names]


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is no .mat file that can be read: {error}. Get it anew.")


def _variables(raw: bytes, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """What a file of version 5 to 7 holds under these names."""
    order = BYTE_ORDERS.get(raw[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("it does not begin as one of version 5 or newer")
    room = Room(most_from(len(raw), MOST_BYTES))
    for content in _matrices(memoryview(raw)[HEADER:], order, room):
        parts = _elements(content, order)
        flags, shape, letters = (part for _, part in islice(parts, 3))
        name = bytes(letters).decode("latin-1")
        if name in names:
            (about,) = struct.unpack_from(f"{order}I", flags)
            sides = np.frombuffer(shape, f"{order}i4").tolist()
            yield name, _matrix(name, about, sides, [_values(*part, order) for part in parts])


def _matrices(raw: memoryview, order: str, room: Room) -> Iterator[memoryview]:
    """The content of each matrix, unpacked where it is compressed."""
    for kind, content in _elements(raw, order):
        if kind == COMPRESSED:
            inner = _elements(memoryview(_unpacked(content, order, room)), order)
            yield from (each for kind_inside, each in inner if kind_inside == MATRIX)
        elif kind == MATRIX:
            yield content


def _unpacked(content: memoryview, order: str, room: Room) -> bytes:
    """The one element in it, which says how large it is; what goes beyond is not unpacked."""
    unpacker = zlib.decompressobj()
    start = unpacker.decompress(content, 8)
    (size,) = struct.unpack_from(f"{order}4xI", start)
    room.take(size, "its matrices")
    rest = unpacker.decompress(unpacker.unconsumed_tail, -(-size // 8) * 8) if size else b""
    if unpacker.decompress(unpacker.unconsumed_tail, 1):
        raise ValueError("a compressed matrix is longer than it says")
    if not unpacker.eof:
        raise ValueError("a compressed matrix ends too soon")
    return start + rest


def _elements(raw: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element: a type, a size, as many bytes, filled up to eights."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from(f"{order}II", raw, at)
        start = at + 8
        after = start + (size if kind == COMPRESSED else -(-size // 8) * 8)
        if kind >> 16:  # four bytes at most: they stand in the place of the size
            kind, size, start, after = kind & 0xFFFF, min(kind >> 16, 4), at + 4, at + 8
        if start + size > len(raw):
            raise ValueError("it ends too soon")
        yield kind, raw[start : start + size]
        at = after


def _values(kind: int, content: memoryview, order: str) -> NDArray[Any]:
    """Numbers as stored, which may be smaller than their class: MATLAB saves space."""
    if kind not in NUMBERS:
        return np.empty(0)  # such as text, which _matrix refuses by its class
    return np.frombuffer(content, f"{order}{NUMBERS[kind]}")


def _matrix(name: str, about: int, sides: list[int], parts: list[NDArray[Any]]) -> Any:
    """A dense or sparse matrix, whose parts must go together."""
    kind = about & 0xFF
    if not SPARSE <= kind <= LAST_DENSE or about & COMPLEX or len(sides) != 2 or min(sides) < 0:
        what = f"class {kind}, shape {tuple(sides)}{', complex' if about & COMPLEX else ''}"
        raise ValueError(f"{name!r} must be a matrix of real numbers, but is of {what}")
    if kind == SPARSE:
        rows, starts, values = parts
        if len(starts) != sides[1] + 1:
            raise ValueError(f"the columns of {name!r} are not as many as its shape says")
        return _sparse(values, rows, starts, sides[0])
    (values,) = parts
    return values.reshape(sides, order="F")


def _sparse(
    values: NDArray[Any], rows: NDArray[Any], starts: NDArray[Any], height: int
) -> sparse.csc_matrix:
    """From the values of column after column; SciPy would write to wherever they point."""
    if rows.dtype.kind not in "iu" or starts.dtype.kind not in "iu" or not len(starts):
        raise ValueError("places in a sparse matrix are no integers")
    starts = starts.astype(np.int64)
    sizes, count = np.diff(starts), int(starts[-1])  # more values than `count` are not in use
    if height * len(sizes) > MOST_BYTES // NUMBER:
        raise ValueError(f"a sparse matrix says it has {height} x {len(sizes)} numbers")
    if starts[0] or (sizes < 0).any() or count > min(len(values), len(rows)):
        raise ValueError("places in a sparse matrix do not go with its values")
    columns = np.repeat(np.arange(len(sizes)), sizes)
    at = (rows[:count].astype(np.int64), columns)  # refused where they are beyond the shape
    return sparse.csc_matrix((values[:count], at), shape=(height, len(sizes)))


def _read_hdf5(path: Path, raw: bytes, names: Sequence[str]) -> dict[str, Any]:
    """A file of version 7.3, which stores matrices transposed, and the columns of sparse ones."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            f"{path} is a .mat file of version 7.3, for which h5py is needed. Run "
            "pip install 'robustpll[mat73]', or save the file from MATLAB with '-v7'."
        ) from error
    room = Room(most_from(len(raw), MOST_BYTES))
    try:
        with h5py.File(io.BytesIO(raw)) as file:
            return {
                name: _of_hdf5(name, _member(file, name), room) for name in names if name in file
            }
    except Exception as error:  # of whatever kind: for damaged files h5py promises none
        raise _unreadable(path, error) from error


def _member(group: Any, name: str) -> Any:
    """What is in the file itself under this name: a link or a dataset may lead to other files."""
    import h5py

    is_link = not isinstance(group.get(name, getlink=True), h5py.HardLink)
    if is_link:
        raise ValueError(f"{name!r} is a link; matrices must be in the file itself")
    member = group[name]
    if isinstance(member, h5py.Dataset) and (member.external or member.is_virtual):
        raise ValueError(f"the numbers of {name!r} are in other files; they must be in this one")
    return member


def _numbers(group: Any, name: str, room: Room) -> NDArray[Any]:
    """A dataset of HDF5, if there is room for as many numbers as it says it has."""
    member = _member(group, name)
    room.take(member.nbytes, "its matrices")
    return np.asarray(member[()])


def _of_hdf5(name: str, member: Any, room: Room) -> Any:
    if "MATLAB_sparse" in member.attrs:
        starts, height = _numbers(member, "jc", room), int(member.attrs["MATLAB_sparse"])
        if "data" not in member:
            values, rows = np.empty(0), np.empty(0, np.int64)  # nothing but zeros
            return _sparse(values, rows, np.zeros_like(starts), height)
        values, rows = _numbers(member, "data", room), _numbers(member, "ir", room)
        return _sparse(values, rows, starts, height)
    matrix = _numbers(member.parent, name, room).T
    if matrix.dtype.kind not in "biuf" or matrix.ndim != 2:
        what = f"{matrix.dtype}, shape {matrix.shape}"
        raise ValueError(f"{name!r} must be a matrix of real numbers, but is of {what}")
    return matrix
