"""What the label columns of a table say: sets in a column, 0/1 columns, answers of annotators."""

import json
import re
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS, TEXT_OF_NOTHING, as_names, missing_cells
from robustpll.labels.votes import Votes
from robustpll.tables.csv_rows import SHOWN, BadRow

if TYPE_CHECKING:
    import pandas as pd

Lines = NDArray[np.int64]
Unanswered = Literal["error", "all classes"]

NO_CLASS = "names no class: every row needs at least one candidate"
NOBODY = "nobody answered it"
NO_ANSWER = (NO_CLASS, NOBODY)  # faults of rows that `unanswered` is about
NOTHING = frozenset(("", *TEXT_OF_NOTHING))
INTEGER = re.compile(r"-?[0-9]+(\.0+)?")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
MOST_BYTES = 8 * 10**9  # of candidates and their prior, 5 bytes for each row and class
INDICATORS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


@dataclass(frozen=True, eq=False)
class SetColumn:
    """A column whose cells are sets of class names; each distinct cell is read once.

    The sets are flat arrays: a million of Python's sets would take a gigabyte.
    """

    name: str
    codes: NDArray[np.int64]  # (n,) which of the distinct cells a row holds; the last is the gap
    sizes: NDArray[np.int64]  # of the set in each distinct cell
    members: NDArray[np.int64]  # all sets one after the other, as positions in `names`
    names: list[Any]
    bad: list[BadRow]

    @classmethod
    def of(
        cls,
        column: "pd.Series[Any]",
        unanswered: Unanswered,
        lines: Lines,
        *,
        separator: str,
        gaps: Collection[str],
    ) -> Self:
        codes, cells = distinct(column)
        cells.append("")  # where the code -1 leads
        known: dict[Any, int] = {}
        reasons: dict[int, str] = {}
        sizes, members = array("q"), array("q")
        for code, cell in enumerate(cells):
            names: frozenset[Any] = frozenset()
            try:
                names = names_of(cell, separator, gaps)
                if not names and unanswered == "error":
                    reasons[code] = NO_CLASS
            except ValueError as error:
                reasons[code] = str(error)
            sizes.append(len(names))
            members.extend(known.setdefault(name, len(known)) for name in names)
        codes = codes % len(cells)
        odd = np.isin(codes, list(reasons))
        bad = [
            BadRow(line, str(column.name), str(cells[code])[:SHOWN], reasons[code])
            for line, code in zip(lines[odd].tolist(), codes[odd].tolist(), strict=True)
        ]
        flat = np.array(sizes, dtype=np.int64), np.array(members, dtype=np.int64)
        return cls(str(column.name), codes, *flat, list(known), bad)

    def renamed(self, names: Mapping[Any, str]) -> Self:
        return replace(self, names=[names[name] for name in self.names])

    def y(self, rows: Any) -> Candidates:
        """Of some rows, none of them bad."""
        used, at = np.unique(self.codes[rows], return_inverse=True)
        inside = np.repeat(np.isin(np.arange(len(self.sizes)), used), self.sizes)
        present, column = np.unique(self.members[inside], return_inverse=True)
        names = as_names([self.names[name] for name in present])
        _refuse_few_classes(f"Column {self.name!r}", names)
        classes, rank = np.unique(names, return_inverse=True)
        _refuse_large(len(at), len(classes))
        matrix = np.zeros((len(used), len(classes)), dtype=bool)
        matrix[np.repeat(np.arange(len(used)), self.sizes[used]), rank[column]] = True
        matrix[self.sizes[used] == 0] = True  # unanswered: all classes
        return Candidates.of(matrix, classes=classes)[at]


