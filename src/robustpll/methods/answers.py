"""What is known about the labels of training rows: answers of annotators, or candidates."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from robustpll.engine.data import Task
from robustpll.labels.annotators import Crowd, Kind, first_crowd, resolve
from robustpll.labels.distractors import distractor_rates
from robustpll.labels.votes import Floats, normalized
from robustpll.opinion import Opinion

JUDGED = 2e6  # numbers (rows * classes) that a model is judged by
ANSWERED = 20_000  # most rows with answers that annotators and a model are judged by together


@dataclass(frozen=True)
class Answers:
    """What is known about the labels of one run's rows, on the host."""

    candidates: NDArray[np.bool_]  # (n, k)
    prior: Floats  # (n, k): of the candidates; rows sum to 1
    likelihood: Floats  # (n, k): of the answers or the set, for each true class; rows sum to 1
    weight: Floats  # (n,): sample weights
    codes: NDArray[np.int64] | None  # (n, annotators), see Task.answers
    kind: Kind = "hierarchical"  # of the crowd
    total: float = 0.0  # logarithm of what the likelihoods were divided by, for all rows

    @classmethod
    def of(cls, task: Task, kind: Kind = "hierarchical") -> Self:
        """Read them from a task of one run; sets are equally likely for each of their classes."""
        candidates, weight = task.candidates[0].cpu().numpy(), task.weight[0].double().cpu().numpy()
        prior = normalized(task.prior[0].double().cpu().numpy())
        answers = cls(candidates, prior, prior, weight, None, kind)
        if task.answers is None:
            return answers
        return replace(answers, codes=task.answers[0].cpu().numpy()).told()

    def given(self, probability: Floats) -> Self:
        """Estimate anew how often candidates are distractors, given probabilities (n, k)."""
        rows = self.judged
        rates = distractor_rates(self.candidates[rows], probability[rows], self.weight[rows])
        return replace(self, likelihood=normalized(self.prior / rates))

    def told(self, probability: Floats | None = None, mistakes: float = 0.0) -> Self:
        """Estimate anew what answers tell, given a model's probabilities (n, k), if any."""
        assert self.codes is not None
        answered = (self.codes >= 0).any(-1)
        teaches = answered & (self.weight > 0)
        if not teaches.any():
            return self
        codes, k = self.codes[teaches], self.candidates.shape[1]
        if probability is None:
            crowd = first_crowd(codes, k)
        else:
            crowd = Crowd.fit(codes, k, probability[teaches], kind=self.kind, mistakes=mistakes)
        logs = crowd.log_likelihood(self.codes[answered])
        likelihood, sums = self.likelihood.copy(), logsumexp(logs, axis=-1)
        likelihood[answered] = np.exp(logs - sums[:, None])
        total = float(self.weight[answered] @ sums)
        return replace(self, likelihood=likelihood, total=total)

    def part(self, rows: NDArray[np.bool_]) -> Self:
        """The answers of some of the rows."""
        codes = None if self.codes is None else self.codes[rows]
        arrays = ("candidates", "prior", "likelihood", "weight")
        return replace(self, codes=codes, **{name: getattr(self, name)[rows] for name in arrays})

    def within_candidates(self) -> Floats:
        """The likelihood of the candidates alone, (n, k); rows sum to 1."""
        return normalized(self.likelihood * self.candidates)

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Rows that exponents are fitted to, (n,); at most so many that it takes seconds."""
        chosen = np.flatnonzero(self.weight > 0)
        most = max(500, int(JUDGED / self.candidates.shape[1]))
        most = most if self.codes is None else min(most, ANSWERED)
        rows = np.zeros(len(self.weight), dtype=bool)
        rows[chosen[:: max(1, -(-len(chosen) // most))]] = True
        return rows

    def resolved(self, held_out: Opinion, mistakes: float, *, is_seen: bool) -> Opinion:
        """The opinion of rows with answers: the class may be one that nobody named.

        A model that saw the answers is no second witness, and only tells about other rows.
        """
        assert self.codes is not None
        model = held_out.probability.numpy()
        witness = np.full_like(model, 1 / model.shape[-1]) if is_seen else model
        resolved = resolve(self.codes, witness, kind=self.kind, mistakes=mistakes).probability
        silent = (self.codes < 0).all(-1)  # their candidates are not made of certain answers
        resolved[silent] = normalized(model[silent] * self.prior[silent])
        probability, k = torch.from_numpy(resolved), resolved.shape[-1]
        uncertainty = torch.minimum(held_out.uncertainty, k * probability.amin(-1))
        prior = torch.full_like(probability, 1 / k)
        return Opinion(probability - uncertainty[:, None] / k, prior, uncertainty)
