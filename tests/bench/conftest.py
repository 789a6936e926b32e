"""Stores of made-up predictions, whose measures are known."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from robustpll.bench.bundles import Bundle
from robustpll.bench.executor import Executor
from robustpll.bench.grid import Condition, Grid, Run
from robustpll.bench.store import ResultStore, RunResult, schema
from robustpll.bench.worker import JobResult, perform

Predictions = Mapping[str, Any]
Answers = Callable[[Run, Condition], Predictions]


class Inline(Executor):
    """Computes each bundle at once in this process; `joined` as on a GPU."""

    title = "this process"

    def __init__(self, joined: bool = False) -> None:
        self.joined = joined
        self.sizes = {"device": 1, "host": 1}
        self.submitted: list[Bundle] = []

    def submit(self, bundle: Bundle) -> Future[JobResult]:
        self.submitted.append(bundle)
        future: Future[JobResult] = Future()
        future.set_result(perform(bundle))
        return future

    def result(self, future: Future[JobResult]) -> JobResult:
        return future.result()

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def inline() -> type[Inline]:
    return Inline


def predictions(right: Iterable[bool], entropy: Iterable[float] | None = None) -> dict[str, Any]:
    """On rows of class 0 of two: 0 is predicted where that is right, else 1, at 0.75."""
    correct = np.array(list(right))
    n = len(correct)
    return {
        "row": np.arange(n),
        "truth": np.zeros(n),
        "predicted": np.where(correct, 0, 1),
        "guess": np.zeros(n, bool),
        "probability": np.full(n, 0.75),
        "belief": np.full(n, 0.5),
        "uncertainty": np.full(n, 0.25),
        "entropy": np.full(n, 0.5) if entropy is None else np.array(list(entropy)),
        "probability_of_truth": np.where(correct, 0.75, 0.25),
        "probability_squared": np.full(n, 0.625),
    }


def share_right(share: float, n: int = 1000) -> dict[str, Any]:
    """Predictions of which so many are right."""
    return predictions(np.arange(n) < round(share * n))


def unknown(entropy: Iterable[float]) -> dict[str, Any]:
    """Predictions on OOD rows."""
    values = np.array(list(entropy))
    found = predictions(np.zeros(len(values), bool), values)
    return found | {
        "truth": np.full(len(values), -1),
        "probability_of_truth": np.full(len(values), np.nan),
    }


def keep(
    store: ResultStore,
    run: Run,
    answers: Answers,
    *,
    seconds: tuple[float, float] = (2.0, 1.0),
    conditions: tuple[Condition, ...] | None = None,
) -> None:
    """Write a run as the benchmark does."""
    conditions = run.conditions if conditions is None else conditions
    parts = []
    for condition in conditions:
        columns = answers(run, condition)
        n = len(columns["row"])
        named = {"part": [condition.part] * n, "condition": [condition.name] * n}
        arrays = {**named, **{name: np.asarray(each) for name, each in columns.items()}}
        parts.append(
            pa.table([pa.array(arrays[f.name]).cast(f.type) for f in schema()], schema=schema())
        )
    facts = {"machine": "a machine", "torch": "2", "version": "0", "date": "2026-01-02T03:04:05"}
    took = {"train": seconds[0], "examine": seconds[1]}
    table = pa.concat_tables(parts).unify_dictionaries()
    store.write(run, RunResult(run.key, run.description, conditions, took, facts, table))


def of_seed(run: Run, condition: Condition) -> dict[str, Any]:
    """Half are right, one more in a hundred with each seed, and fewer under attack."""
    return share_right(0.5 + 0.01 * run.seed - condition.epsilon)


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """The functions above, for tests."""
    functions = (predictions, share_right, unknown, of_seed, keep)
    return SimpleNamespace(**{each.__name__: each for each in functions})


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "store")


@pytest.fixture(scope="session")
def small() -> Grid:
    """Three single methods and an ensemble, on two sets of the paper and another, attacked."""
    return Grid.of(
        {
            "name": "small",
            "preset": "paper",
            "methods": ["pl_knn", "proden", "robust_pll", "proden_ens"],
            "datasets": ["lost", "msrc-v2", "fg-net"],
            "seeds": 3,
            "epsilons": [0.1],
        }
    )


@pytest.fixture
def full(small: Grid, store: ResultStore) -> ResultStore:
    """All of it."""
    for run in small.runs():
        keep(store, run, of_seed)
    return store
