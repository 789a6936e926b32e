"""Read typed rows of CSV files, Parquet files and DataFrames, all at once or in pieces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.parsing import SETS
from robustpll.tables import source
from robustpll.tables.columns import Reading, no_column, refuse_equal_names
from robustpll.tables.source import BadRow, Batch, CsvFile, Lines, bad_rows

if TYPE_CHECKING:
    from robustpll.estimator.features import Features

Kinds = Mapping[str, bool | None]  # columns: True for text, False for numbers, None to find out
ODD_CELLS = 0.01  # a column with a larger share of cells that are not numbers is text
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
NOT_A_NUMBER = (
    "is not a number: correct it, or pass missing={!r} if it means that there is no value"
)
BUFFER = 2**20  # bytes of each column of a Parquet file that is read in pieces
MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
NEW_WORDS = 6  # of a column, for a message


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    features: pd.DataFrame
    lines: Lines  # of the rows in `features`, as in `Table.rows`
    bad: list[BadRow]  # faults, also of rows that are not in `features`
    kept: dict[int, tuple[str, ...]]  # line -> cells of further columns


@dataclass(frozen=True, eq=False)
class Rows:
    """Typed rows of a table.

    Text of CSV files becomes categories. Their numbers become float64, or the smallest integers
    that hold them.
    """

    opened: Any  # as returned by `opened_source`
    kinds: Kinds
    gaps: Sequence[str]  # words that mean "no value"
    keep: Sequence[str] = ()  # further columns, to be kept as text
    most_rows: int | None = None  # of a piece; None for all

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in order."""
        for cells, lines, faults in self._batches():
            text = [["" if c is None else str(c) for c in cells[n].to_pylist()] for n in self.keep]
            columns, bad = {}, faults
            for name, kind in self.kinds.items():
                columns[name], is_odd, words = self._typed(name, cells.pop(name), kind)
                bad += bad_rows(is_odd, lines, name, words, NOT_A_NUMBER)
            index = getattr(self.opened, "index", range(len(lines)))
            kept = zip(lines.tolist(), zip(*text, strict=True), strict=bool(text))
            yield Piece(pd.DataFrame(columns, index, copy=False), lines, bad, dict(kept))

    def _batches(self) -> Iterator[Batch]:
        names, most_rows = list(dict.fromkeys([*self.kinds, *self.keep])), self.most_rows
        if isinstance(self.opened, pd.DataFrame):
            cells = {name: self.opened[name] for name in names}
            yield cells, np.arange(len(self.opened)), []
        elif isinstance(self.opened, CsvFile):
            batches = self.opened.batches(names)
            yield from _joined(batches) if most_rows is None else _sliced(batches, most_rows)
        else:
            with source.parquet_file(self.opened, BUFFER if most_rows else 0) as file:
                start, whole = 0, (file.read(columns=names) for _ in range(1))
                for part in file.iter_batches(most_rows, columns=names) if most_rows else whole:
                    lines = np.arange(start, start + len(part))
                    start += len(part)
                    yield dict(zip(part.schema.names, part.columns, strict=True)), lines, []

    def _typed(self, name: str, cells: Any, kind: bool | None) -> tuple["pd.Series[Any]", Any, Any]:
        """Convert a column; also return which cells should be numbers and are not, and all cells.

        Text of a typed table becomes numbers if it must, or if it has words that mean "no value"
        and all other cells are numbers.
        """
        if isinstance(self.opened, CsvFile):
            return *self._typed_text(cells, kind), cells
        if isinstance(self.opened, Path):
            cells = _as_series(name, cells)
        is_number = pd.api.types.is_numeric_dtype(cells)
        if self.gaps:
            numbers = [number for number in map(source.number_of, self.gaps) if number is not None]
            words = (isinstance(cell, str) and cell in self.gaps for cell in cells)
            is_gap = cells.isin(numbers).to_numpy() if is_number else np.array([*words])
            if is_gap.any():
                is_integer = pd.api.types.is_integer_dtype(cells)
                cells = (cells.astype("Int64") if is_integer else cells).mask(is_gap)
                if kind is None and all(source.is_amount(str(cell)) for cell in cells.dropna()):
                    cells = pd.to_numeric(cells)
        if kind is not False or is_number:
            return cells, (), None
        refuse_lists(cells.to_frame(name), "write it as in training")
        cells = cells.astype(object)  # dates would become numbers
        column = pd.to_numeric(cells, errors="coerce").astype("float64")
        return column, column.isna() & cells.notna(), cells.to_numpy()

    def _typed_text(self, text: pa.ChunkedArray, kind: bool | None) -> tuple["pd.Series[Any]", Any]:
        none, is_odd = pa.scalar(None, pa.string()), np.empty(0, dtype=bool)
        text = digits = pc.if_else(pc.is_in(text, pa.array(self.gaps, pa.string())), none, text)
        if kind:
            return text.dictionary_encode().to_pandas(), is_odd
        if self.opened.decimal == ",":
            for mark, other in (".\0", ",.", "\0,"):
                digits = pc.replace_substring(digits, mark, other)
        is_code = pc.match_substring_regex(digits, source.LEADING_ZERO)
        try:
            numbers = digits.cast(pa.float64())
        except pa.ArrowInvalid:
            is_number = pc.match_substring_regex(digits, NUMBER)
            is_odd = pc.invert(is_number).fill_null(pa.scalar(value=False)).to_numpy()
            digits = pc.if_else(is_number, digits, none)
            numbers = digits.cast(pa.float64())
        many = is_odd.sum() > ODD_CELLS * (len(text) - text.null_count)
        if kind is None and (many or pc.any(is_code).as_py()):
            return text.dictionary_encode().to_pandas(), is_odd[:0]
        is_integer = pc.all(pc.equal(numbers, pc.round(numbers)), min_count=0).as_py()
        if is_integer and not is_odd.any():
            try:
                integers = digits.cast(pa.int64())  # from the text: float64 loses long integers
                types = {pa.int64(): pd.Int64Dtype()}.get if integers.null_count else None
                column = integers.to_pandas(types_mapper=types)
                return pd.to_numeric(column, downcast="integer"), is_odd
            except pa.ArrowInvalid:  # 1e3 or 5.0
                pass
        return numbers.to_pandas(), is_odd


