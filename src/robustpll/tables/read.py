"""Read tables to learn from as a whole, and tables to predict in pieces."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll._display import ROWS, Displayed, short
from robustpll._files import refuse_replacing, write_whole
from robustpll.errors import InputError, counted, some_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import is_frame
from robustpll.labels.votes import DUPLICATES, Votes
from robustpll.tables.checks import refuse_odd_features
from robustpll.tables.images import MISSING, REASONS, PictureColumn, Size, size_of
from robustpll.tables.labels import read_labels, true_labels
from robustpll.tables.source import (
    BadRow,
    Lines,
    Reading,
    Source,
    bad_rows,
    check_names,
    feature_faults,
    number_of,
    opened_source,
    safe_csv,
    several,
)

FORMS = ("candidates", "indicators", "votes", "answers")
CHOICES = {
    "duplicates": DUPLICATES,
    "unanswered": ("error", "all classes"),
    "on_bad_rows": ("error", "skip"),
    "decimal": (None, ".", ","),
}
BAD_ROWS = "a list of bad rows"
MOST_ROWS = 2**13  # of a piece: enough to keep a network busy
MOST_CELLS = 2**20  # of a piece
UNKNOWN = Reading()


@dataclass(frozen=True, eq=False, repr=False)
class Table(Displayed):
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
    pictures : uint8 array of shape (n, 3, h, w) or (n, h, w), or None
        With `image_input`; `features` then has no columns.

    Examples
    --------
    >>> import pandas as pd
    >>> pets = pd.DataFrame({"weight": [4, 30], "vote bob": ["cat", "dog"], "vote eve": "dog"})
    >>> read_table(pets, votes="vote ").annotators
    ('bob', 'eve')
    """

    features: pd.DataFrame
    y: Candidates | Votes | None
    truth: NDArray[Any] | None
    rows: NDArray[np.int64]
    bad: tuple[BadRow, ...] = ()
    reading: Reading = field(default_factory=Reading)
    pictures: NDArray[np.uint8] | None = None
    cells: Any = field(default=None, init=False, repr=False)  # see `read_with_cells`

    @property
    def X(self) -> Any:
        """What to fit a classifier with: the pictures, or else the features."""
        return self.features if self.pictures is None else self.pictures

    @property
    def annotators(self) -> tuple[str, ...]:
        """The annotators: the names of the vote columns without their prefix."""
        return self.y.annotators if isinstance(self.y, Votes) else ()

    def __len__(self) -> int:
        return len(self.rows)

    def _facts(self) -> str:
        bad = f", {len(self.bad)} faults of rows that are left out" if self.bad else ""
        return f"{len(self)} rows, X={short(self.X)}, y={self.y!r}{bad}"

    def _table(self) -> Any:
        return self.features.head(ROWS)

    def _notes(self) -> list[str]:
        return [f"{row.line}: {row}" for row in self.bad[:ROWS]]


