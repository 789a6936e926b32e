"""Columns of a table that are no features: dates, numbers of rows, truths in disguise."""

import re
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import SETS
from robustpll.labels.votes import Votes
from robustpll.tables.csv_rows import LEADING_ZERO, BadRow, number_of
from robustpll.tables.labels import class_names, distinct

if TYPE_CHECKING:
    import pandas as pd

FEW = 20  # rows or words among which it is no surprise that all are different
MOST_WORDS = 1000  # of a column that nobody declared to be categories: each costs a number a row
NEARLY_ALL = 0.99
LARGEST = float(np.finfo(np.float32).max)  # what networks compute with
TOO_LARGE = f"is beyond {LARGEST:.1e}: correct it, or write the column in a larger unit"
TOLD = 3  # odd columns that are explained; the others are named
WORDS_SEEN = 1000  # to tell whether a column holds dates
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4})"
    r"([T ,]+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)
NOTATION = re.compile(
    r"[+-]?[$€£¥]? ?[+-]?([0-9]+|[0-9]{1,3}([,.' ][0-9]{3})+)([.,][0-9]+)? ?[%$€£¥]?"
)
NAMES = ("string", "integer", "floating", "mixed-integer-float")  # kinds of cells to name classes
ROW_NAME = re.compile(r"(?i:|Unnamed: 0|(.*[\W_])?(id|idx|index|key|nr|row|uuid))|.*[a-z](Id|ID)")


def with_gaps(
    frame: "pd.DataFrame", missing: tuple[str, ...], measures: Collection[str]
) -> "pd.DataFrame":
    """A copy in which words, and numbers written so, that mean "no value" are gaps.

    Text of a column in `measures` becomes numbers, if but for these words it is nothing else.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": ["1.5", "?"], "y": [-1, 2]})
    >>> with_gaps(frame, ("?", "-1"), ("x", "y")).to_numpy().tolist()
    [[1.5, <NA>], [nan, 2]]
    """
    import pandas as pd

    numbers = [number for number in map(number_of, missing) if number is not None]
    frame = frame.copy(deep=False)
    for name, column in frame.items() if missing else ():
        if pd.api.types.is_numeric_dtype(column):
            odd = column.isin(numbers).to_numpy(dtype=bool)
            whole = pd.api.types.is_integer_dtype(column) and odd.any()
            frame[name] = (column.astype("Int64") if whole else column).mask(odd)
            continue
        odd = np.array([isinstance(cell, str) and cell in missing for cell in column], dtype=bool)
        if odd.any():
            rest = column.mask(odd)
            plain = name in measures and all(_is_amount(cell) for cell in rest.dropna())
            frame[name] = pd.to_numeric(rest) if plain else rest
    return frame


def _is_amount(cell: Any) -> bool:
    word = str(cell)
    return number_of(word) is not None and re.match(LEADING_ZERO, word) is None


def too_large_cells(
    features: "pd.DataFrame", lines: NDArray[np.int64], most: float = sys.float_info.max
) -> list[BadRow]:
    """Every number that is infinite or larger than `most`, as a fault of its row."""
    import pandas as pd

    bad = []
    for name, column in features.items():
        if not pd.api.types.is_float_dtype(column):
            continue
        cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
        for row in np.flatnonzero(np.abs(cells) > most):
            reason = "is infinite" if np.isinf(cells[row]) else TOO_LARGE
            bad.append(BadRow(int(lines[row]), str(name), str(cells[row]), reason))
    return bad


def refuse_odd_features(
    features: "pd.DataFrame", y: Candidates | Votes | None, where: str, lines: NDArray[np.int64]
) -> None:
    """Dates; and in tables to learn from (`y` is not None), what would be learned by heart.

    Categories are what a person declared to be features, and pass. `where` is "line" or "row".
    """
    import pandas as pd

    odd, classes = [], [] if y is None else class_names(y).astype(str).tolist()
    for name, column in features.items():
        if column.dtype == "category":
            continue
        kind = pd.api.types.infer_dtype(column, skipna=True)
        reason = _dates(column.dropna(), kind)
        if y is not None and not reason:
            if kind == "string":
                reason = _other_notation(column, where) or _numbers_as_text(column, where, lines)
            if kind in NAMES:
                reason = reason or _leak(column, classes, y)
            reason = reason or _no_measure(column.dropna(), kind)
        if reason:
            odd.append((name, f"Column {name!r} {reason}."))
    if odd:
        more = some_of((repr(name) for name, _ in odd[TOLD:]), most=20)
        told = [sentence for _, sentence in odd[:TOLD]]
        raise InputError(" ".join([*told, *([f"There is more to say of {more}."] if more else [])]))


def refuse_lists(features: "pd.DataFrame", remedy: str) -> None:
    """Cells that hold several values; whoever compares or sorts them would fail."""
    for name, column in features.items():
        nested = column.dtype == object or "<" in str(column.dtype)  # list<..>, struct<..>
        if nested and any(isinstance(cell, (*SETS, dict)) for cell in column):
            raise InputError(
                f"Column {name!r} holds lists or the like, which are no features: {remedy}."
            )


