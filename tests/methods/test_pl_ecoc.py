"""PlEcoc: dichotomies by brute force, machines against LinearSVC, decoding by worked numbers."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.engine.data import Rows, Task
from robustpll.engine.predict import Fitted
from robustpll.methods import PlEcoc, pl_ecoc
from robustpll.methods.pl_ecoc import decoded, dichotomies, reliability, squared_hinge_classifiers
from robustpll.opinion import Opinion


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(n: int, d: int) -> Tensor:
    return torch.rand(n, d, generator=generator(), dtype=torch.float64)


def random_candidates(n: int, k: int, share: float, seed: int = 0) -> Tensor:
    drawn = torch.rand(n, k, generator=generator(seed)) < share
    drawn[torch.arange(n), torch.randint(k, (n,), generator=generator(seed + 1))] = True
    return drawn


def as_sets(rows: Tensor) -> list[frozenset[int]]:
    return [frozenset(row.nonzero()[:, 0].tolist()) for row in rows]


def is_eligible(positive: frozenset[int], rows: list[frozenset[int]]) -> bool:
    inside = sum(row <= positive for row in rows)
    outside = sum(not row & positive for row in rows)
    return inside >= 1 and outside >= 1 and inside + outside >= max(1, len(rows) // 10)


def eligible_by_enumeration(rows: list[frozenset[int]], k: int) -> set[frozenset[int]]:
    """All positive sides without the last class."""
    sides = (frozenset(side) for size in range(1, k) for side in combinations(range(k - 1), size))
    return {side for side in sides if is_eligible(side, rows)}


@pytest.mark.parametrize(("k", "length"), [(10, 34), (13, 38), (23, 46), (219, 78)])
def test_codes_are_as_long_as_published(k: int, length: int) -> None:
    """One candidate each, so every dichotomy will do."""
    codes = dichotomies(torch.eye(k).bool(), generator())
    assert codes.shape == (length, k)
    assert len(set(as_sets(codes))) == length
    assert not codes[:, -1].any()
    assert codes.any(1).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), k=st.integers(2, 7), share=st.floats(0, 1))
def test_up_to_ten_classes_all_eligible_dichotomies_are_in_the_draw(
    seed: int, n: int, k: int, share: float
) -> None:
    candidates = random_candidates(n, k, share, seed)
    eligible = eligible_by_enumeration(as_sets(candidates), k)
    sides = as_sets(dichotomies(candidates, generator(seed)))
    assert len(sides) == len(set(sides)) == min(math.ceil(10 * math.log2(k)), len(eligible))
    assert set(sides) <= eligible


def test_every_eligible_dichotomy_is_as_likely() -> None:
    counts = torch.zeros(2**5, dtype=torch.int64)
    for seed in range(100):
        codes = dichotomies(torch.eye(6).bool(), generator(seed))
        numbers = (codes[:, :5] * 2 ** torch.arange(5)).sum(1)
        assert len(numbers.unique()) == 26
        counts[numbers] += 1
    assert counts[0] == 0
    expected = 100 * 26 / 31
    assert (counts[1:] - expected).abs().max() < 5 * math.sqrt(100 * (26 / 31) * (5 / 31))


def test_a_tenth_of_the_rows_is_enough_and_less_is_not() -> None:
    """Two classes: rows with one candidate teach, those with both do not."""
    candidates = torch.ones(39, 2).bool()
    candidates[:3] = torch.tensor([[1, 0], [0, 1], [0, 1]]).bool()
    assert len(dichotomies(candidates, generator())) == 1  # 3 of 39
    more = torch.cat([candidates, torch.ones(1, 2).bool()])
    assert len(dichotomies(more, generator())) == 0  # 3 of 40
    one_side = torch.tensor([[1, 0], [1, 0], [1, 1]]).bool()
    assert len(dichotomies(one_side, generator())) == 0


def test_more_than_ten_classes_are_drawn_by_fair_coins() -> None:
    candidates = random_candidates(300, 40, 0.04)
    codes = dichotomies(candidates, generator())
    sides = as_sets(codes)
    assert len(set(sides)) == math.ceil(10 * math.log2(40))
    assert all(is_eligible(side, as_sets(candidates)) for side in sides)
    assert codes[:, :-1].double().mean() == pytest.approx(0.5, abs=0.06)


def test_few_eligible_dichotomies_among_many_classes_are_all_found() -> None:
    """Most rows have all of the classes 3 to 10, so these stay together: 7 dichotomies will do."""
    rest = torch.arange(11) >= 3
    candidates = torch.stack([torch.arange(11) == j for j in range(3)] + [rest] * 40)
    sides = set(as_sets(dichotomies(candidates, generator())))
    assert sides == eligible_by_enumeration(as_sets(candidates), 11)
    assert len(sides) == 7


def fitted_to(x: Tensor, candidates: Tensor, decoding: Any) -> tuple[Fitted, Opinion]:
    """What PlEcoc learned of rows (n, d) with candidates (n, k), and their predictions."""
    rows = Rows.of(x, torch.arange(len(x))[None])
    fitted = PlEcoc(decoding).fit(Task.of(rows, candidates[None], (0,)))
    return fitted, fitted.predict(rows)


@pytest.mark.parametrize("k", [2, 10, 11, 50])
@pytest.mark.parametrize("decoding", ["loss", "reference"])
def test_where_no_dichotomy_will_do_every_prediction_is_a_guess(k: int, decoding: Any) -> None:
    candidates = torch.ones(30, k).bool()
    candidates[0, 1:] = False
    fitted, opinion = fitted_to(uniform(30, 4), candidates, decoding)
    torch.testing.assert_close(opinion.probability, torch.full_like(opinion.belief, 1 / k))
    assert opinion.guess.all()
    expected = (candidates / candidates.sum(-1, keepdim=True)).double()
    torch.testing.assert_close(fitted.label_weights[0], expected)


def gradient(x: Tensor, sides: Tensor, weights: Tensor, error_cost: float = 1.0) -> Tensor:
    """Of the objectives of all machines, (d + 1, L)."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1)
    return weights - 2 * error_cost * rows.T @ (sides * (1 - sides * (rows @ weights)).clamp(min=0))


