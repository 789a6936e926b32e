"""Decisions that people made on the review page, read back."""

import csv
import hashlib
import io
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustpll.clean.when import REMEDY, instant
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.tables.source import FORMULA

if TYPE_CHECKING:
    from robustpll.tables.read import Table

COLUMNS = ("row", "decision", "when", "table")  # of the file that the page gives


class ConflictWarning(UserWarning):
    """Rows were decided more than once, with different classes."""


class Decision(NamedTuple):
    """What somebody said of a row; the latest is the largest."""

    when: datetime
    label: int  # the number of the class
    where: str  # file and line


def fingerprint(table: "Table", candidates: Candidates) -> str:
    """A short name of a table's content: two reviews do not mix, one goes on after retraining.

    >>> import pandas as pd
    >>> from robustpll.tables.read import read_table
    >>> pets = pd.DataFrame({"weight": [4, 30], "seen": ["cat", "dog|cat"]})
    >>> table = read_table(pets, candidates="seen")
    >>> len(fingerprint(table, Candidates.of(table.y)))
    16
    """
    import pandas as pd

    digest = hashlib.sha256()
    digest.update(repr([str(name) for name in candidates.classes]).encode())
    digest.update(np.ascontiguousarray(candidates.matrix).tobytes())
    digest.update(np.ascontiguousarray(table.rows, dtype="<i8").tobytes())
    hashed = pd.util.hash_pandas_object(table.features, index=False)
    digest.update(np.ascontiguousarray(hashed.to_numpy(), dtype="<u8").tobytes())
    return digest.hexdigest()[:16]


def read_decisions(
    paths: Sequence[Path], rows: NDArray[np.int64], classes: NDArray[Any], key: str
) -> dict[int, int]:
    """Of decided rows, by their place in the table: the class, by its number.

    Where a row was decided several times, the latest decision counts; a `ConflictWarning` tells
    how many rows had different ones. Different decisions of the same moment are refused.
    """
    place = {str(row): at for at, row in enumerate(rows)}
    number = {str(name): at for at, name in enumerate(classes)}
    said: defaultdict[int, list[Decision]] = defaultdict(list)
    for path in paths:
        for line, (row, decision, when, table) in _lines(path):
            where = f"{path}, line {line}"
            if table != key:
                named = some_of([table]) or "not named"
                raise InputError(
                    f"{where}: decided for another table ({named}, this is {key}). "
                    "Pass the table and options that the page was made with."
                )
            label = _label(decision, number)
            if row not in place or label is None:
                what, cell = ("class", decision) if row in place else ("row", row)
                raise InputError(
                    f"{where}: there is no {what} {some_of([repr(cell)])} in the table. Correct "
                    "the line."
                )
            try:
                moment = instant(when)
            except ValueError as error:
                raise InputError(
                    f"{where}: `when` is {some_of([repr(when)])}, which {error}. {REMEDY}"
                ) from error
            said[place[row]].append(Decision(moment, label, where))
    latest = {at: max(several) for at, several in said.items()}
    _refuse_ties(said, latest, rows, classes)
    _warn_of_conflicts(said, latest, rows, classes)
    return {at: decision.label for at, decision in latest.items()}


def _label(decision: str, number: Mapping[str, int]) -> int | None:
    """The number of a class; before a name like a formula the page puts an apostrophe."""
    guarded = decision.startswith("'") and decision.lstrip("'").startswith(FORMULA)
    plain = decision[1:] if guarded else decision
    return number.get(plain, number.get(decision))


def _refuse_ties(
    said: Mapping[int, Iterable[Decision]],
    latest: Mapping[int, Decision],
    rows: NDArray[np.int64],
    classes: NDArray[Any],
) -> None:
    """Nobody knows which of two decisions of the same moment is meant."""
    for at, several in said.items():
        last = latest[at]
        for one in several:
            if one.when == last.when and one.label != last.label:
                raise InputError(
                    f"decisions: row {rows[at]} is {str(classes[one.label])!r} ({one.where}) and "
                    f"{str(classes[last.label])!r} ({last.where}) at the same time, "
                    f"{last.when.isoformat()}. Delete the line that is not meant."
                )


def _warn_of_conflicts(
    said: Mapping[int, Iterable[Decision]],
    latest: Mapping[int, Decision],
    rows: NDArray[np.int64],
    classes: NDArray[Any],
) -> None:
    changed = [at for at, several in said.items() if len({one.label for one in several}) > 1]
    if changed:
        first = (
            f"row {rows[at]}: {str(classes[latest[at].label])!r} ({latest[at].where})"
            for at in changed
        )
        warnings.warn(
            f"decisions: {len(changed):,} rows were decided more than once, with different "
            f"classes. The latest decision counts ({some_of(first, 3)}).",
            ConflictWarning,
            stacklevel=3,
        )


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Lines of a file of decisions with their numbers, the cells in the order of COLUMNS."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(
            f"decisions: {path} cannot be read ({reason}). Pass the file that the page gave."
        ) from error
    # names may hold what str.splitlines takes for the end of a line
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return _rows_of(reader, path)
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}: the line does not parse ({error}). Correct it; a "
            "quote within a quoted cell is written twice."
        ) from error


def _rows_of(reader: Any, path: Path) -> list[tuple[int, list[str]]]:
    header: list[str] = next(reader, [])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"decisions: {path} has no column {missing[0]!r}, but {some_of(map(repr, header))}. "
            "Pass the file that the review page gave."
        )
    at = [header.index(name) for name in COLUMNS]
    lines = []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {reader.line_num}: {len(cells)} cells instead of {len(header)}."
            )
        lines.append((reader.line_num, [cells[number] for number in at]))
    return lines


def with_decisions(candidates: Candidates, decisions: dict[int, int]) -> Candidates:
    """Decided rows have a single candidate.

    >>> y = Candidates.of([{"cat", "dog"}, {"dog"}])
    >>> with_decisions(y, {0: 1}).sets()
    [frozenset({'dog'}), frozenset({'dog'})]
    """
    matrix, prior = candidates.matrix.copy(), candidates.prior.copy()
    for at, label in decisions.items():
        matrix[at], prior[at] = False, 0.0
        matrix[at, label], prior[at, label] = True, 1.0
    return Candidates(matrix, candidates.classes, prior)
