"""What each part of RobustPll is worth: test accuracy with one thing changed at a time.

    python benchmarks/ablation.py --sets mnist lost msrc-v2 bird-song fg-net italian

Changes of the published setting: cross-entropy instead of the squared error, no divergence, epochs
counted from one, label weights from after the step, the factor for 100 classes or more, and equal
members of the ensemble.
"""

from dataclasses import replace
from typing import Any

from common import begin, on_test_rows, problem_of

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
    args, report = begin(__doc__, sets=sets, seeds=5, epochs=200, rows=60_000)

    def compute(dataset: str, variant: str) -> dict[str, Any]:
        problem = problem_of(dataset, args)
        fitted = replace(VARIANTS[variant], epochs=args.epochs).fit(problem.task)
        return on_test_rows(fitted, problem)

    report.fill(args.sets, VARIANTS, compute)


if __name__ == "__main__":
    main()
