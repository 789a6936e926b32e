"""How well uncertainty tells MNIST's test digits from letters, beside the published numbers.

    python benchmarks/ood.py --out benchmarks/results/ood.json
    python benchmarks/ood.py --rows 2000 --epochs 3 --seeds 2 --kept /tmp --out /tmp/ood.json

Methods train on MNIST with instance-dependent candidates, all seeds as one bundle, and score its
10,000 test rows and the published choice of NotMNIST: the first 10,000 rows, scaled by NotMNIST's
own range. Candidates are drawn once and kept in `--kept`. Entropies are kept beside the report, in
a file for each method, since one of the published measures is about all methods together. The
report is written after each method, and what it holds already is not run again. Meant for a GPU;
the second line is a trial for a CPU.
"""

import argparse
import json
import re
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from problems import problem_of, shortened
from stored import spread_of

from robustpll import METHODS, InputError, load_dataset
from robustpll.bench.tables import published_numbers
from robustpll.datasets.ood import ood_rows
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.history import progress_bars
from robustpll.evaluate.ood import RunScorer, separation
from robustpll.measures.metrics import (
    as_recorded,
    cdf_area,
    published_gamma,
    signed_ks,
    signed_mmd,
)

NAMES = ("proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")
BINS = 200  # of entropies, for pictures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=NAMES, choices=[*METHODS, "all"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000, help="training rows, at most")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which none begins")
    parser.add_argument("--kept", type=Path, default=Path("scratch"))
    parser.add_argument("--out", type=Path, default=Path("scratch/ood.json"))
    asked = parser.parse_args()
    begun = time.perf_counter()
    report = json.loads(asked.out.read_text()) if asked.out.exists() else {"methods": {}}
    report |= {
        "command": re.sub(r" --(out|kept) \S+", "", " ".join(["ood.py", *sys.argv[1:]])),
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "epochs": asked.epochs,
        "seeds": asked.seeds,
        "rows": asked.rows,
    }
    names = list(METHODS) if "all" in asked.methods else asked.methods
    wanted = [name for name in names if name not in report["methods"]]
    if wanted:
        problem = problem_of(shortened(load_dataset("mnist"), asked.rows), asked.seeds, asked.kept)
        unknown = ood_rows(problem, load_dataset("notmnist"))
        report["test_rows"], report["ood_rows"] = len(problem.test), len(unknown)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bars():
        for name in wanted:
            if time.perf_counter() - begun < asked.until:
                report["methods"][name] = run(name, asked, problem, unknown)
                compare_all(report, asked.out)
                asked.out.write_text(json.dumps(report, indent=1) + "\n")
    show(report)


def run(name: str, asked: argparse.Namespace, problem: Problem, unknown: Rows) -> dict[str, Any]:
    """Train one method on all seeds, and score both kinds of rows."""
    method: Any = METHODS[name].paper()
    if "epochs" in method.field_names():
        method = replace(method, epochs=asked.epochs)
    begun = time.perf_counter()
    fitted = method.fit(problem.task)
    trained = time.perf_counter()
    right = fitted.predict(problem.test).predicted(np.random.default_rng(0)) == problem.test_labels
    scorer = RunScorer.of(fitted, problem.task.rows)
    known, ood = (
        {score: each.cpu().numpy() for score, each in scorer.scores(rows).items()}
        for rows in (problem.test, unknown)
    )
    entropies = as_recorded(known["entropy"]), as_recorded(ood["entropy"])  # (R, n) each
    np.savez(kept_entropies(asked.out, name), test=entropies[0], ood=entropies[1])
    return {
        "title": method.title,
        "accuracy": spread_of(100 * right.double().mean(-1)),
        "published": published(method.title),
        "measures": measures(*entropies),
        "separations": {score: separations(known[score], ood[score]) for score in known},
        "absent": scorer.absent,
        "entropies": {
            kind: np.histogram(each, BINS, (0, 1))[0].tolist()
            for kind, each in zip(("test", "ood"), entropies, strict=True)
        },
        "seconds": {
            "training": round(trained - begun, 1),
            "scores": round(time.perf_counter() - trained, 1),
        },
    }


def kept_entropies(out: Path, name: str) -> Path:
    return out.with_name(f"{out.stem}-{name}.npz")


def measures(test: np.ndarray, ood: np.ndarray) -> dict[str, Any]:
    """Of entropies (R, n): all seeds as one sample, as published, and each seed alone."""
    rules: dict[str, Any] = {
        "area": cdf_area,
        "ks": signed_ks,
        "exact area": lambda t, o: cdf_area(t, o, exact=True),
        "mmd, median": median_mmd,
    }
    found = {}
    for name, rule in rules.items():
        each = [rule(*pair) for pair in zip(test, ood, strict=True)]
        found[name] = {"pooled": rule(test.ravel(), ood.ravel()), "each": each}
    return found


def median_mmd(test: np.ndarray, ood: np.ndarray) -> float | None:
    """None where most entropies are equal, so that the rule gives no bandwidth."""
    try:
        return signed_mmd(test, ood, "median")
    except InputError:
        return None


def separations(known: np.ndarray, ood: np.ndarray) -> dict[str, Any]:
    """AUROC, AUPR and the false alarms at 95 %, in percent, of scores (R, n) each."""
    each = [asdict(separation(*pair)) for pair in zip(known, ood, strict=True)]
    return {
        name: spread_of(100 * torch.tensor([found[name] for found in each], dtype=torch.float64))
        for name in each[0]
    }


def compare_all(report: dict[str, Any], out: Path) -> None:
    """The MMD as published: with one bandwidth for the entropies of all methods and seeds."""
    samples = {}
    for name in report["methods"]:
        stored = np.load(kept_entropies(out, name))
        samples[name] = stored["test"].ravel(), stored["ood"].ravel()
    everything = np.concatenate([part for pair in samples.values() for part in pair])
    report["gamma"] = published_gamma(everything)
    for name, pair in samples.items():
        value = signed_mmd(*pair, gamma=report["gamma"])
        report["methods"][name]["measures"]["mmd"] = {"pooled": value}


def published(title: str) -> dict[str, float]:
    """The paper's second table."""
    columns = {"cdf_area": "area", "ks": "ks", "mmd": "mmd"}
    numbers = published_numbers()
    return {own: float(numbers.loc[(2, title, column), "mean"]) for column, own in columns.items()}


def show(report: dict[str, Any]) -> None:
    for row in report["methods"].values():
        pairs = ", ".join(
            f"{name} {row['measures'][name]['pooled']:.4f} (published {paper:.4f})"
            for name, paper in row["published"].items()
        )
        print(f"{row['title']:14} right {row['accuracy']['mean']:.1f} %; {pairs}")
        for score, found in row["separations"].items():
            cells = [
                f"{name} {each['mean']:5.1f} ± {each['std']:.1f}" for name, each in found.items()
            ]
            print(f"    {score:20} {'  '.join(cells)}")


if __name__ == "__main__":
    main()
