"""Unpacking no more than is sane: a file of some megabytes may unpack to terabytes."""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from robustpll.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DEFLATED = 1032  # how many bytes zlib and gzip make of one at the most
PIECE = 2**17  # bytes that are unpacked at once
# Tables are text of 2 to 20 times the size of their gzip file. More than this is refused, if it
# unpacks to more than a small file's worth.
MOST_RATIO = 200
UNSUSPICIOUS = 2**26  # bytes


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
    """The bytes in a gzip file, as they are read; an error where they are too many for its size."""
    most = max(UNSUSPICIOUS, MOST_RATIO * path.stat().st_size)
    with gzip.open(path) as packed:
        yield io.BufferedReader(_Bounded(packed, path, most), PIECE)


class _Bounded(io.RawIOBase):
    """Counts what is unpacked."""

    def __init__(self, packed: Any, path: Path, most: int) -> None:
        self.packed, self.path, self.room = packed, path, Room(most)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count: int = self.packed.readinto(buffer)
        try:
            self.room.take(count, "Its bytes")
        except ValueError:
            raise InputError(
                f"{self.path} unpacks to more than {self.room.most:,} bytes, {MOST_RATIO} times "
                "its size, as no table does. If you trust it, unpack it yourself, and pass the "
                "unpacked file."
            ) from None
        return count
