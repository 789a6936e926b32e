"""The table as it is written: its own cells, for people to look at and to hand back."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.data.csv_rows import CsvFile
from robustpll.data.table_source import names_in, opened_source, parquet_file
from robustpll.errors import InputError
from robustpll.files import write_whole

if TYPE_CHECKING:
    from robustpll.data.table import Table

ENCODING = "utf-8-sig"  # with the mark at its beginning by which spreadsheets know it


@dataclass(frozen=True, eq=False)
class Source:
    """A file, and which of its rows were read as a table.

    >>> import tempfile
    >>> from robustpll.data.table import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pets.csv"
    ...     _ = path.write_text("name,weight,seen\\nTom,04.0,cat\\nRex,30,dog|cat\\n")
    ...     table = read_table(path, candidates="seen", ignore="name")
    ...     Source.of(path, table).cells(["name", "weight"], np.array([0]))
    [['Tom', '04.0']]
    """

    path: Path
    opened: CsvFile | Path
    names: tuple[str, ...]  # of all columns
    rows: NDArray[np.int64]  # lines of a CSV file, else numbers of rows

    @classmethod
    def of(cls, path: Path, table: "Table") -> Self:
        opened = opened_source(path, table.reading, table.reading)
        assert isinstance(opened, CsvFile | Path)  # a path is no DataFrame
        return cls(path, opened, tuple(names_in(opened)), table.rows)

    def cells(self, columns: Sequence[str], some: NDArray[np.int64]) -> list[list[str]]:
        """Of some of the table's rows, in this order: the text of these columns' cells."""
        wanted = {int(self.rows[at]) for at in some}
        if isinstance(self.opened, CsvFile):
            at = [self.names.index(name) for name in columns]
            found = {
                record.line: [record.cells[number] for number in at]
                for record in self.opened.records()
                if record.line in wanted
            }
            return [found[int(row)] for row in self.rows[some]]
        with parquet_file(self.opened) as file:
            frame = file.read(columns=[*columns]).take(self.rows[some]).to_pylist()
        return [["" if row[name] is None else str(row[name]) for name in columns] for row in frame]

    def write_with(self, added: Mapping[str, NDArray[Any]], out: Path) -> Path:
        """The rows of the table, all columns as they are, and these besides; in its own format."""
        path = self.target(out)
        if isinstance(self.opened, CsvFile):
            write_whole(path, self._csv(added, self.opened).encode(ENCODING))
        else:
            write_whole(path, self._parquet(self.opened, added))
        return path

    def target(self, out: Path) -> Path:
        """Where in a folder the table is written."""
        return out / ("table.csv" if isinstance(self.opened, CsvFile) else "table.parquet")

    def refuse_overwriting(self, names: Sequence[str], out: Path) -> None:
        """Neither a column of these names nor the table itself may be lost."""
        twice = [name for name in names if name in self.names]
        if twice:
            raise InputError(
                f"{self.path} has a column {twice[0]!r} already, which would be written. Rename "
                "it, or pass the table without what was added to it before."
            )
        target = self.target(out)
        if target.exists() and target.samefile(self.path):
            raise InputError(
                f"{target} is the table itself, and would be lost. Pass another folder as out."
            )

    def _csv(self, added: Mapping[str, NDArray[Any]], opened: CsvFile) -> str:
        """With the marks between and within cells that the file itself has."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=opened.delimiter, lineterminator="\n")
        writer.writerow([*self.names, *added])
        place = {int(row): at for at, row in enumerate(self.rows)}
        columns = [
            [str(value).replace(".", opened.decimal) for value in values]
            if values.dtype.kind == "f"
            else values
            for values in added.values()
        ]
        for record in opened.records():
            at = place.get(record.line)
            if at is not None:
                writer.writerow([*record.cells, *(values[at] for values in columns)])
        return text.getvalue()

    def _parquet(self, path: Path, added: Mapping[str, NDArray[Any]]) -> bytes:
        import pyarrow as pa
        from pyarrow.parquet import write_table

        with parquet_file(path) as file:
            table = file.read(columns=[*self.names]).take(self.rows)
        for name, values in added.items():
            table = table.append_column(name, pa.array(values.tolist()))
        content = io.BytesIO()
        write_table(table, content)
        return content.getvalue()
