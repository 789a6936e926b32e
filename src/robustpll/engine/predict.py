"""Fitted models, and their predictions for other rows."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from robustpll.attacks import Attack
from robustpll.engine.data import Rows, repeat
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.layers import folded, joined
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.opinion import Opinion, each_part

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

FEWEST_ROWS = 16  # with fewer rows a CPU's matrix product rounds differently: 1e-6 in probability
NUMBERS_AT_ONCE = 2**25  # size of one layer's output for all models: 128 MiB in float32
FEWER_AT_ONCE = 2**21  # on a CPU without an attack: no slower, and 8 MiB
IN_CACHE = 2**20  # below this size a CPU is faster with several epsilons together
MOST_ON_DEVICE = 2**27  # as NUMBERS_AT_ONCE, on a GPU with much memory: 1 GiB in float64

Epsilons = Sequence[float | ArrayLike]
Seeds = tuple[int, ...]
# From features (M, b, *shape) and their positions (M, b) to (M, E b, ...), for E epsilons or 1
Compute = Callable[[Tensor, Tensor], Tensor]


class Fitted(ABC):
    """The result of every method's fit; predictions are averaged over members."""

    label_weights: Tensor  # (R, n, k)
    opinion: Opinion  # of the training rows, (R, n, ...)
    history: History  # empty for methods without epochs

    @abstractmethod
    def without_training_rows(self) -> Self:
        """Drop everything of the size of the training rows; predictions do not need it."""

    @abstractmethod
    def part(self, runs: slice) -> Self:
        """A contiguous part of the runs."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that rows to predict must be on."""

    @abstractmethod
    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        """Predict rows of the same R runs, (R, n, ...); only attacks use `truth` (R, n)."""

    def predict_at_each(
        self, epsilons: Epsilons, rows: Rows, attack: Attack, truth: Tensor | None = None
    ) -> list[Opinion]:
        """As `predict`, for several epsilons instead of the attack's own."""
        attacks = [replace(attack, epsilon=epsilon) for epsilon in epsilons]
        return [self.predict(rows, attack, truth) for attack in attacks]

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        """Return the attacked rows, scaled; all members of a run see the same rows."""

        def outputs(x: Tensor) -> Tensor:  # without gradients
            probability: Tensor = self.predict(Rows.scaled(x)).probability
            return probability.clamp(min=1e-30).log()

        draws = Draws.of((0,) * rows.models, "attack", like=rows.shift, on_device=True)
        return Rows.scaled(attack(outputs, rows.x(rows.everything), draws, truth))


