"""Tables as people have them: CSV, Parquet or a DataFrame, with candidates in three forms."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustpll._files import refuse_replacing, write_whole
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables.checks import (
    LARGEST,
    refuse_lists,
    refuse_odd_features,
    too_large_cells,
)
from robustpll.tables.columns import Reading, Roles, several
from robustpll.tables.csv_rows import BadRow
from robustpll.tables.labels import (
    NO_ANSWER,
    AnswerColumns,
    IndicatorColumns,
    Labels,
    SetColumn,
    Unanswered,
    class_names,
    plain_integers,
    refuse_equal_numbers,
    truth_of,
)
from robustpll.tables.source import CsvText, Raw, names_in, opened_source, read_raw, safe_cell

if TYPE_CHECKING:
    import pandas as pd

LISTED = BadRow._fields[1:]  # of a bad row in a file, after its line or row
BAD_ROWS = "a list of bad rows"


@dataclass(frozen=True, eq=False)
class Table:
    """What `read_table` found.

    Attributes
    ----------
    features : DataFrame of n rows
        What a classifier is fitted with: numbers, text, categories.
    y : Candidates, Votes or None
        The candidates of each row; None where the table has none.
    truth : array of shape (n,) or None
        True labels, for scoring only; None within it where a row has none. Score the others:
        ``known = pandas.notna(table.truth)``.
    rows : int array of shape (n,)
        Where each row stands in its source: the line of a CSV file, whose header is in line 1, or
        the row number of a Parquet file or DataFrame, counted from 0.
    bad : tuple of BadRow
        Rows that did not parse and are left out: line, column, value and reason. A row with
        several faults is in it several times.
    reading : Reading
        What ``read_table(other, like=table)`` repeats.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame(
    ...     {"weight": [4.1, 30.0, 5.2], "bob": ["cat", "dog", "cat"], "eve": ["cat", None, "dog"]}
    ... ).rename(columns={"bob": "vote bob", "eve": "vote eve"})
    >>> table = read_table(pets, votes="vote ")
    >>> table.annotators
    ('bob', 'eve')
    >>> Candidates.of(table.y).sets()[1]
    frozenset({'dog'})
    """

    features: "pd.DataFrame"
    y: Candidates | Votes | None
    truth: NDArray[Any] | None
    rows: NDArray[np.int64]
    bad: tuple[BadRow, ...] = ()
    reading: Reading = field(default_factory=Reading)

    @property
    def annotators(self) -> tuple[str, ...]:
        """Who voted: what follows the prefix in the names of columns."""
        return tuple(self.y.answers.columns) if isinstance(self.y, Votes) else ()

    def __len__(self) -> int:
        return len(self.rows)


def read_table(
    source: "str | Path | pd.DataFrame",
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
    """Features and candidates from a file (.csv, .tsv, these with .gz, .parquet) or a DataFrame.

    Parameters
    ----------
    candidates, separator
        A column with ``cat|dog`` or ``["cat", "a|b"]`` in its cells, or with lists.
    indicators, votes
        In its place: a prefix of 0/1 columns, whose names go on with the class; or a prefix of
        columns with annotators' answers and gaps. For prediction pass none of the three.
    truth, ignore, categories
        A column of true labels, to score with; columns to leave out; and columns whose cells are
        mere names, though they be numbers. What no argument names is a feature.
    missing, encoding, delimiter, decimal
        Words that mean "no value", in CSV files besides "" and NA, NaN, null; how these files are
        written, if not in UTF-8, with commas (or tabs) and decimal points.
    unanswered, on_bad_rows, errors_to
        Without candidates a row is bad, or may have "all classes". Bad too are rows with too many
        or few cells, with infinite or huge numbers, and with a word where 99 of 100 cells are
        numbers: they are an "error", or we "skip" them. `errors_to` is a CSV file to list them in.
    like
        A table read before: features are read as there, and its other columns are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame({"weight": [4, 30, 4], "seen": ["cat", "dog|wolf", "cat|dog"]})
    >>> read_table(pets, candidates="seen").y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """
    _refuse_odd_options(separator, unanswered, on_bad_rows, decimal, like)
    path = _list_of_bad_rows(errors_to, source)
    asked = Reading((), several(categories), several(missing), encoding, delimiter, decimal)
    reading = asked if like is None else asked.after(like.reading)
    opened = opened_source(source, asked, reading)
    columns = {"candidates": candidates, "indicators": indicators, "votes": votes, "truth": truth}
    roles = _roles(names_in(opened), columns, several(ignore), reading, like)
    raw = read_raw(opened, roles, reading.missing, None if like is None else like.features)
    labels = _labels(raw, roles, separator, unanswered)
    bad = _reported(_faults(raw, roles, labels), raw, on_bad_rows, path)
    table = _table(raw, roles, labels, bad, like)
    return replace(table, reading=replace(reading, left_out=roles.left_out))


def is_list_of_bad_rows(start: bytes) -> bool:
    """Whether a file begins as `read_table` begins the file that `errors_to` names.

    >>> is_list_of_bad_rows(b"line,column,value,reason\\n3,age,ten,is no number\\n")
    True
    """
    first = start.split(b"\n")[0].decode(errors="replace").split(",")
    return first[0] in ("line", "row") and tuple(first[1:]) == LISTED


def _list_of_bad_rows(path: str | Path | None, source: Any) -> Path | None:
    """Where to list bad rows; before anything is read: a file that is there must be such a list."""
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


def _refuse_odd_options(
    separator: Any, unanswered: str, on_bad_rows: str, decimal: str | None, like: Any
) -> None:
    if not isinstance(like, Table | None):
        raise InputError(f"like must be what read_table gave; got a {type(like).__name__}.")
    if not isinstance(separator, str) or len(separator) != 1:
        raise InputError(
            f"separator={separator!r}: it must be one character; blanks around names do not count. "
            'Where no character is free, write names as a JSON list: ["a|b", "c"].'
        )
    for name, value, known in (
        ("unanswered", unanswered, ("error", "all classes")),
        ("on_bad_rows", on_bad_rows, ("error", "skip")),
        ("decimal", decimal or ".", (".", ",")),
    ):
        if value not in known:
            raise InputError(f"{name}={value!r}: it must be {' or '.join(map(repr, known))}.")


def _roles(
    names: list[str],
    columns: dict[str, str | None],
    ignore: tuple[str, ...],
    reading: Reading,
    like: Table | None,
) -> Roles:
    prefixes = (columns["indicators"], columns["votes"])
    used = (columns["candidates"], columns["truth"], *ignore)
    ignore = (*ignore, *reading.still_left_out(names, used, prefixes))
    roles = Roles.of(names, **columns, ignore=ignore, categories=reading.categories)
    return roles if like is None else roles.like(like.features)


def _labels(raw: Raw, roles: Roles, separator: str, unanswered: Unanswered) -> Labels | None:
    frame, rest = raw.frame, (unanswered, raw.lines)
    if roles.candidates is not None:
        column = frame[roles.candidates]
        return SetColumn.of(column, *rest, separator=separator, gaps=raw.gaps)
    if roles.indicators:
        return IndicatorColumns.of(frame[[*roles.indicators]], roles.prefix, *rest)
    if roles.votes:
        return AnswerColumns.of(frame[[*roles.votes]], roles.prefix, *rest)
    return None


def _faults(raw: Raw, roles: Roles, labels: Labels | None) -> tuple[BadRow, ...]:
    odd = too_large_cells(raw.frame[[*roles.features]], raw.lines, LARGEST)
    return tuple(sorted((*raw.bad, *odd, *(labels.bad if labels else ()))))


def _reported(
    bad: tuple[BadRow, ...], raw: Raw, on_bad_rows: str, path: Path | None
) -> tuple[BadRow, ...]:
    """The bad rows, listed in a file; refused, unless they may be left out."""
    if path is not None and (bad or path.is_file()):  # an old list must not outlive its reasons
        text = CsvText()
        writer = csv.writer(text)
        writer.writerow((raw.where, *LISTED))
        writer.writerows((line, *map(safe_cell, cells)) for line, *cells in bad)
        try:
            write_whole(path, text.getvalue().encode())
        except OSError as error:
            raise InputError(
                f"errors_to={str(path)!r} cannot be written ({error.strerror or error}), and "
                f"{len(bad)} faults are to be listed in it. Pass another path as `errors_to`."
            ) from error
    if bad and on_bad_rows == "error":
        first = (f"{raw.where} {one.line}: {one}" for one in bad)
        silent = any(one.reason in NO_ANSWER for one in bad)
        keep = " Rows without candidates are kept by unanswered='all classes'." if silent else ""
        listed = "Pass errors_to to list them in a file." if path is None else f"{path} lists them."
        raise InputError(
            f"{raw.title}: {len({one.line for one in bad})} rows do not parse ({some_of(first, 3)})"
            f". {listed} Correct them, or leave them out with on_bad_rows='skip'.{keep}"
        )
    return bad


def _table(
    raw: Raw, roles: Roles, labels: Labels | None, bad: tuple[BadRow, ...], like: Table | None
) -> Table:
    """From the rows that parse."""
    good = ~np.isin(raw.lines, [one.line for one in bad])
    if not good.any():
        raise InputError(f"{raw.title}: no row parses. In {raw.where} {bad[0].line}, {bad[0]}.")
    rows = slice(None) if good.all() else good
    frame, lines = raw.frame.loc[rows], raw.lines[rows]
    refuse_lists(frame[[*roles.features]], "name it in `ignore` to leave it out")
    features = frame[[*roles.features]].astype(dict.fromkeys(roles.categories, "category"))
    truth = None if roles.truth is None else frame[roles.truth]
    if raw.where == "line":
        labels, truth = plain_integers(labels, truth)
    y = None if labels is None else labels.y(rows)
    refuse_odd_features(features, y, raw.where, lines)
    named = like.y if y is None and like is not None else y
    classes = None if named is None else class_names(named)
    if raw.where == "line" and classes is not None:
        refuse_equal_numbers(classes.tolist())
    return Table(features, y, None if truth is None else truth_of(truth, classes), lines, bad)
