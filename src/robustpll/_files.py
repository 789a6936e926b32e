"""Writing files so that they are there and whole, or not there, and never over another's file."""

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from robustpll.errors import InputError

LOOKED_AT = 2**16  # bytes at the beginning of a file, which tell who wrote it


def write_whole(path: Path, content: bytes) -> None:
    """Write under a temporary name beside `path`, sync, rename.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note.txt", b"hello")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['note.txt']
    """
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to piece by piece; it gets its name when all of it is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, writing(Path(folder) / "note.txt") as file:
    ...     file.write(b"hello")
    5
    """
    if not path.parent.is_dir():
        raise InputError(
            f"{path} cannot be written: there is no folder {path.parent}. Make it first."
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # with the rights that the umask leaves
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # what the caller knows it by
        raise


def plain_text(path: Path) -> str:
    """The text of a file in UTF-8; an OSError if it is a pipe or a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return path.read_text(encoding="utf-8")


def refuse_replacing(path: Path, is_ours: Callable[[bytes], bool], what: str) -> None:
    """Refuse to write over a file, unless it is empty or its beginning says that we wrote it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     thesis = Path(folder) / "thesis.txt"
    ...     write_whole(thesis, b"Years of work")
    ...     refuse_replacing(thesis, lambda start: start.startswith(b"line,"), "a list of ours")
    Traceback (most recent call last):
    robustpll.errors.InputError: .../thesis.txt is there already, and is not a list of ours...
    """
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path} is no plain file, and cannot be replaced. Name another one.")
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
    if start and not is_ours(start):
        raise InputError(
            f"{path} is there already, and is not {what}: it would be lost. Name another file, or "
            "move this one."
        )
