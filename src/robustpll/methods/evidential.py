"""Evidential losses with label weights as targets (Sensoy et al., NeurIPS 2018), and Proden+Edl.

Evidence e >= 0 stands for the Dirichlet distribution of parameters a = e + 1, with A = sum a and
mean p = a / A.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.engine.train import train
from robustpll.methods.base import DeepMethod, Number, Step
from robustpll.methods.proden import Proden
from robustpll.opinion import Opinion

MANY_CLASSES = 100
FEW_CLASSES = 10  # with fewer classes, a ceiling per class is divided by this number

Anneal = Literal["from-one", "from-zero"]
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

    >>> evidence = torch.tensor([4.0, 1, 1])
    >>> evidential_error(evidence, torch.tensor([1.0, 0, 0]))
    tensor(0.3556)
    """
    a = evidence + 1
    total = a.sum(-1, keepdim=True)
    p = a / total
    return ((label_weights - p).square() + p * (1 - p) / (total + 1)).sum(-1)


def surprise(evidence: Tensor) -> Tensor:
    """Return the expected -ln of each class's probability: digamma(A) - digamma(a_j)."""
    a = evidence + 1
    return torch.digamma(a.sum(-1, keepdim=True)) - torch.digamma(a)


def flat_kl(evidence: Tensor) -> Tensor:
    """Return the KL divergence of the Dirichlet from the flat one, (..., k) -> (...).

    lnG(A) - lnG(k) - sum_j lnG(a_j) + sum_j (a_j - 1)(digamma(a_j) - digamma(A))

    >>> flat_kl(torch.tensor([0.0, 0, 2]))
    tensor(0.6251)
    """
    divergence: Tensor = FlatKl.apply(evidence)  # type: ignore[no-untyped-call]
    return divergence


class FlatKl(torch.autograd.Function):
    """The derivative is e_j trigamma(a_j) - (sum e) trigamma(A), as other terms cancel.

    Autograd would evaluate twice as many special functions.
    """

    @staticmethod
    def forward(ctx: Any, evidence: Tensor) -> Tensor:
        ctx.save_for_backward(evidence)
        a = evidence + 1
        total = a.sum(-1)
        constants = torch.lgamma(total) - torch.lgamma(torch.full_like(total, a.shape[-1]))
        return constants - (evidence * surprise(evidence) + torch.lgamma(a)).sum(-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (evidence,) = ctx.saved_tensors
        committed = evidence.sum(-1, keepdim=True)
        a, total = evidence + 1, committed + evidence.shape[-1]
        slope = evidence * torch.polygamma(1, a) - committed * torch.polygamma(1, total)
        return torch.mul(gradient[..., None], slope)


def annealed(progress: Tensor, anneal: Anneal, epochs: int) -> Tensor:
    """Return min(2 t / T, 1) at epoch t of T: it rises over the first half of the training.

    "from-one" counts epochs from 1, as the paper writes; "from-zero" from 0, as its code does.
    """
    ahead = 1 / epochs if anneal == "from-one" else 0.0
    return (2 * (progress + ahead)).clamp(max=1)


@dataclass(frozen=True)
class Edl(DeepMethod):
    """Evidential classifier on constant label weights; other methods derive from it."""

    added_fields: ClassVar[dict[str, Any]] = DeepMethod.added_fields | {"kl_per_class": False}

    kl_ceiling: Number = 1.0
    anneal: Anneal = "from-one"
    evidence: Evidence = "relu"
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        evidence = self.evidence_of(net(batch.x))
        error = evidential_error(evidence, batch.label_weights)
        return error + self.divergence(evidence, batch, progress), {}

    def divergence(self, evidence: Tensor, batch: Batch, progress: Tensor) -> Tensor:
        """Return the annealed divergence of evidence for classes outside the candidates, (M, b)."""
        ceiling, k = self.kl_ceiling, batch.candidates.shape[-1]  # (M, 1)
        if k >= MANY_CLASSES:
            ceiling = ceiling * self.kl_scale_large_k
        if self.kl_per_class:
            ceiling = ceiling / max(k, FEW_CLASSES)
        coefficient = ceiling * annealed(progress, self.anneal, self.epochs)
        return torch.mul(coefficient, flat_kl(evidence * ~batch.candidates))

    def evidence_of(self, logits: Tensor) -> Tensor:
        return EVIDENCE[self.evidence](logits)

    def opinion(self, logits: Tensor) -> Opinion:
        return Opinion.of_evidence(self.evidence_of(logits))

    def scores(self, outputs: Tensor) -> Tensor:
        return (self.evidence_of(outputs) + 1).log()


@dataclass(frozen=True)
class ProdenEdl(Edl):
    """Proden resolves the candidates; a new evidential network then learns one label per row.

    Its loss is that of evidential deep learning: the expected squared error to the label, and a
    divergence that removes evidence from all other classes. Both trainings have the same epochs.

    Parameters
    ----------
    kl_ceiling, anneal, evidence, kl_scale_large_k, kl_per_class
        As in `RobustPll`.
    prior : {"label", "uniform"}
        Whether a training row's uncertainty belongs to its label, or to all classes equally. A row
        without evidence then has no label.

    Notes
    -----
    ``ProdenEdl.paper()`` differs in ``anneal="from-zero"``, ``prior="uniform"``, and in
    ``kl_scale_large_k=1.0``: with 100 classes or more, it learns very little.

    Examples
    --------
    >>> ProdenEdl().kl_scale_large_k, ProdenEdl.paper().kl_scale_large_k
    (0.0005, 1.0)
    """

    name = "proden_edl"
    title = "Proden+Edl"
    citation = (
        f"{Proden.citation}; Sensoy, Kaplan, Kandemir: Evidential Deep Learning to Quantify "
        "Classification Uncertainty. NeurIPS 2018"
    )
    uncertain = True
    cost = 2.0
    trains_twice = True
    paper_fields: ClassVar[dict[str, Any]] = {
        "anneal": "from-zero",
        "prior": "uniform",
        "kl_scale_large_k": 1.0,
    }

    prior: Literal["label", "uniform"] = "label"

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        shared = {name: getattr(self, name) for name in Proden.field_names()}
        opinion = train(Proden(**shared), task).opinion
        ties = [np.random.default_rng(seed_of(seed, self.name, "ties")) for seed in task.seeds]
        labels = torch.stack([opinion[run].predicted(tie) for run, tie in enumerate(ties)])
        return train(self, task.with_candidates(one_hot(labels, task.k).bool()), watch=watch)

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
