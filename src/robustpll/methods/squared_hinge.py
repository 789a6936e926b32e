"""Linear machines with a squared hinge loss: many of them over the same rows, to the optimum."""

import math
import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

OFF_BY = 1e-4  # how far a decision value of a training row may be from the optimum's
FIRST_ROWS = 200  # that a machine learns from before it is shown which of the others it needs
MOST_STEPS = 200  # of Newton's method; some 15 are usual


def machines(x: Tensor, sides: Tensor, error_cost: float = 1.0) -> Tensor:
    """Weights (d + 1, L) of L machines over rows x (n, d), the intercept's last.

    Machine l minimises |w|²/2 + c Σ_i max(0, 1 - s_il f_il)², where f_il = w.(x_i, 1), c is
    `error_cost`, and the sum runs over rows with side s_il = 1 or -1, not over those with 0.

    Only rows with s f < 1 pull at w. So a machine learns from a sample of its rows, and again
    with the worst of the others that turn out to have s f < 1, until there are no such others.
    Finding them is one matrix product for all machines; the rest is small.

    >>> x = torch.tensor([[0.0], [1], [2], [3]], dtype=torch.float64)
    >>> sides = torch.tensor([[-1.0, -1], [-1, 0], [1, 0], [1, 1]], dtype=torch.float64)
    >>> (x @ machines(x, sides)[:1] + machines(x, sides)[1:]).round(decimals=2)
    tensor([[-0.8300, -0.6100],
            [-0.2000, -0.1000],
            [ 0.4400,  0.4100],
            [ 1.0700,  0.9200]], dtype=torch.float64)
    """
    rows = torch.cat([x, x.new_ones(len(x), 1)], 1)
    longest = float(rows.norm(dim=1).amax())
    weights = x.new_zeros(rows.shape[1], sides.shape[1])
    live = list(range(sides.shape[1]))
    seen = [_some(side.nonzero()[:, 0]) for side in sides.T]  # the rows each has learned from
    while live:  # each time with more rows, so this ends
        for machine in live:
            own = rows[seen[machine]] * sides[seen[machine], machine, None]
            weights[:, machine] = _optimum(own, weights[:, machine], error_cost, longest)
        margins = sides[:, live] * (rows @ weights[:, live])
        margins = torch.where(sides[:, live] == 0, torch.inf, margins).T.contiguous()  # (live, n)
        unfinished = []
        for machine, margin in zip(live, margins, strict=True):
            margin[seen[machine]] = torch.inf
            missed = (margin < 1).nonzero()[:, 0]
            if len(missed):
                worst = margin[missed].argsort()[: 1 + len(seen[machine]) // 2]
                seen[machine] = torch.cat([seen[machine], missed[worst]])
                unfinished.append(machine)
        live = unfinished
    return weights


def _some(at: Tensor) -> Tensor:
    """FIRST_ROWS or a few more of these rows, evenly spread, or all if they are fewer."""
    return at[:: max(1, len(at) // FIRST_ROWS)]


def _optimum(rows: Tensor, weights: Tensor, cost: float, longest: float) -> Tensor:
    """Weights (d,) for rows (b, d) that are multiplied by their sides, by Newton's method.

    The objective curves at least as |w|²/2, so w is no farther from the optimum than the gradient
    is long, and a decision value no farther than that times |x|.
    """
    rounding = 1e-14 * 2 * cost * len(rows) * longest  # gradients below this mean nothing
    enough = max(OFF_BY / longest, rounding)
    slack = 1 - rows @ weights  # (b,)
    curvature = _Curvature(rows, cost)
    for _ in range(MOST_STEPS):
        active = slack > 0
        near = rows[active]
        gradient = weights - 2 * cost * (slack[active] @ near)
        if float(gradient.norm()) <= enough:
            return weights
        direction = -curvature.solved(active, near, gradient)
        change = rows @ direction
        length = _step_length(slack, change, weights, direction, cost)
        weights = weights + length * direction
        slack = slack - length * change
    msg = f"A linear machine is not at its optimum after {MOST_STEPS} steps. Scale the features."
    warnings.warn(msg, ConvergenceWarning, stacklevel=2)
    return weights


class _Curvature:
    """The second derivative I + 2 c Σ x x' over active rows x."""

    def __init__(self, rows: Tensor, cost: float) -> None:
        self.rows, self.cost = rows, cost
        self.counted = torch.zeros_like(rows[:, 0], dtype=torch.bool)  # which rows are in `gram`
        self.gram = rows.new_zeros(())

    def solved(self, active: Tensor, near: Tensor, gradient: Tensor) -> Tensor:
        """Its inverse times the gradient (d,); `near` are the active rows (a, d)."""
        ridge = 1 / (2 * self.cost)
        if len(near) < near.shape[1]:  # by Woodbury's identity, in a x a
            return gradient - _solved(near @ near.T, ridge, near @ gradient) @ near
        moved = active ^ self.counted
        if int(moved.sum()) < len(near):  # fewer rows came and went than there are
            come_and_gone = self.rows[moved]
            sign = torch.where(active[moved], 1.0, -1.0).to(near)
            self.gram = self.gram + (come_and_gone * sign[:, None]).T @ come_and_gone
        else:
            self.gram = near.T @ near
        self.counted = active
        return ridge * _solved(self.gram, ridge, gradient)


def _solved(gram: Tensor, ridge: float, right: Tensor) -> Tensor:
    """(gram + ridge I)^-1 right."""
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram)).to(gram))
    return torch.cholesky_solve(right[:, None], factor)[:, 0]


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
