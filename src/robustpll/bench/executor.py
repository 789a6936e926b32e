"""Running a grid: the driver, which stores what workers compute."""

import signal
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from robustpll.bench.grid import Grid, grid_of, runs_here
from robustpll.bench.store import Candidates, ResultStore, other_versions, writing
from robustpll.bench.worker import Bundle, JobResult, bundles, perform
from robustpll.engine.cluster import Executor, LocalExecutor, LostJob, handled_by
from robustpll.errors import InputError, counted


@dataclass
class Outcome:
    """What came of running a grid."""

    grid: Grid
    known: int = 0  # runs that the store had before
    missing: int = 0  # runs that it lacked
    done: int = 0  # runs that were added, by this or another process
    failed: dict[str, str] = field(default_factory=dict)  # errors by the names of runs
    absent: dict[str, str] = field(default_factory=dict)  # how to get datasets and packages
    seconds: float = 0.0

    @property
    def left(self) -> int:
        """Runs that did not start before `until`."""
        return self.missing - self.done - len(self.failed)


def run_grid(
    grid: Grid | str,
    store: ResultStore | str | Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    until: float | None = None,
    executor: Executor | None = None,
    quiet: bool = False,
) -> Outcome:
    """Run what a store lacks of a grid.

    Results are stored as they come; after an interruption, the same call runs the rest. Several
    processes may share one store.

    Parameters
    ----------
    grid : Grid or str
        A grid, the name of one, such as "paper", "quick" or "tables", or a TOML file. Datasets
        that are not here, and methods whose package is not, are left out, and named in the outcome.
    store : ResultStore or path
        The folder of the results.
    device, workers : str, int or None
        "auto", "cpu" or "cuda"; how many processes, by default one per core, or 6 per GPU.
    until : float or None
        Seconds after which no run starts any more; started ones are finished.
    executor : Executor or None
        Runs the bundles instead of processes on this machine.
    quiet : bool
        Whether to show no progress.

    Examples
    --------
    >>> import tempfile
    >>> values = {"methods": ["pl_knn"], "datasets": ["synthetic"], "noise": "uniform", "seeds": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_grid(Grid.of(values), folder, device="cpu", workers=1, quiet=True)
    ...     again = run_grid(Grid.of(values), folder, device="cpu", workers=1, quiet=True)
    >>> first.done, again.done, again.known
    (1, 0, 1)
    """
    grid, store = grid_of(grid), store if isinstance(store, ResultStore) else ResultStore(store)
    if until is not None and not until >= 0:
        raise InputError(f"until must be a number of seconds, 0 or more; got {until!r}.")
    return Driver(grid, store, executor or LocalExecutor(device, workers), quiet).drive(until)


