"""Who is at what: so that processes on one store share the work rather than double it."""

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from robustpll.bench.store import writing

BEAT = 5.0  # seconds between two signs of life
SILENCE = 60.0  # seconds after which a process counts as dead


class Claims:
    """The claims of one process below a folder of the store; all are given up on leaving.

    A claim is a file that names its owner; the owner's own file is touched every few seconds. A
    claim of an owner that is silent, or is a process of this machine that is gone, is free to be
    taken. Two processes may rarely take the same one: then both compute it, and files of results
    replace each other whole. A file from the future, of a wrong clock, counts from when it was
    first seen; `say` is told of it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Claims(Path(folder)) as one, Claims(Path(folder)) as other:
    ...         one.take("a run"), other.take("a run"), other.take("another run")
    (True, False, True)
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder, self.say = folder, say
        # files from the future: their time, and when by this process's clock it was first seen
        self.ahead: dict[Path, tuple[float, float]] = {}
        self.owner = uuid.uuid4().hex
        self.taken: set[str] = set()
        self.over = threading.Event()

    def __enter__(self) -> Self:
        about = {"pid": os.getpid(), "host": platform.node()}
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._life(self.owner).write_text(json.dumps(about))
        threading.Thread(target=self._beat, daemon=True).start()
        for path in self.folder.glob("*.alive"):
            if not self._is_alive(path):
                path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.leave(list(self.taken))
        self._life(self.owner).unlink(missing_ok=True)

    def take(self, name: str) -> bool:
        """Whether a claim is this process's now."""
        if name in self.taken:
            return True
        path = self._claim(name)
        if not self._made(path):
            if self._is_held(path):
                return False
            path.unlink(missing_ok=True)
            if not self._made(path):
                return False
        self.taken.add(name)
        return True

    def leave(self, names: Iterable[str]) -> None:
        """Give claims up."""
        for name in names:
            if name in self.taken:
                self.taken.discard(name)
                with suppress(OSError):
                    self._claim(name).unlink(missing_ok=True)

    def _is_held(self, claim: Path) -> bool:
        """Whether the owner of a claim is alive; a claim that is being written is held."""
        try:
            owner = claim.read_text()
        except OSError:
            return False
        return self._is_alive(self._life(owner)) if owner else self._is_fresh(claim)

    def _is_alive(self, life: Path) -> bool:
        try:
            about = json.loads(life.read_text())
            here = about["host"] == platform.node()
            return self._is_fresh(life) and (not here or _is_running(int(about["pid"])))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _is_fresh(self, path: Path) -> bool:
        """Whether a file was touched of late, by the clock of the file system it is on."""
        try:
            touched = path.stat().st_mtime
            age = self._life(self.owner).stat().st_mtime - touched
        except OSError:
            return False
        return age < SILENCE if age > -SILENCE else self._is_news(path, touched)

    def _is_news(self, path: Path, touched: float) -> bool:
        """Of a file from the future: whether it was touched since it was first seen, or just now.

        An owner that is alive touches it every few seconds, whatever its clock says.
        """
        now = time.monotonic()
        if path not in self.ahead:
            self.say(
                f"{path} is from the future: the clock of its machine, or of this one, is wrong. "
                f"What it claims is free in {SILENCE:g} seconds, unless it is touched by then."
            )
        if self.ahead.get(path, (None,))[0] != touched:
            self.ahead[path] = (touched, now)
        return now - self.ahead[path][1] < SILENCE

    def _made(self, path: Path) -> bool:
        try:
            with writing(path), path.open("x") as file:
                file.write(self.owner)
        except FileExistsError:
            return False
        return True

    def _beat(self) -> None:
        while not self.over.wait(BEAT):
            with suppress(OSError):
                self._life(self.owner).touch()

    def _life(self, owner: str) -> Path:
        return self.folder / f"{owner}.alive"

    def _claim(self, name: str) -> Path:
        return self.folder / f"{name}.claim"


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # where this signal would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
