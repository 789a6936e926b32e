"""Ipal (Zhang and Yu, IJCAI 2015)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.engine.networks import Shape
from robustpll.errors import InputError
from robustpll.methods.classical import ClassicalMethod, Layout, Learned, OneRun
from robustpll.methods.maths import normalize
from robustpll.methods.neighbours import nearest, weighted_sum
from robustpll.methods.nnls import nonnegative_weights
from robustpll.opinion import Opinion

NUMBERS_AT_ONCE = 2**22  # of the neighbours of one block of rows; 32 MiB
NOTHING = 1e-10  # weights and masses up to this count as 0


@dataclass(frozen=True)
class Ipal(ClassicalMethod):
    """Labels spread over a graph in which each training row is a mixture of its neighbours.

    The weights w of a row's neighbours are those that give back the row best,
    min |x - sum_m w_m x_m|^2 with w >= 0; divided by their sum they are the row's edges. Label
    weights F start from the prior P, which is uniform on the candidates unless annotators voted,
    and are spread again and again,

        F_i = alpha sum_m w_im F_m + (1 - alpha) P_i,

    each time restricted to the candidates and divided by their sum. At last, classes that have
    gained are weighed down: F_ij is multiplied by sum_i P_ij / sum_i F_ij.

    Another row is given back by its neighbours in the same way, and then by those alone that were
    resolved to class c, with the same weights. Probabilities are the softmax of -r_c, the squared
    length that is left over: the class that explains the row best is the most probable. Nothing is
    random: `random_state` has no effect.

    Parameters
    ----------
    neighbours : int
        How many a row is made of; all others where there are fewer.
    alpha : float
        Share of a row's label weights that comes from its neighbours; from 0 to below 1.
    iterations : int
        How often label weights are spread.

    Notes
    -----
    ``Ipal.paper()`` is the plain constructor. The weights w are exact (see `nonnegative_weights`):
    where several are best, as for neighbours at the same place, such neighbours share.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.array([[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 3]])
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> model = PLLClassifier(Ipal(neighbours=2)).fit(X, y)
    >>> model.labels_
    array(['a', 'a', 'a', 'b', 'b', 'b'], dtype='<U1')
    >>> model.predict([[4, 0], [0, 4]])
    array(['a', 'b'], dtype='<U1')
    """

    name: ClassVar[str] = "ipal"
    title: ClassVar[str] = "Ipal"
    citation: ClassVar[str] = (
        "Zhang, Yu: Solving the Partial Label Learning OneRun: An Instance-Based Approach. "
        "IJCAI 2015"
    )

    neighbours: int = 10
    alpha: float = 0.95
    iterations: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha >= 1:
            msg = f"The 'alpha' of Ipal must be a float below 1. Got {self.alpha!r} instead."
            raise InputError(msg)

    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        rows, k = run.x, run.candidates.shape[1]
        at = nearest(rows, rows, self.neighbours, itself=True)
        weights = torch.cat([mixture.weights for mixture in mixtures(rows, rows, at)])
        spread = self._spread(normalize(weights, weights), at, run)
        before, after = run.prior.sum(0), spread.sum(0)  # (k,)
        spread *= torch.where(after > NOTHING, before / after, 1.0)
        opinion = Opinion.of_probability(spread / spread.sum(-1, keepdim=True))
        return {"rows": rows, "labels": one_hot(opinion.predicted(), k).bool()}, opinion

    def _spread(self, edges: Tensor, at: Tensor, run: OneRun) -> Tensor:
        """Label weights (n, k) after all iterations."""
        own = (1 - self.alpha) * run.prior
        spread = run.prior
        for _ in range(self.iterations):
            spread = own + self.alpha * weighted_sum(edges, spread, at)
            spread *= run.candidates
            spread /= spread.sum(-1, keepdim=True)  # 1 - alpha at the least
        return spread

    def judge(self, learned: Learned, x: Tensor) -> Opinion:
        rows, labels = learned["rows"], learned["labels"]
        at = nearest(x, rows, self.neighbours)
        parts = [mixture.left_over(labels) for mixture in mixtures(x, rows, at)]
        return Opinion.of_probability((-torch.cat(parts)).softmax(-1))

    def layout(self, shape: Shape, k: int) -> Layout:
        return {
            "rows": (torch.float64, ("n", torch.Size(shape).numel())),
            "labels": (torch.bool, ("n", k)),
        }


@dataclass(frozen=True)
class Mixture:
    """A block of rows as mixtures of their neighbours."""

    at: Tensor  # (b, m): the neighbours
    columns: Tensor  # (b, m, d): their numbers
    target: Tensor  # (b, d)
    weights: Tensor  # (b, m)

    def left_over(self, labels: Tensor) -> Tensor:
        """|x - sum_{m of class c} w_m x_m|^2 - |x|^2 of each class c, (b, k); labels are (n, k)."""
        own = self.weights[..., None] * labels[self.at]  # (b, m, k)
        gram = self.columns @ self.columns.mT
        along = self.columns @ self.target[..., None]  # (b, m, 1)
        return (own * (gram @ own - 2 * along)).sum(1)


def mixtures(x: Tensor, rows: Tensor, at: Tensor) -> Iterator[Mixture]:
    """Rows x (q, d) as mixtures of the rows (n, d) at (q, m), block by block."""
    size = max(1, NUMBERS_AT_ONCE // (at.shape[1] * rows.shape[1]))
    for target, each in zip(torch.split(x, size), torch.split(at, size), strict=True):
        columns = rows[each]
        weights = nonnegative_weights(columns, target)
        yield Mixture(each, columns, target, weights * (weights > NOTHING))
