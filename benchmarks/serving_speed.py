"""How long predictions take: torch by `predict_opinion`, and the exported file under onnxruntime.

    python benchmarks/serving_speed.py --out benchmarks/results/serving-speed-DATE-MACHINE.json

Rows have 784 numbers and 10 classes, as those of MNIST have. In each turn every side answers the
batch once and a single row many times, so that what else a machine does meets all sides alike.
Where onnxruntime is not installed, torch answers alone.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stored import opened, written

from robustpll import PLLClassifier, load
from robustpll.methods import RobustPll, RobustPllEns

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

FEATURES, CLASSES = 784, 10
SINGLE = 100  # rows of each turn that are asked about one by one

Side = Callable[[np.ndarray], Any]  # rows -> probabilities, on the host


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/serving_speed.json"))
    asked = parser.parse_args()
    report = opened(
        asked.out,
        onnxruntime=onnxruntime.__version__ if onnxruntime else None,
        threads=torch.get_num_threads(),
        turns=asked.turns,
        rows=asked.rows,
    )
    generator = np.random.default_rng(0)
    labels = generator.integers(CLASSES, size=2000)
    middles = generator.random((CLASSES, FEATURES))
    X = middles[labels] + generator.normal(0, 0.5, (2000, FEATURES))
    batch = X[generator.integers(len(X), size=asked.rows)]
    for method in (RobustPll(epochs=3), RobustPllEns(epochs=3)):
        model = PLLClassifier(method, random_state=0).fit(X, labels)
        with tempfile.TemporaryDirectory() as folder:
            sides = sides_of(model, Path(folder))
            report["sets"][method.title] = found = measured(sides, batch, asked.turns)
        report["load average"] = [round(load, 1) for load in os.getloadavg()]
        for name, row in found.items():
            print(f"{method.title}, {name}: {row}")
        written(report, asked.out)


def sides_of(model: PLLClassifier, folder: Path) -> dict[str, Side]:
    """What answers: torch and onnxruntime on the CPU, and on a GPU where there is one for them."""
    model.save(folder / "model.pll")
    if onnxruntime:
        model.export_onnx(folder / "model.onnx")
    sides: dict[str, Side] = {}
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        sides[f"torch, {device}"] = torch_side(folder / "model.pll", device)
        provider = f"{device.upper()}ExecutionProvider"
        if onnxruntime and provider in onnxruntime.get_available_providers():
            sides[f"onnxruntime, {device}"] = onnx_side(folder / "model.onnx", provider)
    return sides


def torch_side(path: Path, device: str) -> Side:
    model = load(path, device=device)
    return lambda rows: model.predict_opinion(rows).probability


def onnx_side(path: Path, provider: str) -> Side:
    session = onnxruntime.InferenceSession(path, providers=[provider])
    return lambda rows: session.run(None, {"X": rows})[1]  # all outputs are computed


def measured(sides: dict[str, Side], batch: np.ndarray, turns: int) -> dict[str, Any]:
    """Milliseconds of each side; the first turn is to warm up."""
    first = next(iter(sides.values()))(batch)
    seconds: dict[tuple[str, str], list[float]] = {}
    for turn in range(turns + 1):
        for name, side in sides.items():
            pieces = [("batch", batch)]
            pieces += [("row", batch[at : at + 1]) for at in range(SINGLE)]
            for kind, rows in pieces:
                begun = time.perf_counter()
                side(rows)
                if turn:
                    seconds.setdefault((name, kind), []).append(time.perf_counter() - begun)
    return {
        name: {
            **{kind: spread(seconds[name, kind]) for kind in ("batch", "row")},
            "largest difference of a probability": float(f"{abs(side(batch) - first).max():.1e}"),
        }
        for name, side in sides.items()
    }


def spread(seconds: list[float]) -> dict[str, float]:
    low, median, high = (np.quantile(seconds, (0.1, 0.5, 0.9)) * 1e3).tolist()
    return {"median ms": round(median, 3), "10 %": round(low, 3), "90 %": round(high, 3)}


if __name__ == "__main__":
    main()
