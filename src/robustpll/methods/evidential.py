"""Evidential methods: Proden+Edl (Sensoy et al., NeurIPS 2018), RobustPll (Fuchs & Kalinke, 2025).

Evidence e >= 0 stands for the Dirichlet distribution of parameters a = e + 1, with A = sum a and
mean p = a / A.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from robustpll.attacks import sign_of_gradient
from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.engine.random import Draws, seed_of
from robustpll.engine.train import train
from robustpll.errors import InputError
from robustpll.methods.base import Count, DeepMethod, Number, Share, ShareNumber, Step, normalize
from robustpll.methods.proden import Proden
from robustpll.opinion import Opinion

Evidence = Literal["relu", "softplus", "exp"]
EVIDENCE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    # not F.softplus: on a CPU that rounds the end of a tensor differently
    "softplus": lambda logits: logits.relu() + (-logits.abs()).exp().log1p(),
    "exp": lambda logits: logits.clamp(max=10.0).exp(),  # e^10: an uncertainty below k / 22,000
}


def evidential_error(evidence: Tensor, label_weights: Tensor) -> Tensor:
    """Return the expected squared error, (..., k) -> (...): squared bias and variance.

    sum_j (l_j - p_j)^2 + p_j (1 - p_j) / (A + 1)
    """
    a = evidence + 1
    total = a.sum(-1, keepdim=True)
    p = a / total
    return ((label_weights - p).square() + p * (1 - p) / (total + 1)).sum(-1)


def digamma(x: Tensor) -> Tensor:
    """Return torch's digamma of x >= 1; compiled, a series, as torch's is a kernel of its own.

    By digamma(x) = digamma(x + 6) - sum of 1 / (x + i), and three terms of the asymptotic series:
    the next one is below 1e-9.
    """
    if not torch.compiler.is_compiling():
        return torch.digamma(x)
    t, y = x * (x + 5), 1 / (x + 6)  # x (x + 5), (x + 1)(x + 4) = t + 4, (x + 2)(x + 3) = t + 6
    before = (2 * x + 5) * (1 / t + 1 / (t + 4) + 1 / (t + 6))
    z = y * y
    return -y.log() - y / 2 - z * (1 / 12 - z * (1 / 120 - z / 252)) - before


def trigamma(x: Tensor) -> Tensor:
    """Return the derivative of `digamma`, in the same two ways."""
    if not torch.compiler.is_compiling():
        return torch.polygamma(1, x)
    y = 1 / (x + 6)
    z = y * y
    tail = y + z / 2 + z * y * (1 / 6 - z * (1 / 30 - z * (1 / 42)))
    squares = [1 / (x + i).square() for i in range(6)]
    return tail + (squares[0] + squares[1] + squares[2] + squares[3] + squares[4] + squares[5])


def surprise(evidence: Tensor) -> Tensor:
    """Return the expected -ln of each class's probability: digamma(A) - digamma(a_j)."""
    a = evidence + 1
    return digamma(a.sum(-1, keepdim=True)) - digamma(a)


