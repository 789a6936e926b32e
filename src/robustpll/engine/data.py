"""Rows, also streamed from the host; tasks; the state of a training; the batch of a step."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from robustpll.engine.random import Draws, seed_of
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.model_selection import CandidateKFold

TOGETHER = 16  # batches of one model that a thread gathers and copies together
SLOTS = 2  # one is copied to the device while the other is used


@dataclass(frozen=True)
class Rows:
    """Rows of R runs or M models in one pool, scaled when they are read.

    If the pool is too large for the device, pool and indices stay on the host. In training, a
    `Feed` then copies one batch at a time into the buffer.
    """

    pool: Tensor  # (N, *shape), unscaled, maybe bytes; may hold several datasets of equal shape
    indices: Tensor  # (M, n): positions in the pool of each model's rows
    shift: Tensor  # (M, 1, *shape)
    scale: Tensor  # (M, 1, *shape)
    buffer: Tensor | None = None  # (M * b, *shape) on the device, unscaled

    @classmethod
    def of(cls, pool: Tensor, indices: Tensor) -> Self:
        """Scale rows of `pool` (N, *shape) by the minimum and maximum of each model's rows.

        A feature that is constant for a model becomes 1, or stays 0 if it is 0.
        """
        # One model after another: M copies of the rows may not fit.
        extremes = [torch.stack(torch.aminmax(pool[row], dim=0, keepdim=True)) for row in indices]
        low, high = torch.stack(extremes, 1)  # (M, 1, *shape) each
        constant = low == high
        low = low.masked_fill(constant, 0)
        high = high.masked_fill(constant & (high == 0), 1)
        return cls(pool, indices, low, high - low)

    @classmethod
    def scaled(cls, x: Tensor) -> Self:
        """Rows of R runs whose features (R, n, *shape) are scaled already."""
        indices = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(x.shape[:2])
        first = x[:, :1]
        return cls(x.flatten(0, 1), indices, torch.zeros_like(first), torch.ones_like(first))

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Join the models of several rows of equal number and shape; shared pools stay shared."""
        pools = list({id(rows.pool): rows.pool for rows in several}.values())
        starts = dict(zip(map(id, pools), accumulate(map(len, pools), initial=0), strict=False))
        return cls(
            torch.cat(pools) if len(pools) > 1 else pools[0],
            torch.cat([rows.indices + starts[id(rows.pool)] for rows in several]),
            torch.cat([rows.shift for rows in several]),
            torch.cat([rows.scale for rows in several]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pool.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.shift.device  # of scaled rows

    @property
    def on_host(self) -> bool:
        """Whether rows must be copied to the device batch by batch."""
        return self.pool.device != self.device

    @property
    def models(self) -> int:
        return self.indices.shape[0]

    def __len__(self) -> int:
        return self.indices.shape[1]

    @property
    def everything(self) -> Tensor:
        """All positions, (M, n)."""
        return torch.arange(len(self), device=self.indices.device).expand(self.models, -1)

    def x(self, indices: Tensor) -> Tensor:
        """Return the scaled features (M, b, *shape) of positions (M, b) in 0 .. n-1."""
        return (self.raw(indices) - self.shift).div_(self.scale)

    def raw(self, indices: Tensor) -> Tensor:
        """As `x`, before scaling. With a buffer, return its batch, whatever the positions are."""
        if self.buffer is not None:
            return self.buffer[: indices.numel()].view(*indices.shape, *self.shape)
        positions = self.indices.gather(1, indices.to(self.indices.device))
        rows = self.pool.index_select(0, positions.flatten())  # faster than a 2-dimensional index
        return rows.to(self.device).view(*indices.shape, *self.shape)

    def elsewhere(self, indices: Tensor) -> Tensor:
        """As `x`, for rows outside the batch."""
        if self.buffer is not None:
            msg = "This method needs all rows in the device's memory, but they do not fit. "
            raise InputError(msg + "Use another method, or fewer rows.")
        return self.x(indices)

    def others(self, pool: Tensor, indices: Tensor) -> Self:
        """Test or out-of-distribution rows under the same scaling."""
        return replace(self, pool=pool, indices=indices)

    def part(self, models: slice | list[int]) -> Self:
        """Rows of some of the models."""
        return self._changed(lambda values: values[models])

    def repeated(self, members: int) -> Self:
        """Repeat each run's rows for `members` neighbouring models."""
        return self._changed(lambda values: repeat(values, members))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        indices, shift, scale = map(change, (self.indices, self.shift, self.scale))
        return replace(self, indices=indices, shift=shift, scale=scale)


@dataclass(frozen=True)
class Task:
    """Training problems of one shape: R runs as given to fit, M models inside train."""

    rows: Rows
    candidates: Tensor  # (M, n, k) bool
    prior: Tensor  # (M, n, k)
    weight: Tensor  # (M, n): sample weights
    seeds: tuple[int, ...]  # (M,)
    answers: Tensor | None = None  # (M, n, annotators): the class each one named, -1 for none
    start: Tensor | None = None  # (M, n, k): label weights to begin with; None: the prior

    @classmethod
    def of(
        cls,
        rows: Rows,
        candidates: Tensor,
        seeds: tuple[int, ...],
        prior: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        answers: Tensor | None = None,
    ) -> Self:
        """The prior defaults to uniform on the candidates (M, n, k); weights default to 1."""
        like, ones = rows.shift, torch.ones(candidates.shape[:-1])
        prior = candidates / candidates.sum(-1, keepdim=True) if prior is None else prior
        weight = (ones if weight is None else weight).to(like)
        answers = None if answers is None else answers.to(like.device)
        return cls(rows, candidates.to(like.device), prior.to(like), weight, seeds, answers)

    @property
    def k(self) -> int:
        return self.candidates.shape[-1]

    @property
    def models(self) -> int:
        return len(self.seeds)

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, runs: slice) -> Self:
        """The task of some of the runs."""
        rows, seeds = self.rows.part(runs), self.seeds[runs]
        return self._changed(lambda values: values[runs], rows=rows, seeds=seeds)

    def some_rows(self, indices: Tensor) -> Self:
        """The task on each run's rows at these positions (b,), with the same scaling."""
        rows = replace(self.rows, indices=self.rows.indices[:, indices])
        return self._changed(lambda values: values[:, indices], rows=rows)

    def with_candidates(self, candidates: Tensor) -> Self:
        """A task on the same rows with other candidates (M, n, k) and a uniform prior on them."""
        return self.of(self.rows, candidates, self.seeds, weight=self.weight)

    def repeated(self, members: int) -> Self:
        """Each run becomes `members` neighbouring models, each with its own seed."""
        if members == 1:
            return self  # with the same seed
        seeds = tuple(seed_of(seed, member) for seed in self.seeds for member in range(members))
        rows = self.rows.repeated(members)
        return self._changed(lambda values: repeat(values, members), rows=rows, seeds=seeds)

    def _changed(self, change: Callable[[Tensor], Tensor], **fields: Any) -> Self:
        for name in ("candidates", "prior", "weight", "answers", "start"):
            if (values := getattr(self, name)) is not None:
                fields[name] = change(values)
        return replace(self, **fields)


@dataclass
class State:
    """Everything that changes in training, except the network."""

    rows: dict[str, Tensor]  # each (M, n, c); always has "label_weights"
    memory: dict[str, Tensor] = field(default_factory=dict)  # further tensors of a method

    @classmethod
    def of(cls, task: Task, **rows: Tensor | float) -> Self:
        """Start with the task's label weights; a number in `rows` is filled to (M, n, 1)."""
        one, weights = task.prior[..., :1], task.prior if task.start is None else task.start
        filled = {
            name: value.clone() if isinstance(value, Tensor) else torch.full_like(one, value)
            for name, value in rows.items()
        }
        return cls({"label_weights": weights.clone(), **filled})

    def batch(
        self,
        task: Task,
        indices: Tensor,
        stage: int,
        draws: Draws,
        drawn: Tensor | None = None,
        *,
        views: Callable[[Tensor], dict[str, Tensor]] = lambda x: {},
    ) -> "Batch":
        """Return the rows at (M, b) for a step; with `views`, changed by augmentation."""
        x = task.rows.x(indices)
        views_of_x = views(x)
        return Batch(
            x=views_of_x.get("weak", x),
            views=views_of_x,
            candidates=pick(task.candidates, indices),
            prior=pick(task.prior, indices),
            weight=task.weight.gather(1, indices),
            rows={name: pick(value, indices) for name, value in self.rows.items()},
            memory=self.memory,
            indices=indices,
            task=task,
            stage=stage,
            draws=draws,
            drawn=drawn,
        )

    def write(self, indices: Tensor, written: dict[str, Tensor]) -> None:
        """Write row state of the rows at (M, b), in place."""
        for name, value in written.items():
            target = self.rows[name]
            if len(target) == 1:  # as in `pick`
                target[0].index_copy_(0, indices[0], value[0].to(target.dtype))
            else:
                index = indices[..., None].expand(-1, -1, target.shape[-1])
                target.scatter_(1, index, value.to(target.dtype))


@dataclass(frozen=True)
class Batch:
    """The rows of one step, for all models."""

    x: Tensor  # (M, b, *shape), scaled; with augmentation, the view "weak"
    views: dict[str, Tensor]  # by the names in `method.views`, each of the shape of x
    candidates: Tensor  # (M, b, k) bool
    prior: Tensor  # (M, b, k)
    weight: Tensor  # (M, b)
    rows: dict[str, Tensor]  # row state, each (M, b, c)
    memory: dict[str, Tensor]  # further tensors of a method
    indices: Tensor  # (M, b): positions of these rows
    task: Task  # for methods that read rows outside the batch
    stage: int  # a Python int, so that a step may branch on it
    draws: Draws
    drawn: Any = None  # the result of the method's `draw`: (M, b, ...), or None

    @property
    def label_weights(self) -> Tensor:
        return self.rows["label_weights"]  # (M, b, k)


def repeat(values: Tensor, members: int) -> Tensor:
    """Repeat each run (R, ...) for neighbouring members (M, ...); no copy for one member."""
    return values if members == 1 else values.repeat_interleave(members, 0)


def pick(values: Tensor, indices: Tensor) -> Tensor:
    """Rows at (M, b) of values (M, n, c) -> (M, b, c)."""
    if len(values) == 1:  # without an index for each number
        return values[0].index_select(0, indices[0])[None]
    return values.gather(1, indices[..., None].expand(-1, -1, values.shape[-1]))


def fold_indices(rows: int | Candidates, folds: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return indices of training and test rows, (folds, rows) each.

    Folds are random for a number of rows, and stratified by their likeliest class for candidates.
    """
    seed = seed_of(seed, "folds")
    if isinstance(rows, Candidates):
        order = np.arange(len(rows))
        splitter = CandidateKFold(folds, random_state=seed % 2**32)
        parts = [test for _, test in splitter.split(order, rows)]
    else:
        order = np.random.default_rng(seed).permutation(rows)
        parts = np.array_split(order, folds)
    n, size = len(order), max(map(len, parts))
    # models of a bundle have equally many rows: test folds may repeat one, training sets omit one
    test = [np.resize(part, size) for part in parts]
    train = [np.setdiff1d(order, part)[: n - size] for part in parts]
    return torch.from_numpy(np.stack(train)), torch.from_numpy(np.stack(test))


class Feed(AbstractContextManager["Feed"]):
    """Copies rows to the device ahead of the steps that need them, and each batch into a buffer.

    A thread gathers several batches into pinned memory; a separate CUDA stream copies them.
    """

    def __init__(self, rows: Rows, size: int) -> None:
        shape = (rows.models * size, *rows.shape)
        self.buffer = rows.pool.new_empty(shape, device=rows.device)
        self.rows = replace(rows, buffer=self.buffer)
        self.cuda = self.buffer.is_cuda
        self.together = max(1, TOGETHER // rows.models)
        shape = (self.together * len(self.buffer), *rows.shape)
        options: Any = {"dtype": rows.pool.dtype, "pin_memory": self.cuda}
        self.on_host = [torch.empty(shape, **options) for _ in range(SLOTS)]
        self.on_device = [self.buffer.new_empty(shape) for _ in range(SLOTS)]
        if self.cuda:
            self.copied: Any = [torch.cuda.Event() for _ in range(SLOTS)]  # type: ignore[no-untyped-call]
            self.used: Any = [torch.cuda.Event() for _ in range(SLOTS)]  # type: ignore[no-untyped-call]
            # Another priority guarantees that training does not use this stream.
            self.stream = torch.cuda.Stream(rows.device, priority=-1)  # type: ignore[no-untyped-call]
            self.stream.wait_stream(torch.cuda.current_stream(rows.device))  # may use the memory
        self.gatherer = ThreadPoolExecutor(1, thread_name_prefix="gather")

    def batches(self, positions: Sequence[Tensor]) -> Iterator[None]:
        """Yield once per batch (M, b) of host positions, when its rows are in the buffer."""
        starts = range(0, len(positions), self.together)
        groups = [positions[start : start + self.together] for start in starts]
        submit, gather = self.gatherer.submit, self._gather
        pending = [submit(gather, slot, group) for slot, group in enumerate(groups[:SLOTS])]
        for number, group in enumerate(groups):
            slot = number % SLOTS
            pending[slot].result()
            if self.cuda:
                torch.cuda.current_stream().wait_event(self.copied[slot])
            sizes = [indices.numel() for indices in group]
            for batch in torch.split(self.on_device[slot][: sum(sizes)], sizes):
                self.buffer[: len(batch)].copy_(batch)
                yield
            if self.cuda:
                self.used[slot].record()
            if number + SLOTS < len(groups):
                pending[slot] = submit(gather, slot, groups[number + SLOTS])

    def _gather(self, slot: int, group: Sequence[Tensor]) -> None:
        """Gather the rows of these batches and start their copy to the device."""
        index = torch.cat([self.rows.indices.gather(1, indices).flatten() for indices in group])
        gathered, target = self.on_host[slot][: len(index)], self.on_device[slot][: len(index)]
        if not self.cuda:
            target.copy_(torch.index_select(self.rows.pool, 0, index, out=gathered))
            return
        self.copied[slot].synchronize()  # until the pinned memory is free again
        torch.index_select(self.rows.pool, 0, index, out=gathered)
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.used[slot])
            target.copy_(gathered, non_blocking=True)
            self.copied[slot].record()

    def __exit__(self, *_: object) -> None:
        self.gatherer.shutdown(cancel_futures=True)
        if self.cuda:  # copies may still be writing into memory that is about to be freed
            torch.cuda.current_stream(self.rows.device).wait_stream(self.stream)
