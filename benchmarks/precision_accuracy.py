"""Whether TF32 and bfloat16 cost accuracy: digits and lost, ten seeds each.

ROBUSTPLL_DATA=... python benchmarks/precision_accuracy.py --out scratch/precision.json
"""

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.io import loadmat
from sklearn.datasets import load_digits

from robustpll.data.images import data_folder
from robustpll.engine.device import chosen_device, device_name, has_bf16
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.methods import Proden, RobustPll

DEVICE = chosen_device("auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("scratch/precision.json"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    precisions = ["float32", *(["auto"] if DEVICE.type == "cuda" else [])]
    precisions += ["bf16"] if has_bf16(DEVICE) else []
    results = {
        f"{name}, {method.title}, {precision}": accuracy(
            replace(method, epochs=asked.epochs, precision=precision), *data, asked.seeds
        )
        for name, data in (("digits", digits()), ("lost", lost()))
        for method in (RobustPll(), Proden())
        for precision in precisions
    }
    for name, found in results.items():
        print(f"{name}: {found['mean']:.2f} +- {found['standard_error']:.2f} %")
    report = {
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "accuracy": results,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=2) + "\n")


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each wrong class is a candidate with probability 0.5."""
    X, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < 0.5
    candidates[np.arange(len(y)), y] = True
    return X, candidates, y


def lost() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Faces in a television series, with the names in the transcript as candidates."""
    found = loadmat(data_folder("realworld") / "lost.mat")
    candidates, target = (found[key].T for key in ("partial_target", "target"))
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in (candidates, target)]
    return found["data"], dense[0].astype(bool), dense[1].argmax(-1)


def accuracy(
    method: RobustPll | Proden, X: np.ndarray, candidates: np.ndarray, y: np.ndarray, seeds: int
) -> dict[str, Any]:
    """Test accuracy over random splits, all seeds as one bundle; in percent."""
    pool, labels = torch.from_numpy(X).float().to(DEVICE), torch.from_numpy(y).to(DEVICE)
    orders = torch.stack(
        [torch.from_numpy(np.random.default_rng(seed).permutation(len(X))) for seed in range(seeds)]
    ).to(DEVICE)
    train, test = orders[:, : len(X) * 4 // 5], orders[:, len(X) * 4 // 5 :]
    rows = Rows.of(pool, train)
    known = torch.from_numpy(candidates).to(DEVICE)[train]
    fitted = method.fit(Task.of(rows, known, tuple(range(seeds))))
    right = fitted.predict(rows.others(pool, test)).predicted() == labels[test]
    each = 100 * right.double().mean(-1)
    return {
        "mean": float(each.mean()),
        "standard_error": float(each.std() / seeds**0.5),
        "each": [round(float(value), 2) for value in each],
    }


if __name__ == "__main__":
    main()
