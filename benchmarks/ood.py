"""How well several scores separate MNIST's test digits from the letters of NotMNIST.

    python benchmarks/ood.py
    python benchmarks/ood.py --rows 2000 --epochs 3 --seeds 2    # a trial

Methods train on MNIST with instance-dependent candidates, all seeds as one bundle. Letters are
those of the paper: the first 10,000 rows of NotMNIST, scaled by its own range.
"""

from dataclasses import asdict
from typing import Any

import pandas as pd
from common import begin, method_of, on_test_rows, problem_of, spread_of

from robustpll import load_dataset
from robustpll.datasets.problem import ood_rows
from robustpll.evaluate.ood import RunScorer, separation

NAMES = ("proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")


def main() -> None:
    args, report = begin(__doc__, methods=NAMES, seeds=5, epochs=200, rows=60_000)
    problem = problem_of("mnist", args)
    letters = ood_rows(problem, load_dataset("notmnist"))

    def compute(_: str, name: str) -> dict[str, Any]:
        fitted = method_of(name, args.epochs, paper=True).fit(problem.task)
        scorer = RunScorer.of(fitted, problem.task.rows)
        known, ood = (scorer.scores(rows) for rows in (problem.test, letters))
        return {
            "accuracy": on_test_rows(fitted, problem),
            "separations": {score: separations(known[score], ood[score]) for score in known},
        }

    report.fill(("mnist",), args.methods, compute)


def separations(known: Any, ood: Any) -> dict[str, Any]:
    """Return AUROC, AUPR and FPR at 95 %, in percent, of scores (R, n) each."""
    pairs = zip(known.cpu().numpy(), ood.cpu().numpy(), strict=True)
    frame = 100 * pd.DataFrame([asdict(separation(*pair)) for pair in pairs])
    return {name: spread_of(frame[name]) for name in frame}


if __name__ == "__main__":
    main()
