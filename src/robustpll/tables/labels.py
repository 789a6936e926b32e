"""Read candidates from a column of sets, from 0/1 columns, or from annotators' answers."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS, TEXT_OF_NOTHING, as_names
from robustpll.labels.votes import Votes
from robustpll.tables.source import SHOWN, BadRow

Unanswered = Literal["error", "all classes"]
Lines = NDArray[np.int64]
NO_CLASS = "names no class: every row needs at least one candidate"
NOBODY = "has no answer of any annotator"
NO_ANSWER = (NO_CLASS, NOBODY)  # faults that `unanswered` can permit
NOTHING = frozenset(("", *TEXT_OF_NOTHING))
MOST_BYTES = 8 * 10**9  # of candidates and their prior: 5 bytes for each row and class
INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


@dataclass(frozen=True, eq=False)
class Labels:
    """Class names and faults, and a function that makes `y` from rows without faults."""

    names: set[Any]
    bad: list[BadRow]
    build: Callable[[Any, Mapping[Any, str]], Candidates | Votes]  # from rows and new names


def read_sets(
    column: "pd.Series[Any]", lines: Lines, unanswered: str, separator: str, gaps: Collection[str]
) -> Labels:
    """Read a column of sets, each distinct cell once."""
    codes, cells = distinct(column)
    cells.append("")  # the code -1 of a gap leads here
    codes %= len(cells)
    faults: dict[int, str] = {}
    sets: list[frozenset[Any]] = []
    for code, cell in enumerate(cells):
        sets.append(frozenset())
        try:
            sets[code] = names_of(cell, separator, gaps)
            if not sets[code] and unanswered == "error":
                faults[code] = NO_CLASS
        except ValueError as error:
            faults[code] = str(error)
    bad = [
        BadRow(
            int(lines[row]), str(column.name), str(cells[codes[row]])[:SHOWN], faults[codes[row]]
        )
        for row in np.flatnonzero(np.isin(codes, list(faults)))
    ]

    def build(rows: Any, new_names: Mapping[Any, str]) -> Candidates:
        used, code = np.unique(codes[rows], return_inverse=True)
        used_sets = [{new_names.get(name, name) for name in sets[number]} for number in used]
        classes = set().union(*used_sets)
        _check_classes(f"Column {column.name!r}", classes, len(code))
        return Candidates.of([names or classes for names in used_sets])[code]

    return Labels(set().union(*sets), bad, build)


def read_indicators(columns: pd.DataFrame, lines: Lines, unanswered: str, prefix: str) -> Labels:
    """Read 0/1 columns, one for each class."""
    names = [str(name).removeprefix(prefix) for name in columns]
    matrix, bad = np.empty(columns.shape, dtype=bool), list[BadRow]()
    for position, (name, column) in enumerate(columns.items()):
        codes, cells = distinct(column)
        cells.append("")
        value = np.array([INDICATORS.get(str(cell).lower(), -1) for cell in cells])[codes]
        matrix[:, position] = value != 0  # a row with a bad cell is not empty as well
        bad += [
            BadRow(int(lines[row]), str(name), str(cells[codes[row]])[:SHOWN], "is neither 0 nor 1")
            for row in np.flatnonzero(value < 0)
        ]
    is_empty = ~matrix.any(-1)
    if unanswered == "all classes":
        matrix[is_empty] = True
    else:
        bad += [BadRow(line, f"{prefix}*", "", NO_CLASS) for line in lines[is_empty].tolist()]

    def build(rows: Any, new_names: Mapping[Any, str]) -> Candidates:
        classes = [new_names.get(name, name) for name in names]
        _check_classes(f"The prefix {prefix!r}", classes, len(matrix))
        return Candidates.of(matrix[rows], classes=classes)

    return Labels(set(names), bad, build)


def read_votes(columns: pd.DataFrame, lines: Lines, unanswered: Unanswered, prefix: str) -> Labels:
    """Read columns of answers, one for each annotator."""
    is_empty = np.full(len(columns), unanswered == "error")
    for name in columns:
        is_empty &= distinct(columns[name])[0] < 0
    bad = [BadRow(line, f"{prefix}*", "", NOBODY) for line in lines[is_empty].tolist()]
    columns = columns.rename(columns=lambda name: name.removeprefix(prefix))

    def build(rows: Any, new_names: Mapping[Any, str]) -> Votes:
        answers = columns.apply(lambda cells: cells.map(new_names)) if new_names else columns
        votes = Votes(answers, unanswered)[rows]
        _check_classes(f"The prefix {prefix!r}", class_names(votes), len(votes))
        return votes

    return Labels(_answers(columns), bad, build)


def _check_classes(where: str, names: Collection[Any], rows: int) -> None:
    """Refuse a single class, and a matrix that would fill the memory."""
    if len(names) < 2:
        raise InputError(
            f"{where} names {len(names)} class ({some_of(names)}): at least 2 classes are needed. "
            "Check the name and the separator, or add rows of other classes."
        )
    size = 5 * rows * len(names)
    if size > MOST_BYTES:
        raise InputError(
            f"{rows:,} rows and {len(names):,} classes need {size / 1e9:,.1f} GB of memory, but at "
            f"most {MOST_BYTES / 1e9:g} GB are allowed. Merge rare classes, or take fewer rows."
        )


def class_names(y: Candidates | Votes) -> NDArray[Any]:
    """Return the sorted names of the classes."""
    return (
        y.classes if isinstance(y, Candidates) else np.unique(as_names(list(_answers(y.answers))))
    )


def _answers(columns: pd.DataFrame) -> set[Any]:
    return {name for _, column in columns.items() for name in distinct(column)[1]}


def plain_integers(names: Collection[Any]) -> dict[Any, str]:
    """Map "1.0" to "1" if all names are integers: pandas writes "1.0" in columns with gaps."""
    plain = {name: name.partition(".")[0] for name in names if re.fullmatch(r"-?\d+(\.0+)?", name)}
    is_other = len(plain) == len(names) and any(name != new for name, new in plain.items())
    return plain if is_other else {}


def refuse_equal_numbers(classes: Collection[Any]) -> None:
    """Refuse class names such as "1" and "1.0"."""
    numbers: dict[Decimal, str] = {}
    for name in classes:
        if isinstance(name, str) and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", name):
            other = numbers.setdefault(Decimal(name), name)
            if other != name:
                raise InputError(
                    f"The class names {other!r} and {name!r} are equal as numbers. Write each "
                    "class in one way."
                )


def names_of(cell: Any, separator: str, gaps: Collection[str] = ()) -> frozenset[Any]:
    """Return the class names in a cell; raise a ValueError with the fault of a bad cell."""
    names: Any = cell if isinstance(cell, tuple) else (cell,)
    if isinstance(cell, str):
        text = cell.strip()
        is_json = text[:1] in ("[", "{")
        names = _names_of_json(text) if is_json else text.split(separator)
        names = [name.strip() for name in names] if text else []
        gaps = () if is_json else gaps  # a quoted word is a name
    for name in names:
        if isinstance(name, str) and name and name in gaps:
            raise ValueError(
                f"names {name!r}, which means no value: leave it out, or quote it in a JSON list"
            )
        if name in NOTHING or pd.isna(name):
            raise ValueError("has an empty name in it")
    if len(set(names)) < len(names):
        raise ValueError(f"names {Counter(names).most_common(1)[0][0]!r} twice")
    return frozenset(names)


def _names_of_json(text: str) -> list[str]:
    try:
        names = json.loads(text) if text[0] == "[" else None
    except (ValueError, RecursionError):
        names = None
    if names is None:
        raise ValueError(
            'begins like a JSON list, but is not one such as ["cat", "dog"]: write it with '
            "json.dumps(sorted(names)), or save the table with lists as Parquet"
        )
    if any(not isinstance(name, str | int) or isinstance(name, bool) for name in names):
        raise ValueError("is a JSON list with items that are not texts or integers")
    return [str(name) for name in names]


def distinct(cells: "pd.Series[Any]") -> tuple[NDArray[np.int64], list[Any]]:
    """Return the code of each cell (-1 for a gap or ""), and the distinct cells, lists as tuples.

    >>> distinct(pd.Series([["a", "b"], None, ["a", "b"], "c"]))
    (array([ 0, -1,  0,  1]), [('a', 'b'), 'c'])
    """
    if cells.dtype == object or "<" in str(cells.dtype):  # list<..>, struct<..>
        cells = pd.Series([_hashable(cell) for cell in cells], dtype=object)
    codes, uniques = pd.factorize(cells)
    values = list(uniques)
    if "" in values:
        gap = values.index("")
        del values[gap]
        codes = np.where(codes == gap, -1, codes - (codes > gap))
    return codes, values


def _hashable(cell: Any) -> Any:
    """Return lists as tuples; dictionaries and nested lists as text, which is refused later."""
    if not isinstance(cell, (*SETS, dict)):
        return cell
    names = tuple(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    try:
        hash(names)
    except TypeError:
        return str(cell)
    return str(cell) if isinstance(cell, dict) else names


def truth_of(cells: "pd.Series[Any]", classes: NDArray[Any] | None) -> NDArray[Any]:
    """Return the true labels, named like the candidates, with None where a row has none."""
    codes, values = distinct(cells)
    if not values:
        raise InputError(
            f"Column {cells.name!r} names no true label in any row. Do not pass it as `truth`."
        )
    names = as_names(values)
    if classes is not None and classes.dtype.kind == "U":
        names = names.astype(str)
    shared = set(names.tolist()).intersection([] if classes is None else classes.tolist())
    if classes is not None and not shared:
        raise InputError(
            f"Column {cells.name!r} names true labels ({some_of(map(repr, names.tolist()))}) of "
            f"which none is a class ({some_of(map(repr, classes.tolist()))}): true labels and "
            "candidates need the same names."
        )
    if names.dtype.kind != "U" and (codes >= 0).all():
        return np.asarray(names[codes])
    # objects store each text once, and not at the length of the longest
    return np.array([*names.tolist(), None], dtype=object)[codes]


# Typing errors in class names

SIGNS = ("-", "--", "---", "?", "??", "???", ".", "..", "...", "_", "/", "#n/a", "<na>", "(blank)")
WORDS = ("n/a", "na", "n.a.", "nan", "none", "(none)", "null", "nil", "missing", "tbd", "k.a.")
PLACEHOLDERS = frozenset((*SIGNS, *WORDS))
SHORTEST_WORD = 5  # letters of a word with a typing error: "cat" and "car" are two words
LONGEST_NAME = 40  # letters; longer names are compared by case and blanks alone
RARE = 5  # a correct name has at least this many times as many rows
MOST_NAMES = 10_000  # to look for typing errors among


@dataclass(frozen=True)
class Spellings:
    """Class names that look wrong, with the number of rows of each name."""

    groups: tuple[dict[str, int], ...]  # names that may be one class; the most frequent first
    placeholders: dict[str, int]  # words for "no answer"

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> "Spellings":
        """Group names that differ in case, blanks, hyphens, Unicode form or a typing error."""
        placeholders: dict[str, int] = {}
        by_key: dict[str, dict[str, int]] = defaultdict(dict)
        for name, count in rows.items():
            key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
            key = " ".join(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", key).split())
            (placeholders if key in PLACEHOLDERS else by_key[key])[name] = count
        totals = {key: sum(counts.values()) for key, counts in by_key.items()}
        correct = dict(_typing_errors(totals))
        groups: dict[str, dict[str, int]] = defaultdict(dict)
        for key, names in by_key.items():
            target = key
            while target in correct:  # each has more rows than the one before
                target = correct[target]
            groups[target] |= names
        ordered = [
            dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))
            for names in sorted(groups.values(), key=lambda names: -sum(names.values()))
            if len(names) > 1
        ]
        return cls(tuple(ordered), placeholders)


def _typing_errors(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield rare names and the frequent name they resemble, in linear time.

    Two names that differ by one letter, or by two swapped neighbours, become equal when one letter
    is removed from one or both. The letters must be in long words, and the names without digits.
    """
    names = [name for name in rows if len(name) <= LONGEST_NAME and not re.search(r"\d", name)]
    if len(names) > MOST_NAMES:
        return
    keys = {name: [name] for name in names}
    for name in names:
        for word in re.finditer(r"[^\W_]+", name):
            if len(word[0]) >= SHORTEST_WORD:
                keys[name] += [name[:at] + name[at + 1 :] for at in range(*word.span())]
    ascending = sorted(names, key=lambda name: rows[name])
    frequent = {key: name for name in ascending for key in keys[name]}
    for name in names:
        for other in {frequent[key] for key in keys[name]}:
            is_rare = rows[other] >= max(1, RARE * rows[name])
            # "stable" and "tables" become equal, too, but differ in all letters
            differing = sum(a != b for a, b in zip(name, other, strict=False))
            if is_rare and (differing <= 2 or len(name) != len(other)):
                yield name, other
