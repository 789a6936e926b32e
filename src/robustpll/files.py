"""Writing files so that they are there and whole, or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from robustpll.errors import InputError


def write_whole(path: Path, content: bytes) -> None:
    """Write under a temporary name beside `path`, sync, rename.

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

    >>> with tempfile.TemporaryDirectory() as folder, writing(Path(folder) / "note.txt") as file:
    ...     file.write(b"hello")
    5
    """
    if not path.parent.is_dir():
        raise InputError(
            f"{path} cannot be written: there is no folder {path.parent}. Make it first."
        )
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's files are for their owner alone
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
