"""Bundles of runs that train at once, and what a worker process does with them."""

import gc
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import __version__
from robustpll.attacks import PGD
from robustpll.bench.grid import MOST_AUDITED, Condition, Run, fields_of
from robustpll.bench.store import SCHEMA, UNKNOWN, Candidates, with_record
from robustpll.datasets import load_dataset
from robustpll.datasets.catalog import USUAL, Entry, entry_of
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Noise
from robustpll.datasets.problem import Problem, ood_rows
from robustpll.engine.cluster import Place
from robustpll.engine.data import Rows
from robustpll.engine.device import device_name
from robustpll.engine.layers import Stack
from robustpll.engine.networks import CONVOLUTIONAL
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, RobustPLLError
from robustpll.estimator.abstention import networks_of
from robustpll.evaluate.audit import Audit
from robustpll.measures.people import agreement_with
from robustpll.methods import ClassicalMethod, DeepMethod
from robustpll.opinion import Opinion

MOST_MODELS = 100  # networks of a bundle: more are hardly faster, and a kill would lose more
MOST_NUMBERS = 2**30  # label weights of a bundle; training keeps about ten copies, 40 GiB
MOST_SECONDS = 150.0  # of a bundle on a GPU: the most that a kill loses
SECONDS_PER_VIEW = 1e-5  # of a picture in a convolutional network, on a GPU
DIGITS = 6  # of the stored reals
# An audit of copies of a convolutional network takes minutes: fewer rows and steps.
AUDITED_PICTURES = 200
FEWER_STEPS: dict[str, Any] = {"steps": 25, "restarts": 1, "queries": 200, "twin_epochs": 10}


@dataclass(frozen=True)
class Bundle:
    """Runs of equal shape that a worker trains, or if `draws_noise`, draws candidate sets for."""

    runs: tuple[Run, ...]  # sorted by dataset
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
        what = "noise for" if self.draws_noise else f"{self.runs[0].method.title} on"
        return f"{what} {names} (runs: {len(self.runs)})"

    @property
    def models(self) -> int:
        """How many networks are trained at once."""
        return sum(getattr(run.method, "members", 1) or 10 for run in self.runs)  # None: Auto

    def with_candidates(self, known: Mapping[str, Candidates]) -> "Bundle":
        """The bundle with the candidate sets that it needs, as far as they are known."""
        return replace(self, candidates={key: known[key] for key in self.needs if key in known})

    @property
    def seconds(self) -> float:
        """A rough estimate of the time on one core, or on a large GPU."""
        run, cuda = self.runs[0], self.place == "cuda"
        method, entry, rows = run.method, entry_of(run.dataset), training_rows(run.dataset)
        if self.draws_noise or not isinstance(method, ClassicalMethod | DeepMethod):
            return float(rows)  # only their order matters
        if isinstance(method, DeepMethod):
            return _training_seconds(method, entry, self.models, cuda=cuda)
        factor, power = method.cost
        fit = factor * (rows / 1e4) ** power * entry.features / 100 / (1000 if cuda else 1)
        total = float(len(self.runs) * (0.1 + fit))
        encoder = method.encoder_of((1,) * (entry.kind == "pictures") + (entry.features,))
        if encoder is not None:  # runs on the same rows share it
            models = len({each.dataset for each in self.runs})
            total += _training_seconds(encoder, entry, models, cuda=cuda)
        return total


def _training_seconds(method: DeepMethod, entry: Entry, models: int, *, cuda: bool) -> float:
    """A rough estimate of the time to train so many networks at once."""
    rows = training_rows(entry.name)
    if cuda and str(method.network) in CONVOLUTIONAL:  # together they are no faster
        return 10 + rows * method.total_epochs * method.cost * models * SECONDS_PER_VIEW
    steps = method.total_epochs * ceil(rows / method.batch_size) * method.cost
    weights = 300 * (entry.features + 600 + entry.classes)  # of the paper's network
    if cuda:
        return 10 + steps * (2e-4 + 1.5e-5 * models * weights / 4e5)
    return 0.2 + steps * models * (5e-4 + 6 * method.batch_size * weights / 4e10)


def bundles(runs: Iterable[Run], *, joined: bool, draw_noise: bool = False) -> list[Bundle]:
    """Runs in bundles, the longest first; if `draw_noise`, bundles that draw their noise once."""
    # If `joined`, runs of equal shape train at once, as suits a GPU. Otherwise each run is a
    # bundle: float32 results depend on the other runs of a bundle in the last digit, and results on
    # a CPU must not depend on what was left to do after an interruption.
    if draw_noise:
        runs = {run.noise_key: run for run in runs if run.noise_key}.values()
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
        names = list(dict.fromkeys(run.dataset for run in members))
        ordered = tuple(sorted(members, key=lambda run: names.index(run.dataset)))
        whole = Bundle(ordered, place, draw_noise)
        parts = 1 if draw_noise else ceil(len(ordered) / _most_runs(whole))
        size = ceil(len(ordered) / parts)  # equal parts
        cut += [replace(whole, runs=ordered[i : i + size]) for i in range(0, len(ordered), size)]
    return sorted(cut, key=lambda bundle: bundle.seconds, reverse=True)


