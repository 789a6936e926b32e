"""Milliseconds per model and epoch of each network method, and its ratio to RobustPll.

    python benchmarks/method_speed.py

Random data of 60,000 x 784 with 10 classes on CUDA (6,000 rows on a CPU), 5 runs. Units are what a
method computes, RobustPll being 1 for each network trained: the ratio compares with RobustPll of as
many networks, divided by the units. Also: how the time of RobustPll and Proden grows with the rows.
"""

import argparse
import json
import math
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from training_speed import CUDA, DEVICE, epoch_seconds, random_task

from robustpll import METHODS
from robustpll.engine import graphs
from robustpll.engine.device import device_name
from robustpll.methods import DeepMethod, Proden, RobustPll

RUNS = 5
UNITS = {
    "proden_edl": 2.0,
    "crosel": 4.0,
    "proden_adv_ens": 2.5,
    "valen": 10.0,
}  # of a run's network
NETWORKS = {"crosel": 1}  # its units count both of its networks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=deep(), choices=deep())
    parser.add_argument("--preset", choices=("paper", "sound"), default="paper")
    parser.add_argument("--rows", type=int, default=60_000 if CUDA else 6_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/method_speed.json"))
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "command": re.sub(r" --out \S+", "", " ".join(["method_speed.py", *sys.argv[1:]])),
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "rows": asked.rows,
        "preset": asked.preset,
        "methods": {},
    }
    with patch.object(graphs, "pays_back", return_value=CUDA):
        yardsticks: dict[int, float] = {}
        for name in asked.methods:
            report["methods"][name] = measured(name, asked, yardsticks)
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(json.dumps(report, indent=1) + "\n")
        report["growth"] = {kind.name: growth(kind, asked.rows) for kind in (RobustPll, Proden)}
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


def deep() -> list[str]:
    return [name for name, kind in METHODS.items() if issubclass(kind, DeepMethod)]


def measured(
    name: str, asked: argparse.Namespace, yardsticks: dict[int, float]
) -> dict[str, float]:
    kind = METHODS[name]
    method = kind.paper() if asked.preset == "paper" else kind()
    assert isinstance(method, DeepMethod)
    networks = RUNS * NETWORKS.get(name, method.members)
    if networks not in yardsticks:
        yardsticks[networks] = seconds_of(RobustPll.paper(), networks, asked.rows) / networks
    seconds = seconds_of(method, RUNS, asked.rows) / networks
    if name == "proden_edl":  # its other half
        seconds += seconds_of(Proden(), RUNS, asked.rows) / networks
    ratio = seconds / yardsticks[networks] / UNITS.get(name, 1.0)
    print(
        f"{method.title:15} {1000 * seconds:7.1f} ms a network and epoch, {ratio:.2f} of its units"
    )
    return {"ms": 1000 * seconds, "units": UNITS.get(name, 1.0), "ratio": ratio}


def seconds_of(method: DeepMethod, runs: int, rows: int) -> float:
    """Of an epoch of the last stage, after the one in which its graphs are recorded."""
    few = replace(method, epochs=4 if CUDA else 2)
    stages = [few.stage(epoch) for epoch in range(few.total_epochs)]
    first = stages.index(stages[-1]) + 1  # graphs of the last stage are there after its first epoch
    return epoch_seconds(few, random_task(runs, rows), first=first)


def growth(kind: type[DeepMethod], most: int) -> dict[str, list[float]]:
    sizes = [most // 64, most // 16, most // 4, most]
    seconds = [seconds_of(kind(), RUNS, size) for size in sizes]
    exponents = [
        math.log(later / sooner) / math.log(large / small)
        for (sooner, later), (small, large) in zip(pairwise(seconds), pairwise(sizes), strict=True)
    ]
    print(kind.title, "exponents in the rows:", [f"{each:.2f}" for each in exponents])
    return {"sizes": [float(size) for size in sizes], "seconds": seconds, "exponents": exponents}


if __name__ == "__main__":
    main()
