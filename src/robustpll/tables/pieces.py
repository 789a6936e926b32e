"""Read typed rows of CSV files, Parquet files and DataFrames, all at once or in pieces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robustpll.errors import InputError, ModelFileError, some_of
from robustpll.labels.parsing import SETS
from robustpll.tables import source
from robustpll.tables.columns import Reading, no_column, refuse_equal_names
from robustpll.tables.source import SHOWN, BadRow, Batch, CsvFile

if TYPE_CHECKING:
    from robustpll.estimator.features import Features

Kinds = Mapping[str, bool | None]  # columns: True for text, False for numbers, None to find out
ODD_CELLS = 0.01  # a column with a larger share of cells that are not numbers is text
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
BUFFER = 2**20  # bytes of each column of a Parquet file that is read in pieces
MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
NEW_WORDS = 6  # of a column, for a message


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    features: pd.DataFrame
    lines: NDArray[np.int64]  # of the rows in `features`, as in `Table.rows`
    bad: list[BadRow]  # faults, also of rows that are not in `features`
    kept: dict[int, tuple[str, ...]]  # line -> cells of further columns


def read_rows(
    opened: Any,
    kinds: Kinds,
    gaps: tuple[str, ...],
    *,
    keep: Sequence[str] = (),
    most_rows: int | None = None,
) -> Iterator[Piece]:
    """Yield at most `most_rows` rows at a time; all rows at once if it is None.

    Text of CSV files becomes categories. Their numbers become float64, or the smallest integers
    that hold them. `gaps` are words that mean "no value".
    """
    if isinstance(opened, CsvFile):
        batches = opened.batches(list(dict.fromkeys([*kinds, *keep])))
        for batch in _joined(batches) if most_rows is None else _sliced(batches, most_rows):
            text = [pc.utf8_trim_whitespace(batch.cells[name]).to_pylist() for name in keep]
            columns = _typed_columns(batch, kinds, gaps, opened.decimal)
            yield Piece(*columns, _by_line(batch.lines, text))
        return
    start = 0
    is_path = isinstance(opened, Path)
    parts = _parquet(opened, kinds, keep, most_rows) if is_path else [(opened[[*kinds]], [])]
    for frame, text in parts:
        lines = np.arange(start, start + len(frame))
        start += len(frame)
        yield Piece(*_with_gaps(frame, lines, kinds, gaps), _by_line(lines, text))


def _by_line(lines: NDArray[np.int64], text: Sequence[Sequence[str]]) -> dict[int, tuple[str, ...]]:
    return dict(zip(lines.tolist(), zip(*text, strict=True), strict=bool(text)))


def _joined(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield all rows as one batch, or nothing if there are none."""
    if parts := list(batches):
        cells = {}
        for name in [*parts[0].cells]:
            chunks = chain(*(part.cells.pop(name).chunks for part in parts))
            cells[name] = pa.chunked_array(chunks, pa.string())
        bad = chain(*(part.bad for part in parts))
        yield Batch(cells, np.concatenate([part.lines for part in parts]), list(bad))


def _sliced(batches: Iterator[Batch], most_rows: int) -> Iterator[Batch]:
    """Yield the rows in their order, at most so many at a time, each with its faults."""
    for cells, lines, bad in batches:
        begin = 0.0
        for start in range(0, max(1, len(lines)), most_rows):
            stop = start + most_rows
            end = lines[stop] if stop < len(lines) else np.inf
            here = [fault for fault in bad if begin <= fault.line < end]
            part = {name: column[start:stop] for name, column in cells.items()}
            yield Batch(part, lines[start:stop], here)
            begin = end


