"""Bundles: runs that one worker trains at once, or whose candidate sets it draws at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from robustpll.bench.run import Run, fields_of
from robustpll.datasets.catalog import entry_of
from robustpll.datasets.noise import InstanceDependent
from robustpll.methods import ClassicalMethod, DeepMethod

Place = Literal["device", "host"]
Candidates = NDArray[np.bool_]  # (rows, classes)

MOST_MODELS = 100  # networks of a bundle: more are hardly faster, and a kill would lose more
MOST_NUMBERS = 2**30  # label weights of a bundle; training keeps about ten copies, 40 GiB
MOST_SECONDS = 150.0  # of a bundle on a GPU: the most that a kill loses


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

    def parts(self) -> list["Bundle"]:
        """A bundle for each run."""
        return [replace(self, runs=(run,), candidates={}) for run in self.runs]

    def seconds(self, *, cuda: bool = False) -> float:
        """A rough estimate of the time on one core, or on a large GPU."""
        run = self.runs[0]
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


def bundles(runs: Iterable[Run], *, joined: bool) -> list[Bundle]:
    """Runs in bundles, the longest first.

    If `joined`, runs of equal shape train at once, as suits a GPU. Otherwise each run is a bundle:
    float32 results depend on the other runs of a bundle in the last digit, and results on a CPU
    must not depend on what was left to do after an interruption.
    """
    groups: dict[object, list[Run]] = {}
    for run in runs:
        alone = not joined or run.method.on_host
        groups.setdefault(run.key if alone else _agreement(run), []).append(run)
    cut = []
    for group in groups.values():
        place: Place = "host" if joined and group[0].method.on_host else "device"
        ordered = _by_dataset(group)
        parts = ceil(len(group) / _most_runs(ordered, place)) if joined else 1
        size = ceil(len(group) / parts)  # equal parts
        cut += [Bundle(ordered[i : i + size], place) for i in range(0, len(group), size)]
    return sorted(cut, key=lambda bundle: bundle.seconds(cuda=joined), reverse=True)


def noise_bundles(runs: Iterable[Run], *, joined: bool) -> list[Bundle]:
    """Bundles that draw the candidate sets of runs, each once; the longest first."""
    first: dict[str, Run] = {}
    for run in runs:
        if run.noise is not None:
            first.setdefault(run.noise_key, run)
    groups: dict[object, list[Run]] = {}
    for key, run in first.items():
        groups.setdefault((_shape(run.dataset), run.noise) if joined else key, []).append(run)
    cut = [Bundle(_by_dataset(group), "device", draws_noise=True) for group in groups.values()]
    return sorted(cut, key=lambda bundle: bundle.seconds(cuda=joined), reverse=True)


def _by_dataset(runs: list[Run]) -> tuple[Run, ...]:
    order = list(dict.fromkeys(run.dataset for run in runs))
    return tuple(sorted(runs, key=lambda run: order.index(run.dataset)))


def _agreement(run: Run) -> object:
    """Equal for runs that can train at once, if their files have the usual sizes."""
    numbers = run.method.number_names()
    fixed = {name: v for name, v in fields_of(run.method).items() if name not in numbers}
    return type(run.method).__name__, repr(fixed), _shape(run.dataset)


def _shape(dataset: str) -> tuple[object, ...]:
    entry = entry_of(dataset)
    return entry.kind, entry.rows, entry.features, entry.classes


def _most_runs(group: tuple[Run, ...], place: Place) -> int:
    """How many runs of a group a bundle on a GPU may have."""
    models = Bundle(group[:1], place).models
    numbers = training_rows(group[0].dataset) * entry_of(group[0].dataset).classes * models
    most = max(1, min(len(group), MOST_MODELS // models, MOST_NUMBERS // numbers))
    while most > 1 and Bundle(group[:most], place).seconds(cuda=True) > MOST_SECONDS:
        most -= 1
    return most


def training_rows(dataset: str) -> int:
    """The number of training rows, if the files have the usual sizes."""
    entry = entry_of(dataset)
    official = entry.kind == "pictures" and entry.rows == 70_000
    return 60_000 if official else entry.rows * 4 // 5
