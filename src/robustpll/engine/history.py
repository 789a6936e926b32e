"""What each epoch gave, and who is told about it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

Listener = Callable[[str, int, int, "Tensor"], None]  # what is trained, epoch, of how many, loss

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@dataclass
class History:
    """The mean loss of each epoch, one number per model; a GPU is asked only when it is read."""

    losses: list[Tensor] = field(default_factory=list)  # (M,) each
    covering_rates: list[Tensor] = field(default_factory=list)  # (M,) each, of watched rows

    @property
    def loss(self) -> Tensor:
        """(epochs, M), on the CPU."""
        return _stacked(self.losses)

    @property
    def covering_rate(self) -> Tensor:
        """(epochs, M), on the CPU; (0, 0) where no rows were watched."""
        return _stacked(self.covering_rates)

    def add(self, title: str, epochs: int, loss: Tensor, covering_rate: Tensor | None) -> None:
        """The one report of an epoch."""
        self.losses.append(loss)
        if covering_rate is not None:
            self.covering_rates.append(covering_rate)
        listener = _listener.get()
        if listener is not None:
            listener(title, len(self.losses), epochs, loss)

    def part(self, models: slice) -> Self:
        """Of some of the models."""
        return type(self)(
            [loss[models] for loss in self.losses], [rate[models] for rate in self.covering_rates]
        )

    def beside(self, other: Self) -> Self:
        """Of the models of both."""
        losses = zip(self.losses, other.losses, strict=True)
        rates = zip(self.covering_rates, other.covering_rates, strict=True)
        return type(self)([torch.cat(each) for each in losses], [torch.cat(each) for each in rates])


def _stacked(each: list[Tensor]) -> Tensor:
    return torch.stack(each).cpu() if each else torch.empty(0, 0)


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Within it, `listener` is told of every epoch of every training.

    >>> def tell(title, epoch, epochs, loss): ...
    >>> with reporting(tell):
    ...     pass
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
