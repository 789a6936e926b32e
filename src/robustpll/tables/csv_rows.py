"""CSV files become compact columns; a row that does not parse is told by its line."""

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import unpacked_table
from robustpll.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>")  # what a cell without a value holds
ODD_CELLS = 0.01  # a column with more cells than this that are no numbers is text
CELLS_AT_ONCE = 2**18  # held as Python text, some 20 MB
ROWS_AT_ONCE = 256  # at least, of a wide table: a chunk of a column costs a kilobyte, however short
LEADING_ZERO = r"^[+-]?0[0-9]+$"  # of a code: as a number 00102 would be another zip code
LONGEST_CELL = 2**26  # characters; the csv module's own limit cuts sets of 10,000 names
LONGEST_LINE = 2**27  # characters; some other file of gigabytes would fill the memory
FEWEST_LIKENESSES = 4  # lines and cells: text of two lines may look like two rows of two cells
SHOWN = 200  # characters of a cell in a list of bad rows


class BadRow(NamedTuple):
    """Why a row does not parse."""

    line: int  # of a CSV file, the header being 1; else the row number, counted from 0
    column: str  # "" where no single column is to blame
    value: str
    reason: str

    def __str__(self) -> str:
        """For a message that names the line by itself.

        >>> str(BadRow(17, "age", "ten", "is no number"))
        "column 'age': 'ten' is no number"
        """
        cell = f"column {self.column!r}: {self.value!r} "
        return f"{cell if self.column else ''}{self.reason}"


class Record(NamedTuple):
    """A row as it is written."""

    line: int  # where it begins
    last: int  # where it ends: quoted cells may hold line ends
    cells: list[str] | str  # or why there are none

    def fault(self, delimiter: str, width: int) -> str:
        """Why it is no row of `width` cells; "" if it is one."""
        if isinstance(self.cells, str):
            return self.cells
        found = len(self.cells)
        fault = "" if found == width else f"has {found} cells instead of {width}"
        if self.last == self.line:
            return fault
        if not fault and self.last - self.line + width > FEWEST_LIKENESSES:
            fault = "has a cell that holds whole rows" if self._holds_rows(delimiter) else ""
        lines = f"lines {self.line} to {self.last} are one row, so a quote may not be closed"
        return f"{fault}: {lines}" if fault else ""

    def _holds_rows(self, delimiter: str) -> bool:
        """Whether, but for a quoted cell, each line would be a row: two stray quotes do this."""
        at = [number for number, cell in enumerate(self.cells) if "\n" in cell]
        if len(at) != 1:
            return False
        counts = [line.count(delimiter) for line in self.cells[at[0]].split("\n")]
        counts[0] += at[0]
        counts[-1] += len(self.cells) - 1 - at[0]
        return set(counts) == {len(self.cells) - 1}


@dataclass(frozen=True)
class CsvFile:
    """Where a CSV file is, and how its bytes are read."""

    path: Path
    delimiter: str
    encoding: str
    decimal: str = "."

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns."""
        with self._text() as text:
            record = next(self._records(text), None)
        if record is None:
            raise InputError(
                f"{self.path} is empty: a header with the names of the columns is needed."
            )
        if isinstance(record.cells, str):
            raise InputError(
                f"The header of {self.path} does not parse: {record.cells}. Correct it."
            )
        names = [name.strip() for name in record.cells]
        if len(names) == 1 and (others := [each for each in ";\t" if each in names[0]]):
            raise InputError(
                f"{self.path} has a single column {names[0]!r}: its cells seem to be delimited by "
                f"{others[0]!r} instead of {self.delimiter!r}. Pass delimiter={others[0]!r}."
            )
        return names

    def records(self) -> Iterator["Record"]:
        """What follows the header."""
        with self._text() as text:
            records = self._records(text)
            next(records)
            yield from records

    def _records(self, text: TextIO) -> Iterator["Record"]:
        lines = self._lines(text)
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if reader.line_num > line:  # it swallowed other rows: nobody knows how many
                    raise InputError(
                        f"{self.path}: a quoted cell begins in line {line} and does not end there; "
                        f"by line {reader.line_num} the file does not parse ({error}). Close the "
                        "quote; a quote within a quoted cell is written twice."
                    ) from error
                yield Record(line, line, f"quotes are not paired ({error})")
            else:
                if cells:  # else the line is blank
                    yield Record(line, reader.line_num, cells)

    def _lines(self, text: TextIO) -> Iterator[str]:
        while line := text.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise InputError(
                    f"{self.path} has a line of {len(line):,} characters or more: it is no table."
                )
            yield line

    @contextmanager
    def _text(self) -> Iterator[TextIO]:
        """The open file; what its bytes can do wrong is told in a sentence."""
        before = csv.field_size_limit(LONGEST_CELL)
        try:
            with _opened(self.path) as raw:
                encoding = "utf-8-sig" if self._is_utf8() else self.encoding
                with io.TextIOWrapper(raw, encoding, newline="") as text:
                    yield text
        except LookupError as error:
            raise InputError(
                f"encoding={self.encoding!r}: Python knows no such encoding; 'cp1252' is one."
            ) from error
        except UnicodeError as error:
            reason = getattr(error, "reason", error)  # without places in a buffer nobody sees
            raise InputError(
                f"{self.path} is not text in {self.encoding}{self._place()} ({reason}). Save it as "
                "UTF-8, or pass its `encoding`: often 'cp1252' or 'utf-16' if Excel wrote it."
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            what = "is a gzip file that is cut short or damaged"
            with self.path.open("rb") as file:
                packed = file.read(2) == b"\x1f\x8b"
            if not packed:
                what = "is no gzip file, though its name ends in .gz: rename it if it is plain text"
            raise InputError(f"{self.path} {what} ({error}).") from error
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        finally:
            csv.field_size_limit(before)

    def _is_utf8(self) -> bool:
        return self.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")

    def _place(self) -> str:
        """Of the first byte that is no UTF-8; in other encodings a line's end is not one byte."""
        before = 0
        with _opened(self.path) as raw:
            for line, content in enumerate(raw if self._is_utf8() else (), 1):
                try:
                    content.decode()
                except UnicodeDecodeError as error:
                    return f": line {line}, byte {before + error.start + 1} of the file"
                before += len(content)
        return ""


