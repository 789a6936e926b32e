"""The benchmark on a Ray cluster: jobs go to its machines, and tables come back."""

import logging
import socket
import time
from math import floor
from typing import TYPE_CHECKING, Any

import torch

from robustpll.bench.bundles import Job, Place
from robustpll.bench.workers import ENVIRONMENT, GPU_WORKERS, Failure, Finished, failure_of
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.bench.worker import Done

RETRIES = 3  # by Ray, of a job whose process or machine was lost
BETWEEN_COUNTS = 2.0  # seconds until machines that came or went are noticed
START = "Start one by 'ray start --head', or take 'local'."


class RayExecutor:
    """An `Executor` of all machines of a Ray cluster; such as join it later are used, too.

    Every machine needs this version of robustpll with the extra ``ray``, and looks for data in the
    folder that its own ROBUSTPLL_DATA named when Ray was started there. A job takes one CPU, or a
    third of a GPU if the cluster has GPUs. Jobs of lost processes and machines are run again by
    Ray; if the first machine (the head) is lost, all ends, and the same call runs the rest. Ray
    runs whatever the members of a cluster send each other: join only those you trust.

    Parameters
    ----------
    address : str
        "local" starts a cluster on this machine and ends it afterwards; "auto" joins the one that
        runs on this machine; "host:port" joins a cluster that this machine is part of.
    device : str
        "auto", "cpu" or "cuda"; "auto" takes GPUs if the cluster has such.

    Examples
    --------
    >>> from robustpll.bench import run_grid
    >>> run_grid("quick", "results", executor=RayExecutor("auto"))  # doctest: +SKIP
    >>> RayExecutor("auto", device="abacus")
    Traceback (most recent call last):
    robustpll.errors.InputError: device must be auto, cpu or cuda on a Ray cluster; got 'abacus'.
    """

    def __init__(self, address: str = "local", device: str = "auto") -> None:
        if device not in ("auto", "cpu", "cuda"):
            msg = f"device must be auto, cpu or cuda on a Ray cluster; got {device!r}."
            raise InputError(msg)
        begun = time.perf_counter()
        self.ray = _connected(address)
        found = self._resources()
        if problem := _unfit(found, address, device):
            self.close()
            raise InputError(problem)
        self.joined = device != "cpu" and found["GPU"] > 0
        self.startup = time.perf_counter() - begun
        self.machines = sum(each["Alive"] for each in self.ray.nodes())
        self.sizes, self.counted = self._sizes(found), time.monotonic()
        self.flying: dict[Any, tuple[Job, float]] = {}  # by Ray's promise; with when they began
        share = floor(10_000 / GPU_WORKERS) / 10_000  # Ray rounds up here, and one would not fit
        gpu = {"num_cpus": 0, "num_gpus": share}  # then Ray ends a process with its job
        self.remote = {
            "cpu": self._remote(ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}, num_cpus=1),
            "cuda": self._remote(ENVIRONMENT, **gpu),
        }

    @property
    def title(self) -> str:
        places = f"{self.sizes['device']} jobs at once"
        places += f" on GPUs, {self.sizes['host']} on CPUs" if self.joined else ""
        return f"{places}, on {self.machines} machine{'s' * (self.machines > 1)} by Ray"

    def room(self, place: Place) -> int:
        if time.monotonic() - self.counted > BETWEEN_COUNTS:
            self.sizes, self.counted = self._sizes(self._resources()), time.monotonic()
        flying = sum(job.place == place for job, _ in self.flying.values())
        return max(0, self.sizes[place] - flying)

    def submit(self, job: Job) -> None:
        device = "cuda" if self.joined and job.place == "device" else "cpu"
        promised = self.remote[device].remote(job, device)
        self.flying[promised] = (job, time.perf_counter())

    def finished(self, timeout: float) -> list[Finished]:
        if not self.flying:
            return []
        ready, others = self.ray.wait(list(self.flying), timeout=timeout)
        if ready and others:
            ready += self.ray.wait(others, num_returns=len(others), timeout=0)[0]
        return [self._finished(promised) for promised in ready]

    def close(self) -> None:
        self.ray.shutdown()  # which ends the processes of this program, on whatever machine
        self.flying = {}

    def _finished(self, promised: Any) -> Finished:
        job, begun = self.flying.pop(promised)
        outcome: Done | Failure
        try:
            outcome, worker = self.ray.get(promised)
        except self.ray.exceptions.RayTaskError as error:  # before the job began: no robustpll, say
            outcome, worker = failure_of(error.cause or error), "none"
        except self.ray.exceptions.RayError as error:
            kind = type(error).__name__
            sentence = f"Its process or machine was lost, {RETRIES + 1} times ({kind})."
            outcome, worker = Failure(sentence, str(error), died=True), "none"
        return Finished(job, outcome, time.perf_counter() - begun, worker)

    def _remote(self, environment: dict[str, str], **resources: float) -> Any:
        settings = {"runtime_env": {"env_vars": environment}, "max_retries": RETRIES}
        return self.ray.remote(**settings, **resources)(performed)

    def _resources(self) -> dict[str, int]:
        found = self.ray.cluster_resources()
        return {name: int(found.get(name, 0)) for name in ("CPU", "GPU")}

    def _sizes(self, found: dict[str, int]) -> dict[Place, int]:
        """Jobs at once; as on one machine, those on GPUs leave the others fewer cores."""
        if not self.joined:
            return {"device": found["CPU"], "host": 0}
        on_gpus = GPU_WORKERS * found["GPU"]
        return {"device": on_gpus, "host": max(1, found["CPU"] - on_gpus)}


def performed(job: Job, device: str) -> tuple["Done | Failure", str]:
    """What a worker of the cluster does; with the name of its machine.

    An exception is a result like others: Ray would take it for its own trouble.
    """
    import ray

    from robustpll.bench.worker import perform

    torch.set_num_threads(1)
    worker = f"{device} of node {ray.get_runtime_context().get_node_id()[:8]}"
    try:
        return perform(job, device), worker
    except Exception as error:
        return failure_of(error), worker


def _connected(address: str) -> Any:
    """The module ray, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        msg = (
            "For a grid on a Ray cluster, ray is needed. Run pip install 'robustpll[ray]', or "
            "leave out --ray to run it on this machine."
        )
        raise InputError(msg) from error
    if address not in ("local", "auto"):
        _refuse_unreachable(address)
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # of whatever kind: Ray has many, and promises none
        msg = f"Ray cannot be reached at the address {address!r}: {error} {START}"
        raise InputError(msg) from error
    return ray


def _refuse_unreachable(address: str) -> None:
    """Ray itself tries for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        msg = f"The address of a Ray cluster must be local, auto or HOST:PORT; got {address!r}."
        raise InputError(msg)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        msg = f"Nobody answers at the address {address!r} of a Ray cluster: {error}. {START}"
        raise InputError(msg) from error


def _unfit(found: dict[str, int], address: str, device: str) -> str | None:
    """Why a cluster is of no use."""
    if not found["CPU"]:
        return f"The Ray cluster at {address!r} has no CPU for jobs. Add machines to it first."
    if device == "cuda" and not found["GPU"]:
        return f"device is 'cuda', but the Ray cluster at {address!r} has no GPU. Take 'auto'."
    return None
