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
from sklearn.exceptions import EfficiencyWarning

from robustpll import InputError, PLLClassifier
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


def test_the_worked_numbers_are_met_after_each_step(steps: Steps) -> None:
    x = np.array([[1, 0.5], [0.2, 1], [0.9, 0.1]])
    candidates = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=bool)
    expected = {
        1: [[0.632456, 0.316228], [0, 0], [-0.632456, -0.316228]],
        2: [[0.216228, -0.341886], [0.1, 0.5], [-0.316228, -0.158114]],
        3: [[0.444152, -0.194591], [-0.233333, 0.3], [-0.210819, -0.105409]],
    }
    for t, weights in expected.items():
        np.testing.assert_allclose(steps(x, candidates, np.arange(t), 1.0), weights, atol=1e-6)


@settings(max_examples=30)
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
    order = generator.integers(12, size=250)
    expected = slow_steps(x, candidates, order.tolist(), regularisation)
    for found in (plain_steps, fast()):
        weights = found(x, candidates, order, regularisation)
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-10)


def test_many_steps_do_not_drift() -> None:
    generator = np.random.default_rng(0)
    x = generator.random((300, 20))
    candidates = generator.random((300, 5)) < 0.3
    candidates[np.arange(300), x[:, :5].argmax(1)] = True
    order = generator.integers(300, size=5_000)
    found = fast()(x, candidates, order, 0.01)
    np.testing.assert_allclose(found, plain_steps(x, candidates, order, 0.01), rtol=0, atol=1e-10)


def test_very_long_rows_do_not_overflow(steps: Steps) -> None:
    """The first steps shrink w by the rows' length each; their product leaves float64."""
    x = 1e5 * np.random.default_rng(0).random((10, 50))
    candidates = np.eye(10, dtype=bool)
    order = np.tile(np.arange(10), 100)
    weights = steps(x, candidates, order, 1.0)
    assert np.linalg.norm(weights) == pytest.approx(1)


def test_the_objective_comes_near_its_least_value() -> None:
    """With one candidate each the problem is convex: smooth it a little, and compare."""
    generator = np.random.default_rng(0)
    x = generator.random((200, 6))
    labels = x[:, :4].argmax(1)
    own = np.eye(4, dtype=bool)[labels]

    def objective(weights: torch.Tensor, smooth: float) -> torch.Tensor:
        scores = torch.from_numpy(x) @ weights.T
        inside = scores[torch.from_numpy(own)]
        rival = scores.masked_fill(torch.from_numpy(own), -torch.inf)
        if smooth:
            loss = torch.nn.functional.softplus(
                (1 - inside + smooth * (rival / smooth).logsumexp(1)) / smooth
            )
            return 0.05 * weights.square().sum() + smooth * loss.mean()
        return 0.05 * weights.square().sum() + (1 - inside + rival.amax(1)).clamp(min=0).mean()

    weights = torch.zeros(4, 6, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = objective(weights, 1e-2)
        loss.backward()
        return loss

    optimizer.step(closure)
    least = float(objective(weights.detach(), 0))
    order = generator.integers(200, size=100_000)
    found = float(objective(torch.from_numpy(fast()(x, own, order, 0.1)), 0))
    assert least - 0.01 < found < least + 0.01


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


@pytest.mark.usefixtures("without_numba")
def test_without_numba_large_work_comes_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl_svm, "LARGE", 2 * 2 * 500)
    model = PLLClassifier(PlSvm(iterations=501))
    with pytest.warns(EfficiencyWarning, match=r'501 steps .*pip install "robustpll\[fast\]"'):
        model.fit(np.eye(2), ["a", "b"])
    model.set_params(method__iterations=500).fit(np.eye(2), ["a", "b"])  # no warning


def test_steps_are_compiled_where_no_folder_may_be_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    compiled_steps.cache_clear()
    assert compiled_steps() is not None
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


def test_no_regularisation_is_refused() -> None:
    with pytest.raises(InputError, match="'regularisation' of PlSvm must be above 0"):
        PlSvm(regularisation=0)
    with pytest.raises(InputError, match=r"at least 0\. Got -1"):
        PlSvm(regularisation=-1)
