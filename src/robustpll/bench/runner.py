"""Running a grid into a store."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from robustpll import __version__
from robustpll.bench.grid import Grid, present
from robustpll.bench.progress_display import Board
from robustpll.bench.store import ResultStore
from robustpll.bench.stored_files import StoreError
from robustpll.bench.sweep import Sweep
from robustpll.bench.versions import of_files, of_others
from robustpll.bench.workers import Executor, LocalProcesses
from robustpll.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """What came of running a grid.

    Attributes
    ----------
    grid : Grid
        What ran: the datasets that are here.
    known : int
        Runs that were in the store before.
    done : int
        Runs that were added to it meanwhile, by whatever process.
    failed : dict of str to str
        Why runs failed, by their names; they are tried again next time.
    left : int
        Runs that did not begin before `until`.
    absent : dict of str to str
        How to get datasets that are not here, by their names.
    seconds : float
        In all.
    parts : dict of str to float
        Where they went, summed over all processes.
    """

    grid: Grid
    known: int
    done: int
    failed: dict[str, str]
    left: int
    absent: dict[str, str]
    seconds: float
    parts: dict[str, float]


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

    Results are written as they come: a kill loses no more than what is at work, and the same call
    runs the rest. Several processes on one store share the work. On a CPU a run's predictions are
    the same however the work was cut, on a GPU within rounding. In a script, call this below
    ``if __name__ == "__main__":``, since processes are started anew.

    Parameters
    ----------
    grid : Grid or str
        "paper", "sound", "quick", "audit", "beyond", or the path of a TOML file. Datasets that are
        not here are left out, and named in the outcome.
    store : ResultStore or path
        Where results go.
    device : str
        "auto", "cpu" or "cuda".
    workers : int or None
        Processes that train networks; by default one for each core, or 6 for each GPU.
    until : float or None
        Seconds after which nothing begins any more; what is at work is finished.
    executor : Executor or None
        Who performs the jobs, instead of processes on this machine.
    quiet : bool
        Whether nothing is shown meanwhile.

    Examples
    --------
    >>> import tempfile
    >>> asked = {"methods": ["pl_knn"], "datasets": ["synthetic"], "noise": "uniform", "seeds": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_grid(Grid.of(asked), folder, device="cpu", workers=1, quiet=True)
    ...     again = run_grid(Grid.of(asked), folder, device="cpu", workers=1, quiet=True)
    >>> first.done, again.done, again.known
    (1, 0, 1)
    """
    grid, store = grid_of(grid), store if isinstance(store, ResultStore) else ResultStore(store)
    if until is not None and not until >= 0:
        msg = f"until must be a number of seconds, 0 or more; got {until!r}."
        raise InputError(msg)
    with Board(quiet) as board:
        executor = executor or LocalProcesses(device, workers)
        return _run(grid, store, executor, until, board)


def _run(
    grid: Grid, store: ResultStore, executor: Executor, until: float | None, board: Board
) -> Outcome:
    begun = time.perf_counter()
    here = present(grid)
    if here.grid is None:
        ways = " ".join(f"{name}: {way}" for name, way in here.absent.items())
        msg = f"None of the datasets of the grid {grid.name!r} is here. {ways}"
        raise InputError(msg)
    planned = of_files(here.grid.runs())
    store.keep_grid(grid)
    store.sweep()
    for name, way in here.absent.items():
        board.say(f"{name} is not here and is left out. {way}")
    for sentence in of_others(store, planned):
        board.say(sentence)
    for sentence in store.damaged(planned):
        board.say(f"{sentence} It is run again.")
    sweep = Sweep(store.missing(planned), store, executor, board)
    known = len({each.run.key for each in planned}) - sweep.of
    sweep.parts["planning"] = time.perf_counter() - begun
    session = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    sweep.recorder = lambda: store.keep_session(session, _session(grid, sweep))
    try:
        sweep.go(until)
    finally:
        sweep.parts["starting"] = executor.startup
        if sweep.jobs:
            with suppress(StoreError):  # a full disk is told by the error that is on its way
                sweep.recorder()
    left = sweep.of - sweep.done - len(sweep.failed)
    seconds, parts = time.perf_counter() - begun, dict(sweep.parts)
    return Outcome(here.grid, known, sweep.done, sweep.failed, left, here.absent, seconds, parts)


def grid_of(grid: Grid | str | Path) -> Grid:
    """A grid itself, by its name, or from a file.

    >>> grid_of("quick").name
    'quick'
    """
    if isinstance(grid, Grid):
        return grid
    is_file = str(grid).endswith(".toml") or Path(grid).is_file()
    return Grid.read(grid) if is_file else Grid.named(str(grid))


def _session(grid: Grid, sweep: Sweep) -> dict[str, Any]:
    """Where the time went; runs say on which machine they ran."""
    return {
        "grid": grid.name,
        "executor": sweep.executor.title,
        "torch": torch.__version__,
        "version": __version__,
        "seconds": round(time.perf_counter() - sweep.begun, 2),
        "runs": sweep.done,
        "failed": len(sweep.failed),
        "parts": {name: round(seconds, 2) for name, seconds in sweep.parts.items()},
        "jobs": sweep.jobs,
    }
