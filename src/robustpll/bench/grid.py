"""Grids: which methods run on which datasets with which seeds, and how runs are evaluated."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Self

from robustpll._files import plain_text
from robustpll.bench.run import (
    Condition,
    Run,
    fields_of,
    key_of,
    method_of,
    noise_as_dict,
    noise_of,
    refuse_unknown,
)
from robustpll.datasets.catalog import CATALOG, entry_of, find, how_to_get
from robustpll.datasets.noise import Flip, InstanceDependent, Noise
from robustpll.errors import InputError, is_count, some_of
from robustpll.methods import METHODS, Method
from robustpll.methods.classical import ClassicalMethod

REAL_WORLD = ("bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news")  # of the paper
GRIDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("grids.toml").read_text(encoding="utf-8")
)

__all__ = ["GRIDS", "REAL_WORLD", "Condition", "Entry", "Grid", "Run", "present"]


@dataclass(frozen=True)
class Entry:
    """A method of a grid, with its label in the report."""

    label: str
    method: Method
    datasets: tuple[str, ...] | None = None  # datasets of the grid to run on; None: all

    @property
    def group(self) -> str:
        """Methods are compared within their group: "single" or "ensemble"."""
        return "ensemble" if self.method.family == "ensemble" else "single"


@dataclass(frozen=True)
class Grid:
    """What a benchmark runs: every entry on every dataset with every seed.

    Parameters
    ----------
    name : str
        Letters, digits, "-" and "_"; the name of the grid's file in the store.
    entries : tuple of Entry
        The methods. Labels must differ, except for one kind of method on different datasets.
    datasets, seeds : tuples of str and int
        Names that `load_dataset` accepts; seeds of split, noise, weights and order of rows.
    noise : Noise or None
        Makes candidates for datasets that have none; required if there are such datasets.
    epsilons : tuple of float
        Strengths of the published attack, in addition to clean rows; not for classical methods.
    attacked : tuple of str or None
        Datasets under attack; None means all.
    ood : tuple of (str, str)
        Pairs of a dataset and another one whose rows are out-of-distribution for it.
    train_rows : bool
        Whether predictions of the training rows are stored, too.
    audit : tuple of (str, tuple of float)
        Pairs of a dataset and epsilons: all attacks of `Audit` run on its first test rows, at most
        `MOST_AUDITED`. Classical methods face the attacks that need no gradient.

    Examples
    --------
    >>> grid = Grid.named("paper")
    >>> len(grid.entries), len(grid.runs()), grid.runs()[0].dataset
    (19, 1140, 'bird-song')
    """

    name: str
    entries: tuple[Entry, ...]
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    noise: Noise | None = None
    epsilons: tuple[float, ...] = ()
    attacked: tuple[str, ...] | None = None
    ood: tuple[tuple[str, str], ...] = ()
    train_rows: bool = False
    audit: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        for rule, values in _faults(self).items():
            if values:
                raise InputError(f"Grid {self.name!r}: {rule}; got {some_of(values)}.")
        for name in (*self.datasets, *(self.attacked or ()), *chain(*self.ood)):
            entry_of(name)  # raises if there is no such dataset
        self.to_json()  # raises if a method or noise cannot be stored

    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of entries, datasets and seeds."""
        runs = []
        for entry in self.entries:
            for dataset in self.datasets:
                if entry.datasets is None or dataset in entry.datasets:
                    noise = self.noise if entry_of(dataset).candidates is None else None
                    conditions = self.conditions(entry.method, dataset)
                    first = Run(entry.method, dataset, noise, 0, "", entry.label, conditions)
                    runs += [replace(first, seed=seed) for seed in self.seeds]
        return tuple(runs)

    def conditions(self, method: Method, dataset: str) -> tuple[Condition, ...]:
        """The conditions under which runs of a method on a dataset are evaluated."""
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
        """One of the library's grids: "paper", "sound", "quick", "audit" or "beyond"."""
        if name not in GRIDS:
            raise InputError(f"There is no grid {name!r}; the names are {', '.join(GRIDS)}.")
        return cls.of({"name": name, **GRIDS[name]})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A grid from a TOML file; missing keys have the defaults of `Grid.of`."""
        path = Path(path)
        try:
            return cls.of({"name": path.stem} | tomllib.loads(plain_text(path)))
        except OSError as error:
            names = ", ".join(GRIDS)
            msg = f"{path} cannot be read: {error.strerror}. Pass a TOML file, or one of {names}."
            raise InputError(msg) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{path} is no TOML: {why}.") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """A grid from plain values, as in a TOML or JSON file.

        >>> grid = Grid.of({
        ...     "methods": ["proden", {"name": "robust_pll", "label": "no KL", "kl_ceiling": 0.0}],
        ...     "datasets": ["digits"],
        ...     "seeds": 3,
        ...     "noise": "uniform",
        ...     "epochs": 10,
        ... })
        >>> [entry.label for entry in grid.entries], grid.seeds
        (['Proden', 'no KL'], (0, 1, 2))
        """
        known = {field.name for field in fields(cls)} - {"entries"}
        refuse_unknown(values, known | {"methods", "preset", "epochs"}, "a grid")
        preset, epochs = values.get("preset", "sound"), values.get("epochs")
        methods = _list(values.get("methods", list(METHODS)), "methods")
        attacked, audit = values.get("attacked"), values.get("audit", {})
        seeds = values.get("seeds", 5)
        if not is_count(seeds, least=1):
            seeds = _list(seeds, "seeds (a number of them, or the seeds themselves)")
        try:
            audit = tuple((name, tuple(map(float, _list(e, name)))) for name, e in audit.items())
        except (AttributeError, TypeError, ValueError) as error:
            msg = f"audit must be a table of epsilons by dataset, {{lost = [0.05]}}; got {audit!r}."
            raise InputError(msg) from error
        return cls(
            values.get("name", "mine"),
            tuple(_entry(method, preset, epochs) for method in methods),
            tuple(_list(values.get("datasets", ["digits"]), "datasets")),
            tuple(seeds if isinstance(seeds, list) else range(seeds)),
            noise_of(values.get("noise", InstanceDependent())),
            tuple(float(e) for e in _list(values.get("epsilons", []), "epsilons") if e),
            None if attacked is None else tuple(_list(attacked, "attacked")),
            tuple((name, other) for name, other in _list(values.get("ood", []), "ood")),
            values.get("train_rows", False),
            audit,
        )

    def to_json(self) -> str:
        """The whole grid as JSON; `Grid.of_json` restores it, in later versions, too."""
        methods = [
            {"name": entry.method.name, "label": entry.label, **fields_of(entry.method)}
            | ({} if entry.datasets is None else {"datasets": entry.datasets})
            for entry in self.entries
        ]
        plain = {"name": self.name, "methods": methods} | {
            field.name: getattr(self, field.name) for field in fields(self)[2:]
        }
        plain["noise"] = None if self.noise is None else noise_as_dict(self.noise)
        plain["audit"] = dict(self.audit)
        if not self.audit:  # otherwise names of grids without audits would change
            del plain["audit"]
        return json.dumps(plain, indent=1)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The grid that `to_json` wrote, possibly before a method had all its present fields."""
        values = json.loads(text)
        for method in values["methods"]:
            added = getattr(METHODS.get(method["name"]), "added_fields", {})
            method.update({name: value for name, value in added.items() if name not in method})
        return cls.of(values)

    def changed(self, **changes: Any) -> Self:
        """The grid with other fields and a new name.

        `methods` (labels or names of methods) selects entries; `epochs` changes all of them.

        >>> grid = Grid.named("paper").changed(methods=["proden"], datasets=["lost"], epochs=5)
        >>> len(grid.runs()), grid.name.startswith("paper-")
        (5, True)
        """
        entries = self.entries
        if (names := changes.pop("methods", None)) is not None:
            if unknown := set(names) - {n for e in entries for n in (e.label, e.method.name)}:
                methods = ", ".join(dict.fromkeys(entry.method.name for entry in entries))
                msg = f"The grid has no method {', '.join(sorted(unknown))}; it has {methods}."
                raise InputError(msg)
            entries = tuple(e for e in entries if {e.label, e.method.name} & set(names))
        if (epochs := changes.pop("epochs", None)) is not None:
            entries = tuple(
                replace(entry, method=replace(entry.method, epochs=epochs))  # type: ignore[type-var]
                if "epochs" in entry.method.field_names()
                else entry
                for entry in entries
            )
        datasets = tuple(changes.pop("datasets", None) or self.datasets)
        attacked = self.attacked
        if "epsilons" in changes and attacked is not None and not set(datasets) & set(attacked):
            attacked = None  # new epsilons must apply to some dataset
        narrowed = _narrowed(replace(self, entries=entries), datasets) | {"attacked": attacked}
        dropped = {entry.label for entry in entries} - {e.label for e in narrowed["entries"]}
        if dropped:
            raise InputError(
                f"{', '.join(sorted(dropped))} of the grid {self.name!r} would run on none of "
                f"{', '.join(datasets)}. Name other datasets, or the methods to run."
            )
        other = replace(self, **narrowed | changes)
        if other == self:
            return self
        return replace(other, name=f"{self.name}-{key_of(json.loads(other.to_json()))[:6]}")


