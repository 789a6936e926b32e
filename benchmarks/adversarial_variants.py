"""Ways to train against an adversary that RobustPllAt does not go, beside it.

    python benchmarks/adversarial_variants.py --out benchmarks/results/adversarial-variants.csv
    python benchmarks/adversarial_variants.py --datasets lost --seeds 100 --epochs 5 --steps 5

Each is RobustPllAt with a ceiling of 1 and without averaging, but for one thing. All seeds and
strengths of a variant train at once, on seeds that no reported number uses; rows are audited as in
the benchmark. Meant for a GPU; the second line is a trial for a CPU.
"""

import argparse
import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from robustpll import load_dataset
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Batch
from robustpll.engine.history import progress_bars
from robustpll.engine.layers import steady_statistics
from robustpll.engine.train import Training
from robustpll.evaluate.audit import Audit
from robustpll.measures.calibration import calibration_of
from robustpll.methods import RobustPllAt
from robustpll.methods.base import Number

EPSILONS = (0.02, 0.05)


@dataclass(frozen=True)
class Decayed(RobustPllAt):
    """The learning rate falls to 0, as half a cosine."""

    name: ClassVar[str] = "decayed"
    compilable: ClassVar[bool] = False

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        parameters = list(parameters)
        rate = parameters[0].new_tensor(self.learning_rate)  # a captured step reads it anew
        on_gpu = parameters[0].is_cuda
        return AdamW(
            parameters, lr=rate, weight_decay=self.weight_decay, fused=on_gpu, capturable=on_gpu
        )

    def end_epoch(self, training: Training, epoch: int) -> None:
        share = (1 + math.cos(math.pi * (epoch + 1) / self.epochs)) / 2
        training.optimizer.param_groups[0]["lr"].fill_(self.learning_rate * share)


@dataclass(frozen=True)
class Rising(RobustPllAt):
    """The adversary's reach rises from 0, and is whole from half of the training on."""

    name: ClassVar[str] = "rising"

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weaker = copy.copy(self)
        object.__setattr__(weaker, "adversary", self.adversary * (2 * progress).clamp(max=1))
        return RobustPllAt.step(weaker, net, batch, progress)


@dataclass(frozen=True)
class Consistent(RobustPllAt):
    """Error on rows as they are, and how far probabilities of moved rows are from theirs."""

    name: ClassVar[str] = "consistent"
    consistency: Number = 1.0

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        moved, clean = self.two_views(net, batch)
        there, here = self.evidence_of(moved), self.evidence_of(clean)
        apart = (mean_of(there) - mean_of(here)).square().sum(-1)
        loss = self.loss_of(here, batch, progress)
        return loss + self.consistency * apart, self.reweigh(clean.detach(), batch)


def mean_of(evidence: Tensor) -> Tensor:
    """Of the Dirichlet distribution, (..., k)."""
    return (evidence + 1) / (evidence + 1).sum(-1, keepdim=True)


@dataclass(frozen=True)
class WeighedThere(RobustPllAt):
    """Label weights come from moved rows."""

    name: ClassVar[str] = "weighed_there"

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        views = self.two_views(net, batch)
        worst, clean = (self.loss_of(self.evidence_of(view), batch, progress) for view in views)
        return worst + self.clean_share * (clean - worst), self.reweigh(views[0].detach(), batch)


@dataclass(frozen=True)
class Aligned(RobustPllAt):
    """One step, and a penalty on gradients that turn within reach: then one step sees it all."""

    name: ClassVar[str] = "aligned"
    compilable: ClassVar[bool] = False  # gradients of gradients
    alignment: Number = 0.2

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        loss, updates = RobustPllAt.step(self, net, batch, progress)
        reach = self.adversary.view(-1, *[1] * (batch.x.ndim - 1))
        with steady_statistics(net):
            here = self.slope(net, batch, batch.x)
            there = self.slope(net, batch, batch.x + reach * (2 * batch.drawn - 1))
        return loss + self.alignment * (1 - F.cosine_similarity(here, there, dim=-1)), updates

    def slope(self, net: nn.Module, batch: Batch, x: Tensor) -> Tensor:
        """Of each row's error, (M, b, d), to be differentiated once more."""
        x = x.detach().requires_grad_()
        error = self.error(self.evidence_of(net(x)), batch).sum()
        (slope,) = torch.autograd.grad(error, x, create_graph=True)
        return slope.flatten(2)


VARIANTS: dict[str, tuple[type[RobustPllAt], dict[str, float]]] = {
    "as it is": (RobustPllAt, {}),
    "weights averaged over the last half": (RobustPllAt, {"averaged": 0.5}),
    "weights averaged over the last quarter": (RobustPllAt, {"averaged": 0.25}),
    "learning rate decays": (Decayed, {}),
    "adversary rises": (Rising, {}),
    "consistency 1": (Consistent, {"consistency": 1.0}),
    "consistency 3": (Consistent, {"consistency": 3.0}),
    "label weights from moved rows": (WeighedThere, {}),
    "one step": (RobustPllAt, {"attack_steps": 1}),
    "one step, alignment 0.2": (Aligned, {"attack_steps": 1, "alignment": 0.2}),
    "one step, alignment 2": (Aligned, {"attack_steps": 1, "alignment": 2.0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrc-v2", "bird-song"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--adversaries", nargs="+", type=float, default=[0.02, 0.05])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--attack-steps", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50, help="of the audit")
    parser.add_argument("--out", type=Path, default=Path("scratch/adversarial-variants.csv"))
    asked = parser.parse_args()
    found: list[pd.DataFrame] = []
    with progress_bars():
        for name in asked.datasets:
            one = Problem.of(load_dataset(name), None, asked.seeds)
            problem = Problem.joined([one] * len(asked.adversaries))
            for title in asked.variants:
                runs = measured(title, asked, problem)
                runs.insert(0, "dataset", name)
                found.append(runs)
                pd.concat(found).to_csv(asked.out, index=False, float_format="%.2f")
                means = runs.drop(columns="seed").groupby(["variant", "adversary"])
                print(name, means.mean(numeric_only=True).round(1), flush=True)


def measured(title: str, asked: argparse.Namespace, problem: Problem) -> pd.DataFrame:
    """A line for each strength and seed, in percent."""
    kind, more = VARIANTS[title]
    shared = {"epochs": asked.epochs, "attack_steps": asked.attack_steps, "kl_ceiling": 1.0}
    shared |= {"averaged": 0.0} | more
    each = [(reach, seed) for reach in asked.adversaries for seed in asked.seeds]
    fitted = kind.stacked([kind(adversary=reach, **shared) for reach, _ in each]).fit(problem.task)
    opinion = fitted.predict(problem.test)
    right = opinion.predicted(np.random.default_rng(0)) == problem.test_labels
    resolved = fitted.label_weights.argmax(-1) == problem.train_labels
    audit = Audit(EPSILONS, steps=asked.steps)
    withstood = audit.withstood(fitted, problem.test, problem.test_labels)
    probability, truth = opinion.probability.cpu().numpy(), problem.test_labels.cpu().numpy()
    columns = {"clean": right, "resolved": resolved}
    columns |= {f"worst at {e:g}": own for e, own in zip(EPSILONS, withstood, strict=True)}
    shares = {name: 100 * own.double().mean(-1).cpu().numpy() for name, own in columns.items()}
    shares["calibration error"] = [
        100 * calibration_of(*pair).error for pair in zip(probability, truth, strict=True)
    ]
    runs = pd.DataFrame(each, columns=["adversary", "seed"])
    runs.insert(0, "variant", title)
    return runs.assign(**shares)


if __name__ == "__main__":
    main()
