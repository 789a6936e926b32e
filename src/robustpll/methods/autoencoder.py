"""A variational auto-encoder, which makes few numbers of a picture's many."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, Rows, Task
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.methods.base import DeepMethod
from robustpll.methods.classical import alike

HIDDEN, CODE = 512, 48
SEED = 42  # one for all, so that runs on the same rows have the same codes, bundled or alone

Encoder = dict[str, Tensor]  # weights and biases of its two layers, in float64


@dataclass(frozen=True)
class AutoEncoder(DeepMethod):
    """Learns a normal distribution of codes for each row, whose samples give back the row.

    The loss of a row x in [0, 1] is the cross-entropy of its decoded sample, summed over features,
    plus the mean over the code's numbers of (m^2 + v - 1 - ln v) / 2, for mean m and variance v.

    >>> AutoEncoder().weight_decay
    0.01
    """

    name: ClassVar[str] = "auto_encoder"
    title: ClassVar[str] = "Auto-encoder"
    citation: ClassVar[str] = "Kingma, Welling: Auto-Encoding Variational Bayes. ICLR 2014"
    weight_decay: float = 0.01

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return Variational(torch.Size(shape).numel(), draws)

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.normal(rows, CODE)

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x = batch.x.flatten(2)
        decoded, mean, log_variance = net(x, batch.drawn)
        unlike = F.binary_cross_entropy_with_logits(decoded, x, reduction="none").sum(-1)
        wide = (mean.square() + log_variance.exp() - 1 - log_variance).mean(-1) / 2
        return unlike + wide, {}


class Variational(nn.Module):
    """Encoder and decoder with one hidden layer each: (M, b, d) -> logits of the same shape."""

    def __init__(self, features: int, draws: Draws) -> None:
        super().__init__()
        layers = {"hidden": Linear(features, HIDDEN, draws), "mean": Linear(HIDDEN, CODE, draws)}
        self.encoder = nn.ModuleDict(layers)  # all that codes need
        self.log_variance = Linear(HIDDEN, CODE, draws)
        self.decoder = nn.Sequential(
            Linear(CODE, HIDDEN, draws), nn.ReLU(), Linear(HIDDEN, features, draws)
        )

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder["hidden"](x).relu()
        mean, log_variance = self.encoder["mean"](hidden), self.log_variance(hidden)  # (M, b, 48)
        decoded = self.decoder(mean + (log_variance / 2).exp() * noise)
        return decoded, mean, log_variance


def encoders_of(rows: Rows, epochs: int) -> list[Encoder]:
    """An encoder for each of R runs, trained on its rows alone; runs with equal rows share one."""
    groups = alike(rows)
    first = [runs[0] for runs in groups]
    rows = replace(rows, at=rows.at[first], shift=rows.shift[first], scale=rows.scale[first])
    trained = trained_encoders(rows, epochs, (SEED,) * len(first))
    found = {run: own for own, runs in zip(trained, groups, strict=True) for run in runs}
    return [found[run] for run in sorted(found)]


def trained_encoders(rows: Rows, epochs: int, seeds: tuple[int, ...]) -> list[Encoder]:
    """One for each of M runs, at once."""
    unlabelled = torch.ones(*rows.at.shape, 1, dtype=torch.bool)  # one class, which all have
    net = train(AutoEncoder(epochs=epochs), Task.of(rows, unlabelled, seeds)).net
    stacked = {name: value for name, value in net.state_dict().items() if "encoder." in name}
    return [
        {name: value[model].to(torch.float64, copy=True) for name, value in stacked.items()}
        for model in range(rows.models)
    ]


def encoder_shapes(features: int) -> dict[str, tuple[int, int]]:
    """Names and shapes of an encoder's tensors."""
    return {
        "encoder.hidden.weight": (features, HIDDEN),
        "encoder.hidden.bias": (1, HIDDEN),
        "encoder.mean.weight": (HIDDEN, CODE),
        "encoder.mean.bias": (1, CODE),
    }


def codes(encoder: Encoder, x: Tensor) -> Tensor:
    """The mean codes (n, 48) of scaled rows (n, d), in float64: rounding then moves no neighbour.

    >>> encoder = encoders_of(Rows.of(torch.eye(6), torch.arange(6)[None]), epochs=1)[0]
    >>> codes(encoder, torch.zeros(2, 6)).shape
    torch.Size([2, 48])
    """
    hidden = torch.addmm(
        encoder["encoder.hidden.bias"], x.double(), encoder["encoder.hidden.weight"]
    )
    return torch.addmm(encoder["encoder.mean.bias"], hidden.relu_(), encoder["encoder.mean.weight"])
