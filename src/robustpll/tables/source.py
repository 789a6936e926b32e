"""Open table files, and read the text of CSV files."""

import codecs
import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv
from pyarrow.parquet import ParquetFile

from robustpll.datasets.bounded import unpacked_table
from robustpll.errors import InputError
from robustpll.labels.parsing import is_frame
from robustpll.tables.columns import Reading

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>")  # cells without a value
LEADING_ZERO = r"^[+-]?0[0-9]+$"  # a code: as a number, 00102 would lose its zeros
CHUNK = 2**20  # characters to parse at once
CHUNK_PER_COLUMN = 2**11  # at least: a chunk costs a kilobyte per column, even if it is short
LONGEST_CELL = 2**26  # characters; the default of the csv module is too short for large sets
LONGEST_LINE = 2**27  # characters; a longer line would fill the memory
SHOWN = 200  # characters of a cell in a list of bad rows
FORMULA = (*"=+-@＝＋－＠", "\t", "\r", "\n")  # a spreadsheet may compute cells that begin so
Lines = NDArray[np.int64]
Batch = tuple[dict[str, pa.ChunkedArray], Lines, "list[BadRow]"]  # cells by column, as text


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
    """Return a fault for each bad row of a column; the value takes the place of {} in `reason`."""
    bad = []
    for row in np.flatnonzero(is_bad):
        value = "" if cells is None else str(cells[row])[:SHOWN]
        bad.append(BadRow(int(lines[row]), str(name), value, reason.format(value)))
    return bad


class Record(NamedTuple):
    """A row of a CSV file as text."""

    line: int
    last: int  # the row ends in this line: quoted cells may contain line ends
    cells: list[str]
    fault: str


