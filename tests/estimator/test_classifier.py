"""The scikit-learn face: conventions, all forms of X and y, errors, what a failure leaves."""

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
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
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from robustpll import PGD, Candidates, InputError, PLLClassifier, RobustPLLClassifier, Votes
from robustpll.engine.history import EpochState, progress_bars, reporting
from robustpll.estimator.fitting import row_weights
from robustpll.methods import Auto, Proden, RobustPll
from robustpll.model_selection import CandidateKFold

NAMES = np.array(["ant", "bee", "cow"])
X, LABELS = make_blobs(90, centers=3, cluster_std=0.7, center_box=(-8, 8), random_state=3)
MATRIX = np.random.default_rng(0).random((90, 3)) < 0.25
MATRIX[np.arange(90), LABELS] = True
SETS = np.array([frozenset(NAMES[row].tolist()) for row in MATRIX])
FORMS = {
    "matrix": MATRIX.astype(int),
    "sets": SETS,
    "candidates": Candidates.of(SETS),
    "votes": Votes(np.stack([NAMES[LABELS], NAMES[LABELS], NAMES[MATRIX.argmax(-1)]], axis=1)),
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


def quick(epochs: int = 20, **params: Any) -> RobustPLLClassifier:
    return RobustPLLClassifier(epochs=epochs, **({"members": 5, "random_state": 0} | params))


@pytest.fixture(scope="module")
def fitted() -> RobustPLLClassifier:
    """Only for tests that do not change it."""
    return quick(30).fit(X, SETS)


def images(*shape: int) -> np.ndarray:
    """One image for each row, bright in a corner that depends on its label."""
    drawn = np.random.default_rng(0).random((90, *shape)) * 0.3
    for label, corner in enumerate([np.s_[..., :4, :4], np.s_[..., 4:, :4], np.s_[..., :4, 4:]]):
        rows = drawn[label == LABELS]
        rows[corner] += 1
        drawn[label == LABELS] = rows
    return drawn


# scikit-learn's own checks

REASON = (
    "A repeated row changes the mini-batches and the statistics of BatchNorm, a weight does not"
)
CANNOT_HOLD = {
    f"check_sample_weight_equivalence_on_{kind}_data": REASON for kind in ("dense", "sparse")
}


# check_class_weight_classifiers gives one class 10,000,000 times the weight of another. A network
# that fits the heavy class goes on to fit the light one, so that it holds for short trainings only.
@parametrize_with_checks(
    [RobustPLLClassifier(epochs=20, members=5, random_state=0)],
    expected_failed_checks=lambda _: CANNOT_HOLD,
)
def test_scikit_learns_checks_pass(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
    assert estimator.get_params()["random_state"] == 0


@pytest.mark.slow
@parametrize_with_checks(
    [PLLClassifier(Proden(epochs=20), random_state=0)], expected_failed_checks=lambda _: CANNOT_HOLD
)
def test_scikit_learns_checks_pass_with_any_method(estimator: Any, check: Any) -> None:
    check(estimator)


# Pipelines, searches, parameters


@pytest.mark.parametrize("form", FORMS)
def test_pipelines_searches_and_cross_validation_take_every_form_of_y(form: str) -> None:
    y, named = FORMS[form], LABELS if form == "matrix" else NAMES[LABELS]
    pipeline = make_pipeline(StandardScaler(), PLLClassifier("proden", random_state=0))
    grid = {"pllclassifier__method__epochs": [1, 20]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_ == {"pllclassifier__method__epochs": 20}
    assert search.best_estimator_[-1].method == Proden(epochs=20)
    assert min(search.best_score_, search.score(X, y), search.score(X, named)) > 0.75
    assert np.mean(cross_val_predict(quick(30), X, y, cv=2) == named) > 0.9
    assert cross_val_score(quick(30), X, y, cv=2, error_score="raise").min() > 0.8
    if form in ("matrix", "candidates"):  # of others scikit-learn makes numbers
        probability = cross_val_predict(quick(30), X, y, cv=2, method="predict_proba")
        assert np.mean(probability.argmax(-1) == LABELS) > 0.9
        np.testing.assert_allclose(probability.sum(-1), 1)


@pytest.mark.parametrize(
    "y",
    [Votes([["yes", "no"], ["yes", "yes"]] * 10), Candidates.of([{0, 1}, {0, 2}, {0}, {0, 1}] * 5)],
    ids=["votes", "a class of all rows"],
)
def test_what_cross_validated_probabilities_would_change_is_refused(y: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    folds = CandidateKFold(2, random_state=0)
    with pytest.raises(InputError, match=r"would change y before it fits. Use method='predict'"):
        cross_val_predict(PLLClassifier("pl_knn"), rows, y, cv=folds, method="predict_proba")
    assert len(cross_val_predict(PLLClassifier("pl_knn"), rows, y, cv=folds)) == 20


def test_parameters_of_the_method_are_parameters_of_the_classifier() -> None:
    model = PLLClassifier("proden")
    assert model.get_params()["method__epochs"] == 200
    assert "method__epochs" not in model.get_params(deep=False)
    assert model.set_params(method__epochs=7, device="cpu") is model
    assert (model.method, model.device) == (Proden(epochs=7), "cpu")
    model.set_params(method="robust_pll", method__kl_ceiling=0.5)
    assert model.method == RobustPll(kl_ceiling=0.5)
    for name in ("method__epoch", "epochs"):
        with pytest.raises(ValueError, match=r"Invalid parameter .*epoch"):
            PLLClassifier("proden").set_params(**{name: 1})


def test_a_method_that_is_none_is_refused_by_fit_only() -> None:
    methods: list[Any] = [np.array([1.0]), ["proden"], {}, None, "foo", 3]
    for method in methods:
        model = PLLClassifier(method)
        assert model.get_params()["method"] is method
        with pytest.raises(InputError, match=r"method must be .*pl_knn, .*proden, .*robust_pll"):
            model.fit(X, LABELS)
    others: dict[str, Any] = {"Proden": Proden, r"Wrapped\(Ridge\(alpha=2\)\)": Ridge(alpha=2)}
    for name, method in others.items():
        with pytest.raises(InputError, match=rf"must be a Method.*Pass {name}") as caught:
            PLLClassifier(method).fit(X, LABELS)
        assert "pl_knn" not in str(caught.value)  # a list of names would not help


@pytest.mark.parametrize(("network", "rows"), [("mlp", X), ("lenet", images(8, 8))])
def test_seeds_pickles_and_clones_give_the_same_model(network: str, rows: np.ndarray) -> None:
    model, twin = (quick(3, network=network, members=2).fit(rows, SETS) for _ in range(2))
    for other in (twin, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(rows), model.predict_proba(rows))
        np.testing.assert_array_equal(other.label_weights_, model.label_weights_)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).predict(rows)
    named = PLLClassifier(Proden(epochs=3), random_state=0)
    assert clone(named).get_params() == named.get_params()


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
    for y in (mixed, Candidates.of(mixed), Candidates.of(mixed).matrix):
        assert fitted.score(X, y) == pytest.approx(1 / 3)
    assert fitted.score(X, mixed, sample_weight=right + 0.0) == 1.0
    assert fitted.score(X, mixed, sample_weight=np.where(right, 6, 1)) == pytest.approx(0.75)
    with_zebra = [names | {"aardvark", "zebra"} for names in SETS]  # unknown in training
    assert fitted.score(X, with_zebra) == fitted.score(X, SETS)
    assert fitted.score(X, Candidates.of(with_zebra)) == fitted.score(X, SETS)
    with pytest.warns(UserWarning, match=r"none of the model's classes \(.*ant.*Correct the names"):
        assert fitted.score(X, Votes(np.full((90, 2), "zebra"))) == 0.0
    table = pd.DataFrame(MATRIX.astype(int), columns=NAMES)  # read by the names of its columns
    assert fitted.score(X, table) == fitted.score(X, table[["cow", "bee", "ant"]]) > 0.9


@pytest.mark.parametrize("texts", [["a good film", "a bad one"], [["Rome", 1], ["Oslo", 2]]])
def test_words_in_an_array_are_refused_with_the_remedy(texts: Any) -> None:
    for X in (texts, np.array(texts, dtype=object)):
        with pytest.raises(InputError, match=r"Words need a DataFrame; texts also .* text=\["):
            quick(1).fit(X, ["good", "bad"])


def test_score_refuses_what_cannot_be_compared(fitted: RobustPLLClassifier) -> None:
    for y in ([{0}] * 90, SETS[:5], LABELS[:5]):
        with pytest.raises(ValueError, match=r"unknown classes|inconsistent numbers"):
            fitted.score(X, y)
    with pytest.raises(InputError, match="unknown classes"):
        quick(1).fit(X, LABELS).score(X, [{str(label)} for label in LABELS])


# Fitted attributes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", ["proden", "robust_pll_ens"])
def test_fitted_attributes_describe_the_training_rows(form: str, method: str) -> None:
    model = PLLClassifier(method, random_state=0).set_params(method__epochs=3).fit(X, FORMS[form])
    candidates = Candidates.of(FORMS[form])
    assert set(vars(model)) >= ATTRIBUTES
    np.testing.assert_array_equal(model.classes_, candidates.classes)
    assert model.label_weights_.shape == model.opinion_.belief.shape == (90, 3)
    assert not model.label_weights_[~candidates.matrix].any()
    np.testing.assert_allclose(model.label_weights_.sum(-1), 1, atol=1e-6)
    assert all(label in row for label, row in zip(model.labels_, candidates.sets(), strict=True))
    assert (model.opinion_.classes == model.classes_).all()
    assert model.history_["loss"].shape == (3,)
    assert np.isfinite(model.history_["loss"]).all()
    assert (model.n_features_in_, model.features_.shape) == (2, (2,))
    assert not hasattr(model, "feature_names_in_")


def test_training_finds_labels_and_lowers_the_loss(fitted: RobustPLLClassifier) -> None:
    assert np.mean(fitted.labels_ == NAMES[LABELS]) > 0.95
    assert fitted.history_["loss"][-1] < fitted.history_["loss"][0] / 2
    np.testing.assert_allclose(fitted.predict_proba(X).sum(-1), 1)
    for labels in (NAMES[LABELS], LABELS * 7, LABELS == 1, LABELS + 0.0):  # one candidate each
        model = quick(1).fit(X, labels)
        np.testing.assert_array_equal(model.labels_, labels)
        assert model.classes_.dtype == model.predict(X).dtype == labels.dtype


# Inputs


def test_a_table_is_learned_and_one_unlike_it_is_refused() -> None:
    model = quick(30).fit(TABLE, SETS)
    assert list(model.feature_names_in_) == list(TABLE.columns)
    assert (model.n_features_in_, len(model.features_.columns)) == (6, 11)
    assert model.score(TABLE, NAMES[LABELS]) > 0.95
    unseen = TABLE.assign(word="emu", kind=None, truth=TABLE["truth"].astype(int))
    assert np.isfinite(model.predict_proba(unseen)).all()
    tables = {
        "order": TABLE[TABLE.columns[::-1]],
        "missing": TABLE.drop(columns="word"),
        "unseen": TABLE.assign(more=1),
        "'number' held numbers": TABLE.assign(number="x"),
        "0 rows": TABLE[:0],
    }
    for message, table in tables.items():
        with pytest.raises(ValueError, match=message):
            model.predict(table)


def test_an_index_in_another_order_is_reported_and_any_other_is_ignored() -> None:
    model = PLLClassifier("pl_knn")
    labels = pd.Series(NAMES[LABELS])
    tables = {"Series": labels, "matrix": pd.get_dummies(labels) * 1}
    for y in (*tables.values(), Votes(labels.to_frame())):
        with pytest.warns(UserWarning, match="index of X in another order.* Sort y"):
            model.fit(TABLE[::-1], y)
    for y in tables.values():  # warnings are errors here
        model.fit(TABLE[::-1], y[::-1])
        model.fit(X, y).fit(TABLE, y[::-1].set_axis(labels.index + 7)).fit(
            TABLE[::-1], y.to_numpy()
        )


@pytest.mark.parametrize(("network", "shape"), [("mlp", (8, 8)), ("lenet", (3, 8, 9))])
def test_images_are_learned_in_both_forms(shape: tuple[int, ...], network: str) -> None:
    rows = images(*shape)
    model = quick(60, network=network, members=5, adversary=0).fit(rows, SETS)
    assert model.score(rows, NAMES[LABELS]) > 0.8
    assert (model.n_features_in_, model.features_.shape) == (np.prod(shape), shape)
    for other in [(90, 64), (90, 9, 8), (90, 63), (64,), (90, 2, 8, 8), (0, 8, 8)]:
        with pytest.raises(ValueError, match=r"shape|features|1D array|0 sample"):
            model.predict(np.zeros(other))


REFUSED: dict[str, Any] = {
    "1 sample": X[:1],
    "0 sample": X[:0],
    "0 feature": X[:, :0],
    "0": np.zeros((90, 0, 4)),
    "1D array": X[:, 0],
    r"NaN or infinity in 1 row \(3\).* pass": np.where(X[3, 0] == X, np.nan, X),
    "infinity": np.where(X[3, 0] == X, np.inf, X),
    "NaN": np.full((90, 4, 4), np.nan),
    r"NaN or infinity in 1 row \(3\)": sparse.csr_array(np.where(X[3, 0] == X, np.nan, X)),
    r"string to float: .*'word'\S*\. X must be an array": np.full((90, 2), "word"),
    "X must be": [np.ones((2, 2)), np.ones((3, 2))] * 45,
    "X has shape": np.ones((90, 1, 2, 2, 2)),
    "X has 80 rows, but y has 90: inconsistent numbers of samples": X[:80],
    "'void' has no value": TABLE.assign(void=np.nan),
    "0 columns": TABLE[[]],
    "1 row ": TABLE[:1],
}


@pytest.mark.parametrize("form", [list, torch.tensor])
def test_pictures_of_bytes_may_be_a_list_or_a_tensor(form: Any) -> None:
    pictures = np.random.default_rng(0).integers(0, 200, (12, 3, 4, 4), dtype=np.uint8)
    model = PLLClassifier("pl_knn").fit(form(pictures), [*"ab"] * 6)
    assert {*model.features_.scale} == {255.0}
    np.testing.assert_array_equal(model.predict(form(pictures)), model.predict(pictures))


def test_tensors_may_have_gradients() -> None:
    model = PLLClassifier("pl_knn").fit(torch.tensor(X, requires_grad=True), LABELS)
    np.testing.assert_array_equal(model.predict(X), LABELS)


def test_rows_that_cannot_be_learned_are_refused() -> None:
    for message, rows in REFUSED.items():
        with pytest.raises((InputError, TypeError), match=message):
            quick(2).fit(rows, SETS)


def test_one_row_is_predicted_as_among_others(fitted: RobustPLLClassifier) -> None:
    together = fitted.predict_proba(X)
    alone = np.concatenate([fitted.predict_proba(row[None].tolist()) for row in X])
    np.testing.assert_allclose(alone, together, atol=5e-6)
    odd = {"0 sample": X[:0], "features": X[:, :1], "shape": X[:, :, None], "X": X * 1e300}
    for message, rows in odd.items():
        with pytest.raises(ValueError, match=message):
            fitted.predict(rows)


@pytest.mark.parametrize("rows", [X, TABLE, images(4, 4)], ids=["array", "table", "images"])
def test_what_is_passed_is_never_changed(rows: Any) -> None:
    for y in FORMS.values():
        passed = (rows, y, np.ones(90))
        before = pickle.dumps(passed)
        model = quick(1).fit(*passed)
        model.score(*passed)
        model.label_weights_[:] = 0
        assert pickle.dumps(passed) == before
    arrays = [X.copy(), MATRIX.copy(), np.ones(90)]
    for array in arrays:
        array.flags.writeable = False
    torch.set_warn_always(True)  # torch warns only once otherwise, that it might write
    try:
        assert quick(1).fit(*arrays).predict(arrays[0]).shape == (90,)
    finally:
        torch.set_warn_always(False)


class Table:
    """Has what tables of other libraries have, and nothing of pandas."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame, self.columns = frame, list(frame.columns)

    def to_pandas(self) -> pd.DataFrame:
        return self.frame


def test_a_table_of_another_library_is_read_as_one_of_pandas() -> None:
    for form in (Table, pa.Table.from_pandas):
        model = quick(1).fit(form(TABLE), SETS)
        assert list(model.feature_names_in_) == list(TABLE.columns)
        np.testing.assert_array_equal(model.predict_proba(form(TABLE)), model.predict_proba(TABLE))


# Weights


@pytest.mark.parametrize("method", ["proden", "robust_pll"])
@pytest.mark.parametrize("by", ["rows", "classes"])
def test_among_equal_rows_the_heavier_label_is_more_probable(method: str, by: str) -> None:
    rows, labels = np.zeros((40, 2)) + np.arange(40)[:, None] % 2, np.repeat(["left", "right"], 20)
    model = PLLClassifier(method, random_state=0).set_params(method__epochs=30)
    if by == "rows":
        model.fit(rows, labels, sample_weight=np.where(labels == "right", 20, 1))
    else:
        model.set_params(class_weight={"right": 20}).fit(rows, labels)
    assert model.predict_proba(rows).mean(0)[1] > 0.52


def test_row_weights_worked_by_hand() -> None:
    y = Candidates.of([{"a"}, {"a", "b"}, {"b"}])
    np.testing.assert_allclose(row_weights(y, {"a": 3.0}, None), [1.5, 1, 0.5])
    np.testing.assert_allclose(row_weights(y, {"a": 3.0}, [1, 1, 0]), [1.8, 1.2, 0])
    votes = Candidates.of(Votes([["a", "a", "b"], ["b", "b", "b"]]))
    np.testing.assert_allclose(row_weights(votes, {"a": 3.0}, None), [1.4, 0.6], rtol=1e-6)
    labels = Candidates.of(["a"] * 60 + ["b"] * 30)
    balanced = row_weights(labels, "balanced", None)
    np.testing.assert_allclose(balanced, row_weights(labels, {"a": 0.75, "b": 1.5}, None))
    np.testing.assert_array_equal(row_weights(y, None, np.full(3, 1e300)), np.ones(3))


CLASS_WEIGHTS: list[Any] = ["auto", 5, [1, 2, 3], np.ones(3), {0: -1.0}, {0: np.nan}, {0: "a"}]
CLASS_WEIGHTS += [{0: None}, {0: 0, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 1, "dgo": 9}]
ROW_WEIGHTS: list[Any] = [np.ones(89), np.ones((90, 1)), -np.ones(90), np.full(90, np.nan)]
ROW_WEIGHTS += [np.full(90, np.inf), np.zeros(90), ["a"] * 90, np.nan, 0.0]


def test_a_bad_weight_is_refused() -> None:
    for weight in CLASS_WEIGHTS:
        with pytest.raises(InputError, match=r"class_weight .*('dgo')?"):
            quick(2, class_weight=weight).fit(X, LABELS)
    for weight in ROW_WEIGHTS:
        with pytest.raises(InputError, match="sample_weight"):
            quick(2).fit(X, LABELS, sample_weight=weight)


# Seeds, devices, hyperparameters


def test_another_seed_gives_another_model_and_a_state_is_drawn_from() -> None:
    state = np.random.RandomState(0)  # what scikit-learn hands around
    seeds = (0, 1, None, None, state, state)
    models = [quick(2, random_state=seed).fit(X, SETS).predict_proba(X) for seed in seeds]
    assert all((models[a] != models[b]).any() for a, b in ((0, 1), (2, 3), (4, 5)))
    np.testing.assert_array_equal(models[4], models[0])


def test_a_device_that_is_not_there_is_refused() -> None:
    devices: dict[Any, str] = dict.fromkeys(["mps", "tpu", "meta", "", None, 1.5], "device")
    if not torch.cuda.is_available():
        devices["cuda"] = "no CUDA device here"
    for device, message in devices.items():
        with pytest.raises(InputError, match=message):
            quick(2, device=device).fit(X, SETS)


ODD_SETTINGS: dict[str, list[Any]] = {
    "epochs": [0, 1.5, True],
    "batch_size": [1],
    "learning_rate": [0, np.nan],
    "weight_decay": [-1],
    "members": [0],
    "network": ["cnn", 3, np.ones(2)],
    "precision": ["float16"],
}


@pytest.mark.parametrize("name", ODD_SETTINGS)
def test_a_bad_hyperparameter_is_named(name: str) -> None:
    for value in ODD_SETTINGS[name]:
        with pytest.raises(InputError, match=f"'{name}' of Auto must be"):
            quick(**{"epochs": 2, name: value}).fit(X, SETS)


# What a failure leaves, and what a success does not touch


class FailAtThree:
    def on_epoch_end(self, state: EpochState) -> None:
        if state.epoch == 3:
            raise KeyboardInterrupt


def test_ctrl_c_or_an_error_leaves_a_model_as_it_was() -> None:
    def fail(shape: tuple[int, ...], k: int) -> nn.Module:
        raise KeyboardInterrupt

    model = quick(4, network=fail, verbose=True)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, SETS)
    assert vars(model) == before
    model.set_params(network="mlp", verbose=False).fit(TABLE, SETS)
    before, predicted = dict(vars(model)), model.predict_proba(TABLE)
    for rows in (TABLE[["number", "truth"]], images(4, 4)):
        with reporting(FailAtThree()), pytest.raises(KeyboardInterrupt):
            model.fit(rows, LABELS)
    for y in ([{1}, set()] * 45, LABELS[:5], None):
        with pytest.raises(ValueError, match=r"at least|inconsistent|None"):
            model.fit(X, y)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.predict_proba(TABLE), predicted)


def test_a_second_fit_forgets_the_first() -> None:
    model = quick(1).fit(TABLE, SETS).fit(images(4, 4), LABELS)
    assert not hasattr(model, "feature_names_in_")
    assert (model.n_features_in_, model.classes_.tolist()) == (16, [0, 1, 2])
    fresh = quick(1).fit(images(4, 4), LABELS)
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
    model = quick(60, network=network, learning_rate=0.05).fit(X, SETS)
    assert model.score(X, NAMES[LABELS]) > 0.8
    assert state() == before
    assert torch.is_grad_enabled()


# Edge shapes, networks, progress


@pytest.mark.parametrize("method", ["proden", "robust_pll", "robust_pll_ens"])
@pytest.mark.parametrize(
    ("n", "k", "batch_size"),
    [(257, 3, 256), (2, 2, 256), (3, 2, 2), (5, 4, 2), (6, 120, 4)],
)
def test_edge_shapes_are_learned(n: int, k: int, batch_size: int, method: str) -> None:
    rng = np.random.default_rng(n)
    rows, y = rng.random((n, 3)), rng.random((n, k)) < 0.5
    y[np.arange(n), rng.integers(k, size=n)] = True
    model = PLLClassifier(method, random_state=0)
    model.set_params(method__epochs=1, method__batch_size=batch_size).fit(rows, y)
    assert model.predict_proba(rows).shape == model.label_weights_.shape == (n, k)
    assert np.isfinite(model.predict_proba(rows)).all()
    assert model.predict(rows[:1]).shape == (1,)


def test_former_parameters_warn_and_train_the_former_method() -> None:
    with pytest.warns(DeprecationWarning, match=r"kl_ceiling, balance .* PLLClassifier\(RobustPll"):
        method = RobustPLLClassifier(epochs=3, kl_ceiling=2.0, balance=0.5).resolved_method()
    assert method == RobustPll(epochs=3, kl_ceiling=2.0, balance=0.5)
    with pytest.warns(DeprecationWarning, match="early_stopping instead of watch"):
        method = RobustPLLClassifier(epochs=3, watch=0.2).resolved_method()
    assert method == Auto(epochs=3, early_stopping=True)
    with pytest.warns(DeprecationWarning, match="early_stopping") as warned:
        RobustPLLClassifier(epochs=1, members=1, learner="network", watch=0.2).fit(X, SETS)
    assert warned[0].filename == __file__, "or Python does not show it"


def test_members_may_have_ceilings_of_their_own() -> None:
    ceilings = RobustPll(epochs=3, members=3, kl_ceiling=(0.0, 1.0, 50.0))
    model = PLLClassifier(ceilings, random_state=0).fit(X, SETS)
    assert len(model.fitted_.seeds) == len(set(model.fitted_.seeds)) == 3
    equal = PLLClassifier(replace(ceilings, kl_ceiling=1.0), random_state=0).fit(X, SETS)
    assert (model.predict_proba(X) != equal.predict_proba(X)).any()


def test_progress_is_a_bar_also_in_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """In a notebook rich would ask for ipywidgets, and show nothing; here warnings are errors."""
    PLLClassifier(RobustPll(epochs=7), random_state=0, verbose=True).fit(X, SETS)
    output = capsys.readouterr().out
    assert "RobustPll" in output
    assert "7/7" in output
    with progress_bars(Console(file=io.StringIO(), force_jupyter=True)):
        for epochs in (30, 3):
            PLLClassifier(RobustPll(epochs=epochs), random_state=0).fit(X, SETS)
    shown = capsys.readouterr().out.splitlines()  # without a kernel, texts instead of HTML
    assert shown[0].startswith("RobustPll: epoch 1 of 30, loss ")
    assert shown[-2].startswith("RobustPll: epoch 30 of 30, loss ")
    assert shown[-1].startswith("RobustPll: epoch 3 of 3, loss ")


@pytest.mark.parametrize("kind", [np.float32, np.float16, float])
@pytest.mark.filterwarnings("ignore:X has training rows")
def test_shares_may_be_numbers_of_any_type(kind: Any) -> None:
    model = PLLClassifier(RobustPll(epochs=3), watch=kind(0.25), random_state=0).fit(X, SETS)
    assert model.decide(X, coverage=kind(0.5)).coverage == pytest.approx(0.5, abs=0.05)
    model.calibrate_decisions(X, NAMES[LABELS], confidence=kind(0.5)).decide(X, error=kind(0.25))


# Attacks


def test_an_attack_must_be_one_and_gets_the_true_labels(fitted: RobustPLLClassifier) -> None:
    with pytest.raises(InputError, match=r"such as PGD\(0.1\); got 0.1"):
        fitted.predict_opinion(X, 0.1)
    with pytest.raises(InputError, match="one true label for each row"):
        fitted.predict_opinion(X, PGD(0.3, labels="true"), SETS)
    attacked = fitted.predict_opinion(X, PGD(0.3, labels="true"), NAMES[LABELS])
    clean = fitted.predict_opinion(X)
    rows = np.arange(90)
    assert attacked.probability[rows, LABELS].mean() < clean.probability[rows, LABELS].mean()
