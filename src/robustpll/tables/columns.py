"""Options of `read_table`, and the role of each column of a table."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

from robustpll.errors import InputError, ModelFileError, some_of

FORMS = ("candidates", "indicators", "votes")


@dataclass(frozen=True)
class Reading:
    """How a table was read; `read_table(..., like=table)` and `predict` repeat it."""

    left_out: tuple[str, ...] = ()  # columns that are not features
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    encoding: str | None = None  # None: not passed; the same for the next two
    delimiter: str | None = None
    decimal: str | None = None

    def after(self, before: Self) -> Self:
        """Return how a second table is read: these options add to, or replace, the first ones."""
        return replace(
            self,
            left_out=before.left_out,
            categories=several((*before.categories, *self.categories)),
            missing=several((*before.missing, *self.missing)),
            encoding=self.encoding or before.encoding,
            delimiter=before.delimiter if self.delimiter is None else self.delimiter,
            decimal=self.decimal or before.decimal,
        )

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Check what a model file says, without fields that a later version may have added."""
        known: dict[str, Any] = {}
        for option in fields(cls):
            value = values.get(option.name, option.default) if isinstance(values, Mapping) else 0
            is_tuple = isinstance(option.default, tuple)
            texts = value if is_tuple else [value or ""]
            if not isinstance(texts, list | tuple) or any(not isinstance(t, str) for t in texts):
                raise ModelFileError(f"The model file says that its table was read as {values!r}.")
            known[option.name] = tuple(value) if is_tuple else value
        return cls(**known)


@dataclass(frozen=True)
class Options:
    """The arguments of `read_table`, with the same defaults."""

    candidates: str | None = None
    separator: str = "|"
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
    prefix: str  # of the names in `labels`; the name itself in the form "candidates"
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
    return Roles(form, prefix, labels, tuple(features), left_out)


def several(names: Any) -> tuple[str, ...]:
    """Return distinct names as a tuple, from a name, several names or None."""
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        return (names,)  # a DataFrame may number its columns
    return tuple(dict.fromkeys(names or ()))


def no_column(name: Any, names: Sequence[str]) -> str:
    """Return a message that a column is missing, with similar names."""
    close = get_close_matches(str(name), map(str, names)) or names
    return f"no column {name!r}. There is {some_of(map(repr, close))}."


def refuse_equal_names(names: Sequence[str], used: Collection[str]) -> None:
    """Raise an error if one of the used names occurs twice."""
    twice = [repr(name) for name, times in Counter(names).items() if times > 1 and name in used]
    if twice:
        raise InputError(f"Several columns are named {some_of(twice)}. Rename all but one.")
