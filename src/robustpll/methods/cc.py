"""Cc (Feng et al., NeurIPS 2020)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.methods.base import DeepMethod
from robustpll.methods.losses import covering, normalize
from robustpll.methods.rc import Rc


@dataclass(frozen=True)
class Cc(DeepMethod):
    """Classifier-consistent learning: -ln of the probability of all candidates together.

    Parameters
    ----------
    stable : bool
        Whether the loss is computed by log-sum-exp. Without, it is -ln(c s + 1e-10), where s is
        that probability and c = 1 / (2^(k-1) - 1).

    Notes
    -----
    ``Cc.paper()`` differs in ``stable=False``. There c vanishes in float32 from 151 classes on: the
    loss is a constant, and the network stays as it was drawn; from about 50 classes on its gradient
    is too small to learn from.

    Examples
    --------
    >>> Cc().stable, Cc.paper().stable
    (True, False)
    """

    name: ClassVar[str] = "cc"
    title: ClassVar[str] = "Cc"
    citation: ClassVar[str] = Rc.citation

    stable: bool = True

    @classmethod
    def paper(cls) -> Self:
        return cls(stable=False)

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits = net(batch.x)
        if self.stable:
            return covering(logits, batch.candidates), {}
        return underflowing(logits, batch.candidates), {}

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        state.rows["label_weights"] = normalize(
            task.candidates * logits().softmax(-1), task.prior.double()
        )


def underflowing(logits: Tensor, candidates: Tensor) -> Tensor:
    """The published form of `covering`, with its constant, (..., k) -> (...)."""
    constant = 1 / (2 ** (logits.shape[-1] - 1) - 1)
    return -torch.log(constant * (candidates * logits.softmax(-1)).sum(-1) + 1e-10)
