"""Calibration and risk-coverage curves: worked numbers, properties, and scikit-learn's results."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

from robustpll import InputError
from robustpll.measures.calibration import calibration_of, reliability, risk_coverage

RNG = np.random.default_rng(0)
ROWS = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=40)


def test_measures_worked_by_hand() -> None:
    report = calibration_of([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], [0, 1, 2])
    assert report.accuracy == pytest.approx(2 / 3)  # the first of equal ones is predicted
    assert report.brier == pytest.approx((0.25 + 2 * 0.0625 + 0 + 0.25 + 0.25) / 3)
    assert report.log_loss == pytest.approx(2 * math.log(2) / 3)
    assert report.error == pytest.approx(0)  # 0.5 in two rows, of which one is right; 1 is right
    # class 0: 0.5, 0, 0.5 of 1, 0, 0; class 1: 0.25, 1, 0 of 0, 1, 0; class 2: 0.25, 0, 0.5 of ..1
    assert report.class_error == pytest.approx((0 + 0.25 / 3 + (0.25 + 0 + 0.5) / 3) / 3)
    # a true class of probability 0 costs infinitely much
    assert calibration_of([[1.0, 0.0]], [1]).log_loss == math.inf


def test_errors_log_loss_and_brier_are_scikit_learns() -> None:
    p = RNG.random(1500)
    right = RNG.random(1500) < p**2
    true, promised = calibration_curve(right, p, n_bins=15, strategy="quantile")
    bins = reliability(p, right, bins=15)
    np.testing.assert_allclose((bins.promised, bins.right), (promised, true))
    assert bins.error == pytest.approx(np.abs(true - promised).mean())
    p, y = RNG.dirichlet(np.ones(5), size=200), RNG.integers(5, size=200)
    report = calibration_of(p, y)
    assert report.log_loss == pytest.approx(log_loss(y, p, labels=range(5)))
    assert report.brier == pytest.approx(((p - np.eye(5)[y]) ** 2).sum() / 200)


@settings(max_examples=50)
@given(ROWS, st.integers(1, 20), st.randoms())
def test_equal_promises_share_a_bin_and_the_order_of_rows_does_not_matter(
    rows: list[Any], bins: int, random: Any
) -> None:
    p, right = np.array(rows).T
    table = reliability(p / 10, right, bins)
    assert table.rows.sum() == len(rows)
    assert len(table.rows) <= min(bins, len(np.unique(p)))
    assert (np.diff(table.promised) > 0).all()
    assert (table.rows * table.promised).sum() == pytest.approx(p.sum() / 10)
    p, right = np.array(random.sample(rows, len(rows))).T
    assert reliability(p / 10, right, bins).error == pytest.approx(table.error)
    distinct = np.arange(len(p)) / len(p)  # then bins have equally many rows
    assert np.ptp(reliability(distinct, right, bins).rows) <= 1


def test_honest_probabilities_have_no_error_but_chance() -> None:
    p = RNG.dirichlet(np.full(4, 0.5), size=20_000)
    y = (RNG.random((20_000, 1)) > p.cumsum(-1)).sum(-1).clip(max=3)
    honest, boasting = calibration_of(p, y), calibration_of(p**3 / (p**3).sum(-1)[:, None], y)
    assert max(honest.error, honest.class_error) < 0.015
    assert boasting.error > 0.1
    assert boasting.log_loss > honest.log_loss
    assert boasting.brier > honest.brier


def test_a_risk_coverage_curve_worked_by_hand() -> None:
    curve = risk_coverage([0.6, 0.9, 0.7, 0.8], [0, 1, 1, 0])
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.error, [0, 1 / 2, 1 / 3, 2 / 4])
    assert curve.area == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 4)


@given(ROWS)
def test_the_area_lies_between_the_best_and_the_worst_order(rows: list[Any]) -> None:
    certainty, correct = np.array(rows, dtype=float).T
    curve = risk_coverage(certainty, correct)
    best, worst = risk_coverage(correct, correct), risk_coverage(-correct, correct)
    assert best.area - 1e-12 <= curve.area <= worst.area + 1e-12
    assert curve.error[-1] == pytest.approx(1 - correct.mean())


@pytest.mark.parametrize("correct", [[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]])
def test_equal_certainties_count_as_the_mean_over_their_orders(correct: list[int]) -> None:
    certainty = np.array([0.9, 0.7, 0.7, 0.7])
    orders = [np.array([0, *order]) / 100 for order in permutations(range(3))]
    areas = [risk_coverage(certainty + order, correct).area for order in orders]
    assert risk_coverage(certainty, correct).area == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: reliability([0.5], [2]), "right must hold 0 or 1 .* got 1 values .2"),
        (lambda: reliability([1.5], [1]), r"promised must lie in \[0, 1\]"),
        (lambda: reliability([np.nan], [1]), "promised must be finite"),
        (lambda: reliability([0.5, 0.5], [1]), "right must .* each of 2 rows; got 1 values"),
        (lambda: reliability([], []), "one number for each row"),
        (lambda: reliability([0.5], [1], bins=0), "bins must be"),
        (lambda: calibration_of([[0.5, 0.6]], [0]), "sum other than 1"),
        (lambda: calibration_of([[0.5, 0.5]], [2]), "from 0 to 1"),
        (lambda: calibration_of([[0.5, 0.5]], ["a"]), "one int for each row"),
        (lambda: calibration_of([0.5, 0.5], [0]), r"shape \(n, k\)"),
        (lambda: risk_coverage([0.1, np.nan], [1, 0]), "certainty must be finite"),
        (lambda: risk_coverage([0.1, 0.2], [1, 2]), "correct must hold 0 or 1"),
        (lambda: risk_coverage([0.1, 0.2], [1]), "correct must .* each of 2 rows; got 1 values"),
    ],
)
def test_odd_arrays_are_refused(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()
