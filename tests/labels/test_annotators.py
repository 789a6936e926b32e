"""Crowds: what is estimated from simulated answers, and how that compares with crowd-kit."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustpll.labels.annotators import (
    Crowd,
    copies,
    first_crowd,
    overruled,
    posterior_given_answers,
    resolve,
    shared_doubt,
)
from robustpll.labels.votes import votes_for

N, K = 4000, 4


def simulated(
    skills: list[float], mistakes: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers (N, annotators), a model's calibrated probabilities, and true classes."""
    rng = np.random.default_rng(seed)
    model = rng.dirichlet(np.full(K, 0.3), N)
    truth = (model.cumsum(-1) > rng.random((N, 1))).argmax(-1)
    looks = np.where(rng.random(N) < mistakes, (truth + rng.integers(1, K, N)) % K, truth)
    right = rng.random((N, len(skills))) < skills
    wrong = (looks[:, None] + rng.integers(1, K, right.shape)) % K
    answers = np.where(right, looks[:, None], wrong)
    answers[rng.random(right.shape) < 0.3] = -1
    return answers, model, truth


def people_of(k: int, *habits: float | str, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Answers (n, annotators), 30 % of them missing, and true classes.

    A number is how often the class is known, otherwise guessed. "same" always answers the same, and
    "shifted" the next class in four of five rows.
    """
    rng = np.random.default_rng(1)
    truth = rng.integers(k, size=n)
    answers = []
    for habit in habits:
        if isinstance(habit, float):
            given = np.where(rng.random(n) < habit, truth, rng.integers(k, size=n))
        elif habit == "same":
            given = np.zeros(n, dtype=int)
        else:
            given = np.where(rng.random(n) < 0.8, (truth + 1) % k, truth)
        answers.append(np.where(rng.random(n) < 0.3, -1, given))
    return np.stack(answers, 1), truth


@pytest.mark.parametrize("k", [2, 4, 10, 60])
@pytest.mark.parametrize("others", [(0.92, 0.6), (0.92, 0.6, 0.0), (0.9, 0.6, 0.6, "same")])
def test_one_who_always_answers_the_same_is_not_believed(k: int, others: Any) -> None:
    answers, truth = people_of(k, *others, "same")
    crowd = first_crowd(answers, k)
    assert crowd.reliability[:2].min() > crowd.reliability[-1] + 0.2
    assert crowd.reliability[-1] < 1 / k + 0.15
    known = crowd.log_likelihood(answers).argmax(-1) == truth
    one_coin = Crowd.fit(answers, k, kind="number").log_likelihood(answers).argmax(-1) == truth
    assert known[answers[:, 0] >= 0].mean() > 0.75
    if "same" not in others:
        assert one_coin.mean() < known.mean() - 0.15, "the class of these answers seems frequent"


@pytest.mark.parametrize("k", [3, 6, 10])
def test_people_with_the_same_wrong_code_book_do_not_outvote_more_others(k: int) -> None:
    answers, truth = people_of(k, "shifted", "shifted", 0.6, 0.6, 0.6)
    crowd = first_crowd(answers, k)
    assert crowd.reliability[:2].max() < 0.4 < crowd.reliability[2:].min()
    assert (crowd.log_likelihood(answers).argmax(-1) == truth).mean() > 0.85


def test_without_a_model_answers_of_one_class_do_not_decide_all_rows() -> None:
    answers, truth = people_of(4, 0.8, 0.8, "same", "same")
    flat = np.full((len(answers), 4), 0.25)
    labels = resolve(answers, flat).probability.argmax(-1)
    assert (labels == truth).mean() > (votes_for(answers, 4).argmax(-1) == truth).mean() + 0.1


@pytest.mark.parametrize("kind", ["number", "guesses", "confusion", "hierarchical"])
def test_reliabilities_are_found(kind: str) -> None:
    skills = [0.9, 0.8, 0.7, 0.6, 0.5]
    answers, model, _ = simulated(skills)
    for prior in (None, model):
        crowd = Crowd.fit(answers, K, prior, kind=kind)  # type: ignore[arg-type]
        np.testing.assert_allclose(crowd.reliability, skills, atol=0.06)


def test_confusions_are_found_and_few_answers_are_taken_for_those_of_the_crowd() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(K, size=N)
    usual = np.full((K, K), 0.05) + 0.8 * np.eye(K)
    swaps = usual[[1, 0, 2, 3]]  # takes class 0 for 1, and 1 for 0
    drawn = rng.random((N, 6, 1))
    answers = (usual[truth].cumsum(-1)[:, None] < drawn).sum(-1)
    answers[:, 0] = (swaps[truth].cumsum(-1) < drawn[:, 0]).sum(-1)
    answers[8:, 1] = -1
    crowd = Crowd.fit(answers, K)
    assert crowd.confusion is not None
    np.testing.assert_allclose(crowd.confusion[0], swaps, atol=0.04)
    np.testing.assert_allclose(crowd.confusion[1], usual, atol=0.25)
    np.testing.assert_allclose(crowd.confusion.sum(-1), 1)
    one = Crowd.fit(answers, K, kind="number")
    truth_of = [
        posterior_given_answers(c, answers, np.full((N, K), 0.25)).argmax(-1) for c in (crowd, one)
    ]
    assert (truth_of[0] == truth).mean() > (truth_of[1] == truth).mean()


@pytest.mark.parametrize("mistakes", [0.0, 0.1, 0.2])
def test_shared_mistakes_are_estimated_and_the_interval_holds_what_nobody_named(
    mistakes: float,
) -> None:
    held = []
    for seed in range(10):
        answers, model, truth = simulated([0.9, 0.8, 0.7], mistakes, seed)
        found = resolve(answers, model)
        assert found.crowd.mistakes == pytest.approx(mistakes, abs=0.05)
        answered = (answers >= 0).any(-1)
        unnamed = (votes_for(answers, K)[np.arange(N), truth] == 0)[answered].mean()
        held.append(found.missing[0] <= unnamed <= found.missing[2])
        label = found.probability.argmax(-1)
        sure, right = found.probability.max(-1)[answered].mean(), (label == truth)[answered].mean()
        assert -0.05 < sure - right < 0.02
    assert sum(held) >= 9


def test_doubt_that_people_share_with_the_model_is_seen() -> None:
    answers, model, _ = simulated([0.9, 0.8, 0.7])
    assert shared_doubt(answers, model) < 0.15
    rng = np.random.default_rng(1)
    drawn = (model.cumsum(-1)[:, None] > rng.random((N, 3, 1))).argmax(-1)  # people as the model
    assert shared_doubt(drawn, model) == 1
    found = resolve(drawn, model)
    np.testing.assert_allclose(found.probability.max(-1), model.max(-1), atol=1e-9)
    few = np.full((N, 3), -1)
    few[:20] = answers[:20]
    assert shared_doubt(few, model) == 0.5


def test_rows_without_answers_keep_the_probabilities_of_the_model() -> None:
    answers, model, _ = simulated([0.9, 0.8])
    answers[:100] = -1
    found = resolve(answers, model)
    np.testing.assert_allclose(found.probability[:100], model[:100], rtol=1e-6)


def test_many_classes_need_little_memory() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(1000, size=500)
    answers = np.where(rng.random((500, 200)) < 0.5, truth[:, None], -1)
    crowd = Crowd.fit(answers, 1000)
    assert crowd.confusion is None
    assert (crowd.log_likelihood(answers).argmax(-1) == truth).all()


# right labels by crowd-kit 1.4.2: OneCoinDawidSkene and DawidSkene with 100 rounds
CROWD_KIT = {
    "bluebirds": (0.583, 0.889),
    "dogs": (0.830, 0.843),
    "faces": (0.611, 0.640),
    "products": (0.908, 0.940),
}


@pytest.mark.data
@pytest.mark.parametrize("name", CROWD_KIT)
def test_real_votes_are_resolved_as_by_crowd_kit(name: str) -> None:
    answers, truth = read_votes(Path(os.environ["ROBUSTPLL_DATA"]) / "votes-only", name)
    k = max(truth.max(), answers.max()) + 1
    known = truth >= 0
    shares = votes_for(answers, k).sum(0)
    prior = np.tile(shares / shares.sum(), (len(truth), 1))
    right = {}
    for kind in ("number", "confusion", "hierarchical"):
        crowd = Crowd.fit(answers, k, kind=kind)  # type: ignore[arg-type]
        right[kind] = (posterior_given_answers(crowd, answers, prior).argmax(-1) == truth)[
            known
        ].mean()
    one_coin, dawid_skene = CROWD_KIT[name]
    assert right["number"] == pytest.approx(one_coin, abs=0.015)
    assert right["confusion"] == pytest.approx(dawid_skene, abs=0.015)
    assert right["hierarchical"] > dawid_skene - 0.015


def read_votes(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return answers (n, annotators) and true classes (n,) as codes, -1 for none."""
    frames = []
    for part in ("answers", "truth"):
        with gzip.open(folder / f"{name}_{part}.csv.gz", "rt") as file:
            frames.append(pd.read_csv(file))
    told, truth = frames
    classes = pd.Index(sorted({*told["answer"], *truth["truth"]}))
    questions, workers = (pd.Index(told[column].unique()) for column in ("question", "worker"))
    answers = np.full((len(questions), len(workers)), -1)
    at = questions.get_indexer(told["question"]), workers.get_indexer(told["worker"])
    answers[at] = classes.get_indexer(told["answer"])
    true = truth.set_index("question")["truth"].reindex(questions)
    return answers, classes.get_indexer(true)


def test_one_class_and_many_annotators_are_no_problem() -> None:
    assert Crowd.fit(np.zeros((30, 2), dtype=int), 1).reliability.min() > 0.5
    answers = np.full((50, 2000), -1)
    answers[:, :3] = np.arange(50)[:, None]
    assert (Crowd.fit(answers, 500).log_likelihood(answers).argmax(-1) == np.arange(50)).all()


def test_a_model_that_says_the_same_about_all_rows_leaves_the_labels_to_the_people() -> None:
    """Most rows are of class 0; a model that knows only that must not outvote all people."""
    random = np.random.default_rng(0)
    truth = (random.random(600) < 0.12).astype(int)
    right = random.random((600, 3)) < 0.85
    answers = np.where(right, truth[:, None], 1 - truth[:, None])
    sure = np.tile([0.98, 0.02], (600, 1))
    assert (resolve(answers, sure).probability.argmax(-1) == truth).mean() > 0.93


def test_a_model_of_many_classes_counts_though_each_of_its_probabilities_is_small() -> None:
    random, k, n = np.random.default_rng(0), 200, 1000
    truth = random.integers(k, size=n)
    right = random.random((n, 3)) < 0.5
    answers = np.where(right, truth[:, None], random.integers(k, size=(n, 3)))
    model = np.full((n, k), 0.85 / (k - 1))
    model[np.arange(n), truth] = 0.15
    assert (resolve(answers, model).probability.argmax(-1) == truth).mean() > 0.85


def test_copies_are_found_and_independent_people_are_not() -> None:
    answers, _, _ = simulated([0.9, 0.8, 0.6, 1.0, 1.0])
    assert copies(answers) == []  # two experts are none
    assert copies(answers[:, [0, 1, 2, 1]]) == [(1, 3)]
    assert copies(answers[:, [0, 1, 1]]) == []  # one other person cannot tell
    assert copies(answers[:40, [0, 1, 2, 1]]) == []  # too few rows
    assert copies(np.full((100, 3), -1)) == []


def test_overruled_rows_are_those_of_one_opinion() -> None:
    answers = np.array([[0, 0, -1], [1, 1, 1], [0, 1, 1], [2, -1, -1], [-1, -1, -1]])
    assert overruled(answers, np.array([0, 0, 0, 0, 0])) == 0.5
    assert overruled(answers[2:], np.array([0, 0, 0])) == 0.0
