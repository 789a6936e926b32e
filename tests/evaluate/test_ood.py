"""Scores of how unlike a row is, for models of all kinds, and how well they separate."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.covariance import ledoit_wolf
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import nn

from robustpll import InputError, PLLClassifier, RobustPLLClassifier, load
from robustpll.engine.data import Rows, Task
from robustpll.estimator.abstention import representation
from robustpll.evaluate.ood import (
    Gaussians,
    OodScorer,
    RunScorer,
    ood_report,
    rows_of,
    separation,
    shrunk_covariance,
)
from robustpll.measures.metrics import cdf_area, signed_ks, signed_mmd
from robustpll.methods import Auto, CroSel, Method, PlKnn, Proden, ProdenEns, RobustPll, Valen

ALL = ("entropy", "uncertainty", "missing probability", "energy", "class distance", "row distance")
SCORES = st.lists(st.integers(-5, 5), min_size=1, max_size=30)


def linear(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Linear(shape[0], k)


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows near the corners of a triangle, and which corner it is."""
    labels = np.arange(n) % 3
    return np.eye(3)[labels] + 0.05 * np.random.default_rng(seed).normal(size=(n, 3)), labels


TRAIN, LABELS = blobs(90, seed=0)
KNOWN = blobs(60, seed=1)[0]
FAR = 4 - 4 * blobs(45, seed=2)[0]


def fitted(method: Method) -> PLLClassifier:
    y = np.eye(3, dtype=bool)[LABELS]
    y[::4] |= np.eye(3, dtype=bool)[(LABELS[::4] + 1) % 3]
    return PLLClassifier(method, random_state=0, device="cpu").fit(TRAIN, y)


@pytest.fixture(scope="module")
def robust() -> PLLClassifier:
    return fitted(RobustPll(epochs=40))


@settings(max_examples=50)
@given(SCORES, SCORES)
def test_separation_is_what_its_definitions_say(known: Any, ood: Any) -> None:
    result = separation(known, ood)
    pairs = [(k < o) + 0.5 * (k == o) for k in known for o in ood]
    assert result.auroc == pytest.approx(np.mean(pairs))
    sound = [level for level in ood if 100 * sum(o >= level for o in ood) >= 95 * len(ood)]
    assert result.fpr95 == pytest.approx(np.mean([k >= max(sound) for k in known]))


def test_separation_of_samples_that_do_not_overlap_is_perfect() -> None:
    result, turned = separation([1, 2], [3, 4, 5]), separation([3, 4, 5], [1, 2])
    assert (result.auroc, result.aupr, result.fpr95) == (1, 1, 0)
    assert (turned.auroc, turned.fpr95) == (0, 1)
    for known, ood in (([], [1.0]), ([1.0], []), ([1.0], [np.nan])):
        with pytest.raises(InputError, match="must be"):
            separation(known, ood)


def test_mahalanobis_distances_are_those_of_scipy_where_rows_abound() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(30_000) % 3
    mix = np.array([[1.0, 0.5, 0], [0, 0.3, 0.1], [0, 0, 2]])
    rows = draw.normal(size=(30_000, 3)) @ mix + 5 * np.eye(3)[labels]
    asked = draw.normal(size=(50, 3)) * 4
    distance = Gaussians.of(torch.tensor(rows), torch.tensor(labels)).distance(torch.tensor(asked))
    expected = cdist(asked, 5 * np.eye(3), "mahalanobis", VI=np.linalg.inv(mix.T @ mix)).min(1)
    np.testing.assert_allclose(distance, expected, rtol=0.03, atol=0.03)


def test_gaussians_of_degenerate_rows_have_finite_distances() -> None:
    zeros = torch.zeros(100, dtype=torch.long)
    rows = torch.zeros(100, 3)
    rows[:, 0] = torch.linspace(-1, 1, 100)  # the other directions have no variance
    inside, silent = Gaussians.of(rows, zeros).distance(torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]))
    assert silent.isfinite()
    assert silent > 3 * inside
    equal = Gaussians.of(torch.ones(4, 2), zeros[:4])
    np.testing.assert_allclose(equal.distance(torch.tensor([[1.0, 1], [4, 5]])), [0, 5])
    rows = torch.tensor([[4.0], [5.0], [6.0], [9.0], [10.0], [11.0]])
    missing = Gaussians.of(rows, torch.tensor([1, 1, 1, 3, 3, 3]))  # classes 0 and 2 have no rows
    assert len(missing.centres) == 2
    assert missing.distance(torch.tensor([[0.0]])) > missing.distance(torch.tensor([[5.0]])) + 1


