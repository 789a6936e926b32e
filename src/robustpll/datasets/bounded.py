"""Read packed files within limits: a file of a few megabytes may unpack to terabytes."""

import gzip
import io
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

from robustpll.errors import InputError

MOST_BYTES = 10**9  # of the unpacked content of a dataset's file; datasets have 50 MB
MOST_MEMBERS = 100_000  # of an archive; NotMNIST has 18,738
PIECE = 2**17  # bytes to unpack at once
# Tables are 2 to 20 times as long as their gzipped text, and matrices at most 100 times. More than
# MOST_RATIO is suspicious, but only by more than UNSUSPICIOUS bytes.
MOST_RATIO = 200
UNSUSPICIOUS = 2**26
GZIP = b"\x1f\x8b"


def unpacked_limit(packed: int, most: int | None = None) -> int:
    """Return to how many bytes `packed` bytes of a file may unpack."""
    return min(most or MOST_BYTES, UNSUSPICIOUS + MOST_RATIO * packed)


class _BoundedFile(io.RawIOBase):
    """Fails once its source gave too many bytes for those that were read from `raw`."""

    def __init__(self, raw: Any, source: Any, most: int | None = None) -> None:
        self.raw, self.source, self.most, self.count = raw, source, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self.source.readinto(buffer)
        self.count += count
        if self.count > unpacked_limit(self.raw.tell(), self.most):
            raise InputError(
                f"{self.raw.name} unpacks to too many bytes for a file of its size. If you trust "
                "it, unpack it yourself, and pass the unpacked file."
            )
        return count


@contextmanager
def unpacked_table(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a gzipped table; reading raises an error if it unpacks to too much for its size."""
    with path.open("rb") as raw, gzip.open(raw) as packed:
        yield io.BufferedReader(_BoundedFile(raw, packed, sys.maxsize), PIECE)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Turn any error of a reader into an InputError that says what to do."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the readers do not promise any type of error for damaged files
        raise InputError(
            f"{path} cannot be read: {error}. Download it again from a source you trust."
        ) from error


def read_content(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is gzipped."""
    with damage_explained(path), path.open("rb") as raw:
        is_packed = raw.peek(2).startswith(GZIP)
        return _BoundedFile(raw, gzip.open(raw) if is_packed else raw).readall()


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, or a tar archive that may be gzipped."""
    with path.open("rb") as file:
        start = file.read(512)
    return start.startswith(GZIP) or start[257:262] == b"ustar" or zipfile.is_zipfile(path)


def read_members(path: Path, is_wanted: Callable[[str], object]) -> dict[str, bytes]:
    """Return the wanted files of an archive by name; the names of folders end with a slash."""
    # Archives with links, with paths outside of their folder, or beyond the limits are refused.
    contents: dict[str, bytes] = {}
    with damage_explained(path):
        room = unpacked_limit(path.stat().st_size)
        for count, (name, is_link, size, opened) in enumerate(_members(path), 1):
            place = PureWindowsPath(name)  # knows both separators, and drives
            if is_link or place.anchor or ".." in place.parts:
                raise ValueError(f"{name!r} is a link or lies outside of the archive's folder")
            room -= size if is_wanted(name) else 0
            if room < 0 or count > MOST_MEMBERS:
                raise ValueError("it holds too many bytes for its size, or too many files")
            if is_wanted(name):
                with opened() as member:
                    contents[name] = member.read(size)  # no more, whatever is packed
    return contents


def _members(path: Path) -> Iterator[tuple[str, bool, int, Callable[[], Any]]]:
    """Yield name, whether it is a link, size and opener of each member of an archive."""
    if not zipfile.is_zipfile(path):  # the limit of a tar archive includes its headers
        with tarfile.open(fileobj=io.BytesIO(read_content(path)), mode="r:") as tar:
            for entry in tar:
                is_link = not entry.isfile() and not entry.isdir()  # or a device
                name = entry.name + "/" * entry.isdir()
                yield name, is_link, entry.size, partial(tar.extractfile, entry)
        return
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{info.filename} is compressed in an unusual way")  # and at once
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            yield info.filename, is_link, info.file_size, partial(archive.open, info)