def _as_series(name: str, cells: Any) -> "pd.Series[Any]":
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid as error:
        fault = f"Column {name!r} holds text that is not UTF-8, or is damaged"
        raise InputError(f"{fault}. Save it again as UTF-8.") from error
    # nested cells as Python lists would take several times the memory
    types = {cells.type: pd.ArrowDtype(cells.type)} if pa.types.is_nested(cells.type) else {}
    series: pd.Series[Any] = cells.to_pandas(types_mapper=types.get)
    return series


def _joined(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield all rows as one batch, or nothing if there are none."""
    if parts := list(batches):
        batches_of_cells, lines, bad = zip(*parts, strict=True)
        cells = {}
        for name in [*batches_of_cells[0]]:
            chunks = chain(*(batch.pop(name).chunks for batch in batches_of_cells))
            cells[name] = pa.chunked_array(chunks, pa.string())
        yield cells, np.concatenate(lines), [*chain(*bad)]


def _sliced(batches: Iterator[Batch], most_rows: int) -> Iterator[Batch]:
    """Yield the rows in their order, at most so many at a time, each with its faults."""
    for cells, lines, bad in batches:
        begin = 0.0
        for start in range(0, max(1, len(lines)), most_rows):
            stop = start + most_rows
            end = lines[stop] if stop < len(lines) else np.inf
            here = [fault for fault in bad if begin <= fault.line < end]
            part = {name: column[start:stop] for name, column in cells.items()}
            yield part, lines[start:stop], here
            begin = end


def refuse_lists(features: pd.DataFrame, remedy: str) -> None:
    """Raise an error if a cell holds several values: such cells cannot be compared or sorted."""
    for name, column in features.items():
        nested = column.dtype == object or "<" in str(column.dtype)  # list<..>, struct<..>
        if nested and any(isinstance(cell, (*SETS, dict)) for cell in column):
            raise InputError(f"Column {name!r} holds lists, which are not features: {remedy}.")


def too_large_cells(frame: pd.DataFrame, lines: Lines, most: float = np.inf) -> list[BadRow]:
    """Return a fault for each number that is infinite or larger than `most`."""
    bad = []
    reason = f"is beyond {most:.1e}: correct it, or write the column in a larger unit"
    for name, column in frame.items():
        if pd.api.types.is_float_dtype(column):
            cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
            is_infinite = np.isinf(cells)
            bad += bad_rows(is_infinite, lines, name, cells, "is infinite")
            bad += bad_rows((np.abs(cells) > most) & ~is_infinite, lines, name, cells, reason)
    return bad


@dataclass(frozen=True)
class Schema:
    """The columns that a model was fitted with, and how its table was read."""

    words: Mapping[str, tuple[str, ...] | None]  # of each feature; None for numbers
    filled: frozenset[str] = frozenset()  # numbers that may be missing
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(cls, features: "Features", names: Sequence[str], reading: Any = None) -> Self:
        """Make a schema from a model file; `reading` is a `Reading` in JSON."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), Reading.from_json(reading or {}))


@dataclass(eq=False)
class NewWords:
    """Words in a column that were not in the training table, in the pieces read so far."""

    rows: int = 0  # rows without faults that have such a word
    words: list[str] = field(default_factory=list)  # the first few
    alone: bool = True  # no cell holds a word of the training table


@dataclass(frozen=True, eq=False)
class TableInPieces:
    """A table file that is read once, from beginning to end."""

    path: Path
    source: Any  # as returned by `opened_source`
    names: list[str]
    schema: Schema
    gaps: tuple[str, ...]  # words that mean "no value"
    new_words: dict[str, NewWords]  # by column; updated with each piece

    @classmethod
    def opened(cls, path: Path, schema: Schema, requested: Reading | None = None) -> Self:
        """Open a file; `requested` overrides how the training table was read."""
        requested = requested or Reading()
        reading = requested.after(schema.reading)
        file = source.opened_source(path, requested, reading)
        names = source.names_in(file)
        if missing := [name for name in schema.words if name not in names]:
            others = [repr(name) for name in names if name not in schema.words]
            which = "this column" if len(missing) == 1 else "these columns"
            lacks = f"{path} lacks {some_of(map(repr, missing))}: the model was fitted with"
            has = f"It has {some_of(others) or 'nothing'} besides"
            raise InputError(f"{lacks} {which}. {has}. Rename or add columns.")
        gaps = (*(source.GAPS if isinstance(file, CsvFile) else ()), *reading.missing)
        new = {name: NewWords() for name, words in schema.words.items() if words is not None}
        return cls(path, file, names, schema, gaps, new)

    @property
    def where(self) -> str:
        """The unit of `Piece.lines`: "line" or "row"."""
        return "line" if isinstance(self.source, CsvFile) else "row"

    @property
    def new(self) -> list[str]:
        """Columns that the training table did not have."""
        known = {*self.schema.words, *self.schema.reading.left_out}
        return [name for name in self.names if name not in known]

    def pieces(self, keep: Sequence[str] = (), most_rows: int = MOST_ROWS) -> Iterator[Piece]:
        """Yield all rows in order. Words that training did not see become gaps."""
        for name in keep:
            if name not in self.names:
                raise InputError(f"There is {no_column(name, self.names)}")
        refuse_equal_names(self.names, {*self.schema.words, *keep})
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(self.names)))
        kinds = {name: words is not None for name, words in self.schema.words.items()}
        required = [name for name in kinds if not kinds[name] and name not in self.schema.filled]
        is_empty = True
        for piece in Rows(self.source, kinds, self.gaps, keep, most_rows).pieces():
            is_empty, (frame, lines, bad, kept) = False, piece
            refuse_lists(frame, "write it as in training")
            is_new = {name: self._replace_new_words(frame, name) for name in self.new_words}
            bad += too_large_cells(frame, lines)
            is_bad = np.isin(lines, [fault.line for fault in bad])
            for name in required:
                is_gap = frame[name].isna() & ~is_bad
                bad += bad_rows(is_gap, lines, name, None, "is missing, and never was in training")
            is_good = ~np.isin(lines, [fault.line for fault in bad])
            for name, has_new in is_new.items():
                self.new_words[name].rows += int(has_new[is_good].sum())
            yield Piece(frame.loc[is_good], lines[is_good], sorted(bad), kept)
        if is_empty:
            raise InputError(f"{self.path} has columns, but no rows.")
        for name, new in self.new_words.items():
            if new.alone and len(new.words) > 1:  # a single new word may be correct
                words = some_of(map(repr, new.words))
                known = some_of(map(repr, self.schema.words[name] or ()))
                fault = f"Column {name!r} holds no word that training saw: {words}"
                raise InputError(f"{fault} instead of {known}. Write them as in training.")

    def _replace_new_words(self, frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
        """Replace new words by gaps, note them, and return the rows (n,) that had one."""
        words, new = self.schema.words[name] or (), self.new_words[name]
        cells = frame[name].astype("category").cat
        values = [str(cell) for cell in cells.categories]
        position = {word: number for number, word in enumerate(words)}
        # a gap turns integers into floats: "1.0" is "1"
        known = [position.get(text, position.get(text.removesuffix(".0"), -1)) for text in values]
        codes = np.array([*known, -1])[cells.codes]
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(words))
        is_new: NDArray[np.bool_] = (cells.codes.to_numpy() >= 0) & (codes < 0)
        others = (values[code] for code in np.unique(cells.codes[is_new]))
        new.words = list(dict.fromkeys([*new.words, *others]))[:NEW_WORDS]
        new.alone &= not (codes >= 0).any()
        return is_new
