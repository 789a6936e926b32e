"""One network on several processes: each has the state of its rows, and gradients are averaged.

Every process draws the batches of one process, and computes its own rows of each of them.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from robustpll.engine.data import Feed, Task
from robustpll.engine.history import set_within
from robustpll.engine.layers import BatchNorm, stacks_of
from robustpll.engine.random import seed_of
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod, Method

MOST_COMPARED = 10_000  # rows whose features are compared between processes


@dataclass(frozen=True)
class Process:
    """This process among `count` processes that train together; `rank` is its number from 0."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process shows progress and should write files."""
        return self.rank == 0


ALONE = Process()
_current: ContextVar[Process] = ContextVar("process", default=ALONE)
current_process = _current.get


@contextmanager
def distributed() -> Iterator[Process]:
    """Let all processes that `torchrun` started train each network together, within the context.

    Every process must call `fit` with the same rows, candidates and parameters, and gets the same
    model. The value of the context has `rank`, `count` and `is_first`: only the first process
    should write files. Without `torchrun`, the context changes nothing. A process group that is
    initialized already is used.

    Examples
    --------
    >>> from robustpll import PLLClassifier, distributed
    >>> with distributed() as process:
    ...     model = PLLClassifier("proden", random_state=0).fit([[0.0], [1.0]], [0, 1])
    >>> process
    Process(rank=0, count=1)
    """
    is_ready = dist.is_available() and dist.is_initialized()
    launched = dist.is_available() and dist.is_torchelastic_launched()
    if launched and not is_ready:
        _connect()
    in_group = launched or is_ready
    process = Process(dist.get_rank(), dist.get_world_size()) if in_group else ALONE
    try:
        with set_within(_current, process):
            yield process
    except Exception as error:
        if launched:  # torchrun shows the error of the first that failed
            from torch.distributed.elastic.multiprocessing.errors import get_error_handler

            get_error_handler().record_exception(error)
        raise
    if launched and not is_ready:  # not after an error: others may be waiting
        dist.destroy_process_group()


def _connect() -> None:
    """Connect the processes: by gloo on CPUs, by NCCL on CUDA, with one GPU for each process."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return
    local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local >= devices:
        raise InputError(
            f"Each process needs its own GPU, and this machine has {devices}: start torchrun with "
            f"--nproc-per-node {devices}, or hide the GPUs by CUDA_VISIBLE_DEVICES=''."
        )
    torch.cuda.set_device(local)  # "cuda" is this one from now on
    dist.init_process_group("cpu:gloo,cuda:nccl")


def refuse_unshared(method: "Method", *, has_files: bool, has_cluster: bool) -> None:
    """Raise InputError if there are several processes, and the fit cannot be shared by them."""
    if current_process().count == 1:
        return
    if has_files or has_cluster:
        raise InputError(
            "checkpoint, resume and cluster are for a fit by one process. Leave them out within "
            "`distributed()`."
        )
    if not method.by_row:
        raise InputError(
            f"Several processes cannot train {method.title} together: that needs one network whose "
            "steps treat each row alone. Use Proden, Rc, Cc, Cavl, RobustPll with balance=0 or a "
            "variant, such as PLLClassifier(RobustPll()), or fit without `distributed()`."
        )


def same_seed(seed: int) -> int:
    """Return the first process's seed in all processes."""
    if current_process().count == 1:
        return seed
    shared = torch.tensor(seed, device="cuda" if "nccl" in dist.get_backend() else "cpu")
    dist.broadcast(shared, 0)
    return int(shared)


