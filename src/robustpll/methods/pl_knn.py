"""PlKnn (Hüllermeier and Beringer, 2006)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from robustpll.methods.base import Count
from robustpll.methods.classical import SETS, TABLE, ClassicalMethod, OneRun, Tensors
from robustpll.methods.neighbours import neighbours, weighted_sum
from robustpll.opinion import Opinion

SAME_PLACE = 1e-6  # a smaller sum of distances says nothing about closeness
NO_VOTES = 1e-10


@dataclass(frozen=True)
class PlKnn(ClassicalMethod):
    """The nearest training rows vote for all their candidates, closer ones with more weight.

    With r_m the distance of neighbour m and S_m its candidates, class j gets v_j = sum_m (1 - r_m /
    sum_l r_l) [j in S_m] votes and the probability v_j / sum_i v_i. If all neighbours coincide with
    the row, or there is only one, each counts fully. The neighbours of a training row are other
    rows, and only its own candidates get votes. `random_state` has no effect.

    Parameters
    ----------
    neighbours : int
        Number of neighbours that vote; all other rows if there are fewer.
    undecided : {"prior", "all"}
        If its neighbours have none of its candidates, a training row keeps its prior (annotators'
        votes or equal weights), or all classes become equally probable, as in ``PlKnn.paper()``.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X = [[0.0], [1], [2], [10], [11], [12]]
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> PLLClassifier(PlKnn(neighbours=2)).fit(X, y).predict_proba([[0.25]])
    array([[0.57..., 0.42..., 0.        ]])
    """

    name = "pl_knn"
    title = "PlKnn"
    citation = (
        "Hüllermeier, Beringer: Learning from Ambiguously Labeled Examples. "
        "Intelligent Data Analysis 2006"
    )
    cost = (0.6, 2.0)
    learns: ClassVar = {"rows": TABLE, "candidates": SETS}
    paper_fields: ClassVar = {"undecided": "all"}

    neighbours: Count = 10
    undecided: Literal["prior", "all"] = "prior"

    def precompute(self, x: Tensor, learned: Tensors | None = None) -> Tensors:
        rows = x if learned is None else learned["rows"]
        return neighbours(x, rows, self.neighbours, itself=learned is None)._asdict()

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        votes = votes_of(candidates=run.candidates, **run.precomputed) * run.candidates
        otherwise = run.prior if self.undecided == "prior" else torch.ones_like(run.prior)
        return {"rows": run.x, "candidates": run.candidates}, _opinion(votes, otherwise)

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        votes = votes_of(candidates=learned["candidates"], **precomputed)
        return _opinion(votes, torch.ones_like(votes))


def votes_of(indices: Tensor, distance: Tensor, candidates: Tensor) -> Tensor:
    """Return the votes (q, k) of rows at indices (q, m), at distances, for candidates (n, k)."""
    total = distance.sum(-1, keepdim=True)
    informative = (total >= SAME_PLACE) & (distance.shape[1] > 1)
    closeness = torch.where(informative, 1 - distance / total, 1.0)
    return weighted_sum(closeness, candidates.to(distance), indices)


def _opinion(votes: Tensor, otherwise: Tensor) -> Opinion:
    """Shares of the votes (q, k); where there are none, of `otherwise`."""
    votes = torch.where(votes.sum(-1, keepdim=True) < NO_VOTES, otherwise, votes)
    return Opinion.of_probability(votes / votes.sum(-1, keepdim=True))
