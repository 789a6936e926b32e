"""Accuracy under the published attack, beside an audit that tries to find the worst case.

    python benchmarks/robustness.py
    python benchmarks/robustness.py --sets lost --seeds 1 --epochs 50 --rows 100    # a trial

All seeds of a method are one bundle, trained once and attacked at every epsilon.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from common import accuracies, begin, method_of, spread_of

from robustpll import PGD, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.evaluate.audit import EPSILONS, Audit

NAMES = ("proden", "proden_ens", "proden_edl", "robust_pll", "robust_pll_ens")


def main() -> None:
    sets = ("lost", "msrc-v2", "bird-song")
    sizes = {"seeds": 5, "epochs": 200, "rows": 10**9}
    audit = {"steps": 50, "restarts": 3, "queries": 1000}
    args, report = begin(__doc__, sets=sets, methods=NAMES, epsilons=EPSILONS, **sizes, **audit)
    report["epsilons"] = epsilons = tuple(args.epsilons)
    strict = Audit(epsilons, steps=args.steps, restarts=args.restarts, queries=args.queries)

    def by_epsilon(curves: Any) -> dict[str, Any]:
        pairs = zip(epsilons, np.array(curves).T, strict=True)
        return {f"{epsilon:g}": spread_of(100 * shares) for epsilon, shares in pairs}

    def compute(dataset: str, name: str) -> dict[str, Any]:
        problem = Problem.of(load_dataset(dataset), None, range(args.seeds))
        test = replace(problem.test, indices=problem.test.indices[:, : args.rows])
        truth = problem.test_labels[:, : args.rows]
        fitted = method_of(name, args.epochs, paper=True).fit(problem.task)
        opinions = fitted.predict_at_each(epsilons, test, PGD(0.1))
        published = [o.predicted(np.random.default_rng(0)) for o in opinions]
        right = np.stack([accuracies(labels, truth).numpy() / 100 for labels in published], -1)
        reports = strict.reports(fitted, test, truth)
        kinds, attacks = reports[0].zero_gradients, reports[0].attacks
        return {
            "test_rows": len(test),
            "clean": spread_of([100 * audited.clean for audited in reports]),
            "published": by_epsilon(right),
            "worst": by_epsilon([audited.worst for audited in reports]),
            "attacks": {
                a: by_epsilon([audited.attacks[a] for audited in reports]) for a in attacks
            },
            "unbounded": spread_of([100 * audited.unbounded for audited in reports]),
            "zero_gradients": {
                kind: spread_of([100 * audited.zero_gradients[kind] for audited in reports])
                for kind in kinds
            },
            "warnings": {
                str(seed): list(audited.warnings)
                for seed, audited in enumerate(reports)
                if audited.warnings
            },
        }

    report.fill(args.sets, args.methods, compute)


if __name__ == "__main__":
    main()
