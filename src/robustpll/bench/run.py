"""One training run of a benchmark, the conditions of its evaluation, and its key in the store."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, Literal, get_type_hints

import numpy as np

from robustpll.datasets.noise import ClassDependent, Flip, InstanceDependent, Noise, Uniform
from robustpll.errors import InputError
from robustpll.methods import METHODS, Method
from robustpll.methods.base import Number

FORMAT = 1  # of the store; a change invalidates all stored runs
NOISES: dict[str, type[Noise]] = {
    "instance-dependent": InstanceDependent,
    "class-dependent": ClassDependent,
    "uniform": Uniform,
    "flip": Flip,
}
# An audit covers the first 2,000 test rows: their share is accurate to about one percent, and all
# 10,000 test rows of MNIST would take five times as long.
MOST_AUDITED = 2000


@dataclass(frozen=True)
class Condition:
    """Which rows a trained run predicts, and under which attack."""

    part: Literal["train", "test", "ood"]
    epsilon: float = 0.0  # strength of the published attack, `PGD(epsilon)`
    ood: str = ""  # name of the out-of-distribution dataset, for the part "ood"
    audit: float = 0.0  # strength of the attacks of `Audit`

    @property
    def name(self) -> str:
        """The value of the store's column `condition`: "clean", "pgd 0.1", "audit 0.02"."""
        if self.part == "ood":
            return f"ood {self.ood}"
        if self.audit:
            return f"audit {self.audit:g}"
        return f"pgd {self.epsilon:g}" if self.epsilon else "clean"

    @property
    def order(self) -> tuple[int, float, float, str]:
        """Sort key: training rows, test rows (clean, attacked, audited), OOD rows."""
        return ("train", "test", "ood").index(self.part), self.audit, self.epsilon, self.ood


@dataclass(frozen=True)
class Run:
    """One training: a method on a dataset under a noise, with a seed.

    The key depends on everything that decides on the result; label and conditions do not.
    """

    method: Method
    dataset: str
    noise: Noise | None  # None: the dataset has candidates
    seed: int
    # The version of the dataset's files, as in `Dataset.content`; "" is the version of the
    # catalogue. Runs of version 0.1 have no version and count as runs on that one.
    content: str = ""
    label: str = ""  # name of the report's line
    conditions: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """For messages: "Proden on digits, seed 0"."""
        return f"{self.label} on {self.dataset}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """The name of the run's file in the store."""
        return key_of(self.description)

    @property
    def recipe(self) -> str:
        """The key without the version of the dataset."""
        return self.key.partition("-")[0]

    @property
    def description(self) -> dict[str, Any]:
        """The content of the key, as JSON values."""
        method = {"class": type(self.method).__name__, "fields": fields_of(self.method)}
        return {"method": method} | self._data()

    @cached_property
    def noise_key(self) -> str:
        """The name of the stored candidate sets; "" if the dataset has candidates."""
        return key_of(self._data()) if self.noise else ""

    def _data(self) -> dict[str, Any]:
        noise = noise_as_dict(self.noise) if self.noise else None
        data = {"format": FORMAT, "dataset": self.dataset, "noise": noise, "seed": self.seed}
        return data | ({"content": self.content} if self.content else {})


def key_of(description: Mapping[str, Any]) -> str:
    """20 hexadecimal digits of a description's hash, and the version of the dataset, if any."""
    hashed = {name: value for name, value in description.items() if name != "content"}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digits = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{digits}-{description['content']}" if description.get("content") else digits


def fields_of(thing: Method | Noise) -> dict[str, Any]:
    """All fields of a method or noise as JSON values; 1 becomes 1.0 in a float field.

    A method's `added_fields` are left out at the values that they had before they were added, so
    that the keys of earlier runs stay valid.
    """
    hints = _type_hints(type(thing))
    added = getattr(thing, "added_fields", {})
    values: dict[str, Any] = {}
    for field in fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        if field.name not in added or value != added[field.name]:
            is_float = hints[field.name] in (float, Number)
            values[field.name] = _plain(f"{type(thing).__name__}.{field.name}", value, is_float)
    return values


@lru_cache  # resolving annotations takes most of the time of a plan
def _type_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(name: str, value: Any, is_float: bool) -> Any:
    if isinstance(value, Noise):
        return noise_as_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(name, item, is_float) for item in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | np.number):
        return float(value) if is_float or not hasattr(value, "__index__") else int(value)
    raise InputError(
        f"{name} is {value!r}, which a benchmark cannot store by name. Use a name, such as "
        "network='lenet'."
    )


def noise_as_dict(noise: Noise) -> dict[str, Any]:
    """A noise as its name and all its fields, for JSON."""
    for name, kind in NOISES.items():
        if type(noise) is kind:
            return {"name": name, **fields_of(noise)}
    raise InputError(f"noise must be one of {', '.join(NOISES)}; got {noise!r}.")


def noise_of(value: Any) -> Noise | None:
    """A noise from its name, or from a table with its name and some of its fields."""
    if value is None or isinstance(value, Noise):
        return value
    table = {"name": value} if isinstance(value, str) else dict(value)
    kind = _kind_of(table, NOISES, "noise")
    if "noise" in table:
        table["noise"] = noise_of(table["noise"])
    if kind is Flip and "share" not in table:
        raise InputError("The noise flip needs a share from 0 to 1: {name = 'flip', share = 0.1}.")
    return kind(**table)


def method_of(table: Mapping[str, Any], preset: str, epochs: int | None = None) -> Method:
    """A method from its name and some of its fields; the preset sets the others."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    kind = _kind_of(values, METHODS, "method")
    base = kind.paper() if preset == "paper" else kind()
    if epochs is not None and "epochs" in kind.field_names():
        values = {"epochs": epochs} | values
    return kind(**{name: getattr(base, name) for name in kind.field_names()} | values)


def _kind_of(values: dict[str, Any], kinds: Mapping[str, Any], what: str) -> Any:
    """The class that the key "name" stands for; removes this key, and checks the others."""
    name = values.pop("name", None)
    if name not in kinds:
        raise InputError(f"There is no {what} {name!r}; the names are {', '.join(kinds)}.")
    refuse_unknown(values, {field.name for field in fields(kinds[name])}, f"the {what} {name}")
    return kinds[name]


def refuse_unknown(values: Mapping[str, Any], known: set[str], owner: str) -> None:
    """Raise an error that names unknown keys, so that a misspelled key is not ignored."""
    if unknown := sorted(set(values) - known):
        names = ", ".join(sorted(known))
        raise InputError(f"Unknown keys of {owner}: {', '.join(unknown)}. Known: {names}.")
