"""DstPll (Fuchs et al., TMLR 2025), and the variational auto-encoder that it uses for images."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, Rows, Task
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.errors import InputError
from robustpll.methods.base import DeepMethod, Step
from robustpll.methods.classical import (
    Classical,
    ClassicalMethod,
    Layout,
    Learned,
    OneRun,
    Precomputed,
    equal_runs,
)
from robustpll.methods.dempster_shafer import MOST_WITNESSES, opinion_of
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion

HIDDEN, CODE = 512, 48
SEED = 42  # of all encoders: runs on the same rows have the same codes, bundled or alone

Encoder = dict[str, Tensor]  # weights and biases of its two layers, in float64


@dataclass(frozen=True)
class DstPll(ClassicalMethod):
    """Evidence of the nearest training rows, combined by Dempster-Shafer theory.

    Each neighbour gives the mass 1/2 to its candidates and 1/2 to all classes; for a training row
    both are restricted to the row's own candidates. Neighbours that have none or all of these
    classes as candidates are left out. The mass of a set C is 2^-m times the number of groups of
    the m others whose candidates have the intersection C. The mass of the empty set goes to all
    classes (Yager's rule). Belief in class c is the mass of {c}, the rest is uncertainty, and
    probability is proportional to belief, or uniform on the heaviest set if no single class has
    mass. The paper rejects rows by plausibility; here, reject by `uncertainty`. `random_state` has
    no effect.

    Images are compared by the codes of a variational auto-encoder, trained on the training rows
    only. In the published experiments, that of NotMNIST had seen most of the test images.

    Parameters
    ----------
    neighbours : int
        Number of neighbours, if rows are compared by their scaled features; from 1 to 52.
    code_neighbours : int
        Number of neighbours, if rows are compared by codes.
    encoder : {"auto", "never", "always"}
        Whether to compare by codes. "auto" does for rows of shape (h, w) or (c, h, w).
    encoder_epochs : int
        Training epochs of the auto-encoder.

    Notes
    -----
    ``DstPll.paper()`` differs in ``neighbours=10, encoder_epochs=1000``.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(DstPll(neighbours=4)).fit(X, y)
    >>> model.predict_opinion(np.eye(3)).uncertainty
    array([0.25, 0.25, 0.25])
    """

    name = "dst_pll"
    title = "DstPll"
    citation = "Fuchs, Kalinke, Böhm: Partial-Label Learning with a Reject Option. TMLR 2025"
    uncertain = True
    cost = (1.5, 2.0)
    paper_fields: ClassVar[dict[str, Any]] = {"neighbours": 10, "encoder_epochs": 1000}

    neighbours: int = 20
    code_neighbours: int = 20
    encoder: Literal["auto", "never", "always"] = "auto"
    encoder_epochs: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        most = {"neighbours": MOST_WITNESSES, "code_neighbours": MOST_WITNESSES}
        for name in ("neighbours", "code_neighbours", "encoder_epochs"):
            value = getattr(self, name)
            if not 1 <= value <= most.get(name, value):
                limit = f"from 1 to {most[name]}" if name in most else "of at least 1"
                raise InputError(
                    f"The {name!r} of DstPll must be an int {limit}. Got {value!r} instead."
                )

    def layout(self, shape: Shape, k: int) -> Layout:
        features, double = torch.Size(shape).numel(), torch.float64
        encoder: Layout = {}
        if self._by_codes(shape):
            encoder = {name: (double, size) for name, size in encoder_shapes(features).items()}
            features = CODE
        tables = {"candidates": (torch.bool, ("n", k)), "rows": (double, ("n", features))}
        return tables | encoder

    def _by_codes(self, shape: Shape) -> bool:
        """Whether rows of this shape are compared by codes."""
        return self.encoder == "always" or (self.encoder == "auto" and len(shape) > 1)

    def shared_seconds(self, rows: int, shape: Shape, *, cuda: bool) -> float:
        """Runs of one bundle train their auto-encoders at once."""
        if not self._by_codes(shape):
            return 0.0
        return 20 + self.encoder_epochs * rows * (1e-6 if cuda else 3e-5)

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        if not self._by_codes(task.rows.shape):
            return super().fit(task, watch=watch)
        self.refuse_weights_and_watch(task, watch)  # before an encoder is trained
        encoders = encoders_of(task.rows, self.encoder_epochs)
        plain = replace(self, neighbours=self.code_neighbours, encoder="never")
        fitted = plain.fit(replace(task, rows=_coded(task.rows, encoders)))
        assert isinstance(fitted, Classical)
        learned = (run | encoder for run, encoder in zip(fitted.learned, encoders, strict=True))
        return replace(fitted, method=self, learned=tuple(learned))

    def precompute(self, x: Tensor, learned: Learned | None = None) -> Precomputed:
        count, rows = self.neighbours, x if learned is None else learned["rows"]
        if learned is not None and "encoder.mean.weight" in learned:
            x, count = codes(learned, x), self.code_neighbours
        return {"indices": neighbours(x, rows, count, itself=learned is None).indices}

    def fit_run(self, run: OneRun) -> tuple[Learned, Opinion]:
        learned = {"rows": run.x, "candidates": run.candidates}
        return learned, opinion_of(run.candidates, run.precomputed["indices"], run.candidates)

    def predict_run(self, learned: Learned, x: Tensor, precomputed: Precomputed) -> Opinion:
        candidates = learned["candidates"]
        all_classes = torch.ones_like(candidates[:1]).expand(len(x), -1)  # (q, k)
        return opinion_of(candidates, precomputed["indices"], all_classes)


def _coded(rows: Rows, encoders: list[Encoder]) -> Rows:
    """Codes of R runs in place of their rows."""
    pool, index = [], torch.empty_like(rows.at, device=rows.device)
    for group, runs in enumerate(equal_runs(rows)):
        part = rows.part(slice(runs[0], runs[0] + 1))
        pool.append(codes(encoders[runs[0]], part.x(part.everything)[0].flatten(1)))
        index[runs] = group * len(rows) + torch.arange(len(rows), device=rows.device)
    unit = pool[0].new_ones(rows.models, 1, CODE)
    return Rows(torch.cat(pool), index, torch.zeros_like(unit), unit)


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
