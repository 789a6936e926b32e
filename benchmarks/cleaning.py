"""Does cleaning help? Votes of simulated annotators resolved in four ways, and questions asked.

    pip install -r benchmarks/cleaning-requirements.txt
    python benchmarks/cleaning.py --out benchmarks/results/cleaning.json

Each annotator is right in a share of the rows, drawn between 0.4 and 0.9, and answers a share drawn
between 0.5 and 1; every row has an answer. Wrong answers fall on classes in proportion to
exp(-3 d), d being the distance of the two classes' mean rows over the mean of such distances. Of a
crowd with hard rows, one row in five is hard: there annotators are right half as often, and their
wrong answers all name one class, drawn in the same way.

Votes become labels by majority (ties at random), by Dawid and Skene's model (crowd-kit), by
cleanlab's consensus (CROWDLAB) with out-of-fold probabilities of scikit-learn's MLP that learned
the majority's labels, and by `judge`, with which `robustpll clean` resolves them; also by
cleanlab's consensus with the probabilities of `judge`. The same MLP is trained from each. Then rows
are answered by the truth until 95 % of the labels are right: in each way's own order of doubt, and,
trained again after each tenth of the rows, in the order of `robustpll clean` and at random.

Besides, for candidate sets without votes: the share of right labels if a tenth of the rows is
answered and all is trained again, by the order of asking. The report is written after each run, and
what it holds already is not run again.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.multiannotator import get_label_quality_multiannotator
from crowdkit.aggregation import DawidSkene
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from stored import opened, written

from robustpll import METHODS, PLLClassifier, load_dataset
from robustpll.clean.decisions_file import with_decisions
from robustpll.clean.judge import Judgement, judge
from robustpll.clean.review import query_order
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import Votes
from robustpll.methods import Method

SETS = ("digits", "mnist", "lost", "bird-song")
MOST = 1500  # rows to clean, and as many to test by
CROWDS = {
    "5, hard rows": (5, 0.2),
    "3, hard rows": (3, 0.2),
    "7, hard rows": (7, 0.2),
    "5, no hard rows": (5, 0.0),
}
ASKED = "5, hard rows"  # the crowd after which people are asked
ENOUGH = 0.95  # share of right labels at which nobody is asked any more
ROUND = 0.1  # of the rows are answered between two trainings
ORDERED = (  # set, method, and from which share of the sets the truth is removed
    ("digits", "pl_knn", 0.1),
    ("lost", "pl_knn", 0.0),
    ("lost", "pl_knn", 0.1),
    ("msrc-v2", "pl_knn", 0.0),
    ("msrc-v2", "pl_knn", 0.1),
    ("lost", "robust_pll", 0.0),
    ("lost", "robust_pll", 0.1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--crowds", nargs="+", default=list(CROWDS), choices=CROWDS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("scratch/cleaning.json"))
    asked = parser.parse_args()
    packages = {name: version(name) for name in ("cleanlab", "crowd-kit", "scikit-learn")}
    report = opened(asked.out, epochs=asked.epochs, seeds=asked.seeds, packages=packages)
    warnings.filterwarnings("ignore")  # networks that have not converged, and rare classes
    for crowd in asked.crowds:
        for name in asked.sets:
            runs = report["sets"].setdefault(name, {}).setdefault(crowd, [])
            for seed in range(len(runs), asked.seeds):
                runs.append(run(name, crowd, seed, asked.epochs))
                written(report, asked.out)
                print(name, crowd, runs[-1], flush=True)
    for name, method, faulty in ORDERED:
        runs = report.setdefault("orders", {}).setdefault(f"{name}, {method}, {faulty:g}", [])
        for seed in range(len(runs), asked.seeds):
            runs.append(tenth_answered(name, method_of(method, asked.epochs), faulty, seed))
            written(report, asked.out)
            print(name, method, faulty, runs[-1], flush=True)


@dataclass(frozen=True, eq=False)
class Case:
    """Rows to clean and to test by, and what annotators said of the first."""

    X: np.ndarray
    truth: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    votes: np.ndarray  # (n, annotators), NaN for no answer
    k: int
    seed: int

    @classmethod
    def of(cls, name: str, crowd: str, seed: int) -> "Case":
        data = load_dataset(name)
        X = np.asarray(data.features, dtype=np.float64) / data.white
        labels, split = np.asarray(data.labels), data.split(seed)
        random = np.random.default_rng(seed)
        train, test = (random.permutation(part)[:MOST] for part in (split.train, split.test))
        votes = votes_of(X[train], labels[train], len(data.classes), CROWDS[crowd], random)
        return cls(X[train], labels[train], (X[test], labels[test]), votes, len(data.classes), seed)

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
    """What annotators say of rows with these labels, as the top of this file tells, (n, m)."""
    n, (annotators, hard) = len(labels), crowd
    scaled = StandardScaler().fit_transform(X)
    present, absent = np.unique(labels), np.setdiff1d(np.arange(k), labels)
    means = np.stack([scaled[labels == label].mean(0) for label in present])
    apart = np.linalg.norm(means[:, None] - means, axis=-1)
    like = np.zeros((k, k))
    like[np.ix_(present, present)] = np.exp(-3 * apart / apart[apart > 0].mean())
    np.fill_diagonal(like, 0)
    like[np.ix_(absent, absent)] = 1  # never asked for
    chance = np.cumsum(like / like.sum(-1, keepdims=True), -1)
    chance[chance > 1 - 1e-12] = 1

    def wrong(*shape: int) -> np.ndarray:
        """A class that is not the true one, for each row."""
        drawn = (
            random.random((n, *shape, 1))
            * chance[labels].reshape(n, *(1,) * len(shape), k)[..., -1:]
        )
        return np.asarray((drawn > chance[labels].reshape(n, *(1,) * len(shape), k)).sum(-1))

    skill, answers = random.uniform(0.4, 0.9, annotators), random.uniform(0.5, 1, annotators)
    is_hard = random.random(n) < hard
    right = random.random((n, annotators)) < skill * np.where(is_hard, 0.5, 1)[:, None]
    mistaken = np.where(is_hard[:, None], wrong(1), wrong(annotators))
    said = np.where(right, labels[:, None], mistaken).astype(np.float64)
    silent = random.random((n, annotators)) >= answers
    silent[np.arange(n), random.integers(annotators, size=n)] = False
    said[silent] = np.nan
    return said


@dataclass(frozen=True, eq=False)
class Resolved:
    """Labels, and how sure each is, (n,) each."""

    labels: np.ndarray
    sure: np.ndarray


def by_majority(case: Case) -> Resolved:
    noise = np.random.default_rng(case.seed).random(case.counts.shape) / 2  # decides ties
    labels = (case.counts + noise).argmax(-1)
    return Resolved(labels, (case.counts / case.counts.sum(-1, keepdims=True)).max(-1))


def by_dawid_skene(case: Case) -> Resolved:
    row, worker = np.nonzero(~np.isnan(case.votes))
    told = pd.DataFrame(
        {"task": row, "worker": worker, "label": case.votes[row, worker].astype(int)}
    )
    held = DawidSkene(n_iter=100).fit(told).probas_.loc[range(len(case.votes))]
    return Resolved(
        held.columns.to_numpy()[held.to_numpy().argmax(-1)], held.max(axis=1).to_numpy()
    )


def out_of_fold(case: Case) -> np.ndarray:
    """Probabilities by networks that learned the majority's labels of other rows, (n, k)."""
    majority, held = by_majority(case).labels, np.zeros((len(case.X), case.k))
    for train, own in KFold(5, shuffle=True, random_state=case.seed).split(case.X):
        model = mlp(case.seed).fit(case.X[train], majority[train])
        held[np.ix_(own, model.classes_)] = model.predict_proba(case.X[own])
    return held