@pytest.mark.parametrize(
    "method", [ProdenEns(epochs=3, members=2), Auto(epochs=2, members=5)], ids=["networks", "stack"]
)
def test_runs_of_a_bundle_are_scored_as_each_alone(method: Method) -> None:
    indices = torch.stack([torch.arange(60), torch.arange(60) + 30])
    rows = Rows.of(torch.from_numpy(TRAIN), indices)
    sets = torch.eye(3).bool()[torch.from_numpy(LABELS)[indices]]
    asked = rows.others(torch.from_numpy(KNOWN), torch.arange(60).expand(2, -1))
    bundle = RunScorer.of(method.fit(Task.of(rows, sets, (4, 5))), rows).scores(asked)
    for run in range(2):
        part = slice(run, run + 1)
        fitted_alone = method.fit(Task.of(rows.part(part), sets[part], (4 + run,)))
        alone = RunScorer.of(fitted_alone, rows.part(part)).scores(asked.part(part))
        assert set(alone) == set(bundle)
        for name, score in alone.items():
            torch.testing.assert_close(score[0], bundle[name][run], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "absent", "shape"),
    [
        (RobustPll(epochs=1), (), (1, 60, 300)),
        (Proden(epochs=1), ("uncertainty",), (1, 60, 300)),
        (ProdenEns(epochs=1), ("uncertainty",), (5, 60, 300)),
        (CroSel(epochs=1), ("uncertainty",), (2, 60, 300)),
        (Valen(epochs=1, network="wide"), ("uncertainty",), (1, 60, 3)),
        (RobustPll(epochs=1, network=linear), (), (1, 60, 3)),
        (PlKnn(), ("energy", "uncertainty"), (1, 60, 3)),
        (Auto("network", epochs=1, members=5), (), (5, 60, 256)),
        (Auto(epochs=1, learner="trees"), ("energy",), (1, 60, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_model_has_every_score_or_says_why_not(
    method: Method, absent: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    """Distances are taken in the last hidden layer, or else the features."""
    model = fitted(method)
    scorer = OodScorer.of(model, TRAIN)
    scores = scorer.scores(KNOWN)
    assert tuple(scores) == tuple(name for name in ALL if name not in absent)
    assert sorted(scorer.run.absent) == sorted(absent)
    model.set_params(method="pl_knn")  # set after fitting, it does not change what is said
    assert all(method.title in reason for reason in scorer.run.absent.values())
    for values in scores.values():
        assert values.shape == (60,)
        assert np.isfinite(values).all()
    assert representation(model.fitted_, rows_of(model, KNOWN)).shape == shape


def test_energies_of_large_logits_do_not_overflow() -> None:
    model = fitted(Proden(epochs=1))
    with torch.no_grad():
        for parameter in model.fitted_.net.output.parameters():
            parameter.mul_(1e6)
    energies = OodScorer.of(model).scores(KNOWN)["energy"]
    assert np.isfinite(energies).all()
    assert np.abs(energies).max() > 1000, "exp would overflow"


def test_the_last_layer_makes_the_logits_of_the_hidden_rows(robust: PLLClassifier) -> None:
    """Up to the length of a row, which is taken away."""
    rows, networks = rows_of(robust, KNOWN), robust.fitted_
    last: Any = networks.net.output
    logits = networks.net(rows.x(rows.everything)).double()[0] - last.bias.double()[0]
    again = representation(networks, rows)[0] @ last.weight.double()[0]
    lengths = (logits * again).sum(-1) / (again * again).sum(-1)
    np.testing.assert_allclose(again * lengths[:, None], logits, atol=1e-4)


def test_scores_of_the_opinion_are_its_own_and_distances_need_training_rows(
    robust: PLLClassifier,
) -> None:
    opinion, scores = robust.predict_opinion(KNOWN), OodScorer.of(robust).scores(KNOWN)
    np.testing.assert_array_equal(scores["entropy"], opinion.entropy)
    np.testing.assert_array_equal(scores["uncertainty"], opinion.uncertainty)
    np.testing.assert_allclose(scores["missing probability"], 1 - opinion.probability.max(-1))
    report = ood_report(robust, KNOWN, FAR, gamma=2.0)
    assert set(report.absent) == {"class distance", "row distance"}
    assert all("pass X_train" in reason for reason in report.absent.values())
    assert set(report.separations) == set(ALL[:4])
    test, ood = (robust.predict_opinion(X).entropy.round(6) for X in (KNOWN, FAR))
    measures = (cdf_area(test, ood), signed_ks(test, ood), signed_mmd(test, ood, 2.0))
    assert (report.area, report.ks, report.mmd) == measures


def test_rows_far_away_are_found_and_the_report_is_a_table(robust: PLLClassifier) -> None:
    knn = fitted(PlKnn())
    assert (OodScorer.of(knn, TRAIN).scores(TRAIN)["row distance"] == 0).all()
    for model in (knn, robust):
        report = ood_report(model, KNOWN, FAR, X_train=TRAIN)
        assert report.separations["class distance"].auroc > 0.95
        assert report.separations["row distance"].auroc > 0.95
    table = report.to_frame()
    assert tuple(table.index) == ALL
    assert tuple(table.columns) == ("auroc", "aupr", "fpr95", "area", "ks", "mmd")
    assert table.loc["entropy", "ks"] == report.ks
    assert table.loc["energy", "fpr95"] == report.separations["energy"].fpr95
    assert table["mmd"].notna().sum() == 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_loaded_model_scores_as_before(
    robust: PLLClassifier, tmp_path: Path, device: str
) -> None:
    robust.save(tmp_path / "model")
    again = OodScorer.of(load(tmp_path / "model", device=device), TRAIN)
    assert again.model.fitted_.device.type == device
    margin = 0 if device == "cpu" else 0.02
    for name, values in OodScorer.of(robust, TRAIN).scores(KNOWN).items():
        np.testing.assert_allclose(again.scores(KNOWN)[name], values, rtol=margin, atol=margin)


def test_only_fitted_models_of_this_library_and_rows_like_theirs_are_scored(
    robust: PLLClassifier,
) -> None:
    with pytest.raises(InputError, match="got LogisticRegression"):
        ood_report(LogisticRegression(), KNOWN, FAR)
    with pytest.raises(NotFittedError):
        ood_report(RobustPLLClassifier(), KNOWN, FAR)
    with pytest.raises(ValueError, match="4 features"):
        ood_report(robust, KNOWN, np.ones((5, 4)))


@pytest.mark.parametrize(("n", "h"), [(200, 5), (10, 30), (2, 3)])
def test_covariances_are_shrunk_as_by_scikit_learn(n: int, h: int) -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(n, h)) @ draw.normal(size=(h, h))
    expected, _ = ledoit_wolf(rows, assume_centered=True)
    np.testing.assert_allclose(shrunk_covariance(torch.tensor(rows)), expected, rtol=1e-9)
