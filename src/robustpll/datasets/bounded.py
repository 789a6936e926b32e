"""Read packed files within limits: a file of a few megabytes may unpack to terabytes."""

import bz2
import gzip
import io
import lzma
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from robustpll.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES = 10**9  # of the unpacked content of a dataset's file; datasets have 50 MB
MOST_MEMBERS = 100_000  # of an archive; NotMNIST has 18,738
PIECE = 2**17  # bytes to unpack at once
# Tables are 2 to 20 times as long as their gzipped text, and matrices at most 100 times. More than
# MOST_RATIO is suspicious, but only by more than UNSUSPICIOUS bytes.
MOST_RATIO = 200
UNSUSPICIOUS = 2**26
PACKED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
IN_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks other members at once
Member = tuple[str, bool, Callable[[], Any]]  # name, whether it is a file or folder, opener


def unpacked_limit(packed: int, most: int | None = None) -> int:
    """Return to how many bytes `packed` bytes of a file may unpack."""
    return min(most or MOST_BYTES, UNSUSPICIOUS + MOST_RATIO * packed)


class _BoundedFile(io.RawIOBase):
    """Fails once its source, or several in turn, gave too many bytes for those read from `raw`."""

    def __init__(self, raw: Any, source: Any = None, most: int | None = None) -> None:
        self.raw, self.source, self.most, self.count = raw, source, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count: int = self.source.readinto(buffer)
        self.count += count
        if self.count > unpacked_limit(self.raw.tell(), self.most):
            raise InputError(
                f"{self.raw.name} unpacks to too many bytes for a file of its size. If you trust "
                "it, unpack it yourself, and pass the unpacked file."
            )
        return count

    def content(self) -> bytes:
        """Return all bytes of the present source."""
        return b"".join(iter(partial(self.read, PIECE), b""))


@contextmanager
def unpacked_table(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a gzipped table; reading raises an error if it unpacks to too much for its size."""
    with path.open("rb") as raw, gzip.open(raw) as packed:
        yield io.BufferedReader(_BoundedFile(raw, packed, sys.maxsize), PIECE)


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the readers do not promise any type of error for damaged files
        raise InputError(
            f"{path} cannot be read: {error}. Download it again from a source you trust, or unpack "
            "it yourself."
        ) from error


def read_content(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is compressed."""
    with _damage_explained(path), path.open("rb") as raw:
        start = raw.peek(6)
        openers = [PACKED[magic] for magic in PACKED if start.startswith(magic)]
        return _BoundedFile(raw, openers[0](raw) if openers else raw).content()


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, or a tar archive that may be compressed."""
    with path.open("rb") as file:
        start = file.read(512)
    is_tar = start.startswith(tuple(PACKED)) or start[257:262] == b"ustar"
    return is_tar or zipfile.is_zipfile(path)


def read_members(
    path: Path, is_wanted: Callable[[str], bool]
) -> tuple[dict[str, bytes], list[str]]:
    """Return the wanted files of an archive by name, and the names of its other files.

    Archives with links, with paths outside of their folder, or beyond the limits are refused.
    """
    contents: dict[str, bytes] = {}
    others: list[str] = []
    with _damage_explained(path), path.open("rb") as raw:
        members = _zip_members(raw) if zipfile.is_zipfile(raw) else _tar_members(path)
        raw.seek(0, io.SEEK_END)  # zipfile seeks itself; a tar archive was read as a whole
        bounded = _BoundedFile(raw)
        for count, (name, is_plain, opened) in enumerate(members, 1):
            place = PureWindowsPath(name)  # knows both separators, and drives
            if not is_plain or place.anchor or ".." in place.parts:
                raise ValueError(f"{name!r} is a link or lies outside of the archive's folder")
            if count > MOST_MEMBERS:
                raise ValueError(f"it holds more than {MOST_MEMBERS:,} files")
            if name.endswith("/"):
                continue
            if is_wanted(name):
                with opened() as bounded.source:
                    contents[name] = bounded.content()
            else:
                others.append(name)
    return contents, others


def _zip_members(raw: Any) -> Iterator[Member]:
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if member.compress_type not in IN_PIECES:
                raise ValueError(f"{member.filename} is compressed in an unusual way")
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            yield member.filename, not is_link, partial(archive.open, member)


def _tar_members(path: Path) -> Iterator[Member]:
    """Yield the members; the limit holds for the whole archive, headers included."""
    with tarfile.open(fileobj=io.BytesIO(read_content(path)), mode="r:") as archive:
        for member in archive:
            is_plain = member.isfile() or member.isdir()
            yield member.name + "/" * member.isdir(), is_plain, partial(archive.extractfile, member)
