"""What the description in a model file must look like: checked before anything is built of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shown  # of huge values only the beginning
from typing import Any, Protocol, get_args

from robustpll.estimator.recalibration import Scaled, Source

LARGEST = 1.7e308  # numbers beyond are none to compute with


class Check(Protocol):
    """Something that finds the first fault of a value."""

    def fault(self, value: Any) -> str | None:
        """Where and what it is, to follow the value's name; None if there is none."""


@dataclass(frozen=True)
class Rule:
    """What a value must be in words, and whether it is.

    >>> Rule("text", lambda value: isinstance(value, str)).fault(3)
    ' must be text, but is 3'
    """

    words: str
    holds: Callable[[Any], bool]

    def fault(self, value: Any) -> str | None:
        return None if self.holds(value) else f" must be {self.words}, but is {shown(value)}"


@dataclass(frozen=True)
class Each:
    """A list of so many values or more, all of one kind.

    >>> Each(TEXT).fault(["a", 2])
    '[1] must be text, but is 2'
    """

    of: Check
    least: int = 0
    most: float = float("inf")

    def fault(self, value: Any) -> str | None:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            return f" must be a list of {self.least} or more values, but is {shown(value)}"
        faults = ((at, self.of.fault(item)) for at, item in enumerate(value))
        return next((f"[{at}]{fault}" for at, fault in faults if fault is not None), None)


@dataclass(frozen=True)
class Named:
    """Values of one kind under any names.

    >>> Named(TEXT).fault({"a": None})
    "['a'] must be text, but is None"
    """

    of: Check

    def fault(self, value: Any) -> str | None:
        if not isinstance(value, dict):
            return f" must be an object, but is {shown(value)}"
        faults = ((name, self.of.fault(item)) for name, item in value.items())
        return next((f"[{shown(at)}]{fault}" for at, fault in faults if fault is not None), None)


@dataclass(frozen=True)
class Record:
    """Values of their own kinds under given names; others are allowed unless it is closed.

    >>> Record({"age": COUNT}).fault({"age": -1})
    "['age'] must be a whole number from 0 to 2^63 - 1, but is -1"
    """

    needed: Mapping[str, Check]
    optional: Mapping[str, Check] = field(default_factory=dict)
    closed: bool = False

    def fault(self, value: Any) -> str | None:
        if not isinstance(value, dict) or not self.needed.keys() <= value.keys():
            return f" must be an object with {', '.join(self.needed)}, but is {shown(value)}"
        checks = {**self.needed, **self.optional}
        if self.closed and not value.keys() <= checks.keys():
            return f" has {shown(sorted(value.keys() - checks.keys()))}, which means nothing here"
        faults = ((at, checks[at].fault(item)) for at, item in value.items() if at in checks)
        return next((f"[{at!r}]{fault}" for at, fault in faults if fault is not None), None)


@dataclass(frozen=True)
class Maybe:
    """Nothing, or what another check wants."""

    of: Check

    def fault(self, value: Any) -> str | None:
        return None if value is None else self.of.fault(value)


def one_of(*legal: str) -> Rule:
    words = f"one of {', '.join(map(repr, legal))}"
    return Rule(words, lambda value: isinstance(value, str) and value in legal)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(least: int, most: int, words: str) -> Rule:
    return Rule(
        f"a whole number from {words}",
        lambda value: _is_number(value) and isinstance(value, int) and least <= value <= most,
    )


TEXT = Rule("text", lambda value: isinstance(value, str))
TRUTH = Rule("true or false", lambda value: isinstance(value, bool))
NUMBER = Rule("a finite number", lambda v: _is_number(v) and -LARGEST <= v <= LARGEST)
DIVISOR = Rule("a finite number other than 0", lambda v: NUMBER.holds(v) and v != 0)
MEASURED = Rule("a number", lambda v: isinstance(v, float) or NUMBER.holds(v))  # NaN, infinity, too
COUNT = _whole(0, 2**63 - 1, "0 to 2^63 - 1")
SIZE = _whole(1, 2**40, "1 to 2^40")
SHARE = Rule("a number between 0 and 1", lambda value: _is_number(value) and 0 < value < 1)
PLAIN = Rule(
    "text, a number, true, false or nothing",
    lambda v: v is None or isinstance(v, str | bool) or MEASURED.holds(v),
)
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
SETTING = Rule(
    "text, a finite number, true, false, nothing, or a list of numbers",
    lambda v: (
        v is None
        or isinstance(v, str | bool)
        or NUMBER.holds(v)
        or (isinstance(v, list) and all(map(NUMBER.holds, v)))
    ),
)
WEIGHT_OF_CLASS = Rule(
    "a class and its weight",
    lambda v: isinstance(v, list) and len(v) == 2 and PLAIN.holds(v[0]) and NUMBER.holds(v[1]),
)

# By the letter of numpy's type: strings, integers, floats or truth values.
CLASS_NAMES: dict[str, Rule] = {
    "U": TEXT,
    "i": _whole(-(2**63), 2**63 - 1, "-2^63 to 2^63 - 1"),
    "u": _whole(0, 2**64 - 1, "0 to 2^64 - 1"),
    "f": NUMBER,
    "b": TRUTH,
}

FEATURES = Record(
    {
        "columns": Each(TEXT),
        "shape": Each(SIZE, least=1, most=3),
        "categories": Named(Each(TEXT)),
        "fill": Named(NUMBER),
        "shift": Each(NUMBER, least=1),
        "scale": Each(DIVISOR, least=1),
    }
)
RECALIBRATION = Record(
    {
        "factor": Rule("a finite number above 0", lambda v: NUMBER.holds(v) and v > 0),
        "of": one_of(*get_args(Scaled)),
        "source": one_of(*get_args(Source)),
        "rows": COUNT,
        "before": MEASURED,
        "after": MEASURED,
    },
    closed=True,
)
TRIAL = Record(
    {
        "limit": Rule("a number of 0 or more", lambda v: MEASURED.holds(v) and v >= 0),
        "source": Maybe(one_of(*get_args(Source))),
        "confidence": Maybe(SHARE),
    },
    closed=True,
)
DESCRIPTION = Record(
    {
        "version": TEXT,
        "estimator": one_of("PLLClassifier", "RobustPLLClassifier"),
        "params": Named(PLAIN),
        "class_weight": Maybe(Each(WEIGHT_OF_CLASS)),
        "method": Record({"name": TEXT, "fields": Named(SETTING)}),
        "classes": Record({"type": one_of(*CLASS_NAMES), "names": Each(PLAIN, least=2)}),
        "features": FEATURES,
        "n_features_in": SIZE,
        "feature_names_in": Each(TEXT),
        "seeds": Each(COUNT),
        "history": Named(Each(MEASURED)),
    },
    {
        "trust": Record({}, {"recalibration": RECALIBRATION, "trial": TRIAL}),
        "notes": OBJECT,
    },
)
