"""The scikit-learn face: conventions, all forms of X and y, refusals, what a failure leaves."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from rich.console import Console
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

from robustpll import PGD, Candidates, InputError, PLLClassifier, RobustPLLClassifier, Votes
from robustpll.engine.history import progress_bars, reporting
from robustpll.methods import Proden, RobustPll

NAMES = np.array(["ant", "bee", "cow"])
X, LABELS = make_blobs(90, centers=3, cluster_std=0.7, center_box=(-8, 8), random_state=3)
MATRIX = np.random.default_rng(0).random((90, 3)) < 0.25
MATRIX[np.arange(90), LABELS] = True
SETS = np.array([frozenset(NAMES[row].tolist()) for row in MATRIX])
ANSWERS = np.stack([NAMES[LABELS], NAMES[LABELS], NAMES[MATRIX.argmax(-1)]], axis=1)
FORMS = {
    "matrix": MATRIX.astype(int),
    "sets": SETS,
    "candidates": Candidates.of(SETS),
    "votes": Votes(ANSWERS),
}
TABLE = pd.DataFrame(
    {
        "number": X[:, 0],
        "gaps": np.where(np.arange(90) % 7 == 0, np.nan, X[:, 1]),
        "word": NAMES[LABELS],
        "kind": pd.Categorical(np.array(["x", "y", None], dtype=object)[np.arange(90) % 3]),
        "truth": LABELS == 1,
        "maybe": pd.array([True, None, False] * 30, dtype="boolean"),
    }
)
ATTRIBUTES = {"classes_", "label_weights_", "labels_", "opinion_", "history_", "features_"}


def quick(epochs: int = 30, **params: Any) -> RobustPLLClassifier:
    return RobustPLLClassifier(epochs=epochs, **({"random_state": 0} | params))


@pytest.fixture(scope="module")
def fitted() -> RobustPLLClassifier:
    """Only for tests that do not change it."""
    return quick().fit(X, SETS)


def pictures(*shape: int) -> np.ndarray:
    """One picture for each row, bright in a corner that depends on its label."""
    drawn = np.random.default_rng(0).random((90, *shape)) * 0.3
    for label, corner in enumerate([np.s_[..., :4, :4], np.s_[..., 4:, :4], np.s_[..., :4, 4:]]):
        rows = drawn[label == LABELS]
        rows[corner] += 1
        drawn[label == LABELS] = rows
    return drawn


# scikit-learn's own checks

CANNOT_HOLD = {
    "check_sample_weight_equivalence_on_dense_data": (
        "A repeated row changes the mini-batches and the statistics of BatchNorm, a weight does not"
    ),
}


@parametrize_with_checks(
    [
        # check_class_weight_classifiers gives one class 10,000,000 times the weight of another. A
        # network that fits all rows of the heavy class goes on to fit the light ones, so that the
        # check holds for short trainings only.
        RobustPLLClassifier(epochs=20, random_state=0),
        PLLClassifier(Proden(epochs=20), random_state=0),
    ],
    expected_failed_checks=lambda _: CANNOT_HOLD,
)
def test_scikit_learns_checks_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
    assert estimator.get_params()["random_state"] == 0


@pytest.mark.parametrize("method", [np.array([1.0]), ["proden"], {}, None, Proden])
def test_a_method_that_is_none_is_refused_by_fit_only(method: Any) -> None:
    model = PLLClassifier(method)
    assert model.get_params()["method"] is method
    with pytest.raises(InputError, match="method must be"):
        model.fit(X, LABELS)


# Pipelines, searches, parameters


@pytest.mark.parametrize("form", FORMS)
def test_a_pipeline_learns_from_every_form_of_y(form: str) -> None:
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, FORMS[form])
    assert pipeline.score(X, FORMS[form]) > 0.9
    named = LABELS if form == "matrix" else NAMES[LABELS]
    assert pipeline.score(X, named) > 0.9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (PLLClassifier("proden", random_state=0), {"method__epochs": [1, 20]}),
        (quick(), {"kl_ceiling": [0.0, 1.0]}),
    ],
)
def test_a_search_finds_parameters_for_every_form_of_y(form: str, model: Any, grid: Any) -> None:
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, FORMS[form])
    assert search.best_score_ > 0.8
    assert search.best_params_.keys() == grid.keys()
    if "method__epochs" in grid:
        assert search.best_estimator_.method == Proden(epochs=20)


def test_a_search_reaches_the_method_within_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), PLLClassifier("proden", random_state=0))
    search = GridSearchCV(pipeline, {"pllclassifier__method__epochs": [1, 20]}, cv=2)
    assert search.fit(X, SETS).best_params_ == {"pllclassifier__method__epochs": 20}


@pytest.mark.parametrize("form", FORMS)
def test_cross_validation_predicts_and_scores_every_form_of_y(form: str) -> None:
    predicted = cross_val_predict(quick(), X, FORMS[form], cv=3)
    assert np.mean(predicted == (LABELS if form == "matrix" else NAMES[LABELS])) > 0.9
    assert cross_val_score(quick(), X, FORMS[form], cv=3, error_score="raise").min() > 0.8


@pytest.mark.parametrize("form", ["matrix", "candidates"])
def test_cross_validation_gives_probabilities(form: str) -> None:
    probability = cross_val_predict(quick(), X, FORMS[form], cv=3, method="predict_proba")
    assert np.mean(probability.argmax(-1) == LABELS) > 0.9
    np.testing.assert_allclose(probability.sum(-1), 1)


def test_parameters_of_the_method_are_parameters_of_the_classifier() -> None:
    model = PLLClassifier("proden")
    assert model.get_params()["method__epochs"] == 200
    assert "method__epochs" not in model.get_params(deep=False)
    assert model.set_params(method__epochs=7, device="cpu") is model
    assert (model.method, model.device) == (Proden(epochs=7), "cpu")
    model.set_params(method="robust_pll", method__kl_ceiling=0.5)
    assert model.method == RobustPll(kl_ceiling=0.5)


@pytest.mark.parametrize("name", ["method__epoch", "epochs"])
def test_an_unknown_parameter_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"Invalid parameter '?{name.removeprefix('method__')}"):
        PLLClassifier("proden").set_params(**{name: 1})


@pytest.mark.parametrize(
    "model", [PLLClassifier("proden"), PLLClassifier(Proden(epochs=3)), quick(kl_ceiling=0.5)]
)
def test_a_clone_has_the_same_parameters_and_no_memory(model: Any) -> None:
    again = clone(model.set_params(random_state=4))
    assert again.get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        again.predict(X)


@pytest.mark.parametrize(
    ("network", "rows"), [("mlp", X), ("lenet", pictures(8, 8))], ids=["mlp", "lenet"]
)
def test_a_pickled_model_predicts_the_same(network: str, rows: np.ndarray) -> None:
    model = quick(5, network=network, members=2).fit(rows, SETS)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert not hasattr(clone(model), "fitted_")


# Score


def test_score_is_accuracy_for_labels_and_the_covering_rate_for_sets(
    fitted: RobustPLLClassifier,
) -> None:
    predicted = fitted.predict(X)
    others = [{"ant", "bee", "cow"} - {name} for name in predicted]
    right = np.arange(90) < 30
    mixed = [{a} if r else b for a, b, r in zip(predicted, others, right, strict=True)]
    assert fitted.score(X, predicted) == 1.0
    assert fitted.score(X, np.roll(NAMES, 1)[np.searchsorted(NAMES, predicted)]) == 0.0
    assert fitted.score(X, mixed) == pytest.approx(1 / 3)
    assert fitted.score(X, Candidates.of(mixed)) == pytest.approx(1 / 3)
    assert fitted.score(X, Candidates.of(mixed).matrix) == pytest.approx(1 / 3)
    assert fitted.score(X, mixed, sample_weight=right + 0.0) == 1.0
    assert fitted.score(X, mixed, sample_weight=np.where(right, 6, 1)) == pytest.approx(0.75)


def test_a_class_unknown_in_training_may_stand_in_sets_to_score(
    fitted: RobustPLLClassifier,
) -> None:
    with_zebra = [names | {"aardvark", "zebra"} for names in SETS]
    assert fitted.score(X, with_zebra) == fitted.score(X, SETS)
    assert fitted.score(X, Candidates.of(with_zebra)) == fitted.score(X, SETS)
    assert fitted.score(X, Votes(np.full((90, 2), "zebra"))) == 0.0


def test_score_reads_the_columns_of_a_table_by_their_names() -> None:
    table = pd.DataFrame(np.eye(3, dtype=int)[LABELS], columns=NAMES)
    model = quick().fit(X, table)
    assert model.score(X, table) > 0.9
    assert model.score(X, table[["cow", "bee", "ant"]]) == model.score(X, table)


@pytest.mark.parametrize("y", [[{0}] * 90, SETS[:5], LABELS[:5]], ids=["type", "rows", "labels"])
def test_score_refuses_what_cannot_be_compared(fitted: RobustPLLClassifier, y: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown classes|inconsistent numbers"):
        fitted.score(X, y)


def test_score_tells_integers_in_sets_from_the_strings_of_training() -> None:
    with pytest.raises(InputError, match="unknown classes"):
        quick(2).fit(X, LABELS).score(X, [{str(label)} for label in LABELS])


# Fitted attributes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["proden", "robust_pll", "robust_pll_ens"])
def test_fitted_attributes_describe_the_training_rows(form: str, method: str) -> None:
    model = PLLClassifier(method, random_state=0).set_params(method__epochs=5).fit(X, FORMS[form])
    candidates = Candidates.of(FORMS[form])
    assert set(vars(model)) >= ATTRIBUTES
    np.testing.assert_array_equal(model.classes_, candidates.classes)
    assert model.label_weights_.shape == model.opinion_.belief.shape == (90, 3)
    assert not model.label_weights_[~candidates.matrix].any()
    np.testing.assert_allclose(model.label_weights_.sum(-1), 1, atol=1e-6)
    assert all(label in row for label, row in zip(model.labels_, candidates.sets(), strict=True))
    assert (model.opinion_.classes == model.classes_).all()
    assert model.history_["loss"].shape == (5,)
    assert np.isfinite(model.history_["loss"]).all()
    assert (model.n_features_in_, model.features_.shape) == (2, (2,))
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize("labels", [NAMES[LABELS], LABELS * 7, LABELS == 1, LABELS + 0.0])
def test_one_candidate_each_gives_back_that_label(labels: np.ndarray, epochs: int) -> None:
    model = quick(epochs).fit(X, labels)
    np.testing.assert_array_equal(model.labels_, labels)
    assert model.classes_.dtype == model.predict(X).dtype == labels.dtype


def test_training_finds_most_labels_and_lowers_the_loss(fitted: RobustPLLClassifier) -> None:
    assert np.mean(fitted.labels_ == NAMES[LABELS]) > 0.95
    assert fitted.history_["loss"][-1] < fitted.history_["loss"][0] / 2
    np.testing.assert_allclose(fitted.predict_proba(X).sum(-1), 1)


# Inputs


def test_a_table_may_hold_numbers_words_truth_values_and_gaps() -> None:
    model = quick().fit(TABLE, SETS)
    assert list(model.feature_names_in_) == list(TABLE.columns)
    assert model.n_features_in_ == 6
    assert model.features_.columns == (
        *("number", "gaps", "gaps is missing", "word is ant", "word is bee", "word is cow"),
        *("kind is x", "kind is y", "truth", "maybe", "maybe is missing"),
    )
    assert model.score(TABLE, NAMES[LABELS]) > 0.95
    unseen = TABLE.assign(word="emu", kind=None, truth=TABLE["truth"].astype(int))
    assert np.isfinite(model.predict_proba(unseen)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[table.columns[::-1]], "order"),
        (lambda table: table.drop(columns="word"), "missing"),
        (lambda table: table.assign(more=1), "unseen"),
        (lambda table: table.assign(number="x"), "'number' held numbers"),
        (lambda table: table.assign(number=np.nan), "'number' has no value in 90 rows"),
        (lambda table: table.assign(number=np.inf), "'number' is infinite"),
        (lambda table: table[:0], "0 rows"),
    ],
)
def test_a_table_unlike_that_of_training_is_refused(change: Any, message: str) -> None:
    model = quick(2).fit(TABLE, SETS)
    with pytest.raises(ValueError, match=message):
        model.predict(change(TABLE))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.assign(when=pd.Timestamp(2020, 1, 1)), "'when' holds dates"),
        (TABLE.assign(void=np.nan), "'void' has no value"),
        (TABLE.assign(number=-np.inf), "'number' is infinite"),
        (TABLE[[]], r"column|feature"),
        (pd.concat([TABLE, TABLE["word"]], axis=1), "word"),
        (TABLE[:1], "1 row"),
    ],
    ids=["dates", "void", "infinite", "no columns", "same name twice", "one row"],
)
def test_a_table_that_cannot_be_learned_is_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick(2).fit(table, MATRIX[: len(table)])


@pytest.mark.parametrize("network", ["mlp", "lenet"])
@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (3, 8, 9)])
def test_pictures_are_learned_in_both_forms(shape: tuple[int, ...], network: str) -> None:
    rows = pictures(*shape)
    model = quick(25, network=network, learning_rate=5e-3, evidence="softplus").fit(rows, SETS)
    assert model.score(rows, NAMES[LABELS]) > 0.8
    assert (model.n_features_in_, model.features_.shape) == (np.prod(shape), shape)


@pytest.mark.parametrize("other", [(90, 64), (90, 9, 8), (90, 63), (64,), (90, 1, 8, 8), (0, 8, 8)])
def test_rows_of_another_shape_than_pictures_are_refused(other: tuple[int, ...]) -> None:
    model = quick(2).fit(pictures(8, 8), SETS)
    with pytest.raises(ValueError, match=r"shape|features|1D array|0 sample"):
        model.predict(np.zeros(other))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (X[:1], ValueError, "1 sample"),
        (X[:0], ValueError, "0 sample"),
        (X[:, :0], ValueError, "0 feature"),
        (np.zeros((90, 0, 4)), ValueError, "0"),
        (X[:, 0], ValueError, "1D array"),
        (np.where(X[3, 0] == X, np.nan, X), ValueError, "NaN"),
        (np.where(X[3, 0] == X, np.inf, X), ValueError, "infinity"),
        (np.full((90, 4, 4), np.nan), ValueError, "NaN"),
        (sparse.csr_array(X), TypeError, "[Ss]parse"),
        (np.full((90, 2), "word"), ValueError, "could not convert string to float"),
        (X[:80], ValueError, "inconsistent numbers of samples"),
    ],
)
def test_rows_that_cannot_be_learned_are_refused(
    rows: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        quick(2).fit(rows, SETS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(X[:0], "0 sample"), (X[:, :1], "features"), (X[:, :, None], "shape"), (X * 1e300, "X")],
)
def test_rows_that_cannot_be_predicted_are_refused(
    fitted: RobustPLLClassifier, rows: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.predict(rows)


def test_one_row_is_predicted_as_among_others(fitted: RobustPLLClassifier) -> None:
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in X])
    np.testing.assert_allclose(alone, together, atol=5e-6)


def test_lists_of_numbers_are_rows(fitted: RobustPLLClassifier) -> None:
    again = quick().fit(X.tolist(), SETS.tolist())
    np.testing.assert_array_equal(again.predict_proba(X.tolist()), fitted.predict_proba(X))


@pytest.mark.parametrize("rows", [X, TABLE, pictures(4, 4)], ids=["array", "table", "pictures"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_passed_is_never_changed(rows: Any, form: str) -> None:
    given = (rows, FORMS[form], np.ones(90))
    before = pickle.dumps(given)
    model = quick(2).fit(*given)
    model.predict(rows)
    model.score(*given)
    model.label_weights_[:] = 0
    assert pickle.dumps(given) == before


def test_arrays_that_must_not_be_written_are_read_without_a_warning() -> None:
    given = [X.copy(), MATRIX.copy(), np.ones(90)]
    for array in given:
        array.flags.writeable = False
    torch.set_warn_always(True)  # torch warns but once otherwise
    try:
        model = quick(2).fit(*given)
        assert model.predict(given[0]).shape == (90,)
    finally:
        torch.set_warn_always(False)


# Weights

SAME = np.zeros((40, 2)) + np.arange(40)[:, None] % 2
DISAGREE = np.repeat(["left", "right"], 20)


@pytest.mark.parametrize("method", ["proden", "robust_pll"])
@pytest.mark.parametrize("heavy", ["left", "right"])
@pytest.mark.parametrize("by", ["rows", "classes"])
def test_among_equal_rows_the_heavier_label_is_more_probable(
    method: str, heavy: str, by: str
) -> None:
    model = PLLClassifier(method, random_state=0).set_params(method__epochs=30)
    if by == "rows":
        model.fit(SAME, DISAGREE, sample_weight=np.where(heavy == DISAGREE, 20, 1))
    else:
        model.set_params(class_weight={heavy: 20}).fit(SAME, DISAGREE)
    assert model.predict_proba(SAME).mean(0)[model.classes_ == heavy] > 0.52


def test_balanced_weights_are_those_of_the_classes_by_hand() -> None:
    labels = np.array(["a"] * 60 + ["b"] * 30)
    balanced = quick(5, class_weight="balanced").fit(X, labels)
    by_hand = quick(5, class_weight={"a": 0.75, "b": 1.5}).fit(X, labels)
    by_rows = quick(5).fit(X, labels, sample_weight=np.where(labels == "a", 0.75, 1.5))
    assert (balanced.predict_proba(X) != quick(5).fit(X, labels).predict_proba(X)).any()
    for other in (by_hand, by_rows):
        np.testing.assert_allclose(balanced.predict_proba(X), other.predict_proba(X), atol=1e-5)


def test_a_rows_class_weight_is_the_mean_of_its_candidates_under_the_prior() -> None:
    votes = Votes([["a", "a", "b"], ["b", "b", "b"]] * 45)
    by_class = quick(1, class_weight={"a": 3.0}).fit(X, votes)
    by_row = quick(1).fit(X, votes, sample_weight=[7 / 3, 1] * 45)
    assert by_class.history_["loss"] == pytest.approx(by_row.history_["loss"], rel=1e-5)
    assert by_class.history_["loss"] != pytest.approx(quick(1).fit(X, votes).history_["loss"])


def test_only_the_ratios_of_weights_matter() -> None:
    huge = quick(3).fit(X, SETS, sample_weight=np.full(90, 1e300))
    assert (huge.predict_proba(X) == quick(3).fit(X, SETS).predict_proba(X)).all()


@pytest.mark.parametrize(
    "weight",
    [
        *("auto", 5, [1, 2, 3], np.ones(3), {0: -1.0}, {0: np.nan}, {0: "a"}, {0: None}),
        {0: 0, 1: 0, 2: 0},
    ],
    ids=str,
)
def test_a_bad_class_weight_is_refused(weight: Any) -> None:
    with pytest.raises(InputError, match="class_weight"):
        quick(2, class_weight=weight).fit(X, LABELS)


@pytest.mark.parametrize(
    "weight",
    [
        *(np.ones(89), np.ones((90, 1)), -np.ones(90), np.full(90, np.nan), np.full(90, np.inf)),
        *(np.zeros(90), ["a"] * 90),
    ],
    ids=["short", "2-d", "negative", "NaN", "infinite", "zero", "words"],
)
def test_a_bad_sample_weight_is_refused(weight: Any) -> None:
    with pytest.raises(InputError, match="sample_weight"):
        quick(2).fit(X, LABELS, sample_weight=weight)


# Seeds, devices, hyperparameters


@pytest.mark.parametrize("seeds", [(0, 1), (None, None)])
def test_another_seed_gives_another_model(seeds: tuple[Any, Any]) -> None:
    a, b = (quick(2, random_state=seed).fit(X, SETS).predict_proba(X) for seed in seeds)
    assert (a != b).any()


@pytest.mark.parametrize("network", ["mlp", "lenet"])
def test_the_same_seed_gives_the_same_model(network: str) -> None:
    rows = pictures(8, 8)
    models = [quick(3, network=network, members=2).fit(rows, SETS) for _ in range(2)]
    np.testing.assert_array_equal(*(model.predict_proba(rows) for model in models))
    np.testing.assert_array_equal(*(model.label_weights_ for model in models))


def test_a_random_state_object_is_drawn_from() -> None:
    state = np.random.RandomState(0)  # what scikit-learn hands around
    first, second = (quick(2, random_state=state).fit(X, SETS).predict_proba(X) for _ in range(2))
    assert (first != second).any()
    np.testing.assert_array_equal(first, quick(2).fit(X, SETS).predict_proba(X))


@pytest.mark.parametrize("device", ["mps", "tpu", "meta", "", None, 1.5])
def test_a_device_that_is_not_supported_is_refused(device: Any) -> None:
    with pytest.raises(InputError, match="device"):
        quick(2, device=device).fit(X, SETS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(InputError, match="no CUDA device here"):
        quick(2, device="cuda").fit(X, SETS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epochs", 0), ("epochs", 1.5), ("epochs", True), ("batch_size", 1), ("members", 0)),
        *(("learning_rate", 0), ("learning_rate", np.nan), ("weight_decay", -1)),
        *(("kl_ceiling", -1), ("kl_ceiling", (1.0, 2.0)), ("kl_ceiling", np.ones(2))),
        *(("kl_ceiling", "1"), ("kl_scale_large_k", np.inf), ("network", "cnn"), ("network", 3)),
        *(("network", np.ones(2)), ("anneal", "never"), ("loss", ["squared"]), ("update", 1)),
        *(("evidence", "elu"), ("precision", "float16")),
    ],
)
def test_a_bad_hyperparameter_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"'{name}' of RobustPll must be"):
        quick(**{"epochs": 2, name: value}).fit(X, SETS)


@pytest.mark.parametrize("method", ["foo", 3])
def test_an_unknown_method_is_refused_with_the_known_ones(method: Any) -> None:
    with pytest.raises(InputError, match=r"pl_knn, .*proden, .*robust_pll"):
        PLLClassifier(method).fit(X, SETS)


# What a failure leaves, and what a success does not touch


def stop_at_three(title: str, epoch: int, epochs: int, loss: Tensor) -> None:
    if epoch == 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize("verbose", [False, True])
def test_ctrl_c_leaves_an_unfitted_model_unfitted(verbose: bool) -> None:
    def fail(shape: tuple[int, ...], k: int) -> nn.Module:
        raise KeyboardInterrupt

    model = quick(verbose=verbose, network=fail)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, SETS)
    assert vars(model) == before
    model.set_params(verbose=False, network="mlp")
    with reporting(stop_at_three), pytest.raises(KeyboardInterrupt):
        model.fit(X, SETS)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not ATTRIBUTES & set(vars(model))
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("rows", [TABLE[["number", "truth"]], pictures(4, 4)], ids=["table", "3-d"])
def test_ctrl_c_leaves_a_fitted_model_as_it_was(rows: Any) -> None:
    model = quick(4).fit(TABLE, SETS)
    before, predicted = dict(vars(model)), model.predict_proba(TABLE)
    with reporting(stop_at_three), pytest.raises(KeyboardInterrupt):
        model.fit(rows, LABELS)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.predict_proba(TABLE), predicted)


@pytest.mark.parametrize(
    "y", [[{1}, set()] * 45, LABELS[:5], None], ids=["empty sets", "short", "none"]
)
def test_an_error_in_a_second_fit_leaves_the_first(y: Any) -> None:
    model = quick(2).fit(TABLE, SETS)
    before, predicted = dict(vars(model)), model.predict_proba(TABLE)
    with pytest.raises(ValueError, match=r"at least|inconsistent|None"):
        model.fit(X, y)
    assert all(vars(model)[name] is before[name] for name in before | vars(model))
    np.testing.assert_array_equal(model.predict_proba(TABLE), predicted)


def test_a_second_fit_forgets_the_first() -> None:
    model = quick(3).fit(TABLE, SETS).fit(pictures(4, 4), LABELS)
    assert not hasattr(model, "feature_names_in_")
    assert (model.n_features_in_, model.classes_.tolist()) == (16, [0, 1, 2])
    fresh = quick(3).fit(pictures(4, 4), LABELS)
    np.testing.assert_array_equal(model.label_weights_, fresh.label_weights_)


def with_dropout(shape: tuple[int, ...], k: int) -> nn.Module:
    inner = nn.Linear(int(np.prod(shape)), 50)
    return nn.Sequential(nn.Flatten(), inner, nn.ReLU(), nn.Dropout(0.2), nn.Linear(50, k))


@pytest.mark.parametrize("network", ["mlp", with_dropout])
def test_torchs_generator_and_threads_are_left_alone(network: Any) -> None:
    def state() -> tuple[Any, ...]:
        numpys = np.random.get_state()[1].tolist()  # noqa: NPY002  # the global one is meant
        return torch.get_rng_state().tolist(), torch.get_num_threads(), numpys

    before = state()
    quick(2, network=network).fit(X, SETS).predict(X)
    assert state() == before
    assert torch.is_grad_enabled()


# Edge shapes


@pytest.mark.parametrize("method", ["proden", "robust_pll", "robust_pll_ens"])
@pytest.mark.parametrize(
    ("n", "k", "batch_size"),
    [(257, 3, 256), (2, 2, 256), (3, 2, 2), (5, 4, 2), (90, 3, 90), (4, 10, 256), (6, 120, 4)],
)
def test_edge_shapes_are_learned(n: int, k: int, batch_size: int, method: str) -> None:
    rng = np.random.default_rng(n)
    rows, y = rng.random((n, 3)), rng.random((n, k)) < 0.5
    y[np.arange(n), rng.integers(k, size=n)] = True
    model = PLLClassifier(method, random_state=0)
    model.set_params(method__epochs=2, method__batch_size=batch_size).fit(rows, y)
    assert model.predict_proba(rows).shape == model.label_weights_.shape == (n, k)
    assert np.isfinite(model.predict_proba(rows)).all()
    assert model.predict(rows[:1]).shape == (1,)


def test_a_callable_builds_the_network() -> None:
    model = quick(60, network=with_dropout, learning_rate=0.05).fit(X, SETS)
    assert model.score(X, NAMES[LABELS]) > 0.8
    assert isinstance(model.fitted_.net.copies[0][1], nn.Linear)


def test_members_may_have_ceilings_of_their_own() -> None:
    model = quick(10, members=3, kl_ceiling=(0.0, 1.0, 50.0)).fit(X, SETS)
    assert len(model.fitted_.seeds) == len(set(model.fitted_.seeds)) == 3
    equal = quick(10, members=3, kl_ceiling=1.0).fit(X, SETS)
    assert (model.predict_proba(X) != equal.predict_proba(X)).any()
    np.testing.assert_allclose(model.predict_proba(X).sum(-1), 1)


def test_verbose_shows_a_bar_with_the_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    quick(7, verbose=True).fit(X, SETS)
    shown = capsys.readouterr().out
    assert "RobustPll" in shown
    assert "7/7" in shown
    quick(7).fit(X, SETS)
    assert capsys.readouterr().out == ""


def test_a_notebook_shows_lines_and_no_warning() -> None:
    """rich would ask for ipywidgets, and show nothing; here warnings are errors."""
    shown = io.StringIO()
    with progress_bars(Console(file=shown, force_jupyter=True)):
        quick(30).fit(X, SETS)
        quick(3).fit(X, SETS)
    lines = shown.getvalue().splitlines()
    assert len(lines) == 10 + 3
    assert lines[0].startswith("RobustPll: epoch 3 of 30, loss ")
    assert lines[-1].startswith("RobustPll: epoch 3 of 3, loss ")


class Table:
    """Has the protocol that tables of other libraries have, and nothing of pandas."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame, self.columns = frame, list(frame.columns)

    def to_numpy(self) -> np.ndarray:
        return self.frame.to_numpy()

    def to_pandas(self) -> pd.DataFrame:
        return self.frame

    def __dataframe__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


