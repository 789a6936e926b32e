"""A variational auto-encoder, which encodes images as vectors of 48 numbers."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, Task
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.engine.train import train
from robustpll.methods.base import DeepMethod, Step
from robustpll.methods.classical import equal_runs

HIDDEN, CODE = 512, 48
SEED = 42  # of all encoders: runs on the same rows have the same codes, bundled or alone

Encoder = dict[str, Tensor]  # weights and biases of its two layers, in float64


@dataclass(frozen=True)
class AutoEncoder(DeepMethod):
    """A network that learns a normal distribution of codes for each row, and decodes its samples.

    The loss of a row x in [0, 1] is the cross-entropy of its decoded sample, summed over features,
    plus the mean over the code's numbers of (m^2 + v - 1 - ln v) / 2, for mean m and variance v.

    >>> AutoEncoder().weight_decay
    0.01
    """

    name = "auto_encoder"
    title = "Auto-encoder"
    citation = "Kingma, Welling: Auto-Encoding Variational Bayes. ICLR 2014"
    weight_decay: float = 0.01

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return Variational(torch.Size(shape).numel(), draws)

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.normal(rows, CODE)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        x = batch.x.flatten(2)
        decoded, mean, log_variance = net(x, batch.drawn)
        error = F.binary_cross_entropy_with_logits(decoded, x, reduction="none").sum(-1)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).mean(-1) / 2
        return error + divergence, {}


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
    """Return an encoder for each of R runs, trained on its rows; runs with equal rows share one."""
    groups = equal_runs(rows)
    first = [runs[0] for runs in groups]
    rows = replace(rows, at=rows.at[first], shift=rows.shift[first], scale=rows.scale[first])
    trained = trained_encoders(rows, epochs, (SEED,) * len(first))
    by_run = {run: encoder for encoder, runs in zip(trained, groups, strict=True) for run in runs}
    return [by_run[run] for run in sorted(by_run)]


def trained_encoders(rows: Rows, epochs: int, seeds: tuple[int, ...]) -> list[Encoder]:
    """Return an encoder for each of M runs, trained at once."""
    unlabelled = torch.ones(*rows.at.shape, 1, dtype=torch.bool)  # one class, which all have
    net = train(AutoEncoder(epochs=epochs), Task.of(rows, unlabelled, seeds)).net
    stacked = {name: value for name, value in net.state_dict().items() if "encoder." in name}
    return [
        {name: value[model].to(torch.float64, copy=True) for name, value in stacked.items()}
        for model in range(rows.models)
    ]


def encoder_shapes(features: int) -> dict[str, tuple[int, int]]:
    """Return names and shapes of an encoder's tensors."""
    return {
        "encoder.hidden.weight": (features, HIDDEN),
        "encoder.hidden.bias": (1, HIDDEN),
        "encoder.mean.weight": (HIDDEN, CODE),
        "encoder.mean.bias": (1, CODE),
    }


def codes(encoder: Encoder, x: Tensor) -> Tensor:
    """Return mean codes (n, 48) of scaled rows (n, d), in float64 to avoid ties by rounding.

    >>> encoder = encoders_of(Rows.of(torch.eye(6), torch.arange(6)[None]), epochs=1)[0]
    >>> codes(encoder, torch.zeros(2, 6)).shape
    torch.Size([2, 48])
    """
    hidden = torch.addmm(
        encoder["encoder.hidden.bias"], x.double(), encoder["encoder.hidden.weight"]
    )
    return torch.addmm(encoder["encoder.mean.bias"], hidden.relu_(), encoder["encoder.mean.weight"])
