"""Running a grid: the driver that starts jobs and stores results, and processes that do the work."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing import active_children, current_process, get_context, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from robustpll import __version__
from robustpll.bench.bundles import Bundle, Candidates, Place, bundles, noise_bundles
from robustpll.bench.grid import Grid, grid_of, present
from robustpll.bench.run import Run
from robustpll.bench.store import ResultStore, StoreError, of_files, of_others, writing
from robustpll.bench.worker import JobResult, perform, start_worker
from robustpll.engine.device import chosen_device, device_name
from robustpll.errors import InputError, RobustPLLError, is_count

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from filelock import BaseFileLock

GPU_WORKERS = 6  # for each GPU: small bundles use only a part of it, and some just compile
# One thread for each process: there are as many processes as cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
GUARD = "In a script, call run_grid below `if __name__ == '__main__':`."
LOOK_AGAIN = 2.0  # seconds between looks at jobs that another driver works on
BETWEEN_RECORDS = 20.0  # seconds between two writes of the session's record
PLACES: tuple[Place, ...] = ("device", "host")
MPS, MPS_PIPES, MPS_LOGS = (
    *("nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"),
)


class Executor(ABC):
    """Runs `robustpll.bench.worker.perform(bundle, device)` in other processes."""

    joined: bool  # whether runs of equal shape train at once, which suits GPUs
    title: str  # for the record: "3 processes on NVIDIA H200"
    sizes: Mapping[Place, int]  # how many bundles of each place run at the same time

    @abstractmethod
    def submit(self, bundle: Bundle) -> Future[JobResult]:
        """Start a bundle; the caller respects `sizes`."""

    def result(self, future: Future[JobResult]) -> JobResult:
        """The result of a finished future; a lost worker becomes an error."""
        return future.result()

    def close(self) -> None:
        """End all processes at once; may be called twice."""


class LocalExecutor(Executor):
    """Worker processes on this machine; they end with this process.

    Every worker is a process pool of its own, so that a killed worker breaks no other one.

    Parameters
    ----------
    device : str
        "auto", "cpu" or "cuda"; "auto" and "cuda" use all GPUs, if there are any.
    workers : int or None
        Processes that train networks; by default one for each core, or 6 for each GPU. With GPUs,
        one more process for each other core runs the methods that do not use a GPU.

    Examples
    --------
    >>> executor = LocalExecutor("cpu", workers=2)
    >>> executor.sizes["device"], executor.joined
    (2, False)
    """

    def __init__(self, device: str = "auto", workers: int | None = None) -> None:
        if workers is not None and not is_count(workers, least=1):
            raise InputError(f"workers must be an int of at least 1; got {workers!r}.")
        if getattr(current_process(), "_inheriting", False):  # a worker imports the main script
            raise RobustPLLError(GUARD)
        chosen = chosen_device(device)
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        self.joined = chosen.type == "cuda"
        devices: dict[Place, list[str]] = {"device": ["cpu"] * (workers or cores), "host": []}
        if self.joined:
            one = chosen.index is not None  # such as cuda:1
            gpus = [chosen.index] if one else list(range(torch.cuda.device_count()))
            count = workers or GPU_WORKERS * len(gpus)
            devices["device"] = [f"cuda:{gpus[i % len(gpus)]}" for i in range(count)]
            devices["host"] = ["cpu"] * max(1, cores - count)
        self.sizes = {place: len(names) for place, names in devices.items()}
        others = f", {self.sizes['host']} on the CPU" if self.joined else ""
        self.title = f"{self.sizes['device']} processes on {device_name(chosen)}{others}"
        # idle workers, the last one is next: the device, and the pool once it is started
        self.idle: dict[Place, list[tuple[str, ProcessPoolExecutor | None]]] = {
            place: [(name, None) for name in reversed(names)] for place, names in devices.items()
        }
        self.busy: dict[Future[JobResult], tuple[Place, str, ProcessPoolExecutor]] = {}
        self.processes: dict[ProcessPoolExecutor, BaseProcess] = {}
        self.any_result = False
        self.services, self.mps_settings = ExitStack(), dict[str, str]()

    def submit(self, bundle: Bundle) -> Future[JobResult]:
        device, pool = self.idle[bundle.place].pop()
        try:
            future = pool.submit(perform, bundle, device) if pool else None
        except BrokenProcessPool:  # it died while it was idle
            future = None
        if pool is None or future is None:
            if self.joined and not self.processes:
                self.mps_settings = self.services.enter_context(mps_service())
            pool = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=start_worker, initargs=(device, time.time())
            )
            with _child_settings(device, self.mps_settings):
                before = active_children()
                future = pool.submit(perform, bundle, device)
                [self.processes[pool]] = [p for p in active_children() if p not in before]
        self.busy[future] = (bundle.place, device, pool)
        return future

    def result(self, future: Future[JobResult]) -> JobResult:
        place, device, pool = self.busy.pop(future)
        try:
            result = future.result()
            self.any_result = True
        except BrokenProcessPool:
            pool.shutdown()  # waits for the process
            result = self._death(self.processes[pool].exitcode or 0)
        if result.died or "CUDA error" in result.error:  # which makes a process useless
            pool.shutdown(wait=False)
            self.idle[place].insert(0, (device, None))
        else:
            self.idle[place].append((device, pool))
        return result

    def _death(self, code: int) -> JobResult:
        ending = f"ended with code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        if code > 0 and not self.any_result:
            raise RobustPLLError(
                f"A worker process {ending} before it could begin; its error is above. {GUARD}"
            )
        memory = " It may have run out of memory." if code == -signal.SIGKILL else ""
        return JobResult(error=f"Its process {ending}.{memory}", died=True)

    def close(self) -> None:
        for _, _, pool in self.busy.values():
            self.processes[pool].kill()
        for pool in self.processes:  # idle processes end by themselves
            pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + 5.0
        for pool, process in self.processes.items():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            pool.shutdown()
        self.busy, self.processes = {}, {}
        self.services.close()


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


@contextmanager
def _child_settings(device: str, mps_settings: Mapping[str, str]) -> Iterator[None]:
    """Environment and signal mask of a child; both apply before it imports torch."""
    settings = ENVIRONMENT | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else mps_settings)
    before = dict(os.environ)
    os.environ.update(settings)
    # A terminal sends Ctrl-C to all its processes; a child inherits that it is blocked here.
    blocks = hasattr(signal, "pthread_sigmask")
    if blocks:
        resource_tracker.ensure_running()  # starting it with the first child would unblock signals
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if blocks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in settings:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@contextmanager
def mps_service() -> Iterator[dict[str, str]]:
    """Run NVIDIA's multi-process service; yields the environment of its clients.

    It lets kernels of several processes run at the same time on one GPU. On an H200, three bundles
    of ten models were 1.8 times faster with it. Without the service, or if the environment names
    one, nothing happens.

    >>> with mps_service() as settings:
    ...     sorted(settings)  # here, without a GPU
    []
    """
    if MPS_PIPES in os.environ or shutil.which(MPS) is None:
        yield {}
        return
    # One folder for each user, so that a service that outlived its driver is found again.
    folder = Path(tempfile.gettempdir()) / f"robustpll-mps-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    settings = {MPS_PIPES: str(folder), MPS_LOGS: str(folder)}

    def control(arguments: list[str], command: str = "") -> bool:
        options: dict[str, Any] = {"text": True, "capture_output": True, "check": False}
        try:
            done = subprocess.run(
                [MPS, *arguments], input=command, env=os.environ | settings, timeout=20, **options
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    control(["-d"])
    is_running = control([], "get_server_list\n")
    try:
        yield settings if is_running else {}
    finally:
        if is_running:
            control([], "quit\n")


@dataclass
class Outcome:
    """What came of running a grid.

    Attributes
    ----------
    grid : Grid
        The grid on the datasets that are here.
    known : int
        Runs that the store had before.
    done : int
        Runs that were added, by this or another process.
    failed : dict of str to str
        Errors of runs by their names; the next call tries these runs again.
    left : int
        Runs that did not start before `until`.
    absent : dict of str to str
        How to get the datasets that are not here, by name.
    seconds : float
        The duration.
    parts : dict of str to float
        How the time was spent, summed over all processes.
    """

    grid: Grid
    known: int = 0
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))


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

    Results are stored as they come. After an interruption, the same call runs the rest. Several
    processes may share one store. Predictions on a CPU do not depend on the order of the work; on
    a GPU they agree within rounding. In a script, call this below
    ``if __name__ == "__main__":``, because it starts processes.

    Parameters
    ----------
    grid : Grid or str
        A grid, the name of one ("paper", "sound", "quick", "audit", "beyond"), or a TOML file.
        Datasets that are not here are left out, and named in the outcome.
    store : ResultStore or path
        The folder of the results.
    device : str
        "auto", "cpu" or "cuda".
    workers : int or None
        Processes that train networks; by default one for each core, or 6 for each GPU.
    until : float or None
        Seconds after which no run starts any more; started ones are finished.
    executor : Executor or None
        Runs the jobs instead of processes on this machine.
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
        from rich.progress import Progress, TextColumn, TimeRemainingColumn

        self.grid, self.store, self.executor = grid, store, executor
        self.console = Console(stderr=True, quiet=quiet, markup=False, highlight=False)
        self.progress = Progress(
            *Progress.get_default_columns()[1:3],
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
            speed_estimate_period=3600,
        )
        self.bar = self.progress.add_task("starting")
        self.shown = (-1, 0.0)  # runs in the last line of the log, and its time
        self.begun = self.recorded = time.monotonic()
        self.session = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
        self.outcome = Outcome(grid)
        self.waiting: list[Bundle] = []
        self.postponed: list[Bundle] = []  # another driver works on them
        self.look_again = 0.0
        self.running: dict[Future[JobResult], Bundle] = {}
        self.retried: set[tuple[str, ...]] = set()
        self.locks: dict[str, BaseFileLock] = {}
        self.candidates: dict[str, Candidates] = {}
        self.noise_errors: dict[str, JobResult] = {}
        self.notes: set[str] = set()
        self.finished_work = 0.0  # expected seconds of finished bundles

    def plan(self) -> None:
        """Find what the store lacks, and cut it into bundles."""
        here, absent = present(self.grid)
        if here is None:
            remedies = " ".join(f"{name}: {remedy}" for name, remedy in absent.items())
            msg = f"None of the datasets of the grid {self.grid.name!r} is here. {remedies}"
            raise InputError(msg)
        runs = of_files(here.runs())
        self.store.keep_grid(self.grid)
        self.store.sweep()
        for name, remedy in absent.items():
            self.console.print(f"{name} is not here and is left out. {remedy}")
        for message in of_others(self.store, runs):
            self.console.print(message)
        for message in self.store.damaged(runs):
            self.console.print(f"{message} It is run again.")
        missing = self.store.missing(runs)
        self.outcome.grid, self.outcome.absent = here, absent
        self.outcome.known = len({run.key for run in runs}) - len(missing)
        self.outcome.left = len(missing)
        for key in {run.noise_key for run in missing if run.noise}:
            if (candidates := self.store.candidates(key)) is not None:
                self.candidates[key] = candidates
        unknown = [run for run in missing if run.noise_key not in self.candidates]
        joined = self.executor.joined
        self.waiting = [*noise_bundles(unknown, joined=joined), *bundles(missing, joined=joined)]
        self.outcome.parts["planning"] = time.monotonic() - self.begun

    def drive(self, until: float | None) -> Outcome:
        """Run until all is done or failed; Ctrl-C keeps what is finished."""
        try:
            with self.progress, stop_requests() as stop:
                self.plan()
                while not stop.is_set() and self.start_bundles(until):
                    results = self.collect(0.5)
                    self.start_bundles(until)  # first, so that no worker waits for the disk
                    self.keep(results)
                    self.show()
                    if time.monotonic() - self.recorded > BETWEEN_RECORDS:
                        self.record()
                if stop.is_set():
                    self.keep(self.collect(0))
                    raise KeyboardInterrupt
        finally:
            self.executor.close()
            self.unlock(list(self.locks))
            with suppress(StoreError):  # the error of a full disk is raised already
                self.record()
        self.outcome.seconds = time.monotonic() - self.begun
        return self.outcome

    def start_bundles(self, until: float | None) -> bool:
        """Start bundles while there is room; returns whether anything runs or waits."""
        if until is not None and time.monotonic() - self.begun > until:
            return bool(self.running)
        if self.postponed and time.monotonic() > self.look_again:
            self.waiting, self.postponed = self.waiting + self.postponed, []
        settled = self.candidates.keys() | self.noise_errors.keys()
        for place in PLACES:
            room = self.executor.sizes[place]
            room -= sum(bundle.place == place for bundle in self.running.values())
            for bundle in [bundle for bundle in self.waiting if bundle.place == place]:
                if room > 0 and settled.issuperset(bundle.needs):
                    self.waiting.remove(bundle)
                    if (claimed := self.claim(bundle)) is not None:
                        self.running[self.executor.submit(claimed)] = claimed
                        room -= 1
        return bool(self.running or self.waiting or self.postponed)

    def claim(self, bundle: Bundle) -> Bundle | None:
        """The bundle without runs that are done, failed, or locked by another driver."""
        mine, others = [], []
        for run, key in zip(bundle.runs, bundle.keys, strict=True):
            if not bundle.draws_noise and run.noise_key in self.noise_errors:
                failure = self.noise_errors[run.noise_key]
                self.fail(run, replace(failure, error=f"Its noise: {failure.error}"))
            elif not self.lock(key):
                others.append(run)
            elif not self.is_done(run, bundle.draws_noise):
                mine.append(run)
            else:  # by another driver, after the plan was made
                self.unlock([key])
        if others:
            self.postponed.append(replace(bundle, runs=tuple(others)))
            self.look_again = time.monotonic() + LOOK_AGAIN
        return replace(bundle, runs=tuple(mine)).with_candidates(self.candidates) if mine else None

    def is_done(self, run: Run, draws_noise: bool) -> bool:
        if not draws_noise:
            is_done = not self.store.lacks(run)
            self.count(is_done)
            return is_done
        candidates = self.store.candidates(run.noise_key)
        if candidates is not None:
            self.candidates[run.noise_key] = candidates
        return candidates is not None

    def count(self, done: int) -> None:
        self.outcome.done += done
        self.outcome.left -= done

    def lock(self, key: str) -> bool:
        """Whether this driver may compute a key; the system frees the locks of killed drivers."""
        from filelock import FileLock, Timeout

        if key in self.locks:
            return True
        path = self.store.root / "locks" / f"{key}.lock"
        lock = FileLock(path)
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                return False
        self.locks[key] = lock
        return True

    def unlock(self, keys: Iterable[str]) -> None:
        for key in keys:
            if lock := self.locks.pop(key, None):
                with suppress(OSError):  # an open file cannot be removed on Windows
                    Path(lock.lock_file).unlink()
                lock.release()

    def collect(self, timeout: float) -> list[tuple[Bundle, JobResult]]:
        """The results of finished bundles; waits for the first one."""
        if not self.running:
            time.sleep(timeout)  # another driver works on the rest
        finished = wait(self.running, timeout, FIRST_COMPLETED).done
        return [(self.running.pop(future), self.executor.result(future)) for future in finished]

    def keep(self, results: Iterable[tuple[Bundle, JobResult]]) -> None:
        """Store results; a bundle that failed starts again in parts, to save its other runs."""
        parts = self.outcome.parts
        for bundle, result in results:
            self.finished_work += self.expected(bundle)
            what = "noise" if bundle.draws_noise else "runs"
            for name, seconds in result.seconds.items():
                parts[name if name == "starting" else f"{what}, {name}"] += seconds
            if result.error:
                self.retry(bundle, result)
                continue
            begun = time.monotonic()
            for key, candidates in result.candidates.items():
                self.store.keep_candidates(key, candidates)
                self.candidates[key] = candidates
            for run, stored in zip(bundle.runs, result.results, strict=not bundle.draws_noise):
                self.store.write(run, stored)
                self.count(1)
            self.unlock(bundle.keys)
            parts["write"] += time.monotonic() - begun
            for note in set(result.notes) - self.notes:
                self.console.print(f"{bundle.title}: {note}")
                self.notes.add(note)

    def retry(self, bundle: Bundle, result: JobResult) -> None:
        if result.died and bundle.keys not in self.retried:
            self.retried.add(bundle.keys)
            self.waiting.insert(0, bundle)
        elif len(bundle.runs) > 1:
            self.waiting[:0] = bundle.parts()
        elif bundle.draws_noise:
            self.noise_errors[bundle.keys[0]] = result
            self.unlock(bundle.keys)
        else:
            self.fail(bundle.runs[0], result)
            self.unlock(bundle.keys)

    def fail(self, run: Run, result: JobResult) -> None:
        self.store.failed(run, result.error, result.details)
        self.outcome.failed[run.name] = result.error
        self.outcome.left -= 1
        self.console.print(f"{run.name} failed: {result.error}")

    def expected(self, bundle: Bundle) -> float:
        return bundle.seconds(cuda=self.executor.joined and bundle.place == "device")

    def show(self) -> None:
        """Update the bar on a terminal; print a line now and then elsewhere."""
        done = self.outcome.done + len(self.outcome.failed)
        text = f"{done:,} of {done + self.outcome.left:,} runs"
        rest = sum(map(self.expected, (*self.waiting, *self.postponed, *self.running.values())))
        total = self.finished_work + rest
        titles = "; ".join(bundle.title for bundle in list(self.running.values())[:3])
        self.progress.update(
            self.bar, completed=self.finished_work, total=total, description=f"{text}; {titles}"
        )
        last, when = self.shown
        if not self.console.is_terminal and time.monotonic() - when > (5 if done > last else 60):
            remaining = self.progress.tasks[0].time_remaining
            left = "" if remaining is None else f", about {remaining / 60 + 0.5:.0f} min left"
            self.console.print(text + left)
            self.shown = (done, time.monotonic())

    def record(self) -> None:
        """Store how the time was spent so far."""
        self.recorded = time.monotonic()
        if not self.finished_work:
            return
        parts = {name: round(seconds, 2) for name, seconds in self.outcome.parts.items()}
        facts = {
            "grid": self.grid.name,
            "executor": self.executor.title,
            "torch": torch.__version__,
            "version": __version__,
            "seconds": round(time.monotonic() - self.begun, 2),
            "runs": self.outcome.done,
            "failed": len(self.outcome.failed),
            "parts": parts,
        }
        self.store.keep_session(self.session, facts)


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; the second signal raises KeyboardInterrupt."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only it receives signals
        yield stop
        return

    def request(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