def _opened(path: Path) -> Any:
    return unpacked_table(path) if path.suffix == ".gz" else path.open("rb")


def read_csv(
    file: CsvFile,
    as_text: Mapping[str, bool | None],
    gaps: Sequence[str],
    held: Sequence[Record] | None = None,
) -> tuple["pd.DataFrame", NDArray[np.int64], list[BadRow]]:
    """Columns, the line of each row, and what does not parse.

    Memory beyond the result is one chunk of rows as Python text and one column. `as_text` names
    the columns to keep; True: cells are names even if they look like numbers; False: they are
    numbers, and words among them are faults; None: they are what they look like. Text comes as
    categories, numbers in the smallest type of integers that holds them, or in float64. `held` are
    rows that are already there, where not all of them are meant.
    """
    import pandas as pd

    names = file.header
    parts: dict[str, list[pa.Array]] = {name: [] for name in as_text}
    lines, bad = array("q"), list[BadRow]()
    for rows in _chunks(file, file.records() if held is None else held, lines, bad):
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            if name in parts:
                parts[name].append(_stored(cells, as_text[name] is True, gaps, file.decimal))
    words = {
        name for name, kind in as_text.items() if kind or (kind is None and _is_text(parts[name]))
    }
    guessed = [name for name in words if not as_text[name]]
    if any(file.decimal == "," or _holds_numbers(part) for name in guessed for part in parts[name]):
        # their text is gone: once more, now that it is known to matter
        return read_csv(file, {name: name in words for name in as_text}, gaps, held)
    at = np.array(lines, dtype=np.int64)
    columns = {}
    for name in as_text:
        own = parts.pop(name)
        if name in words:
            columns[name] = _as_words(own)
        else:
            columns[name], odd = _as_numbers(own, at)
            bad += [_no_number(line, name, word, file.decimal) for line, word in odd]
    return pd.DataFrame(columns, index=range(len(at)), copy=False), at, bad


def _chunks(
    file: CsvFile, records: Iterable[Record], lines: "array[int]", bad: list[BadRow]
) -> Iterator[list[list[str]]]:
    """Rows with the right number of cells, many at a time; adds to `lines` and `bad`."""
    width = len(file.header)
    rows: list[list[str]] = []
    for record in records:
        line, last, cells = record
        fault = record.fault(file.delimiter, width)
        if fault:
            shown = "" if isinstance(cells, str) else file.delimiter.join(cells)[:SHOWN]
            bad += [BadRow(each, "", shown, fault) for each in range(line, last + 1)]
        elif not isinstance(cells, str):
            lines.append(line)
            rows.append(cells)
        if len(rows) >= max(ROWS_AT_ONCE, CELLS_AT_ONCE / width):
            yield rows
            rows = []
    if rows:
        yield rows


