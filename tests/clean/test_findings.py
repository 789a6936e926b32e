"""What is odd in a table is found, and only that."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from robustpll.clean.findings import (
    annotators,
    candidates_that_look_wrong,
    confused_pairs,
    sets_that_miss_the_truth,
    twins,
)
from robustpll.clean.judge import Judgement
from robustpll.clean.review import review, review_frame
from robustpll.errors import InputError
from robustpll.labels.votes import Votes

Judged = Callable[..., Judgement]
LINES = np.array([2, 3, 5])


def test_improbable_candidates_are_listed_with_who_named_them(judged_as: Judged) -> None:
    votes = Votes(pd.DataFrame({"ada": ["ant", "bee", "cow"], "zoe": ["cow", "bee", "ant"]}))
    judged = judged_as([[0.97, 0.02, 0.01], [0, 1, 0], [0.5, 0, 0.5]], [], votes=votes)
    found = candidates_that_look_wrong(judged, LINES, votes)
    assert found[["row", "candidate", "more_likely", "annotators"]].to_numpy().tolist() == [
        [2, "cow", "ant", "zoe"]
    ]


def test_sets_whose_predicted_class_is_missing_are_listed(judged_as: Judged) -> None:
    judged = judged_as([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0.2, 0.7]], [{"ant"}, {"ant"}, {"ant"}])
    found = sets_that_miss_the_truth(judged, LINES)
    assert found["row"].tolist() == [3, 5]  # the most suspect first
    assert found["looks_like"].tolist() == ["bee", "cow"]


def test_an_annotator_is_not_judged_by_the_own_answer(judged_as: Judged) -> None:
    """Where the model knows nothing, two against one are right, and one alone has no support."""
    answers = pd.DataFrame({"ada": ["ant"] * 30, "bob": ["ant"] * 30, "zoe": ["bee"] * 30})
    judged = judged_as(np.full((30, 3), 1 / 3), [], votes=Votes(answers))
    found = annotators(judged, Votes(answers)).set_index("annotator")
    assert found.loc["ada", "answers"] == 30
    assert found.loc["zoe", "agreed"] == 0
    assert found.loc["zoe", "high"] == pytest.approx(0.1135, abs=1e-4)  # Wilson's, of 0 in 30
    assert found.index[-1] == "zoe"


def test_few_answers_do_not_make_the_best_annotator(judged_as: Judged) -> None:
    answers = pd.DataFrame(
        {"ada": ["ant"] * 99 + ["bee"], "bob": ["ant"] + [None] * 99, "eve": [None] * 100}
    )
    judged = judged_as([[0.9, 0.05, 0.05]] * 100, [], votes=Votes(answers))
    found = annotators(judged, Votes(answers))
    assert found["annotator"].tolist() == ["ada", "bob", "eve"]
    assert found["answers"].tolist() == [100, 1, 0]
    assert found["agreement"].isna().tolist() == [False, False, True]


def test_twins_are_near_and_have_no_candidate_in_common(judged_as: Judged) -> None:
    features = torch.tensor([[0.0], [0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    sets = [{"ant"}, {"bee"}, {"ant", "bee"}, {"cow"}, {"ant"}, {"cow"}, {"ant"}]
    judged = judged_as(np.full((7, 3), 1 / 3), sets, features)
    found = twins(judged, np.arange(10, 17))
    assert found[["row", "twin", "distance"]].to_numpy().tolist() == [[10, 11, 0]]
    assert found["twin_candidates"].tolist() == ["bee"]


def test_classes_that_are_taken_for_each_other_come_first(judged_as: Judged) -> None:
    judged = judged_as(
        [[0.6, 0.4, 0], [0.4, 0.6, 0], [0, 0.1, 0.9]], [{"ant", "bee"}, {"ant", "bee"}, {"cow"}]
    )
    first = confused_pairs(judged).iloc[0]
    assert (first["class"], first["other_class"]) == ("ant", "bee")
    assert first["confused_rows"] == pytest.approx(0.8)
    assert first["rows_with_both_candidates"] == 2


def sure_but(doubts: list[float]) -> list[list[float]]:
    return [[1 - doubt, doubt, 0] for doubt in doubts]


def test_people_are_asked_about_as_few_rows_as_keep_the_others_right(judged_as: Judged) -> None:
    doubts = [0.0, 0.02, 0.04, 0.3, 0.45]
    judged = judged_as(sure_but(doubts), [{"ant", "bee"}] * 5)
    lines, none = np.arange(5), pd.DataFrame({"row": [], "twin": []})
    assert review(judged, lines, none, error=0.02).at.tolist() == [4, 3]
    assert review(judged, lines, none, error=0.005).at.tolist() == [4, 3, 2, 1]
    assert review(judged, lines, none, error=0.4).at.tolist() == []
    found = review(judged, lines, none, error=0.02)
    # a quarter of the doubt about each of the four other rows is settled, too
    np.testing.assert_allclose(found.value, [0.45 + 0.36 / 4, 0.75 * (0.3 + 0.06 / 4)])
    assert found.reasons == ("ant or bee", "ant or bee")
    assert review_frame(found, judged, lines)["candidates"].tolist() == ["ant|bee"] * 2


def test_the_reasons_name_what_is_odd(judged_as: Judged) -> None:
    judged = judged_as(
        [[0, 0.001, 0.999], [0.9, 0.1, 0], [0.9, 0.1, 0]], [{"ant", "bee"}, {"ant"}, {"bee"}]
    )
    contrary = pd.DataFrame({"row": [11], "twin": [12]})
    found = review(judged, np.array([10, 11, 12]), contrary, error=0.01)
    why = dict(zip(found.at.tolist(), zip(found.kinds, found.reasons, strict=True), strict=True))
    assert why[0][0] == "truth missing"
    assert "looks like cow, which is no candidate" in why[0][1]
    assert why[1][0] == "contradicts twin"
    assert why[1][1].startswith("nearly equals row 12, but shares no candidate with it")


@pytest.mark.parametrize("error", [0, 1, -0.1, "few"])
def test_an_impossible_error_is_refused(judged_as: Judged, error: object) -> None:
    judged = judged_as(sure_but([0.1]), [{"ant"}])
    with pytest.raises(InputError, match="error must be a number between 0 and 1"):
        review(judged, np.arange(1), pd.DataFrame({"row": [], "twin": []}), error)  # type: ignore[arg-type]
