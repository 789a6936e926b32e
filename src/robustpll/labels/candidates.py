"""Validated candidate sets, from every accepted form of `y`."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from robustpll.errors import InputError, some_of
from robustpll.labels.parsing import (
    SETS,
    array_of,
    as_binary,
    as_names,
    as_pandas,
    checked_classes,
    is_frame,
    items_of,
    positions,
    refuse_odd_labels,
    refuse_odd_sets,
    row_index,
)
from robustpll.labels.votes import Votes


@dataclass(frozen=True, eq=False)
class Candidates:
    """Validated candidate sets with a prior, made by `Candidates.of`.

    The constructor does not check its arguments. scikit-learn's splitters and searches accept
    candidates as `y`.

    Attributes
    ----------
    matrix : bool array of shape (n, k)
        The candidate classes of each row; no row is empty.
    classes : array of shape (k,)
        The names of the classes.
    prior : float32 array of shape (n, k)
        Shares of votes, or uniform on the candidates; rows sum to 1 and are 0 elsewhere.

    Examples
    --------
    >>> y = Candidates.of([{"cat"}, {"cat", "dog"}, {"bird", "dog"}])
    >>> y.classes
    array(['bird', 'cat', 'dog'], dtype='<U4')
    >>> y.matrix.astype(int)
    array([[0, 1, 0],
           [0, 1, 1],
           [1, 0, 1]])
    >>> y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """

    matrix: NDArray[np.bool_]
    classes: NDArray[Any]
    prior: NDArray[np.float32]

    @classmethod
    def of(cls, y: Any, *, classes: ArrayLike | None = None) -> Self:
        """Read candidates from any accepted form of `y`.

        Parameters
        ----------
        y : object
            A 0/1 or bool matrix of shape (n, k), dense, sparse or a DataFrame; a sequence, object
            array or Series of sets (or lists) of class names; a vector of labels, one candidate
            each; `Votes`; or `Candidates`.
        classes : array of shape (k,), optional
            The names of all classes, in the order of the columns. By default the sorted names that
            occur; ``0 .. k-1`` for a matrix; the column names of a DataFrame.

        Notes
        -----
        scikit-learn's searches and ``cross_val_*`` refuse a list of lists: pass
        ``Candidates.of(y)`` instead. With ``method="predict_proba"`` they refuse sets, too.

        Examples
        --------
        >>> Candidates.of(["cat", "dog"], classes=["cat", "dog", "emu"]).sets()
        [frozenset({'cat'}), frozenset({'dog'})]
        """
        if y is None:
            raise InputError(
                "This requires y to be passed, but the target y is None: pass candidates as y."
            )
        y = as_pandas(y)
        names = None if classes is None else checked_classes(array_of(classes))
        if isinstance(y, Candidates):
            return cls._of_candidates(y, names)
        if isinstance(y, Votes):
            return cls._of_votes(y, names)
        if sparse.issparse(y) or (is_frame(y) and y.shape[1] != 1):
            return cls._of_matrix(y, names)
        items = items_of(y)
        if items.ndim == 2:
            return cls._of_matrix(items, names)
        return (cls._of_labels if is_label_vector(items) else cls._of_sets)(items, names)

    @classmethod
    def _of_candidates(cls, y: "Candidates", names: NDArray[Any] | None) -> Self:
        if names is None or np.array_equal(names, y.classes):
            return cls(y.matrix, y.classes, y.prior)
        columns = positions(y.classes, names, "y.classes")
        prior = np.zeros((len(y), len(names)), dtype=np.float32)
        prior[:, columns] = y.prior
        matrix = np.zeros(prior.shape, dtype=bool)
        matrix[:, columns] = y.matrix
        return cls(matrix, names, prior)

    @classmethod
    def _of_votes(cls, y: Votes, names: NDArray[Any] | None) -> Self:
        names = checked_classes(np.unique(y.names()[1])) if names is None else names
        counts = y.counts(names)
        counts[counts.sum(-1) == 0] = 1.0  # without answers, every class is equally likely
        return cls(counts > 0, names, (counts / counts.sum(-1, keepdims=True)).astype(np.float32))

    @classmethod
    def _of_matrix(cls, y: Any, names: NDArray[Any] | None) -> Self:
        if y.ndim != 2:
            raise InputError(
                f"A sparse y is a 0/1 matrix of shape (n, k); got shape {y.shape} instead."
            )
        columns = _column_names(y)
        if columns is not None and names is not None:
            return cls._of_candidates(cls._of_matrix(y, None), names)
        if names is None:
            names = checked_classes(np.arange(y.shape[1]) if columns is None else columns)
        if y.shape[1] != len(names):
            raise InputError(
                f"y has {y.shape[1]} columns, but there are {len(names)} classes: a 0/1 matrix has "
                "one column for each class. Add the missing columns, or name the classes."
            )
        dense = y.toarray() if hasattr(y, "toarray") else np.asarray(y)
        return cls._of_bool(as_binary(dense), names)

    @classmethod
    def _of_labels(cls, labels: NDArray[Any], names: NDArray[Any] | None) -> Self:
        refuse_odd_labels(labels)
        if labels.dtype.kind in "OU":
            labels = as_names(labels.tolist())
        names = checked_classes(np.unique(labels)) if names is None else names
        matrix = np.zeros((len(labels), len(names)), dtype=bool)
        matrix[np.arange(len(labels)), positions(labels, names, "y")] = True
        return cls._of_bool(matrix, names)

    @classmethod
    def _of_sets(cls, sets: NDArray[Any], names: NDArray[Any] | None) -> Self:
        refuse_odd_sets(sets)
        sizes = [len(one) for one in sets]
        _refuse_empty(np.flatnonzero(np.equal(sizes, 0)))
        row = np.repeat(np.arange(len(sets)), sizes)
        members = as_names([name for one in sets for name in one], row)
        names = checked_classes(np.unique(members)) if names is None else names
        matrix = np.zeros((len(sets), len(names)), dtype=bool)
        matrix[row, positions(members, names, "y", row)] = True
        return cls._of_bool(matrix, names)

    @classmethod
    def _of_bool(cls, matrix: NDArray[np.bool_], names: NDArray[Any]) -> Self:
        _refuse_empty(np.flatnonzero(~matrix.any(-1)))
        sizes = matrix.sum(-1, keepdims=True)
        return cls(matrix, names, np.divide(matrix, sizes, dtype=np.float32))

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of candidates of each row, (n,)."""
        return np.asarray(self.matrix.sum(-1, dtype=np.int64))

    def sets(self) -> list[frozenset[Any]]:
        """The candidates of each row by name.

        >>> Candidates.of(np.eye(2, dtype=int)).sets()
        [frozenset({0}), frozenset({1})]
        """
        return [frozenset(self.classes[row].tolist()) for row in self.matrix]

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: Any) -> Self:
        """Select rows; the classes stay the same."""
        rows = row_index(rows)
        return type(self)(self.matrix[rows], self.classes, self.prior[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.matrix, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidates) and all(
            np.array_equal(getattr(self, field), getattr(other, field))
            for field in ("matrix", "classes", "prior")
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def __repr__(self) -> str:
        n, k = self.shape
        average = f"{self.sizes.mean():.2f}" if n else "no"
        return f"Candidates({n} rows, {k} classes, {average} candidates on average)"


def is_label_vector(y: object) -> bool:
    """Whether `y` holds one label per row, rather than sets, a matrix or votes.

    >>> is_label_vector(["cat", "dog"]), is_label_vector([{"cat"}, {"dog"}])
    (True, False)
    """
    if y is None or isinstance(y, Candidates | Votes) or sparse.issparse(y) or is_frame(y):
        return False
    items = items_of(y)
    if items.ndim != 1:
        return False
    return items.dtype != object or not any(isinstance(item, SETS) for item in items)


def classes_with(y: object, classes: NDArray[Any]) -> NDArray[Any]:
    """Return `classes` and the new names in `y`; a matrix without column names has none."""
    if isinstance(y, Candidates):
        names = y.classes
    elif isinstance(y, Votes):
        names = np.unique(y.names()[1])
    elif is_frame(y):
        columns = _column_names(y)
        names = classes if columns is None else columns
    elif sparse.issparse(y) or items_of(y).ndim == 2:
        return classes
    else:
        names = np.unique(as_names([name for row in items_of(y) for name in row]))
    if (names.dtype.kind == "U") != (classes.dtype.kind == "U"):
        return classes  # strings and numbers are refused where y is read
    new = names[~np.isin(names, classes)]
    return np.concatenate([classes, new]) if len(new) else classes


def _column_names(y: Any) -> NDArray[Any] | None:
    """Column names of a DataFrame; None if the columns are only numbered."""
    columns = np.asarray(y.columns) if is_frame(y) else np.arange(y.shape[1])
    return None if np.array_equal(columns, np.arange(len(columns))) else columns


def _refuse_empty(rows: NDArray[np.intp]) -> None:
    if len(rows):
        raise InputError(
            f"y[{rows[0]}] is empty: every row needs at least one candidate class. Found "
            f"{len(rows)} such rows ({some_of(rows)}). Drop them, or pass all classes as "
            "candidates."
        )
