"""Early stopping without labels: the epoch that fits the candidates of watched rows best."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustpll.engine.data import Task
from robustpll.engine.layers import tensors_of
from robustpll.engine.predict import opinions_of

if TYPE_CHECKING:
    from robustpll.engine.train import Training
    from robustpll.methods.base import DeepMethod

PASSES = 16  # of a method that predicts by random passes: it is asked after every epoch


class Best:
    """Keeps for each model its network and row state after its best epoch.

    That is the one with the highest covering rate: the share of watched rows whose predicted class
    is a candidate, weighted as the rows are. Of equally good epochs the last one counts. Training
    draws the same numbers as without it, and nothing here makes a GPU wait.
    """

    def __init__(
        self, method: "DeepMethod", net: nn.Module, training: "Training", watch: Task
    ) -> None:
        self.method, self.net = method.with_passes(PASSES), net
        self.watch, self.seeds = watch.repeated(method.members), training.task.seeds
        rows = [(tensor, slice(None)) for tensor in training.state.rows.values()]
        self.live = [*tensors_of(net), *rows]
        self.kept = [tensor.detach().clone() for tensor, _ in self.live]
        self.rate = torch.full_like(training.total, -1.0)  # (M,), before the first epoch

    @torch.no_grad()
    def look(self) -> Tensor:
        """The covering rate of each model as it is now, (M,)."""
        opinion = opinions_of(self.method, self.net, self.watch.rows, self.seeds)
        self.net.train()
        named = opinion.predicted()[..., None]  # (M, n, 1)
        covered = self.watch.candidates.gather(-1, named)[..., 0]
        weight = self.watch.weight
        # Divided last: sums of ones are exact, and equal rates are equal to the bit.
        rate = (covered * weight).sum(-1) / weight.sum(-1).clamp(min=1e-10)
        better = rate >= self.rate
        for (tensor, models), kept in zip(self.live, self.kept, strict=True):
            chosen = better[models]
            chosen = chosen.view(-1, *[1] * (tensor.ndim - 1)) if chosen.ndim else chosen
            kept.copy_(torch.where(chosen, tensor, kept))
        self.rate = torch.maximum(rate, self.rate)
        return rate

    @torch.no_grad()
    def restore(self) -> None:
        """Every model as it was after its best epoch."""
        for (tensor, _), kept in zip(self.live, self.kept, strict=True):
            tensor.copy_(kept)