def read_table(
    source: str | Path | pd.DataFrame,
    *,
    candidates: str | None = None,
    separator: str = "|",
    indicators: str | None = None,
    votes: str | None = None,
    answers: str | Path | pd.DataFrame | None = None,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    confidence: str | None = None,
    duplicates: Literal["error", "last", "set"] = "error",
    question: str | None = None,
    unsure: str | None = None,
    rename: str | Path | Mapping[str, str | None] | None = None,
    fold_case: bool = False,
    truth: str | None = None,
    ignore: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    text: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    unanswered: Literal["error", "all classes"] = "error",
    on_bad_rows: Literal["error", "skip"] = "error",
    errors_to: str | Path | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    image_input: str | None = None,
    image_size: int | str | Size | None = None,
    images_root: str | Path | None = None,
    like: Table | None = None,
) -> Table:
    """Read features and candidates from a table file, a DataFrame, or a labelling tool's export.

    Parameters
    ----------
    candidates, separator, indicators, votes
        A column of cells ``cat|dog``, ``["cat", "a|b"]`` or lists; or the prefix of 0/1 columns; or
        of columns of answers: names, or JSON of names, probabilities or ``{"not": ["cat"]}``.
    answers, item, annotator, label, confidence, duplicates, question, unsure
        A long table or an export with the answers, and its columns; `item` names the rows of both
        tables. See `Votes.long`; a question of an export; an answer that means "cannot tell".
    rename, fold_case, truth, ignore, categories, text
        New names of classes: a dict, or CSV with ``from,to``. Whether to merge names by case, extra
        blanks and Unicode form. True labels, to score; columns to leave out, of words, of texts.
    missing, unanswered, on_bad_rows, errors_to, encoding, delimiter, decimal
        Words for "no value", besides "", NA, NaN and null of CSV. A row without candidates is bad,
        or has "all classes"; odd cells are bad, too. Such rows are an "error", or "skip" leaves
        them out; a CSV file that lists them. The format of a CSV file.
    image_input, image_size, images_root, like
        A column of paths: pictures are then the only features; see `read_images`. The folder of
        all pictures, by default the table's or the current one. A table to be read like.

    >>> pets = pd.DataFrame({"weight": [4, 30, 4], "seen": ["cat", "dog|wolf", "cat|dog"]})
    >>> read_table(pets, candidates="seen").y
    Candidates(3 rows, 3 classes, 1.67 candidates on average)
    """
    return _read(SimpleNamespace(**locals()))


def read_with_cells(
    source: str | Path, with_cells: bool = True, words: Callable[[str], str] = str, **arguments: Any
) -> Table:
    """Read a file as `read_table`; `Table.cells` has all columns of the rows, as in the file.

    `words` rewrites the reasons in the list `errors_to`.
    """
    options = (read_table.__kwdefaults__ or {}) | arguments
    return _read(SimpleNamespace(source=source, **options), with_cells, words)


def _read(options: Any, with_cells: bool = False, words: Callable[[str], str] = str) -> Table:
    """Read a table; `options` are the arguments of `read_table`."""
    options.seen = set[Any]()  # words for gaps and for "cannot tell" that occur
    _check(options)
    like = options.like
    passed: Any = {f.name: getattr(options, f.name) for f in fields(Reading)[1:]}  # no `left_out`
    passed |= {name: several(passed[name]) for name in ("categories", "missing", "text")}
    requested = Reading(**passed)
    before = None if like is None else like.reading
    source = opened_source(options.source, requested, before)
    if like is None and all(getattr(options, form) is None for form in FORMS):
        options.votes = getattr(source, "prefix", None)  # of an export
        if options.question is not None and options.votes is None:
            fault = f"question={options.question!r}: {source.title} has no answers to it"
            raise InputError(f"{fault}. Check the name, or leave it out.")
    form, labels, features = _roles(source, options)
    image_input = source.reading.image_input
    text = (*labels, *several(options.truth), *several(image_input))
    kinds: dict[str, bool | None] = dict.fromkeys(text, True)
    for name in features:
        is_text = None if like is None else not pd.api.types.is_numeric_dtype(like.features[name])
        is_named = name in (*source.reading.categories, *source.reading.text)
        kinds[name] = True if is_named else is_text
    ((frame, batch),) = source.typed(kinds, source.names if with_cells else ())
    lines, X = batch.lines, frame[features]
    faults = feature_faults(X, lines)
    bad_labels, build, rename = read_labels(form, frame[labels], lines, source.gaps, options)
    bad = [*batch.bad, *faults, *bad_labels]
    pictures = _read_pictures(frame, lines, bad, source, options)
    is_good = ~np.isin(lines, [fault.line for fault in bad])
    bad.sort()
    _warn_of_absent(options, source.seen | options.seen)
    is_fatal = options.on_bad_rows == "error" or not is_good.any()
    _report(bad, source, options, is_fatal, words)
    rows = slice(None) if is_good.all() else is_good
    words_of_csv = X.select_dtypes("category").columns if source.unit == "line" else ()
    types = dict.fromkeys(words_of_csv, "string[pyarrow]")  # only users declare categories
    X = X.loc[rows].astype(types | dict.fromkeys(source.reading.categories, "category"))
    y, truth = build(rows), None
    named = like.y if y is None and like is not None else y
    sets = None if named is None else Candidates.of(named)
    classes = None if sets is None else sets.classes
    if options.truth is not None:
        truth = true_labels(frame.loc[rows, options.truth], classes, rename)
    warn_of_gaps(source, {*labels, *several(options.truth)} - {options.item}, classes)
    if y is not None and sets is not None:
        refuse_odd_features(X.drop(columns=[*source.reading.text]), sets)
    reading = replace(
        source.reading,
        left_out=tuple(name for name in source.names if name not in X),
        question=getattr(getattr(source, "question", None), "question", None),
    )
    table = Table(X, y, truth, lines[rows], tuple(bad), reading, pictures)
    if with_cells:
        object.__setattr__(table, "cells", batch.cells.filter(is_good))
    return table


