"""From a table to files: labels, doubts, findings and the review page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustpll.candidates import Candidates, Votes
from robustpll.clean import findings
from robustpll.clean.decided import fingerprint, read_decisions, with_decisions
from robustpll.clean.judge import Judgement, judge
from robustpll.clean.page import MOST_COLUMNS, Shown, review_page
from robustpll.clean.review import Review, review, review_frame
from robustpll.clean.source import ENCODING, Source
from robustpll.clean.thumbnails import pictures
from robustpll.data.table_roles import no_column
from robustpll.data.table_source import safe_cell
from robustpll.errors import InputError, is_count, refuse_other_than_share
from robustpll.files import write_whole
from robustpll.methods import Method

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.data.table import Table

ADDED = ("resolved_label", "confidence", "resolved_by")  # columns; the last is "" for open rows


@dataclass(frozen=True, eq=False)
class Cleaned:
    """What was found of a table."""

    judged: Judgement  # the resolved labels, and how sure they are
    found: "dict[str, pd.DataFrame]"  # what is odd, by the names of the files
    review: Review  # all rows that need a person
    shown: int  # how many of them the page shows
    table: Path  # with its labels
    page: Path  # for the review


@dataclass(frozen=True)
class Cleaning:
    """How a table is cleaned; calling it with a table does so.

    >>> import tempfile
    >>> from robustpll.data.table import read_table
    >>> from robustpll.methods import PlKnn
    >>> rows = [f"{size},{name},{name}" for size, name in ((1, "ant"), (2, "ant"), (8, "cow"))] * 5
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("\\n".join(["size,by bob,by eve", *rows, "9,ant,cow"]))
    ...     table = read_table(path, votes="by ")
    ...     cleaned = Cleaning(PlKnn(neighbours=3), folds=4)(path, table, Path(folder) / "out")
    ...     sorted(file.name for file in (Path(folder) / "out").iterdir())
    ['annotators.csv', 'candidates_that_look_wrong.csv', 'confused_pairs.csv', 'review.html',
     'rows_for_review.csv', 'sets_that_miss_the_truth.csv', 'table.csv', 'twins.csv']
    >>> str(cleaned.judged.labels[15])
    'cow'
    """

    method: Method
    folds: int = 5  # rows of each are judged by what the others teach
    error: float = 0.01  # the share of wrong labels to expect among rows that nobody looks at
    most: int = 10_000  # rows on the review page, the most doubtful
    decisions: Sequence[Path] = ()  # files from the review page
    images: str | None = None  # column with paths of pictures, relative to the table
    beside: Sequence[str] = ()  # columns on the page besides the features, such as names and texts
    seed: int = 0
    device: str = "auto"
    verbose: bool = False

    def __call__(self, path: Path, table: "Table", out: Path) -> Cleaned:
        """Judge the table that was read from `path`, and write all findings to a folder."""
        if table.y is None:
            raise InputError(
                "The table was read without candidates: name one of candidates, indicators, votes."
            )
        refuse_other_than_share("error", self.error)
        if not is_count(self.most, least=1):
            raise InputError(f"most must be an int of at least 1; got {self.most!r}.")
        source = Source.of(path, table)
        refuse_no_column(self.images, source.names)
        _make_folder(out)
        source.refuse_overwriting(ADDED, out)
        said = Candidates.of(table.y)
        key = fingerprint(table, said)
        decisions = read_decisions(self.decisions, table.rows, said.classes, key)
        judged = self._judged(table, said, decisions)
        votes = table.y if isinstance(table.y, Votes) else None
        found = self._found(judged, table, votes)
        to_ask = review(judged, table.rows, found["twins"], self.error)
        found["rows_for_review"] = review_frame(to_ask, judged, table.rows)
        self._write(judged, to_ask, source, found, out)
        shown = to_ask.first(self.most)
        counts = None if votes is None else votes.counts(said.classes)
        cells = self._shown(source, table, shown, out)
        page = review_page(
            path.name, key, judged, shown, rows=table.rows, shown=cells, votes=counts
        )
        write_whole(out / "review.html", page.encode())
        return Cleaned(judged, found, to_ask, len(shown), source.target(out), out / "review.html")

    def _judged(self, table: "Table", said: Candidates, decisions: dict[int, int]) -> Judgement:
        decided = np.zeros(len(said), dtype=bool)
        decided[list(decisions)] = True
        return judge(
            table.features,
            with_decisions(said, decisions),
            self.method,
            folds=self.folds,
            seed=self.seed,
            device=self.device,
            verbose=self.verbose,
            decided=decided,
        )

    def _found(
        self, judged: Judgement, table: "Table", votes: Votes | None
    ) -> "dict[str, pd.DataFrame]":
        rows = table.rows
        found = {
            "candidates_that_look_wrong": findings.candidates_that_look_wrong(judged, rows, votes),
            "sets_that_miss_the_truth": findings.sets_that_miss_the_truth(judged, rows),
            "twins": findings.twins(judged, rows),
            "confused_pairs": findings.confused_pairs(judged),
        }
        if votes is not None:
            found["annotators"] = findings.annotators(judged, votes)
        return found

    def _write(
        self,
        judged: Judgement,
        to_ask: Review,
        source: Source,
        found: "dict[str, pd.DataFrame]",
        out: Path,
    ) -> None:
        asked = np.zeros(len(judged), dtype=bool)
        asked[to_ask.at] = True
        by = np.where(judged.decided, "person", np.where(asked, "", "model"))
        values = (judged.labels, judged.confidence.round(4), by)
        source.write_with(dict(zip(ADDED, values, strict=True)), out)
        for name, frame in found.items():
            safe = frame.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
            text = safe.to_csv(index=False, float_format="%.4g", lineterminator="\n")
            write_whole(out / f"{name}.csv", text.encode(ENCODING))

    def _shown(self, source: Source, table: "Table", shown: Review, out: Path) -> Shown:
        """What is shown of rows; of a wide table the first columns only."""
        wanted = dict.fromkeys((*self.beside, *map(str, table.features)))
        columns = [name for name in wanted if name != self.images][:MOST_COLUMNS]
        cells = source.cells(columns, shown.at)
        if self.images is None:
            return Shown(columns, cells)
        paths = [one for (one,) in source.cells([self.images], shown.at)]
        return Shown(columns, cells, pictures(paths, source.path.parent, out))


def refuse_no_column(images: str | None, names: Sequence[str]) -> None:
    """The column of pictures must be one of those that there are."""
    if images is not None and images not in names:
        raise InputError(f"`images`: there is {no_column(images, names)}")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"out must be a folder that can be written, or the name of a new one; {out} is not "
            f"({error.strerror or error})."
        ) from error
