"""Open table files, and convert their text to typed columns."""

import codecs
import csv
import gzip
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
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import unpacked_table
from robustpll.errors import InputError
from robustpll.labels.parsing import is_frame
from robustpll.tables.columns import Reading

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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


class BadRow(NamedTuple):
    """A fault of a row."""

    line: int  # of a CSV file, whose header is line 1; otherwise the row number, from 0
    column: str  # "" if the fault is not in a single column
    value: str
    reason: str

    def __str__(self) -> str:
        cell = f"column {self.column!r}: {self.value!r} " if self.column else ""
        return f"{cell}{self.reason}"


class Record(NamedTuple):
    """A row of a CSV file as text."""

    line: int
    last: int  # the row ends in this line: quoted cells may contain line ends
    cells: list[str]
    fault: str = ""  # why the row cannot be split into cells


class Batch(NamedTuple):
    """Consecutive rows of a CSV file as text."""

    cells: "dict[str, pa.ChunkedArray]"  # by column
    lines: NDArray[np.int64]
    bad: list[BadRow]


@dataclass(frozen=True)
class CsvFile:
    """A CSV file and its format."""

    path: Path
    delimiter: str
    encoding: str
    decimal: str = "."

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.header)}

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns."""
        with self._open() as text:
            record = next(self._parse(_lines(text)), None)
        if record is None:
            raise InputError(f"{self.path} is empty. Its first line must name the columns.")
        if record.fault:
            raise InputError(f"The header of {self.path} {record.fault}. Correct it.")
        names = [name.strip() for name in record.cells]
        if len(names) == 1 and (others := [mark for mark in ";\t" if mark in names[0]]):
            raise InputError(
                f"{self.path} has a single column {names[0]!r}: its cells seem to be delimited by "
                f"{others[0]!r} instead of {self.delimiter!r}. Pass delimiter={others[0]!r}."
            )
        return names

    def records(self) -> Iterator[Record]:
        """Yield the rows after the header."""
        with self._open() as text:
            yield from islice(self._parse(_lines(text)), 1, None)

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield all rows after the header, about a megabyte at a time, with these columns."""
        with self._open() as text:
            lines = _lines(text)
            done = next(self._parse(lines)).last
            size = max(CHUNK, CHUNK_PER_COLUMN * len(self.header))
            while chunk := text.read(size):
                chunk += next(lines, "")
                cells = self._parse_quickly(chunk, names)
                if cells is None:
                    batch, done = self._parse_exactly(chunk, lines, done, names)
                    yield batch
                else:
                    numbers = np.arange(done + 1, done + 1 + len(cells))
                    done += len(cells)
                    yield Batch(dict(zip(names, cells.columns, strict=True)), numbers, [])

    def _parse_quickly(self, chunk: str, names: Sequence[str]) -> "pa.Table | None":
        """Parse regular rows; return None if a row has quotes or a fault, or is blank.

        pyarrow does not count lines. It accepts "qu"ote and quotes that are never closed.
        """
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

        special = not self.delimiter.isascii() or self.delimiter == " " or chunk[0] in "\r\n"
        if special or any(mark in chunk for mark in ('"', "\n\n", "\n\r", "\r\r")):
            return None
        content = chunk.encode()
        columns = [str(number) for number in range(len(self.header))]
        wanted = {columns[self._position[name]]: pa.string() for name in names}
        one_block = ReadOptions(
            use_threads=False, block_size=len(content) + 1, column_names=columns
        )
        parsing = ParseOptions(delimiter=self.delimiter, quote_char=False)
        as_text = ConvertOptions(include_columns=list(wanted), column_types=wanted)
        try:
            return read_csv(io.BytesIO(content), one_block, parsing, as_text)
        except pa.ArrowInvalid:
            return None

    def _parse_exactly(
        self, chunk: str, rest: Iterator[str], done: int, names: Sequence[str]
    ) -> tuple[Batch, int]:
        """Parse a chunk that follows `done` lines, and the `rest` of its last row."""
        import pyarrow as pa

        inside = list(io.StringIO(chunk, newline=""))
        end = done + len(inside)
        rows, lines, bad = list[list[str]](), list[int](), list[BadRow]()
        for record in self._parse(chain(inside, rest), done):
            line, done, cells, _ = record
            if fault := self._fault(record):
                shown = self.delimiter.join(cells)[:SHOWN]
                bad += [BadRow(number, "", shown, fault) for number in range(line, done + 1)]
            else:
                rows.append(cells)
                lines.append(line)
            if done >= end:
                break
        columns = {}
        for name in names:
            position = self._position[name]
            columns[name] = pa.chunked_array([[row[position] for row in rows]], pa.string())
        return Batch(columns, np.array(lines, dtype=np.int64), bad), done

    def _parse(self, lines: Iterable[str], done: int = 0) -> Iterator[Record]:
        """Parse rows after `done` lines. Blank lines are skipped."""
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        while True:
            line = done + reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                last = done + reader.line_num
                if last > line:  # nobody knows how many rows are inside the quotes
                    raise InputError(
                        f"{self.path}: a quoted cell begins in line {line} and does not end there; "
                        f"by line {last} the file does not parse ({error}). Close the quote. Write "
                        "a quote within a quoted cell twice."
                    ) from error
                yield Record(line, line, [], f"has quotes that are not paired ({error})")
            else:
                if cells:
                    yield Record(line, done + reader.line_num, cells)

    def _fault(self, record: Record) -> str:
        """Return why a record is not a row of this table; "" if it is one."""
        line, last, cells, fault = record
        width = len(self.header)
        if not fault and len(cells) != width:
            fault = f"has {len(cells)} cells instead of {width}"
        if last == line:
            return fault
        long = [at for at, cell in enumerate(cells) if "\n" in cell]
        # text of two lines may look like two rows of two cells
        if not fault and len(long) == 1 and last - line + width > 4:
            counts = [part.count(self.delimiter) for part in cells[long[0]].split("\n")]
            counts[0] += long[0]
            counts[-1] += width - 1 - long[0]
            fault = "has a cell that contains whole rows" if set(counts) == {width - 1} else ""
        where = f"lines {line} to {last} are one row, so a quote may not be closed"
        return f"{fault}: {where}" if fault else ""

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        """Open the file as text; explain what is wrong with its bytes."""
        limit = csv.field_size_limit(LONGEST_CELL)
        try:
            with self._bytes() as raw:
                encoding = codecs.lookup(self.encoding).name
                encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # skips a BOM
                with io.TextIOWrapper(raw, encoding, newline="") as text:
                    yield text
        except LookupError as error:
            raise InputError(f"encoding={self.encoding!r} is unknown. Try 'cp1252'.") from error
        except UnicodeError as error:
            reason = getattr(error, "reason", error)
            raise InputError(
                f"{self.path} is not text in {self.encoding}{self._place()} ({reason}). Save it as "
                "UTF-8, or pass its `encoding`: often 'cp1252' or 'utf-16' if Excel wrote it."
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"{self.path} is not a gzip file, or is cut short or damaged ({error}). Rename it "
                "without .gz if it is plain text."
            ) from error
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        finally:
            csv.field_size_limit(limit)

    def _bytes(self) -> Any:
        return unpacked_table(self.path) if self.path.suffix == ".gz" else self.path.open("rb")

    def _place(self) -> str:
        """Return the place of the first byte that is not UTF-8; "" for other encodings."""
        before, is_utf8 = 0, codecs.lookup(self.encoding).name.startswith("utf-8")
        with self._bytes() as raw:
            for line, content in enumerate(raw if is_utf8 else (), 1):
                try:
                    content.decode()
                except UnicodeDecodeError as error:
                    return f": line {line}, byte {before + error.start + 1} of the file"
                before += len(content)
        return ""


