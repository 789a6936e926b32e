"""Decisions that people made on the review page, read back from CSV files."""

import csv
import hashlib
import io
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import Table
from robustpll.tables.source import FORMULA

Decision = tuple[datetime, int, str]  # when, index of the class, file and line

COLUMNS = ("row", "decision", "when", "table")
DATES = ("%d.%m.%Y", "%Y.%m.%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y")
SPREADSHEET = re.compile(
    r"([\d./]+)(?:,?\s+(\d+:\d\d)(:\d\d)?(?:[.,]\d+)?\s*([AP]M)?)?", re.IGNORECASE | re.ASCII
)


class ConflictWarning(UserWarning):
    """Some rows have several decisions for different classes."""


def fingerprint(table: Table, candidates: Candidates) -> str:
    """Return 16 hex digits that depend on the table's content, so that reviews do not mix."""
    hashed = pd.util.hash_pandas_object(table.features, index=False)
    parts = (
        repr([str(name) for name in candidates.classes]).encode(),
        candidates.matrix.tobytes(),
        table.rows.astype("<i8").tobytes(),
        hashed.to_numpy().astype("<u8").tobytes(),
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def read_decisions(
    paths: Sequence[Path], rows: NDArray[np.int64], classes: NDArray[Any], key: str
) -> dict[int, int]:
    """Return the index of the chosen class for each decided row, by position in the table.

    The latest decision about a row counts; a `ConflictWarning` reports rows with different ones.
    Different decisions of the same moment are refused.
    """
    position = {str(row): index for index, row in enumerate(rows)}
    number = {str(name): index for index, name in enumerate(classes)}
    decisions: defaultdict[int, list[Decision]] = defaultdict(list)
    for path in paths:
        for line, (row, name, when, table) in _lines(path):
            where = f"{path}, line {line}"
            if table != key:
                raise InputError(
                    f"{where}: decided for another table ({some_of([table]) or 'not named'}, this "
                    f"is {key}). Pass the table and options that the page was made with."
                )
            # the page puts an apostrophe before a name that looks like a formula
            guarded = name.startswith("'") and name.lstrip("'").startswith(FORMULA)
            label = number.get(name[1:] if guarded else name, number.get(name))
            if row not in position or label is None:
                what, cell = ("class", name) if row in position else ("row", row)
                raise InputError(
                    f"{where}: there is no {what} {some_of([repr(cell)])} in the table. Correct "
                    "the line."
                )
            try:
                moment = parse_time(when)
            except ValueError as error:
                raise InputError(
                    f"{where}: `when` is {some_of([repr(when)])}, which {error}. Keep the form "
                    "that the page writes, such as 2026-11-15T10:00:00.000Z."
                ) from error
            decisions[position[row]].append((moment, label, where))
    return _latest(decisions, rows, classes)


def _latest(
    decisions: dict[int, list[Decision]], rows: NDArray[np.int64], classes: NDArray[Any]
) -> dict[int, int]:
    """Return the label of the latest decision about each row; warn about conflicts."""
    latest, conflicts = {}, []
    for index, several in decisions.items():
        when, label, where = max(several)
        latest[index] = label
        for other_when, other, other_where in several:
            if other_when == when and other != label:
                raise InputError(
                    f"decisions: row {rows[index]} is {str(classes[other])!r} ({other_where}) and "
                    f"{str(classes[label])!r} ({where}) at the same time, {when.isoformat()}. "
                    "Delete the wrong line."
                )
        if any(other != label for _, other, _ in several):
            conflicts.append(f"row {rows[index]}: {str(classes[label])!r} ({where})")
    if conflicts:
        warnings.warn(
            f"decisions: {len(conflicts):,} rows were decided more than once, with different "
            f"classes. The latest decision counts ({some_of(conflicts, 3)}).",
            ConflictWarning,
            stacklevel=3,
        )
    return latest


def parse_time(text: str) -> datetime:
    """Return the time in UTC that a cell names, or raise a ValueError that says what is wrong.

    The page writes ISO 8601. Spreadsheets rewrite it: with points (day first), with the year first,
    or with slashes, which are accepted if only one number can be the month.
    """
    text = text.strip()
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    moments = set()
    if parts := SPREADSHEET.fullmatch(text):
        date, minutes, seconds, half = parts.groups("")
        written = f"{date} {minutes or '0:00'}{seconds or ':00'}{half}"
        for form in DATES:
            with suppress(ValueError):
                clock = "%I:%M:%S%p" if half else "%H:%M:%S"
                moments.add(datetime.strptime(written, f"{form} {clock}").replace(tzinfo=UTC))
    if len(moments) > 1:
        raise ValueError("may be " + " or ".join(f"{day:%Y-%m-%d}" for day in sorted(moments)))
    if not moments:
        raise ValueError("is not a date with a year of four digits")
    return moments.pop()


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number of each decision and its cells in the order of COLUMNS."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(
            f"decisions: {path} cannot be read ({reason}). Pass a file from the review page."
        ) from error
    # not str.splitlines: class names may contain characters that it takes for line ends
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or ()
        if missing := [name for name in COLUMNS if name not in header]:
            raise InputError(
                f"decisions: {path} has no column {missing[0]!r}, but {some_of(map(repr, header))}."
                " Pass a file from the review page."
            )
        for cells in reader:
            if None in cells or None in cells.values():
                raise InputError(
                    f"{path}, line {reader.line_num}: the line must have {len(header)} cells."
                )
            yield reader.line_num, [cells[name] for name in COLUMNS]
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: the line does not parse ({error}). Correct it; a "
            "quote within a quoted cell is written twice."
        ) from error


def with_decisions(candidates: Candidates, decisions: dict[int, int]) -> Candidates:
    """Return candidates in which each decided row has only the chosen class."""
    rows, labels = [*decisions], [*decisions.values()]
    matrix, prior = candidates.matrix.copy(), candidates.prior.copy()
    matrix[rows], prior[rows] = False, 0.0
    matrix[rows, labels], prior[rows, labels] = True, 1.0
    return Candidates(matrix, candidates.classes, prior)
