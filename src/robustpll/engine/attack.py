"""Small changes of the input that are meant to fool a network, for all models at once."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from robustpll.engine.random import Draws
from robustpll.errors import InputError

Logits = Callable[[Tensor], Tensor]  # (M, b, *shape) -> (M, b, k)
LABELS = ("current", "clean", "true")


class Attack(ABC):
    """Turns scaled features into attacked ones.

    With `joint` the members of an ensemble are attacked together, through the mean of their
    logits, and all see the same attacked row. Without, each member is handed a row that was made
    for it alone, as in the published experiments; no such input exists outside of them.
    """

    joint: bool

    @abstractmethod
    def __call__(
        self, logits: Logits, x: Tensor, draws: Draws, truth: Tensor | None = None
    ) -> Tensor:
        """Attacked features (M, b, *shape); `truth` holds true labels (M, b), if known."""


@dataclass(frozen=True)
class PGD(Attack):
    """Projected gradient ascent on the cross-entropy of the logits (Madry et al., 2018).

    Parameters
    ----------
    epsilon : float
        How far each scaled feature may move.
    steps : int
        Number of steps, each of ``epsilon / steps``.
    labels : {"current", "clean", "true"}
        Which class to move away from: the one predicted at the moment, read anew in each step, as
        in the published experiments; the one predicted for the unchanged row; or the true one,
        which must then be passed. The first is weak: it oscillates around the nearest boundary,
        and may end where it began.
    joint : bool
        Attack an ensemble as one, rather than each member by itself; see `Attack`.
    random_start : bool
        Begin at a uniformly drawn point within reach, rather than at the row itself.
    clip : (float, float) or None
        Range that features must not leave; min-max scaled training rows lie in [0, 1].

    Examples
    --------
    With the class fixed the row is fooled; with the momentary class it is not, although the
    boundary is crossed eight times:

    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> draws = Draws.of([0], like=x)
    >>> PGD(0.1, labels="clean", random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    >>> PGD(0.1, random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5800, 0.5730]]], dtype=torch.float64)
    """

    epsilon: float
    steps: int = 10
    labels: Literal["current", "clean", "true"] = "current"
    joint: bool = False
    random_start: bool = True
    clip: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        rules = {
            "epsilon": (_is_number(self.epsilon) and self.epsilon >= 0, "a number of at least 0"),
            "steps": (_is_number(self.steps) and self.steps >= 1, "an int of at least 1"),
            "labels": (self.labels in LABELS, f"one of {LABELS}"),
            "clip": (self.clip is None or self.clip[0] < self.clip[1], "None or (low, high)"),
        }
        for name, (sound, rule) in rules.items():
            if not sound:
                msg = f"PGD({name}={getattr(self, name)!r}): {name} must be {rule}."
                raise InputError(msg)

    def __call__(
        self, logits: Logits, x: Tensor, draws: Draws, truth: Tensor | None = None
    ) -> Tensor:
        if self.epsilon == 0:
            return x
        away_from = logits(x).argmax(-1) if self.labels == "clean" else None
        if self.labels == "true":
            if truth is None:
                msg = "PGD(labels='true') needs the true labels of the rows. Pass labels=."
                raise InputError(msg)
            away_from = truth
        moved = x
        if self.random_start:
            moved = self._clipped(x + self.epsilon * (2 * draws.uniform(*x.shape[1:]) - 1))
        for _ in range(self.steps):
            step = self.epsilon / self.steps * _uphill(logits, moved, away_from)
            moved = self._clipped((moved + step).clamp(x - self.epsilon, x + self.epsilon))
        return moved

    def _clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(*self.clip)


def _uphill(logits: Logits, x: Tensor, labels: Tensor | None) -> Tensor:
    """Sign of the gradient of the cross-entropy with respect to x, (M, b, *shape)."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        outputs = logits(x)
        labels = outputs.argmax(-1) if labels is None else labels
        # The mean over rows has a part in the published numbers: it underflows earlier than a sum.
        loss = F.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
        loss = loss.view(labels.shape).mean(-1).sum()
        (gradient,) = torch.autograd.grad(loss, x)
    return gradient.sign()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
