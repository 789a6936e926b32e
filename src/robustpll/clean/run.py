"""All steps of `robustpll clean`: from a table to labels, findings and the review page."""

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import write_table

from robustpll._files import OutFolder
from robustpll.clean.decisions_file import Decided, apply_decisions
from robustpll.clean.judge import FAULTY, Judgement, judge
from robustpll.clean.page import asked_again, load_pictures, review_page, shown_rows, texts_of
from robustpll.clean.review import FINDINGS, annotators, review
from robustpll.errors import InputError, counted
from robustpll.labels.annotators import FEWEST_PAIRS
from robustpll.labels.votes import Votes
from robustpll.methods import Method
from robustpll.tables.read import Table
from robustpll.tables.source import CsvText, ParquetTable, opened_source, safe_cell, safe_csv

ADDED = ("resolved_label", "confidence", "resolved_by")  # columns; the last is "" for open rows
REVIEW, PAGE = "rows_for_review", "review.html"
ENCODING = "utf-8-sig"  # the mark at the start tells spreadsheets that it is UTF-8


@dataclass(frozen=True)
class PageColumns:
    """What columns of a table are for the review page."""

    id: str | None = None  # of unique ids of rows
    notes: Sequence[str] = ()  # columns to show that are no features
    images: str | None = None  # paths of pictures
    images_root: Path | None = None
    truth: str | None = None  # not shown


class Cleaned(NamedTuple):
    """The results of cleaning a table."""

    judged: Judgement  # of the rows that are not excluded
    decided: Decided
    findings: dict[str, pd.DataFrame]  # by file; `rows_for_review` is indexed by position
    table: Path  # written with labels
    assumption: str  # what the expected share of wrong labels assumes
    not_shown: Counter[str]  # number of pictures that the page does not show, by reason


def clean_table(
    path: Path,
    table: Table,
    out: Path,
    method: Method,
    *,
    error: float,
    most: int,
    decisions: Sequence[Path],
    columns: PageColumns,
    **training: Any,
) -> Cleaned:
    """Clean a table that `read_with_cells` read from `path`; write the results to `out`.

    `error` is the expected share of wrong labels among rows that no person decides. The page shows
    at most `most` rows. `training` are further arguments of `judge`.
    """
    source = opened_source(path, table.reading)
    target = out / ("table.parquet" if isinstance(source, ParquetTable) else "table.csv")
    names = [*table.features, *table.reading.left_out]
    if added := [name for name in ADDED if name in names]:
        remedy = "Rename it, or pass the table without the columns that were added before"
        raise InputError(f"{path} has a column {added[0]!r} already. {remedy}.")
    is_voted = isinstance(table.y, Votes)
    searches = {search.__name__: search for search in FINDINGS if is_voted or search != annotators}
    folder = OutFolder.of(out, "clean")
    folder.refuse_others([target.name, *(f"{name}.csv" for name in (*searches, REVIEW)), PAGE])
    decided = apply_decisions(table, decisions, columns.id)
    X, rows, y = decided.table.X, decided.table.rows, decided.table.y
    votes = y if isinstance(y, Votes) else None
    known: Any = {"decided": decided.labelled, "answers": decided.answers}
    known["text"] = table.reading.text
    judged = judge(X, decided.candidates, method, **known, **training)
    findings = {name: find(judged, rows, votes) for name, find in searches.items()}
    asked: Any = {"closed": decided.cannot_tell, "again": asked_again(decided)}
    findings[REVIEW] = review(judged, rows, findings["twins"], error, **asked)
    assumption = _assumption(judged, error, len(findings["sets_that_miss_the_truth"]))
    cleaned = Cleaned(judged, decided, findings, target, assumption, Counter())
    page = _page(path, out, cleaned, most, columns)
    folder.write(target.name, _labelled_table(source, table, cleaned))
    keys = decided.keys
    ids = dict(zip(keys.rows.tolist(), keys.ids, strict=True)) if keys.ids else {}
    for name, frame in findings.items():
        named = frame.assign(id=frame["row"].map(ids)) if ids and "row" in frame else frame
        text = safe_csv(named, index=False, float_format="%.4g", **source.reading.csv_format)
        folder.write(f"{name}.csv", text.encode(ENCODING))
    folder.write(PAGE, page.encode())
    return cleaned


