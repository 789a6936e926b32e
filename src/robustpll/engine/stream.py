"""Rows that do not fit the device: gathered on the host and copied ahead of each step."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from robustpll.engine.data import Rows
from robustpll.errors import InputError

# Batches of one model that are gathered and copied together, because a hand-over to a thread is
# not free. For 784 features they take 2 x 13 MB on the device, and as much on the host.
TOGETHER = 16
SLOTS = 2  # one is copied to the device while the other is used


@dataclass(frozen=True)
class Streamed(Rows):
    """Rows of which the device holds one batch at a time; a `Feed` copies it there."""

    buffer: Tensor  # (M * b, *shape), before shift and scale

    @classmethod
    def of_rows(cls, rows: Rows, size: int) -> Self:
        """Allocate a buffer for batches of up to `size` rows."""
        buffer = rows.shift.new_empty((rows.models * size, *rows.shape))
        return cls(rows.pool, rows.at, rows.shift, rows.scale, buffer)

    def x(self, at: Tensor) -> Tensor:
        """Return the batch in the buffer, scaled; only the shape of `at` (M, b) is used."""
        models, b = at.shape
        raw = self.buffer[: models * b].view(models, b, *self.shape)
        return (raw - self.shift) / self.scale

    def elsewhere(self, at: Tensor) -> Tensor:
        raise InputError(
            "This method reads rows outside the batch, so all rows must fit the device's memory; "
            "these are streamed from the host. Use another method, or fewer rows."
        )


class Feed:
    """Copies batches into the buffer of streamed rows, ahead of the step that needs them.

    A thread gathers several batches into pinned memory. A separate CUDA stream copies them to the
    device while steps run. Before each step its batch is copied within the device.
    """

    def __init__(self, rows: Streamed) -> None:
        self.rows = rows
        self.cuda = rows.buffer.is_cuda
        self.together = max(1, TOGETHER // rows.models)
        shape = (self.together * len(rows.buffer), *rows.shape)
        self.on_host = [
            torch.empty(shape, dtype=rows.pool.dtype, pin_memory=self.cuda) for _ in range(SLOTS)
        ]
        self.on_device = [rows.buffer.new_empty(shape) for _ in range(SLOTS)]
        self.copied = [_Event(self.cuda) for _ in range(SLOTS)]
        self.used = [_Event(self.cuda) for _ in range(SLOTS)]
        self.stream: Any = None
        if self.cuda:
            # Another priority guarantees that training does not use this stream.
            device = rows.buffer.device
            self.stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
            self.stream.wait_stream(torch.cuda.current_stream(device))  # the memory may be in use
        self.gatherer = ThreadPoolExecutor(1, thread_name_prefix="gather")

    def batches(self, positions: Sequence[Tensor]) -> Iterator[None]:
        """Yield once per batch (M, b) of host positions, when its rows are in the buffer."""
        starts = range(0, len(positions), self.together)
        groups = [positions[start : start + self.together] for start in starts]
        pending = [self._submit(number, group) for number, group in enumerate(groups[:SLOTS])]
        for number, group in enumerate(groups):
            slot = number % SLOTS
            pending[slot].result()
            self.copied[slot].hold_current_stream()
            start = 0
            for at in group:
                rows = at.numel()
                self.rows.buffer[:rows].copy_(self.on_device[slot][start : start + rows])
                start += rows
                yield
            self.used[slot].record()
            if number + SLOTS < len(groups):
                pending[slot] = self._submit(number + SLOTS, groups[number + SLOTS])

    def _submit(self, number: int, group: Sequence[Tensor]) -> "Future[None]":
        return self.gatherer.submit(self._gather, number % SLOTS, group)

    def _gather(self, slot: int, group: Sequence[Tensor]) -> None:
        """Gather the rows of these batches and start their copy to the device."""
        index = torch.cat([self.rows.at.gather(1, at).flatten() for at in group])
        self.copied[slot].wait_on_host()  # until the pinned memory is free again
        gathered = self.on_host[slot][: len(index)]
        torch.index_select(self.rows.pool, 0, index, out=gathered)
        with torch.cuda.stream(self.stream) if self.cuda else nullcontext():
            self.used[slot].hold_current_stream()
            self.on_device[slot][: len(index)].copy_(gathered, non_blocking=True)
            self.copied[slot].record()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gatherer.shutdown(cancel_futures=True)
        if self.cuda:  # copies may still be writing into memory that is about to be freed
            torch.cuda.current_stream(self.rows.buffer.device).wait_stream(self.stream)


class _Event:
    """A CUDA event; does nothing on a CPU, where every operation is complete when it returns."""

    def __init__(self, cuda: bool) -> None:
        self.event: Any = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]

    def record(self) -> None:
        if self.event is not None:
            self.event.record()

    def hold_current_stream(self) -> None:
        """Let later work of the current stream wait for the recorded work."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)

    def wait_on_host(self) -> None:
        if self.event is not None:
            self.event.synchronize()
