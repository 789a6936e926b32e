"""Assign a role to each column of a table."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Self

from robustpll.errors import InputError, some_of


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


@dataclass(frozen=True)
class Roles:
    """The role of each column."""

    form: str | None  # of the labels: "candidates", "indicators", "votes" or None
    labels: tuple[str, ...]
    prefix: str  # of the names in `labels`
    truth: str | None
    categories: tuple[str, ...]  # these are features, too
    features: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that are not features

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        forms: Mapping[str, str | None],
        truth: str | None,
        ignore: tuple[str, ...],
        reading: Reading,
    ) -> Self:
        """Check the arguments of `read_table`; columns left out before stay so if still unused."""
        for argument, name in {**forms, "truth": truth}.items():
            if not isinstance(name, str | None):
                raise InputError(
                    f"{argument}={name!r}: pass one text, the name or the prefix of columns. If "
                    "columns are numbered, name them: frame.columns = frame.columns.map(str)."
                )
        passed = [form for form, name in forms.items() if name is not None]
        if len(passed) > 1:
            raise InputError(f"{' and '.join(passed)} are passed: pass only one of {[*forms]}.")
        form = passed[0] if passed else None
        refuse_equal_names(names, names)
        prefix = forms[form] or "" if form else ""
        labels: tuple[str, ...] = (prefix,) if form == "candidates" else ()
        role_of: dict[str, str] = {}
        arguments = {"candidates": labels, "truth": several(truth), "ignore": ignore}
        for argument, columns in {**arguments, "categories": reading.categories}.items():
            for name in columns:
                if name not in names:
                    raise InputError(f"`{argument}`: there is {no_column(name, names)}")
                if name in role_of:
                    raise InputError(
                        f"Column {name!r} is named in both `{role_of[name]}` and `{argument}`: "
                        "name it in one."
                    )
                role_of[name] = argument
        if form and form != "candidates":
            labels = _columns_with_prefix(names, form, prefix, role_of)
        used = {*role_of, *labels}.difference(reading.categories)
        used |= {name for name in reading.left_out if name not in reading.categories}
        features = tuple(name for name in names if name not in used)
        left_out = tuple(name for name in names if name in used)
        return cls(form, labels, prefix, truth, reading.categories, features, left_out)

    def like(self, features: Sequence[str]) -> Self:
        """Return the same roles with exactly these features, in this order."""
        missing = [name for name in features if name not in self.features]
        further = [name for name in self.features if name not in features]
        if missing or further:
            parts = [f"lacks {some_of(map(repr, missing))}"] if missing else []
            parts += [f"has {some_of(map(repr, further))} besides"] if further else []
            raise InputError(
                f"The table differs from `like`: it {' and '.join(parts)}. Add or rename missing "
                "columns. Name columns that are not features in `ignore`."
            )
        return replace(self, features=tuple(features))


def _columns_with_prefix(
    names: Sequence[str], argument: str, prefix: str, taken: Collection[str]
) -> tuple[str, ...]:
    """Return the columns that begin with a prefix and have no other role."""
    block = tuple(name for name in names if str(name).startswith(prefix) and name not in taken)
    if not prefix or not block:
        start = {name: str(name)[: len(prefix)].lower() for name in names}
        close = [name for name in names if get_close_matches(prefix.lower(), [start[name]])]
        raise InputError(
            f"{argument}={prefix!r}: no column begins with it. There is "
            f"{some_of(map(repr, close or names))}. Pass the common beginning of these names."
        )
    if prefix in block:
        raise InputError(
            f"{argument}={prefix!r} is the whole name of a column, so no name of a class or "
            "annotator is left. Name that column in `ignore`, or pass another prefix."
        )
    return block


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
        raise InputError(
            f"Several columns are named {some_of(twice)}. Rename or drop all but one of each."
        )
