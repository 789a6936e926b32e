"""Read tables to learn from as a whole, and tables to predict in pieces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll._files import refuse_replacing
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.tables.checks import refuse_odd_features
from robustpll.tables.labels import NO_CLASS, read_labels, with_truth
from robustpll.tables.source import (
    AS_BEFORE,
    BAD_ROWS,
    BadRow,
    Batch,
    Lines,
    Reading,
    Source,
    bad_rows,
    feature_faults,
    is_list_of_bad_rows,
    no_column,
    opened_source,
    refuse_equal_names,
    several,
    write_bad_rows,
)

if TYPE_CHECKING:
    from robustpll.estimator.features import Features

FORMS = ("candidates", "indicators", "votes")
LARGEST = float(np.finfo(np.float32).max)  # networks compute in float32

MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
NEVER_MISSING = "is missing, and never was in training"
NEW_WORDS = 6  # of a column, for a message


@dataclass(frozen=True, eq=False)
class Table:
    """The result of `read_table`.

    Attributes
    ----------
    features : DataFrame of n rows
        Numbers, text and categories to fit a classifier with.
    y : Candidates, Votes or None
        The candidates of each row; None if the table has none.
    truth : array of shape (n,) or None
        True labels, for scoring only; None where a row has none. ``pandas.notna(table.truth)``
        selects the rows to score.
    rows : int array of shape (n,)
        Line numbers of a CSV file, whose header is line 1; otherwise row numbers from 0.
    bad : tuple of BadRow
        Faults of the rows that are left out: line, column, value and reason.
    reading : Reading
        How the table was read. ``read_table(other, like=table)`` repeats it.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame(
    ...     {"weight": [4.1, 30.0], "vote bob": ["cat", "dog"], "vote eve": ["dog", None]}
    ... )
    >>> table = read_table(pets, votes="vote ")
    >>> table.annotators
    ('bob', 'eve')
    >>> Candidates.of(table.y).sets()[1]
    frozenset({'dog'})
    """

    features: pd.DataFrame
    y: Candidates | Votes | None
    truth: NDArray[Any] | None
    rows: NDArray[np.int64]
    bad: tuple[BadRow, ...] = ()
    reading: Reading = field(default_factory=Reading)
    cells: Any = field(default=None, init=False, repr=False)  # see `read_with_cells`

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators: the names of the vote columns without their prefix."""
        return tuple(self.y.answers.columns) if isinstance(self.y, Votes) else ()

    def __len__(self) -> int:
        return len(self.rows)


def read_table(
    source: str | Path | pd.DataFrame,
    *,
    candidates: str | None = None,
    separator: str = "|",
    indicators: str | None = None,
    votes: str | None = None,
    truth: str | None = None,
    ignore: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    unanswered: Literal["error", "all classes"] = "error",
    on_bad_rows: Literal["error", "skip"] = "error",
    errors_to: str | Path | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    like: Table | None = None,
) -> Table:
    """Read features and candidates from a file (.csv, .tsv, .csv.gz, .parquet) or a DataFrame.

    Parameters
    ----------
    candidates, separator, indicators, votes
        A column whose cells are ``cat|dog``, ``["cat", "a|b"]`` or lists; or the prefix of 0/1
        columns, one for each class; or the prefix of columns with answers, one for each annotator.
        For prediction, pass none of the three.
    truth, ignore, categories
        The column of true labels, for scoring; columns to leave out; columns to treat as
        categorical even if their values are numeric. All other columns are features.
    missing, encoding, delimiter, decimal
        Words that mean "no value", in addition to "", NA, NaN and null in CSV files; the format of
        a CSV file that is not UTF-8 with commas (or tabs) and decimal points.
    unanswered, on_bad_rows, errors_to
        A row without candidates is bad, or has "all classes". Bad rows also have too many or few
        cells, huge numbers, or a word in a column with 99 % numbers. They are an "error", or
        "skip" leaves them out. `errors_to` is a CSV file to list them in.
    like
        A table read before. Its features are read in the same way; its other columns are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame({"weight": [4, 30, 4], "seen": ["cat", "dog|wolf", "cat|dog"]})
    >>> read_table(pets, candidates="seen").y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """
    columns = candidates, separator, indicators, votes, truth, ignore, categories
    rows = missing, unanswered, on_bad_rows, errors_to
    return _read(source, Options(*columns, *rows, encoding, delimiter, decimal, like))


