"""Decisions that people made on the review page: read from CSV files, and applied to a table."""

import csv
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from robustpll._files import delimiter_of
from robustpll.errors import InputError, counted, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.spelling import unguarded
from robustpll.tables.read import Table

COLUMNS = ("row", "decision", "when", "table")  # all columns of version 0.1
FURTHER = ("kind", "id", "content", "reviewer", "round", "cells")
CANNOT_TELL, EXCLUDE = -1, -2
KINDS = {"cannot tell": CANNOT_TELL, "exclude": EXCLUDE}  # and "label", or "" in version 0.1
CONFLICT, CHANGED, GONE = "conflict", "row changed", "class is gone"  # why rows are asked again
DATES = ("%d.%m.%Y", "%Y.%m.%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y")  # of spreadsheets
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
REMEDY = "Pass the table and options that the page was made with, and the file as it wrote it."
BATCH = 2**13  # rows whose cells are hashed at once
_Line = dict[str, str]  # cells by column, and "file" and "where": file and line


class RowKeys(NamedTuple):
    """How decisions find their rows."""

    rows: NDArray[np.int64]  # (n,): lines or row numbers in the source
    table: str  # fingerprint of the whole table, in files of version 0.1
    contents: Sequence[str] = ()  # a hash of all cells of each row; equal rows share it
    ids: Sequence[str] = ()  # cells of the column `id`, if one is named

    @classmethod
    def of(cls, table: Table, id_column: str | None = None) -> "RowKeys":
        """Return the keys of a table; without `Table.cells`, they find files of version 0.1."""
        keys = cls(table.rows, fingerprint(table, Candidates.of(table.y)))
        if table.cells is None:
            return keys
        ids = () if id_column is None else row_ids(table, id_column)
        return keys._replace(contents=row_contents(table.cells), ids=ids)


def row_contents(cells: Any) -> list[str]:
    """Return 16 hex digits for each row of a pyarrow table, from the text of all its cells."""
    # Empty cells and the order of the columns do not count.
    names, contents = sorted(cells.column_names), []
    for batch in cells.select(names).to_batches(max_chunksize=BATCH):
        pairs = []
        for name, column in zip(names, batch.columns, strict=True):
            try:
                text = column.cast(pa.string())
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, bytes that are no text
                text = pa.array([None if c is None else str(c) for c in column.to_pylist()])
            text = pc.utf8_trim_whitespace(text)
            filled = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
            pairs.append(pc.binary_join_element_wise(name, filled, "\x1e"))
        rows = pc.binary_join_element_wise(*pairs, "\x1f", null_handling="skip").to_pylist()
        contents += [hashlib.sha256(row.encode()).hexdigest()[:16] for row in rows]
    return contents


def row_ids(table: Table, column: str) -> list[str]:
    """Return the ids of all rows; raise InputError if some are missing, or not unique."""
    ids = ["" if cell is None else str(cell).strip() for cell in table.cells[column].to_pylist()]
    counts = Counter(ids)
    repeated = [value for value, count in counts.items() if count > 1 and value]
    if "" in counts or repeated:
        value = repeated[0] if repeated else ""
        rows = some_of([row for row, text in zip(table.rows, ids, strict=True) if text == value])
        several = f"several rows have {some_of(map(repr, repeated))}"
        fault = several if repeated else "some do not"
        raise InputError(
            f"`id`: each row must have its own value in column {column!r}, but {fault} "
            f"({value!r} in rows {rows}). Correct the table, or name another column."
        )
    return ids


def fingerprint(table: Table, candidates: Candidates) -> str:
    """Return 16 hex digits that depend on the content of the whole table."""
    hashed = hashlib.sha256(repr([str(name) for name in candidates.classes]).encode())
    hashed.update(candidates.matrix.tobytes() + table.rows.astype("<i8").tobytes())
    features = pd.util.hash_pandas_object(table.features, index=False)
    hashed.update(features.to_numpy().astype("<u8").tobytes())
    return hashed.hexdigest()[:16]


