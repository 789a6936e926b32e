"""Read candidates from columns of sets, of 0 and 1, or of annotators' answers."""

import json
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates, Votes
from robustpll.labels.parsing import SETS, TEXT_OF_NOTHING, as_names
from robustpll.tables.source import SHOWN, BadRow

Unanswered = Literal["error", "all classes"]
NO_CLASS = "names no class: every row needs at least one candidate"
NOBODY = "was answered by nobody"
NO_ANSWER = (NO_CLASS, NOBODY)  # faults that `unanswered` can permit
NOTHING = frozenset(("", *TEXT_OF_NOTHING))
MOST_BYTES = 8 * 10**9  # of candidates and their prior: 5 bytes for each row and class
INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


@dataclass(frozen=True, eq=False)
class Labels:
    """Class names, faults, and a function that makes `y` from rows without faults.

    `build(rows, names)` takes an index of rows, and a new name for each of `names`.
    """

    names: list[Any]
    bad: list[BadRow]
    build: Callable[[Any, list[Any]], Candidates | Votes]


def read_sets(
    column: "pd.Series[Any]",
    lines: NDArray[np.int64],
    unanswered: Unanswered,
    separator: str,
    gaps: Collection[str],
) -> Labels:
    """Read a column of sets. Each distinct cell is read once.

    The sets are stored one after the other: a million Python sets would take a gigabyte.
    """
    codes, cells = distinct(column)
    cells.append("")  # the code -1 of a gap leads here
    positions: dict[Any, int] = {}
    reasons: dict[int, str] = {}
    sizes_, members_ = array("q"), array("q")
    for code, cell in enumerate(cells):
        names: frozenset[Any] = frozenset()
        try:
            names = names_of(cell, separator, gaps)
            if not names and unanswered == "error":
                reasons[code] = NO_CLASS
        except ValueError as error:
            reasons[code] = str(error)
        sizes_.append(len(names))
        members_.extend(positions.setdefault(name, len(positions)) for name in names)
    sizes, members = np.array(sizes_, dtype=np.int64), np.array(members_, dtype=np.int64)
    codes = codes % len(cells)
    is_bad = np.isin(codes, list(reasons))
    bad = [
        BadRow(line, str(column.name), str(cells[code])[:SHOWN], reasons[code])
        for line, code in zip(lines[is_bad].tolist(), codes[is_bad].tolist(), strict=True)
    ]

    def build(rows: Any, names: list[Any]) -> Candidates:
        used, row_codes = np.unique(codes[rows], return_inverse=True)
        inside = np.repeat(np.isin(np.arange(len(sizes)), used), sizes)
        present, member = np.unique(members[inside], return_inverse=True)
        class_of = as_names([names[position] for position in present])
        _check_classes(f"Column {column.name!r}", class_of, len(row_codes))
        classes, rank = np.unique(class_of, return_inverse=True)
        matrix = np.zeros((len(used), len(classes)), dtype=bool)
        matrix[np.repeat(np.arange(len(used)), sizes[used]), rank[member]] = True
        matrix[sizes[used] == 0] = True  # unanswered: all classes
        return Candidates.of(matrix, classes=classes)[row_codes]

    return Labels(list(positions), bad, build)


def read_indicators(
    columns: pd.DataFrame, lines: NDArray[np.int64], unanswered: Unanswered, prefix: str
) -> Labels:
    """Read a column of 0 and 1 for each class."""
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

    def build(rows: Any, names: list[Any]) -> Candidates:
        _check_classes(f"The prefix {prefix!r}", names, len(matrix))
        return Candidates.of(matrix[rows], classes=names)

    return Labels([str(name).removeprefix(prefix) for name in columns], bad, build)