def read_with_cells(source: str | Path, **arguments: Any) -> Table:
    """Read a file as `read_table`; `Table.cells` has all columns of the rows, as in the file."""
    return _read(source, Options(**arguments, with_cells=True))


@dataclass(frozen=True)
class Options:
    """The arguments of `read_table`, with the same defaults."""

    candidates: str | None = None
    separator: Any = "|"
    indicators: str | None = None
    votes: str | None = None
    truth: str | None = None
    ignore: str | Sequence[str] = ()
    categories: str | Sequence[str] = ()
    missing: str | Sequence[str] = ()
    unanswered: str = "error"
    on_bad_rows: str = "error"
    errors_to: str | Path | None = None
    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    like: Any = None  # a Table
    with_cells: bool = False  # not an argument: whether the table keeps the cells of all columns

    def __post_init__(self) -> None:
        for argument in (*FORMS, "truth"):
            text = getattr(self, argument)
            if not isinstance(text, str | None):
                remedy = "pass one text. Columns need names that are texts"
                raise InputError(f"{argument}={text!r}: {remedy}.")
        if not isinstance(self.separator, str) or len(self.separator) != 1:
            remedy = 'For names with any character, write a JSON list: ["a|b", "c"].'
            raise InputError(f"separator={self.separator!r}: it must be one character. {remedy}")
        for name, permitted in (
            ("unanswered", ("error", "all classes")),
            ("on_bad_rows", ("error", "skip")),
            ("decimal", (None, ".", ",")),
        ):
            value = getattr(self, name)
            if value not in permitted:
                choice = " or ".join(repr(word) for word in permitted if word)
                raise InputError(f"{name}={value!r}: it must be {choice}.")

    @property
    def reading(self) -> Reading:
        """The part of these options that a second table repeats."""
        words = several(self.categories), several(self.missing)
        return Reading((), *words, self.encoding, self.delimiter, self.decimal)


class Roles(NamedTuple):
    """The role of each column."""

    form: str | None  # of the labels: "candidates", "indicators", "votes" or None
    labels: tuple[str, ...]
    features: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that are not features


def assign_roles(
    names: Sequence[str], options: Options, reading: Reading, like: Sequence[str] | None
) -> Roles:
    """Check names in the options; features are those of the table `like`, if passed.

    Columns that were left out before stay so if they still have no other role.
    """
    passed = [(form, text) for form in FORMS if (text := getattr(options, form)) is not None]
    if len(passed) > 1:
        raise InputError(f"{passed[0][0]} and {passed[1][0]} are passed: pass only one of them.")
    form, prefix = passed[0] if passed else (None, "")
    refuse_equal_names(names, names)
    columns = {
        "candidates": several(options.candidates),
        "truth": several(options.truth),
        "ignore": several(options.ignore),
        "categories": reading.categories,
    }
    role_of: dict[str, str] = {}
    for argument, used in columns.items():
        for name in used:
            if name not in names:
                raise InputError(f"`{argument}`: there is {no_column(name, names)}")
            if name in role_of:
                both = f"both `{role_of[name]}` and `{argument}`"
                raise InputError(f"Column {name!r} is named in {both}: name it in one.")
            role_of[name] = argument
    labels = columns["candidates"]
    if form in ("indicators", "votes"):
        labels = tuple(n for n in names if str(n).startswith(prefix) and n not in role_of)
        if not prefix or not labels or prefix in labels:
            is_whole = prefix and prefix in labels
            fault = "it is the whole name of a column" if is_whole else "no column begins with it"
            remedy = f"Pass a prefix of some of {some_of(map(repr, names))}"
            raise InputError(f"{form}={prefix!r}: {fault}. {remedy}.")
    others = {*role_of, *labels, *reading.left_out}.difference(reading.categories)
    features = [name for name in names if name not in others]
    if like is not None:
        if {*like} != {*features}:
            missing = some_of([repr(name) for name in like if name not in features]) or "nothing"
            further = some_of([repr(name) for name in features if name not in like]) or "nothing"
            fault = f"The table differs from `like`: it lacks {missing} and has {further} besides"
            raise InputError(f"{fault}. Add columns, or name further ones in `ignore`.")
        features = [*like]
    left_out = tuple(name for name in names if name in others)
    return Roles(form, labels, tuple(features), left_out)


