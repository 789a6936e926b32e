"""Seconds of the evaluation's heavy parts, beside the customary way to compute the same.

    python benchmarks/evaluate_speed.py                  # all parts
    python benchmarks/evaluate_speed.py --parts mmd      # one of them
    python benchmarks/evaluate_speed.py --parts attack --rows 50 --models 3 --turns 3

Both sides take turns in one go on the same device, and must agree in what they find. The attack is
meant for a GPU; the last line is a trial for a CPU.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll import PGD
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device, computing, device_name
from robustpll.engine.predict import Networks
from robustpll.measures.metrics import published_gamma, signed_mmd
from robustpll.methods import Proden

DEVICE = chosen_device("auto")
STRENGTHS = (0.01, 0.02, 0.05, 0.1, 0.2)
SHAPES = ((108, 16), (784, 10))  # features and classes: of lost, and of MNIST


def seconds_of(action: Callable[[], Any]) -> float:
    wait()
    begun = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - begun


def wait() -> None:
    """Until the device has done what it was told."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


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


@dataclass(frozen=True)
class Trained:
    """The same networks as a bundle, each alone, and in plain torch."""

    bundle: Networks
    alone: list[Networks]
    plain: list[nn.Module]

    @classmethod
    def of(cls, models: int, d: int, k: int) -> "Trained":
        """Briefly trained on rows that a random linear map gives one label and two others."""
        drawn = torch.Generator().manual_seed(0)
        pool, teacher = (torch.rand(size, generator=drawn) for size in ((2000, d), (d, k)))
        labels = ((pool - 0.5) @ (teacher - 0.5)).argmax(-1)
        others = torch.randint(k, (2000, 2), generator=drawn)
        candidates = F.one_hot(torch.cat([labels[:, None], others], 1), k).amax(1).bool()
        at = torch.arange(2000, device=DEVICE).expand(models, -1)
        rows = Rows.of(pool.to(DEVICE), at)
        task = Task.of(rows, candidates.to(DEVICE).expand(models, -1, -1), tuple(range(models)))
        fitted = Proden(epochs=5).fit(task)
        assert isinstance(fitted, Networks)
        bundle = fitted.without_training_rows()
        alone = [bundle.part(slice(m, m + 1)) for m in range(models)]
        return cls(bundle, alone, [plainly(each.net) for each in alone])


def plainly(net: nn.Module) -> nn.Module:
    """A bundle of one model as torch's own layers."""
    layers: list[nn.Module] = []
    for name, layer in net.named_children():
        tensors = {key: each[0] for key, each in layer.state_dict().items()}
        if name.startswith("relu"):
            layers.append(nn.ReLU())
        elif name.startswith("norm"):
            layers.append(nn.BatchNorm1d(tensors["weight"].shape[-1]))
            layers[-1].load_state_dict({n: t[0] for n, t in tensors.items()}, strict=False)
        elif "weight" in tensors:
            layers.append(nn.Linear(*tensors["weight"].shape))
            own = {"weight": tensors["weight"].T, "bias": tensors["bias"][0]}
            layers[-1].load_state_dict(own)
    return nn.Sequential(*layers).to(DEVICE).eval().requires_grad_(False)


def customary_attack(net: nn.Module, x0: Tensor, epsilon: float) -> Tensor:
    """The published attack of one network as it is usually written; classes of the rows."""
    x = (x0 + torch.empty_like(x0).uniform_(-epsilon, epsilon)).clamp(0, 1)
    for _ in range(10):
        x.requires_grad_()
        logits = net(x)
        loss = F.cross_entropy(logits, logits.argmax(-1))
        (gradient,) = torch.autograd.grad(loss, x)
        x = x.detach() + epsilon / 10 * gradient.sign()
        x = torch.min(torch.max(x, x0 - epsilon), x0 + epsilon).clamp(0, 1)
    return net(x).softmax(-1).argmax(-1)


def part_attack(asked: argparse.Namespace) -> dict[str, Any]:
    """The published attack at five strengths, on so many MLPs of width 300."""
    found = {}
    for d, k in SHAPES:
        trained = Trained.of(asked.models, d, k)
        for count in asked.rows:
            found[f"{d} features, {count} rows"] = attack_times(trained, d, count, asked.turns)
    return {"models": asked.models, "strengths": STRENGTHS, "tf32": DEVICE.type == "cuda"} | found


def attack_times(trained: Trained, d: int, count: int, turns: int) -> dict[str, Any]:
    x = torch.rand(count, d, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    models = len(trained.alone)
    at = torch.arange(count, device=DEVICE).expand(models, -1)
    zeros = x.new_zeros(models, 1, d)
    rows = Rows(x, at, zeros, torch.ones_like(zeros))
    each = [rows.part(slice(m, m + 1)) for m in range(models)]

    def bundle() -> Tensor:
        opinions = trained.bundle.predict_at_each(STRENGTHS, rows, PGD(0.1))
        return torch.stack([opinion.predicted() for opinion in opinions], 1)  # (M, E, n)

    def one_by_one() -> Tensor:
        pairs = list(zip(trained.alone, each, strict=True))
        return torch.stack(
            [
                torch.cat([one.predict(own, PGD(e)).predicted() for e in STRENGTHS])
                for one, own in pairs
            ]
        )

    def customary() -> Tensor:
        with computing("auto", DEVICE):
            return torch.stack(
                [
                    torch.stack([customary_attack(net, x, epsilon) for epsilon in STRENGTHS])
                    for net in trained.plain
                ]
            )

    ways: dict[str, Callable[[], Tensor]] = {
        "bundle": bundle,
        "each alone": one_by_one,
        "plain torch": customary,
    }
    clean = trained.bundle.predict(rows).predicted()[:, None]
    fooled = {name: float((way() != clean).double().mean()) for name, way in ways.items()}
    by_chance = 0.005 + 2 / math.sqrt(clean.numel())  # random starts are not the same
    assert max(fooled.values()) - min(fooled.values()) < by_chance, fooled
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            taken[name].append(seconds_of(way))
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    times = {name: medians[name] / medians["bundle"] for name in ("each alone", "plain torch")}
    told = ", ".join(f"{ratio:.1f}x {name}" for name, ratio in times.items())
    print(f"attack, {d} features, {count} rows: {medians['bundle'] * 1000:.1f} ms, {told}")
    return {"seconds": medians, "times": times, "changed": fooled}


def part_mmd(asked: argparse.Namespace) -> dict[str, Any]:
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
    for _ in range(asked.turns):
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


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "attack": part_attack,
    "mmd": part_mmd,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--models", type=int, default=25, help="of the attack")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000], help="of the attack")
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
        report[part] = PARTS[part](asked)
        asked.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
