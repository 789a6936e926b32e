"""Running a grid: the driver, and executors on this machine or on a Ray cluster."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, current_process, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from filelock import BaseFileLock, FileLock, Timeout

from robustpll.bench.grid import Grid, grid_of, runs_here
from robustpll.bench.store import Candidates, ResultStore, other_versions, writing
from robustpll.bench.worker import Bundle, JobResult, Place, bundles, perform, start_worker
from robustpll.engine.device import chosen_device
from robustpll.errors import InputError, RobustPLLError, is_count

GPU_WORKERS = 6  # for each GPU: small bundles use only a part of it, and some just compile
RETRIES = 3  # by Ray, if a process or machine is lost
# One thread for each process: there are as many processes as cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
GUARD = "In a script, call run_grid below `if __name__ == '__main__':`."
MPS, MPS_PIPES = "nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY"


class Executor(ABC):
    """Runs `robustpll.bench.worker.perform(bundle, device)` in other processes."""

    sizes: Mapping[Place, int]  # how many bundles of each place run at the same time

    @abstractmethod
    def submit(self, bundle: Bundle) -> Future[JobResult]:
        """Start a bundle; the caller respects `sizes`."""

    @abstractmethod
    def result(self, future: Future[JobResult]) -> JobResult:
        """The result of a finished future; a lost worker becomes an error."""

    @abstractmethod
    def close(self) -> None:
        """End all processes at once; may be called twice."""


@dataclass(eq=False)
class LocalWorker:
    """A worker process, in a pool of its own, so that a killed worker breaks no other one."""

    device: str
    pool: ProcessPoolExecutor = field(init=False)
    process: BaseProcess | None = None  # the first bundle starts it

    def submit(self, bundle: Bundle, environment: Mapping[str, str]) -> Future[JobResult]:
        if self.process is not None and self.process.is_alive():
            return self.pool.submit(perform, bundle, self.device)
        self.pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=start_worker)
        others = active_children()
        # The process inherits both, before it imports torch.
        with patch.dict(os.environ, environment), handled_by(signal.SIG_IGN, signal.SIGINT):
            future = self.pool.submit(perform, bundle, self.device)
        [self.process] = [child for child in active_children() if child not in others]
        return future

    def end(self) -> int:
        """Kill the process, and return its exit code; the next bundle starts another one."""
        if self.process is None:
            return 0
        self.process.kill()
        self.pool.shutdown(cancel_futures=True)  # waits for the process
        return self.process.exitcode or 0


class LocalExecutor(Executor):
    """Worker processes on this machine: on GPUs, and on the other cores for other methods."""

    def __init__(self, device: str = "auto", workers: int | None = None) -> None:
        if workers is not None and not is_count(workers, least=1):
            raise InputError(f"workers must be an int of at least 1; got {workers!r}.")
        if getattr(current_process(), "_inheriting", False):  # a worker imports the main script
            raise RobustPLLError(GUARD)
        chosen = chosen_device(device)
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        on_cpu, on_gpus = workers or cores, list[str]()
        self.services, self.mps_settings = ExitStack(), dict[str, str]()
        if chosen.type == "cuda":
            gpus = [chosen.index] if ":" in str(chosen) else range(torch.cuda.device_count())
            count = workers or GPU_WORKERS * len(gpus)
            on_gpus = [f"cuda:{gpus[number % len(gpus)]}" for number in range(count)]
            on_cpu = max(1, cores - count)
            self.mps_settings = self.services.enter_context(mps_service())
        self.sizes = {"cpu": on_cpu, "cuda": len(on_gpus)}
        self.workers = [LocalWorker(name) for name in [*["cpu"] * on_cpu, *on_gpus]]
        self.busy: dict[Future[JobResult], LocalWorker] = {}

    def submit(self, bundle: Bundle) -> Future[JobResult]:
        busy = list(self.busy.values())
        idle = [w for w in self.workers if w.device.startswith(bundle.place) and w not in busy]
        worker = max(idle, key=lambda worker: worker.process is not None)  # one that runs, if any
        settings = NO_GPU if bundle.place == "cpu" else self.mps_settings
        future = worker.submit(bundle, ENVIRONMENT | settings)
        self.busy[future] = worker
        return future

    def result(self, future: Future[JobResult]) -> JobResult:
        worker = self.busy.pop(future)
        try:
            result = future.result()
        except BrokenProcessPool as error:
            code = worker.end()
            if code > 0:
                raise RobustPLLError(f"A worker exited; its error is above. {GUARD}") from error
            message = f"Its process was killed by signal {-code}; memory may have run out."
            result = JobResult(error=message, died=True)
        if "CUDA error" in result.error:  # which makes a process useless
            worker.end()
        return result

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.services.close()


@contextmanager
def handled_by(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals by another handler; in other threads than the main one, nothing happens."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if in_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


@contextmanager
def mps_service() -> Iterator[dict[str, str]]:
    """Run NVIDIA's multi-process service; yields the environment of its clients."""
    # Kernels of several processes then run at the same time on one GPU: on an H200, three bundles
    # of ten models were 1.8 times faster. If it is not here, or the user runs one, nothing happens.
    if MPS_PIPES in os.environ or shutil.which(MPS) is None:
        yield {}
        return
    # One folder for each user, so that a service that outlived its driver is found again.
    folder = Path(tempfile.gettempdir()) / f"robustpll-mps-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    settings = {MPS_PIPES: str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}

    def control(*arguments: str, command: bytes = b"") -> bool:
        options: Any = {"env": os.environ | settings, "timeout": 20, "capture_output": True}
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run([MPS, *arguments], input=command, check=True, **options)
            return True
        return False

    control("-d")  # fails if it runs already
    try:
        yield settings if control(command=b"get_server_list\n") else {}
    finally:
        control(command=b"quit\n")


