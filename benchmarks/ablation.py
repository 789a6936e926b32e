"""What each part of RobustPll is worth: test accuracy with one thing changed at a time.

    python benchmarks/ablation.py --sets mnist lost msrc-v2 bird-song fg-net italian

From the paper's setting: cross-entropy instead of the squared error, no divergence, epochs counted
from one, label weights from after the step, the factor for 100 classes or more forced on, and for
the ensemble equal members. All variants of a set that differ in numbers alone are one bundle. What
the report holds already is not run again.
"""

import argparse
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from problems import problem_of, shortened
from stored import spread_of

from robustpll import load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.history import progress_bars
from robustpll.methods import RobustPll, RobustPllEns

MANY = 0.0005  # the factor on the divergence for 100 classes or more
PAPER, ENSEMBLE = RobustPll.paper(), RobustPllEns.paper()
VARIANTS: dict[str, RobustPll] = {
    "as published": PAPER,
    "cross-entropy": replace(PAPER, loss="cross-entropy"),
    "no divergence": replace(PAPER, kl_ceiling=0.0),
    "cross-entropy, no divergence": replace(PAPER, loss="cross-entropy", kl_ceiling=0.0),
    "epochs from one": replace(PAPER, anneal="from-one"),
    "weights after the step": replace(PAPER, update="after"),
    "divergence times 0.0005": replace(PAPER, kl_ceiling=MANY),
    "ensemble": ENSEMBLE,
    "ensemble of equals": replace(ENSEMBLE, kl_ceiling=1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["lost", "msrc-v2", "bird-song"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--kept", type=Path, default=Path("scratch"))
    parser.add_argument("--out", type=Path, default=Path("scratch/ablation.json"))
    asked = parser.parse_args()
    report = json.loads(asked.out.read_text()) if asked.out.exists() else {"sets": {}}
    report |= {
        "command": f"ablation.py {' '.join(sys.argv[1:])}",
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "epochs": asked.epochs,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bars():
        for name in asked.sets:
            found = report["sets"].setdefault(name, {})
            problem = problem_of(shortened(load_dataset(name), asked.rows), asked.seeds, asked.kept)
            for alike in bundles([each for each in VARIANTS if each not in found]):
                found |= accuracies(alike, problem, asked.epochs)
                asked.out.write_text(json.dumps(report, indent=1) + "\n")
    for name, found in report["sets"].items():
        print(name)
        for variant, spread in found.items():
            print(f"  {variant:32} {spread['mean']:.1f} ± {spread['std']:.1f}")


def bundles(names: list[str]) -> list[list[str]]:
    """Variants that differ in numbers alone, together."""
    groups: dict[Any, list[str]] = {}
    for name in names:
        method = VARIANTS[name]
        same = {each: getattr(method, each) for each in method.field_names()}
        for each in method.number_names():
            same.pop(each)
        groups.setdefault((type(method), *sorted(same.items(), key=str)), []).append(name)
    return list(groups.values())


def accuracies(names: list[str], problem: Problem, epochs: int) -> dict[str, Any]:
    """Test accuracy of each variant, in percent; all are trained as one."""
    seeds = len(problem.test_labels)
    whole = Problem.joined([problem] * len(names))
    methods = [replace(VARIANTS[name], epochs=epochs) for name in names for _ in range(seeds)]
    opinion = type(methods[0]).stacked(methods).fit(whole.task).predict(whole.test)
    right = opinion.predicted(np.random.default_rng(0)) == whole.test_labels
    each = (100 * right.double().mean(-1)).split(seeds)
    return {name: spread_of(values) for name, values in zip(names, each, strict=True)}


if __name__ == "__main__":
    main()
