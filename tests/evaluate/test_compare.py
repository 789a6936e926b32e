"""Baselines beside a model: what is measured, on which rows, and what is said about it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from torch.utils.data import TensorDataset

from robustpll import Votes, compare
from robustpll.errors import InputError
from robustpll.estimator.features import Features
from robustpll.evaluate import compare as module
from robustpll.evaluate.compare import Predictions, baselines, comparison_of, sampled_folds
from robustpll.labels.candidates import Candidates
from robustpll.methods import Auto, PlKnn, Wrapped

QUICK = Auto(learner="network", epochs=2, members=5)


def blobs(n: int = 120, seed: int = 0) -> tuple[Any, Any]:
    """Rows around the corners of a triangle, and their labels."""
    random, labels = np.random.default_rng(seed), np.arange(n) % 3
    return np.eye(3)[labels] + random.normal(scale=0.1, size=(n, 3)), labels


def votes_of(labels: Any, seed: int = 0, right: float = 0.8) -> Votes:
    random = np.random.default_rng(seed)
    others = random.integers(3, size=(len(labels), 3))
    codes = np.where(random.random(others.shape) < right, labels[:, None], others)
    return Votes(np.array(["a", "b", "c"], dtype=object)[codes])


def predictions(*columns: Any) -> list[Predictions]:
    return [Predictions(f"learner {n}", np.asarray(column)) for n, column in enumerate(columns)]


# the measure


def test_agreement_counts_answers_and_decided_rows() -> None:
    answers = np.array([[0, 0, 1], [1, -1, -1], [-1, -1, -1], [-1, -1, -1]])
    matrix = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=bool)
    prior = (matrix / matrix.sum(-1, keepdims=True)).astype(np.float32)
    candidates = Candidates(matrix, np.arange(3), prior, answers)
    # row 2 was decided by a person, row 3 has no answer at all
    other, ours = predictions([0, 0, 2, 1], [1, 1, 0, 0])
    result = comparison_of(candidates, ours, [other])
    assert (result.measure, result.count) == ("agreement with answers", 5)
    assert [learner.score for learner in result.learners] == [3 / 5, 2 / 5]
    assert [learner.covering_rate for learner in result.learners] == [3 / 4, 3 / 4]
    assert result.contrasts[0].standard_error == pytest.approx(np.sqrt(1 + 1 + 1) / 5)


@pytest.mark.parametrize(
    ("singles", "measure"), [(49, "covering rate"), (50, "right in rows with one candidate")]
)
def test_sets_are_measured_by_single_candidates_if_there_are_fifty(
    singles: int, measure: str
) -> None:
    candidates = Candidates.of([{"a"}] * singles + [{"b", "c"}] * 50)
    right = np.repeat([0, 1], [singles, 50])
    result = comparison_of(candidates, *predictions(right * 0), predictions(right))
    assert result.measure == measure
    assert result.count == (singles if singles == 50 else 99)
    assert [learner.covering_rate for learner in result.learners] == [1, singles / (singles + 50)]
    assert result.verdict == ("not told apart" if singles == 50 else "worse")


def test_rows_that_one_learner_did_not_predict_are_compared_for_none() -> None:
    candidates = Candidates.of(["a", "b"] * 50)
    right = np.arange(100) % 2
    partly = np.where(np.arange(100) < 60, right, -1)
    result = comparison_of(
        candidates,
        *predictions(np.where(partly < 0, 0, right)),
        [replace(learner, note="a sample") for learner in predictions(partly)],
    )
    assert (result.count, result.notes) == (60, ("a sample",))
    assert [learner.score for learner in result.learners] == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "verdict"), [(0, "not told apart"), (3, "not told apart"), (5, "worse")]
)
def test_a_difference_is_told_if_it_exceeds_two_standard_errors(wrong: int, verdict: str) -> None:
    labels = np.arange(100) % 2
    worse = np.where(np.arange(100) < wrong, 1 - labels, labels)
    first, second = predictions(labels, worse)
    candidates = Candidates.of(labels)
    advised = replace(first, advice="Take this.")
    result = comparison_of(candidates, second, [advised])
    assert result.verdict == verdict  # McNemar: b / sqrt(b) > 2
    assert ("Take this." in str(result)) == (verdict == "worse")
    assert comparison_of(candidates, first, [second]).verdict == verdict.replace("worse", "better")


def test_the_best_of_the_baselines_is_compared_with() -> None:
    labels = np.arange(100) % 2
    bad, good, ours = predictions(1 - labels, labels, np.where(np.arange(100) < 50, labels, 0))
    contrast = comparison_of(Candidates.of(labels), ours, [bad, good]).contrasts[0]
    assert (contrast.baseline, contrast.baseline_score, contrast.score) == ("learner 1", 1, 0.75)


def test_true_labels_add_an_accuracy_over_the_known_ones() -> None:
    candidates = Candidates.of([{"a", "b"}] * 4)
    truth = np.array(["a", "b", None, "unheard of"], dtype=object)
    ours, other = predictions([0, 0, 0, 0], [0, 1, 1, 1])
    result = comparison_of(candidates, ours, [other], truth)
    assert [learner.accuracy for learner in result.learners] == [2 / 3, 1 / 3]
    assert [contrast.measure for contrast in result.contrasts] == ["covering rate", "accuracy"]
    assert "accuracy" in str(result)
    assert result.verdict == result.contrasts[1].verdict
    as_list = comparison_of(candidates, ours, [other], ["a", "b", float("nan"), "unheard of"])
    assert as_list.learners == result.learners
    unknown = comparison_of(candidates, ours, [other], [None] * 4)
    assert [learner.accuracy for learner in unknown.learners] == [None, None]


def test_true_labels_decide_where_labels_mislead() -> None:
    """As on msrc-v2: the measure without true labels prefers the less accurate learner."""
    truth = np.zeros(200, dtype=int)
    candidates = Candidates.of([{1}] * 60 + [{0, 1}] * 140)  # wrong wherever there is one candidate
    ours, other = predictions(truth, truth + 1)
    other = replace(other, advice="Take this.")
    misled, informed = (comparison_of(candidates, ours, [other], t) for t in (None, truth))
    assert (misled.verdict, informed.verdict) == ("worse", "better")
    assert "Take this." in str(misled)
    assert "Take this." not in str(informed)


@pytest.mark.parametrize(("sets", "notes"), [(60, 0), (61, 1)])
def test_it_is_said_if_most_rows_have_several_candidates(sets: int, notes: int) -> None:
    candidates = Candidates.of([{"a"}] * 60 + [{"a", "b"}] * sets)
    ours, other = predictions(np.zeros(60 + sets, dtype=int), np.zeros(60 + sets, dtype=int))
    assert len(comparison_of(candidates, ours, [other]).notes) == notes


def test_titles_are_escaped_on_pages() -> None:
    labels = np.arange(100) % 2
    ours = Predictions("<b>", labels)
    html = comparison_of(Candidates.of(labels), ours, predictions(labels))._repr_html_()
    assert "<b>" not in html
    assert html.count("&lt;b&gt;") == 3


# the learners


@pytest.mark.parametrize("method", [QUICK, PlKnn()], ids=["held out by itself", "folds"])
def test_no_learner_sees_the_label_of_a_row_that_it_predicts(method: Any) -> None:
    """Labels by chance cannot be predicted; a forest knows those of its training rows."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(300, 4)), random.integers(2, size=300)
    for learner in compare(X, y, method=method, random_state=0).learners:
        assert 0.35 < learner.score < 0.65, learner


