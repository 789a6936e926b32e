"""Where a table comes from: a file or a DataFrame becomes raw columns, at once or in pieces."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.labels.parsing import is_frame
from robustpll.tables.checks import with_gaps
from robustpll.tables.columns import Reading, Roles
from robustpll.tables.csv_rows import GAPS, BadRow, CsvFile, number_of, read_csv

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    Opened = CsvFile | Path | pd.DataFrame

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
FORMULA = (*"=+-@＝＋－＠", "\t", "\r", "\n")  # what a spreadsheet may compute begins so


def opened_source(source: Any, asked: Reading, reading: Reading) -> "Opened":
    """What the source is; files are there, and of a kind that can be read."""
    if not isinstance(source, str | PathLike) and not is_frame(source):
        raise InputError(f"source must be a path or a DataFrame; got a {type(source).__name__}.")
    path = None if is_frame(source) else Path(source)
    if path is not None and not path.is_file():
        raise InputError(f"There is no file {path}. Look at the path and the folder you are in.")
    kind = path.name.lower().removesuffix(".gz")[-4:] if path else ""
    if path and kind in DELIMITERS:
        delimiter: Any = DELIMITERS[kind] if reading.delimiter is None else reading.delimiter
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
            raise InputError(
                f"delimiter={delimiter!r}: it must be one character, such as ',' or ';'."
            )
        return CsvFile(path, delimiter, reading.encoding or "utf-8", reading.decimal or ".")
    if path and path.suffix.lower() not in PARQUET:
        raise InputError(
            f"{path} ends in {path.suffix!r}: tables are read from .csv, .tsv, .csv.gz, .tsv.gz, "
            ".parquet and .pq. Rename the file if it is one of these, or pass a DataFrame."
        )
    if (asked.encoding, asked.delimiter, asked.decimal) != (None, None, None):
        raise InputError(
            "encoding, delimiter and decimal are for CSV files: this source has types of its own."
        )
    return source if path is None else path


def names_in(opened: "Opened") -> list[str]:
    """The names of the columns."""
    if isinstance(opened, CsvFile):
        return opened.header
    if isinstance(opened, Path):
        with parquet_file(opened) as file:
            names = file.schema_arrow.names
        return [name for name in names if not name.startswith("__index_level_")]  # pandas' own
    return list(opened.columns)


@contextmanager
def parquet_file(path: Path, buffer: int = 0) -> Iterator[Any]:
    """The open file; what can go wrong while it is read is told in a sentence.

    Without a `buffer`, in bytes, a group of rows is read at once, and that may be the whole file.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, buffer_size=buffer, pre_buffer=not buffer) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} has names of columns or text that are not UTF-8 ({error.reason}). Save it "
            "anew as UTF-8."
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} is no Parquet file, or is damaged ({str(error).splitlines()[0]})."
        ) from error


@dataclass(frozen=True, eq=False)
class Raw:
    """The columns of a source that serve as something, as they were read."""

    path: Path | None
    frame: "pd.DataFrame"
    lines: NDArray[np.int64]
    bad: list[BadRow]
    gaps: tuple[str, ...]  # words that mean "no value"
    where: Literal["line", "row"]  # what `lines` count

    @property
    def title(self) -> str:
        return "The DataFrame" if self.path is None else str(self.path)


def read_raw(
    opened: "Opened", roles: Roles, missing: tuple[str, ...], like: "pd.DataFrame | None"
) -> Raw:
    """All rows at once; features are read like those of another table, if there is one."""
    measures = set(roles.features).difference(roles.categories)
    if isinstance(opened, CsvFile):
        gaps = (*GAPS, *missing)
        as_text = roles.as_text(like)
        frame, lines, bad = read_csv(opened, as_text, gaps)
        for name in measures:
            if frame[name].dtype == "category":  # mere text: only a person declares categories
                frame[name] = frame[name].astype("string[pyarrow]")
        raw = Raw(opened.path, frame, lines, bad, gaps, "line")
    elif isinstance(opened, Path):
        with parquet_file(opened) as file:
            frame = frame_of(file.read(columns=[*roles.as_text()]))
        frame = with_gaps(frame, missing, measures)
        raw = Raw(opened, frame, np.arange(len(frame)), [], missing, "row")
    else:
        frame = with_gaps(opened[[*roles.as_text()]], missing, measures)
        raw = Raw(None, frame, np.arange(len(frame)), [], missing, "row")
    if not len(raw.lines) and not raw.bad:
        raise InputError(f"{raw.title} has columns, but no rows.")
    return raw


def frame_of(table: "pa.Table") -> "pd.DataFrame":
    """What was read from Parquet, which is used up thereby; its text must be UTF-8."""
    import pandas as pd
    import pyarrow as pa

    for name in table.column_names:
        try:
            table[name].validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"Column {name!r} holds text that is not UTF-8, or is damaged ({error}). Save it "
                "anew as UTF-8."
            ) from error
    table = table.replace_schema_metadata(None)  # what other programs noted may be damaged
    frame: pd.DataFrame = table.to_pandas(
        self_destruct=True,
        # as Python's lists they would take several times the memory
        types_mapper=lambda kind: pd.ArrowDtype(kind) if pa.types.is_nested(kind) else None,
    )
    return frame


def safe_cell(cell: str, decimal: str = ".") -> str:
    """The cell with an apostrophe before it, if a spreadsheet might take it for a formula.

    Class names may be what annotators typed. Numbers stay as they are, and so does a lone sign.
    Cells that begin with apostrophes before such a sign get one more: no two cells become the same.

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
    r"""What a CSV writer of "\r\n" writes, its rows ending in "\n".

    Only such a writer puts quotes around cells with either sign.

    >>> import csv
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
        """What was written since the last call."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text
