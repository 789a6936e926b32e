"""Whether TF32 and bfloat16 cost accuracy: digits and lost, ten seeds each.

ROBUSTPLL_DATA=... python benchmarks/precision_accuracy.py --out scratch/precision.json
"""

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustpll import Candidates, Dataset, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, device_name, has_bf16
from robustpll.methods import Proden, RobustPll

DEVICE = chosen_device("auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("scratch/precision.json"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    precisions = ["float32", *(["auto"] if DEVICE.type == "cuda" else [])]
    precisions += ["bf16"] if has_bf16(DEVICE) else []
    results = {
        f"{name}, {method.title}, {precision}": accuracy(
            replace(method, epochs=asked.epochs, precision=precision), data, asked.seeds
        )
        for name, data in (("digits", digits()), ("lost", load_dataset("lost")))
        for method in (RobustPll(), Proden())
        for precision in precisions
    }
    for name, found in results.items():
        print(f"{name}: {found['mean']:.2f} +- {found['standard_error']:.2f} %")
    report = {
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "accuracy": results,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=2) + "\n")


def digits() -> Dataset:
    """Each wrong class is a candidate with probability 0.5."""
    data = load_dataset("digits")
    matrix = np.random.default_rng(0).random((len(data), 10)) < 0.5
    matrix[np.arange(len(data)), data.labels] = True
    return replace(data, candidates=Candidates.of(matrix))


def accuracy(method: RobustPll | Proden, data: Dataset, seeds: int) -> dict[str, Any]:
    """Test accuracy over random splits, all seeds as one bundle; in percent."""
    problem = Problem.of(data, None, range(seeds), DEVICE)
    right = method.fit(problem.task).predict(problem.test).predicted() == problem.test_labels
    each = 100 * right.double().mean(-1)
    return {
        "mean": float(each.mean()),
        "standard_error": float(each.std() / seeds**0.5),
        "each": [round(float(value), 2) for value in each],
    }


if __name__ == "__main__":
    main()
