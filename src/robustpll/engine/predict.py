"""What a training leaves behind, and how it is asked about other rows."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from robustpll.attacks.base import Attack, Outputs
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.layers import folded, joined, some_models
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.errors import InputError
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

FEWEST_ROWS = 16  # with fewer a CPU's matrix product rounds differently: 1e-6 in a probability
NUMBERS_AT_ONCE = 2**25  # of one layer's output, for all models; 128 MiB in float32
IN_CACHE = 2**20  # of which a CPU is done sooner together than one after the other
MOST_ON_DEVICE = 2**27  # the same on a GPU with much memory: 1 GiB in float64, some 20 times

Strengths = Sequence[float | ArrayLike]  # epsilons, instead of the attack's own


class Fitted(ABC):
    """What every method's fit returns, networks or not; members are averaged."""

    label_weights: Tensor  # (R, n, k)
    opinion: Opinion  # of the training rows, (R, n, ...)
    history: History  # empty for methods without epochs

    @abstractmethod
    def without_training_rows(self) -> Self:
        """What predictions need, and nothing of the size of the training rows."""

    @abstractmethod
    def part(self, runs: slice) -> Self:
        """Some of the runs, neighbours of each other."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where rows to predict must be."""

    @abstractmethod
    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        """Of other rows of the same R runs, (R, n, ...); `truth` (R, n) is for attacks alone."""

    def predict_at_each(
        self, epsilons: Strengths, rows: Rows, attack: Attack, truth: Tensor | None = None
    ) -> list[Opinion]:
        """As `predict`, for several epsilons instead of the attack's own."""
        attacks = [replace(attack, epsilon=epsilon) for epsilon in epsilons]
        return [self.predict(rows, each, truth) for each in attacks]

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        """The rows as an attack leaves them, scaled; all members of a run see the same.

        What is written here asks for predictions alone, so it is for attacks without gradients.
        """

        def outputs(x: Tensor) -> Tensor:
            probability: Tensor = self.predict(scaled_rows(x)).probability
            return probability.clamp(min=1e-30).log()

        draws = Draws.near((0,) * rows.models, "attack", like=rows.shift)
        return scaled_rows(attack(outputs, rows.x(rows.everything), draws, truth))


@dataclass(frozen=True)
class Networks(Fitted):
    """M trained networks, which are R runs of as many members each."""

    method: "DeepMethod"
    net: nn.Module
    seeds: tuple[int, ...]  # (M,)
    label_weights: Tensor
    opinion: Opinion
    history: History

    def followed_by(self, other: Self) -> Self:
        """The runs of both, this one's first; takes both networks over."""
        return replace(
            self,
            net=joined(self.net, other.net),
            seeds=self.seeds + other.seeds,
            label_weights=torch.cat([self.label_weights, other.label_weights]),
            opinion=Opinion(
                torch.cat([self.opinion.belief, other.opinion.belief]),
                torch.cat([self.opinion.prior, other.opinion.prior]),
                torch.cat([self.opinion.uncertainty, other.opinion.uncertainty]),
            ),
            history=self.history.beside(other.history),
        )

    def without_training_rows(self) -> Self:
        nothing = self.label_weights[:, :0]
        return replace(self, label_weights=nothing, opinion=Opinion.of_probability(nothing))

    def part(self, runs: slice) -> Self:
        members, count = self.method.members, len(self.seeds) // self.method.members
        start, stop, _ = runs.indices(count)
        models = slice(start * members, stop * members)
        return replace(
            self,
            method=self.method.part(runs, count),
            net=some_models(self.net, models),
            seeds=self.seeds[models],
            label_weights=self.label_weights[runs],
            opinion=self.opinion[runs],
            history=self.history.part(models),
        )

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        rows = rows.repeated(self.method.members)
        attacked = None if attack is None else self._attacked(attack, rows.shift, truth)
        return self._predict(rows, attacked)

    def predict_at_each(
        self, epsilons: Strengths, rows: Rows, attack: Attack, truth: Tensor | None = None
    ) -> list[Opinion]:
        """All epsilons at one go, or as many of them as fit: a GPU has little to do with one."""
        rows = rows.repeated(self.method.members)
        found = []
        for some in in_parts(epsilons, rows):
            opinion = self._predict(rows, self._attacked(attack, rows.shift, truth, some))
            starts = range(0, len(some) * len(rows), len(rows))
            found += [opinion[:, at : at + len(rows)] for at in starts]
        return found

    def _predict(self, rows: Rows, attacked: "Attacked | None") -> Opinion:
        opinion = opinions_of(self.method, self.net, rows, self.seeds, attacked)
        return fused(opinion, self.method.members)

    def attacked(
        self,
        rows: Rows,
        attack: Attack,
        truth: Tensor | None = None,
        *,
        epsilons: Strengths | None = None,
    ) -> Rows:
        """With epsilons instead of the attack's own: all rows under the first, then the second."""
        rows, members = rows.repeated(self.method.members), self.method.members
        own = self.method.spread(rows.models, like=rows.shift)
        found = []
        for some in in_parts((attack.epsilon,) if epsilons is None else epsilons, rows):
            attacked = self._attacked(attack, rows.shift, truth, some)
            if attacked.together != members:
                msg = f"{attack!r} makes a row for each member. Use joint=True to get one for all."
                raise InputError(msg)
            with torch.no_grad(), computing(own.precision, rows.device):
                outputs = attacked.outputs(own, self.net, self.seeds)
                moved = [
                    by_strength(attacked.features(outputs, rows.x(at), at)[::members], at, b)
                    for at, b in pieces(rows)
                ]
            found.append(torch.cat(moved, 2).flatten(1, 2))
        return scaled_rows(torch.cat(found, 1))

    def _attacked(
        self, attack: Attack, like: Tensor, truth: Tensor | None, epsilons: Strengths | None = None
    ) -> "Attacked":
        if attack.needs_evidence and not self.method.uncertain:
            msg = (
                f"{self.method.title} does not predict by evidence, so it has no evidential loss. "
                "Use loss='margin' or 'cross-entropy'."
            )
            raise InputError(msg)
        joint = attack.joint or self.method.attacked_jointly
        together = self.method.members if joint else 1
        each = self.method.members // together  # attacks for each run
        truth = truth if truth is None else truth.repeat_interleave(each, 0)
        draws = Draws.near(self.seeds[::together], self.method.name, "attack", like=like)
        return Attacked(attack, together, draws, truth, epsilons)


