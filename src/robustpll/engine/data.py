"""Rows; the task to train on; the state that training changes; and the batch of a step."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from robustpll.engine.random import Draws, seed_of


@dataclass(frozen=True)
class Rows:
    """Rows of R runs or M models in one pool, scaled when they are read.

    The pool may hold several datasets of equal shape. A pool that is too large for the device
    stays on the host, and so does `at`.
    """

    pool: Tensor  # (N, *shape), unscaled, stored once
    at: Tensor  # (M, n): positions in the pool of each model's rows
    shift: Tensor  # (M, 1, *shape)
    scale: Tensor  # (M, 1, *shape)

    @classmethod
    def of(cls, pool: Tensor, at: Tensor) -> Self:
        """Scale rows of `pool` (N, *shape) by the minimum and maximum of each model's rows.

        A feature that is constant for a model becomes 1, or stays 0 if it is 0.
        """
        # One model after another: M copies of the rows may not fit.
        extremes = [torch.stack(torch.aminmax(pool[index], dim=0, keepdim=True)) for index in at]
        low, high = torch.stack(extremes, 1)  # (M, 1, *shape) each
        constant = low == high
        low = low.masked_fill(constant, 0)
        high = high.masked_fill(constant & (high == 0), 1)
        return cls(pool, at, low, high - low)

    @classmethod
    def scaled(cls, x: Tensor) -> Self:
        """Rows of R runs whose features (R, n, *shape) are scaled already."""
        at = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(x.shape[:2])
        zeros = torch.zeros_like(x[:, :1])
        return cls(x.flatten(0, 1), at, zeros, torch.ones_like(zeros))

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Join the models of several rows of equal number and shape; shared pools stay shared."""
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
        """Shape of one row."""
        return tuple(self.pool.shape[1:])

    @property
    def device(self) -> torch.device:
        """Device of scaled rows."""
        return self.shift.device

    @property
    def on_host(self) -> bool:
        """Whether rows must be copied to the device batch by batch."""
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
        """Return the scaled features (M, b, *shape) of positions (M, b) in 0 .. n-1."""
        raw = self.pool[self.at.gather(1, at.to(self.at.device))]
        return (raw.to(self.shift.device) - self.shift) / self.scale

    def elsewhere(self, at: Tensor) -> Tensor:
        """As `x`, for rows outside the batch."""
        return self.x(at)

    def others(self, pool: Tensor, at: Tensor) -> Self:
        """Test or out-of-distribution rows under the same scaling."""
        return replace(self, pool=pool, at=at)

    def part(self, models: slice) -> Self:
        """Rows of some of the models."""
        return replace(self, at=self.at[models], shift=self.shift[models], scale=self.scale[models])

    def repeated(self, members: int) -> Self:
        """Repeat each run's rows for `members` neighbouring models."""
        at, shift, scale = (repeat(part, members) for part in (self.at, self.shift, self.scale))
        return replace(self, at=at, shift=shift, scale=scale)


