"""Average number of candidates per row, for each picture set and kind of noise.

    python benchmarks/noise_averages.py

Instance-dependent noise trains a teacher for each seed: use a GPU, or candidates in `--cache`.
"""

from typing import Any

from common import CachedNoise, begin, spread_of

from robustpll import load_dataset
from robustpll.datasets.noise import ClassDependent, Flip, Uniform
from robustpll.datasets.problem import Problem

PUBLISHED = {"mnist": 6.08, "fmnist": 5.44, "kmnist": 5.73, "notmnist": 6.99}


def main() -> None:
    args, report = begin(__doc__, sets=tuple(PUBLISHED), seeds=5)
    for name in args.sets:
        dataset = load_dataset(name)
        cached = CachedNoise(args.cache / f"candidates-{name}.npz")
        kinds = {
            "instance-dependent": cached,
            "uniform": Uniform(),
            "class-dependent": ClassDependent(),
            "flip 0.1 of instance-dependent": Flip(0.1, cached),
        }
        averages: dict[str, Any] = {"published": PUBLISHED[name]}
        for kind, noise in kinds.items():
            candidates = Problem.of(dataset, noise, range(args.seeds)).task.candidates
            averages[kind] = spread_of(candidates.double().sum(-1).mean(-1).cpu())
        report.add(name, averages)


if __name__ == "__main__":
    main()
