"""Recalibration and decisions: worked numbers, and what is promised."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.exceptions import NotFittedError
from torch import nn

from robustpll import InputError, ModelFileError, Opinion, PLLClassifier, load, load_dataset
from robustpll.datasets.noise import Uniform
from robustpll.estimator import abstention
from robustpll.estimator.abstention import (
    Recalibration,
    Reference,
    ambiguities,
    bounded_threshold,
    mean_threshold,
    representation,
    share_threshold,
)
from robustpll.evaluate.ood import OodScorer, rows_of
from robustpll.evaluate.reports import decision_report
from robustpll.methods import Auto, DstPll, Method, Pico, PlKnn, Proden, ProdenEns, RobustPll, Valen
from robustpll.opinion import named_as

REFERENCE = Path(__file__).parents[1] / "reference"
NAMES = np.array(["ant", "bee", "cow"])
NO_PROMISE, NOVEL = "no promise can be made", "unlike the training data"


def blobs(n: int, seed: int, width: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows around the corners of a triangle, and which corner it is."""
    draw = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return np.eye(3)[labels] + width * draw.normal(size=(n, 3)), NAMES[labels]


def drawn(probability: np.ndarray, seed: int) -> np.ndarray:
    """A label of each row, one-hot."""
    draw = np.random.default_rng(seed)
    n, k = probability.shape
    labels = (draw.random((n, 1)) > probability.cumsum(-1)).sum(-1).clip(max=k - 1)
    return np.eye(k, dtype=bool)[labels]


