"""Read the rows to predict in pieces, with the columns that a model was fitted with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.errors import InputError, some_of
from robustpll.tables.source import (
    AS_BEFORE,
    BadRow,
    Lines,
    Reading,
    Source,
    bad_rows,
    feature_faults,
    no_column,
    opened_source,
    refuse_equal_names,
)

if TYPE_CHECKING:
    from robustpll.estimator.features import Features

MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
NEVER_MISSING = "is missing, and never was in training"
NEW_WORDS = 6  # of a column, for a message


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    features: pd.DataFrame
    lines: Lines  # of the rows in `features`, as in `Table.rows`
    bad: list[BadRow]  # faults, also of rows that are not in `features`
    kept: dict[int, tuple[str, ...]]  # line -> cells of further columns


@dataclass(frozen=True)
class Schema:
    """The columns that a model was fitted with, and how its table was read."""

    words: Mapping[str, tuple[str, ...] | None]  # of each feature; None for numbers
    filled: frozenset[str] = frozenset()  # numbers that may be missing
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(cls, features: "Features", names: Sequence[str], reading: Any = None) -> Self:
        """Make a schema from a model file; `reading` is a `Reading` in JSON."""
        words = {str(name): features.categories.get(str(name)) for name in names}
        return cls(words, frozenset(features.fill), Reading.from_json(reading or {}))


@dataclass(eq=False)
class NewWords:
    """Words in a column that were not in the training table, in the pieces read so far."""

    rows: int = 0  # rows without faults that have such a word
    words: list[str] = field(default_factory=list)  # the first few
    alone: bool = True  # no cell holds a word of the training table


@dataclass(frozen=True, eq=False)
class TableInPieces:
    """A table file that is read once, from beginning to end."""

    source: Source
    schema: Schema
    new_words: dict[str, NewWords]  # by column; updated with each piece

    @classmethod
    def opened(cls, path: Path, schema: Schema, requested: Reading | None = None) -> Self:
        """Open a file; `requested` overrides how the training table was read."""
        requested = requested or Reading()
        source = opened_source(path, requested, requested.after(schema.reading))
        if missing := [name for name in schema.words if name not in source.names]:
            others = [repr(name) for name in source.names if name not in schema.words]
            which = "this column" if len(missing) == 1 else "these columns"
            lacks = f"{path} lacks {some_of(map(repr, missing))}: the model was fitted with {which}"
            has = f"It has {some_of(others) or 'nothing'} besides"
            raise InputError(f"{lacks}. {has}. Rename or add columns.")
        new = {name: NewWords() for name, words in schema.words.items() if words is not None}
        return cls(source, schema, new)

    @property
    def where(self) -> str:
        """The unit of `Piece.lines`: "line" or "row"."""
        return self.source.unit

    @property
    def gaps(self) -> tuple[str, ...]:
        """Words that mean "no value"."""
        return self.source.gaps

    @property
    def new(self) -> list[str]:
        """Columns that the training table did not have."""
        known = {*self.schema.words, *self.schema.reading.left_out}
        return [name for name in self.source.names if name not in known]

    def pieces(self, keep: Sequence[str] = (), most_rows: int = MOST_ROWS) -> Iterator[Piece]:
        """Yield all rows in order. Words that training did not see become gaps."""
        names = self.source.names
        for name in keep:
            if name not in names:
                raise InputError(f"There is {no_column(name, names)}")
        refuse_equal_names(names, {*self.schema.words, *keep})
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(names)))
        kinds = {name: words is not None for name, words in self.schema.words.items()}
        required = [name for name in kinds if not kinds[name] and name not in self.schema.filled]
        copied = [*dict.fromkeys(keep)]
        for frame, (cells, lines, bad) in self.source.typed(kinds, copied, most_rows):
            bad.extend(feature_faults(frame, lines, AS_BEFORE))
            is_new = {name: self._replace_new_words(frame, name) for name in self.new_words}
            is_bad = np.isin(lines, [fault.line for fault in bad])
            for name in required:
                is_gap = frame[name].isna() & ~is_bad
                bad.extend(bad_rows(is_gap, lines, name, None, NEVER_MISSING))
            is_good = ~np.isin(lines, [fault.line for fault in bad])
            for name, has_new in is_new.items():
                self.new_words[name].rows += int(has_new[is_good].sum())
            texts = [self.source.texts(cells[name]) for name in keep]
            kept = dict(zip(lines.tolist(), zip(*texts, strict=True), strict=bool(keep)))
            yield Piece(frame.loc[is_good], lines[is_good], sorted(bad), kept)
        for name, new in self.new_words.items():
            if new.alone and len(new.words) > 1:  # a single new word may be correct
                words = some_of(map(repr, new.words))
                known = some_of(map(repr, self.schema.words[name] or ()))
                fault = f"Column {name!r} holds no word that training saw: {words}"
                raise InputError(f"{fault} instead of {known}. Write them as in training.")

    def _replace_new_words(self, frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
        """Replace new words by gaps, note them, and return the rows (n,) that had one."""
        words, new = self.schema.words[name] or (), self.new_words[name]
        cells = frame[name].astype("category").cat
        values = [str(cell) for cell in cells.categories]
        position = {word: number for number, word in enumerate(words)}
        # a gap turns integers into floats: "1.0" is "1"
        known = [position.get(text, position.get(text.removesuffix(".0"), -1)) for text in values]
        codes = np.array([*known, -1])[cells.codes]
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(words))
        is_new: NDArray[np.bool_] = (cells.codes.to_numpy() >= 0) & (codes < 0)
        others = (values[code] for code in np.unique(cells.codes[is_new]))
        new.words = list(dict.fromkeys([*new.words, *others]))[:NEW_WORDS]
        new.alone &= not (codes >= 0).any()
        return is_new
