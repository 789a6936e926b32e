"""Estimators of scikit-learn as learners: what they are given, and what comes back."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from robustpll import Candidates, InputError, PLLClassifier, Votes, missing_truth_scores
from robustpll.attacks import PGD, Square
from robustpll.bench import Grid
from robustpll.bench.grid import fields_of
from robustpll.clean.judge import judge
from robustpll.engine.data import Rows, Task
from robustpll.methods import Wrapped
from robustpll.methods.wrapped import LEARNERS, WrappedModels

RNG = np.random.default_rng(0)
LABELS = np.arange(150) % 3
X = RNG.normal(2.0 * LABELS[:, None], 1.0, size=(150, 4))
SETS = np.eye(3, dtype=bool)[LABELS] | np.eye(3, dtype=bool)[RNG.integers(3, size=150)]
NAMED = [Wrapped(name, rounds=1) for name in LEARNERS]
OBJECTS = [
    GaussianNB(),
    LinearDiscriminantAnalysis(),  # takes no sample weights
    KNeighborsClassifier(),
    KNeighborsRegressor(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()),
    make_pipeline(StandardScaler(), KNeighborsRegressor()),
    RandomForestRegressor(20, oob_score=True),
    RandomForestClassifier(20, oob_score=True),
]


class Seen(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Remembers what it was given; prefers the first class in every prediction."""

    fits: list[tuple[Any, ...]] = []  # noqa: RUF012

    def fit(self, X: Any, y: Any, sample_weight: Any) -> "Seen":
        self.classes_ = np.unique(y)
        Seen.fits.append((X, y, sample_weight))
        return self

    def predict_proba(self, X: Any) -> Any:
        first = np.arange(len(self.classes_)) == 0
        return np.tile(np.where(first, 8, 1) / (len(first) + 7), (len(X), 1))


@pytest.fixture
def fits() -> list[tuple[Any, ...]]:
    Seen.fits.clear()
    return Seen.fits


def fitted(method: Wrapped, **params: Any) -> PLLClassifier:
    return PLLClassifier(method, random_state=0, **params).fit(X, SETS)


def task_of(prior: Any, weight: Any = None, rows: Any = None) -> Task:
    rows = torch.from_numpy(X[: len(prior)] if rows is None else rows)
    prior = torch.tensor(prior, dtype=torch.float64)[None]
    weights = None if weight is None else torch.tensor(weight)[None]
    indices = torch.arange(len(rows))[None]
    return Task.of(Rows.of(rows, indices), prior > 0, (0,), prior, weights)


@pytest.mark.parametrize(
    "method", [*NAMED, *map(Wrapped, OBJECTS)], ids=lambda method: str(method)[:60]
)
def test_every_kind_of_estimator_learns_and_its_seed_decides(method: Wrapped) -> None:
    model, again = fitted(method), fitted(method)
    assert model.score(X, LABELS) > 0.85
    assert (model.labels_ == LABELS).mean() > 0.9
    assert (model.label_weights_[~SETS] == 0).all()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", LEARNERS)
def test_threads_do_not_change_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # otherwise the library uses one thread
    before, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            answers.append(fitted(Wrapped(name, rounds=1)).predict_proba(X))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*answers)


def test_the_users_estimator_is_not_changed_and_its_random_state_stays() -> None:
    forest = RandomForestClassifier(5)
    assert not hasattr(fitted(Wrapped(forest)).method.estimator, "estimators_")
    assert forest.random_state is None
    chosen = fitted(Wrapped(RandomForestClassifier(5, random_state=3)))
    assert chosen.fitted_.estimators[0].random_state == 3  # type: ignore[attr-defined]


def test_majority_and_prior_are_what_a_classifier_is_given(fits: list[tuple[Any, ...]]) -> None:
    prior = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.99999, 0.00001, 0.0]]
    shares = {"prior": [0.5, 0.25, 0.25, 0.5, 0.5, 0.99999], "majority": [1, 0.5, 0.5, 1]}
    classes = {"prior": [0, 1, 2, 1, 2, 0], "majority": [0, 1, 2, 0]}
    for labels, expected in shares.items():
        fits.clear()
        result = Wrapped(Seen(), labels=labels).fit(task_of(prior))  # type: ignore[arg-type]
        ((rows, y, weight),) = fits
        np.testing.assert_allclose(weight, expected)
        assert y.tolist() == classes[labels]
        assert rows.dtype == np.float32
        torch.testing.assert_close(result.label_weights.sum(-1), torch.ones(1, 3).double())
        assert result.held_out is None


