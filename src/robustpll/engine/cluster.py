"""Independent jobs in other processes: on this machine, or on the machines of a Ray cluster."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from joblib.externals.loky import ProcessPoolExecutor, process_executor
from torch import Tensor, nn

from robustpll.engine.device import chosen_device
from robustpll.engine.history import set_within
from robustpll.errors import InputError, RobustPLLError, is_count

Place = Literal["cuda", "cpu"]  # the kind of device that a job runs on
Work = Callable[[Any, str], Any]  # from a job and the name of a device to its result

GPU_WORKERS = 6  # for each GPU: small jobs use only a part of it, and some just compile
RETRIES = 3  # of a job whose process or machine was lost
# One thread for each process: there are as many processes as cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
MPS, MPS_PIPES = "nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY"
NO_CLUSTER = (
    "A Ray cluster needs an address that is local, auto, HOST:PORT or ray://HOST:PORT, where "
    "'ray start --head' was called; got {address!r}: {error}"
)


class LostJob(RobustPLLError):
    """The process or machine of a job was lost, perhaps by no fault of the job."""


class Executor(ABC):
    """Runs functions of a job and a device in other processes."""

    sizes: Mapping[Place, int]  # how many jobs of each place run at the same time
    retries: int = RETRIES  # of lost jobs, by `map`

    @abstractmethod
    def submit(self, function: Work, job: Any, place: Place) -> Future[Any]:
        """Start `function(job, device)`; the caller respects `sizes`."""

    @abstractmethod
    def result(self, future: Future[Any]) -> Any:
        """Return the result of a finished future, or raise its error; `LostJob` if it was lost."""

    @abstractmethod
    def close(self) -> None:
        """End all processes at once; may be called twice."""

    def map(self, function: Work, jobs: Sequence[Any], place: Place) -> list[Any]:
        """Return the results of all jobs; jobs that are lost are started again."""
        waiting, lost = list(range(len(jobs))), Counter[int]()
        running: dict[Future[Any], int] = {}
        results: list[Any] = [None] * len(jobs)
        while waiting or running:
            while waiting and len(running) < max(1, self.sizes[place]):
                number = waiting.pop(0)
                running[self.submit(function, jobs[number], place)] = number
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                try:
                    results[number] = self.result(future)
                except LostJob:
                    lost[number] += 1
                    if lost[number] > self.retries:
                        raise
                    waiting.append(number)
        return results


@dataclass(eq=False)
class LocalWorker:
    """A worker process, in a pool of its own, so that a killed worker breaks no other one."""

    device: str
    pool: Any = field(init=False)
    process: Any = None  # the first job starts it

    def submit(self, work: Callable[[], Any], environment: Mapping[str, str]) -> Future[Any]:
        future: Future[Any]
        if self.process is not None and self.process.is_alive():
            future = self.pool.submit(work)
            return future
        options: Any = {"env": environment, "initializer": start_worker, "initargs": (os.getpid(),)}
        self.pool = ProcessPoolExecutor(1, **options)
        with handled_by(signal.SIG_IGN, signal.SIGINT):  # which the process inherits
            future = self.pool.submit(work)
        [self.process] = self.pool._processes.values()
        return future

    def end(self) -> int:
        """Kill the process, and return its exit code; the next job starts another one."""
        if self.process is None:
            return 0
        self.pool.shutdown(kill_workers=True)  # and wait for it
        return self.process.exitcode or 0


def start_worker(parent: int) -> None:
    """Prepare a worker process; it ends when its parent does, even if that is killed."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    # Loky ends a process whose memory grows by 300 MB, and with it datasets that were read, the
    # connection to the GPU and compiled code.
    process_executor._MAX_MEMORY_LEAK_SIZE = sys.maxsize