def _read_pictures(
    frame: pd.DataFrame, lines: Lines, bad: list[BadRow], source: Source, options: Any
) -> NDArray[np.uint8] | None:
    """Return the pictures of rows that are not `bad`, if there is a column of them; add faults."""
    if (name := source.reading.image_input) is None:
        return None
    folder = Path() if is_frame(source.content) else source.content.parent
    root = None if options.images_root is None else Path(options.images_root)
    size, grey = size_of(options.image_size), None
    if options.like is not None and options.like.pictures is not None:
        channels, height, width = options.like.pictures.shape[1:]
        size, grey = (height, width), channels == 1
    is_good = ~np.isin(lines, [fault.line for fault in bad])
    column = PictureColumn(name, folder, root, size, grey)
    pictures, faults = column.read(frame[name][is_good], lines[is_good])
    bad += faults
    return pictures


def _check(options: Any) -> None:
    if not isinstance(options.separator, str) or len(options.separator) != 1:
        rule = 'it must be one character. JSON lists can hold any character: ["a|b", "c"]'
        raise InputError(f"separator={options.separator!r}: {rule}.")
    for argument, permitted in CHOICES.items():
        value = getattr(options, argument)
        if value not in permitted:
            raise InputError(f"{argument}={value!r}: it must be one of {permitted}.")
    if not isinstance(options.like, Table | None):
        raise InputError(f"like={options.like!r}: it must be a result of read_table.")
    _check_answers(options)
    if options.image_size is not None and options.image_input is None:
        raise InputError("`image_size` is that of pictures: pass their column as `image_input`.")
    if options.images_root is not None and not Path(options.images_root).is_dir():
        raise InputError(f"images_root={str(options.images_root)!r}: there is no such folder.")
    if options.errors_to is not None:
        pattern = rb"(line|row)(.)column\2value\2reason\n"
        refuse_replacing(Path(options.errors_to), lambda c: bool(re.match(pattern, c)), BAD_ROWS)


def _check_answers(options: Any) -> None:
    if (options.item is None) != (options.answers is None):
        raise InputError("`answers` and `item` belong together: pass both, or neither.")
    for name in ("annotator", "label", "confidence"):
        if options.answers is None and getattr(options, name) is not None:
            raise InputError(f"`{name}` is a column of `answers`: pass that table, too.")


