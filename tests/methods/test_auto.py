"""The default method: what counts, how sure it is, and what it leaves out."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

from robustpll import Candidates, InputError, PLLClassifier, RobustPLLClassifier, Sure, Votes
from robustpll.engine.data import Rows, Task
from robustpll.labels.votes import normalized
from robustpll.methods import RobustPllViews
from robustpll.methods.answers import Answers
from robustpll.methods.auto import Auto, OneStack, exponents

N, K = 3000, 4


def sets(depend: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Answers]:
    """Probabilities, the distractor of each row, and answers.

    In a share of the rows, the distractor is the most plausible wrong class, else a random one.
    """
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(K, 0.4), N)
    truth = (probability.cumsum(-1) > rng.random((N, 1))).argmax(-1)
    plausible = np.where(np.arange(K) == truth[:, None], -1, probability).argmax(-1)
    other = (truth + rng.integers(1, K, N)) % K
    distractor = np.where(rng.random(N) < depend, plausible, other)
    candidates = (np.arange(K) == truth[:, None]) | (np.arange(K) == distractor[:, None])
    prior = candidates / candidates.sum(-1, keepdims=True)
    return probability, distractor, Answers(candidates, prior, prior, np.ones(N), None)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_exponents_undo_what_made_a_learner_too_sure_or_not_sure_enough(power: float) -> None:
    probability, _, answers = sets(0.0)
    evidence = torch.from_numpy(1e5 * normalized(probability**power))
    (log_power, _), _ = exponents({"network": evidence}, answers)
    assert np.exp(log_power) == pytest.approx(1 / power, rel=0.1)


def test_trees_that_predict_distractors_are_left_out() -> None:
    probability, distractor, answers = sets(0.5)
    learned = 0.7 * probability + 0.3 * np.eye(K)[distractor]
    for trees, are_used in ((probability, True), (learned, False)):
        network = torch.from_numpy(1e4 * normalized(probability**0.8))
        evidence = {"network": network, "trees": torch.from_numpy(trees)}
        fitted, judged = OneStack({}).fitted_to(evidence, answers)
        assert fitted.powers["trees"] > fitted.powers["network"]  # likelihood prefers them
        assert ("trees" in fitted.useful(evidence, judged)) == are_used


def test_networks_that_have_not_learned_are_no_reason_to_drop_trees() -> None:
    X, y = load_wine(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:120], rows[120:]
    distractors = np.random.default_rng(1).integers(3, size=120)
    names = [{*pair} for pair in zip(y[train], distractors, strict=True)]
    for epochs in (1, 10):
        model = RobustPLLClassifier(epochs=epochs, random_state=0).fit(X[train], names)
        assert "trees" in model.fitted_.learners
        assert model.score(X[test], y[test]) > 0.85


def test_what_answers_tell_depends_on_who_gave_them_and_candidates_on_their_class() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(K, size=N)
    right = rng.random((N, 3)) < [0.9, 0.9, 0.4]
    codes = np.where(right, truth[:, None], rng.integers(K, size=(N, 3)))
    matrix = np.ones((N, K), dtype=bool)
    flat = np.full((N, K), 1 / K)
    answers = Answers(matrix, flat, flat, np.ones(N), codes).told()
    differ = (codes[:, 0] == codes[:, 1]) & (codes[:, 0] != codes[:, 2])
    assert (answers.likelihood.argmax(-1) == codes[:, 0])[differ].all()
    frequent = (np.arange(K) == truth[:, None]) | (np.arange(K) == 0)
    prior = normalized(frequent * 1.0)
    of_sets = Answers(frequent, prior, prior, np.ones(N), None)
    told = of_sets.given(np.full((N, K), 1 / K)).likelihood
    assert (told[truth > 0].argmax(-1) == truth[truth > 0]).all()  # class 0 is in every set


@pytest.mark.parametrize("k", [3, 10])
def test_one_who_always_answers_the_same_does_not_spoil_the_default(k: int) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 2.0, (k, 5))
    truth = rng.integers(k, size=600)
    X = rng.normal(centres[truth], 1.0)
    known = rng.random((600, 2)) < [0.92, 0.6]
    answers = np.where(known, truth[:, None], rng.integers(k, size=(600, 2)))
    votes = Votes(np.column_stack([answers, np.zeros(600, dtype=int)])[:400])
    model = RobustPLLClassifier(random_state=0).fit(X[:400], votes)
    assert model.score(X[400:], truth[400:]) > 0.8
    assert (model.labels_ == truth[:400]).mean() > 0.9


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(K, size=n)
    centres = np.random.default_rng(7).normal(0, 1.6, (K, 5))
    return rng.normal(centres[truth], 1.0), truth


@pytest.mark.parametrize("form", ["sets", "votes"])
def test_the_model_is_about_as_sure_as_it_is_right(form: str) -> None:
    (X, y), (X_test, y_test) = blobs(800, 0), blobs(2000, 1)
    rng = np.random.default_rng(2)
    if form == "sets":
        labels: Any = (np.arange(K) == y[:, None]) | (rng.random((800, K)) < [0.1, 0.2, 0.4, 0.6])
    else:
        right = rng.random((800, 4)) < [0.9, 0.7, 0.6, 0.5]
        labels = Votes(np.where(right, y[:, None], rng.integers(K, size=(800, 4))))
    settings: Any = {"epochs": 30, "members": 5, "random_state": 0}
    model = RobustPLLClassifier(**settings).fit(X, labels)
    accuracy, sure = model.score(X_test, y_test), model.predict_proba(X_test).max(-1).mean()
    assert 0.7 < accuracy < 0.98
    assert abs(sure - accuracy) < 0.05
    accepted = model.decide(X_test, error=0.1).accepted
    assert accepted.mean() > 0.3
    assert (model.predict(X_test) != y_test)[accepted].mean() < 0.14
    assert torch.tensor(model.held_out_.probability).isfinite().all()


@pytest.mark.parametrize("members", [1, 3])
def test_rows_that_no_member_left_out_are_labelled_by_all_members(members: int) -> None:
    X, y = blobs(300, 0)
    sets = (np.arange(K) == y[:, None]) | (np.random.default_rng(1).random((300, K)) < 0.4)
    settings: Any = {"epochs": 20, "learner": "network", "random_state": 0}
    model = RobustPLLClassifier(members=members, **settings).fit(X, sets)
    assert model.held_out_ is None
    assert (model.labels_ == y).mean() > (model.predict(X) == y).mean() - 0.05


def test_one_row_may_have_all_the_weight_and_folds_may_be_more_than_half_of_the_rows() -> None:
    X, y = blobs(40, 0)
    settings: Any = {"epochs": 2, "random_state": 0}
    for learner in ("auto", "network", "trees"):
        model = RobustPLLClassifier(members=5, learner=learner, **settings)
        model.fit(X, y, sample_weight=np.arange(40) == 7)
        assert np.isfinite(model.predict_proba(X)).all()
    alone = RobustPLLClassifier(members=1, learner="network", **settings)
    alone.fit(X, y, sample_weight=np.arange(40) == 0)
    assert PLLClassifier(Auto(folds=30, epochs=1)).fit(X, y).predict(X).shape == (40,)


def test_an_adversary_is_refused_where_there_is_none() -> None:
    X = np.random.default_rng(0).random((120, 3))
    with pytest.raises(InputError, match="adversary must be None or 0 with 50 classes"):
        RobustPLLClassifier(adversary=0.1, epochs=1).fit(X, np.arange(120) % 60)


@pytest.mark.parametrize("k", [60, 1000])
def test_many_classes_do_not_outweigh_a_sure_one(k: int) -> None:
    sure = torch.from_numpy(0.999 * np.eye(k) + 0.001 / k)
    matrix = np.eye(k, dtype=bool)
    answers = Answers(matrix, 1.0 * matrix, 1.0 * matrix, np.ones(k), None)
    stack, _ = OneStack({}).fitted_to({"network": sure}, answers)
    assert stack.probability({"network": sure}).max(-1).min() > 0.95


def test_a_row_may_be_labelled_as_a_class_that_nobody_named() -> None:
    """One annotator names a wrong class in 30 % of the rows; features tell the true one."""
    X, y = blobs(600, 0)
    X = X + 3 * np.random.default_rng(7).normal(0, 1.6, (K, 5))[y]  # far apart
    rng = np.random.default_rng(1)
    answers = np.where(rng.random(600) < 0.7, y, (y + rng.integers(1, K, 600)) % K)[:, None]
    model = RobustPLLClassifier(epochs=30, members=5, random_state=0).fit(X, Votes(answers))
    assert (model.labels_ == y).mean() > 0.95


@pytest.mark.filterwarnings("ignore:.*of the rows whose annotators all agree")
def test_mistakes_that_annotators_share_are_not_believed() -> None:
    """In a quarter of the rows all annotators give the same wrong answer."""
    X, y = blobs(800, 0)
    rng = np.random.default_rng(3)
    looks = np.where(rng.random(800) < 0.25, (y + rng.integers(1, K, 800)) % K, y)
    right = rng.random((800, 4)) < 0.8
    answers = np.where(right, looks[:, None], rng.integers(K, size=(800, 4)))
    model = RobustPLLClassifier(epochs=30, members=5, random_state=0).fit(X, Votes(answers))
    majority = (answers[:, :, None] == np.arange(K)).sum(1).argmax(-1)
    assert (model.labels_ == y).mean() > (majority == y).mean() + 0.08
    assert model.predict_proba(X).max(-1).mean() < model.score(X, y) + 0.05


def test_uncertain_answers_and_weights_of_rows_count() -> None:
    X, y = np.random.default_rng(0).normal(size=(160, 4)), np.arange(160) % K
    cells = np.empty((160, 2), dtype=object)
    for row, label in enumerate(y.tolist()):
        cells[row] = [label, label] if row < 80 else [Sure(label, 0.95), Sure(label, 0.95)]
    settings: Any = {"epochs": 2, "members": 5, "random_state": 0, "learner": "network"}
    model = RobustPLLClassifier(**settings).fit(X, Votes(cells))
    assert (model.labels_ == y).mean() > 0.9
    weight = (np.arange(160) < 80).astype(float)
    told = []
    for others in (y, (y + 1) % K):  # differ in rows of weight 0
        answers = np.where(weight[:, None] > 0, y[:, None], others[:, None]).repeat(2, 1)
        model = RobustPLLClassifier(**settings).fit(X, Votes(answers), sample_weight=weight)
        told.append(model.predict_proba(X))
    np.testing.assert_allclose(*told, atol=0.05)


def test_nobody_may_have_answered() -> None:
    nothing = Candidates.of(
        Votes(np.full((40, 2), None), unanswered="all classes"), classes=list("abc")
    )
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = PLLClassifier(Auto(epochs=2, learner="network")).fit(X, nothing)
    assert np.isfinite(model.predict_proba(X)).all()


def picture_task(n: int, *shape: int) -> Task:
    pool = torch.zeros(1).expand(n, *shape)
    sets = torch.ones(1, n, K, dtype=torch.bool)
    ones = torch.ones(1, 1, *shape)
    rows = Rows(pool, torch.arange(n)[None], torch.zeros_like(ones), ones)
    return Task.of(rows, sets, (0,))


def test_pictures_are_learned_from_views_unless_that_takes_too_long() -> None:
    task = picture_task(2000, 1, 28, 28)
    method = Auto().networks(task)
    assert isinstance(method, RobustPllViews)
    assert (method.network, method.batch_size, Auto().count(task)) == ("convnet", 100, 5)
    assert method.learning_rate == pytest.approx(0.2 * 100 / 256)
    assert method.weight_decay == 5e-4
    seen = 2 * 5 * 2000 * 0.8 * 28 * 28  # pixels in an epoch: two views, five networks
    assert method.epochs == int(5e8 / seen)
    for large in (picture_task(13_000, 1, 28, 28), picture_task(3300, 3, 32, 32)):
        assert Auto().networks(large).network == "mlp"  # on a CPU
    for other in (picture_task(2000, 28, 28), picture_task(2000, 1, 8, 8)):
        assert Auto().networks(other).network == "mlp"  # no axis of channels; too small
    assert Auto().networks(picture_task(2000, 64)).network == "small"
    assert Auto().count(picture_task(2000, 64)) == 10


@pytest.mark.filterwarnings("ignore:Auto has learned little")
def test_an_adversary_is_refused_with_many_classes_unless_networks_are_convolutional() -> None:
    labels = np.arange(100) % 50
    method = Auto(adversary=0.01, epochs=1)
    with pytest.raises(InputError, match="adversary must be None or 0 with 50 classes"):
        PLLClassifier(method).fit(labels[:, None], labels)
    pictures = np.broadcast_to(labels[:, None, None, None], (100, 3, 16, 16)).astype(np.uint8)
    model = PLLClassifier(method, random_state=0).fit(pictures, labels)
    assert model.predict_proba(pictures).shape == (100, 50)


def test_what_is_set_for_pictures_is_heeded() -> None:
    settings: Any = {"learning_rate": 0.05, "weight_decay": 0.0, "epochs": 3, "adversary": 0.1}
    method = Auto(network="resnet9", batch_size=64, **settings).networks(picture_task(900, 28, 28))
    assert isinstance(method, RobustPllViews)
    assert {name: getattr(method, name) for name in settings} == settings
    assert (method.network, method.batch_size) == ("resnet9", 45)


def test_views_of_unscaled_pictures_are_refused() -> None:
    pictures = np.zeros((30, 3, 16, 16), dtype=np.uint8)
    with pytest.raises(InputError, match="scale=None has another range"):
        RobustPLLClassifier(scale=None, epochs=1).fit(pictures, ["a", "b"] * 15)
