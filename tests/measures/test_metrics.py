"""The published measures, by their worked numbers, their limits and independent computations."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robustpll import InputError, Opinion
from robustpll.measures.metrics import (
    accuracy,
    as_recorded,
    cdf_area,
    distribution,
    mean_std,
    median_gamma,
    published_gamma,
    signed_ks,
    signed_mmd,
)

TEST, OOD = np.array([0, 0.1, 0.1, 0.3]), np.array([0.2, 0.6, 0.9, 1.0])
ENTROPIES = st.lists(st.integers(0, 10**6), min_size=2, max_size=40).map(
    lambda found: np.array(found) / 10**6
)


def double_sum(t: np.ndarray, o: np.ndarray, gamma: float) -> float:
    """The squared discrepancy of samples of equal size, pair by pair."""
    n = len(t)
    others = [(i, j) for i in range(n) for j in range(n) if i != j]
    total = math.fsum(
        math.exp(-gamma * (t[i] - t[j]) ** 2)
        + math.exp(-gamma * (o[i] - o[j]) ** 2)
        - 2 * math.exp(-gamma * (t[i] - o[j]) ** 2)
        for i, j in others
    )
    return total / (n * (n - 1))


def random_entropies(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As of a model that notices OOD rows; many are exactly 0 or 1."""
    draw = np.random.default_rng(seed)
    return draw.beta(0.1, 2, n).round(6), draw.beta(2, 0.2, m).round(6)


def test_the_spread_of_runs_is_that_of_the_population() -> None:
    found = mean_std([0.96, 0.961, 0.959, 0.96, 0.962])
    assert found == pytest.approx((0.9604, 0.0010198039))


@pytest.mark.parametrize("correct", [[1, 1, 0], [True, True, False], np.array([1.0, 1.0, 0.0])])
def test_accuracy_is_the_share_of_right_rows(correct: Any) -> None:
    assert accuracy(correct) == pytest.approx(2 / 3)


def test_accuracy_refuses_what_is_neither_right_nor_wrong() -> None:
    with pytest.raises(InputError, match=r"0 and 1.*found 3"):
        accuracy([0, 3, 1])


def test_entropies_of_the_worked_example() -> None:
    rows = np.array([[0.5, 0.25, 0.25, 0], [1, 0, 0, 0], [0.25] * 4])
    assert Opinion.of_probability(rows).entropy == pytest.approx([0.75, 0, 1])


def test_recorded_entropies_have_six_decimals_and_no_gap() -> None:
    given_ = np.array([0.1234565001, np.nan, 1.0])
    assert as_recorded(given_).tolist() == [0.123457, 1.0, 1.0]
    assert np.isnan(given_[1])


def test_the_area_of_the_worked_example() -> None:
    assert cdf_area(TEST, OOD) == pytest.approx(0.35)
    assert cdf_area(OOD, TEST) == pytest.approx(-0.14375)
    assert cdf_area(TEST, OOD, exact=True) == pytest.approx(0.55)


@given(ENTROPIES, ENTROPIES)
def test_the_exact_area_is_the_integral_of_the_difference_of_step_functions(
    test: np.ndarray, ood: np.ndarray
) -> None:
    edges = np.unique(np.concatenate([test, ood, [0, 1]]))
    left = edges[:-1, None]  # both functions are constant from here to the next edge
    gaps = (test <= left).mean(1) - (ood <= left).mean(1)
    assert cdf_area(test, ood, exact=True) == pytest.approx(gaps @ np.diff(edges), abs=1e-12)


def test_the_published_area_ignores_what_lies_outside_the_ood_values() -> None:
    assert cdf_area([0, 0.5], [0.5, 0.5]) == 0
    assert cdf_area([0, 0.5], [0.5, 0.5], exact=True) == 0.25


def test_ks_of_the_worked_examples() -> None:
    assert signed_ks(TEST, OOD) == 0.75
    assert signed_ks(OOD, TEST) == -0.75
    assert signed_ks([0.2, 0.5, 0.9], [0.1, 0.5, 0.95]) == pytest.approx(1 / 3)


def test_ks_is_positive_where_both_sides_are_equal_however_they_round() -> None:
    """0.3 on one side, 0.8 - 0.5 on the other."""
    test, ood = np.repeat([0.0, 0.5, 0.9], [3, 2, 5]), np.repeat([0.5, 0.9], [8, 2])
    assert signed_ks(test, ood) == 0.3


@given(ENTROPIES, ENTROPIES)
def test_ks_is_as_large_as_that_of_scipy(test: np.ndarray, ood: np.ndarray) -> None:
    assert abs(signed_ks(test, ood)) == pytest.approx(
        stats.ks_2samp(test, ood, method="asymp").statistic
    )


@pytest.mark.parametrize(("gamma", "value"), [(1, 0.615876), (5, 0.772866), (3.224994, 0.771688)])
def test_mmd_of_the_worked_example(gamma: float, value: float) -> None:
    assert signed_mmd(TEST, OOD, gamma) == pytest.approx(value, abs=5e-7)
    assert signed_mmd(OOD, TEST, gamma) == pytest.approx(-value, abs=5e-7)


@given(ENTROPIES, st.floats(-4, 9), st.integers(0, 9))
def test_mmd_is_the_double_sum_at_any_bandwidth(
    test: np.ndarray, exponent: float, seed: int
) -> None:
    """Also where the kernel is so narrow that all pairs are summed."""
    ood = np.random.default_rng(seed).random(len(test)) ** 2
    square = double_sum(test, ood, 10**exponent)
    found = signed_mmd(test, ood, 10**exponent)
    assert found**2 == pytest.approx(max(0, square), abs=1e-13)


