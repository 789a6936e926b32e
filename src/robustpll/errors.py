"""Exceptions for invalid input, and small checks that raise them."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import islice
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints


class RobustPLLError(Exception):
    """Base class of all exceptions that this library raises on purpose."""


class InputError(RobustPLLError, ValueError):
    """An argument is invalid; the message names the argument, rule, value and remedy."""


class ModelFileError(RobustPLLError, ValueError):
    """A file is not a model that this version can read; nothing in it was executed."""


def refuse_other_length(rows: int, labels: int) -> None:
    """Refuse X and y of different numbers of rows."""
    if rows != labels:
        raise InputError(
            f"X has {rows} rows, but y has {labels}: inconsistent numbers of samples. Pass the "
            "candidates of exactly these rows, in the same order."
        )


def some_of(values: Iterable[Any], most: int = 5) -> str:
    """Join the first few values for a message, shortening long ones."""
    texts = [str(value) for value in islice(values, most + 1)]
    short = [text if len(text) <= 200 else f"{text[:200]}..." for text in texts[:most]]
    return ", ".join(short) + (", ..." if len(texts) > most else "")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number of things in words.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "row is bad", "rows are bad")
    ('1 row', '1,200 rows', '2 rows are bad')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def count_of_variable(name: str) -> int | None:
    """Read a count from an environment variable; None if it is unset or empty."""
    value = os.environ.get(name, "").strip()
    if value and not value.isdecimal():
        raise InputError(f"The environment variable {name} must be a count; it is {value!r}.")
    return int(value) if value else None


def is_number(value: Any, kind: type = float) -> bool:
    """Whether a value is a finite number, of any real type, or of any integer type for int."""
    if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
        return False
    return kind is int or math.isfinite(value)


def is_count(value: Any, least: int = 0) -> bool:
    """Whether a value is an integer of at least `least`."""
    return is_number(value, int) and value >= least


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    return is_number(value) and 0 <= value <= 1


def refuse_other_than_share(name: str, value: object) -> None:
    """Refuse a value that is not a number strictly between 0 and 1."""
    if not is_share(value) or value in (0, 1):
        raise InputError(f"{name} must be a number above 0 and below 1; got {value!r}.")


class Rule(NamedTuple):
    """What a field annotated by it may hold, in words and as a test: `Annotated[int, Rule(...)]`.

    Without one, the numbers of an int or float field are at least 0.
    """

    words: str
    holds: Callable[[Any], bool]


POSITIVE = Rule("above 0", lambda value: value > 0)
SHARE = Rule("from 0 to 1", is_share)
AT_LEAST_1 = Rule("of at least 1", lambda value: value >= 1)
NOT_NEGATIVE = Rule("of at least 0", lambda value: value >= 0)


def check_fields(instance: Any) -> None:
    """Raise InputError unless each field of a dataclass is valid by its annotation."""
    hints = get_type_hints(type(instance), include_extras=True)
    for field in fields(instance):
        value, rule = getattr(instance, field.name), _rule_of(hints[field.name])
        if not rule.holds(value):
            owner = f"The {field.name!r} of {type(instance).__name__}"
            raise InputError(f"{owner} must be {rule.words}. Got {value!r} instead.")


def _rule_of(hint: Any) -> Rule:
    if hint is bool:
        return Rule("True or False", lambda value: isinstance(value, bool))
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        listed = f"one of {', '.join(map(repr, allowed))}"
        return Rule(listed, lambda value: isinstance(value, str) and value in allowed)
    kind, *rules = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    words, holds = rules[0] if rules else NOT_NEGATIVE
    if kind not in (int, float):
        return Rule(words, holds)
    article = "an int" if kind is int else "a float"
    return Rule(f"{article} {words}", lambda value: is_number(value, kind) and holds(value))