def _typed_columns(
    batch: Batch, kinds: Kinds, gaps: Sequence[str], decimal: str
) -> tuple[pd.DataFrame, NDArray[np.int64], list[BadRow]]:
    """Convert and free one column after the other."""
    columns, bad = {}, batch.bad
    for name, kind in kinds.items():
        text = batch.cells.pop(name)
        columns[name], odd = _typed(text, kind, gaps, decimal)
        for row in odd:
            word = text[row].as_py().strip()[:SHOWN]
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
    is_code = pc.match_substring_regex(digits, source.LEADING_ZERO)
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
    with source.parquet_file(path, 0 if most_rows is None else BUFFER) as file:
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
    numbers = [number for number in map(source.number_of, gaps) if number is not None]
    frame, bad = frame.copy(deep=False), list[BadRow]()
    for name, kind in kinds.items():
        cells, has_gaps = frame[name], False
        is_number = pd.api.types.is_numeric_dtype(cells)
        if gaps:
            words = (isinstance(cell, str) and cell in gaps for cell in cells)
            is_gap = cells.isin(numbers).to_numpy(dtype=bool) if is_number else np.array([*words])
            has_gaps = bool(is_gap.any())
        if has_gaps:
            is_integer = pd.api.types.is_integer_dtype(cells)
            cells = (cells.astype("Int64") if is_integer else cells).mask(is_gap)
        if kind is False and not is_number:
            refuse_lists(frame[[name]], "write it as in training")
            cells = cells.astype(object)  # dates would become numbers
            frame[name] = pd.to_numeric(cells, errors="coerce").astype("float64")
            for row in np.flatnonzero(frame[name].isna() & cells.notna()):
                value = str(cells.iloc[row])[:SHOWN]
                bad.append(BadRow(int(lines[row]), name, value, "is not a number"))
        elif has_gaps:
            is_text = kind or not all(source.is_amount(str(cell)) for cell in cells.dropna())
            frame[name] = cells if is_number or is_text else pd.to_numeric(cells)
    return frame, lines, bad


def refuse_lists(features: pd.DataFrame, remedy: str) -> None:
    """Raise an error if a cell holds several values: such cells cannot be compared or sorted."""
    for name, column in features.items():
        nested = column.dtype == object or "<" in str(column.dtype)  # list<..>, struct<..>
        if nested and any(isinstance(cell, (*SETS, dict)) for cell in column):
            raise InputError(f"Column {name!r} holds lists, which are not features: {remedy}.")


def too_large_cells(frame: pd.DataFrame, lines: NDArray[np.int64], most: float) -> list[BadRow]:
    """Return a fault for each number that is infinite or larger than `most`."""
    bad = []
    for name, column in frame.items():
        if pd.api.types.is_float_dtype(column):
            cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
            for row in np.flatnonzero(np.abs(cells) > most):
                reason = f"is beyond {most:.1e}: correct it, or write the column in a larger unit"
                reason = "is infinite" if np.isinf(cells[row]) else reason
                bad.append(BadRow(int(lines[row]), str(name), str(cells[row]), reason))
    return bad


