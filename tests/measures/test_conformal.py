"""Prediction sets keep their promise, and say what it rests on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from robustpll import Candidates, InputError, PLLClassifier
from robustpll.measures.conformal import ConformalSets, least_probability
from robustpll.methods import Proden

SPLITS = 60


class Known:
    """A classifier whose rows are the probabilities themselves."""

    def __init__(self, k: int) -> None:
        self.classes_ = np.arange(k)

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(X)


def draw(n: int, seed: int = 0, trust: float = 0.8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, labels that follow them with `trust`, and candidates with the labels."""
    random = np.random.default_rng(seed)
    X = random.dirichlet(np.full(6, 0.4), size=n)
    labels = np.array([random.choice(6, p=trust * row + (1 - trust) / 6) for row in X])
    candidates = random.random((n, 6)) < 0.3
    candidates[np.arange(n), labels] = True
    return X, labels, candidates


def coverages(X: np.ndarray, y: Any, is_covered: Any, **options: Any) -> np.ndarray:
    """The share of covered rows in the second halves of random orders."""
    random, shares = np.random.default_rng(1), []
    for _ in range(SPLITS):
        known, later = np.split(random.permutation(len(X)), 2)
        sets = ConformalSets.of(Known(6), X[known], y[known], 0.8, **options).predict(X[later])
        shares.append(is_covered(sets, later).mean())
    return np.array(shares)


def holds(labels: np.ndarray) -> Any:
    """Whether sets hold the true labels."""
    return lambda sets, rows: sets[np.arange(len(rows)), labels[rows]]


def test_labels_are_covered_as_promised_within_sampling_error() -> None:
    """Beta-binomial: n = 200 known rows, the 161st smallest score, 200 later rows."""
    X, labels, _ = draw(400)
    shares = coverages(X, labels, holds(labels))
    n, m = 200, 161
    mean = m / (n + 1)
    spread = np.sqrt(mean * (1 - mean) * (n + 1 + 200) / (200 * (n + 2)))
    assert abs(shares.mean() - mean) < 3 * spread / np.sqrt(SPLITS)
    assert shares.std() == pytest.approx(spread, rel=0.3)


def test_candidate_sets_promise_what_they_can() -> None:
    X, labels, candidates = draw(400)

    def mean(is_covered: Any, hold: str) -> float:
        return float(coverages(X, candidates, is_covered, hold=hold).mean())

    least = 0.8 - 3 * 0.04 / np.sqrt(SPLITS)
    all_covered = mean(lambda sets, rows: (sets | ~candidates[rows]).all(-1), "all")
    truth_covered = mean(holds(labels), "all")
    assert truth_covered >= all_covered >= least
    assert mean(lambda sets, rows: (sets & candidates[rows]).any(-1), "any") >= least
    assert mean(holds(labels), "any") < 0.8 < truth_covered
    # missing truths lower the coverage by at most their share
    without = np.random.default_rng(2).random(400) < 0.1
    candidates[without, labels[without]] = False
    candidates[~candidates.any(-1), 0] = True
    missing = ~candidates[np.arange(400), labels]
    assert mean(holds(labels), "all") >= 0.8 - missing.mean() - 0.012
    # right weights cover about as promised: labels follow the probabilities
    X, labels, candidates = draw(2000, trust=1.0)
    assert mean(holds(labels), "weighted") == pytest.approx(0.8, abs=0.02)


def test_thresholds_of_worked_numbers() -> None:
    """Least likely candidates: 0.3, 0.5, 0.1, 0.2; likeliest ones: 0.6, 0.5, 0.8, 0.4.

    With 4 rows and coverage 0.6 the 3rd largest counts.
    """
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
    y = Candidates.of([{0, 1}, {1}, {2, 0}, {0, 1, 2}], classes=[0, 1, 2])
    assert least_probability(p, y, 0.6, "all") == 0.2
    assert least_probability(p, y, 0.6, "any") == 0.5
    # weights: 2/3 1/3 | 1 | 8/9 1/9 | 0.4 0.4 0.2; 0.889 + 0.667 + 1 = 2.56 down to 0.5, and
    # 2.56 + 0.8 = 3.36 down to 0.4
    assert least_probability(p, y, 0.6, "weighted") == 0.4
    sets = [frozenset(names) for names in ({0}, {1}, {2}, {0, 1})]
    assert ConformalSets(Known(3), 0.4).predict_sets(p) == sets


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), coverage=st.floats(0.3, 0.9))
def test_weighted_thresholds_lie_between_the_other_two(seed: int, coverage: float) -> None:
    X, labels, candidates = draw(30, seed)

    def thresholds(y: np.ndarray) -> list[float]:
        holds: tuple[Any, ...] = ("any", "weighted", "all")
        return [ConformalSets.of(Known(6), X, y, coverage, hold=hold).least for hold in holds]

    assert thresholds(candidates) == sorted(thresholds(candidates), reverse=True)
    assert len(set(thresholds(labels))) == 1


def test_tiny_probabilities_still_differ_and_nine_rows_are_enough_for_nine_in_ten() -> None:
    p = np.array([[1 - 1e-20, 1e-20, 0.0]])
    sets = ConformalSets.of(Known(3), p.repeat(9, 0), np.ones(9, dtype=int), 0.9)
    assert sets.predict(p).tolist() == [[True, True, False]]
    X, labels, _ = draw(9)
    assert ConformalSets.of(Known(6), X, labels, 0.9).least == X[np.arange(9), labels].min()


def test_sets_are_those_of_mapie(digits: Any) -> None:
    from mapie.classification import SplitConformalClassifier

    X, later, y, _ = digits
    noisy = X + np.random.default_rng(0).normal(0, 9, X.shape)
    model = LogisticRegression(C=1e-4, max_iter=2000).fit(noisy[:500], y[:500])
    for coverage in (0.8, 0.95):
        theirs = SplitConformalClassifier(model, confidence_level=coverage, prefit=True)
        theirs.conformalize(noisy[500:], y[500:])
        ours = ConformalSets.of(model, noisy[500:], y[500:], coverage).predict(later)
        np.testing.assert_array_equal(ours, theirs.predict_set(later)[1][..., 0])
        assert 1.05 < ours.sum(-1).mean() < 9


def test_sets_name_the_classes_of_a_fitted_classifier(digits: Any, candidates: np.ndarray) -> None:
    X, later, y, _ = digits
    names = np.array([f"digit {number}" for number in range(10)])
    partial = Candidates.of(candidates, classes=names)
    model = PLLClassifier(Proden(epochs=3), random_state=0).fit(X[:300], partial[:300])
    for known in (partial[600:], names[y[600:]]):
        sets = ConformalSets.of(model, X[600:], known, 0.9).predict_sets(later)
        assert set().union(*sets) <= set(names.tolist())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coverage": 1.0}, "coverage must be a number above 0 and below 1; got 1.0"),
        ({"coverage": "most"}, "coverage must be"),
        ({"coverage": 0.95}, "coverage=0.95 needs 19 rows or more; got 18"),
        ({"hold": "most"}, r"hold must be one of \('all', 'any', 'weighted'\); got 'most'"),
        ({"y": np.zeros(17, dtype=int)}, "X has 18 rows, but y has 17"),
        ({"y": np.full(18, 7)}, "unknown classes"),
    ],
)
def test_what_cannot_be_promised_is_refused(change: dict[str, Any], message: str) -> None:
    X, labels, _ = draw(18)
    with pytest.raises(InputError, match=message):
        ConformalSets.of(Known(6), **({"X": X, "y": labels, "coverage": 0.9} | change))
