"""Exceptions for invalid input, and small checks that raise them."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import islice
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

LONGEST = 200  # characters of a value in a message


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
    """Join the first few values for a message, shortening long ones.

    >>> some_of([17, 40, 92])
    '17, 40, 92'
    >>> some_of(range(100), most=3)
    '0, 1, 2, ...'
    """
    first = list(islice(iter(values), most + 1))
    texts = [str(value) for value in first[:most]]
    short = [text if len(text) <= LONGEST else f"{text[:LONGEST]}..." for text in texts]
    return ", ".join(short) + (", ..." if len(first) > most else "")


def count_of_variable(name: str) -> int | None:
    """Read a count from an environment variable; None if it is unset or empty."""
    value = os.environ.get(name, "").strip()
    if value and not (value.isascii() and value.isdigit()):
        raise InputError(
            f"The environment variable {name} must be a count such as 1000000; it is {value!r}. "
            "Correct it, or unset it."
        )
    return int(value) if value else None


def refuse_other_than_share(name: str, value: object) -> None:
    """Refuse a value that is not a number strictly between 0 and 1."""
    if not is_share(value) or value in (0, 1):
        raise InputError(f"{name} must be a number above 0 and below 1; got {value!r}.")


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is an integer of at least `least`, of any integer type.

    >>> is_count(3), is_count(3.0), is_count(True), is_count(0, least=1)
    (True, False, False, False)
    """
    return hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= least


def is_share(value: object) -> bool:
    """Whether a value is a number from 0 to 1, of any real type.

    >>> is_share(0.5), is_share("0.5"), is_share(1.5), is_share(True), is_share(float("nan"))
    (True, False, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= 1


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
        value, rule = getattr(instance, field.name), _rule_of(field.name, hints[field.name])
        if not rule.holds(value):
            owner = f"The {field.name!r} of {type(instance).__name__}"
            raise InputError(f"{owner} must be {rule.words}. Got {value!r} instead.")


def _rule_of(name: str, hint: Any) -> Rule:
    if hint is bool:
        return Rule("True or False", lambda value: isinstance(value, bool))
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        listed = f"one of {', '.join(map(repr, allowed))}"
        return Rule(listed, lambda value: isinstance(value, str) and value in allowed)
    rule = next(
        (part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Rule)), None
    )
    kind = getattr(hint, "__origin__", hint)
    if kind in (int, float):
        words, holds = rule or NOT_NEGATIVE
        article = "an int" if kind is int else "a float"
        return Rule(f"{article} {words}", lambda value: is_number(value, kind) and holds(value))
    if rule is None:
        raise TypeError(f"No rule is written for fields of type {hint!r}, such as {name!r}.")
    return rule


def is_number(value: object, kind: type = float) -> bool:
    """Whether a value is a finite number, of any real type, or of any integer type for int."""
    number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]
