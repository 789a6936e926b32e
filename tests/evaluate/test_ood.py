"""Scores of how unlike a row is, for models of all kinds, and how well they separate."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import nn

from robustpll import InputError, PLLClassifier, RobustPLLClassifier, load
from robustpll.engine.data import Rows, Task
from robustpll.engine.predict import Networks
from robustpll.estimator.novelty import representation
from robustpll.evaluate.ood import (
    Gaussians,
    OodScorer,
    RunScorer,
    energy,
    ood_report,
    rows_of,
    separation,
    shrunk_covariance,
)
from robustpll.measures.metrics import cdf_area, signed_ks, signed_mmd
from robustpll.methods import CroSel, Method, Proden, ProdenEns, RobustPll, Valen
from robustpll.methods.pl_knn import PlKnn

ALL = ("entropy", "uncertainty", "missing probability", "energy", "class distance", "row distance")
SCORES = st.lists(st.integers(-5, 5), min_size=1, max_size=30)


def linear(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Linear(shape[0], k)


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows near the corners of a triangle, and which corner it is."""
    draw = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return np.eye(3)[labels] + 0.05 * draw.normal(size=(n, 3)), labels


def fitted(method: Method) -> PLLClassifier:
    X, labels = blobs(90, seed=0)
    y = np.eye(3, dtype=bool)[labels]
    y[::4] |= np.eye(3, dtype=bool)[(labels[::4] + 1) % 3]
    return PLLClassifier(method, random_state=0, device="cpu").fit(X, y)


@pytest.fixture(scope="module")
def robust() -> PLLClassifier:
    return fitted(RobustPll(epochs=40))


TRAIN = blobs(90, seed=0)[0]
KNOWN = blobs(60, seed=1)[0]
FAR = 4 - 4 * blobs(45, seed=2)[0]


def test_separation_of_samples_that_do_not_overlap_is_perfect() -> None:
    found = separation([0.1, 0.2], [0.3, 0.4, 0.5])
    assert (found.auroc, found.aupr, found.fpr95) == (1, 1, 0)
    turned = separation([0.3, 0.4, 0.5], [0.1, 0.2])
    assert (turned.auroc, turned.fpr95) == (0, 1)


@given(SCORES, SCORES)
def test_auroc_is_the_chance_that_an_ood_row_scores_higher(known: Any, ood: Any) -> None:
    pairs = [(k < o) + 0.5 * (k == o) for k in known for o in ood]
    assert separation(known, ood).auroc == pytest.approx(np.mean(pairs))


@given(SCORES, SCORES)
def test_the_threshold_is_the_highest_that_flags_95_percent(known: Any, ood: Any) -> None:
    sound = [level for level in ood if 100 * sum(o >= level for o in ood) >= 95 * len(ood)]
    flagged = np.mean([k >= max(sound) for k in known])
    assert separation(known, ood).fpr95 == pytest.approx(flagged)


@pytest.mark.parametrize(("known", "ood"), [([], [1.0]), ([1.0], []), ([1.0], [np.nan])])
def test_separation_needs_numbers_of_both_kinds(known: Any, ood: Any) -> None:
    with pytest.raises(InputError, match="must be"):
        separation(known, ood)


def test_energy_falls_with_every_logit() -> None:
    low, high = energy(torch.tensor([[1.0, 2], [1, 3]]))
    assert low > high
    assert energy(torch.tensor([[1e4, 0.0]])).item() == -1e4  # does not overflow


def test_mahalanobis_distances_are_those_of_scipy_where_rows_abound() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(30_000) % 3
    mix = np.array([[1.0, 0.5, 0], [0, 0.3, 0.1], [0, 0, 2]])
    rows = draw.normal(size=(30_000, 3)) @ mix + 5 * np.eye(3)[labels]
    found = Gaussians.of(torch.tensor(rows), torch.tensor(labels))
    asked = draw.normal(size=(50, 3)) * 4
    inverse = np.linalg.inv(mix.T @ mix)
    expected = cdist(asked, 5 * np.eye(3), "mahalanobis", VI=inverse).min(1)
    np.testing.assert_allclose(found.distance(torch.tensor(asked)), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize(("n", "h"), [(200, 5), (10, 30), (2, 3)])
def test_covariances_are_shrunk_as_by_scikit_learn(n: int, h: int) -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(n, h)) @ draw.normal(size=(h, h))
    expected, _ = ledoit_wolf(rows, assume_centered=True)
    np.testing.assert_allclose(shrunk_covariance(torch.tensor(rows)), expected, rtol=1e-9)


