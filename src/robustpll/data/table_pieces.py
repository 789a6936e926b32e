"""A table that may be larger than memory, piece by piece, read as a model's own table was."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.data.csv_rows import GAPS, BadRow, CsvFile, Record, number_of, read_csv
from robustpll.data.table_features import infinite_cells
from robustpll.data.table_roles import Reading
from robustpll.data.table_source import frame_of, names_in, opened_source, parquet_file
from robustpll.errors import InputError, ModelFileError, some_of
from robustpll.features import Features

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2**13  # of a piece: enough for a network to be busy
MOST_CELLS = 2**20  # of a piece, some 80 MB as Python text
BUFFER = 2**20  # bytes of each column of a Parquet file
STRANGE_WORDS = 6  # of a column, kept for a message


@dataclass(frozen=True)
class Schema:
    """What columns a model was fitted with, and how its table was read.

    >>> features = Features(("age", "town is Rome"), (2,), {"town": ("Rome",)}, {}, (0, 0), (1, 1))
    >>> Schema.of(features, ["age", "town"]).words
    {'age': None, 'town': ('Rome',)}
    """

    words: Mapping[str, tuple[str, ...] | None]  # of each feature; None where it is a number
    filled: frozenset[str] = frozenset()  # numbers that may be missing
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(
        cls, features: Features, names: Sequence[str], reading: Mapping[str, Any] | None = None
    ) -> Self:
        """From what a model file holds; `reading` as `reading_to_json` gave it."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), reading_from_json(reading or {}))


def reading_to_json(reading: Reading) -> dict[str, Any]:
    """How a table was read, for a model file."""
    return asdict(reading)


def reading_from_json(found: Mapping[str, Any]) -> Reading:
    """The same again; what a later version may have added is left out.

    >>> reading_from_json({"missing": ["?"], "colour": "red"}).missing
    ('?',)
    """
    known: dict[str, Any] = {}
    for name in (each.name for each in fields(Reading) if each.name in found):
        several = name in ("left_out", "categories", "missing")
        value = tuple(found[name]) if several and isinstance(found[name], list) else found[name]
        if not all(isinstance(each, str) for each in (value if several else (value or "",))):
            msg = f"The model file says of its table that {name} is {found[name]!r}."
            raise ModelFileError(msg)
        known[name] = value
    return Reading(**known)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a table that come one after the other."""

    features: "pd.DataFrame"  # of the rows that parse
    lines: NDArray[np.int64]  # of these, as in `Table.rows`
    bad: tuple[BadRow, ...]  # why the others do not
    kept: dict[int, tuple[str, ...]]  # line -> cells of other columns, for rows of the right width


@dataclass(frozen=True)
class _Records(CsvFile):
    """Some of the rows of a CSV file, which are already there."""

    names: Sequence[str] = ()
    held: Sequence[Record] = ()

    def header(self) -> list[str]:
        return list(self.names)

    def records(self) -> Iterator[Record]:
        return iter(self.held)


@dataclass(frozen=True, eq=False)
class TableInPieces:
    """A table that was opened to be read once, from its beginning to its end."""

    source: CsvFile | Path
    names: list[str]
    schema: Schema
    gaps: tuple[str, ...]  # words that mean "no value"

    @classmethod
    def opened(cls, path: Path, schema: Schema, asked: Reading | None = None) -> Self:
        """`asked` is how this file is written, where it is not as the first."""
        asked = asked or Reading()
        parquet = path.suffix.lower() not in (".csv", ".tsv", ".gz")
        reading = asked.after(
            Reading(missing=schema.reading.missing) if parquet else schema.reading
        )
        source = opened_source(path, asked, reading)
        assert not hasattr(source, "columns")
        names = names_in(source)
        lacks = [name for name in schema.words if name not in names]
        if lacks:
            raise InputError(_lacks(path, lacks, [n for n in names if n not in schema.words]))
        return cls(source, names, schema, (*(() if parquet else GAPS), *reading.missing))

    @property
    def where(self) -> str:
        """What the lines of pieces count: "line" or "row"."""
        return "line" if isinstance(self.source, CsvFile) else "row"

    @property
    def new(self) -> list[str]:
        """Columns that the model's own table did not have."""
        known = {*self.schema.words, *self.schema.reading.left_out}
        return [name for name in self.names if name not in known]

    def pieces(self, keep: Sequence[str] = (), most_rows: int = MOST_ROWS) -> Iterator[Piece]:
        """All rows, in their order.

        Words that training did not see become gaps, which is what they are to a model. Where a
        column holds no other words, that is told in the end.
        """
        for name in keep:
            if name not in self.names:
                close = get_close_matches(name, self.names) or self.names
                msg = f"There is no column {name!r}. There is {some_of(map(repr, close))}."
                raise InputError(msg)
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(self.names)))
        strange: dict[str, dict[str, None]] = {}
        seen: set[str] = set()
        empty = True
        of_csv = isinstance(self.source, CsvFile)
        for frame, lines, bad, kept in (self._csv if of_csv else self._parquet)(keep, most_rows):
            empty = False
            for name, words in self.schema.words.items():
                if words is not None:
                    frame[name] = _known_words(frame[name], words, strange, seen)
            odd = [*bad, *infinite_cells(frame, lines)]
            odd += self._holes(frame, lines, {one.line for one in odd})
            good = ~np.isin(lines, [one.line for one in odd])
            yield Piece(frame.loc[good], lines[good], tuple(sorted(odd)), kept)
        if empty:
            msg = f"{self._path} has columns, but no rows."
            raise InputError(msg)
        _refuse_strange(strange, seen, self.schema)

    @property
    def _path(self) -> Path:
        return self.source.path if isinstance(self.source, CsvFile) else self.source

    def _csv(self, keep: Sequence[str], most_rows: int) -> Iterator[tuple[Any, ...]]:
        assert isinstance(self.source, CsvFile)
        file, names = self.source, self.names
        how = (file.path, file.delimiter, file.encoding, file.decimal)
        as_text = {name: words is not None for name, words in self.schema.words.items()}
        at = [names.index(name) for name in keep]
        records = file.records()
        while held := list(islice(records, most_rows)):
            frame, lines, bad = read_csv(_Records(*how, names, held), as_text, self.gaps)
            kept = {
                one.line: tuple(one.cells[i].strip() for i in at)
                for one in held
                if isinstance(one.cells, list) and len(one.cells) == len(names)
            }
            yield frame, lines, bad, kept

    def _parquet(self, keep: Sequence[str], most_rows: int) -> Iterator[tuple[Any, ...]]:
        import pyarrow as pa

        assert isinstance(self.source, Path)
        read = list(dict.fromkeys([*self.schema.words, *keep]))
        start = 0
        with parquet_file(self.source, BUFFER) as file:
            for batch in file.iter_batches(most_rows, columns=read):
                whole = frame_of(pa.Table.from_batches([batch]))
                lines = np.arange(start, start + len(whole))
                start += len(whole)
                text = [
                    ["" if cell is None else str(cell) for cell in batch[n].to_pylist()]
                    for n in keep
                ]
                kept = (
                    dict(zip(lines.tolist(), zip(*text, strict=True), strict=True)) if keep else {}
                )
                frame, bad = whole[[*self.schema.words]].copy(deep=False), list[BadRow]()
                for name, words in self.schema.words.items():
                    frame[name] = _without(frame[name], self.gaps)
                    if words is None:
                        frame[name], odd = _as_numbers(frame[name], lines)
                        bad += odd
                yield frame, lines, bad, kept

    def _holes(
        self, frame: "pd.DataFrame", lines: NDArray[np.int64], bad: set[int]
    ) -> Iterator[BadRow]:
        """Numbers that are missing where training always had one, but for rows that are bad."""
        for name, words in self.schema.words.items():
            if words is None and name not in self.schema.filled:
                for line in lines[frame[name].isna().to_numpy()].tolist():
                    if line not in bad:
                        yield BadRow(line, name, "", "is missing, and never was in training")


