"""Grids: which methods run on which datasets with which seeds, and the keys of these runs."""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from inspect import getsource, isfunction
from itertools import chain, product
from math import inf
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

import numpy as np

from robustpll._files import plain_text
from robustpll.datasets.catalog import entry_of, find, how_to_get, version_here
from robustpll.datasets.noise import NOISES, Flip, Noise
from robustpll.errors import InputError, is_count, some_of
from robustpll.estimator.fitting import in_words
from robustpll.methods import METHODS, ClassicalMethod, Method

FORMAT = 1  # of the store; a change invalidates all stored runs
REAL_WORLD = ("bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news")  # of the paper
NOT_OWN = {"robustpll", *sys.stdlib_module_names} - {"__main__"}  # packages whose code is known
MOST_AUDITED = 2000  # test rows, the first: their share is accurate to about one percent
GRIDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("grids.toml").read_text(encoding="utf-8")
)


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
    content: str = ""  # version of the dataset's files; "" is the catalogue's, and that of 0.1
    label: str = ""  # name of the report's line
    conditions: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """For messages: "Proden on digits, seed 0"."""
        return f"{self.label} on {self.dataset}, seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """The name of the run's file in the store; 20 digits, then the version of the dataset."""
        return key_of(self.description)

    @property
    def description(self) -> dict[str, Any]:
        """The content of the key, as JSON values."""
        noise = noise_as_dict(self.noise)
        data = {"format": FORMAT, "dataset": self.dataset, "noise": noise, "seed": self.seed}
        data |= {"content": self.content} if self.content else {}
        data |= {"noise_code": code} if (code := own_code(self.noise)) else {}
        method = {"class": type(self.method).__name__, "fields": fields_of(self.method)}
        method |= {"code": code} if (code := own_code(self.method)) else {}
        return {"method": method} | data

    @cached_property
    def noise_key(self) -> str:
        """The name of the stored candidate sets; "" if none are stored."""
        if self.noise is None or not self.noise.stored:
            return ""
        return key_of({name: v for name, v in self.description.items() if name != "method"})


def key_of(description: Mapping[str, Any]) -> str:
    """20 hexadecimal digits of a description's hash, and the version of the dataset, if any."""
    hashed = {name: value for name, value in description.items() if name != "content"}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digits = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{digits}-{description['content']}" if description.get("content") else digits


def own_code(thing: Method | Noise | None) -> str:
    """A hash of the classes of a method or noise that are not the library's; "" if there are none.

    As part of a key, it keeps results of former code apart.
    """
    parts = [] if thing is None else [*type(thing).__mro__]
    texts = [_text_of(part) for part in parts if part.__module__.split(".")[0] not in NOT_OWN]
    nested = vars(thing).values() if parts else ()
    texts += [own_code(value) for value in nested if isinstance(value, Noise)]
    text = "".join(texts)
    return text and hashlib.sha256(text.encode()).hexdigest()[:16]


def _text_of(kind: type) -> str:
    """The source of a class; if that is in no file, its functions."""
    try:
        return getsource(kind)
    except (OSError, TypeError):
        return repr({name: in_words(v) for name, v in vars(kind).items() if isfunction(v)})


def fields_of(thing: Method | Noise) -> dict[str, Any]:
    """All fields of a method or noise as JSON values; 1 becomes 1.0 in a float field.

    A method's `added_fields` are left out at the values that they had before they were added, so
    that the keys of earlier runs stay valid.
    """
    added = getattr(thing, "added_fields", {})
    return {
        name: _plain(f"{type(thing).__name__}.{name}", getattr(thing, name), is_float)
        for name, is_float in _float_fields(type(thing)).items()
        if name not in added or getattr(thing, name) != added[name]
    }


