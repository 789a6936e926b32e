"""Read typed rows from CSV files, Parquet files and DataFrames, all at once or in pieces."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.labels.parsing import SETS
from robustpll.tables.source import (
    LEADING_ZERO,
    SHOWN,
    BadRow,
    Batch,
    CsvFile,
    is_amount,
    number_of,
    parquet_file,
)

Kinds = Mapping[str, bool | None]  # columns: True for text, False for numbers, None to find out
ODD_CELLS = 0.01  # a column with a larger share of cells that are not numbers is text
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
BUFFER = 2**20  # bytes of each column of a Parquet file that is read in pieces


class Rows(NamedTuple):
    """Consecutive rows of a table."""

    frame: pd.DataFrame
    lines: NDArray[np.int64]
    bad: list[BadRow]  # faults; rows with the wrong number of cells are not in `frame`
    kept: dict[int, tuple[str, ...]]  # line -> text of further columns


def read_rows(
    opened: Any,
    kinds: Kinds,
    gaps: tuple[str, ...],
    *,
    keep: Sequence[str] = (),
    most_rows: int | None = None,
) -> Iterator[Rows]:
    """Yield at most `most_rows` rows at a time; all rows at once if it is None.

    Text of CSV files becomes categories. Their numbers become float64, or the smallest integers
    that hold them. `gaps` are words that mean "no value".
    """
    if isinstance(opened, CsvFile):
        batches = opened.batches(list(dict.fromkeys([*kinds, *keep])))
        for batch in _joined(batches) if most_rows is None else _sliced(batches, most_rows):
            text = [pc.utf8_trim_whitespace(batch.cells[name]).to_pylist() for name in keep]
            columns = _typed_columns(batch, kinds, gaps, opened.decimal)
            yield Rows(*columns, _by_line(batch.lines, text))
        return
    start = 0
    is_path = isinstance(opened, Path)
    parts = _parquet(opened, kinds, keep, most_rows) if is_path else [(opened[[*kinds]], [])]
    for frame, text in parts:
        lines = np.arange(start, start + len(frame))
        start += len(frame)
        yield Rows(*_with_gaps(frame, lines, kinds, gaps), _by_line(lines, text))


def _by_line(lines: NDArray[np.int64], text: Sequence[Sequence[str]]) -> dict[int, tuple[str, ...]]:
    return dict(zip(lines.tolist(), zip(*text, strict=True), strict=bool(text)))


def _joined(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield all rows as one batch, or nothing if there are none."""
    if parts := list(batches):
        cells, lines, bad = zip(*parts, strict=True)
        yield Batch(pa.concat_tables(cells), np.concatenate(lines), list(chain(*bad)))


def _sliced(batches: Iterator[Batch], most_rows: int) -> Iterator[Batch]:
    """Yield the rows in their order, at most so many at a time, each with its faults."""
    for cells, lines, bad in batches:
        begin = 0
        for start in range(0, max(1, len(lines)), most_rows):
            stop = start + most_rows
            end = lines[stop] if stop < len(lines) else np.inf
            here = [fault for fault in bad if begin <= fault.line < end]
            yield Batch(cells[start:stop], lines[start:stop], here)
            begin = end


def _typed_columns(
    batch: Batch, kinds: Kinds, gaps: Sequence[str], decimal: str
) -> tuple[pd.DataFrame, NDArray[np.int64], list[BadRow]]:
    columns, bad = {}, batch.bad
    for name, kind in kinds.items():
        columns[name], odd = _typed(batch.cells[name], kind, gaps, decimal)
        for row in odd:
            word = batch.cells[name][row].as_py().strip()[:SHOWN]
            remedy = f"correct it, or pass missing={word!r} if it means that there is no value"
            bad.append(BadRow(int(batch.lines[row]), name, word, f"is not a number: {remedy}"))
    return pd.DataFrame(columns, index=range(len(batch.lines)), copy=False), batch.lines, bad


