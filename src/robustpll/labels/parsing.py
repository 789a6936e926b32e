"""Helpers that read labels: rows, class names and missing answers."""

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning

from robustpll.errors import InputError, counted, some_of

Ints = NDArray[np.int64]
SETS = (set, frozenset, list, tuple, np.ndarray)
LONGEST_NAME = 10_000  # characters of a class name
MOST_LETTERS = 2**26  # of all names at the length of the longest, as numpy stores them
TEXT_OF_NOTHING = ("nan", "<NA>")  # gaps as numpy and pandas write them in arrays of strings


def refuse_rows(is_bad: ArrayLike, fault: str, remedy: str) -> None:
    """Raise InputError if any row is bad; the message has the number and the first of them."""
    rows = np.flatnonzero(is_bad)
    if len(rows):
        raise InputError(f"{fault} in {counted(len(rows), 'row')} ({some_of(rows)}). {remedy}")


def is_frame(y: object) -> bool:
    """Whether y is a DataFrame; does not import pandas."""
    return hasattr(y, "columns") and hasattr(y, "to_numpy")


def as_pandas(table: Any) -> Any:
    """Convert a table of another library, such as polars or pyarrow, to pandas."""
    if hasattr(table, "collect_schema") and not hasattr(table, "to_pandas"):
        raise InputError(f"A {type(table).__name__} holds no rows yet. Pass table.collect().")
    if not hasattr(table, "columns") or hasattr(table, "iloc"):
        return table
    if not hasattr(table, "to_pandas") and hasattr(table, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(table)
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def row_index(rows: Any) -> Any:
    """Normalize an index of rows: scikit-learn appends an ellipsis; one row stays a row."""
    if isinstance(rows, tuple):
        rows = rows[0]
    return [rows] if isinstance(rows, int | np.integer) else rows


def items_of(y: Any) -> NDArray[Any]:
    """Return one item per row: labels, or sets or lists (1-d), or a matrix (2-d array)."""
    if isinstance(y, str | bytes | set | frozenset | dict):
        raise InputError(f"y is a {type(y).__name__}, not rows in order: pass a list of sets.")
    array = array_of(y)
    if array.ndim == 2 and array.shape[1] == 1:
        message = "A column-vector y was passed when a 1d array was expected: one label per row."
        warnings.warn(message, DataConversionWarning, stacklevel=6)
        array = array[:, 0]
    if array.ndim not in (1, 2):
        rule = "y must be a 1d array of labels or sets, or a 0/1 matrix of shape (n, k)"
        raise InputError(f"{rule}; got an array of shape {array.shape} instead.")
    return array


def array_of(values: Any) -> NDArray[Any]:
    """Convert to an array; sets stay items, and strings are not mixed with other types."""
    if not isinstance(values, Sequence):
        if type(values).__module__.startswith("pyarrow"):  # an array of strings must be copied
            values = values.to_pandas()
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    is_text = {isinstance(item, str) for item in values}
    if is_text == {True}:
        refuse_odd_text(set(values))
    if len(is_text) > 1 or any(isinstance(item, SETS) for item in values):
        return object_array(values)
    return np.asarray(values)


def object_array(items: Collection[Any]) -> NDArray[Any]:
    """Keep lists as items; numpy would turn lists of equal length into a matrix."""
    array = np.empty(len(items), dtype=object)
    array[:] = list(items)
    return array


def as_binary(table: Any) -> NDArray[np.bool_]:
    """Convert a 0/1 matrix, dense, sparse or a DataFrame, to bool; refuse anything else."""
    matrix = np.asarray(table.toarray() if hasattr(table, "toarray") else table)
    if matrix.ndim != 2:
        raise InputError(f"A sparse y is a 0/1 matrix of shape (n, k); got shape {matrix.shape}.")
    if matrix.dtype == object:
        matrix = np.where(missing_cells(matrix), np.nan, matrix)
    cells = matrix.ravel().tolist() if matrix.dtype.kind not in "biuf" else ()
    if not all(isinstance(cell, int | float) for cell in cells):
        # strings "0" and "1", too: they may be answers of annotators
        raise InputError(
            "y is a matrix of names, but a matrix must be 0/1 with one column for each class. Wrap "
            "answers of annotators as Votes(y), or pass a list with the candidate set of each row."
        )
    numbers = matrix.astype(np.float64)
    odd = ~np.isin(numbers, (0.0, 1.0))
    if odd.any():
        fault = f"y must be 0/1 or bool if it is a matrix, but has {numbers[odd][0]:g}"
        refuse_rows(odd.any(-1), fault, "Correct them, or pass answers of annotators as Votes(y).")
    return np.asarray(numbers == 1)


def missing_cells(cells: NDArray[Any], also: tuple[Any, ...] = ()) -> NDArray[np.bool_]:
    """Which cells are None, NaN, pandas.NA, "" or one of `also`, in an array of any shape."""
    import pandas as pd

    is_missing = np.asarray(pd.isna(cells))
    others = cells[~is_missing]
    is_missing[~is_missing] = np.any([others == word for word in ("", *also)], axis=0)
    return is_missing


def missing_labels(items: NDArray[Any], missing: Any) -> NDArray[np.bool_]:
    """Which of the labels or sets (n,) are gaps; an empty set is one."""
    is_set = np.array([isinstance(item, SETS) for item in items.tolist()], dtype=bool)
    is_gap = np.zeros(len(items), dtype=bool)
    is_gap[is_set] = [not len(item) for item in items[is_set]]
    is_gap[~is_set] = missing_cells(items[~is_set], also=(missing,))
    return is_gap


def refuse_odd_labels(labels: NDArray[Any]) -> None:
    """Refuse a label vector with gaps, infinities or fractions, and name the rows."""
    if labels.dtype.kind not in "OUiufb":
        raise InputError(f"Unknown label type: {labels.dtype}. Labels are strings or integers.")
    remedy = "Drop these rows, or give them a set with all classes."
    refuse_rows(missing_cells(labels), "Input y contains NaN or no label", remedy)
    if labels.dtype.kind == "f":
        refuse_rows(np.isinf(labels), "Input y contains infinity", remedy)
        remedy = "Labels are names, not amounts: pass strings or integers."
        fault = "Unknown label type: continuous. y holds fractions"
        refuse_rows(labels != labels.round(), fault, remedy)


def refuse_odd_sets(sets: NDArray[Any]) -> None:
    """Refuse rows that are not sets, repeat a name, or look like a 0/1 matrix."""
    odd = [not isinstance(row, SETS) for row in sets]
    refuse_rows(odd, "y has sets of class names, but none", "Write one label as {label}.")
    remedy = (
        "A list of lists is read as candidate sets of class names. If y is a 0/1 matrix pass "
        "numpy.asarray(y); if it holds answers of annotators pass Votes(y)."
    )
    is_matrix = len({len(row) for row in sets}) == 1 and len(sets[0]) > 1
    is_matrix = is_matrix and not any(isinstance(row, set | frozenset) for row in sets)
    if is_matrix and all(distinct_of(row) <= {0, 1} for row in sets):
        raise InputError(f"y holds lists of 0 and 1. {remedy}")
    odd = [len(distinct_of(row)) != len(row) for row in sets]
    refuse_rows(odd, "y names a class twice", remedy)


def distinct_of(values: Any) -> set[Any]:
    """Return the distinct class names; refuse lists and other objects that are no names."""
    try:
        return set(values)
    except TypeError as error:
        rule = "but a class name is a string or an integer. Pass a set of names for each row"
        raise InputError(f"y holds {some_of([values])} ({error}), {rule}.") from error


def coded(values: list[Any], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the sorted class names that occur, and the index of each value among them.

    `rows` has the row of each value, for error messages.
    """
    distinct = list(distinct_of(values))
    if missing_cells(object_array(distinct)).any():
        is_bad = np.isin(np.arange(rows.max() + 1), rows[missing_cells(object_array(values))])
        refuse_rows(is_bad, "y holds a missing class name", "Leave it out of the set.")
    names = np.unique(as_names(distinct))
    index = {name: number for number, name in enumerate(names.tolist())}
    return np.fromiter((index[value] for value in values), np.int64, len(values)), names


def aligned(table: NDArray[Any], names: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Move the columns (n, names) to those of `classes`; refuse rows with other classes."""
    if np.array_equal(names, classes):
        return table
    columns = moved_codes(np.arange(len(names)), names, classes)
    is_known = columns >= 0
    fault = f"y names unknown classes ({some_of(names[~is_known])})"
    if {*map(str, names)} & {*map(str, classes)} and names.dtype.kind != classes.dtype.kind:
        kinds = ["text" if each.dtype.kind in "OU" else "numbers" for each in (names, classes)]
        fault = f"{fault}, as {kinds[0]}, but the classes are {kinds[1]},"
    remedy = "Correct the names, or name all classes: Candidates.of(y, classes=[...])."
    known = f"The classes are {some_of(classes, 10)}. {remedy}"
    refuse_rows(table[:, ~is_known].any(-1), fault, known)
    moved = np.zeros((len(table), len(classes)), dtype=table.dtype)
    moved[:, columns[is_known]] = table[:, is_known]
    return moved


def moved_codes(codes: Ints, names: NDArray[Any], classes: NDArray[Any]) -> Ints:
    """Turn indices into `names` into indices into `classes`; -1 stays, and is for other names."""
    position = {name: index for index, name in enumerate(classes.tolist())}
    return np.array([*(position.get(name, -1) for name in names.tolist()), -1])[codes]


def as_names(values: list[Any]) -> NDArray[Any]:
    """Convert class names to an array of strings or integers; refuse anything else."""
    if all(isinstance(value, str) for value in values):
        _refuse_odd_names(set(values))
        return np.asarray(values, dtype=str)
    if values and all(isinstance(value, bool | np.bool_) for value in values):
        return np.asarray(values, dtype=bool)
    numbers = all(isinstance(value, int | float | np.number) for value in values)
    if numbers and all(float(value).is_integer() for value in values):
        if beyond := [value for value in values if not -(2**63) <= value < 2**63]:
            fault = "is no integer of 64 bits. Convert the names to strings."
            raise InputError(f"The class name {beyond[0]} {fault}")
        return np.asarray(values, dtype=np.int64)
    kinds = some_of(sorted({type(value).__name__ for value in values}))
    rule = "all names must be strings, or all integers, without gaps. Convert them"
    raise InputError(f"y holds class names of type {kinds}: {rule}.")


def refuse_odd_text(names: Collection[str]) -> None:
    """Refuse class names that numpy would cut, or that would need much memory."""
    if cut := [name[:40] for name in names if "\0" in name]:
        fault = "holds a NUL character, which numpy drops at the end of a name"
        raise InputError(f"The class name {cut[0]!r} {fault}. Remove it.")
    name = max(names, key=len, default="")
    if len(name) > LONGEST_NAME or len(name) * len(names) > MOST_LETTERS:
        size = f"has {len(name):,} characters, among {len(names):,} names"
        raise InputError(f"The class name that begins with {name[:40]!r} {size}. Shorten it.")


def _refuse_odd_names(names: set[str]) -> None:
    """Refuse text of a gap or a whole set; warn about names made of other names."""
    refuse_odd_text(names)
    odd = sorted(name for name in names if name in ("", *TEXT_OF_NOTHING) or name[0] in "{[")
    if odd:
        fault = f"y holds the class name {odd[0]!r}: a gap or a set that was turned into text"
        raise InputError(f"{fault}. Pass None for gaps, and sets of names for candidates.")
    for separator in "|;,":
        if name := _unsplit(names, separator):
            fault = f"The class name {name!r} is made of other class names or their parts. If it"
            remedy = f"split it: y = [set(row.split({separator!r})) for row in y]."
            warnings.warn(f"{fault} stands for a set, {remedy}", UserWarning, stacklevel=7)
            return


def _unsplit(names: set[str], separator: str) -> str:
    """Return a name that looks like a set, or "": its parts are names, or most parts recur."""
    parts = {name: [part.strip() for part in name.split(separator)] for name in sorted(names)}
    several = [name for name in parts if len({*parts[name]}) > 1]
    if made := [name for name in several if {*parts[name]} <= names]:
        return made[0]
    counts = Counter(part for row in parts.values() for part in {*row})
    all_parts = {part for name in several for part in parts[name]}
    recurring = {part for part in all_parts if counts[part] > 1}
    places = {(place, part) for row in parts.values() for place, part in enumerate(row)}
    # in "Smith, John" and "Smith, Ann", each part has its place
    is_moved = sum(part in recurring for _, part in places) > len(recurring)
    return several[0] if is_moved and 2 * len(recurring) > len(all_parts) else ""


def checked_classes(values: Any) -> NDArray[Any]:
    """Return class names as an array; refuse fewer than two, and equal ones."""
    names = array_of(values)
    if names.ndim == 1 and (names.dtype == object or missing_cells(names).any()):
        names = as_names(names.tolist())
    elif names.ndim == 1 and names.dtype.kind == "U":
        refuse_odd_text(names.tolist())
    if names.ndim != 1 or len(names) != len(np.unique(names)):
        raise InputError(f"classes must be a 1-d array of distinct names; got {names!r}.")
    if len(names) < 2:
        number = counted(len(names), "class", "classes")
        fault = f"y names {number} ({some_of(names)}): at least 2 classes are needed"
        raise InputError(f"{fault}. To name others, pass Candidates.of(y, classes=[...]) as y.")
    return names
