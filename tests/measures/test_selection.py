"""Error against coverage by hand and by property; decisions held against labels."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustpll import InputError
from robustpll.estimator.abstention import Decision
from robustpll.evaluate.reports import DecisionReport, decision_report
from robustpll.measures.calibration import risk_coverage

ROWS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


def test_a_curve_worked_by_hand() -> None:
    found = risk_coverage([0.6, 0.9, 0.7, 0.8], [0, 1, 1, 0])
    np.testing.assert_allclose(found.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(found.error, [0, 1 / 2, 1 / 3, 2 / 4])
    assert found.area == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert found.least_area == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4)
    assert found.coverage_at(0.4) == 0.75
    assert risk_coverage([0.5], [0]).coverage_at(0.4) == 0.0


@given(ROWS)
def test_the_area_lies_between_the_best_and_the_worst_order(rows: list[Any]) -> None:
    certainty, correct = np.array(rows, dtype=float).T
    found = risk_coverage(certainty, correct)
    worst = risk_coverage(-correct, correct)
    assert found.least_area - 1e-12 <= found.area <= worst.area + 1e-12
    assert risk_coverage(correct, correct).area == pytest.approx(found.least_area)
    assert found.error[-1] == pytest.approx(1 - correct.mean())


@pytest.mark.parametrize("correct", [[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]])
def test_equal_certainties_count_as_the_mean_over_their_orders(correct: list[int]) -> None:
    certainty = np.array([0.9, 0.7, 0.7, 0.7])
    orders = [np.array([0, *order]) / 100 for order in permutations(range(3))]
    areas = [risk_coverage(certainty + each, correct).area for each in orders]
    assert risk_coverage(certainty, correct).area == pytest.approx(np.mean(areas))


def test_a_decision_is_held_against_labels() -> None:
    decision = Decision(
        np.array(["a", "b", "a", "b"]),
        np.array([True, True, True, False]),
        np.array(["accepted"] * 3 + ["unlike the training data"]),
        0.5,
    )
    found = decision_report(decision, ["a", "a", "a", "a"])
    assert found == DecisionReport(0.75, pytest.approx(1 / 3), 1.0, 0.25)
    with pytest.raises(InputError, match="4 rows"):
        decision_report(decision, ["a"])
    with pytest.raises(InputError, match="needs a Decision"):
        decision_report(decision, [{"a"}] * 4)


@pytest.mark.parametrize(
    ("certainty", "correct", "sentence"),
    [
        ([0.1, np.nan], [1, 0], "certainty must be finite"),
        ([0.1, 0.2], [1, 2], "correct must hold 0 and 1"),
        ([0.1, 0.2], [1], "certainty has 2 rows"),
        ([], [], "at least 1"),
    ],
)
def test_odd_rows_are_refused(certainty: Any, correct: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        risk_coverage(certainty, correct)
