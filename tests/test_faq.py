"""What docs/faq.md says the library does, it does."""

import re
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier

import robustpll
from robustpll import Candidates, PLLClassifier, RobustPLLClassifier, Votes
from robustpll.methods import Wrapped

ROOT = Path(__file__).parents[1]
FAQ = (ROOT / "docs" / "faq.md").read_text()
X, Y = make_blobs(120, centers=3, cluster_std=0.6, random_state=0)


def fitted(y: Any = Y, rows: int = 120) -> RobustPLLClassifier:
    return RobustPLLClassifier(epochs=5, random_state=0).fit(X[:rows], y[:rows])


def test_there_are_fifteen_to_twenty_questions_with_short_answers() -> None:
    _, *answers = re.split(r"(?m)^### .*$", FAQ)
    assert 15 <= len(answers) <= 20
    for answer in answers:
        text = re.sub(r"(?m)^## .*$", "", answer)
        assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 60, answer


def test_nothing_is_sent_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    fitted().decide(X, coverage=0.5)


def test_a_few_rows_are_enough_to_fit_but_not_to_hold_out() -> None:
    assert getattr(fitted(rows=19), "held_out_", None) is None
    assert fitted(rows=20).held_out_ is not None


def test_a_label_may_be_a_class_that_nobody_named_for_votes_but_not_for_sets() -> None:
    answers = np.repeat(Y[:, None], 3, axis=1)
    answers[:5] = (Y[:5, None] + 1) % 3  # all are wrong
    by_votes = RobustPLLClassifier(epochs=40, random_state=0).fit(X, Votes(answers.tolist()))
    assert (by_votes.labels_[:5] == Y[:5]).any()
    sets = [{(label + 1) % 3, (label + 2) % 3} if i < 5 else {label} for i, label in enumerate(Y)]
    by_sets = RobustPLLClassifier(epochs=40, random_state=0).fit(X, sets)
    assert all(label in names for label, names in zip(by_sets.labels_, sets, strict=True))


@pytest.mark.filterwarnings("ignore:X has training rows")
def test_predict_answers_always_and_decide_may_refuse() -> None:
    model = fitted()
    far = X + 1000
    assert len(model.predict(far)) == len(far)
    assert not model.decide(far, error=0.05).accepted.any()
    with pytest.warns(UserWarning, match="cannot be promised"):
        few = model.calibrate_decisions(X[:58], Y[:58]).decide(X, error=0.05)
    assert set(few.reason) <= {"no promise can be made", "unlike the training data"}
    assert model.trial_.fewest(0.05) == 59


def test_rows_without_an_answer_are_refused_unless_all_classes_are_meant() -> None:
    answers, sets = [["a", "b"], [None, None], ["b", "b"]], [{"a"}, set(), {"b"}]
    for y in (Votes(answers), sets):
        with pytest.raises(robustpll.InputError):
            Candidates.of(y)
    assert Candidates.of(Votes(answers, unanswered="all classes")).matrix[1].all()
    assert Candidates.of(sets, unanswered="all classes").matrix[1].all()


def test_two_fits_are_equal() -> None:
    assert (fitted().predict_proba(X) == fitted().predict_proba(X)).all()


def test_gaps_are_refused_in_arrays_and_read_in_tables() -> None:
    import pandas as pd

    gaps = X.copy()
    gaps[0, 0] = np.nan
    with pytest.raises(robustpll.InputError):
        RobustPLLClassifier(epochs=2).fit(gaps, Y)
    assert RobustPLLClassifier(epochs=2).fit(pd.DataFrame(gaps, columns=["a", "b"]), Y)


def test_own_models_are_taken() -> None:
    forest = Wrapped(RandomForestClassifier(20, random_state=0))
    assert PLLClassifier(forest, random_state=0).fit(X, Y).score(X, Y) > 0.9


def test_the_share_of_right_labels_is_that_of_the_stored_runs() -> None:
    with patch.object(sys, "path", [str(ROOT / "benchmarks"), *sys.path]):
        lines = import_module("pages").lines_of("default")
    head, _, ours, majority = (line.strip("| ").split(" | ") for line in lines[:4])
    column = head.index("training labels right")
    shares = [round(float(row[column])) for row in (majority, ours)]
    assert "leaves {} % of the training labels right; the default has {} %".format(*shares) in FAQ


def test_the_licence_and_the_citation_are_those_of_the_project() -> None:
    assert "MIT" in FAQ
    assert (ROOT / "LICENSE").read_text().startswith("MIT")
    assert "2502.11743" in (ROOT / "CITATION.cff").read_text()
