"""Average candidates of a row, for each picture set and kind of noise, beside the published ones.

    python benchmarks/noise_averages.py --out benchmarks/results/noise-averages.json

Instance-dependent noise trains a teacher for each seed, and is meant for a GPU; candidates that
were kept in `--kept` are taken from there.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import torch
from problems import Kept
from stored import spread_of

from robustpll import load_dataset
from robustpll.datasets.noise import ClassDependent, Flip, InstanceDependent, Uniform
from robustpll.datasets.problem import Problem
from robustpll.engine.device import chosen_device, device_name

PUBLISHED = {"mnist": 6.08, "fmnist": 5.44, "kmnist": 5.73, "notmnist": 6.99}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kept", type=Path, default=Path("scratch"))
    parser.add_argument("--out", type=Path, default=Path("scratch/noise-averages.json"))
    asked = parser.parse_args()
    found = {}
    for name in asked.sets:
        dataset = load_dataset(name)
        kept = Kept(asked.kept / f"candidates-{name}.npz", InstanceDependent())
        kinds = {
            "instance-dependent": kept,
            "uniform": Uniform(),
            "class-dependent": ClassDependent(),
            "flip 0.1 of instance-dependent": Flip(0.1, kept),
        }
        found[name] = {"published": PUBLISHED.get(name)}
        for kind, noise in kinds.items():
            problem = Problem.of(dataset, noise, range(asked.seeds))
            found[name][kind] = spread_of(problem.task.candidates.double().sum(-1).mean(-1))
            print(f"{name:10} {kind:32} {found[name][kind]['mean']:.3f}")
    report = {
        "machine": device_name(chosen_device("auto")),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "sets": found,
    }
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
