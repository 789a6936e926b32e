"""RobustPll (Fuchs & Kalinke)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.errors import InputError
from robustpll.methods.base import Number
from robustpll.methods.evidential import Edl, evidential_error, surprise
from robustpll.methods.losses import normalize
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class RobustPll(Edl):
    """Evidence for the candidates; what is not committed is shared among them.

    The network's outputs are evidence e >= 0 of a Dirichlet distribution with mean p. Its loss is
    the expected squared error to the label weights l, plus a divergence that removes evidence from
    classes that are no candidates. Given p, the best weights on the candidates S are known in
    closed form: l_j = p_j + (1 - sum_{S} p) / |S|. They are an opinion: belief e_j / A on the
    candidates, everything else uncertainty, shared by the prior. With a prior from votes it is the
    votes that share it; that is still an opinion, but no longer the minimum of the loss.

    Parameters
    ----------
    kl_ceiling : float or tuple with one for each member
        Final weight of the divergence, reached at half of the training; by default times the number
        of classes, see `kl_per_class`.
    anneal : {"from-one", "from-zero"}
        Whether epochs are counted from 1 or from 0 on the way to the ceiling.
    loss : {"squared", "cross-entropy"}
        Expected squared error, or expected cross-entropy. The best weights of the latter put all
        mass on the candidate with most evidence, and share it among tied ones.
    update : {"before", "after"}
        Whether label weights come from the forward pass before the optimiser's step, or from one
        more pass after it.
    evidence : {"relu", "softplus", "exp"}
        How outputs become evidence. "exp" is capped at e^10.
    kl_scale_large_k : float
        Factor on the ceiling where there are 100 classes or more.
    kl_per_class : bool
        Whether the ceiling is divided by the number of classes, or by 10 where they are fewer: the
        divergence grows with it, the error does not.
    balance : float
        From 0 to 1: how strongly label weights are moved to candidates that few rows of the batch
        are given to. 1 says that all classes are equally frequent. Noise that depends on the rows
        can let classes die out, which this works against. For ``loss="squared"`` alone.

    Notes
    -----
    The plain constructor counts the divergence by class, so that one ceiling serves any number of
    classes; up to ten it is what the paper has. ``RobustPll.paper()`` has the published rule, a
    ceiling of 1 and from 100 classes on 0.0005, and ``anneal="from-zero"``.

    Examples
    --------
    >>> RobustPll().kl_ceiling, RobustPll.paper().kl_ceiling, RobustPll.paper().anneal
    (10.0, 1.0, 'from-zero')
    """

    name: ClassVar[str] = "robust_pll"
    title: ClassVar[str] = "RobustPll"
    citation: ClassVar[str] = (
        "Fuchs, Kalinke: Robust Partial-Label Learning by Leveraging Class Activation Values. 2025"
    )
    uncertain: ClassVar[bool] = True

    kl_ceiling: Number = 10.0
    kl_scale_large_k: Number = 1.0
    kl_per_class: bool = True
    loss: Literal["squared", "cross-entropy"] = "squared"
    update: Literal["before", "after"] = "before"
    balance: float = 0.0
    added_fields: ClassVar[Mapping[str, object]] = {**Edl.added_fields, "balance": 0.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balance and self.loss != "squared":
            msg = f'A balance is for loss="squared"; got {self.balance!r} with {self.loss!r}.'
            raise InputError(msg)

    @classmethod
    def paper(cls) -> Self:
        return cls(anneal="from-zero", kl_ceiling=1.0, kl_per_class=False, kl_scale_large_k=0.0005)

    def begin(self, task: Task) -> State:
        if self.loss == "squared":
            return State.of(task, uncertainty=1.0)
        return State.of(task, uncertainty=1.0, belief=torch.zeros_like(task.prior))

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        evidence = self.evidence_of(net(batch.x))
        loss = self.error(evidence, batch) + self.divergence(evidence, batch, progress)
        return loss, {} if self.second_pass else self.reweigh(evidence.detach(), batch)

    def error(self, evidence: Tensor, batch: Batch) -> Tensor:
        """Expected under the Dirichlet of some evidence (M, b, k), to the label weights, (M, b)."""
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
        """The label weights that are best for this evidence (M, b, k), and the uncertainty."""
        held = Opinion.of_evidence(evidence, batch.prior).within(batch.candidates)
        uncertainty = held.uncertainty[..., None]
        if self.loss == "squared" and self.balance:
            return self.balanced(held, batch)
        if self.loss == "squared":
            return {"label_weights": held.probability, "uncertainty": uncertainty}
        best = evidence.masked_fill(~batch.candidates, -1).amax(-1, keepdim=True)
        tied = batch.candidates & (evidence == best)
        weights = normalize(tied.to(evidence.dtype), batch.prior)
        return {"label_weights": weights, "belief": held.belief, "uncertainty": uncertainty}

    def balanced(self, held: Opinion, batch: Batch) -> dict[str, Tensor]:
        """Its probability, by the share of each class in the batch; no more uncertain than it."""
        weights = held.probability
        relative = (weights.shape[-1] * weights.mean(-2, keepdim=True)).clamp(min=0.01)
        weights = normalize(weights / relative**self.balance, batch.prior)
        # belief is what is left of the weights, and must not be negative
        most = torch.where(batch.prior > 0, weights / batch.prior, torch.inf).amin(-1)
        uncertainty = torch.minimum(held.uncertainty, most)[..., None]
        return {"label_weights": weights, "uncertainty": uncertainty}
