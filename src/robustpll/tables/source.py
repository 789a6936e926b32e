"""Open table files, and convert their text to typed columns."""

import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

    OpenedTable = "CsvFile | Path | pd.DataFrame"

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>")  # cells without a value
ODD_CELLS = 0.01  # a column with a larger share of cells that are not numbers is text
LEADING_ZERO = r"^[+-]?0[0-9]+$"  # a code: as a number, 00102 would lose its zeros
NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)$"
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
        """Return the fault without its line.

        >>> str(BadRow(17, "age", "ten", "is not a number"))
        "column 'age': 'ten' is not a number"
        """
        cell = f"column {self.column!r}: {self.value!r} "
        return f"{cell if self.column else ''}{self.reason}"


class Record(NamedTuple):
    """A row of a CSV file as text."""

    line: int
    last: int  # the row ends in this line: quoted cells may contain line ends
    cells: list[str]
    fault: str = ""  # why the row cannot be split into cells


class Batch(NamedTuple):
    """Consecutive rows of a CSV file as text."""

    cells: "pa.Table"
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
    def header(self) -> list[str]:
        """The names of the columns."""
        with self._open() as text:
            record = next(self._parse(self._lines(text)), None)
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
            yield from islice(self._parse(self._lines(text)), 1, None)

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield all rows after the header, about a megabyte at a time, with these columns."""
        with self._open() as text:
            lines = self._lines(text)
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
                    yield Batch(cells, numbers, [])

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
        wanted = [columns[self.header.index(name)] for name in names]
        try:
            cells = read_csv(
                io.BytesIO(content),
                ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=columns),
                ParseOptions(delimiter=self.delimiter, quote_char=False),
                ConvertOptions(
                    include_columns=wanted, column_types=dict.fromkeys(columns, pa.string())
                ),
            )
        except pa.ArrowInvalid:
            return None
        return cells.rename_columns(list(names))

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
        positions = [self.header.index(name) for name in names]
        columns = [pa.array([row[at] for row in rows], pa.string()) for at in positions]
        table = pa.Table.from_arrays(columns, names=list(names))
        return Batch(table, np.array(lines, dtype=np.int64), bad), done

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
        # text of two lines may look like two rows of two cells
        if not fault and last - line + width > 4 and _has_rows_in_a_cell(cells, self.delimiter):
            fault = "has a cell that contains whole rows"
        where = f"lines {line} to {last} are one row, so a quote may not be closed"
        return f"{fault}: {where}" if fault else ""

    def _lines(self, text: TextIO) -> Iterator[str]:
        while line := text.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise InputError(
                    f"{self.path} has a line of {len(line):,} characters or more, so it is not a "
                    "table. Look at the file."
                )
            yield line

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        """Open the file as text; explain what is wrong with its bytes."""
        limit = csv.field_size_limit(LONGEST_CELL)
        try:
            with self._bytes() as raw:
                encoding = "utf-8-sig" if self._is_utf8 else self.encoding
                with io.TextIOWrapper(raw, encoding, newline="") as text:
                    yield text
        except LookupError as error:
            raise InputError(
                f"encoding={self.encoding!r} is unknown to Python. Pass for example 'cp1252'."
            ) from error
        except UnicodeError as error:
            reason = getattr(error, "reason", error)
            raise InputError(
                f"{self.path} is not text in {self.encoding}{self._place()} ({reason}). Save it as "
                "UTF-8, or pass its `encoding`: often 'cp1252' or 'utf-16' if Excel wrote it."
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            with self.path.open("rb") as file:
                is_gzip = file.read(2) == b"\x1f\x8b"
            what = "is a gzip file that is cut short or damaged"
            if not is_gzip:
                what = "is not a gzip file: rename it without .gz if it is plain text"
            raise InputError(f"{self.path} {what} ({error}).") from error
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        finally:
            csv.field_size_limit(limit)

    def _bytes(self) -> Any:
        return unpacked_table(self.path) if self.path.suffix == ".gz" else self.path.open("rb")

    @property
    def _is_utf8(self) -> bool:
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")

    def _place(self) -> str:
        """Return the place of the first byte that is not UTF-8; "" for other encodings."""
        before = 0
        with self._bytes() as raw:
            for line, content in enumerate(raw if self._is_utf8 else (), 1):
                try:
                    content.decode()
                except UnicodeDecodeError as error:
                    return f": line {line}, byte {before + error.start + 1} of the file"
                before += len(content)
        return ""


def _has_rows_in_a_cell(cells: Sequence[str], delimiter: str) -> bool:
    """Whether two stray quotes seem to have joined several rows to one."""
    positions = [at for at, cell in enumerate(cells) if "\n" in cell]
    if len(positions) != 1:
        return False
    counts = [line.count(delimiter) for line in cells[positions[0]].split("\n")]
    counts[0] += positions[0]
    counts[-1] += len(cells) - 1 - positions[0]
    return set(counts) == {len(cells) - 1}


def read_csv(
    batches: Iterable[Batch], kinds: Mapping[str, bool | None], gaps: Sequence[str], decimal: str
) -> tuple["pd.DataFrame", NDArray[np.int64], list[BadRow]]:
    """Return typed columns, the line of each row, and the faults.

    `kinds` names the columns: True for text, False for numbers, None for what the cells look like.
    Text becomes categories. Numbers become float64, or the smallest integers that hold them.
    """
    import pandas as pd
    import pyarrow as pa

    chunks: dict[str, list[pa.Array]] = {name: [] for name in kinds}
    numbers, bad = [np.empty(0, dtype=np.int64)], list[BadRow]()
    for batch in batches:
        for name in kinds:
            chunks[name] += batch.cells[name].chunks
        numbers.append(batch.lines)
        bad += batch.bad
    lines = np.concatenate(numbers)
    columns = {}
    for name, kind in kinds.items():
        text = pa.chunked_array(chunks.pop(name), pa.string())
        columns[name], odd = _typed(text, kind, gaps, decimal)
        for row in odd:
            word = text[row].as_py().strip()[:SHOWN]
            remedy = f"correct it, or pass missing={word!r} if it means that there is no value"
            bad.append(BadRow(int(lines[row]), name, word, f"is not a number: {remedy}"))
    return pd.DataFrame(columns, index=range(len(lines)), copy=False), lines, bad


def _typed(
    text: "pa.ChunkedArray", kind: bool | None, gaps: Sequence[str], decimal: str
) -> tuple["pd.Series[Any]", NDArray[np.int64]]:
    """Convert a column; also return the rows whose cell should be a number and is not."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

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
        odd = np.flatnonzero(pc.equal(is_number, pa.scalar(False)).fill_null(False))
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


