"""Which column of a table serves as what."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from robustpll.errors import InputError, some_of


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
        passed = [form for form, name in forms.items() if name is not None]
        if len(passed) > 1:
            msg = (
                f"{' and '.join(passed)} are passed, but a table has its candidates in one form: "
                "pass one of candidates, indicators and votes."
            )
            raise InputError(msg)
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
        )

    @property
    def as_text(self) -> dict[str, bool]:
        """All columns to read; True where cells are names, whatever they look like."""
        single = [name for name in (self.candidates, self.truth) if name is not None]
        words = dict.fromkeys((*single, *self.indicators, *self.votes), True)
        return words | {name: name in self.categories for name in self.features}


def several(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Each name once.

    >>> several("id"), several(["id", "date", "id"]), several(None)
    (('id',), ('id', 'date'), ())
    """
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names or ()))


def _refuse_odd_uses(uses: dict[str, tuple[str, ...]], names: Sequence[str]) -> None:
    """Columns must be there, once, and serve as one thing."""
    twice = [repr(name) for name, times in Counter(names).items() if times > 1]
    if twice:
        msg = f"Several columns are named {some_of(twice)}. Rename or drop all but one of each."
        raise InputError(msg)
    seen: dict[str, str] = {}
    for role, used in uses.items():
        for name in used:
            if name not in names:
                close = get_close_matches(str(name), map(str, names)) or names
                msg = f"{role}: there is no column {name!r}. There is {some_of(map(repr, close))}."
                raise InputError(msg)
            if name in seen:
                msg = f"Column {name!r} is named in both {seen[name]} and {role}: name it in one."
                raise InputError(msg)
            seen[name] = role


def _block(names: Sequence[str], role: str, prefix: str, taken: set[str]) -> tuple[str, ...]:
    """The columns that begin with a prefix and are not named for something else."""
    block = tuple(name for name in names if str(name).startswith(prefix) and name not in taken)
    if not prefix or not block:
        msg = (
            f"{role}={prefix!r}: no column begins with it, of {some_of(map(repr, names))}. Pass "
            "what the names of these columns have in common at their beginning."
        )
        raise InputError(msg)
    if prefix in block:
        msg = (
            f"{role}={prefix!r} is the whole name of a column, so that nothing is left to name a "
            "class or annotator. Name that column in `ignore`, or pass another prefix."
        )
        raise InputError(msg)
    return block
