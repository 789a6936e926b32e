"""Attacks by gradient ascent: PGD as published, and Auto-PGD to judge a method by."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from robustpll.attacks.base import LOSSES, Attack, Bounds, Outputs, expand, margin
from robustpll.engine.random import Draws
from robustpll.errors import InputError

MOMENTUM = 0.75  # share of the new direction, and of the steps that must have raised the loss


@dataclass(frozen=True)
class Point:
    """A point of an ascent, for all rows."""

    x: Tensor  # (M, b, *shape)
    direction: Tensor  # (M, b, *shape): sign of the gradient
    loss: Tensor  # (M, b)
    margin: Tensor  # (M, b): positive where a row is fooled

    def or_larger_margin(self, other: "Point") -> "Point":
        """For each row, the point with the larger margin."""
        return self.where(other.margin > self.margin, other)

    def where(self, rows: Tensor, other: "Point") -> "Point":
        """The other point for the rows (M, b) that are True."""
        wide = expand(rows, self.x)
        return Point(
            torch.where(wide, other.x, self.x),
            torch.where(wide, other.direction, self.direction),
            torch.where(rows, other.loss, self.loss),
            torch.where(rows, other.margin, self.margin),
        )


@dataclass(frozen=True)
class PGD(Attack):
    """Projected gradient ascent (Madry et al., 2018); the defaults are the published attack.

    The default labels make it weak: it oscillates around the nearest boundary and may end where it
    began. Use `AutoPGD` with the true labels to judge a method.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`.
    steps : int
        Number of steps, each of size ``epsilon / steps``.
    loss : {"cross-entropy", "margin", "evidential"}
        The loss to raise: cross-entropy; the logit of the best other class minus that of the label,
        which never saturates; or the expected squared error under the Dirichlet distribution of the
        evidence, which evidential methods train with (this needs ``target="probabilities"``).
    restarts : int
        Number of random starts, if ``keep="worst"``.
    keep : {"last", "worst"}
        Return the last point, or the point of largest margin over all steps and restarts.
    random_start : bool
        Start at a uniformly drawn point within bounds, rather than at the row itself.

    Examples
    --------
    With a fixed label the row is fooled. With the current label it is not, although it crosses the
    boundary eight times:

    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> draws = Draws.of([0], like=x)
    >>> PGD(0.1, labels="clean", random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    >>> PGD(0.1, random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5800, 0.5730]]], dtype=torch.float64)
    """

    _: KW_ONLY
    steps: int = 10
    loss: Literal["cross-entropy", "margin", "evidential"] = "cross-entropy"
    restarts: int = 1
    keep: Literal["last", "worst"] = "last"
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = None
        if self.keep == "worst" and self.labels == "current":
            rule = "keep='worst' needs labels that stay: 'clean' or 'true'"
        elif self.restarts > 1 and (self.keep == "last" or not self.random_start):
            rule = "restarts above 1 need keep='worst' and a random start"
        elif self.loss == "evidential" and self.target == "logits":
            rule = "loss='evidential' needs target='probabilities'"
        if rule is not None:
            raise InputError(f"{rule}. Got {self!r}.")

    @property
    def needs_evidence(self) -> bool:
        return self.loss == "evidential"

    def perturb(
        self, outputs: Outputs, bounds: Bounds, draws: Draws, labels: Tensor | None
    ) -> Tensor:
        worst = None
        for _ in range(self.restarts):
            start = bounds.random_point(draws) if self.random_start else bounds.x
            point = self.ascend(outputs, bounds, start, labels)
            worst = point if worst is None else worst.or_larger_margin(point)
        assert worst is not None
        return worst.x

    def ascend(
        self, outputs: Outputs, bounds: Bounds, start: Tensor, labels: Tensor | None
    ) -> Point:
        """Run one ascent and return its last point, or its worst."""
        size = (bounds.epsilon / self.steps).to(bounds.x)
        point = worst = self.evaluate(outputs, bounds, start, labels)
        for step in range(1, self.steps + 1):
            x = bounds.project(torch.addcmul(point.x, size, point.direction))
            if self.keep == "last" and step == self.steps:
                return replace(point, x=x)  # its gradient is not needed
            point = self.evaluate(outputs, bounds, x, labels)
            if self.keep == "worst":
                worst = worst.or_larger_margin(point)
        return worst

    def evaluate(self, outputs: Outputs, bounds: Bounds, x: Tensor, labels: Tensor | None) -> Point:
        """Compute loss, gradient sign and margin at x (M, E b, *shape)."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            logits = outputs(x)
            labels = logits.argmax(-1) if labels is None else labels
            loss = LOSSES[self.loss](logits, labels)
            # The published numbers need the mean over rows: it underflows before a sum does.
            mean = torch.unflatten(loss, -1, (bounds.count, -1)).mean(-1)
            (gradient,) = torch.autograd.grad(mean.sum(), x)
        return Point(x.detach(), gradient.sign(), loss.detach(), margin(logits.detach(), labels))


@dataclass(frozen=True)
class AutoPGD(PGD):
    """Auto-PGD (Croce & Hein, ICML 2020): each row starts with long steps and adapts their size.

    The first step has twice the length of epsilon. At checkpoints, a row returns to its best point
    and halves its step if its loss rose in fewer than three quarters of the steps, or if it found
    nothing better with an unchanged step. The defaults attack the prediction: the margin between
    the true class and the best other one, in the mean probability of the members.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`.
    steps, loss, restarts, random_start
        As of `PGD`; the worst point is kept.

    Examples
    --------
    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> attack = AutoPGD(0.1, labels="clean")
    >>> attack(lambda x: x, x, Draws.of([0], like=x))
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    """

    _: KW_ONLY
    labels: Literal["current", "clean", "true"] = "true"
    target: Literal["logits", "probabilities"] = "probabilities"
    joint: bool = True
    outside: Literal["clipped", "kept"] = "kept"
    steps: int = 50
    loss: Literal["cross-entropy", "margin", "evidential"] = "margin"
    keep: Literal["last", "worst"] = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep == "last":
            raise InputError("AutoPGD(keep='last'): it returns to its best point. Use 'worst'.")

    def ascend(
        self, outputs: Outputs, bounds: Bounds, start: Tensor, labels: Tensor | None
    ) -> Point:
        point = best = worst = self.evaluate(outputs, bounds, start, labels)
        previous, epsilon = start, bounds.epsilon.to(start)
        size = torch.full_like(point.loss, 2.0)  # (M, b), in units of epsilon
        halved = torch.zeros_like(size, dtype=torch.bool)  # at the last checkpoint
        rises, best_loss, since = torch.zeros_like(size), best.loss, 0
        for step in range(1, self.steps + 1):
            ahead = bounds.project(point.x + expand(size, start) * epsilon * point.direction)
            share = MOMENTUM if step > 1 else 1.0
            x = point.x + share * (ahead - point.x) + (1 - share) * (point.x - previous)
            last, previous = point, point.x
            point = self.evaluate(outputs, bounds, bounds.project(x), labels)
            worst = worst.or_larger_margin(point)
            rises = rises + (point.loss > last.loss)
            best = best.where(point.loss > best.loss, point)
            since += 1
            if step in checkpoints(self.steps):
                stalled = ~halved & (best.loss <= best_loss)
                halved = (rises < MOMENTUM * since) | stalled
                size = torch.where(halved, size / 2, size)
                point = point.where(halved, best)
                previous = torch.where(expand(halved, start), best.x, previous)
                rises, best_loss, since = torch.zeros_like(size), best.loss, 0
        return worst


def checkpoints(steps: int) -> set[int]:
    """Steps after which the step size is adapted: shares 0.22, 0.41, 0.57, ... of all steps."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return {math.ceil(share * steps) for share in shares[1:] if share <= 1}
