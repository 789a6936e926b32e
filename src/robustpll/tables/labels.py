"""Read candidates from columns of sets, 0/1 columns, annotators' answers, or a long table."""

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, counted, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS, TEXT_OF_NOTHING, as_names, is_frame
from robustpll.labels.spelling import read_names, renaming
from robustpll.labels.votes import Not, Spread, Sure, Unsure, Votes, plain_answer
from robustpll.tables.source import (
    EXPORTS,
    PARQUET,
    SHOWN,
    BadRow,
    CsvFile,
    Lines,
    Reading,
    bad_rows,
    check_names,
    opened_source,
    several,
)

NO_CLASS = "names no class: give it an answer, or pass unanswered='all classes' to keep such rows"
NOTHING = frozenset(("", *TEXT_OF_NOTHING))
MOST_BYTES = 8 * 10**9  # of candidates and their prior: 5 bytes for each row and class
INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
INTEGER = re.compile(r"-?[0-9]+(\.0+)?")
NOT_JSON = (
    'begins like a JSON list, but is not one of names such as ["cat", "dog"]: write it with '
    "json.dumps(sorted(names)), or save the table with lists as Parquet"
)
NO_ANSWER = (
    'begins like JSON, but is not a list of names ["cat", "dog"], probabilities {"cat": 0.7, '
    '"dog": 0.3} with the sum 1, a confidence {"cat": 0.7}, or excluded classes {"not": ["cat"]}'
)
NO_SHARE = "is not a number above 0, and at most 1: correct it, or divide percentages by 100"
TWICE = (
    "differs from another answer of the same annotator about this item: delete one, or pass "
    "duplicates='last' or duplicates='set'"
)

# faults, rows -> y, and how names in the table become class names
Renaming = Callable[[Any], Any]
Labels = tuple[list[BadRow], Callable[[Any], Candidates | Votes | None], Renaming]


def read_labels(
    form: str | None, columns: pd.DataFrame, lines: Lines, gaps: Collection[str], options: Any
) -> Labels:
    """Return faults, and a function that makes `y` from rows; `gaps` are words for "no value"."""
    if form is None:
        return [], lambda rows: None, renaming(read_names(options.rename))
    if form == "candidates":
        bad, build, rename = _read_sets(columns[options.candidates], lines, gaps, options)
    elif form == "indicators":
        bad, build, rename = _read_indicators(columns, lines, options)
    else:
        if form == "answers":
            columns = long_answers(columns[options.item], options)
        prefix = options.votes if form == "votes" else ""
        bad, build, rename = _read_votes(columns, lines, prefix, options)
    if options.unanswered == "all classes":
        bad = [fault for fault in bad if fault.reason != NO_CLASS]
    return bad, build, rename


def _renaming(counts: Counter[Any], options: Any) -> Renaming:
    """Return how names become class names, as `options` say; "1.0" becomes "1" in any case."""
    plain, names = plain_integers(counts), read_names(options.rename)
    known = {*counts, *plain.values(), *several(options.missing)}  # a gap may be renamed to a gap
    if absent := [name for name in names if name not in known]:
        message = f"`rename` names classes that the table does not have ({some_of(absent)})."
        warnings.warn(message, UserWarning, stacklevel=2)
    mapping = {name: names.get(new, new) for name, new in plain.items()} | names
    return renaming(mapping, counts if options.fold_case else None)


def _read_sets(
    column: "pd.Series[Any]", lines: Lines, gaps: Collection[str], options: Any
) -> Labels:
    """Read a column of sets, each distinct cell once."""
    codes, cells = distinct(column)
    cells.append("")  # of gaps, whose code is -1
    parsed, counts = [_names_in(cell, options.separator, gaps) for cell in cells], Counter[Any]()
    for (names, _), count in zip(parsed, _sizes(codes, cells), strict=True):
        counts.update(dict.fromkeys(names, count))
    faults = "".join(fault for _, fault in parsed)
    options.seen |= {word for word in gaps if repr(word) in faults}
    rename = _renaming(counts, options)
    new = [frozenset(map(rename, names)) - {None} for names, _ in parsed]
    bad = []
    for row in np.flatnonzero(np.array([not names for names in new])[codes]):
        value, fault = str(cells[codes[row]])[:SHOWN], parsed[codes[row]][1] or NO_CLASS
        bad.append(BadRow(int(lines[row]), str(column.name), value, fault))

    def build(rows: Any) -> Candidates:
        used, code = np.unique(codes[rows], return_inverse=True)
        sets = [new[number] for number in used]
        classes = frozenset[Any]().union(*sets)
        _refuse_too_many(len(code), len(classes))
        return Candidates.of([names or classes for names in sets])[code]

    return bad, build, rename


