"""How honest probabilities are, before and after recalibration, and what promises are kept.

    python benchmarks/trust.py --out benchmarks/results/trust.json
    python benchmarks/trust.py --seeds 3 --epochs 100 --rows 3000

A quarter of the training rows is set aside: a model never trains on it, and recalibrates and
chooses thresholds by it, by its labels or by its candidates alone. Several methods on `--sets`; on
`--more` two of them. At most so many training rows and 2,000 test rows. Sets without candidates get
them by `NOISES`. All goes through the estimators, as it does for users. The report is written after
each method, and what it holds already is not run again. The second line is for a CPU.
"""

import argparse
import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from stored import opened, written

from robustpll import METHODS, InputError, Opinion, PLLClassifier, load_dataset
from robustpll.datasets.noise import InstanceDependent, Uniform
from robustpll.estimator.recalibration import Recalibration
from robustpll.evaluate.ood import OodScorer
from robustpll.evaluate.reports import decision_report
from robustpll.measures.calibration import CalibrationReport, calibration_of
from robustpll.measures.selection import risk_coverage

SETS = ("lost", "msrc-v2", "bird-song")
MORE = ("fg-net", "italian", "digits", "synthetic", "mnist", "fmnist", "kmnist")
NETWORKS = ("cc", "proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")
NAMES = ("pl_knn", "pl_svm", *NETWORKS)
FEW = ("proden", "robust_pll")
# Uniform sets say nothing about which member is true, instance-dependent ones favour lookalikes.
UNIFORM, LOOKALIKES = Uniform(added=3, share=1.0), InstanceDependent(epochs=500)
NOISES = {"digits": UNIFORM, "synthetic": UNIFORM, "kmnist": UNIFORM}
COVERAGES, ERRORS = (0.5, 0.8), (0.05, 0.1, 0.2)
MEASURES = ("accuracy", "error", "class_error", "brier", "log_loss")
TEST_ROWS = 2000
PICTURED = "bird-song"  # its curves are stored
STRANGERS = {"mnist": "fmnist", "fmnist": "mnist", "kmnist": "mnist"}  # rows of no known class
POINTS = np.linspace(0.02, 1, 50)  # of a stored curve


class Parts(NamedTuple):
    """Rows with candidates to train on; rows set aside, to test on, and of no known class."""

    X: np.ndarray
    y: np.ndarray
    X_aside: np.ndarray
    y_aside: np.ndarray
    labels_aside: np.ndarray
    X_test: np.ndarray
    labels: np.ndarray
    strangers: np.ndarray | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--more", nargs="*", default=MORE)
    parser.add_argument("--methods", nargs="+", default=NAMES, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000, help="training rows, at most")
    parser.add_argument("--out", type=Path, default=Path("scratch/trust.json"))
    asked = parser.parse_args()
    report = opened(asked.out, epochs=asked.epochs, seeds=asked.seeds, rows=asked.rows)
    for name in (*asked.sets, *asked.more):
        known = report["sets"].setdefault(name, {})
        methods = [each for each in asked.methods if name in asked.sets or each in FEW]
        wanted = [each for each in methods if each not in known]
        parts = [parts_of(name, seed, asked.rows) for seed in range(asked.seeds) if wanted]
        for method in wanted:
            begun = time.perf_counter()
            each = [measured(method, part, seed, asked.epochs) for seed, part in enumerate(parts)]
            known[method] = {
                "title": METHODS[method].title,
                **joined(each),
                "seconds": round(time.perf_counter() - begun, 1),
            }
            if name != PICTURED:
                without_curves(known[method])
            written(report, asked.out)
            print(name, method, known[method]["seconds"], flush=True)
    written(report, asked.out)


def parts_of(name: str, seed: int, rows: int) -> Parts:
    dataset = load_dataset(name)
    split = dataset.split(seed)
    draw = np.random.default_rng(seed)
    train, test = draw.permutation(split.train)[:rows], draw.permutation(split.test)[:TEST_ROWS]
    X = dataset.features.astype(np.float32) / dataset.white
    labels = np.asarray(dataset.labels)
    if dataset.candidates is None:
        noise = NOISES.get(name, LOOKALIKES)
        y = noise.apply(X[train], labels[train], random_state=seed).matrix
    else:
        y = dataset.candidates.matrix[train]
    cut = len(train) * 3 // 4
    own, aside = train[:cut], train[cut:]
    strangers = None
    if name in STRANGERS:
        other = load_dataset(STRANGERS[name])
        strangers = other.features[other.split(seed).test[:TEST_ROWS]].astype(np.float32)
        strangers /= other.white
    return Parts(
        *(X[own], y[:cut], X[aside], y[cut:], labels[aside], X[test], labels[test], strangers)
    )