def test_runs_of_a_bundle_are_scored_as_each_alone() -> None:
    X, labels = (torch.from_numpy(part) for part in blobs(90, seed=0))
    at = torch.stack([torch.arange(60), torch.arange(60) + 30])
    rows, given_ = Rows.of(X, at), torch.eye(3).bool()[labels[at]]
    asked = rows.others(torch.from_numpy(KNOWN), torch.arange(60).expand(2, -1))
    method = ProdenEns(epochs=3, members=2)
    bundle = RunScorer.of(method.fit(Task.of(rows, given_, (4, 5))), rows).scores(asked)
    for run in range(2):
        own = slice(run, run + 1)
        fitted_alone = method.fit(Task.of(rows.part(own), given_[own], (4 + run,)))
        alone = RunScorer.of(fitted_alone, rows.part(own)).scores(asked.part(own))
        assert set(alone) == set(bundle)
        for name, each in alone.items():
            torch.testing.assert_close(each[0], bundle[name][run], rtol=1e-6, atol=1e-6)


def test_a_direction_without_variance_in_training_is_far_away() -> None:
    rows = torch.zeros(100, 3)
    rows[:, 0] = torch.linspace(-1, 1, 100)
    found = Gaussians.of(rows, torch.zeros(100, dtype=torch.long))
    inside, silent = found.distance(torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]))
    assert silent.isfinite()
    assert silent > 3 * inside


def test_equal_training_rows_give_plain_distances() -> None:
    found = Gaussians.of(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
    np.testing.assert_allclose(found.distance(torch.tensor([[1.0, 1], [4, 5]])), [0, 5])


def test_a_class_that_no_row_has_is_no_centre() -> None:
    rows = torch.tensor([[4.0], [5.0], [6.0], [9.0], [10.0], [11.0]])
    found = Gaussians.of(rows, torch.tensor([1, 1, 1, 3, 3, 3]))
    assert len(found.centres) == 2
    assert found.distance(torch.tensor([[0.0]])) > found.distance(torch.tensor([[5.0]])) + 1


@pytest.mark.parametrize(
    ("method", "absent"),
    [
        (RobustPll(epochs=2), ()),
        (Proden(epochs=2), ("uncertainty",)),
        (ProdenEns(epochs=2), ("uncertainty",)),
        (CroSel(epochs=2), ("uncertainty",)),
        (Valen(epochs=1), ("uncertainty",)),
        (RobustPll(epochs=2, network=linear), ()),
        (PlKnn(), ("energy", "uncertainty")),
    ],
    ids=lambda given_: type(given_).__name__,
)
def test_every_kind_of_model_has_every_score_or_says_why_not(
    method: Method, absent: tuple[str, ...]
) -> None:
    scorer = OodScorer.of(fitted(method), TRAIN)
    scores = scorer.scores(KNOWN)
    assert tuple(scores) == tuple(name for name in ALL if name not in absent)
    assert sorted(scorer.absent) == sorted(absent)
    assert all(method.title in reason for reason in scorer.absent.values())
    for values in scores.values():
        assert values.shape == (60,)
        assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("method", "shape"),
    [
        (RobustPll(epochs=1), (1, 60, 300)),
        (ProdenEns(epochs=1), (5, 60, 300)),
        (Valen(epochs=1, network="wide"), (1, 60, 3)),
        (RobustPll(epochs=1, network=linear), (1, 60, 3)),
        (PlKnn(), (1, 60, 3)),
    ],
    ids=lambda given_: type(given_).__name__,
)
def test_distances_are_taken_in_the_hidden_layer_or_else_the_features(
    method: Method, shape: tuple[int, ...]
) -> None:
    model = fitted(method)
    assert representation(model.fitted_, rows_of(model, KNOWN)).shape == shape


def test_the_last_layer_makes_the_logits_of_the_hidden_rows(robust: PLLClassifier) -> None:
    """Up to the length of a row, which is taken away."""
    rows, networks = rows_of(robust, KNOWN), robust.fitted_
    assert isinstance(networks, Networks)
    last: Any = networks.net.output
    weights = last.weight.double()[0]
    logits = networks.net(rows.x(rows.everything)).double()[0] - last.bias.double()[0]
    again = representation(networks, rows)[0] @ weights
    lengths = (logits * again).sum(-1) / (again * again).sum(-1)
    np.testing.assert_allclose(again * lengths[:, None], logits, atol=1e-4)


