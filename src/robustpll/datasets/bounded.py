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
GZIP = b"\x1f\x8b"
Member = tuple[str, bool, int, Callable[[], Any]]  # name, whether it is a link, size, opener


def unpacked_limit(packed: int, most: int | None = None) -> int:
    """Return to how many bytes `packed` bytes of a file may unpack."""
    return min(most or MOST_BYTES, UNSUSPICIOUS + MOST_RATIO * packed)


def _refusal(path: Any) -> InputError:
    return InputError(
        f"{path} unpacks to too many bytes for a file of its size. If you trust it, unpack it "
        "yourself, and pass the unpacked file."
    )


class _BoundedFile(io.RawIOBase):
    """Fails once its source gave too many bytes for those that were read from `raw`."""

    def __init__(self, raw: Any, source: Any, most: int | None = None) -> None:
        self.raw, self.source, self.most, self.count = raw, source, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        count: int = self.source.readinto(buffer)
        self.count += count
        if self.count > unpacked_limit(self.raw.tell(), self.most):
            raise _refusal(self.raw.name)
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


def read_members(
    path: Path, is_wanted: Callable[[str], object]
) -> tuple[dict[str, bytes], list[str]]:
    """Return the wanted files of an archive by name, and the names of its other files.

    Archives with links, with paths outside of their folder, or beyond the limits are refused.
    """
    contents: dict[str, bytes] = {}
    others: list[str] = []
    with damage_explained(path):
        room = unpacked_limit(path.stat().st_size)
        for count, (name, is_link, size, opened) in enumerate(_members(path), 1):
            place = PureWindowsPath(name)  # knows both separators, and drives
            if is_link or place.anchor or ".." in place.parts:
                raise ValueError(f"{name!r} is a link or lies outside of the archive's folder")
            if count > MOST_MEMBERS:
                raise ValueError(f"it holds more than {MOST_MEMBERS:,} files")
            if name.endswith("/"):  # a folder
                continue
            if not is_wanted(name):
                others.append(name)
                continue
            room -= size
            if room < 0:
                raise _refusal(path)
            with opened() as member:
                contents[name] = member.read(size)  # no more, whatever is packed
    return contents, others


def _members(path: Path) -> Iterator[Member]:
    """Yield the members of an archive; the limit of a tar archive includes its headers."""
    if not zipfile.is_zipfile(path):
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
