"""Decisions that people made on the review page, read back."""

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustpll.candidates import Candidates
from robustpll.errors import InputError, some_of

if TYPE_CHECKING:
    from robustpll.data.table import Table

COLUMNS = ("row", "decision", "when", "table")  # of the file that the page gives


def fingerprint(table: "Table", candidates: Candidates) -> str:
    """A short name of a table's content: two reviews do not mix, one goes on after retraining.

    >>> import pandas as pd
    >>> from robustpll.data.table import read_table
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

    Where a row was decided several times, the latest decision counts.
    """
    place = {str(row): at for at, row in enumerate(rows)}
    number = {str(name): at for at, name in enumerate(classes)}
    latest: dict[int, tuple[str, int]] = {}
    for path in paths:
        for line, (row, decision, when, table) in _lines(path):
            if table != key:
                raise InputError(
                    f"{path}, line {line}: decided for another table ({table or 'not named'}, "
                    f"this is {key}). Pass the table and options that the page was made with."
                )
            if row not in place or decision not in number:
                what = f"row {row!r}" if row not in place else f"class {decision!r}"
                raise InputError(
                    f"{path}, line {line}: there is no {what} in the table. Correct the line."
                )
            at = place[row]
            latest[at] = max(latest.get(at, ("", 0)), (when, number[decision]))
    return {at: label for at, (_, label) in latest.items()}


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Lines of a file of decisions with their numbers, the cells in the order of COLUMNS."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(
            f"decisions: {path} cannot be read ({reason}). Pass the file that the page gave."
        ) from error
    reader = csv.reader(text.splitlines(keepends=True))
    header = next(reader, [])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"decisions: {path} has no column {missing[0]!r}, but {some_of(map(repr, header))}. "
            "Pass the file that the review page gave."
        )
    at = [header.index(name) for name in COLUMNS]
    found = []
    for cells in reader:
        if not cells:
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {reader.line_num}: {len(cells)} cells instead of {len(header)}."
            )
        found.append((reader.line_num, [cells[number] for number in at]))
    return found


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
