"""Helpers that read labels: rows, class names and missing answers."""

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning

from robustpll.errors import InputError, some_of

SETS = (set, frozenset, list, tuple, np.ndarray)
LONGEST_NAME = 10_000  # characters of a class name
MOST_LETTERS = 2**26  # of all names at the length of the longest, as numpy stores them
TEXT_OF_NOTHING = ("nan", "<NA>")  # gaps as numpy and pandas write them in arrays of strings


def is_frame(y: object) -> bool:
    """Whether y is a DataFrame; does not import pandas."""
    return hasattr(y, "columns") and hasattr(y, "to_numpy")


def as_pandas(table: Any) -> Any:
    """Convert a table of another library, such as polars or pyarrow, to pandas.

    >>> as_pandas([[1, 2]])
    [[1, 2]]
    """
    streamed = hasattr(table, "__arrow_c_stream__") and len(getattr(table, "shape", ())) == 2
    if hasattr(table, "iloc") or not (streamed or hasattr(table, "__dataframe__")):
        return table
    try:
        if hasattr(table, "to_pandas"):
            return table.to_pandas()
        if streamed:
            import pyarrow

            return pyarrow.table(table).to_pandas()
        import pandas as pd

        return pd.api.interchange.from_dataframe(table)
    except ImportError as error:
        raise InputError(
            f"A {type(table).__name__} is read by {error.name}, which is not installed. Run pip "
            f"install {error.name}, or pass a DataFrame of pandas or an array."
        ) from error


def row_index(rows: Any) -> Any:
    """Normalize an index of rows: scikit-learn appends an ellipsis; one row stays a row."""
    if isinstance(rows, tuple):
        rows = rows[0]
    return [rows] if isinstance(rows, int | np.integer) else rows


def items_of(y: Any) -> NDArray[Any]:
    """Return one item per row: labels or sets (1-d), or a matrix (2-d array).

    A list of lists is always a list of sets, never a matrix.
    """
    if isinstance(y, str | bytes | set | frozenset | dict):
        raise InputError(
            f"y is a {type(y).__name__}, which holds no rows in order: pass a list with the "
            "candidates of each row, a vector of labels, or a 0/1 matrix."
        )
    array = array_of(y)
    if array.ndim == 2 and array.shape[1] == 1:
        message = "A column-vector y was passed when a 1d array was expected: one label per row."
        warnings.warn(message, DataConversionWarning, stacklevel=4)
        return np.asarray(array[:, 0])
    if array.ndim not in (1, 2):
        raise InputError(
            "y should be a 1d array of labels or sets, or a 0/1 matrix of shape (n, k); got an "
            f"array of shape {array.shape} instead."
        )
    return np.asarray(array)


def array_of(values: Any) -> NDArray[Any]:
    """Convert to an array; sets stay items, and strings are not mixed with other types."""
    if not isinstance(values, Sequence):
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    is_text = {isinstance(item, str) for item in values}
    if is_text == {True}:
        refuse_odd_text(set(values))
    if len(is_text) > 1 or any(isinstance(item, SETS) for item in values):
        return _object_array(values)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(
            "y is a list of arrays of different lengths: pass a list with a set for each row."
        ) from error


def _object_array(items: Sequence[Any]) -> NDArray[Any]:
    """Keep lists as items; numpy would turn lists of equal length into a matrix."""
    array = np.empty(len(items), dtype=object)
    array[:] = list(items)
    return array


def as_binary(matrix: NDArray[Any]) -> NDArray[np.bool_]:
    """Convert a 0/1 matrix to bool; refuse anything else."""
    if matrix.dtype == bool:
        return matrix.copy()
    if matrix.dtype == object:
        matrix = np.where(missing_cells(matrix), np.nan, matrix)
    if matrix.dtype.kind not in "iuf" and not all(
        isinstance(cell, int | float | bool) for cell in matrix.ravel().tolist()
    ):  # strings "0" and "1", too: they may be answers of annotators
        raise InputError(
            "y is a matrix of names, but a matrix must be 0/1 with one column for each class. Wrap "
            "answers of annotators as Votes(y), or pass a list with the candidate set of each row."
        )
    numbers = matrix.astype(np.float64)
    odd = ~np.isin(numbers, (0.0, 1.0))
    if odd.any():
        row, column = np.argwhere(odd)[0].tolist()
        rows = np.flatnonzero(odd.any(-1))
        raise InputError(
            f"y[{row}, {column}] is {matrix[row, column]}: a matrix of candidates is 0/1 or bool, "
            f"without NaN. Found {len(rows)} such rows ({some_of(rows)}). Correct them; answers of "
            "annotators are passed as Votes(y)."
        )
    return np.asarray(numbers == 1)