def read_votes(
    columns: pd.DataFrame, lines: NDArray[np.int64], unanswered: Unanswered, prefix: str
) -> Labels:
    """Read a column of answers for each annotator."""
    silent = np.full(len(columns), unanswered == "error")
    for name in columns:
        silent &= distinct(columns[name])[0] < 0
    bad = [BadRow(line, f"{prefix}*", "", NOBODY) for line in lines[silent].tolist()]
    answers = columns.rename(columns=lambda name: name.removeprefix(prefix))
    before = _answers(answers)

    def build(rows: Any, names: list[Any]) -> Votes:
        renamed = answers
        if names != before:
            new = dict(zip(before, names, strict=True))
            renamed = pd.DataFrame({name: cells.map(new) for name, cells in answers.items()})
        votes = Votes(renamed, unanswered)[rows]
        _check_classes(f"The prefix {prefix!r}", class_names(votes), len(votes))
        return votes

    return Labels(before, bad, build)


def plain_integers(names: Collection[Any]) -> dict[Any, str]:
    """Map "1.0" to "1" if all names are integers: pandas writes "1.0" in columns with gaps."""
    plain = {name: name.partition(".")[0] for name in names if re.fullmatch(r"-?\d+(\.0+)?", name)}
    return plain if len(plain) == len(names) else {}


def class_names(y: Candidates | Votes) -> NDArray[Any]:
    """Return the sorted names of the classes."""
    return y.classes if isinstance(y, Candidates) else np.unique(as_names(_answers(y.answers)))


def _answers(columns: pd.DataFrame) -> list[Any]:
    return list({name for _, column in columns.items() for name in distinct(column)[1]})


def names_of(cell: Any, separator: str, gaps: Collection[str] = ()) -> frozenset[Any]:
    """Return the class names in a cell, or raise a ValueError with the fault of the cell.

    Words in `gaps` are not classes, unless a JSON list quotes them.

    >>> sorted(names_of("cat | dog", "|")), sorted(names_of('["a|b", "c"]', "|"))
    (['cat', 'dog'], ['a|b', 'c'])
    """
    names: Any = cell if isinstance(cell, tuple) else (cell,)
    if isinstance(cell, str):
        text = cell.strip()
        is_json = text[:1] in ("[", "{")
        names = _names_of_json(text) if is_json else text.split(separator)
        names = [name.strip() for name in names] if text else []
        gaps = () if is_json else gaps
    gap = next((name for name in names if isinstance(name, str) and name and name in gaps), "")
    if gap:
        raise ValueError(
            f"names {gap!r}, which means no value: leave it out, or quote it in a JSON list"
        )
    if any(name in NOTHING or pd.isna(name) for name in names):
        raise ValueError("has an empty name in it")
    distinct_names = frozenset(names)
    if len(distinct_names) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise ValueError(f"names {twice!r} twice")
    return distinct_names


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
    remedy = "true labels and candidates need the same names"
    if classes is not None and classes.dtype.kind == "U":
        names = names.astype(str)
    elif classes is not None and names.dtype.kind == "U":
        raise InputError(
            f"Column {cells.name!r} holds text ({some_of(names)}), but the candidates are integers "
            f"({some_of(classes)}): {remedy}."
        )
    if classes is not None and not np.isin(names, classes).any():
        raise InputError(
            f"Column {cells.name!r} names true labels ({some_of(names)}) of which none is a class "
            f"({some_of(classes)}): {remedy}."
        )
    if names.dtype.kind != "U" and (codes >= 0).all():
        return np.asarray(names[codes])
    # objects store each text once, and not at the length of the longest
    return np.array([*names.tolist(), None], dtype=object)[codes]


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
            f"{rows:,} rows and {len(names):,} classes need {size / 1e9:,.1f} GB for the candidates"
            f"; at most {MOST_BYTES / 1e9:g} GB are allowed. Merge rare classes, or take fewer rows."
        )


def refuse_equal_numbers(classes: Collection[Any]) -> None:
    """Refuse class names such as "1" and "1.0", which are equal as numbers."""
    numbers: dict[Decimal, str] = {}
    for name in classes:
        if isinstance(name, str) and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", name):
            other = numbers.setdefault(Decimal(name), name)
            if other != name:
                raise InputError(
                    f"The class names {other!r} and {name!r} are equal as numbers, but would be two "
                    "classes: write each class in one way."
                )


