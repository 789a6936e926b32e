"""Time of the whole default fit, compared with a random forest of 300 trees in the same run.

    python benchmarks/default_speed.py

Rows are labelled by five simulated annotators; the forest learns their majority. Both use all
cores.
"""

import time

import numpy as np
from common import begin
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from robustpll import RobustPLLClassifier
from robustpll.datasets.noise import Annotators

SIZES = ((2_000, 20, 5), (100_000, 50, 10))  # rows, features, classes; the second takes long


def main() -> None:
    _, report = begin(__doc__)
    report["sizes"] = []
    for n, d, k in SIZES:
        X, y = make_classification(
            n, d, n_informative=d // 2, n_classes=k, n_clusters_per_class=1, random_state=0
        )
        answers = Annotators().apply(X, y, random_state=0)
        majority = answers.prior.argmax(-1)
        start = time.perf_counter()
        RandomForestClassifier(300, n_jobs=-1, random_state=0).fit(X, majority)
        middle = time.perf_counter()
        model = RobustPLLClassifier(random_state=0).fit(X, answers)
        seconds = {"forest": middle - start, "default": time.perf_counter() - middle}
        seconds["ratio"] = seconds["default"] / seconds["forest"]
        right = float(np.mean(model.labels_ == y))
        report["sizes"].append({"rows": n, "features": d, "classes": k, "labels": right} | seconds)
        print(report["sizes"][-1], flush=True)
        report.save()


if __name__ == "__main__":
    main()
