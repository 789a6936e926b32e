"""The only training loop of the project."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustpll.engine.device import matmul_precision
from robustpll.engine.history import History
from robustpll.engine.predict import Networks, fused, logits_of
from robustpll.engine.random import Draws
from robustpll.engine.task import Task

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod


def train(method: "DeepMethod", task: Task, *, net: nn.Module | None = None) -> Networks:
    """Trains the models of all runs of a task at once; a given `net` is trained further.

    Adam acts on each number alone and the sum over models has no cross terms, so one optimiser
    over stacked parameters is M independent optimisers. Nothing in the loop waits for the device.
    """
    task = task.repeated(method.members)  # R runs -> M models
    draws = Draws.of(task.seeds, method.name, like=task.prior)
    own = method.spread(task.models, like=task.prior)
    net = own.build(task.rows.shape, task.k, draws) if net is None else net
    state, optimizer = own.begin(task), own.optimizer(net.parameters())
    progress, history = task.prior.new_zeros(()), History()
    net.train().requires_grad_(True)
    with matmul_precision(method.precision, task.prior.device):
        for epoch in range(method.epochs):
            progress.fill_(epoch / method.epochs)
            total = task.prior.new_zeros(task.models)
            for at in minibatches(len(task), method.batch_size, draws):
                batch = state.batch(task, at, method.stage(epoch), draws)
                loss, written = own.step(net, batch, progress)  # (M, b)
                loss = (loss * batch.weight).mean(-1)
                optimizer.zero_grad()
                loss.sum().backward()  # type: ignore[no-untyped-call]  # models do not mix
                optimizer.step()
                state.write(at, written | own.after_step(net, batch))
                total += loss.detach() * (at.shape[1] / len(task))
            own.end_epoch(state, epoch)
            history.add(method.title, method.epochs, total)
    opinion = own.training_opinion(task, state, lambda: logits_of(method, net, task.rows))
    return Networks(
        method,
        net.eval().requires_grad_(False),
        task.seeds,
        torch.unflatten(state.rows["label_weights"], 0, (-1, method.members)).mean(1),  # (R, n, k)
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
