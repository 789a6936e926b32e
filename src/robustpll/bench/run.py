"""Runs of a benchmark, their conditions and keys, and bundles of runs that train at once."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import chain
from math import ceil
from typing import Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.catalog import entry_of
from robustpll.datasets.noise import ClassDependent, Flip, InstanceDependent, Noise, Uniform
from robustpll.errors import InputError
from robustpll.methods import METHODS, ClassicalMethod, DeepMethod, Method

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
MOST_MODELS = 100  # networks of a bundle: more are hardly faster, and a kill would lose more
MOST_NUMBERS = 2**30  # label weights of a bundle; training keeps about ten copies, 40 GiB
MOST_SECONDS = 150.0  # of a bundle on a GPU: the most that a kill loses

Place = Literal["cuda", "cpu"]  # the kind of device that a bundle runs on
Candidates = NDArray[np.bool_]  # (rows, classes)


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
    for name in (item.name for item in fields(thing)):  # type: ignore[arg-type]
        value = getattr(thing, name)
        if name not in added or value != added[name]:
            is_float = hints[name] in (float, Any)
            values[name] = _plain(f"{type(thing).__name__}.{name}", value, is_float)
    return values


@lru_cache  # resolving annotations takes most of the time of a plan
def _type_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


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
    kind: type[Noise] = _kind_of(table, NOISES, "noise")
    if "noise" in table:
        table["noise"] = noise_of(table["noise"])
    if kind is Flip and "share" not in table:
        raise InputError("The noise flip needs a share from 0 to 1: {name = 'flip', share = 0.1}.")
    return kind(**table)


def method_of(table: Mapping[str, Any], preset: str, epochs: int | None = None) -> Method:
    """A method from its name and some of its fields; the preset sets the others."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    kind: type[Method] = _kind_of(values, METHODS, "method")
    base = kind.paper() if preset == "paper" else kind()
    if epochs is not None and "epochs" in kind.field_names():
        values = {"epochs": epochs} | values
    return kind(**{name: getattr(base, name) for name in kind.field_names()} | values)


def _kind_of(values: dict[str, Any], kinds: Mapping[str, Any], what: str) -> Any:
    """The class that the key "name" stands for; removes this key, and checks the others."""
    name = values.pop("name", None)
    if name not in kinds:
        raise InputError(f"There is no {what} {name!r}; the names are {', '.join(kinds)}.")
    refuse_unknown(values, {item.name for item in fields(kinds[name])}, f"the {what} {name}")
    return kinds[name]


def refuse_unknown(values: Mapping[str, Any], known: set[str], owner: str) -> None:
    """Raise an error that names unknown keys, so that a misspelled key is not ignored."""
    if unknown := sorted(set(values) - known):
        names = ", ".join(sorted(known))
        raise InputError(f"Unknown keys of {owner}: {', '.join(unknown)}. Known: {names}.")


