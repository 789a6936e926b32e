"""Feature rows of many models over one pool, scaled when they are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Rows of R runs or M models over one pool, which may be several datasets of equal shape.

    A pool that is too large for the device stays on the host, and so does `at`.
    """

    pool: Tensor  # (N, *shape), before shift and scale, stored once
    at: Tensor  # (M, n): which of them each model has
    shift: Tensor  # (M, 1, *shape)
    scale: Tensor  # (M, 1, *shape)

    @classmethod
    def of(cls, pool: Tensor, at: Tensor) -> Self:
        """Rows of `pool` (N, *shape), scaled by the smallest and largest value each model has.

        A feature that is constant for a model becomes 1, or stays 0 if it is 0.

        >>> pool = torch.tensor([[0.0, 2, 0], [1, 2, 0], [4, 2, 0]])
        >>> rows = Rows.of(pool, torch.arange(3)[None])
        >>> rows.x(rows.everything)[0]
        tensor([[0.0000, 1.0000, 0.0000],
                [0.2500, 1.0000, 0.0000],
                [1.0000, 1.0000, 0.0000]])
        """
        # one model after the other: M copies of the rows need not fit
        extremes = [torch.stack(torch.aminmax(pool[own], dim=0, keepdim=True)) for own in at]
        low, high = torch.stack(extremes, 1)  # (M, 1, *shape) each
        constant = low == high
        low = low.masked_fill(constant, 0)
        high = high.masked_fill(constant & (high == 0), 1)
        return cls(pool, at, low, high - low)

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """All models of several rows of equal number and shape; a pool they share stays one."""
        pools = list({id(rows.pool): rows.pool for rows in several}.values())
        starts = dict(zip(map(id, pools), accumulate(map(len, pools), initial=0), strict=False))
        return cls(
            torch.cat(pools) if len(pools) > 1 else pools[0],
            torch.cat([rows.at + starts[id(rows.pool)] for rows in several]),
            torch.cat([rows.shift for rows in several]),
            torch.cat([rows.scale for rows in several]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row."""
        return tuple(self.pool.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where scaled rows are."""
        return self.shift.device

    @property
    def on_host(self) -> bool:
        """Whether rows must be brought to the device batch by batch."""
        return self.pool.device != self.shift.device

    @property
    def models(self) -> int:
        return self.at.shape[0]

    def __len__(self) -> int:
        return self.at.shape[1]

    @property
    def everything(self) -> Tensor:
        """All positions, (M, n)."""
        return torch.arange(len(self), device=self.at.device).expand(self.models, -1)

    def x(self, at: Tensor) -> Tensor:
        """Positions (M, b) in 0 .. n-1 -> scaled features (M, b, *shape)."""
        raw = self.pool[self.at.gather(1, at.to(self.at.device))]
        return (raw.to(self.shift.device) - self.shift) / self.scale

    def elsewhere(self, at: Tensor) -> Tensor:
        """As `x`, for rows besides those of the batch."""
        return self.x(at)

    def others(self, pool: Tensor, at: Tensor) -> Self:
        """Test or out-of-distribution rows under the same scaling."""
        return replace(self, pool=pool, at=at)

    def part(self, models: slice) -> Self:
        """Rows of some of the models."""
        return replace(self, at=self.at[models], shift=self.shift[models], scale=self.scale[models])

    def repeated(self, members: int) -> Self:
        """Each run's rows for `members` neighbouring models."""
        if members == 1:
            return self
        return replace(
            self,
            at=self.at.repeat_interleave(members, 0),
            shift=self.shift.repeat_interleave(members, 0),
            scale=self.scale.repeat_interleave(members, 0),
        )
