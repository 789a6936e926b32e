"""RobustPll+At: RobustPll that learns from attacked rows."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from robustpll.engine.attack import uphill
from robustpll.engine.layers import steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.engine.task import Batch
from robustpll.methods.base import Number
from robustpll.methods.evidential import Evidence
from robustpll.methods.robust_pll import RobustPll


@dataclass(frozen=True)
class RobustPllAt(RobustPll):
    """RobustPll on the worst rows within reach (adversarial training, Madry et al., ICLR 2018).

    Each row is moved by up to `adversary` in each scaled feature, from a random start by a few
    steps uphill of the expected error to its label weights; the network learns from the moved rows.
    Label weights come from the rows as they are.

    Parameters
    ----------
    adversary : float or tuple with one for each member
        How far each scaled feature may be moved.
    attack_steps : int
        Each costs a pass forward and one back.
    """

    name: ClassVar[str] = "robust_pll_at"
    title: ClassVar[str] = "RobustPll+At"

    adversary: Number = 0.05
    attack_steps: int = 5
    kl_ceiling: Number = 0.1
    evidence: Evidence = "exp"

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape)

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        with steady_statistics(net):
            with torch.no_grad():
                written = self.reweigh(self.evidence_of(net(batch.x)), batch)
            attacked = self._attacked(net, batch)
        evidence = self.evidence_of(net(attacked))
        return self.error(evidence, batch) + self.divergence(evidence, batch, progress), written

    def _attacked(self, net: nn.Module, batch: Batch) -> Tensor:
        """The rows where the error is large, within reach and within the range of the features."""
        x, reach = batch.x, self.adversary.view(-1, *[1] * (batch.x.ndim - 1))
        # what lies outside of the range from the start may stay
        low = torch.minimum((x - reach).clamp(min=0), x)
        high = torch.maximum((x + reach).clamp(max=1), x)
        assert batch.drawn is not None
        moved = low + (high - low) * batch.drawn
        stride = 2.5 * reach / self.attack_steps
        for _ in range(self.attack_steps):
            rising = uphill(lambda at: self.error(self.evidence_of(net(at)), batch), moved)
            moved = torch.clamp(moved + stride * rising, low, high)
        return moved.detach()
