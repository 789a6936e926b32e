"""Read packed files within limits: a file of a few megabytes may unpack to terabytes."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from robustpll.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES = 10**9  # of a file and, separately, of its unpacked content; datasets have 50 MB
MOST_MEMBERS = 100_000  # of an archive; NotMNIST has 18,738
PIECE = 2**17  # bytes to unpack at once
# Tables are 2 to 20 times as long as their gzipped text, and matrices at most 100 times. More than
# MOST_RATIO is suspicious, but only if the unpacked bytes exceed UNSUSPICIOUS.
MOST_RATIO = 200
UNSUSPICIOUS = 2**26
GZIP = b"\x1f\x8b"
PACKED: dict[bytes, Any] = {GZIP: gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
IN_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks other members at once
# a RuntimeError means a password or an unknown compression
STANDARD = (EOFError, OSError, RuntimeError, ValueError)
DAMAGE = (*STANDARD, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)
Wanted = Callable[[str], bool]  # tells by its name whether a member is wanted
Member = tuple[str, bool, bytes]  # name, whether it is a plain file or folder, content if wanted


def unpacked_limit(packed: int) -> int:
    """Return how many bytes a file of `packed` bytes may unpack to."""
    return min(MOST_BYTES, max(UNSUSPICIOUS, MOST_RATIO * packed))


def read_up_to(source: Any, most: int) -> bytes:
    """Return all bytes of an open file, or the first `most` + 1; unpack nothing beyond them."""
    content = bytearray()
    while len(content) <= most and (piece := source.read(min(PIECE, most + 1 - len(content)))):
        content += piece
    return bytes(content)


@contextmanager
def unpacked_file(path: Path) -> Iterator[Any]:
    """Open a file to read it; a gzipped one is unpacked."""
    with path.open("rb") as raw:
        yield gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == GZIP else raw


@contextmanager
def unpacked_table(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a gzipped table; reading raises an error if it unpacks to too much for its size."""
    with gzip.open(path) as packed:
        yield io.BufferedReader(_BoundedFile(packed, path), PIECE)


class _BoundedFile(io.RawIOBase):
    """Compares the number of unpacked bytes with the number of packed bytes while it is read."""

    def __init__(self, packed: Any, path: Path) -> None:
        self.packed, self.path = packed, path
        self.count, self.used = 0, 0  # unpacked since the last comparison; packed until then

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


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, or a tar archive that may be compressed."""
    with path.open("rb") as file:
        start = file.read(512)
    is_tar = start.startswith(tuple(PACKED)) or start[257:262] == b"ustar"
    return is_tar or zipfile.is_zipfile(path)


def read_members(path: Path, wanted: Wanted) -> tuple[dict[str, bytes], list[str]]:
    """Return the wanted files of an archive by name, and the names of its other files.

    Archives with links, with paths outside of their folder, or beyond the limits are refused.
    """
    members = _zip_members if zipfile.is_zipfile(path) else _tar_members
    contents: dict[str, bytes] = {}
    others: list[str] = []
    try:
        for name, content in _checked(members(path, wanted)):
            if wanted(name):
                contents[name] = content
            elif not name.endswith("/"):
                others.append(name)
    except DAMAGE as error:
        raise InputError(
            f"{path} cannot be unpacked: {error}. Download it again from a source you trust, or "
            "unpack it yourself."
        ) from error
    return contents, others


def _checked(members: Iterable[Member]) -> Iterator[tuple[str, bytes]]:
    for count, (name, is_plain, content) in enumerate(members, 1):
        place = PureWindowsPath(name)  # knows both separators, and drives
        if not is_plain or place.anchor or ".." in place.parts:
            raise ValueError(f"{name!r} is a link or lies outside of the archive's folder")
        if count > MOST_MEMBERS:
            raise ValueError(f"it holds more than {MOST_MEMBERS:,} files")
        yield name, content


def _read_limited(source: Any, limit: int) -> bytes:
    content = read_up_to(source, limit)
    if len(content) > limit:
        raise ValueError("it unpacks to too many bytes for an archive of its size")
    return content


def _zip_members(path: Path, wanted: Wanted) -> Iterator[Member]:
    limit = unpacked_limit(path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            content = b""
            if wanted(member.filename):
                if member.compress_type not in IN_PIECES:
                    raise ValueError(f"{member.filename} is compressed in an unusual way")
                with archive.open(member) as file:
                    content = _read_limited(file, limit)
                limit -= len(content)
            yield member.filename, not stat.S_ISLNK(member.external_attr >> 16), content


def _tar_members(path: Path, wanted: Wanted) -> Iterator[Member]:
    """Yield the members; the limit holds for the whole archive, headers included."""
    with path.open("rb") as file:
        start = file.read(6)
    opener = next((PACKED[magic] for magic in PACKED if start.startswith(magic)), open)
    with opener(path, "rb") as file:
        archive = _read_limited(file, unpacked_limit(path.stat().st_size))
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            name, end = member.name + "/" * member.isdir(), member.offset_data + member.size
            content = archive[member.offset_data : end] if wanted(name) else b""
            yield name, member.isfile() or member.isdir(), content
