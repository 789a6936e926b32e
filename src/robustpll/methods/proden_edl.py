"""Proden+Edl: Proden resolves the labels, an evidential network learns them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

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
    """Proden resolves the candidates; a new evidential network then learns one label per row.

    Its loss is that of evidential deep learning (Sensoy et al., NeurIPS 2018): the expected squared
    error to the label, and a divergence that removes evidence from all other classes. Both
    trainings have the same number of epochs.

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
    ``kl_scale_large_k=1.0``: with 100 classes or more its divergence has full weight, unlike that
    of RobustPll, and it learns very little.

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
    trains_twice = True

    prior: Literal["label", "uniform"] = "label"

    @classmethod
    def paper(cls) -> Self:
        return cls(anneal="from-zero", prior="uniform", kl_scale_large_k=1.0)

    @property
    def cost(self) -> float:
        return 2.0

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        opinion = train(Proden.like(self), task).opinion
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
