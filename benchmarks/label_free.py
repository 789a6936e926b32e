"""Parameters and epochs chosen without a true label: how many points does not knowing cost?

    python benchmarks/label_free.py --out benchmarks/results/label-free.json
    python benchmarks/label_free.py --sets lost msrc-v2 --seeds 3 --epochs 50

A tenth of the training rows is set aside. Each variant of a method is trained on the others; then
one is chosen by the rows set aside: by their covering rate, their approximated accuracy, or their
true labels, which nobody has. The same once more with `watch`, where the epoch is chosen too, by
the covering rate or by true labels. Variants that differ in numbers alone, and all seeds, are one
bundle. The report is written after each method, and what it holds already is not run again. The
first line is for a GPU, the second for a CPU.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stored import opened, spread_of, written
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import METHODS, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.history import progress_bars
from robustpll.evaluate.label_free import approximated_accuracy, covering_rate
from robustpll.methods import DeepMethod, Method, PlKnn, RobustPll

RATES = (1e-3, 1e-4, 1e-2)  # the default first: it is taken where several are as good
CEILINGS = (10.0, 1.0, 100.0)
DEEP = ("proden", "proden_l2", "rc", "cc", "cavl", "pop")
VARIANTS: dict[str, list[Method]] = {
    "pl_knn": [PlKnn(neighbours=neighbours) for neighbours in (10, 3, 30, 100)],
    **{name: [METHODS[name](learning_rate=rate) for rate in RATES] for name in DEEP},
    "robust_pll": [
        RobustPll(learning_rate=rate, kl_ceiling=ceiling) for rate in RATES for ceiling in CEILINGS
    ],
}
CRITERIA = ("covering rate", "approximated accuracy", "true labels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["lost", "msrc-v2", "bird-song"])
    parser.add_argument("--methods", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("scratch/label-free.json"))
    asked = parser.parse_args()
    report = opened(asked.out, epochs=asked.epochs, seeds=asked.seeds)
    with progress_bars():
        for name in asked.sets:
            known = report["sets"].setdefault(name, {})
            problem = Problem.of(load_dataset(name), None, range(asked.seeds))
            for each in asked.methods:
                if each not in known:
                    known[each] = run(VARIANTS[each], problem, asked.epochs)
                    written(report, asked.out)
    show(report)


def run(variants: list[Method], problem: Problem, epochs: int) -> dict[str, Any]:
    """All variants of one method, and what each criterion makes of them."""
    begun = time.perf_counter()
    if isinstance(variants[0], DeepMethod):
        variants = [replace(each, epochs=epochs) for each in variants]  # type: ignore[type-var]
    seeds = problem.task.models
    measured: dict[str, np.ndarray] = {}  # by stop: (variants, seeds, criteria and test)
    for alike in bundles(variants):
        for stop, values in measure([variants[at] for at in alike], problem).items():
            into = measured.setdefault(stop, np.empty((len(variants), seeds, 4)))
            into[alike] = values
    return {
        "title": variants[0].title,
        "variants": [differing(each, variants) for each in variants],
        "default": spread_of(torch.from_numpy(measured["last"][0, :, 3])),
        "best on test rows": spread_of(torch.from_numpy(measured["last"][..., 3].max(0))),
        "chosen": {stop: chosen(values) for stop, values in measured.items()},
        "measured": {stop: values.mean(1).round(2).tolist() for stop, values in measured.items()},
        "seconds": round(time.perf_counter() - begun, 1),
    }


def bundles(variants: list[Method]) -> list[list[int]]:
    """Variants that differ in numbers alone, together."""
    groups: dict[Any, list[int]] = {}
    for at, method in enumerate(variants):
        fixed = [name for name in method.field_names() if name not in method.number_names()]
        groups.setdefault(tuple(getattr(method, name) for name in fixed), []).append(at)
    return list(groups.values())


def measure(methods: list[Method], problem: Problem) -> dict[str, np.ndarray]:
    """By how the epoch is chosen: each criterion and the test accuracy, (variants, seeds, 4)."""
    whole, seeds = Problem.joined([problem] * len(methods)), problem.task.models
    stacked = type(methods[0]).stacked([method for method in methods for _ in range(seeds)])
    n = len(whole.task)
    positions = torch.arange(n, device=whole.task.prior.device)
    task, aside = whole.task.some_rows(positions[: n - n // 10]), positions[n - n // 10 :]
    watch, labels = whole.task.some_rows(aside), whole.train_labels[:, aside]
    stops = {"last": None}
    if isinstance(stacked, DeepMethod):
        true = watch.with_candidates(one_hot(labels, watch.k).bool())
        stops |= {"covering rate": watch, "true labels": true}
    found = {}
    for stop, watched in stops.items():
        fitted = stacked.fit(task, watch=watched)
        seen = fitted.predict(watch.rows)
        pairs = list(
            zip(seen.probability.cpu().numpy(), watch.candidates.cpu().numpy(), strict=True)
        )
        columns = [
            torch.tensor([covering_rate(*pair) for pair in pairs]),
            torch.tensor([approximated_accuracy(*pair) for pair in pairs]),
            accuracies(seen.predicted(), labels),
            accuracies(fitted.predict(whole.test).predicted(), whole.test_labels),
        ]
        table = 100 * torch.stack([column.cpu() for column in columns], -1)
        found[stop] = table.view(len(methods), seeds, 4).numpy()
    return found


def accuracies(predicted: Tensor, labels: Tensor) -> Tensor:
    return (predicted == labels).double().mean(-1)


def chosen(values: np.ndarray) -> dict[str, Any]:
    """Test accuracy of the variant that each criterion chooses, and what it costs."""
    seeds = np.arange(values.shape[1])
    test = {name: values[values[..., at].argmax(0), seeds, 3] for at, name in enumerate(CRITERIA)}
    return {
        name: {
            "test": spread_of(torch.from_numpy(each)),
            "cost": spread_of(torch.from_numpy(test["true labels"] - each)),
        }
        for name, each in test.items()
    }


def differing(method: Method, variants: list[Method]) -> dict[str, Any]:
    """The fields in which variants differ."""
    return {
        name: getattr(method, name)
        for name in method.field_names()
        if len({getattr(each, name) for each in variants}) > 1
    }


def show(report: dict[str, Any]) -> None:
    for name, methods in report["sets"].items():
        print(f"{name}: test accuracy of what is chosen, by {', by '.join(CRITERIA)}")
        for row in methods.values():
            default, best = row["default"]["mean"], row["best on test rows"]["mean"]
            print(f"  {row['title']} (default {default:.1f}, best {best:.1f}, {row['seconds']} s)")
            for stop, by in row["chosen"].items():
                cells = [
                    f"{each['test']['mean']:5.1f} ± {each['test']['std']:3.1f}"
                    for each in by.values()
                ]
                print(f"    epoch by {stop:14} {'  '.join(cells)}")


if __name__ == "__main__":
    main()
