"""What each part of RobustPll is worth: test accuracy with one thing changed at a time.

    python benchmarks/ablation.py --sets mnist lost msrc-v2 bird-song fg-net italian

Changes of the published setting: cross-entropy instead of the squared error, no divergence, epochs
counted from one, label weights from after the step, the factor for 100 classes or more, and equal
members of the ensemble.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import accuracies, fill, open_report, options, problem_of, spread_of

from robustpll.methods import RobustPll, RobustPllEns

PAPER, ENSEMBLE = RobustPll.paper(), RobustPllEns.paper()
VARIANTS: dict[str, RobustPll] = {
    "as published": PAPER,
    "cross-entropy": replace(PAPER, loss="cross-entropy"),
    "no divergence": replace(PAPER, kl_ceiling=0.0),
    "cross-entropy, no divergence": replace(PAPER, loss="cross-entropy", kl_ceiling=0.0),
    "epochs from one": replace(PAPER, anneal="from-one"),
    "weights after the step": replace(PAPER, update="after"),
    "divergence times 0.0005": replace(PAPER, kl_ceiling=0.0005),
    "ensemble": ENSEMBLE,
    "ensemble of equals": replace(ENSEMBLE, kl_ceiling=1.0),
}


def main() -> None:
    sets = ("lost", "msrc-v2", "bird-song")
    args = options(__doc__, sets=sets, seeds=5, epochs=200, rows=60_000, cache=Path("scratch"))
    report = open_report(args.out, epochs=args.epochs)

    def compute(dataset: str, variant: str) -> dict[str, Any]:
        problem = problem_of(dataset, args.seeds, args.rows, args.cache)
        fitted = replace(VARIANTS[variant], epochs=args.epochs).fit(problem.task)
        predicted = fitted.predict(problem.test).predicted(np.random.default_rng(0))
        return spread_of(accuracies(predicted, problem.test_labels))

    fill(report, args.out, args.sets, VARIANTS, compute)


if __name__ == "__main__":
    main()
