"""Answers of several annotators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.parsing import SETS, as_names, missing_cells, positions, row_index


@dataclass(frozen=True, eq=False)
class Votes:
    """Answers of several annotators, one column each; their shares become the prior.

    Parameters
    ----------
    answers : array, list of lists or DataFrame of shape (n, annotators)
        Class names. ``None``, ``NaN``, ``pandas.NA`` and the empty string mean "no answer".
    unanswered : {"error", "all classes"}
        How to treat a row without answers: refuse it, or make every class a candidate.
    missing : str or int, optional
        Another value that means "no answer", such as -1 in an array of integers.

    Examples
    --------
    >>> from robustpll import Candidates
    >>> votes = Votes([["cat", "dog", "cat"], ["dog", None, "dog"]])
    >>> Candidates.of(votes).prior.round(2)
    array([[0.67, 0.33],
           [0.  , 1.  ]], dtype=float32)
    """

    answers: Any
    unanswered: Literal["error", "all classes"] = "error"
    missing: str | int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, rows: Any) -> Self:
        """Select rows, as scikit-learn's splitters do."""
        rows = row_index(rows)
        answers = self.answers.iloc[rows] if hasattr(self.answers, "iloc") else self._cells()[rows]
        return type(self)(answers, self.unanswered, self.missing)

    def names(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the row and the class name of every answer, (answers,) each."""
        if self.unanswered not in ("error", "all classes"):
            raise InputError(
                f"Votes(unanswered={self.unanswered!r}): it must be 'error' or 'all classes'."
            )
        cells = self._cells()
        answered = ~missing_cells(cells, also=(self.missing,))
        empty = np.flatnonzero(~answered.any(-1))
        if len(empty) and self.unanswered == "error":
            raise InputError(
                f"Nobody answered row {empty[0]}: every row needs at least one candidate class. "
                f"Found {len(empty)} such rows ({some_of(empty)}). Drop them, or pass "
                "Votes(answers, unanswered='all classes')."
            )
        row, column = np.nonzero(answered)
        return row, as_names(cells[row, column].tolist(), row)

    def counts(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the number of votes for each class in each row, (n, k)."""
        row, names = self.names()
        counts = np.zeros((len(self), len(classes)))
        np.add.at(counts, (row, positions(names, classes, "Votes", row)), 1.0)
        return counts

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the answers as strings, "" for gaps: scikit-learn reads them to choose folds."""
        cells = self._cells()
        gaps = missing_cells(cells, also=(self.missing,))
        return np.array(np.where(gaps, "", cells.astype(str)), dtype=dtype, copy=copy)

    def _cells(self) -> NDArray[Any]:
        cells = self.answers
        if isinstance(cells, Sequence):
            sizes = np.array([len(row) if isinstance(row, SETS) else 1 for row in cells])
            short = np.flatnonzero(sizes < sizes.max(initial=0))
            if len(short):
                raise InputError(
                    "Votes needs one answer or None per annotator in each row; "
                    f"{len(short)} rows are short ({some_of(short)})."
                )
            cells = np.array(cells, dtype=object)
        cells = cells.to_numpy() if hasattr(cells, "to_numpy") else np.asarray(cells)
        if cells.ndim != 2:
            raise InputError(
                f"Votes needs a table of shape (n, annotators); got an array of shape {cells.shape}"
                ". One annotator alone gives a label vector: pass that as y."
            )
        return np.asarray(cells)
