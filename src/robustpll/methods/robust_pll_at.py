"""RobustPll+At and its ensemble: RobustPll that learns from attacked rows, too."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from robustpll.attacks.base import sign_of_gradient
from robustpll.engine.data import Batch
from robustpll.engine.layers import steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods.base import Number, Step
from robustpll.methods.evidential import Evidence
from robustpll.methods.robust_pll import RobustPll


@dataclass(frozen=True)
class RobustPllAt(RobustPll):
    """RobustPll with adversarial training: it also learns from rows that increase its error.

    Each row is moved by up to `adversary` in each scaled feature, from a random start, in a few
    steps that increase the expected error to its label weights. A batch contains the moved and the
    original rows; label weights come from the original rows.

    Parameters
    ----------
    adversary : float or tuple with one for each member
        How far each scaled feature may be moved; 0.05 is 5 % of its range in training.
    attack_steps : int
        Steps of an attack. Each costs a forward and a backward pass.
    clean_share : float or tuple with one for each member
        Share of the original rows in the loss, at most 1.
    averaged : float
        The final network is the mean over this share of the epochs, the last ones.

    Notes ----- Defaults differ from RobustPll: evidence is exponential, the divergence is weaker,
    and networks are averaged over the last half of the epochs. ``RobustPllAt.paper()`` is the plain
    constructor.

    Examples
    --------
    >>> RobustPllAt(adversary=0.1).evidence, RobustPllAt.paper() == RobustPllAt()
    ('exp', True)
    """

    name = "robust_pll_at"
    title = "RobustPll+At"
    citation = (
        f"{RobustPll.citation}; Madry, Makelov, Schmidt, Tsipras, Vladu: Towards Deep Learning "
        "Models Resistant to Adversarial Attacks. ICLR 2018"
    )
    published = False
    paper_fields: ClassVar[dict[str, Any]] = {}

    evidence: Evidence = "exp"
    kl_ceiling: Number = 0.3
    adversary: Number = 0.05
    attack_steps: int = 2
    clean_share: Number = 0.3
    averaged: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.per_member("clean_share")) > 1:
            raise InputError(
                f"The 'clean_share' of {type(self).__name__} must be at most 1: it is a share of "
                f"the loss. Got {self.clean_share!r} instead."
            )

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 2.0 + self.attack_steps  # two: moved and original rows

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        attacked, clean = self.two_views(net, batch)
        worst, plain = (
            self.error(evidence, batch) + self.divergence(evidence, batch, progress)
            for evidence in (attacked, clean)
        )
        loss: Tensor = worst + self.clean_share * (plain - worst)
        return loss, {} if self.second_pass else self.reweigh(clean.detach(), batch)

    def two_views(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the evidence (M, b, k) of moved and of original rows, from one pass."""
        with steady_statistics(net):
            moved = self.attacked(net, batch)
        both = self.evidence_of(net(torch.cat([moved, batch.x], dim=1)))
        attacked, clean = both.chunk(2, dim=1)
        return attacked, clean

    def attacked(self, net: nn.Module, batch: Batch) -> Tensor:
        """Return rows moved to a large error, within the bounds and the features' range."""
        x, epsilon = batch.x, self.adversary.view(-1, *[1] * (batch.x.ndim - 1))
        # a feature outside of its range in training may keep its value
        low = torch.minimum((x - epsilon).clamp(min=0), x)
        high = torch.maximum((x + epsilon).clamp(max=1), x)
        moved: Tensor = low + (high - low) * batch.drawn
        stride = 2.5 * epsilon / self.attack_steps  # enough to cross from one end to the other
        for _ in range(self.attack_steps):
            sign = sign_of_gradient(
                lambda rows: self.error(self.evidence_of(net(rows)), batch), moved
            )
            moved = torch.clamp(moved + stride * sign, low, high)
        return moved.detach()


@dataclass(frozen=True)
class RobustPllAtEns(RobustPllAt):
    """Five RobustPll+At networks with different initial weights and batches; opinions averaged.

    Members may differ in their numbers, such as ``adversary=(0.01, 0.02, 0.05, 0.05, 0.1)``.
    ``RobustPllAtEns.paper()`` is the plain constructor.

    Examples
    --------
    >>> RobustPllAtEns().members
    5
    """

    name = "robust_pll_at_ens"
    title = "RobustPll+AtEns"
    family = "ensemble"

    members: int = 5
