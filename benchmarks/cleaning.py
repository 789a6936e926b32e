"""Does cleaning help? Votes of simulated annotators resolved in five ways, and questions asked.

    pip install 'robustpll[crowds]'
    python benchmarks/cleaning.py

Each annotator is right in a share of the rows, drawn between 0.4 and 0.9, and answers a share drawn
between 0.5 and 1; every row has an answer. Wrong answers fall on classes in proportion to
exp(-3 d), d being the distance of the two classes' mean rows over the mean of such distances. In
crowds with hard rows, one row in five is hard: annotators are right half as often there, and their
wrong answers all name one class.

Votes become labels by majority, by Dawid and Skene's model (crowd-kit), by cleanlab's consensus
with out-of-fold probabilities of scikit-learn's MLP or of robustpll, and as `robustpll clean` does.
The same MLP is trained from each. Then rows are answered with the truth until 95 % of the labels
are correct. "released" are the rows that `robustpll clean` resolves with 1 % expected errors.
"""

import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.multiannotator import get_label_quality_multiannotator
from common import begin
from crowdkit.aggregation import DawidSkene
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from robustpll import Candidates, PLLClassifier, Votes, load_dataset
from robustpll.clean.judge import Judgement, judge
from robustpll.clean.review import below_threshold, query_order
from robustpll.methods import Auto

CROWDS = {  # annotators, share of hard rows
    "5, hard rows": (5, 0.2),
    "3, hard rows": (3, 0.2),
    "7, hard rows": (7, 0.2),
    "5, no hard rows": (5, 0.0),
}
ENOUGH = 0.95  # share of correct labels at which nobody is asked any more
WRONG = 0.01  # expected among the released labels
Resolved = tuple[np.ndarray, np.ndarray]  # labels and their confidence, (n,) each


def main() -> None:
    sets = ("digits", "mnist", "lost", "bird-song")
    args, report = begin(__doc__, sets=sets, crowds=tuple(CROWDS), seeds=3)
    packages = ("cleanlab", "crowd-kit", "scikit-learn")
    report["packages"] = {name: version(name) for name in packages}
    warnings.filterwarnings("ignore")  # networks that have not converged, and rare classes
    for crowd in args.crowds:
        for name in args.sets:
            runs = report["sets"].setdefault(name, {}).setdefault(crowd, [])
            for seed in range(len(runs), args.seeds):
                runs.append(rounded(run(name, crowd, seed)))
                report.save()
                print(name, crowd, runs[-1], flush=True)


def rounded(numbers: Any) -> Any:
    if isinstance(numbers, dict):
        return {name: rounded(number) for name, number in numbers.items()}
    return round(float(numbers), 4)


@dataclass(frozen=True, eq=False)
class Case:
    """Rows to clean, their votes (n, annotators) with NaN for no answer, and test rows."""

    X: np.ndarray
    truth: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    votes: np.ndarray
    k: int
    seed: int

    @classmethod
    def of(cls, name: str, crowd: str, seed: int) -> "Case":
        data, random = load_dataset(name), np.random.default_rng(seed)
        X = np.asarray(data.features, dtype=np.float64) / data.white
        labels, split, k = np.asarray(data.labels), data.split(seed), len(data.classes)
        train, test = (random.permutation(part)[:1500] for part in (split.train, split.test))
        votes = votes_of(X[train], labels[train], k, CROWDS[crowd], random)
        return cls(X[train], labels[train], (X[test], labels[test]), votes, k, seed)

    @property
    def candidates(self) -> Candidates:
        return Candidates.of(Votes(self.votes), classes=np.arange(self.k, dtype=np.float64))

    @property
    def counts(self) -> np.ndarray:
        """How many annotators named each class, (n, k)."""
        return (self.votes[:, :, None] == np.arange(self.k)).sum(1)


def votes_of(
    X: np.ndarray, labels: np.ndarray, k: int, crowd: tuple[int, float], random: Any
) -> np.ndarray:
    """Return simulated votes, (n, annotators)."""
    n, (annotators, hard) = len(labels), crowd
    scaled, present = StandardScaler().fit_transform(X), np.unique(labels)
    means = np.stack([scaled[labels == label].mean(0) for label in present])
    distance = np.linalg.norm(means[:, None] - means, axis=-1)
    similar = np.zeros((k, k))
    similar[np.ix_(present, present)] = np.exp(-3 * distance / distance[distance > 0].mean())
    np.fill_diagonal(similar, 0)
    chance = np.cumsum(similar, -1)[labels]  # (n, k)

    def wrong(count: int) -> np.ndarray:
        drawn = random.random((n, count, 1)) * chance[:, None, -1:]
        return np.asarray((drawn > chance[:, None]).sum(-1))

    skill, answers = random.uniform(0.4, 0.9, annotators), random.uniform(0.5, 1, annotators)
    is_hard = random.random(n) < hard
    right = random.random((n, annotators)) < skill * np.where(is_hard, 0.5, 1)[:, None]
    mistaken = np.where(is_hard[:, None], wrong(1), wrong(annotators))
    votes = np.where(right, labels[:, None], mistaken).astype(np.float64)
    silent = random.random((n, annotators)) >= answers
    silent[np.arange(n), random.integers(annotators, size=n)] = False
    votes[silent] = np.nan
    return votes


