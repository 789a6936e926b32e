"""Candidate sets that miss the true class: how methods suffer, and how well such sets are found.

    python benchmarks/faulty_sets.py --out benchmarks/results/faulty-sets.json
    python benchmarks/faulty_sets.py --sets lost msrc-v2 --seeds 3 --epochs 100

Of so many training rows, by `Flip`, the true class is left out. First, the test accuracy of each
method; shares and seeds are one bundle. Second, for a few methods, whether the rows are found: each
is judged by networks that were trained without it; folds, shares and seeds are one bundle. Sets
without candidates get them by `Uniform`. The report is written after each method, and what it holds
already is not run again. The first line is for a GPU, the second for a CPU.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
from stored import opened, spread_of, written

from robustpll import METHODS, load_dataset
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Flip, Uniform
from robustpll.datasets.problem import Problem, pool_of
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.engine.random import Draws
from robustpll.evaluate.missing_truth import By, suspicion
from robustpll.methods import Method

FOLDS = 5
RECALLS = tuple(number / 10 for number in range(1, 11))
DETECTORS = ("pl_knn", "proden", "robust_pll", "robust_pll_ens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["lost", "msrc-v2", "bird-song", "digits"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--detectors", nargs="*", default=list(DETECTORS), choices=METHODS)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.1, 0.2, 0.3])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("scratch/faulty-sets.json"))
    asked = parser.parse_args()
    report = opened(asked.out, epochs=asked.epochs, seeds=asked.seeds, folds=FOLDS)
    with progress_bars():
        for name in asked.sets:
            dataset = load_dataset(name)
            known = report["sets"].setdefault(name, {"accuracy": {}, "detection": {}})
            for each in asked.methods:
                if each not in known["accuracy"]:
                    known["accuracy"][each] = accuracies(dataset, method_of(each, asked), asked)
                    written(report, asked.out)
            for each in asked.detectors:
                if each not in known["detection"]:
                    known["detection"][each] = detection(dataset, method_of(each, asked), asked)
                    written(report, asked.out)
    show(report)


def method_of(name: str, asked: argparse.Namespace) -> Method:
    method = METHODS[name]()
    deep = "epochs" in method.field_names()
    return replace(method, epochs=asked.epochs) if deep else method  # type: ignore[type-var]


def flip_of(dataset: Dataset, share: float) -> Flip:
    return Flip(share, Uniform() if dataset.candidates is None else None)


def accuracies(dataset: Dataset, method: Method, asked: argparse.Namespace) -> dict[str, Any]:
    """Test accuracy in percent, by the share of faulty sets."""
    seeds, begun = range(asked.seeds), time.perf_counter()
    problems = [Problem.of(dataset, flip_of(dataset, share), seeds) for share in asked.shares]
    whole = Problem.joined(problems)
    opinion = method.fit(whole.task).predict(whole.test)
    right = opinion.predicted(np.random.default_rng(0)) == whole.test_labels
    each = (100 * right.double().mean(-1)).split(asked.seeds)
    return {
        "title": method.title,
        "test": {f"{s:g}": spread_of(values) for s, values in zip(asked.shares, each, strict=True)},
        "seconds": round(time.perf_counter() - begun, 1),
    }


def detection(dataset: Dataset, method: Method, asked: argparse.Namespace) -> dict[str, Any]:
    """How well faulty sets are found, by the share of them; means over the seeds."""
    shares = [share for share in asked.shares if share > 0]
    runs = [(share, seed) for share in shares for seed in range(asked.seeds)]
    begun = time.perf_counter()
    candidates, missing, opinion, own = out_of_fold(dataset, method, runs)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for run, (share, _) in enumerate(runs):
        at = own[run]
        sizes = candidates[run, at].sum(-1)
        scores = {by: suspicion(opinion[run], candidates[run, at], by) for by in get_args(By)}
        for by, each in (scores | {"size": 1 / sizes}).items():
            judged = quality(missing[run, at], each, sizes)
            found.setdefault(f"{share:g}", {}).setdefault(by, []).append(judged)
    return {
        "title": method.title,
        "found": {
            share: {by: averaged(each) for by, each in by_score.items()}
            for share, by_score in found.items()
        },
        "seconds": round(time.perf_counter() - begun, 1),
    }


def out_of_fold(dataset: Dataset, method: Method, runs: list[tuple[float, int]]) -> tuple[Any, ...]:
    """Candidates (R, n, k), whether they miss the truth (R, n), and opinions of rows `own` (R, m).

    Rows beyond a multiple of the folds are left out, so that all folds have the same size.
    """
    device = chosen_device("auto")
    pool, k = pool_of(dataset, device), len(dataset.classes)
    labels = torch.tensor(dataset.labels, device=device)
    candidates = torch.cat([faulty(dataset, pool, labels, share, seed) for share, seed in runs])
    size = len(pool) // FOLDS
    orders = [np.random.default_rng(seed).permutation(len(pool)) for _, seed in runs]
    own = torch.from_numpy(np.stack(orders)[:, : size * FOLDS]).view(-1, FOLDS, size).to(device)
    others = torch.stack(
        [torch.cat([own[:, f] for f in range(FOLDS) if f != fold], 1) for fold in range(FOLDS)], 1
    )  # (R, folds, 4 m)
    rows = Rows.of(pool, others.flatten(0, 1))
    each = candidates.repeat_interleave(FOLDS, 0)
    taught = each.gather(1, rows.at[..., None].expand(-1, -1, k))
    seeds = tuple(seed * FOLDS + fold for _, seed in runs for fold in range(FOLDS))
    fitted = method.fit(Task.of(rows, taught, seeds))
    opinion = fitted.predict(rows.others(pool, own.flatten(0, 1))).numpy()
    whole = replace(
        opinion,
        belief=opinion.belief.reshape(len(runs), -1, k),
        prior=opinion.prior.reshape(len(runs), -1, k),
        uncertainty=opinion.uncertainty.reshape(len(runs), -1),
    )
    missing = ~candidates[:, torch.arange(len(labels)), labels]
    return candidates.cpu().numpy(), missing.cpu().numpy(), whole, own.flatten(1).cpu().numpy()


def faulty(
    dataset: Dataset, pool: torch.Tensor, labels: torch.Tensor, share: float, seed: int
) -> torch.Tensor:
    """Candidates of all rows, (1, n, k), so many without the true class."""
    flip = flip_of(dataset, share)
    if dataset.candidates is None:
        rows = Rows.of(pool, torch.arange(len(pool), device=pool.device)[None])
        return flip.candidates(rows, labels[None], len(dataset.classes), (seed,))
    known = torch.from_numpy(dataset.candidates.matrix).to(pool.device)[None]
    return flip.flipped(known, labels[None], Draws.of((seed,), "flip noise", like=pool))


def quality(missing: np.ndarray, scores: np.ndarray, sizes: np.ndarray) -> dict[str, Any]:
    """AUROC, average precision, precision by recall, and both for the rows above 0.5."""
    precision, recall, _ = precision_recall_curve(missing, scores)
    flagged = scores > 0.5  # of "rival": the predicted class is no candidate
    hits = (flagged & missing).sum()
    return {
        "auroc": roc_auc_score(missing, scores),
        "auroc_at_equal_size": at_equal_size(missing, scores, sizes),
        "average_precision": average_precision_score(missing, scores),
        "precision_at_recall": [float(precision[recall >= at].max()) for at in RECALLS],
        "flagged": flagged.mean(),
        "flagged_precision": hits / max(1, flagged.sum()),
        "flagged_recall": hits / missing.sum(),
        "faulty": missing.mean(),
    }


def at_equal_size(missing: np.ndarray, scores: np.ndarray, sizes: np.ndarray) -> float:
    """AUROC over pairs of sets of the same size: a set that lost a class is a smaller one."""
    pairs, right = 0, 0.0
    for size in np.unique(sizes):
        own = sizes == size
        both = int(missing[own].sum()) * int((~missing[own]).sum())
        if both:
            right += both * roc_auc_score(missing[own], scores[own])
            pairs += both
    return right / pairs


def averaged(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds, in percent."""
    means = {name: 100 * np.mean([one[name] for one in each], 0) for name in each[0]}
    return {name: np.round(value, 2).tolist() for name, value in means.items()}


def show(report: dict[str, Any]) -> None:
    for name, known in report["sets"].items():
        print(f"{name}: test accuracy in percent, by the share of faulty sets")
        for row in known["accuracy"].values():
            cells = [f"{each['mean']:5.1f} ± {each['std']:3.1f}" for each in row["test"].values()]
            print(f"  {row['title']:15} {'  '.join(cells)}  ({row['seconds']} s)")
        print(f"{name}: AUROC, at equal size, average precision, precision / recall above 0.5")
        for row in known["detection"].values():
            for share, by_score in row["found"].items():
                for by, found in by_score.items():
                    print(
                        f"  {row['title']:15} {share:4} {by:12} {found['auroc']:5.1f} "
                        f"{found['auroc_at_equal_size']:5.1f} {found['average_precision']:5.1f}  "
                        f"{found['flagged_precision']:5.1f} / {found['flagged_recall']:5.1f}"
                    )


if __name__ == "__main__":
    main()
