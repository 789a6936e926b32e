"""An attack that needs no gradient: it tries changes, and keeps those that help."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from robustpll.attacks.base import Attack, Outputs, margin
from robustpll.attacks.bounds import Reach, expanded
from robustpll.engine.random import Draws
from robustpll.errors import InputError

# After which shares of the queries the changed part of a row is halved.
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Square(Attack):
    """Square attack (Andriushchenko et al., ECCV 2020): random search on outputs alone.

    Every feature is always at an end of its reach. A query moves some to a random end, and is kept
    for the rows whose margin it raises: in a picture the pixels of a square, each channel to one
    end; in a table random features, each to an end of its own. It attacks any method, also one
    without a network.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`; labels must be "clean" or "true".
    queries : int
        How often the outputs are asked for.
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
            msg = (
                "Square needs labels='clean' or 'true', and a part above 0 and at most 1; got "
                f"{self.labels!r} and {self.part!r}."
            )
            raise InputError(msg)

    def moved(self, outputs: Outputs, reach: Reach, draws: Draws, labels: Tensor | None) -> Tensor:
        assert labels is not None
        best = _ends(reach, draws, stripes=True)
        found = margin(outputs(best), labels)  # (M, b)
        for query in range(1, self.queries):
            share = self.part / 2 ** sum(query > at * self.queries for at in HALVINGS)
            changed = reach.for_each(_somewhere(reach, share, draws))
            tried = torch.where(changed, _ends(reach, draws), best)
            now = margin(outputs(tried), labels)
            better = now > found
            best = torch.where(expanded(better, best), tried, best)
            found = torch.where(better, now, found)
        return best


def _ends(reach: Reach, draws: Draws, *, stripes: bool = False) -> Tensor:
    """Each feature at an end of its reach, (M, b, *shape).

    In a picture all of a channel is at the same end, or with `stripes` all of a column.
    """
    shape = list(reach.x.shape[2:])
    if len(shape) >= 2:
        shape = [*shape[:-2], 1, shape[-1] if stripes else 1]
    up = reach.for_each(draws.uniform(reach.rows, *shape) < 0.5)
    return torch.where(up, reach.high, reach.low)


def _somewhere(reach: Reach, share: float, draws: Draws) -> Tensor:
    """Which features of rows (M, b, *shape) change: about that share, at least one."""
    x, b, shape = reach.x, reach.rows, list(reach.x.shape[2:])
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
