"""How far rows are from the training data; a few training rows stay with a model for that."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.device import computing
from robustpll.engine.layers import Linear
from robustpll.engine.predict import Fitted, Networks, logits_of
from robustpll.engine.random import seed_of
from robustpll.engine.rows import Rows
from robustpll.errors import ModelFileError
from robustpll.methods.neighbours import neighbours

MOST_ROWS, MOST_NUMBERS = 1000, 2**20  # kept of a network's training rows: 4 MiB in float32


@dataclass(frozen=True, eq=False)
class Reference:
    """Some of the training rows, all of them different, as a model's last hidden layer has them.

    A row is as far from the training data as from the nearest of these. In an ensemble it is the
    mean of the members' distances.
    """

    rows: Tensor  # (M, r, h) in float32, see `representation`
    limit: float  # the largest distance of one of them to the others; infinite if it is alone

    @classmethod
    def of(cls, fitted: Fitted, training: Rows, seed: int) -> Self:
        """Of one run: at most 1,000 rows and a million numbers, drawn by the seed.

        >>> from robustpll.engine.data import Task
        >>> from robustpll.methods import Proden
        >>> rows = Rows.of(torch.eye(3), torch.tensor([[0, 1, 2, 2, 2]]))
        >>> fitted = Proden(epochs=1).fit(Task.of(rows, torch.eye(3).bool()[rows.at], (0,)))
        >>> kept = Reference.of(fitted, rows, seed=0)
        >>> kept.rows.shape, bool((kept.distance(fitted, rows) < 1e-3).all())
        (torch.Size([1, 3, 300]), True)
        """
        drawn = np.random.default_rng(seed_of(seed, "reference")).permutation(len(training))
        some = _some(training, torch.from_numpy(drawn[:MOST_ROWS]))
        x = some.x(some.everything)[0].flatten(1).cpu().numpy()
        _, first = np.unique(x, axis=0, return_index=True)
        with computing("float32", training.device):
            own = representation(fitted, _some(some, torch.from_numpy(np.sort(first))))
        return cls.of_rows(own[:, : max(2, MOST_NUMBERS // own.shape[-1])].float().contiguous())

    @classmethod
    def of_rows(cls, rows: Tensor) -> Self:
        """Of kept rows (M, r, h), as a model file has them."""
        if rows.shape[1] < 2:
            return cls(rows, float("inf"))
        nearest = [neighbours(own, own, 1, itself=True).distance[:, 0] for own in rows.double()]
        return cls(rows, float(torch.stack(nearest).mean(0).max()))

    def refuse_other_width(self, fitted: Fitted, shape: tuple[int, ...]) -> None:
        """Kept rows must be as wide as what a model makes of rows of this shape."""
        net = _with_hidden_layer(fitted)
        expected: tuple[int, ...] = (1, math.prod(shape))
        if net is not None and isinstance(net[-1], Linear):
            expected = tuple(net[-1].weight.shape[:2])
        if (self.rows.shape[0], self.rows.shape[2]) != expected:
            raise ModelFileError(
                f"it has kept rows of shape {tuple(self.rows.shape)}, but its networks make "
                f"{expected[0]} times {expected[1]} numbers of a row."
            )

    def distance(self, fitted: Fitted, rows: Rows) -> Tensor:
        """Of rows of the same run to the nearest kept one, (n,) in float64."""
        with computing("float32", rows.device):
            own = representation(fitted, rows)
        pairs = zip(own, self.rows.double(), strict=True)
        nearest = [neighbours(*pair, 1).distance[:, 0] for pair in pairs]
        return torch.stack(nearest).mean(0)


def representation(fitted: Fitted, rows: Rows) -> Tensor:
    """Where distances are taken: the last hidden layers, or the features; (M, n, h) in float64.

    Hidden rows have length 1: how strongly units respond tells less than which of them do.

    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> model = PLLClassifier(Proden(epochs=1, members=2)).fit([[0, 4], [2, 8]], [{0}, {1}])
    >>> representation(model.fitted_, model.features_.rows(np.array([[1, 4]]))).shape
    torch.Size([2, 1, 300])
    """
    net = _with_hidden_layer(fitted)
    if net is not None and isinstance(fitted, Networks):
        hidden = logits_of(fitted.method, net[:-1], rows.repeated(fitted.method.members))
        return F.normalize(hidden, dim=-1)
    return rows.x(rows.everything).double().flatten(2)


def _with_hidden_layer(fitted: Fitted) -> nn.Sequential | None:
    """The networks, if the input of their last layer can be had."""
    if not isinstance(fitted, Networks):
        return None
    net = fitted.method.classifier(fitted.net)
    return net if isinstance(net, nn.Sequential) and isinstance(net[-1], Linear) else None


def _some(rows: Rows, at: Tensor) -> Rows:
    return replace(rows, at=rows.at[:, at.to(rows.at.device)])
