"""Stores of made-up predictions, whose measures are known, and what several files need."""

import gzip
import hashlib
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from robustpll.bench import worker
from robustpll.bench.executor import run_grid
from robustpll.bench.grid import Condition, Grid, Run
from robustpll.bench.store import SCHEMA, ResultStore, with_record
from robustpll.bench.worker import Bundle, JobResult
from robustpll.cli import app
from robustpll.engine.cluster import Executor
from robustpll.engine.device import threads

SMALL = """
name = "small"
methods = ["pl_knn", "proden", {name = "robust_pll_ens", members = 2, kl_ceiling = [0.5, 2]}]
datasets = ["digits", "synthetic"]
seeds = 2
noise = {name = "instance-dependent", epochs = 5, learning_rate = 0.1}
epsilons = [0.1]
epochs = 4
train_rows = true
"""
Answers = Callable[[Run, Condition], Mapping[str, Any]]


class Inline(Executor):
    """Computes each bundle at once in this process; `joined` as on a GPU."""

    def __init__(self, joined: bool = False) -> None:
        self.sizes = {"cpu": 1, "cuda": int(joined)}
        self.submitted: list[Bundle] = []

    def submit(self, function: Any, bundle: Bundle, place: Any) -> Future[JobResult]:
        self.submitted.append(bundle)
        future: Future[JobResult] = Future()
        future.set_result(function(bundle, "cpu"))
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
    no_truth = {"truth": np.full(len(values), -1), "probability_of_truth": values * np.nan}
    return predictions(np.zeros(len(values), bool), values) | no_truth


def of_seed(run: Run, condition: Condition) -> dict[str, Any]:
    """Half are right, one more in a hundred with each seed, and fewer under attack."""
    return share_right(0.5 + 0.01 * run.seed - condition.epsilon)


def keep(
    store: ResultStore,
    run: Run,
    answers: Answers = of_seed,
    *,
    seconds: tuple[float, float] = (2.0, 1.0),
    conditions: tuple[Condition, ...] | None = None,
) -> None:
    """Write a run as the benchmark does."""
    run = run if conditions is None else replace(run, conditions=conditions)
    parts = []
    for condition in run.conditions:
        columns = dict(answers(run, condition))
        n = len(columns["row"])
        columns |= {"part": [condition.part] * n, "condition": [condition.name] * n}
        arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
        parts.append(pa.table(arrays, schema=SCHEMA))
    facts = {"machine": "a machine", "torch": "2", "version": "0", "date": "2026-01-02T03:04:05"}
    table = pa.concat_tables(parts).unify_dictionaries()
    took = dict(zip(("train", "examine"), seconds, strict=True))
    store.write(run, with_record(table, run, took, facts))


def write_pictures(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> list[str]:
    """Write two files of MNIST's format; returns the SHA-256 of their contents."""
    folder.mkdir(exist_ok=True)
    sums = []
    for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
        header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}i", *values.shape)
        content = header + values.astype(np.uint8).tobytes()
        (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
        sums.append(hashlib.sha256(content).hexdigest())
    return sums


def assert_equal(store: ResultStore, other: ResultStore, grid: Path) -> None:
    """The same runs with equal predictions."""
    names = [{path.name for path in one.root.rglob("*.parquet")} for one in (store, other)]
    assert names[0] == names[1]
    for run in Grid.read(grid).runs():
        assert store.read(run).equals(other.read(run)), run.name


def wait_until(condition: Callable[[], object], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def command(*words: object) -> Result:
    """A `robustpll bench` in this process."""
    return CliRunner().invoke(app, ["bench", *map(str, words)])


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """The functions above, for tests."""
    functions = (predictions, share_right, unknown, of_seed, keep, write_pictures)
    functions += (assert_equal, wait_until, command)
    return SimpleNamespace(**{one.__name__: one for one in functions})


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a grid of 12 short runs."""
    path = tmp_path_factory.mktemp("grid") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def undisturbed(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> ResultStore:
    """The store of a driver without other processes, to which nothing happened."""
    store = ResultStore(tmp_path_factory.mktemp("undisturbed"))
    with threads(1):  # as in a worker: sums of several threads are rounded differently
        outcome = run_grid(Grid.read(grid), store, executor=Inline(), quiet=True)
    assert (outcome.done, outcome.failed, outcome.left) == (12, {}, 0)
    return store


@pytest.fixture(autouse=True)
def _no_dataset_of_another_test() -> None:
    worker._dataset.cache_clear()


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
        keep(store, run)
    return store