class Decision(NamedTuple):
    """A line of a file of decisions."""

    when: datetime
    label: int | None  # index of a class, CANNOT_TELL or EXCLUDE; None if there is no such class
    name: str  # of the class, or the kind of the decision
    reviewer: str  # the file, if the reviewer has no name
    round: int  # 1, or higher if the reviewer saw a conflict of decisions of the round before
    where: str  # file and line
    cells: str = ""  # what the reviewer saw of the row: JSON of names and texts

    @property
    def verdict(self) -> tuple[int | None, str]:
        """What two decisions have in common if they agree: a class may be called "exclude"."""
        return self.label, self.name


@dataclass(frozen=True)
class Decisions:
    """What people decided; rows are positions in the table."""

    settled: dict[int, int]  # row -> index of the class, CANNOT_TELL or EXCLUDE
    again: dict[int, list[Decision]]  # row to ask again -> what people said about it
    why: dict[int, str]  # row to ask again -> CONFLICT, CHANGED or GONE
    unmatched: int = 0  # decisions about rows that the table does not have
    shared: list[list[Decision]] = field(default_factory=list)  # of several people about a row

    def messages(self) -> Iterator[str]:
        """Yield how far several people agree, and what was not applied."""
        if self.shared:
            same = sum(len({one.verdict for one in row}) == 1 for row in self.shared)
            text = f"decided by several people: {counted(len(self.shared), 'row')}, "
            reviewers = {one.reviewer for row in self.shared for one in row}
            text += f"{same / len(self.shared):.1%} alike"
            pairs = [[d.name for d in sorted(row, key=lambda d: d.reviewer)] for row in self.shared]
            if len(reviewers) == 2 and len({*chain(*pairs)}) > 1:
                kappa = cohen_kappa_score(*zip(*pairs, strict=True))
                text += f", Cohen's kappa {kappa:.2f}"
            yield text
        about = {
            CONFLICT: "several people decided differently",
            CHANGED: "they changed after the decision",
            GONE: "the table has no such class",
        }
        counts = Counter(self.why.values())
        for why, text in about.items():
            if counts[why]:
                rows = (self.again[row] for row, said in self.why.items() if said == GONE == why)
                names = dict.fromkeys(one.name for said in rows for one in said)
                which = f" ({some_of([*names])})" if names else ""
                yield f"rows to decide again, because {text}{which}: {counts[why]:,}"
        if self.unmatched:
            yield f"decisions not applied, because they match no row: {self.unmatched:,}"


def read_decisions(paths: Sequence[Path], keys: RowKeys, classes: NDArray[Any]) -> Decisions:
    """Read files of decisions, and find their rows by content, or else by id."""
    # The latest decision of a person about a row counts, and only those of the highest round. If
    # several people decided differently, the row is asked again.
    places, number = _Places(keys), {str(name): index for index, name in enumerate(classes)}
    matched = defaultdict[int, list[Decision]](list)  # by row
    changed = defaultdict[int, list[Decision]](list)
    unmatched = 0
    for line in _without_repeats(_lines(paths)):
        decision = _decision(line, number)
        indices, is_changed = places.find(line, decision)
        unmatched += not indices
        for index in indices:
            (changed if is_changed else matched)[index].append(decision)
    settled, again, why, shared = {}, {}, {}, []
    for index in sorted({*matched, *changed}):
        row = int(keys.rows[index])
        latest = _latest(matched[index] or changed[index], row)
        if not matched[index]:
            again[index], why[index] = latest, CHANGED
        elif len({one.verdict for one in latest}) > 1:
            again[index], why[index] = latest, CONFLICT
        elif latest[0].label is None:
            again[index], why[index] = latest, GONE
        else:
            settled[index] = latest[0].label
        first = [one for one in matched[index] if one.round == 1]
        if len({one.reviewer for one in first}) > 1:
            shared.append(_latest(first, row))
    return Decisions(settled, again, why, unmatched, shared)


