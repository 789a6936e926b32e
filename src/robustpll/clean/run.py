"""All steps of `robustpll clean`: from a table to labels, findings and the review page."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import write_table

from robustpll._files import OutFolder
from robustpll.clean.decisions_file import fingerprint, read_decisions, with_decisions
from robustpll.clean.judge import FAULTY, Judgement, judge
from robustpll.clean.page import MAX_COLUMNS, load_pictures, review_page
from robustpll.clean.review import FINDINGS, review
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.methods import Method
from robustpll.tables.read import Table
from robustpll.tables.source import CsvText, ParquetTable, opened_source, safe_cell, safe_csv

ADDED = ("resolved_label", "confidence", "resolved_by")  # columns; the last is "" for open rows
PAGE = "review.html"
BATCH = 2**12  # rows to write at once
ENCODING = "utf-8-sig"  # the mark at the start tells spreadsheets that it is UTF-8
ASSUMPTION = (
    "The model expects {error:.1%} or fewer of the labels it resolved to be wrong. This assumes "
    "that at most {faulty:.0%} of the sets miss the true class. The answers of real people often "
    "miss it more often, and then more labels are wrong. In {suspects:,} rows ({share:.1%}) the "
    "model predicts a class that is not a candidate. A large number means that many sets miss the "
    "true class, or that the model is weak."
)


@dataclass(frozen=True, eq=False)
class Cleaned:
    """The results of cleaning a table."""

    judged: Judgement
    findings: dict[str, pd.DataFrame]  # by name
    review: pd.DataFrame  # rows that need a person, indexed by position in the table
    shown: int  # number of these rows on the page
    table: Path  # written with labels
    page: Path
    assumed: str  # a sentence: what the expected share of wrong labels assumes
    unseen: dict[str, int]  # number of pictures that the page does not show, by reason


@dataclass(frozen=True)
class Cleaning:
    """Options of `robustpll clean`; calling the object cleans a table."""

    method: Method
    folds: int = 5
    error: float = 0.01  # expected share of wrong labels among rows that no person decides
    most: int = 10_000  # rows on the review page
    decisions: Sequence[Path] = ()  # files from the review page
    images: str | None = None  # column with paths of pictures
    images_root: Path | None = None  # folder that contains all pictures; None: the table's
    beside: Sequence[str] = ()  # columns to show besides the features
    seed: int = 0
    device: str = "auto"
    verbose: bool = False  # show a progress bar

    def __call__(self, path: Path, table: Table, out: Path) -> Cleaned:
        """Clean a table that `read_with_cells` read from `path`; write the results to `out`."""
        source = opened_source(path, table.reading)
        target = "table.parquet" if isinstance(source, ParquetTable) else "table.csv"
        self._check(path, table, out / target)
        folder = OutFolder.of(out, "clean")
        votes = table.y if isinstance(table.y, Votes) else None
        searches = {search.__name__: search for search in (FINDINGS if votes else FINDINGS[:-1])}
        names = [f"{name}.csv" for name in (*searches, "rows_for_review")]
        folder.refuse_others([target, *names, PAGE])
        candidates = Candidates.of(table.y)
        key = fingerprint(table, candidates)
        judged = self._judged(table, candidates, key)
        findings = {name: find(judged, table.rows, votes) for name, find in searches.items()}
        doubtful = review(judged, table.rows, findings["twins"], self.error)
        findings["rows_for_review"] = doubtful
        asked = np.isin(np.arange(len(table)), doubtful.index)
        resolved_by = np.where(judged.decided, "person", np.where(asked, "", "model"))
        added = zip(ADDED, (judged.labels, judged.confidence.round(4), resolved_by), strict=True)
        shown = doubtful.head(self.most)
        columns = [*dict.fromkeys((*self.beside, *map(str, table.features)))]
        columns = [name for name in columns if name != self.images][:MAX_COLUMNS]
        pictures = None
        if self.images is not None:
            paths = [row[0] for row in _shown_cells(table, [self.images], shown)]
            pictures = load_pictures(paths, path.parent, out, self.images_root)
        suspects = len(findings["sets_that_miss_the_truth"])
        share = suspects / max(int((~judged.decided).sum()), 1)
        assumed = ASSUMPTION.format(error=self.error, faulty=FAULTY, suspects=suspects, share=share)
        page = review_page(
            path.name,
            key,
            judged,
            shown,
            columns=columns,
            cells=_shown_cells(table, columns, shown),
            pictures=pictures,
            votes=None if votes is None else votes.counts(candidates.classes),
            assumed=assumed,
        )
        files = {target: _with_columns(source, table, dict(added))}
        for name, frame in findings.items():
            text = safe_csv(frame, index=False, float_format="%.4g")
            files[f"{name}.csv"] = text.encode(ENCODING)
        for name, content in (files | {PAGE: page.encode()}).items():
            folder.write(name, content)
        unseen = Counter(picture.fault for picture in pictures or () if picture.fault)
        written = out / target, out / PAGE
        return Cleaned(judged, findings, doubtful, len(shown), *written, assumed, unseen)

    def _judged(self, table: Table, candidates: Candidates, key: str) -> Judgement:
        decisions = read_decisions(self.decisions, table.rows, candidates.classes, key)
        return judge(
            table.features,
            with_decisions(candidates, decisions),
            self.method,
            folds=self.folds,
            seed=self.seed,
            device=self.device,
            verbose=self.verbose,
            decided=np.isin(np.arange(len(table)), [*decisions]),
        )

    def _check(self, path: Path, table: Table, target: Path) -> None:
        """Raise InputError for impossible options, before anything is written or learned."""
        names = [*table.features, *table.reading.left_out]
        added = [name for name in ADDED if name in names]
        if self.images_root and not (self.images and self.images_root.is_dir()):
            raise InputError(
                f"`images_root` must be the folder of the pictures that the column `images` names; "
                f"got the folder {self.images_root} and the column {self.images!r}."
            )
        if added:
            raise InputError(
                f"{path} has a column {added[0]!r} already, which would be written. Rename it, or "
                "pass the table without the columns that were added before."
            )
        if target.exists() and target.samefile(path):
            raise InputError(
                f"{target} is the table itself, and would be lost. Pass another folder as out."
            )


def _shown_cells(table: Table, columns: list[str], review: pd.DataFrame) -> list[list[str]]:
    """Return the cells of these columns in the rows for review, as text."""
    rows = table.cells.select(columns).take(review.index.to_numpy()).to_pylist()
    return [["" if row[name] is None else str(row[name]) for name in columns] for row in rows]


def _with_columns(source: Any, table: Table, added: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of the table's file with the added columns."""
    cells = table.cells
    for name, column in added.items():
        cells = cells.append_column(name, pa.array(column.tolist()))
    if isinstance(source, ParquetTable):
        content = io.BytesIO()
        write_table(cells, content)
        return content.getvalue()

    def as_text(cell: Any) -> str:
        if isinstance(cell, float):
            return str(cell).replace(".", source.decimal)
        is_gap = cell in table.reading.missing
        return str(cell if is_gap else safe_cell(str(cell), source.decimal))

    text = CsvText()
    writer = csv.writer(text, delimiter=source.delimiter)
    writer.writerow(map(safe_cell, cells.column_names))
    for batch in cells.to_batches(BATCH):
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        writer.writerows(map(as_text, row) for row in rows)
    return text.getvalue().encode(ENCODING)
