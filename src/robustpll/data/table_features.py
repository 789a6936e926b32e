"""Columns of a table that are no features: dates, numbers of rows, truths in disguise."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustpll.data.csv_rows import BadRow, number_of
from robustpll.errors import InputError, some_of

if TYPE_CHECKING:
    import pandas as pd

FEW = 20  # rows or words among which it is no surprise that all are different
WORDS_SEEN = 1000  # to tell whether a column holds dates
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
    r"|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4})"
    r"([T ,]+\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp][Mm])?"
)
ROW_NAME = re.compile(r"(?i:|Unnamed: 0|(.*[\W_])?(id|idx|index|key|nr|row|uuid))|.*[a-z](Id|ID)")


def infinite_cells(features: "pd.DataFrame", lines: NDArray[np.int64]) -> list[BadRow]:
    """Every infinite number, as a fault of its row."""
    import pandas as pd

    bad = []
    for name, column in features.items():
        if not pd.api.types.is_float_dtype(column):
            continue
        cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
        rows = np.flatnonzero(np.isinf(cells))
        bad += [BadRow(int(lines[row]), str(name), str(cells[row]), "is infinite") for row in rows]
    return bad


def refuse_odd_features(
    features: "pd.DataFrame", classes: NDArray[Any] | None, where: str, lines: NDArray[np.int64]
) -> None:
    """Dates; and in tables to learn from (`classes` is not None), what would be learned by heart.

    Categories are what a person declared to be features, and pass. `where` is "line" or "row".
    """
    import pandas as pd

    odd = []
    for name, column in features.items():
        if column.dtype == "category":
            continue
        kind = pd.api.types.infer_dtype(column, skipna=True)
        reason = _dates(column.dropna(), kind)
        if classes is not None:
            reason = reason or _numbers_as_text(column, kind, where, lines)
            reason = reason or _no_measure(column.dropna(), kind, {str(name) for name in classes})
        if reason:
            odd.append(f"Column {name!r} {reason}.")
    if odd:
        raise InputError(" ".join(odd))


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


def _no_measure(known: "pd.Series[Any]", kind: str, classes: set[str]) -> str:
    """Why a column does not describe rows, and what to do; "" if it does."""
    if known.empty:
        return "has no value in any row: name it in `ignore` to leave it out"
    if kind == "integer" and _numbers_rows(known):
        return (
            f"has another integer in every row ({some_of(known)}), so it numbers rows rather than "
            "describing them: name it in `ignore` to leave it out, or write it as 7.0 instead of 7 "
            "if it measures something"
        )
    words = known.drop_duplicates() if kind == "string" else known[:0]
    if len(words) and classes.issuperset(words):
        return (
            f"holds names of classes alone ({some_of(map(repr, words))}): name it in `truth` if "
            "these are the true labels, which a classifier must not see; name it in `categories` "
            "if it is a feature after all"
        )
    if len(words) > max(FEW, len(known) / 2):
        return (
            f"has {len(words)} different words in {len(known)} rows, so it names rows rather than "
            "describing them: name it in `ignore` to leave it out, or in `categories` to keep it"
        )
    return ""


def _numbers_rows(known: "pd.Series[Any]") -> bool:
    named = len(known) > 1 and ROW_NAME.fullmatch(str(known.name)) is not None
    counted = len(known) > FEW and int(known.max()) - int(known.min()) < 1.1 * len(known)
    return (named or counted) and bool(known.is_unique)


def _numbers_as_text(
    column: "pd.Series[Any]", kind: str, where: str, lines: NDArray[np.int64]
) -> str:
    words = column.dropna().drop_duplicates() if kind == "string" else ()
    odd = [word for word in words if number_of(word) is None]
    if len(odd) == len(words) or len(odd) > len(words) / 2:
        return ""
    at = lines[column.isin(odd).to_numpy(dtype=bool)]
    rest = f", but for {some_of(map(repr, odd))} ({where} {some_of(at)})" if odd else ""
    return (
        f"holds numbers as text{rest}: correct what is no number, or name it in `missing` if it "
        "means that there is no value; name the column in `categories` if its numbers are mere "
        "names"
    )
