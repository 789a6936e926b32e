"""RobustPll's ceiling per class beside the published one, where there are fewer than ten classes.

    python benchmarks/few_classes.py --out benchmarks/results/few-classes-DATE-MACHINE.csv

Small sets of scikit-learn. Half of the training rows have one wrong class beside the true one, at
random. Test accuracies in percent, and p-values of a paired t-test.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from robustpll import RobustPLLClassifier
from robustpll.data.noise import Uniform
from robustpll.evaluate.calibration import calibration_of

CEILINGS = {
    "published": {"kl_ceiling": 1.0, "kl_per_class": False, "kl_scale_large_k": 0.0005},
    "per class": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("scratch/few-classes.csv"))
    asked = parser.parse_args()
    found = [
        measured(name, X, y, seed, asked.epochs)
        for name, (X, y) in sets().items()
        for seed in range(asked.seeds)
    ]
    runs = pd.concat(found)
    runs.to_csv(asked.out, index=False, float_format="%.2f")
    for name, own in runs.groupby("set", sort=False):
        wide = own.pivot(index="seed", columns="ceiling")
        right, errors = wide["right"], wide["calibration error"].mean()
        p = ttest_rel(right["published"], right["per class"]).pvalue
        print(name, right.mean().round(1).to_dict(), f"p = {p:.2f}", errors.round(1).to_dict())


def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    digits, names = load_digits(return_X_y=True)
    return {
        "breast cancer, 2": load_breast_cancer(return_X_y=True),
        "iris, 3": load_iris(return_X_y=True),
        "wine, 3": load_wine(return_X_y=True),
        "digits 0 to 4, 5": (digits[names < 5], names[names < 5]),
    }


def measured(name: str, X: np.ndarray, y: np.ndarray, seed: int, epochs: int) -> pd.DataFrame:
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=y
    )
    candidates = Uniform(added=1).apply(X_train, y_train, random_state=seed)
    rows = []
    for ceiling, fields in CEILINGS.items():
        model = RobustPLLClassifier(epochs=epochs, random_state=seed, **fields)
        model.fit(X_train, candidates)
        right = 100 * float((model.predict(X_test) == y_test).mean())
        error = 100 * calibration_of(model.predict_proba(X_test), y_test).error
        rows.append([name, seed, ceiling, right, error])
    return pd.DataFrame(rows, columns=["set", "seed", "ceiling", "right", "calibration error"])


if __name__ == "__main__":
    main()
