"""Rows that do not fit the device: gathered on the host and copied ahead of the step."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from robustpll.engine.rows import Rows

AHEAD = 4  # batches that are gathered before they are needed


@dataclass(frozen=True)
class Streamed(Rows):
    """Rows of which the device holds one batch at a time; a `Feed` puts it there."""

    buffer: Tensor  # (M * b, *shape), unscaled

    @classmethod
    def of_rows(cls, rows: Rows, size: int) -> Self:
        """Room for batches of up to `size` rows."""
        buffer = rows.shift.new_empty((rows.models * size, *rows.shape))
        return cls(rows.pool, rows.at, rows.shift, rows.scale, buffer)

    def x(self, at: Tensor) -> Tensor:
        """The batch in the buffer, scaled; its positions (M, b) only tell its size."""
        models, b = at.shape
        raw = self.buffer[: models * b].view(models, b, *self.shape)
        return (raw - self.shift) / self.scale


class Feed:
    """Brings batches into the buffer of streamed rows, gathering a few ahead in a thread.

    The copy to the device is queued behind the step before it, so the buffer is free by then; the
    thread waits until a slot's last copy is done before it writes there again.
    """

    def __init__(self, rows: Streamed) -> None:
        self.rows = rows
        on_cuda = rows.buffer.is_cuda
        shape = rows.buffer.shape
        self.slots = [
            torch.empty(shape, dtype=rows.pool.dtype, pin_memory=on_cuda) for _ in range(AHEAD)
        ]
        self.copied = [_event() if on_cuda else None for _ in range(AHEAD)]
        self.gatherer = ThreadPoolExecutor(1, thread_name_prefix="gather")

    def batches(self, positions: Sequence[Tensor]) -> Iterator[None]:
        """For each of the positions (M, b), on the host: yields when the batch is on its way."""
        waiting: deque[Future[Tensor]] = deque()
        for number in range(len(positions) + AHEAD):
            if number >= AHEAD:
                gathered = waiting.popleft().result()
                self.rows.buffer[: len(gathered)].copy_(gathered, non_blocking=True)
                event = self.copied[number % AHEAD]
                if event is not None:
                    event.record()
                yield
            if number < len(positions):
                slot = number % AHEAD
                waiting.append(self.gatherer.submit(self._gather, slot, positions[number]))

    def _gather(self, slot: int, at: Tensor) -> Tensor:
        event = self.copied[slot]
        if event is not None:
            event.synchronize()
        index = self.rows.at.gather(1, at).flatten()
        into = self.slots[slot][: len(index)]
        return torch.index_select(self.rows.pool, 0, index, out=into)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.gatherer.shutdown(cancel_futures=True)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
