"""Atomic writes, and output folders in which a command replaces only its own files."""

import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from robustpll.errors import InputError, some_of


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash, it has its old or its new content."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file; when the block ends, sync it and rename it to `path`.

    A former file's permissions stay, and a link goes on to its file.
    """
    path = path.resolve() if path.is_symlink() else path
    refuse_missing_folder(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "It is a folder: name a file in it", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # permissions follow the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the caller does not know the temporary name
        raise


def refuse_missing_folder(path: Path) -> None:
    """Raise InputError unless a file can be made in the folder of `path`."""
    folder = path.parent
    if not folder.is_dir():
        fault = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
        raise InputError(f"{path} cannot be written: {fault}. Make the folder, or name another.")


def plain_text(path: Path) -> str:
    """Read a UTF-8 file; raise OSError for a pipe or a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return path.read_text(encoding="utf-8")


def delimiter_of(text: str) -> str:
    """Return the delimiter of a CSV file that we wrote and a spreadsheet may have saved again."""
    head = text[:200].split("\n", 1)[0]
    return max(",;\t", key=head.count)


def refuse_replacing(path: Path, is_ours: Callable[[bytes], bool], what: str) -> None:
    """Raise InputError if `path` exists, is not empty, and `is_ours` rejects its first bytes."""
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path} is no plain file, and cannot be replaced. Name another file.")
    with path.open("rb") as file:
        start = file.read(2**16)  # enough to tell who wrote it
    if start and not is_ours(start):
        raise InputError(
            f"{path} is there already, and is not {what}: it would be lost. Name another file, or "
            "move this one."
        )


@contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Replace a file within the context, unless someone edited it; a hidden file has its sum.

    Without the hidden file, as after a crash, nobody is assumed to have edited it.
    """
    record = path.with_name(f".{path.name}.sha256")
    is_recorded = path.is_file() and record.is_file()
    if is_recorded and record.read_bytes() != _line_of(path):
        raise InputError(
            f"{path} was changed since it was written, by its record {record.name}: the changes "
            "would be lost. Name another file, or move this one."
        )
    record.unlink(missing_ok=True)
    try:
        yield
        is_recorded = True
    finally:
        if is_recorded:
            write_whole(record, _line_of(path))


def _line_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n".encode()


@dataclass(frozen=True)
class OutFolder:
    """An output folder, with a record of the SHA-256 sums of the files a command wrote there."""

    path: Path
    record: Path  # the file with the sums
    command: str
    sums: dict[str, list[str]]

    @classmethod
    def of(cls, path: Path, command: str) -> Self:
        """Create the folder if necessary, check that it is writable, and read its record."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise InputError(
                f"out must be a writable folder or the name of a new one; {path} is not "
                f"({error.strerror or error})."
            ) from error
        record = path / f".robustpll-{command}.json"
        sums: dict[str, list[str]] = {}
        with suppress(Exception):  # an invalid record, or one of more than 1 MiB, is not ours
            if record.is_file() and record.stat().st_size <= 2**20:
                content = json.loads(record.read_bytes())["sha256"]
                sums = {name: list(several) for name, several in content.items()}
        return cls(path, record, command, sums)

    def refuse_others(self, names: Iterable[str]) -> None:
        """Raise InputError if a file exists with content that the command did not write."""
        if others := [name for name in names if not self._is_replaceable(name)]:
            raise InputError(
                f"The folder {self.path} holds {some_of(others, 10)}, not written by robustpll "
                f"{self.command} or changed since, by its record {self.record.name}. Nothing is "
                "replaced: name another folder, or move away what you want to keep."
            )

    def _is_replaceable(self, name: str) -> bool:
        path = self.path / name
        if path.is_file() and not path.is_symlink():
            return _sum(path.read_bytes()) in self.sums.get(name, [])
        return not os.path.lexists(path)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, unless someone else has changed it in the meantime."""
        self.refuse_others([name])
        path = self.path / name
        before = [_sum(path.read_bytes())] if path.exists() else []
        self.sums[name] = [*before, _sum(content)]  # whichever a crash leaves, it is ours
        write_whole(self.record, json.dumps({"sha256": self.sums}, indent=1).encode())
        write_whole(path, content)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
