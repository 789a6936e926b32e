"""Progress bars for trainings: what is trained, epoch, loss, time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from robustpll.engine.history import reporting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


LINES = 10  # of a training, where no bar can be drawn


@contextmanager
def progress_bars(console: "Console | None" = None) -> Iterator[None]:
    """Within it every training shows a bar; bars of finished ones stay.

    A notebook shows lines of text instead: a bar would need packages that few have.

    >>> with progress_bars():
    ...     pass
    """
    from rich import get_console

    console = get_console() if console is None else console
    with _lines(console) if console.is_jupyter else _bars(console):
        yield


@contextmanager
def _lines(console: "Console") -> Iterator[None]:
    """Within it every training writes some lines as it goes on."""
    from rich.console import Console

    plain = Console(file=console.file, force_jupyter=False, force_terminal=False)

    def tell(title: str, epoch: int, epochs: int, loss: Tensor) -> None:
        if epoch * LINES // epochs > (epoch - 1) * LINES // epochs:
            plain.print(f"{title}: epoch {epoch} of {epochs}, loss {float(loss.mean()):.3f}")

    with reporting(tell):
        yield


@contextmanager
def _bars(console: "Console") -> Iterator[None]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console) as bars:
        bar: TaskID | None = None

        def tell(title: str, epoch: int, epochs: int, loss: Tensor) -> None:
            nonlocal bar
            if epoch == 1 or bar is None:
                bar = bars.add_task(f"{title:14}", total=epochs, loss=float("nan"))
            task = bars.tasks[bar]
            # Reading the loss waits for the device, so it is read a few times a second only.
            due = epoch == epochs or (task.elapsed or 0) - task.fields.get("read", -1) > 0.2
            if due:
                bars.update(bar, loss=float(loss.mean()), read=task.elapsed)
            bars.update(bar, completed=epoch)

        with reporting(tell):
            yield