@dataclass(frozen=True, eq=False)
class IndicatorColumns:
    """A block of 0/1 columns, one for each class."""

    prefix: str
    names: list[str]  # of the classes
    matrix: NDArray[np.bool_]
    bad: list[BadRow]

    @classmethod
    def of(cls, columns: "pd.DataFrame", prefix: str, unanswered: Unanswered, lines: Lines) -> Self:
        matrix, bad = np.empty(columns.shape, dtype=bool), []
        for at, (name, column) in enumerate(columns.items()):
            codes, cells = distinct(column)
            known = [INDICATORS.get(str(cell).lower(), -1) for cell in cells]
            values = np.array([*known, -1], dtype=np.int8)[codes]
            matrix[:, at] = values != 0  # a bad cell is no empty row besides
            shown = [*(str(cell)[:SHOWN] for cell in cells), ""]
            bad += [
                BadRow(int(lines[row]), str(name), shown[codes[row]], "is neither 0 nor 1")
                for row in np.flatnonzero(values < 0)
            ]
        empty = ~matrix.any(-1)
        if unanswered == "all classes":
            matrix[empty] = True
        else:
            bad += [BadRow(line, f"{prefix}*", "", NO_CLASS) for line in lines[empty].tolist()]
        return cls(prefix, [str(name).removeprefix(prefix) for name in columns], matrix, bad)

    def renamed(self, names: Mapping[Any, str]) -> Self:
        return replace(self, names=[names[name] for name in self.names])

    def y(self, rows: Any) -> Candidates:
        """Of some rows, none of them bad."""
        _refuse_few_classes(f"The prefix {self.prefix!r}", self.names)
        _refuse_large(*self.matrix.shape)
        return Candidates.of(self.matrix[rows], classes=self.names)


@dataclass(frozen=True, eq=False)
class AnswerColumns:
    """A block of columns with the answers of one annotator each."""

    prefix: str
    votes: Votes
    bad: list[BadRow]

    @classmethod
    def of(cls, columns: "pd.DataFrame", prefix: str, unanswered: Unanswered, lines: Lines) -> Self:
        silent = np.ones(len(columns), dtype=bool)
        for name in columns:
            silent &= distinct(columns[name])[0] < 0
        told = lines[silent & (unanswered == "error")].tolist()
        bad = [BadRow(line, f"{prefix}*", "", NOBODY) for line in told]
        answers = columns.rename(columns=lambda name: name.removeprefix(prefix))
        return cls(prefix, Votes(answers, unanswered), bad)

    @property
    def names(self) -> list[Any]:
        """Of the classes."""
        return list(_answers(self.votes))

    def renamed(self, names: Mapping[Any, str]) -> Self:
        import pandas as pd

        answers = {name: column.map(names) for name, column in self.votes.answers.items()}
        return replace(self, votes=replace(self.votes, answers=pd.DataFrame(answers)))

    def y(self, rows: Any) -> Votes:
        """Of some rows, none of them bad."""
        votes = self.votes[rows]
        classes = class_names(votes)
        _refuse_few_classes(f"The prefix {self.prefix!r}", classes)
        _refuse_large(len(votes), len(classes))
        return votes


Labels = SetColumn | IndicatorColumns | AnswerColumns


def plain_integers(
    labels: Labels | None, truth: "pd.Series[Any] | None"
) -> tuple[Labels | None, "pd.Series[Any] | None"]:
    """Both, with "1.0" as "1" if all names are integers: pandas writes so where there are gaps."""
    found = {*(labels.names if labels else ()), *(() if truth is None else distinct(truth)[1])}
    plain = {name: name.partition(".")[0] for name in found if INTEGER.fullmatch(name)}
    if len(plain) < len(found) or all(name == short for name, short in plain.items()):
        return labels, truth
    return labels and labels.renamed(plain), truth if truth is None else truth.map(plain)


def class_names(y: Candidates | Votes) -> NDArray[Any]:
    """The names of the classes, sorted."""
    if isinstance(y, Candidates):
        return y.classes
    return np.unique(as_names(list(_answers(y))))


def _answers(votes: Votes) -> set[Any]:
    return {name for _, column in votes.answers.items() for name in distinct(column)[1]}


def names_of(cell: Any, separator: str, gaps: Collection[str] = ()) -> frozenset[Any]:
    """The class names of one cell; a ValueError says why there are none.

    `gaps` are words that name no class, unless they are quoted in a JSON list.

    >>> sorted(names_of("cat | dog", "|")), sorted(names_of('["a|b", "c"]', "|"))
    (['cat', 'dog'], ['a|b', 'c'])
    """
    names: Any
    if isinstance(cell, str):
        text = cell.strip()
        names = _names_of_json(text) if text[:1] in ("[", "{") else text.split(separator)
        names = [name.strip() for name in names] if text else []
        odd = not NOTHING.isdisjoint(names)
        gap = next((name for name in names if name in gaps and text[0] != "["), "")
    else:
        names = cell if isinstance(cell, tuple) else (cell,)
        odd = bool(missing_cells(np.fromiter(names, dtype=object), also=TEXT_OF_NOTHING).any())
        gap = next((name for name in names if isinstance(name, str) and name in gaps), "")
    if gap:
        raise ValueError(
            f"names {gap!r}, which means no value: leave it out, or quote it in a JSON list"
        )
    if odd:
        raise ValueError("has an empty name in it")
    found = frozenset(names)
    if len(found) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise ValueError(f"names {twice!r} twice")
    return found