def _typed(
    text: pa.ChunkedArray, kind: bool | None, gaps: Sequence[str], decimal: str
) -> tuple["pd.Series[Any]", NDArray[np.int64]]:
    """Convert a column; also return the rows whose cell should be a number and is not."""
    none, odd = pa.scalar(None, pa.string()), np.empty(0, dtype=np.int64)
    text = pc.utf8_trim_whitespace(text)
    text = digits = pc.if_else(pc.is_in(text, pa.array(gaps, pa.string())), none, text)
    if kind:
        return text.dictionary_encode().to_pandas(), odd
    if decimal == ",":
        for mark, other in (".\0", ",.", "\0,"):
            digits = pc.replace_substring(digits, mark, other)
    is_code = pc.match_substring_regex(digits, LEADING_ZERO)
    try:
        numbers = digits.cast(pa.float64())
    except pa.ArrowInvalid:
        is_number = pc.match_substring_regex(digits, NUMBER)
        odd = np.flatnonzero(pc.invert(is_number).fill_null(pa.scalar(value=False)))
        digits = pc.if_else(is_number, digits, none)
        numbers = digits.cast(pa.float64())
    many = len(odd) > ODD_CELLS * (len(text) - text.null_count)
    if kind is None and (many or pc.any(is_code).as_py()):
        return text.dictionary_encode().to_pandas(), odd[:0]
    is_integer = pc.all(pc.equal(numbers, pc.round(numbers)), min_count=0).as_py()
    if is_integer and not len(odd):
        try:
            integers = digits.cast(pa.int64())  # from the text: float64 loses long integers
            types = {pa.int64(): pd.Int64Dtype()}.get if integers.null_count else None
            return pd.to_numeric(integers.to_pandas(types_mapper=types), downcast="integer"), odd
        except pa.ArrowInvalid:  # 1e3 or 5.0
            pass
    return numbers.to_pandas(), odd


def _parquet(
    path: Path, kinds: Kinds, keep: Sequence[str], most_rows: int | None
) -> Iterator[tuple[pd.DataFrame, list[list[str]]]]:
    """Yield columns, and the text of the columns in `keep`."""
    names = list(dict.fromkeys([*kinds, *keep]))
    with parquet_file(path, 0 if most_rows is None else BUFFER) as file:
        if most_rows is None:
            yield _converted(file.read(columns=names), kinds, keep)
        else:
            for batch in file.iter_batches(most_rows, columns=names):
                yield _converted(pa.Table.from_batches([batch]), kinds, keep)


def _converted(
    table: pa.Table, kinds: Kinds, keep: Sequence[str]
) -> tuple[pd.DataFrame, list[list[str]]]:
    for name in table.column_names:
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"Column {name!r} holds text that is not UTF-8, or is damaged ({error}). Save it "
                "again as UTF-8."
            ) from error
    text = [["" if cell is None else str(cell) for cell in table[n].to_pylist()] for n in keep]
    table = table.select([*kinds]).replace_schema_metadata(None)  # the notes may be damaged
    frame = table.to_pandas(
        self_destruct=True,
        # as Python lists they would take several times the memory
        types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_nested(kind) else None,
    )
    return frame, text


def _with_gaps(
    frame: pd.DataFrame, lines: NDArray[np.int64], kinds: Kinds, gaps: Sequence[str]
) -> tuple[pd.DataFrame, NDArray[np.int64], list[BadRow]]:
    """Replace words and numbers that mean "no value" by gaps; convert text that must be numbers.

    Other text becomes numbers if it has such words, and all other cells are numbers.
    """
    numbers = [number for number in map(number_of, gaps) if number is not None]
    frame, bad = frame.copy(deep=False), list[BadRow]()
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            is_gap = column.isin(numbers).to_numpy(dtype=bool)
            if is_gap.any():
                integer = pd.api.types.is_integer_dtype(column)
                frame[name] = (column.astype("Int64") if integer else column).mask(is_gap)
            continue
        is_gap = np.array([isinstance(cell, str) and cell in gaps for cell in column], dtype=bool)
        cells = column.mask(is_gap) if is_gap.any() else column
        if kinds[name] is False:
            refuse_lists(frame[[name]], "write it as in training")
            cells = cells.astype(object)  # dates would become numbers
            frame[name] = pd.to_numeric(cells, errors="coerce").astype("float64")
            for row in np.flatnonzero(frame[name].isna() & cells.notna()):
                value = str(cells.iloc[row])[:SHOWN]
                bad.append(BadRow(int(lines[row]), name, value, "is not a number"))
        elif is_gap.any():
            is_text = kinds[name] or not all(is_amount(str(cell)) for cell in cells.dropna())
            frame[name] = cells if is_text else pd.to_numeric(cells)
    return frame, lines, bad


def refuse_lists(features: pd.DataFrame, remedy: str) -> None:
    """Raise an error if a cell holds several values: such cells cannot be compared or sorted."""
    for name, column in features.items():
        nested = column.dtype == object or "<" in str(column.dtype)  # list<..>, struct<..>
        if nested and any(isinstance(cell, (*SETS, dict)) for cell in column):
            raise InputError(f"Column {name!r} holds lists, which are not features: {remedy}.")
