"""Unpacking no more than is sane: a file of some megabytes may unpack to terabytes."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from robustpll.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DEFLATED = 1032  # how many bytes zlib and gzip make of one at the most
PIECE = 2**17  # bytes that are unpacked at once
# Text of a table is 2 to 20 times as long as what gzip makes of it, and matrices are at most 100
# times as long. Where so many bytes in a row are more than so many times as long, they are neither.
MOST_RATIO = 200
UNSUSPICIOUS = 2**26  # bytes


def most_from(packed: int, most: int) -> int:
    """How many bytes a file of `packed` bytes may unpack to; never more than `most`.

    >>> most_from(10**6, 10**9), most_from(10**3, 10**9)
    (200000000, 67108864)
    """
    return min(most, max(UNSUSPICIOUS, MOST_RATIO * packed))


class Source(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, or fewer."""


@dataclass
class Room:
    """How many bytes may still be unpacked.

    >>> Room(100).take(101, "Its matrices")
    Traceback (most recent call last):
    ValueError: Its matrices unpack to more than 100 bytes, which no dataset here has
    """

    most: int
    taken: int = 0

    def take(self, size: int, what: str) -> None:
        """Before so many bytes are unpacked."""
        self.taken += size
        if self.taken > self.most:
            raise ValueError(
                f"{what} unpack to more than {self.most} bytes, which no dataset here has"
            )


def read_up_to(source: Source, most: int) -> bytes:
    """All bytes, or one more than `most` where there are more; nothing beyond is unpacked.

    >>> read_up_to(io.BytesIO(b"hello"), 5), read_up_to(io.BytesIO(b"hello"), 3)
    (b'hello', b'hell')
    """
    content = bytearray()
    while len(content) <= most and (piece := source.read(min(PIECE, most + 1 - len(content)))):
        content += piece
    return bytes(content)


@contextmanager
def unpacked_table(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes in a gzip file, as they are read; an error where they are too many for its size.

    The first ones are unpacked before: rows are read a hundred times as slowly.
    """
    facts = path.stat()
    _look_at(path, facts.st_size, facts.st_mtime_ns)
    with gzip.open(path) as packed:
        yield io.BufferedReader(_Bounded(packed, path), PIECE)


@lru_cache(maxsize=16)  # a table is opened several times
def _look_at(path: Path, _size: int, _time: int) -> None:
    with gzip.open(path) as packed, suppress(EOFError, OSError, zlib.error):  # told by who reads on
        source = _Bounded(packed, path)
        while packed.tell() <= UNSUSPICIOUS and source.read(PIECE):
            pass


class _Bounded(io.RawIOBase):
    """Compares what is unpacked with what it is unpacked from."""

    def __init__(self, packed: Any, path: Path) -> None:
        self.packed, self.path = packed, path
        self.count, self.used = 0, 0  # bytes since the last comparison, packed ones until then

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count: int = self.packed.readinto(buffer)
        self.count += count
        if self.count > UNSUSPICIOUS:
            used = self.packed.fileobj.tell()
            if self.count > MOST_RATIO * (used - self.used):
                raise InputError(
                    f"{self.path} unpacks to more than {MOST_RATIO} times its size, as no table "
                    "does. If you trust it, unpack it yourself, and pass the unpacked file."
                )
            self.count, self.used = 0, used
        return count
