"""Distance of rows to the training data, of which a model keeps a sample."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Rows
from robustpll.engine.device import computing
from robustpll.engine.layers import Linear
from robustpll.engine.predict import Fitted, Networks, logits_of
from robustpll.engine.random import seed_of
from robustpll.methods.neighbours import neighbours

MOST_ROWS, MOST_NUMBERS = 1000, 2**20  # of the sample: 4 MiB in float32


@dataclass(frozen=True, eq=False)
class Reference:
    """A sample of distinct training rows, as represented by the last hidden layer.

    The distance of a row is that to its nearest reference row, averaged over ensemble members.
    """

    rows: Tensor  # (M, r, h) in float32, see `representation`
    limit: float  # the largest distance of one of them to the others; infinite for a single row

    @classmethod
    def of(cls, fitted: Fitted, training: Rows, seed: int) -> Self:
        """Draw at most 1,000 rows and a million numbers from one run."""
        order = np.random.default_rng(seed_of(seed, "reference")).permutation(len(training))
        sample = replace(training, at=training.at[:, order[:MOST_ROWS]])
        x = sample.x(sample.everything)[0].flatten(1).cpu().numpy()
        first = np.sort(np.unique(x, axis=0, return_index=True)[1])
        with computing("float32", training.device):
            rows = representation(fitted, replace(sample, at=sample.at[:, first]))
        return cls.of_rows(rows[:, : max(2, MOST_NUMBERS // rows.shape[-1])].float().contiguous())

    @classmethod
    def of_rows(cls, rows: Tensor) -> Self:
        """From the reference rows (M, r, h) of a model file."""
        if rows.shape[1] < 2:
            return cls(rows, math.inf)
        nearest = [neighbours(x, x, 1, itself=True).distance[:, 0] for x in rows.double()]
        return cls(rows, float(torch.stack(nearest).mean(0).max()))

    def distance(self, fitted: Fitted, rows: Rows) -> Tensor:
        """Distance of rows of the same run to the nearest reference row, (n,) in float64."""
        with computing("float32", rows.device):
            pairs = zip(representation(fitted, rows), self.rows.double(), strict=True)
        return torch.stack([neighbours(*pair, 1).distance[:, 0] for pair in pairs]).mean(0)


def representation(fitted: Fitted, rows: Rows) -> Tensor:
    """The last hidden layers scaled to length 1, or else the features; (M, n, h) in float64."""
    net = _network(fitted)
    if net is not None and isinstance(fitted, Networks):
        hidden = logits_of(fitted.method, net[:-1], rows.repeated(fitted.method.members))
        return F.normalize(hidden, dim=-1)
    return rows.x(rows.everything).double().flatten(2)


def representation_shape(fitted: Fitted, shape: tuple[int, ...]) -> tuple[int, int]:
    """M and h of `representation`, for rows of this shape."""
    net: Any = _network(fitted)
    return (1, math.prod(shape)) if net is None else net[-1].weight.shape[:2]


def _network(fitted: Fitted) -> nn.Sequential | None:
    """The predicting network, if it has a last linear layer to cut off."""
    if not isinstance(fitted, Networks):
        return None
    net = fitted.method.classifier(fitted.net)
    return net if isinstance(net, nn.Sequential) and isinstance(net[-1], Linear) else None
