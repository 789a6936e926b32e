"""A folder that a command writes to: only files that it wrote there are ever replaced."""

import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from robustpll._files import write_whole
from robustpll.errors import InputError, some_of

MOST_BYTES = 2**20  # of the record: a longer one is not ours


@dataclass(frozen=True)
class OutFolder:
    """A folder, and the SHA-256 sums of what a command wrote there: of each file the last two.

    A new sum is recorded before its file is written. So after a crash at any moment each file has
    one of its sums, and may be replaced.

    >>> with tempfile.TemporaryDirectory() as name:
    ...     out = OutFolder.of(Path(name), "clean")
    ...     out.write("twins.csv", b"row,twin")
    ...     _ = (Path(name) / "table.csv").write_text("mine")
    ...     OutFolder.of(Path(name), "clean").others(["table.csv", "twins.csv"])
    ['table.csv']
    """

    path: Path
    command: str
    sums: dict[str, list[str]] = field(default_factory=dict)
    lack: str = ""  # why there are no sums

    @classmethod
    def of(cls, path: Path, command: str) -> Self:
        """Make the folder if need be, see that it can be written, and read its record."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise InputError(
                f"out must be a folder that can be written, or the name of a new one; {path} is "
                f"not ({error.strerror or error})."
            ) from error
        empty = cls(path, command)
        if not empty.record.exists():
            lack = f"It has no record ({empty.record.name}) of files that {command} wrote. "
            return replace(empty, lack=lack)
        try:
            return replace(empty, sums=_sums_in(empty.record))
        except (OSError, ValueError, RecursionError):
            lack = f"Its record {empty.record.name} is damaged, and counts for nothing. "
            return replace(empty, lack=lack)

    @property
    def record(self) -> Path:
        """The file with the sums."""
        return self.path / f".robustpll-{self.command}.json"

    def others(self, names: Iterable[str]) -> list[str]:
        """Those that are there with a content that the command did not write."""
        return [name for name in names if self._is_other(name)]

    def refuse_others(self, names: Iterable[str]) -> None:
        """Before any work: none of the files to be written may be someone else's."""
        others = self.others(names)
        if others:
            raise InputError(
                f"The folder {self.path} holds {some_of(others, 10)}, not written by robustpll "
                f"{self.command} or changed since. {self.lack}Nothing is replaced: name another "
                "folder, or move away what you want to keep."
            )

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, unless somebody else wrote it meanwhile."""
        self.refuse_others([name])
        path = self.path / name
        before = [_sum(path.read_bytes())] if path.exists() else []
        self.sums[name] = [*before, _sum(content)]
        write_whole(self.record, json.dumps({"sha256": self.sums}, indent=1).encode())
        write_whole(path, content)

    def _is_other(self, name: str) -> bool:
        path = self.path / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return True
        return path.exists() and _sum(path.read_bytes()) not in self.sums.get(name, [])


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sums_in(record: Path) -> dict[str, list[str]]:
    """What a record says; a ValueError where it is none."""
    if not record.is_file() or record.stat().st_size > MOST_BYTES:
        raise ValueError(record)
    content: Any = json.loads(record.read_bytes())
    sums = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(sums, dict) or not all(isinstance(each, list) for each in sums.values()):
        raise ValueError(record)
    return sums
