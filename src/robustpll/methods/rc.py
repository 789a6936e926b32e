"""Rc (Feng et al., NeurIPS 2020)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.methods.base import DeepMethod
from robustpll.methods.losses import normalize, weighted_ce


@dataclass(frozen=True)
class Rc(DeepMethod):
    """Risk-consistent learning: cross-entropy weighted by how likely each candidate is.

    As Proden, with label weights w_j = [j in S] p_j / sum_{S} p from the network as it is after the
    optimiser's step.

    Parameters
    ----------
    normalise : bool
        Whether a row's weights sum to 1. Without, a row counts as much as the network believes in
        its candidates.
    update : {"after", "before"}
        Whether weights come from one more forward pass after the step, or from the one before it.

    Notes
    -----
    ``Rc.paper()`` differs in ``normalise=False, update="before"``.

    Examples
    --------
    >>> Rc().normalise, Rc.paper().normalise
    (True, False)
    """

    name: ClassVar[str] = "rc"
    title: ClassVar[str] = "Rc"
    citation: ClassVar[str] = (
        "Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama: Provably Consistent Partial-Label Learning. "
        "NeurIPS 2020"
    )

    normalise: bool = True
    update: Literal["after", "before"] = "after"

    @classmethod
    def paper(cls) -> Self:
        return cls(normalise=False, update="before")

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits = net(batch.x)
        loss = weighted_ce(logits, batch.label_weights)
        return loss, {} if self.second_pass else self._reweigh(logits.detach(), batch)

    @property
    def second_pass(self) -> bool:
        return self.update == "after"

    def after_step(self, net: nn.Module, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad(), steady_statistics(net):
            return self._reweigh(net(batch.x), batch)

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        weights = state.rows["label_weights"]
        weights.copy_(normalize(weights, task.prior))

    def _reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        weights = batch.candidates * logits.softmax(-1)
        if self.normalise:
            weights = normalize(weights, batch.label_weights)
        return {"label_weights": weights}
