"""`robustpll table`: what a table would be read as, before anything is learned from it."""

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustpll.cli.sentences import refusals, say

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.candidates import Candidates, Votes
    from robustpll.data.table import Table

SHOWN = 30  # classes, columns or annotators; a list that runs off the screen is not read

COLUMN, PREFIX = "COLUMN", "PREFIX"


def table(
    path: Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv, .tsv or .parquet file.")],
    *,
    candidates: Annotated[
        str | None, typer.Option(metavar=COLUMN, help="Column of sets: cat|dog, or JSON lists.")
    ] = None,
    separator: Annotated[str, typer.Option(help="Between the names of a set.")] = "|",
    indicators: Annotated[
        str | None, typer.Option(metavar=PREFIX, help="Or: 0/1 columns, one for each class.")
    ] = None,
    votes: Annotated[
        str | None, typer.Option(metavar=PREFIX, help="Or: columns of annotators' answers.")
    ] = None,
    truth: Annotated[
        str | None, typer.Option(metavar=COLUMN, help="True labels, to compare with.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar=COLUMN, help="Leave out; may be repeated.")
    ] = None,
    categories: Annotated[
        list[str] | None, typer.Option(metavar=COLUMN, help="Cells are names; may be repeated.")
    ] = None,
    missing: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help='Means "no value"; may be repeated.')
    ] = None,
    unanswered: Annotated[
        str, typer.Option(help='Rows without candidates: "error", or they have "all classes".')
    ] = "error",
    encoding: Annotated[str | None, typer.Option(help="Of a CSV file, if not UTF-8.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the cells of a CSV file.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Before decimals in a CSV file.")] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Rows that do not parse are no failure.")
    ] = False,
    errors: Annotated[
        Path | None, typer.Option(help="Where bad rows are listed, by default ./NAME.errors.csv.")
    ] = None,
) -> None:
    """Look at a table: rows, classes, features, annotators, and rows that do not parse."""
    forms = {"candidates": candidates, "indicators": indicators, "votes": votes}
    if sum(form is not None for form in forms.values()) > 1:
        raise typer.BadParameter("pass one of --candidates, --indicators and --votes.")
    listed = errors or Path(Path(path.name.removesuffix(".gz")).stem + ".errors.csv")
    columns = {"truth": truth, "ignore": ignore or (), "categories": categories or ()}
    written = {"encoding": encoding, "delimiter": delimiter, "decimal": decimal}
    means = {"missing": missing or (), "unanswered": unanswered, "separator": separator}
    found = _read(path, listed, **forms, **columns, **written, **means)
    _show(found, path)
    if found.bad:
        _say_bad(found, path, listed)
        raise typer.Exit(0 if skip_bad_rows else 1)


def _read(path: Path, errors: Path, **options: Any) -> "Table":
    from robustpll.data.table import read_table
    from robustpll.errors import InputError

    with warnings.catch_warnings(record=True) as warned, refusals():
        warnings.simplefilter("always")
        try:
            found = read_table(path, on_bad_rows="skip", errors_to=errors, **options)
        except InputError as error:
            raise InputError(as_options(str(error))) from error
    for warning in warned:
        say(f"{path}: {warning.message}")
    return found


def _say_bad(found: "Table", path: Path, listed: Path) -> None:
    from robustpll.data.table import PARQUET

    count, first = len({one.line for one in found.bad}), found.bad[0]
    where = "row" if path.suffix.lower() in PARQUET else "line"
    say(
        f"{count:,} rows do not parse and are left out; {listed} lists them ({where} {first.line}: "
        f"{as_options(str(first))})."
    )


def as_options(sentence: str) -> str:
    """A sentence about arguments of `read_table`, in the words of the command line.

    >>> as_options("Pass delimiter=';', or name it in `ignore`.")
    "Pass --delimiter ';', or name it in --ignore."
    """
    sentence = sentence.replace("errors_to", "errors")
    names = "candidates|indicators|votes|truth|ignore|categories|missing|unanswered|separator"
    names += "|encoding|delimiter|decimal|errors"
    sentence = re.sub(rf"`({names})`", r"--\1", sentence)
    return re.sub(rf"\b({names})=(?=['\"])", r"--\1 ", sentence)


def _show(found: "Table", path: Path) -> None:
    from robustpll.candidates import Candidates, Votes

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
