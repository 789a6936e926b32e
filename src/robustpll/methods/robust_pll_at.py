"""RobustPll+At: RobustPll that learns from attacked rows, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from robustpll.attacks.base import sign_of_gradient
from robustpll.engine.data import Batch
from robustpll.engine.layers import steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods.base import Number
from robustpll.methods.evidential import Evidence
from robustpll.methods.robust_pll import RobustPll


@dataclass(frozen=True)
class RobustPllAt(RobustPll):
    """RobustPll, and the same on rows that were moved to where its error is large.

    Each row is moved by up to `adversary` in each scaled feature: from a random start, in a few
    steps uphill of the expected error to its label weights. The network sees moved rows and rows as
    they are in one batch; label weights come from the latter.

    Parameters
    ----------
    adversary : float or tuple with one for each member
        How far each scaled feature may be moved; 0.05 is 5 % of its range in training.
    attack_steps : int
        On the way there. Each costs a pass forward and one back.
    clean_share : float or tuple with one for each member
        Of the loss, at most 1: what rows as they are count for.
    averaged : float
        Share of the epochs, the last ones: the network ends as the mean of those after each.

    Notes
    -----
    Other defaults than in RobustPll: evidence is exponential, the divergence weaker (0.3 instead of
    10, over the number of classes), and networks are averaged over the last half of the epochs.
    It is not of the paper: ``RobustPllAt.paper()`` is the plain constructor.

    Examples
    --------
    >>> RobustPllAt(adversary=0.1).evidence, RobustPllAt.paper() == RobustPllAt()
    ('exp', True)
    """

    name: ClassVar[str] = "robust_pll_at"
    title: ClassVar[str] = "RobustPll+At"
    citation: ClassVar[str] = (
        f"{RobustPll.citation}; Madry, Makelov, Schmidt, Tsipras, Vladu: Towards Deep Learning "
        "Models Resistant to Adversarial Attacks. ICLR 2018"
    )

    step_cost: ClassVar[float] = 2.0  # without the steps of the attack

    evidence: Evidence = "exp"
    kl_ceiling: Number = 0.3
    adversary: Number = 0.05
    attack_steps: int = 2
    clean_share: Number = 0.3
    averaged: float = 0.5
    added_fields: ClassVar[Mapping[str, object]] = {"kl_per_class": False, "balance": 0.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.per_member("clean_share")) > 1:
            msg = f"A clean_share is a share of the loss, at most 1; got {self.clean_share!r}."
            raise InputError(msg)

    @classmethod
    def paper(cls) -> Self:
        return cls()

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape)

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        there, here = self.there_and_here(net, batch)
        loss = self.shared_loss(there, here, batch, progress)
        return loss, {} if self.second_pass else self.reweigh(here.detach(), batch)

    def there_and_here(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Evidence (M, b, k) of the rows where they were moved to, and as they are; one pass."""
        with steady_statistics(net):
            moved = self.attacked(net, batch)
        there, here = self.evidence_of(net(torch.cat([moved, batch.x], dim=1))).chunk(2, dim=1)
        return there, here

    def shared_loss(self, there: Tensor, here: Tensor, batch: Batch, progress: Tensor) -> Tensor:
        """Of both, by the share of each, (M, b)."""
        worst, clean = (
            self.error(evidence, batch) + self.divergence(evidence, batch, progress)
            for evidence in (there, here)
        )
        loss: Tensor = worst + self.clean_share * (clean - worst)
        return loss

    def attacked(self, net: nn.Module, batch: Batch) -> Tensor:
        """The rows moved to where the error is large, within reach and the features' range."""
        x, reach = batch.x, self.adversary.view(-1, *[1] * (batch.x.ndim - 1))
        # a feature outside of its range in training may stay where it is
        low = torch.minimum((x - reach).clamp(min=0), x)
        high = torch.maximum((x + reach).clamp(max=1), x)
        moved: Tensor = low + (high - low) * batch.drawn
        stride = 2.5 * reach / self.attack_steps  # far enough to cross from one end to the other
        for _ in range(self.attack_steps):
            rising = sign_of_gradient(
                lambda at: self.error(self.evidence_of(net(at)), batch), moved
            )
            moved = torch.clamp(moved + stride * rising, low, high)
        return moved.detach()
