"""What `robustpll clean` resolves of two real crowds, and how much of that is wrong.

    ROBUSTPLL_DATA=... python benchmarks/real_crowds.py --out benchmarks/results/real-crowds.json

The command runs as users run it, with a column for each annotator and its default settings. The
true labels are compared with afterwards. The script prints the table of docs/clean.md.
"""

import argparse
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from stored import opened, written
from typer.testing import CliRunner

from robustpll.cli import app

CROWDS = ("LabelMe, 59 people", "Sentiment, 203 people")


def loaded(
    name: str, folder: Path
) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.int8]]:
    """Features (n, d), answers (n, annotators) with -1 for none, and true classes (n,)."""
    if name == CROWDS[0]:
        scenes = np.load(folder / "labelme-crowd" / "labelme.npz")
        return scenes["x_train"], scenes["votes"], scenes["y_train"]
    answers = np.load(folder / "sentiment-crowd" / "answers.npz")
    features = np.load(folder / "sentiment-crowd" / "minilm.npz")["x_train"].astype(np.float32)
    return features, answers["votes"], answers["y_train"]


def cleaned(name: str, folder: Path) -> dict[str, float]:
    """Facts about a crowd, and about what the command resolved."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    report = opened(out)
    for name in CROWDS:
        if name not in report["sets"]:
            report["sets"][name] = cleaned(name, Path(os.environ["ROBUSTPLL_DATA"]))
            written(report, out)
    heading = ("crowd", "rows", "sets without the truth", "model predicts no candidate")
    print("|", " | ".join((*heading, "resolved", "expected wrong", "of these wrong")), "|")
    print("|", " | ".join(["---"] * 7), "|")
    for name, facts in report["sets"].items():
        shares = (f"{facts[key]:.1%}" for key in ("missing", "suspects", "expected", "wrong"))
        missing, suspects, expected, wrong = shares
        cells = (name, f"{facts['rows']:,}", missing, suspects, f"{facts['resolved']:,}")
        print("|", " | ".join((*cells, f"at most {expected}", wrong)), "|")


if __name__ == "__main__":
    main()
