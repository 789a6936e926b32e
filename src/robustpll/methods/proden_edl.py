"""Proden+Edl: Proden names the labels, an evidential network learns them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.engine.data import State, Task
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.engine.train import train
from robustpll.methods.evidential import Edl
from robustpll.methods.proden import Proden
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class ProdenEdl(Edl):
    """Proden resolves the candidates; a fresh evidential network then learns one label a row.

    Its loss is that of evidential deep learning (Sensoy et al., NeurIPS 2018): the expected squared
    error to the label, and a divergence that removes evidence from all other classes. The two
    trainings have as many epochs each.

    Parameters
    ----------
    kl_ceiling, anneal, evidence, kl_scale_large_k, kl_per_class
        As of `RobustPll`.
    prior : {"label", "uniform"}
        Where a training row's uncommitted mass belongs: to its label, or to all classes alike, so
        that a row without evidence has no label any more.

    Notes
    -----
    ``ProdenEdl.paper()`` differs in ``anneal="from-zero"``, ``prior="uniform"``, and in
    ``kl_scale_large_k=1.0``: with 100 classes or more its divergence has full weight, unlike that
    of RobustPll, and hardly anything is learned.

    Examples
    --------
    >>> ProdenEdl().kl_scale_large_k, ProdenEdl.paper().kl_scale_large_k
    (0.0005, 1.0)
    """

    name: ClassVar[str] = "proden_edl"
    title: ClassVar[str] = "Proden+Edl"
    step_cost: ClassVar[float] = 2.0
    citation: ClassVar[str] = (
        f"{Proden.citation}; Sensoy, Kaplan, Kandemir: Evidential Deep Learning to Quantify "
        "Classification Uncertainty. NeurIPS 2018"
    )
    uncertain: ClassVar[bool] = True
    trains_twice: ClassVar[bool] = True

    prior: Literal["label", "uniform"] = "label"

    @classmethod
    def paper(cls) -> Self:
        return cls(anneal="from-zero", prior="uniform", kl_scale_large_k=1.0)

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        opinion = train(Proden.like(self), task).opinion
        coins = [np.random.default_rng(seed_of(seed, self.name, "ties")) for seed in task.seeds]
        named = torch.stack([opinion[run].predicted(coin) for run, coin in enumerate(coins)])
        return train(self, task.with_candidates(one_hot(named, task.k).bool()), watch=watch)

    def begin(self, task: Task) -> State:
        return State.of(task, uncertainty=1.0)

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        named = self.evidence_of(logits()) * task.candidates
        state.rows["uncertainty"] = task.k / (named.sum(-1, keepdim=True) + task.k)

    def training_opinion(self, task: Task, state: State) -> Opinion:
        if self.prior == "label":
            return super().training_opinion(task, state)
        uncertainty = state.rows["uncertainty"][..., 0].double()
        prior = torch.full_like(task.prior, 1 / task.k, dtype=torch.float64)
        return Opinion(task.candidates * (1 - uncertainty[..., None]), prior, uncertainty)
