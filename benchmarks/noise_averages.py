"""Average number of candidates per row, for each picture set and kind of noise.

    python benchmarks/noise_averages.py

Instance-dependent noise trains a teacher for each seed: use a GPU, or candidates in `--cache`.
"""

from pathlib import Path

from common import CachedNoise, open_report, options, save_report, spread_of

from robustpll import load_dataset
from robustpll.datasets.noise import ClassDependent, Flip, Uniform
from robustpll.datasets.problem import Problem

PUBLISHED = {"mnist": 6.08, "fmnist": 5.44, "kmnist": 5.73, "notmnist": 6.99}


def main() -> None:
    args = options(__doc__, sets=tuple(PUBLISHED), seeds=5, cache=Path("scratch"))
    report = open_report(args.out)
    for name in args.sets:
        dataset = load_dataset(name)
        cached = CachedNoise(args.cache / f"candidates-{name}.npz")
        kinds = {
            "instance-dependent": cached,
            "uniform": Uniform(),
            "class-dependent": ClassDependent(),
            "flip 0.1 of instance-dependent": Flip(0.1, cached),
        }
        report["sets"][name] = {"published": PUBLISHED[name]}
        for kind, noise in kinds.items():
            candidates = Problem.of(dataset, noise, range(args.seeds)).task.candidates
            report["sets"][name][kind] = spread_of(candidates.double().sum(-1).mean(-1).cpu())
        print(name, report["sets"][name])
        save_report(report, args.out)


if __name__ == "__main__":
    main()
