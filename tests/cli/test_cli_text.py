"""Columns of texts in `table`, `fit`, `predict`, `clean` and `compare`."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll import load
from robustpll.cli import app

WORDS = {"bad": ("dull", "awful", "weak", "tired"), "good": ("great", "lovely", "superb", "moving")}
VOTES = ("--votes", "vote ")
TEXT = (*VOTES, "--text", "review")


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def reviews() -> pd.DataFrame:
    """160 reviews, of which the last 60 have no answers, and two people's answers."""
    random, rows = np.random.default_rng(0), []
    for row in range(160):
        truth = ("bad", "good")[row % 2]
        one, two, three = random.choice(WORDS[truth], 3)
        others = [truth if random.random() < 0.9 else "bad" for _ in range(2)]
        rows.append((f"A {one} plot, {two} music, {three} end of {row}", row % 9, truth, *others))
    frame = pd.DataFrame(rows, columns=["review", "minutes", "truth", "vote ann", "vote eve"])
    frame[:100].drop(columns="truth").to_csv("reviews.csv", index=False)
    frame.loc[[100, 101], "review"] = [None, "Unheard of!"]
    frame[100:].drop(columns=["vote ann", "vote eve"]).to_csv("new.csv", index=False)
    return frame


@pytest.mark.usefixtures("reviews")
def test_texts_are_learned_and_predicted_without_further_options() -> None:
    assert "review text 0" in " ".join(run("table", "reviews.csv", *TEXT).stdout.split())
    run("fit", "reviews.csv", *TEXT, "--method", "proden", "--epochs", "30", "--out", "model.pll")
    model = load("model.pll")
    assert "superb" in model.features_.texts["review"].words
    result = run("predict", "model.pll", "new.csv", "--truth", "truth", "--out", "answers.csv")
    assert "do not parse" not in result.output
    answers, new = (pd.read_csv(name) for name in ("answers.csv", "new.csv"))
    assert len(answers) == 60
    assert (answers["label"] == new["truth"])[2:].mean() > 0.9


@pytest.mark.usefixtures("reviews")
def test_texts_are_cleaned_and_compared() -> None:
    short = ("--method", "proden", "--epochs", "20")
    run("clean", "reviews.csv", *TEXT, *short, "--out", "cleaned")
    table = pd.read_csv("cleaned/table.csv")
    assert table["review"].str.startswith("A ").all()
    truth = np.where(np.arange(100) % 2, "good", "bad")
    assert (table["resolved_label"] == truth).mean() > 0.9
    assert "covering rate" in run("compare", "reviews.csv", *TEXT, *short).stdout


@pytest.mark.usefixtures("reviews")
def test_a_column_of_texts_that_is_not_named_is_refused_with_the_option() -> None:
    result = run("fit", "reviews.csv", *VOTES, "--out", "model.pll", code=1)
    assert "'review' has 100 different texts" in result.stderr
    assert "in --text if it has texts" in result.stderr
    both = run("fit", "reviews.csv", *TEXT, "--ignore", "review", "--out", "m.pll", code=1)
    assert "both --ignore and --text" in both.stderr
    assert "no column 'rewiew'" in run("table", "reviews.csv", "--text", "rewiew", code=1).stderr
    assert not Path("model.pll").exists()
