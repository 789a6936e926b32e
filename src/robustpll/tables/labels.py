"""Read candidates from a column of sets, from 0/1 columns, or from annotators' answers."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS, TEXT_OF_NOTHING, as_names
from robustpll.labels.votes import Votes
from robustpll.tables.source import SHOWN, BadRow, Lines, bad_rows

NO_CLASS = "names no class: give it candidates, or pass unanswered='all classes' to keep such rows"
NOTHING = frozenset(("", *TEXT_OF_NOTHING))
MOST_BYTES = 8 * 10**9  # of candidates and their prior: 5 bytes for each row and class
INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
INTEGER = re.compile(r"-?[0-9]+(\.0+)?")
NOT_JSON = (
    'begins like a JSON list, but is not one of names such as ["cat", "dog"]: write it with '
    "json.dumps(sorted(names)), or save the table with lists as Parquet"
)

Labels = tuple[list[BadRow], Callable[[Any], Candidates | Votes | None]]  # faults, rows -> y


def read_labels(
    form: str | None, columns: pd.DataFrame, lines: Lines, gaps: Collection[str], options: Any
) -> Labels:
    """Return faults, and a function that makes `y` from rows; `gaps` are words for "no value"."""
    if form is None:
        return [], lambda rows: None
    if form == "candidates":
        bad, build = _read_sets(columns[options.candidates], lines, options.separator, gaps)
    elif form == "indicators":
        bad, build = _read_indicators(columns, lines, options.indicators)
    else:
        bad, build = _read_votes(columns, lines, options.votes, options.unanswered)
    if options.unanswered == "all classes":
        bad = [fault for fault in bad if fault.reason != NO_CLASS]
    return bad, build


def _read_sets(
    column: "pd.Series[Any]", lines: Lines, separator: str, gaps: Collection[str]
) -> Labels:
    """Read a column of sets, each distinct cell once."""
    codes, cells = distinct(column)
    cells.append("")  # of gaps, whose code is -1
    parsed = [_names_in(cell, separator, gaps) for cell in cells]
    plain = plain_integers(name for names, _ in parsed for name in names)
    bad = []
    for row in np.flatnonzero(np.array([not names for names, _ in parsed])[codes]):
        value, fault = str(cells[codes[row]])[:SHOWN], parsed[codes[row]][1]
        bad.append(BadRow(int(lines[row]), str(column.name), value, fault))

    def build(rows: Any) -> Candidates:
        used, code = np.unique(codes[rows], return_inverse=True)
        sets = [frozenset(plain.get(name, name) for name in parsed[number][0]) for number in used]
        classes = frozenset[Any]().union(*sets)
        _refuse_too_many(len(code), len(classes))
        return Candidates.of([names or classes for names in sets])[code]

    return bad, build


def _read_indicators(columns: pd.DataFrame, lines: Lines, prefix: str) -> Labels:
    """Read 0/1 columns, one for each class."""
    matrix, bad = np.empty(columns.shape, dtype=bool), list[BadRow]()
    for number, (name, column) in enumerate(columns.items()):
        codes, cells = distinct(column)
        words = np.array([*map(str, cells), ""], dtype=object)
        values = np.array([INDICATORS.get(word.lower(), -1) for word in words])[codes]
        matrix[:, number] = values != 0  # a row with a bad cell is not empty as well
        bad += bad_rows(values < 0, lines, name, words[codes], "is neither 0 nor 1")
    is_empty = ~matrix.any(-1)
    bad += bad_rows(is_empty, lines, f"{prefix}*", None, NO_CLASS)
    matrix[is_empty] = True
    names = [str(name).removeprefix(prefix) for name in columns]
    plain = plain_integers(names)
    classes = [plain.get(name, name) for name in names]

    def build(rows: Any) -> Candidates:
        _refuse_too_many(len(matrix), len(classes))
        return Candidates.of(matrix[rows], classes=classes)

    return bad, build


def _read_votes(columns: pd.DataFrame, lines: Lines, prefix: str, unanswered: Any) -> Labels:
    """Read columns of answers, one for each annotator."""
    by_column = {str(name).removeprefix(prefix): distinct(columns[name]) for name in columns}
    plain = plain_integers(name for _, names in by_column.values() for name in names)
    answers = {
        title: np.array([*(plain.get(name, name) for name in names), None], dtype=object)[codes]
        for title, (codes, names) in by_column.items()
    }
    votes = Votes(pd.DataFrame(answers, columns.index), unanswered)
    is_empty = votes.answers.isna().all(axis=1)

    def build(rows: Any) -> Votes:
        good = votes[rows]
        _refuse_too_many(len(good), pd.Series(good.answers.to_numpy().ravel()).nunique())
        return good

    return bad_rows(is_empty, lines, f"{prefix}*", None, NO_CLASS), build


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
    return tuple(cell) if is_flat else str(cell)


def true_labels(truth: "pd.Series[Any]", classes: Any) -> NDArray[Any]:
    """Return the true labels, with None where a row has none; some must be in `classes`."""
    codes, values = distinct(truth)
    if not values:
        raise InputError(f"Column {truth.name!r} names no true label. Do not pass it as `truth`.")
    if classes is None or not {*values} <= {*classes.tolist()}:
        plain = plain_integers(values)
        values = [plain.get(value, value) for value in values]
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


# Typing errors in class names

SIGNS = "- -- --- ? ?? ??? . .. ... _ /"
WORDS = "#n/a <na> (blank) n/a na n.a. nan none (none) null nil missing tbd k.a."
PLACEHOLDERS = frozenset([*SIGNS.split(), *WORDS.split()])
SHORTEST_WORD = 5  # letters of a word with a typing error: "cat" and "car" are two words
LONGEST_NAME = 40  # letters; longer names are compared by case and blanks alone
RARE = 5  # a correct name has at least this many times as many rows


def suspicious_names(rows: Mapping[str, int]) -> tuple[list[dict[str, int]], dict[str, int]]:
    """Return groups of names that may be one class, and words for "no answer".

    `rows` has the number of rows of each name. Names of a group, a most frequent one first, differ
    in case, blanks, hyphens, Unicode form or a typing error.
    """
    placeholders: dict[str, int] = {}
    by_key: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        key = " ".join(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", key).split())
        (placeholders if key in PLACEHOLDERS else by_key[key])[name] = count
    correct = dict(_typing_errors({key: sum(names.values()) for key, names in by_key.items()}))
    for key in sorted(correct, key=lambda key: sum(by_key[key].values())):
        by_key[correct[key]] |= by_key.pop(key)
    groups = [names for names in by_key.values() if len(names) > 1]
    return sorted(groups, key=lambda names: -sum(names.values())), placeholders


def _typing_errors(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield rare names and the frequent name they resemble, in linear time.

    Two names that differ by one letter, or by two swapped neighbours, become equal when one letter
    is removed from one or both. The letters must be in long words, and the names without digits.
    """
    names = [name for name in rows if len(name) <= LONGEST_NAME and not re.search(r"\d", name)]
    most_frequent: dict[str, str] = {}  # of the names that become equal
    for name in sorted(names, key=lambda name: -rows[name]):
        keys = [name]
        for word in re.finditer(r"[^\W_]+", name):
            if len(word[0]) >= SHORTEST_WORD:
                keys += [name[:place] + name[place + 1 :] for place in range(*word.span())]
        for other in {most_frequent.setdefault(key, name) for key in keys}:
            is_rare = rows[other] >= max(1, RARE * rows[name])
            # "stable" and "tables" become equal, too, but differ in all letters
            differing = sum(a != b for a, b in zip(name, other, strict=False))
            if is_rare and (differing <= 2 or len(name) != len(other)):
                yield name, other
