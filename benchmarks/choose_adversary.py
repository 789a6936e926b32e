"""The strength of an adversary, chosen without a true label: what candidates tell about it.

    python benchmarks/choose_adversary.py --out benchmarks/results/choose-adversary-DATE-MACHINE.csv
    python benchmarks/choose_adversary.py --datasets lost --seeds 100 --epochs 5

Networks of several strengths are judged on rows that were set aside, twice: by true labels, which a
user does not have, and by the rows' candidates, as the share of rows whose prediction is one of
them. Both without attack and under one that needs no label: it moves rows away from what is
predicted for them. All strengths and seeds of a dataset train at once.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from robustpll import load_dataset
from robustpll.attacks.pgd import PGD
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.history import progress_bars
from robustpll.methods import RobustPllAt
from robustpll.opinion import Opinion

STRENGTHS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
EPSILONS = (0.02, 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrc-v2"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("scratch/choose-adversary.csv"))
    asked = parser.parse_args()
    found = []
    with progress_bars():
        for name in asked.datasets:
            found.append(measured(load_dataset(name), asked.seeds, asked.epochs))
            pd.concat(found).to_csv(asked.out, index=False, float_format="%.2f")
    means = pd.concat(found).drop(columns="seed").groupby(["dataset", "adversary"]).mean()
    print(means.round(1).to_string())
    for name, own in means.groupby("dataset"):
        for title in ("", *(f" {e:g}" for e in EPSILONS)):
            rank = own[f"right{title}"].corr(own[f"covered{title}"], method="spearman")
            print(f"{name}{title}: rank correlation of right and covered {rank:.2f}")


def measured(dataset: Dataset, seeds: list[int], epochs: int) -> pd.DataFrame:
    """A line for each strength and seed, in percent."""
    one = Problem.of(dataset, None, seeds)
    problem = Problem.joined([one] * len(STRENGTHS))
    each = [(reach, seed) for reach in STRENGTHS for seed in seeds]
    methods = [RobustPllAt(adversary=reach, epochs=epochs) for reach, _ in each]
    fitted = RobustPllAt.stacked(methods).fit(problem.task)
    assert dataset.candidates is not None
    masks = torch.from_numpy(np.array(dataset.candidates))
    tests = [masks[dataset.split(seed).test] for seed in seeds]
    candidates = torch.stack(tests).repeat(len(STRENGTHS), 1, 1).to(problem.test_labels.device)
    opinions = {"": fitted.predict(problem.test)}
    attack = PGD(0.1, labels="clean", target="probabilities", outside="kept")
    moved = fitted.predict_at_each(EPSILONS, problem.test, attack)
    opinions |= {f" {e:g}": own for e, own in zip(EPSILONS, moved, strict=True)}
    shares = {
        f"{what}{title}": 100 * right.double().mean(-1).cpu().numpy()
        for title, opinion in opinions.items()
        for what, right in judged(opinion, problem.test_labels, candidates).items()
    }
    return pd.DataFrame(each, columns=["adversary", "seed"]).assign(dataset=dataset.name, **shares)


def judged(opinion: Opinion, labels: Tensor, candidates: Tensor) -> dict[str, Tensor]:
    """Which rows (R, n) are right, and which are covered: the prediction is a candidate."""
    predicted = opinion.predicted(np.random.default_rng(0))
    covered = candidates.gather(-1, predicted[..., None])[..., 0]
    return {"right": predicted == labels, "covered": covered}


if __name__ == "__main__":
    main()