def _sizes(codes: NDArray[np.int64], cells: Sequence[Any]) -> list[int]:
    """Return the number of rows of each distinct cell."""
    counts: list[int] = np.bincount(codes[codes >= 0], minlength=len(cells)).tolist()
    return counts


def _read_indicators(columns: pd.DataFrame, lines: Lines, options: Any) -> Labels:
    """Read 0/1 columns, one for each class."""
    prefix = options.indicators
    matrix, bad = np.empty(columns.shape, dtype=bool), list[BadRow]()
    for number, (name, column) in enumerate(columns.items()):
        codes, cells = distinct(column)
        words = np.array([*map(str, cells), ""], dtype=object)
        values = np.array([INDICATORS.get(word.lower(), -1) for word in words])[codes]
        matrix[:, number] = values != 0  # a row with a bad cell is not empty as well
        bad += bad_rows(values < 0, lines, name, words[codes], "is neither 0 nor 1")
    names = [str(name).removeprefix(prefix) for name in columns]
    counts = Counter[Any](dict(zip(names, matrix.sum(0).tolist(), strict=True)))
    rename = _renaming(counts, options)
    new = [*map(rename, names)]
    classes = [name for name in dict.fromkeys(new) if name is not None]
    if len(classes) < len(names):
        same = [[number for number, name in enumerate(new) if name == one] for one in classes]
        matrix = np.stack([matrix[:, numbers].any(-1) for numbers in same], 1)
    is_empty = ~matrix.any(-1)
    bad += bad_rows(is_empty, lines, "", None, NO_CLASS)
    matrix[is_empty] = True

    def build(rows: Any) -> Candidates:
        _refuse_too_many(len(matrix), len(classes))
        return Candidates.of(matrix[rows], classes=classes)

    return bad, build, rename


def _read_votes(columns: pd.DataFrame, lines: Lines, prefix: str, options: Any) -> Labels:
    """Read columns of answers, one for each annotator, each distinct cell once."""
    parsed, counts, bad = dict[str, Any](), Counter[Any](), list[BadRow]()
    is_bad = np.zeros(len(columns), dtype=bool)
    for name, column in columns.items():
        codes, cells = distinct(column)
        answers = [_answer_in(cell, options.unsure) for cell in cells]
        options.seen |= {options.unsure}.intersection(map(str, cells))
        faulty = np.array([*(answer is NO_ANSWER for answer in answers), False])[codes]
        bad += bad_rows(faulty, lines, name, np.array([*cells, ""], object)[codes], NO_ANSWER)
        is_bad |= faulty
        for answer, count in zip(answers, _sizes(codes, cells), strict=True):
            names = answer.names if isinstance(answer, Spread) else (answer,)
            counts.update(dict.fromkeys(names, 0 if answer is NO_ANSWER else count))
        parsed[str(name).removeprefix(prefix)] = codes, answers
    counts = Counter({name: n for name, n in counts.items() if name not in (None, NO_ANSWER)})
    rename = _renaming(counts, options)
    frame = {}
    for annotator, (codes, answers) in parsed.items():
        new = [a.renamed(rename) if isinstance(a, Spread) else rename(a) for a in answers]
        frame[annotator] = np.array([*new, None], dtype=object)[codes]  # the last is of gaps
    votes = Votes(pd.DataFrame(frame, columns.index), options.unanswered)
    is_empty = votes.answers.isna().all(axis=1).to_numpy() & ~is_bad

    def build(rows: Any) -> Votes:
        good = votes[rows]
        _refuse_too_many(len(good), len({*map(rename, counts)}))
        return good

    return [*bad, *bad_rows(is_empty, lines, "", None, NO_CLASS)], build, rename


