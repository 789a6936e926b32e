"""Whether candidates can choose the strength of an adversary, without true labels.

    python benchmarks/choose_adversary.py --out benchmarks/results/choose-adversary-DATE-MACHINE.csv

Networks of several strengths predict held-out rows. Shares of predictions that are correct, and
that are candidates: without attack, and under an attack that needs no label. All strengths and
seeds of a dataset train at once.
"""

import numpy as np
import pandas as pd
import torch
from common import accuracies, begin

from robustpll import PGD, load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.history import progress_bars
from robustpll.methods import RobustPllAt

STRENGTHS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
EPSILONS = (0.02, 0.05)


def main() -> None:
    args, _ = begin(__doc__, datasets=("lost", "msrc-v2"), seeds=(100, 101, 102), epochs=200)
    with progress_bars():
        frames = [measured(name, args.seeds, args.epochs) for name in args.datasets]
    results = pd.concat(frames)
    results.to_csv(args.out, index=False, float_format="%.2f")
    for name, rows in results.drop(columns="seed").groupby("dataset"):
        means = rows.drop(columns="dataset").groupby("adversary").mean()
        for suffix in ("", *(f" {epsilon:g}" for epsilon in EPSILONS)):
            rank = means[f"right{suffix}"].corr(means[f"covered{suffix}"], method="spearman")
            print(f"{name}{suffix}: rank correlation of right and covered {rank:.2f}")


def measured(name: str, seeds: list[int], epochs: int) -> pd.DataFrame:
    """Return one row per strength and seed, in percent."""
    dataset = load_dataset(name)
    problem = Problem.joined([Problem.of(dataset, None, seeds)] * len(STRENGTHS))
    runs = [(strength, seed) for strength in STRENGTHS for seed in seeds]
    methods = [RobustPllAt(adversary=strength, epochs=epochs) for strength, _ in runs]
    fitted = RobustPllAt.stacked(methods).fit(problem.task)
    assert dataset.candidates is not None
    masks = torch.from_numpy(dataset.candidates.matrix).to(problem.test.device)[
        problem.test.indices
    ]
    attack = PGD(0.1, labels="clean", target="probabilities", outside="kept")
    attacked = fitted.predict_at_each(EPSILONS, problem.test, attack)
    opinions = [fitted.predict(problem.test), *attacked]
    frame = pd.DataFrame(runs, columns=["adversary", "seed"]).assign(dataset=name)
    for suffix, opinion in zip(("", *(f" {e:g}" for e in EPSILONS)), opinions, strict=True):
        predicted = opinion.predicted(np.random.default_rng(0))
        frame[f"right{suffix}"] = accuracies(predicted, problem.test_labels)
        covered = masks.gather(-1, predicted[..., None])[..., 0]
        frame[f"covered{suffix}"] = 100 * covered.double().mean(-1).cpu()
    return frame


if __name__ == "__main__":
    main()