def test_scores_of_the_opinion_are_its_own(robust: PLLClassifier) -> None:
    opinion, scores = robust.predict_opinion(KNOWN), OodScorer.of(robust).scores(KNOWN)
    np.testing.assert_array_equal(scores["entropy"], opinion.entropy)
    np.testing.assert_array_equal(scores["uncertainty"], opinion.uncertainty)
    np.testing.assert_allclose(scores["missing probability"], 1 - opinion.probability.max(-1))


def test_a_training_row_has_no_distance_to_itself() -> None:
    scores = OodScorer.of(fitted(PlKnn()), TRAIN).scores(TRAIN)
    assert (scores["row distance"] == 0).all()


def test_without_training_rows_scores_by_distance_are_absent(robust: PLLClassifier) -> None:
    report = ood_report(robust, KNOWN, FAR)
    assert set(report.absent) == {"class distance", "row distance"}
    assert all("pass X_train" in reason for reason in report.absent.values())
    assert set(report.separations) == set(ALL[:4])


@pytest.mark.parametrize("method", [RobustPll(epochs=40), PlKnn()])
def test_rows_far_away_are_found_by_distance(method: Method) -> None:
    report = ood_report(fitted(method), KNOWN, FAR, X_train=TRAIN)
    for name in ("class distance", "row distance"):
        assert report.separations[name].auroc > 0.95


def test_a_report_has_the_published_measures_of_the_recorded_entropies(
    robust: PLLClassifier,
) -> None:
    report = ood_report(robust, KNOWN, FAR, gamma=2.0)
    test, ood = (robust.predict_opinion(X).entropy.round(6) for X in (KNOWN, FAR))
    assert report.area == cdf_area(test, ood)
    assert report.ks == signed_ks(test, ood)
    assert report.mmd == signed_mmd(test, ood, 2.0)


def test_a_report_as_a_table_has_a_row_for_each_score(robust: PLLClassifier) -> None:
    report = ood_report(robust, KNOWN, FAR, X_train=TRAIN)
    table = report.to_frame()
    assert tuple(table.index) == ALL
    assert tuple(table.columns) == ("auroc", "aupr", "fpr95", "area", "ks", "mmd")
    assert table.loc["entropy", "ks"] == report.ks
    assert table.loc["energy", "fpr95"] == report.separations["energy"].fpr95
    assert table["mmd"].notna().sum() == 1


def test_a_loaded_model_scores_as_before(robust: PLLClassifier, tmp_path: Path) -> None:
    robust.save(tmp_path / "model")
    again = OodScorer.of(load(tmp_path / "model"), TRAIN).scores(KNOWN)
    for name, values in OodScorer.of(robust, TRAIN).scores(KNOWN).items():
        np.testing.assert_array_equal(again[name], values)


def test_parameters_set_after_fitting_do_not_change_what_is_said() -> None:
    scorer = OodScorer.of(fitted(Proden(epochs=1)))
    scorer.model.set_params(method="robust_pll")
    assert "Proden has no" in scorer.absent["uncertainty"]


def test_only_fitted_models_of_this_library_are_scored() -> None:
    with pytest.raises(InputError, match="got LogisticRegression"):
        ood_report(LogisticRegression(), KNOWN, FAR)
    with pytest.raises(NotFittedError):
        ood_report(RobustPLLClassifier(), KNOWN, FAR)


def test_rows_of_another_width_are_refused(robust: PLLClassifier) -> None:
    with pytest.raises(ValueError, match="4 features"):
        ood_report(robust, KNOWN, np.ones((5, 4)))


@pytest.mark.gpu
def test_scores_on_a_gpu_are_those_of_a_cpu(robust: PLLClassifier, tmp_path: Path) -> None:
    robust.save(tmp_path / "model")
    there = OodScorer.of(load(tmp_path / "model", device="cuda"), TRAIN)
    assert there.model.fitted_.device.type == "cuda"
    for name, values in OodScorer.of(robust, TRAIN).scores(KNOWN).items():
        np.testing.assert_allclose(there.scores(KNOWN)[name], values, rtol=0.02, atol=0.02)
