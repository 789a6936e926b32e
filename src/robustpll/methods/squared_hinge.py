"""Linear classifiers with a squared hinge loss: many of them on the same rows, to the optimum."""

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import pad

from robustpll.methods.neighbours import threads

TOLERANCE = 1e-4  # largest distance of a training row's decision value from that of the optimum
FIRST_NUMBERS, FEWEST_ROWS = 2**16, 100  # size of the first sample of rows
MOST_STEPS = 200  # of Newton's method; about 6 are usual


def squared_hinge_classifiers(x: Tensor, sides: Tensor, error_cost: float = 1.0) -> Tensor:
    """Return the weights (d + 1, L) of L linear classifiers on rows x (n, d), intercepts last.

    Classifier l minimises |w|²/2 + c Σ_i max(0, 1 - s_il f_il)², where f_il = w.(x_i, 1), c is
    `error_cost`, and the sum runs over rows with side s_il = 1 or -1, not over those with 0. That
    is the optimum of `sklearn.svm.LinearSVC`, which takes two to four times as long on MNIST.

    Only rows with s f < 1 have a gradient. So a classifier is fitted to a sample of its rows, and
    again with the worst other rows with s f < 1, until there are none. One product in float32 finds
    these rows for all classifiers.

    >>> x = torch.tensor([[0.0], [1], [2], [3]], dtype=torch.float64)
    >>> sides = torch.tensor([[-1.0, -1], [-1, 0], [1, 0], [1, 1]], dtype=torch.float64)
    >>> weights = squared_hinge_classifiers(x, sides)
    >>> (x @ weights[:1] + weights[1:]).round(decimals=2)[::3]
    tensor([[-0.8300, -0.6100],
            [ 1.0700,  0.9200]], dtype=torch.float64)
    """
    n, d = x.shape
    rough = x.new_ones(n, d + 1, dtype=torch.float32)
    rough[:, :-1] = x
    longest = float(rough.norm(dim=1).amax())
    rounding = (d + 17) * torch.finfo(torch.float32).eps * longest
    columns = sides.T.float().contiguous()
    weights = x.new_zeros(len(columns), d + 1)
    samples = [torch.empty(0, dtype=torch.long, device=x.device) for _ in columns]

    def improve(number: int, values: Tensor) -> bool:
        """Fit a classifier to more rows, by decision values (n,) of all; True if it is done."""
        side, sample, before = columns[number], samples[number], weights[number].clone()
        margin = torch.where(side == 0, torch.inf, side * values)
        margin[sample] = torch.inf
        missed = (margin < 1 + rounding * float(before.norm())).nonzero()[:, 0]
        if len(sample):
            added = missed[margin[missed].argsort()[: 1 + len(sample) // 2]]
        else:
            added = missed[:: max(1, len(missed) // max(FEWEST_ROWS, FIRST_NUMBERS // (d + 1)))]
        samples[number] = sample = torch.cat([sample, added])
        rows = pad(x[sample], (0, 1), value=1.0) * side[sample, None]
        weights[number] = _optimum(rows, before, error_cost, longest)
        return len(added) == len(missed) and torch.equal(weights[number], before)

    unfinished, values = list(range(len(columns))), rough.new_zeros(len(columns), n)
    while unfinished:  # samples grow, so this ends
        with threads(x.device) as thread_map:  # one classifier is too small to be divided
            done = list(thread_map(improve, unfinished, values))
        unfinished = [number for number, end in zip(unfinished, done, strict=True) if not end]
        values = (rough @ weights[unfinished].T.float()).T.contiguous()  # (unfinished, n)
    return weights.T.contiguous()


def _optimum(rows: Tensor, weights: Tensor, cost: float, longest: float) -> Tensor:
    """Weights (d,) for rows (b, d) that are multiplied by their sides, by Newton's method.

    The objective curves at least as |w|²/2, so w is no farther from the optimum than the gradient
    is long, and a decision value no farther than that times |x|.
    """
    ridge = 1 / (2 * cost) if cost else torch.inf
    slack = 1 - rows @ weights  # (b,)
    gram, counted = rows.new_zeros(()), torch.zeros_like(slack, dtype=torch.bool)
    for _ in range(MOST_STEPS):
        gradient = weights - 2 * cost * (slack.clamp(min=0) @ rows)
        digits = 1e-14 + 1e-16 * longest * float(weights.norm())  # precision of the slack
        if float(gradient.norm()) <= max(
            TOLERANCE / longest, 2 * cost * len(rows) * longest * digits
        ):
            return weights
        active = slack > 0
        count = int(active.sum())
        if count < len(gradient):  # Woodbury's identity: products of rows instead of features
            near = rows[active]
            direction = _solve(near @ near.T, ridge, near @ gradient) @ near - gradient
        else:
            moved = active ^ counted
            if int(moved.sum()) < count:  # update the products by the rows that came or went
                changed = rows[moved]
                gram = (
                    gram
                    + (changed * torch.where(active[moved], 1.0, -1.0)[:, None].to(rows)).T
                    @ changed
                )
            else:
                gram = rows[active].T @ rows[active]
            counted = active
            direction = -ridge * _solve(gram.clone(), ridge, gradient)
        change = rows @ direction
        length = _step_length(slack, change, weights, direction, cost)
        weights, slack = weights + length * direction, slack - length * change
    msg = f"A linear classifier is not at its optimum after {MOST_STEPS} steps. Scale the features."
    warnings.warn(msg, ConvergenceWarning, stacklevel=2)
    return weights


def _solve(gram: Tensor, ridge: float, right: Tensor) -> Tensor:
    """(gram + ridge I)^-1 right; gram is overwritten."""
    gram.diagonal().add_(ridge)
    return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(gram))[:, 0]


def _step_length(
    slack: Tensor, change: Tensor, weights: Tensor, direction: Tensor, cost: float
) -> float:
    """Where the objective is least along a direction, up to a tenth of its slope at 0.

    The slope grows with the length, so bisection finds where it is 0.
    """
    along, square = float(weights @ direction), float(direction @ direction)

    def slope(length: float) -> float:
        left = (slack - length * change).clamp(min=0)
        return along + length * square - 2 * cost * float(change @ left)

    first, low, high, length = slope(0.0), 0.0, 0.0, 1.0
    for _ in range(60):
        steepness = slope(length)
        if abs(steepness) <= 0.1 * abs(first):
            break
        low, high = (low, length) if steepness > 0 else (length, high)
        length = (low + high) / 2 if high else 2 * low
    return length