@dataclass(frozen=True)
class CsvFile:
    """A CSV file and its format."""

    path: Path
    delimiter: str
    encoding: str
    decimal: str = "."

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns."""
        with self._open() as text:
            record = next(self._parse(self._lines(text)), None)
        if record is None or record.fault:
            fault = "is empty" if record is None else f"has a header that {record.fault}"
            raise InputError(f"{self.path} {fault}. Its first line must name the columns.")
        names = [name.strip() for name in record.cells]
        if len(names) == 1 and (others := [mark for mark in ",;\t" if mark in names[0]]):
            seems = f"{self.path} has one column {names[0]!r}, and seems to be delimited by"
            raise InputError(f"{seems} {others[0]!r}. Pass delimiter={others[0]!r}.")
        return names

    def records(self) -> Iterator[Record]:
        """Yield the rows after the header."""
        with self._open() as text:
            yield from islice(self._parse(self._lines(text)), 1, None)

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield all rows after the header, about a megabyte at a time, with these columns."""
        position = {name: number for number, name in enumerate(self.header)}
        numbers = [position[name] for name in names]
        size = max(CHUNK, CHUNK_PER_COLUMN * len(self.header))
        with self._open() as text:
            lines = self._lines(text)
            done = next(self._parse(lines)).last
            while chunk := text.read(size):
                chunk += next(lines, "")
                table, bad = self._parse_quickly(chunk, numbers), list[BadRow]()
                if table is None:
                    table, rows, bad, done = self._parse_exactly(chunk, lines, done, numbers)
                else:
                    rows = np.arange(done + 1, done + 1 + len(table))
                    done += len(table)
                columns = map(pc.utf8_trim_whitespace, table.columns)
                yield dict(zip(names, columns, strict=False)), rows, bad

    def _parse_quickly(self, chunk: str, numbers: list[int]) -> pa.Table | None:
        """Parse regular rows; return None if a row has quotes or a fault, or is blank.

        pyarrow does not count lines. It accepts "qu"ote and quotes that are never closed.
        """
        special = not self.delimiter.isascii() or self.delimiter == " " or chunk[0] in "\r\n"
        if special or any(mark in chunk for mark in ('"', "\n\n", "\n\r", "\r\r")):
            return None
        content = chunk.encode()
        names = [str(number) for number in range(len(self.header))]
        types = {names[number]: pa.string() for number in numbers}
        reading = ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=names)
        parsing = ParseOptions(delimiter=self.delimiter, quote_char=False)
        as_text = ConvertOptions(include_columns=list(types), column_types=types)
        try:
            return read_csv(io.BytesIO(content), reading, parsing, as_text)
        except pa.ArrowInvalid:
            return None

    def _parse_exactly(
        self, chunk: str, rest: Iterator[str], done: int, numbers: list[int]
    ) -> tuple[pa.Table, Lines, list[BadRow], int]:
        """Parse a chunk that follows `done` lines, and the `rest` of its last row.

        Return cells, the line of each row, faults, and the last line.
        """
        inside = list(io.StringIO(chunk, newline=""))
        end = done + len(inside)
        rows, lines, bad = list[list[str]](), list[int](), list[BadRow]()
        last = done
        for line, last, cells, fault in self._parse(chain(inside, rest), done, len(self.header)):
            if fault:
                shown = self.delimiter.join(cells)[:SHOWN]
                bad += [BadRow(number, "", shown, fault) for number in range(line, last + 1)]
            else:
                rows.append(cells)
                lines.append(line)
            if last >= end:
                break
        columns = [pa.array([row[number] for row in rows], pa.string()) for number in numbers]
        table = pa.table(columns, [str(number) for number in numbers])
        return table, np.array(lines, dtype=np.int64), bad, last

    def _parse(self, lines: Iterable[str], done: int = 0, width: int = 0) -> Iterator[Record]:
        """Parse rows after `done` lines; skip blank ones. A `width` of 0 permits any."""
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        while True:
            line, cells, fault = done + reader.line_num + 1, list[str](), ""
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fault = f"has quotes that are not paired ({error})"
                if done + reader.line_num > line:  # nobody knows how many rows are in the quotes
                    begin = f"{self.path}: a quoted cell begins in line {line}"
                    raise InputError(f"{begin} and does not end there. Close it.") from error
            last = done + reader.line_num
            if cells and width and (len(cells) != width or last > line):
                fault = self._fault(cells, width, line, last)
            if cells or fault:
                yield Record(line, last, cells, fault)

    def _fault(self, cells: list[str], width: int, line: int, last: int) -> str:
        fault = "" if len(cells) == width else f"has {len(cells)} cells instead of {width}"
        if last == line:
            return fault
        long = [number for number, cell in enumerate(cells) if "\n" in cell]
        # text of two lines may look like two rows of two cells
        if not fault and len(long) == 1 and last - line + width > 4:
            counts = [part.count(self.delimiter) for part in cells[long[0]].split("\n")]
            counts[0] += long[0]
            counts[-1] += width - 1 - long[0]
            fault = "has a cell that contains whole rows" if set(counts) == {width - 1} else ""
        where = f"lines {line} to {last} are one row, so a quote may not be closed"
        return f"{fault}: {where}" if fault else ""

    def _lines(self, text: TextIO) -> Iterator[str]:
        while line := text.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise InputError(f"{self.path} has a line of {len(line):,} characters or more.")
            yield line

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        """Open the file as text; explain what is wrong with its bytes."""
        limit = csv.field_size_limit(LONGEST_CELL)
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding  # skips a BOM
        try:
            with self._bytes() as raw, io.TextIOWrapper(raw, encoding, newline="") as text:
                yield text
        except UnicodeError as error:
            fault = f"{self.path} is not text in {self.encoding}{self._place()}"
            remedy = "Save it as UTF-8, or pass its `encoding`, such as 'cp1252'."
            raise InputError(f"{fault}. {remedy}") from error
        except (EOFError, OSError, zlib.error) as error:
            remedy = " Rename it without .gz if it is plain text." * (self.path.suffix == ".gz")
            raise InputError(f"{self.path} cannot be read ({error}).{remedy}") from error
        finally:
            csv.field_size_limit(limit)

    def _bytes(self) -> Any:
        return unpacked_table(self.path) if self.path.suffix == ".gz" else self.path.open("rb")

    def _place(self) -> str:
        """Return the first line that is not UTF-8; "" for other encodings."""
        with self._bytes() as raw:
            for number, line in enumerate(raw if self.encoding == "utf-8" else (), 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    return f" in line {number}"
        return ""


def number_of(word: str) -> float | None:
    """Return the number that a word stands for, or None."""
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None


def is_amount(word: str) -> bool:
    """Whether a word is a number without leading zeros."""
    return number_of(word) is not None and re.match(LEADING_ZERO, word) is None


def opened_source(
    source: Any, requested: Reading, reading: Reading
) -> CsvFile | Path | pd.DataFrame:
    """Check the source; `requested` is the part of `reading` that the caller passed."""
    path = Path(source) if isinstance(source, str | PathLike) else None
    if path is None and not is_frame(source):
        raise InputError(f"source must be a path or a DataFrame; got a {type(source).__name__}.")
    if path and not path.is_file():
        raise InputError(f"There is no file {path}. Check the path and the current folder.")
    ending = path.name.lower().removesuffix(".gz")[-4:] if path else ""
    if path and ending in DELIMITERS:
        delimiter: Any = DELIMITERS[ending] if reading.delimiter is None else reading.delimiter
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
            raise InputError(f"delimiter={delimiter!r}: it must be one character such as ';'.")
        try:
            encoding = codecs.lookup(reading.encoding or "utf-8").name
        except LookupError as error:
            raise InputError(f"encoding={reading.encoding!r} is unknown. Try 'cp1252'.") from error
        return CsvFile(path, delimiter, encoding, reading.decimal or ".")
    if path and path.suffix.lower() not in PARQUET:
        known = ".csv, .tsv, .csv.gz, .tsv.gz, .parquet or .pq"
        raise InputError(f"{path} ends in {path.suffix!r}: tables end in {known}. Rename it.")
    if (requested.encoding, requested.delimiter, requested.decimal) != (None, None, None):
        raise InputError("encoding, delimiter and decimal are for CSV files. Do not pass them.")
    return path or source


def names_in(opened: CsvFile | Path | pd.DataFrame) -> list[str]:
    """Return the names of the columns."""
    if isinstance(opened, CsvFile):
        return opened.header
    if isinstance(opened, Path):
        with parquet_file(opened) as file:
            names = file.schema_arrow.names
        return [name for name in names if not name.startswith("__index_level_")]  # pandas' index
    return list(opened.columns)


@contextmanager
def parquet_file(path: Path, buffer: int = 0) -> Iterator[ParquetFile]:
    """Open a Parquet file; without a `buffer` (bytes) a whole row group is read at once."""
    try:
        with ParquetFile(path, buffer_size=buffer, pre_buffer=not buffer) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"{path} has names of columns that are not UTF-8. Rename them.") from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is not a Parquet file, or is damaged ({reason}).") from error


def safe_cell(cell: str, decimal: str = ".") -> str:
    """Put an apostrophe before a cell that a spreadsheet might compute, but not before numbers.

    >>> safe_cell("=HYPERLINK(A1)"), safe_cell("-1"), safe_cell("cat"), safe_cell("'=A1")
    ("'=HYPERLINK(A1)", '-1', 'cat', "''=A1")
    """
    if len(cell) < 2 or not cell.lstrip("'").startswith(FORMULA):
        return cell
    number = cell.replace(".", "").replace(",", ".") if decimal == "," else cell
    return f"'{cell}" if number_of(number) is None else cell


class CsvText(io.StringIO):
    r"""Text of a `csv.writer`, with rows that end in "\n".

    The writer must write "\r\n": otherwise Python 3.11 does not quote cells with "\r".
    """

    def __init__(self) -> None:
        super().__init__(newline="")

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")

    def pop(self) -> str:
        """Return and remove the text."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text
