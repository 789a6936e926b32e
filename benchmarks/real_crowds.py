"""Labels of real crowds: how many are right, and whether `robustpll clean` keeps its promise.

    pip install 'robustpll[crowds]'
    ROBUSTPLL_DATA=... python benchmarks/real_crowds.py

`clean` runs with its default settings and a column for each annotator. The other ways are those of
cleaning.py. The pictures of CIFAR-10N are described by coarse colours and edges; no setting was
chosen on them. The grid `crowds` of `robustpll bench run` compares further ways and crowds.
"""

import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from cleaning import Case, by_cleanlab, by_dawid_skene, by_majority, out_of_fold
from common import begin
from typer.testing import CliRunner

from robustpll.cli import app

CROWDS = ("LabelMe, 59 people", "Sentiment, 203 people", "CIFAR-10N, 3 votes")
PICTURES = 5_000
INTERVAL = r"class of ([\d.]+)% of the rows \(between ([\d.]+)% and ([\d.]+)%\)"
SHARED = r"share (\d+)% of its own doubt"


def loaded(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features (n, d), votes (n, annotators) with -1 for none, and true classes (n,)."""
    if name == CROWDS[0]:
        scenes = np.load(folder / "labelme-crowd" / "labelme.npz")
        return scenes["x_train"], scenes["votes"], scenes["y_train"]
    if name == CROWDS[1]:
        answers = np.load(folder / "sentiment-crowd" / "answers.npz")
        features = np.load(folder / "sentiment-crowd" / "minilm.npz")["x_train"]
        return features.astype(np.float32), answers["votes"], answers["y_train"]
    votes = np.load(folder / "cifar10n" / "votes.npz")
    sys.path.insert(0, str(folder / "cifar10"))
    from load import load  # comes with the data

    pictures = load()[0][0][:PICTURES]
    return colours_and_edges(pictures), votes["votes"][:PICTURES], votes["truth"][:PICTURES]


def colours_and_edges(pictures: np.ndarray) -> np.ndarray:
    """Return mean colours and directions of edges in 4 x 4 parts of pictures (n, 32, 32, 3)."""
    scaled = pictures / 255.0
    grey = scaled.mean(-1)
    across, down = (np.diff(grey, axis=axis, append=0) for axis in (2, 1))
    across[:, :, -1] = down[:, -1] = 0
    strength, direction = np.hypot(across, down), np.arctan2(down, across) % np.pi
    bins = (direction * 8 / np.pi).astype(int) % 8
    edges = [(strength * (bins == b)).reshape(-1, 4, 8, 4, 8).sum((2, 4)) for b in range(8)]
    shares = np.stack(edges, -1).reshape(len(pictures), -1)
    shares /= np.linalg.norm(shares, axis=1, keepdims=True) + 1e-6
    colours = scaled.reshape(-1, 4, 8, 4, 8, 3).mean((2, 4)).reshape(len(pictures), -1)
    return np.hstack([shares, colours])


def cleaned(name: str, folder: Path) -> dict[str, float]:
    """Return facts about a crowd and about the resolved labels."""
    X, votes, truth = loaded(name, folder)
    frame = pd.DataFrame(X.round(5)).add_prefix("x")
    answers = pd.DataFrame(votes).add_prefix("by ")
    frame = frame.join(answers.where(answers >= 0).astype("Int64").map("c{}".format, "ignore"))
    with tempfile.TemporaryDirectory() as place:
        table, out = Path(place) / "crowd.csv", Path(place) / "out"
        frame.to_csv(table, index=False)
        options = ["--votes", "by ", "--no-baselines", "--out", str(out)]
        result = CliRunner().invoke(app, ["clean", str(table), *options])
        assert result.exit_code == 0, result.output
        labels = pd.read_csv(out / "table.csv", usecols=["resolved_label", "resolved_by"])
    resolved = (labels["resolved_by"] == "model").to_numpy()
    right = labels["resolved_label"].to_numpy() == np.char.add("c", truth.astype(str))
    told = np.where(votes < 0, np.nan, votes).astype(np.float64)
    k = int(max(votes.max(), truth.max())) + 1
    case = Case(np.asarray(X, dtype=np.float64), truth, (X[:0], truth[:0]), told, k, 0)
    others = {"majority": by_majority(case), "Dawid-Skene": by_dawid_skene(case)}
    others["cleanlab"] = by_cleanlab(case, out_of_fold(case))
    estimate = [float(number) / 100 for number in re.search(INTERVAL, result.stdout).groups()]
    return {
        "rows": len(truth),
        "missing": float(1 - (votes == truth[:, None]).any(1).mean()),
        "estimate": dict(zip(("mean", "low", "high"), estimate, strict=True)),
        "shared": float(re.search(SHARED, result.stdout)[1]) / 100,
        "resolved": int(resolved.sum()),
        "wrong": float(1 - right[resolved].mean()),
        "expected": float(re.search(r"expects ([\d.]+)%", result.stdout)[1]) / 100,
        "labels": {way: float((found[0] == truth).mean()) for way, found in others.items()}
        | {"robustpll": float(right.mean())},
    }


def main() -> None:
    _, report = begin(__doc__)
    warnings.filterwarnings("ignore")  # networks that have not converged
    folder = Path(os.environ["ROBUSTPLL_DATA"])
    for name in CROWDS:
        if name not in report["sets"]:
            report.add(name, cleaned(name, folder))


if __name__ == "__main__":
    main()
