"""Progress bars for trainings: what is trained, epoch, loss, time left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from robustpll.engine.history import reporting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


@contextmanager
def progress_bars(console: "Console | None" = None) -> Iterator[None]:
    """Within it every training shows a bar; bars of finished ones stay.

    >>> with progress_bars():
    ...     pass
    """
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