# Class names with typing errors

PLACEHOLDERS = frozenset(
    [
        "-",
        "--",
        "---",
        "?",
        "??",
        "???",
        ".",
        "..",
        "...",
        "_",
        "/",
        "#n/a",
        "<na>",
        "(blank)",
        "n/a",
        "na",
        "n.a.",
        "nan",
        "none",
        "(none)",
        "null",
        "nil",
        "missing",
        "tbd",
        "k.a.",
    ]
)
SHORTEST_WORD = 5  # letters of a word with a typing error: "cat" and "car" are two words
LONGEST_NAME = 40  # letters; longer names are compared by case and blanks alone
RARE = 5  # the correct name has at least this many times as many rows
MOST_NAMES = 10_000  # to look for typing errors among


@dataclass(frozen=True)
class Spellings:
    """Class names that look wrong, with the number of rows of each name.

    >>> rows = {"Katze": 90, "katze ": 2, "Katz": 1, "Hund": 60, "?": 3, "a1": 9, "a2": 1}
    >>> spellings = Spellings.of(rows)
    >>> spellings.groups, spellings.placeholders
    (({'Katze': 90, 'katze ': 2, 'Katz': 1},), {'?': 3})
    """

    groups: tuple[dict[str, int], ...]  # names that may be one class; the most frequent first
    placeholders: dict[str, int]  # words for "no answer"

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> "Spellings":
        """Group names that differ only in case, blanks, hyphens, or how Unicode writes a letter.

        A rare name also joins a frequent one if a long word differs by one letter, or by two
        swapped neighbours, and neither name contains a digit.
        """
        placeholders = {name: n for name, n in rows.items() if _normalized(name) in PLACEHOLDERS}
        by_key: dict[str, dict[str, int]] = defaultdict(dict)
        for name, count in rows.items():
            if name not in placeholders:
                by_key[_normalized(name)][name] = count
        totals = {key: sum(counts.values()) for key, counts in by_key.items()}
        correct = dict(_typing_errors(totals))
        joined: dict[str, dict[str, int]] = defaultdict(dict)
        for key, names in sorted(by_key.items(), key=lambda item: -totals[item[0]]):
            while key in correct:  # each has more rows than the one before
                key = correct[key]
            joined[key] |= names
        groups = [
            dict(sorted(names.items(), key=lambda item: (-item[1], item[0])))
            for names in joined.values()
            if len(names) > 1
        ]
        return cls(tuple(sorted(groups, key=lambda names: -sum(names.values()))), placeholders)


def _normalized(name: str) -> str:
    """Return a name without differences that people do not mean.

    >>> _normalized("  KATZE\\u00a0 gross "), _normalized("ﬁsch"), _normalized("hot-dog")
    ('katze gross', 'fisch', 'hot dog')
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", plain).split())


def _typing_errors(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield rare names with the frequent name they resemble, in linear time."""
    names = [name for name in rows if len(name) <= LONGEST_NAME and not re.search(r"\d", name)]
    if len(names) > MOST_NAMES:
        return
    alike: dict[str, str] = {}  # a name with a letter replaced by \0 -> the most frequent such name
    for name in sorted(names, key=lambda name: rows[name]):
        alike |= {f"{name[:at]}\0{name[at + 1 :]}": name for at in _letters(name)}
    for name in names:
        others = set()
        for at in _letters(name):
            before, after = name[:at], name[at + 1 :]
            others.add(alike[f"{before}\0{after}"])
            swapped = before + after[:1] + name[at] + after[1:]
            others |= {other for other in (before + after, swapped) if other in rows}
        for other in others:
            rare, frequent = sorted((name, other), key=lambda one: rows[one])
            if rows[frequent] >= max(1, RARE * rows[rare]):
                yield rare, frequent


def _letters(name: str) -> Iterator[int]:
    """Yield the positions of letters in long words."""
    for word in re.finditer(r"[^\W_]+", name):
        if len(word[0]) >= SHORTEST_WORD:
            yield from range(word.start(), word.end())