def _read(source: Any, options: Options) -> Table:
    like, requested, errors_to = options.like, options.reading, options.errors_to
    if not isinstance(like, Table | None):
        raise InputError(f"like must be a result of read_table; got a {type(like).__name__}.")
    if errors_to is not None:
        refuse_replacing(Path(errors_to), is_list_of_bad_rows, BAD_ROWS)
    reading = requested if like is None else requested.after(like.reading)
    opened = opened_source(source, requested, reading)
    features_before = None if like is None else like.features.columns.tolist()
    roles = assign_roles(opened.names, options, reading, features_before)
    frame, (cells, lines, faults) = _read_columns(opened, roles, reading, options)
    labels = read_labels(roles.form, frame[[*roles.labels]], lines, opened.gaps, options)
    bad = tuple(sorted([*faults, *labels.bad]))
    is_good = ~np.isin(lines, [fault.line for fault in bad])
    _report(bad, opened, options)
    if not is_good.any():
        place = f"{opened.unit} {bad[0].line}"
        raise InputError(f"{opened.title}: no row parses. In {place}, {bad[0]}.")
    rows = slice(None) if is_good.all() else is_good
    features, lines = frame.loc[rows, [*roles.features]], lines[rows]
    features = features.astype(dict.fromkeys(reading.categories, "category"))
    truth = None if options.truth is None else frame.loc[rows, options.truth]
    y, true_names = with_truth(labels, rows, truth, opened.unit, like)
    refuse_odd_features(features, y, opened.unit, lines)
    reading = replace(reading, left_out=roles.left_out)
    table = Table(features, y, true_names, lines, bad, reading)
    object.__setattr__(table, "cells", None if cells is None else cells.filter(is_good))
    return table


def _read_columns(
    opened: Source, roles: Roles, reading: Reading, options: Options
) -> tuple[pd.DataFrame, Batch]:
    """Read the columns that have a role; features as in the table `like`, if passed."""
    truth = () if options.truth is None else (options.truth,)
    kinds: dict[str, bool | None] = dict.fromkeys((*roles.labels, *truth), True)
    for name in roles.features:
        before = None if options.like is None else options.like.features[name]
        is_text = None if before is None else not pd.api.types.is_numeric_dtype(before)
        kinds[name] = True if name in reading.categories else is_text
    ((frame, batch),) = opened.typed(kinds, opened.names if options.with_cells else ())
    features, lines = frame[[*roles.features]], batch.lines
    batch.bad.extend(
        feature_faults(features, lines, "name it in `ignore` to leave it out", LARGEST)
    )
    if opened.unit == "line":
        for name in features.select_dtypes("category").columns.difference([*reading.categories]):
            frame[name] = frame[name].astype("string[pyarrow]")  # only users declare categories
    return frame, batch


def _report(bad: tuple[BadRow, ...], opened: Source, options: Options) -> None:
    """List faults in a file; raise an error unless they may be left out."""
    errors_to, unit = options.errors_to, opened.unit
    if errors_to is not None and (bad or Path(errors_to).is_file()):  # an old list must not stay
        write_bad_rows(Path(errors_to), unit, bad)
    if bad and options.on_bad_rows == "error":
        first = some_of((f"{unit} {fault.line}: {fault}" for fault in bad), 3)
        listed = f"{errors_to} lists them" if errors_to else "Pass errors_to to list them in a file"
        unanswered = any(fault.reason == NO_CLASS for fault in bad)
        permit = " Rows without candidates are kept by unanswered='all classes'." * unanswered
        raise InputError(
            f"{opened.title}: {len({fault.line for fault in bad})} rows do not parse ({first}). "
            f"{listed}. Correct them, or leave them out with on_bad_rows='skip'.{permit}"
        )


# Tables to predict, which may be larger than the memory


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
            copies = dict(zip(lines.tolist(), zip(*texts, strict=True), strict=bool(keep)))
            yield Piece(frame.loc[is_good], lines[is_good], sorted(bad), copies)
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
