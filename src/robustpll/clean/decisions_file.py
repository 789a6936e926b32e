"""Decisions that people made on the review page, read back from CSV files."""

import csv
import hashlib
import io
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import Table
from robustpll.tables.source import FORMULA

COLUMNS = ("row", "decision", "when", "table")
DATES = ("%d.%m.%Y", "%Y.%m.%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y")  # of spreadsheets
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
REMEDY = "Pass the table and options that the page was made with, and the file as it wrote it."


def decided_candidates(
    table: Table, paths: Sequence[Path]
) -> tuple[Candidates, NDArray[np.bool_], str]:
    """Return the candidates after decisions, which rows (n,) are decided, and the fingerprint."""
    candidates = Candidates.of(table.y)
    key = fingerprint(table, candidates)
    decisions = read_decisions(paths, table.rows, candidates.classes, key)
    is_decided = np.isin(np.arange(len(table)), [*decisions])
    return with_decisions(candidates, decisions), is_decided, key


def fingerprint(table: Table, candidates: Candidates) -> str:
    """Return 16 hex digits that depend on the table's content, so that reviews do not mix."""
    hashed = hashlib.sha256(repr([str(name) for name in candidates.classes]).encode())
    hashed.update(candidates.matrix.tobytes() + table.rows.astype("<i8").tobytes())
    features = pd.util.hash_pandas_object(table.features, index=False)
    hashed.update(features.to_numpy().astype("<u8").tobytes())
    return hashed.hexdigest()[:16]


def read_decisions(
    paths: Sequence[Path], rows: NDArray[np.int64], classes: NDArray[Any], key: str
) -> dict[int, int]:
    """Return the index of the chosen class for each decided row, by position in the table.

    The latest decision about a row counts; different ones of the same moment are refused.
    """
    position = {str(row): index for index, row in enumerate(rows)}
    number = {str(name): index for index, name in enumerate(classes)}
    decisions = defaultdict(list)  # position -> (moment, label, file and line)
    for where, (row, name, when, table) in _lines(paths):
        # the page puts an apostrophe before a name that looks like a formula
        guarded = name.startswith("'") and name.lstrip("'").startswith(FORMULA)
        label = number.get(name[1:] if guarded else name, number.get(name))
        moments = parse_times(when)
        if table != key:
            problem = f"this line was decided for another table ({some_of([table])}, not {key})"
        elif row not in position or label is None:
            problem = f"the table has no row {some_of([row])}, or no class {some_of([repr(name)])}"
        elif len(moments) != 1:
            fault = f"`when` is {some_of([repr(when)])}, which is not a date or may be several"
            problem = f"{fault}, and should look like 2026-11-15T10:00:00.000Z"
        else:
            decisions[position[row]].append((moments.pop(), label, where))
            continue
        raise InputError(f"{where}: {problem}. {REMEDY}")
    latest, conflicts = {}, []
    for index, choices in decisions.items():
        moment, latest[index], where = max(choices)
        others = [choice for choice in choices if choice[1] != latest[index]]
        if others and max(others)[0] == moment:
            both = f"{where} and {max(others)[2]} decide row {rows[index]} differently"
            raise InputError(f"decisions: {both} at the same time. Delete the wrong line.")
        if others:
            conflicts.append(rows[index])
    if conflicts:
        fault = f"{len(conflicts):,} rows were decided more than once, with different classes"
        message = f"decisions: {fault}. The latest decision counts (rows {some_of(conflicts)})."
        warnings.warn(message, UserWarning, stacklevel=2)
    return latest


def parse_times(text: str) -> set[datetime]:
    """Return the times in UTC that a cell may mean: in ISO 8601, or as spreadsheets write it."""
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text.strip())
        return {moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)}
    moments = set()
    for form in map("".join, product(DATES, CLOCKS)):
        with suppress(ValueError):
            moments.add(datetime.strptime(text.strip(), form).replace(tzinfo=UTC))
    return moments


def _lines(paths: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the file and line of each decision, and its cells in the order of COLUMNS."""
    for path in paths:
        try:
            text = path.read_bytes().decode("utf-8-sig")
            # not str.splitlines: class names may contain characters that it takes for line ends
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            lines = [(f"{path}, line {reader.line_num}", cells) for cells in reader]
        except (UnicodeError, csv.Error) as error:
            raise InputError(f"decisions: {path} cannot be read ({error}). {REMEDY}") from error
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise InputError(f"decisions: {path} has no column {missing[0]!r}. {REMEDY}")
        for where, cells in lines:
            yield where, [cells[name] or "" for name in COLUMNS]


def with_decisions(candidates: Candidates, decisions: dict[int, int]) -> Candidates:
    """Return candidates in which each decided row has only the chosen class."""
    rows, labels = [*decisions], [*decisions.values()]
    matrix, prior = candidates.matrix.copy(), candidates.prior.copy()
    matrix[rows], prior[rows] = False, 0.0
    matrix[rows, labels], prior[rows, labels] = True, 1.0
    answers = None if candidates.answers is None else candidates.answers.copy()
    if answers is not None:  # nobody's answer counts in a decided row
        answers[rows] = -1
    return Candidates(matrix, candidates.classes, prior, answers)
