"""DstPll (Fuchs et al., TMLR 2025), and the variational auto-encoder that it uses for images.

Neighbours are witnesses, each of which names a set of classes. The mass of a set is the share of
groups of witnesses, among all 2^m groups, whose sets have just this intersection; that of the empty
set goes to the base, the set of all possible classes. A witness that names nothing of the base is
ignored. Masses are multiples of 2^-m, so float64 does not round them. Sets are also written as
numbers whose bit c stands for class c.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, Rows, Task
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.errors import Rule
from robustpll.methods import classical
from robustpll.methods.base import Count, DeepMethod, Step
from robustpll.methods.classical import Classical, ClassicalMethod, Layout, OneRun, Tensors
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion

HIDDEN, CODE = 512, 48
MOST_WITNESSES = 52  # multiples of 2^-52 up to 1 fit the 53 bits of a float64
LARGEST_TABLE = 12  # with more named classes, sets that occur are listed instead of tabulated
NUMBERS_PER_BLOCK = 2**21  # masses of one block of rows; 16 MiB
SEED = 42  # of all encoders: runs on the same rows have the same codes, bundled or alone

Witnesses = Annotated[int, Rule("from 1 to 52", range(1, MOST_WITNESSES + 1).__contains__)]


@dataclass(frozen=True)
class DstPll(ClassicalMethod):
    """Evidence of the nearest training rows, combined by Dempster-Shafer theory.

    Each neighbour gives the mass 1/2 to its candidates and 1/2 to all classes; for a training row
    both are restricted to the row's own candidates. Masses are combined by Yager's rule. Belief in
    class c is the mass of {c}, the rest is uncertainty. Probability is proportional to belief, or
    uniform on the heaviest set if no single class has mass. Images are compared by the codes of a
    variational auto-encoder, trained on the training rows. `random_state` has no effect.

    Parameters
    ----------
    neighbours, code_neighbours : int
        Number of neighbours by scaled features, or by codes; from 1 to 52.
    encoder : {"auto", "never", "always"}
        Whether to compare by codes. "auto" does for rows of shape (h, w) or (c, h, w).
    encoder_epochs : int
        Training epochs of the auto-encoder.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> PLLClassifier(DstPll(neighbours=4)).fit(X, y).predict_opinion(np.eye(3)).uncertainty
    array([0.25, 0.25, 0.25])
    """

    name = "dst_pll"
    title = "DstPll"
    citation = "Fuchs, Kalinke, Böhm: Partial-Label Learning with a Reject Option. TMLR 2025"
    uncertain = True
    cost = (1.5, 2.0)
    learns: ClassVar = {"rows": classical.TABLE, "candidates": classical.SETS}
    paper_fields: ClassVar = {"neighbours": 10, "encoder_epochs": 1000}

    neighbours: Witnesses = 20
    code_neighbours: Witnesses = 20
    encoder: Literal["auto", "never", "always"] = "auto"
    encoder_epochs: Count = 100

    def layout(self, shape: Shape) -> Layout:
        if self.encoder_of(shape) is None:
            return self.learns
        layout: Layout = {"rows": (torch.float64, ("n", CODE)), "candidates": classical.SETS}
        for layer, inputs, outputs in (("hidden", "d", HIDDEN), ("mean", HIDDEN, CODE)):
            layout[f"encoder.{layer}.weight"] = (torch.float64, (inputs, outputs))
            layout[f"encoder.{layer}.bias"] = (torch.float64, (1, outputs))
        return layout

    def encoder_of(self, shape: Shape) -> "AutoEncoder | None":
        by_codes = self.encoder == "always" or (self.encoder == "auto" and len(shape) > 1)
        return AutoEncoder(epochs=self.encoder_epochs) if by_codes else None

    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        encoder = self.encoder_of(task.rows.shape)
        if encoder is None:
            return super().fit(task, validation=validation)
        self.check(task, validation)  # before an encoder is trained
        encoders, coded = encoded(task.rows, encoder)
        plain = replace(self, neighbours=self.code_neighbours, encoder="never")
        fitted = plain.fit(replace(task, rows=coded))
        assert isinstance(fitted, Classical)
        learned = (run | encoder for run, encoder in zip(fitted.learned, encoders, strict=True))
        return replace(fitted, method=self, learned=tuple(learned))

    def precompute(self, x: Tensor, learned: Tensors | None = None) -> Tensors:
        count, rows = self.neighbours, x if learned is None else learned["rows"]
        if learned is not None and "encoder.mean.weight" in learned:
            x, count = codes(learned, x), self.code_neighbours
        return {"indices": neighbours(x, rows, count, itself=learned is None).indices}

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        learned = {"rows": run.x, "candidates": run.candidates}
        return learned, opinion_of(run.candidates, run.precomputed["indices"], run.candidates)

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        candidates = learned["candidates"]
        all_classes = torch.ones_like(candidates[:1]).expand(len(x), -1)  # (q, k)
        return opinion_of(candidates, precomputed["indices"], all_classes)


@dataclass(frozen=True)
class AutoEncoder(DeepMethod):
    """Variational auto-encoder (Kingma and Welling, ICLR 2014)."""

    name = "auto_encoder"
    title = "Auto-encoder"
    weight_decay: float = 0.01

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return Variational(torch.Size(shape).numel(), draws)

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.normal(rows, CODE)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        # The loss of a row x in [0, 1] is the cross-entropy of its decoded sample, plus the mean of
        # (m^2 + v - 1 - ln v) / 2 over the code's numbers, for mean m and variance v.
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
        decoder = Linear(CODE, HIDDEN, draws), nn.ReLU(), Linear(HIDDEN, features, draws)
        self.decoder = nn.Sequential(*decoder)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder["hidden"](x).relu()
        mean, log_variance = self.encoder["mean"](hidden), self.log_variance(hidden)  # (M, b, 48)
        decoded = self.decoder(mean + (log_variance / 2).exp() * noise)
        return decoded, mean, log_variance


def encoded(rows: Rows, method: AutoEncoder) -> tuple[list[Tensors], Rows]:
    """Return an encoder for each of R runs, and codes in place of rows; equal rows share them."""
    groups = classical.equal_runs(rows)
    distinct = rows.part([runs[0] for runs in groups])
    unlabelled = torch.ones(len(groups), len(rows), 1, dtype=torch.bool)  # all have the one class
    task = Task.of(distinct, unlabelled, (SEED,) * len(groups))
    trained = train(method, task).net.state_dict()  # (groups, ...) each
    stacked = {name: value.double() for name, value in trained.items() if "encoder." in name}
    encoders: dict[int, Tensors] = {}
    pool, indices = [], torch.empty_like(rows.indices, device=rows.device)
    for group, runs in enumerate(groups):
        encoder = {name: value[group].clone() for name, value in stacked.items()}
        pool.append(codes(encoder, classical.scaled_rows(distinct, group)))
        indices[runs] = group * len(rows) + torch.arange(len(rows), device=rows.device)
        encoders |= dict.fromkeys(runs, encoder)
    unit = pool[0].new_ones(rows.models, 1, CODE)
    coded = Rows(torch.cat(pool), indices, torch.zeros_like(unit), unit)
    return [encoders[run] for run in range(rows.models)], coded


def codes(encoder: Tensors, x: Tensor) -> Tensor:
    """Return mean codes (n, 48) of scaled rows (n, d), in float64 to avoid ties by rounding."""
    weight, bias = encoder["encoder.hidden.weight"], encoder["encoder.hidden.bias"]
    hidden = torch.addmm(bias, x.double(), weight).relu_()
    return torch.addmm(encoder["encoder.mean.bias"], hidden, encoder["encoder.mean.weight"])


def opinion_of(candidates: Tensor, witnesses: Tensor, base: Tensor) -> Opinion:
    """Return the opinion on the base's classes (q, k) by candidates (n, k) of witnesses (q, m)."""
    # If no class alone has mass, probability is uniform on the smallest of the heaviest sets. It is
    # unique: if X and Y are heaviest, so is their intersection, or the base if that is empty.
    # Only named classes are distinguished. One of several others stands for all of them.
    named = torch.zeros_like(base)
    for witness in witnesses.T:
        named |= candidates[witness]
    named &= base
    others = base & ~named
    named |= others & (others.sum(1, keepdim=True) == 1)
    sizes = named.sum(1) + (named != base).any(1)
    order = (2 * named.int() + base).argsort(1, descending=True)  # (q, k): named classes first
    belief, leading = torch.zeros_like(base, dtype=torch.float64), base.clone()
    for size in sorted(set(sizes[sizes <= LARGEST_TABLE].tolist())):
        block = NUMBERS_PER_BLOCK // max(2**size, MOST_WITNESSES * size)
        for rows in torch.split((sizes == size).nonzero()[:, 0], block):
            classes = order[rows, :size]
            said = candidates[witnesses[rows, :, None], classes[:, None]]
            belief[rows], leading[rows] = _by_table(said, classes, named[rows], base[rows])
    many = (sizes > LARGEST_TABLE).nonzero()[:, 0]
    if len(many):
        belief[many], leading[many] = _by_list(candidates, witnesses[many], base[many])
    total = belief.sum(-1, keepdim=True)
    uniform = leading.double() / leading.sum(-1, keepdim=True)
    return Opinion(belief, torch.where(total > 0, belief / total, uniform), 1 - total[:, 0])