@dataclass(frozen=True)
class Attacked:
    """An attack on so many neighbouring models together, with what it needs to know."""

    attack: Attack
    together: int
    draws: Draws
    truth: Tensor | None  # (M / together, n)
    epsilons: Strengths | None = None  # None: the attack's own

    def outputs(
        self, method: "DeepMethod", net: nn.Module, seeds: tuple[int, ...] | None
    ) -> Outputs:
        """What the attack reads, (M / together, b, *shape) -> (M / together, b, k)."""
        if self.attack.precision == "float64":
            net = copy.deepcopy(net).double()
        if self.draws.device.type == "cuda":  # elsewhere the published numbers stay to the bit
            net = folded(net)
        method = method.with_passes(self.attack.passes)

        def outputs(x: Tensor) -> Tensor:
            x = _repeated(x, self.together)
            if self.attack.target == "logits":
                return torch.unflatten(net(x), 0, (-1, self.together)).mean(1)
            assert seeds is not None
            scores = method.scores(method.outputs(net, x, seeds))  # (M, b, k)
            return averaged(torch.unflatten(scores, 0, (-1, self.together)))

        return outputs

    def features(self, outputs: Outputs, x: Tensor, at: Tensor) -> Tensor:
        """Attacked features (M, E b, *shape) for the rows at (M, b) under each epsilon."""
        truth = self.truth
        if truth is not None:
            truth = truth.gather(1, at[:: self.together].to(truth.device))
        first = x[:: self.together]
        wide = first.double() if self.attack.precision == "float64" else first
        epsilons = (self.attack.epsilon,) if self.epsilons is None else self.epsilons
        moved = self.attack.at_each(epsilons, outputs, wide, self.draws, truth)
        if moved.dtype != first.dtype:  # rounding must not leave the reach
            moved = self.attack.reach_at_each(epsilons, first).project(moved.to(first))
        return _repeated(moved, self.together)


def _repeated(x: Tensor, members: int) -> Tensor:
    """Each run's rows for so many neighbouring models; no copy for one."""
    return x if members == 1 else x.repeat_interleave(members, 0)


