"""Read tables from CSV files, Parquet files and DataFrames."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll._files import refuse_replacing, write_whole
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables import labels as label_columns
from robustpll.tables.checks import refuse_odd_features
from robustpll.tables.columns import Reading, Roles, several
from robustpll.tables.labels import NO_ANSWER, Labels, Unanswered, class_names, distinct
from robustpll.tables.pieces import read_rows, refuse_lists, too_large_cells
from robustpll.tables.source import (
    GAPS,
    BadRow,
    CsvFile,
    CsvText,
    names_in,
    opened_source,
    safe_cell,
)

BAD_ROWS = "a list of bad rows"
LARGEST = float(np.finfo(np.float32).max)  # networks compute in float32


@dataclass(frozen=True, eq=False)
class Table:
    """The result of `read_table`.

    Attributes
    ----------
    features : DataFrame of n rows
        Numbers, text and categories to fit a classifier with.
    y : Candidates, Votes or None
        The candidates of each row; None if the table has none.
    truth : array of shape (n,) or None
        True labels, for scoring only; None where a row has none. ``pandas.notna(table.truth)``
        selects the rows to score.
    rows : int array of shape (n,)
        The line of each row in a CSV file, whose header is line 1; for Parquet files and
        DataFrames the row number, counted from 0.
    bad : tuple of BadRow
        Faults of the rows that are left out: line, column, value and reason. A row may have
        several faults.
    reading : Reading
        How the table was read. ``read_table(other, like=table)`` repeats it.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame(
    ...     {"weight": [4.1, 30.0], "vote bob": ["cat", "dog"], "vote eve": ["dog", None]}
    ... )
    >>> table = read_table(pets, votes="vote ")
    >>> table.annotators
    ('bob', 'eve')
    >>> Candidates.of(table.y).sets()[1]
    frozenset({'dog'})
    """

    features: pd.DataFrame
    y: Candidates | Votes | None
    truth: NDArray[Any] | None
    rows: NDArray[np.int64]
    bad: tuple[BadRow, ...] = ()
    reading: Reading = field(default_factory=Reading)

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators: the names of the vote columns without their prefix."""
        return tuple(self.y.answers.columns) if isinstance(self.y, Votes) else ()

    def __len__(self) -> int:
        return len(self.rows)


def read_table(
    source: str | Path | pd.DataFrame,
    *,
    candidates: str | None = None,
    separator: str = "|",
    indicators: str | None = None,
    votes: str | None = None,
    truth: str | None = None,
    ignore: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    unanswered: Unanswered = "error",
    on_bad_rows: Literal["error", "skip"] = "error",
    errors_to: str | Path | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    like: Table | None = None,
) -> Table:
    """Read features and candidates from a file (.csv, .tsv, .csv.gz, .parquet) or a DataFrame.

    Parameters
    ----------
    candidates, separator, indicators, votes
        A column whose cells are ``cat|dog``, ``["cat", "a|b"]`` or lists; or the prefix of 0/1
        columns, one for each class; or the prefix of columns with answers, one for each annotator.
        For prediction, pass none of the three.
    truth, ignore, categories
        The column of true labels, for scoring; columns to leave out; columns to treat as
        categorical even if their values are numeric. All other columns are features.
    missing, encoding, delimiter, decimal
        Words that mean "no value", in addition to "", NA, NaN and null in CSV files; the format of
        a CSV file that is not UTF-8 with commas (or tabs) and decimal points.
    unanswered, on_bad_rows, errors_to
        A row without candidates is bad, or has "all classes". Bad rows also have too many or few
        cells, huge numbers, or a word in a column with 99 % numbers. They are an "error", or
        "skip" leaves them out. `errors_to` is a CSV file to list them in.
    like
        A table read before. Its features are read in the same way; its other columns are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame({"weight": [4, 30, 4], "seen": ["cat", "dog|wolf", "cat|dog"]})
    >>> read_table(pets, candidates="seen").y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """
    _check_options(separator, unanswered, on_bad_rows, decimal, like)
    listing = _checked_listing(errors_to, source)
    requested = Reading((), several(categories), several(missing), encoding, delimiter, decimal)
    reading = requested if like is None else requested.after(like.reading)
    opened = opened_source(source, requested, reading)
    forms = {"candidates": candidates, "indicators": indicators, "votes": votes}
    roles = Roles.of(names_in(opened), forms, truth, several(ignore), reading)
    roles = roles if like is None else roles.like(like.features.columns.tolist())
    raw = _read_columns(opened, roles, reading, like)
    labels = _read_labels(raw, roles, separator, unanswered)
    bad = _report(raw, labels, listing, on_bad_rows)
    reading = replace(reading, left_out=roles.left_out)
    return replace(_good_rows(raw, roles, labels, bad, like), reading=reading)


