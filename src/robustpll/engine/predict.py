"""What a training leaves behind, and how it is asked about other rows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from robustpll.engine.attack import Attack
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.layers import joined
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
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
        attacked = None
        if attack is not None:
            joint = attack.joint or self.method.attacked_jointly
            together = self.method.members if joint else 1
            each = self.method.members // together  # attacks for each run
            truth = truth if truth is None else truth.repeat_interleave(each, 0)
            draws = Draws.of(self.seeds[::together], self.method.name, "attack", like=rows.shift)
            attacked = Attacked(attack, together, draws, truth)
        own = self.method.spread(rows.models, like=rows.shift)
        outputs = logits_of(own, self.net, rows, attacked, self.seeds)
        own = self.method.spread(rows.models, like=outputs)
        return fused(own.opinion(outputs), own.members)


@dataclass(frozen=True)
class Attacked:
    """An attack on so many neighbouring models together, with what it needs to know."""

    attack: Attack
    together: int
    draws: Draws
    truth: Tensor | None  # (M / together, n)

    def features(self, net: nn.Module, x: Tensor, at: Tensor) -> Tensor:
        """Attacked features (M, b, *shape) for the rows at (M, b)."""

        def logits(x: Tensor) -> Tensor:
            each = net(x.repeat_interleave(self.together, 0))  # (M, b, k)
            return torch.unflatten(each, 0, (-1, self.together)).mean(1)

        truth = self.truth
        if truth is not None:
            truth = truth.gather(1, at[:: self.together].to(truth.device))
        moved = self.attack(logits, x[:: self.together], self.draws, truth)
        return moved.repeat_interleave(self.together, 0)


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
    widest = max(300, torch.Size(rows.shape).numel())
    size = max(256, NUMBERS_AT_ONCE // (rows.models * widest))
    pieces = []
    with torch.no_grad(), computing(method.precision, rows.device):
        for piece in torch.split(rows.everything, size, dim=1):
            b = piece.shape[1]
            at = torch.cat([piece, piece[:, -1:].expand(-1, max(0, FEWEST_ROWS - b))], 1)
            x = rows.x(at)
            if attacked is not None:
                x = attacked.features(net, x, at)
            outputs = net(x) if seeds is None else method.outputs(net, x, seeds)
            pieces.append(outputs[:, :b].double())
    return torch.cat(pieces, 1)


def fused(opinion: Opinion, members: int) -> Opinion:
    """Opinions of M models -> of R runs, the mean of neighbouring members."""
    return Opinion(
        opinion.belief.unflatten(0, (-1, members)),
        opinion.prior.unflatten(0, (-1, members)),
        opinion.uncertainty.unflatten(0, (-1, members)),
    ).mean(1)