@dataclass(frozen=True)
class Bundle:
    """Runs of equal shape, sorted by dataset; the unit of work of an executor.

    A worker trains and evaluates the runs. If `draws_noise`, it draws their candidate sets instead.
    """

    runs: tuple[Run, ...]
    place: Place
    draws_noise: bool = False
    # by noise key; empty until they are drawn
    candidates: Mapping[str, Candidates] = field(default_factory=dict, repr=False, compare=False)

    @property
    def needs(self) -> tuple[str, ...]:
        """Noise keys of the candidate sets that must be drawn before training."""
        keys = () if self.draws_noise else (run.noise_key for run in self.runs)
        return tuple(dict.fromkeys(key for key in keys if key))

    @property
    def keys(self) -> tuple[str, ...]:
        """The store's keys of the results."""
        return tuple(run.noise_key if self.draws_noise else run.key for run in self.runs)

    @property
    def title(self) -> str:
        names = ", ".join(dict.fromkeys(run.dataset for run in self.runs))
        count = f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        what = "noise for" if self.draws_noise else f"{self.runs[0].method.title} on"
        return f"{what} {names} ({count})"

    @property
    def models(self) -> int:
        """How many networks are trained at once."""
        if self.draws_noise:
            return len(self.runs)
        return sum(getattr(run.method, "members", 1) for run in self.runs)

    def with_candidates(self, known: Mapping[str, Candidates]) -> "Bundle":
        """The bundle with the candidate sets it needs."""
        return replace(self, candidates={key: known[key] for key in self.needs})

    @property
    def seconds(self) -> float:
        """A rough estimate of the time on one core, or on a large GPU."""
        run, cuda = self.runs[0], self.place == "cuda"
        method, noise, entry = run.method, run.noise, entry_of(run.dataset)
        rows = training_rows(run.dataset)
        if self.draws_noise:
            if not isinstance(noise, InstanceDependent):
                return 1.0
            epochs, batch, cost = noise.epochs, noise.batch_size, 1.0
        elif isinstance(method, DeepMethod):
            epochs, batch = method.total_epochs, method.batch_size
            cost = method.cost
        elif not isinstance(method, ClassicalMethod):
            return 1.0
        else:
            factor, power = method.cost
            fit = factor * (rows / 1e4) ** power * entry.features / 100 / (1000 if cuda else 1)
            shape = (28, 28) if entry.kind == "pictures" else (entry.features,)
            shared = method.shared_seconds(rows, shape, cuda=cuda)
            return float(len(self.runs) * (0.1 + fit) + shared)
        steps = epochs * ceil(rows / batch)
        weights = 300 * (entry.features + 600 + entry.classes)  # of the paper's network
        if cuda:
            return 10 + steps * cost * (2e-4 + 1.5e-5 * self.models * weights / 4e5)
        return 0.2 + steps * cost * self.models * (5e-4 + 6 * batch * weights / 4e10)


def bundles(runs: Iterable[Run], *, joined: bool, draw_noise: bool = False) -> list[Bundle]:
    """Runs in bundles, the longest first; if `draw_noise`, bundles that draw their noise once.

    If `joined`, runs of equal shape train at once, as suits a GPU. Otherwise each run is a bundle:
    float32 results depend on the other runs of a bundle in the last digit, and results on a CPU
    must not depend on what was left to do after an interruption.
    """
    if draw_noise:
        runs = {run.noise_key: run for run in runs if run.noise}.values()
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        group: tuple[Any, ...] = (run.key, "cpu")
        if joined and (draw_noise or not run.method.on_host):
            entry, numbers = entry_of(run.dataset), run.method.number_names()
            shape = (entry.kind, entry.rows, entry.features, entry.classes)
            fixed = {name: v for name, v in fields_of(run.method).items() if name not in numbers}
            alike = run.noise if draw_noise else (type(run.method), repr(fixed))
            group = (shape, alike, "cuda")
        groups.setdefault(group, []).append(run)
    cut = []
    for (*_, place), members in groups.items():
        by_dataset: dict[str, list[Run]] = {}
        for run in members:
            by_dataset.setdefault(run.dataset, []).append(run)
        ordered = tuple(chain(*by_dataset.values()))
        whole = Bundle(ordered, place, draw_noise)
        parts = 1 if draw_noise else ceil(len(ordered) / _most_runs(whole))
        size = ceil(len(ordered) / parts)  # equal parts
        cut += [replace(whole, runs=ordered[i : i + size]) for i in range(0, len(ordered), size)]
    return sorted(cut, key=lambda bundle: bundle.seconds, reverse=True)


def _most_runs(bundle: Bundle) -> int:
    """How many runs of a bundle may train at once."""
    [first, *_] = bundle.runs
    models = replace(bundle, runs=(first,)).models
    numbers = training_rows(first.dataset) * entry_of(first.dataset).classes * models
    most = max(1, min(len(bundle.runs), MOST_MODELS // models, MOST_NUMBERS // numbers))
    while most > 1 and replace(bundle, runs=bundle.runs[:most]).seconds > MOST_SECONDS:
        most -= 1
    return most


def training_rows(dataset: str) -> int:
    """The number of training rows, if the files have the usual sizes."""
    entry = entry_of(dataset)
    official = entry.kind == "pictures" and entry.rows == 70_000
    return 60_000 if official else entry.rows * 4 // 5
