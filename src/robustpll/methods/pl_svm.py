"""PlSvm (Nguyen and Caruana, KDD 2008)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustpll.engine.random import seed_of
from robustpll.methods.base import Positive
from robustpll.methods.classical import ClassicalMethod, OneRun, Tensors
from robustpll.opinion import Opinion

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Steps = Callable[[Floats, Bools, Ints, float], Floats]

FEWEST_ITERATIONS = 100_000
TIED = 1e-12  # scores this close are equal up to rounding; a row drawn twice makes such classes


@dataclass(frozen=True)
class PlSvm(ClassicalMethod):
    """A linear classifier whose margin separates the best candidate from the best other class.

    It minimises (λ/2) |w|² + mean_i max(0, 1 - m_i), where m_i = max_{j in S_i} w_j.x_i - max_{j
    not in S_i} w_j.x_i, by the stochastic subgradient steps of Pegasos: rows are drawn with
    replacement, step t has length 1 / (λ t), and |w| <= 1 / sqrt(λ). There is no intercept.
    Probabilities are the softmax of w_j.x, and close to each other. With numba, ``pip install
    "robustpll[fast]"``, steps are compiled and about ten times as fast.

    Parameters
    ----------
    regularisation : float
        λ, above 0: the larger, the shorter w.
    iterations : int
        Number of drawn rows; 0 stands for the larger of 100,000 and ten for each training row.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> PLLClassifier(PlSvm(iterations=2000), random_state=0).fit(X, y).predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    """

    name = "pl_svm"
    title = "PlSvm"
    citation = "Nguyen, Caruana: Classification with Partial Labels. KDD 2008"
    on_host = True
    cost = (0.15, 0.5)
    learns: ClassVar = {"weights": (torch.float64, ("k", "d"))}

    regularisation: Positive = 1.0
    iterations: int = 0

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        n = len(run.x)
        iterations = self.iterations or max(FEWEST_ITERATIONS, 10 * n)
        generator = torch.Generator().manual_seed(seed_of(run.seed, self.name))
        order = torch.randint(n, (iterations,), generator=generator)
        steps = compiled_steps() or plain_steps
        x, candidates = (part.cpu().contiguous().numpy() for part in (run.x, run.candidates))
        learned = steps(x, candidates, order.numpy(), float(self.regularisation))
        weights = torch.from_numpy(learned).to(run.x)  # (k, d)
        scores = (run.x @ weights.T).masked_fill(~run.candidates, -torch.inf)
        return {"weights": weights}, Opinion.of_probability(scores.softmax(-1))

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        return Opinion.of_probability((x @ learned["weights"].T).softmax(-1))


def plain_steps(x: Floats, candidates: Bools, order: Ints, regularisation: float) -> Floats:
    """Return the weights (k, d) after Pegasos steps on rows (n, d) in this order (t,)."""
    weights = np.zeros((candidates.shape[1], x.shape[1]))
    longest = 1 / math.sqrt(regularisation)
    for t, i in enumerate(order, 1):
        row, possible = x[i], candidates[i]
        scores = np.einsum("jf,f->j", weights, row)  # BLAS would start threads for so little
        inside, outside = np.where(possible, scores, -np.inf), np.where(possible, -np.inf, scores)
        best, rival = ((side >= side.max() - TIED).argmax() for side in (inside, outside))
        weights *= max(1e-9, 1 - 1 / t)
        if not possible.all() and scores[best] - scores[rival] < 1:
            step = row / (regularisation * t)
            weights[best] += step
            weights[rival] -= step
        length = math.sqrt(np.einsum("jf,jf->", weights, weights))
        if length > longest:
            weights *= longest / length
    return weights


@cache
def compiled_steps() -> Steps | None:
    """`fast_steps` as machine code; None without numba, or a folder to keep the code in."""
    fastmath = {"reassoc", "contract", "nsz"}  # sums in any order; infinities keep their meaning
    try:
        import numba

        return cast("Steps", numba.njit(nogil=True, cache=True, fastmath=fastmath)(fast_steps))
    except (ImportError, RuntimeError):
        return None


def fast_steps(x: Floats, candidates: Bools, order: Ints, regularisation: float) -> Floats:
    """As `plain_steps`, in the part of Python that numba compiles, with one pass over w a step."""
    # The weights are factor * v, so that scaling all of them is one product, and |w|² follows from
    # |w'|² = r² |w|² + 2 η r (s_best - s_rival) + 2 η² |x|².
    k, d = candidates.shape[1], x.shape[1]
    v, scores = np.zeros((k, d)), np.zeros(k)
    factor, square, largest = 1.0, 0.0, 1 / regularisation
    top = np.empty(2, dtype=np.int64)  # best class outside and inside the candidates, -1: none
    for t in range(1, len(order) + 1):
        i = order[t - 1]
        top[:] = -1
        for j in range(k):
            total = 0.0
            for column in range(d):
                total += v[j, column] * x[i, column]
            scores[j] = factor * total
            side = int(candidates[i, j])
            if top[side] < 0 or scores[j] > scores[top[side]] + TIED:
                top[side] = j
        rival, best = top
        shrink = max(1e-9, 1 - 1 / t)
        factor *= shrink
        square *= shrink**2
        if rival >= 0 and scores[best] - scores[rival] < 1:
            step, length = 1 / (regularisation * t), 0.0
            for column in range(d):
                v[best, column] += step / factor * x[i, column]
                v[rival, column] -= step / factor * x[i, column]
                length += x[i, column] ** 2
            square += 2 * step * (shrink * (scores[best] - scores[rival]) + step * length)
        if square > largest:
            factor *= np.sqrt(largest / square)
            square = largest
        if t % 1000 == 0 or factor < 1e-100:  # before rounding adds up, or v overflows
            v *= factor
            factor, square = 1.0, (v * v).sum()
    return factor * v
