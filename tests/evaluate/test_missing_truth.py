"""Candidate sets that miss the truth are found by models that have not seen them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from robustpll import Candidates, InputError, PLLClassifier, Votes
from robustpll.evaluate.reports import missing_truth_scores, suspicion
from robustpll.methods import PlKnn
from robustpll.opinion import Opinion


def test_faulty_sets_are_found_best_by_their_rival(digits: Any, candidates: np.ndarray) -> None:
    """In some rows another class stands for the true one, in sets of the same size."""
    X, labels, y = digits[0], digits[2], candidates.copy()
    random = np.random.default_rng(0)
    missing = (random.random(len(labels)) < 0.2) & ~candidates.all(-1)
    for row in np.flatnonzero(missing):
        y[row, random.choice(np.flatnonzero(~candidates[row]))] = True
        y[row, labels[row]] = False
    rival, probability = (
        roc_auc_score(
            missing, missing_truth_scores(PLLClassifier(PlKnn()), X, y, by=by, random_state=0)
        )
        for by in ("rival", "probability")
    )
    assert rival > 0.95
    assert rival > probability + 0.1


def test_a_row_is_judged_by_what_others_teach() -> None:
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
    candidates = np.array([[True, True, False, False]])
    scores = {"rival": 0.3 / 0.7, "probability": 0.5, "belief": 0.5 - 0.2 * 0.5}
    for by, score in scores.items():
        assert suspicion(opinion, candidates, by) == pytest.approx([score])  # type: ignore[arg-type]


def test_rivals_above_one_half_are_rows_whose_prediction_is_no_candidate() -> None:
    random = np.random.default_rng(0)
    opinion = Opinion.of_probability(random.dirichlet(np.full(5, 0.5), size=200))
    candidates = (random.random((200, 5)) < 0.5) | np.eye(5, dtype=bool)[np.arange(200) % 5]
    outvoted = ~candidates[np.arange(200), opinion.predicted()]
    np.testing.assert_array_equal(suspicion(opinion, candidates) > 0.5, outvoted)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be an int of at least 2 and at most half of 6 rows; got 1"),
        ({"folds": 4}, "folds must be an int"),
        ({"by": "size"}, "by must be one of 'rival', 'probability', 'belief'"),
        ({"y": ["a", "b"] * 2}, "X has 6 rows, but y has 4"),
    ],
)
def test_what_cannot_be_judged_is_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"X": np.eye(6), "y": ["a", "b"] * 3, "folds": 2} | change
    with pytest.raises(InputError, match=message):
        missing_truth_scores(PLLClassifier(PlKnn(neighbours=1)), **arguments)