@dataclass(frozen=True)
class Schema:
    """The columns that a model was fitted with, and how its table was read."""

    words: Mapping[str, tuple[str, ...] | None]  # of each feature; None for numbers
    filled: frozenset[str] = frozenset()  # numbers that may be missing
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(
        cls, features: "Features", names: Sequence[str], reading: Mapping[str, Any] | None = None
    ) -> Self:
        """Make a schema from a model file; `reading` is a `Reading` in JSON."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), reading_from_json(reading or {}))


def reading_from_json(values: Any) -> Reading:
    """Return a checked `Reading`, without fields that a later version may have added."""
    if not isinstance(values, Mapping):
        raise ModelFileError(f"The model file describes how its table was read as {values!r}.")
    known: dict[str, Any] = {}
    for option in fields(Reading):
        value = values.get(option.name, option.default)
        is_tuple = isinstance(option.default, tuple)
        texts = value if is_tuple else [value or ""]
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ModelFileError(f"The model file has {option.name}={value!r} for its table.")
        known[option.name] = tuple(value) if is_tuple else value
    return Reading(**known)


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
    source: CsvFile | Path
    names: list[str]
    schema: Schema
    gaps: tuple[str, ...]  # words that mean "no value"
    new_words: dict[str, NewWords]  # by column; updated with each piece

    @classmethod
    def opened(cls, path: Path, schema: Schema, requested: Reading | None = None) -> Self:
        """Open a file; `requested` overrides how the training table was read."""
        requested = requested or Reading()
        is_parquet = path.suffix.lower() in source.PARQUET
        before = Reading(missing=schema.reading.missing) if is_parquet else schema.reading
        reading = requested.after(before)
        file = source.opened_source(path, requested, reading)
        assert isinstance(file, CsvFile | Path)  # a path is not a DataFrame
        names = source.names_in(file)
        if missing := [name for name in schema.words if name not in names]:
            others = [name for name in names if name not in schema.words]
            raise InputError(_missing_columns(path, missing, others))
        new = {name: NewWords() for name, words in schema.words.items() if words is not None}
        gaps = (*(() if is_parquet else source.GAPS), *reading.missing)
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
        rows = read_rows(self.source, kinds, self.gaps, keep=keep, most_rows=most_rows)
        is_empty = True
        for frame, lines, faults, kept in rows:
            is_empty = False
            refuse_lists(frame, "write it as in training")
            is_new = {name: self._replace_new_words(frame, name) for name in self.new_words}
            bad = [*faults, *too_large_cells(frame, lines, np.finfo(np.float64).max)]
            is_bad = np.isin(lines, [fault.line for fault in bad])
            for name in [
                name for name in kinds if not kinds[name] and name not in self.schema.filled
            ]:
                gaps = lines[frame[name].isna().to_numpy() & ~is_bad].tolist()
                bad += [
                    BadRow(line, name, "", "is missing, and never was in training") for line in gaps
                ]
            is_good = ~np.isin(lines, [fault.line for fault in bad])
            for name, has_new in is_new.items():
                self.new_words[name].rows += int(has_new[is_good].sum())
            yield Piece(frame.loc[is_good], lines[is_good], sorted(bad), kept)
        if is_empty:
            raise InputError(f"{self.path} has columns, but no rows.")
        for name, new in self.new_words.items():
            if new.alone and len(new.words) > 1:  # a single new word may be correct
                raise InputError(
                    f"Column {name!r} holds no word that training saw: "
                    f"{some_of(map(repr, new.words))} instead of "
                    f"{some_of(map(repr, self.schema.words[name] or ()))}. Write the words as in "
                    "the training table."
                )

    def _replace_new_words(self, frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
        """Replace new words by gaps, note them, and return the rows (n,) that had one."""
        words, new = self.schema.words[name] or (), self.new_words[name]
        cells = frame[name].astype("category").cat
        values = [str(cell) for cell in cells.categories]
        position = {word: at for at, word in enumerate(words)}
        # a gap turns integers into floats: "1.0" is "1"
        known = [position.get(text, position.get(text.removesuffix(".0"), -1)) for text in values]
        codes = np.array([*known, -1])[cells.codes]
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(words))
        is_new: NDArray[np.bool_] = (cells.codes.to_numpy() >= 0) & (codes < 0)
        others = (values[code] for code in np.unique(cells.codes[is_new]))
        new.words = list(dict.fromkeys([*new.words, *others]))[:NEW_WORDS]
        new.alone &= not (codes >= 0).any()
        return is_new


def _missing_columns(path: Path, missing: list[str], others: list[str]) -> str:
    if len(others) == 1 and all(name in others[0] for name in missing):
        return (
            f"{path} has a single column {others[0]!r}, but the training table had several: pass "
            "the `delimiter` of this file."
        )
    close = get_close_matches(missing[0], others, n=1)
    has = f" It has {some_of(map(repr, others))} besides." if others else ""
    has = f" It has {close[0]!r}: rename it if it is the same." if close else has
    which = "this column" if len(missing) == 1 else "these columns"
    return f"{path} lacks {some_of(map(repr, missing))}: the model was fitted with {which}.{has}"
