"""Ipal (Zhang and Yu, IJCAI 2015)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.engine.networks import Shape
from robustpll.errors import InputError
from robustpll.methods.classical import Around, ClassicalMethod, Layout, Learned, OneRun
from robustpll.methods.losses import normalize
from robustpll.methods.neighbours import nearest, weighted_sum
from robustpll.methods.nnls import weights_from
from robustpll.methods.numba_utils import threads
from robustpll.opinion import Opinion

NUMBERS_AT_ONCE = 2**20  # of the neighbours of some rows; 8 MiB, so that they stay in the cache
PROBLEMS_AT_ONCE = 2**11  # of one thread
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
    seconds: ClassVar[tuple[float, float]] = (2.0, 2.0)
    citation: ClassVar[str] = (
        "Zhang, Yu: Solving the Partial Label Learning Problem: An Instance-Based Approach. "
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

    def around(self, x: Tensor, learned: Learned | None = None) -> Around:
        rows = x if learned is None else learned["rows"]
        at = nearest(x, rows, self.neighbours, itself=learned is None)
        parts = (torch.split(each, PROBLEMS_AT_ONCE) for each in (x, at))
        with threads(x.device) as each:
            found = list(each(lambda some, near: mixed(some, rows, near), *parts))
        gram, along, weights = (torch.cat(each) for each in zip(*found, strict=True))
        return {"at": at, "weights": weights, "gram": gram, "along": along}

    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        spread = self._spread(run)
        before, after = run.prior.sum(0), spread.sum(0)  # (k,)
        spread *= torch.where(after > NOTHING, before / after, 1.0)
        opinion = Opinion.of_probability(spread / spread.sum(-1, keepdim=True))
        labels = one_hot(opinion.predicted(), run.candidates.shape[1]).bool()
        return {"rows": run.x, "labels": labels}, opinion

    def _spread(self, run: OneRun) -> Tensor:
        """Label weights (n, k) after all iterations."""
        at, weights = run.around["at"], run.around["weights"]
        edges = self.alpha * normalize(weights, weights)
        own = (1 - self.alpha) * run.prior
        spread = spread_as_pairs if run.x.device.type == "cpu" else spread_as_table
        return spread(edges, at, own, run.candidates, self.iterations)

    def judge(self, learned: Learned, x: Tensor, around: Around) -> Opinion:
        return Opinion.of_probability((-left_over(learned["labels"], **around)).softmax(-1))

    def layout(self, shape: Shape, k: int) -> Layout:
        return {
            "rows": (torch.float64, ("n", torch.Size(shape).numel())),
            "labels": (torch.bool, ("n", k)),
        }


def spread_as_table(
    edges: Tensor, at: Tensor, own: Tensor, candidates: Tensor, iterations: int
) -> Tensor:
    """Label weights (n, k) from edges (n, m) to the rows at (n, m), and a row's own part (n, k)."""
    spread, allowed = own / own.sum(-1, keepdim=True), candidates.to(own)
    for _ in range(iterations):
        spread = weighted_sum(edges, spread, at).add_(own).mul_(allowed)
        spread /= spread.sum(-1, keepdim=True)  # 1 - alpha at the least
    return spread


def spread_as_pairs(
    edges: Tensor, at: Tensor, own: Tensor, candidates: Tensor, iterations: int
) -> Tensor:
    """As `spread_as_table`, by a list of all candidates of all rows, on the host.

    A row takes from a neighbour what is a candidate of both: little where there are many classes.
    """
    held, shares, start = candidates.numpy(), edges.numpy(), own.numpy()[candidates.numpy()]
    row, label = held.nonzero()
    pair = np.where(held, held.cumsum().reshape(held.shape) - 1, -1)  # its number, (n, k)
    source = pair[at.numpy()[row], label[:, None]]  # (pairs, m)
    met = (source >= 0) & (shares[row] > 0)
    ends = np.append(0, met.sum(1).cumsum())
    graph = csr_array((shares[row][met], source[met], ends), shape=(len(row), len(row)))
    sizes = held.sum(1)
    first = sizes.cumsum() - sizes
    spread = start / np.add.reduceat(start, first).repeat(sizes)
    for _ in range(iterations):
        spread = graph @ spread + start
        spread /= np.add.reduceat(spread, first).repeat(sizes)
    found = torch.zeros_like(own)
    found[candidates] = torch.from_numpy(spread)
    return found


def mixed(x: Tensor, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Products and mixtures of x (q, d) and the rows at (q, m)."""
    gram, along = products(x, rows, at)
    return gram, along, mixtures(gram, along, x)


def products(x: Tensor, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Of the rows (n, d) at (q, m) with each other, (q, m, m), and with x (q, d), (q, m)."""
    gram, along = [], []
    size = max(1, NUMBERS_AT_ONCE // (at.shape[1] * x.shape[1]))
    for some, near in zip(torch.split(x, size), torch.split(at, size), strict=True):
        columns = rows[near]
        gram.append(columns @ columns.mT)
        along.append((columns @ some[..., None])[..., 0])
    return torch.cat(gram), torch.cat(along)


def mixtures(gram: Tensor, along: Tensor, x: Tensor) -> Tensor:
    """Weights (q, m) by which neighbours with these products give back rows x (q, d) best."""
    weights = weights_from(gram, along, x.norm(dim=-1))
    return weights * (weights > NOTHING)


def left_over(labels: Tensor, at: Tensor, weights: Tensor, gram: Tensor, along: Tensor) -> Tensor:
    """|x - sum_{m of class c} w_m x_m|^2 - |x|^2 of each class c, (q, k); labels are (n, k)."""
    own = weights[..., None] * labels[at]  # (q, m, k)
    return (own * (gram @ own - 2 * along[..., None])).sum(1)
