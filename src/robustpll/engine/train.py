"""The only training loop of the project."""

import gc
import warnings
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from robustpll.engine.averaging import Average
from robustpll.engine.data import State, Task
from robustpll.engine.device import computing, has_bf16
from robustpll.engine.early_stopping import Best
from robustpll.engine.graphs import advance, compiled, step_of
from robustpll.engine.history import History
from robustpll.engine.layers import Autocast, Dropout
from robustpll.engine.predict import Networks, fused, logits_of
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.engine.stream import Feed, Streamed
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

Epochs = Generator[None, None, Networks]  # a training that stops after each step


@dataclass
class Training:
    """All that a step touches."""

    own: "DeepMethod"  # with its numbers spread over the models
    net: nn.Module
    task: Task
    state: State
    optimizer: Optimizer
    draws: Draws
    progress: Tensor  # ()
    total: Tensor  # (M,): the epoch's mean loss so far
    compiled: bool = False  # network and loss
    fast_adam: bool = False

    def step(self, at: Tensor, stage: int) -> None:
        """One step of all models, on the rows at (M, b); nothing in it waits for the device."""
        for layer in self.random_layers:
            layer.draw(at.shape[1])
        drawn = self.own.draw(at.shape[1], self.task.rows.shape, self.draws)
        loss, written = losses(self, at, stage, drawn)  # (M,)
        self.optimizer.zero_grad()
        loss.sum().backward()  # models do not mix
        advance(self)
        if self.own.second_pass:
            batch = self.state.batch(self.task, at, stage, self.draws)
            written = self.own.after_step(self.net, batch)
        self.state.write(at, written)
        self.total += loss.detach() * (at.shape[1] / len(self.task))

    @property
    def random_layers(self) -> list[Dropout]:
        return [part for part in self.net.modules() if isinstance(part, Dropout)]

    def forget(self) -> None:
        """The optimiser as new, in place: graphs go on with its tensors."""
        for kept in self.optimizer.state.values():
            for value in kept.values():
                value.zero_()


