"""What each epoch gave, and who is told about it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

Listener = Callable[[str, int, int, "Tensor"], None]  # what is trained, epoch, of how many, loss

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@dataclass
class History:
    """The mean loss of each epoch, one number per model; a GPU is asked only when it is read."""

    losses: list[Tensor] = field(default_factory=list)  # (M,) each

    @property
    def loss(self) -> Tensor:
        """(epochs, M), on the CPU."""
        return torch.stack(self.losses).cpu() if self.losses else torch.empty(0, 0)

    def add(self, title: str, epochs: int, loss: Tensor) -> None:
        """The one report of an epoch."""
        self.losses.append(loss)
        listener = _listener.get()
        if listener is not None:
            listener(title, len(self.losses), epochs, loss)


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