def _roles(source: Source, options: Any) -> tuple[str | None, list[str], list[str]]:
    """Return the form of the labels, the columns of labels, and the columns of features."""
    names, declared = source.names, {n: getattr(source.reading, n) for n in ("categories", "text")}
    passed = [(form, text) for form in FORMS if (text := getattr(options, form)) is not None]
    if len(passed) > 1:
        raise InputError(f"{passed[0][0]} and {passed[1][0]} are passed: pass only one of them.")
    form, prefix = passed[0] if passed else (None, "")
    check_names(names, names)
    role_of: dict[str, str] = {}
    for argument in ("candidates", "item", "truth", "ignore", *declared):
        used = declared.get(argument) or several(getattr(options, argument))
        check_names(names, used, argument, options.item)
        for name in used:
            if name in role_of:
                both = f"both `{role_of[name]}` and `{argument}`"
                raise InputError(f"Column {name!r} is named in {both}: name it in one.")
            role_of[name] = argument
    labels = [*several(options.candidates or options.item)]
    if form in ("indicators", "votes"):
        labels = _named_by(str(form), str(prefix), names, role_of)
    if (image_input := source.reading.image_input) is not None:
        check_names(names, [image_input], "image_input")
        rule = "makes pictures the only features: pass no `categories` or `text`"
        if image_input in {*labels, options.truth} - {options.item}:  # files may name the rows
            rule = "must be a column of its own, without labels"
        elif not any(declared.values()):
            return form, labels, []
        raise InputError(f"image_input={image_input!r} {rule}.")
    if options.like is None:
        others = {*role_of, *labels, *source.left_out}.difference(*declared.values())
        return form, labels, [name for name in names if name not in others]
    features = options.like.features.columns.tolist()
    check_names(names, features, "like")
    return form, labels, features


def _named_by(form: str, prefix: str, names: list[str], role_of: dict[str, str]) -> list[str]:
    """Return the columns of labels that begin so, but for those with another role."""
    begun = [name for name in names if str(name).startswith(prefix)]
    if both := [n for n in begun if role_of.get(n) in ("categories", "text")]:
        roles = f"both `{form}` and `{role_of[both[0]]}`"
        raise InputError(f"Column {both[0]!r} is named in {roles}: it has labels, or is a feature.")
    labels = [name for name in begun if name not in role_of]
    if not prefix or not labels or prefix in labels:
        rule = f"it must be the beginning of some of {some_of(map(repr, names))}"
        raise InputError(f"{form}={prefix!r}: {rule}, and not the whole name of one.")
    return labels


def warn_of_gaps(source: Source, columns: set[str], classes: Any) -> None:
    """Warn of words such as NA that labels lose though they may be a class.

    They may be if there are empty cells, too, or if other labels name such a class.
    """
    for name in sorted(columns & source.gaps_of.keys()):
        words = source.gaps_of[name] - {*source.reading.missing}
        named = set[str]() if classes is None else {*map(str, classes)}
        words = words - {""} if "" in words else words & named
        if words:
            these = f"Column {name!r}: {some_of(map(repr, sorted(words)))} is read as no label"
            warnings.warn(f"{these}. If it is a class, rename it.", UserWarning, stacklevel=5)


def _warn_of_absent(options: Any, seen: set[Any]) -> None:
    """Warn of words for gaps or "cannot tell" that are not among those that occur."""
    for argument in ("missing", "unsure"):
        words = several(getattr(options, argument))
        if absent := [word for word in words if {word, number_of(word)}.isdisjoint(seen)]:
            fault = f"`{argument}`: no cell that is read holds {some_of(map(repr, absent))}"
            warnings.warn(f"{fault}. Check the spelling.", UserWarning, stacklevel=4)


def _report(
    bad: Sequence[BadRow],
    source: Source,
    options: Any,
    is_fatal: bool,
    words: Callable[[str], str],
) -> None:
    """List faults in a file, with reasons in other `words`; raise an error if they are fatal."""
    unit, errors_to = source.unit, options.errors_to
    if errors_to is not None and (bad or Path(errors_to).is_file()):  # an old list must not stay
        listed = pd.DataFrame([*bad], columns=[unit, "column", "value", "reason"])
        listed["reason"] = listed["reason"].map(words)
        text = safe_csv(listed, index=False, **source.reading.csv_format)
        write_whole(Path(errors_to), text.encode())
    if bad and is_fatal:
        first = some_of((f"{unit} {fault.line}: {fault}" for fault in bad), 3)
        where = f"{errors_to} lists them" if errors_to else "`errors_to` lists them in a file"
        count = len({fault.line for fault in bad})
        remedy = "Correct them: no row is left"
        if {fault.reason for fault in bad} == {REASONS[MISSING]}:
            remedy = "Paths start from the table's folder, or from `images_root`"
        elif options.on_bad_rows == "error":
            remedy = "Correct them, or leave them out with on_bad_rows='skip'"
        raise InputError(
            f"{source.title}: {counted(count, 'row does', 'rows do')} not parse ({first}). "
            f"{where}. {remedy}."
        )