def _most_runs(bundle: Bundle) -> int:
    """How many runs of a bundle may train at once."""
    first = bundle.runs[0]
    models = replace(bundle, runs=(first,)).models
    numbers = training_rows(first.dataset) * entry_of(first.dataset).classes * models
    most = max(1, min(len(bundle.runs), MOST_MODELS // models, MOST_NUMBERS // numbers))
    while most > 1 and replace(bundle, runs=bundle.runs[:most]).seconds > MOST_SECONDS:
        most -= 1
    return most


def training_rows(dataset: str) -> int:
    """The number of training rows, if the files have the usual sizes."""
    rows = entry_of(dataset).rows
    return 60_000 if rows == 70_000 else rows * 4 // 5  # of MNIST and its kin


@dataclass(frozen=True)
class JobResult:
    """What a worker returns for a bundle, or the error if it failed."""

    tables: Sequence[pa.Table] = ()  # predictions `with_record`, in the order of the runs
    candidates: Mapping[str, Candidates] = field(default_factory=dict)  # by noise key
    notes: tuple[str, ...] = ()  # messages of warnings
    error: str = ""
    details: str = ""  # the traceback
    died: bool = False  # whether the worker process died, perhaps by no fault of the job


def perform(bundle: Bundle, device: str = "cpu") -> JobResult:
    """The result of a bundle; an exception becomes an error message, which is safe to send."""
    try:
        result = compute(bundle, device)
    except Exception as error:
        kind = "" if isinstance(error, RobustPLLError) else f"{type(error).__name__}: "
        result = JobResult(error=f"{kind}{error}", details=traceback.format_exc())
    if device.startswith("cuda") and "CUDA error" not in result.error:
        gc.collect()
        torch.cuda.empty_cache()  # other processes share the GPU
    return result


def compute(bundle: Bundle, device: str = "cpu") -> JobResult:
    """The result of a bundle: a function of the bundle and the data folder only."""
    seconds: dict[str, float] = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        seconds[name], last = time.perf_counter() - last, time.perf_counter()

    tables: list[pa.Table] = []
    people: list[dict[str, Any]] = []
    candidates: dict[str, Candidates] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts = _problems(bundle, device)
        whole = parts[0][1] if len(parts) == 1 else Problem.joined([part for _, part in parts])
        task, noise = whole.task, bundle.runs[0].noise
        lap("load")
        if bundle.draws_noise and noise is not None:
            drawn = noise.candidates(task.rows, whole.train_labels, task.k, task.seeds)
            candidates = dict(zip(bundle.keys, drawn.cpu().numpy(), strict=True))
        else:
            methods = [run.method for run in bundle.runs]
            fitted = type(methods[0]).stacked(methods).fit(task)
            lap("train")
            for runs, part in parts:
                subset = slice(len(tables), len(tables) + len(runs))
                models = fitted if len(parts) == 1 else fitted.part(subset)
                tables += evaluate(models, runs, part)
                people += _by_people(models, runs, part)
            lap("examine")
    notes = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    share = {name: value / len(bundle.runs) for name, value in seconds.items()}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    facts: dict[str, Any] = {"torch": torch.__version__, "version": __version__, "date": date}
    facts |= {"machine": device_name(torch.device(device)), "models_in_bundle": bundle.models}
    triples = zip(bundle.runs, tables, people, strict=not bundle.draws_noise)
    records = [with_record(table, run, share, facts | more) for run, table, more in triples]
    return JobResult(records, candidates, notes)


def _problems(bundle: Bundle, device: str) -> list[tuple[tuple[Run, ...], Problem]]:
    """The runs of each dataset, and their problem; before noise is drawn, with true labels only."""
    # A run whose noise could not be drawn before draws it again, and tells the error.
    parts = []
    for name, group in groupby(bundle.runs, key=lambda run: run.dataset):
        runs = tuple(group)
        noise, seeds = runs[0].noise, tuple(run.seed for run in runs)
        known = [bundle.candidates.get(run.noise_key) for run in runs]
        if noise and (bundle.draws_noise or all(sets is not None for sets in known)):
            noise = _Known([sets for sets in known if sets is not None])
        parts.append((runs, Problem.of(_dataset(name, runs[0].content), noise, seeds, device)))
    return parts


@dataclass(frozen=True, eq=False)
class _Known(Noise):
    """Candidate sets that were drawn before, one matrix for each seed; if none, true labels."""

    matrices: Sequence[Candidates]

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        if not self.matrices:
            return one_hot(labels, k).bool()
        if any(matrix.shape != (len(rows), k) for matrix in self.matrices):
            raise InputError("The stored candidates do not fit the dataset. Use another store.")
        return torch.from_numpy(np.stack(self.matrices)).to(rows.device)


@lru_cache(maxsize=4)  # several methods follow each other on the same data
def _dataset(name: str, content: str = "") -> Dataset:
    """The requested version of a dataset; an InputError if the files are another version."""
    dataset = load_dataset(name)
    if dataset.content != content:
        version = f"the version {content or USUAL} of {dataset.title}"
        raise InputError(f"This machine does not have {version} that the run needs. Restore it.")
    return dataset


def evaluate(fitted: Fitted, runs: Sequence[Run], problem: Problem) -> list[pa.Table]:
    """A table of predictions for each run on one dataset; all runs face the same attacks."""
    requested = {condition for run in runs for condition in run.conditions}
    conditions = sorted(requested, key=lambda condition: condition.order)
    test, test_labels = problem.test, problem.test_labels
    is_slow = any(isinstance(networks.net, Stack) for networks in networks_of(fitted))
    most, effort = (AUDITED_PICTURES, FEWER_STEPS) if is_slow else (MOST_AUDITED, {})
    first_labels = test_labels[:, :most]
    first = replace(test, indices=test.indices[:, :most])
    attacked: dict[float, Opinion] = {}
    if epsilons := [condition.epsilon for condition in conditions if condition.epsilon]:
        opinions = fitted.predict_at_each(epsilons, test, PGD(epsilons[0]))
        attacked = dict(zip(epsilons, opinions, strict=True))
    withstood: dict[float, Tensor] = {}
    if audits := [condition.audit for condition in conditions if condition.audit]:
        robust = Audit(tuple(audits), **effort).withstood(fitted, first, first_labels)
        withstood = dict(zip(audits, robust, strict=True))
    pieces: list[list[pa.Table]] = [[] for _ in runs]
    for condition in conditions:
        rows = test
        if condition.audit:  # the true class where all attacks failed; no reals
            rows, guess = first, torch.zeros_like(first_labels, dtype=torch.bool)
            predicted = torch.where(withstood[condition.audit], first_labels, UNKNOWN)
            columns = {"truth": first_labels, "predicted": predicted, "guess": guess}
        elif condition.part == "train":
            rows = problem.task.rows
            columns = _columns(fitted.opinion, problem.train_labels, runs, condition)
        elif condition.part == "test":
            opinion = attacked.pop(condition.epsilon) if condition.epsilon else fitted.predict(rows)
            columns = _columns(opinion, test_labels, runs, condition)
        else:
            rows = ood_rows(problem, _dataset(condition.ood))
            columns = _columns(fitted.predict(rows), None, runs, condition)
        arrays = {name: v.cpu().numpy() for name, v in (columns | {"row": rows.indices}).items()}
        for i, run in enumerate(runs):
            if condition in run.conditions:
                pieces[i].append(_table(condition, {name: v[i] for name, v in arrays.items()}))
    return [pa.concat_tables(tables).unify_dictionaries().combine_chunks() for tables in pieces]


def _by_people(fitted: Fitted, runs: Sequence[Run], problem: Problem) -> list[dict[str, Any]]:
    """How each run agrees with people, where a dataset has their answers about its test rows."""
    people = _dataset(runs[0].dataset, runs[0].content).people
    asked = None if people is None else torch.from_numpy(people.rows).expand(len(runs), -1)
    if people is None or asked is None or not torch.equal(problem.test.indices.cpu(), asked):
        return [{} for _ in runs]
    probabilities = fitted.predict(problem.test).probability.cpu().numpy()
    return [{"people": agreement_with(people, probability)} for probability in probabilities]


def _columns(
    opinion: Opinion, truth: Tensor | None, runs: Sequence[Run], condition: Condition
) -> dict[str, Tensor]:
    """The stored columns (R, n) of opinions; the truth is None where it is unknown."""
    probability = opinion.probability
    if bad := int((~probability.isfinite()).any(-1).sum()):
        raise RobustPLLError(f"{runs[0].label} gives {bad} rows probabilities that are no numbers.")
    generators = [np.random.default_rng(seed_of(run.key[:20], condition.part)) for run in runs]
    # draws a number for every row, tied or not, so that a prediction depends on its row alone
    predicted = torch.stack([opinion[i].predicted(g) for i, g in enumerate(generators)])
    reals = {
        "probability": probability.gather(-1, predicted[..., None])[..., 0],
        "belief": opinion.belief.gather(-1, predicted[..., None])[..., 0],
        "uncertainty": opinion.uncertainty,
        "entropy": opinion.entropy,
        "probability_squared": probability.square().sum(-1),
    }
    if truth is not None:
        reals["probability_of_truth"] = probability.gather(-1, truth[..., None])[..., 0]
    rounded = {name: v.double().round(decimals=DIGITS).float() for name, v in reals.items()}
    labels = torch.full_like(predicted, UNKNOWN) if truth is None else truth
    return {"truth": labels, "predicted": predicted, "guess": opinion.guess} | rounded


def _table(condition: Condition, columns: dict[str, NDArray[Any]]) -> pa.Table:
    """The table of one run under one condition; columns that are not there are null."""
    n = len(columns["row"])
    words = {"part": [condition.part] * n, "condition": [condition.name] * n}
    nothing = np.full(n, np.nan, np.float32)
    arrays = [  # NaN becomes null
        pa.array((words | columns).get(field.name, nothing), field.type, from_pandas=True)
        for field in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)
