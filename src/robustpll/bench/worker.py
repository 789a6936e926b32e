"""What a worker does: train a bundle, examine it under all conditions, hand back tables."""

import gc
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import __version__
from robustpll.attacks.pgd import PGD
from robustpll.bench.bundles import Bundle, Job, NoiseBundle, Stretch
from robustpll.bench.noise_cache import Packed
from robustpll.bench.run import MOST_AUDITED, Condition, PlannedRun
from robustpll.bench.store import now
from robustpll.bench.stored_files import COLUMNS, REALS, UNKNOWN, About, schema
from robustpll.datasets import load_dataset
from robustpll.datasets.catalog import USUAL
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Noise
from robustpll.datasets.ood import ood_rows
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows
from robustpll.engine.device import device_name
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, RobustPLLError
from robustpll.evaluate.audit import Audit
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS = 6  # of the stored reals


@dataclass(frozen=True)
class Done:
    """What a job gives: a table for each run, or candidates for each draw, in the job's order."""

    tables: tuple["pa.Table", ...] = ()
    about: tuple[About, ...] = ()
    candidates: tuple[Packed, ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()  # where the time went: load, train, examine
    notes: tuple[str, ...] = ()  # what was warned of


def perform(job: Job, device: str | torch.device = "cpu") -> Done:
    """A job's results: a function of the job and the data folder, wherever it is called."""
    device = torch.device(device)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        done = drawn(job, device) if isinstance(job, NoiseBundle) else run_bundle(job, device)
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()  # other processes share the GPU
    return replace(done, notes=tuple(dict.fromkeys(str(each.message) for each in warned)))


def run_bundle(bundle: Bundle, device: str | torch.device = "cpu") -> Done:
    """Train the runs of a bundle at once, and examine each under its conditions.

    >>> from robustpll.bench.bundles import bundles
    >>> from robustpll.bench.grid import Grid
    >>> grid = Grid.of({"methods": ["pl_knn"], "datasets": ["digits"], "seeds": 1})
    >>> [bundle] = bundles(grid.runs(), joined=False)
    >>> every_class = Packed.of(np.ones((1437, 10), dtype=bool))
    >>> done = run_bundle(replace(bundle, candidates=(every_class,)))
    >>> done.tables[0].num_rows
    360
    """
    watch = Stopwatch(torch.device(device))
    stretches = bundle.stretches()
    problems, whole = _loaded(tuple(stretch for stretch, _ in stretches), str(device))
    methods = [each.run.method for each in bundle.runs]
    method = type(methods[0]).stacked(methods)
    watch.lap("load")
    fitted = method.fit(whole.task)
    watch.lap("train")
    tables: list[pa.Table] = []
    start = 0
    for (_, own), problem in zip(stretches, problems, strict=True):
        part = slice(start, start + len(own))
        start = part.stop
        found = fitted if len(stretches) == 1 else fitted.part(part)
        tables += examined(found, own, problem)
    watch.lap("examine")
    share = {name: seconds / len(bundle.runs) for name, seconds in watch.laps}
    facts = {
        "machine": device_name(torch.device(device)),
        "torch": torch.__version__,
        "version": __version__,
        "date": now(),
        "models_in_bundle": bundle.models,
    }
    about = tuple(
        About(each.run.key, each.run.description, each.conditions, share, facts)
        for each in bundle.runs
    )
    return Done(tuple(tables), about, seconds=watch.laps)


def drawn(bundle: NoiseBundle, device: torch.device) -> Done:
    """Candidates by noise, for all datasets and seeds of a bundle at once."""
    watch = Stopwatch(device)
    names = dict.fromkeys(each.dataset for each in bundle.drawn)
    seeds = {name: tuple(e.seed for e in bundle.drawn if e.dataset == name) for name in names}
    contents = {each.dataset: each.content for each in bundle.drawn}
    problems = [
        Problem.of(_dataset(name, contents[name]), _Truth(), own, device)
        for name, own in seeds.items()
    ]
    whole = Problem.joined(problems)
    watch.lap("load")
    noise, task = bundle.drawn[0].noise, whole.task
    found = noise.candidates(task.rows, whole.train_labels, task.k, task.seeds)
    matrices = iter(found.cpu().numpy())
    packed = {(name, seed): Packed.of(next(matrices)) for name in names for seed in seeds[name]}
    watch.lap("train")
    candidates = tuple(packed[each.dataset, each.seed] for each in bundle.drawn)
    return Done(candidates=candidates, seconds=watch.laps)


def examined(fitted: Fitted, planned: Sequence[PlannedRun], problem: Problem) -> list["pa.Table"]:
    """A table for each run of one dataset; all are examined alike."""
    import pyarrow as pa

    asked = {condition for each in planned for condition in each.conditions}
    conditions = sorted(asked, key=lambda condition: condition.order)
    attacks = [each.epsilon for each in conditions if each.epsilon]
    opinions: dict[Condition, Opinion] = {}
    if attacks:
        under = fitted.predict_at_each(attacks, problem.test, PGD(attacks[0]))
        opinions = {Condition("test", eps): o for eps, o in zip(attacks, under, strict=True)}
    audited = [each for each in conditions if each.audit]
    if audited:
        audit = Audit(tuple(each.audit for each in audited))
        withstood = audit.withstood(fitted, *_audited(problem))
    pieces: list[list[pa.Table]] = [[] for _ in planned]
    for condition in conditions:
        if condition.audit:
            rows, labels = _audited(problem)
            found = _worst_case(withstood[audited.index(condition)], labels)
        else:
            rows, truth = _rows(condition, problem)
            if condition.part == "train":
                opinion = fitted.opinion
            else:
                opinion = opinions.pop(condition) if condition in opinions else fitted.predict(rows)
            found = _columns(opinion, truth, planned, condition)
        at = rows.at.cpu().numpy()
        for number, each in enumerate(planned):
            own = {name: values[number] for name, values in found.items()} | {"row": at[number]}
            if condition in each.conditions:
                pieces[number].append(_table(condition, own))
    return [pa.concat_tables(each).unify_dictionaries().combine_chunks() for each in pieces]


def _rows(condition: Condition, problem: Problem) -> tuple[Rows, Tensor | None]:
    """What is examined, and its true labels (R, n) where there are such."""
    if condition.part == "train":
        return problem.task.rows, problem.train_labels
    if condition.part == "test":
        return problem.test, problem.test_labels
    return ood_rows(problem, _dataset(condition.ood)), None


def _audited(problem: Problem) -> tuple[Rows, Tensor]:
    """Which test rows are audited, and their true labels (R, n)."""
    few = replace(problem.test, at=problem.test.at[:, :MOST_AUDITED])
    return few, problem.test_labels[:, :MOST_AUDITED]


def _columns(
    opinion: Opinion, truth: Tensor | None, planned: Sequence[PlannedRun], condition: Condition
) -> dict[str, NDArray[Any]]:
    """Numbers (R, n) for each column; computed where the opinion is, and copied once."""
    probability = opinion.probability
    if lost := int((~probability.isfinite()).any(-1).sum()):
        msg = f"{planned[0].label} gives {lost} rows probabilities that are no numbers."
        raise RobustPLLError(msg)
    predicted = torch.stack(
        [
            # a number for every row, tied or not, so that the rows of a run do not depend on others
            opinion[at].predicted(np.random.default_rng(seed_of(each.run.recipe, condition.part)))
            for at, each in enumerate(planned)
        ]
    )
    of_class = predicted[..., None]
    nothing = torch.full_like(opinion.uncertainty, torch.nan)
    reals = {
        "probability": probability.gather(-1, of_class)[..., 0],
        "belief": opinion.belief.gather(-1, of_class)[..., 0],
        "uncertainty": opinion.uncertainty,
        "entropy": opinion.entropy,
        "probability_of_truth": (
            nothing if truth is None else probability.gather(-1, truth[..., None])[..., 0]
        ),
        "probability_squared": probability.square().sum(-1),
    }
    stacked = torch.stack([reals[name].double() for name in REALS]).round(decimals=DIGITS)
    labels = torch.full_like(predicted, UNKNOWN) if truth is None else truth
    whole = torch.stack([labels, predicted]).short().cpu().numpy()
    return {
        **dict(zip(REALS, stacked.float().cpu().numpy(), strict=True)),
        "truth": whole[0],
        "predicted": whole[1],
        "guess": opinion.guess.cpu().numpy(),
    }


def _worst_case(withstood: Tensor, truth: Tensor) -> dict[str, NDArray[Any]]:
    """As `_columns`: the true class where all attacks failed, else none, and no opinion at all."""
    predicted = torch.where(withstood, truth, UNKNOWN)
    whole = torch.stack([truth, predicted]).short().cpu().numpy()
    nothing = np.full(truth.shape, np.nan, np.float32)
    return {
        **dict.fromkeys(REALS, nothing),
        "truth": whole[0],
        "predicted": whole[1],
        "guess": np.zeros(truth.shape, bool),
    }


def _table(condition: Condition, columns: dict[str, NDArray[Any]]) -> "pa.Table":
    import pyarrow as pa

    n = len(columns["row"])
    zeros = pa.array(np.zeros(n, np.int8))
    words = {"part": condition.part, "condition": condition.name}
    arrays = [
        pa.DictionaryArray.from_arrays(zeros, [words[name]])
        if name in words
        else pa.array(columns[name], schema().field(name).type, from_pandas=True)  # no number: null
        for name in COLUMNS
    ]
    return pa.table(arrays, schema=schema())


class Stopwatch:
    """Seconds from one call to the next; a GPU has finished what was asked of it before."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.laps: tuple[tuple[str, float], ...] = ()
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        time_now = time.perf_counter()
        self.laps += ((name, time_now - self.last),)
        self.last = time_now


class _Truth(Noise):
    """No noise: rows are wanted before there are candidates."""

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        return one_hot(labels, k).bool()


@dataclass(frozen=True)
class _Given(Noise):
    """Candidates that were drawn before, one for each seed."""

    packed: tuple[Packed, ...]

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        for each in self.packed:
            if (each.rows, each.classes) != (len(rows), k):
                msg = (
                    f"Candidates of {each.rows} rows and {each.classes} classes are kept in the "
                    f"store, but the dataset has {len(rows)} training rows and {k} classes: its "
                    "files changed. Use another store."
                )
                raise InputError(msg)
        return torch.from_numpy(np.stack([each.matrix() for each in self.packed])).to(rows.device)


# What a process keeps between bundles: methods come one after the other to the same data.


@lru_cache(maxsize=4)
def _dataset(name: str, content: str = "") -> Dataset:
    """The version that a run is about, or an error: rows of no known class are of the usual one."""
    dataset = load_dataset(name)
    if dataset.content != content:
        msg = (
            f"{dataset.title}: the file that is here is the version {dataset.content or USUAL}, "
            f"but {content or USUAL} is asked for. It changed since the plan was made, or this "
            "machine has another one. Put the right file there, and run the same command again."
        )
        raise InputError(msg)
    return dataset


@lru_cache(maxsize=1)  # of the last bundle alone: each of many processes keeps its own
def _loaded(stretches: tuple[Stretch, ...], device: str) -> tuple[list[Problem], Problem]:
    """The problem of each dataset, and all of them as one."""
    problems = []
    for each in stretches:
        noise = _Given(each.candidates) if each.candidates else None
        dataset = _dataset(each.dataset, each.content)
        problems.append(Problem.of(dataset, noise, each.seeds, device))
    return problems, problems[0] if len(problems) == 1 else Problem.joined(problems)
