"""Read columns of CSV files, Parquet files and DataFrames."""

import csv
import io
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile

from robustpll._files import delimiter_of
from robustpll.datasets.bounded import unpacked_table
from robustpll.errors import InputError, ModelFileError, counted, some_of
from robustpll.labels.parsing import SETS, is_frame

PARQUET = (".parquet", ".pq")
EXPORTS = (".json", ".jsonl")
GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>")  # cells without a value
LEADING_ZERO = r"^[+-]?0[0-9]+$"  # a code: as a number, 00102 would lose its zeros
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
NOT_A_NUMBER = "is not a number: correct it, or name it in `missing` if it means no value"
LARGEST = float(np.finfo(np.float32).max)  # networks compute in float32
TOO_LARGE = f"is infinite or beyond {LARGEST:.1e}: correct it, or write the column in a larger unit"
ODD_CELLS = 0.01  # a column with a larger share of cells that are not numbers is text
CHUNK_CELLS = 2**17  # of a CSV file, to parse at once
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of such a file
SPREADSHEETS = (b"PK\3\4", b"\xd0\xcf\x11\xe0")  # .xlsx and .xls begin so
LONGEST_CELL = 2**26  # characters; the default of the csv module is too short for large sets
LONGEST_LINE = 2**27  # characters; a longer line would fill the memory
BUFFER = 2**20  # bytes of each column of a Parquet file that is read in pieces
SHOWN = 200  # characters of a cell in a list of bad rows
FORMULA = (*"=+-@＝＋－＠", "\t", "\r", "\n")  # a spreadsheet may compute cells that begin so

Lines = NDArray[np.int64]
Typed = tuple["pd.Series[Any]", Any, Any]  # a column, which cells are no numbers, and all cells