def _lines(text: TextIO) -> Iterator[str]:
    """Yield lines; a longer one is cut, so that its parts have the wrong number of cells."""
    return iter(lambda: text.readline(LONGEST_LINE), "")


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
) -> "CsvFile | Path | pd.DataFrame":
    """Check the source; `requested` is the part of `reading` that the caller passed."""
    if not isinstance(source, str | PathLike) and not is_frame(source):
        raise InputError(f"source must be a path or a DataFrame; got a {type(source).__name__}.")
    path = None if is_frame(source) else Path(source)
    if path is not None and not path.is_file():
        raise InputError(f"There is no file {path}. Check the path and the current folder.")
    ending = path.name.lower().removesuffix(".gz")[-4:] if path else ""
    if path and ending in DELIMITERS:
        delimiter: Any = DELIMITERS[ending] if reading.delimiter is None else reading.delimiter
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
            raise InputError(f"delimiter={delimiter!r}: it must be one character such as ';'.")
        return CsvFile(path, delimiter, reading.encoding or "utf-8", reading.decimal or ".")
    if path and path.suffix.lower() not in PARQUET:
        raise InputError(
            f"{path} ends in {path.suffix!r}: tables are read from .csv, .tsv, .csv.gz, .tsv.gz, "
            ".parquet and .pq. Rename the file if it is one of these, or pass a DataFrame."
        )
    if (requested.encoding, requested.delimiter, requested.decimal) != (None, None, None):
        raise InputError(
            "encoding, delimiter and decimal are for CSV files. Do not pass them here."
        )
    return source if path is None else path


def names_in(opened: "CsvFile | Path | pd.DataFrame") -> list[str]:
    """Return the names of the columns."""
    if isinstance(opened, CsvFile):
        return opened.header
    if isinstance(opened, Path):
        with parquet_file(opened) as file:
            names = file.schema_arrow.names
        return [name for name in names if not name.startswith("__index_level_")]  # pandas' index
    return list(opened.columns)


@contextmanager
def parquet_file(path: Path, buffer: int = 0) -> Iterator[Any]:
    """Open a Parquet file; explain what is wrong with it.

    Without a `buffer` (bytes) a whole row group is read at once.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, buffer_size=buffer, pre_buffer=not buffer) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} has names of columns or text that are not UTF-8 ({error.reason}). Save it "
            "again as UTF-8."
        ) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is not a Parquet file, or is damaged ({reason}).") from error


def safe_cell(cell: str, decimal: str = ".") -> str:
    """Put an apostrophe before a cell that a spreadsheet might compute, but not before numbers.

    Different cells stay different: "=A1" and "'=A1" both get an apostrophe.

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
