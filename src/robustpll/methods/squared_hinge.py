"""Linear machines with a squared hinge loss: many of them over the same rows, to the optimum."""

import math
import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import pad

from robustpll.methods.numba_utils import threads

OFF_BY = 1e-4  # how far a decision value of a training row may be from the optimum's
FIRST_NUMBERS = 2**16  # of the rows that a machine learns from before it is shown others
FEWEST_ROWS = 100  # among these, however many features they have
MOST_STEPS = 200  # of Newton's method; some 6 are usual


def machines(x: Tensor, sides: Tensor, error_cost: float = 1.0) -> Tensor:
    """Weights (d + 1, L) of L machines over rows x (n, d), the intercept's last.

    Machine l minimises |w|²/2 + c Σ_i max(0, 1 - s_il f_il)², where f_il = w.(x_i, 1), c is
    `error_cost`, and the sum runs over rows with side s_il = 1 or -1, not over those with 0.

    Only rows with s f < 1 pull at w. So a machine learns from a sample of its rows, and again
    with the worst of the others that turn out to have s f < 1, until there are no such others.
    Finding them is one matrix product in float32 for all machines; the rest is small.

    >>> x = torch.tensor([[0.0], [1], [2], [3]], dtype=torch.float64)
    >>> sides = torch.tensor([[-1.0, -1], [-1, 0], [1, 0], [1, 1]], dtype=torch.float64)
    >>> (x @ machines(x, sides)[:1] + machines(x, sides)[1:]).round(decimals=2)
    tensor([[-0.8300, -0.6100],
            [-0.2000, -0.1000],
            [ 0.4400,  0.4100],
            [ 1.0700,  0.9200]], dtype=torch.float64)
    """
    n, d = x.shape
    rough = x.new_ones(n, d + 1, dtype=torch.float32)
    rough[:, :-1] = x
    longest = float(rough.norm(dim=1).amax())
    every = [_Machine(x, side, error_cost, longest) for side in sides.T.float().contiguous()]
    live, values = every, rough.new_zeros(len(every), n)
    while live:  # each time with more rows, so this ends
        with threads(x.device) as each:  # what one machine computes is too small to divide
            ended = list(each(_Machine.learn, live, values))
        live = [machine for machine, end in zip(live, ended, strict=True) if not end]
        if live:
            weights = torch.stack([machine.weights for machine in live], 1)
            values = (rough @ weights.float()).T.contiguous()  # (live, n)
    return torch.stack([machine.weights for machine in every], 1)


