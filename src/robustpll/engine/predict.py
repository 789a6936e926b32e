"""What a training leaves behind, and how it is asked about other rows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustpll.engine.attack import Attack
from robustpll.engine.device import matmul_precision
from robustpll.engine.history import History
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

FEWEST_ROWS = 16  # with fewer a CPU's matrix product rounds differently: 1e-6 in a probability
NUMBERS_AT_ONCE = 2**25  # of one layer's output, for all models; 128 MiB in float32


class Fitted(ABC):
    """What every method's fit returns, networks or not; members are averaged."""

    label_weights: Tensor  # (R, n, k)
    opinion: Opinion  # of the training rows, (R, n, ...)
    history: History  # empty for methods without epochs

    @abstractmethod
    def predict(self, rows: Rows, attack: Attack | None = None) -> Opinion:
        """Of other rows of the same R runs, (R, n, ...)."""


@dataclass(frozen=True)
class Networks(Fitted):
    """M trained networks, which are R runs of as many members each."""

    method: "DeepMethod"
    net: nn.Module
    seeds: tuple[int, ...]  # (M,)
    label_weights: Tensor
    opinion: Opinion
    history: History

    def predict(self, rows: Rows, attack: Attack | None = None) -> Opinion:
        rows = rows.repeated(self.method.members)
        logits = logits_of(self.method, self.net, rows, attack, self.seeds)
        own = self.method.spread(rows.models, like=logits)
        return fused(own.opinion(logits), own.members)


def logits_of(
    method: "DeepMethod",
    net: nn.Module,
    rows: Rows,
    attack: Attack | None = None,
    seeds: tuple[int, ...] = (),
) -> Tensor:
    """Logits of all rows in evaluation mode, (M, n, k), in float64 whatever the network's type.

    Opinions are computed from them in float64, so that probabilities sum to 1 to the last digit.
    """
    net.eval()
    widest = max(300, torch.Size(rows.shape).numel())
    size = max(256, NUMBERS_AT_ONCE // (rows.models * widest))
    pieces = []
    every = method.members if attack is not None and attack.joint else 1
    draws = Draws.of(seeds[::every], method.name, "attack", like=rows.pool)
    with torch.no_grad(), matmul_precision(method.precision, rows.pool.device):
        for at in torch.split(rows.everything, size, dim=1):
            b = at.shape[1]
            x = rows.x(torch.cat([at, at[:, -1:].expand(-1, max(0, FEWEST_ROWS - b))], 1))
            if attack is not None:
                x = _attacked(attack, net, x, every, draws)
            pieces.append(net(x)[:, :b].double())
    return torch.cat(pieces, 1)


def _attacked(attack: Attack, net: nn.Module, x: Tensor, together: int, draws: Draws) -> Tensor:
    """Attacked features (M, b, *shape), the same ones for so many neighbouring models."""

    def logits(x: Tensor) -> Tensor:
        each = net(x.repeat_interleave(together, 0))  # (M, b, k)
        return torch.unflatten(each, 0, (-1, together)).mean(1)

    return attack(logits, x[::together], draws).repeat_interleave(together, 0)


def fused(opinion: Opinion, members: int) -> Opinion:
    """Opinions of M models -> of R runs, the mean of neighbouring members."""
    return Opinion(
        opinion.belief.unflatten(0, (-1, members)),
        opinion.prior.unflatten(0, (-1, members)),
        opinion.uncertainty.unflatten(0, (-1, members)),
    ).mean(1)
