"""The only training loop of the project, with early stopping and weight averaging."""

import gc
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from robustpll.engine.augment import Views
from robustpll.engine.checkpoint import Keeper
from robustpll.engine.cluster import groups_of, mapped
from robustpll.engine.data import Feed, State, Task
from robustpll.engine.device import computing, has_bf16
from robustpll.engine.distributed import Shard, current_process
from robustpll.engine.graphs import compiled, optimizer_step, step_of
from robustpll.engine.history import History
from robustpll.engine.layers import Autocast, Dropout, Stack, clip_gradients, tensors_of
from robustpll.engine.modules import regroup
from robustpll.engine.networks import MODERN, named_network
from robustpll.engine.predict import Networks, fused, logits_of, opinions_of
from robustpll.engine.random import Draws
from robustpll.engine.stream import Stream, WindowTask
from robustpll.errors import InputError
from robustpll.opinion import Opinion, each_part

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

PASSES = 16  # random passes per epoch in early stopping, for methods that predict by their mean


@dataclass
class Training:
    """Everything that a training step reads or writes."""

    method: "DeepMethod"  # its hyperparameters are tensors with a model axis
    net: nn.Module
    task: Task
    state: State
    optimizer: Optimizer
    draws: Draws
    progress: Tensor  # ()
    total: Tensor  # (M,): the mean loss of the epoch so far
    views: Views | None = None  # augmentation
    make_views: Callable[..., dict[str, Tensor]] = Views.__call__  # compiled while recording
    compiled: bool = False  # whether network and loss are compiled
    fast_adam: bool = False
    shard: Shard | None = None  # of several processes

    def step(self, indices: Tensor, stage: int) -> None:
        """Run one step of all models on the rows at (M, b), without waiting for the device."""
        b = indices.shape[1] if self.shard is None else self.shard.size
        self.draws.begin_step()
        for layer in self.random_layers:
            layer.draw(b)
        drawn = self.method.draw(b, self.task.rows.shape, self.draws)
        views = None if self.views is None else self.views.draw(b, self.draws)
        if self.shard is not None:
            drawn, views = self.shard.own_numbers(drawn), self.shard.own_numbers(views)
            for layer in self.random_layers:
                layer.mask = self.shard.own_numbers(layer.mask)
        loss, written = losses(self, indices, stage, drawn, views)  # (M,)
        if self.shard is not None:
            loss = self.shard.batch_loss(loss)
        self.optimizer.zero_grad()
        self.set_gradients(loss)
        if self.method.clip:
            clip_gradients(self.net, self.method.clip, self.task.models)
        optimizer_step(self)
        if self.method.second_pass:
            batch = self.state.batch(self.task, indices, stage, self.draws)
            written = self.method.after_step(self.net, batch)
        self.state.write(indices, written)
        self.total.add_(loss.detach(), alpha=b / self.n)

    def set_gradients(self, loss: Tensor) -> None:
        """Set the gradients of losses (M,), which do not mix models.

        Without `backward` where code is compiled, whose gradients it would copy.
        """
        each = torch.ones_like(loss)
        if not self.compiled:
            loss.backward(each)  # type: ignore[no-untyped-call]
            return
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        gradients = torch.autograd.grad(loss, parameters, each, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    @property
    def n(self) -> int:
        """Rows of an epoch, in all processes."""
        return len(self.task) if self.shard is None else self.shard.n

    @cached_property
    def random_layers(self) -> list[Dropout]:
        return [part for part in self.net.modules() if isinstance(part, Dropout)]

    def reset_optimizer(self) -> None:
        """Zero the optimizer's state in place, because captured graphs hold its tensors."""
        for tensors in self.optimizer.state.values():
            for tensor in tensors.values():
                tensor.zero_()


@compiled
def losses(
    training: Training, indices: Tensor, stage: int, drawn: Tensor | None, of_views: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean loss of each model (M,) and the row state to write."""

    def views(x: Tensor) -> dict[str, Tensor]:
        if training.views is None:  # rows, or no augmentation
            return dict.fromkeys(training.method.views, x)
        return training.make_views(training.views, x, of_views)

    batch = training.state.batch(training.task, indices, stage, training.draws, drawn, views=views)
    loss, written = training.method.step(training.net, batch, training.progress)  # (M, b)
    return (loss * batch.weight).mean(-1), written


def train(method: "DeepMethod", task: Task, *, validation: Task | None = None) -> Networks:
    """Train the models of all runs of a task at once.

    With `validation`, other rows of the same runs, each model is that of the epoch with the highest
    covering rate. Models that do not fit the device's memory are trained in two halves. On a
    cluster, groups of models are jobs; see `computing_on`.
    """
    if current_process().count > 1:
        # Models in a bundle have different orders of rows, so they would need different numbers of
        # rows from a process. Each model is the same as in a bundle.
        each = [slice(model, model + 1) for model in range(task.models * method.members)]
        jobs = _jobs(method, task, validation, each, method.members)
        return Networks.of_parts([_train(*job) for job in jobs], method, method.members)
    # members of one run may be in several groups, unless they learn from each other
    members = method.members if task.models == 1 and not method.attacked_jointly else 1
    if groups := groups_of(task.models * members):
        jobs = _jobs(method, task, validation, groups, members)
        return Networks.of_parts(mapped(_train_here, jobs, task.prior), method, members)
    return _train_here(method, task, validation)


def _train_here(method: "DeepMethod", task: Task, validation: Task | None) -> Networks:
    """Train all models on the device of the task, in halves if they do not fit its memory."""
    try:
        return _train(method, task, validation)
    except torch.OutOfMemoryError:
        if task.models == 1:
            raise
    gc.collect()  # reference cycles may hold memory of the failed attempt
    torch.cuda.empty_cache()
    half = task.models // 2
    message = f"{task.models} runs do not fit the device's memory: trained as {half} and the rest."
    warnings.warn(message, RuntimeWarning, stacklevel=3)
    halves = _jobs(method, task, validation, [slice(half), slice(half, None)])
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # one is enough
        return Networks.of_parts([_train_here(*job) for job in halves], method)


def _jobs(
    method: "DeepMethod",
    task: Task,
    validation: Task | None,
    groups: list[slice],
    members: int = 1,
) -> list[tuple["DeepMethod", Task, Task | None]]:
    """Arguments of `_train` for each group of runs; with several members, each member is a run."""
    if members > 1:
        names = [n for n in method.number_names() if isinstance(getattr(method, n), tuple)]
        numbers = {name: method.per_member(name) for name in names}
        for name, values in numbers.items():  # one for each run
            numbers[name] = values * (task.models if len(values) == members else 1)
        method = method.changed(members=1, **numbers)
        task, validation = task.repeated(members), validation and validation.repeated(members)
    return [
        (method.part(runs, task.models), task.part(runs), validation and validation.part(runs))
        for runs in groups
    ]


def _train(method: "DeepMethod", task: Task, validation: Task | None) -> Networks:
    """Train all models together; Adam treats each parameter alone, so one optimizer is enough."""
    if method.precision == "bf16" and not has_bf16(task.prior.device):
        raise InputError("precision='bf16': the device has no units for bfloat16. Use 'auto'.")
    network = named_network(method.network, task.rows.shape, task.prior.device)
    method = method.changed(network=network) if method.network == "auto" else method
    shard, task = Shard.of(method, task.repeated(method.members))  # R runs -> M models
    feed = Feed(task.rows, method.batch_size + 1) if task.rows.on_host else None
    if feed is not None:
        task = replace(task, rows=feed.rows)
    net, training = _begun(method, task, shard)
    draws, history = training.draws, History()
    stream = Stream(training) if isinstance(task, WindowTask) else None
    schedule = Schedule(training) if method.schedule == "one-cycle" else None
    stopping = None if validation is None else EarlyStopping(method, net, training, validation)
    average = Average(net, method.averaged, method.total_epochs)
    norms = nullcontext() if shard is None else shard.whole_batch_norms(net)
    with computing(method.precision, task.prior.device), feed or nullcontext(), norms:
        step = step_of(training)
        keeper = Keeper(net, training, history, average, stopping=stopping, schedule=schedule)
        for epoch in keeper.epochs():
            training.progress.fill_(epoch / method.total_epochs)
            training.total.zero_()
            if method.restarts and epoch == method.warm_up:
                training.reset_optimizer()
            sizes = [training.n] if stream is None else stream.windows(epoch)
            windows = (minibatches(n, method.batch_size, draws, feed, shard) for n in sizes)
            for indices in chain.from_iterable(windows):
                if schedule is not None:
                    schedule.advance()
                step(indices, method.stage(epoch))
            training.method.end_epoch(training, epoch)
            average.add(epoch)
            rate = None
            if stopping is not None:
                average.swap(epoch)
                rate = stopping.update()
                average.swap(epoch)
            history.add(
                training.total.clone() if shard is None else shard.mean(training.total), rate
            )
            if keeper.end_epoch(epoch):
                break
    average.swap(len(history.losses) - 1)
    if stopping is not None:
        stopping.restore()
    return _fitted(method, net, training, history, stream)


def _begun(method: "DeepMethod", task: Task, shard: Shard | None) -> tuple[nn.Module, Training]:
    """Return the networks of M models, and a training of them before its first step."""
    draws = Draws.of(task.seeds, method.name, like=task.prior)
    spread_method = method.spread(task.models, like=task.prior)
    net = spread_method.build(task.rows.shape, task.k, draws).train()
    optimizer, learner = spread_method.optimizer(_trainable(net)), method.classifier(net)
    copies = learner.copies if isinstance(learner, Stack) else [learner]
    regroup(optimizer, copies, method.parameter_groups)
    in_training: nn.Module = Autocast(net) if in_bf16(method, task.prior.device) else net
    return net, Training(
        spread_method,
        in_training if shard is None else shard.parallel(in_training),
        task,
        spread_method.begin(task),
        optimizer,
        draws,
        progress=task.prior.new_zeros(()),
        total=task.prior.new_zeros(task.models),
        views=Views.of(method.views, method.augment, method.network, task.rows.shape),
        shard=shard,
    )


def in_bf16(method: "DeepMethod", device: torch.device) -> bool:
    """Whether products are computed in bfloat16; "auto": those of newer networks on CUDA."""
    is_modern = isinstance(method.network, str) and method.network in MODERN
    fast = device.type == "cuda" and is_modern and has_bf16(device)
    return method.precision == "bf16" or (method.precision == "auto" and fast)


def _trainable(net: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    trainable = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not trainable:
        raise InputError("The network has nothing to learn. Leave at least one layer trainable.")
    return trainable


def _fitted(
    method: "DeepMethod",
    net: nn.Module,
    training: Training,
    history: History,
    stream: Stream | None,
) -> Networks:
    """Turn a finished training into fitted networks; label weights are averaged over members."""
    training.optimizer.zero_grad()  # gradients of a graph would keep its memory
    for layer in training.random_layers:
        layer.mask = None
    task, state = training.task, training.state
    rows = replace(task.rows, buffer=None)  # not streamed

    def results() -> tuple[Tensor, Opinion]:
        training.method.finish(task, state, lambda: logits_of(method, net, rows))
        opinion = training.method.training_opinion(task, state)
        weights = torch.unflatten(state.rows["label_weights"], 0, (-1, method.members)).mean(1)
        return weights, fused(opinion, method.members)

    weights, opinion = results() if stream is None else stream.finish(results)
    if training.shard is not None:
        weights = training.shard.gathered(weights)
        opinion = each_part(training.shard.gathered, opinion)
    net.eval().requires_grad_(False)
    return Networks(method, net, task.seeds, weights, opinion, history)


def minibatches(
    n: int, size: int, draws: Draws, feed: Feed | None = None, shard: Shard | None = None
) -> Iterator[Tensor]:
    """Yield positions (M, b) that cover all n rows once, in a random order for each model.

    A last batch of one row joins the batch before it, because BatchNorm needs two rows.
    """
    order, ends = draws.order(n), batch_ends(n, size)  # (M, n), on the host
    if shard is not None:
        yield from shard.batches(torch.tensor_split(order, ends, dim=1), draws.device, feed)
        return
    on_device = torch.tensor_split(order.to(draws.device, non_blocking=True), ends, dim=1)
    on_host = torch.tensor_split(order, ends, dim=1)
    arrivals = on_host if feed is None else feed.batches(on_host)
    for indices, _ in zip(on_device, arrivals, strict=True):
        yield indices


def batch_ends(n: int, size: int) -> list[int]:
    """Return where the batches of an epoch end, without the last one."""
    ends = list(range(size, n, size))
    return ends[:-1] if n % size == 1 else ends


class Schedule:
    """Sets the learning rate of each parameter group to its share by `one_cycle`."""

    def __init__(self, training: Training) -> None:
        method = training.method
        batches = len(batch_ends(training.n, method.batch_size)) + 1
        self.step, self.steps = 0, batches * method.total_epochs
        self.groups = training.optimizer.param_groups
        self.rates = [group["lr"] for group in self.groups]
        for group in self.groups:
            if group["params"][0].is_cuda:  # a captured step reads the tensor
                device = group["params"][0].device
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)

    def advance(self) -> None:
        """Set the rate before the next step, without waiting for the device."""
        share = one_cycle(self.step, self.steps)
        for group, rate in zip(self.groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * share)
            else:
                group["lr"] = rate * share
        self.step += 1


def one_cycle(step: int, steps: int) -> float:
    """Return a step's share of the learning rate, as `torch.optim.lr_scheduler.OneCycleLR` does.

    It rises by a half cosine from 4 % in the first 30 % of the steps, then falls to 0.1 %.

    >>> [round(one_cycle(step, 10), 3) for step in range(10)]
    [0.04, 0.52, 1.0, 0.951, 0.812, 0.612, 0.389, 0.189, 0.05, 0.001]
    """
    peak = 0.3 * steps - 1
    if step <= peak:
        start, end, done = 0.04, 1.0, step / peak
    else:
        start, end, done = 1.0, 0.001, (step - peak) / (steps - 1 - peak)
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


class EarlyStopping:
    """Keeps the network and row state of each model after its best epoch.

    The covering rate is the weighted share of validation rows whose predicted class is a candidate.
    Of equally good epochs the last one is kept. No GPU has to wait.
    """

    def __init__(
        self, method: "DeepMethod", net: nn.Module, training: Training, validation: Task
    ) -> None:
        self.method, self.net, self.shard = method.with_passes(PASSES), net, training.shard
        self.validation, self.seeds = validation.repeated(method.members), training.task.seeds
        rows = [(tensor, slice(None)) for tensor in training.state.rows.values()]
        self.live = [*tensors_of(net), *rows]
        self.best = [tensor.detach().clone() for tensor, _ in self.live]
        self.rate = torch.full_like(training.total, -1.0)  # (M,), before the first epoch

    @torch.no_grad()
    def update(self) -> Tensor:
        """Return the current covering rate of each model (M,), and keep models that improved."""
        opinion = opinions_of(self.method, self.net, self.validation.rows, self.seeds)
        self.net.train()
        predicted = opinion.predicted()[..., None]  # (M, n, 1)
        covered = self.validation.candidates.gather(-1, predicted)[..., 0]
        weight = self.validation.weight
        # Divide last: sums of ones are exact, so equal rates are equal to the bit.
        rate = (covered * weight).sum(-1) / weight.sum(-1).clamp(min=1e-10)
        rate = rate if self.shard is None else self.shard.of_first(rate)
        better = rate >= self.rate
        for (tensor, models), best in zip(self.live, self.best, strict=True):
            improved = better[models]
            if improved.ndim:
                improved = improved.view(-1, *[1] * (tensor.ndim - 1))
            best.copy_(torch.where(improved, tensor, best))
        self.rate = torch.maximum(rate, self.rate)
        return rate

    @torch.no_grad()
    def restore(self) -> None:
        """Set every model back to its best epoch."""
        for (tensor, _), best in zip(self.live, self.best, strict=True):
            tensor.copy_(best)


class Average:
    """Mean of parameters and BatchNorm statistics over the last epochs (Izmailov, UAI 2018)."""

    def __init__(self, net: nn.Module, share: float, epochs: int) -> None:
        tensors = [*_trainable(net), *net.buffers()]
        self.live = [tensor for tensor in tensors if tensor.is_floating_point()]
        self.first = epochs - max(1, round(share * epochs)) if share else epochs
        self.means = [torch.zeros_like(tensor) for tensor in self.live] if share else []

    @torch.no_grad()
    def add(self, epoch: int) -> None:
        """Include the network as it is after this epoch (counted from 0)."""
        if epoch >= self.first:
            torch._foreach_lerp_(self.means, self.live, 1 / (epoch - self.first + 1))

    @torch.no_grad()
    def swap(self, epoch: int) -> None:
        """Exchange the network and the mean, once there is one."""
        if epoch >= self.first:
            current = [tensor.detach().clone() for tensor in self.live]
            torch._foreach_copy_(self.live, self.means)
            self.means = current