class _Machine:
    """One machine: which rows it has learned from, and its weights so far."""

    def __init__(self, x: Tensor, side: Tensor, cost: float, longest: float) -> None:
        self.x, self.side, self.cost, self.longest = x, side, cost, longest
        self.weights = x.new_zeros(x.shape[1] + 1)
        self.seen = side.new_empty(0, dtype=torch.long)

    def learn(self, values: Tensor) -> bool:
        """Learn from more rows, given decision values (n,) in float32; whether it has learned all.

        A value may be off by as much as float32 rounds, in any order of summation. Rows that are
        shown for no other reason do not pull, and change nothing.
        """
        blur = (len(self.weights) + 16) * torch.finfo(values.dtype).eps * self.longest
        margin = torch.where(self.side == 0, torch.inf, self.side * values)
        margin[self.seen] = torch.inf
        missed = (margin < 1 + blur * float(self.weights.norm())).nonzero()[:, 0]
        if len(self.seen):
            shown = missed[margin[missed].argsort()[: 1 + len(self.seen) // 2]]
        else:
            first = max(FEWEST_ROWS, FIRST_NUMBERS // len(self.weights))
            shown = missed[:: max(1, len(missed) // first)]  # evenly spread
        self.seen = torch.cat([self.seen, shown])
        rows = pad(self.x[self.seen], (0, 1), value=1.0) * self.side[self.seen, None]
        before = self.weights
        self.weights = _optimum(rows, before, self.cost, self.longest)
        return self.weights is before and len(shown) == len(missed)


def _optimum(rows: Tensor, weights: Tensor, cost: float, longest: float) -> Tensor:
    """Weights (d,) for rows (b, d) that are multiplied by their sides, by Newton's method.

    The objective curves at least as |w|²/2, so w is no farther from the optimum than the gradient
    is long, and a decision value no farther than that times |x|. Weights that are at the optimum
    are given back as they are.
    """
    slack = 1 - rows @ weights  # (b,)
    curvature = _Curvature(rows, cost)
    for _ in range(MOST_STEPS):
        gradient = weights - 2 * cost * (slack.clamp(min=0) @ rows)
        digits = 1e-14 + 1e-16 * longest * float(weights.norm())  # that slacks are known to
        rounding = 2 * cost * len(rows) * longest * digits  # gradients below this mean nothing
        if float(gradient.norm()) <= max(OFF_BY / longest, rounding):
            return weights
        direction = -curvature.solved(slack > 0, gradient)
        change = rows @ direction
        length = _step_length(slack, change, weights, direction, cost)
        weights = weights + length * direction
        slack = slack - length * change
    msg = f"A linear machine is not at its optimum after {MOST_STEPS} steps. Scale the features."
    warnings.warn(msg, ConvergenceWarning, stacklevel=2)
    return weights


class _Curvature:
    """The second derivative I + 2 c Σ x x' over active rows x.

    Few rows come and go from one step to the next, so their products are kept.
    """

    def __init__(self, rows: Tensor, cost: float) -> None:
        self.rows, self.cost = rows, cost
        self.counted = torch.zeros_like(rows[:, 0], dtype=torch.bool)  # which rows are in `gram`
        self.gram = rows.new_zeros(())  # (d, d)
        self.known = torch.zeros_like(rows[:0, 0], dtype=torch.long)  # rows in `products`
        self.place = torch.full_like(self.counted, -1, dtype=torch.long)  # (b,): where they are
        self.products = rows.new_empty(0, 0)

    @property
    def ridge(self) -> float:
        return 1 / (2 * self.cost)

    def solved(self, active: Tensor, gradient: Tensor) -> Tensor:
        """Its inverse times the gradient (d,)."""
        at = active.nonzero()[:, 0]
        if len(at) < len(gradient):
            return self._by_products(at, gradient)
        moved = active ^ self.counted
        if int(moved.sum()) < len(at):  # fewer rows came and went than there are
            come_and_gone = self.rows[moved]
            sign = torch.where(active[moved], 1.0, -1.0).to(gradient)
            self.gram = self.gram + (come_and_gone * sign[:, None]).T @ come_and_gone
        else:
            self.gram = self.rows[at].T @ self.rows[at]
        self.counted = active
        return self.ridge * _solved(self.gram.clone(), self.ridge, gradient)

    def _by_products(self, at: Tensor, gradient: Tensor) -> Tensor:
        """By Woodbury's identity, from the products of the active rows with each other."""
        new = at[self.place[at] < 0]
        if len(new):
            self._learn_products(new)
        own = self.place[at]
        gram = self.products.index_select(0, own).index_select(1, own)
        share = torch.zeros_like(self.rows[:, 0])
        share[at] = _solved(gram, self.ridge, (self.rows @ gradient)[at])
        return gradient - share @ self.rows

    def _learn_products(self, new: Tensor) -> None:
        before = len(self.known)
        self.known = torch.cat([self.known, new])
        self.place[new] = torch.arange(before, len(self.known), device=new.device)
        more = self.rows[new] @ self.rows[self.known].T
        self.products = torch.cat([torch.cat([self.products, more[:, :before].T], 1), more])


def _solved(gram: Tensor, ridge: float, right: Tensor) -> Tensor:
    """(gram + ridge I)^-1 right; gram is overwritten."""
    gram.diagonal().add_(ridge)
    return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(gram))[:, 0]


def _step_length(
    slack: Tensor, change: Tensor, weights: Tensor, direction: Tensor, cost: float
) -> float:
    """Where the objective is least along a direction, to a tenth of its slope at 0.

    The slope grows piecewise linearly with the length: Newton's method within a bracket finds
    where it is 0.
    """
    along, square = float(weights @ direction), float(direction @ direction)
    first = along - 2 * cost * float(change @ slack.clamp(min=0))
    length, low, high = 1.0, 0.0, math.inf
    for _ in range(60):
        left = (slack - length * change).clamp(min=0)
        slope = along + length * square - 2 * cost * float(change @ left)
        if abs(slope) <= 0.1 * abs(first):
            break
        low, high = (low, length) if slope > 0 else (length, high)
        bend = square + 2 * cost * float(change.square() @ (left > 0).to(change))
        length -= slope / bend
        if not low < length < high:
            length = (low + high) / 2 if high < math.inf else 2 * low
    return length
