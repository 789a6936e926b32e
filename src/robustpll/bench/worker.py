"""What a worker does with a bundle: draw candidate sets, or train, evaluate and return tables."""

import gc
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from multiprocessing import connection, parent_process
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import __version__
from robustpll.attacks import PGD
from robustpll.bench.run import MOST_AUDITED, Bundle, Candidates, Condition, Run
from robustpll.bench.store import COLUMNS, UNKNOWN, now, schema, with_record
from robustpll.datasets import load_dataset
from robustpll.datasets.catalog import USUAL
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Noise
from robustpll.datasets.problem import Problem, ood_rows
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
_startup: list[float] = []  # seconds that this process took to start, until a job reports them


@dataclass(frozen=True)
class JobResult:
    """What a worker returns for a bundle, or the error if it failed."""

    tables: Sequence["pa.Table"] = ()  # predictions `with_record`, in the order of the runs
    candidates: Mapping[str, Candidates] = field(default_factory=dict)  # by noise key
    seconds: Mapping[str, float] = field(default_factory=dict)  # load, train, examine
    notes: tuple[str, ...] = ()  # messages of warnings
    error: str = ""
    details: str = ""  # the traceback
    died: bool = False  # whether the worker process died, perhaps by no fault of the job


def start_worker(device: str, begun: float) -> None:
    """Prepare a worker process; it ends when its parent does, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    if device != "cpu":
        torch.zeros(1, device=device)  # creates the CUDA context, which takes seconds
    _startup.append(time.time() - begun)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])  # the system closes it, however the parent ends
        os._exit(1)


def perform(bundle: Bundle, device: str = "cpu") -> JobResult:
    """The result of a bundle; an exception becomes an error message, which is safe to send."""
    begun = time.perf_counter()
    try:
        result = compute(bundle, device)
    except Exception as error:
        kind = "" if isinstance(error, RobustPLLError) else f"{type(error).__name__}: "
        seconds = {"failed": time.perf_counter() - begun}
        details = traceback.format_exc()
        result = JobResult(seconds=seconds, error=f"{kind}{error}", details=details)
    if device.startswith("cuda"):
        gc.collect()
        if "CUDA error" not in result.error:
            torch.cuda.empty_cache()  # other processes share the GPU
    starting = {"starting": _startup.pop()} if _startup else {}
    return replace(result, seconds={**starting, **result.seconds})


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
            lap("train")
        else:
            methods = [run.method for run in bundle.runs]
            fitted = type(methods[0]).stacked(methods).fit(task)
            lap("train")
            for runs, part in parts:
                subset = slice(len(tables), len(tables) + len(runs))
                tables += evaluate(fitted if len(parts) == 1 else fitted.part(subset), runs, part)
            lap("examine")
    share = {name: value / len(bundle.runs) for name, value in seconds.items()}
    facts: dict[str, Any] = {"torch": torch.__version__, "version": __version__, "date": now()}
    facts |= {"machine": device_name(torch.device(device)), "models_in_bundle": bundle.models}
    tables = [
        with_record(table, run, share, facts)
        for run, table in zip(bundle.runs, tables, strict=not bundle.draws_noise)
    ]
    notes = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    return JobResult(tables, candidates, seconds, notes)


def _problems(bundle: Bundle, device: str) -> list[tuple[tuple[Run, ...], Problem]]:
    """The runs of each dataset, and their problem; before noise is drawn, with true labels only."""
    parts = []
    for name, group in groupby(bundle.runs, key=lambda run: run.dataset):
        runs, known = tuple(group), bundle.candidates
        matrices = [known[run.noise_key] for run in runs if run.noise and not bundle.draws_noise]
        noise = _Known(matrices) if runs[0].noise else None
        seeds = tuple(run.seed for run in runs)
        parts.append((runs, Problem.of(_dataset(name, runs[0].content), noise, seeds, device)))
    return parts


@dataclass(frozen=True, eq=False)
class _Known(Noise):
    """Candidate sets that were drawn before, one matrix for each seed; if none, true labels."""

    matrices: Sequence[Candidates]

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        if not self.matrices:
            return one_hot(labels, k).bool()
        for matrix in self.matrices:
            if matrix.shape != (len(rows), k):
                raise InputError(
                    f"The store has candidates of {matrix.shape[0]} rows and {matrix.shape[1]} "
                    f"classes, but the dataset has {len(rows)} training rows and {k} classes: its "
                    "files changed. Use another store."
                )
        return torch.from_numpy(np.stack(self.matrices)).to(rows.device)


@lru_cache(maxsize=4)  # several methods follow each other on the same data
def _dataset(name: str, content: str = "") -> Dataset:
    """The requested version of a dataset; an InputError if the files are another version."""
    dataset = load_dataset(name)
    if dataset.content != content:
        raise InputError(
            f"{dataset.title}: the file that is here is the version {dataset.content or USUAL}, "
            f"but the run needs {content or USUAL}. It changed since the plan was made, or this "
            "machine has another one. Restore the file, and run the same command again."
        )
    return dataset


def evaluate(fitted: Fitted, runs: Sequence[Run], problem: Problem) -> list["pa.Table"]:
    """A table of predictions for each run on one dataset; all runs face the same attacks."""
    import pyarrow as pa

    requested = {condition for run in runs for condition in run.conditions}
    conditions = sorted(requested, key=lambda condition: condition.order)
    test, test_labels = problem.test, problem.test_labels
    attacked: dict[float, Opinion] = {}
    if epsilons := [condition.epsilon for condition in conditions if condition.epsilon]:
        opinions = fitted.predict_at_each(epsilons, test, PGD(epsilons[0]))
        attacked = dict(zip(epsilons, opinions, strict=True))
    first, first_labels = replace(test, at=test.at[:, :MOST_AUDITED]), test_labels[:, :MOST_AUDITED]
    withstood: dict[float, Tensor] = {}
    if audits := [condition.audit for condition in conditions if condition.audit]:
        robust = Audit(tuple(audits)).withstood(fitted, first, first_labels)
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
        arrays = {name: v.cpu().numpy() for name, v in (columns | {"row": rows.at}).items()}
        for i, run in enumerate(runs):
            if condition in run.conditions:
                pieces[i].append(_table(condition, {name: v[i] for name, v in arrays.items()}))
    return [pa.concat_tables(tables).unify_dictionaries().combine_chunks() for tables in pieces]


def _columns(
    opinion: Opinion, truth: Tensor | None, runs: Sequence[Run], condition: Condition
) -> dict[str, Tensor]:
    """The stored columns (R, n) of opinions; the truth is None where it is unknown."""
    probability = opinion.probability
    if bad := int((~probability.isfinite()).any(-1).sum()):
        raise RobustPLLError(f"{runs[0].label} gives {bad} rows probabilities that are no numbers.")
    generators = [np.random.default_rng(seed_of(run.recipe, condition.part)) for run in runs]
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


def _table(condition: Condition, columns: dict[str, NDArray[Any]]) -> "pa.Table":
    """The table of one run under one condition; columns that are not there are null."""
    import pyarrow as pa

    n = len(columns["row"])
    words = {"part": [condition.part] * n, "condition": [condition.name] * n}
    nothing = np.full(n, np.nan, np.float32)
    arrays = [  # NaN becomes null
        pa.array((words | columns).get(name, nothing), kind, from_pandas=True)
        for name, kind in zip(COLUMNS, schema().types, strict=True)
    ]
    return pa.table(arrays, schema=schema())
