"""`robustpll table`: what a table would be read as, before anything is learned from it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustpll.cli.flags import (
    TABLE,
    BadRowFlags,
    ColumnFlags,
    FileFlags,
    read_and_list,
    with_flags,
)

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes
    from robustpll.tables.read import Table

SHOWN = 30  # classes, columns or annotators; a list that runs off the screen is not read


@with_flags
def table(
    path: Annotated[Path, TABLE],
    *,
    columns: ColumnFlags,
    file: FileFlags,
    bad_rows: BadRowFlags,
) -> None:
    """Look at a table: rows, classes, features, annotators, and rows that do not parse."""
    columns.refuse_several_forms()
    found = read_and_list(path, columns, file, bad_rows)
    _show(found, path)
    if found.bad and not bad_rows.skip_bad_rows:
        raise typer.Exit(1)


def _show(found: "Table", path: Path) -> None:
    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes

    typer.echo(f"{path}: {len(found):,} rows, {found.features.shape[1]:,} features")
    if found.y is not None:
        y = Candidates.of(found.y)
        single = (y.sizes == 1).mean()
        typer.echo(
            f"{len(y.classes):,} classes; {y.sizes.mean():.2f} candidates a row on average; "
            f"{single:.1%} of the rows have one candidate"
        )
        if found.truth is not None:
            typer.echo(_truth_sentence(found.truth, y))
        counts = y.matrix.sum(0)
        order = (-counts).argsort(kind="stable")
        rows = ((y.classes[at], f"{counts[at]:,}", f"{counts[at] / len(y):.1%}") for at in order)
        _print(("class", "candidate in rows", "share"), rows, len(order))
        if isinstance(found.y, Votes):
            heading = ("annotator", "answers", "with the majority")
            _print(heading, _agreement(found.y, y), len(found.annotators))
    kinds = ((name, _kind(column)) for name, column in found.features.items())
    _print(("feature", "is read as"), kinds, found.features.shape[1])


def _truth_sentence(truth: Any, y: "Candidates") -> str:
    """How often a true label is a candidate."""
    import pandas as pd

    known = pd.notna(truth).nonzero()[0]
    at = pd.Index(y.classes).get_indexer(truth[known])
    covered = (at >= 0) & y.matrix[known, at]
    return (
        f"the truth is known for {len(known):,} rows, and is among the candidates in "
        f"{covered.mean():.1%} of them"
    )


def _agreement(votes: "Votes", y: "Candidates") -> Iterator[tuple[str, ...]]:
    """Of each annotator's answers where more than half of a row's answers agree: how many do so."""
    import pandas as pd

    counts = votes.counts(y.classes)  # (n, k)
    answered = [pd.Index(y.classes).get_indexer(column) for _, column in votes.answers.items()]
    total = sum((at >= 0).astype(int) for at in answered)
    winner = counts.argmax(-1)
    clear = (counts.max(-1) > total / 2) & (total > 1)
    for name, at in zip(votes.answers, answered, strict=True):
        told = at[clear & (at >= 0)]
        share = f"{(told == winner[clear & (at >= 0)]).mean():.1%}" if len(told) else "-"
        yield str(name), f"{(at >= 0).sum():,}", share


def _kind(column: "pd.Series[Any]") -> str:
    import pandas as pd

    number = pd.api.types.is_numeric_dtype(column)
    kind = "number" if number else f"category of {column.nunique():,} words"
    gaps = int(column.isna().sum())
    return f"{kind}, with gaps in {gaps:,} rows" if gaps else kind


def _print(heading: Sequence[str], rows: Iterator[Sequence[Any]], count: int) -> None:
    from itertools import islice

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in heading:
        shown.add_column(name, overflow="fold")
    for row in islice(rows, SHOWN):
        cells = (str(cell) for cell in row)  # as Text: names may look like rich's markup
        shown.add_row(*(Text(cell if cell.isprintable() else repr(cell)) for cell in cells))
    console = Console(highlight=False)
    console.print()
    console.print(shown)
    if count > SHOWN:
        console.print(f"and {count - SHOWN:,} more")
