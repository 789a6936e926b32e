"""From a table to files: labels, doubts, findings and the review page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustpll._output_folder import OutFolder
from robustpll.clean import findings
from robustpll.clean.decisions_file import fingerprint, read_decisions, with_decisions
from robustpll.clean.judge import FAULTY, Judgement, judge
from robustpll.clean.page import MOST_COLUMNS, Shown, review_page
from robustpll.clean.review import Review, review, review_frame
from robustpll.clean.source import ENCODING, Source
from robustpll.clean.thumbnails import pictures
from robustpll.errors import InputError, is_count, refuse_other_than_share
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.methods import Method
from robustpll.tables.columns import no_column
from robustpll.tables.source import CsvText, safe_cell

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.tables.read import Table

ADDED = ("resolved_label", "confidence", "resolved_by")  # columns; the last is "" for open rows
PAGE = "review.html"


@dataclass(frozen=True, eq=False)
class Cleaned:
    """What was found of a table."""

    judged: Judgement  # the resolved labels, and how sure they are
    found: "dict[str, pd.DataFrame]"  # what is odd, by the names of the files
    review: Review  # all rows that need a person
    shown: int  # how many of them the page shows
    table: Path  # with its labels
    page: Path  # for the review
    assumed: str  # a sentence: what the expected share of wrong labels rests on
    unseen: dict[str, int]  # pictures of these rows that the page does not show, by the reason


@dataclass(frozen=True)
class Cleaning:
    """How a table is cleaned; calling it with a table does so.

    >>> import tempfile
    >>> from robustpll.tables.read import read_table
    >>> from robustpll.methods import PlKnn
    >>> rows = [f"{size},{name},{name}" for size, name in ((1, "ant"), (2, "ant"), (8, "cow"))] * 5
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("\\n".join(["size,by bob,by eve", *rows, "9,ant,cow"]))
    ...     table = read_table(path, votes="by ")
    ...     cleaned = Cleaning(PlKnn(neighbours=3), folds=4)(path, table, Path(folder) / "out")
    ...     sorted(file.name for file in (Path(folder) / "out").iterdir())
    ['.robustpll-clean.json', 'annotators.csv', 'candidates_that_look_wrong.csv',
     'confused_pairs.csv', 'review.html', 'rows_for_review.csv', 'sets_that_miss_the_truth.csv',
     'table.csv', 'twins.csv']
    >>> str(cleaned.judged.labels[15])
    'cow'
    """

    method: Method
    folds: int = 5  # rows of each are judged by what the others teach
    error: float = 0.01  # the share of wrong labels to expect among rows that nobody looks at,
    # if at most 5 % of the sets miss the true class (`judge.FAULTY`); where more do, more are wrong
    most: int = 10_000  # rows on the review page, the most doubtful
    decisions: Sequence[Path] = ()  # files from the review page
    images: str | None = None  # column with paths of pictures
    images_root: Path | None = None  # the folder that pictures must be below; None: the table's
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
        _refuse_odd_root(self.images_root, self.images)
        folder = OutFolder.of(out, "clean")
        source.refuse_overwriting(ADDED, out)
        votes = table.y if isinstance(table.y, Votes) else None
        folder.refuse_others([source.target, *map(_file, _findings(votes)), PAGE])
        said = Candidates.of(table.y)
        key = fingerprint(table, said)
        decisions = read_decisions(self.decisions, table.rows, said.classes, key)
        judged = self._judged(table, said, decisions)
        found = self._found(judged, table, votes)
        to_ask = review(judged, table.rows, found["twins"], self.error)
        found["rows_for_review"] = review_frame(to_ask, judged, table.rows)
        first = to_ask.first(self.most)
        content, shown = self._copied(source, table, judged, to_ask, out)
        folder.write(source.target, content)
        for name, frame in found.items():
            folder.write(_file(name), _as_csv(frame))
        assumed = assumption(judged, len(found["sets_that_miss_the_truth"]), self.error)
        page = review_page(
            path.name,
            key,
            judged,
            first,
            rows=table.rows,
            shown=shown,
            votes=None if votes is None else votes.counts(said.classes),
            assumed=assumed,
        )
        folder.write(PAGE, page.encode())
        return Cleaned(
            judged,
            found,
            to_ask,
            len(first),
            out / source.target,
            out / PAGE,
            assumed,
            Counter(picture.fault for picture in shown.pictures or () if picture.fault),
        )

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

    def _copied(
        self, source: Source, table: "Table", judged: Judgement, to_ask: Review, out: Path
    ) -> tuple[bytes, Shown]:
        """The table with its labels; and what people see of rows, of a wide table not all."""
        asked = np.zeros(len(judged), dtype=bool)
        asked[to_ask.at] = True
        by = np.where(judged.decided, "person", np.where(asked, "", "model"))
        added = dict(zip(ADDED, (judged.labels, judged.confidence.round(4), by), strict=True))
        wanted = dict.fromkeys((*self.beside, *map(str, table.features)))
        columns = [name for name in wanted if name != self.images][:MOST_COLUMNS]
        also = [] if self.images is None else [self.images]
        content, cells = source.copied(added, [*columns, *also], to_ask.first(self.most).at)
        if self.images is None:
            return content, Shown(columns, cells)
        names = [row[-1] for row in cells]
        faces = pictures(names, source.path.parent, out, self.images_root)
        return content, Shown(columns, [row[:-1] for row in cells], faces)


def assumption(judged: Judgement, suspects: int, error: float) -> str:
    """What the expected share of wrong labels rests on, and a sign of whether it holds."""
    open_rows = max(int((~judged.decided).sum()), 1)
    return (
        f"The model expects {error:.1%} or fewer of the labels it resolved to be wrong. This "
        f"assumes that at most {FAULTY:.0%} of the sets miss the true class. With answers of real "
        "people more of them often do, and then more labels are wrong. In "
        f"{suspects:,} rows ({suspects / open_rows:.1%}) the model itself predicts a class that "
        "is no candidate: a sign that sets miss the truth, or that the model is weak."
    )


def _findings(votes: Votes | None) -> tuple[str, ...]:
    """The names of all tables of findings."""
    names = (
        "candidates_that_look_wrong",
        "sets_that_miss_the_truth",
        "twins",
        "confused_pairs",
        "rows_for_review",
    )
    return names if votes is None else (*names, "annotators")


def _file(name: str) -> str:
    return f"{name}.csv"


def _as_csv(frame: "pd.DataFrame") -> bytes:
    safe = frame.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    text = CsvText()
    safe.to_csv(text, index=False, float_format="%.4g", lineterminator="\r\n")
    return text.getvalue().encode(ENCODING)


def refuse_no_column(images: str | None, names: Sequence[str]) -> None:
    """The column of pictures must be one of those that there are."""
    if images is not None and images not in names:
        raise InputError(f"`images`: there is {no_column(images, names)}")


def _refuse_odd_root(root: Path | None, images: str | None) -> None:
    if root is None:
        return
    if images is None:
        raise InputError(
            f"`images_root` is {root}, but `images` names no column. Name the column of pictures."
        )
    if not root.is_dir():
        raise InputError(f"`images_root` must be a folder with the pictures; {root} is none.")
