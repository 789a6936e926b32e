"""Find columns that should not be features: dates, row numbers, true labels, numbers as text."""

import re
from typing import Any

import numpy as np
import pandas as pd

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables.labels import class_names, distinct
from robustpll.tables.source import Lines, is_amount, number_of

FEW = 20  # rows or words: it is no surprise if so few are all different
MOST_WORDS = 1000  # of a column that is not declared as categories: each costs a number per row
NEARLY_ALL = 0.99
EXPLAINED = 3  # columns; further ones are only named
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
IGNORE = "name it in `ignore` to leave it out"


def refuse_odd_features(
    features: pd.DataFrame, y: Candidates | Votes | None, unit: str, lines: Lines
) -> None:
    """Refuse dates and, in a training table (`y` is not None), columns that identify rows.

    Columns of categories pass: somebody declared them to be features. `unit` is "line" or "row".
    """
    faults = {}
    for name, column in features.select_dtypes(exclude="category").items():
        known = column.dropna()
        kind = pd.api.types.infer_dtype(known)
        fault = _dates(known, kind)
        if y is not None:
            fault = (
                fault
                or (kind == "string" and _numbers_as_text(column, unit, lines))
                or (kind in NAMES and _true_labels(column, y))
                or _identifies_rows(known, kind)
            )
        if fault:
            faults[name] = f"Column {name!r} {fault}."
    if faults:
        more = some_of(map(repr, [*faults][EXPLAINED:]), most=20)
        further = f" Further columns with such faults: {more}." if more else ""
        raise InputError(" ".join([*faults.values()][:EXPLAINED]) + further)


def _dates(known: "pd.Series[Any]", kind: str) -> str:
    """Return the fault of a column of dates, or ""; the functions below do the same."""
    words = known.drop_duplicates().head(1000) if kind == "string" else known[:0]
    dates = [word for word in words if DATE.fullmatch(word)]
    if kind.startswith(("date", "time", "period")):
        dates = [known.iloc[0]]
    if not dates or len(dates) < 0.9 * len(words):
        return ""
    remedy = "replace it by a number such as the hour or the days since an event"
    example = f"dates or times such as {str(dates[0])!r}"
    return f"holds {example}, which are not features: {IGNORE}, or {remedy}"


def _numbers_as_text(column: "pd.Series[Any]", unit: str, lines: Lines) -> str:
    words = column.dropna().drop_duplicates().tolist()
    odd = [word for word in words if number_of(word) is None]
    formatted = [word for word in odd if NOTATION.fullmatch(word)]
    names = "name it in `categories` if they are names"
    if formatted and len(odd) - len(formatted) <= 0.1 * len(odd):
        decimal = ", or pass decimal=',' if the comma is a decimal comma" * (unit == "line")
        remedy = f"write them as 1234.5, without signs and separators{decimal}"
        return f"holds numbers such as {formatted[0]!r}: {remedy}; {names}"
    if len(odd) > len(words) / 2 or not words:
        return ""
    if odd:
        places = f"{unit} {some_of(lines[column.isin(odd).to_numpy(dtype=bool)])}"
        missing = f"pass missing={odd[0]!r} if it means that there is no value"
        fault = f"holds numbers as text, but for {some_of(map(repr, odd))} ({places})"
        return f"{fault}: correct what is not a number, or {missing}; {names}"
    code = next((word for word in words if not is_amount(word)), words[0])
    remedy = f"{names}, or {IGNORE.removeprefix('name it ')}"
    return f"holds numbers as text such as {code!r}: {remedy}; write amounts without leading zeros"


def _true_labels(column: "pd.Series[Any]", y: Candidates | Votes) -> str:
    classes = class_names(y).astype(str).tolist()
    if column.dtype.kind == "f" and bool((column % 1 > 0).any()):
        return ""
    if not 0 < column.nunique() <= len(classes) + (1 - NEARLY_ALL) * len(column):
        return ""
    codes, values = distinct(column)
    rows = np.flatnonzero(codes >= 0)
    words = [str(value).removesuffix(".0") for value in values]  # a gap turns 1 into 1.0
    labels = pd.Index(classes).get_indexer(words)[codes[rows]]
    if (labels >= 0).mean() < NEARLY_ALL:
        return ""
    if (labels < 0).any() or not all(isinstance(value, str) for value in values):
        sets = Candidates.of(y)
        is_candidate = (labels >= 0) & sets.matrix[rows, labels]
        is_candidate = is_candidate[sets.sizes[rows] < len(sets.classes)]
        if len(is_candidate) < FEW or is_candidate.mean() < NEARLY_ALL:
            return ""
    truth = "name it in `truth` if these are the true labels, which a classifier must not see"
    feature = "name it in `categories` if it is a feature"
    return f"holds only names of classes ({some_of(map(repr, values))}): {truth}; {feature}"


def _identifies_rows(known: "pd.Series[Any]", kind: str) -> str:
    rows, count = len(known), known.nunique() if kind in ("integer", "string") else 0
    if rows == 0:
        return f"has no value in any row: {IGNORE}"
    if kind == "integer" and rows > 1:
        is_key = count == rows > FEW and int(known.max()) - int(known.min()) < 1.1 * rows
        if ROW_NAME.fullmatch(str(known.name)):
            is_key = count == rows or count > max(FEW, rows / 10)
        if is_key:
            example = f"{count} different integers in {rows} rows ({some_of(known)})"
            remedy = f"{IGNORE}, or write it as 7.0 instead of 7 if it measures something"
            return f"has {example}, so it numbers rows rather than describing them: {remedy}"
    if kind == "string" and count > max(FEW, min(rows / 2, MOST_WORDS)):
        remedy = f"{IGNORE}, or in `categories` to keep it"
        return f"has {count} different words in {rows} rows, so it names rows: {remedy}"
    return ""
