"""Seconds of the evaluation's heavy parts, beside the customary way to compute the same.

    python benchmarks/evaluate_speed.py                  # all parts
    python benchmarks/evaluate_speed.py --parts mmd      # one of them

Both sides take turns in one go on the same threads, and must agree in what they find.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustpll.engine.device import chosen_device, device_name
from robustpll.evaluate.metrics import published_gamma, signed_mmd

DEVICE = chosen_device("auto")


def seconds_of(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def double_sum_mmd(test: np.ndarray, ood: np.ndarray, gamma: float) -> float:
    """The kernel of every pair, in blocks that stay in the cache: the customary double sum."""
    n = len(test)

    def total(a: np.ndarray, b: np.ndarray) -> float:
        found = 0.0
        for block in np.split(a, range(64, n, 64)):
            gaps = block[:, None] - b
            np.multiply(gaps, gaps, out=gaps)
            np.multiply(gaps, -gamma, out=gaps)
            found += np.exp(gaps, out=gaps).sum()
        return found

    across = total(test, ood) - np.exp(-gamma * (test - ood) ** 2).sum()
    square = (total(test, test) - n + total(ood, ood) - n - 2 * across) / (n * (n - 1))
    return math.copysign(math.sqrt(max(0.0, square)), ood.mean() - test.mean())


def part_mmd(turns: int) -> dict[str, Any]:
    """50,000 test and as many OOD entropies of six decimals, as of five seeds.

    The double sum runs on the first 5,000 of each, and its seconds are multiplied by 100: its pairs
    are as many times more. The values are compared on these 5,000.
    """
    rows, some = 50_000, 5_000
    draw = np.random.default_rng(0)
    test, ood = draw.beta(0.3, 3, rows).round(6), draw.beta(2, 1, rows).round(6)
    gamma = published_gamma(np.concatenate([test, ood]))
    values = [signed_mmd(test[:some], ood[:some], gamma)]
    values.append(double_sum_mmd(test[:some], ood[:some], gamma))
    assert abs(values[0] - values[1]) < 1e-12, values
    taken: dict[str, list[float]] = {"ours": [], "double sum, scaled": []}
    for _ in range(turns):
        taken["ours"].append(seconds_of(lambda: signed_mmd(test, ood, gamma)))
        direct = seconds_of(lambda: double_sum_mmd(test[:some], ood[:some], gamma))
        taken["double sum, scaled"].append(direct * (rows / some) ** 2)
    medians = {name: statistics.median(each) for name, each in taken.items()}
    ratio = medians["double sum, scaled"] / medians["ours"]
    print(f"MMD of {rows} and {rows} values: {medians['ours'] * 1000:.1f} ms, {ratio:.0f}x")
    return {
        "rows": rows,
        "rows_of_double_sum": some,
        "seconds": medians,
        "times_double_sum": ratio,
        "difference": abs(values[0] - values[1]),
    }


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {"mmd": part_mmd}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("scratch/evaluate_speed.json"))
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "turns": asked.turns,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for part in asked.parts:
        report[part] = PARTS[part](asked.turns)
        asked.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
