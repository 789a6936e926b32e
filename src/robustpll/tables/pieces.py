"""A table that may be larger than memory, piece by piece, read as a model's own table was."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, ModelFileError, some_of
from robustpll.estimator.features import Features
from robustpll.tables.checks import refuse_lists, too_large_cells, with_gaps
from robustpll.tables.columns import Reading, no_column, refuse_equal_names
from robustpll.tables.csv_rows import GAPS, SHOWN, BadRow, CsvFile, read_csv
from robustpll.tables.source import frame_of, names_in, opened_source, parquet_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2**13  # of a piece: enough for a network to be busy
MOST_CELLS = 2**20  # of a piece, some 80 MB as Python text
BUFFER = 2**20  # bytes of each column of a Parquet file
NEW_WORDS = 6  # of a column, kept for a message


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
        """From what a model file holds; `reading` is a `Reading` as JSON has it."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), reading_from_json(reading or {}))


def reading_from_json(found: Any) -> Reading:
    """How a table was read; what a later version may have added is left out.

    >>> reading_from_json({"missing": ["?"], "colour": "red"}).missing
    ('?',)
    """
    if not isinstance(found, Mapping):
        raise ModelFileError(f"The model file says of its table that it was read by {found!r}.")
    known: dict[str, Any] = {}
    for each in fields(Reading):
        value = found.get(each.name, each.default)
        several = isinstance(each.default, tuple)
        texts = value if several else [value or ""]
        if not isinstance(texts, list | tuple) or not all(isinstance(one, str) for one in texts):
            raise ModelFileError(f"The model file says of its table that {each.name} is {value!r}.")
        known[each.name] = tuple(value) if several else value
    return Reading(**known)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a table that come one after the other."""

    features: "pd.DataFrame"  # of the rows that parse
    lines: NDArray[np.int64]  # of these, as in `Table.rows`
    bad: tuple[BadRow, ...]  # why the others do not
    kept: dict[int, tuple[str, ...]]  # line -> cells of other columns, for rows of the right width


@dataclass(eq=False)
class NewWords:
    """What a column of words holds that training did not see, as far as it is read."""

    rows: int = 0  # with such a word, of those that parse
    words: list[str] = field(default_factory=list)  # the first few
    alone: bool = True  # no cell holds a word that training saw


@dataclass(frozen=True, eq=False)
class TableInPieces:
    """A table that was opened to be read once, from its beginning to its end."""

    source: CsvFile | Path
    names: list[str]
    schema: Schema
    gaps: tuple[str, ...]  # words that mean "no value"
    new_words: dict[str, NewWords]  # by column; grows with each piece that is read

    @classmethod
    def opened(cls, path: Path, schema: Schema, asked: Reading | None = None) -> Self:
        """`asked` is how this file is written, where it is not as the first."""
        asked = asked or Reading()
        parquet = path.suffix.lower() not in (".csv", ".tsv", ".gz")
        first = Reading(missing=schema.reading.missing) if parquet else schema.reading
        reading = asked.after(first)
        source = opened_source(path, asked, reading)
        assert isinstance(source, CsvFile | Path)  # a path is no DataFrame
        names = names_in(source)
        lacks = [name for name in schema.words if name not in names]
        if lacks:
            raise InputError(_lacks(path, lacks, [n for n in names if n not in schema.words]))
        new = {name: NewWords() for name, words in schema.words.items() if words is not None}
        return cls(source, names, schema, (*(() if parquet else GAPS), *reading.missing), new)

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
                raise InputError(f"There is {no_column(name, self.names)}")
        refuse_equal_names(self.names, {*self.schema.words, *keep})
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(self.names)))
        empty = True
        of_csv = isinstance(self.source, CsvFile)
        for frame, lines, bad, kept in (self._csv if of_csv else self._parquet)(keep, most_rows):
            empty = False
            held = {name: self._known_words(frame, name) for name in self.new_words}
            odd = [*bad, *too_large_cells(frame, lines)]
            odd += self._holes(frame, lines, {one.line for one in odd})
            good = ~np.isin(lines, [one.line for one in odd])
            for name, is_new in held.items():
                self.new_words[name].rows += int(is_new[good].sum())
            yield Piece(frame.loc[good], lines[good], tuple(sorted(odd)), kept)
        if empty:
            raise InputError(f"{self._path} has columns, but no rows.")
        self._refuse_new_words_alone()

    @property
    def _path(self) -> Path:
        return self.source.path if isinstance(self.source, CsvFile) else self.source

    def _csv(self, keep: Sequence[str], most_rows: int) -> Iterator[tuple[Any, ...]]:
        assert isinstance(self.source, CsvFile)
        as_text = {name: words is not None for name, words in self.schema.words.items()}
        at = [self.names.index(name) for name in keep]
        records = self.source.records()
        while held := list(islice(records, most_rows)):
            frame, lines, bad = read_csv(self.source, as_text, self.gaps, held)
            kept = {
                one.line: tuple(one.cells[i].strip() for i in at)
                for one in held
                if isinstance(one.cells, list) and len(one.cells) == len(self.names)
            }
            yield frame, lines, bad, kept

    def _parquet(self, keep: Sequence[str], most_rows: int) -> Iterator[tuple[Any, ...]]:
        import pyarrow as pa

        assert isinstance(self.source, Path)
        read = list(dict.fromkeys([*self.schema.words, *keep]))
        measures = [name for name, words in self.schema.words.items() if words is None]
        start = 0
        with parquet_file(self.source, BUFFER) as file:
            for batch in file.iter_batches(most_rows, columns=read):
                whole = frame_of(pa.Table.from_batches([batch]))
                refuse_lists(whole[[*self.schema.words]], "write it as in training")
                lines = np.arange(start, start + len(whole))
                start += len(whole)
                text = [
                    ["" if cell is None else str(cell) for cell in batch[n].to_pylist()]
                    for n in keep
                ]
                cells = zip(*text, strict=True)  # of each row; none where nothing is kept
                kept = dict(zip(lines.tolist(), cells, strict=bool(keep)))
                frame = with_gaps(whole[[*self.schema.words]], self.gaps, measures)
                bad: list[BadRow] = []
                for name in measures:
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

    def _known_words(self, frame: "pd.DataFrame", name: str) -> NDArray[np.bool_]:
        """Make gaps of words that training did not see; notes them, and tells the rows (n,)."""
        import pandas as pd

        words, new = self.schema.words[name] or (), self.new_words[name]
        cells = frame[name].astype("category")
        own = cells.cat.codes.to_numpy()
        found = [str(cell) for cell in cells.cat.categories]
        place = {word: at for at, word in enumerate(words)}
        # a gap turns integers into floats
        at = [place.get(word, place.get(word.removesuffix(".0"), -1)) for word in found]
        codes = np.array([*at, -1])[own]
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(words))
        is_new: NDArray[np.bool_] = (own >= 0) & (codes < 0)
        others = (found[code] for code in np.unique(own[is_new]))
        new.words = list(dict.fromkeys([*new.words, *others]))[:NEW_WORDS]
        new.alone &= not (codes >= 0).any()
        return is_new

    def _refuse_new_words_alone(self) -> None:
        """One new word may be a new town; several without a known one are written otherwise."""
        for name, new in self.new_words.items():
            if new.alone and len(new.words) > 1:
                words = map(repr, self.schema.words[name] or ())
                raise InputError(
                    f"Column {name!r} holds no word that training saw: "
                    f"{some_of(map(repr, new.words))} instead of {some_of(words)}. Write it as in "
                    "the table that was learned from."
                )


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


def _as_numbers(
    column: "pd.Series[Any]", lines: NDArray[np.int64]
) -> tuple["pd.Series[Any]", list[BadRow]]:
    """Numbers, also those that Parquet has as text; and cells that are none."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return column, []
    column = column.astype(object)  # else dates would be taken for numbers
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    odd = (numbers.isna() & column.notna()).to_numpy().nonzero()[0]
    cells = column.to_numpy()
    return numbers, [
        BadRow(int(lines[row]), str(column.name), str(cells[row])[:SHOWN], "is no number")
        for row in odd
    ]
