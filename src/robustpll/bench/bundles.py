"""Bundles: runs that one worker trains at once, or whose candidate sets it draws at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustpll.bench.run import Run, fields_of
from robustpll.datasets.catalog import entry_of
from robustpll.datasets.noise import InstanceDependent
from robustpll.methods import ClassicalMethod, DeepMethod

Place = Literal["cuda", "cpu"]  # the kind of device that a bundle runs on
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
            cost = method.step_cost + getattr(method, "attack_steps", 0)
        elif not isinstance(method, ClassicalMethod):
            return 1.0
        else:
            factor, power = method.seconds
            fit = factor * (rows / 1e4) ** power * entry.features / 100 / (1000 if cuda else 1)
            pretraining = method.pretraining_epochs(entry.kind == "pictures")
            shared = 20 + pretraining * rows * (1e-6 if cuda else 3e-5) if pretraining else 0.0
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
