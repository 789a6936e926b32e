"""What a training leaves behind, and how it is asked about other rows."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from robustpll.engine.attack import Attack, Outputs
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.layers import joined
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.errors import InputError
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

FEWEST_ROWS = 16  # with fewer a CPU's matrix product rounds differently: 1e-6 in a probability
NUMBERS_AT_ONCE = 2**25  # of one layer's output, for all models; 128 MiB in float32


class Fitted(ABC):
    """What every method's fit returns, networks or not; members are averaged."""

    label_weights: Tensor  # (R, n, k)
    opinion: Opinion  # of the training rows, (R, n, ...)
    history: History  # empty for methods without epochs

    @abstractmethod
    def without_training_rows(self) -> Self:
        """What predictions need, and nothing of the size of the training rows."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where rows to predict must be."""

    @abstractmethod
    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        """Of other rows of the same R runs, (R, n, ...); `truth` (R, n) is for attacks alone."""

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        """The rows as an attack leaves them, scaled; all members of a run see the same.

        What is written here asks for predictions alone, so it is for attacks without gradients.
        """

        def outputs(x: Tensor) -> Tensor:
            probability: Tensor = self.predict(scaled_rows(x)).probability
            return probability.clamp(min=1e-30).log()

        draws = Draws.of((0,) * rows.models, "attack", like=rows.shift)
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
        pairs = zip(self.history.losses, other.history.losses, strict=True)
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
            history=History([torch.cat(pair) for pair in pairs]),
        )

    def without_training_rows(self) -> Self:
        nothing = self.label_weights[:, :0]
        return replace(self, label_weights=nothing, opinion=Opinion.of_probability(nothing))

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        rows = rows.repeated(self.method.members)
        attacked = None if attack is None else self._attacked(attack, rows.shift, truth)
        own = self.method.spread(rows.models, like=rows.shift)
        outputs = logits_of(own, self.net, rows, attacked, self.seeds)
        own = self.method.spread(rows.models, like=outputs)
        return fused(own.opinion(outputs), own.members)

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        rows, members = rows.repeated(self.method.members), self.method.members
        attacked = self._attacked(attack, rows.shift, truth)
        if attacked.together != members:
            msg = f"{attack!r} makes a row for each member. Use joint=True to get one row for all."
            raise InputError(msg)
        own = self.method.spread(rows.models, like=rows.shift)
        with torch.no_grad(), computing(own.precision, rows.device):
            outputs = attacked.outputs(own, self.net, self.seeds)
            moved = [
                attacked.features(outputs, rows.x(at), at)[::members, :b] for at, b in pieces(rows)
            ]
        return scaled_rows(torch.cat(moved, 1))

    def _attacked(self, attack: Attack, like: Tensor, truth: Tensor | None) -> "Attacked":
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
        draws = Draws.of(self.seeds[::together], self.method.name, "attack", like=like)
        return Attacked(attack, together, draws, truth)


@dataclass(frozen=True)
class Attacked:
    """An attack on so many neighbouring models together, with what it needs to know."""

    attack: Attack
    together: int
    draws: Draws
    truth: Tensor | None  # (M / together, n)

    def outputs(
        self, method: "DeepMethod", net: nn.Module, seeds: tuple[int, ...] | None
    ) -> Outputs:
        """What the attack reads, (M / together, b, *shape) -> (M / together, b, k)."""
        if self.attack.precision == "float64":
            net = copy.deepcopy(net).double()
        method = method.with_passes(self.attack.passes)

        def outputs(x: Tensor) -> Tensor:
            x = x.repeat_interleave(self.together, 0)
            if self.attack.target == "logits":
                return torch.unflatten(net(x), 0, (-1, self.together)).mean(1)
            assert seeds is not None
            scores = method.scores(method.outputs(net, x, seeds))  # (M, b, k)
            return averaged(torch.unflatten(scores, 0, (-1, self.together)))

        return outputs

    def features(self, outputs: Outputs, x: Tensor, at: Tensor) -> Tensor:
        """Attacked features (M, b, *shape) for the rows at (M, b)."""
        truth = self.truth
        if truth is not None:
            truth = truth.gather(1, at[:: self.together].to(truth.device))
        first = x[:: self.together]
        wide = first.double() if self.attack.precision == "float64" else first
        moved = self.attack(outputs, wide, self.draws, truth)
        if moved.dtype != first.dtype:  # rounding must not leave the reach
            moved = self.attack.reach(first).project(moved.to(first))
        return moved.repeat_interleave(self.together, 0)


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


def logits_of(
    method: "DeepMethod",
    net: nn.Module,
    rows: Rows,
    attacked: Attacked | None = None,
    seeds: tuple[int, ...] | None = None,
) -> Tensor:
    """Logits of all rows in evaluation mode, (M, n, k), in float64 whatever the network's type.

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
            found.append(outputs[:, :b].double())
    return torch.cat(found, 1)


def pieces(rows: Rows) -> Iterator[tuple[Tensor, int]]:
    """Positions (M, at least b) of all rows, piece by piece, and how many b of them count."""
    widest = max(300, torch.Size(rows.shape).numel())
    size = max(256, NUMBERS_AT_ONCE // (rows.models * widest))
    for piece in torch.split(rows.everything, size, dim=1):
        b = piece.shape[1]
        yield torch.cat([piece, piece[:, -1:].expand(-1, max(0, FEWEST_ROWS - b))], 1), b


def fused(opinion: Opinion, members: int) -> Opinion:
    """Opinions of M models -> of R runs, the mean of neighbouring members."""
    return Opinion(
        opinion.belief.unflatten(0, (-1, members)),
        opinion.prior.unflatten(0, (-1, members)),
        opinion.uncertainty.unflatten(0, (-1, members)),
    ).mean(1)