@dataclass(frozen=True)
class Reading:
    """How a table was read; `read_table(..., like=table)` and `predict` repeat it."""

    left_out: tuple[str, ...] = ()  # columns that are not features
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    encoding: str | None = None  # None: not passed; the same for the next four
    delimiter: str | None = None
    decimal: str | None = None
    question: str | None = None  # of an export of a labelling tool
    duplicates: str | None = None
    image_input: str | None = None  # column of pictures, which are the only features
    text: tuple[str, ...] = ()  # columns of texts

    @property
    def csv_format(self) -> dict[str, str]:
        """Arguments of pandas for further CSV files, so that the same spreadsheet opens them."""
        if self.delimiter is None:
            return {}
        return {"sep": self.delimiter, "decimal": self.decimal or "."}

    def after(self, before: Self) -> Self:
        """Return how a second table is read: these options add to, or replace, the first ones."""
        merged = asdict(before)
        for name, value in asdict(self).items():
            if value:
                merged[name] = value if isinstance(value, str) else several((*merged[name], *value))
        return type(self)(**merged)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Check what a model file says, without fields that a later version may have added."""
        known: dict[str, Any] = {}
        for option in fields(cls):
            value = values.get(option.name, option.default) if isinstance(values, dict) else 0
            texts = value if isinstance(option.default, tuple) else [value or ""]
            if not isinstance(texts, list | tuple) or any(not isinstance(t, str) for t in texts):
                shown = some_of([repr(values)])
                raise ModelFileError(f"The model file says that its table was read as {shown}.")
            known[option.name] = tuple(value) if isinstance(value, list) else value
        return cls(**known)


class BadRow(NamedTuple):
    """A fault of a row."""

    line: int  # of a CSV file, whose header is line 1; otherwise the row number, from 0
    column: str  # "" if the fault is not in a single column
    value: str
    reason: str

    def __str__(self) -> str:
        cell = f"column {self.column!r}: {self.value!r} " if self.column else ""
        return f"{cell}{self.reason}"


def bad_rows(is_bad: Any, lines: Lines, name: Any, cells: Any, reason: str) -> list[BadRow]:
    """Return a fault for each bad row of a column."""
    bad = []
    for row in np.flatnonzero(is_bad):
        value = "" if cells is None else str(cells[row])[:SHOWN]
        bad.append(BadRow(int(lines[row]), str(name), value, reason))
    return bad


class Batch(NamedTuple):
    """Consecutive rows of a table."""

    cells: Any  # columns by name, as in the file: pyarrow's Table or RecordBatch, or a DataFrame
    lines: Lines
    bad: list[BadRow]  # faults, also of rows that are not in `cells`


@dataclass(frozen=True, eq=False)
class Source:
    """A DataFrame to read from; subclasses read files."""

    content: Any  # a DataFrame, or the path of a file
    reading: Reading
    unit: ClassVar[str] = "row"  # of `Batch.lines`
    left_out: ClassVar[tuple[str, ...]] = ()  # columns that never are features

    @property
    def title(self) -> str:
        return "The DataFrame" if is_frame(self.content) else str(self.content)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Words that mean "no value"."""
        return (*(GAPS if self.unit == "line" else ()), *self.reading.missing)

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.content.columns)

    @cached_property
    def seen(self) -> set[Any]:
        """The words for "no value" that occurred so far."""
        return set()

    @cached_property
    def gaps_of(self) -> defaultdict[str, set[str]]:
        """The words for "no value" that occurred in a column of text of a CSV file."""
        return defaultdict(set)

    def batches(self, names: Sequence[str], most_rows: int | None = None) -> Iterator[Batch]:
        """Yield these columns in batches of at most `most_rows` rows, or all rows in one."""
        yield Batch(self.content, np.arange(len(self.content)), [])

    def typed(
        self,
        kinds: Mapping[str, bool | None],
        copied: Sequence[str] = (),
        most_rows: int | None = None,
    ) -> Iterator[tuple[pd.DataFrame, Batch]]:
        """Yield typed columns, and batches with faults and with the columns `copied` of a file.

        The kind of a column is True for text, False for numbers, and None to find out. Text of CSV
        files becomes categories; numbers become float64, or the smallest integers that hold them.
        """
        rows, names = 0, list(dict.fromkeys([*kinds, *copied]))
        for cells, lines, bad in self.batches(names, most_rows):
            columns: dict[str, Any] = {name: cells[name] for name in kinds}
            batch = Batch(cells.select([*copied]) if copied else None, lines, bad)
            del cells  # each column of text is freed when it is converted
            for name, kind in kinds.items():
                if kind and self.unit == "line":
                    is_gap = pc.is_in(columns[name], pa.array(GAPS))
                    self.gaps_of[name].update(columns[name].filter(is_gap).unique().to_pylist())
                columns[name], is_odd, words = self._typed(columns[name], kind)
                faults = bad_rows(is_odd, lines, name, words, NOT_A_NUMBER)
                bad.extend(map(self._explained, faults))
            index = getattr(self.content, "index", range(len(lines)))
            yield pd.DataFrame(columns, index, copy=False), batch
            rows += len(lines) + len(bad)
        if not rows:
            raise InputError(f"{self.title} has columns, but no rows.")

    def _explained(self, fault: BadRow) -> BadRow:
        """Return a fault of a cell, with advice if another decimal sign makes it a number."""
        sign = "." if self.reading.decimal == "," else ","
        if self.unit != "line" or number_of(fault.value.replace(sign, ".")) is None:
            return fault
        advice = f"; pass decimal={sign!r} if this is its decimal sign"
        return fault._replace(reason=fault.reason + advice)

    def as_read(self, cells: pa.Table) -> pa.Table:
        """Return cells with their types; of CSV, numbers where a column has no other cells."""
        if self.unit != "line":
            return cells
        columns = {}
        for name in cells.column_names:
            column, is_odd, _ = self._typed(cells[name], None)
            if np.any(is_odd):  # a few words among numbers
                column, *_ = self._typed(cells[name], kind=True)
            is_text = isinstance(column.dtype, pd.CategoricalDtype)
            columns[name] = pa.array(column.astype(object) if is_text else column, from_pandas=True)
        return pa.table(columns)

    def texts(self, cells: Any) -> list[str]:
        """Return cells as text, those of CSV files without blanks around them."""
        words = ("" if cell is None else str(cell) for cell in cells.to_pylist())
        return [word.strip() if self.unit == "line" else word for word in words]

    def _typed(self, cells: Any, kind: bool | None) -> Typed:
        """Convert a column. Text becomes numbers if it must, or if all but the gaps are numbers."""
        cells = cells if isinstance(cells, pd.Series) else cells.to_pandas()
        gaps = {*self.gaps, *map(number_of, self.gaps)} - {None}
        is_gap = [isinstance(cell, Hashable) and cell in gaps for cell in cells] if gaps else ()
        if any(is_gap):
            self.seen.update(cells[np.array(is_gap)])
            is_integer = pd.api.types.is_integer_dtype(cells)
            cells = (cells.astype("Int64") if is_integer else cells).mask(np.array(is_gap))
            words = [str(cell) for cell in cells.dropna()]
            is_code = any(re.match(LEADING_ZERO, word) for word in words)
            if kind is None and not is_code and all(re.match(NUMBER, word) for word in words):
                cells = pd.to_numeric(cells)
        if kind is not False or pd.api.types.is_numeric_dtype(cells):
            return cells, (), None
        cells = cells.astype(object)  # dates would become numbers
        refuse_lists(cells)
        column = pd.to_numeric(cells, errors="coerce").astype("float64")
        return column, column.isna() & cells.notna(), cells.to_numpy()