# Tables to predict, which may be larger than the memory


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    features: Any  # a DataFrame, or an array of pictures
    lines: Lines  # of the rows in `features`, as in `Table.rows`
    bad: list[BadRow]  # faults, also of rows that are not in `features`
    copies: dict[int, tuple[str, ...]]  # line -> cells of further columns


@dataclass(eq=False)
class TableInPieces:
    """A table file to predict; it is read once, from beginning to end."""

    path: Path
    words: Mapping[str, tuple[str, ...] | None]  # categories; None: numbers, (): texts
    filled: Collection[str] = ()  # numbers that may be missing
    before: Reading = UNKNOWN  # how the training table was read
    requested: Reading = UNKNOWN  # options that add to `before`, or replace it
    pictures: PictureColumn | None = None  # instead of `words`

    def __post_init__(self) -> None:
        self.source = opened_source(self.path, self.requested, self.before)
        categories = [name for name, words in self.words.items() if words]
        self.new_words = {name: Counter[str]() for name in categories}  # that training did not see
        self.known_rows = Counter[str]()  # column -> rows with a word of training, as read so far

    def pieces(self, keep: Sequence[str] = (), most_rows: int = MOST_ROWS) -> Iterator[Piece]:
        """Yield all rows in order, with copies of the columns to `keep`; new words become gaps."""
        names = self.source.names
        check_names(names, (*keep, *self.words))
        picture = several(None if self.pictures is None else self.pictures.name)
        check_names(names, picture, "image_input")
        most_rows = max(1, min(most_rows, MOST_ROWS, MOST_CELLS // len(names)))
        kinds = {name: words is not None for name, words in self.words.items()}
        kinds |= dict.fromkeys(picture, True)
        required = [name for name in kinds if not kinds[name] and name not in self.filled]
        for frame, batch in self.source.typed(kinds, several(keep), most_rows):
            lines, bad = batch.lines, [*batch.bad, *feature_faults(frame, batch.lines)]
            is_bad = np.isin(lines, [fault.line for fault in bad])
            for name in required:
                is_gap = frame[name].isna() & ~is_bad
                reason = "is missing, and never was in training"
                bad += bad_rows(is_gap, lines, name, None, reason)
            is_good = ~np.isin(lines, [fault.line for fault in bad])
            features: Any = frame.loc[is_good].copy()
            for name in self.new_words:
                features[name] = self._known_words(features[name])
            if self.pictures is not None:
                features, faults = self.pictures.read(features[picture[0]], lines[is_good])
                bad += faults
                is_good &= ~np.isin(lines, [fault.line for fault in faults])
            texts = [self.source.texts(batch.cells[name]) for name in keep]
            copies = dict(zip(lines.tolist(), zip(*texts, strict=True), strict=bool(keep)))
            yield Piece(features, lines[is_good], sorted(bad), copies)
        for name, new in self.new_words.items():
            if len(new) > 1 and not self.known_rows[name]:  # a single new word may be correct
                words, known = (some_of(map(repr, w)) for w in (new, self.words[name] or ()))
                fault = f"Column {name!r} holds no word that training saw: {words}"
                raise InputError(f"{fault} instead of {known}. Write them as in training.")

    def _known_words(self, column: "pd.Series[Any]") -> "pd.Categorical[Any]":
        """Return the words of training; count the other words, and replace them by gaps."""
        name = str(column.name)
        words = dict.fromkeys(self.words[name] or ())

        def known_word(cell: Any) -> str:
            text = str(cell)
            return text if text in words else text.removesuffix(".0")  # of integers beside gaps

        cells = column.map(known_word, na_action="ignore").astype(object)
        is_known = cells.isin([*words])
        self.known_rows[name] += int(is_known.sum())
        self.new_words[name].update(cells[~is_known].dropna())
        return pd.Categorical(cells.where(is_known), [*words])
