"""Losses of each epoch, and callbacks that are called after it: progress bars, for example."""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from html import escape
from types import SimpleNamespace
from typing import Any, Protocol, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True)
class EpochState:
    """What a callback is told after an epoch; reading numbers waits for the device."""

    title: str  # of the training; some methods have several
    epoch: int  # counted from 1
    epochs: int  # of the whole training
    seconds: float  # since the start of the training, without interruptions
    resumed: bool  # whether the fit goes on from a checkpoint
    _loss: Tensor = field(repr=False)
    _covering_rate: Tensor | None = field(repr=False)
    _net: nn.Module = field(repr=False)

    @property
    def loss(self) -> NDArray[Any]:
        """The mean loss of each model in this epoch, (M,)."""
        return self._loss.cpu().numpy().copy()

    @property
    def covering_rate(self) -> NDArray[Any] | None:
        """The share of validation rows whose predicted class is a candidate, (M,), if any."""
        rate = self._covering_rate
        return None if rate is None else rate.cpu().numpy().copy()

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Copies of the network's parameters by name; some have a leading axis of models."""
        named = self._net.named_parameters()
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in named}


class Callback(Protocol):
    """An object that is called after every epoch."""

    def on_epoch_end(self, state: EpochState, /) -> object:
        """Return a true value to stop the training after this epoch."""


_callbacks: ContextVar[tuple[Callback, ...]] = ContextVar("callbacks", default=())


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

    def add(self, loss: Tensor, covering_rate: Tensor | None) -> None:
        """Record an epoch."""
        self.losses.append(loss)
        if covering_rate is not None:
            self.covering_rates.append(covering_rate)

    def part(self, models: slice) -> Self:
        """The history of some of the models."""
        losses, rates = self.losses, self.covering_rates
        return type(self)([loss[models] for loss in losses], [rate[models] for rate in rates])

    def beside(self, other: Self) -> Self:
        """The history of the models of both, for epochs that both have."""
        losses = zip(self.losses, other.losses, strict=False)  # a callback may stop one of them
        rates = zip(self.covering_rates, other.covering_rates, strict=False)
        return type(self)([torch.cat(pair) for pair in losses], [torch.cat(pair) for pair in rates])


def is_stopped(state: EpochState) -> bool:
    """Call all callbacks; return whether one of them stops the training."""
    answers = [callback.on_epoch_end(state) for callback in _callbacks.get()]
    return any(answers)


@contextmanager
def set_within(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a variable a value within the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def reporting(*callbacks: Callback) -> AbstractContextManager[None]:
    """Call these callbacks, too, after every epoch of every training within the context."""
    return set_within(_callbacks, (*_callbacks.get(), *callbacks))


@dataclass
class NotebookBars:
    """Progress bars in a notebook, one line for each training; a text where there is no HTML."""

    bars: list[tuple[str, float, int, int]] = field(default_factory=list)  # title, loss, epoch, of
    drawn: float = -math.inf  # when the bars were drawn
    handle: Any = None

    def on_epoch_end(self, state: EpochState) -> None:
        is_first = state.epoch == 1 or not self.bars or self.bars[-1][0] != state.title
        # Reading the loss waits for the device, and a notebook keeps up with few pictures.
        if not is_first and state.epoch < state.epochs and time.monotonic() < self.drawn + 0.2:
            return
        bar = (state.title, float(state.loss.mean()), state.epoch, state.epochs)
        self.bars = [*self.bars[: None if is_first else -1], bar]
        self.drawn = time.monotonic()
        if self.handle is None:
            from IPython.display import display

            self.handle = display(self, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join(f"{a}: epoch {c} of {d}, loss {b:.3f}" for a, b, c, d in self.bars)

    def _repr_html_(self) -> str:
        lines = repr(self).split("\n")
        pairs = zip(self.bars, lines, strict=True)
        bars = (f'<progress value="{b[2]}" max="{b[3]}"></progress> {escape(x)}' for b, x in pairs)
        return "<br>".join(bars)


@contextmanager
def progress_bars(console: Any = None) -> Iterator[None]:
    """Show a progress bar of rich for every training within the context."""
    from rich import get_console, progress

    console = get_console() if console is None else console

    if console.is_jupyter:  # a bar of rich would need ipywidgets
        with reporting(NotebookBars()):
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

    def advance_bar(state: EpochState) -> None:
        name = f"{state.title:14}"
        if state.epoch == 1 or not bars.tasks or bars.tasks[-1].description != name:
            bars.add_task(name, total=state.epochs, loss=float("nan"))
        task = bars.tasks[-1]
        # Reading the loss waits for the device, so read it only a few times a second.
        is_last = state.epoch == state.epochs
        if is_last or (task.elapsed or 0) - task.fields.get("read", -1) > 0.2:
            bars.update(task.id, loss=float(state.loss.mean()), read=task.elapsed)
        bars.update(task.id, completed=state.epoch)

    with bars, reporting(SimpleNamespace(on_epoch_end=advance_bar)):
        yield
