"""How many labels of two real crowds `robustpll clean` resolves, and how many are wrong.

    ROBUSTPLL_DATA=... python benchmarks/real_crowds.py

The command runs with its default settings and a column for each annotator.
"""

import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import begin
from typer.testing import CliRunner

from robustpll.cli import app

CROWDS = ("LabelMe, 59 people", "Sentiment, 203 people")


def loaded(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features (n, d), votes (n, annotators) with -1 for none, and true classes (n,)."""
    if name == CROWDS[0]:
        scenes = np.load(folder / "labelme-crowd" / "labelme.npz")
        return scenes["x_train"], scenes["votes"], scenes["y_train"]
    answers = np.load(folder / "sentiment-crowd" / "answers.npz")
    features = np.load(folder / "sentiment-crowd" / "minilm.npz")["x_train"].astype(np.float32)
    return features, answers["votes"], answers["y_train"]


def cleaned(name: str, folder: Path) -> dict[str, float]:
    """Return facts about a crowd and about the resolved labels."""
    X, votes, truth = loaded(name, folder)
    frame = pd.DataFrame(X.round(5)).add_prefix("x")
    answers = pd.DataFrame(votes).add_prefix("by ")
    frame = frame.join(answers.where(answers >= 0).astype("Int64").map("c{}".format, "ignore"))
    with tempfile.TemporaryDirectory() as place:
        table, out = Path(place) / "crowd.csv", Path(place) / "out"
        frame.to_csv(table, index=False)
        result = CliRunner().invoke(app, ["clean", str(table), "--votes", "by ", "--out", str(out)])
        assert result.exit_code == 0, result.output
        labels = pd.read_csv(out / "table.csv", usecols=["resolved_label", "resolved_by"])
        suspects = len(pd.read_csv(out / "sets_that_miss_the_truth.csv"))
    resolved = (labels["resolved_by"] == "model").to_numpy()
    right = labels["resolved_label"].to_numpy() == np.char.add("c", truth.astype(str))
    return {
        "rows": len(truth),
        "missing": float(1 - (votes == truth[:, None]).any(1).mean()),
        "suspects": suspects / len(truth),
        "resolved": int(resolved.sum()),
        "wrong": float(1 - right[resolved].mean()),
        "expected": float(re.search(r"expects ([\d.]+)%", result.stdout)[1]) / 100,
    }


def main() -> None:
    _, report = begin(__doc__)
    for name in CROWDS:
        report.add(name, cleaned(name, Path(os.environ["ROBUSTPLL_DATA"])))


if __name__ == "__main__":
    main()