@pytest.mark.parametrize("gamma", [0.01, 3.3, 1e3, 1e5])
@pytest.mark.parametrize("digits", [6, 16])
def test_mmd_of_many_values_is_the_double_sum(gamma: float, digits: int) -> None:
    test, ood = random_entropies(1500, 1500)
    shift = 0 if digits == 6 else 1e-9 * math.pi  # off the grid of six decimals
    test = test + shift
    between = [np.exp(-gamma * (a[:, None] - b) ** 2) for a, b in ((test, test), (ood, ood))]
    across = np.exp(-gamma * (test[:, None] - ood) ** 2)
    pairs = 1500 * 1499
    square = sum((each.sum() - np.trace(each)) / pairs for each in between)
    square -= 2 * (across.sum() - np.trace(across)) / pairs
    assert signed_mmd(test, ood, gamma) == pytest.approx(math.sqrt(square), rel=1e-10)


def test_mmd_of_samples_of_other_sizes_compares_all_pairs() -> None:
    test, ood = random_entropies(300, 200)
    parts = [np.exp(-2 * (a[:, None] - b) ** 2) for a, b in ((test, test), (ood, ood), (test, ood))]
    square = (parts[0].sum() - 300) / (300 * 299) + (parts[1].sum() - 200) / (200 * 199)
    square -= 2 * parts[2].mean()
    assert signed_mmd(test, ood, 2.0) == pytest.approx(math.sqrt(square))


def test_mmd_reaches_the_root_of_two() -> None:
    assert signed_mmd([0.0] * 50, [1.0] * 50, 1e4) == pytest.approx(math.sqrt(2))


def test_mmd_of_equal_values_is_nothing() -> None:
    for gamma in ("pooled-mean", "median", 3.0):
        assert signed_mmd([0.5] * 4, [0.5] * 4, gamma) == 0


def test_mmd_takes_its_bandwidth_from_both_samples_unless_told() -> None:
    test, ood = random_entropies(80, 80)
    both = np.concatenate([test, ood])
    assert signed_mmd(test, ood) == signed_mmd(test, ood, published_gamma(both))
    assert signed_mmd(test, ood, "median") == signed_mmd(test, ood, median_gamma(both))


def test_gammas_come_from_the_mean_and_the_median_distance() -> None:
    """Of uniform numbers these are 1/3 and 1 - sqrt(1/2)."""
    values = np.random.default_rng(0).random(100_000)
    assert published_gamma(values) == pytest.approx(1 / (2 / 9), rel=0.03)
    assert median_gamma(values) == pytest.approx(1 / (2 * (1 - math.sqrt(0.5)) ** 2), rel=0.03)


def test_the_published_gamma_is_always_the_same() -> None:
    values = random_entropies(500, 500)[0]
    assert published_gamma(values) == published_gamma(values)


def test_a_single_other_value_still_gives_a_bandwidth() -> None:
    values = np.full(10**6, 0.3)
    values[17] = 0.8
    mean = 0.5 * 2 * (10**6 - 1) / 10**12
    assert published_gamma(values) == pytest.approx(1 / (2 * mean**2))


def test_no_bandwidth_is_made_of_equal_values() -> None:
    with pytest.raises(InputError, match="mean distance of the values is 0"):
        published_gamma([0.1] * 30)
    with pytest.raises(InputError, match="published_gamma"):
        median_gamma([0.0] * 30 + [1.0])


@pytest.mark.parametrize("gamma", [0, -1.0, math.inf, math.nan, "mean", None, True, [1.0]])
def test_an_illegal_gamma_is_refused(gamma: Any) -> None:
    with pytest.raises(InputError, match="gamma must be"):
        signed_mmd(TEST, OOD, gamma)


@pytest.mark.parametrize("measure", [cdf_area, signed_ks, signed_mmd])
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([], "one-dimensional"),
        ([[0.1, 0.2]], "one-dimensional"),
        (["a", "b"], "one-dimensional"),
        ([0.1, np.nan], r"finite.*at 1"),
        ([np.inf, 0.1], r"finite.*at 0"),
    ],
)
def test_measures_refuse_what_is_no_sample(measure: Any, bad: Any, told: str) -> None:
    with pytest.raises(InputError, match=f"ood must be .*{told}"):
        measure(TEST, bad)
    with pytest.raises(InputError, match="test must be"):
        measure(bad, OOD)


def test_mmd_needs_two_values_of_each() -> None:
    with pytest.raises(InputError, match="at least 2"):
        signed_mmd([0.1], [0.2])


@given(ENTROPIES)
def test_a_distribution_function_rises_to_one(values: np.ndarray) -> None:
    at, below = distribution(values)
    assert (np.diff(at) > 0).all()
    assert below[-1] == 1
    np.testing.assert_allclose(below, [(values <= each).mean() for each in at])


@given(ENTROPIES, ENTROPIES)
def test_positive_means_that_ood_rows_are_less_certain(test: np.ndarray, ood: np.ndarray) -> None:
    """With test entropies below all others every measure is positive or 0."""
    test, ood = test / 4, 0.5 + ood / 4
    assert cdf_area(test, ood, exact=True) > 0
    assert cdf_area(test, ood) >= 0
    assert signed_ks(test, ood) == 1
    assert signed_mmd(test, ood, 1.0) >= 0