def by_majority(case: Case) -> Resolved:
    ties = np.random.default_rng(case.seed).random(case.counts.shape) / 2
    shares = case.counts / case.counts.sum(-1, keepdims=True)
    return (case.counts + ties).argmax(-1), shares.max(-1)


def by_dawid_skene(case: Case) -> Resolved:
    row, worker = np.nonzero(~np.isnan(case.votes))
    labels = case.votes[row, worker].astype(int)
    answers = pd.DataFrame({"task": row, "worker": worker, "label": labels})
    probability = DawidSkene(n_iter=100).fit(answers).probas_.loc[range(len(case.votes))]
    return probability.idxmax(axis=1).to_numpy(), probability.max(axis=1).to_numpy()


def out_of_fold(case: Case) -> np.ndarray:
    """Return probabilities of MLPs that learned the majority's labels of other rows, (n, k)."""
    labels, probability = by_majority(case)[0], np.zeros((len(case.X), case.k))
    for train, test in KFold(5, shuffle=True, random_state=case.seed).split(case.X):
        model = mlp(case.seed).fit(case.X[train], labels[train])
        probability[np.ix_(test, model.classes_)] = model.predict_proba(case.X[test])
    return probability


def by_cleanlab(case: Case, probability: np.ndarray) -> Resolved:
    answers = pd.DataFrame(case.votes)
    quality = get_label_quality_multiannotator(answers, probability, verbose=False)["label_quality"]
    labels = quality["consensus_label"].to_numpy().astype(int)
    return labels, quality["consensus_quality_score"].to_numpy()


def mlp(seed: int) -> Any:
    """Return scikit-learn's MLP with a larger penalty: with its own it memorizes wrong labels."""
    return make_pipeline(StandardScaler(), MLPClassifier(alpha=1.0, random_state=seed))


def run(name: str, crowd: str, seed: int) -> dict[str, Any]:
    """Return all that is measured of one dataset and crowd, with one seed."""
    case = Case.of(name, crowd, seed)
    judged = judge(case.X, case.candidates, Auto(), seed=seed)
    ways = {
        "majority": by_majority(case),
        "Dawid-Skene": by_dawid_skene(case),
        "cleanlab": by_cleanlab(case, out_of_fold(case)),
        "robustpll": (judged.resolved, judged.confidence),
        "cleanlab, robustpll": by_cleanlab(case, np.asarray(judged.opinion.probability)),
    }
    X, y = case.test
    labels = {way: resolved[0] for way, resolved in ways.items()} | {"truth": case.truth}
    test = {way: mlp(seed).fit(case.X, labels[way]).score(X, y) for way in labels}
    model = PLLClassifier(Auto(), random_state=seed).fit(case.X, case.candidates)
    test["the default from votes"] = (model.predict(X) == y).mean()
    low, mean, high = judged.crowd.missing
    named = (case.counts[np.arange(len(case.X)), case.truth] > 0).mean()
    results: dict[str, Any] = {
        "named": named,
        "missing": {"low": low, "mean": mean, "high": high, "held": low <= 1 - named <= high},
        "labels": {way: (labels[way] == case.truth).mean() for way in ways},
        "confidence": judged.confidence.mean(),
        "released": released(judged, case.truth),
        "test": test,
    }
    orders = {way: np.argsort(ways[way][1], kind="stable") for way in ways}
    undecided = np.arange(len(case.X))
    orders["robustpll"] = query_order(1 - judged.confidence, judged.near[0], undecided)[0]
    asked = {way: until_enough(labels[way], orders[way], case.truth) for way in ways}
    return results | {"questions": asked}


def released(judged: Judgement, truth: np.ndarray) -> dict[str, float]:
    """Return the share of rows that need no person, and how many of these are wrong."""
    chosen = ~below_threshold(judged.confidence, WRONG)
    wrong = (judged.resolved != truth)[chosen].mean() if chosen.any() else 0.0
    return {"share": chosen.mean(), "wrong": wrong}


def until_enough(labels: np.ndarray, order: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of rows that are answered, in this order, until enough are correct."""
    wrong, most = labels != truth, (1 - ENOUGH) * len(truth)
    left = wrong.sum() - np.cumsum(wrong[order])
    return 0.0 if wrong.sum() <= most else float((left > most).sum() + 1) / len(truth)


if __name__ == "__main__":
    main()