def _names_of_json(text: str) -> list[str]:
    try:
        names = json.loads(text) if text[0] == "[" else None
    except (ValueError, RecursionError):
        names = None
    if names is None:
        raise ValueError(
            'begins like a JSON list, but is none such as ["cat", "dog"]: write it with '
            "json.dumps(sorted(names)), or save the table with lists as Parquet"
        )
    if any(not isinstance(name, str | int) or isinstance(name, bool) for name in names):
        raise ValueError("is a JSON list of something else than texts or integers")
    return [str(name) for name in names]


def distinct(cells: "pd.Series[Any]") -> tuple[NDArray[np.int64], list[Any]]:
    """Which of the distinct cells each row holds, -1 for a gap or ""; and these, lists as tuples.

    >>> import pandas as pd
    >>> distinct(pd.Series([["a", "b"], None, ["a", "b"], "c"]))
    (array([ 0, -1,  0,  1]), [('a', 'b'), 'c'])
    """
    import pandas as pd

    if cells.dtype != object and "<" not in str(cells.dtype):  # list<..>, struct<..>
        codes, uniques = pd.factorize(cells)
        found = list(uniques)
        if "" in found:
            gap = found.index("")
            del found[gap]
            codes = np.where(codes == gap, -1, codes - (codes > gap))
        return codes, found
    seen: dict[Any, int] = {}
    keys = (_key(cell) for cell in cells)
    codes = np.fromiter(
        (-1 if key is None else seen.setdefault(key, len(seen)) for key in keys),
        dtype=np.int64,
        count=len(cells),
    )
    return codes, list(seen)


def _key(cell: Any) -> Any:
    """What tells a cell from others; None for a gap."""
    import pandas as pd

    if not isinstance(cell, (*SETS, dict)):
        return None if pd.isna(cell) or cell == "" else cell
    names = tuple(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    try:
        hash(names)
    except TypeError:
        return str(cell)  # lists within lists, as text: no set, and refused as such
    return str(cell) if isinstance(cell, dict) else names


def truth_of(cells: "pd.Series[Any]", classes: NDArray[Any] | None) -> NDArray[Any]:
    """True labels, named as the candidates are; None in an object array where there is none."""
    codes, found = distinct(cells)
    if not found:
        raise InputError(
            f"Column {cells.name!r} names no true label in any row. Do not pass it as `truth`."
        )
    names = as_names(found)
    if classes is not None and classes.dtype.kind == "U":
        names = names.astype(str)
    elif classes is not None and names.dtype.kind == "U":
        raise InputError(
            f"Column {cells.name!r} holds text ({some_of(names)}), but the candidates are integers "
            f"({some_of(classes)}): true labels and candidates need the same names."
        )
    if classes is not None and not np.isin(names, classes).any():
        raise InputError(
            f"Column {cells.name!r} names true labels ({some_of(names)}) of which none is a class "
            f"({some_of(classes)}): true labels and candidates need the same names."
        )
    if names.dtype.kind != "U" and (codes >= 0).all():
        return np.asarray(names[codes])
    # as objects each text is stored once, and not at the length of the longest
    return np.array([*names.tolist(), None], dtype=object)[codes]


def _refuse_few_classes(where: str, names: Collection[Any]) -> None:
    if len(names) < 2:
        raise InputError(
            f"{where} names {len(names)} class ({some_of(names)}): at least 2 classes "
            "are needed. Look at the name and at the separator, or add rows of other classes."
        )


def _refuse_large(n: int, k: int) -> None:
    """Before the matrices are made that would fill the memory."""
    if 5 * n * k > MOST_BYTES:
        raise InputError(
            f"{n:,} rows and {k:,} classes need {5 * n * k / 1e9:,.1f} GB for the candidates alone;"
            f" at most {MOST_BYTES / 1e9:g} GB are allowed. Merge rare classes, or take fewer rows."
        )


def refuse_equal_numbers(classes: Iterable[Any]) -> None:
    """ "1" and "1.0" are one class to those who wrote them."""
    numbers: dict[Decimal, str] = {}
    for name in classes:
        if not isinstance(name, str) or not NUMBER.fullmatch(name):
            continue
        other = numbers.setdefault(Decimal(name), name)
        if other != name:
            raise InputError(
                f"The class names {other!r} and {name!r} are equal as numbers, but would be two "
                "classes: write each class in one way."
            )
