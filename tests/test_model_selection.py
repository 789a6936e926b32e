"""Folds of rows with candidates, and what scikit-learn's own tools do with candidates."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV, SelectKBest, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    check_cv,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    train_test_split,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.semi_supervised import SelfTrainingClassifier

from robustpll import Candidates, InputError, PLLClassifier, Votes
from robustpll.engine.data import fold_indices
from robustpll.evaluate.reports import SCORERS
from robustpll.model_selection import CandidateKFold

LABELS = np.repeat(["a", "b", "c"], 20)
X = np.repeat(np.eye(3), 20, axis=0)
SETS = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
Y = Candidates.of(SETS)
FORMS: dict[str, Any] = {
    "candidates": Y,
    "sets": SETS,
    "object array": np.array([frozenset(row) for row in SETS], dtype=object),
    "lists": [sorted(row) for row in SETS],
    "matrix": Y.matrix.astype(int),
    "labels": LABELS,
    "votes": Votes([sorted(row) * 2 for row in SETS if len(row) == 1] * 2),
}
MODEL = PLLClassifier("pl_knn")


@settings(max_examples=60)
@given(st.integers(2, 7), st.integers(7, 60), st.integers(2, 8), st.integers(0, 5))
def test_folds_part_the_rows_and_spread_every_class(
    n_splits: int, n: int, k: int, seed: int
) -> None:
    prior = np.random.default_rng(seed).dirichlet(np.ones(k), n).astype(np.float32)
    y = Candidates(prior > 0, np.arange(k), prior)
    tests = []
    for train, test in CandidateKFold(n_splits, random_state=seed).split(np.zeros((n, 1)), y):
        assert sorted([*train, *test]) == list(range(n))
        tests.append(test)
    assert sorted(np.concatenate(tests)) == list(range(n))
    assert np.ptp([len(test) for test in tests]) <= 1
    for label in range(k):  # also those with fewer rows than folds
        assert np.ptp([(prior[test].argmax(-1) == label).sum() for test in tests]) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_y_is_split_by_the_seed(form: str) -> None:
    y = FORMS[form]
    rows = np.zeros((len(y), 1))

    def folds(splitter: CandidateKFold) -> list[list[int]]:
        return [test.tolist() for _, test in splitter.split(rows, y)]

    splitter = CandidateKFold(3, random_state=1)
    assert splitter.get_n_splits() == 3
    assert folds(splitter) == folds(splitter) == folds(clone(splitter, safe=False))
    assert folds(splitter) != folds(CandidateKFold(3, random_state=2))
    assert folds(CandidateKFold(3)) != folds(CandidateKFold(3))
    tests = folds(splitter)
    assert max(map(max, tests)) - min(map(max, tests)) < len(y) / 3  # shuffled


def test_equally_likely_candidates_are_spread_by_the_seed() -> None:
    y = Candidates.of([{"a", "b", "c"}] * 300)
    first, second = (y.likeliest(random_state=seed) for seed in (0, 1))
    assert min(Counter(first.tolist()).values()) > 70
    assert (first != second).any()
    votes = Candidates.of(Votes([["a", "a", "b"], ["c", "b", "b"]]))
    assert votes.likeliest().tolist() == [0, 1]


def test_splitters_read_as_they_are_written_and_refuse_what_scikit_learn_refuses() -> None:
    assert repr(CandidateKFold(4, random_state=2)) == "CandidateKFold(n_splits=4, random_state=2)"
    for wrong in (1, 2.5):
        with pytest.raises(ValueError, match="fold"):
            CandidateKFold(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_splits=61"):
        next(CandidateKFold(61).split(X, Y))
    with pytest.raises(InputError, match="requires y"):
        next(CandidateKFold(3).split(X))
    with pytest.warns(UserWarning, match="groups parameter is ignored by CandidateKFold"):
        next(CandidateKFold(3).split(X, Y, groups=LABELS))


@pytest.mark.parametrize("form", ["candidates", "object array", "matrix", "labels"])
def test_searches_and_cross_validation_use_the_folds(form: str) -> None:
    """Of rows that are sorted by class, folds without a shuffle would hold out whole classes."""
    y, cv = FORMS[form], CandidateKFold(4, random_state=0)
    assert cross_val_score(MODEL, X, y, cv=cv).tolist() == [1.0] * 4
    predicted = cross_val_predict(MODEL, X, y, cv=cv)
    named = np.searchsorted(Y.classes, LABELS) if form == "matrix" else LABELS
    assert (predicted == named).all()
    search = GridSearchCV(MODEL, {"method__neighbours": [2, 3]}, cv=cv, error_score="raise")
    assert search.fit(X, y).best_score_ == 1.0


def test_plain_cross_validation_of_candidates_is_stratified() -> None:
    assert cross_val_score(MODEL, X, Y, cv=3).tolist() == [1.0] * 3
    assert GridSearchCV(MODEL, {"scale": ["minmax"]}, cv=3).fit(X, Y).best_score_ == 1.0
    assert learning_curve(MODEL, X, Y, cv=3, train_sizes=[1.0])[2].tolist() == [[1.0] * 3]


@pytest.mark.parametrize(
    "splitter",
    [
        StratifiedKFold(3),
        StratifiedKFold(3, shuffle=True),
        StratifiedGroupKFold(3),
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2),
    ],
)
def test_stratified_splitters_get_the_likeliest_class(splitter: Any) -> None:
    y = Candidates.of(Votes([["a", "a", "b"], ["c", "b", "b"]] * 30))
    groups = np.arange(60) // 2 if isinstance(splitter, StratifiedGroupKFold) else None
    for _, test in splitter.split(X, y, groups):
        assert Counter(y.likeliest()[test].tolist()) == {0: 10, 1: 10}
    _, _, _, held_out = train_test_split(X, y, stratify=y, random_state=0, test_size=0.5)
    assert Counter(held_out.likeliest().tolist()) == {0: 15, 1: 15}
    assert np.asarray(y).shape == (60, 3)  # whoever else asks gets the matrix


def test_stratified_splitters_take_votes_and_folds_by_number_stay() -> None:
    votes = Votes([["a", "a", "b"], ["c", "b", "b"]] * 30)
    for _, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, votes):
        assert Counter(Candidates.of(votes).likeliest()[test].tolist()) == {0: 10, 1: 10}
    assert len(train_test_split(X, votes, stratify=votes, random_state=0)[3]) == 15
    assert type(check_cv(3, votes, classifier=True)) is KFold  # as in version 0.1
    assert np.asarray(votes).shape == (60, 3)  # whoever else asks gets the answers


@pytest.mark.parametrize("y", [Y, Votes([[label, "a"] for label in LABELS])], ids=type)
def test_searches_that_halve_and_select_take_candidates_and_votes(y: Any) -> None:
    grid = {"method__neighbours": [2, 40]}
    search = HalvingGridSearchCV(MODEL, grid, cv=3, random_state=0, error_score="raise")
    assert search.fit(X, y).best_params_ == {"method__neighbours": 2}
    selector = SequentialFeatureSelector(MODEL, n_features_to_select=2, cv=CandidateKFold(3))
    assert selector.fit(X, y).get_support().sum() == 2
    with pytest.raises(InputError, match="need true labels"):  # the likeliest class is none
        search.set_params(scoring="accuracy").fit(X, y)


META = {
    "recalibrate": CalibratedClassifierCV(MODEL, cv=3),
    "members=10": BaggingClassifier(MODEL, 3),
    "RobustPLLClassifier, which stacks": StackingClassifier([("a", MODEL)], cv=3),
    "average predict_proba": VotingClassifier([("a", MODEL)]),
    "Wrapped": AdaBoostClassifier(MODEL),
    "itself": OneVsRestClassifier(MODEL),
}


@pytest.mark.parametrize("remedy", META)
def test_meta_estimators_refuse_candidates_and_name_the_alternative(remedy: str) -> None:
    meta = META[remedy]
    name = type(meta).__name__
    with pytest.raises(InputError, match=f"{name} needs one label per row.*{remedy}"):
        meta.fit(X, Y)
    with pytest.raises(InputError, match=f"{name} needs one label per row.*{remedy}"):
        meta.fit(X, Votes([[label, None] for label in LABELS]))
    with pytest.raises(InputError, match=name):  # inside of a search, too
        cross_val_score(meta, X, Y, cv=3, error_score="raise")
    if name not in ("AdaBoostClassifier", "BaggingClassifier"):  # PlKnn takes no weights
        assert meta.fit(X, LABELS).predict(X).tolist() == LABELS.tolist()


@pytest.mark.parametrize("y", [Y, Votes([[label, None] for label in LABELS])])
def test_metrics_refuse_candidates_and_name_the_alternative(y: Any) -> None:
    for scoring in ("neg_log_loss", "roc_auc", "average_precision", "accuracy", "f1_macro"):
        with pytest.raises(InputError, match=r"need true labels.*pass no `scoring`"):
            cross_val_score(MODEL, X, y, scoring=scoring, error_score="raise")
    with pytest.raises(InputError, match="need true labels"):
        log_loss(y, Candidates.of(y).prior)
    for own in (None, SCORERS["approximated_accuracy"]):
        assert cross_val_score(MODEL, X, y, scoring=own).min() > 0
    assert cross_val_score(MODEL, X, LABELS, scoring="roc_auc_ovr").min() == 1


@pytest.mark.parametrize(
    ("meta", "remedy"),
    [
        (MultiOutputClassifier(MODEL), "it knows all classes"),
        (SelfTrainingClassifier(MODEL), r"Candidates.of\(y, unanswered='all classes'\)"),
        (TunedThresholdClassifierCV(MODEL), "a threshold of your own"),
        (SelectKBest(k=1), "SequentialFeatureSelector"),
        (RFECV(LogisticRegression()), "SequentialFeatureSelector"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_other_parts_of_scikit_learn_that_need_labels_say_so(meta: Any, remedy: str) -> None:
    for y in (Y, Votes([[label, None] for label in LABELS])):
        with pytest.raises(InputError, match=f"{type(meta).__name__} needs one label .*{remedy}"):
            meta.fit(X, y)


@pytest.mark.parametrize(
    "inner",
    [
        BaggingClassifier(RandomForestClassifier(5), 3),
        AdaBoostClassifier(n_estimators=3),
        VotingClassifier(
            [("a", RandomForestClassifier(5)), ("b", LogisticRegression())], voting="soft"
        ),
        StackingClassifier([("a", RandomForestClassifier(5))], LogisticRegression(), cv=3),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_the_wrapped_meta_estimators_that_messages_name_work(inner: Any) -> None:
    from robustpll.methods import Wrapped

    model = PLLClassifier(Wrapped(inner), random_state=0).fit(X, Y)
    assert model.score(X, LABELS) == 1.0


def test_folds_of_bundles_are_stratified_for_candidates() -> None:
    train, test = fold_indices(Candidates.of(LABELS), 3, seed=0)
    for fold in range(3):
        counts = Counter(LABELS[test[fold]].tolist())
        assert set(counts) == {"a", "b", "c"}
        assert set(counts.values()) <= {6, 7}
        assert not set(train[fold].tolist()) & set(test[fold].tolist())
