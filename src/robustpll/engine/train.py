"""The only training loop of the project."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from robustpll.engine.capture import compiled, step_of
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.layers import Autocast
from robustpll.engine.predict import Networks, fused, logits_of
from robustpll.engine.random import Draws
from robustpll.engine.task import State, Task

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod


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
    compiled: bool = False

    def step(self, at: Tensor, stage: int) -> None:
        """One step of all models, on the rows at (M, b); nothing in it waits for the device."""
        loss, written = losses(self, at, stage)  # (M,)
        self.optimizer.zero_grad()
        loss.sum().backward()  # models do not mix
        self.optimizer.step()
        if self.own.second_pass:
            batch = self.state.batch(self.task, at, stage, self.draws)
            written = self.own.after_step(self.net, batch)
        self.state.write(at, written)
        self.total += loss.detach() * (at.shape[1] / len(self.task))


@compiled
def losses(training: Training, at: Tensor, stage: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean loss of each model (M,), and the row state to write."""
    batch = training.state.batch(training.task, at, stage, training.draws)
    loss, written = training.own.step(training.net, batch, training.progress)  # (M, b)
    return (loss * batch.weight).mean(-1), written


def train(method: "DeepMethod", task: Task, *, net: nn.Module | None = None) -> Networks:
    """Trains the models of all runs of a task at once; a given `net` is trained further.

    Adam acts on each number alone and the sum over models has no cross terms, so one optimiser
    over stacked parameters is M independent optimisers.
    """
    task = task.repeated(method.members)  # R runs -> M models
    draws = Draws.of(task.seeds, method.name, like=task.prior)
    own = method.spread(task.models, like=task.prior)
    net = own.build(task.rows.shape, task.k, draws) if net is None else net
    net.train().requires_grad_(True)
    outer = Autocast(net) if method.precision == "bf16" else net
    zeros = task.prior.new_zeros
    training = Training(
        own,
        outer,
        task,
        own.begin(task),
        own.optimizer(net.parameters()),
        draws,
        progress=zeros(()),
        total=zeros(task.models),
    )
    history = History()
    with computing(method.precision, task.prior.device):
        step = step_of(training)
        for epoch in range(method.epochs):
            training.progress.fill_(epoch / method.epochs)
            training.total.zero_()
            for at in minibatches(len(task), method.batch_size, draws):
                step(at, method.stage(epoch))
            own.end_epoch(training.state, epoch)
            history.add(method.title, method.epochs, training.total.clone())
    return _fitted(method, net, training, history)


def _fitted(method: "DeepMethod", net: nn.Module, training: Training, history: History) -> Networks:
    """What is left of a training, members averaged."""
    task, state = training.task, training.state
    opinion = training.own.training_opinion(task, state, lambda: logits_of(method, net, task.rows))
    weights = torch.unflatten(state.rows["label_weights"], 0, (-1, method.members)).mean(1)
    return Networks(
        method,
        net.eval().requires_grad_(False),
        task.seeds,
        weights,  # (R, n, k)
        fused(opinion, method.members),
        history,
    )


def minibatches(n: int, size: int, draws: Draws) -> Iterator[Tensor]:
    """Positions (M, b) that cover all n rows once, in an order of its own for each model.

    A last batch of one row joins the one before it: BatchNorm needs two rows.
    """
    order = draws.order(n)  # (M, n)
    ends = list(range(size, n, size))
    if n % size == 1 and ends:
        ends.pop()
    yield from torch.tensor_split(order, ends, dim=1)
