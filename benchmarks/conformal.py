"""Conformal prediction sets: how often they hold the true class, and how large they are.

    python benchmarks/conformal.py --out benchmarks/results/conformal.json
    python benchmarks/conformal.py --sets lost msrc-v2 digits --seeds 3 --epochs 50

All seeds of a method are one bundle. The test rows of each seed are then divided 100 times, at
random, into halves: one chooses the threshold, by true labels or by candidate sets, the other is
looked at. Beside the methods stands a softmax network that was taught the true labels, and for it
MAPIE on the same halves. Sets without candidates get them by `Uniform`. The report is written after
each method, and what it holds already is not run again. The first line is for a GPU, the second for
a CPU.
"""

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faulty_sets import method_of
from mapie.classification import SplitConformalClassifier
from scipy.stats import betabinom
from sklearn.base import BaseEstimator, ClassifierMixin
from stored import opened, written
from torch.nn.functional import one_hot

from robustpll import METHODS, load_dataset
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.engine.history import progress_bars
from robustpll.measures.conformal import ConformalSets

SPLITS = 100
TAUGHT = "softmax"  # the network that knows the true labels
CHOSEN_BY = ("labels", "all", "any", "weighted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["lost", "msrc-v2", "bird-song", "digits"])
    parser.add_argument("--methods", nargs="+", default=[TAUGHT, *METHODS])
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("scratch/conformal.json"))
    asked = parser.parse_args()
    facts = {"epochs": asked.epochs, "seeds": asked.seeds, "coverage": asked.coverage}
    report = opened(asked.out, **facts, splits=SPLITS)
    with progress_bars():
        for name in asked.sets:
            dataset = load_dataset(name)
            known = report["sets"].setdefault(name, {"methods": {}})
            noise = Uniform() if dataset.candidates is None else None
            problem = Problem.of(dataset, noise, range(asked.seeds))
            held_out = candidates_of_test(dataset, problem)
            known["expected"] = expected(held_out.shape[1], asked.coverage)
            for each in asked.methods:
                if each not in known["methods"]:
                    known["methods"][each] = run(each, asked, problem, held_out)
                    written(report, asked.out)
    show(report)


def candidates_of_test(dataset: Dataset, problem: Problem) -> np.ndarray:
    """Of the test rows, (R, n, k)."""
    if dataset.candidates is not None:
        return dataset.candidates.matrix[problem.test.at.cpu().numpy()]
    seeds = tuple(seed + 1000 for seed in problem.task.seeds)
    k = len(dataset.classes)
    return Uniform().candidates(problem.test, problem.test_labels, k, seeds).cpu().numpy()


def expected(rows: int, coverage: float) -> dict[str, float]:
    """Mean and deviation over splits of the covered share, in percent, if all scores differ."""
    known, later = rows // 2, rows - rows // 2
    place = math.ceil(round((known + 1) * coverage, 9))
    law = betabinom(later, place, known + 1 - place)
    return {
        "rows_known": known,
        "rows_later": later,
        "mean": round(100 * law.mean() / later, 2),
        "std": round(100 * law.std() / later, 2),
    }


def run(
    name: str, asked: argparse.Namespace, problem: Problem, held_out: np.ndarray
) -> dict[str, Any]:
    """Train one method on all seeds, and make sets of its test rows."""
    begun = time.perf_counter()
    method, task = method_of("proden" if name == TAUGHT else name, asked), problem.task
    if name == TAUGHT:  # with one candidate a row, Proden is cross-entropy
        task = task.with_candidates(one_hot(problem.train_labels, task.k).bool())
    opinion = method.fit(task).predict(problem.test).numpy()
    labels = problem.test_labels.cpu().numpy()
    probability = np.asarray(opinion.probability)
    right = (torch.as_tensor(opinion.predicted()) == problem.test_labels.cpu()).double().mean()
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(asked.seeds):
        for at in halves(len(labels[seed])):
            rows = probability[seed], labels[seed], held_out[seed]
            for way, sets in sets_of(name, rows, at, asked.coverage):
                later = judged(sets, labels[seed][at[1]], held_out[seed][at[1]])
                found.setdefault(way, []).append(later)
    return {
        "title": "softmax, true labels" if name == TAUGHT else method.title,
        "accuracy": round(100 * float(right), 2),
        "sets": {way: summary(values) for way, values in found.items()},
        "seconds": round(time.perf_counter() - begun, 1),
    }


def halves(rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    orders = [np.random.default_rng(split).permutation(rows) for split in range(SPLITS)]
    return [(order[: rows // 2], order[rows // 2 :]) for order in orders]


def sets_of(
    name: str, rows: tuple[np.ndarray, ...], at: tuple[np.ndarray, ...], coverage: float
) -> list[tuple[str, np.ndarray]]:
    """The later rows' sets, by each way to make them."""
    (probability, labels, held_out), (known, later) = rows, at
    model = Known(probability.shape[1])
    found = []
    for way in CHOSEN_BY:
        y = labels if way == "labels" else held_out
        hold = "all" if way == "labels" else way
        sets = ConformalSets.of(model, probability[known], y[known], coverage, hold=hold)
        found.append((way, sets.predict(probability[later])))
    for theirs in ("lac", "aps") if name == TAUGHT else ():
        split = SplitConformalClassifier(
            model, confidence_level=coverage, conformity_score=theirs, prefit=True, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some classes are in one half alone
            split.conformalize(probability[known], labels[known])
        found.append((f"MAPIE, {theirs}", split.predict_set(probability[later])[1][..., 0]))
    return found


class Known(ClassifierMixin, BaseEstimator):
    """A classifier whose rows are the probabilities themselves."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.classes_ = np.arange(k)

    def fit(self, X: Any, y: Any) -> "Known":
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(X)

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X).argmax(-1)


def judged(sets: np.ndarray, labels: np.ndarray, candidates: np.ndarray) -> tuple[float, ...]:
    """Shares of sets with the truth, all candidates, any candidate, nothing; and their size."""
    return (
        sets[np.arange(len(labels)), labels].mean(),
        (sets | ~candidates).all(-1).mean(),
        (sets & candidates).any(-1).mean(),
        (~sets.any(-1)).mean(),
        sets.sum(-1).mean(),
    )


def summary(values: list[tuple[float, ...]]) -> dict[str, float]:
    """Over seeds and splits; shares in percent."""
    truth, every, some, empty, size = np.array(values).T
    return {
        "covered": round(100 * truth.mean(), 2),
        "covered_std": round(100 * truth.std(), 2),
        "all_candidates": round(100 * every.mean(), 2),
        "any_candidate": round(100 * some.mean(), 2),
        "empty": round(100 * empty.mean(), 2),
        "size": round(size.mean(), 3),
    }


def show(report: dict[str, Any]) -> None:
    for name, known in report["sets"].items():
        law = known["expected"]
        print(f"{name}: covered and size; labels are expected at {law['mean']} ± {law['std']}")
        for row in known["methods"].values():
            print(f"  {row['title']} ({row['accuracy']:.1f} % right, {row['seconds']} s)")
            for way, each in row["sets"].items():
                print(
                    f"    {way:24} {each['covered']:5.1f} ± {each['covered_std']:3.1f}  "
                    f"{each['size']:5.2f}"
                )


if __name__ == "__main__":
    main()
