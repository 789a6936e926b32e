"""Exceptions for invalid input, and small checks that raise them."""

import os
from collections.abc import Iterable
from itertools import islice
from numbers import Real
from typing import Any

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
