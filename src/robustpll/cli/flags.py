"""Options that several commands share, in groups; and how their tables are read."""

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustpll.cli.messages import refusals, refuse_unwritable, say
from robustpll.errors import InputError, some_of

if TYPE_CHECKING:
    from robustpll.labels.candidates import Candidates
    from robustpll.labels.votes import Votes
    from robustpll.tables.read import Table

COLUMN, PREFIX = "COLUMN", "PREFIX"
TABLE = typer.Argument(metavar="TABLE", help="A .csv, .tsv or .parquet file.")
DECISIONS = typer.Option(metavar="FILE", help="From the review page of clean; may be repeated.")
FORMS = ("candidates", "indicators", "votes")
SHOWN = 5  # bad rows that are shown on a terminal
MOST_GROUPS, MOST_NAMES = 10, 8  # of class names that may be one, and of names in such a group


@dataclass(frozen=True)
class ColumnFlags:
    """Which columns are what."""

    candidates: Annotated[
        str | None, typer.Option(metavar=COLUMN, help="Column of sets: cat|dog, or JSON lists.")
    ] = None
    separator: Annotated[str, typer.Option(help="Between the names of a set.")] = "|"
    indicators: Annotated[
        str | None, typer.Option(metavar=PREFIX, help="Or: 0/1 columns, one for each class.")
    ] = None
    votes: Annotated[
        str | None, typer.Option(metavar=PREFIX, help="Or: columns of annotators' answers.")
    ] = None
    truth: Annotated[
        str | None, typer.Option(metavar=COLUMN, help="True labels, to compare with.")
    ] = None
    ignore: Annotated[
        list[str] | None, typer.Option(metavar=COLUMN, help="Leave out; may be repeated.")
    ] = None
    categories: Annotated[
        list[str] | None, typer.Option(metavar=COLUMN, help="Cells are names; may be repeated.")
    ] = None
    unanswered: Annotated[
        str, typer.Option(help='Rows without candidates: "error", or they have "all classes".')
    ] = "error"

    def refuse_several_forms(self, least: int = 0) -> None:
        """Wrong usage: more than one form of candidates, or fewer than `least`."""
        passed = sum(getattr(self, form) is not None for form in FORMS)
        if not least <= passed <= 1:
            why = "" if passed else ": the command learns from what they name"
            raise typer.BadParameter(f"pass one of --candidates, --indicators and --votes{why}.")


@dataclass(frozen=True)
class FileFlags:
    """How a file is written."""

    missing: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help='Means "no value"; may be repeated.')
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Of a CSV file, if not UTF-8.")] = None
    delimiter: Annotated[str | None, typer.Option(help="Between the cells of a CSV file.")] = None
    decimal: Annotated[str | None, typer.Option(help="Before decimals in a CSV file.")] = None


