"""Read a table piece by piece, like the table that a model was fitted with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, ModelFileError, some_of
from robustpll.estimator.features import Features
from robustpll.tables.checks import too_large_cells
from robustpll.tables.columns import Reading, no_column, refuse_equal_names
from robustpll.tables.rows import read_rows, refuse_lists
from robustpll.tables.source import GAPS, PARQUET, BadRow, CsvFile, names_in, opened_source

MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
NEW_WORDS = 6  # of a column, for a message


@dataclass(frozen=True)
class Schema:
    """The columns that a model was fitted with, and how its table was read.

    >>> features = Features(("age", "town is Rome"), (2,), {"town": ("Rome",)}, {}, (0, 0), (1, 1))
    >>> Schema.of(features, ["age", "town"]).words
    {'age': None, 'town': ('Rome',)}
    """

    words: Mapping[str, tuple[str, ...] | None]  # of each feature; None for numbers
    filled: frozenset[str] = frozenset()  # numbers that may be missing
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(
        cls, features: Features, names: Sequence[str], reading: Mapping[str, Any] | None = None
    ) -> Self:
        """Make a schema from a model file; `reading` is a `Reading` in JSON."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), reading_from_json(reading or {}))


def reading_from_json(values: Any) -> Reading:
    """Return a checked `Reading`, without fields that a later version may have added.

    >>> reading_from_json({"missing": ["?"], "colour": "red"}).missing
    ('?',)
    """
    if not isinstance(values, Mapping):
        raise ModelFileError(f"The model file describes how its table was read as {values!r}.")
    known: dict[str, Any] = {}
    for option in fields(Reading):
        value = values.get(option.name, option.default)
        is_tuple = isinstance(option.default, tuple)
        texts = value if is_tuple else [value or ""]
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ModelFileError(f"The model file has {option.name}={value!r} for its table.")
        known[option.name] = tuple(value) if is_tuple else value
    return Reading(**known)


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows of a table."""

    features: pd.DataFrame  # of the rows without faults
    lines: NDArray[np.int64]  # of the rows without faults, as in `Table.rows`
    bad: tuple[BadRow, ...]  # faults of the other rows
    kept: dict[int, tuple[str, ...]]  # line -> cells of the columns in `keep`


@dataclass(eq=False)
class NewWords:
    """Words in a column that were not in the training table, in the pieces read so far."""

    rows: int = 0  # rows without faults that have such a word
    words: list[str] = field(default_factory=list)  # the first few
    alone: bool = True  # no cell holds a word of the training table


@dataclass(frozen=True, eq=False)
class TableInPieces:
    """A table file that is read once, from beginning to end."""

    source: CsvFile | Path
    names: list[str]
    schema: Schema
    gaps: tuple[str, ...]  # words that mean "no value"
    new_words: dict[str, NewWords]  # by column; updated with each piece

    @classmethod
    def opened(cls, path: Path, schema: Schema, requested: Reading | None = None) -> Self:
        """Open a file; `requested` overrides how the training table was read."""
        requested = requested or Reading()
        is_parquet = path.suffix.lower() in PARQUET
        before = Reading(missing=schema.reading.missing) if is_parquet else schema.reading
        reading = requested.after(before)
        source = opened_source(path, requested, reading)
        assert isinstance(source, CsvFile | Path)  # a path is not a DataFrame
        names = names_in(source)
        if missing := [name for name in schema.words if name not in names]:
            raise InputError(_missing_columns(path, missing, [*{*names} - {*schema.words}]))
        new = {name: NewWords() for name, words in schema.words.items() if words is not None}
        return cls(source, names, schema, (*(() if is_parquet else GAPS), *reading.missing), new)

    @property
    def where(self) -> str:
        """The unit of `Piece.lines`: "line" or "row"."""
        return "line" if isinstance(self.source, CsvFile) else "row"

    @property
    def new(self) -> list[str]:
        """Columns that the training table did not have."""
        known = {*self.schema.words, *self.schema.reading.left_out}
        return [name for name in self.names if name not in known]

    def pieces(self, keep: Sequence[str] = (), most_rows: int = MOST_ROWS) -> Iterator[Piece]:
        """Yield all rows in order. Words that training did not see become gaps."""
        for name in keep:
            if name not in self.names:
                raise InputError(f"There is {no_column(name, self.names)}")
        refuse_equal_names(self.names, {*self.schema.words, *keep})
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(self.names)))
        kinds = {name: words is not None for name, words in self.schema.words.items()}
        is_empty = True
        for rows in read_rows(self.source, kinds, self.gaps, keep=keep, most_rows=most_rows):
            frame, lines, faults, kept = rows
            is_empty = False
            refuse_lists(frame, "write it as in training")
            is_new = {name: self._replace_new_words(frame, name) for name in self.new_words}
            bad = [*faults, *too_large_cells(frame, lines)]
            bad += self._missing_numbers(frame, lines, {fault.line for fault in bad})
            is_good = ~np.isin(lines, [fault.line for fault in bad])
            for name, has_new in is_new.items():
                self.new_words[name].rows += int(has_new[is_good].sum())
            yield Piece(frame.loc[is_good], lines[is_good], tuple(sorted(bad)), kept)
        if is_empty:
            raise InputError(
                f"{getattr(self.source, 'path', self.source)} has columns, but no rows."
            )
        for name, new in self.new_words.items():
            if new.alone and len(new.words) > 1:  # a single new word may be correct
                raise InputError(
                    f"Column {name!r} holds no word that training saw: "
                    f"{some_of(map(repr, new.words))} instead of "
                    f"{some_of(map(repr, self.schema.words[name] or ()))}. Write the words as in "
                    "the training table."
                )

    def _missing_numbers(
        self, frame: pd.DataFrame, lines: NDArray[np.int64], bad: set[int]
    ) -> Iterator[BadRow]:
        """Yield faults for gaps in columns without gaps in training, except in bad lines."""
        for name, words in self.schema.words.items():
            if words is None and name not in self.schema.filled:
                for line in lines[frame[name].isna().to_numpy()].tolist():
                    if line not in bad:
                        yield BadRow(line, name, "", "is missing, and never was in training")

    def _replace_new_words(self, frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
        """Replace new words by gaps, note them, and return the rows (n,) that had one."""
        words, new = self.schema.words[name] or (), self.new_words[name]
        cells = frame[name].astype("category").cat
        values = [str(cell) for cell in cells.categories]
        position = {word: at for at, word in enumerate(words)}
        # a gap turns integers into floats: "1.0" is "1"
        known = [position.get(text, position.get(text.removesuffix(".0"), -1)) for text in values]
        codes = np.array([*known, -1])[cells.codes]
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(words))
        is_new: NDArray[np.bool_] = (cells.codes.to_numpy() >= 0) & (codes < 0)
        others = (values[code] for code in np.unique(cells.codes[is_new]))
        new.words = list(dict.fromkeys([*new.words, *others]))[:NEW_WORDS]
        new.alone &= not (codes >= 0).any()
        return is_new


def _missing_columns(path: Path, missing: list[str], others: list[str]) -> str:
    if len(others) == 1 and all(name in others[0] for name in missing):
        return (
            f"{path} has a single column {others[0]!r}, but the training table had several: pass "
            "the `delimiter` of this file."
        )
    close = get_close_matches(missing[0], others, n=1)
    has = f" It has {some_of(map(repr, others))} besides." if others else ""
    has = f" It has {close[0]!r}: rename it if it is the same." if close else has
    which = "this column" if len(missing) == 1 else "these columns"
    return f"{path} lacks {some_of(map(repr, missing))}: the model was fitted with {which}.{has}"