def table_of(said: Tensor) -> Tensor:
    """Return masses of all 2^k sets, (2^k, q), by named sets (q, m, k); the base has k classes."""
    # The commonality of a set, the mass of all sets that contain it, is 2^-(number of witnesses
    # whose set does not). Masses follow from it by the Moebius transform.
    m, k = said.shape[1:]
    named = said | ~said.any(-1, keepdim=True)  # the base says nothing
    sets = (named.long() << torch.arange(k, device=said.device)).sum(-1).T  # (m, q)
    containing = torch.zeros(2**k, len(said), dtype=torch.int32, device=said.device)
    containing.scatter_add_(0, sets, torch.ones_like(sets, dtype=torch.int32))
    _sum_over_supersets(containing, 1)
    commonality = [0.5 ** (m - count) for count in range(m + 1)]
    mass = torch.tensor(commonality, dtype=torch.float64, device=said.device)[containing]
    _sum_over_supersets(mass, -1)
    mass[-1] += mass[0]  # conflict
    mass[0] = 0
    return mass


def _sum_over_supersets(table: Tensor, sign: int) -> None:
    """Add up a table (2^k, q) over the supersets of each set, or undo it by -1; in place."""
    bit = 1
    while bit < len(table):
        pairs = table.view(-1, 2, bit, table.shape[1])  # sets without a class, and with it
        pairs[:, 0].add_(pairs[:, 1], alpha=sign)
        bit *= 2