class FlatKl(torch.autograd.Function):
    """KL divergence of the Dirichlet from the flat one; autograd alone would be slower.

    lnG(A) - lnG(k) - sum_j lnG(a_j) + sum_j (a_j - 1)(digamma(a_j) - digamma(A)). Its derivative
    is e_j trigamma(a_j) - (sum e) trigamma(A).
    """

    @staticmethod
    def forward(ctx: Any, evidence: Tensor) -> Tensor:
        ctx.save_for_backward(evidence)
        a = evidence + 1
        total = a.sum(-1)
        constants = torch.lgamma(total) - math.lgamma(a.shape[-1])
        return constants - (evidence * surprise(evidence) + torch.lgamma(a)).sum(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (evidence,) = ctx.saved_tensors
        committed = evidence.sum(-1, keepdim=True)
        a, total = evidence + 1, committed + evidence.shape[-1]
        slope = evidence * trigamma(a) - committed * trigamma(total)
        return torch.mul(gradient[..., None], slope)


flat_kl: Callable[[Tensor], Tensor] = FlatKl.apply  # evidence (..., k) -> (...)


@dataclass(frozen=True)
class Edl(DeepMethod):
    """Evidential classifier on constant label weights; other methods derive from it."""

    added_fields: ClassVar = DeepMethod.added_fields | {"kl_per_class": False}
    by_row: ClassVar[Any] = True

    kl_ceiling: Number = 1.0
    anneal: Literal["from-one", "from-zero"] = "from-one"
    evidence: Evidence = "relu"
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        loss = self.loss_of(self.evidence_of(logits), batch, progress)
        return loss, self.before_step(logits, batch)

    def loss_of(self, evidence: Tensor, batch: Batch, progress: Tensor) -> Tensor:
        return self.error(evidence, batch) + self.divergence(evidence, batch, progress)

    def error(self, evidence: Tensor, batch: Batch) -> Tensor:
        """Return the expected error to the label weights, (M, b, k) -> (M, b)."""
        return evidential_error(evidence, batch.label_weights)

    def divergence(self, evidence: Tensor, batch: Batch, progress: Tensor) -> Tensor:
        """Return the divergence of evidence for classes outside the candidates, (M, b).

        Its weight at epoch t of T, counted from 1 or from 0, is the ceiling times min(2 t / T, 1).
        """
        ceiling, k = self.kl_ceiling, batch.candidates.shape[-1]  # (M, 1)
        if k >= 100:
            ceiling = ceiling * self.kl_scale_large_k
        if self.kl_per_class:
            ceiling = ceiling / max(k, 10)
        first = 1 / self.epochs if self.anneal == "from-one" else 0.0
        coefficient = ceiling * (2 * (progress + first)).clamp(max=1)
        return torch.mul(coefficient, flat_kl(evidence.masked_fill(batch.candidates, 0)))

    def evidence_of(self, logits: Tensor) -> Tensor:
        return EVIDENCE[self.evidence](logits)

    def opinion(self, logits: Tensor) -> Opinion:
        return Opinion.of_evidence(self.evidence_of(logits))

    def scores(self, outputs: Tensor) -> Tensor:
        return (self.evidence_of(outputs) + 1).log()


@dataclass(frozen=True)
class ProdenEdl(Edl):
    """Proden resolves the candidates; a new evidential network then learns one label per row.

    Its loss is the expected squared error to the label, and a divergence that removes evidence from
    all other classes. Both trainings have the same epochs. ``ProdenEdl.paper()`` has
    ``kl_scale_large_k=1.0``: from 100 classes on, it learns very little. So does the plain
    constructor with 50 to 99 classes; ``ProdenEdl(kl_per_class=True, kl_ceiling=10.0)`` helps.

    Parameters
    ----------
    kl_ceiling, anneal, evidence, kl_scale_large_k, kl_per_class
        As in `RobustPll`, but with the published ceiling, 1 and from 100 classes on 0.0005.
    prior : {"label", "uniform"}
        Whether a training row's uncertainty belongs to its label, or to all classes equally.
    """

    name = "proden_edl"
    title = "Proden+Edl"
    citation = (
        f"{Proden.citation}; Sensoy, Kaplan, Kandemir: Evidential Deep Learning to Quantify "
        "Classification Uncertainty. NeurIPS 2018"
    )
    uncertain = True
    cost = 2.0
    paper_fields: ClassVar = {"anneal": "from-zero", "prior": "uniform", "kl_scale_large_k": 1.0}

    prior: Literal["label", "uniform"] = "label"

    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        shared = {name: getattr(self, name) for name in Proden.field_names()}
        opinion = train(Proden(**shared), task).opinion
        ties = [np.random.default_rng(seed_of(seed, self.name, "ties")) for seed in task.seeds]
        labels = torch.stack([opinion[run].predicted(tie) for run, tie in enumerate(ties)])
        resolved = task.with_candidates(one_hot(labels, task.k).bool())
        return train(self, resolved, validation=validation)

    def begin(self, task: Task) -> State:
        return State.of(task, uncertainty=1.0)

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        evidence = (self.evidence_of(logits()) * task.candidates).sum(-1, keepdim=True)
        state.rows["uncertainty"] = task.k / (evidence + task.k)

    def training_opinion(self, task: Task, state: State) -> Opinion:
        if self.prior == "label":
            return super().training_opinion(task, state)
        uncertainty = state.rows["uncertainty"][..., 0].double()
        prior = torch.full_like(task.prior, 1 / task.k, dtype=torch.float64)
        return Opinion(task.candidates * (1 - uncertainty[..., None]), prior, uncertainty)


@dataclass(frozen=True)
class RobustPll(Edl):
    """Evidence for the candidates; the remaining uncertainty is shared among them.

    The network's outputs are evidence e >= 0 of a Dirichlet distribution with mean p. Its loss is
    the expected squared error to the label weights l, plus a divergence that removes evidence from
    classes that are not candidates. Given p, the optimal weights on the candidates S are l_j = p_j
    + (1 - sum_{S} p) / |S|. They are an opinion: belief e_j / A on the candidates, the rest
    uncertainty, shared by the prior (with votes of annotators as prior, they are not optimal).
    ``RobustPll.paper()`` has ``anneal="from-zero"`` and the published ceiling, 1 and from 100
    classes on 0.0005; up to ten classes, that of the plain constructor is the same.

    Parameters
    ----------
    kl_ceiling : float or tuple with one for each member
        Final weight of the divergence, reached at half of the training; see `kl_per_class`.
    anneal : {"from-one", "from-zero"}
        Whether epochs are counted from 1 or from 0 on the way to the ceiling.
    loss : {"squared", "cross-entropy"}
        Expected error. Optimal weights of the latter are on the candidate with most evidence.
    update : {"before", "after"}
        Whether label weights come from the pass before the optimiser's step, or one after it.
    evidence : {"relu", "softplus", "exp"}
        How outputs become evidence. "exp" is capped at e^10.
    kl_scale_large_k : float
        Factor on the ceiling with 100 classes or more.
    kl_per_class : bool
        Whether the ceiling is divided by the number of classes, or by 10 if they are fewer.
    balance : float
        From 0 to 1: how strongly label weights are moved to candidates that are rare in the batch,
        compared with `balance_to`. Needs ``loss="squared"``.
    balance_to : {"equal", "candidates"}
        Whether classes are assumed equally frequent, or as frequent as among the candidates.
    prior_on : {"uncertainty", "evidence"}
        Whether votes of annotators share only the uncertainty, or also multiply the evidence.
    """

    name = "robust_pll"
    title = "RobustPll"
    citation = (
        "Fuchs, Kalinke: Robust Partial-Label Learning by Leveraging Class Activation Values. 2025"
    )
    uncertain = True
    added_fields: ClassVar = Edl.added_fields | {"balance": 0.0}
    added_fields |= {"balance_to": "equal", "prior_on": "uncertainty"}
    paper_fields: ClassVar = {"anneal": "from-zero", "kl_ceiling": 1.0}
    paper_fields |= {"kl_per_class": False, "kl_scale_large_k": 0.0005}

    kl_ceiling: Number = 10.0
    kl_scale_large_k: Number = 1.0
    kl_per_class: bool = True
    loss: Literal["squared", "cross-entropy"] = "squared"
    update: Literal["before", "after"] = "before"
    balance: Share = 0.0
    balance_to: Literal["equal", "candidates"] = "equal"
    prior_on: Literal["uncertainty", "evidence"] = "uncertainty"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balance and self.loss != "squared":
            raise InputError(f"A balance needs loss='squared'. Got loss={self.loss!r}.")

    @property
    def by_row(self) -> bool:
        return not self.balance  # which compares the rows of a batch

    def begin(self, task: Task) -> State:
        if self.loss == "squared":  # label weights are the opinion's probability
            state = State.of(task, uncertainty=1.0)
            if self.balance_to == "candidates":
                shares = (task.prior * task.weight[..., None]).sum(1, keepdim=True)  # (M, 1, k)
                shares = shares / shares.sum(-1, keepdim=True)
                # classes that are no candidates must not divide by 0
                state.memory["class_shares"] = shares.clamp(min=1e-6)
            return state
        return State.of(task, uncertainty=1.0, belief=torch.zeros_like(task.prior))

    def error(self, evidence: Tensor, batch: Batch) -> Tensor:
        if self.loss == "squared":
            return super().error(evidence, batch)
        return (batch.label_weights * surprise(evidence)).sum(-1)

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        evidence = self.evidence_of(logits)
        if self.prior_on == "evidence":  # a uniform prior multiplies it by 1
            evidence = evidence * batch.prior * batch.candidates.sum(-1, keepdim=True)
        opinion = Opinion.of_evidence(evidence, batch.prior).within(batch.candidates)
        uncertainty = opinion.uncertainty[..., None]
        if self.loss == "squared":
            weights = opinion.probability
            if self.balance:  # divide by the share of each class in the batch
                expected = batch.memory.get("class_shares", 1 / weights.shape[-1])
                relative = (weights.mean(-2, keepdim=True) / expected).clamp(min=0.01)
                weights = normalize(weights / relative**self.balance, batch.prior)
                # belief is the rest of the weights, and must not be negative
                most = torch.where(batch.prior > 0, weights / batch.prior, torch.inf).amin(-1)
                uncertainty = torch.minimum(opinion.uncertainty, most)[..., None]
            return {"label_weights": weights, "uncertainty": uncertainty}
        best = evidence.masked_fill(~batch.candidates, -1).amax(-1, keepdim=True)
        tied = batch.candidates & (evidence == best)
        weights = normalize(tied.to(evidence.dtype), batch.prior)
        return {"label_weights": weights, "belief": opinion.belief, "uncertainty": uncertainty}


@dataclass(frozen=True)
class RobustPllEns(RobustPll):
    """Five RobustPll networks with different ceilings of the divergence; opinions averaged.

    ``RobustPllEns.paper()`` differs in ``anneal="from-zero"``. The paper's text has five equal
    members: ``RobustPllEns(kl_ceiling=1.0)``. Published ceilings are not divided by the classes.
    """

    name = "robust_pll_ens"
    title = "RobustPll+Ens"
    family = "ensemble"
    paper_fields: ClassVar = {"anneal": "from-zero"}

    members: Count = 5
    kl_ceiling: Number = (0.5, 1.0, 2.0, 4.0, 8.0)
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False


@dataclass(frozen=True)
class RobustPllAt(RobustPll):
    """RobustPll with adversarial training: it also learns from rows that increase its error.

    Each row is moved in a few steps from a random start, to increase the expected error to its
    label weights. A batch contains moved and original rows; label weights come from the latter.
    Defaults differ from RobustPll: evidence is exponential, the divergence is weaker, and networks
    are averaged over the last half of the epochs.

    Parameters
    ----------
    adversary : float or tuple with one for each member
        How far each scaled feature may be moved; 0.05 is 5 % of its range in training.
    attack_steps : int
        Steps of an attack. Each costs a forward and a backward pass.
    clean_share : float or tuple with one for each member
        Share of the original rows in the loss, at most 1.
    """

    name = "robust_pll_at"
    title = "RobustPll+At"
    citation = (
        f"{RobustPll.citation}; Madry, Makelov, Schmidt, Tsipras, Vladu: Towards Deep Learning "
        "Models Resistant to Adversarial Attacks. ICLR 2018"
    )
    published = False
    cost = 4.0  # moved and original rows, and two steps of an attack
    paper_fields: ClassVar = {}

    evidence: Evidence = "exp"
    kl_ceiling: Number = 0.3
    adversary: Number = 0.05
    attack_steps: Count = 2
    clean_share: ShareNumber = 0.3
    averaged: Share = 0.5

    attacks: ClassVar[bool] = True  # in training, False if no model's adversary moves a row

    def spread(self, models: int, like: Tensor) -> Self:
        method = super().spread(models, like)
        object.__setattr__(method, "attacks", any(self.per_member("adversary")))
        return method

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape)  # also without attacks: batches are drawn afterwards

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        def error(rows: Tensor) -> Tensor:
            return self.error(self.evidence_of(net(rows)), batch)

        moved = batch.x
        if self.attacks:
            with steady_statistics(net):
                moved = attacked(error, batch.x, self.adversary, self.attack_steps, batch.drawn)
        views = net(torch.cat([moved, batch.x], dim=1)).chunk(2, dim=1)  # (M, b, k) each
        worst, plain = (self.loss_of(self.evidence_of(view), batch, progress) for view in views)
        loss: Tensor = worst + self.clean_share * (plain - worst)
        return loss, self.before_step(views[1], batch)


def attacked(
    error: Callable[[Tensor], Tensor], x: Tensor, epsilon: Tensor, steps: int, drawn: Tensor
) -> Tensor:
    """Move rows to a large error, from a random start, by at most epsilon (M, 1).

    Features stay in the range from 0 to 1, or keep their value if they are outside of it.
    """
    epsilon = epsilon.view(-1, *[1] * (x.ndim - 1))
    low = torch.minimum((x - epsilon).clamp(min=0), x)
    high = torch.maximum((x + epsilon).clamp(max=1), x)
    moved: Tensor = low + (high - low) * drawn
    stride = 2.5 * epsilon / steps  # enough to cross from one end to the other
    for _ in range(steps):
        moved = torch.clamp(moved + stride * sign_of_gradient(error, moved), low, high)
    return moved.detach()


@dataclass(frozen=True)
class RobustPllAtEns(RobustPllAt):
    """Five RobustPll+At networks with different initial weights and batches; opinions averaged.

    Members may differ, as by ``adversary=(0.01, 0.02, 0.05, 0.05, 0.1)``.
    """

    name = "robust_pll_at_ens"
    title = "RobustPll+AtEns"
    family = "ensemble"

    members: Count = 5
