"""Non-negative least squares: many small problems at once."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.methods.numba_utils import compiled

Floats = NDArray[np.float64]

RIDGE = 1e-12  # of the trace: of many solutions it takes the shortest, so that duplicates share
LEAST_PIVOT = 1e-13  # below the ridge: less is rounding
ROUNDING = 1e-14  # what a column gains must be above this, or it is noise
GUESSES = 3  # of the columns in use; most are right
MANY = 500  # problems for which compiled code is worth starting
STEPS = 10  # for each column: several times what was ever seen, as rounding could make circles


def nonnegative_weights(columns: Tensor, target: Tensor) -> Tensor:
    """w >= 0 that minimises |target - sum_m w_m columns_m|, for b problems at once, (b, m).

    columns (b, m, d) and target (b, d) are in float64. Of several solutions it is the one with the
    smallest sum of |w_m columns_m|^2. A column that is 0 gets the weight 0. What is left over is
    orthogonal to the columns in use, up to cosines of 1e-11; of 1e-6 where columns nearly cancel,
    with weights above 1e4, which scaled rows do not: they have no negative numbers.

    >>> columns = torch.tensor([[[1, 0], [0, 1], [-1, 0]], [[1, 0], [1, 0], [0, 0]]]).double()
    >>> nonnegative_weights(columns, torch.tensor([[0.6, 0.2], [0.6, 0.2]]).double())
    tensor([[0.6000, 0.2000, 0.0000],
            [0.3000, 0.3000, 0.0000]], dtype=torch.float64)
    """
    along = columns @ target[..., None]  # (b, m, 1)
    return weights_from(columns @ columns.mT, along[..., 0], target.norm(dim=-1))


def weights_from(gram: Tensor, along: Tensor, size: Tensor) -> Tensor:
    """As `nonnegative_weights`, from products of columns (b, m, m) and with the target (b, m).

    The target's length is given too, (b,).
    """
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt()  # (b, m)
    lengths, size = (torch.where(length > 0, length, 1.0) for length in (lengths, size[:, None]))
    unit = gram / (lengths[..., None] * lengths[:, None])
    return solutions(unit, along / lengths / size) * size / lengths


def solutions(gram: Tensor, cosines: Tensor) -> Tensor:
    """w >= 0 that minimises w.Gw / 2 - c.w, where columns and target have length 1, (b, m)."""
    ridge = RIDGE * gram.shape[-1]
    ridged = gram.clone()
    ridged.diagonal(dim1=-2, dim2=-1).add_(ridge)
    weights = _active_set(ridged, cosines, *_guess(ridged, cosines))
    settled = ~(weights > 0).any(-1)
    return _active_set(ridged, cosines + ridge * weights, weights, settled)  # what the ridge took


def _guess(gram: Tensor, aim: Tensor) -> tuple[Tensor, Tensor]:
    """Weights to begin with, and whether they solve for the columns in use, (b,).

    All columns are in use at first, then those that seem to be needed.
    """
    used = torch.ones_like(aim, dtype=torch.bool)
    for _ in range(GUESSES):
        weights, asked = _solved(gram, aim, used), used
        gain = aim - (gram @ weights[..., None])[..., 0]
        used = torch.where(used, weights, gain) > 0
    return weights.clamp(min=0), (asked <= (weights > 0)).all(-1)


def _active_set(gram: Tensor, aim: Tensor, weights: Tensor, settled: Tensor) -> Tensor:
    """The method of Lawson and Hanson from these weights, a step of all problems at once.

    Settled (b,) are those whose weights solve for the columns in use.

    A step takes up the column that gains most and solves for the columns in use; if that makes
    weights negative, it goes as far as it may and drops the column that is 0 then.
    """
    found, at = weights.clone(), torch.arange(len(gram), device=gram.device)
    used = weights > 0
    noise = torch.zeros_like(used)
    for _ in range(STEPS * gram.shape[-1]):
        gain = aim - (gram @ weights[..., None])[..., 0]
        most, best = gain.masked_fill(used | noise, -torch.inf).max(-1)
        going = ~settled | (most > ROUNDING * (1 + weights.sum(-1)))
        found[at] = weights
        if not going.any():
            break
        parts = (at, gram, aim, weights, used, noise, settled, best)
        if not going.all():
            at, gram, aim, weights, used, noise, settled, best = (part[going] for part in parts)
        used = used | (one_hot(best, gram.shape[-1]).bool() & settled[:, None])
        whole = _solved(gram, aim, used)
        falling = used & (whole <= 0)
        far = weights / (weights - whole).clamp(min=torch.finfo(whole.dtype).tiny)
        far = far.masked_fill(~falling, 1)
        share = far.amin(-1, keepdim=True)
        dropped = falling & (far <= share)
        used = used & ~dropped
        weights = torch.where(used, torch.lerp(weights, whole, share), 0.0)
        # A column that is dropped at once gained by rounding only: others are tried first.
        noise = (share == 0) & (noise | dropped)
        settled = ((share == 0) | (share == 1))[:, 0]
    found[at] = weights
    return found


def _solved(gram: Tensor, aim: Tensor, used: Tensor) -> Tensor:
    """w with G w = aim in the columns in use (b, m), 0 in the others."""
    if gram.device.type != "cpu":
        return solved_by_columns(gram, aim, used)
    if len(gram) >= MANY and (fast := compiled_solutions()) is not None:
        weights = torch.zeros_like(aim)
        fast(*(each.numpy() for each in (gram, aim, used, weights)))
        return weights
    other = torch.eye(gram.shape[-1]).to(gram)
    factor = torch.linalg.cholesky_ex(torch.where(used[:, :, None] & used[:, None], gram, other)).L
    return torch.cholesky_solve((aim * used)[..., None], factor)[..., 0]


def solved_by_columns(gram: Tensor, aim: Tensor, used: Tensor) -> Tensor:
    """As `_solved`, by one column of all problems at a time, for GPUs.

    Not by torch.linalg: with it, a few of some hundred thousand problems came out as NaN on an
    H200, where many columns are equal.
    """
    m = aim.shape[-1]
    left = torch.where(used[:, :, None] & used[:, None], gram, 0.0)
    factor, found, rest = torch.zeros_like(gram), torch.zeros_like(aim), aim * used
    scale = torch.ones_like(aim)
    for j in range(m):
        pivot = left[:, j, j].clamp(min=LEAST_PIVOT).sqrt()
        scale[:, j] = torch.where(used[:, j], pivot, 1.0)
        factor[:, :, j] = left[:, :, j] / scale[:, j, None]
        left = left - factor[:, :, j, None] * factor[:, None, :, j]
        found[:, j] = rest[:, j] / scale[:, j]
        rest = rest - factor[:, :, j] * found[:, j, None]
    for j in range(m - 1, -1, -1):
        later = (factor[:, j + 1 :, j] * found[:, j + 1 :]).sum(-1)
        found[:, j] = (found[:, j] - later) / scale[:, j]
    return found


@cache
def compiled_solutions() -> Callable[..., None] | None:
    """`fast_solutions` as machine code; None without numba."""
    return compiled(fast_solutions)


def fast_solutions(gram: Floats, aim: Floats, used: NDArray[np.bool_], weights: Floats) -> None:
    """As `_solved`, written to weights that are 0; factors have only the columns in use."""
    m = aim.shape[1]
    factor, found, at = np.empty((m, m)), np.empty(m), np.empty(m, dtype=np.int64)
    for problem in range(len(gram)):
        count = 0
        for column in range(m):
            if used[problem, column]:
                at[count] = column
                count += 1
        for i in range(count):
            for j in range(i + 1):
                left = gram[problem, at[i], at[j]]
                for k in range(j):
                    left -= factor[i, k] * factor[j, k]
                factor[i, j] = np.sqrt(max(left, LEAST_PIVOT)) if i == j else left / factor[j, j]
            left = aim[problem, at[i]]
            for k in range(i):
                left -= factor[i, k] * found[k]
            found[i] = left / factor[i, i]
        for i in range(count - 1, -1, -1):
            for k in range(i + 1, count):
                found[i] -= factor[k, i] * found[k]
            found[i] /= factor[i, i]
            weights[problem, at[i]] = found[i]