def test_sample_weights_multiply_label_weights_and_rows_of_weight_0_are_not_learned(
    fits: list[tuple[Any, ...]],
) -> None:
    prior, weight = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]], [2.0, 0.0, 1.0]
    Wrapped(Seen(), labels="prior").fit(task_of(prior, weight))
    assert fits[0][2].tolist() == [1.0, 1.0, 1.0]
    assert fits[0][1].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "estimator", [GaussianNB(), KNeighborsRegressor(1), KNeighborsClassifier(1), Ridge()]
)
def test_sample_weights_choose_between_rows_that_contradict_each_other(estimator: Any) -> None:
    rows = np.repeat([[0.0], [1.0]], 40, axis=0) + np.tile([[0.0], [0.01]], (40, 1))
    truth = (np.arange(80) >= 40).astype(int)
    wrong = np.arange(80) % 2 == 1
    prior = np.eye(2)[np.where(wrong, 1 - truth, truth)]
    task = task_of(prior, np.where(wrong, 1e-9, 1.0), rows)
    answer = Wrapped(estimator, labels="prior").fit(task).predict(task.rows).predicted()[0]
    assert (answer[~wrong].numpy() == truth[~wrong]).all()


def test_copies_of_a_row_are_never_in_two_folds(fits: list[tuple[Any, ...]]) -> None:
    result = Wrapped(Seen(), folds=4, rounds=1).fit(task_of(np.full((40, 3), 1 / 3)))
    *folds, last = fits
    assert len(folds) == 4
    for rows, y, _ in folds:
        _, counts = np.unique(rows, axis=0, return_counts=True)
        assert len(counts) == 30
        assert (counts == 3).all()
        assert set(y) == {0, 1, 2}
    assert len(np.unique(last[0], axis=0)) == 40
    assert result.held_out is not None
    assert result.held_out.probability.shape == (1, 40, 3)


def test_rounds_end_when_label_weights_stay(fits: list[tuple[Any, ...]]) -> None:
    """`Seen` always predicts the same, so that the second round changes nothing."""
    Wrapped(Seen(), folds=2, rounds=9).fit(task_of(np.full((20, 3), 1 / 3)))
    assert len(fits) == 2 + 2 + 1


def test_votes_stay_in_the_label_weights() -> None:
    """A model that knows nothing leaves the votes as they are."""
    prior = np.tile([[0.7, 0.3]], (40, 1))
    rows = np.random.default_rng(0).normal(size=(40, 2))
    majority = Wrapped(labels="majority").fit(task_of(prior, rows=rows)).label_weights
    assert (majority[..., 0] == 1).all()
    kept = Wrapped(labels="prior").fit(task_of(prior, rows=rows)).label_weights
    torch.testing.assert_close(kept[0], torch.from_numpy(prior))


@pytest.mark.parametrize("method", [Wrapped(rounds=1), Wrapped(GaussianNB(), folds=3)])
def test_held_out_predictions_are_worse_than_those_of_rows_that_were_seen(method: Wrapped) -> None:
    """Random labels can be remembered, not predicted."""
    labels = np.random.default_rng(1).integers(2, size=60)
    rows = np.random.default_rng(2).normal(size=(60, 8))
    result = method.fit(task_of(np.eye(2)[labels], rows=rows))
    assert result.held_out is not None
    held_out = (result.held_out.predicted()[0].numpy() == labels).mean()
    seen = result.predict(task_of(np.eye(2)[labels], rows=rows).rows).predicted()[0].numpy()
    assert held_out < (seen == labels).mean() - 0.1
    assert result.without_training_rows().held_out is None
    assert result.part(slice(0, 1)).held_out is not None


@pytest.mark.parametrize("estimator", [*LEARNERS, GaussianNB(), KNeighborsClassifier(1)])
def test_a_class_of_one_row_and_a_single_class_are_no_error(estimator: Any) -> None:
    rare = np.eye(4)[[0] * 10 + [1] * 9 + [2]]
    single = np.eye(4)[[1] * 20]
    for prior in (rare, single):
        result = Wrapped(estimator, rounds=1).fit(task_of(prior))
        assert isinstance(result, WrappedModels)
        probability = result.predict(task_of(prior).rows).probability
        assert probability.shape == (1, 20, 4)
        assert (probability[..., 3] == 0).all()
        torch.testing.assert_close(probability.sum(-1), torch.ones(1, 20).double())
    assert (probability[..., 1] == 1).all()


@pytest.mark.parametrize(
    "value", ["boosting", RandomForestClassifier, LinearSVC(), StandardScaler(), None, 3]
)
def test_what_cannot_be_a_learner_is_refused(value: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"'estimator' of Wrapped must be one of 'forest', .*CalibratedClassifierCV",
    ):
        Wrapped(value)


def test_early_stopping_and_gradients_are_refused_and_square_attacks() -> None:
    with pytest.raises(InputError, match=r"Wrapped has no epochs .* Leave out watch"):
        fitted(Wrapped(GaussianNB()), watch=0.2)
    model = fitted(Wrapped(GaussianNB()))
    with pytest.raises(InputError, match=r"no gradient .* Use Square"):
        model.predict_opinion(X, PGD(0.1))
    attacked = model.predict_opinion(X, Square(0.3, queries=30), LABELS).predicted()
    assert (attacked == LABELS).mean() < model.score(X, LABELS)


