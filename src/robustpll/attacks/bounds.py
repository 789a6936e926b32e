"""How far the features of attacked rows may go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from robustpll.engine.random import Draws
from robustpll.errors import InputError


@dataclass(frozen=True)
class Reach:
    """Where the features of each row may go, for E epsilons; all (M, E b, *shape) but the last."""

    x: Tensor
    low: Tensor
    high: Tensor
    epsilon: Tensor  # broadcasts to (E b, *shape); in float64
    strengths: int = 1  # E

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """The reaches of the same rows under several epsilons, one after the other."""
        first, strengths = several[0], len(several)
        if strengths == 1:
            return first
        b, *shape = first.x.shape[1:]
        size = np.broadcast_shapes(*(reach.epsilon.shape for reach in several))
        each = torch.stack([reach.epsilon.expand(size) for reach in several])
        each = each.view(strengths, *(1,) * (len(shape) + 1 - each.ndim), *each.shape[1:])
        return cls(
            torch.cat([reach.x for reach in several], 1),
            torch.cat([reach.low for reach in several], 1),
            torch.cat([reach.high for reach in several], 1),
            each.repeat_interleave(b, 0),
            strengths,
        )

    @property
    def rows(self) -> int:
        """Under each epsilon: b."""
        return self.x.shape[1] // self.strengths

    def for_each(self, once: Tensor) -> Tensor:
        """(M, b, ...) -> (M, E b, ...): the same under each epsilon."""
        return once if self.strengths == 1 else torch.cat([once] * self.strengths, 1)

    def project(self, x: Tensor) -> Tensor:
        return x.clamp(self.low, self.high)

    def somewhere(self, draws: Draws) -> Tensor:
        """A uniformly drawn point within epsilon, then within reach."""
        drawn = 2 * draws.uniform(self.rows, *self.x.shape[2:]).to(self.x) - 1
        return self.project(self.x + self.epsilon.to(self.x) * self.for_each(drawn))


def expanded(per_row: Tensor, x: Tensor) -> Tensor:
    """(M, b) -> (M, b, 1, ...), to be broadcast against features x (M, b, *shape)."""
    return per_row.view(*per_row.shape, *(1 for _ in x.shape[2:]))


def per_feature(name: str, value: ArrayLike, x: Tensor) -> Tensor:
    """A number or an array as a tensor of float64 that broadcasts against rows (M, b, *shape)."""
    array = np.asarray(value)
    shape = tuple(x.shape[2:])
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        msg = (
            f"{name} has shape {array.shape}, but one row has shape {shape}. Pass one value, or "
            "one for each feature."
        )
        raise InputError(msg)
    return torch.tensor(array, dtype=torch.float64, device=x.device)