def _stored(cells: Sequence[str], as_text: bool, gaps: Sequence[str], decimal: str) -> "pa.Array":
    """Cells of one column and chunk: as numbers if all of them are, else each word once.

    Where decimals have a comma, commas and points are swapped, unless it is known to be text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(pa.array(cells, pa.string()))
    missing = pc.is_in(text, value_set=pa.array(gaps, pa.string()))
    text = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    if as_text:
        return text.dictionary_encode()
    if decimal == ",":
        for one, other in (".\0", ",.", "\0,"):
            text = pc.replace_substring(text, one, other)
    if pc.any(pc.match_substring_regex(text, LEADING_ZERO)).as_py():
        return text.dictionary_encode()
    try:
        floats = text.cast(pa.float64())
    except pa.ArrowInvalid:
        return text.dictionary_encode()
    if not pc.all(pc.equal(floats, pc.round(floats)), min_count=0).as_py():
        return floats
    try:
        return _narrow(text.cast(pa.int64()))  # from the text: float64 loses long integers
    except pa.ArrowInvalid:
        return floats


def _narrow(integers: "pa.Array") -> "pa.Array":
    """In the smallest type that holds them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.min_max(integers).as_py()
    for kind, most in ((pa.int8(), 2**7), (pa.int16(), 2**15), (pa.int32(), 2**31)):
        if ends["min"] is None or (-most <= ends["min"] and ends["max"] < most):
            return integers.cast(kind)
    return integers


def _is_text(parts: "list[pa.Array]") -> bool:
    """Whether too many cells are no numbers, or any is a code."""
    import pyarrow.compute as pc

    texts = [part.dictionary for part in parts if _holds_words(part)]
    if any(pc.any(pc.match_substring_regex(text, LEADING_ZERO)).as_py() for text in texts):
        return True
    known = sum(len(part) - part.null_count for part in parts)
    odd = sum(int(_numbers_in(part)[1].sum()) for part in parts if _holds_words(part))
    return bool(odd > ODD_CELLS * known)


def _holds_numbers(part: "pa.Array") -> bool:
    return not _holds_words(part) and bool(part.null_count < len(part))


def _holds_words(part: "pa.Array") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(part.type))


def _numbers_in(words: "pa.Array") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The numbers that words stand for, NaN for a gap; and which cells hold no number."""
    import pyarrow.compute as pc

    codes = np.asarray(pc.fill_null(words.indices, -1), dtype=np.int64)  # -1 is the last
    numbers = [*map(number_of, words.dictionary.to_pylist()), np.nan]
    odd = np.array([number is None for number in numbers])
    return np.array(numbers, dtype=np.float64)[codes], odd[codes]


def number_of(word: str) -> float | None:
    """As Python reads it, but for "1_000"; None if it is no number.

    >>> number_of("1e3"), number_of("ten")
    (1000.0, None)
    """
    try:
        return None if "_" in word else float(word)
    except ValueError:
        return None


def _as_words(parts: "list[pa.Array]") -> "pd.Series[Any]":
    """One column of categories."""
    import pyarrow as pa

    kind = pa.dictionary(pa.int32(), pa.string())
    texts = [part if _holds_words(part) else pa.nulls(len(part), kind) for part in parts]
    return pa.chunked_array(texts, kind).to_pandas()  # type: ignore[no-any-return]


def _as_numbers(
    parts: "list[pa.Array]", lines: NDArray[np.int64]
) -> tuple["pd.Series[Any]", list[tuple[int, str]]]:
    """One column of numbers; cells that hold words become gaps, and are told with their lines."""
    import pandas as pd
    import pyarrow as pa

    if parts and all(pa.types.is_integer(part.type) for part in parts):
        kind = max((part.type for part in parts), key=lambda each: each.bit_width)
        whole = pa.chunked_array([part.cast(kind) for part in parts])
        nullable = pd.api.types.pandas_dtype(f"Int{kind.bit_width}") if whole.null_count else None
        return whole.to_pandas(types_mapper=lambda _: nullable), []
    numbers, bad = np.empty(len(lines)), list[tuple[int, str]]()
    end = 0
    for part in parts:
        start, end = end, end + len(part)
        if _holds_words(part):
            numbers[start:end], odd = _numbers_in(part)
            rows = np.flatnonzero(odd).tolist()
            bad += [(int(lines[start + row]), part[row].as_py()) for row in rows]
        else:
            numbers[start:end] = part.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return pd.Series(numbers, copy=False), bad


def _no_number(line: int, name: str, word: str, decimal: str) -> BadRow:
    if decimal == ",":  # as it was written
        word = word.translate(str.maketrans(".,", ",."))
    word = word[:SHOWN]
    remedy = f"correct it, or pass missing={word!r} if it means that there is no value"
    return BadRow(line, name, word, f"is no number: {remedy}")
