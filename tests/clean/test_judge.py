"""Out-of-fold judgement, what is found by it, and whom to ask about which row first."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll.clean.judge import (
    Judgement,
    judge,
    judgement,
    posterior_given_candidates,
    recalibrated,
)
from robustpll.clean.review import (
    annotators,
    candidates_that_look_wrong,
    confused_pairs,
    query_order,
    review,
    sets_that_miss_the_truth,
    twins,
)
from robustpll.engine.data import fold_indices
from robustpll.engine.history import reporting
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.methods import Auto, Method, PlKnn, Proden
from robustpll.opinion import Opinion

Judged = Callable[..., Judgement]
LINES = np.array([2, 3, 5])
NO_TWINS = pd.DataFrame({"row": [], "twin": []})


def clusters(rows: int = 91) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    truth = random.integers(3, size=rows)
    X = random.normal(truth[:, None], 0.1, size=(rows, 2))
    return X, truth, (random.random((rows, 3)) < 0.3) | np.eye(3, dtype=bool)[truth]


@settings(max_examples=40)
@given(st.integers(4, 60), st.integers(2, 7), st.integers(0, 3))
def test_every_row_is_judged_once_and_by_a_model_that_did_not_see_it(
    n: int, folds: int, seed: int
) -> None:
    folds = min(folds, n // 2)
    train, test = fold_indices(n, folds, seed)
    judged: set[int] = set()
    for learned, fold in zip(train.tolist(), test.tolist(), strict=True):
        assert not set(learned) & set(fold)
        assert len(set(learned)) == len(learned)  # a row twice would count double
        assert not judged & set(fold)
        judged |= set(fold)
    assert judged == set(range(n))
    assert train.shape[1] >= n - -(-n // folds)


@pytest.mark.parametrize(
    "method",
    [PlKnn(), Proden(epochs=1), Auto("network", epochs=40, members=4)],
    ids=["classical", "network", "default"],
)
def test_the_candidates_of_a_row_do_not_change_its_prediction(method: Method) -> None:
    X, truth, y = clusters(41)
    changed = y.copy()
    changed[7] = np.arange(3) == (truth[7] + 1) % 3
    before, after = (
        judge(X, Candidates.of(sets), method, folds=2).opinion.probability[7]
        for sets in (y, changed)
    )
    # recalibration looks at all sets: one factor for all, which keeps the order
    assert np.argsort(before).tolist() == np.argsort(after).tolist()
    np.testing.assert_allclose(before, after, atol=0.05)


@pytest.mark.parametrize("options", [{"members": 2}, {"members": 5, "early_stopping": True}])
def test_members_that_saw_a_row_do_not_judge_it(options: Any) -> None:
    """Two hold out two folds only; early stopping looks at what it holds out."""
    X, truth, y = clusters(60)
    epochs: list[Any] = []
    with reporting(SimpleNamespace(on_epoch_end=epochs.append)):
        method = Auto("network", epochs=20, **options)
        opinion = judge(X, Candidates.of(y), method, folds=5).opinion
    assert (opinion.predicted() == truth).mean() > 0.9
    assert len(epochs) == 5 * 20  # one training for each fold


def test_labels_are_resolved_and_a_set_without_the_truth_stands_out() -> None:
    X, truth, y = clusters()
    y[7] = np.arange(3) != truth[7]
    judged = judge(X, Candidates.of(y), PlKnn(), seed=3)
    assert (judged.labels == truth).sum() == len(truth) - 1
    assert judged.missing.argmax() == judged.confidence.argmin() == 7
    same, other = (judge(X, Candidates.of(y), PlKnn(), seed=seed).probability for seed in (3, 4))
    assert np.array_equal(judged.probability, same)
    assert not np.array_equal(judged.probability, other)
    for folds in (1, 50, 2.5):
        with pytest.raises(InputError, match="folds must be an int of at least 2"):
            judge(X, Candidates.of(y), PlKnn(), folds=folds)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"At least 4 rows are needed.* got 3"):
        judge(X[:3], Candidates.of(y)[:3], PlKnn(), folds=2)


def test_decided_rows_are_certain(judged_as: Judged) -> None:
    decided = np.array([True, False])
    judged = judged_as([[0.9, 0.1, 0]] * 2, [{"bee"}, {"ant", "bee"}], decided=decided)
    assert judged.confidence[1] < judged.confidence[0] == 1
    assert judged.labels.tolist() == ["bee", "ant"]


def test_votes_and_the_model_are_weighed_together() -> None:
    prior = np.array([[0.75, 0.25, 0]])
    indifferent = posterior_given_candidates(np.full((1, 3), 1 / 3), prior)[0]
    assert indifferent[0] / indifferent[1] == pytest.approx(3)
    convinced = posterior_given_candidates(np.array([[0.05, 0.9, 0.05]]), prior)[0]
    assert convinced[1] > convinced[0]
    both = posterior_given_candidates(np.array([[0.5, 0.4, 0.1]]), np.array([[0.25, 0.75, 0.0]]))[0]
    np.testing.assert_allclose(both, [0.29, 0.70, 0.01], atol=0.006)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.1))
def test_probabilities_sum_to_one_even_where_the_model_rules_all_candidates_out(
    p: list[float],
) -> None:
    for prior in ([[0.5, 0.5, 0]], [[1.0, 0, 0]], [[0.2, 0.3, 0.5]]):
        probability = posterior_given_candidates(np.array([p]) / sum(p), np.array(prior))
        assert probability.sum() == pytest.approx(1)
        assert (probability >= 0).all()


def test_a_model_that_is_too_sure_is_made_less_sure() -> None:
    truth = np.random.default_rng(0).random(2000) < 0.7
    sure = Opinion.of_probability(np.tile([0.01, 0.99], (2000, 1)))
    opinion = recalibrated(sure, np.stack([~truth, truth], 1))
    assert opinion.probability[0, 1] == pytest.approx(0.7, abs=0.06)
    assert recalibrated(sure, np.ones((2000, 2), dtype=bool)) is sure  # such sets say nothing


def test_wrong_candidates_sets_and_pairs_of_classes_are_listed(judged_as: Judged) -> None:
    votes = Votes(pd.DataFrame({"ada": ["ant", "bee", "cow"], "zoe": ["cow", "bee", "ant"]}))
    judged = judged_as([[0.97, 0.02, 0.01], [0, 1, 0], [0.5, 0, 0.5]], votes)
    frame = candidates_that_look_wrong(judged, LINES, votes)
    columns = ["row", "candidate", "more_likely", "annotators"]
    assert frame[columns].to_numpy().tolist() == [[2, "cow", "ant", "zoe"]]
    judged = judged_as([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0.2, 0.7]], [{"ant"}] * 3)
    frame = sets_that_miss_the_truth(judged, LINES)
    assert frame["row"].tolist() == [3, 5]  # the most suspicious first
    assert frame["looks_like"].tolist() == ["bee", "cow"]
    sets = [{"ant", "bee"}, {"ant", "bee"}, {"cow"}]
    first = confused_pairs(judged_as([[0.6, 0.4, 0], [0.4, 0.6, 0], [0, 0.1, 0.9]], sets)).iloc[0]
    assert (first["class"], first["other_class"]) == ("ant", "bee")
    assert first["confused_rows"] == pytest.approx(0.8)
    assert first["rows_with_both_candidates"] == 2


def test_annotators_are_judged_by_the_others_and_few_answers_do_not_make_the_best(
    judged_as: Judged,
) -> None:
    """Where the model knows nothing, two against one are right, and one alone has no support."""
    votes = Votes(pd.DataFrame({"ada": ["ant"] * 30, "bob": ["ant"] * 30, "zoe": ["bee"] * 30}))
    frame = annotators(judged_as(np.full((30, 3), 1 / 3), votes), LINES, votes)
    zoe = frame.iloc[-1]
    assert (zoe["annotator"], zoe["answers"], zoe["agreed"]) == ("zoe", 30, 0)
    assert zoe["high"] == pytest.approx(0.1135, abs=1e-4)  # Wilson's, of 0 in 30
    bob, ada = ["ant"] + [None] * 99, ["ant"] * 99 + ["bee"]
    votes = Votes(pd.DataFrame({"bob": bob, "ada": ada, "eve": [None] * 100}))
    frame = annotators(judged_as([[0.9, 0.05, 0.05]] * 100, votes), LINES, votes)
    assert frame["annotator"].tolist() == ["ada", "bob", "eve"]
    assert frame["agreement"].isna().tolist() == [False, False, True]


def test_a_right_answer_is_no_mistake_of_an_annotator() -> None:
    """With two classes there are fewer kinds of mistakes than are listed of more classes."""
    truth = np.repeat(["ant", "bee"], 50)
    others = np.where(np.arange(100) % 7 == 0, "ant", truth)
    votes = Votes(pd.DataFrame({"ada": truth, "bob": others, "eve": truth}))
    y = Candidates.of(votes)
    opinion = Opinion.of_probability(0.8 * np.eye(2)[np.repeat([0, 1], 50)] + 0.1)
    judged = judgement(y, opinion, torch.arange(100.0)[:, None], answers=y.answers)
    confused = annotators(judged, np.arange(100), votes).set_index("annotator")["most_confused"]
    assert "bee taken for ant" in confused["bob"]
    for text in confused:
        for mistake in filter(None, text.split("; ")):
            one, other = mistake.split(" (")[0].split(" taken for ")
            assert one != other


def test_twins_are_near_and_have_no_candidate_in_common(judged_as: Judged) -> None:
    features = torch.tensor([[0.0], [0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    sets = [{"ant"}, {"bee"}, {"ant", "bee"}, {"cow"}, {"ant"}, {"cow"}, {"ant"}]
    frame = twins(judged_as(np.full((7, 3), 1 / 3), sets, features), np.arange(10, 17))
    assert frame[["row", "twin", "distance"]].to_numpy().tolist() == [[10, 11, 0]]
    assert frame["twin_candidates"].tolist() == ["bee"]


def test_people_are_asked_about_as_few_rows_as_keep_the_others_right(judged_as: Judged) -> None:
    doubts = [0.0, 0.02, 0.04, 0.3, 0.45]
    judged = judged_as([[1 - doubt, doubt, 0] for doubt in doubts], [{"ant", "bee"}] * 5)
    for error, rows in ((0.02, [4, 3]), (0.005, [4, 3, 2, 1]), (0.4, [])):
        frame = review(judged, np.arange(5), NO_TWINS, error=error)
        assert frame.index.tolist() == frame["row"].tolist() == rows
        assert frame["reason"].tolist() == ["ant or bee"] * len(rows)
        assert frame["candidates"].tolist() == ["ant|bee"] * len(rows)


def test_the_reasons_name_what_is_odd(judged_as: Judged) -> None:
    probability = [[0, 0.001, 0.999], [0.9, 0.1, 0], [0.9, 0.1, 0]]
    judged = judged_as(probability, [{"ant", "bee"}, {"ant"}, {"bee"}])
    contrary = pd.DataFrame({"row": [11], "twin": [12]})
    frame = review(judged, np.array([10, 11, 12]), contrary, error=0.01).set_index("row")
    assert frame.loc[10, "why"] == "truth missing"
    assert "looks like cow, which is not a candidate" in frame.loc[10, "reason"]
    assert frame.loc[11, "why"] == "contradicts twin"
    assert frame.loc[11, "reason"].startswith("nearly equals row 12")


def test_the_two_classes_of_an_ambiguous_row_are_the_most_probable_ones(judged_as: Judged) -> None:
    votes = Votes([["ant", "bee", "cow", "ant"]] * 40)  # any class may be a label
    random = np.random.default_rng(0)
    for y in (votes, [{"ant", "bee"}] * 40, [{"ant"}] * 40, [{"ant", "bee", "cow"}] * 40):
        judged = judged_as(random.dirichlet([1, 1, 1], 40), y)
        frame = review(judged, np.arange(40), NO_TWINS, error=1e-9)
        assert len(frame)
        for row, reason in frame["reason"].items():
            label, others = judged.resolved[row], judged.probability[row].copy()
            others[label] = -1
            other, classes = others.argmax(), judged.candidates.classes
            if judged.candidates.matrix[row, other]:
                assert reason.endswith(f"{classes[label]} or {classes[other]}")
            else:
                assert reason.endswith(f"{classes[other]}, which is not a candidate")


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 1000))
def test_every_answer_is_the_one_worth_most_after_those_before(n: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    m = min(m, n - 1)
    near = np.array([random.permutation(np.delete(np.arange(n), row))[:m] for row in range(n)])
    left, asked = random.random(n), random.permutation(n)[: n - 1]
    order, values = query_order(left, near, asked)
    assert sorted(order) == sorted(asked)
    settled = np.eye(n)  # share of a row's doubt that an answer in another row settles
    settled[np.repeat(np.arange(n), m), near.flatten()] = 1 / m
    waiting = set(asked.tolist())
    for row, value in zip(order.tolist(), values, strict=True):
        worth = left @ settled
        assert abs(value - worth[row]) < 1e-9
        assert worth[row] >= max(worth[other] for other in waiting) - 1e-9
        left = left * (1 - settled[:, row])
        waiting.discard(row)
