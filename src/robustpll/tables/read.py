"""Read tables from CSV files, Parquet files and DataFrames."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll._files import refuse_replacing, write_whole
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables import source as files
from robustpll.tables.checks import refuse_odd_features
from robustpll.tables.columns import Reading, Roles, assign_roles, several
from robustpll.tables.labels import NO_ANSWER, READERS, Options, Unanswered, with_truth
from robustpll.tables.pieces import Piece, Rows, refuse_lists, too_large_cells
from robustpll.tables.source import BadRow, CsvFile, CsvText, safe_cell

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
        Line numbers of a CSV file, whose header is line 1; otherwise row numbers from 0.
    bad : tuple of BadRow
        Faults of the rows that are left out: line, column, value and reason.
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
    columns = {"candidates": candidates, "indicators": indicators, "votes": votes, "truth": truth}
    requested = Reading((), several(categories), several(missing), encoding, delimiter, decimal)
    options = Options(separator, unanswered, on_bad_rows, errors_to, like)
    _check_options(options, requested)
    return _read(source, columns, several(ignore), requested, options)


def _read(
    source: Any,
    columns: dict[str, str | None],
    ignore: tuple[str, ...],
    requested: Reading,
    options: Options,
) -> Table:
    like, truth = options.like, columns["truth"]
    reading = requested if like is None else requested.after(like.reading)
    opened = files.opened_source(source, requested, reading)
    unit = "line" if isinstance(opened, CsvFile) else "row"
    title = "The DataFrame" if isinstance(opened, pd.DataFrame) else str(source)
    before = None if like is None else like.features
    roles = assign_roles(files.names_in(opened), columns, ignore, reading, before)
    gaps = (*(files.GAPS if unit == "line" else ()), *reading.missing)
    frame, lines, faults, _ = _read_columns(opened, roles, reading, gaps, before)
    if not len(lines) and not faults:
        raise InputError(f"{title} has columns, but no rows.")
    options = options._replace(prefix=roles.prefix, gaps=gaps)
    labels = READERS[roles.form](frame[[*roles.labels]], lines, options)
    bad = tuple(sorted([*faults, *labels.bad]))
    is_good = ~np.isin(lines, [fault.line for fault in bad])
    _report(bad, title, unit, options)
    if not is_good.any():
        raise InputError(f"{title}: no row parses. In {unit} {bad[0].line}, {bad[0]}.")
    rows = slice(None) if is_good.all() else is_good
    features, lines = frame.loc[rows, [*roles.features]], lines[rows]
    refuse_lists(features, "name it in `ignore` to leave it out")
    features = features.astype(dict.fromkeys(reading.categories, "category"))
    true_labels = None if truth is None else frame.loc[rows, truth]
    y, true_names = with_truth(labels, rows, true_labels, unit, like)
    refuse_odd_features(features, y, unit, lines)
    return Table(features, y, true_names, lines, bad, replace(reading, left_out=roles.left_out))


def is_list_of_bad_rows(start: bytes) -> bool:
    """Whether a file begins like a file that `errors_to` names.

    >>> is_list_of_bad_rows(b"line,column,value,reason\\n3,age,ten,is not a number\\n")
    True
    """
    header = start.split(b"\n")[0].decode(errors="replace").split(",")
    return header[0] in ("line", "row") and tuple(header[1:]) == BadRow._fields[1:]


def _check_options(options: Options, requested: Reading) -> None:
    separator, unanswered, on_bad_rows, errors_to, like, *_ = options
    if not isinstance(like, Table | None):
        raise InputError(f"like must be a result of read_table; got a {type(like).__name__}.")
    if not isinstance(separator, str) or len(separator) != 1:
        remedy = 'For names with any character, write a JSON list: ["a|b", "c"].'
        raise InputError(f"separator={separator!r}: it must be one character. {remedy}")
    for name, value, permitted in (
        ("unanswered", unanswered, ("error", "all classes")),
        ("on_bad_rows", on_bad_rows, ("error", "skip")),
        ("decimal", requested.decimal or ".", (".", ",")),
    ):
        if value not in permitted:
            raise InputError(f"{name}={value!r}: it must be {' or '.join(map(repr, permitted))}.")
    if errors_to is not None:
        refuse_replacing(Path(errors_to), is_list_of_bad_rows, BAD_ROWS)


def _read_columns(
    opened: Any, roles: Roles, reading: Reading, gaps: tuple[str, ...], like: pd.DataFrame | None
) -> Piece:
    """Read the columns that have a role; features as in `like`, if passed."""
    truth = () if roles.truth is None else (roles.truth,)
    kinds: dict[str, bool | None] = dict.fromkeys((*roles.labels, *truth), True)
    for name in roles.features:
        is_text = None if like is None else not pd.api.types.is_numeric_dtype(like[name])
        kinds[name] = True if name in reading.categories else is_text
    no_rows = Piece(pd.DataFrame(columns=[*kinds]), np.empty(0, dtype=np.int64), [], {})
    piece = next(Rows(opened, kinds, gaps).pieces(), no_rows)
    frame = piece.features
    for name in set(roles.features).difference(reading.categories):
        if isinstance(opened, CsvFile) and frame[name].dtype == "category":
            frame[name] = frame[name].astype("string[pyarrow]")  # only users declare categories
    bad = too_large_cells(frame[[*roles.features]], piece.lines, LARGEST)
    return piece._replace(bad=piece.bad + bad)


def _report(bad: tuple[BadRow, ...], title: str, unit: str, options: Options) -> None:
    """List faults in a file; raise an error unless they may be left out."""
    errors_to = options.errors_to
    if errors_to is not None and (bad or Path(errors_to).is_file()):  # an old list must not stay
        text = CsvText()
        writer = csv.writer(text)
        writer.writerow((unit, *BadRow._fields[1:]))
        writer.writerows((line, *map(safe_cell, cells)) for line, *cells in bad)
        try:
            write_whole(Path(errors_to), text.getvalue().encode())
        except OSError as error:
            fault = f"errors_to={str(errors_to)!r} cannot be written ({error.strerror or error})"
            raise InputError(f"{fault}. Pass another path.") from error
    if bad and options.on_bad_rows == "error":
        first = some_of((f"{unit} {fault.line}: {fault}" for fault in bad), 3)
        listed = f"{errors_to} lists them" if errors_to else "Pass errors_to to list them in a file"
        unanswered = any(fault.reason in NO_ANSWER for fault in bad)
        permit = " Rows without candidates are kept by unanswered='all classes'." * unanswered
        raise InputError(
            f"{title}: {len({fault.line for fault in bad})} rows do not parse ({first}). {listed}. "
            f"Correct them, or leave them out with on_bad_rows='skip'.{permit}"
        )