def _answer_in(cell: Any, unsure: str | None) -> Any:
    """Return the answer in a cell, see `plain_answer`; NO_ANSWER if it cannot be read."""
    if unsure is not None and str(cell) == unsure:
        return plain_answer(Unsure())
    try:
        if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
            cell = json.loads(cell)
            excluded = cell.get("not") if isinstance(cell, dict) and len(cell) == 1 else None
            if isinstance(excluded, str | list):
                names = [excluded] if isinstance(excluded, str) else excluded
                return plain_answer(Not(*map(_name, names)))
            keys = [_name(key) for key in cell]
            if isinstance(cell, dict) and len(cell) == 1:
                return plain_answer(Sure(keys[0], *cell.values()))
            cell = dict(zip(keys, cell.values(), strict=True)) if isinstance(cell, dict) else keys
        return plain_answer(cell)
    except (ValueError, RecursionError):  # InputError is a ValueError
        return NO_ANSWER


def _name(name: Any) -> str:
    if type(name) not in (str, int):
        raise InputError(f"{name!r} is no class name.")
    return str(name).strip()


def long_answers(items: "pd.Series[Any]", options: Any) -> pd.DataFrame:
    """Return the answers to these items in the file `options.answers`, a column per annotator."""
    names = [item_name(cell) for cell in items]
    twice = Counter(names) - Counter({*names})
    if rows := [row for row, name in enumerate(names) if not name or name in twice]:
        where = f"Column {items.name!r} has no name, or that of another row, in "
        where += counted(len(rows), "row")
        remedy = "Each row needs a name of its own: the table has one row per item, and the answers"
        raise InputError(f"{where} ({some_of(rows)}). {remedy} are in another table.")
    ending = "" if is_frame(options.answers) else Path(options.answers).suffix.lower()
    used = ["encoding", "delimiter"] if ending and ending not in PARQUET else []
    used = ["question", "duplicates"] if ending in EXPORTS else used
    reading = Reading(missing=several(options.missing), **{n: getattr(options, n) for n in used})
    source: Any = opened_source(options.answers, reading)
    source = source.detected() if isinstance(source, CsvFile) else source
    answers = source.answers if ending in EXPORTS else _long(source, options)
    known = {*names}
    if unknown := [item for item in answers.index if item not in known]:
        fault = f"`answers`: {counted(len(unknown), 'item')} not in the table ({some_of(unknown)})"
        raise InputError(f"{fault}. Delete them, or check the column {items.name!r}.")
    return pd.DataFrame(answers.reindex(names).set_axis(items.index))


def _long(source: Any, options: Any) -> pd.DataFrame:
    """Return the answers of a long table by item and annotator."""
    for argument in ("item", "annotator", "label"):
        if getattr(options, argument) is None:
            raise InputError(f"`answers` is passed: pass its column `{argument}`, too.")
    columns = [options.item, options.annotator, options.label, *several(options.confidence)]
    check_names(source.names, columns, "answers", options.item)
    ((frame, batch),) = source.typed(dict.fromkeys(columns, True))
    frame = frame.reset_index(drop=True).astype(object)
    items, annotators = (frame[name].map(item_name, na_action="ignore") for name in columns[:2])
    labels, shares, confidences = frame[options.label].map(_hashable), None, None
    bad, lines = [*batch.bad], batch.lines
    for name in columns[:2]:
        bad += bad_rows(frame[name].isna(), lines, name, None, "is empty: name it")
    if options.confidence is not None:
        shares = frame[options.confidence].mask(labels.map(str) == options.unsure)
        # a share has no thousands separator, so that both decimal signs are read
        confidences = pd.to_numeric(shares.astype(str).str.replace(",", "."), errors="coerce")
        is_odd = shares.notna() & ~((confidences > 0) & (confidences <= 1))
        bad += bad_rows(is_odd, lines, options.confidence, shares, NO_SHARE)
    if options.duplicates == "error":
        said = pd.DataFrame({"item": items, "who": annotators, "label": labels, "share": shares})
        said = said.dropna(subset=["item", "who", "label"]).drop_duplicates()
        twice = said.index[said.duplicated(["item", "who"], keep=False)]
        bad += bad_rows(np.isin(frame.index, twice), lines, options.label, labels, TWICE)
    if bad:
        first = some_of((f"{source.unit} {fault.line}: {fault}" for fault in sorted(bad)), 3)
        raise InputError(f"`answers`: {source.title} has rows that do not parse ({first}).")
    options.seen |= source.seen
    votes = Votes.long(items, annotators, labels, confidences, duplicates=options.duplicates)
    return pd.DataFrame(votes.answers)