@compiled
def losses(
    training: Training, at: Tensor, stage: int, drawn: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean loss of each model (M,), and the row state to write."""
    batch = training.state.batch(training.task, at, stage, training.draws, drawn)
    loss, written = training.own.step(training.net, batch, training.progress)  # (M, b)
    return (loss * batch.weight).mean(-1), written


def train(
    method: "DeepMethod",
    task: Task,
    *,
    net: nn.Module | None = None,
    watch: Task | None = None,
) -> Networks:
    """Trains the models of all runs of a task at once; a given `net` is trained further.

    With `watch`, other rows of the same runs, each model is left as it was after the epoch with the
    highest covering rate on them. Where the device's memory does not hold all models, one half is
    trained after the other: a run does not depend on its neighbours.
    """
    try:
        return _finished(epochs_of(method, task, net, watch))
    except torch.OutOfMemoryError:
        if task.models == 1 or net is not None:
            raise
    gc.collect()  # what the failed attempt held may hang in cycles
    torch.cuda.empty_cache()
    half = task.models // 2
    message = f"{task.models} runs do not fit the device's memory: trained as {half} and the rest."
    warnings.warn(message, RuntimeWarning, stacklevel=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one warning is enough
        parts = [
            train(
                method.part(runs, task.models),
                task.part(runs),
                watch=None if watch is None else watch.part(runs),
            )
            for runs in (slice(half), slice(half, None))
        ]
    return replace(parts[0].followed_by(parts[1]), method=method)


def _finished(steps: Epochs) -> Networks:
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                fitted: Networks = end.value
                return fitted


def epochs_of(
    method: "DeepMethod", task: Task, net: nn.Module | None = None, watch: Task | None = None
) -> Epochs:
    """The training itself: yields after each step, so that several can take turns.

    Adam acts on each number alone and the sum over models has no cross terms, so one optimiser
    over stacked parameters is M independent optimisers.
    """
    if method.precision == "bf16" and not has_bf16(task.prior.device):
        msg = f"precision='bf16': {task.prior.device} has no units for bfloat16. Use 'auto'."
        raise InputError(msg)
    task = task.repeated(method.members)  # R runs -> M models
    draws = Draws.of(task.seeds, method.name, like=task.prior)
    own = method.spread(task.models, like=task.prior)
    if net is None:
        net = own.build(task.rows.shape, task.k, draws)
    else:
        net.requires_grad_(True)
    net.train()
    if task.rows.on_host:
        task = replace(task, rows=Streamed.of_rows(task.rows, method.batch_size + 1))
    outer = Autocast(net) if method.precision == "bf16" else net
    zeros = task.prior.new_zeros
    training = Training(
        own,
        outer,
        task,
        own.begin(task),
        own.optimizer(_learning(net)),
        draws,
        progress=zeros(()),
        total=zeros(task.models),
    )
    for layer in training.random_layers:
        layer.draws = draws  # of this training, also in a network from an earlier one
    history = History()
    best = None if watch is None else Best(method, net, training, watch)
    average = Average(net, method.averaged, method.total_epochs)
    with computing(method.precision, task.prior.device), feed_of(task.rows) as feed:
        step = step_of(training)
        for epoch in range(method.total_epochs):
            training.progress.fill_(epoch / method.total_epochs)
            training.total.zero_()
            if method.restarts and epoch == method.warm_up:
                training.forget()
            for at in minibatches(len(task), method.batch_size, draws, feed):
                step(at, method.stage(epoch))
                yield
            own.end_epoch(training, epoch)
            average.add(epoch)
            if best is None:
                rate = None
            else:
                with average.shown(epoch):
                    rate = best.look()
            history.add(method.title, method.total_epochs, training.total.clone(), rate)
    average.use()
    if best is not None:
        best.restore()
    return _fitted(method, net, training, history)


def _learning(net: nn.Module) -> list[nn.Parameter]:
    """The parameters that are not frozen."""
    parameters = list(net.parameters())
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    if not learning:
        msg = (
            f"The network has nothing to learn: of its {len(parameters)} parameters none requires "
            "a gradient. Leave one layer or more trainable, such as the last."
        )
        raise InputError(msg)
    return learning


def _fitted(method: "DeepMethod", net: nn.Module, training: Training, history: History) -> Networks:
    """What is left of a training, members averaged."""
    training.optimizer.zero_grad()  # a graph's gradients would keep its memory
    for layer in training.random_layers:
        layer.kept = None
    task, state = training.task, training.state
    rows = Rows(task.rows.pool, task.rows.at, task.rows.shift, task.rows.scale)  # all, not a batch
    training.own.finish(task, state, lambda: logits_of(method, net, rows))
    opinion = training.own.training_opinion(task, state)
    weights = torch.unflatten(state.rows["label_weights"], 0, (-1, method.members)).mean(1)
    return Networks(
        method,
        net.eval().requires_grad_(False),
        task.seeds,
        weights,  # (R, n, k)
        fused(opinion, method.members),
        history,
    )


def minibatches(n: int, size: int, draws: Draws, feed: Feed | None = None) -> Iterator[Tensor]:
    """Positions (M, b) that cover all n rows once, in an order of its own for each model.

    A last batch of one row joins the one before it: BatchNorm needs two rows. A feed brings the
    rows of each batch to the device.
    """
    order = draws.order(n)  # (M, n), on the host
    ends = list(range(size, n, size))
    if n % size == 1 and ends:
        ends.pop()
    on_device = torch.tensor_split(order.to(draws.device, non_blocking=True), ends, dim=1)
    if feed is None:
        yield from on_device
        return
    arrivals = feed.batches(torch.tensor_split(order, ends, dim=1))
    for at, _ in zip(on_device, arrivals, strict=True):
        yield at


def feed_of(rows: Rows) -> AbstractContextManager[Feed | None]:
    return Feed(rows) if isinstance(rows, Streamed) else nullcontext()