class LocalExecutor(Executor):
    """Worker processes on this machine: on GPUs, and on the other cores for other jobs."""

    def __init__(self, device: str = "auto", workers: int | None = None) -> None:
        if workers is not None and not is_count(workers, least=1):
            raise InputError(f"workers must be an int of at least 1; got {workers!r}.")
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
        self.busy: dict[Future[Any], LocalWorker] = {}

    def submit(self, function: Work, job: Any, place: Place) -> Future[Any]:
        busy = list(self.busy.values())
        idle = [w for w in self.workers if w.device.startswith(place) and w not in busy]
        worker = max(idle, key=lambda worker: worker.process is not None)  # one that runs, if any
        settings = NO_GPU if place == "cpu" else self.mps_settings
        future = worker.submit(partial(function, job, worker.device), ENVIRONMENT | settings)
        self.busy[future] = worker
        return future

    def result(self, future: Future[Any]) -> Any:
        worker = self.busy.pop(future)
        try:
            result = future.result()
        except BrokenProcessPool as error:
            code = worker.end()
            by = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            raise LostJob(f"Its process {by}; memory may have run out.") from error
        if "CUDA error" in getattr(result, "error", ""):  # which makes a process useless
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
    """Runs jobs on all machines of a Ray cluster, including machines that join later.

    Every machine needs this version of robustpll with the extra ``ray``; for grids, also the data
    in the folder that ROBUSTPLL_DATA named when Ray was started there. Members of a cluster execute
    what they send each other: join only clusters you trust.

    `address` "local" starts a cluster on this machine and ends it afterwards, "auto" joins the one
    on this machine, "host:port" joins one that includes this machine, and "ray://host:port" one
    that does not. None is the cluster that the program has joined, else "auto", else "local".
    """

    retries = 0  # Ray itself starts lost jobs again

    def __init__(self, address: str | None = "local", device: str = "auto") -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"device must be auto, cpu or cuda; got {device!r}.")
        try:
            import ray
        except ImportError as error:
            need = f"A Ray cluster needs {error.name}"
            raise InputError(f"{need}. Run pip install 'robustpll[ray]'.") from error
        try:
            self.joined = address is not None or not ray.is_initialized()
            if address not in ("local", "auto", None):  # Ray itself would try for many minutes
                host, _, port = address.removeprefix("ray://").rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
            if self.joined:
                ray.init(address=address, include_dashboard=False, **quiet)
        except Exception as error:  # Ray raises many kinds
            raise InputError(NO_CLUSTER.format(address=address, error=error)) from error
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
            place: self.ray.remote(max_retries=RETRIES, **settings)
            for place, settings in options.items()
        }
        self.functions: dict[tuple[Work, Place], Any] = {}  # as Ray knows them

    @property
    def sizes(self) -> Mapping[Place, int]:  # type: ignore[override]
        """Follows the machines of the cluster."""
        resources = self.ray.cluster_resources()
        on_gpus = GPU_WORKERS * int(resources.get("GPU", 0)) if self.uses_gpus else 0
        return {"cpu": max(1, int(resources.get("CPU", 0)) - on_gpus), "cuda": on_gpus}

    def submit(self, function: Work, job: Any, place: Place) -> Future[Any]:
        key = function, place
        if key not in self.functions:
            self.functions[key] = self.remote[place](function)
        future: Future[Any] = self.functions[key].remote(job, place).future()
        return future

    def result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            times = f"Ray lost it {RETRIES + 1} times ({type(error).__name__})"
            raise LostJob(f"{times}: {error}") from error

    def close(self) -> None:
        if self.joined:
            self.ray.shutdown()  # ends the processes of this program on all machines


_executor: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def computing_on(cluster: str | None, device: str = "auto") -> Iterator[None]:
    """Run the independent parts of trainings within the context on a cluster.

    None changes nothing. "local": processes of this machine, one per core, or six per GPU; "ray"
    and "ray://host:port": a Ray cluster.
    """
    if cluster is None:
        yield
        return
    if cluster not in ("local", "ray") and ":" not in str(cluster):
        rule = "cluster must be None, 'local', 'ray' or 'ray://HOST:PORT'"
        raise InputError(f"{rule}; got {cluster!r}.")
    executor: Executor
    if cluster == "local":
        executor = LocalExecutor(device)
    else:
        executor = RayExecutor(None if cluster == "ray" else cluster, device.partition(":")[0])
    with closing(executor), set_within(_executor, executor):
        yield


def groups_of(models: int, *, on_host: bool = False) -> list[slice]:
    """Return the groups of models that a cluster trains as jobs; none without a cluster."""
    executor = _executor.get()
    if executor is None or models == 1:
        return []
    count = min(models, executor.sizes[_place(executor, on_host=on_host)])
    ends = [models * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def mapped(
    function: Callable[..., Any], jobs: Sequence[Any], like: Tensor, *, on_host: bool = False
) -> list[Any]:
    """Return `function(*job)` for all jobs, computed on the cluster of the context.

    Tensors of jobs are moved to the device of a job, and those of results to that of `like`.
    """
    executor = _executor.get()
    assert executor is not None
    sent = [(function, moved(job, "cpu")) for job in jobs]
    results = executor.map(_on_device, sent, _place(executor, on_host=on_host))
    return [moved(result, like.device) for result in results]


def _place(executor: Executor, *, on_host: bool) -> Place:
    return "cuda" if executor.sizes["cuda"] and not on_host else "cpu"


def _on_device(job: tuple[Callable[..., Any], Any], device: str) -> Any:
    function, arguments = job
    return moved(function(*moved(arguments, device)), "cpu")


def moved(value: Any, device: torch.device | str) -> Any:
    """Return a value whose tensors and networks, also those within, are on a device."""
    if isinstance(value, Tensor | nn.Module):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(item, device) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [moved(item, device) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changed = {n: new for n, item in old.items() if (new := moved(item, device)) is not item}
        return replace(value, **changed) if changed else value
    return value
