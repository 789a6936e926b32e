"""How many times as long a training takes with an adversary, by the number of attack steps.

    python benchmarks/adversary_cost.py --out benchmarks/results/adversary-cost-DATE-MACHINE.json

Random rows of 784 numbers with 10 classes, one network. All kinds train in turns, so that what else
a machine does meets them alike; the first turn is to warm up.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from stored import opened, written
from training_speed import CUDA, random_task

from robustpll.methods import DeepMethod, RobustPll, RobustPllAt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20 if CUDA else 2)
    parser.add_argument("--rows", type=int, default=60_000 if CUDA else 6_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/adversary_cost.json"))
    asked = parser.parse_args()
    kinds: dict[str, DeepMethod] = {"RobustPll": RobustPll(epochs=asked.epochs)}
    for steps in (1, 2, 5):
        kinds[f"RobustPll+At, {steps}"] = RobustPllAt(epochs=asked.epochs, attack_steps=steps)
    task = random_task(1, asked.rows)
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(asked.turns + 1):
        for name, method in kinds.items():
            begun = time.perf_counter()
            method.fit(task)
            if CUDA:
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begun)
    plain = median(seconds["RobustPll"][1:])
    report = opened(asked.out, turns=asked.turns, rows=asked.rows, epochs=asked.epochs)
    for name, each in seconds.items():
        found = {"seconds": round(median(each[1:]), 3), "ratio": round(median(each[1:]) / plain, 2)}
        report["sets"][name] = found
        print(name, found)
    written(report, asked.out)


if __name__ == "__main__":
    main()
