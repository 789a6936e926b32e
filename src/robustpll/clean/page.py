"""The review page: one file in which people decide rows, and from which they take decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.clean.judge import Judgement
from robustpll.clean.review import Review
from robustpll.clean.thumbnails import Picture
from robustpll.html.shell import render_page
from robustpll.labels.candidates import Candidates

TEMPLATE = Path(__file__).parent / "review.html.j2"
OUTSIDE = 2  # classes that are no candidates, but offered first, where they are likely:
LIKELY = 0.02
MOST_COLUMNS = 40  # of the table's cells; a person reads no more of a row
LONGEST = 300  # characters of a cell


@dataclass(frozen=True)
class Shown:
    """What people see of the rows to review besides candidates."""

    columns: Sequence[str]  # names of the cells
    cells: Sequence[Sequence[str]]  # of each row
    pictures: Sequence[Picture] | None = None


def review_page(
    title: str,
    key: str,
    judged: Judgement,
    found: Review,
    *,
    rows: NDArray[np.int64],
    shown: Shown,
    votes: NDArray[np.float64] | None = None,
    assumed: str = "",
) -> str:
    """The page as text, with the rows `found` in their order.

    The browser keeps decisions under the `key`, see `fingerprint`. `rows` (n,) are the names of
    the table's rows, `votes` (n, k) says how many annotators named each class; `assumed` is a
    sentence about what the shares of wrong labels rest on.
    """
    data = {
        "key": key,
        "name": title,
        "classes": [str(name) for name in judged.candidates.classes],
        "columns": list(shown.columns),
        "voted": votes is not None,
        "pictures": shown.pictures is not None,
        "rows": [
            _row(judged, found, number, rows=rows, shown=shown, votes=votes)
            for number in range(len(found))
        ],
    }
    kinds = sorted(set(found.kinds))
    return render_page(
        TEMPLATE, title=title, data=data, kinds=kinds, count=len(found), assumed=assumed
    )


def _row(
    judged: Judgement,
    found: Review,
    number: int,
    *,
    rows: NDArray[np.int64],
    shown: Shown,
    votes: NDArray[np.float64] | None,
) -> list[Any]:
    """One row as `review.js` reads it."""
    at = int(found.at[number])
    offered = options(judged.candidates, judged.probability[at], at)
    belief = np.asarray(judged.opinion.belief)[at]
    return [
        str(rows[at]),
        found.kinds[number],
        found.reasons[number],
        round(1 - float(judged.confidence[at]), 4),
        int(judged.resolved[at]),
        round(float(judged.opinion.uncertainty[at]), 3),
        [
            [
                int(label),
                bool(judged.candidates.matrix[at, label]),
                round(float(belief[label]), 3),
                round(float(judged.probability[at, label]), 3),
                0 if votes is None else int(votes[at, label]),
            ]
            for label in offered
        ],
        [cut(cell) for cell in shown.cells[number]],
        list(shown.pictures[number]) if shown.pictures is not None else [],
    ]


def options(candidates: Candidates, probability: NDArray[Any], row: int) -> NDArray[np.int64]:
    """The candidates of a row, the most probable first; then likely classes that are none.

    >>> y = Candidates.of([{"ant", "bee"}], classes=["ant", "bee", "cow", "dog"])
    >>> options(y, np.array([0.2, 0.3, 0.5, 0.0]), 0)
    array([1, 0, 2])
    """
    inside = candidates.matrix[row]
    order = np.argsort(-probability, kind="stable")
    own = order[inside[order]]
    others = order[~inside[order]][:OUTSIDE]
    return np.concatenate([own, others[probability[others] >= LIKELY]])


def cut(cell: str) -> str:
    """A cell that can be read at a glance.

    >>> len(cut("a" * 1000))
    300
    """
    return cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 1]}…"
