"""Which methods run on which datasets with which seeds, and how they are examined."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Self

from robustpll._files import plain_text
from robustpll.bench.named_grids import GRIDS
from robustpll.bench.run import (
    Condition,
    PlannedRun,
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
from robustpll.errors import InputError, is_count
from robustpll.methods import METHODS, DeepMethod, Method
from robustpll.methods.classical import ClassicalMethod

__all__ = ["GRIDS", "Condition", "Entry", "Grid", "PlannedRun", "Present", "Run", "present"]


@dataclass(frozen=True)
class Entry:
    """A line of the report, or a part of it: a method, with its name there."""

    label: str
    method: Method
    datasets: tuple[str, ...] | None = None  # of the grid, which it runs on; None: all


@dataclass(frozen=True)
class Grid:
    """What a benchmark runs: every entry on every dataset with every seed.

    Parameters
    ----------
    name : str
        Letters, digits, "-" and "_"; the file in the store.
    entries : tuple of Entry
        Labels differ, but for entries of one kind of method on different datasets.
    datasets : tuple of str
        As `load_dataset` knows them.
    seeds : tuple of int
        Of split, noise, initial weights and order.
    noise : Noise or None
        For datasets without candidates of their own; needed if there are such.
    epsilons : tuple of float
        Strengths of the published attack; rows are always examined without it, too. Classical
        methods are not attacked.
    attacked : tuple of str or None
        Datasets under attack; None: all.
    ood : tuple of (str, str)
        A dataset, and another whose rows are unknown to its runs.
    train_rows : bool
        Whether what a method thinks of its training rows is stored, too.
    audit : tuple of (str, tuple of float)
        A dataset, and the epsilons up to which its test rows, `MOST_AUDITED` at most, face all
        attacks of `Audit`; classical methods face those that need no gradient.

    Examples
    --------
    >>> grid = Grid.named("paper")
    >>> len(grid.entries), len(grid.runs())
    (19, 1140)
    >>> grid.runs()[0].run.dataset
    'bird-song'
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
        for broken, rule in _rules(self):
            if broken:
                msg = f"Grid {self.name!r}: {rule}."
                raise InputError(msg)
        for name in (*self.datasets, *(self.attacked or ()), *chain(*self.ood)):
            entry_of(name)
        for entry in self.entries:
            fields_of(entry.method)  # refuses what cannot be written down
        if self.noise is not None:
            noise_as_dict(self.noise)

    def runs(self) -> tuple[PlannedRun, ...]:
        """In the order of entries, datasets and seeds."""
        return tuple(
            PlannedRun(
                entry.label,
                Run(entry.method, dataset, self.noise_of(dataset), seed),
                self.conditions(entry.method, dataset),
            )
            for entry in self.entries
            for dataset in self.datasets
            if entry.datasets is None or dataset in entry.datasets
            for seed in self.seeds
        )

    def noise_of(self, dataset: str) -> Noise | None:
        """The noise, unless a dataset has candidates of its own."""
        return self.noise if entry_of(dataset).candidates is None else None

    def conditions(self, method: Method, dataset: str) -> tuple[Condition, ...]:
        """How runs of a method on a dataset are examined."""
        found = [Condition("train")] if self.train_rows else []
        found.append(Condition("test"))
        under_attack = self.attacked is None or dataset in self.attacked
        if under_attack and not isinstance(method, ClassicalMethod):
            found += [Condition("test", epsilon) for epsilon in self.epsilons]
        found += [Condition("test", audit=each) for each in dict(self.audit).get(dataset, ())]
        found += [Condition("ood", ood=other) for known, other in self.ood if known == dataset]
        return tuple(found)

    @classmethod
    def named(cls, name: str) -> Self:
        """One of the library's grids: "paper", "sound", "quick", "audit" or "beyond"."""
        if name not in GRIDS:
            msg = f"There is no grid {name!r}; the names are {', '.join(GRIDS)}."
            raise InputError(msg)
        return cls.of({"name": name, **GRIDS[name]})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """A grid from a TOML file; what it does not say is as in `Grid.of`."""
        path = Path(path)
        try:
            given = tomllib.loads(plain_text(path))
            return cls.of({"name": path.stem} | given)
        except OSError as error:
            names = ", ".join(GRIDS)
            msg = f"{path} cannot be read: {error.strerror}. Pass a TOML file, or one of {names}."
            raise InputError(msg) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{path} is no TOML: {why}.") from error
        except InputError as error:
            msg = f"{path}: {error}"
            raise InputError(msg) from error

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """A grid from plain values, as a TOML or JSON file holds them.

        >>> grid = Grid.of({
        ...     "name": "mine",
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
        refuse_unknown(given, known | {"methods", "preset", "epochs"}, "a grid")
        preset, epochs = given.get("preset", "sound"), given.get("epochs")
        methods = _listed(given.get("methods", list(METHODS)), "methods")
        attacked = given.get("attacked")
        return cls(
            given.get("name", "mine"),
            tuple(_entry(each, preset, epochs) for each in methods),
            tuple(_listed(given.get("datasets", ["digits"]), "datasets")),
            _seeds(given.get("seeds", 5)),
            noise_of(given.get("noise", InstanceDependent())),
            tuple(float(each) for each in _listed(given.get("epsilons", []), "epsilons") if each),
            None if attacked is None else tuple(_listed(attacked, "attacked")),
            tuple((known, other) for known, other in _listed(given.get("ood", []), "ood")),
            given.get("train_rows", False),
            _audit(given.get("audit", {})),
        )

    def to_json(self) -> str:
        """All of it, so that `Grid.of_json` gives the same grid in later versions, too.

        >>> grid = Grid.named("quick")
        >>> Grid.of_json(grid.to_json()) == grid
        True
        """
        methods = [
            {"name": each.method.name, "label": each.label, **fields_of(each.method)}
            | ({} if each.datasets is None else {"datasets": each.datasets})
            for each in self.entries
        ]
        plain = {
            "name": self.name,
            "methods": methods,
            "datasets": self.datasets,
            "seeds": self.seeds,
            "noise": None if self.noise is None else noise_as_dict(self.noise),
            "epsilons": self.epsilons,
            "attacked": self.attacked,
            "ood": self.ood,
            "train_rows": self.train_rows,
        }
        if self.audit:  # grids without are written, and named, as before there were audits
            plain["audit"] = dict(self.audit)
        return json.dumps(plain, indent=1)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """What `to_json` wrote, maybe before methods had all the fields that they have now."""
        given = json.loads(text)
        for method in given["methods"]:
            for name, value in METHODS.get(method["name"], DeepMethod).added.items():
                method.setdefault(name, value)
        return cls.of(given)

    def changed(self, **changes: Any) -> Self:
        """The grid with other fields, under a name of its own.

        `epochs` and `methods` stand for entries: the latter are labels or names of methods.

        >>> grid = Grid.named("paper").changed(methods=["proden"], datasets=["lost"], epochs=5)
        >>> len(grid.runs()), grid.name.startswith("paper-")
        (5, True)
        """
        entries = self.entries
        if (names := changes.pop("methods", None)) is not None:
            entries = _chosen(entries, names)
        if (epochs := changes.pop("epochs", None)) is not None:
            entries = tuple(replace(e, method=_with_epochs(e.method, epochs)) for e in entries)
        datasets = tuple(changes.pop("datasets", None) or self.datasets)
        attacked = self.attacked
        if "epsilons" in changes and attacked is not None and not set(datasets) & set(attacked):
            attacked = None  # who names strengths wants an attack on something
        kept = _narrowed(replace(self, entries=entries), datasets) | {"attacked": attacked}
        labels = {each.label for each in entries} - {each.label for each in kept["entries"]}
        if labels:
            msg = (
                f"{', '.join(sorted(labels))} of the grid {self.name!r} would run on none of "
                f"{', '.join(datasets)}: name other datasets, or the methods that shall run."
            )
            raise InputError(msg)
        other = replace(self, **kept | changes)
        if other == self:
            return self
        return replace(other, name=f"{self.name}-{key_of(json.loads(other.to_json()))[:6]}")


def _rules(grid: Grid) -> Iterable[tuple[bool, str]]:
    """Each rule of a grid in words, and whether it is broken."""
    labels = [entry.label for entry in grid.entries]
    places = [(e.label, name) for e in grid.entries for name in set(e.datasets or grid.datasets)]
    kinds = {(entry.label, type(entry.method)) for entry in grid.entries}
    noisy = [name for name in grid.datasets if name in CATALOG and grid.noise_of(name)]
    bare = [name for name in grid.datasets if name in CATALOG and not CATALOG[name].candidates]
    bad_seeds = [seed for seed in grid.seeds if not is_count(seed)]
    bad_epsilons = [each for each in grid.epsilons if not 0 < each < inf]
    pairs = [pair for pair in grid.ood if pair[0] not in grid.datasets]
    audited = [name for name, _ in grid.audit]
    bad_audits = [e for _, e in grid.audit if len({x for x in e if 0 < x < inf}) != max(len(e), 1)]
    own = [entry.datasets for entry in grid.entries if entry.datasets is not None]
    elsewhere = set(chain(audited, *own)) - set(grid.datasets)
    yield (
        not re.fullmatch(r"[\w-]+", str(grid.name)),
        "a name has letters, digits, '-' and '_' alone",
    )
    yield not labels, "there are no methods"
    yield (
        len(set(places)) < len(places) or len(kinds) > len(set(labels)),
        f"labels must differ; got {labels}. Set label = ...",
    )
    yield not grid.datasets, "there are no datasets"
    yield len(set(grid.datasets)) < len(grid.datasets), f"datasets repeat: {grid.datasets}"
    yield not grid.seeds, "there are no seeds"
    yield bool(bad_seeds), f"seeds must be ints of at least 0; got {bad_seeds}"
    yield len(set(grid.seeds)) < len(grid.seeds), f"seeds repeat: {grid.seeds}"
    yield len(bare) > len(noisy), f"{', '.join(bare)} have no candidates, so a noise is needed"
    yield (
        bool(bare) and isinstance(grid.noise, Flip) and grid.noise.noise is None,
        f"the noise flip needs a noise within, for {', '.join(bare)}",
    )
    yield bool(bad_epsilons), f"epsilons must be numbers above 0; got {bad_epsilons}"
    yield len(set(grid.epsilons)) < len(grid.epsilons), f"epsilons repeat: {grid.epsilons}"
    yield bool(pairs), f"ood is about datasets that are not in the grid: {pairs}"
    yield not isinstance(grid.train_rows, bool), "train_rows must be true or false"
    yield len(set(audited)) < len(audited), f"audit names datasets twice: {audited}"
    yield bool(bad_audits), f"audit needs epsilons above 0, each once; got {bad_audits}"
    yield not all(own), "a method's datasets must be one or more"
    yield (
        bool(elsewhere),
        f"audit, or a method, is about datasets that are not in the grid: {sorted(elsewhere)}",
    )


def _narrowed(grid: Grid, datasets: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a grid on these datasets; entries that run on none of them go."""
    entries = [
        each
        if each.datasets is None
        else replace(each, datasets=tuple(name for name in each.datasets if name in datasets))
        for each in grid.entries
    ]
    return {
        "entries": tuple(each for each in entries if each.datasets != ()),
        "datasets": datasets,
        "ood": tuple(pair for pair in grid.ood if pair[0] in datasets),
        "audit": tuple(pair for pair in grid.audit if pair[0] in datasets),
    }


