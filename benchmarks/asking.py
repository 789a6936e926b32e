"""What answers are worth by the order of asking: the table in docs/clean.md.

    python benchmarks/asking.py [DATASET:METHOD:SHARE_OF_FAULTY_SETS ...]

A tenth of the rows get their true label as the only candidate, and all is judged again.
"""

import sys
from dataclasses import replace

import numpy as np

from robustpll.candidates import Candidates
from robustpll.clean.asking import order_of_asking
from robustpll.clean.decided import with_decisions
from robustpll.clean.judge import judge
from robustpll.data import load_dataset
from robustpll.methods import METHODS, DeepMethod

CASES = (
    "digits:pl_knn:0.1",
    "lost:pl_knn:0",
    "lost:pl_knn:0.1",
    "msrc-v2:pl_knn:0",
    "msrc-v2:pl_knn:0.1",
    "lost:robust_pll:0",
    "lost:robust_pll:0.1",
)


def sets_of(name: str, faulty: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, true labels and candidates; from a share of the sets the truth is removed."""
    random = np.random.default_rng(0)
    data = load_dataset(name)
    labels, k = np.asarray(data.labels), len(data.classes)
    if data.candidates is None:
        sets = (random.random((len(labels), k)) < 0.3) | np.eye(k, dtype=bool)[labels]
    else:
        sets = data.candidates.matrix.copy()
    for row in np.flatnonzero(random.random(len(labels)) < faulty):
        sets[row, labels[row]] = False
        if not sets[row].any():
            sets[row, (labels[row] + 1 + random.integers(k - 1)) % k] = True
    return np.asarray(data.features, dtype=float), labels, sets


def main() -> None:
    for case in sys.argv[1:] or CASES:
        name, method_name, faulty = case.split(":")
        X, labels, sets = sets_of(name, float(faulty))
        y, method = Candidates.of(sets), METHODS[method_name]()
        if isinstance(method, DeepMethod):
            method = replace(method, epochs=60)
        first = judge(X, y, method)
        n, doubt = len(labels), 1 - first.confidence
        orders = {
            "in this order": order_of_asking(doubt, first.near[0], np.arange(n))[0],
            "by doubt alone": np.argsort(-doubt),
            "at random": np.random.default_rng(1).permutation(n),
        }
        found = [f"before {(first.resolved == labels).mean():.3f}"]
        for words, order in orders.items():
            asked = order[: n // 10]
            decided = np.isin(np.arange(n), asked)
            told = with_decisions(y, {int(row): int(labels[row]) for row in asked})
            again = judge(X, told, method, decided=decided)
            found.append(f"{words} {(again.resolved == labels).mean():.3f}")
        print(case, *found, sep="  ", flush=True)


if __name__ == "__main__":
    main()