@pytest.mark.filterwarnings("ignore:X has training rows")
def test_the_classifier_decides_calibrates_and_finds_missing_truths() -> None:
    model = fitted(Wrapped("logistic_regression"), class_weight="balanced")
    model.recalibrate(X, LABELS).calibrate_decisions(X, LABELS)
    decision = model.decide([*X[:30], [1e6] * 4], error=0.3)
    assert decision.accepted[:30].mean() > 0.5
    assert decision.reason[30] == "unlike the training data"
    assert missing_truth_scores(model, X, SETS).shape == (150,)


def test_parameters_reach_the_estimator_in_a_search() -> None:
    model = PLLClassifier(Wrapped(), random_state=0)
    search = GridSearchCV(model, {"method__estimator": ["logistic_regression", GaussianNB()]}, cv=2)
    assert search.fit(X, SETS).best_score_ > 0.9
    changed = clone(model).set_params(method__estimator=GaussianNB(), method__rounds=1)
    assert isinstance(changed.get_params()["method__estimator"], GaussianNB)
    assert model.method == Wrapped()


def test_rows_are_judged_by_wrapped_estimators() -> None:
    judgement = judge(X, Candidates.of(SETS), Wrapped(GaussianNB()), folds=3, device="cpu")
    assert (judgement.resolved == LABELS).mean() > 0.9


def test_grids_take_names_and_refuse_objects() -> None:
    entry = {"name": "wrapped", "estimator": "random_forest", "labels": "majority"}
    grid = Grid.of({"methods": [entry], "noise": "uniform", "epsilons": [0.1]})
    assert grid.entries[0].method == Wrapped("random_forest", labels="majority")
    assert [condition.name for condition in grid.runs()[0].conditions] == ["clean"]  # no gradient
    with pytest.raises(InputError, match=r"Wrapped.estimator is GaussianNB\(\), which cannot"):
        fields_of(Wrapped(GaussianNB()))


PEOPLE = np.where(  # the last one is mostly wrong; some did not answer
    RNG.random((150, 4)) < [0.9, 0.9, 0.8, 0.2], LABELS[:, None], RNG.integers(3, size=(150, 4))
)
PEOPLE[::5, 0] = -1


def crowd_labels(labels: Any, answers: Any = PEOPLE) -> Any:
    cells = np.where(answers < 0, np.nan, answers)
    classifier = PLLClassifier(Wrapped("logistic_regression", labels), random_state=0)
    return classifier.fit(X, Votes(cells))


@pytest.mark.parametrize("labels", ["one_coin", "dawid_skene", "crowd_kit", "cleanlab"])
def test_reliable_annotators_count_more_than_a_majority(labels: str) -> None:
    for package in filter(None, [Wrapped(labels=labels).package]):  # type: ignore[arg-type]
        pytest.importorskip(package)
    right = {name: (crowd_labels(name).labels_ == LABELS).mean() for name in (labels, "majority")}
    assert right[labels] > max(right["majority"], 0.9)


def test_cleanlab_gets_answers_and_held_out_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consensus may be a class that nobody named; rows without answers keep their prior."""
    given: list[Any] = []

    def quality(answers: Any, probability: Any, verbose: bool) -> Any:
        given.extend([answers, probability])
        consensus = {"consensus_label": 2.0, "consensus_quality_score": 0.6}
        return {"label_quality": pd.DataFrame(consensus, index=range(len(answers)))}

    module = SimpleNamespace(get_label_quality_multiannotator=quality)
    monkeypatch.setitem(sys.modules, "cleanlab.multiannotator", module)
    task = task_of(np.eye(3)[LABELS], rows=X)
    answers = np.column_stack([LABELS, LABELS, np.full(150, -1)])  # the last one is silent
    answers[0] = -1
    told = replace(task, answers=torch.from_numpy(answers)[None])
    weights = Wrapped("logistic_regression", labels="cleanlab").fit(told).label_weights[0]
    torch.testing.assert_close(weights[1], torch.tensor([0.2, 0.2, 0.6]).double())
    assert weights[0].tolist() == [1, 0, 0]
    assert given[0].shape == (149, 2)
    assert (given[1].argmax(-1) == LABELS[1:]).mean() > 0.8
    assert given[1].max(-1).mean() < 0.99  # not of models that saw the row


@pytest.mark.parametrize(
    ("labels", "module"),
    [("crowd_kit", "crowdkit.aggregation"), ("cleanlab", "cleanlab.multiannotator")],
)
def test_a_missing_package_comes_with_the_remedy(
    labels: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"pip install 'robustpll\[crowds\]'"):
        crowd_labels(labels)
    with pytest.raises(InputError, match=f"labels='{labels}' needs answers of annotators"):
        Wrapped(labels=labels).fit(task_of(np.eye(3)[LABELS], rows=X))


def test_resolving_votes_beats_their_majority_on_noisy_annotators() -> None:
    draw = np.random.default_rng(3)
    answers = np.where(
        draw.random((150, 3)) < 0.5, LABELS[:, None], draw.integers(3, size=(150, 3))
    )
    right = {
        labels: (
            PLLClassifier(Wrapped(GaussianNB(), labels), random_state=0)
            .fit(X, Votes(answers))
            .labels_
            == LABELS
        ).mean()
        for labels in ("resolved", "majority")
    }
    assert right["resolved"] > right["majority"] + 0.05
