"""Early stopping without true labels, by the covering rate of validation rows."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustpll.engine.data import Task
from robustpll.engine.layers import tensors_of
from robustpll.engine.predict import opinions_of

if TYPE_CHECKING:
    from robustpll.engine.train import Training
    from robustpll.methods.base import DeepMethod

PASSES = 16  # random passes per epoch, for methods that predict by their mean


class EarlyStopping:
    """Keeps the network and row state of each model after its best epoch.

    The best epoch has the highest covering rate: the weighted share of validation rows whose
    predicted class is a candidate. Of equally good epochs the last one is kept. Training draws the
    same random numbers as without early stopping, and no GPU has to wait.
    """

    def __init__(
        self, method: "DeepMethod", net: nn.Module, training: "Training", validation: Task
    ) -> None:
        self.method, self.net = method.with_passes(PASSES), net
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
