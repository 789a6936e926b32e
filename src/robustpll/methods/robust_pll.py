"""RobustPll and RobustPll+Ens (Fuchs & Kalinke)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.errors import InputError
from robustpll.methods.base import Number, Step
from robustpll.methods.evidential import Edl, evidential_error, surprise
from robustpll.methods.losses import normalize
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class RobustPll(Edl):
    """Evidence for the candidates; the remaining uncertainty is shared among them.

    The network's outputs are evidence e >= 0 of a Dirichlet distribution with mean p. Its loss is
    the expected squared error to the label weights l, plus a divergence that removes evidence from
    classes that are not candidates. Given p, the optimal weights on the candidates S are l_j = p_j
    + (1 - sum_{S} p) / |S|. They are an opinion: belief e_j / A on the candidates, the rest
    uncertainty, shared by the prior. With votes of annotators as prior, they still are an opinion,
    but not the minimum of the loss.

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
        1 assumes equally frequent classes. It helps if noise that depends on the rows lets classes
        die out. Only for ``loss="squared"``.

    Notes
    -----
    ``RobustPll.paper()`` has the published rule, a ceiling of 1 and from 100 classes on 0.0005, and
    ``anneal="from-zero"``. The plain constructor has the same ceiling up to ten classes.

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
    balance: float = 0.0

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
        evidence = self.evidence_of(net(batch.x))
        loss = self.error(evidence, batch) + self.divergence(evidence, batch, progress)
        return loss, {} if self.second_pass else self.reweigh(evidence.detach(), batch)

    def error(self, evidence: Tensor, batch: Batch) -> Tensor:
        """Return the expected error to the label weights, given evidence (M, b, k), (M, b)."""
        if self.loss == "squared":
            return evidential_error(evidence, batch.label_weights)
        return (batch.label_weights * surprise(evidence)).sum(-1)

    @property
    def second_pass(self) -> bool:
        return self.update == "after"

    def after_step(self, net: nn.Module, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad(), steady_statistics(net):
            return self.reweigh(self.evidence_of(net(batch.x)), batch)

    def training_opinion(self, task: Task, state: State) -> Opinion:
        if self.loss == "squared":  # label weights are the opinion's probability
            return super().training_opinion(task, state)
        belief, uncertainty = state.rows["belief"].double(), state.rows["uncertainty"].double()
        return Opinion(belief, task.prior.double(), uncertainty[..., 0])

    def reweigh(self, evidence: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the label weights that are optimal for evidence (M, b, k), and uncertainty."""
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

    members: int = 5
    kl_ceiling: Number = (0.5, 1.0, 2.0, 4.0, 8.0)
    kl_scale_large_k: Number = 0.0005
    kl_per_class: bool = False
