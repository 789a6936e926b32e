"""Accuracy of the methods on datasets, beside the published numbers.

    python benchmarks/accuracy.py --sets mnist fmnist --out benchmarks/results/accuracy-images.json
    python benchmarks/accuracy.py --sets lost msrc-v2 bird-song --epsilons 0 0.1 0.2 0.3 0.4

All seeds of a method are one bundle, and so are datasets of equal shape. Picture sets get their
candidates by instance-dependent noise; they are drawn once and kept in `--kept`. The report is
written after each method, and what it holds already is not run again. Meant for a GPU;
`--rows 3000 --epochs 5` is a trial for a CPU.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from problems import problem_of, shortened
from stored import spread_of

from robustpll import METHODS, PGD, load_dataset
from robustpll.bench.compare import published_numbers
from robustpll.data.dataset import Dataset
from robustpll.data.problem import Problem
from robustpll.engine.device import chosen_device, device_name
from robustpll.methods import Method
from robustpll.methods.classical import ClassicalMethod
from robustpll.progress import progress_bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["mnist"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--preset", choices=("paper", "sound"), default="paper")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which none begins")
    parser.add_argument("--kept", type=Path, default=Path("scratch"))
    parser.add_argument("--out", type=Path, default=Path("scratch/accuracy.json"))
    asked = parser.parse_args()
    begun = time.perf_counter()
    report = json.loads(asked.out.read_text()) if asked.out.exists() else {"sets": {}}
    report |= {
        "command": f"accuracy.py {' '.join(sys.argv[1:])}",
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "preset": asked.preset,
        "epochs": asked.epochs,
        "rows": asked.rows,
    }
    datasets = sorted((shortened(load_dataset(name), asked.rows) for name in asked.sets), key=shape)
    with progress_bars():
        for _, alike in groupby(datasets, shape):
            bundle = list(alike)
            problems = [problem_of(each, asked.seeds, asked.kept) for each in bundle]
            for each, problem in zip(bundle, problems, strict=True):
                sizes = problem.task.candidates.double().sum(-1).mean(-1)
                about = report["sets"].setdefault(each.name, {"methods": {}})
                about["average_candidates"] = spread_of(sizes)
            for name in asked.methods:
                late = time.perf_counter() - begun > asked.until
                known = all(name in report["sets"][each.name]["methods"] for each in bundle)
                if not late and not known:
                    run(name, asked, bundle, problems, report)
                    asked.out.parent.mkdir(parents=True, exist_ok=True)
                    asked.out.write_text(json.dumps(report, indent=1) + "\n")
    show(report)


def shape(dataset: Dataset) -> tuple[int, ...]:
    return (len(dataset.split(0).train), *dataset.features.shape[1:], len(dataset.classes))


def run(
    name: str,
    asked: argparse.Namespace,
    bundle: Sequence[Dataset],
    problems: Sequence[Problem],
    report: dict[str, Any],
) -> None:
    """Train one method on all seeds of all these sets at once, and look at it."""
    method: Method = METHODS[name].paper() if asked.preset == "paper" else METHODS[name]()
    if "epochs" in method.field_names():
        method = replace(method, epochs=asked.epochs)  # type: ignore[type-var]
    whole = Problem.joined(problems)
    begun = time.perf_counter()
    fitted = method.fit(whole.task)
    seconds = time.perf_counter() - begun
    attacked = not isinstance(method, ClassicalMethod)
    accuracies = {}
    for epsilon in asked.epsilons if attacked else [0.0]:
        opinion = fitted.predict(whole.test, PGD(epsilon) if epsilon else None)
        right = opinion.predicted(np.random.default_rng(0)) == whole.test_labels
        accuracies[f"{epsilon:g}"] = 100 * right.double().mean(-1)  # (R,)
    named = fitted.opinion.predicted(np.random.default_rng(0)) == whole.train_labels
    resolved = 100 * named.double().mean(-1)
    for number, dataset in enumerate(bundle):
        own = slice(number * asked.seeds, (number + 1) * asked.seeds)
        report["sets"][dataset.name]["methods"][name] = {
            "title": method.title,
            "test": {epsilon: spread_of(each[own]) for epsilon, each in accuracies.items()},
            "resolved": spread_of(resolved[own]),
            "published": published(method.title, dataset.name),
            "seconds": round(seconds / len(bundle), 1),
        }


def published(title: str, dataset: str) -> dict[str, float | None] | None:
    """Mean and standard deviation of the paper's first table, in percent."""
    for (table, method, column), number in published_numbers().items():
        if (table, method, column.lower()) == (1, title, dataset):
            return {"mean": number.mean, "std": number.std}
    return None


def show(report: dict[str, Any]) -> None:
    for name, about in report["sets"].items():
        print(f"{name}: {about['average_candidates']['mean']:.3f} candidates on average")
        for row in about["methods"].values():
            cells = [f"{each['mean']:5.1f} ± {each['std']:3.1f}" for each in row["test"].values()]
            paper = row["published"]
            beside = f"  published {paper['mean']} ± {paper['std']}" if paper else ""
            print(f"  {row['title']:15} {'  '.join(cells)}{beside}  ({row['seconds']} s)")


if __name__ == "__main__":
    main()
