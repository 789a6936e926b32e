"""How long predictions take: torch by `predict_opinion`, and the exported file under onnxruntime.

    OMP_WAIT_POLICY=passive python benchmarks/serving_speed.py

Rows have 784 numbers and 10 classes. In each turn every side predicts the batch once and 100 rows
one by one.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from common import begin

from robustpll import PLLClassifier, load
from robustpll.methods import RobustPll, RobustPllEns

FEATURES, CLASSES = 784, 10
Side = Callable[[np.ndarray], Any]  # rows -> probabilities, on the host


def main() -> None:
    args, report = begin(__doc__, turns=15, rows=10_000)
    report.update(onnxruntime=onnxruntime.__version__, threads=torch.get_num_threads())
    random = np.random.default_rng(0)
    labels, means = random.integers(CLASSES, size=2000), random.random((CLASSES, FEATURES))
    X = means[labels] + random.normal(0, 0.5, (2000, FEATURES))
    batch = X[random.integers(len(X), size=args.rows)]
    for method in (RobustPll(epochs=3), RobustPllEns(epochs=3)):
        model = PLLClassifier(method, random_state=0).fit(X, labels)
        with tempfile.TemporaryDirectory() as folder:
            sides = sides_of(model, Path(folder))
            report.add(method.title, measured(sides, batch, args.turns))


def sides_of(model: PLLClassifier, folder: Path) -> dict[str, Side]:
    """Return torch and onnxruntime on the CPU, and on a GPU if there is one for them."""
    model.save(folder / "model.pll")
    model.export_onnx(folder / "model.onnx")
    sides: dict[str, Side] = {}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        sides[f"torch, {device}"] = load(folder / "model.pll", device=device).predict_proba
        provider = f"{device.upper()}ExecutionProvider"
        if provider in onnxruntime.get_available_providers():
            session = onnxruntime.InferenceSession(folder / "model.onnx", providers=[provider])
            sides[f"onnxruntime, {device}"] = partial(by_onnx, session)
    return sides


def by_onnx(session: Any, rows: np.ndarray) -> Any:
    return session.run(None, {"X": rows})[1]  # all outputs are computed


def measured(sides: dict[str, Side], batch: np.ndarray, turns: int) -> dict[str, Any]:
    """Return milliseconds of each side; the first turn warms up."""
    seconds: dict[tuple[str, str], list[float]] = {}
    pieces = [
        ("batch", batch),
        *(("row", batch[row : row + 1]) for row in range(min(100, len(batch)))),
    ]
    for turn in range(turns + 1):
        for name, side in sides.items():
            for kind, rows in pieces:
                begun = time.perf_counter()
                side(rows)
                if turn:
                    seconds.setdefault((name, kind), []).append(time.perf_counter() - begun)
    return {n: {kind: spread(seconds[n, kind]) for kind in ("batch", "row")} for n in sides}


def spread(seconds: list[float]) -> dict[str, float]:
    low, median, high = (np.quantile(seconds, (0.1, 0.5, 0.9)) * 1e3).round(3).tolist()
    return {"median ms": median, "10 %": low, "90 %": high}


if __name__ == "__main__":
    main()
