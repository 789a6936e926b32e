"""`robustpll table`: shows how a table is read, before anything is learned from it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from robustpll.cli import options as shared

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes
    from robustpll.tables.read import Table


@shared.with_options
def table(
    path: shared.TablePath, *, columns: shared.ColumnOptions, file: shared.FileOptions
) -> None:
    """Show the rows, classes, features and annotators of a table, and rows that do not parse."""
    columns.check_form(required=False)
    table = shared.read(path, columns, file, show=True)
    typer.echo(f"{path}: {len(table):,} rows, {table.features.shape[1]:,} features")
    if table.y is not None:
        _show_labels(table)
    kinds = [(str(name), _kind(column)) for name, column in table.features.items()]
    typer.echo()
    show_list(("feature", "is read as"), kinds)
    if table.bad and not columns.skip_bad_rows:
        raise typer.Exit(1)


def _show_labels(table: "Table") -> None:
    import pandas as pd

    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes

    y = Candidates.of(table.y)
    typer.echo(shared.candidate_summary(y))
    if table.truth is not None:
        known = pd.notna(table.truth).nonzero()[0]
        codes = pd.Index(y.classes).get_indexer(table.truth[known])
        covered = (codes >= 0) & y.matrix[known, codes]
        typer.echo(
            f"the truth is known for {len(known):,} rows, and is among the candidates in "
            f"{covered.mean():.1%} of them"
        )
    counts = y.matrix.sum(0)
    order = (-counts).argsort(kind="stable")
    rows = [(y.classes[k], f"{counts[k]:,}", f"{counts[k] / len(y):.1%}") for k in order]
    typer.echo()
    show_list(("class", "candidate in rows", "share"), rows)
    if isinstance(table.y, Votes):
        typer.echo()
        show_list(("annotator", "answers", "with the majority"), [*_agreement(table.y, y)])


def _agreement(votes: "Votes", y: "Candidates") -> Iterator[tuple[str, str, str]]:
    """Yield each annotator, the number of answers, and how many agree with a strict majority."""
    import pandas as pd

    counts = votes.counts(y.classes)  # (n, k)
    codes = {name: pd.Index(y.classes).get_indexer(votes.answers[name]) for name in votes.answers}
    total = sum((column >= 0).astype(int) for column in codes.values())
    majority = (counts.max(-1) > total / 2) & (total > 1)
    for name, column in codes.items():
        compared = majority & (column >= 0)
        agrees = (column == counts.argmax(-1))[compared]
        share = f"{agrees.mean():.1%}" if len(agrees) else "-"
        yield str(name), f"{(column >= 0).sum():,}", share


def _kind(column: "pd.Series[Any]") -> str:
    import pandas as pd

    number = pd.api.types.is_numeric_dtype(column)
    kind = "number" if number else f"category of {column.nunique():,} words"
    gaps = int(column.isna().sum())
    return f"{kind}, with gaps in {gaps:,} rows" if gaps else kind


def show_list(heading: Sequence[str], rows: Sequence[Sequence[Any]], limit: int = 30) -> None:
    """Print the first rows of a list as a table without lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in heading:
        shown.add_column(name, overflow="fold")
    for row in rows[:limit]:
        cells = (str(cell) for cell in row)
        # names from the table must not be read as markup or as control characters
        shown.add_row(*(Text(cell if cell.isprintable() else repr(cell)) for cell in cells))
    console = Console(highlight=False)
    console.print(shown)
    if len(rows) > limit:
        console.print(f"and {len(rows) - limit:,} more")
