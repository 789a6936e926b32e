"""Proden+Dropout: Proden whose predictions are averaged over random sub-networks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from robustpll.engine.layers import Dropout
from robustpll.engine.networks import Shape, mlp
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods.proden import Proden

NUMBERS_AT_ONCE = 2**25  # of one layer's output, for all models and passes; 128 MiB in float32


@dataclass(frozen=True)
class ProdenDropout(Proden):
    """Proden with dropout, also when it predicts (Gal & Ghahramani, ICML 2016).

    A prediction is the mean of softmax over passes with units dropped at random. Each pass drops
    the same units for all rows, so a row's prediction does not depend on its neighbours, and is the
    same when asked again. ``ProdenDropout.paper()`` is the plain constructor.

    Parameters
    ----------
    rate : float
        Share of the units that are dropped, after each BatchNorm.
    passes : int
        Of a prediction.

    Examples
    --------
    >>> ProdenDropout().passes
    1000
    """

    name: ClassVar[str] = "proden_dropout"
    title: ClassVar[str] = "Proden+Dropout"
    family: ClassVar[str] = "ensemble"

    rate: float = 0.05
    passes: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network != "mlp" or not 0 < self.rate < 1 or self.passes < 1:
            msg = (
                "ProdenDropout needs network='mlp', a rate above 0 and below 1, and 1 pass or "
                f"more; got {self.network!r}, {self.rate} and {self.passes}."
            )
            raise InputError(msg)

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return mlp(shape, k, draws, dropout=self.rate)

    def with_passes(self, passes: int) -> Self:
        return replace(self, passes=min(passes, self.passes))

    def outputs(self, net: nn.Module, x: Tensor, seeds: tuple[int, ...]) -> Tensor:
        """ln of the mean probability, so that softmax gives it back."""
        layers = list(net.children())
        first = next(at for at, layer in enumerate(layers) if isinstance(layer, Dropout))
        for layer in layers[:first]:  # nothing is random up to here: once for all passes
            x = layer(x)
        models, b, width = x.shape
        random = [layer for layer in layers if isinstance(layer, Dropout)]
        draws = Draws.of(seeds, self.name, "passes", like=x)
        kept = [draws.uniform(self.passes, 1, width) >= self.rate for _ in random]
        size = max(1, NUMBERS_AT_ONCE // (models * b * width))
        pieces = zip(*(torch.split(each, size, dim=1) for each in kept), strict=True)
        total = sum(self._passes(layers[first:], x, iter(piece)) for piece in pieces)
        return torch.log(torch.as_tensor(total) / self.passes)

    def _passes(self, layers: list[nn.Module], x: Tensor, kept: Iterator[Tensor]) -> Tensor:
        """The sum of some passes' probabilities, (M, b, k); `kept` (M, passes, 1, width) each."""
        h = x[:, None]  # (M, 1, b, width)
        for layer in layers:
            if isinstance(layer, Dropout):
                h = h * next(kept) / (1 - self.rate)  # (M, passes, b, width)
            else:
                h = torch.unflatten(layer(h.flatten(1, 2)), 1, (-1, x.shape[1]))
        return h.softmax(-1).sum(1)
