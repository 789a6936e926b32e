"""PlSvm: its steps against worked numbers and a slow version written from the formulas."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from robustpll import PLLClassifier
from robustpll.engine.data import Rows, Task
from robustpll.methods import pl_svm
from robustpll.methods.pl_svm import PlSvm, Steps, compiled_steps, plain_steps


def fast() -> Steps:
    steps = compiled_steps()
    assert steps is not None, "numba is part of the tools for tests"
    return steps


@pytest.fixture(params=["plain", "compiled"])
def steps(request: pytest.FixtureRequest) -> Steps:
    return plain_steps if request.param == "plain" else fast()


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it now raises ImportError
    compiled_steps.cache_clear()
    yield
    compiled_steps.cache_clear()


def first_largest(score: list[float], among: list[int]) -> int | None:
    """The first of equals, rounding aside."""
    largest = max((score[j] for j in among), default=None)
    return next((j for j in among if score[j] > largest - 1e-12), None)


def slow_steps(
    x: NDArray[np.float64], candidates: NDArray[np.bool_], order: list[int], regularisation: float
) -> NDArray[np.float64]:
    """Number by number, as the method is described."""
    (_, d), k = x.shape, candidates.shape[1]
    w = [[0.0] * d for _ in range(k)]
    for t, i in enumerate(order, start=1):
        score = [math.fsum(w[j][f] * x[i, f] for f in range(d)) for j in range(k)]
        inside = [j for j in range(k) if candidates[i, j]]
        outside = [j for j in range(k) if not candidates[i, j]]
        best, rival = first_largest(score, inside), first_largest(score, outside)
        rate = 1 / (regularisation * t)
        w = [[max(1e-9, 1 - rate * regularisation) * value for value in row] for row in w]
        if rival is not None and score[best] - score[rival] < 1:
            for f in range(d):
                w[best][f] += rate * x[i, f]
                w[rival][f] -= rate * x[i, f]
        norm = math.sqrt(math.fsum(value * value for row in w for value in row))
        if norm > 1 / math.sqrt(regularisation) and norm > 1e-10:
            w = [[value / math.sqrt(regularisation) / norm for value in row] for row in w]
    return np.array(w)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(2, 6),
    d=st.integers(1, 9),
    share=st.floats(0, 1),
    regularisation=st.floats(0.01, 100),
)
def test_steps_are_those_of_the_description(
    seed: int, k: int, d: int, share: float, regularisation: float
) -> None:
    """Among the rows are some of zeros, and some for which every class is a candidate."""
    generator = np.random.default_rng(seed)
    x = generator.random((12, d))
    x[0] = 0
    candidates = generator.random((12, k)) < share
    candidates[np.arange(12), generator.integers(k, size=12)] = True
    candidates[1] = True
    order = generator.integers(12, size=150)
    expected = slow_steps(x, candidates, order.tolist(), regularisation)
    for steps in (plain_steps, fast()):
        weights = steps(x, candidates, order, regularisation)
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-10)


def test_many_steps_do_not_drift_and_lower_the_objective() -> None:
    generator = np.random.default_rng(0)
    x = generator.random((300, 20))
    candidates = generator.random((300, 5)) < 0.3
    candidates[np.arange(300), x[:, :5].argmax(1)] = True
    order = generator.integers(300, size=5_000)
    weights = fast()(x, candidates, order, 0.01)
    np.testing.assert_allclose(weights, plain_steps(x, candidates, order, 0.01), atol=1e-10)

    def objective(weights: NDArray[np.float64]) -> float:
        scores = x @ weights.T
        inside = np.where(candidates, scores, -np.inf).max(1)
        margin = inside - np.where(candidates, -np.inf, scores).max(1)
        return float(0.005 * np.square(weights).sum() + np.maximum(0, 1 - margin).mean())

    long = fast()(x, candidates, generator.integers(300, size=100_000), 0.01)
    assert objective(long) < objective(weights) < 0.9 * objective(0 * weights)
    for move in 0.05 * generator.standard_normal((50, *weights.shape)):
        assert objective(long) < objective(long + move)


def test_very_long_rows_do_not_overflow(steps: Steps) -> None:
    """The first steps shrink w by the rows' length each; their product leaves float64."""
    x = 1e5 * np.random.default_rng(0).random((10, 50))
    weights = steps(x, np.eye(10, dtype=bool), np.tile(np.arange(10), 100), 1.0)
    assert np.linalg.norm(weights) == pytest.approx(1)


def test_without_numba_it_learns_the_same(
    digits: tuple[NDArray[np.float64], ...],
    candidates: NDArray[np.bool_],
    request: pytest.FixtureRequest,
) -> None:
    method = PlSvm(iterations=3000)
    compiled = PLLClassifier(method, random_state=0).fit(digits[0], candidates)
    request.getfixturevalue("without_numba")
    plain = PLLClassifier(method, random_state=0).fit(digits[0], candidates)
    np.testing.assert_allclose(
        plain.predict_proba(digits[1]), compiled.predict_proba(digits[1]), rtol=0, atol=1e-10
    )


def test_steps_are_plain_where_no_folder_may_be_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    compiled_steps.cache_clear()
    assert compiled_steps() is None
    compiled_steps.cache_clear()


@pytest.mark.parametrize(
    ("n", "asked", "drawn"), [(30, 0, 100_000), (10_001, 0, 100_010), (30, 7, 7)]
)
def test_ten_rows_are_drawn_for_each_row_and_at_least_100_000(
    n: int, asked: int, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[NDArray[np.int64]] = []

    def steps(x: NDArray[np.float64], y: NDArray[np.bool_], order: NDArray[np.int64], _: float):
        seen.append(order)
        return np.zeros((y.shape[1], x.shape[1]))

    monkeypatch.setattr(pl_svm, "compiled_steps", lambda: steps)
    task = Task.of(
        Rows.of(torch.rand(n, 2), torch.arange(n)[None]), torch.ones(1, n, 2).bool(), (0,)
    )
    PlSvm(iterations=asked).fit(task)
    PlSvm(iterations=asked).fit(replace(task, seeds=(1,)))
    first, second = seen
    assert len(first) == len(second) == drawn
    assert not np.array_equal(first, second)
    assert first.min() >= 0
    assert first.max() < n
    if drawn == 100_000:
        np.testing.assert_allclose(np.bincount(first) / drawn, 1 / n, atol=0.003)