def by_cleanlab(case: Case, probability: np.ndarray) -> Resolved:
    answers = pd.DataFrame(case.votes)
    found = get_label_quality_multiannotator(answers, probability, verbose=False)["label_quality"]
    labels = found["consensus_label"].to_numpy().astype(int)
    return Resolved(labels, found["consensus_quality_score"].to_numpy())


def mlp(seed: int) -> Any:
    """scikit-learn's network as it comes, but with the penalty that noisy labels ask for.

    With its own (alpha=0.0001) it learns errors by heart, and cleanlab's labels are worse.
    """
    return make_pipeline(StandardScaler(), MLPClassifier(alpha=1.0, random_state=seed))


def run(name: str, crowd: str, seed: int, epochs: int) -> dict[str, Any]:
    """All that is measured of one set and crowd, with one seed."""
    case, method = Case.of(name, crowd, seed), method_of("robust_pll", epochs)
    judged = judge(case.X, case.candidates, method, seed=seed)
    ways = {
        "majority": by_majority(case),
        "Dawid-Skene": by_dawid_skene(case),
        "cleanlab": by_cleanlab(case, out_of_fold(case)),
        "robustpll": Resolved(judged.resolved, judged.confidence),
        "cleanlab, robustpll": by_cleanlab(case, np.asarray(judged.opinion.probability)),
    }
    X, y = case.test
    test = {way: mlp(seed).fit(case.X, own.labels).score(X, y) for way, own in ways.items()}
    test["truth"] = mlp(seed).fit(case.X, case.truth).score(X, y)
    model = PLLClassifier(method, random_state=seed).fit(case.X, case.candidates)
    test["RobustPll from votes"] = float((model.predict(X) == y).mean())
    found: dict[str, Any] = {
        "rows": len(case.X),
        "answers": rounded(case.counts.sum(-1).mean()),
        "named": rounded((case.counts[np.arange(len(case.X)), case.truth] > 0).mean()),
        "labels": {way: rounded((own.labels == case.truth).mean()) for way, own in ways.items()},
        "confidence": rounded(judged.confidence.mean()),
        "test": {way: rounded(share) for way, share in test.items()},
    }
    if crowd == ASKED:
        found["questions"] = {
            way: rounded(until_enough(own.labels, np.argsort(own.sure, kind="stable"), case.truth))
            for way, own in ways.items()
        } | {
            f"robustpll, again, {words}": rounded(questions(case, judged, method, order))
            for words, order in {"in its order": in_order, "at random": at_random}.items()
        }
    return found


