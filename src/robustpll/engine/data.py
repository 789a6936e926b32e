"""What a bundle trains on (Task), what changes meanwhile (State), and a step's view (Batch)."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from robustpll.engine.random import Draws, seed_of
from robustpll.engine.rows import Rows


@dataclass(frozen=True)
class Task:
    """Training problems of one shape: R runs as given to fit, M models inside train.

    Candidates stand here only, and never change.
    """

    rows: Rows
    candidates: Tensor  # (M, n, k) bool
    prior: Tensor  # (M, n, k)
    weight: Tensor  # (M, n): how much a row counts
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
        """Without a prior it is uniform on the candidates (M, n, k); weights default to 1."""
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
        """Some of the runs."""
        return replace(
            self,
            rows=self.rows.part(runs),
            candidates=self.candidates[runs],
            prior=self.prior[runs],
            weight=self.weight[runs],
            seeds=self.seeds[runs],
        )

    def some_rows(self, at: Tensor) -> Self:
        """Each run's rows at these positions (b,), scaled as before."""
        return replace(
            self,
            rows=replace(self.rows, at=self.rows.at[:, at]),
            candidates=self.candidates[:, at],
            prior=self.prior[:, at],
            weight=self.weight[:, at],
        )

    def with_candidates(self, candidates: Tensor) -> Self:
        """Another task on the same rows; its prior is uniform on the candidates (M, n, k)."""
        prior = (candidates / candidates.sum(-1, keepdim=True)).to(self.prior)
        return replace(self, candidates=candidates, prior=prior)

    def repeated(self, members: int) -> Self:
        """Each run becomes `members` neighbours on the model axis, with seeds of their own."""
        if members == 1:
            return self
        return replace(
            self,
            rows=self.rows.repeated(members),
            candidates=self.candidates.repeat_interleave(members, 0),
            prior=self.prior.repeat_interleave(members, 0),
            weight=self.weight.repeat_interleave(members, 0),
            seeds=tuple(seed_of(seed, m) for seed in self.seeds for m in range(members)),
        )


@dataclass
class State:
    """All that changes while training, apart from the network."""

    rows: dict[str, Tensor]  # each (M, n, c); "label_weights" is always there
    memory: dict[str, Tensor] = field(default_factory=dict)  # what a method keeps besides

    @classmethod
    def of(cls, task: Task, **rows: Tensor | float) -> Self:
        """The prior as label weights; further row state, a number standing for (M, n, 1)."""
        one = task.prior[..., :1]
        filled = {
            name: value.clone() if isinstance(value, Tensor) else torch.full_like(one, value)
            for name, value in rows.items()
        }
        return cls({"label_weights": task.prior.clone(), **filled})

    def batch(
        self, task: Task, at: Tensor, stage: int, draws: Draws, drawn: Tensor | None = None
    ) -> "Batch":
        """What a step sees of the rows at (M, b)."""
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
        """Row state for the rows at (M, b), in place."""
        for name, value in written.items():
            into = self.rows[name]
            into.scatter_(1, at[..., None].expand(-1, -1, into.shape[-1]), value.to(into.dtype))


@dataclass(frozen=True)
class Batch:
    """The rows of one step, for all models."""

    x: Tensor  # (M, b, *shape), scaled
    candidates: Tensor  # (M, b, k) bool
    prior: Tensor  # (M, b, k)
    weight: Tensor  # (M, b)
    rows: dict[str, Tensor]  # row state, each (M, b, c)
    memory: dict[str, Tensor]  # what a method keeps besides
    at: Tensor  # (M, b): which rows these are
    task: Task  # for methods that look at other rows, too
    stage: int  # a Python int, so a step may branch on it
    draws: Draws
    drawn: Any = None  # what the method's `draw` gave: (M, b, ...), or None

    @property
    def label_weights(self) -> Tensor:
        """(M, b, k)."""
        return self.rows["label_weights"]


def pick(values: Tensor, at: Tensor) -> Tensor:
    """Rows at (M, b) of values (M, n, c) -> (M, b, c)."""
    return values.gather(1, at[..., None].expand(-1, -1, values.shape[-1]))
