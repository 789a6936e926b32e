"""Processes that perform jobs on this machine, and what any other executor must offer."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import (
    connection,
    current_process,
    get_context,
    parent_process,
    resource_tracker,
)
from typing import TYPE_CHECKING, Any, Protocol

import torch

from robustpll.bench.bundles import Job, Place
from robustpll.bench.mps import side_by_side
from robustpll.engine.device import chosen_device, device_name
from robustpll.errors import InputError, RobustPLLError, is_count

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from robustpll.bench.worker import Done

GPU_WORKERS = 6  # for each GPU: small bundles leave most of it idle, and some just compile
# One thread each: as many processes as cores have no use for more, and spinning ones do harm.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
PATIENCE = 5.0  # seconds until idle processes that do not end are killed
GUARD = "In a script, call run_grid below `if __name__ == '__main__':`."


@dataclass(frozen=True)
class Failure:
    """Why a job gave nothing."""

    sentence: str
    details: str = ""
    died: bool = False  # its process did, so the job may be without blame


@dataclass(frozen=True)
class Finished:
    """A job that is over."""

    job: Job
    outcome: "Done | Failure"
    seconds: float  # from its submission
    worker: str


class Executor(Protocol):
    """Who performs jobs: processes here, or machines elsewhere.

    It calls `robustpll.bench.worker.perform(job, device)` for each job, where `device` is a GPU
    for jobs of the place "device" if `joined` is true, and hands back what that returns. An
    exception, or a worker that is lost for good, is a `Failure`.
    """

    joined: bool  # whether runs of equal shape are to be trained at once: on GPUs
    startup: float  # seconds until workers were ready, summed over them

    @property
    def title(self) -> str:
        """What it is, for the record: "3 processes on NVIDIA H200"."""

    def room(self, place: Place) -> int:
        """How many more jobs of this place could begin now."""

    def submit(self, job: Job) -> None:
        """Begin a job; there is room for it."""

    def finished(self, timeout: float) -> list[Finished]:
        """Jobs that ended since the last call; waits so many seconds for the first."""

    def close(self) -> None:
        """End everything at once, jobs that run included; may be called twice."""


@dataclass
class Worker:
    """A process, the pipe to it, and what it is at."""

    name: str
    place: Place
    device: str
    process: "BaseProcess"
    pipe: "connection.Connection[Any, Any]"
    begun: float  # when it was started, then when its job was
    ready: bool = False
    job: Job | None = None


class LocalProcesses:
    """An `Executor` of processes on this machine; they end when this process does.

    Parameters
    ----------
    device : str
        "auto", "cpu" or "cuda"; "auto" and "cuda" are all GPUs where there are such.
    workers : int or None
        Processes that train networks; by default one for each core, or 6 for each GPU. Beside GPUs
        other processes, one for each core that is left, run the methods that are for the host.

    Examples
    --------
    >>> executor = LocalProcesses("cpu", workers=2)
    >>> executor.room("device"), executor.joined
    (2, False)
    """

    def __init__(self, device: str = "auto", workers: int | None = None) -> None:
        if workers is not None and not is_count(workers, least=1):
            msg = f"workers must be an int of at least 1; got {workers!r}."
            raise InputError(msg)
        if getattr(current_process(), "_inheriting", False):  # a worker that reads the main script
            raise RobustPLLError(GUARD)
        chosen, cores = chosen_device(device), available_cores()
        self.joined = chosen.type == "cuda"
        self.free: dict[Place, list[str]] = {"device": ["cpu"] * (workers or cores), "host": []}
        if self.joined:
            one = ":" in str(chosen)  # cuda:1, say
            every = [chosen.index] if one else list(range(torch.cuda.device_count()))
            count = workers or GPU_WORKERS * len(every)
            on_gpu = [f"cuda:{every[at % len(every)]}" for at in range(count)]
            self.free = {"device": on_gpu, "host": ["cpu"] * max(1, cores - count)}
        self.chosen, self.sizes = chosen, {place: len(each) for place, each in self.free.items()}
        self.started: list[Worker] = []
        self.startup = 0.0
        self.count = 0
        self.services, self.shared = ExitStack(), dict[str, str]()

    @property
    def title(self) -> str:
        others = f", {self.sizes['host']} on the CPU" if self.joined else ""
        return f"{self.sizes['device']} processes on {device_name(self.chosen)}{others}"

    def room(self, place: Place) -> int:
        idle = sum(each.place == place and each.job is None for each in self.started)
        return idle + len(self.free[place])

    def submit(self, job: Job) -> None:
        idle = [each for each in self.started if each.place == job.place and each.job is None]
        worker = idle[0] if idle else self._start(job.place)
        worker.job = job
        if worker.ready:
            worker.begun = time.perf_counter()
        with suppress(OSError):  # it died: `finished` notices
            worker.pipe.send(job)

    def finished(self, timeout: float) -> list[Finished]:
        by_pipe = {worker.pipe: worker for worker in self.started}
        ready = connection.wait(list(by_pipe), timeout)  # a dead one's pipe is ready, too
        return [over for pipe in ready if (over := self._heard(by_pipe[pipe]))]  # type: ignore[index]

    def close(self) -> None:
        for worker in self.started:
            if worker.job is not None:
                worker.process.kill()
            worker.pipe.close()  # an idle one then ends by itself, and tidies up
        patience = time.perf_counter() + PATIENCE
        for worker in self.started:
            worker.process.join(max(0.0, patience - time.perf_counter()))
            worker.process.kill()
            worker.process.join()
        self.started = []
        self.services.close()

    def _heard(self, worker: Worker) -> Finished | None:
        """What a worker says; None if it is no more than that it is ready."""
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            said = self._buried(worker)
        seconds = time.perf_counter() - worker.begun
        if not worker.ready and not isinstance(said, Failure):
            worker.ready, worker.begun = True, time.perf_counter()
            self.startup += seconds
            return None
        job, worker.job = worker.job, None
        return None if job is None else Finished(job, said, seconds, worker.name)

    def _start(self, place: Place) -> Worker:
        device = self.free[place].pop(0)
        context = get_context("spawn")
        own, its = context.Pipe()
        self.count += 1
        name = f"{device} {self.count}"
        arguments = (its, device)
        process = context.Process(target=work, args=arguments, name=name, daemon=True)
        if self.joined and not self.started:
            self.shared = self.services.enter_context(side_by_side())
        with _settings_of_children(device, self.shared):
            process.start()
        its.close()  # so that its death shuts the pipe
        worker = Worker(name, place, device, process, own, time.perf_counter())
        self.started.append(worker)
        return worker

    def _buried(self, worker: Worker) -> Failure:
        """A dead worker makes room for another."""
        worker.process.join(10)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self.started.remove(worker)
        self.free[worker.place].append(worker.device)
        code = worker.process.exitcode or 0
        how = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        if not worker.ready and self.startup == 0:
            msg = (
                f"A worker process {how} before it could begin; what it said stands above. {GUARD}"
            )
            raise RobustPLLError(msg)
        memory = " It may have run out of memory." if code == -signal.SIGKILL else ""
        return Failure(f"Its process {how}.{memory}", died=True)


def work(pipe: "connection.Connection[Any, Any]", device: str) -> None:
    """What a worker process does until its parent or its pipe is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    from robustpll.bench.worker import perform

    if device != "cpu":
        torch.zeros(1, device=device)  # makes the context, which takes seconds
    pipe.send("ready")
    while True:
        try:
            job = pipe.recv()
            said: Any = perform(job, device)
        except EOFError:
            return
        except Exception as error:  # whatever a run raises is that run's result
            said = failure_of(error)
        pipe.send(said)
        if isinstance(said, Failure) and "CUDA error" in said.sentence:
            return  # a context is of no use after it


def failure_of(error: BaseException) -> Failure:
    """An exception for the record.

    >>> failure_of(ValueError("no rows")).sentence
    'ValueError: no rows'
    """
    details = "".join(traceback.format_exception(error))
    kind = "" if isinstance(error, RobustPLLError) else f"{type(error).__name__}: "
    return Failure(f"{kind}{error}", details)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])  # shut by the system, however the parent ends
        os._exit(1)


@contextmanager
def _settings_of_children(device: str, shared: dict[str, str]) -> Iterator[None]:
    """What is set here is theirs from their first instruction on, before torch is loaded."""
    settings = ENVIRONMENT | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else shared)
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    # Ctrl-C goes to all processes of a terminal; what is blocked here stays blocked in a child.
    blocks = hasattr(signal, "pthread_sigmask")
    if blocks:
        resource_tracker.ensure_running()  # else the first child starts it, which unblocks signals
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if blocks:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