def _faults(grid: Grid) -> dict[str, Sequence[object]]:
    """The rules of a grid, and the values that break them."""

    def repeated(values: Sequence[object]) -> list[object]:
        return [value for value in values if values.count(value) > 1]

    entries, audited = grid.entries, [name for name, _ in grid.audit]
    kinds = {(entry.label, type(entry.method)) for entry in entries}
    clashes = repeated([label for label, _ in kinds]) or repeated(
        [(e.label, name) for e in entries for name in set(e.datasets or grid.datasets)]
    )
    bare = [name for name in grid.datasets if name in CATALOG and not CATALOG[name].candidates]
    is_bare_flip = isinstance(grid.noise, Flip) and grid.noise.noise is None
    named = {*audited, *chain(*(entry.datasets or () for entry in entries))}
    sizes = {"methods": entries, "datasets": grid.datasets, "seeds": grid.seeds}
    is_name, is_bool = re.fullmatch(r"[\w-]+", str(grid.name)), isinstance(grid.train_rows, bool)
    return {
        "a name has letters, digits, '-' and '_' alone": [] if is_name else [grid.name],
        "there must be methods, datasets and seeds": [n for n, v in sizes.items() if not v],
        "labels must differ (set label = ...)": clashes,
        "seeds must be ints of at least 0": [s for s in grid.seeds if not is_count(s)],
        "datasets must not repeat": repeated(grid.datasets),
        "seeds must not repeat": repeated(grid.seeds),
        "epsilons must not repeat": repeated(grid.epsilons),
        "datasets without candidates need a noise": bare if grid.noise is None else [],
        "datasets without candidates need a noise within flip": bare if is_bare_flip else [],
        "epsilons must be numbers above 0": [e for e in grid.epsilons if not 0 < e < inf],
        "ood must be about datasets of the grid": [
            p for p in grid.ood if p[0] not in grid.datasets
        ],
        "train_rows must be true or false": [] if is_bool else [grid.train_rows],
        "audit must not name a dataset twice": repeated(audited),
        "audit needs epsilons above 0, each once": [
            e for _, e in grid.audit if len({x for x in e if 0 < x < inf}) != max(len(e), 1)
        ],
        "a method's datasets must be one or more": [e.label for e in entries if e.datasets == ()],
        "audit and methods must name datasets of the grid": sorted(named - set(grid.datasets)),
    }


