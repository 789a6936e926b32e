"""Answers of several annotators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.labels.parsing import SETS, aligned, coded, missing_cells, refuse_rows, row_index


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

    def codes(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return each answer as an index (n, annotators), -1 for none, and the class names."""
        if self.unanswered not in ("error", "all classes"):
            raise InputError(
                f"Votes(unanswered={self.unanswered!r}): it must be 'error' or 'all classes'."
            )
        cells = self._cells()
        answered = ~missing_cells(cells, also=(self.missing,))
        if self.unanswered == "error":
            remedy = "Drop these rows, or pass Votes(answers, unanswered='all classes')."
            refuse_rows(~answered.any(-1), "Votes has no answer", remedy)
        row, column = np.nonzero(answered)
        code, names = coded(cells[row, column].tolist(), row)
        answers = np.full(cells.shape, -1)
        answers[row, column] = code
        return answers, names

    def table(self) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return the number of votes (n, k) of each row for each class, and the class names."""
        answers, names = self.codes()
        return votes_for(answers, len(names)), names

    def counts(self, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return the number of votes for each of these classes in each row, (n, k)."""
        return aligned(*self.table(), classes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the answers as strings, "" for gaps: scikit-learn reads them to choose folds."""
        cells = self._cells()
        gaps = missing_cells(cells, also=(self.missing,))
        return np.array(np.where(gaps, "", cells.astype(str)), dtype=dtype, copy=copy)

    def _cells(self) -> NDArray[Any]:
        cells = self.answers
        if isinstance(cells, Sequence):
            sizes = np.array([len(row) if isinstance(row, SETS) else 1 for row in cells])
            remedy = "Give each row one answer or None per annotator."
            refuse_rows(sizes < sizes.max(initial=0), "Votes has too few answers", remedy)
            cells = np.array(cells, dtype=object)
        cells = cells.to_numpy() if hasattr(cells, "to_numpy") else np.asarray(cells)
        if cells.ndim != 2:
            rule = "Votes needs a table of shape (n, annotators), and not a label vector"
            raise InputError(f"{rule}; got an array of shape {cells.shape}.")
        return np.asarray(cells)


def votes_for(answers: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return how many of the answers (n, annotators), -1 for none, name each class, (n, k)."""
    row, column = np.nonzero(answers >= 0)
    votes = np.zeros((len(answers), k))
    np.add.at(votes, (row, answers[row, column]), 1.0)
    return votes