class ParquetTable(Source):
    """A Parquet file to read from."""

    @cached_property
    def names(self) -> list[str]:
        with parquet_file(self.content) as file:
            names = file.schema_arrow.names
        return [name for name in names if not name.startswith("__index_level_")]  # pandas' index

    def batches(self, names: Sequence[str], most_rows: int | None = None) -> Iterator[Batch]:
        with parquet_file(self.content, BUFFER if most_rows else 0) as file:
            start, whole = 0, (file.read(columns=names) for _ in range(1))
            for cells in file.iter_batches(most_rows, columns=names) if most_rows else whole:
                cells.validate(full=True)
                yield Batch(cells, np.arange(start, start + len(cells)), [])
                start += len(cells)


@contextmanager
def parquet_file(path: Path, buffer: int = 0) -> Iterator[ParquetFile]:
    """Open a Parquet file; without a `buffer` (bytes) a whole row group is read at once."""
    try:
        with ParquetFile(path, buffer_size=buffer, pre_buffer=not buffer) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        fault = f"{path} is not a Parquet file, is damaged, or has text that is not UTF-8"
        raise InputError(f"{fault} ({str(error).splitlines()[0]}).") from error


class CsvFile(Source):
    """A CSV file; csv.reader splits its lines, so that faults have their line."""

    unit: ClassVar[str] = "line"

    @cached_property
    def delimiter(self) -> str:
        usual = "\t" if _ending(self.content) == ".tsv" else ","
        delimiter = usual if self.reading.delimiter is None else self.reading.delimiter
        if len(delimiter) != 1 or delimiter in '"\r\n\0':
            raise InputError(f"delimiter={delimiter!r}: it must be one character such as ';'.")
        return delimiter

    @cached_property
    def names(self) -> list[str]:
        with self._lines() as lines:
            _, _, cells, fault = next(self._records(lines), (1, 1, [], "is empty"))
        if fault:
            raise InputError(f"{self.title} {fault}. Its first line must name the columns.")
        if mark := re.fullmatch(r'"?sep=(.)"?', self.delimiter.join(cells)):
            fault = f"begins with {mark[0]!r}, a mark of Excel, and not with the names of columns"
            remedy = f"Delete this line, and pass delimiter={mark[1]!r}"
            raise InputError(f"{self.title} {fault}. {remedy}.")
        names = [name.strip() for name in cells]
        if len(names) == 1 and (others := [mark for mark in ",;\t" if mark in names[0]]):
            seems = f"{self.title} has one column {names[0]!r}, and seems to be delimited by"
            raise InputError(f"{seems} {others[0]!r}. Pass delimiter={others[0]!r}.")
        return names

    def detected(self) -> Self:
        """Return the file with the delimiter of its first line, if it has not that of `reading`."""
        with self._lines() as lines:
            head = next(lines, "")
        own = self.delimiter if self.delimiter in head else delimiter_of(head)
        return replace(self, reading=replace(self.reading, delimiter=own))

    def batches(self, names: Sequence[str], most_rows: int | None = None) -> Iterator[Batch]:
        chunks = self._chunks(names, most_rows or max(1, CHUNK_CELLS // len(self.names)))
        if most_rows:
            yield from chunks
        elif parts := [*zip(*chunks, strict=True)]:
            cells, lines, bad = parts
            yield Batch(pa.concat_tables(cells), np.concatenate(lines), [*chain(*bad)])

    def _chunks(self, names: Sequence[str], size: int) -> Iterator[Batch]:
        """Yield so many rows at a time, as text without blanks before a cell."""
        width, position = len(self.names), {name: n for n, name in enumerate(self.names)}
        with self._lines() as text:
            records = self._records(text)
            next(records)  # the names
            while part := [*islice(records, size)]:
                rows, lines, bad = list[list[str]](), list[int](), list[BadRow]()
                for line, last, cells, odd_quotes in part:
                    fault = odd_quotes
                    if len(cells) != width and not fault:
                        fault = f"has {counted(len(cells), 'cell')} instead of {width}"
                    if last > line and self._holds_rows(cells):
                        fault = (
                            f"has whole rows in a cell: lines {line} to {last} have an odd quote"
                        )
                    if fault:
                        bad.append(BadRow(line, "", self.delimiter.join(cells)[:SHOWN], fault))
                    else:
                        rows.append(cells)
                        lines.append(line)
                places = (position[name] for name in names)
                columns = [pa.array([row[n] for row in rows], pa.string()) for n in places]
                yield Batch(pa.table(columns, [*names]), np.array(lines, dtype=np.int64), bad)

    def _holds_rows(self, cells: list[str]) -> bool:
        """Whether the lines of a row look like rows themselves, and more than two of two cells."""
        parts, width = re.split(r"\r\n|\r|\n", self.delimiter.join(cells)), len(self.names)
        is_row = [part.count(self.delimiter) == width - 1 for part in parts]
        return len(parts) > 1 and len(parts) + width > 5 and all(is_row)

    def _records(self, lines: Iterable[str]) -> Iterator[tuple[int, int, list[str], str]]:
        """Yield first and last line, cells and fault of each row."""
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        while True:
            line, cells, fault = reader.line_num + 1, list[str](), ""
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fault = f"has quotes that are not paired ({error})"
                if reader.line_num > line:  # nobody knows how many rows are in the quotes
                    begin = f"{self.title}: a quoted cell begins in line {line}"
                    raise InputError(f"{begin} and does not end there. Close it.") from error
            if cells or fault:  # not a blank line
                yield line, reader.line_num, cells, fault

    def _bounded(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if len(line) == LONGEST_LINE:
                raise InputError(f"{self.title} has a line of {len(line):,} characters or more.")
            yield line

    @contextmanager
    def _lines(self) -> Iterator[Iterator[str]]:
        """Open the file and give its lines; explain what is wrong with its bytes."""
        path, encoding = self.content, self.reading.encoding or "utf-8"
        if encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"  # skips a BOM
        limit = csv.field_size_limit(LONGEST_CELL)
        try:
            with path.open("rb") as raw:
                if raw.read(4) in SPREADSHEETS:
                    fault = "is a spreadsheet or an archive, whatever its name ends in"
                    raise InputError(f"{path} {fault}. Open it, and save it as CSV UTF-8.")
            opened: Any = unpacked_table(path) if path.suffix.lower() == ".gz" else path.open("rb")
            with opened as raw, io.TextIOWrapper(raw, encoding, newline="") as text:
                yield self._bounded(iter(partial(text.readline, LONGEST_LINE), ""))
        except (LookupError, UnicodeError) as error:
            with path.open("rb") as raw:
                likely = "utf-16" if raw.read(2) in UTF16 else "cp1252"
            remedy = f"Save it as CSV UTF-8, or pass its encoding, such as encoding='{likely}'"
            name = encoding.removesuffix("-sig")
            raise InputError(f"{path} is not text in {name} ({error}). {remedy}.") from error
        except (EOFError, OSError, zlib.error) as error:
            remedy = "Rename it without .gz if it is plain text"
            raise InputError(f"{path} cannot be read ({error}). {remedy}.") from error
        finally:
            csv.field_size_limit(limit)

    def _typed(self, cells: Any, kind: bool | None) -> Typed:
        none, cells = pa.scalar(None, pa.string()), pc.utf8_trim_whitespace(cells)
        is_gap = pc.is_in(cells, pa.array(self.gaps, pa.string()))
        self.seen.update(cells.filter(is_gap).unique().to_pylist() if self.reading.missing else ())
        text = digits = pc.if_else(is_gap, none, cells)
        if kind or (kind is None and pc.any(pc.match_substring_regex(text, LEADING_ZERO)).as_py()):
            return text.dictionary_encode().to_pandas(), (), None
        if self.reading.decimal == ",":
            for mark, other in (".\0", ",.", "\0,"):
                digits = pc.replace_substring(digits, mark, other)
        try:
            numbers = digits.cast(pa.float64())
        except pa.ArrowInvalid:
            is_number = pc.match_substring_regex(digits, NUMBER)
            is_odd = pc.invert(is_number).fill_null(pa.scalar(value=False)).to_numpy()
            if kind is None and is_odd.sum() > ODD_CELLS * (len(text) - text.null_count):
                return text.dictionary_encode().to_pandas(), (), None
            numbers = pc.if_else(is_number, digits, none).cast(pa.float64())
            return numbers.to_pandas(), is_odd, cells
        with suppress(pa.ArrowInvalid):  # 1e3 and 5.0 are floats
            integers = digits.cast(pa.int64())  # from the text: float64 loses long integers
            types = {pa.int64(): pd.Int64Dtype()}.get if integers.null_count else None
            column = integers.to_pandas(types_mapper=types)
            return pd.to_numeric(column, downcast="integer"), (), None
        return numbers.to_pandas(), (), None


FILES = {".csv": CsvFile, ".tsv": CsvFile} | dict.fromkeys(PARQUET, ParquetTable)


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def opened_source(source: Any, requested: Reading, before: Reading | None = None) -> Source:
    """Check the source; it is read as requested, and otherwise like a table `before`."""
    kind: type[Source] = Source
    if isinstance(source, str | PathLike):
        source = Path(source)
        if not source.is_file():
            raise InputError(f"There is no file {source}. Check the path and the current folder.")
        if source.suffix.lower() in EXPORTS:
            from robustpll.tables.exports import ExportFile

            kind = ExportFile
        elif _ending(source) not in FILES:
            remedy = "tables end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .pq, .json or .jsonl"
            advice = "Save a spreadsheet as CSV UTF-8; rename other files"
            raise InputError(f"{source} ends in {source.suffix!r}: {remedy}. {advice}.")
        else:
            kind = FILES[_ending(source)]
    elif not is_frame(source):
        raise InputError(f"source must be a path or a DataFrame; got a {type(source).__name__}.")
    format_options = (requested.encoding, requested.delimiter, requested.decimal)
    if kind is not CsvFile and format_options != (None, None, None):
        raise InputError("encoding, delimiter and decimal are for CSV files. Do not pass them.")
    return kind(source, requested.after(before) if before else requested)


def several(names: Any) -> tuple[str, ...]:
    """Return distinct names as a tuple, from a name, several names or None."""
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        return (names,)  # a DataFrame may number its columns
    return tuple(dict.fromkeys(names or ()))


def check_names(
    names: Sequence[str], used: Iterable[Any], argument: str = "", item: str | None = None
) -> None:
    """Raise an error if the table lacks one of the used names, or has it twice."""
    counts = Counter(names)
    for name in used:
        if not counts[name]:
            close = get_close_matches(str(name), map(str, names)) or names
            lack = f"`{argument}`: there is no" if argument else "There is no"
            remedy = " `item` must have one name in both files: rename it in one." * (item == name)
            raise InputError(
                f"{lack} column {name!r}. There is {some_of(map(repr, close))}.{remedy}"
            )
        if counts[name] > 1:
            raise InputError(f"Several columns are named {name!r}. Rename all but one.")


def number_of(word: str) -> float | None:
    """Return the number that a word stands for, or None."""
    return float(word) if re.match(NUMBER, word) else None


def refuse_lists(column: "pd.Series[Any]") -> None:
    """Raise an error if a cell holds several values: such cells cannot be compared or sorted."""
    is_nested = column.dtype == object or "<" in str(column.dtype)  # list<..>, struct<..>
    if is_nested and any(isinstance(cell, (*SETS, dict)) for cell in column):
        remedy = "Write one value in each cell, or leave the column out (`ignore`)"
        raise InputError(f"Column {column.name!r} holds lists, not features. {remedy}.")


def feature_faults(frame: pd.DataFrame, lines: Lines) -> list[BadRow]:
    """Return a fault for each number that is infinite or too large; refuse lists."""
    bad = []
    for name, column in frame.items():
        refuse_lists(column)
        if pd.api.types.is_float_dtype(column):
            cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
            bad += bad_rows(np.abs(cells) > LARGEST, lines, name, cells, TOO_LARGE)
    return bad


def safe_cell(cell: Any, decimal: str = ".") -> Any:
    """Put an apostrophe before a text that a spreadsheet might compute, but not before numbers.

    >>> safe_cell("=HYPERLINK(A1)"), safe_cell("-1"), safe_cell("cat"), safe_cell("'=A1")
    ("'=HYPERLINK(A1)", '-1', 'cat', "''=A1")
    """
    if not isinstance(cell, str) or len(cell) < 2 or not cell.lstrip("'").startswith(FORMULA):
        return cell
    number = cell.replace(".", "").replace(",", ".") if decimal == "," else cell
    return f"'{cell}" if number_of(number) is None else cell


class CsvText(io.StringIO):
    r"""Text of a `csv.writer`, with rows that end in "\n".

    The writer must write "\r\n": otherwise Python 3.11 does not quote cells with "\r".
    """

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def safe_csv(frame: pd.DataFrame, **options: Any) -> str:
    """Return a frame as CSV that is safe to open in a spreadsheet; `options` are for pandas."""
    text = CsvText()
    frame.map(safe_cell).to_csv(text, lineterminator="\r\n", **options)
    return text.getvalue()