def _without_repeats(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Yield lines once: a later file of a person repeats the first, and may add the name."""
    groups = defaultdict[tuple[str, ...], dict[str, _Line]](dict)
    for line in lines:
        same = tuple(line[name] for name in (*COLUMNS, *FURTHER[:3], "round"))
        groups[same].setdefault(line["reviewer"], line)
    for by_reviewer in groups.values():
        named = [line for reviewer, line in by_reviewer.items() if reviewer]
        yield from named or by_reviewer.values()


class _Places:
    """Finds the rows of a line."""

    def __init__(self, keys: RowKeys) -> None:
        self.table = keys.table
        self.by_row = {str(row): index for index, row in enumerate(keys.rows)}
        self.by_id = {text: index for index, text in enumerate(keys.ids)}
        self.by_content = defaultdict[str, list[int]](list)
        for index, content in enumerate(keys.contents):
            self.by_content[content].append(index)

    def find(self, line: _Line, decision: Decision) -> tuple[list[int], bool]:
        """Return positions, and whether the row is another one than that which was decided."""
        if line["content"]:
            if indices := self.by_content.get(line["content"]):
                return indices, False
            index = self.by_id.get(unguarded(line["id"]))
            return [] if index is None else [index], True
        row, table = line["row"], line["table"]
        if table != self.table:
            name = some_of([table])
            problem = f"this line was decided for another table ({name}, not {self.table})"
        elif row not in self.by_row or decision.label is None:
            name = some_of([repr(decision.name)])
            problem = f"the table has no row {some_of([row])}, or no class {name}"
        else:
            return [self.by_row[row]], False
        raise InputError(f"{line['where']}: {problem}. {REMEDY}")


def _decision(line: _Line, number: Mapping[str, int]) -> Decision:
    kind, when, where = line["kind"] or "label", line["when"], line["where"]
    names = (unguarded(line["decision"]), line["decision"], line["decision"].strip())
    name = kind if kind in KINDS else next((name for name in names if name in number), names[0])
    label = KINDS.get(kind, number.get(name))
    moments, turn = parse_times(when), line["round"] or "1"
    if kind != "label" and kind not in KINDS:
        problem = f"`kind` is {some_of([repr(kind)])}, and should be label, cannot tell or exclude"
    elif label is None and not name.strip():
        problem = "`decision` is empty, and should name a class"
    elif len(moments) != 1:
        fault = f"`when` is {some_of([repr(when)])}, which is not a date or may be several"
        problem = f"{fault}, and should look like 2026-11-15T10:00:00.000Z"
    elif not (turn.isascii() and turn.isdecimal() and len(turn) < 10):
        problem = f"`round` is {some_of([repr(turn)])}, and should be a number such as 1"
    else:
        reviewer = unguarded(line["reviewer"]).strip() or line["file"]
        return Decision(moments.pop(), label, name, reviewer, int(turn), where, line["cells"])
    raise InputError(f"{where}: {problem}. {REMEDY}")


def _latest(decisions: Sequence[Decision], row: int) -> list[Decision]:
    """Return the latest decision of each reviewer in the highest round."""
    last = max(one.round for one in decisions)
    latest: dict[str, Decision] = {}
    for one in sorted(decisions, key=lambda decision: decision.when):
        before = latest.get(one.reviewer)
        if one.round < last:
            continue
        if before is not None and before.when == one.when and before.verdict != one.verdict:
            both = f"{before.where} and {one.where} decide row {row} differently"
            raise InputError(f"decisions: {both} at the same time. Delete the wrong line.")
        latest[one.reviewer] = one
    return [*latest.values()]


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


def _lines(paths: Sequence[Path]) -> Iterator[_Line]:
    """Yield the lines of all files, with "" for missing cells."""
    for path in paths:
        try:
            text = path.read_bytes().decode("utf-8-sig")
            # not str.splitlines: class names may contain characters that it takes for line ends
            content = io.StringIO(text, newline="")
            reader = csv.DictReader(content, delimiter=delimiter_of(text), strict=True)
            lines = [(f"{path}, line {reader.line_num}", cells) for cells in reader]
        except FileNotFoundError:
            remedy = "Check the path and the current folder"
            raise InputError(f"decisions: there is no file {path}. {remedy}.") from None
        except UnicodeError as error:
            remedy = "Save it as CSV UTF-8, or pass the file as the page wrote it"
            raise InputError(f"decisions: {path} cannot be read: no UTF-8. {remedy}.") from error
        except csv.Error as error:
            raise InputError(f"decisions: {path} cannot be read ({error}). {REMEDY}") from error
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise InputError(f"decisions: {path} has no column {missing[0]!r}. {REMEDY}")
        for where, cells in lines:
            line = {name: cells.get(name) or "" for name in (*COLUMNS, *FURTHER)}
            yield line | {"file": str(path), "where": where}


def with_decisions(candidates: Candidates, decisions: Mapping[int, int]) -> Candidates:
    """Return candidates in which each row with a decided class has only that class."""
    labels = {row: label for row, label in decisions.items() if label >= 0}
    rows, chosen = [*labels], [*labels.values()]
    matrix, prior = candidates.matrix.copy(), candidates.prior.copy()
    matrix[rows], prior[rows] = False, 0.0
    matrix[rows, chosen], prior[rows, chosen] = True, 1.0
    answers = None if candidates.answers is None else candidates.answers.copy()
    if answers is not None:  # nobody's answer counts in a decided row
        answers[rows] = -1
    return Candidates(matrix, candidates.classes, prior, answers)


@dataclass(frozen=True, eq=False)
class Decided:
    """A table after decisions: m of its n rows are not excluded, and remain."""

    table: Table  # of the remaining rows
    candidates: Candidates  # of the remaining rows
    keys: RowKeys  # of all rows
    remaining: NDArray[np.int64]  # (m,): positions in the whole table
    labelled: NDArray[np.bool_]  # (m,): whether a person chose the label
    cannot_tell: NDArray[np.bool_]  # (m,): whether a person could not tell the label
    answers: NDArray[np.int64] | None  # (m, annotators): of the remaining rows, before decisions
    decisions: Decisions  # rows are positions in the whole table

    def messages(self) -> Iterator[str]:
        """Yield how many rows people left undecided or excluded, and what was not applied."""
        excluded = len(self.keys.rows) - len(self.remaining)
        if excluded or self.cannot_tell.any():
            unknown = self.cannot_tell.sum()
            yield f"rows that people cannot tell: {unknown:,}; excluded: {excluded:,}"
        yield from self.decisions.messages()


def apply_decisions(table: Table, paths: Sequence[Path], id_column: str | None = None) -> Decided:
    """Read decisions about a table that `read_with_cells` read, and apply them to its rows."""
    candidates, keys = Candidates.of(table.y), RowKeys.of(table, id_column)
    decisions = read_decisions(paths, keys, candidates.classes)
    verdict = np.full(len(table), len(candidates.classes))  # not decided
    verdict[[*decisions.settled]] = [*decisions.settled.values()]
    remaining = np.flatnonzero(verdict != EXCLUDE)
    if not len(remaining):
        raise InputError("decisions: all rows are excluded. Leave out some of these decisions.")
    verdict, decided = verdict[remaining], with_decisions(candidates, decisions.settled)
    is_label = (verdict >= 0) & (verdict < len(candidates.classes))
    masks = is_label, verdict == CANNOT_TELL
    answers = None if candidates.answers is None else candidates.answers[remaining]
    fewer = _rows_of(table, remaining)
    return Decided(fewer, decided[remaining], keys, remaining, *masks, answers, decisions)


def _rows_of(table: Table, rows: NDArray[np.int64]) -> Table:
    """Return a table with some of its rows."""
    if len(rows) == len(table):
        return table
    parts = {name: getattr(table, name) for name in ("y", "truth", "rows", "pictures")}
    taken: Any = {name: None if part is None else part[rows] for name, part in parts.items()}
    fewer = replace(table, features=table.features.iloc[rows], **taken)
    if table.cells is not None:
        object.__setattr__(fewer, "cells", table.cells.take(rows))
    return fewer
