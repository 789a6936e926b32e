"""Measures that need no true label, and searches that use them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from robustpll import Candidates, InputError, PLLClassifier
from robustpll.evaluate.reports import SCORERS, approximated_accuracy, covering_rate
from robustpll.methods import PlKnn


def test_measures_of_worked_numbers() -> None:
    """Rows: right among two of 0.5 and 0.3; no candidate; a tie of which the first is taken."""
    probability = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    candidates = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    assert covering_rate(probability, candidates) == pytest.approx(2 / 3)
    assert approximated_accuracy(probability, candidates) == pytest.approx((5 / 8 + 0 + 0.4) / 3)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000))
def test_accuracy_and_approximated_accuracy_are_at_most_the_covering_rate(seed: int) -> None:
    random = np.random.default_rng(seed)
    probability = random.dirichlet(np.full(5, 0.5), size=20)
    labels = random.integers(5, size=20)
    alone = np.eye(5, dtype=bool)[labels]
    candidates = (random.random((20, 5)) < 0.4) | alone
    accuracy = (probability.argmax(-1) == labels).mean()
    covered = covering_rate(probability, candidates)
    assert max(accuracy, approximated_accuracy(probability, candidates)) <= covered
    assert covering_rate(probability, alone) == pytest.approx(accuracy)
    assert approximated_accuracy(probability, alone) == pytest.approx(accuracy)


def test_a_search_without_labels_finds_good_parameters(digits: Any, candidates: np.ndarray) -> None:
    X, later, _, labels = digits
    search = GridSearchCV(
        PLLClassifier(PlKnn()),
        {"method__neighbours": [10, 250]},
        scoring=SCORERS,
        refit="covering_rate",
        cv=2,
    ).fit(X[:600], Candidates.of(candidates[:600]))
    assert search.best_params_ == {"method__neighbours": 10}
    assert (search.predict(later) == labels).mean() > 0.8
    means = {name: search.cv_results_[f"mean_test_{name}"] for name in SCORERS}
    assert (means["approximated_accuracy"] <= means["covering_rate"]).all()


def test_the_covering_rate_is_what_score_says_of_candidate_sets(
    digits: Any, candidates: np.ndarray
) -> None:
    X, names = digits[0], np.array([f"digit {number}" for number in range(10)])
    y = np.array([*(frozenset(names[row].tolist()) for row in candidates), None])[:-1]
    model = PLLClassifier(PlKnn()).fit(X[:600], y[:600])
    rate = SCORERS["covering_rate"](model, X[600:], y[600:])
    assert rate == model.score(X[600:], y[600:])
    labels = names[digits[2]][600:]
    for scorer in SCORERS.values():  # one candidate each
        assert scorer(model, X[600:], labels) == pytest.approx(model.score(X[600:], labels))
    piped = make_pipeline(MinMaxScaler(), PLLClassifier(PlKnn())).fit(X[:600], y[:600])
    assert SCORERS["covering_rate"](piped, X[600:], y[600:]) == pytest.approx(rate, abs=0.1)


def test_classes_that_the_model_does_not_know_are_mistakes() -> None:
    X = np.repeat(np.eye(2), 20, axis=0)
    model = PLLClassifier(PlKnn(neighbours=3)).fit(X, ["a"] * 20 + ["b"] * 20)
    for scorer in SCORERS.values():
        assert scorer(model, np.eye(2), [{"a", "b"}, {"c"}]) <= 0.5
        assert scorer(model, np.eye(2), ["a", "c"]) == 0.5


@pytest.mark.parametrize("measure", [covering_rate, approximated_accuracy])
def test_arrays_of_other_shapes_are_refused(measure: Any) -> None:
    for shapes in (((3, 2), (3, 3)), ((0, 2), (0, 2))):
        with pytest.raises(InputError, match=r"must both have shape \(n, k\), with one row"):
            measure(*map(np.ones, shapes))