def _lacks(path: Path, lacks: list[str], others: list[str]) -> str:
    if len(others) == 1 and all(name in others[0] for name in lacks):
        return (
            f"{path} has a single column {others[0]!r}, but the model's table had others: pass the "
            "`delimiter` of this file."
        )
    close = get_close_matches(lacks[0], others, n=1)
    has = "" if not close else f" It has {close[0]!r}: rename it, if that is the same."
    more = "" if has or not others else f" It has {some_of(map(repr, others))} besides."
    return (
        f"{path} lacks {some_of(map(repr, lacks))}: the model was fitted with "
        f"{'this column' if len(lacks) == 1 else 'these columns'}.{has or more}"
    )


def _without(column: "pd.Series[Any]", gaps: tuple[str, ...]) -> "pd.Series[Any]":
    """Words, and numbers written so, that mean "no value" are gaps."""
    numbers = [number for number in map(number_of, gaps) if number is not None]
    odd = column.isin([*gaps, *numbers]) if gaps else None
    return column if odd is None or not odd.any() else column.astype(object).mask(odd, None)


def _as_numbers(
    column: "pd.Series[Any]", lines: NDArray[np.int64]
) -> tuple["pd.Series[Any]", list[BadRow]]:
    """Numbers, also those that Parquet has as text; and cells that are none."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return column, []
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    odd = (numbers.isna() & column.notna()).to_numpy().nonzero()[0]
    cells = column.to_numpy()
    return numbers, [
        BadRow(int(lines[row]), str(column.name), str(cells[row])[:200], "is no number")
        for row in odd
    ]


def _known_words(
    column: "pd.Series[Any]",
    words: tuple[str, ...],
    strange: dict[str, dict[str, None]],
    seen: set[str],
) -> "pd.Series[Any]":
    """The column with gaps for other words than these, which are noted."""
    import pandas as pd

    cells = column.astype("category")
    place = {word: at for at, word in enumerate(words)}
    found = [str(cell) for cell in cells.cat.categories]
    # a gap turns integers into floats
    at = [place.get(word, place.get(word.removesuffix(".0"), -1)) for word in found]
    codes = np.array([*at, -1])[cells.cat.codes.to_numpy()]
    used = {*np.unique(cells.cat.codes.to_numpy()).tolist()} - {-1}
    others = strange.setdefault(str(column.name), {})
    for code in used:
        if at[code] >= 0:
            seen.add(str(column.name))
        elif len(others) < STRANGE_WORDS:
            others[found[code]] = None
    known = pd.Categorical.from_codes(codes, pd.Index(words))
    return pd.Series(known, index=column.index, name=column.name)


def _refuse_strange(strange: dict[str, dict[str, None]], seen: set[str], schema: Schema) -> None:
    """One new word may be a new town; several without a known one are written otherwise."""
    for name, others in strange.items():
        if len(others) > 1 and name not in seen:
            words = map(repr, schema.words[name] or ())
            msg = (
                f"Column {name!r} holds no word that training saw: {some_of(map(repr, others))} "
                f"instead of {some_of(words)}. Write it as in the table that was learned from."
            )
            raise InputError(msg)
