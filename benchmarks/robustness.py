"""Accuracy under the published attack, beside an audit that tries to find the worst case.

    python benchmarks/robustness.py --out benchmarks/results/robustness.json
    python benchmarks/robustness.py --sets lost --seeds 1 --epochs 50 --rows 100

All seeds of a method are one bundle, trained once and attacked at every epsilon. The report is
written after each method, and what it holds already is not run again. Meant for a GPU; the second
line is a trial for a CPU, on so many test rows.
"""

import argparse
import json
import re
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustpll import METHODS, PGD, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.history import progress_bars
from robustpll.evaluate.audit import EPSILONS, Audit, RobustnessReport
from robustpll.opinion import Opinion

NAMES = ("proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["lost", "msrc-v2", "bird-song"])
    parser.add_argument("--methods", nargs="+", default=NAMES, choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=10**9, help="test rows, at most")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("scratch/robustness.json"))
    asked = parser.parse_args()
    report = json.loads(asked.out.read_text()) if asked.out.exists() else {"sets": {}}
    report |= {
        "command": re.sub(r" --(out|kept) \S+", "", " ".join(["robustness.py", *sys.argv[1:]])),
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "epochs": asked.epochs,
        "seeds": asked.seeds,
        "epsilons": list(asked.epsilons),
    }
    with progress_bars():
        for name in asked.sets:
            known = report["sets"].setdefault(name, {})
            wanted = [method for method in asked.methods if method not in known]
            problem = Problem.of(load_dataset(name), None, range(asked.seeds)) if wanted else None
            for method in wanted:
                known[method] = run(method, asked, problem)
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                asked.out.write_text(json.dumps(report, indent=1) + "\n")
    show(report)


def run(name: str, asked: argparse.Namespace, problem: Problem) -> dict[str, Any]:
    """Train one method on all seeds of a dataset, and attack it."""
    method = replace(METHODS[name].paper(), epochs=asked.epochs)
    begun = time.perf_counter()
    fitted = method.fit(problem.task)
    trained = time.perf_counter()
    test = replace(problem.test, at=problem.test.at[:, : asked.rows])
    truth = problem.test_labels[:, : asked.rows]
    opinions = fitted.predict_at_each(asked.epsilons, test, PGD(0.1))
    published = {
        f"{epsilon:g}": spread_of(accuracies(opinion, truth))
        for epsilon, opinion in zip(asked.epsilons, opinions, strict=True)
    }
    audit = Audit(
        tuple(asked.epsilons), steps=asked.steps, restarts=asked.restarts, queries=asked.queries
    )
    found = audit.reports(fitted, test, truth)
    return {
        "title": method.title,
        "test_rows": len(test),
        "clean": spread_of([each.clean for each in found]),
        "published": published,
        "worst": by_epsilon(asked, [each.worst for each in found]),
        "attacks": {
            attack: by_epsilon(asked, [each.attacks[attack] for each in found])
            for attack in found[0].attacks
        },
        "unbounded": spread_of([each.unbounded for each in found]),
        "zero_gradients": {
            precision: spread_of([each.zero_gradients[precision] for each in found])
            for precision in found[0].zero_gradients
        },
        "warnings": warnings_of(found),
        "seconds": {
            "training": round(trained - begun, 1),
            "attacks": round(time.perf_counter() - trained, 1),
        },
    }


def accuracies(opinion: Opinion, truth: torch.Tensor) -> list[float]:
    """Of each seed; ties are broken at random, as in the published experiments."""
    right = opinion.predicted(np.random.default_rng(0)) == truth
    return right.double().mean(-1).tolist()


def by_epsilon(asked: argparse.Namespace, curves: list[tuple[float, ...]]) -> dict[str, Any]:
    pairs = zip(asked.epsilons, zip(*curves, strict=True), strict=True)
    return {f"{epsilon:g}": spread_of(list(shares)) for epsilon, shares in pairs}


def warnings_of(reports: list[RobustnessReport]) -> dict[str, list[str]]:
    """By seed, where there are any."""
    return {str(seed): list(each.warnings) for seed, each in enumerate(reports) if each.warnings}


def spread_of(shares: list[float]) -> dict[str, Any]:
    """Mean and population standard deviation over the seeds, and each value, in percent."""
    percent = 100 * np.asarray(shares)
    return {
        "mean": round(float(percent.mean()), 2),
        "std": round(float(percent.std()), 2),
        "each": percent.round(2).tolist(),
    }


def show(report: dict[str, Any]) -> None:
    for name, methods in report["sets"].items():
        print(f"{name}: right without attack, then published / worst case by epsilon, in percent")
        for row in methods.values():
            cells = [
                f"{epsilon}: {row['published'][epsilon]['mean']:.1f} / {each['mean']:.1f}"
                for epsilon, each in row["worst"].items()
            ]
            warned = f"  ({len(row['warnings'])} seeds with warnings)" if row["warnings"] else ""
            print(f"  {row['title']:14} {row['clean']['mean']:5.1f}  {'  '.join(cells)}{warned}")


if __name__ == "__main__":
    main()
