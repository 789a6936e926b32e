"""Losses of each epoch, and progress bars that show them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

Listener = Callable[[str, int, int, Tensor], None]  # title, epoch, number of epochs, loss (M,)

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@dataclass
class History:
    """The mean loss of each epoch, one number per model; copied from the GPU only when read."""

    losses: list[Tensor] = field(default_factory=list)  # (M,) each
    covering_rates: list[Tensor] = field(default_factory=list)  # (M,) each, of validation rows

    @property
    def loss(self) -> Tensor:
        """(epochs, M), on the CPU."""
        return torch.stack(self.losses).cpu() if self.losses else torch.empty(0, 0)

    @property
    def covering_rate(self) -> Tensor:
        """As `loss`; empty without validation rows."""
        return History(self.covering_rates).loss

    def add(self, title: str, epochs: int, loss: Tensor, covering_rate: Tensor | None) -> None:
        """Record an epoch and report it to the listener."""
        self.losses.append(loss)
        if covering_rate is not None:
            self.covering_rates.append(covering_rate)
        listener = _listener.get()
        if listener is not None:
            listener(title, len(self.losses), epochs, loss)

    def part(self, models: slice) -> Self:
        """The history of some of the models."""
        losses, rates = self.losses, self.covering_rates
        return type(self)([loss[models] for loss in losses], [rate[models] for rate in rates])

    def beside(self, other: Self) -> Self:
        """The history of the models of both."""
        losses = zip(self.losses, other.losses, strict=True)
        rates = zip(self.covering_rates, other.covering_rates, strict=True)
        return type(self)([torch.cat(pair) for pair in losses], [torch.cat(pair) for pair in rates])


@contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Call `listener` after every epoch of every training within the context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def progress_bars(console: Any = None) -> Iterator[None]:
    """Show a progress bar of rich for every training within the context."""
    from rich import get_console, progress

    console = get_console() if console is None else console

    def print_line(title: str, epoch: int, epochs: int, loss: Tensor) -> None:
        if epoch * 10 // epochs > (epoch - 1) * 10 // epochs:  # ten lines per training
            line = f"{title}: epoch {epoch} of {epochs}, loss {float(loss.mean()):.3f}"
            print(line, file=console.file, flush=True)

    if console.is_jupyter:  # a bar would need additional packages
        with reporting(print_line):
            yield
        return
    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("loss {task.fields[loss]:.3f}"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
    )

    def advance_bar(title: str, epoch: int, epochs: int, loss: Tensor) -> None:
        if epoch == 1:
            bars.add_task(f"{title:14}", total=epochs, loss=float("nan"))
        task = bars.tasks[-1]
        # Reading the loss waits for the device, so read it only a few times a second.
        if epoch == epochs or (task.elapsed or 0) - task.fields.get("read", -1) > 0.2:
            bars.update(task.id, loss=float(loss.mean()), read=task.elapsed)
        bars.update(task.id, completed=epoch)

    with bars, reporting(advance_bar):
        yield
