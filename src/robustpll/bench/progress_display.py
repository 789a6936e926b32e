"""What people see while a benchmark runs."""

import time
from collections.abc import Sequence
from typing import Any, Self

NEWS, STILL_ALIVE = 5.0, 60.0  # seconds between lines where there is no terminal


class Board:
    """A bar with the time left on a terminal, a line now and then elsewhere; nothing if `quiet`.

    >>> with Board(quiet=True) as board:
    ...     board.show(0.5, 10, 20, ["Proden on digits (1 run)"], 60.0)
    """

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self.quiet = quiet
        self.console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        self.bars: Any = None
        self.told, self.last = -1, 0.0  # runs that were told of, and when

    def __enter__(self) -> Self:
        if not self.quiet and self.console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn
            from rich.table import Column

            column = Column(no_wrap=True, overflow="ellipsis")
            self.bars = Progress(
                BarColumn(table_column=Column(min_width=20, max_width=20)),
                TextColumn("{task.percentage:>3.0f}%", table_column=Column(min_width=4)),
                TextColumn("{task.fields[told]}", markup=False, table_column=column),
                console=self.console,
            )
            self.bars.start()
            self.bars.add_task("", total=1.0, told="starting")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def show(
        self, share: float, done: int, of: int, flying: Sequence[str], left: float | None
    ) -> None:
        """How far it is: the share of the work, the runs, what is at work, seconds left."""
        told = f"{done:,} of {of:,} runs, {_words(left)}"
        if self.bars is not None:
            at_work = "; ".join(flying[:3]) + (f"; {len(flying) - 3} more" if flying[3:] else "")
            self.bars.update(0, completed=share, told=f"{told}; {at_work}" if at_work else told)
        elif not self.quiet:
            silence = time.monotonic() - self.last
            if silence > (NEWS if done > self.told else STILL_ALIVE):
                self.told, self.last = done, time.monotonic()
                self.console.print(told)

    def say(self, sentence: str) -> None:
        """A sentence for people."""
        if not self.quiet:
            self.console.print(sentence)


def _words(left: float | None) -> str:
    """
    >>> _words(30.0), _words(200.0), _words(9000.0)
    ('30 s left', '4 min left', '2.5 h left')
    """
    if left is None:
        return "time left unknown"
    if left < 90:
        return f"{left:.0f} s left"
    return f"{left / 60 + 0.5:.0f} min left" if left < 5400 else f"{left / 3600:.1f} h left"
