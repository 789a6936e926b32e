"""Reports on a classifier, with true labels or without any."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch.utils.data import TensorDataset

from robustpll import Candidates, Decision, InputError, Opinion, PLLClassifier, Votes
from robustpll.evaluate.reports import (
    SCORERS,
    DecisionReport,
    approximated_accuracy,
    calibration_report,
    covering_rate,
    decision_report,
    missing_truth_scores,
    suspicion,
)
from robustpll.methods import PlKnn

# With true labels


def test_a_report_takes_names_of_classes_and_refuses_sets_and_other_models() -> None:
    X, y = np.repeat(np.eye(2), 5, axis=0), np.repeat(["no", "yes"], 5)
    model = PLLClassifier(PlKnn(neighbours=3)).fit(X, y)
    right, wrong = calibration_report(model, X, y), calibration_report(model, X, y[::-1])
    assert (right.accuracy, wrong.accuracy) == (1.0, 0.0)
    assert right.error < 0.01
    assert wrong.error > 0.9
    odd: dict[str, tuple[Any, Any]] = {
        "one true label": (model, [{"no", "yes"}] * 10),
        "10 rows": (model, y[:3]),
        "use calibration_of": (LogisticRegression().fit(X, y), y),
    }
    for message, (other, labels) in odd.items():
        with pytest.raises(InputError, match=message):
            calibration_report(other, X, labels)


def test_a_decision_is_compared_with_labels() -> None:
    decision = Decision(
        np.array(["a", "b", "a", "b"]),
        np.array([True, True, True, False]),
        np.array(["accepted"] * 3 + ["unlike the training data"]),
        0.5,
    )
    report = decision_report(decision, ["a", "a", "a", "a"])
    assert report == DecisionReport(0.75, pytest.approx(1 / 3), 1.0, 0.25)
    odd: dict[str, Any] = {"4 rows": ["a"], "needs a Decision": [{"a"}] * 4}
    odd["y holds labels such as 0, but the decision such as 'a'"] = [0, 1, 0, 1]
    for message, y in odd.items():
        with pytest.raises(InputError, match=message):
            decision_report(decision, y)


# Scores without labels


def test_scores_of_worked_numbers() -> None:
    """Rows: right among two of 0.5 and 0.3; no candidate; a tie of which the first is taken."""
    probability = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    candidates = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    assert covering_rate(probability, candidates) == pytest.approx(2 / 3)
    assert approximated_accuracy(probability, candidates) == pytest.approx((5 / 8 + 0 + 0.4) / 3)
    for measure in (covering_rate, approximated_accuracy):
        for shapes in (((3, 2), (3, 3)), ((0, 2), (0, 2))):
            with pytest.raises(InputError, match=r"must both have shape \(n, k\), with one row"):
                measure(*map(np.ones, shapes))


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
    grid = {"method__neighbours": [10, 250]}
    search = GridSearchCV(
        PLLClassifier(PlKnn()), grid, scoring=SCORERS, refit="covering_rate", cv=2
    )
    search.fit(X[:600], Candidates.of(candidates[:600]))
    assert search.best_params_ == {"method__neighbours": 10}
    assert (search.predict(later) == labels).mean() > 0.8
    means = {name: search.cv_results_[f"mean_test_{name}"] for name in SCORERS}
    assert (means["approximated_accuracy"] <= means["covering_rate"]).all()


def test_the_covering_rate_is_the_score_of_candidate_sets(
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


# Candidate sets that miss the truth


def test_sets_without_the_truth_are_found_best_by_their_rival(
    digits: Any, candidates: np.ndarray
) -> None:
    """In some rows another class stands for the true one, in sets of the same size."""
    X, labels, y = digits[0], digits[2], candidates.copy()
    random = np.random.default_rng(0)
    missing = (random.random(len(labels)) < 0.2) & ~candidates.all(-1)
    for row in np.flatnonzero(missing):
        y[row, random.choice(np.flatnonzero(~candidates[row]))] = True
        y[row, labels[row]] = False

    def auroc(by: Any) -> float:
        scores = missing_truth_scores(PLLClassifier(PlKnn()), X, y, by=by, random_state=0)
        return float(roc_auc_score(missing, scores))

    assert auroc("rival") > max(0.95, auroc("probability") + 0.1)


def test_a_row_is_scored_by_what_others_teach() -> None:
    """A model of the nearest row alone would find each set confirmed by itself."""
    X = np.repeat(np.arange(10.0), 4)[:, None] + np.tile(np.arange(4), 10)[:, None] / 100
    y = np.eye(2, dtype=bool)[np.repeat(np.arange(10) % 2, 4)]
    y[13] = ~y[13]
    nearest = PLLClassifier(PlKnn(neighbours=1))
    in_sample = suspicion(nearest.fit(X, y).predict_opinion(X), y)
    scores = missing_truth_scores(nearest, X, y, folds=20, random_state=0)
    assert in_sample[13] < 0.5 < scores[13]


def test_suspicion_of_worked_numbers() -> None:
    """Outside are 0.2 and 0.3 of probability; the best candidate has 0.4."""
    opinion = Opinion.of_probability(
        np.array([[0.4, 0.1, 0.2, 0.3]]), uncertainty=np.array([0.2]), prior=np.full((1, 4), 0.25)
    )
    sets = np.array([[True, True, False, False]])
    scores: dict[Any, float] = {"rival": 0.3 / 0.7, "probability": 0.5, "belief": 0.5 - 0.2 * 0.5}
    for by, score in scores.items():
        assert suspicion(opinion, sets, by) == pytest.approx([score])
    random = np.random.default_rng(0)  # above one half where the prediction is no candidate
    opinion = Opinion.of_probability(random.dirichlet(np.full(5, 0.5), size=200))
    sets = (random.random((200, 5)) < 0.5) | np.eye(5, dtype=bool)[np.arange(200) % 5]
    outvoted = ~sets[np.arange(200), opinion.predicted()]
    np.testing.assert_array_equal(suspicion(opinion, sets) > 0.5, outvoted)


def test_tables_names_and_votes_are_accepted() -> None:
    random = np.random.default_rng(0)
    names = np.array(["cat", "dog", "emu"])[random.integers(3, size=60)]
    colours = pd.Series(names).map({"cat": "grey", "dog": "brown", "emu": "black"})
    X = pd.DataFrame({"colour": colours, "weight": random.normal(size=60)})
    answers = np.column_stack([names, names, np.roll(names, 1)]).astype(object)
    answers[5] = ["cat" if names[5] != "cat" else "dog"] * 3
    scores, again = (
        missing_truth_scores(PLLClassifier("pl_knn"), X, y, random_state=0)
        for y in (Votes(answers), Candidates.of(Votes(answers)))
    )
    assert scores.argmax() == 5
    np.testing.assert_array_equal(scores, again)


def test_sparse_rows_and_datasets_are_scored_as_arrays() -> None:
    X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
    model = PLLClassifier(PlKnn(neighbours=1))
    expected = missing_truth_scores(model, X, y, random_state=0)
    pairs = TensorDataset(torch.tensor(X), torch.tensor(y))
    for form in ((coo_matrix(X), y), (pairs, None)):
        scores = missing_truth_scores(model, *form, random_state=0)
        np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be an int of at least 2 and at most half of 6 rows; got 1"),
        ({"folds": 4}, "folds must be an int"),
        ({"by": "size"}, "by must be one of 'rival', 'probability', 'belief'"),
        ({"y": ["a", "b"] * 2}, "X has 6 rows, but y has 4"),
    ],
)
def test_what_cannot_be_scored_is_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"X": np.eye(6), "y": ["a", "b"] * 3, "folds": 2} | change
    with pytest.raises(InputError, match=message):
        missing_truth_scores(None, **arguments)  # before anything is fitted