@lru_cache  # resolving annotations takes most of the time of a plan
def _float_fields(kind: Any) -> dict[str, bool]:
    """Whether a field is a float, by the name of the field."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] in (float, Any) for field in fields(kind)}


def _plain(name: str, value: Any, is_float: bool) -> Any:
    if isinstance(value, Noise):
        return noise_as_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(name, item, is_float) for item in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | np.number):
        return float(value) if is_float or not hasattr(value, "__index__") else int(value)
    raise InputError(f"{name} is {value!r}, which cannot be stored. Use a name, as in 'lenet'.")


def noise_as_dict(noise: Noise | None) -> dict[str, Any] | None:
    """A noise as its name and all its fields, for JSON."""
    if noise is None:
        return None
    names = {kind: name for name, kind in NOISES.items()}
    if type(noise) not in names:
        raise InputError(f"noise must be one of {', '.join(NOISES)}; got {noise!r}.")
    return {"name": names[type(noise)], **fields_of(noise)}


def noise_of(value: Any) -> Noise | None:
    """A noise from its name, or from a table with its name and some of its fields."""
    if value is None or isinstance(value, Noise):
        return value
    kind, table = _kind_and_fields(value, NOISES, "noise")
    if "noise" in table:
        table["noise"] = noise_of(table["noise"])
    if kind is Flip and "share" not in table:
        raise InputError("The noise flip needs a share from 0 to 1: {name = 'flip', share = 0.1}.")
    noise: Noise = kind(**table)
    return noise


def _kind_and_fields(
    value: Any, kinds: Mapping[str, Any], what: str, further: Sequence[str] = ()
) -> tuple[Any, dict[str, Any]]:
    """The class that a name stands for, and its table without the name; a plain name will do."""
    if not isinstance(value, str | Mapping):
        raise InputError(f"A {what} must be a name, or a table with a name; got {value!r}.")
    table = {"name": value} if isinstance(value, str) else dict(value)
    name = table.pop("name", None)
    if name not in kinds:
        raise InputError(f"There is no {what} {name!r}; the names are {', '.join(kinds)}.")
    known = [*(field.name for field in fields(kinds[name])), *further]
    if odd := [key for key in table if key not in known]:
        raise InputError(f"The {what} {name} has no {some_of(odd)}; it has {', '.join(known)}.")
    return kinds[name], table


def _tuple(value: Any, name: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list; got {value!r}.")
    return tuple(value)


def _within(pairs: Any, datasets: Sequence[str]) -> tuple[Any, ...]:
    """The pairs, of `ood` or `audit`, whose first entry is one of the datasets."""
    return tuple(pair for pair in pairs if pair[0] in datasets)


def _plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a grid from plain values: tuples, seeds from their number, a noise by its name."""
    plain = dict(values)
    if is_count(plain.get("seeds")):
        plain["seeds"] = range(plain["seeds"])
    for name in ("datasets", "seeds", "epsilons", "ood", "attacked"):
        if plain.get(name) is not None:
            plain[name] = _tuple(plain[name], name)
    if "noise" in plain:
        plain["noise"] = noise_of(plain["noise"])
    if "epsilons" in plain:  # 0 is no attack
        epsilons = (epsilon for epsilon in plain["epsilons"] if epsilon)
        plain["epsilons"] = _numbers(epsilons, "epsilons")
    if "ood" in plain:
        if odd := [p for p in plain["ood"] if not (isinstance(p, list | tuple) and len(p) == 2)]:
            rule = "pairs of a dataset and another one, such as [['mnist', 'notmnist']]"
            raise InputError(f"ood must be a list of {rule}; got {odd[0]!r}.")
        plain["ood"] = tuple(map(tuple, plain["ood"]))
    if isinstance(plain.get("audit"), Mapping):
        plain["audit"] = tuple(
            (name, _numbers(_tuple(epsilons, f"audit of {name}"), f"audit of {name}"))
            for name, epsilons in plain["audit"].items()
        )
    return plain


def _numbers(values: Iterable[Any], name: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, values))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a list of numbers: {error}.") from error