def missing_cells(cells: NDArray[Any], also: tuple[Any, ...] = ()) -> NDArray[np.bool_]:
    """Which cells are None, NaN, pandas.NA, "" or one of `also`, in an array of any shape."""
    if cells.dtype.kind != "O":
        gaps = np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(cells.shape, dtype=bool)
        is_text = cells.dtype.kind == "U"
        values = [v for v in ("", *also) if isinstance(v, str) == is_text and v is not None]
        return np.asarray(gaps | np.isin(cells, values)) if values else gaps
    flat = [
        item is None
        or type(item).__name__ in ("NAType", "NaTType")
        or (isinstance(item, float) and item != item)  # noqa: PLR0124  # NaN
        or (isinstance(item, str | int | float) and item in ("", *also))
        for item in cells.ravel().tolist()
    ]
    return np.asarray(flat, dtype=bool).reshape(cells.shape)


def refuse_odd_labels(labels: NDArray[Any]) -> None:
    """Refuse a label vector with gaps, infinities or fractions, and name the rows."""
    if labels.dtype.kind not in "OUiufb":
        raise InputError(f"Unknown label type: {labels.dtype}. Labels are strings or integers.")
    rows = np.flatnonzero(missing_cells(labels))
    if len(rows):
        raise InputError(
            f"Input y contains NaN or no label in {len(rows)} rows ({some_of(rows)}): every "
            "row needs a label. Drop these rows, or give them a set with all classes."
        )
    if labels.dtype.kind != "f":
        return
    rows = np.flatnonzero(np.isinf(labels))
    if len(rows):
        raise InputError(
            f"Input y contains infinity in {len(rows)} rows ({some_of(rows)}): labels are names."
        )
    rows = np.flatnonzero(labels != labels.round())
    if len(rows):
        raise InputError(
            f"Unknown label type: continuous. y is {labels[rows[0]]} in row {rows[0]}, and a "
            f"fraction in {len(rows)} rows ({some_of(rows)}): labels are names, not amounts."
        )


def refuse_odd_sets(sets: NDArray[Any]) -> None:
    """Refuse rows that are not sets, repeat a name, or look like rows of a 0/1 matrix."""
    odd = [index for index, row in enumerate(sets) if not isinstance(row, SETS)]
    if odd:
        raise InputError(
            f"y[{odd[0]}] is {sets[odd[0]]!r}, not a set or list of class names, while other rows "
            f"are. Found {len(odd)} such rows ({some_of(odd)}). Write one label as {{label}}."
        )
    repeated = None
    for index, row in enumerate(sets):
        try:
            if len(frozenset(row)) != len(row) and repeated is None:
                repeated = index
        except TypeError as error:
            raise InputError(
                f"y[{index}] holds {row!r}, but a candidate is a class name: a string or an "
                "integer."
            ) from error
    equally_long = len({len(row) for row in sets}) == 1 and len(sets[0]) > 1
    zero_one = equally_long and all(
        isinstance(row, list | tuple | np.ndarray) and set(row) <= {0, 1} for row in sets
    )
    if zero_one or repeated is not None:
        fault = "every y[i] is a list of 0 and 1"
        if repeated is not None:
            fault = f"y[{repeated}] names a class twice"
        raise InputError(
            f"{fault}: a list of lists is read as candidate sets of class names. If y is a 0/1 "
            "matrix pass numpy.asarray(y); if it holds answers of annotators pass Votes(y); if "
            "these are names pass sets."
        )