def masses_of(said: Iterable[int], base: int) -> dict[int, float]:
    """Return the masses of all sets that have any, for one row; slow if many classes are named."""
    counts = Counter(named & base for named in said)
    del counts[0], counts[base]
    groups = {base: 1}  # intersection -> how many groups of witnesses have it
    for named, times in counts.items():
        joining = 2**times - 1  # ways to add at least one of the witnesses that say the same
        for known, count in list(groups.items()):
            groups[known & named] = groups.get(known & named, 0) + joining * count
    groups[base] += groups.pop(0, 0)
    return {classes: count / 2 ** counts.total() for classes, count in groups.items()}


def _by_table(said: Tensor, classes: Tensor, named: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Belief and leading set (b, k), from sets (b, m, s) of the classes (b, s)."""
    bit = torch.arange(classes.shape[1], device=said.device)
    mass = table_of(said)  # (2^s, b)
    first = mass.argmax(0)  # the first of the heaviest is within all others
    leading = (first[:, None] >> bit & 1).bool()
    single = named.gather(1, classes)  # False: a class that stands for several
    belief = torch.zeros_like(base, dtype=torch.float64)
    belief.scatter_(1, classes, mass[1 << bit].T * single)
    whole = (leading & ~single).any(1, keepdim=True)  # only the base has the other classes
    return belief, torch.where(whole, base, torch.zeros_like(base).scatter(1, classes, leading))


def _by_list(candidates: Tensor, witnesses: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Belief and leading set (b, k), row by row on the host."""
    named, bases = _numbers(candidates), _numbers(base)
    belief, leading = np.zeros(base.shape), base.cpu().numpy().copy()
    for row, (indices, within) in enumerate(zip(witnesses.tolist(), bases, strict=True)):
        masses = masses_of((named[index] for index in indices), within)
        single = [classes for classes in masses if classes.bit_count() == 1]
        for classes in single:
            belief[row, classes.bit_length() - 1] = masses[classes]
        if not single:
            heaviest = max(masses, key=lambda classes: (masses[classes], -classes))
            leading[row] = [heaviest >> c & 1 for c in range(base.shape[1])]
    return torch.from_numpy(belief).to(base.device), torch.from_numpy(leading).to(base.device)


def _numbers(sets: Tensor) -> list[int]:
    """Sets (n, k) as numbers."""
    packed = np.packbits(sets.cpu().numpy(), axis=-1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
