"""How reliable probabilities are, before and after recalibration, and whether promises are kept.

    python benchmarks/trust.py
    python benchmarks/trust.py --seeds 3 --epochs 100 --rows 3000    # for a CPU

A quarter of the training rows is held out: the model recalibrates and chooses thresholds by it, by
labels or by candidates. Several methods run on `--sets`, two of them on `--more`.
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from common import begin, method_of

from robustpll import InputError, PLLClassifier, load_dataset
from robustpll.datasets.noise import InstanceDependent, Uniform
from robustpll.evaluate.ood import OodScorer
from robustpll.evaluate.reports import decision_report
from robustpll.measures.calibration import calibration_of, risk_coverage

SETS = ("lost", "msrc-v2", "bird-song")
MORE = ("fg-net", "italian", "digits", "synthetic", "mnist", "fmnist", "kmnist")
NETWORKS = ("cc", "proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")
RANDOM_SETS = ("digits", "synthetic", "kmnist")  # the others get instance-dependent candidates
PROMISES = [{"coverage": 0.5}, {"coverage": 0.8}, {"error": 0.05}, {"error": 0.1}, {"error": 0.2}]
MEASURES = ("accuracy", "error", "class_error", "brier", "log_loss")
TEST_ROWS = 2000
POINTS = np.linspace(0.02, 1, 50)  # coverages of a stored curve


def main() -> None:
    names = ("pl_knn", "pl_svm", *NETWORKS)
    sizes = {"seeds": 5, "epochs": 200, "rows": 20_000}
    args, report = begin(__doc__, sets=SETS, more=MORE, methods=names, **sizes)

    def compute(dataset: str, name: str) -> dict[str, Any]:
        method = method_of(name, args.epochs)
        runs = [measured(method, dataset, seed, args.rows) for seed in range(args.seeds)]
        return joined(runs)

    report.fill(args.sets, args.methods, compute)
    report.fill(args.more, ("proden", "robust_pll"), compute)


def measured(method: Any, name: str, seed: int, rows: int) -> dict[str, Any]:
    """Return all numbers of one run."""
    dataset, random = load_dataset(name), np.random.default_rng(seed)
    split = dataset.split(seed)
    train, test = random.permutation(split.train)[:rows], random.permutation(split.test)[:TEST_ROWS]
    X, labels = dataset.features.astype(np.float32) / dataset.white, np.asarray(dataset.labels)
    if dataset.candidates is not None:
        y = dataset.candidates.matrix[train]
    else:
        noise = (
            Uniform(added=3, share=1.0) if name in RANDOM_SETS else InstanceDependent(epochs=500)
        )
        y = noise.apply(X[train], labels[train], random_state=seed).matrix
    cut = len(train) * 3 // 4
    held_out, y_held_out = train[cut:], y[cut:]
    model = PLLClassifier(method, random_state=seed).fit(X[train[:cut]], y[:cut])
    probability = model.predict_proba(X[test])
    scores = OodScorer.of(model, X[train[:cut]]).scores(X[test])
    right = model.predict(X[test]) == labels[test]
    curves = {score: risk_coverage(-values, right) for score, values in scores.items()}
    best = curves["missing probability"]
    result = {
        "calibration": {"raw": calibration(probability, labels[test], curve=name == "bird-song")},
        "factors": {},
        "selection": {score: curve.area for score, curve in curves.items()},
        "best order": risk_coverage(right, right).area,
        "promises": {"own": promises(model, X[test], labels[test])},
    }
    if name == "bird-song":
        result["curve"] = np.interp(POINTS, best.coverage, best.error).tolist()
    model.calibrate_decisions(X[held_out], labels[held_out])
    result["promises"]["labels"] = promises(model, X[test], labels[test])
    for source, known in (("candidates", y_held_out), ("labels", labels[held_out])):
        try:
            model.recalibrate(X[held_out], known)
        except InputError:  # these rows do not determine a factor
            continue
        result["factors"][source] = model.recalibration_.factor
        probability = model.predict_proba(X[test])
        measures = calibration(probability, labels[test], curve=name == "bird-song")
        result["calibration"][source] = measures
        result["promises"][f"own, {source}"] = promises(model, X[test], labels[test])
        if source == "candidates":
            model.calibrate_decisions(X[held_out], known)
            result["promises"]["candidates"] = promises(model, X[test], labels[test])
    return result


def calibration(probability: np.ndarray, labels: np.ndarray, *, curve: bool) -> dict[str, Any]:
    report = calibration_of(probability, labels)
    measures: dict[str, Any] = {name: getattr(report, name) for name in MEASURES}
    measures["log_loss"] = None if math.isinf(report.log_loss) else report.log_loss
    top = {"reliability": [values.tolist() for values in asdict(report.top).values()]}
    return measures | (top if curve else {})


def promises(model: PLLClassifier, X: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return what came of each promise; None if it cannot be given."""
    results: dict[str, Any] = {}
    for promise in PROMISES:
        ((kind, number),) = promise.items()
        try:
            report = decision_report(model.decide(X, **promise), labels)
        except InputError:  # too few labelled rows for so small an error
            results[f"{kind} {number}"] = None
        else:
            results[f"{kind} {number}"] = asdict(report)
    return results


def joined(runs: list[Any]) -> Any:
    """Return the numbers of all seeds as lists; curves are those of the first seed."""
    first = next((run for run in runs if run is not None), None)
    if isinstance(first, dict):
        names = dict.fromkeys(name for run in runs if run is not None for name in run)
        return {n: joined([None if run is None else run.get(n) for run in runs]) for n in names}
    if isinstance(first, list):
        return np.round(first, 4).tolist()
    return [run if run is None else round(run, 4) for run in runs]


if __name__ == "__main__":
    main()