def test_a_model_that_is_worse_than_a_majority_vote_is_told() -> None:
    X, labels = blobs()
    dummy = Wrapped(DummyClassifier(), labels="prior")
    result = compare(X, votes_of(labels), method=dummy, truth=np.array(list("abc"))[labels])
    titles = ["Majority + random forest", "Majority + logistic regression", "Wrapped"]
    assert [learner.title for learner in result.learners] == titles
    assert [contrast.verdict for contrast in result.contrasts] == ["worse", "worse"]
    assert "is better than Wrapped here" in str(result)
    assert 'Consider PLLClassifier(Wrapped("' in str(result)
    *others, ours = result.learners
    for learner in others:
        assert learner.score > ours.score
        assert (learner.accuracy or 0) > 0.95 > (ours.accuracy or 0)


def test_the_default_is_fitted_once_and_others_once_per_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[int] = []
    for kind in (Auto, PlKnn):

        def counting(self: Any, task: Any, *, fit: Any = kind.fit, **more: Any) -> Any:
            runs.append(task.models)
            return fit(self, task, **more)

        monkeypatch.setattr(kind, "fit", counting)
    X, labels = blobs(60)
    y = votes_of(labels)
    for method in (QUICK, replace(QUICK, early_stopping=True), replace(QUICK, members=2), PlKnn()):
        compare(X, y, method=method, folds=3, random_state=0)
    # members that stop by held-out rows, or do not hold out all rows, need folds
    assert runs == [1, 3, 3, 3]


