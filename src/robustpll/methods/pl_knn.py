"""PlKnn (Hüllermeier and Beringer, 2006)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from robustpll.engine.networks import Shape
from robustpll.methods.classical import Around, ClassicalMethod, Layout, Learned, OneRun
from robustpll.methods.neighbours import neighbours, weighted_sum
from robustpll.opinion import Opinion

SAME_PLACE = 1e-6  # a sum of distances below this tells nothing about closeness
NO_VOTES = 1e-10


@dataclass(frozen=True)
class PlKnn(ClassicalMethod):
    """The nearest training rows vote for all their candidates, closer ones with more weight.

    With r_m the distance of neighbour m and S_m its candidates, class j gets the votes

        v_j = sum_m (1 - r_m / sum_l r_l) [j in S_m]

    and the probability v_j / sum_i v_i. Where all neighbours are at the row's own place, or there
    is only one, each counts fully. For a training row, its neighbours are other rows, and only its
    own candidates get votes. A training row whose neighbours have none of its candidates keeps its
    prior: votes of annotators where there are such, else its candidates alike. Nothing is random:
    `random_state` has no effect.

    Parameters
    ----------
    neighbours : int
        How many of them vote; all others where there are fewer.
    undecided : {"prior", "all"}
        What becomes of a training row whose neighbours have none of its candidates: it keeps its
        prior, or all classes become equally probable, candidates or not.

    Notes
    -----
    ``PlKnn.paper()`` differs in ``undecided="all"``.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.array([[0.0], [1], [2], [10], [11], [12]])
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> model = PLLClassifier(PlKnn(neighbours=2)).fit(X, y)
    >>> model.labels_
    array(['a', 'a', 'a', 'b', 'b', 'b'], dtype='<U1')
    >>> model.predict_proba([[0.25]])
    array([[0.57..., 0.42..., 0.        ]])
    """

    name: ClassVar[str] = "pl_knn"
    title: ClassVar[str] = "PlKnn"
    seconds: ClassVar[tuple[float, float]] = (0.6, 2.0)
    citation: ClassVar[str] = (
        "Hüllermeier, Beringer: Learning from Ambiguously Labeled Examples. "
        "Intelligent Data Analysis 2006"
    )

    neighbours: int = 10
    undecided: Literal["prior", "all"] = "prior"

    @classmethod
    def paper(cls) -> Self:
        return cls(undecided="all")

    def around(self, x: Tensor, learned: Learned | None = None) -> Around:
        rows = x if learned is None else learned["rows"]
        return neighbours(x, rows, self.neighbours, itself=learned is None)._asdict()

    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        given = votes(candidates=run.candidates, **run.around) * run.candidates
        kept = run.prior if self.undecided == "prior" else torch.ones_like(run.prior)
        return {"rows": run.x, "candidates": run.candidates}, _opinion(given, kept)

    def judge(self, learned: Learned, x: Tensor, around: Around) -> Opinion:
        given = votes(candidates=learned["candidates"], **around)
        return _opinion(given, torch.ones_like(given))

    def layout(self, shape: Shape, k: int) -> Layout:
        return {
            "rows": (torch.float64, ("n", torch.Size(shape).numel())),
            "candidates": (torch.bool, ("n", k)),
        }


def votes(distance: Tensor, candidates: Tensor, at: Tensor) -> Tensor:
    """Of the rows at (q, m) in those distances, for all their candidates (n, k); (q, k).

    >>> candidates = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 1]]).bool()
    >>> votes(torch.tensor([[1.0, 2, 2]]), candidates, torch.tensor([[0, 1, 2]]))
    tensor([[0.8000, 2.0000, 0.6000]])
    """
    total = distance.sum(-1, keepdim=True)
    telling = (total >= SAME_PLACE) & (distance.shape[1] > 1)
    closeness = torch.where(telling, 1 - distance / total, 1.0)
    return weighted_sum(closeness, candidates.to(distance), at)


def _opinion(given: Tensor, undecided: Tensor) -> Opinion:
    """Shares of the votes (q, k); where there are none, of `undecided`."""
    given = torch.where(given.sum(-1, keepdim=True) < NO_VOTES, undecided, given)
    return Opinion.of_probability(given / given.sum(-1, keepdim=True))
