"""One training of a benchmark, how it is examined, and the key it is stored by."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_type_hints

import numpy as np

from robustpll.datasets.noise import ClassDependent, Flip, InstanceDependent, Noise, Uniform
from robustpll.errors import InputError
from robustpll.methods import METHODS, Method
from robustpll.methods.base import Number

FORMAT = 1  # of what is stored; a change makes all runs new ones
NOISES: dict[str, type[Noise]] = {
    "instance-dependent": InstanceDependent,
    "class-dependent": ClassDependent,
    "uniform": Uniform,
    "flip": Flip,
}
# Test rows of a run that are audited, the first ones: all 10,000 of MNIST would take five times as
# long, and 2,000 tell a share to about one percent.
MOST_AUDITED = 2000
Part = Literal["train", "test", "ood"]
PARTS: tuple[Part, ...] = ("train", "test", "ood")


@dataclass(frozen=True)
class Condition:
    """How a trained run is examined.

    >>> [condition.name for condition in (Condition("test"), Condition("test", 0.1))]
    ['clean', 'pgd 0.1']
    >>> Condition("ood", ood="notmnist").name, Condition("test", audit=0.02).name
    ('ood notmnist', 'audit 0.02')
    """

    part: Part
    epsilon: float = 0.0  # of the published attack, `PGD(epsilon)`
    ood: str = ""  # the dataset, for the part "ood"
    audit: float = 0.0  # up to which epsilon a row must withstand all attacks of `Audit`

    @property
    def name(self) -> str:
        """As in the store's column `condition`."""
        if self.part == "ood":
            return f"ood {self.ood}"
        if self.audit:
            return f"audit {self.audit:g}"
        return f"pgd {self.epsilon:g}" if self.epsilon else "clean"

    @property
    def order(self) -> tuple[int, float, float, str]:
        """In which a run is examined: training rows, test rows (clean, attacked, audited), OOD."""
        return PARTS.index(self.part), self.audit, self.epsilon, self.ood


@dataclass(frozen=True)
class Run:
    """One training: a method on a dataset under a noise, with a seed.

    >>> from robustpll.methods import Proden
    >>> run = Run(Proden(), "digits", Uniform(), seed=0)
    >>> run.key == Run(Proden(epochs=200), "digits", Uniform(), seed=0).key
    True
    >>> run.key == Run(Proden(epochs=201), "digits", Uniform(), seed=0).key
    False
    >>> run.key == Run(Proden(), "digits", Uniform(), 0, content="0123456789abcdef").recipe
    True
    """

    method: Method
    dataset: str
    noise: Noise | None  # None: the candidates that the dataset has
    seed: int
    # Which version of the dataset's files, as `Dataset.content`; "" is the one that the catalogue
    # knows. Runs of version 0.1 say nothing of it, and count as runs on that one.
    content: str = ""

    @property
    def key(self) -> str:
        """Of all that decides on the result, so a changed default or file is another run."""
        return with_content(self.recipe, self.content)

    @cached_property
    def recipe(self) -> str:
        """The key but for the version of the dataset."""
        return key_of(self._without_content)

    @property
    def _without_content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "method": {"class": type(self.method).__name__, "fields": fields_of(self.method)},
            "dataset": self.dataset,
            "noise": None if self.noise is None else noise_as_dict(self.noise),
            "seed": self.seed,
        }

    @property
    def description(self) -> dict[str, Any]:
        """What the key is made of, to be written as JSON."""
        return self._without_content | ({"content": self.content} if self.content else {})


@dataclass(frozen=True)
class PlannedRun:
    """A run as a grid asks for it."""

    label: str  # of its line in the report
    run: Run
    conditions: tuple[Condition, ...]

    @property
    def name(self) -> str:
        """For messages: "Proden on digits, seed 0"."""
        return f"{self.label} on {self.run.dataset}, seed {self.run.seed}"


def with_content(recipe: str, content: str) -> str:
    """A key that tells versions of a dataset apart; the one the catalogue knows adds nothing.

    >>> with_content("1f", ""), with_content("1f", "0123456789abcdef")
    ('1f', '1f-0123456789abcdef')
    """
    return f"{recipe}-{content}" if content else recipe