def _dates(known: "pd.Series[Any]", kind: str) -> str:
    dates = known.head(1) if kind.startswith(("date", "time", "period")) else known[:0]
    if kind == "string":
        words = known.drop_duplicates().head(WORDS_SEEN)
        alike = words[[DATE.fullmatch(word) is not None for word in words]]
        dates = alike if len(alike) >= 0.9 * len(words) else dates
    if dates.empty:
        return ""
    return (
        f"holds dates or times such as {str(dates.iloc[0])!r}, which are no features as such: name "
        "it in `ignore` to leave it out, or replace it by numbers that matter, such as the hour or "
        "the days since an event"
    )


def _leak(column: "pd.Series[Any]", classes: list[str], y: Candidates | Votes) -> str:
    """Why a column seems to hold the true labels; "" if it does not."""
    if column.dtype.kind == "f" and bool((column % 1 > 0).any()):
        return ""
    if not 0 < column.nunique() <= len(classes) + (1 - NEARLY_ALL) * len(column):
        return ""
    codes, found = distinct(column)
    words = [str(cell).removesuffix(".0") for cell in found]  # a gap turns integers into floats
    place = {name: at for at, name in enumerate(classes)}
    at = np.array([*(place.get(word, -1) for word in words), -2])[codes]
    named = at[at > -2] >= 0
    text = all(isinstance(cell, str) for cell in found)
    if not (text and named.all()) and not (named.mean() >= NEARLY_ALL and _own(at, y)):
        return ""
    return (
        f"holds names of classes alone ({some_of(map(repr, found))}): name it in `truth` if "
        "these are the true labels, which a classifier must not see; name it in `categories` "
        "if it is a feature after all"
    )


def _own(at: NDArray[np.int64], y: Candidates | Votes) -> bool:
    """Whether nearly every row is given a class (n,) of its own candidates, if these tell."""
    sets = Candidates.of(y)
    rows = np.flatnonzero((at > -2) & (sets.sizes < len(sets.classes)))
    hit = (at[rows] >= 0) & sets.matrix[rows, at[rows]]
    return len(rows) >= FEW and bool(hit.mean() >= NEARLY_ALL)


def _no_measure(known: "pd.Series[Any]", kind: str) -> str:
    """Why a column does not describe rows, and what to do; "" if it does."""
    if known.empty:
        return "has no value in any row: name it in `ignore` to leave it out"
    if kind == "integer" and _numbers_rows(known):
        return (
            f"has {known.nunique()} different integers in {len(known)} rows ({some_of(known)}), so "
            "it numbers rows rather than describing them: name it in `ignore` to leave it out, or "
            "write it as 7.0 instead of 7 if it measures something"
        )
    words = known.drop_duplicates() if kind == "string" else known[:0]
    if len(words) > max(FEW, min(len(known) / 2, MOST_WORDS)):
        return (
            f"has {len(words)} different words in {len(known)} rows, so it names rows rather than "
            "describing them: name it in `ignore` to leave it out, or in `categories` to keep it"
        )
    return ""


def _numbers_rows(known: "pd.Series[Any]") -> bool:
    if len(known) > 1 and ROW_NAME.fullmatch(str(known.name)):
        return bool(known.is_unique) or known.nunique() > max(FEW, len(known) / 10)
    counted = len(known) > FEW and int(known.max()) - int(known.min()) < 1.1 * len(known)
    return counted and bool(known.is_unique)


def _other_notation(column: "pd.Series[Any]", where: str) -> str:
    """Why a column of text holds numbers that are written for people; "" if it does not."""
    words = column.dropna().drop_duplicates().tolist()
    odd = [word for word in words if number_of(word) is None]
    alike = [word for word in odd if NOTATION.fullmatch(word)]
    if not alike or len(odd) - len(alike) > 0.1 * len(odd):
        return ""
    comma = where == "line" and all(re.fullmatch(r"[+-]?[0-9]+,[0-9]+", word) for word in alike)
    or_pass = ", or pass decimal=',' if a comma stands before the decimals" if comma else ""
    return (
        f"holds numbers such as {alike[0]!r}: write them as 1234.5, without signs and separators"
        f"{or_pass}; name it in `categories` if they are mere names"
    )


def _numbers_as_text(column: "pd.Series[Any]", where: str, lines: NDArray[np.int64]) -> str:
    words = column.dropna().drop_duplicates()
    odd = [word for word in words if number_of(word) is None]
    if len(odd) == len(words) or len(odd) > len(words) / 2:
        return ""
    if not odd:
        codes = [word for word in words if not _is_amount(word)]
        such = f" such as {codes[0]!r}" if codes else ""
        remedy = "write them without leading zeros" if codes else "save them as numbers"
        return (
            f"holds numbers as text{such}: name it in `categories` if they are mere names, in "
            f"`ignore` to leave it out; {remedy} if they are amounts"
        )
    at = lines[column.isin(odd).to_numpy(dtype=bool)]
    return (
        f"holds numbers as text, but for {some_of(map(repr, odd))} ({where} {some_of(at)}): "
        f"correct what is no number, or pass missing={odd[0]!r} if it means that there is no value;"
        " name the column in `categories` if its numbers are mere names"
    )