def test_without_votes_each_candidate_is_a_row() -> None:
    X, labels = blobs()
    _, rows = Features.fit_rows(X, "cpu")
    sets = Candidates.of([{label, (label + 1) % 3} if label else {0} for label in labels])
    forest, regression = baselines(rows, sets, seed=0)
    assert forest.title == "Each candidate + random forest"
    assert regression.title == "Each candidate + logistic regression"
    assert sets.matrix[np.arange(120), regression.predicted].mean() > 0.95


def test_many_rows_are_sampled_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 60)
    X, labels = blobs(100)
    train, test = sampled_folds(100, 5, seed=0)
    assert len(np.unique(test)) == 60
    for fold in range(5):
        assert not set(train[fold].tolist()) & set(test[fold].tolist())
    result = compare(X, labels, method=QUICK, random_state=0)
    assert result.count == 60
    assert [note.split(" learned")[0] for note in result.notes] == [
        "Each candidate + random forest",
        "Each candidate + logistic regression",
    ]
    assert "learned from 48 of 100 rows, a random sample" in str(result)


def test_the_seed_decides_everything_but_the_seconds() -> None:
    X, labels = blobs(60)
    y = votes_of(labels, right=0.5)

    def scores(seed: int) -> list[float]:
        return [one.score for one in compare(X, y, method="pl_knn", random_state=seed).learners]

    assert scores(1) == scores(1) != scores(2)


def test_pairs_of_a_dataset_are_compared_too() -> None:
    X, labels = blobs(60)
    codes = np.unique(labels, return_inverse=True)[1]
    pairs = TensorDataset(torch.tensor(X), torch.tensor(codes))
    forms = ((pairs, None), (X, codes))
    results = [compare(*form, method="pl_knn", random_state=0) for form in forms]
    assert len({tuple(learner.score for learner in result.learners) for result in results}) == 1


def test_pictures_are_compared_too() -> None:
    X, labels = blobs(60)
    pictures = np.repeat(X[:, :, None], 3, axis=2)
    assert compare(pictures, labels, method="pl_knn", random_state=0).learners[1].score > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, "folds must be an int of at least 2, at most 15; got 1"),
        ({"folds": 16}, "folds must be an int of at least 2, at most 15; got 16"),
        ({"truth": ["a"] * 29}, "truth must hold one label for each of 30 rows"),
        ({"truth": ["x"] * 29 + [None]}, "truth names none of the classes of y, which are"),
        ({"method": "magic"}, "method must be a Method or one of"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    X, labels = blobs(30)
    with pytest.raises(InputError, match=message):
        compare(X, labels, **({"method": "pl_knn"} | settings))
    with pytest.raises(InputError, match="X has 30 rows, but y has 29"):
        compare(X, labels[:-1])