class Driver:
    """Starts bundles on an executor, stores their results, and shows the progress."""

    def __init__(self, grid: Grid, store: ResultStore, executor: Executor, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.grid, self.store, self.executor = grid, store, executor
        plain: Any = {"markup": False, "highlight": False, "soft_wrap": True}
        self.console = Console(stderr=True, quiet=quiet, **plain)
        no_bar = quiet or not self.console.is_terminal
        self.progress = Progress(console=self.console, disable=no_bar, speed_estimate_period=3600)
        self.bar = self.progress.add_task("starting")
        self.begun = time.monotonic()
        self.outcome = Outcome(grid)
        self.waiting: list[Bundle] = []
        self.running: dict[Future[JobResult], Bundle] = {}
        self.retried: set[tuple[str, ...]] = set()
        self.locks: dict[str, BaseFileLock] = {}
        self.candidates: dict[str, Candidates] = {}
        self.undrawn: set[str] = set()  # noise that failed; training draws it again, and says why
        self.notes: set[str] = set()

    def plan(self) -> None:
        """Find what the store lacks, and cut it into bundles."""
        runs, absent = runs_here(self.grid)
        messages = [f"{name} is not here and is left out. {how}" for name, how in absent.items()]
        if not runs:
            raise InputError(
                f"The grid {self.grid.name!r} has nothing to run. {' '.join(messages)}"
            )
        self.store.keep_grid(self.grid)
        self.store.sweep()
        for message in (*messages, *other_versions(self.store, runs)):
            self.console.print(message)
        missing = self.store.missing(runs)
        self.outcome.absent, self.outcome.missing = absent, len(missing)
        self.outcome.known = len({run.key for run in runs}) - len(missing)
        stored = {key: self.store.candidates(key) for key in {run.noise_key for run in missing}}
        self.candidates = {key: sets for key, sets in stored.items() if sets is not None}
        undrawn = [run for run in missing if run.noise_key not in self.candidates]
        joined = self.executor.sizes["cuda"] > 0
        self.waiting = bundles(undrawn, joined=joined, draw_noise=True)
        self.waiting += bundles(missing, joined=joined)

    def drive(self, until: float | None) -> Outcome:
        """Run until all is done or failed; Ctrl-C keeps what is finished."""
        interrupt = signal.default_int_handler
        try:
            with self.progress, handled_by(interrupt, signal.SIGINT, signal.SIGTERM):
                self.plan()
                while self.start_bundles(until):
                    self.collect(0.5)
        finally:
            self.executor.close()
            self.unlock(list(self.locks))
        self.outcome.seconds = time.monotonic() - self.begun
        return self.outcome

    def start_bundles(self, until: float | None) -> bool:
        """Start bundles while there is room; returns whether anything runs or waits."""
        if until is not None and time.monotonic() - self.begun > until:
            return bool(self.running)
        settled = self.candidates.keys() | self.undrawn
        rooms = Counter(self.executor.sizes)
        rooms.subtract(bundle.place for bundle in self.running.values())
        for bundle in list(self.waiting):
            if rooms[bundle.place] > 0 and settled.issuperset(bundle.needs):
                self.waiting.remove(bundle)
                if (claimed := self.claim(bundle)) is not None:
                    future = self.executor.submit(perform, claimed, claimed.place)
                    self.running[future] = claimed
                    rooms[bundle.place] -= 1
        return bool(self.running or self.waiting)

    def claim(self, bundle: Bundle) -> Bundle | None:
        """The bundle without runs that are done or failed; those that are locked wait again."""
        mine, others = [], []
        for run, key in zip(bundle.runs, bundle.keys, strict=True):
            if not self.lock(key):
                others.append(run)
            elif bundle.draws_noise and (stored := self.store.candidates(key)) is not None:
                self.candidates[key] = stored  # drawn by another driver
                self.unlock([key])
            elif bundle.draws_noise or self.store.lacks(run):
                mine.append(run)
            else:  # done by another driver
                self.outcome.done += 1
                self.unlock([key])
        if others:
            self.waiting.append(replace(bundle, runs=tuple(others)))
        return replace(bundle, runs=tuple(mine)).with_candidates(self.candidates) if mine else None

    def lock(self, key: str) -> bool:
        """Whether this driver may compute a key; the system frees the locks of killed drivers."""
        if key not in self.locks:
            path = self.store.root / "locks" / f"{key}.lock"
            with writing(path), suppress(Timeout):
                path.parent.mkdir(exist_ok=True)
                lock = FileLock(path)
                lock.acquire(blocking=False)
                self.locks[key] = lock
        return key in self.locks

    def unlock(self, keys: Iterable[str]) -> None:
        for key in keys:
            if lock := self.locks.pop(key, None):
                with suppress(OSError):  # an open file cannot be removed on Windows
                    Path(lock.lock_file).unlink()
                lock.release()

    def collect(self, timeout: float) -> None:
        """Wait for a bundle to finish, store the results of all finished ones, show progress."""
        if not self.running:
            time.sleep(timeout)  # another driver works on the rest
        for future in wait(self.running, timeout, FIRST_COMPLETED).done:
            bundle = self.running.pop(future)
            try:
                result: JobResult = self.executor.result(future)
            except LostJob as lost:
                result = JobResult(error=str(lost), died=True)
            if result.error:
                self.retry(bundle, result)
            else:
                self.keep(bundle, result)
            if not self.console.is_terminal:
                self.console.print(f"{bundle.title}: {counted(self.outcome.left, 'run')} left")
        total, left = self.outcome.missing, self.outcome.left
        titles = "; ".join(bundle.title for bundle in list(self.running.values())[:2])
        self.progress.update(self.bar, completed=total - left, total=total, description=titles)

    def keep(self, bundle: Bundle, result: JobResult) -> None:
        """Store the result of a bundle."""
        for key, candidates in result.candidates.items():
            self.store.keep_candidates(key, candidates)
            self.candidates[key] = candidates
        for run, table in zip(bundle.runs, result.tables, strict=not bundle.draws_noise):
            self.store.write(run, table)
            self.outcome.done += 1
        self.unlock(bundle.keys)
        for note in set(result.notes) - self.notes:
            self.console.print(f"{bundle.title}: {note}")
            self.notes.add(note)

    def retry(self, bundle: Bundle, result: JobResult) -> None:
        """Start a failed bundle again in parts, to save its other runs; record a failed run."""
        if result.died and bundle.keys not in self.retried:
            self.retried.add(bundle.keys)
            self.waiting.insert(0, bundle)
        elif len(bundle.runs) > 1:
            self.waiting[:0] = [replace(bundle, runs=(run,), candidates={}) for run in bundle.runs]
        else:
            self.unlock(bundle.keys)
            if bundle.draws_noise:
                self.undrawn.update(bundle.keys)
                return
            [run] = bundle.runs
            self.store.failed(run, result.error, result.details)
            self.outcome.failed[run.name] = result.error
            self.console.print(f"{run.name} failed: {result.error}")