class RayExecutor(Executor):
    """Runs bundles on all machines of a Ray cluster, including machines that join later.

    Every machine needs this version of robustpll with the extra ``ray``, and the data in the folder
    that ROBUSTPLL_DATA named when Ray was started there. Members of a cluster execute what they
    send each other: join only clusters you trust.

    `address` "local" starts a cluster on this machine and ends it afterwards, "auto" joins the one
    on this machine, "host:port" joins one that includes this machine.
    """

    def __init__(self, address: str = "local", device: str = "auto") -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"device must be auto, cpu or cuda; got {device!r}.")
        try:
            import ray

            if address not in ("local", "auto"):  # Ray itself would try for many minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
            ray.init(address=address, include_dashboard=False, **quiet)
        except Exception as error:  # Ray raises many kinds
            raise InputError(
                "A Ray cluster needs pip install 'robustpll[ray]', and an address that is local, "
                f"auto or HOST:PORT, where 'ray start --head' was called; got {address!r}: {error}"
            ) from error
        self.ray: Any = ray
        self.uses_gpus = device != "cpu" and self.ray.cluster_resources().get("GPU", 0) >= 1
        if device == "cuda" and not self.uses_gpus:
            self.close()
            raise InputError(f"The Ray cluster at {address!r} has no GPU; use device 'auto'.")
        share = 10_000 // GPU_WORKERS / 10_000  # rounded down, as Ray rounds up
        options: dict[str, dict[str, Any]] = {
            "cpu": {"num_cpus": 1, "runtime_env": {"env_vars": ENVIRONMENT | NO_GPU}},
            # with a GPU, Ray ends a process after its job
            "cuda": {"num_cpus": 0, "num_gpus": share, "runtime_env": {"env_vars": ENVIRONMENT}},
        }
        self.remote = {
            place: self.ray.remote(max_retries=RETRIES, **some)(perform)
            for place, some in options.items()
        }

    @property
    def sizes(self) -> Mapping[Place, int]:  # type: ignore[override]
        """Follows the machines of the cluster."""
        resources = self.ray.cluster_resources()
        on_gpus = GPU_WORKERS * int(resources.get("GPU", 0)) if self.uses_gpus else 0
        return {"cpu": max(1, int(resources.get("CPU", 0)) - on_gpus), "cuda": on_gpus}

    def submit(self, bundle: Bundle) -> Future[JobResult]:
        future: Future[JobResult] = self.remote[bundle.place].remote(bundle, bundle.place).future()
        return future

    def result(self, future: Future[JobResult]) -> JobResult:
        try:
            return future.result()
        except self.ray.exceptions.RayError as error:
            message = f"Ray lost it {RETRIES + 1} times ({type(error).__name__})."
            return JobResult(error=message, details=str(error), died=True)

    def close(self) -> None:
        self.ray.shutdown()  # ends the processes of this program on all machines


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
    processes may share one store. In a script, call this below ``if __name__ == "__main__":``,
    because it starts processes.

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
                    self.running[self.executor.submit(claimed)] = claimed
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
            bundle, result = self.running.pop(future), self.executor.result(future)
            if result.error:
                self.retry(bundle, result)
            else:
                self.keep(bundle, result)
            if not self.console.is_terminal:
                self.console.print(f"{bundle.title}: {self.outcome.left:,} runs are left")
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
