"""An attack to judge a method by: gradient ascent that chooses its own step sizes."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Tensor

from robustpll.attacks.base import PGD, Outputs, Point
from robustpll.attacks.bounds import Reach, expanded
from robustpll.errors import InputError

MOMENTUM = 0.75  # share of the new direction, and of the steps that must have been a rise


@dataclass(frozen=True)
class AutoPGD(PGD):
    """Auto-PGD (Croce & Hein, ICML 2020): each row begins with long steps and shortens its own.

    The first step has twice the length of epsilon. At checkpoints a row whose loss rose in fewer
    than three quarters of the steps, or which found nothing better although its step stayed the
    same, goes back to its best point and halves its step. The defaults attack what is predicted:
    the margin between the true class and the best other one, in the members' mean probability.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`.
    steps, loss, restarts, random_start
        As of `PGD`; the worst point is kept.

    Examples
    --------
    >>> from robustpll.engine.random import Draws
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
            raise InputError("AutoPGD(keep='last'): it goes back to its best point. Use 'worst'.")

    def climb(self, outputs: Outputs, reach: Reach, start: Tensor, labels: Tensor | None) -> Point:
        point = best = worst = self.look(outputs, reach, start, labels)
        before, epsilon = start, reach.epsilon.to(start)
        size = torch.full_like(point.loss, 2.0)  # (M, b), in units of epsilon
        halved = torch.zeros_like(size, dtype=torch.bool)  # at the last checkpoint
        rises, best_then, since = torch.zeros_like(size), best.loss, 0
        for step in range(1, self.steps + 1):
            ahead = reach.project(point.x + expanded(size, start) * epsilon * point.uphill)
            share = MOMENTUM if step > 1 else 1.0
            x = point.x + share * (ahead - point.x) + (1 - share) * (point.x - before)
            was, before = point, point.x
            point = self.look(outputs, reach, reach.project(x), labels)
            worst = worst.or_worse(point)
            rises = rises + (point.loss > was.loss)
            best = best.where(point.loss > best.loss, point)
            since += 1
            if step in checkpoints(self.steps):
                stalled = ~halved & (best.loss <= best_then)
                halved = (rises < MOMENTUM * since) | stalled
                size = torch.where(halved, size / 2, size)
                point = point.where(halved, best)
                before = torch.where(expanded(halved, start), best.x, before)
                rises, best_then, since = torch.zeros_like(size), best.loss, 0
        return worst


def checkpoints(steps: int) -> set[int]:
    """After which steps the step size is looked at: at shares 0.22, 0.41, 0.57, ... of them.

    >>> sorted(checkpoints(50))
    [11, 21, 29, 35, 40, 44, 47, 50]
    """
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return {math.ceil(share * steps) for share in shares[1:] if share <= 1}