class Sum(torch.autograd.Function):
    """The sum of a tensor over processes; so is its gradient, that of the sum of all losses."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return over_processes(gradient)


over_processes: Callable[[Tensor], Tensor] = Sum.apply


@dataclass
class Shard:
    """The rows of one process: those whose position modulo the number of processes is its rank.

    Its task has one more row at the end, of weight 0, for batches without a row of this process.
    """

    process: Process
    n: int  # rows of all processes
    size: int = 0  # rows of the current batch, in all processes
    places: Tensor = field(init=False)  # (b,): where the rows of this process are in it
    has_rows: bool = True  # False: there are none, and `places` is that of another row

    @classmethod
    def of(cls, method: "DeepMethod", task: Task) -> tuple[Self | None, Task]:
        """Return the shard of this process and its task; None and the whole task if it is alone."""
        process = current_process()
        if process.count == 1:
            return None, task
        _refuse_other_data(method, task, process)
        n, (rank, count) = len(task), (process.rank, process.count)
        part = task.some_rows(torch.arange(rank, n + count, count).clamp(max=n - 1))
        part.weight[:, -1] = 0
        return cls(process, n), part

    def parallel(self, net: nn.Module) -> nn.Module:
        """Return the network with gradients averaged; each process draws its own numbers in it."""
        may_skip = False  # a user's network may have parameters that a step does not use
        for stack in stacks_of(net):
            stack.seeds, may_skip = self.own_seeds(stack.seeds), stack.random
        # Buffers are equal already: see `whole_batch_norms`.
        names = signature(DistributedDataParallel).parameters.keys()
        sync = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
        options: Any = {sync: False, "find_unused_parameters": may_skip}
        if not may_skip:
            return DistributedDataParallel(net, **options)
        # With an unused parameter, torch does not warn that it looks for some in vain.
        net.register_parameter("unused", nn.Parameter(next(net.parameters()).new_zeros(1)))
        parallel = DistributedDataParallel(net, **options)
        del net.unused
        return parallel

    def batches(
        self, batches: Sequence[Tensor], device: torch.device, feed: Feed | None
    ) -> Iterator[Tensor]:
        """Yield positions (1, b) in this process's rows, for each batch of all rows."""
        rank, count = self.process.rank, self.process.count
        additional = torch.tensor([[len(range(rank, self.n, count))]])
        places = [(batch[0] % count == rank).nonzero()[:, 0] for batch in batches]
        pairs = list(zip(batches, places, strict=True))
        parts = [batch[:, own] // count if len(own) else additional for batch, own in pairs]
        arrivals = [None] * len(parts) if feed is None else feed.batches(parts)
        for (batch, own), part, _ in zip(pairs, parts, arrivals, strict=True):
            self.size, self.has_rows = batch.shape[1], len(own) > 0
            self.places = (own if self.has_rows else torch.zeros_like(part[0])).to(device)
            yield part.to(device)

    def own_numbers(self, drawn: Any) -> Any:
        """Return this process's part of what was drawn for a batch."""
        if isinstance(drawn, Tensor):  # (1, b, ...)
            return drawn.index_select(1, self.places)
        if isinstance(drawn, dict):
            return {name: self.own_numbers(numbers) for name, numbers in drawn.items()}
        return drawn and self.own_seeds(drawn)  # seeds of a user's function, or None

    def own_seeds(self, seeds: Sequence[int]) -> list[int]:
        """Return other seeds for each process."""
        return [seed_of(seed, "process", self.process.rank) for seed in seeds]

    def batch_loss(self, loss: Tensor) -> Tensor:
        """Return what has the batch's loss as its mean over processes, from that of these rows."""
        return loss * (len(self.places) * self.process.count / self.size)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over processes."""
        return over_processes(values) / self.process.count

    def of_first(self, values: Tensor) -> Tensor:
        """Return the first process's values: rounding may differ, decisions must not."""
        dist.broadcast(values, 0)
        return values

    def gathered(self, values: Tensor) -> Tensor:
        """Return values (R, n, ...) of all rows, from those of this process's rows."""
        most = -(-self.n // self.process.count)
        mine = values[:, :most].contiguous()  # maybe with the additional row
        parts = [torch.empty_like(mine) for _ in range(self.process.count)]
        dist.all_gather(parts, mine)
        return torch.stack(parts, 2).flatten(1, 2)[:, : self.n]

    @contextmanager
    def whole_batch_norms(self, net: nn.Module) -> Iterator[None]:
        """Let BatchNorm use statistics of the whole batch, over all processes.

        torch's SyncBatchNorm exists for CUDA only, and would count a row of weight 0.
        """
        norms: list[Any] = [p for p in net.modules() if isinstance(p, BatchNorm | _BatchNorm)]
        for norm in norms:
            norm.forward = partial(self._normalized, norm, norm.forward)
        try:
            yield
        finally:
            for norm in norms:
                del norm.forward

    def _normalized(self, norm: Any, alone: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        if not norm.training:
            return alone(x)
        axis = x.ndim - 1 if isinstance(norm, BatchNorm) else 1  # of features
        axes = [other for other in range(x.ndim) if other != axis]
        shape = [-1 if other == axis else 1 for other in range(x.ndim)]
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        rows = x.numel() / x.shape[axis] if self.has_rows else 0.0
        count = over_processes(values.new_full((), rows))
        mean = over_processes(values.sum(axes, keepdim=True) * self.has_rows) / count
        square = (values - mean).square().sum(axes, keepdim=True) * self.has_rows
        var = over_processes(square) / count
        _update_statistics(norm, mean.detach(), var.detach() * (count / (count - 1)))
        result = (values - mean) * torch.rsqrt(var + norm.eps)
        if not self.has_rows:  # the row of weight 0 must not change gradients of other processes
            result = 0 * result + result.detach()
        if norm.weight is not None:
            result = result * norm.weight.view(shape) + norm.bias.view(shape)
        return result if isinstance(norm, BatchNorm) else result.to(x.dtype)


@torch.no_grad()
def _update_statistics(norm: Any, mean: Tensor, var: Tensor) -> None:
    """Move running statistics by the momentum; None is the mean over all batches, as in torch."""
    if norm.running_mean is None:
        return
    momentum = norm.momentum
    if isinstance(norm, _BatchNorm) and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        momentum = 1 / float(norm.num_batches_tracked) if momentum is None else momentum
    norm.running_mean.lerp_(mean.view_as(norm.running_mean).to(norm.running_mean), momentum)
    norm.running_var.lerp_(var.view_as(norm.running_var).to(norm.running_var), momentum)


def _refuse_other_data(method: "DeepMethod", task: Task, process: Process) -> None:
    """Raise InputError in every process unless all have the same task and parameters."""
    sizes = (method.name, method.batch_size, method.total_epochs, task.seeds)
    digest = hashlib.sha256(repr((*sizes, task.rows.shape, *task.candidates.shape)).encode())
    stride = -(-len(task) // MOST_COMPARED)
    pieces = torch.split(task.rows.everything[:, ::stride], 256, dim=1)
    values = (task.candidates, task.prior, task.weight, *map(task.rows.raw, pieces))
    for tensor in values:
        digest.update(tensor.cpu().contiguous().numpy().data)
    number = int.from_bytes(digest.digest()[:8], "little", signed=True)
    mine = torch.tensor([number], device=task.prior.device)
    parts = [torch.empty_like(mine) for _ in range(process.count)]
    dist.all_gather(parts, mine)
    different = [rank for rank, part in enumerate(parts) if int(part) != int(parts[0])]
    if different:
        raise InputError(
            "All processes must train on the same rows, candidates, weights and parameters. Those "
            f"of rank {', '.join(map(str, different))} differ from those of rank 0. Load the same "
            "files in the same order, and seed everything that is random before `fit`."
        )