def rounded(share: float) -> float:
    return round(float(share), 4)


def method_of(name: str, epochs: int) -> Method:
    method = METHODS[name]()
    deep = "epochs" in method.field_names()
    return replace(method, epochs=epochs) if deep else method  # type: ignore[type-var]


def until_enough(labels: np.ndarray, order: np.ndarray, truth: np.ndarray) -> float:
    """Share of all rows that are answered, in this order, until enough labels are right."""
    wrong = labels != truth
    left = wrong.sum() - np.cumsum(wrong[order])
    most = (1 - ENOUGH) * len(truth)
    if wrong.sum() <= most:
        return 0.0
    return float((left > most).sum() + 1) / len(truth)


Order = Callable[[Judgement, int], np.ndarray]


def in_order(judged: Judgement, seed: int) -> np.ndarray:
    """Rows that nobody answered yet, those most worth asking about first."""
    open_rows = np.flatnonzero(~judged.decided)
    return query_order(1 - judged.confidence, judged.near[0], open_rows)[0]


def at_random(judged: Judgement, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).permutation(len(judged.labels))
    return drawn[~judged.decided[drawn]]


def questions(case: Case, judged: Judgement, method: Method, order: Order) -> float:
    """Share of the rows that are answered until enough labels are right, trained in between."""
    n = len(judged.labels)
    while True:
        asked = order(judged, case.seed)
        more = until_enough(judged.resolved, asked, case.truth)
        if more <= ROUND:
            return float(judged.decided.mean()) + more
        judged = answered(case, judged, asked[: round(ROUND * n)], method)


def answered(case: Case, judged: Judgement, rows: np.ndarray, method: Method) -> Judgement:
    """What is held after these rows are answered besides those that were before."""
    decided = judged.decided.copy()
    decided[rows] = True
    told = {int(row): int(case.truth[row]) for row in np.flatnonzero(decided)}
    y = with_decisions(case.candidates, told)
    return judge(case.X, y, method, seed=case.seed, decided=decided)


def tenth_answered(name: str, method: Method, faulty: float, seed: int) -> dict[str, float]:
    """Share of right labels before and after a tenth of the rows is answered, by the order."""
    X, truth, y = sets_of(name, faulty, seed)
    first = judge(X, y, method, seed=seed)
    n, doubt = len(truth), 1 - first.confidence
    orders = {
        "in this order": query_order(doubt, first.near[0], np.arange(n))[0],
        "by doubt alone": np.argsort(-doubt),
        "at random": np.random.default_rng(seed).permutation(n),
    }
    found = {"confidence": first.confidence.mean(), "before": (first.resolved == truth).mean()}
    for words, order in orders.items():
        decided = np.isin(np.arange(n), order[: n // 10])
        told = with_decisions(y, {int(row): int(truth[row]) for row in np.flatnonzero(decided)})
        again = judge(X, told, method, seed=seed, decided=decided)
        found[words] = (again.resolved == truth).mean()
    return {words: rounded(share) for words, share in found.items()}


def sets_of(name: str, faulty: float, seed: int) -> tuple[np.ndarray, np.ndarray, Candidates]:
    """Rows, true labels and candidates; from a share of the sets the truth is removed."""
    random, data = np.random.default_rng(seed), load_dataset(name)
    labels, k = np.asarray(data.labels), len(data.classes)
    if data.candidates is None:
        sets = (random.random((len(labels), k)) < 0.3) | np.eye(k, dtype=bool)[labels]
    else:
        sets = data.candidates.matrix.copy()
    for row in np.flatnonzero(random.random(len(labels)) < faulty):
        sets[row, labels[row]] = False
        if not sets[row].any():
            sets[row, (labels[row] + 1 + random.integers(k - 1)) % k] = True
    return np.asarray(data.features, dtype=float), labels, Candidates.of(sets)


if __name__ == "__main__":
    main()
