"""An executor on a Ray cluster: bundles go to its machines, and results come back."""

import logging
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future
from math import floor
from typing import Any

from robustpll.bench.executor import ENVIRONMENT, GPU_WORKERS, Executor
from robustpll.bench.run import Bundle, Place
from robustpll.bench.worker import JobResult, perform
from robustpll.errors import InputError

RETRIES = 3  # by Ray, if a process or machine is lost
BETWEEN_COUNTS = 2.0  # seconds between two counts of the cluster's machines
START = "Start one by 'ray start --head', or take 'local'."


class RayExecutor(Executor):
    """Runs jobs on all machines of a Ray cluster, including machines that join later.

    Every machine needs this version of robustpll with the extra ``ray``, and the data in the folder
    that ROBUSTPLL_DATA named when Ray was started there. A job takes one CPU, or a share of a GPU
    if the cluster has GPUs. Ray runs the jobs of lost machines again; if the head is lost, the run
    ends. Members of a cluster execute what they send each other: join only clusters you trust.

    `address` "local" starts a cluster on this machine and ends it afterwards, "auto" joins the one
    on this machine, "host:port" joins one that includes this machine. `device` is "auto", "cpu" or
    "cuda"; "auto" uses GPUs if the cluster has any.
    """

    def __init__(self, address: str = "local", device: str = "auto") -> None:
        if device not in ("auto", "cpu", "cuda"):
            msg = f"device must be auto, cpu or cuda on a Ray cluster; got {device!r}."
            raise InputError(msg)
        self.ray = _connected(address)
        self.references: dict[Future[JobResult], Any] = {}
        self.counted, self.count = -BETWEEN_COUNTS, (0, 0)
        cpus, gpus = self._cpus_and_gpus()
        if not cpus or (device == "cuda" and not gpus):
            self.close()
            kind = "GPU; device 'auto' needs none" if cpus else "CPU for jobs; add machines first"
            raise InputError(f"The Ray cluster at {address!r} has no {kind}.")
        self.joined = device != "cpu" and gpus > 0
        share = floor(10_000 / GPU_WORKERS) / 10_000  # rounded down, as Ray rounds up
        self.remote = {
            "cpu": self._remote(ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}, num_cpus=1),
            # with a GPU, Ray ends a process after its job
            "cuda": self._remote(ENVIRONMENT, num_cpus=0, num_gpus=share),
        }
        sizes, machines = self.sizes, sum(node["Alive"] for node in self.ray.nodes())
        on = f"on {machines} machine{'s' * (machines > 1)} by Ray"
        counts = f"{sizes['cpu']} jobs at once"
        if self.joined:
            counts = f"{sizes['cuda']} jobs at once on GPUs, {sizes['cpu']} on CPUs"
        self.title = f"{counts}, {on}"

    @property
    def sizes(self) -> Mapping[Place, int]:  # type: ignore[override]
        """Follows the machines of the cluster."""
        cpus, gpus = self._cpus_and_gpus()
        on_gpus = GPU_WORKERS * gpus if self.joined else 0
        return {"cpu": max(1, cpus - on_gpus) if self.joined else cpus, "cuda": on_gpus}

    def submit(self, bundle: Bundle) -> Future[JobResult]:
        reference = self.remote[bundle.place].remote(bundle, bundle.place)
        future: Future[JobResult] = reference.future()
        self.references[future] = reference
        return future

    def result(self, future: Future[JobResult]) -> JobResult:
        self.references.pop(future, None)
        try:
            return future.result()
        except self.ray.exceptions.RayTaskError as error:  # before the job: no robustpll, say
            cause = error.cause or error
            return JobResult(error=f"{type(cause).__name__}: {cause}", details=str(error))
        except self.ray.exceptions.RayError as error:
            kind = type(error).__name__
            message = f"Its process or machine was lost, {RETRIES + 1} times ({kind})."
            return JobResult(error=message, details=str(error), died=True)

    def close(self) -> None:
        self.ray.shutdown()  # ends the processes of this program on all machines
        self.references = {}

    def _remote(self, environment: dict[str, str], **resources: float) -> Any:
        settings = {"runtime_env": {"env_vars": environment}, "max_retries": RETRIES}
        return self.ray.remote(**settings, **resources)(perform)

    def _cpus_and_gpus(self) -> tuple[int, int]:
        if time.monotonic() - self.counted > BETWEEN_COUNTS:
            resources, self.counted = self.ray.cluster_resources(), time.monotonic()
            self.count = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        return self.count


def _connected(address: str) -> Any:
    """The module ray, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "A grid on a Ray cluster needs ray. Run pip install 'robustpll[ray]', or leave out "
            "--ray to run it on this machine."
        ) from error
    try:
        if address not in ("local", "auto"):  # Ray itself would try for many minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises many kinds
        raise InputError(
            f"No Ray cluster answers at the address {address!r}, which must be local, auto or "
            f"HOST:PORT: {error} {START}"
        ) from error
    return ray