@dataclass(frozen=True)
class Networks(Fitted):
    """M trained networks: R runs with the same number of members each."""

    method: "DeepMethod"
    net: nn.Module
    seeds: Seeds  # (M,)
    label_weights: Tensor
    opinion: Opinion
    history: History

    @classmethod
    def of_parts(cls, parts: Sequence[Self], method: "DeepMethod", members: int = 1) -> Self:
        """Join the runs of all parts, in order; every `members` runs are one run of the method."""
        if method.network == "auto":  # models on other devices have other networks
            method = method.changed(network=parts[0].method.network)
        opinion = each_part(lambda *several: torch.cat(several), *(part.opinion for part in parts))
        weights = torch.cat([part.label_weights for part in parts])
        return cls(
            method,
            joined([part.net for part in parts]),
            sum((part.seeds for part in parts), ()),
            torch.unflatten(weights, 0, (-1, members)).mean(1),
            fused(opinion, members),
            reduce(History.beside, (part.history for part in parts)),
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
            net=joined([self.net], models),
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
        if attack is not None:
            return self.predict_at_each((attack.epsilon,), rows, attack, truth)[0]
        rows = rows.repeated(self.method.members)
        return fused(opinions_of(self.method, self.net, rows, self.seeds), self.method.members)

    def predict_at_each(
        self, epsilons: Epsilons, rows: Rows, attack: Attack, truth: Tensor | None = None
    ) -> list[Opinion]:
        """Predict as many epsilons together as fit: one alone would leave a GPU idle."""
        rows = rows.repeated(self.method.members)
        opinions = []
        for group in epsilon_groups(epsilons, rows):
            attacker = self._attacker(attack, rows, truth, group)
            opinion = opinions_of(self.method, self.net, rows, self.seeds, attacker)
            opinion = fused(opinion, self.method.members)
            starts = range(0, len(group) * len(rows), len(rows))
            opinions += [opinion[:, start : start + len(rows)] for start in starts]
        return opinions

    def attacked(
        self, rows: Rows, attack: Attack, truth: Tensor | None = None, epsilons: Epsilons = ()
    ) -> Rows:
        """With several epsilons, all rows under the first come first."""
        attack, rows = replace(attack, joint=True), rows.repeated(self.method.members)
        groups = [
            in_pieces(rows, self.method.precision, self._attacker(attack, rows, truth, group))
            for group in epsilon_groups(epsilons or (attack.epsilon,), rows)
        ]
        return Rows.scaled(torch.cat(groups, 1))

    def _attacker(
        self, attack: Attack, rows: Rows, truth: Tensor | None, epsilons: Epsilons
    ) -> Compute:
        """Return a function that attacks features (M, b, *shape) of the rows at positions (M, b).

        It returns (M, E b, *shape), or (R, E b, *shape) if members are attacked as one.
        """
        if getattr(attack, "loss", None) == "evidential" and not self.method.uncertain:
            msg = f"{self.method.title} does not predict evidence. "
            raise InputError(msg + "Use loss='margin' or 'cross-entropy'.")
        together = self.method.members if attack.joint or self.method.attacked_jointly else 1
        key = (self.method.name, "attack")
        draws = Draws.of(self.seeds[::together], *key, like=rows.shift, on_device=True)
        if truth is not None:
            truth = repeat(truth, self.method.members // together)
        method = self.method.spread(rows.models, like=rows.shift).with_passes(attack.passes)
        net = copy.deepcopy(self.net).double() if attack.precision == "float64" else self.net
        if rows.device.type == "cuda":  # on a CPU the published numbers stay bit-equal
            net = folded(net)

        def outputs(x: Tensor) -> Tensor:  # (M / together, b, *shape) -> (M / together, b, k)
            x = repeat(x, together)
            if attack.target == "logits":
                return torch.unflatten(net(x), 0, (-1, together)).mean(1)
            scores = method.scores(method.outputs(net, x, self.seeds))  # (M, b, k)
            return averaged(torch.unflatten(scores, 0, (-1, together)))

        def attacked(x: Tensor, indices: Tensor) -> Tensor:
            x, indices = x[::together], indices[::together]
            labels = None if truth is None else truth.gather(1, indices.to(truth.device))
            wide = x.double() if attack.precision == "float64" else x
            moved = attack(outputs, wide, draws, labels, epsilons)
            if moved.dtype != x.dtype:  # rounding must not leave the bounds
                moved = attack.bounds(x, epsilons).project(moved.to(x))
            return moved

        return attacked


def averaged(scores: Tensor) -> Tensor:
    """Average the scores of members, (R, members, b, k), as their mean opinion, (R, b, k).

    Probabilities, the softmax of scores, have an arithmetic mean. The sum of their exponentials is
    the evidence, 1 / uncertainty, and has a harmonic mean.
    """
    if scores.shape[1] == 1:
        return scores[:, 0]
    total = scores.logsumexp(-1, keepdim=True)
    probability = (scores - total).logsumexp(1) - math.log(scores.shape[1])
    return probability + math.log(scores.shape[1]) - (-total).logsumexp(1)


def opinions_of(
    method: "DeepMethod", net: nn.Module, rows: Rows, seeds: Seeds, attacker: Compute | None = None
) -> Opinion:
    """Return the opinion of each of M models about the rows, attacked or not; (M, E n, ...)."""
    net.eval()
    spread_method = method.spread(rows.models, like=rows.shift)

    def compute(x: Tensor, indices: Tensor) -> Tensor:
        if attacker is not None:
            x = attacker(x, indices)
            x = repeat(x, rows.models // len(x))
        return spread_method.outputs(net, x, seeds).double()

    outputs = in_pieces(rows, method.precision, compute, attacked=attacker is not None)
    return method.spread(rows.models, like=outputs).opinion(outputs)


def logits_of(method: "DeepMethod", net: nn.Module, rows: Rows) -> Tensor:
    """Return the logits of all rows in evaluation mode, (M, n, k) in float64."""
    net.eval()
    return in_pieces(rows, method.precision, lambda x, _: net(x).double(), attacked=False)


def in_pieces(rows: Rows, precision: str, compute: Compute, *, attacked: bool = True) -> Tensor:
    """Return the results (M, E n, ...) of `compute` for all rows, in pieces that fit in memory."""
    # One tensor for all pieces: small results between large freed blocks keep glibc from reusing
    # these, and the memory would grow with the rows.
    results, done = torch.empty(0), 0
    with torch.no_grad(), computing(precision, rows.device):
        for piece in torch.split(rows.everything, piece_size(rows, attacked=attacked), dim=1):
            padding = piece[:, -1:].expand(-1, max(0, FEWEST_ROWS - piece.shape[1]))
            indices = torch.cat([piece, padding], 1)
            result = compute(rows.x(indices), indices)  # (M, E b, ...)
            result = torch.unflatten(result, 1, (-1, indices.shape[1]))
            if not done:
                results = result.new_empty((*result.shape[:2], len(rows), *result.shape[3:]))
            results[:, :, done : done + piece.shape[1]] = result[:, :, : piece.shape[1]]
            done += piece.shape[1]
    return results.flatten(1, 2)


def epsilon_groups(epsilons: Epsilons, rows: Rows) -> list[Epsilons]:
    """Split epsilons into groups of a size that suits the device."""
    numbers = numbers_at_once(rows.device) if rows.device.type == "cuda" else IN_CACHE
    count = max(1, numbers // (min(piece_size(rows), len(rows)) * numbers_per_row(rows)))
    return [epsilons[start : start + count] for start in range(0, len(epsilons), count)]


def piece_size(rows: Rows, *, attacked: bool = True) -> int:
    """Number of rows of each model to predict together."""
    few = not attacked and rows.device.type == "cpu"
    numbers = FEWER_AT_ONCE if few else numbers_at_once(rows.device)
    return max(256, numbers // numbers_per_row(rows))


def numbers_per_row(rows: Rows) -> int:
    """Size of the widest layer's output for a row of all models, estimated without the network."""
    return rows.models * max(300, torch.Size(rows.shape).numel())


def numbers_at_once(device: torch.device) -> int:
    """Size of one layer's output that keeps a device busy and uses little of its memory."""
    if device.type != "cuda":
        return NUMBERS_AT_ONCE
    device_bytes = torch.cuda.get_device_properties(device).total_memory
    return max(NUMBERS_AT_ONCE, min(MOST_ON_DEVICE, device_bytes // 512))


def fused(opinion: Opinion, members: int) -> Opinion:
    """Average the opinions of M models over members: R runs."""
    return each_part(lambda part: part.unflatten(0, (-1, members)).mean(1), opinion)