@dataclass(frozen=True)
class Task:
    """Training problems of one shape: R runs as given to fit, M models inside train."""

    rows: Rows
    candidates: Tensor  # (M, n, k) bool
    prior: Tensor  # (M, n, k)
    weight: Tensor  # (M, n): sample weights
    seeds: tuple[int, ...]  # (M,)

    @classmethod
    def of(
        cls,
        rows: Rows,
        candidates: Tensor,
        seeds: tuple[int, ...],
        prior: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Self:
        """The prior defaults to uniform on the candidates (M, n, k); weights default to 1."""
        if prior is None:
            prior = candidates / candidates.sum(-1, keepdim=True)
        if weight is None:
            weight = torch.ones(candidates.shape[:-1])
        like = rows.shift
        return cls(rows, candidates.to(like.device), prior.to(like), weight.to(like), seeds)

    @property
    def k(self) -> int:
        return self.candidates.shape[-1]

    @property
    def models(self) -> int:
        return len(self.seeds)

    def __len__(self) -> int:
        """Rows of each model."""
        return len(self.rows)

    def part(self, runs: slice) -> Self:
        """The task of some of the runs."""
        candidates, prior, weight = self.candidates[runs], self.prior[runs], self.weight[runs]
        return type(self)(self.rows.part(runs), candidates, prior, weight, self.seeds[runs])

    def some_rows(self, at: Tensor) -> Self:
        """The task on each run's rows at these positions (b,), with the same scaling."""
        candidates, prior, weight = self.candidates[:, at], self.prior[:, at], self.weight[:, at]
        rows = replace(self.rows, at=self.rows.at[:, at])
        return type(self)(rows, candidates, prior, weight, self.seeds)

    def with_candidates(self, candidates: Tensor) -> Self:
        """A task on the same rows with other candidates (M, n, k) and a uniform prior on them."""
        prior = (candidates / candidates.sum(-1, keepdim=True)).to(self.prior)
        return replace(self, candidates=candidates, prior=prior)

    def repeated(self, members: int) -> Self:
        """Each run becomes `members` neighbouring models, each with its own seed."""
        if members == 1:
            return self  # with the same seed
        return type(self)(
            self.rows.repeated(members),
            repeat(self.candidates, members),
            repeat(self.prior, members),
            repeat(self.weight, members),
            tuple(seed_of(seed, m) for seed in self.seeds for m in range(members)),
        )


@dataclass
class State:
    """Everything that changes in training, except the network."""

    rows: dict[str, Tensor]  # each (M, n, c); always has "label_weights"
    memory: dict[str, Tensor] = field(default_factory=dict)  # further tensors of a method

    @classmethod
    def of(cls, task: Task, **rows: Tensor | float) -> Self:
        """Start with the prior as label weights; a number in `rows` is filled to (M, n, 1)."""
        one = task.prior[..., :1]
        filled = {
            name: value.clone() if isinstance(value, Tensor) else torch.full_like(one, value)
            for name, value in rows.items()
        }
        return cls({"label_weights": task.prior.clone(), **filled})

    def batch(
        self, task: Task, at: Tensor, stage: int, draws: Draws, drawn: Tensor | None = None
    ) -> "Batch":
        """Return the step's view of the rows at (M, b)."""
        return Batch(
            x=task.rows.x(at),
            candidates=pick(task.candidates, at),
            prior=pick(task.prior, at),
            weight=task.weight.gather(1, at),
            rows={name: pick(value, at) for name, value in self.rows.items()},
            memory=self.memory,
            at=at,
            task=task,
            stage=stage,
            draws=draws,
            drawn=drawn,
        )

    def write(self, at: Tensor, written: dict[str, Tensor]) -> None:
        """Write row state of the rows at (M, b), in place."""
        for name, value in written.items():
            target = self.rows[name]
            index = at[..., None].expand(-1, -1, target.shape[-1])
            target.scatter_(1, index, value.to(target.dtype))


@dataclass(frozen=True)
class Batch:
    """The rows of one step, for all models."""

    x: Tensor  # (M, b, *shape), scaled
    candidates: Tensor  # (M, b, k) bool
    prior: Tensor  # (M, b, k)
    weight: Tensor  # (M, b)
    rows: dict[str, Tensor]  # row state, each (M, b, c)
    memory: dict[str, Tensor]  # further tensors of a method
    at: Tensor  # (M, b): positions of these rows
    task: Task  # for methods that read rows outside the batch
    stage: int  # a Python int, so that a step may branch on it
    draws: Draws
    drawn: Any = None  # the result of the method's `draw`: (M, b, ...), or None

    @property
    def label_weights(self) -> Tensor:
        """(M, b, k)."""
        return self.rows["label_weights"]


def repeat(values: Tensor, members: int) -> Tensor:
    """Repeat each run (R, ...) for neighbouring members (M, ...); no copy for one member."""
    return values if members == 1 else values.repeat_interleave(members, 0)


def pick(values: Tensor, at: Tensor) -> Tensor:
    """Rows at (M, b) of values (M, n, c) -> (M, b, c)."""
    return values.gather(1, at[..., None].expand(-1, -1, values.shape[-1]))
