"""Candidate sets that miss the true class: how methods suffer, and how well such sets are found.

    python benchmarks/missing_truth.py
    python benchmarks/missing_truth.py --sets lost --seeds 2 --epochs 30    # for a CPU

`Flip` leaves out the true class of so many training rows. First, the test accuracy of each
method; shares and seeds are one bundle. Second, for a few methods, whether `missing_truth_scores`
finds such rows. Sets without candidates get them by `Uniform`.
"""

from typing import Any, get_args

import numpy as np
import pandas as pd
from common import accuracies, begin, method_of, spread_of
from sklearn.metrics import precision_recall_curve, roc_auc_score

from robustpll import METHODS, PLLClassifier, load_dataset, missing_truth_scores
from robustpll.datasets.noise import Flip, Uniform
from robustpll.datasets.problem import Problem
from robustpll.evaluate.reports import By

RECALLS = tuple(number / 10 for number in range(1, 11))
DETECTORS = ("pl_knn", "proden", "robust_pll", "robust_pll_ens")


def main() -> None:
    sets = ("lost", "msrc-v2", "bird-song", "digits")
    sizes = {"shares": (0.0, 0.1, 0.2, 0.3), "seeds": 5, "epochs": 200}
    args, report = begin(__doc__, sets=sets, methods=tuple(METHODS), detectors=DETECTORS, **sizes)

    def problem_at(name: str, share: float) -> Problem:
        dataset = load_dataset(name)
        flip = Flip(share, Uniform() if dataset.candidates is None else None)
        return Problem.of(dataset, flip, range(args.seeds))

    def accuracy(dataset: str, name: str) -> dict[str, Any]:
        whole = Problem.joined([problem_at(dataset, share) for share in args.shares])
        opinion = method_of(name, args.epochs).fit(whole.task).predict(whole.test)
        right = accuracies(opinion.predicted(np.random.default_rng(0)), whole.test_labels)
        pairs = zip(args.shares, right.split(args.seeds), strict=True)
        return {"test": {f"{share:g}": spread_of(values) for share, values in pairs}}

    def detection(dataset: str, name: str) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for share in (share for share in args.shares if share > 0):
            problem, rows = problem_at(dataset, share), []
            for seed in range(args.seeds):
                part = problem.task.part(slice(seed, seed + 1))
                X = part.rows.x(part.rows.everything)[0].cpu().numpy()
                y = part.candidates[0].cpu().numpy()
                labels = problem.train_labels[seed].cpu().numpy()
                model = PLLClassifier(method_of(name, args.epochs), random_state=seed)
                scores: dict[str, Any] = {"size": 1 / y.sum(-1)}
                for by in get_args(By):
                    scores[by] = missing_truth_scores(model, X, y, by=by, random_state=seed)
                missing = ~y[np.arange(len(y)), labels]
                rows += [quality(missing, values, y.sum(-1), by) for by, values in scores.items()]
            means = pd.DataFrame(rows).groupby("by", sort=False).agg(lambda v: np.mean([*v], 0))
            results[f"{share:g}"] = {
                by: {key: np.round(100 * np.asarray(v), 2).tolist() for key, v in row.items()}
                for by, row in means.to_dict("index").items()
            }
        return {"found": results}

    report.fill(args.sets, args.methods, accuracy, part="accuracy")
    report.fill(args.sets, args.detectors, detection, part="detection")


def quality(missing: np.ndarray, scores: np.ndarray, sizes: np.ndarray, by: str) -> dict[str, Any]:
    """Return AUROC, the same over pairs of sets of equal size, and precision by recall."""
    precision, recall, _ = precision_recall_curve(missing, scores)
    pairs = right = 0.0
    for size in np.unique(sizes):  # a set that lost a class is a smaller one
        alike = sizes == size
        both = float(missing[alike].sum() * (~missing[alike]).sum())
        if both:
            right += both * roc_auc_score(missing[alike], scores[alike])
            pairs += both
    return {
        "by": by,
        "auroc": roc_auc_score(missing, scores),
        "auroc_at_equal_size": right / pairs,
        "precision_at_recall": np.array([precision[recall >= level].max() for level in RECALLS]),
    }


if __name__ == "__main__":
    main()
