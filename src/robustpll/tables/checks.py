"""Find columns of a training table that are not features."""

import re
from typing import Any

import pandas as pd

from robustpll.errors import InputError, some_of
from robustpll.estimator.features import column_fault
from robustpll.labels.candidates import Candidates

FEW = 20  # rows: it is no surprise if the numbers in so few are all different
NEARLY_ALL = 0.99  # share of rows
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4})"
    r"([T ,]+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)
NUMBER = re.compile(
    r"[+-]?[$€£¥]? ?[+-]?([0-9]+|[0-9]{1,3}([,.' ][0-9]{3})+)([.,][0-9]+)? ?[%$€£¥]?"
)
DECIMAL_COMMA = re.compile(r"[+-]?([0-9]+|[0-9]{1,3}([. ][0-9]{3})+),[0-9]+")
PLAIN = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")  # what decimal="," reads
THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+")
ROW_NAME = re.compile(r"(?i:|Unnamed: 0|(.*[\W_])?(id|idx|index|key|nr|row|uuid))|.*[a-z](Id|ID)")
REMEDY = (
    "Name such a column in `ignore` to leave it out, in `truth` if it has the true labels, in "
    "`categories` if its words or codes are a feature, in `text` if it has texts, or in "
    "`image_input` if it has paths of pictures."
)
NUMBERS = (
    " Write numbers as 1234.5; `missing` names words for no value, and decimal=',' reads decimal "
    "commas."
)


def refuse_odd_features(features: pd.DataFrame, y: Candidates) -> None:
    """Refuse dates, numbers as text, names of classes, and columns that identify rows.

    Columns of categories pass: somebody declared them to be features.
    """
    if commas := {repr(n): words for n, column in features.items() if (words := _commas(column))}:
        names = [*commas]
        subject = f"Columns {some_of(names)} hold" if len(names) > 1 else f"Column {names[0]} holds"
        rule = "Pass decimal=',' if this is a CSV file; otherwise write numbers as 1234.5"
        if odd := [w for words in commas.values() for w in words if not PLAIN.fullmatch(w)]:
            rule = f"Save {odd[0]!r} and others without thousands separators and units. {rule}"
        raise InputError(f"{subject} numbers with decimal commas. {rule}.")
    faults = list[str]()
    classes = {*y.classes.astype(str)}
    for name, column in features.select_dtypes(exclude="category").items():
        known = column.dropna()
        kind = pd.api.types.infer_dtype(known)
        fault = (
            (kind == "string" and _odd_text(known, classes))
            or column_fault(column)
            or (kind in ("integer", "floating") and _labels_as_numbers(column, y))
            or (kind == "integer" and _row_numbers(known))
        )
        if fault:
            faults.append(f"{'column' if faults else 'Column'} {name!r} {fault}")
    if faults:
        has_numbers = any("number" in fault or "but for" in fault for fault in faults)
        raise InputError(f"{some_of(faults, 3)}. {REMEDY}{NUMBERS * has_numbers}")


def _commas(column: "pd.Series[Any]") -> list[str]:
    """Return words of a column of numbers such as 1,5; 1,500 may be a larger number."""
    known = column.dropna()
    if pd.api.types.infer_dtype(known) != "string":
        return []
    words = known.drop_duplicates().head(1000).tolist()
    are_decimal = any(DECIMAL_COMMA.fullmatch(w) and not THOUSANDS.fullmatch(w) for w in words)
    return words if are_decimal and all(map(NUMBER.fullmatch, words)) else []


def _odd_text(known: "pd.Series[Any]", classes: set[str]) -> str:
    """Return what is wrong with a column of text, or ""."""
    words = known.drop_duplicates().head(1000).tolist()
    if words and {*words} <= classes:
        return f"holds only names of classes ({some_of(map(repr, words))})"
    for pattern, content in ((DATE, "dates or times"), (NUMBER, "numbers as text")):
        others = [word for word in words if not pattern.fullmatch(word)]
        if words and len(others) <= 0.1 * len(words):
            return f"holds {content} ({some_of(map(repr, dict.fromkeys([*others, *words])))})"
    return ""


def _labels_as_numbers(column: "pd.Series[Any]", y: Candidates) -> str:
    """Return the fault of numbers that name a candidate of nearly every row: the true labels."""
    names = pd.Index(y.classes.astype(str))
    if pd.to_numeric(names, errors="coerce").isna().all():  # no name is a number: saves much time
        return ""

    def word(number: float) -> str:
        return f"{number:.0f}" if number % 1 == 0 else f"{number:g}"

    words = column.astype(object).map(word, na_action="ignore")
    code = names.get_indexer(words)
    is_informative = (column.notna() & (y.sizes < len(y.classes))).to_numpy(dtype=bool)
    is_candidate = (code >= 0) & y.matrix[range(len(y)), code]
    if is_informative.sum() < FEW or is_candidate[is_informative].mean() < NEARLY_ALL:
        return ""
    return f"holds only names of classes ({some_of(column.dropna().unique())})"


def _row_numbers(known: "pd.Series[Any]") -> str:
    rows, count = len(known), known.nunique()
    is_key = count == rows > FEW and int(known.max()) - int(known.min()) < 1.1 * rows
    if ROW_NAME.fullmatch(str(known.name)) and rows > 1:
        is_key = count == rows or count > max(FEW, rows / 10)
    example = f"{count} different integers in {rows} rows ({some_of(known)})"
    return f"has {example}, so it numbers rows (amounts pass if written as 7.0)" if is_key else ""
