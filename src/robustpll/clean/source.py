"""The table as it is written: its own cells, for people to look at and to hand back."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.tables.source import (
    CsvFile,
    CsvText,
    names_in,
    opened_source,
    parquet_file,
    safe_cell,
)

if TYPE_CHECKING:
    from robustpll.tables.read import Table

ENCODING = "utf-8-sig"  # with the mark at its beginning by which spreadsheets know it


@dataclass(frozen=True, eq=False)
class Source:
    """A file, and which of its rows were read as a table.

    >>> import tempfile
    >>> from robustpll.tables.read import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("name,weight,seen\\nTom,04.0,cat\\nRex,30,dog|cat\\n")
    ...     table = read_table(path, candidates="seen", ignore="name")
    ...     source = Source.of(path, table)
    ...     label = np.array(["cat", "dog"])
    ...     content, cells = source.copied({"label": label}, ["name", "weight"], np.array([0]))
    >>> content.decode("utf-8-sig").splitlines()
    ['name,weight,seen,label', 'Tom,04.0,cat,cat', 'Rex,30,dog|cat,dog']
    >>> cells
    [['Tom', '04.0']]
    """

    path: Path
    opened: CsvFile | Path
    names: tuple[str, ...]  # of all columns
    rows: NDArray[np.int64]  # lines of a CSV file, else numbers of rows
    gaps: tuple[str, ...]  # words that the person says mean "no value"
    state: tuple[int, int]  # time and size of the file as it was read

    @classmethod
    def of(cls, path: Path, table: "Table") -> Self:
        opened = opened_source(path, table.reading, table.reading)
        assert isinstance(opened, CsvFile | Path)  # a path is no DataFrame
        names = tuple(names_in(opened))
        return cls(path, opened, names, table.rows, table.reading.missing, _state(path))

    @property
    def target(self) -> str:
        """The name of the file that the table is written to."""
        return "table.csv" if isinstance(self.opened, CsvFile) else "table.parquet"

    def refuse_overwriting(self, names: Sequence[str], out: Path) -> None:
        """Neither a column of these names nor the table itself may be lost."""
        twice = [name for name in names if name in self.names]
        if twice:
            raise InputError(
                f"{self.path} has a column {twice[0]!r} already, which would be written. Rename "
                "it, or pass the table without what was added to it before."
            )
        target = out / self.target
        if target.exists() and target.samefile(self.path):
            raise InputError(
                f"{target} is the table itself, and would be lost. Pass another folder as out."
            )

    def copied(
        self, added: Mapping[str, NDArray[Any]], columns: Sequence[str], some: NDArray[np.int64]
    ) -> tuple[bytes, list[list[str]]]:
        """The table in its own format, with columns besides; and some cells, for people to read.

        The cells are the text of these columns, of some of the table's rows, in this order. The
        file is gone through once.
        """
        if _state(self.path) != self.state:
            raise InputError(
                f"{self.path} was changed while its labels were resolved, so they may belong to "
                "other rows. Run the command again."
            )
        if isinstance(self.opened, CsvFile):
            return self._csv(self.opened, added, columns, some)
        return self._parquet(self.opened, added, columns, some)

    def _csv(
        self,
        opened: CsvFile,
        added: Mapping[str, NDArray[Any]],
        columns: Sequence[str],
        some: NDArray[np.int64],
    ) -> tuple[bytes, list[list[str]]]:
        """With the marks between and within cells that the file itself has."""
        text = CsvText()
        writer = csv.writer(text, delimiter=opened.delimiter)
        writer.writerow(map(safe_cell, [*self.names, *added]))
        place = {int(row): at for at, row in enumerate(self.rows)}
        values = [
            [str(value).replace(".", opened.decimal) for value in column]
            if column.dtype.kind == "f"
            else [self._safe(str(value), opened.decimal) for value in column]
            for column in added.values()
        ]
        wanted, numbers = set(some.tolist()), [self.names.index(name) for name in columns]
        cells: dict[int, list[str]] = {}
        for record in opened.records():
            at = place.get(record.line)
            if at is None:
                continue
            safe = (self._safe(cell, opened.decimal) for cell in record.cells)
            writer.writerow([*safe, *(column[at] for column in values)])
            if at in wanted:
                cells[at] = [record.cells[number] for number in numbers]
        return text.getvalue().encode(ENCODING), [cells[at] for at in some.tolist()]

    def _safe(self, cell: str, decimal: str) -> str:
        """No formula; words for "no value" stay what they are."""
        return cell if cell in self.gaps else safe_cell(cell, decimal)

    def _parquet(
        self,
        path: Path,
        added: Mapping[str, NDArray[Any]],
        columns: Sequence[str],
        some: NDArray[np.int64],
    ) -> tuple[bytes, list[list[str]]]:
        import pyarrow as pa
        from pyarrow.parquet import write_table

        with parquet_file(path) as file:
            table = file.read(columns=[*self.names]).take(self.rows)
        shown = table.select([*columns]).take(some).to_pylist()
        for name, values in added.items():
            table = table.append_column(name, pa.array(values.tolist()))
        content = io.BytesIO()
        write_table(table, content)
        return content.getvalue(), [
            ["" if row[name] is None else str(row[name]) for name in columns] for row in shown
        ]


def _state(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size
