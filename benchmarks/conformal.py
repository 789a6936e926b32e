"""Conformal prediction sets: how often they hold the true class, and how large they are.

    python benchmarks/conformal.py
    python benchmarks/conformal.py --sets lost msrc-v2 digits --seeds 3 --epochs 50    # for a CPU

The test rows of each seed are divided 100 times into halves: one chooses the threshold, by labels
or by candidates, the other is tested. "softmax" is a network that was trained with true labels; for
it, MAPIE makes sets on the same halves. Sets without candidates get them by `Uniform`.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from common import accuracies, begin, method_of
from mapie.classification import SplitConformalClassifier
from scipy.stats import betabinom
from sklearn.base import BaseEstimator, ClassifierMixin
from torch.nn.functional import one_hot

from robustpll import METHODS, load_dataset
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.measures.conformal import ConformalSets

SPLITS = 100


def main() -> None:
    sets = ("lost", "msrc-v2", "bird-song", "digits")
    sizes = {"coverage": 0.9, "seeds": 5, "epochs": 200}
    args, report = begin(__doc__, sets=sets, methods=("softmax", *METHODS), **sizes)
    report["splits"] = SPLITS

    def compute(name: str, method_name: str) -> dict[str, Any]:
        dataset = load_dataset(name)
        noise = Uniform() if dataset.candidates is None else None
        problem = Problem.of(dataset, noise, range(args.seeds))
        task, labels = problem.task, problem.test_labels
        if dataset.candidates is not None:
            candidates = dataset.candidates.matrix[problem.test.indices.cpu().numpy()]
        else:
            seeds = tuple(seed + 1000 for seed in task.seeds)
            candidates = Uniform().candidates(problem.test, labels, task.k, seeds).cpu().numpy()
        report["sets"][name]["expected"] = expected(labels.shape[1], args.coverage)
        taught = method_name == "softmax"
        if taught:  # with one candidate per row, Proden is cross-entropy
            task = task.with_candidates(one_hot(problem.train_labels, task.k).bool())
        method = method_of("proden" if taught else method_name, args.epochs)
        opinion = method.fit(task).predict(problem.test)
        accuracy = round(float(accuracies(opinion.predicted(), labels).mean()), 2)
        rows = []
        for run in zip(opinion.numpy().probability, labels.cpu().numpy(), candidates, strict=True):
            for split in range(SPLITS):
                order = np.random.default_rng(split).permutation(len(run[0]))
                halves = order[: len(order) // 2], order[len(order) // 2 :]
                for way, sets in sets_of(run, halves, args.coverage, by_mapie=taught):
                    true = run[1][halves[1]]
                    covered = sets[np.arange(len(true)), true].mean()
                    rows.append((way, 100 * covered, sets.sum(-1).mean()))
        frame = pd.DataFrame(rows, columns=["way", "covered", "size"]).groupby("way", sort=False)
        results = frame.agg(
            covered=("covered", "mean"),
            covered_std=("covered", lambda values: values.std(ddof=0)),
            size=("size", "mean"),
        )
        title = {"title": "softmax, true labels"} if taught else {}
        return title | {"accuracy": accuracy, "sets": results.round(3).to_dict("index")}

    report.fill(args.sets, args.methods, compute, part="methods")


def expected(rows: int, coverage: float) -> dict[str, float]:
    """Return mean and deviation of the covered share, in percent, if all scores differ."""
    known, later = rows // 2, rows - rows // 2
    place = math.ceil(round((known + 1) * coverage, 9))
    law = betabinom(later, place, known + 1 - place)
    return {"mean": round(100 * law.mean() / later, 2), "std": round(100 * law.std() / later, 2)}


def sets_of(run: Any, halves: Any, coverage: float, *, by_mapie: bool) -> Iterator[Any]:
    """Yield the sets of the second half, by each way to make them."""
    (probability, labels, candidates), (known, later) = run, halves
    model = Given(probability.shape[1])
    for way in ("labels", "all", "any", "weighted"):
        y, hold = (labels, "all") if way == "labels" else (candidates, way)
        sets = ConformalSets.of(model, probability[known], y[known], coverage, hold=hold)
        yield way, sets.predict(probability[later])
    for score in ("lac", "aps") if by_mapie else ():
        choices = {"confidence_level": coverage, "conformity_score": score, "random_state": 0}
        split = SplitConformalClassifier(model, prefit=True, **choices)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some classes are in one half alone
            split.conformalize(probability[known], labels[known])
        yield f"MAPIE, {score}", split.predict_set(probability[later])[1][..., 0]


class Given(ClassifierMixin, BaseEstimator):
    """A classifier whose rows are the probabilities themselves."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.classes_ = np.arange(k)

    def fit(self, X: Any, y: Any) -> "Given":
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(X)

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X).argmax(-1)


if __name__ == "__main__":
    main()