def averaged(scores: Tensor) -> Tensor:
    """Scores of members, (R, members, b, k), as those of their mean opinion, (R, b, k).

    Softmax of a score is a probability, and the sum of its exponential stands for the evidence: of
    probabilities the arithmetic mean is taken, of evidence the harmonic one, since uncertainty is
    its inverse.
    """
    if scores.shape[1] == 1:
        return scores[:, 0]
    total = scores.logsumexp(-1, keepdim=True)
    probability = (scores - total).logsumexp(1) - math.log(scores.shape[1])
    return probability + math.log(scores.shape[1]) - (-total).logsumexp(1)


def scaled_rows(x: Tensor) -> Rows:
    """Rows of R runs whose features (R, n, *shape) are scaled already."""
    at = torch.arange(x.shape[0] * x.shape[1], device=x.device).view(x.shape[:2])
    zeros = torch.zeros_like(x[:, :1])
    return Rows(x.flatten(0, 1), at, zeros, torch.ones_like(zeros))


def opinions_of(
    method: "DeepMethod",
    net: nn.Module,
    rows: Rows,
    seeds: tuple[int, ...],
    attacked: Attacked | None = None,
) -> Opinion:
    """What each of M models holds of the rows, in evaluation mode."""
    own = method.spread(rows.models, like=rows.shift)
    outputs = logits_of(own, net, rows, attacked, seeds)
    return method.spread(rows.models, like=outputs).opinion(outputs)


def logits_of(
    method: "DeepMethod",
    net: nn.Module,
    rows: Rows,
    attacked: Attacked | None = None,
    seeds: tuple[int, ...] | None = None,
) -> Tensor:
    """Logits of all rows in evaluation mode, (M, n, k), in float64 whatever the network's type.

    Under attacks of several strengths they are (M, E n, k), all rows under the first come first.
    With seeds they are what the method makes predictions of: its outputs, which may be random.

    Opinions are computed from them in float64, so that probabilities sum to 1 to the last digit.
    """
    net.eval()
    found = []
    with torch.no_grad(), computing(method.precision, rows.device):
        attack_reads = None if attacked is None else attacked.outputs(method, net, seeds)
        for at, b in pieces(rows):
            x = rows.x(at)
            if attacked is not None and attack_reads is not None:
                x = attacked.features(attack_reads, x, at)
            outputs = net(x) if seeds is None else method.outputs(net, x, seeds)
            found.append(by_strength(outputs, at, b).double())
    return torch.cat(found, 2).flatten(1, 2)


def by_strength(found: Tensor, at: Tensor, b: int) -> Tensor:
    """Of E times the rows at (M, b or more): (M, E * at.shape[1], ...) -> (M, E, b, ...)."""
    return torch.unflatten(found, 1, (-1, at.shape[1]))[:, :, :b]


def pieces(rows: Rows) -> Iterator[tuple[Tensor, int]]:
    """Positions (M, at least b) of all rows, piece by piece, and how many b of them count."""
    for piece in torch.split(rows.everything, piece_size(rows), dim=1):
        b = piece.shape[1]
        yield torch.cat([piece, piece[:, -1:].expand(-1, max(0, FEWEST_ROWS - b))], 1), b


def in_parts(epsilons: Strengths, rows: Rows) -> Iterator[Strengths]:
    """As many epsilons at once as a device is served well by."""
    numbers = numbers_at_once(rows.device) if rows.device.type == "cuda" else IN_CACHE
    size = min(piece_size(rows), len(rows)) * rows.models * widest_layer(rows)
    count = max(1, numbers // size)
    for start in range(0, len(epsilons), count):
        yield epsilons[start : start + count]


def piece_size(rows: Rows) -> int:
    """How many rows of each model are looked at together."""
    return max(256, numbers_at_once(rows.device) // (rows.models * widest_layer(rows)))


def widest_layer(rows: Rows) -> int:
    """Numbers of one row in the widest layer, as far as is known here."""
    return max(300, torch.Size(rows.shape).numel())


def numbers_at_once(device: torch.device) -> int:
    """Of one layer's output: what keeps a device busy, and has room many times over."""
    if device.type != "cuda":
        return NUMBERS_AT_ONCE
    bytes_there = torch.cuda.get_device_properties(device).total_memory
    return max(NUMBERS_AT_ONCE, min(MOST_ON_DEVICE, bytes_there // 512))


def fused(opinion: Opinion, members: int) -> Opinion:
    """Opinions of M models -> of R runs, the mean of neighbouring members."""
    return Opinion(
        opinion.belief.unflatten(0, (-1, members)),
        opinion.prior.unflatten(0, (-1, members)),
        opinion.uncertainty.unflatten(0, (-1, members)),
    ).mean(1)