@pytest.mark.parametrize(
    ("n", "d", "error_cost"), [(1000, 30, 1.0), (1000, 8, 0.03), (60, 90, 1.0), (300, 100, 5.0)]
)
def test_machines_agree_with_linear_svc_whatever_the_threads(
    n: int, d: int, error_cost: float
) -> None:
    """More rows than a machine sees at first, fewer rows than features, hard and easy problems."""
    x = uniform(n, d)
    x[::7] = x[0]  # duplicates
    x[5] = 0
    noise = torch.randn(n, 5, generator=generator(1)) * torch.tensor([0, 0.2, 0.5, 1, 5])
    signal = (x[:, :5] - 0.5) * 3 + noise
    sides = torch.where(signal.abs() < 0.3, 0.0, signal.sign())  # (n, 5), in between are unused
    sides[(x[:, 0] > 0.2), 1] = 0  # one with few rows
    threads, weights = torch.get_num_threads(), []
    for count in (3, 1):
        torch.set_num_threads(count)
        weights.append(squared_hinge_classifiers(x, sides.double(), error_cost))
        assert torch.get_num_threads() == count
    torch.set_num_threads(threads)
    torch.testing.assert_close(*weights, rtol=0, atol=1e-12)
    for values, side in zip((x @ weights[0][:-1] + weights[0][-1]).T, sides.T, strict=True):
        used = (side != 0).numpy()
        svc = LinearSVC(C=error_cost, tol=1e-8, max_iter=100_000, dual="auto", random_state=0)
        svc.fit(x.numpy()[used], side.numpy()[used])
        expected = svc.decision_function(x.numpy())
        np.testing.assert_allclose(values.numpy(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("error_cost", [1e-8, 1e8])
def test_machines_end_at_extreme_costs_or_say_that_they_do_not(
    error_cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = uniform(500, 20)
    sides = torch.randint(2, (500, 3), generator=generator()).double() * 2 - 1
    weights = squared_hinge_classifiers(x, sides, error_cost)  # a warning would be an error
    assert gradient(x, sides, weights, error_cost).norm() < 1e-8 * error_cost * 500 + 1e-4
    assert (squared_hinge_classifiers(x, sides, 0.0) == 0).all()
    monkeypatch.setattr(pl_ecoc, "MOST_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="not at its optimum after 1 steps"):
        squared_hinge_classifiers(x, sides)


@pytest.mark.parametrize("far", [0.0, 30.0, 1000.0])
def test_machines_are_at_their_optimum_where_float32_cannot_tell_rows_apart(far: float) -> None:
    """Decision values of all rows are looked at in float32, which is off by up to 0.05 here."""
    x = uniform(4000, 30) + far
    noise = torch.randn(4000, 4, generator=generator(1))
    sides = (x[:, :4] - far - 0.5 + 0.3 * noise).sign()
    weights = squared_hinge_classifiers(x, sides)
    longest = (x.square().sum(1) + 1).sqrt().amax()
    slope = gradient(x, sides, weights).norm(dim=0)
    assert (slope < 1e-4 / longest + 1e-7 * far).all()


def test_reliability_is_the_share_on_the_right_side_of_all_rows() -> None:
    candidates = random_candidates(40, 5, 0.3)
    candidates[:, 3] = False  # of class 3 there is no row
    candidates[~candidates.any(1), 0] = True
    codes = torch.rand(6, 5, generator=generator()) < 0.5
    decisions = torch.randn(40, 6, generator=generator(), dtype=torch.float64)
    decisions[:5] = 0  # not positive
    reliable = reliability(decisions, candidates, codes)
    for c in (0, 1, 2, 4):
        right = (decisions[candidates[:, c]] > 0) == codes[:, c]  # rows with candidate c, (own, 6)
        shares = right.double().mean(0)
        torch.testing.assert_close(reliable[c], shares / shares.sum())
    assert (reliable[3] == 0).all()


@pytest.mark.parametrize(
    ("decoding", "worked"),
    [("reference", [2.105053, 0.648866, 1.489505]), ("loss", [0.519100, 2.206291, 1.042247])],
)
def test_decoding_meets_the_worked_numbers_and_does_not_overflow(
    decoding: Any, worked: list[float]
) -> None:
    decisions = torch.tensor([[0.4, -1]], dtype=torch.float64)
    codes = torch.tensor([[1, 1, 0], [0, 1, 0]]).bool()
    reliable = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.6, 0.4]], dtype=torch.float64)
    sign = 1 if decoding == "reference" else -1
    sums = (sign * decoded(decisions, codes, reliable, decoding)).exp()
    torch.testing.assert_close(sums, torch.tensor([worked]).double(), rtol=0, atol=1e-6)
    huge = decoded(1e6 * decisions, codes, reliable, decoding)
    assert huge.isfinite().all()
    assert huge.argmax() == 0
    # one machine for two classes gives the probability of the exponential loss
    decisions = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
    two, ones = torch.tensor([[True, False]]), torch.ones(2, 1, dtype=torch.float64)
    probability = decoded(decisions, two, ones, decoding).softmax(-1)
    torch.testing.assert_close(probability[:, 0], (2 * decisions[:, 0]).sigmoid())


@pytest.mark.parametrize("decoding", ["loss", "reference"])
def test_a_class_that_is_nobodys_candidate_is_never_predicted(decoding: Any) -> None:
    x = uniform(200, 3)
    probability = fitted_to(x, one_hot(x.argmax(1), 4).bool(), decoding)[1].probability[0]
    assert (probability[:, 3] == 0).all()
    assert (probability.argmax(1) == x.argmax(1)).double().mean() > 0.9