def _audit(given: Any) -> tuple[tuple[str, tuple[float, ...]], ...]:
    try:
        return tuple((name, tuple(map(float, _listed(each, name)))) for name, each in given.items())
    except (AttributeError, TypeError, ValueError) as error:
        msg = f"audit must be a table of epsilons by dataset, {{lost = [0.05]}}; got {given!r}."
        raise InputError(msg) from error


def _listed(given: Any, name: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        msg = f"{name} must be a list; got {given!r}."
        raise InputError(msg)
    return list(given)


def _seeds(given: Any) -> tuple[int, ...]:
    """So many seeds from 0 on, or these."""
    if is_count(given, least=1):
        return tuple(range(given))
    return tuple(_listed(given, "seeds (a number of them, or the seeds themselves)"))


def _entry(given: Any, preset: str, epochs: int | None) -> Entry:
    table = {"name": given} if isinstance(given, str) else dict(given)
    preset = table.pop("preset", preset)
    if preset not in ("paper", "sound"):
        msg = f"preset must be 'paper' or 'sound'; got {preset!r}."
        raise InputError(msg)
    label, datasets = table.pop("label", None), table.pop("datasets", None)
    method = method_of(table, preset, epochs)
    own = None if datasets is None else tuple(_listed(datasets, "a method's datasets"))
    return Entry(str(label or method.title), method, own)


def _chosen(entries: tuple[Entry, ...], names: Sequence[str]) -> tuple[Entry, ...]:
    known = {name for entry in entries for name in (entry.label, entry.method.name)}
    if unknown := [name for name in names if name not in known]:
        have = ", ".join(dict.fromkeys(entry.method.name for entry in entries))
        msg = f"The grid has no method {', '.join(unknown)}; it has {have}."
        raise InputError(msg)
    return tuple(each for each in entries if {each.label, each.method.name} & set(names))


def _with_epochs(method: Method, epochs: int) -> Method:
    has = "epochs" in method.field_names()
    return replace(method, epochs=epochs) if has else method  # type: ignore[type-var]


@dataclass(frozen=True)
class Present:
    """What of a grid can run here, and how to get the datasets that are missing."""

    grid: Grid | None  # None if no dataset is here
    absent: dict[str, str]  # the remedy by the dataset's name


def present(grid: Grid) -> Present:
    """The grid on those datasets whose files are here.

    >>> present(Grid.named("quick")).absent
    {}
    """
    asked = dict.fromkeys((*grid.datasets, *(other for _, other in grid.ood)))
    absent = {name: how_to_get(entry_of(name)) for name in asked if not _is_here(name)}
    datasets = tuple(name for name in grid.datasets if name not in absent)
    if not datasets:
        return Present(None, absent)
    narrowed = _narrowed(grid, datasets)
    if not narrowed["entries"]:
        return Present(None, absent)
    ood = tuple(pair for pair in narrowed["ood"] if pair[1] not in absent)
    return Present(replace(grid, **narrowed | {"ood": ood}), absent)


def _is_here(name: str) -> bool:
    entry = entry_of(name)
    return all(find(entry, file) for file in entry.files)