@dataclass(frozen=True)
class BadRowFlags:
    """What becomes of rows that do not parse."""

    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Rows that do not parse are no failure.")
    ] = False
    errors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV file to list bad rows in.")
    ] = None


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer; in place of each parameter that is a dataclass, its fields are options.

    >>> @with_flags
    ... def show(path: str, *, file: FileFlags) -> None:
    ...     print(path, file.delimiter)
    >>> show("pets.csv", missing=None, encoding=None, delimiter=";", decimal=None)
    pets.csv ;
    >>> list(inspect.signature(show).parameters)
    ['path', 'missing', 'encoding', 'delimiter', 'decimal']
    """
    taken = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in taken if is_dataclass(one.annotation)
    }

    @functools.wraps(command)
    def expanded(*arguments: Any, **options: Any) -> None:
        for name, group in groups.items():
            own = {field.name: options.pop(field.name) for field in fields(group)}
            options[name] = group(**own)
        command(*arguments, **options)

    parameters = []
    for one in taken:
        group = fields(groups[one.name]) if one.name in groups else ()
        parameters += [
            one.replace(name=field.name, default=field.default, annotation=field.type)
            for field in group
        ] or [one]
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in parameters}
    return expanded


def read(path: Path, columns: ColumnFlags, file: FileFlags, bad_rows: BadRowFlags) -> "Table":
    """The rows that parse; says on stderr which do not, and ends the command unless they may."""
    table = read_and_list(path, columns, file, bad_rows)
    if table.bad and not bad_rows.skip_bad_rows:
        raise typer.Exit(1)
    return table


def read_and_list(
    path: Path, columns: ColumnFlags, file: FileFlags, bad_rows: BadRowFlags
) -> "Table":
    """The rows that parse; says on stderr which do not, and which class names look odd."""
    from robustpll.tables.read import BAD_ROWS, is_list_of_bad_rows, read_table

    options: dict[str, Any] = asdict(columns) | asdict(file)
    with warnings.catch_warnings(record=True) as warned, refusals():
        warnings.simplefilter("always")
        if bad_rows.errors is not None:
            refuse_unwritable(bad_rows.errors, (path,), is_list_of_bad_rows, BAD_ROWS)
        try:
            table = read_table(path, on_bad_rows="skip", errors_to=bad_rows.errors, **options)
        except InputError as error:
            raise InputError(as_options(str(error))) from error
    for warning in warned:
        say(f"{path}: {as_options(str(warning.message))}")
    if table.bad:
        for sentence in _of_bad_rows(table, path, bad_rows):
            say(sentence)
    if table.y is not None:
        for sentence in _of_class_names(table.y, path, columns):
            say(sentence)
    return table


def _of_bad_rows(table: "Table", path: Path, flags: BadRowFlags) -> Iterator[str]:
    """How many rows do not parse, the first faults, and what can be done."""
    from robustpll.tables.labels import NO_ANSWER
    from robustpll.tables.source import PARQUET

    bad, where = table.bad, "row" if path.suffix.lower() in PARQUET else "line"
    yield f"{path}: {len({one.line for one in bad}):,} rows do not parse and are left out:"
    yield from (f"  {where} {one.line}: {as_options(str(one))}" for one in bad[:SHOWN])
    if len(bad) > SHOWN:
        all_of_them = "" if flags.errors else "; pass --errors FILE to list all of them in a file"
        yield f"  and {len(bad) - SHOWN:,} more{all_of_them}"
    if flags.errors:
        yield f"{flags.errors} lists them."
    silent = sum(one.reason in NO_ANSWER for one in bad)
    if silent:
        yield (
            f'{silent:,} of them have no candidates. Pass --unanswered "all classes" to keep such '
            'rows with all classes as candidates; with --unanswered "error", the default, they do '
            "not parse."
        )
    if not flags.skip_bad_rows:
        yield "Correct them, or pass --skip-bad-rows to do without them."


def _of_class_names(y: "Candidates | Votes", path: Path, columns: ColumnFlags) -> Iterator[str]:
    """Names that may be one class, and words that may be none; nothing is merged."""
    from robustpll.labels.candidates import Candidates
    from robustpll.tables.spelling import Spellings

    sets = Candidates.of(y)
    if sets.classes.dtype.kind != "U":
        return
    counts = sets.matrix.sum(0) - (sets.sizes == len(sets.classes)).sum()  # these tell nothing
    spellings = Spellings.of(dict(zip(sets.classes.tolist(), counts.tolist(), strict=True)))
    if spellings.groups:
        yield (
            f"{path}: names that may be one class, and are several now. Correct the table if they "
            "are one:"
        )
        for names in spellings.groups[:MOST_GROUPS]:
            yield f"  {_with_rows(names)}"
        if len(spellings.groups) > MOST_GROUPS:
            yield f"  and {len(spellings.groups) - MOST_GROUPS:,} more such groups"
    if spellings.placeholders:
        option, prefix = ("ignore", columns.indicators) if columns.indicators else ("missing", "")
        words = " ".join(f"--{option} {prefix + name!r}" for name in spellings.placeholders)
        yield (
            f"{path}: {_with_rows(spellings.placeholders)} became a class. Pass {words} if that "
            "means that there is no answer."
        )


def _with_rows(names: dict[str, int]) -> str:
    """The first few names, and in how many rows each is a candidate."""
    return some_of((f"{name!r} ({count:,} rows)" for name, count in names.items()), most=MOST_NAMES)


def as_options(sentence: str) -> str:
    """A sentence about arguments of `read_table`, in the words of the command line.

    >>> as_options("Pass delimiter=';', or name it in `ignore`.")
    "Pass --delimiter ';', or name it in --ignore."
    >>> as_options("If it is a set, split it: y = [set(row.split(',')) for row in y].")
    "If it is a set, pass --separator ','."
    """
    sentence = sentence.replace("errors_to", "errors")
    sentence = re.sub(r"split it: y = .*split\((.*?)\).*", r"pass --separator \1.", sentence)
    names = "|".join(
        field.name for group in (ColumnFlags, FileFlags, BadRowFlags) for field in fields(group)
    )
    sentence = re.sub(rf"`({names})`", r"--\1", sentence)
    return re.sub(rf"\b({names})=(?=['\"])", r"--\1 ", sentence)
