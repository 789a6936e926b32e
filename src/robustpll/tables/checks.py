"""Find columns that should not be features: dates, row numbers, true labels, numbers as text."""

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables.labels import class_names, distinct
from robustpll.tables.source import is_amount, number_of

FEW = 20  # rows or words: it is no surprise if so few are all different
MOST_WORDS = 1000  # of a column that is not declared as categories: each costs a number per row
NEARLY_ALL = 0.99
EXPLAINED = 3  # columns; further ones are only named
WORDS_SEEN = 1000  # to decide whether a column holds dates
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4})"
    r"([T ,]+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)
NOTATION = re.compile(
    r"[+-]?[$€£¥]? ?[+-]?([0-9]+|[0-9]{1,3}([,.' ][0-9]{3})+)([.,][0-9]+)? ?[%$€£¥]?"
)
NAMES = ("string", "integer", "floating", "mixed-integer-float")  # types that class names may have
ROW_NAME = re.compile(r"(?i:|Unnamed: 0|(.*[\W_])?(id|idx|index|key|nr|row|uuid))|.*[a-z](Id|ID)")


def refuse_odd_features(
    features: pd.DataFrame, y: Candidates | Votes | None, where: str, lines: NDArray[np.int64]
) -> None:
    """Refuse dates and, in a training table (`y` is not None), columns that identify rows.

    Columns of categories pass: somebody declared them to be features. `where` is "line" or "row".
    """
    classes = [] if y is None else class_names(y).astype(str).tolist()
    faults = {}
    for name, column in features.items():
        if column.dtype == "category":
            continue
        known = column.dropna()
        kind = pd.api.types.infer_dtype(known)
        fault = _dates(known, kind)
        if y is not None and not fault:
            if kind == "string":
                fault = _numbers_as_text(column, where, lines)
            if kind in NAMES:
                fault = fault or _true_labels(column, classes, y)
            fault = fault or _identifies_rows(known, kind)
        if fault:
            faults[repr(name)] = f"Column {name!r} {fault}."
    if faults:
        messages = [*faults.values()][:EXPLAINED]
        if len(faults) > EXPLAINED:
            more = some_of([*faults][EXPLAINED:], most=20)
            messages.append(f"Further columns with such faults: {more}.")
        raise InputError(" ".join(messages))


def _dates(known: "pd.Series[Any]", kind: str) -> str:
    """Return the fault of a column of dates, or ""; the functions below do the same."""
    dates = known if kind.startswith(("date", "time", "period")) else known[:0]
    if kind == "string":
        words = known.drop_duplicates().head(WORDS_SEEN)
        matching = words[[DATE.fullmatch(word) is not None for word in words]]
        dates = matching if len(matching) >= 0.9 * len(words) else dates
    if dates.empty:
        return ""
    return (
        f"holds dates or times such as {str(dates.iloc[0])!r}, which are not features: name it in "
        "`ignore` to leave it out, or replace it by a number such as the hour or the days since an "
        "event"
    )


def _numbers_as_text(column: "pd.Series[Any]", where: str, lines: NDArray[np.int64]) -> str:
    words = column.dropna().drop_duplicates().tolist()
    odd = [word for word in words if number_of(word) is None]
    formatted = [word for word in odd if NOTATION.fullmatch(word)]
    if formatted and len(odd) - len(formatted) <= 0.1 * len(odd):
        comma = all(re.fullmatch(r"[+-]?[0-9]+,[0-9]+", word) for word in formatted)
        decimal = ", or pass decimal=',' if the comma is a decimal comma"
        return (
            f"holds numbers such as {formatted[0]!r}: write them as 1234.5, without signs and "
            f"separators{decimal if comma and where == 'line' else ''}; name it in `categories` if "
            "they are names"
        )
    if len(odd) == len(words) or len(odd) > len(words) / 2:
        return ""
    if odd:
        places = lines[column.isin(odd).to_numpy(dtype=bool)]
        return (
            f"holds numbers as text, but for {some_of(map(repr, odd))} ({where} {some_of(places)}):"
            f" correct what is not a number, or pass missing={odd[0]!r} if it means that there is "
            "no value; name the column in `categories` if its numbers are names"
        )
    codes = [word for word in words if not is_amount(word)]
    example = f" such as {codes[0]!r}" if codes else ""
    remedy = "write them without leading zeros" if codes else "save them as numbers"
    return (
        f"holds numbers as text{example}: name it in `categories` if they are names, or in `ignore`"
        f" to leave it out; {remedy} if they are amounts"
    )


def _true_labels(column: "pd.Series[Any]", classes: list[str], y: Candidates | Votes) -> str:
    if column.dtype.kind == "f" and bool((column % 1 > 0).any()):
        return ""
    if not 0 < column.nunique() <= len(classes) + (1 - NEARLY_ALL) * len(column):
        return ""
    codes, values = distinct(column)
    position = {name: at for at, name in enumerate(classes)}
    # a gap turns integers into floats: "1.0" is "1"
    labels = [position.get(str(value).removesuffix(".0"), -1) for value in values]
    label = np.array([*labels, -2])[codes]
    is_class = label[label > -2] >= 0
    only_names = all(isinstance(value, str) for value in values) and is_class.all()
    if not only_names and not (is_class.mean() >= NEARLY_ALL and _are_candidates(label, y)):
        return ""
    return (
        f"holds only names of classes ({some_of(map(repr, values))}): name it in `truth` if these "
        "are the true labels, which a classifier must not see; name it in `categories` if it is a "
        "feature"
    )


def _are_candidates(label: NDArray[np.int64], y: Candidates | Votes) -> bool:
    """Whether nearly every label (-1: not a class, -2: missing) is a candidate of its row."""
    sets = Candidates.of(y)
    rows = np.flatnonzero((label > -2) & (sets.sizes < len(sets.classes)))
    hit = (label[rows] >= 0) & sets.matrix[rows, label[rows]]
    return len(rows) >= FEW and bool(hit.mean() >= NEARLY_ALL)


def _identifies_rows(known: "pd.Series[Any]", kind: str) -> str:
    if known.empty:
        return "has no value in any row: name it in `ignore` to leave it out"
    if kind == "integer" and len(known) > 1:
        consecutive = len(known) > FEW and int(known.max()) - int(known.min()) < 1.1 * len(known)
        is_key = known.is_unique and consecutive
        if ROW_NAME.fullmatch(str(known.name)):
            is_key = known.is_unique or known.nunique() > max(FEW, len(known) / 10)
        if is_key:
            return (
                f"has {known.nunique()} different integers in {len(known)} rows ({some_of(known)}),"
                " so it numbers rows rather than describing them: name it in `ignore` to leave it "
                "out, or write it as 7.0 instead of 7 if it measures something"
            )
    words = known.nunique() if kind == "string" else 0
    if words > max(FEW, min(len(known) / 2, MOST_WORDS)):
        return (
            f"has {words} different words in {len(known)} rows, so it names rows rather than "
            "describing them: name it in `ignore` to leave it out, or in `categories` to keep it"
        )
    return ""