def with_others(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Candidates of one-hot labels, or of names: each wrong class joins with a chance of 0.3."""
    labels = labels[:, None] == NAMES if labels.ndim == 1 else labels
    return labels | (np.random.default_rng(seed).random(labels.shape) < 0.3)


@pytest.fixture(scope="module")
def fitted() -> PLLClassifier:
    return PLLClassifier(RobustPll(epochs=15), random_state=0).fit(*blobs(300, 0))


@pytest.fixture
def model(fitted: PLLClassifier) -> PLLClassifier:
    """A copy to be recalibrated, of the same networks."""
    copy = PLLClassifier(fitted.method, random_state=0)
    copy.__dict__ = dict(fitted.__dict__)
    return copy


# Recalibration


@pytest.mark.parametrize("sharpness", [0.5, 3.0])
def test_a_known_temperature_is_found_by_labels_and_by_uniform_sets(sharpness: float) -> None:
    logits = 2 * np.random.default_rng(0).normal(size=(1500, 5))
    labels = drawn(softmax(logits, -1), 1)
    opinion = Opinion.of_probability(softmax(sharpness * logits, -1))
    for y, margin in ((labels, 0.12), (with_others(labels, 2), 0.25)):
        recalibration = Recalibration.of_rows(opinion, y)
        assert recalibration.of == "logits"
        assert recalibration.factor * sharpness == pytest.approx(1, rel=margin)
        assert recalibration.after < recalibration.before


def test_evidence_that_was_cut_to_a_third_is_found() -> None:
    evidence = np.random.default_rng(0).gamma(0.5, 8, size=(1500, 5))
    whole, cut = Opinion.of_evidence(evidence), Opinion.of_evidence(evidence / 3)
    labels = drawn(whole.probability, 1)
    by_labels = Recalibration.of_rows(cut, labels)
    assert (by_labels.of, by_labels.source, by_labels.rows) == ("evidence", "labels", 1500)
    assert by_labels.factor == pytest.approx(3, rel=0.25)
    exact = replace(by_labels, factor=3.0).opinion(cut)
    np.testing.assert_allclose(exact.belief, whole.belief)
    np.testing.assert_allclose(exact.uncertainty, whole.uncertainty)
    by_sets = Recalibration.of_rows(cut, with_others(labels, 2))
    assert by_sets.source == "candidates"
    assert by_sets.factor == pytest.approx(3, rel=0.5)
    opinion = Opinion.of_evidence(np.array([[6.0, 2, 0, 0], [0, 0, 0, 0]]))
    doubled = Recalibration(2.0, "evidence", "labels", 1, 0, 0).opinion(opinion)
    np.testing.assert_allclose(doubled.belief, [[12 / 20, 4 / 20, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(doubled.uncertainty, [4 / 20, 1])
    np.testing.assert_allclose(doubled.probability[0], [13 / 20, 5 / 20, 1 / 20, 1 / 20])


@pytest.mark.parametrize("method", [RobustPll(epochs=15), Proden(epochs=15)], ids=["evi", "logits"])
def test_predict_decide_and_opinions_name_the_same_class(method: Method) -> None:
    """Stretched probabilities tie, or part what was tied; rows between two classes show that."""
    model = PLLClassifier(method, random_state=0).fit(*blobs(300, 0))
    X = np.vstack([blobs(100, 1)[0], np.linspace([1.0, 0, 0], [0, 1.0, 0], 200)])
    label = model.predict(X)
    model.recalibrate(*blobs(100, 2))
    for factor in (1e-4, 0.5, 1e2, 1e4):
        model.recalibration_ = replace(model.recalibration_, factor=factor)
        opinion = model.predict_opinion(X)
        assert (NAMES[opinion.predicted()] == label).all()
        assert (NAMES[opinion[100:].predicted()] == label[100:]).all()
        assert (model.predict(X) == label).all()
        assert (model.decide(X, coverage=0.5).label == label).all()
        named = opinion.probability[np.arange(len(X)), opinion.predicted()]
        np.testing.assert_allclose(named, opinion.probability.max(-1), atol=1e-4 + 1e-5 * factor)


CLOSE = st.sampled_from([0.0, 0.3, 0.3 + 1e-9, 0.3 + 1e-6, 0.3 + 1e-4, 0.31, 1.0, 5.0])


@settings(max_examples=60)
@given(
    st.lists(st.lists(CLOSE, min_size=3, max_size=3), min_size=1, max_size=9),
    st.sampled_from(["evidence", "logits"]),
    st.floats(-4, 4),
)
def test_a_recalibrated_opinion_names_the_same_classes_in_the_same_order(
    rows: list[list[float]], of: Any, power: float
) -> None:
    evidence = np.array(rows)
    opinion = Opinion.of_evidence(evidence)
    if of == "logits":
        opinion = Opinion.of_probability(softmax(evidence, -1))
    after = Recalibration(10**power, of, "labels", 1, 0, 0).opinion(opinion)
    assert (after.predicted() == opinion.predicted()).all()
    assert (after.guess == opinion.guess).all()
    np.testing.assert_allclose(after.probability.sum(-1), 1)
    ordered = np.take_along_axis(after.probability, opinion.probability.argsort(-1), -1)
    assert (np.diff(ordered) >= -1e-9).all()
    twice = Recalibration(10**-power, of, "labels", 1, 0, 0).opinion(after)
    assert (twice[::-1].predicted() == opinion.predicted()[::-1]).all()


def test_an_opinion_with_other_numbers_forgets_what_another_named() -> None:
    opinion = Opinion.of_probability(np.array([[0.6, 0.4]]))
    named = named_as(opinion, Opinion.of_probability(np.array([[0.4, 0.6]])))
    assert (opinion.predicted()[0], named.predicted()[0]) == (0, 1)
    assert named.within(np.array([[True, False]])).predicted()[0] == 0
    assert replace(named, belief=opinion.belief).predicted()[0] == 0


def test_probabilities_change_and_predictions_do_not(model: PLLClassifier) -> None:
    X, y = blobs(300, 1)
    before, labels = model.predict_opinion(X), model.predict(X)
    assert model.recalibrate(X, y) is model
    after, factor = model.predict_opinion(X), model.recalibration_.factor
    assert (model.predict(X) == labels).all()
    assert np.abs(after.probability - before.probability).max() > 0.01
    assert np.abs(after.uncertainty - before.uncertainty).max() > 0.01
    model.calibrate_decisions(X, y)
    assert model.recalibrate(X, y).recalibration_.factor == factor  # from the first opinion again
    assert model.trial_ is None
    model.set_params(method__epochs=1).fit(*blobs(30, 0))
    assert model.recalibration_ is None


@pytest.mark.parametrize(
    ("method", "y", "sentence"),
    [
        (Proden(epochs=2), [set(NAMES)] * 60, "every set holds all classes"),
        (PlKnn(neighbours=3), blobs(60, 0)[1][::-1], "probability 0 to a row"),
        (DstPll(neighbours=5), blobs(60, 0)[1], "DstPll"),
    ],
)
def test_rows_that_tell_no_factor_are_refused(method: Method, y: Any, sentence: str) -> None:
    X, labels = blobs(60, 0, width=0.05)
    model = PLLClassifier(method, random_state=0).fit(X, labels)
    with pytest.raises(InputError, match=sentence):
        model.recalibrate(X, y)
    assert model.recalibration_ is None


def test_rows_that_say_little_change_little() -> None:
    """All labels are right: without the cost of far factors, none would be large enough."""
    opinion = Opinion.of_probability(np.array([[0.8, 0.2]] * 50))
    right = np.array([[True, False]] * 50)
    few, many = Recalibration.of_rows(opinion[:2], right[:2]), Recalibration.of_rows(opinion, right)
    assert 1 < few.factor < many.factor < 10
    assert Recalibration.of_rows(opinion, ~right).factor < 0.1


# Thresholds


def test_thresholds_worked_by_hand() -> None:
    certainty, wrong = np.array([0.9, 0.8, 0.8, 0.4]), np.array([0.0, 0.0, 1.0, 0.0])
    assert share_threshold(certainty, 0.25) == share_threshold(certainty, 0.4) == 0.9
    assert share_threshold(certainty, 0.6) == share_threshold(certainty, 0.8) == 0.8
    assert share_threshold(certainty, 0.1) == math.inf
    assert share_threshold(certainty[:1], 0.9) == 0.9
    assert share_threshold(np.linspace(1, 0, 100), 0.55) == pytest.approx(1 - 54 / 99)
    assert share_threshold(np.array([0.9, -1, -1]), 1.0) == 0.9
    assert mean_threshold(certainty, wrong, 0.3) == 0.4  # 1 of 4
    assert mean_threshold(certainty, wrong, 0.2) == 0.9  # 1 of 3 at 0.8, as equals go together
    assert mean_threshold(certainty, wrong + 1, 0.2) == math.inf
    # of 59 rows none may be wrong: 0.95^59 is the first power below 0.05
    falling, right = np.linspace(1, 0.9, 59), np.zeros(59)
    assert bounded_threshold(falling, right, 0.05, 0.9) == 0.9
    assert bounded_threshold(falling[:58], right[:58], 0.05, 0.9) == math.inf
    assert bounded_threshold(falling, right, 1e-320, 0.9) == math.inf
    assert bounded_threshold(falling, 1 - right, 0.05, 0.9) == math.inf


def test_a_bound_on_the_error_is_broken_as_seldom_as_promised() -> None:
    """Rows whose error grows with their rank q as 0.6 q^2: of the first t, 0.2 t^2 are wrong."""
    draw, broken, share = np.random.default_rng(0), 0, []
    for _ in range(400):
        rank = np.sort(draw.random(500))
        wrong = draw.random(500) < 0.6 * rank**2
        threshold = bounded_threshold(1 - rank, wrong.astype(float), 0.1, confidence=0.9)
        accepted = 0.0 if math.isinf(threshold) else 1 - threshold
        broken += 0.2 * accepted**2 > 0.1
        share.append(accepted)
    assert broken <= 40 + 3 * 6  # of 400, and three standard deviations
    assert np.mean(share) > 0.45  # of 0.71 that could be accepted


# Decisions


def test_a_share_of_the_rows_is_accepted_the_surest_first(model: PLLClassifier) -> None:
    X, _ = blobs(200, 1)
    decision = model.decide(X, coverage=0.7)
    certainty = model.predict_proba(X).max(-1)
    assert (decision.accepted.sum(), decision.coverage, len(decision)) == (140, 0.7, 200)
    assert certainty[decision.accepted].min() > certainty[~decision.accepted].max()
    assert decision.threshold == certainty[decision.accepted].min()
    assert (decision.label == model.predict(X)).all()
    assert repr(decision) == "Decision(140 of 200 rows accepted)"
    far = np.array([[30.0, 30, -30]] * 5)  # never accepted, without calibration either
    accepted = model.decide(np.vstack([X[:20], far]), coverage=1).accepted
    assert accepted.tolist() == [True] * 20 + [False] * 5
    probability = np.array([[0.1, 0.5, 0.4], [0.5, 0.25, 0.25]])
    opinion = replace(Opinion.of_probability(probability), classes=NAMES)
    assert ambiguities(opinion) == ["ambiguous: bee or cow", "ambiguous: ant or bee"]


def test_the_expected_error_is_kept_by_as_many_as_can_be(model: PLLClassifier) -> None:
    X, _ = blobs(200, 1)
    decision = model.recalibrate(*blobs(300, 2)).decide(X, error=0.1)
    certainty = np.sort(model.predict_proba(X).max(-1))[::-1]
    count = decision.accepted.sum()
    assert 0 < count < 200
    assert 1 - certainty[:count].mean() <= 0.1 < 1 - certainty[: count + 1].mean()


@pytest.mark.parametrize("promise", [{"coverage": 0.8}, {"error": 0.1}], ids=["coverage", "error"])
@pytest.mark.parametrize("form", ["labels", "candidates"])
def test_a_row_is_decided_alone_as_among_others(
    model: PLLClassifier, promise: dict[str, float], form: str
) -> None:
    X, y = blobs(300, 3)
    model.calibrate_decisions(X, y if form == "labels" else with_others(y))
    rows = blobs(9, 4)[0]
    together = model.decide(rows, **promise)
    alone = [model.decide(row[None], **promise) for row in rows]
    assert together.accepted.tolist() == [decision.accepted[0] for decision in alone]
    assert together.reason.tolist() == [decision.reason[0] for decision in alone]
    assert 0 < together.accepted.sum() < 9


def test_a_promise_that_takes_more_labels_is_not_made(model: PLLClassifier) -> None:
    trial: Any = model.calibrate_decisions(*blobs(60, 1)).trial_
    assert (trial.fewest(0.01), trial.can_promise(0.01)) == (299, False)
    assert (trial.fewest(0.05), trial.can_promise(0.05)) == (59, True)
    rows = np.vstack([blobs(20, 2)[0], [[30.0, 30, -30]]])
    with pytest.warns(UserWarning, match=r"from 60 labelled rows: it takes 299") as warned:
        decision = model.decide(rows, error=0.01)
    assert [warning.filename for warning in warned] == [__file__]
    assert (decision.coverage, decision.threshold) == (0, math.inf)
    assert decision.label.tolist() == model.predict(rows).tolist()
    assert decision.reason.tolist() == [NO_PROMISE] * 20 + [NOVEL]
    X, y = blobs(60, 1)
    trial = model.calibrate_decisions(X, with_others(y)).trial_  # gives an estimate, without labels
    assert (trial.fewest(0.01), trial.can_promise(0.01)) == (0, True)
    model.decide(X, error=0.01)  # without a warning
    wrong = np.roll(NAMES, 1)[np.searchsorted(NAMES, model.predict(X))]  # no threshold keeps it
    decision = model.calibrate_decisions(X, wrong).decide(X[:5], error=0.05)
    assert NO_PROMISE in decision.reason
    assert set(decision.reason) <= {NO_PROMISE, NOVEL}


def test_a_few_sets_among_labels_take_the_bound_away_with_a_warning(model: PLLClassifier) -> None:
    X, y = blobs(60, 1)
    sets = [{name} for name in y]
    sets[7] |= {*NAMES}
    with pytest.warns(UserWarning, match="1 of 60 rows have several candidates, so the error"):
        trial = model.calibrate_decisions(X, sets).trial_
    assert trial.source == "candidates"
    assert model.calibrate_decisions(X[8:], sets[8:]).trial_.source == "labels"


@pytest.mark.parametrize("method", [Proden(epochs=3), PlKnn(), Auto(epochs=3, members=2)])
def test_rows_of_the_training_are_warned_of(method: Method, tmp_path: Path) -> None:
    X, y = blobs(300, 1)
    sentence = r"X has training rows.* not trained on"
    model = PLLClassifier(method, random_state=0).fit(X, y)
    for rows in (slice(None), slice(0, 300, 3)):
        with pytest.warns(UserWarning, match=sentence) as warned:
            model.calibrate_decisions(X[rows], y[rows])
        assert [warning.filename for warning in warned] == [__file__]
    model.save(tmp_path / "model.pll")
    for same in (model, load(tmp_path / "model.pll")):
        same.calibrate_decisions(*blobs(300, 2))  # without a warning
        with pytest.warns(UserWarning, match=sentence):
            same.calibrate_decisions(X, y)


def test_a_few_rows_of_a_large_training_are_warned_of() -> None:
    """The model keeps only 1,000 of its training rows."""
    X, y = blobs(9000, 1)
    model = PLLClassifier(PlKnn()).fit(X, y)
    with pytest.warns(UserWarning, match=r"X has training rows.* not trained on"):
        model.calibrate_decisions(X[:300], y[:300])
    model.calibrate_decisions(*blobs(300, 2))


@pytest.mark.parametrize("values", [3, 30, 300, 10_000])
def test_new_rows_that_equal_training_rows_are_not_warned_of(values: int) -> None:
    X = np.random.default_rng(0).integers(0, values, (6000, 1)).astype(float)
    y = NAMES[(3 * X[:, 0] / values).astype(int)]
    for learned in (100, 1000, 5000):
        model = PLLClassifier(PlKnn()).fit(X[:learned], y[:learned])
        model.calibrate_decisions(X[5000:], y[5000:])


def test_sets_estimate_the_error_that_labels_show(model: PLLClassifier) -> None:
    """Uniform sets hold the predicted class by chance; what is left shows the errors."""
    X, y = blobs(3000, 3)
    wrong = float((model.recalibrate(X, y).predict(X) != y).mean())
    model.calibrate_decisions(X, with_others(y))
    assert model.trial_.wrong.mean() == pytest.approx(wrong, abs=0.02)
    rows, labels = blobs(3000, 5)
    report = decision_report(model.decide(rows, error=0.1), labels)
    assert report.error == pytest.approx(0.1, abs=0.03)


ALL = [set(NAMES)] * 60


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m, X, y: m.decide(X), "either coverage or error"),
        (lambda m, X, y: m.decide(X, coverage=0.9, error=0.1), "either coverage or error"),
        (lambda m, X, y: m.decide(X, coverage=0), "got coverage=0 and"),
        (lambda m, X, y: m.decide(X, coverage=90), "got coverage=90 and"),
        (lambda m, X, y: m.decide(X, error=0), "error=0"),
        (lambda m, X, y: m.decide(X, error="5 %"), "error='5 %'"),
        (lambda m, X, y: m.calibrate_decisions(X, y, confidence=1.0), "confidence must be"),
        (lambda m, X, y: m.calibrate_decisions(X, ALL, confidence=0.9), "confidence is for labels"),
        (lambda m, X, y: m.recalibrate(X, y[:5]), "inconsistent"),
        (lambda m, X, y: m.recalibrate(X, ["emu"] * len(X)), "emu"),
    ],
)
def test_odd_promises_are_refused(model: PLLClassifier, call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call(model, *blobs(60, 1))
    with pytest.raises((NotFittedError, InputError)):
        call(PLLClassifier(), *blobs(60, 1))
    shares: list[Any] = [True, np.True_, np.nan, np.float32("nan"), 1.5, 0.5j, "0.5"]
    for share in shares:
        with pytest.raises(InputError, match="a number between 0 and 1"):
            model.decide(blobs(9, 0)[0], coverage=share)


@pytest.mark.parametrize(
    "method",
    [
        PlKnn(neighbours=5),
        DstPll(neighbours=5),
        ProdenEns(epochs=5, members=2),
        Valen(epochs=2),
        Proden(epochs=5, network=lambda shape, k: nn.Linear(shape[0], k)),
    ],
    ids=lambda method: method.name,
)
def test_any_method_decides(method: Method) -> None:
    model = PLLClassifier(method, random_state=0).fit(*blobs(90, 0))
    X, y = blobs(90, 1)
    assert model.decide(X, coverage=0.5).accepted.sum() >= 45 - 2
    assert model.calibrate_decisions(X, y).decide(X, coverage=0.5).accepted.sum() >= 45 - 2


# Reference rows and the model file


def test_the_distance_is_that_to_all_training_rows_if_they_are_few() -> None:
    X, y = blobs(90, 0)
    model = PLLClassifier(ProdenEns(epochs=2, members=2), random_state=0).fit(X, y)
    rows = blobs(20, 1)[0]
    distance = model.reference_.distance(model.fitted_, rows_of(model, rows))
    score = OodScorer.of(model, X).scores(rows)["row distance"]
    np.testing.assert_allclose(distance, score, atol=1e-6)
    doubled = PLLClassifier(PlKnn(), random_state=0).fit(np.vstack([X, X]), [*y, *y])
    assert doubled.reference_.rows.shape == (1, 90, 3)
    assert doubled.reference_.limit > 0  # a row's own double does not count
    wide = PLLClassifier(PlKnn()).fit(np.random.default_rng(0).random((50, 30_000)), [0, 1] * 25)
    assert wide.reference_.rows.shape == (1, 34, 30_000)  # a million numbers
    many = PLLClassifier(PlKnn()).fit(np.random.default_rng(0).random((2000, 4)), [0, 1] * 1000)
    assert many.reference_.rows.shape == (1, 1000, 4)


PICTURES = np.random.default_rng(0).random((40, 8, 8))
KINDS = np.arange(40) % 3


def pixel_distance(model: PLLClassifier, rows: np.ndarray) -> np.ndarray:
    """From scaled pixels to those of the nearest training row."""
    x, training = (rows_of(model, part) for part in (rows, PICTURES))
    flat = [part.x(part.everything)[0].flatten(1).double() for part in (x, training)]
    return np.asarray(torch.cdist(*flat).amin(1))


@pytest.mark.parametrize(
    ("method", "models", "width"),
    [
        (Proden(epochs=1, network="lenet"), 1, 84),
        (Proden(epochs=1, network="convnet", members=2), 2, 128),
        (Auto(epochs=1, network="convnet", members=2, folds=2), 2, 128),
    ],
    ids=["lenet", "convnet", "auto"],
)
def test_convolutional_networks_compare_rows_in_their_last_hidden_layer(
    method: Method, models: int, width: int, tmp_path: Path
) -> None:
    model = PLLClassifier(method, random_state=0).fit(PICTURES, KINDS)
    assert model.reference_.rows.shape == (models, 40, width)
    np.testing.assert_allclose(model.reference_.rows.norm(dim=-1), 1, atol=1e-5)
    rows = np.concatenate([PICTURES[:5], np.random.default_rng(1).random((15, 8, 8))])
    before = model.predict_proba(rows)
    distance = model._distance(rows_of(model, rows))
    assert distance[:5].max() < 1e-5 < distance[5:].min()
    score = OodScorer.of(model, PICTURES).scores(rows)["row distance"]
    np.testing.assert_allclose(distance, score, atol=1e-6)
    np.testing.assert_array_equal(model.predict_proba(rows), before)  # the network is unchanged
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll", device="cpu")
    np.testing.assert_array_equal(again._distance(rows_of(again, rows)), distance)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (Proden(epochs=1, network="lenet"), "copies.0.16"),
        (Pico(epochs=1, network="lenet"), "fast.copies.0.head"),
        (Pico(epochs=1, network="small"), "fast.head"),
    ],
    ids=["lenet", "pico", "pico rows"],
)
def test_the_last_hidden_layer_is_what_the_last_layer_gets(method: Method, name: str) -> None:
    model = PLLClassifier(method, random_state=0).fit(PICTURES, KINDS)
    rows, fitted = rows_of(model, PICTURES[:20]), model.fitted_
    head = fitted.net.get_submodule(name)
    hidden = []
    hook = head.register_forward_hook(lambda _, inputs, output: hidden.append(inputs[0].double()))
    fitted.predict(rows)
    hook.remove()
    expected = torch.nn.functional.normalize(torch.cat(hidden), dim=-1)
    torch.testing.assert_close(representation(fitted, rows).view_as(expected), expected)


def test_a_file_whose_reference_rows_are_pixels_works_as_before(tmp_path: Path) -> None:
    """Earlier versions stored pixels for networks without a model axis, and only for these."""
    path, rows = tmp_path / "model.pll", np.random.default_rng(1).random((15, 8, 8))
    for network in ("lenet", "mlp"):
        model = PLLClassifier(Proden(epochs=1, network=network), random_state=0)
        model.fit(PICTURES, KINDS)
        training = rows_of(model, PICTURES)
        pixels = training.x(training.everything).flatten(2).float()
        model.reference_ = Reference(pixels.contiguous())
        model.save(path)
        if network == "mlp":
            with pytest.raises(ModelFileError, match=r"should be \(1, 40, 300\)"):
                load(path, device="cpu")
            continue
        again = load(path, device="cpu")
        distance = again._distance(rows_of(again, rows))
        np.testing.assert_allclose(distance, pixel_distance(model, rows), atol=1e-5)


def test_a_network_of_ones_own_is_cut_only_if_it_is_a_plain_sequence() -> None:
    class Residual(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            flat = x.flatten(1)
            return torch.as_tensor(super().forward(flat)) + flat[:, :3]

    def sequence(shape: tuple[int, ...], k: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, k))

    def residual(shape: tuple[int, ...], k: int) -> nn.Module:
        return Residual(nn.Linear(64, 20), nn.Linear(20, k))

    def linear(shape: tuple[int, ...], k: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, k))

    for network, width in ((sequence, 20), (residual, 64), (linear, 64)):
        model = PLLClassifier(Proden(epochs=1, network=network), random_state=0)
        model.fit(PICTURES, KINDS)
        assert model.reference_.rows.shape == (1, 40, width)
        distance = model._distance(rows_of(model, PICTURES + 0.1))
        if width == 64:
            expected = pixel_distance(model, PICTURES + 0.1)
            np.testing.assert_allclose(distance, expected, atol=1e-5)


@pytest.mark.parametrize("method", [PlKnn(), Proden(epochs=1, network="lenet")])
def test_rows_are_compared_in_parts_so_that_many_fit_in_memory(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def recorded(fitted: Any, rows: Any, *stored: int) -> torch.Tensor:
        sizes.append(len(rows))
        return representation(fitted, rows, *stored)

    monkeypatch.setattr(abstention, "representation", recorded)
    labels = np.arange(1200) % 3
    many = np.random.default_rng(0).random((1200, 8, 8)) + labels[:, None, None]
    model = PLLClassifier(method, random_state=0).fit(many, labels)
    assert sizes == [abstention.MOST_ROWS]  # not all training rows
    whole = model._distance(rows_of(model, many))
    monkeypatch.setattr(abstention, "ROWS_AT_ONCE", 500)
    sizes.clear()
    np.testing.assert_allclose(model._distance(rows_of(model, many)), whole, atol=1e-6)
    assert sizes == [500, 500, 200]


def test_a_model_file_keeps_all_of_it(model: PLLClassifier, tmp_path: Path) -> None:
    X, y = blobs(200, 1)
    model.recalibrate(X, y).calibrate_decisions(*blobs(200, 2)).save(tmp_path / "model.pll")
    read = load(tmp_path / "model.pll", device="cpu")
    assert read.recalibration_ == model.recalibration_
    np.testing.assert_array_equal(read.predict_proba(X), model.predict_proba(X))
    for promise in ({"coverage": 0.8}, {"error": 0.1}):
        one, other = model.decide(X, **promise), read.decide(X, **promise)
        assert one.threshold == other.threshold
        assert (one.reason == other.reason).all()
    assert (read.trial_.source, read.trial_.confidence) == ("labels", 0.9)


def test_a_model_of_version_0_1_0_can_be_recalibrated_and_decides() -> None:
    model = load(REFERENCE / "model-0.1.0.pll", device="cpu")
    assert (model.recalibration_, model.trial_, model.reference_) == (None, None, None)
    rows = np.array(json.loads((REFERENCE / "model-0.1.0.json").read_text())["rows"])
    decision = model.decide(np.concatenate([rows, 1e3 * rows]), coverage=1)
    assert decision.accepted.all()  # without reference rows nothing is known to be novel


TEN = ("lost", "msrc-v2", "bird-song", "fg-net", "italian", "digits", "synthetic", "mnist")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", [*TEN, "fmnist", "kmnist"])
def test_promises_are_kept_on_ten_datasets(name: str) -> None:
    """Coverage within four standard deviations, errors by labels above theirs by no more."""
    dataset = load_dataset(name)
    rows = np.random.default_rng(0).permutation(len(dataset))[:3000]
    X, labels = dataset.features[rows].astype(np.float32), dataset.labels[rows]
    if dataset.candidates is None:
        y = Uniform(added=3, share=1.0).apply(X, labels, random_state=0).matrix
    else:
        y = dataset.candidates.matrix[rows]
    train, aside, test = (slice(part * len(X) // 3, (part + 1) * len(X) // 3) for part in range(3))
    model = PLLClassifier(Proden(epochs=30), random_state=0).fit(X[train], y[train])
    n = len(X[test])
    model.calibrate_decisions(X[aside], y[aside])
    for coverage in (0.5, 0.8):  # thresholds and test rows are both random, hence 2 / n
        report = decision_report(model.decide(X[test], coverage=coverage), labels[test])
        assert report.coverage == pytest.approx(coverage, abs=4 * math.sqrt(0.25 * 2 / n) + 0.02)
    model.calibrate_decisions(X[aside], labels[aside])
    for error in (0.1, 0.2, 0.4):
        report = decision_report(model.decide(X[test], error=error), labels[test])
        if report.error is not None:
            accepted = report.coverage * n
            assert report.error <= error + 4 * math.sqrt(error * (1 - error) / accepted)