class _Raw(NamedTuple):
    """The columns that have a role, before bad rows are left out."""

    frame: pd.DataFrame
    lines: NDArray[np.int64]
    bad: list[BadRow]
    gaps: tuple[str, ...]  # words that mean "no value"
    title: str  # of the source, for messages
    where: Literal["line", "row"]  # the unit of `lines`


def is_list_of_bad_rows(start: bytes) -> bool:
    """Whether a file begins like a file that `errors_to` names.

    >>> is_list_of_bad_rows(b"line,column,value,reason\\n3,age,ten,is not a number\\n")
    True
    """
    header = start.split(b"\n")[0].decode(errors="replace").split(",")
    return header[0] in ("line", "row") and tuple(header[1:]) == BadRow._fields[1:]


def _checked_listing(path: str | Path | None, source: Any) -> Path | None:
    """Return the path to list bad rows in; an existing file must be such a list."""
    if path is None:
        return None
    path = Path(path)
    table = Path(source) if isinstance(source, str | PathLike) else None
    if table is not None and path.exists() and table.exists() and path.samefile(table):
        raise InputError(f"errors_to={str(path)!r} is the table itself. Pass another path.")
    if path.is_dir():
        raise InputError(f"errors_to={str(path)!r} is a folder. Pass the path of a file.")
    refuse_replacing(path, is_list_of_bad_rows, BAD_ROWS)
    return path


def _check_options(
    separator: Any, unanswered: str, on_bad_rows: str, decimal: str | None, like: Any
) -> None:
    if not isinstance(like, Table | None):
        raise InputError(f"like must be a result of read_table; got a {type(like).__name__}.")
    if not isinstance(separator, str) or len(separator) != 1:
        raise InputError(
            f"separator={separator!r}: it must be one character; blanks around names are ignored. "
            'If names contain every character, write them as a JSON list: ["a|b", "c"].'
        )
    for name, value, permitted in (
        ("unanswered", unanswered, ("error", "all classes")),
        ("on_bad_rows", on_bad_rows, ("error", "skip")),
        ("decimal", decimal or ".", (".", ",")),
    ):
        if value not in permitted:
            raise InputError(f"{name}={value!r}: it must be {' or '.join(map(repr, permitted))}.")


def _read_columns(opened: Any, roles: Roles, reading: Reading, like: Table | None) -> _Raw:
    truth = () if roles.truth is None else (roles.truth,)
    kinds: dict[str, bool | None] = dict.fromkeys((*roles.labels, *truth), True)
    for name in roles.features:
        if like is not None:
            kinds[name] = not pd.api.types.is_numeric_dtype(like.features[name])
        kinds[name] = True if name in roles.categories else kinds.get(name)
    is_csv = isinstance(opened, CsvFile)
    gaps = (*(GAPS if is_csv else ()), *reading.missing)
    title = "The DataFrame" if isinstance(opened, pd.DataFrame) else str(opened)
    title = str(opened.path) if is_csv else title
    piece = next(read_rows(opened, kinds, gaps), None)
    if piece is None or not (len(piece.lines) or piece.bad):
        raise InputError(f"{title} has columns, but no rows.")
    frame = piece.features
    for name in set(roles.features).difference(roles.categories):
        if is_csv and frame[name].dtype == "category":  # only the user declares categories
            frame[name] = frame[name].astype("string[pyarrow]")
    bad = piece.bad + too_large_cells(frame[[*roles.features]], piece.lines, LARGEST)
    return _Raw(frame, piece.lines, bad, gaps, title, "line" if is_csv else "row")


