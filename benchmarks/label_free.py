"""Parameters and epochs chosen without true labels: how many points does that cost?

    python benchmarks/label_free.py
    python benchmarks/label_free.py --sets lost msrc-v2 --seeds 3 --epochs 50    # for a CPU

A tenth of the training rows is held out. Variants of a method train on the others; one is chosen by
the held-out rows: by covering rate, approximated accuracy, or true labels. The same with early
stopping, where the epoch is chosen too, by the covering rate or by true labels.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from common import accuracies, begin, spread_of
from torch.nn.functional import one_hot

from robustpll import METHODS, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.evaluate.reports import approximated_accuracy, covering_rate
from robustpll.methods import DeepMethod, PlKnn, RobustPll

RATES = (1e-3, 1e-4, 1e-2)  # the default first: it is taken if several are equally good
DEEP = ("proden", "proden_l2", "rc", "cc", "cavl", "pop")
VARIANTS: dict[str, list[Any]] = {
    "pl_knn": [PlKnn(neighbours=neighbours) for neighbours in (10, 3, 30, 100)],
    **{name: [METHODS[name](learning_rate=rate) for rate in RATES] for name in DEEP},
    "robust_pll": [
        RobustPll(learning_rate=rate, kl_ceiling=ceiling)
        for rate in RATES
        for ceiling in (10.0, 1.0, 100.0)
    ],
}
CRITERIA = ("covering rate", "approximated accuracy", "true labels")


def main() -> None:
    sets = ("lost", "msrc-v2", "bird-song")
    args, report = begin(__doc__, sets=sets, methods=tuple(VARIANTS), seeds=5, epochs=200)

    def compute(dataset: str, name: str) -> dict[str, Any]:
        problem = Problem.of(load_dataset(dataset), None, range(args.seeds))
        variants = VARIANTS[name]
        if isinstance(variants[0], DeepMethod):
            variants = [replace(method, epochs=args.epochs) for method in variants]
        measured = [measure(method, problem) for method in variants]
        stops = {s: np.stack([results[s] for results in measured]) for s in measured[0]}
        default = spread_of(stops["last"][0, :, 3])
        return {"default": default, "chosen": {s: chosen(stops[s]) for s in stops}}

    report.fill(args.sets, args.methods, compute)


def measure(method: Any, problem: Problem) -> dict[str, np.ndarray]:
    """Return the criteria and the test accuracy, (seeds, 4), by how the epoch is chosen."""
    n = len(problem.task)
    positions = torch.arange(n, device=problem.task.prior.device)
    held_out = positions[n - n // 10 :]
    task, validation = (
        problem.task.some_rows(part) for part in (positions[: n - n // 10], held_out)
    )
    labels = problem.train_labels[:, held_out]
    stops: dict[str, Any] = {"last": None}
    if isinstance(method, DeepMethod):
        true = validation.with_candidates(one_hot(labels, validation.k).bool())
        stops |= {"covering rate": validation, "true labels": true}
    results = {}
    for stop, watched in stops.items():
        fitted = method.fit(task, validation=watched)
        opinion, test = fitted.predict(validation.rows), fitted.predict(problem.test)
        probabilities, masks = (
            opinion.probability.cpu().numpy(),
            validation.candidates.cpu().numpy(),
        )
        pairs = list(zip(probabilities, masks, strict=True))
        columns = [
            100 * np.array([covering_rate(*pair) for pair in pairs]),
            100 * np.array([approximated_accuracy(*pair) for pair in pairs]),
            accuracies(opinion.predicted(), labels).numpy(),
            accuracies(test.predicted(), problem.test_labels).numpy(),
        ]
        results[stop] = np.stack(columns, -1)
    return results


def chosen(values: np.ndarray) -> dict[str, Any]:
    """Return the test accuracy of what each criterion chooses, and its cost."""
    seeds = np.arange(values.shape[1])
    test = {name: values[values[..., c].argmax(0), seeds, 3] for c, name in enumerate(CRITERIA)}
    costs = {name: test["true labels"] - numbers for name, numbers in test.items()}
    return {name: {"test": spread_of(test[name]), "cost": spread_of(costs[name])} for name in test}


if __name__ == "__main__":
    main()