def measured(name: str, part: Parts, seed: int, epochs: int) -> dict[str, Any]:
    """All numbers of one run."""
    method: Any = METHODS[name]()
    if "epochs" in method.field_names():
        method = replace(method, epochs=epochs)
    model = PLLClassifier(method, random_state=seed).fit(part.X, part.y)
    opinion = model.predict_opinion(part.X_test)
    right = opinion.predicted() == part.labels
    scores = OodScorer.of(model, part.X).scores(part.X_test)
    curves = {score: risk_coverage(-each, right) for score, each in scores.items()}
    found = {
        "aside": len(part.X_aside),
        "calibration": {"raw": numbers_of(calibration_of(opinion.probability, part.labels))},
        "factors": {},
        "selection": {score: curve.area for score, curve in curves.items()},
        "best order": curves["entropy"].least_area,
        "curve": np.interp(
            POINTS, curves["missing probability"].coverage, curves["missing probability"].error
        ).tolist(),
        "promises": {"own": promises(model, part)},
    }
    model.calibrate_decisions(part.X_aside, part.labels_aside)
    found["promises"]["labels"] = promises(model, part)
    if part.strangers is not None:
        found["strangers"] = of_strangers(model, part.strangers)
    if opinion.uncertainty.any():
        found["calibration"]["labels, as logits"] = as_logits(model, part, opinion)
    for source, y in (("candidates", part.y_aside), ("labels", part.labels_aside)):
        try:
            model.recalibrate(part.X_aside, y)
        except InputError:  # these rows tell of no factor
            continue
        found["factors"][source] = model.recalibration_.factor
        probability = model.predict_proba(part.X_test)
        found["calibration"][source] = numbers_of(calibration_of(probability, part.labels))
        found["promises"][f"own, {source}"] = promises(model, part)
        if source == "candidates":
            model.calibrate_decisions(part.X_aside, y)
            found["promises"]["candidates"] = promises(model, part)
    return found


def of_strangers(model: PLLClassifier, rows: np.ndarray) -> dict[str, float]:
    """How many rows of no known class are accepted, and how many would be by probability alone."""
    decision = model.decide(rows, coverage=0.8)
    sure = model.predict_proba(rows).max(-1) >= decision.threshold
    unlike = decision.reason == "unlike the training data"
    shares = {"sure": sure, "unlike": unlike, "accepted": decision.accepted}
    return {name: float(each.mean()) for name, each in shares.items()}


def as_logits(model: PLLClassifier, part: Parts, opinion: Opinion) -> dict[str, Any]:
    """What temperature scaling would make of evidence."""
    aside = Opinion.of_probability(model.predict_proba(part.X_aside))
    known = part.labels_aside[:, None] == np.arange(aside.belief.shape[1])
    other = Recalibration.of_rows(aside, known).opinion(Opinion.of_probability(opinion.probability))
    return numbers_of(calibration_of(other.probability, part.labels))


def numbers_of(report: CalibrationReport) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(report, name) for name in MEASURES}
    if math.isinf(report.log_loss):
        found["log_loss"] = None
    found["reliability"] = [each.tolist() for each in asdict(report.top).values()]
    return found


def promises(model: PLLClassifier, part: Parts) -> dict[str, Any]:
    """What came of each promise; None where it cannot be given."""
    found: dict[str, Any] = {}
    asked = [{"coverage": each} for each in COVERAGES] + [{"error": each} for each in ERRORS]
    for promise in asked:
        ((kind, number),) = promise.items()
        try:
            decision = model.decide(part.X_test, **promise)
        except InputError:  # too few labelled rows for so small an error
            found[f"{kind} {number}"] = None
            continue
        found[f"{kind} {number}"] = asdict(decision_report(decision, part.labels))
    return found


def without_curves(found: dict[str, Any]) -> None:
    del found["curve"]
    for numbers in found["calibration"].values():
        del numbers["reliability"]


def joined(each: list[Any]) -> Any:
    """The same numbers of all seeds, as a list in the place of each; curves of the first seed."""
    first = next((one for one in each if one is not None), None)
    if isinstance(first, dict):
        names = dict.fromkeys(name for one in each if one is not None for name in one)
        return {
            name: joined([None if one is None else one.get(name) for one in each]) for name in names
        }
    if isinstance(first, list):
        return np.round(first, 4).tolist()
    return [one if one is None else round(one, 4) for one in each]


if __name__ == "__main__":
    main()
