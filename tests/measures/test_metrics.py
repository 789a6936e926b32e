"""The published measures, by their worked numbers, their limits and independent computations."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robustpll import InputError
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
    lambda values: np.array(values) / 10**6
)


def mmd_by_pairs(test: np.ndarray, ood: np.ndarray, gamma: float) -> float:
    """The squared discrepancy; samples of equal size leave out the pairs of one row."""

    def mean_kernel(a: np.ndarray, b: np.ndarray, leave_out: bool) -> float:
        kernel = np.exp(-gamma * (a[:, None] - b) ** 2)
        left_out = np.trace(kernel) if leave_out else 0.0
        return float((kernel.sum() - left_out) / (kernel.size - leave_out * len(a)))

    same = mean_kernel(test, test, True) + mean_kernel(ood, ood, True)
    return same - 2 * mean_kernel(test, ood, len(test) == len(ood))


def random_entropies(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """As of a model that notices OOD rows; many are exactly 0 or 1."""
    draw = np.random.default_rng(0)
    return draw.beta(0.1, 2, n).round(6), draw.beta(2, 0.2, m).round(6)


def test_accuracy_spread_and_recorded_entropies() -> None:
    assert mean_std([0.96, 0.961, 0.959, 0.96, 0.962]) == pytest.approx((0.9604, 0.0010198039))
    for correct in ([1, 1, 0], [True, True, False], np.array([1.0, 1.0, 0.0])):
        assert accuracy(correct) == pytest.approx(2 / 3)
    with pytest.raises(InputError, match=r"0 and 1; got 0.0, 1.0, 3.0"):
        accuracy([0, 3, 1])
    entropies = np.array([0.1234565001, np.nan, 1.0])
    assert as_recorded(entropies).tolist() == [0.123457, 1.0, 1.0]
    assert np.isnan(entropies[1])


def test_areas_and_ks_of_worked_examples() -> None:
    assert cdf_area(TEST, OOD) == pytest.approx(0.35)
    assert cdf_area(OOD, TEST) == pytest.approx(-0.14375)
    assert cdf_area(TEST, OOD, exact=True) == pytest.approx(0.55)
    # the published area ignores what lies outside the OOD values
    assert cdf_area([0, 0.5], [0.5, 0.5]) == 0
    assert cdf_area([0, 0.5], [0.5, 0.5], exact=True) == 0.25
    assert (signed_ks(TEST, OOD), signed_ks(OOD, TEST)) == (0.75, -0.75)
    assert signed_ks([0.2, 0.5, 0.9], [0.1, 0.5, 0.95]) == pytest.approx(1 / 3)
    # positive where both sides are equal however they round: 0.3 and 0.8 - 0.5
    assert signed_ks(np.repeat([0.0, 0.5, 0.9], [3, 2, 5]), np.repeat([0.5, 0.9], [8, 2])) == 0.3


@settings(max_examples=50)
@given(ENTROPIES, ENTROPIES)
def test_areas_and_ks_are_those_of_step_functions(test: np.ndarray, ood: np.ndarray) -> None:
    edges = np.unique(np.concatenate([test, ood, [0, 1]]))
    left = edges[:-1, None]  # both functions are constant from here to the next edge
    gaps = (test <= left).mean(1) - (ood <= left).mean(1)
    assert cdf_area(test, ood, exact=True) == pytest.approx(gaps @ np.diff(edges), abs=1e-12)
    scipys = stats.ks_2samp(test, ood, method="asymp").statistic
    assert abs(signed_ks(test, ood)) == pytest.approx(scipys)
    values, below = distribution(test)
    assert (np.diff(values) > 0).all()
    assert below[-1] == 1
    np.testing.assert_allclose(below, [(test <= value).mean() for value in values])


@settings(max_examples=50)
@given(ENTROPIES, ENTROPIES)
def test_positive_means_that_ood_rows_are_less_certain(test: np.ndarray, ood: np.ndarray) -> None:
    """With test entropies below all others every measure is positive or 0."""
    test, ood = test / 4, 0.5 + ood / 4
    assert cdf_area(test, ood, exact=True) > 0
    assert cdf_area(test, ood) >= 0
    assert signed_ks(test, ood) == 1
    assert signed_mmd(test, ood, 1.0) >= 0


@pytest.mark.parametrize(("gamma", "value"), [(1, 0.615876), (5, 0.772866), (3.224994, 0.771688)])
def test_mmd_of_the_worked_example(gamma: float, value: float) -> None:
    assert signed_mmd(TEST, OOD, gamma) == pytest.approx(value, abs=5e-7)
    assert signed_mmd(OOD, TEST, gamma) == pytest.approx(-value, abs=5e-7)


@settings(max_examples=50)
@given(ENTROPIES, st.floats(-4, 9), st.integers(0, 9))
def test_mmd_is_the_double_sum_at_any_bandwidth(
    test: np.ndarray, exponent: float, seed: int
) -> None:
    """Also where the kernel is so narrow that all pairs are summed."""
    ood = np.random.default_rng(seed).random(len(test)) ** 2
    square = mmd_by_pairs(test, ood, 10**exponent)
    assert signed_mmd(test, ood, 10**exponent) ** 2 == pytest.approx(max(0, square), abs=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 3.3, 1e3, 1e5])
@pytest.mark.parametrize("sizes", [(1000, 1000), (300, 200)], ids=["equal", "other sizes"])
def test_mmd_of_many_values_is_the_double_sum(gamma: float, sizes: tuple[int, int]) -> None:
    test, ood = random_entropies(*sizes)
    square = mmd_by_pairs(test, ood, gamma)
    assert signed_mmd(test, ood, gamma) == pytest.approx(math.sqrt(square), rel=1e-9)


def test_mmd_is_bounded_and_takes_its_bandwidth_from_both_samples() -> None:
    assert signed_mmd([0.0] * 50, [1.0] * 50, 1e4) == pytest.approx(math.sqrt(2))
    for gamma in ("pooled-mean", "median", 3.0):
        assert signed_mmd([0.5] * 4, [0.5] * 4, gamma) == 0
    test, ood = random_entropies(80, 80)
    both = np.concatenate([test, ood])
    assert signed_mmd(test, ood) == signed_mmd(test, ood, published_gamma(both))
    assert signed_mmd(test, ood, "median") == signed_mmd(test, ood, median_gamma(both))


def test_gammas_come_from_the_mean_and_the_median_distance() -> None:
    """Of uniform numbers these are 1/3 and 1 - sqrt(1/2)."""
    values = np.random.default_rng(0).random(100_000)
    assert published_gamma(values) == pytest.approx(1 / (2 / 9), rel=0.03)
    assert published_gamma(values) == published_gamma(values)
    assert median_gamma(values) == pytest.approx(1 / (2 * (1 - math.sqrt(0.5)) ** 2), rel=0.03)
    values = np.full(10**6, 0.3)
    values[17] = 0.8  # a single other value still gives a bandwidth
    mean = 0.5 * 2 * (10**6 - 1) / 10**12
    assert published_gamma(values) == pytest.approx(1 / (2 * mean**2))
    with pytest.raises(InputError, match="distance of 0 gives no bandwidth"):
        published_gamma([0.1] * 30)
    with pytest.raises(InputError, match="Pass gamma as a number"):
        median_gamma([0.0] * 30 + [1.0])


@pytest.mark.parametrize("gamma", [0, -1.0, math.inf, math.nan, "mean", None, True, [1.0]])
def test_an_illegal_gamma_is_refused(gamma: Any) -> None:
    with pytest.raises(InputError, match="gamma must be"):
        signed_mmd(TEST, OOD, gamma)


@pytest.mark.parametrize("measure", [cdf_area, signed_ks, signed_mmd])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([], "one-dimensional"),
        ([[0.1, 0.2]], "one-dimensional"),
        (["a", "b"], "one-dimensional"),
        ([0.1, np.nan], "finite"),
        ([np.inf, 0.1], "finite"),
    ],
)
def test_measures_refuse_what_is_no_sample(measure: Any, bad: Any, reason: str) -> None:
    with pytest.raises(InputError, match=f"ood must be .*{reason}"):
        measure(TEST, bad)
    with pytest.raises(InputError, match="test must be"):
        measure(bad, OOD)
    with pytest.raises(InputError, match="at least 2"):
        signed_mmd([0.1], [0.2])
