"""Stores of made-up predictions, whose measures are known."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.store import About, ResultStore, schema

Predictions = Mapping[str, Any]
Answers = Callable[[PlannedRun, Condition], Predictions]


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
    planned: PlannedRun,
    answers: Answers,
    *,
    seconds: tuple[float, float] = (2.0, 1.0),
    conditions: tuple[Condition, ...] | None = None,
) -> None:
    """Write a run as the benchmark does."""
    conditions = planned.conditions if conditions is None else conditions
    parts = []
    for condition in conditions:
        columns = answers(planned, condition)
        n = len(columns["row"])
        named = {"part": [condition.part] * n, "condition": [condition.name] * n}
        arrays = {**named, **{name: np.asarray(each) for name, each in columns.items()}}
        parts.append(
            pa.table([pa.array(arrays[f.name]).cast(f.type) for f in schema()], schema=schema())
        )
    about = About(
        planned.run.key,
        planned.run.description,
        conditions,
        {"train": seconds[0], "examine": seconds[1]},
        {"machine": "a machine", "torch": "2", "version": "0", "date": "2026-01-02T03:04:05"},
    )
    store.write(planned.run, pa.concat_tables(parts).unify_dictionaries(), about)


def of_seed(planned: PlannedRun, condition: Condition) -> dict[str, Any]:
    """Half are right, one more in a hundred with each seed, and fewer under attack."""
    return share_right(0.5 + 0.01 * planned.run.seed - condition.epsilon)


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
    for planned in small.runs():
        keep(store, planned, of_seed)
    return store