class Streamed:
    """Only gives out its data as Arrow does."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.table, self.shape = pa.Table.from_pandas(frame), frame.shape

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", [Table, Streamed, pa.Table.from_pandas])
def test_a_table_of_another_library_is_read_as_one_of_pandas(form: Any) -> None:
    plain = quick(3).fit(TABLE, SETS)
    model = quick(3).fit(form(TABLE), SETS)
    assert list(model.feature_names_in_) == list(TABLE.columns)
    expected = plain.predict_proba(TABLE)
    np.testing.assert_array_equal(model.predict_proba(form(TABLE)), expected)
    np.testing.assert_array_equal(model.predict_proba(TABLE), expected)


def test_a_table_that_takes_another_package_names_it() -> None:
    class NeedsMore(Table):
        def to_pandas(self) -> pd.DataFrame:
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    with pytest.raises(InputError, match=r"A NeedsMore is read by pyarrow.* pip install pyarrow"):
        quick(3).fit(NeedsMore(TABLE), SETS)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, float])
def test_shares_may_be_numbers_of_any_type(kind: Any) -> None:
    model = quick(3, watch=kind(0.25)).fit(X, SETS)
    assert model.decide(X, coverage=kind(0.5)).coverage == pytest.approx(0.5, abs=0.05)
    model.calibrate_decisions(X, NAMES[LABELS], confidence=kind(0.5)).decide(X, error=kind(0.25))


@pytest.mark.parametrize("share", [True, np.True_, np.nan, np.float32("nan"), 1.5, 0.5j, "0.5"])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(InputError, match="coverage must be a number"):
        quick(1).fit(X, SETS).decide(X, coverage=share)


# What a hurried user does


def test_y_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="X has 90 rows, but y has 30"):
        quick().fit(X, LABELS[:30])
    with pytest.raises(InputError, match="X has 90 rows, but y has 30"):
        quick(1).fit(X, LABELS).score(X, LABELS[:30])


def test_gaps_in_an_array_are_refused_by_row_with_the_way_out() -> None:
    gaps = X.copy()
    gaps[[4, 7], 0] = np.nan
    with pytest.raises(InputError, match=r"2 rows \(4, 7\).* pass a DataFrame"):
        quick().fit(gaps, LABELS)


@pytest.mark.parametrize(
    "rows", [[["a", "b"]] * 90, [np.ones((2, 2)), np.ones((3, 2))] * 45, np.ones((90, 1, 2, 2, 2))]
)
def test_what_is_no_array_of_numbers_is_refused(rows: Any) -> None:
    with pytest.raises(InputError, match="X"):
        quick().fit(rows, LABELS)


def test_a_misspelt_class_weight_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown classes \('dgo'\)"):
        quick(class_weight={"dgo": 9}).fit(X, NAMES[LABELS])


def test_an_attack_must_be_one(fitted: RobustPLLClassifier) -> None:
    with pytest.raises(InputError, match=r"such as PGD\(0.1\); got 0.1"):
        fitted.predict_opinion(X, 0.1)


def test_true_labels_are_passed_to_the_attack_by_name(fitted: RobustPLLClassifier) -> None:
    attacked = fitted.predict_opinion(X, PGD(0.3, labels="true"), NAMES[LABELS])
    clean = fitted.predict_opinion(X)
    rows = np.arange(90)
    assert attacked.probability[rows, LABELS].mean() < clean.probability[rows, LABELS].mean()
