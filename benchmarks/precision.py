"""Whether TF32 and bfloat16 cost accuracy: digits and lost, ten seeds each.

python benchmarks/precision.py
"""

from dataclasses import replace
from typing import Any

import numpy as np
from common import accuracies, begin, method_of

from robustpll import Candidates, Dataset, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, has_bf16


def main() -> None:
    args, report = begin(__doc__, epochs=100, seeds=10)
    device = chosen_device("auto")
    precisions = ["float32", "auto"] if device.type == "cuda" else ["float32"]
    precisions += ["bf16"] if has_bf16(device) else []

    def compute(dataset: str, name: str) -> dict[str, Any]:
        problem, results = Problem.of(with_candidates(dataset), None, range(args.seeds)), {}
        for precision in precisions:
            method = replace(method_of(name, args.epochs), precision=precision)
            predicted = method.fit(problem.task).predict(problem.test).predicted()
            accuracy = accuracies(predicted, problem.test_labels)
            results[precision] = {
                "mean": float(accuracy.mean()),
                "standard_error": float(accuracy.std() / args.seeds**0.5),
                "each": [round(float(number), 2) for number in accuracy],
            }
        return results

    report.fill(("digits", "lost"), ("robust_pll", "proden"), compute)


def with_candidates(name: str) -> Dataset:
    """Return a dataset; one without candidates gets each wrong class with probability 0.5."""
    dataset = load_dataset(name)
    if dataset.candidates is not None:
        return dataset
    matrix = np.random.default_rng(0).random((len(dataset), len(dataset.classes))) < 0.5
    matrix[np.arange(len(dataset)), dataset.labels] = True
    return replace(dataset, candidates=Candidates.of(matrix))


if __name__ == "__main__":
    main()