def _read_labels(raw: _Raw, roles: Roles, separator: str, unanswered: Unanswered) -> Labels | None:
    columns = raw.frame[[*roles.labels]]
    if roles.form == "candidates":
        column = columns.iloc[:, 0]
        return label_columns.read_sets(column, raw.lines, unanswered, separator, raw.gaps)
    if roles.form == "indicators":
        return label_columns.read_indicators(columns, raw.lines, unanswered, roles.prefix)
    if roles.form == "votes":
        return label_columns.read_votes(columns, raw.lines, unanswered, roles.prefix)
    return None


def _report(
    raw: _Raw, labels: Labels | None, listing: Path | None, on_bad_rows: str
) -> tuple[BadRow, ...]:
    """Return the faults and list them in a file; raise an error unless they may be left out."""
    bad = tuple(sorted((*raw.bad, *(labels.bad if labels else ()))))
    if listing is not None and (bad or listing.is_file()):  # an old list must not stay
        text = CsvText()
        writer = csv.writer(text)
        writer.writerow((raw.where, *BadRow._fields[1:]))
        writer.writerows((line, *map(safe_cell, cells)) for line, *cells in bad)
        try:
            write_whole(listing, text.getvalue().encode())
        except OSError as error:
            raise InputError(
                f"errors_to={str(listing)!r} cannot be written ({error.strerror or error}), but "
                f"there are {len(bad)} faults to list. Pass another path as `errors_to`."
            ) from error
    if bad and on_bad_rows == "error":
        first = some_of((f"{raw.where} {fault.line}: {fault}" for fault in bad), 3)
        listed = f"{listing} lists them." if listing else "Pass errors_to to list them in a file."
        permit = " Rows without candidates are kept by unanswered='all classes'."
        raise InputError(
            f"{raw.title}: {len({fault.line for fault in bad})} rows do not parse ({first}). "
            f"{listed} Correct them, or leave them out with on_bad_rows='skip'."
            f"{permit if any(fault.reason in NO_ANSWER for fault in bad) else ''}"
        )
    return bad


def _good_rows(
    raw: _Raw, roles: Roles, labels: Labels | None, bad: tuple[BadRow, ...], like: Table | None
) -> Table:
    """Make the table from the rows without faults."""
    is_good = ~np.isin(raw.lines, [fault.line for fault in bad])
    if not is_good.any():
        raise InputError(f"{raw.title}: no row parses. In {raw.where} {bad[0].line}, {bad[0]}.")
    rows = slice(None) if is_good.all() else is_good
    frame, lines = raw.frame.loc[rows], raw.lines[rows]
    features = frame[[*roles.features]]
    refuse_lists(features, "name it in `ignore` to leave it out")
    features = features.astype(dict.fromkeys(roles.categories, "category"))
    truth = None if roles.truth is None else frame[roles.truth]
    new_names: dict[Any, str] = {}
    if raw.where == "line":
        names = set() if truth is None else {*distinct(truth)[1]}
        new_names = label_columns.plain_integers(names | (labels.names if labels else set()))
        truth = truth.map(new_names) if truth is not None and new_names else truth
    y = None if labels is None else labels.build(rows, new_names)
    refuse_odd_features(features, y, raw.where, lines)
    named = like.y if y is None and like is not None else y
    classes = None if named is None else class_names(named)
    if raw.where == "line" and classes is not None:
        label_columns.refuse_equal_numbers(classes.tolist())
    return Table(
        features, y, None if truth is None else label_columns.truth_of(truth, classes), lines, bad
    )