def item_name(cell: Any) -> str | None:
    """Return the name of an item as text; integers beside gaps are floats."""
    if pd.isna(cell):
        return None
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _refuse_too_many(rows: int, classes: int) -> None:
    """Refuse a matrix of candidates that would fill the memory."""
    if 5 * rows * classes > MOST_BYTES:
        need = f"{rows:,} rows and {classes:,} classes need more than {MOST_BYTES / 1e9:,.1f} GB"
        raise InputError(f"{need} of memory. Merge rare classes, or take fewer rows.")


def _names_in(cell: Any, separator: str, gaps: Collection[str]) -> tuple[frozenset[Any], str]:
    """Return the class names in a cell; or no names, and what is wrong with the cell."""
    names: Any = cell if isinstance(cell, tuple) else (cell,)
    if isinstance(cell, str):
        text = cell.strip()
        names = [name.strip() for name in text.split(separator)] if text else []
        if text[:1] in ("[", "{"):
            try:
                names = json.loads(text)
            except (ValueError, RecursionError):
                names = None
            if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
                return frozenset(), NOT_JSON
            names, gaps = [str(name).strip() for name in names], ()  # a quoted word is a name
    for name in names:
        if isinstance(name, str) and name and name in gaps:
            remedy = "leave it out, or quote it in a JSON list"
            return frozenset(), f"names {name!r}, which means no value: {remedy}"
        if name in NOTHING or pd.isna(name):
            return frozenset(), "has an empty name in it"
    if len(set(names)) < len(names):
        return frozenset(), f"names {Counter(names).most_common(1)[0][0]!r} twice"
    return frozenset(names), "" if names else NO_CLASS


def plain_integers(names: Iterable[Any]) -> dict[str, str]:
    """Return "1" for "1.0" and so on if all names are integers, otherwise nothing.

    pandas writes 1.0 for 1 in a column with gaps.
    """
    distinct_names = {*names}
    if not all(isinstance(name, str) and INTEGER.fullmatch(name) for name in distinct_names):
        return {}
    return {name: name.partition(".")[0] for name in distinct_names}


def distinct(cells: "pd.Series[Any]") -> tuple[NDArray[np.int64], list[Any]]:
    """Return the code of each cell (-1 for a gap or ""), and the distinct cells, lists as tuples.

    >>> distinct(pd.Series([["a", "b"], None, ["a", "b"], "c"]))
    (array([ 0, -1,  0,  1]), [('a', 'b'), 'c'])
    """
    if cells.dtype == object or "<" in str(cells.dtype):  # list<..>, struct<..>
        cells = pd.Series([_hashable(cell) for cell in cells], dtype=object)
    codes, uniques = pd.factorize(cells.mask(cells == ""))
    return codes, list(uniques)


def _hashable(cell: Any) -> Any:
    """Return lists as tuples; dictionaries and nested lists as text, which is refused later."""
    if not isinstance(cell, (*SETS, dict)):
        return cell
    is_flat = not isinstance(cell, dict) and all(isinstance(name, Hashable) for name in cell)
    if isinstance(cell, dict) and all(isinstance(name, str) for name in cell):
        return json.dumps(cell, default=str)
    return tuple(cell) if is_flat else str(cell)


def true_labels(truth: "pd.Series[Any]", classes: Any, rename: Renaming) -> NDArray[Any]:
    """Return the true labels, with None where a row has none; some must be in `classes`."""
    codes, values = distinct(truth)
    if not values:
        raise InputError(f"Column {truth.name!r} names no true label. Do not pass it as `truth`.")
    if classes is None or not {*values} <= {*classes.tolist()}:
        plain = plain_integers(values)
        values = [plain.get(value, value) for value in values]
    new = [*map(rename, values)]
    values = [name for name in dict.fromkeys(new) if name is not None]
    codes = np.array([*(values.index(name) if name in values else -1 for name in new), -1])[codes]
    true_names = as_names(values)
    if classes is not None:
        true_names = true_names.astype(str) if classes.dtype.kind == "U" else true_names
        if {*true_names.tolist()}.isdisjoint(classes.tolist()):
            true, known = (some_of(map(repr, names.tolist())) for names in (true_names, classes))
            fault = f"names true labels ({true}) of which none is a class ({known})"
            raise InputError(f"Column {truth.name!r} {fault}: write both in the same way.")
    if true_names.dtype.kind != "U" and (codes >= 0).all():
        return np.asarray(true_names[codes])
    # objects store each text once, and not at the length of the longest
    return np.array([*true_names.tolist(), None], dtype=object)[codes]
