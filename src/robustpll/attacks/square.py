"""An attack without gradients: random search on outputs."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from robustpll.attacks.base import Attack, Bounds, Outputs, expand, margin
from robustpll.engine.random import Draws
from robustpll.errors import InputError

# The changed part of a row is halved after these shares of the queries.
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Square(Attack):
    """Square attack (Andriushchenko et al., ECCV 2020): random search on outputs alone.

    Every feature is always at its lower or upper bound. A query moves some features to a random
    bound, and is kept for the rows whose margin it raises. In a picture it moves a square, each
    channel to one bound; in a table it moves random features independently. It attacks any method,
    including those without a network.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`; labels must be "clean" or "true".
    queries : int
        Number of times the outputs are computed.
    part : float
        Share of a row that the first queries change.

    Examples
    --------
    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> attack = Square(0.1, labels="clean", queries=50)
    >>> attack(lambda x: x, x, Draws.of([0], like=x))
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    """

    _: KW_ONLY
    labels: Literal["current", "clean", "true"] = "true"
    target: Literal["logits", "probabilities"] = "probabilities"
    joint: bool = True
    outside: Literal["clipped", "kept"] = "kept"
    queries: int = 1000
    part: float = 0.8

    needs_gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels == "current" or not 0 < self.part <= 1:
            raise InputError(
                "Square needs labels='clean' or 'true', and a part above 0 and at most 1; got "
                f"{self.labels!r} and {self.part!r}."
            )

    def perturb(
        self, outputs: Outputs, bounds: Bounds, draws: Draws, labels: Tensor | None
    ) -> Tensor:
        assert labels is not None
        best = _corner(bounds, draws, stripes=True)
        best_margin = margin(outputs(best), labels)  # (M, b)
        for query in range(1, self.queries):
            share = self.part / 2 ** sum(query > after * self.queries for after in HALVINGS)
            changed = bounds.tile(_changed_features(bounds, share, draws))
            trial = torch.where(changed, _corner(bounds, draws), best)
            trial_margin = margin(outputs(trial), labels)
            better = trial_margin > best_margin
            best = torch.where(expand(better, best), trial, best)
            best_margin = torch.where(better, trial_margin, best_margin)
        return best


def _corner(bounds: Bounds, draws: Draws, *, stripes: bool = False) -> Tensor:
    """Each feature at a random bound, (M, b, *shape).

    In a picture each channel has one bound, or with `stripes` each column.
    """
    shape = list(bounds.x.shape[2:])
    if len(shape) >= 2:
        shape = [*shape[:-2], 1, shape[-1] if stripes else 1]
    up = bounds.tile(draws.uniform(bounds.rows, *shape) < 0.5)
    return torch.where(up, bounds.high, bounds.low)


def _changed_features(bounds: Bounds, share: float, draws: Draws) -> Tensor:
    """Mask (M, b, *shape) of about that share of the features, at least one."""
    x, b, shape = bounds.x, bounds.rows, list(bounds.x.shape[2:])
    if len(shape) < 2:
        count = max(1, round(share * x[0, 0].numel()))
        return draws.uniform(b, *shape).argsort(-1).argsort(-1) < count
    height, width = shape[-2:]
    side = min(max(1, round((share * height * width) ** 0.5)), height, width)
    room = x.new_tensor([height - side + 1, width - side + 1])
    top, left = (draws.uniform(b, 2).to(x) * room).long().unbind(-1)  # (M, b) each
    rows, columns = (torch.arange(size, device=x.device) for size in (height, width))
    down = (rows >= top[..., None]) & (rows < top[..., None] + side)  # (M, b, height)
    across = (columns >= left[..., None]) & (columns < left[..., None] + side)
    inside: Tensor = down[..., None] & across[..., None, :]  # (M, b, height, width)
    return inside if len(shape) == 2 else inside[:, :, None]
