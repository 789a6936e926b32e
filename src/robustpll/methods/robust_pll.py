"""RobustPll (Fuchs & Kalinke), its ensemble, and both with adversarial training."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustpll.attacks import sign_of_gradient
from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods.base import Count, Number, Share, ShareNumber, Step, normalize
from robustpll.methods.evidential import Edl, Evidence, evidential_error, surprise
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class RobustPll(Edl):
    """Evidence for the candidates; the remaining uncertainty is shared among them.

    The network's outputs are evidence e >= 0 of a Dirichlet distribution with mean p. Its loss is
    the expected squared error to the label weights l, plus a divergence that removes evidence from
    classes that are not candidates. Given p, the optimal weights on the candidates S are l_j = p_j
    + (1 - sum_{S} p) / |S|. They are an opinion: belief e_j / A on the candidates, the rest
    uncertainty, shared by the prior. With votes of annotators as prior, they are not the minimum of
    the loss. ``RobustPll.paper()`` has ``anneal="from-zero"`` and the published ceiling, 1 and from
    100 classes on 0.0005; up to ten classes, that of the plain constructor is the same.

    Parameters
    ----------
    kl_ceiling : float or tuple with one for each member
        Final weight of the divergence, reached at half of the training; see `kl_per_class`.
    anneal : {"from-one", "from-zero"}
        Whether epochs are counted from 1 or from 0 on the way to the ceiling.
    loss : {"squared", "cross-entropy"}
        Expected squared error, or expected cross-entropy. The optimal weights of the latter are on
        the candidate with most evidence; ties share.
    update : {"before", "after"}
        Whether label weights come from the forward pass before the optimiser's step, or from one
        more pass after it.
    evidence : {"relu", "softplus", "exp"}
        How outputs become evidence. "exp" is capped at e^10.
    kl_scale_large_k : float
        Factor on the ceiling with 100 classes or more.
    kl_per_class : bool
        Whether the ceiling is divided by the number of classes, or by 10 if they are fewer: the
        divergence grows with it, the error does not.
    balance : float
        From 0 to 1: how strongly label weights are moved to candidates that are rare in the batch.
        1 assumes equally frequent classes. Only for ``loss="squared"``.

    Examples
    --------
    >>> RobustPll().kl_ceiling, RobustPll.paper().kl_ceiling, RobustPll.paper().anneal
    (10.0, 1.0, 'from-zero')
    """

    name = "robust_pll"
    title = "RobustPll"
    citation = (
        "Fuchs, Kalinke: Robust Partial-Label Learning by Leveraging Class Activation Values. 2025"
    )
    uncertain = True
    added_fields: ClassVar[dict[str, Any]] = Edl.added_fields | {"balance": 0.0}
    paper_fields: ClassVar[dict[str, Any]] = {
        "anneal": "from-zero",
        "kl_ceiling": 1.0,
        "kl_per_class": False,
        "kl_scale_large_k": 0.0005,
    }

    kl_ceiling: Number = 10.0
    kl_scale_large_k: Number = 1.0
    kl_per_class: bool = True
    loss: Literal["squared", "cross-entropy"] = "squared"
    update: Literal["before", "after"] = "before"
    balance: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balance and self.loss != "squared":
            raise InputError(
                f"A balance needs loss='squared'. Got {self.balance!r} with {self.loss!r}."
            )

    def begin(self, task: Task) -> State:
        if self.loss == "squared":
            return State.of(task, uncertainty=1.0)
        return State.of(task, uncertainty=1.0, belief=torch.zeros_like(task.prior))

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        loss = self.loss_of(self.evidence_of(logits), batch, progress)
        return loss, {} if self.second_pass else self.reweigh(logits.detach(), batch)

    def loss_of(self, evidence: Tensor, batch: Batch, progress: Tensor) -> Tensor:
        return self.error(evidence, batch) + self.divergence(evidence, batch, progress)

    def error(self, evidence: Tensor, batch: Batch) -> Tensor:
        """Return the expected error to the label weights, given evidence (M, b, k), (M, b)."""
        if self.loss == "squared":
            return evidential_error(evidence, batch.label_weights)
        return (batch.label_weights * surprise(evidence)).sum(-1)

    @property
    def second_pass(self) -> bool:
        return self.update == "after"

    def training_opinion(self, task: Task, state: State) -> Opinion:
        if self.loss == "squared":  # label weights are the opinion's probability
            return super().training_opinion(task, state)
        belief, uncertainty = state.rows["belief"].double(), state.rows["uncertainty"].double()
        return Opinion(belief, task.prior.double(), uncertainty[..., 0])

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        evidence = self.evidence_of(logits)
        opinion = Opinion.of_evidence(evidence, batch.prior).within(batch.candidates)
        uncertainty = opinion.uncertainty[..., None]
        if self.loss == "squared" and self.balance:
            return self.balanced(opinion, batch)
        if self.loss == "squared":
            return {"label_weights": opinion.probability, "uncertainty": uncertainty}
        best = evidence.masked_fill(~batch.candidates, -1).amax(-1, keepdim=True)
        tied = batch.candidates & (evidence == best)
        weights = normalize(tied.to(evidence.dtype), batch.prior)
        return {"label_weights": weights, "belief": opinion.belief, "uncertainty": uncertainty}

    def balanced(self, opinion: Opinion, batch: Batch) -> dict[str, Tensor]:
        """Return label weights divided by the share of each class in the batch; see `reweigh`."""
        weights = opinion.probability
        relative = (weights.shape[-1] * weights.mean(-2, keepdim=True)).clamp(min=0.01)
        weights = normalize(weights / relative**self.balance, batch.prior)
        # belief is the rest of the weights, and must not be negative
        most = torch.where(batch.prior > 0, weights / batch.prior, torch.inf).amin(-1)
        uncertainty = torch.minimum(opinion.uncertainty, most)[..., None]
        return {"label_weights": weights, "uncertainty": uncertainty}


@dataclass(frozen=True)
class RobustPllEns(RobustPll):
    """Five RobustPll networks with different ceilings of the divergence; opinions averaged.

    ``RobustPllEns.paper()`` differs from the plain constructor in ``anneal="from-zero"``. The
    paper's text has five equal members: ``RobustPllEns(kl_ceiling=1.0)``. The published ceilings
    are not divided by the number of classes; from 100 classes on they are multiplied by 0.0005.

    Examples
    --------
    >>> RobustPllEns().kl_ceiling
    (0.5, 1.0, 2.0, 4.0, 8.0)
    """

    name = "robust_pll_ens"
    title = "RobustPll+Ens"
    family = "ensemble"
    paper_fields: ClassVar[dict[str, Any]] = {"anneal": "from-zero"}

    members: Count = 5
    kl_ceiling: Number = (0.5, 1.0, 2.0, 4.0, 8.0)
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False


@dataclass(frozen=True)
class RobustPllAt(RobustPll):
    """RobustPll with adversarial training: it also learns from rows that increase its error.

    Each row is moved by up to `adversary` in each scaled feature, from a random start, in a few
    steps that increase the expected error to its label weights. A batch contains the moved and the
    original rows; label weights come from the original rows. Defaults differ from RobustPll:
    evidence is exponential, the divergence is weaker, and networks are averaged over the last half
    of the epochs. ``RobustPllAt.paper()`` is the plain constructor.

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
    attack_steps: Count = 2
    clean_share: ShareNumber = 0.3
    averaged: Share = 0.5

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 2.0 + self.attack_steps  # two: moved and original rows

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        views = self.two_views(net, batch)
        worst, plain = (self.loss_of(self.evidence_of(view), batch, progress) for view in views)
        loss: Tensor = worst + self.clean_share * (plain - worst)
        return loss, {} if self.second_pass else self.reweigh(views[1].detach(), batch)

    def two_views(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits (M, b, k) of moved and of original rows, from one pass."""
        with steady_statistics(net):
            moved = self.attacked(net, batch)
        attacked, clean = net(torch.cat([moved, batch.x], dim=1)).chunk(2, dim=1)
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

    members: Count = 5
