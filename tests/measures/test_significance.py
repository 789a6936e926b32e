"""Which results are bold."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robustpll import InputError
from robustpll.measures.significance import bold, paired_p, single_best

A = [0.96, 0.961, 0.959, 0.96, 0.962]
B = [0.955, 0.958, 0.957, 0.953, 0.96]
SHARES = st.floats(0, 1, width=32)


def runs(values: Any) -> dict[Any, float]:
    return {("mnist", seed): value for seed, value in enumerate(values)}


@settings(max_examples=40)
@given(st.lists(st.tuples(SHARES, SHARES), min_size=3, max_size=30))
def test_p_is_that_of_scipy_in_both_directions(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    if (a - b).std() >= 1e-6:  # else scipy warns that it may be inexact
        assert paired_p(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=1e-12)
        assert paired_p(b, a) == paired_p(a, b)


def test_p_of_worked_examples_and_limits() -> None:
    assert paired_p(A, B) == pytest.approx(0.017256, abs=5e-7)
    assert math.isnan(paired_p(A, A))
    assert math.isnan(paired_p([0.5], [0.7]))
    assert paired_p([0.5, 0.25, 0.75], [0.25, 0.0, 0.5]) == 0  # a difference that never varies
    with pytest.raises(InputError, match="5 and 4"):
        paired_p(A, B[:4])


def test_bold_are_the_best_its_equals_and_what_no_test_tells_from_it() -> None:
    noisy = [0.9, 1.0, 0.92, 0.99, 0.96]  # lower mean than the best, p near 0.8
    column = {"first": runs(A), "twin": runs(A), "noisy": runs(noisy), "worse": runs(B)}
    assert bold(column) == {"first", "twin", "noisy"}
    assert bold({"b": runs(B), "a": runs(A)}) == {"a"}
    assert bold({}) == frozenset()


@pytest.mark.parametrize(("times", "is_bold"), [(0.99, True), (1.01, False)])
def test_the_level_is_five_percent(times: float, is_bold: bool) -> None:
    """With five pairs it is passed where the mean difference is 2.776 standard errors."""
    noise = np.array([-2, -1, 0, 1, 2]) / 100
    shift = times * 2.776445 * noise.std(ddof=1) / math.sqrt(5)
    column = {"best": runs([0.5] * 5), "other": runs(0.5 - shift + noise)}
    assert ("other" in bold(column)) == is_bold


def test_pairs_are_found_by_dataset_and_seed_not_by_place() -> None:
    shuffled = dict(reversed(runs(A).items()))
    worse = {key: value - 0.001 * (1 + 0.1 * key[1]) for key, value in runs(A).items()}
    assert bold({"best": shuffled, "worse": worse}) == {"best"}


def test_the_order_of_equal_accuracies_does_not_decide_which_is_best() -> None:
    """Sums are exact, so only the table's order does."""
    assert 0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1
    a, b = runs([0.1, 0.2, 0.3]), runs([0.3, 0.2, 0.1])
    below_a = runs([0.099999, 0.1999989, 0.299999])
    assert bold({"a": a, "b": b, "below a": below_a}) == {"a", "b"}
    assert bold({"b": b, "a": a, "below a": below_a}) == {"a", "b", "below a"}


def test_groups_are_judged_by_themselves_and_must_be_complete() -> None:
    column = {"a": runs(A), "b": runs(B)}
    assert bold(column, {"a": "single", "b": "ensemble"}) == {"a", "b"}
    with pytest.raises(InputError, match="none for b"):
        bold(column, {"a": 1})
    with pytest.raises(InputError, match="a, b must have the same datasets and seeds"):
        bold({"a": runs(A), "b": runs(B[:4])})


def test_single_best_is_the_first_of_the_highest_in_its_group() -> None:
    column = {"a": 0.5, "b": 0.7, "c": 0.7, "d": -0.1, "e": -0.3}
    groups = dict.fromkeys("abc", 1) | dict.fromkeys("de", 2)
    assert single_best(column) == single_best(column, groups) == {"b"}  # group 2 is not positive
    assert single_best({"d": -0.1, "e": 0.0}) == frozenset()
    with pytest.raises(InputError, match="finite"):
        single_best({"a": math.nan, "b": 0.2})