@dataclass(frozen=True)
class GridMethod:
    """A method of a grid, with its label in the report."""

    label: str
    method: Method
    datasets: tuple[str, ...] | None = None  # datasets of the grid to run on; None: all

    @classmethod
    def of(cls, value: Any, preset: str, epochs: int | None) -> Self:
        """A method from its name, or a table of name, label, datasets, preset and some fields."""
        kind, table = _kind_and_fields(value, METHODS, "method", ("label", "preset", "datasets"))
        preset = table.pop("preset", preset)
        if preset not in ("paper", "sound"):
            raise InputError(f"preset must be 'paper' or 'sound'; got {preset!r}.")
        label, datasets = table.pop("label", None), table.pop("datasets", None)
        if datasets is not None:
            datasets = _tuple(datasets, "a method's datasets")
        if epochs is not None and "epochs" in kind.field_names():
            table.setdefault("epochs", epochs)
        chosen = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
        method = kind(**(kind.paper_fields if preset == "paper" else {}) | chosen)
        return cls(str(label or method.title), method, datasets)

    @property
    def group(self) -> str:
        """Methods are compared within their group: "single" or "ensemble"."""
        return "ensemble" if self.method.family == "ensemble" else "single"


@dataclass(frozen=True)
class Grid:
    """What a benchmark runs: every entry on every dataset with every seed.

    Parameters
    ----------
    name, entries : str, tuple of GridMethod
        The name of its file in the store: letters, digits, "-" and "_". The methods, of which
        labels must differ, except for one kind of method on different datasets.
    datasets, seeds : tuples of str and int
        Names that `load_dataset` accepts; seeds of split, noise, weights and order of rows.
    noise : Noise or None
        Makes candidates for datasets that have none; required if there are such datasets.
    epsilons, attacked : tuple of float, tuple of str or None
        Strengths of the published attack, in addition to clean rows; not for classical methods.
        Datasets under attack; None means all.
    ood : tuple of (str, str)
        Pairs of a dataset and another one whose rows are out-of-distribution for it.
    train_rows : bool
        Whether predictions of the training rows are stored, too.
    audit : tuple of (str, tuple of float)
        Pairs of a dataset and epsilons: all attacks of `Audit` run on its first test rows, at most
        `MOST_AUDITED`; 200, by fewer steps, of convolutional networks. Classical methods face the
        attacks that need no gradient.

    Examples
    --------
    >>> grid = Grid.named("paper")
    >>> len(grid.entries), len(grid.runs()), grid.runs()[0].dataset
    (19, 1140, 'bird-song')
    """

    name: str
    entries: tuple[GridMethod, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    noise: Noise | None = None
    epsilons: tuple[float, ...] = ()
    attacked: tuple[str, ...] | None = None
    ood: tuple[tuple[str, str], ...] = ()
    train_rows: bool = False
    audit: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.datasets, *(self.attacked or ()), *chain(*self.ood)):
            entry_of(name)  # raises if there is no such dataset
        for rule, values in _faults(self).items():
            if values:
                raise InputError(f"Grid {self.name!r}: {rule}; got {some_of(values)}.")
        self.to_json()  # raises if a method or noise cannot be stored

    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of entries, datasets and seeds."""
        runs = []
        for entry, dataset in product(self.entries, self.datasets):
            if entry.datasets is None or dataset in entry.datasets:
                noise = self.noise if entry_of(dataset).candidates is None else None
                conditions = self.conditions(entry.method, dataset)
                first = Run(entry.method, dataset, noise, 0, "", entry.label, conditions)
                runs += [replace(first, seed=seed) for seed in self.seeds]
        return tuple(runs)

    def conditions(self, method: Method, dataset: str) -> tuple[Condition, ...]:
        """The conditions under which runs of a method on a dataset are evaluated."""
        if entry_of(dataset).kind == "votes":  # without features, there is nothing to predict
            return (Condition("train"),)
        conditions = [Condition("train")] if self.train_rows else []
        conditions.append(Condition("test"))
        under_attack = self.attacked is None or dataset in self.attacked
        if under_attack and not isinstance(method, ClassicalMethod):
            conditions += [Condition("test", epsilon) for epsilon in self.epsilons]
        audits = dict(self.audit).get(dataset, ())
        conditions += [Condition("test", audit=epsilon) for epsilon in audits]
        conditions += [Condition("ood", ood=other) for known, other in self.ood if known == dataset]
        return tuple(conditions)

    @classmethod
    def named(cls, name: str) -> Self:
        """One of the library's grids, such as "paper"; the error for another name lists them."""
        return cls.of({"name": name, "like": name})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A grid from a TOML file; missing keys have the defaults of `Grid.of`."""
        path = Path(path)
        try:
            return cls.of({"name": path.stem} | tomllib.loads(plain_text(path)))
        except (OSError, TypeError, ValueError, RecursionError) as error:  # of TOML, or of a value
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{path} is no grid in TOML: {reason}") from error

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A grid from plain values, as in a TOML or JSON file, or else in the grid named `like`.

        With other `datasets`, that grid's `ood` and `audit` are those of the datasets that remain.

        >>> no_kl = {"name": "robust_pll", "label": "no KL", "kl_ceiling": 0.0}
        >>> grid = Grid.of({"methods": ["proden", no_kl], "noise": "uniform", "seeds": 3})
        >>> [entry.label for entry in grid.entries], grid.seeds
        (['Proden', 'no KL'], (0, 1, 2))
        """
        plain: dict[str, Any] = {"name": "mine", "methods": tuple(METHODS), "datasets": ("digits",)}
        plain |= {"seeds": 5, "noise": "instance-dependent", "epsilons": (), "ood": (), "audit": {}}
        keys = dict(values)
        while (like := keys.pop("like", None)) is not None:
            if like not in GRIDS:
                raise InputError(f"There is no grid {like!r}; the names are {', '.join(GRIDS)}.")
            keys = GRIDS[like] | keys
        known = [*plain, "attacked", "train_rows", "preset", "epochs", "like"]
        if odd := [name for name in keys if name not in known]:
            raise InputError(f"A grid has no key {some_of(odd)}; it has {', '.join(known)}.")
        plain |= keys
        if not isinstance(plain["audit"], Mapping):
            raise InputError(f"audit must be a table {{lost = [0.05]}}; got {plain['audit']!r}.")
        plain = _plain_fields(plain)
        preset, epochs = plain.pop("preset", "sound"), plain.pop("epochs", None)
        methods = _tuple(plain.pop("methods"), "methods")
        plain["entries"] = tuple(GridMethod.of(method, preset, epochs) for method in methods)
        for name in {"ood", "audit"} - values.keys():  # of a grid that `like` names
            plain[name] = _within(plain[name], plain["datasets"])
        return cls(**plain)

    def to_json(self) -> str:
        """The whole grid as JSON; `Grid.of_json` restores it, in later versions, too."""
        methods = [
            {"name": entry.method.name, "label": entry.label, **fields_of(entry.method)}
            | ({} if entry.datasets is None else {"datasets": entry.datasets})
            for entry in self.entries
        ]
        noise, audit = noise_as_dict(self.noise), dict(self.audit)
        plain = vars(self) | {"methods": methods, "noise": noise, "audit": audit}
        del plain["entries"]
        if not self.audit:  # otherwise names of grids without audits would change
            del plain["audit"]
        return json.dumps(plain, indent=1)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The grid that `to_json` wrote, possibly before a method had all its present fields."""
        values = json.loads(text)
        methods = values["methods"]
        values["methods"] = [METHODS.get(m["name"], Method).added_fields | m for m in methods]
        return cls.of(values)

    def changed(self, **changes: Any) -> Self:
        """The grid with other fields and a new name.

        `methods` (labels or names of methods) selects entries; `epochs` changes all of them.

        >>> grid = Grid.named("paper").changed(methods=["proden"], datasets=["lost"], epochs=5)
        >>> len(grid.runs()), grid.name.startswith("paper-")
        (5, True)
        """
        changes, entries = _plain_fields(changes), self.entries
        if (names := changes.pop("methods", None)) is not None:
            known = {name for e in entries for name in (e.label, e.method.name)}
            if unknown := sorted(set(names) - known):
                methods = ", ".join(sorted(known))
                raise InputError(f"The grid has no method {', '.join(unknown)}; it has {methods}.")
            entries = tuple(e for e in entries if {e.label, e.method.name} & set(names))
        if (datasets := changes.pop("datasets", None)) is None:
            datasets = self.datasets
        epochs = changes.pop("epochs", None)
        limited = []
        for entry in entries:
            method = entry.method
            if epochs is not None and "epochs" in method.field_names():
                method = replace(method, epochs=epochs)  # type: ignore[type-var]
            names = entry.datasets and tuple(name for name in entry.datasets if name in datasets)
            limited += [replace(entry, method=method, datasets=names)] * (names != ())
        if dropped := {e.label for e in entries} - {e.label for e in limited}:
            listed = f"{', '.join(sorted(dropped))} would run on none of {', '.join(datasets)}"
            raise InputError(f"{listed}. Name other datasets, or the methods to run.")
        if "epsilons" in changes and set(datasets).isdisjoint(self.attacked or ()):
            changes.setdefault("attacked", None)  # new epsilons must apply to some dataset
        narrowed = {name: _within(getattr(self, name), datasets) for name in ("ood", "audit")}
        narrowed |= {"entries": tuple(limited), "datasets": datasets}
        other = replace(self, **narrowed | changes)
        if other == self:
            return self
        return replace(other, name=f"{self.name}-{key_of(json.loads(other.to_json()))[:6]}")


def _faults(grid: Grid) -> dict[str, Sequence[object]]:
    """The rules of a grid, and the values that break them."""
    entries, audits = grid.entries, dict(grid.audit)
    limited = {e.label: e.datasets for e in entries if e.datasets is not None}
    lists: dict[str, Sequence[object]] = {
        "methods": [label for label, _ in {(e.label, type(e.method)) for e in entries}],
        "labels": [(e.label, name) for e in entries for name in e.datasets or grid.datasets],
        "datasets": grid.datasets,
        "seeds": grid.seeds,
        "epsilons": [f"{e:g}" for e in grid.epsilons] or ["none"],
        **{name: [f"{e:g}" for e in epsilons] for name, epsilons in audits.items()},
        **limited,
    }
    repeated = [name for name, values in lists.items() if len(set(values)) != len(values)]
    named = {*audits, *chain(*limited.values()), *(name for name, _ in grid.ood)}
    noise = grid.noise.noise if isinstance(grid.noise, Flip) else grid.noise
    bare = [name for name in grid.datasets if entry_of(name).candidates is None]
    is_name, is_bool = re.fullmatch(r"[\w-]+", str(grid.name)), isinstance(grid.train_rows, bool)
    epsilons = chain(grid.epsilons, *audits.values())
    return {
        "a name has letters, digits, '-' and '_' alone": [] if is_name else [grid.name],
        "lists must not be empty": [name for name, values in lists.items() if not values],
        "values must differ, epsilons in six digits, methods by label (set label = ...)": repeated,
        "seeds must be ints of at least 0": [s for s in grid.seeds if not is_count(s)],
        "epsilons must be numbers above 0": [e for e in epsilons if not 0 < e < inf],
        "datasets without candidates need a noise, also within flip": [] if noise else bare,
        "ood, audit and methods must name datasets of the grid": sorted(named - set(grid.datasets)),
        "train_rows must be true or false": [] if is_bool else [grid.train_rows],
    }


def runs_here(grid: Grid) -> tuple[tuple[Run, ...], dict[str, str]]:
    """The runs and conditions that are possible here, by version, and how to get the others.

    Datasets are absent by their names, and methods that need an optional package by their labels.
    """
    names = (*grid.datasets, *(other for _, other in grid.ood))
    absent = {e.name: how_to_get(e) for e in map(entry_of, names) if not all(map(find, e.files))}
    versions = {name: version_here(name) for name in grid.datasets if name not in absent}
    needed = {entry.label: entry.method.package for entry in grid.entries if entry.method.package}
    get = "Run: pip install 'robustpll[crowds]'"
    absent |= {label: get for label, package in needed.items() if not find_spec(package)}
    runs = []
    for run in grid.runs():
        if run.dataset in versions and run.label not in absent:
            conditions = tuple(c for c in run.conditions if c.ood not in absent)
            runs.append(replace(run, content=versions[run.dataset], conditions=conditions))
    return tuple(runs), absent


def grid_of(grid: Grid | str | Path) -> Grid:
    """A grid, given itself, its name or its TOML file."""
    if isinstance(grid, Grid):
        return grid
    is_file = str(grid).endswith(".toml") or Path(grid).is_file()
    return Grid.read(grid) if is_file else Grid.named(str(grid))