def _list(value: Any, name: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list; got {value!r}.")
    return list(value)


def _entry(value: Any, preset: str, epochs: int | None) -> Entry:
    table = {"name": value} if isinstance(value, str) else dict(value)
    preset = table.pop("preset", preset)
    if preset not in ("paper", "sound"):
        raise InputError(f"preset must be 'paper' or 'sound'; got {preset!r}.")
    label, datasets = table.pop("label", None), table.pop("datasets", None)
    method = method_of(table, preset, epochs)
    subset = None if datasets is None else tuple(_list(datasets, "a method's datasets"))
    return Entry(str(label or method.title), method, subset)


def _narrowed(grid: Grid, datasets: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a grid on some of its datasets; entries that run on none of them are left out."""
    entries = [
        entry
        if entry.datasets is None
        else replace(entry, datasets=tuple(name for name in entry.datasets if name in datasets))
        for entry in grid.entries
    ]
    return {
        "entries": tuple(entry for entry in entries if entry.datasets != ()),
        "datasets": datasets,
        "ood": tuple(pair for pair in grid.ood if pair[0] in datasets),
        "audit": tuple(pair for pair in grid.audit if pair[0] in datasets),
    }


def present(grid: Grid) -> tuple[Grid | None, dict[str, str]]:
    """The grid on the datasets whose files are here, or None, and how to get the others."""
    names = dict.fromkeys((*grid.datasets, *(other for _, other in grid.ood)))
    entries = [entry_of(name) for name in names]
    absent = {e.name: how_to_get(e) for e in entries if not all(map(find, e.files))}
    datasets = tuple(name for name in grid.datasets if name not in absent)
    narrowed = _narrowed(grid, datasets)
    if not datasets or not narrowed["entries"]:
        return None, absent
    ood = tuple(pair for pair in narrowed["ood"] if pair[1] not in absent)
    return replace(grid, **narrowed | {"ood": ood}), absent


def grid_of(grid: Grid | str | Path) -> Grid:
    """A grid, given itself, its name or its TOML file."""
    if isinstance(grid, Grid):
        return grid
    is_file = str(grid).endswith(".toml") or Path(grid).is_file()
    return Grid.read(grid) if is_file else Grid.named(str(grid))
