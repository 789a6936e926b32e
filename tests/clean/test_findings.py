"""What looks wrong in a table is found, and only that; people are asked where it helps most."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll.clean.judge import Judgement
from robustpll.clean.review import (
    annotators,
    candidates_that_look_wrong,
    confused_pairs,
    query_order,
    review,
    sets_that_miss_the_truth,
    twins,
)
from robustpll.labels.votes import Votes

Judged = Callable[..., Judgement]
LINES = np.array([2, 3, 5])
NO_TWINS = pd.DataFrame({"row": [], "twin": []})


def test_improbable_candidates_are_listed_with_who_named_them(judged_as: Judged) -> None:
    votes = Votes(pd.DataFrame({"ada": ["ant", "bee", "cow"], "zoe": ["cow", "bee", "ant"]}))
    judged = judged_as([[0.97, 0.02, 0.01], [0, 1, 0], [0.5, 0, 0.5]], votes)
    frame = candidates_that_look_wrong(judged, LINES, votes)
    assert frame[["row", "candidate", "more_likely", "annotators"]].to_numpy().tolist() == [
        [2, "cow", "ant", "zoe"]
    ]


def test_sets_whose_predicted_class_is_missing_are_listed(judged_as: Judged) -> None:
    judged = judged_as([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0.2, 0.7]], [{"ant"}, {"ant"}, {"ant"}])
    frame = sets_that_miss_the_truth(judged, LINES)
    assert frame["row"].tolist() == [3, 5]  # the most suspicious first
    assert frame["looks_like"].tolist() == ["bee", "cow"]


def test_an_annotator_is_not_judged_by_the_own_answer(judged_as: Judged) -> None:
    """Where the model knows nothing, two against one are right, and one alone has no support."""
    votes = Votes(pd.DataFrame({"ada": ["ant"] * 30, "bob": ["ant"] * 30, "zoe": ["bee"] * 30}))
    frame = annotators(judged_as(np.full((30, 3), 1 / 3), votes), LINES, votes)
    assert frame["annotator"].tolist() == ["ada", "bob", "zoe"]
    zoe = frame.iloc[-1]
    assert (zoe["answers"], zoe["agreed"]) == (30, 0)
    assert zoe["high"] == pytest.approx(0.1135, abs=1e-4)  # Wilson's, of 0 in 30


def test_few_answers_do_not_make_the_best_annotator(judged_as: Judged) -> None:
    answers = pd.DataFrame(
        {"bob": ["ant"] + [None] * 99, "ada": ["ant"] * 99 + ["bee"], "eve": [None] * 100}
    )
    frame = annotators(judged_as([[0.9, 0.05, 0.05]] * 100, Votes(answers)), LINES, Votes(answers))
    assert frame["annotator"].tolist() == ["ada", "bob", "eve"]
    assert frame["answers"].tolist() == [100, 1, 0]
    assert frame["agreement"].isna().tolist() == [False, False, True]


def test_twins_are_near_and_have_no_candidate_in_common(judged_as: Judged) -> None:
    features = torch.tensor([[0.0], [0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    sets = [{"ant"}, {"bee"}, {"ant", "bee"}, {"cow"}, {"ant"}, {"cow"}, {"ant"}]
    frame = twins(judged_as(np.full((7, 3), 1 / 3), sets, features), np.arange(10, 17))
    assert frame[["row", "twin", "distance"]].to_numpy().tolist() == [[10, 11, 0]]
    assert frame["twin_candidates"].tolist() == ["bee"]


def test_classes_that_are_taken_for_each_other_come_first(judged_as: Judged) -> None:
    sets = [{"ant", "bee"}, {"ant", "bee"}, {"cow"}]
    first = confused_pairs(judged_as([[0.6, 0.4, 0], [0.4, 0.6, 0], [0, 0.1, 0.9]], sets)).iloc[0]
    assert (first["class"], first["other_class"]) == ("ant", "bee")
    assert first["confused_rows"] == pytest.approx(0.8)
    assert first["rows_with_both_candidates"] == 2


def test_people_are_asked_about_as_few_rows_as_keep_the_others_right(judged_as: Judged) -> None:
    doubts = [0.0, 0.02, 0.04, 0.3, 0.45]
    judged = judged_as([[1 - doubt, doubt, 0] for doubt in doubts], [{"ant", "bee"}] * 5)
    frame = review(judged, np.arange(5), NO_TWINS, error=0.02)
    assert frame.index.tolist() == frame["row"].tolist() == [4, 3]
    assert review(judged, np.arange(5), NO_TWINS, error=0.005).index.tolist() == [4, 3, 2, 1]
    assert review(judged, np.arange(5), NO_TWINS, error=0.4).empty
    # a quarter of the doubt about each of the four other rows is settled, too
    values = [0.45 + 0.36 / 4, 0.75 * (0.3 + 0.06 / 4)]
    np.testing.assert_allclose(frame["value_of_asking"], values)
    assert frame["reason"].tolist() == ["ant or bee"] * 2
    assert frame["candidates"].tolist() == ["ant|bee"] * 2


def test_the_reasons_name_what_is_odd(judged_as: Judged) -> None:
    probability = [[0, 0.001, 0.999], [0.9, 0.1, 0], [0.9, 0.1, 0]]
    judged = judged_as(probability, [{"ant", "bee"}, {"ant"}, {"bee"}])
    contrary = pd.DataFrame({"row": [11], "twin": [12]})
    frame = review(judged, np.array([10, 11, 12]), contrary, error=0.01).set_index("row")
    assert frame.loc[10, "why"] == "truth missing"
    assert "looks like cow, which is not a candidate" in frame.loc[10, "reason"]
    assert frame.loc[11, "why"] == "contradicts twin"
    assert frame.loc[11, "reason"].startswith(
        "nearly equals row 12, but shares no candidate with it"
    )


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 1000))
def test_every_answer_is_the_one_worth_most_after_those_before(n: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    m = min(m, n - 1)
    near = np.array([random.permutation(np.delete(np.arange(n), row))[:m] for row in range(n)])
    doubt = random.random(n)
    asked = random.permutation(n)[: n - 1]
    order, values = query_order(doubt, near, asked)
    assert sorted(order) == sorted(asked)
    settled = np.zeros((n, n))  # share of a row's doubt that an answer in another row settles
    settled[np.repeat(np.arange(n), m), near.flatten()] = 1 / m
    np.fill_diagonal(settled, 1.0)
    left, waiting = doubt.copy(), set(asked.tolist())
    for row, value in zip(order.tolist(), values, strict=True):
        worth = left @ settled
        assert abs(value - worth[row]) < 1e-9
        assert worth[row] >= max(worth[other] for other in waiting) - 1e-9
        left *= 1 - settled[:, row]
        waiting.discard(row)


def test_a_row_in_a_doubtful_crowd_comes_before_a_doubtful_loner() -> None:
    near = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [5, 0], [4, 0]])
    doubt = np.array([0.5, 0.5, 0.5, 0.6, 0.0, 0.0])
    order, _ = query_order(doubt, near, np.arange(4))
    assert order.tolist() == [0, 3, 1, 2]  # the others of the crowd are worth less then