def number_of(word: str) -> float | None:
    """Return the number that a word stands for, or None.

    >>> number_of("1e3"), number_of("ten"), number_of("1_000")
    (1000.0, None, None)
    """
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None


def opened_source(source: Any, requested: Reading, reading: Reading) -> "OpenedTable":
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
            raise InputError(
                f"delimiter={delimiter!r}: it must be one character, such as ',' or ';'."
            )
        return CsvFile(path, delimiter, reading.encoding or "utf-8", reading.decimal or ".")
    if path and path.suffix.lower() not in PARQUET:
        raise InputError(
            f"{path} ends in {path.suffix!r}: tables are read from .csv, .tsv, .csv.gz, .tsv.gz, "
            ".parquet and .pq. Rename the file if it is one of these, or pass a DataFrame."
        )
    if (requested.encoding, requested.delimiter, requested.decimal) != (None, None, None):
        raise InputError(
            "encoding, delimiter and decimal are for CSV files. Do not pass them for Parquet files "
            "and DataFrames."
        )
    return source if path is None else path


def names_in(opened: "OpenedTable") -> list[str]:
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
        raise InputError(
            f"{path} is not a Parquet file, or is damaged ({str(error).splitlines()[0]})."
        ) from error


def frame_of(table: "pa.Table") -> "pd.DataFrame":
    """Convert what was read from Parquet, and free it; its text must be UTF-8."""
    import pandas as pd
    import pyarrow as pa

    for name in table.column_names:
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"Column {name!r} holds text that is not UTF-8, or is damaged ({error}). Save it "
                "again as UTF-8."
            ) from error
    table = table.replace_schema_metadata(None)  # notes of other programs may be damaged
    frame: pd.DataFrame = table.to_pandas(
        self_destruct=True,
        # as Python lists they would take several times the memory
        types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_nested(kind) else None,
    )
    return frame


def with_gaps(
    frame: "pd.DataFrame", missing: Sequence[str], numeric: Collection[str]
) -> "pd.DataFrame":
    """Return a copy with gaps in place of the words and numbers in `missing`.

    A column of text in `numeric` becomes numbers if all other cells are numbers.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": ["1.5", "?"], "y": [-1, 2]})
    >>> with_gaps(frame, ("?", "-1"), ("x", "y")).to_numpy().tolist()
    [[1.5, <NA>], [nan, 2]]
    """
    import pandas as pd

    numbers = [number for number in map(number_of, missing) if number is not None]
    frame = frame.copy(deep=False)
    for name, column in frame.items() if missing else ():
        if pd.api.types.is_numeric_dtype(column):
            is_gap = column.isin(numbers).to_numpy(dtype=bool)
            integer = pd.api.types.is_integer_dtype(column) and is_gap.any()
            frame[name] = (column.astype("Int64") if integer else column).mask(is_gap)
            continue
        is_gap = np.array([isinstance(cell, str) and cell in missing for cell in column], bool)
        if is_gap.any():
            rest = column.mask(is_gap)
            plain = name in numeric and all(is_amount(str(cell)) for cell in rest.dropna())
            frame[name] = pd.to_numeric(rest) if plain else rest
    return frame


def is_amount(word: str) -> bool:
    """Whether a word is a number without leading zeros.

    >>> is_amount("7.5"), is_amount("007"), is_amount("seven")
    (True, False, False)
    """
    digits = word.lstrip("+-")
    return number_of(word) is not None and not (digits[:1] == "0" and digits[1:].isdigit())


def safe_cell(cell: str, decimal: str = ".") -> str:
    """Put an apostrophe before a cell that a spreadsheet might compute.

    Numbers and a single sign stay as they are. Cells that begin with apostrophes before such a sign
    get one more, so that different cells stay different.

    >>> safe_cell("=HYPERLINK(A1)"), safe_cell("-1"), safe_cell("cat"), safe_cell("'=A1")
    ("'=HYPERLINK(A1)", '-1', 'cat', "''=A1")
    >>> safe_cell("-1,5", decimal=","), safe_cell("-")
    ('-1,5', '-')
    """
    if len(cell) < 2 or not cell.lstrip("'").startswith(FORMULA):
        return cell
    number = cell.replace(".", "").replace(",", ".") if decimal == "," else cell
    return f"'{cell}" if number_of(number) is None else cell


class CsvText(io.StringIO):
    r"""Text of a `csv.writer`, with rows that end in "\n".

    The writer must write "\r\n": otherwise Python 3.11 does not quote cells with "\r".

    >>> text = CsvText()
    >>> csv.writer(text).writerows([["a\rb", "c"], ["d\ne", "f"]])
    >>> text.getvalue()
    '"a\rb",c\n"d\ne",f\n'
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
