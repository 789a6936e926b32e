"""Accuracy on MNIST with instance-dependent candidates, beside the published numbers.

    ROBUSTPLL_DATA=... python benchmarks/mnist_accuracy.py --out benchmarks/results/mnist.json

The `.paper()` presets, all seeds of a method as one bundle. Candidates are drawn once and kept
beside the result, so that further calls (one method each, say) see the same data. Meant for a GPU;
`--rows 3000 --epochs 5` is a trial for a CPU.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustpll import METHODS
from robustpll.data.images import Images, data_folder
from robustpll.data.noise import InstanceDependent
from robustpll.engine.device import chosen_device, device_name
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.methods import DeepMethod
from robustpll.progress import progress_bars

PUBLISHED = {"robust_pll": (96.0, 0.1), "robust_pll_ens": (96.3, 0.1), "proden": (93.2, 0.5)}
PUBLISHED_CANDIDATES = 6.08


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("scratch/mnist.json"))
    parser.add_argument("--methods", nargs="*", default=list(PUBLISHED), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000)
    asked = parser.parse_args()
    device = chosen_device("auto")
    images = Images.read(data_folder("mnist"))
    rows = pictures(images.train[: asked.rows], asked.seeds, device)
    labels = on(images.train_labels[: asked.rows], device).expand(asked.seeds, -1)
    seeds = tuple(range(asked.seeds))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bars():
        candidates = drawn(asked.out.with_suffix(".npz"), rows, labels, seeds)
        task = Task.of(rows, candidates, seeds)
        found = [measured(name, asked.epochs, task, labels, images) for name in asked.methods]
    report = {
        "command": f"mnist_accuracy.py {' '.join(sys.argv[1:])}",
        "rows": asked.rows,
        "machine": device_name(device),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "average_candidates": spread_of(candidates.double().sum(-1).mean(-1)),
        "published_average_candidates": PUBLISHED_CANDIDATES,
        "methods": found,
    }
    asked.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def on(array: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64)).to(device)


def pictures(train: np.ndarray, seeds: int, device: torch.device) -> Rows:
    """All pictures for every seed, flattened, on a scale of 0 to 1."""
    pool = torch.from_numpy(train.reshape(len(train), -1) / np.float32(255)).to(device)
    return Rows.of(pool, torch.arange(len(pool), device=device).expand(seeds, -1))


def drawn(kept: Path, rows: Rows, labels: torch.Tensor, seeds: tuple[int, ...]) -> torch.Tensor:
    """Candidates (R, n, 10), from the file if it holds those of these rows and seeds."""
    noise = InstanceDependent()
    about = f"{noise}, {len(rows)} rows, seeds {seeds}"
    if not kept.exists():
        found = noise.candidates(rows, labels, 10, seeds)
        np.savez(kept, bits=np.packbits(found.cpu().numpy()), about=about)
    stored = np.load(kept)
    if str(stored["about"]) != about:
        raise SystemExit(f"{kept} holds candidates for {stored['about']}, not {about}: remove it.")
    shape = (len(seeds), len(rows), 10)
    bits = np.unpackbits(stored["bits"], count=int(np.prod(shape))).reshape(shape)
    candidates = torch.from_numpy(bits.astype(bool)).to(rows.pool.device)
    assert candidates.gather(-1, labels[..., None]).all()
    return candidates


def measured(
    name: str,
    epochs: int,
    task: Task,
    labels: torch.Tensor,
    images: Images,
) -> dict[str, Any]:
    """Train one method on all seeds at once; accuracy in percent, ties decided by a coin."""
    method = METHODS[name].paper()
    assert isinstance(method, DeepMethod)
    method = replace(method, epochs=epochs)
    device = labels.device
    begun = time.perf_counter()
    fitted = method.fit(task)
    seconds = time.perf_counter() - begun
    test = pictures(images.test, task.models, device)
    opinion = fitted.predict(task.rows.others(test.pool, test.at))
    right = opinion.predicted(np.random.default_rng(0)) == on(images.test_labels, device)
    named = fitted.opinion.predicted(np.random.default_rng(0)) == labels
    return {
        "method": method.title,
        "test": spread_of(100 * right.double().mean(-1)),
        "resolved": spread_of(100 * named.double().mean(-1)),
        "published": dict(zip(("mean", "std"), PUBLISHED[name], strict=True)),
        "seconds": round(seconds, 1),
    }


def spread_of(values: torch.Tensor) -> dict[str, Any]:
    """Mean and population standard deviation over the seeds, and each value."""
    return {
        "mean": round(float(values.mean()), 3),
        "std": round(float(values.std(correction=0)), 3),
        "each": [round(float(value), 3) for value in values],
    }


if __name__ == "__main__":
    main()
