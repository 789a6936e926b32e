"""Ipal (Zhang and Yu, IJCAI 2015)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.errors import Rule
from robustpll.methods.base import Count, normalize
from robustpll.methods.classical import SETS, TABLE, ClassicalMethod, OneRun, Tensors
from robustpll.methods.neighbours import blocks, neighbours, weighted_sum
from robustpll.opinion import Opinion

NOTHING = 1e-10  # weights and masses up to this count as 0
RIDGE = 1e-12  # makes the weights unique, so that equal neighbours share


@dataclass(frozen=True)
class Ipal(ClassicalMethod):
    """Labels spread over a graph in which each training row is a mixture of its neighbours.

    The weights w of a row's neighbours minimise |x - sum_m w_m x_m|^2 with w >= 0; neighbours at
    the same place share. Divided by their sum, they are the row's edges. Label weights F start from
    the prior P (annotators' votes, or uniform on the candidates) and are spread again and again,

        F_i = alpha sum_m w_im F_m + (1 - alpha) P_i,

    each time restricted to the candidates and divided by their sum. Finally, classes that gained
    are reduced: F_ij is multiplied by sum_i P_ij / sum_i F_ij.

    A new row is a mixture of its neighbours, too. With r_c the residual if only neighbours of class
    c keep their weights, probabilities are the softmax of -r_c^2. `random_state` has no effect.

    Parameters
    ----------
    neighbours : int
        Number of neighbours of a row; all others if there are fewer.
    alpha : float
        Share of a row's label weights that comes from its neighbours; from 0 to below 1.
    iterations : int
        How often label weights are spread.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X = [[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 3]]
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> model = PLLClassifier(Ipal(neighbours=2)).fit(X, y)
    >>> model.labels_
    array(['a', 'a', 'a', 'b', 'b', 'b'], dtype='<U1')
    >>> model.predict([[4, 0], [0, 4]])
    array(['a', 'b'], dtype='<U1')
    """

    name = "ipal"
    title = "Ipal"
    citation = (
        "Zhang, Yu: Solving the Partial Label Learning Problem: An Instance-Based Approach. "
        "IJCAI 2015"
    )
    cost = (2.0, 2.0)
    learns: ClassVar = {"rows": TABLE, "labels": SETS}

    neighbours: Count = 10
    alpha: Annotated[float, Rule("from 0 to below 1", lambda alpha: 0 <= alpha < 1)] = 0.95
    iterations: int = 100

    def precompute(self, x: Tensor, learned: Tensors | None = None) -> Tensors:
        rows = x if learned is None else learned["rows"]
        indices = neighbours(x, rows, self.neighbours, itself=learned is None).indices
        gram, along = products(x, rows, indices)
        weights = mixture_weights(gram, along)
        return {"indices": indices, "weights": weights, "gram": gram, "along": along}

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        indices, weights = run.precomputed["indices"], run.precomputed["weights"]
        edges = self.alpha * normalize(weights, weights)
        start = (1 - self.alpha) * run.prior
        spread = spread_as_pairs if run.x.device.type == "cpu" else spread_as_table
        labels = spread(edges, indices, start, run.candidates, self.iterations)  # (n, k)
        before, after = run.prior.sum(0), labels.sum(0)  # (k,)
        labels = labels * torch.where(after > NOTHING, before / after, 1.0)
        opinion = Opinion.of_probability(labels / labels.sum(-1, keepdim=True))
        resolved = one_hot(opinion.predicted(), run.candidates.shape[1]).bool()
        return {"rows": run.x, "labels": resolved}, opinion

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        return Opinion.of_probability((-residuals(learned["labels"], **precomputed)).softmax(-1))


def spread_as_table(
    edges: Tensor, indices: Tensor, start: Tensor, candidates: Tensor, iterations: int
) -> Tensor:
    """Spread label weights (n, k) along edges (n, m) to rows at indices, from (1 - alpha) P."""
    labels, allowed = start / start.sum(-1, keepdim=True), candidates.to(start)
    for _ in range(iterations):
        labels = weighted_sum(edges, labels, indices).add_(start).mul_(allowed)
        labels /= labels.sum(-1, keepdim=True)  # at least 1 - alpha
    return labels


def spread_as_pairs(
    edges: Tensor, indices: Tensor, start: Tensor, candidates: Tensor, iterations: int
) -> Tensor:
    """As `spread_as_table` on a CPU, by pairs of a row and a candidate: few of many classes."""
    mask, shares, first = candidates.numpy(), edges.numpy(), start.numpy()[candidates.numpy()]
    row, label = mask.nonzero()
    pair = np.where(mask, mask.cumsum().reshape(mask.shape) - 1, -1)  # number of a pair, (n, k)
    source = pair[indices.numpy()[row], label[:, None]]  # (pairs, m)
    shared = (source >= 0) & (shares[row] > 0)
    ends = np.append(0, shared.sum(1).cumsum())
    graph = csr_array((shares[row][shared], source[shared], ends), shape=(len(row), len(row)))
    sizes = mask.sum(1)
    starts = sizes.cumsum() - sizes
    weights = first / np.add.reduceat(first, starts).repeat(sizes)
    for _ in range(iterations):
        weights = graph @ weights + first
        weights /= np.add.reduceat(weights, starts).repeat(sizes)
    labels = torch.zeros_like(start)
    labels[candidates] = torch.from_numpy(weights)
    return labels


def products(x: Tensor, rows: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return products of rows at indices (q, m) with each other, (q, m, m), and with x, (q, m)."""
    (q, m), d = indices.shape, x.shape[1]
    gram, along = x.new_empty(q, m, m), x.new_empty(q, m)
    for block in blocks(q, m * d, x.device):
        columns = rows.index_select(0, indices[block].flatten()).view(-1, m, d)
        gram[block] = columns @ columns.mT
        along[block] = (columns @ x[block, :, None])[..., 0]
    return gram, along


def mixture_weights(gram: Tensor, along: Tensor) -> Tensor:
    """Return w >= 0 (q, m) that minimises |x - sum_m w_m x_m|, from the products of `products`."""
    # With L L' = G, the problem in d dimensions becomes min |L'w - L^-1 c| in m dimensions.
    device, gram, along = gram.device, gram.cpu(), along.cpu()
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    lengths = torch.where(lengths > 0, lengths, 1.0)
    unit = gram / (lengths[..., None] * lengths[:, None])
    unit.diagonal(dim1=-2, dim2=-1).add_(RIDGE * unit.shape[-1])
    factor = torch.linalg.cholesky(unit)
    target = torch.linalg.solve_triangular(factor, (along / lengths)[..., None], upper=False)
    problems = zip(factor.mT.contiguous().numpy(), target[..., 0].numpy(), strict=True)
    solved = [nnls(matrix, right, maxiter=30 * len(right))[0] for matrix, right in problems]
    weights = torch.from_numpy(np.array(solved)).view_as(along) / lengths
    return (weights * (weights > NOTHING)).to(device)


def residuals(
    labels: Tensor, indices: Tensor, weights: Tensor, gram: Tensor, along: Tensor
) -> Tensor:
    """Return |x - sum_{m of class c} w_m x_m|^2 - |x|^2 of each class c, (q, k); labels (n, k)."""
    shares = weights[..., None] * labels[indices]  # (q, m, k)
    return (shares * (gram @ shares - 2 * along[..., None])).sum(1)