def as_names(values: list[Any], rows: NDArray[Any] | None = None) -> NDArray[Any]:
    """Convert class names to an array of strings or integers; refuse anything else.

    >>> as_names([2.0, 1])
    array([2, 1])
    """
    if all(isinstance(value, str) for value in values) and "" not in values:
        _refuse_odd_names(set(values))
        return np.asarray(values, dtype=str)
    numbers = all(isinstance(value, int | float | np.number) for value in values)
    if numbers and all(float(value).is_integer() for value in values):
        return np.asarray(values, dtype=np.int64)
    missing = missing_cells(_object_array(values))
    if missing.any():
        gaps = np.flatnonzero(missing) if rows is None else np.unique(rows[missing])
        raise InputError(
            f"y holds a missing class name in {len(gaps)} rows ({some_of(gaps)}): a candidate set "
            "names classes only. Leave the missing name out of the set."
        )
    kinds = sorted({type(value).__name__ for value in values})
    raise InputError(
        f"y holds class names of type {some_of(kinds)}: the names must be all strings or all "
        "integers. Convert them, for instance with str."
    )


def refuse_odd_text(names: Collection[str]) -> None:
    """Refuse class names that numpy would cut, or that would need much memory.

    >>> refuse_odd_text(["cat", "dog"])
    """
    for name in names:
        if "\0" in name:
            raise InputError(
                f"The class name {name[:40]!r} holds a NUL character, which numpy drops at the end "
                "of a name. Remove it."
            )
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME or longest * len(names) > MOST_LETTERS:
        name = max(names, key=len)
        raise InputError(
            f"The class name that begins with {name[:40]!r} has {longest:,} characters, among "
            f"{len(names):,} names. At most {min(LONGEST_NAME, MOST_LETTERS // len(names)):,} are "
            "allowed for so many names. Shorten it."
        )


def _refuse_odd_names(names: set[str]) -> None:
    """Refuse text of a gap or a whole set; warn about names made of other names."""
    refuse_odd_text(names)
    odd = sorted(name for name in names if name in TEXT_OF_NOTHING or name[:1] in ("{", "["))
    if odd:
        raise InputError(
            f"y holds the text {odd[0]!r} as a class name: a gap or a set that was turned into "
            "text. Pass gaps as None in a list, and each row's candidates as a set of names."
        )
    for separator in "|;,":
        for name in sorted(names):
            parts = {part.strip() for part in name.split(separator)}
            if len(parts) > 1 and parts <= names:
                message = (
                    f"The class name {name!r} is made of other class names. If it stands for a "
                    f"set, split it: y = [set(row.split({separator!r})) for row in y]."
                )
                warnings.warn(message, UserWarning, stacklevel=5)
                return


def checked_classes(names: NDArray[Any]) -> NDArray[Any]:
    """Check class names: at least two, all distinct."""
    if names.ndim == 1 and (names.dtype == object or missing_cells(names).any()):
        names = as_names(names.tolist())
    elif names.ndim == 1 and names.dtype.kind == "U":
        refuse_odd_text(names.tolist())
    if names.ndim != 1 or len(names) != len(np.unique(names)):
        raise InputError(f"classes must be a 1-d array of distinct names; got {names!r}.")
    if len(names) < 2:
        raise InputError(
            f"y names {len(names)} class ({some_of(names)}): at least 2 classes are needed. If "
            "other classes exist but no row has them, pass Candidates.of(y, classes=[...]) as y."
        )
    return names


def positions(
    values: NDArray[Any], names: NDArray[Any], where: str, rows: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Return the index of each value among the class names; `rows` are for the error message."""
    order = np.argsort(names)
    comparable = (values.dtype.kind == "U") == (names.dtype.kind == "U")
    index = np.zeros(len(values), dtype=np.int64)
    if comparable:
        index = order[np.searchsorted(names, values, sorter=order).clip(max=len(names) - 1)]
    unknown = np.flatnonzero(names[index] != values) if comparable else np.arange(len(values))
    if len(unknown):
        bad_rows = unknown if rows is None else np.unique(rows[unknown])
        raise InputError(
            f"{where} names unknown classes ({some_of(np.unique(values[unknown]))}) in "
            f"{len(bad_rows)} rows ({some_of(bad_rows)}): the classes are {some_of(names, 10)}. "
            "Correct the names, or name all classes: Candidates.of(y, classes=[...])."
        )
    return index
