"""All steps of `robustpll clean`: from a table to labels, findings and the review page."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import write_table

from robustpll._files import OutFolder
from robustpll.clean.decisions_file import decided_candidates
from robustpll.clean.judge import FAULTY, Judgement, judge
from robustpll.clean.page import MAX_COLUMNS, load_pictures, review_page
from robustpll.clean.review import FINDINGS, review
from robustpll.errors import InputError
from robustpll.labels.votes import Votes
from robustpll.methods import Method
from robustpll.tables.read import Table
from robustpll.tables.source import CsvText, ParquetTable, opened_source, safe_cell, safe_csv

ADDED = ("resolved_label", "confidence", "resolved_by")  # columns; the last is "" for open rows
REVIEW, PAGE = "rows_for_review", "review.html"
ENCODING = "utf-8-sig"  # the mark at the start tells spreadsheets that it is UTF-8
ASSUMPTION = (
    "The model expects {error:.1%} or fewer of the labels it resolved to be wrong. This assumes "
    "that at most {faulty:.0%} of the sets miss the true class. In {suspects:,} rows ({share:.1%}) "
    "the model predicts a class that is not a candidate. If these are many, more labels are wrong."
)


class Cleaned(NamedTuple):
    """The results of cleaning a table."""

    judged: Judgement
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
    images: str | None,
    images_root: Path | None,
    also_shown: Sequence[str],
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
    votes = table.y if isinstance(table.y, Votes) else None
    searches = {search.__name__: search for search in (FINDINGS if votes else FINDINGS[:-1])}
    folder = OutFolder.of(out, "clean")
    folder.refuse_others([target.name, *(f"{name}.csv" for name in (*searches, REVIEW)), PAGE])
    candidates, decided, key = decided_candidates(table, decisions)
    judged = judge(table.features, candidates, method, decided=decided, **training)
    findings = {name: find(judged, table.rows, votes) for name, find in searches.items()}
    findings[REVIEW] = review(judged, table.rows, findings["twins"], error)
    shown, suspects = findings[REVIEW].head(most), len(findings["sets_that_miss_the_truth"])
    share = suspects / max(int((~decided).sum()), 1)
    assumption = ASSUMPTION.format(error=error, faulty=FAULTY, suspects=suspects, share=share)
    pictures = None
    if images is not None:
        paths = [cells[0] for cells in _shown_cells(table, [images], shown)]
        pictures = load_pictures(paths, path.parent, out, images_root)
    columns = [*also_shown, *map(str, table.features)][:MAX_COLUMNS]
    page = review_page(
        path.name,
        key,
        judged,
        shown,
        columns=columns,
        cells=_shown_cells(table, columns, shown),
        pictures=pictures,
        votes=None if votes is None else votes.counts(candidates.classes),
        assumption=assumption,
    )
    folder.write(target.name, _labelled_table(source, table, judged, findings[REVIEW]))
    for name, frame in findings.items():
        text = safe_csv(frame, index=False, float_format="%.4g")
        folder.write(f"{name}.csv", text.encode(ENCODING))
    folder.write(PAGE, page.encode())
    not_shown = Counter(picture.fault for picture in pictures or () if picture.fault)
    return Cleaned(judged, findings, target, assumption, not_shown)


def _shown_cells(table: Table, columns: list[str], review: pd.DataFrame) -> list[list[str]]:
    """Return the cells of these columns in the rows for review, as text."""
    rows = table.cells.select(columns).take(review.index.to_numpy()).to_pylist()
    return [["" if cell is None else str(cell) for cell in row.values()] for row in rows]


def _labelled_table(source: Any, table: Table, judged: Judgement, review: pd.DataFrame) -> bytes:
    """Return the content of the table's file with the columns `ADDED`."""
    is_open = np.isin(np.arange(len(table)), review.index)
    resolved_by = np.where(judged.decided, "person", np.where(is_open, "", "model"))
    cells, added = table.cells, (judged.labels, judged.confidence.round(4), resolved_by)
    for name, column in zip(ADDED, added, strict=True):
        cells = cells.append_column(name, pa.array(column.tolist()))
    if isinstance(source, ParquetTable):
        content = io.BytesIO()
        write_table(cells, content)
        return content.getvalue()
    decimal = source.reading.decimal or "."

    def as_text(cell: Any) -> str:
        if pd.isna(cell):  # gaps of an export
            return ""
        if isinstance(cell, float):
            return str(cell).replace(".", decimal)
        is_gap = cell in table.reading.missing
        return str(cell if is_gap else safe_cell(str(cell), decimal))

    text = CsvText()
    frame = cells.to_pandas().map(as_text).rename(columns=safe_cell)
    frame.to_csv(text, sep=source.delimiter, index=False, lineterminator="\r\n")
    return text.getvalue().encode(ENCODING)