def _assumption(judged: Judgement, error: float, suspects: int) -> str:
    """Return how many wrong labels the model expects, and what that depends on."""
    text = f"The model expects {error:.1%} or fewer of the labels it resolved to be wrong."
    crowd, answers = judged.crowd, judged.answers
    if crowd is None or answers is None:
        share = suspects / max(int((~judged.decided).sum()), 1)
        return (
            f"{text} This assumes that at most {FAULTY:.0%} of the sets miss the true class. In "
            f"{counted(suspects, 'row')} ({share:.1%}) the model predicts a class that is not a "
            "candidate. If these are many, more labels are wrong."
        )
    low, mean, high = crowd.missing
    if ((answers >= 0).sum(-1) >= 2).sum() < FEWEST_PAIRS:
        text += f" This is no promise: fewer than {FEWEST_PAIRS} rows have two answers, so nobody "
        text += "can tell whether people err in the same rows as the model."
    return (
        f"{text} It estimates that nobody named the true class of {mean:.1%} of the rows (between "
        f"{low:.1%} and {high:.1%}), and that annotators share {crowd.shared:.0%} of its own "
        "doubt: for that part, their agreement is no evidence."
    )


def _page(path: Path, out: Path, cleaned: Cleaned, most: int, columns: PageColumns) -> str:
    """Return the review page; count pictures that it does not show."""
    decided, judged, review = cleaned.decided, cleaned.judged, cleaned.findings[REVIEW]
    table, rows = decided.table, review.index.to_numpy()[:most]
    used = {*columns.notes, columns.truth, columns.images}
    labels = [name for name in table.reading.left_out if name not in used]
    about: Any = {"rows": rows, "notes": columns.notes, "labels": labels}
    names, shown = shown_rows(decided, judged, review, **about)
    pictures = {}
    if columns.images is not None:
        similar = {position for row in shown for position, _ in row.similar}
        positions = [*rows.tolist(), *sorted(similar)]
        paths = [cells[columns.images] for cells in texts_of(table, [columns.images], positions)]
        loaded = load_pictures(paths, path.parent, out, columns.images_root, len(rows))
        pictures = dict(zip(positions, loaded, strict=True))
        faults = (picture.fault for picture in loaded[: len(rows)])
        cleaned.not_shown.update(fault for fault in faults if fault)
    votes = table.y if isinstance(table.y, Votes) else None
    agreement: dict[str, float] = {}
    if votes is not None:
        frame = cleaned.findings[annotators.__name__]
        measure = "agreement" if judged.crowd is None else "reliability"
        agreement = dict(zip(frame["annotator"], frame[measure], strict=True))
    return review_page(
        path.name,
        hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16],  # the table may change
        judged,
        review.head(most),
        columns=names,
        shown=shown,
        notes=len(names) - table.features.shape[1],
        names=table.rows.astype(str).tolist(),
        table=decided.keys.table,
        pictures=pictures,
        votes=votes,
        reliability=agreement,
        assumption=cleaned.assumption,
    )


def _labelled_table(source: Any, table: Table, cleaned: Cleaned) -> bytes:
    """Return the content of the table's file with the columns `ADDED`; excluded rows are in it."""
    judged, decided = cleaned.judged, cleaned.decided
    is_open = np.isin(np.arange(len(judged.labels)), cleaned.findings[REVIEW].index)
    unknown = decided.cannot_tell & ~is_open
    masks = [judged.decided, is_open, unknown]
    resolved_by = np.select(masks, ["person", "", "person: cannot tell"], "model")
    columns = (judged.labels, judged.confidence.round(4), resolved_by)
    added = pd.DataFrame(dict(zip(ADDED, columns, strict=True)), decided.remaining, dtype=object)
    added.loc[decided.remaining[unknown], [*ADDED[:2]]] = None
    added = added.reindex(range(len(table)))
    added[ADDED[2]] = added[ADDED[2]].fillna("excluded")
    if isinstance(source, ParquetTable):
        content, cells = io.BytesIO(), table.cells
        for name, column in added.items():
            cells = cells.append_column(name, pa.array(column, from_pandas=True))
        write_table(cells, content)
        return content.getvalue()
    decimal = source.reading.decimal or "."

    def as_text(cell: Any) -> str:
        if pd.isna(cell):  # gaps of an export, and labels that nobody can tell
            return ""
        if isinstance(cell, float):
            return str(cell).replace(".", decimal)
        is_gap = cell in table.reading.missing
        return str(cell if is_gap else safe_cell(str(cell), decimal))

    text, frame = CsvText(), table.cells.to_pandas().join(added)
    frame = frame.map(as_text).rename(columns=safe_cell)
    frame.to_csv(text, sep=source.delimiter, index=False, lineterminator="\r\n")
    return text.getvalue().encode(ENCODING)
