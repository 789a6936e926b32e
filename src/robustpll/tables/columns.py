"""Which column of a table serves as what."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

from robustpll.errors import InputError, some_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Roles:
    """What the caller said of the columns, checked against their names.

    >>> roles = Roles.of(["age", "vote bob", "vote eve", "gold"], votes="vote ", truth="gold")
    >>> roles.votes, roles.features
    (('vote bob', 'vote eve'), ('age',))
    """

    candidates: str | None
    indicators: tuple[str, ...]
    votes: tuple[str, ...]
    prefix: str  # of the indicators or votes
    truth: str | None
    categories: tuple[str, ...]  # these are features too
    features: tuple[str, ...]
    left_out: tuple[str, ...]  # all columns that are no features

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        *,
        candidates: str | None = None,
        indicators: str | None = None,
        votes: str | None = None,
        truth: str | None = None,
        ignore: str | Sequence[str] = (),
        categories: str | Sequence[str] = (),
    ) -> Self:
        """A column that is named by itself is not in a block, even if it bears the prefix."""
        forms = {"candidates": candidates, "indicators": indicators, "votes": votes}
        _refuse_other_than_names(forms | {"truth": truth})
        passed = [form for form, name in forms.items() if name is not None]
        if len(passed) > 1:
            raise InputError(
                f"{' and '.join(passed)} are passed, but a table has its candidates in one form: "
                "pass one of candidates, indicators and votes."
            )
        uses = {
            "candidates": several(candidates),
            "truth": several(truth),
            "ignore": several(ignore),
            "categories": several(categories),
        }
        _refuse_odd_uses(uses, names)
        taken = {name for used in uses.values() for name in used}
        block = {
            role: () if prefix is None else _block(names, role, prefix, taken)
            for role, prefix in (("indicators", indicators), ("votes", votes))
        }
        used = taken.difference(uses["categories"]).union(*block.values())
        return cls(
            candidates,
            block["indicators"],
            block["votes"],
            indicators or votes or "",
            truth,
            uses["categories"],
            tuple(name for name in names if name not in used),
            tuple(name for name in names if name in used),
        )

    def like(self, features: "pd.DataFrame") -> Self:
        """The same, with exactly these features in their order."""
        missing = [name for name in features if name not in self.features]
        further = [name for name in self.features if name not in features]
        if missing or further:
            odd = f"lacks {some_of(map(repr, missing))}" if missing else ""
            odd += " and " if missing and further else ""
            odd += f"has {some_of(map(repr, further))} besides" if further else ""
            raise InputError(
                f"The table should be like another, but {odd}. Add or rename what is missing, and "
                "name in `ignore` what is no feature."
            )
        return replace(self, features=tuple(features.columns))

    def as_text(self, features: "pd.DataFrame | None" = None) -> dict[str, bool | None]:
        """All columns to read, in the words of `read_csv`; `features` are to be read alike."""
        from pandas.api.types import is_numeric_dtype

        single = [name for name in (self.candidates, self.truth) if name is not None]
        words: dict[str, bool | None] = dict.fromkeys(
            (*single, *self.indicators, *self.votes), True
        )
        for name in self.features:
            kind = None if features is None else not is_numeric_dtype(features[name])
            words[name] = True if name in self.categories else kind
        return words


@dataclass(frozen=True)
class Reading:
    """How a table was read, as far as tables like it are read so too.

    >>> Reading(missing=("?",)).after(Reading(missing=("-",), delimiter=";")).missing
    ('-', '?')
    """

    left_out: tuple[str, ...] = ()  # columns that are no features
    categories: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    encoding: str | None = None  # None: it was not named, here and below
    delimiter: str | None = None
    decimal: str | None = None

    def after(self, before: Self) -> Self:
        """What was said of another table, and here besides or instead."""
        return replace(
            self,
            left_out=before.left_out,
            categories=several((*before.categories, *self.categories)),
            missing=several((*before.missing, *self.missing)),
            encoding=self.encoding or before.encoding,
            delimiter=before.delimiter if self.delimiter is None else self.delimiter,
            decimal=self.decimal or before.decimal,
        )

    def still_left_out(
        self, names: Sequence[str], columns: Collection[str | None], prefixes: Sequence[str | None]
    ) -> tuple[str, ...]:
        """Of the columns left out before, those that are there and serve as nothing now."""
        block = tuple(prefix for prefix in prefixes if prefix)
        return tuple(
            name
            for name in self.left_out
            if name in names and name not in columns and not str(name).startswith(block)
        )


def several(names: Any) -> tuple[str, ...]:
    """Each name once.

    >>> several("id"), several(["id", "date", "id"]), several(None)
    (('id',), ('id', 'date'), ())
    """
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        return (names,)  # a DataFrame may number its columns
    return tuple(dict.fromkeys(names or ()))


def no_column(name: Any, names: Sequence[str]) -> str:
    """For a message: that a column is missing, and which ones of these may be meant.

    >>> no_column("ids", ["id", "date"])
    "no column 'ids'. There is 'id'."
    """
    close = get_close_matches(str(name), map(str, names)) or names
    return f"no column {name!r}. There is {some_of(map(repr, close))}."


def refuse_equal_names(names: Sequence[str], used: Collection[str]) -> None:
    """Of the columns that are used there must be one each."""
    twice = [repr(name) for name, times in Counter(names).items() if times > 1 and name in used]
    if twice:
        raise InputError(
            f"Several columns are named {some_of(twice)}. Rename or drop all but one of each."
        )


def _refuse_other_than_names(columns: dict[str, Any]) -> None:
    for role, name in columns.items():
        if name is not None and not isinstance(name, str):
            raise InputError(
                f"{role}={name!r}: pass one text, the name of a column or what several begin with. "
                "If columns are numbered, name them: frame.columns = frame.columns.map(str)."
            )


def _refuse_odd_uses(uses: dict[str, tuple[str, ...]], names: Sequence[str]) -> None:
    """Columns must be there, once, and serve as one thing."""
    refuse_equal_names(names, names)
    seen: dict[str, str] = {}
    for role, used in uses.items():
        for name in used:
            if name not in names:
                raise InputError(f"`{role}`: there is {no_column(name, names)}")
            if name in seen:
                raise InputError(
                    f"Column {name!r} is named in both `{seen[name]}` and `{role}`: name it in one."
                )
            seen[name] = role


def _block(names: Sequence[str], role: str, prefix: str, taken: set[str]) -> tuple[str, ...]:
    """The columns that begin with a prefix and are not named for something else."""
    block = tuple(name for name in names if str(name).startswith(prefix) and name not in taken)
    if not prefix or not block:
        wanted, size = prefix.lower(), len(prefix)
        close = [name for name in names if get_close_matches(wanted, [str(name)[:size].lower()])]
        there = some_of(map(repr, close or names))
        raise InputError(
            f"{role}={prefix!r}: no column begins with it, of {there}. Pass what the names of "
            "these columns have in common at their beginning."
        )
    if prefix in block:
        raise InputError(
            f"{role}={prefix!r} is the whole name of a column, so that nothing is left to name a "
            "class or annotator. Name that column in `ignore`, or pass another prefix."
        )
    return block
