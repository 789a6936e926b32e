"""Proden+L2: Proden with weight decay."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn
from torch.optim import Adam, Optimizer

from robustpll.methods.proden import Proden


@dataclass(frozen=True)
class ProdenL2(Proden):
    """Proden whose parameters decay.

    Parameters
    ----------
    decay : {"decoupled", "l2"}
        Shrink all parameters by ``learning_rate * weight_decay`` in each step, or add
        ``weight_decay / 2`` times their squared norm to the loss.

    Notes
    -----
    ``ProdenL2.paper()`` is the plain constructor: the paper's text speaks of a penalty, its code
    decays decoupled.

    Examples
    --------
    >>> ProdenL2().weight_decay
    0.01
    """

    name: ClassVar[str] = "proden_l2"
    title: ClassVar[str] = "Proden+L2"

    weight_decay: float = 0.01
    decay: Literal["decoupled", "l2"] = "decoupled"

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        if self.decay == "decoupled":
            return super().optimizer(parameters)
        parameters = list(parameters)
        return Adam(
            parameters,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            capturable=parameters[0].is_cuda,
        )
