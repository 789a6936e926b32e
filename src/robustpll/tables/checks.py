"""Find columns of a training table that are not features."""

import re
from typing import Any

import numpy as np
import pandas as pd

from robustpll.errors import InputError, some_of
from robustpll.estimator.features import column_fault
from robustpll.labels.candidates import Candidates
from robustpll.tables.labels import distinct, plain_number

FEW = 20  # rows: it is no surprise if the numbers in so few are all different
NEARLY_ALL = 0.99
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4})"
    r"([T ,]+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)
NUMBER = re.compile(
    r"[+-]?[$€£¥]? ?[+-]?([0-9]+|[0-9]{1,3}([,.' ][0-9]{3})+)([.,][0-9]+)? ?[%$€£¥]?"
)
ROW_NAME = re.compile(r"(?i:|Unnamed: 0|(.*[\W_])?(id|idx|index|key|nr|row|uuid))|.*[a-z](Id|ID)")
REMEDY = (
    "Name such a column in `ignore` to leave it out, in `truth` if it has the true labels, or in "
    "`categories` if its words or codes are a feature. Write numbers as 1234.5; `missing` names "
    "words for no value, and decimal=',' reads decimal commas."
)


def refuse_odd_features(features: pd.DataFrame, y: Candidates) -> None:
    """Refuse dates, numbers as text, true labels, and columns that identify rows.

    Columns of categories pass: somebody declared them to be features.
    """
    faults = []
    for name, column in features.select_dtypes(exclude="category").items():
        known = column.dropna()
        kind = pd.api.types.infer_dtype(known)
        fault = (
            (kind == "string" and _odd_text(known))
            or column_fault(column)
            or (kind in ("string", "integer", "floating") and _true_labels(column, y))
            or (kind == "integer" and _row_numbers(known))
        )
        if fault:
            faults.append(f"Column {name!r} {fault}.")
    if faults:
        more = f" Further columns: {len(faults) - 3}." if len(faults) > 3 else ""
        raise InputError(f"{' '.join(faults[:3])}{more} {REMEDY}")


def _odd_text(known: "pd.Series[Any]") -> str:
    """Return what is wrong with a column of dates or numbers, or ""; so do the functions below."""
    words = known.drop_duplicates().head(1000).tolist()
    for pattern, content in ((DATE, "dates or times"), (NUMBER, "numbers as text")):
        matching = [word for word in words if pattern.fullmatch(word)]
        if matching and len(matching) >= 0.9 * len(words):
            return f"holds {content} such as {matching[0]!r}"
    return ""


def _true_labels(column: "pd.Series[Any]", y: Candidates) -> str:
    classes = pd.Index(y.classes.astype(str))
    start = [plain_number(str(value)) for value in column.dropna().head(FEW)]
    if np.isin(start, classes).mean() < 0.5:  # to look at all rows takes time
        return ""
    codes, values = distinct(column)
    labels = classes.get_indexer([plain_number(str(value)) for value in values])
    labels = np.append(labels, -1)[codes]
    is_candidate = (labels >= 0) & y.matrix[np.arange(len(labels)), labels]
    is_candidate = is_candidate[(codes >= 0) & (y.sizes < len(classes))]
    if len(is_candidate) < FEW or is_candidate.mean() < NEARLY_ALL:
        return ""
    return f"holds only names of classes ({some_of(map(repr, values))}), which are candidates"


def _row_numbers(known: "pd.Series[Any]") -> str:
    rows, count = len(known), known.nunique()
    is_key = count == rows > FEW and int(known.max()) - int(known.min()) < 1.1 * rows
    if ROW_NAME.fullmatch(str(known.name)) and rows > 1:
        is_key = count == rows or count > max(FEW, rows / 10)
    example = f"{count} different integers in {rows} rows ({some_of(known)})"
    return f"has {example}, so it numbers rows; numbers such as 7.0 pass" if is_key else ""