def key_of(description: Mapping[str, Any]) -> str:
    """20 hexadecimal digits that depend on all of a description, and on no order of its keys.

    >>> key_of({"a": 1, "b": [2.0]}) == key_of({"b": [2.0], "a": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def fields_of(thing: Method | Noise) -> dict[str, Any]:
    """All fields of a method or noise as JSON writes them: 1 is 1.0 where a float is meant.

    Fields in `Method.added` are left out at the value of earlier runs, whose keys stay the same.

    >>> from robustpll.methods import RobustPll
    >>> [name for name in fields_of(RobustPll()) if name.startswith("kl_p")]
    ['kl_per_class']
    >>> "kl_per_class" in fields_of(RobustPll.paper())
    False
    """
    hints = get_type_hints(type(thing), include_extras=True)
    added = thing.added if isinstance(thing, Method) else {}
    found: dict[str, Any] = {}
    for field in fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        if field.name in added and value == added[field.name]:
            continue
        real = hints[field.name] in (float, Number)
        found[field.name] = _plain(f"{type(thing).__name__}.{field.name}", value, real)
    return found


def _plain(what: str, value: Any, real: bool) -> Any:
    if isinstance(value, Noise):
        return noise_as_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(what, each, real) for each in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | np.number):
        return float(value) if real or not hasattr(value, "__index__") else int(value)
    msg = (
        f"{what} is {value!r}, which cannot be written down, so a benchmark could not tell its "
        "results from others. Use a name, such as network='lenet'."
    )
    raise InputError(msg)


def noise_as_dict(noise: Noise) -> dict[str, Any]:
    """A noise by its name and all its fields.

    >>> noise_as_dict(Uniform())
    {'name': 'uniform', 'added': 2, 'share': 0.5, 'cooccurrence': 0.0}
    """
    names = {kind: name for name, kind in NOISES.items()}
    if type(noise) not in names:
        msg = f"A benchmark knows the noises {', '.join(NOISES)}; got {noise!r}."
        raise InputError(msg)
    return {"name": names[type(noise)], **fields_of(noise)}


def noise_of(given: Any) -> Noise | None:
    """A noise from its name, or from a table of its name and some of its fields.

    >>> noise_of({"name": "uniform", "share": 1.0})
    Uniform(added=2, share=1.0, cooccurrence=0.0)
    """
    if given is None or isinstance(given, Noise):
        return given
    table = {"name": given} if isinstance(given, str) else dict(given)
    name = table.pop("name", None)
    if name not in NOISES:
        msg = f"noise must name one of {', '.join(NOISES)}; got {name!r}."
        raise InputError(msg)
    known = {field.name for field in fields(NOISES[name])}  # type: ignore[arg-type]
    refuse_unknown(table, known, f"the noise {name}")
    if "noise" in table:
        table["noise"] = noise_of(table["noise"])
    if name == "flip" and "share" not in table:
        msg = "The noise flip needs a share, from 0 to 1: {name = 'flip', share = 0.1, ...}."
        raise InputError(msg)
    return NOISES[name](**table)


def method_of(table: Mapping[str, Any], preset: str, epochs: int | None = None) -> Method:
    """A method from its name and some of its fields; all others are those of the preset.

    >>> method_of({"name": "proden", "batch_size": 64}, "sound", epochs=5)
    Proden(epochs=5, batch_size=64, learning_rate=0.001, ...)
    """
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    name = given.pop("name", None)
    if name not in METHODS:
        msg = f"There is no method {name!r}; the names are {', '.join(METHODS)}."
        raise InputError(msg)
    kind = METHODS[name]
    refuse_unknown(given, set(kind.field_names()), f"the method {name}")
    base = kind.paper() if preset == "paper" else kind()
    if epochs is not None and "epochs" in kind.field_names():
        given = {"epochs": epochs} | given
    return kind(**{each: getattr(base, each) for each in kind.field_names()} | given)


def refuse_unknown(given: Mapping[str, Any], known: set[str], owner: str) -> None:
    """Refuses keys by name: a word that is mistyped must not be overlooked."""
    if unknown := sorted(set(given) - known):
        few = "s" * (len(unknown) > 1)
        msg = (
            f"Unknown key{few} of {owner}: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
        )
        raise InputError(msg)
