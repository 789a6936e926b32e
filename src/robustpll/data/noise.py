"""Rules that turn true labels into candidate sets."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim import SGD, Optimizer

from robustpll.candidates import Candidates
from robustpll.engine.device import chosen_device
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.engine.task import Batch, Task
from robustpll.errors import InputError, refuse_other_length
from robustpll.features import Features, finite
from robustpll.label_forms import is_frame
from robustpll.methods import DeepMethod


class Noise(ABC):
    """A rule that adds wrong classes to the true one."""

    @abstractmethod
    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        """Candidates (R, n, k) of R runs at once, whose rows have these true labels (R, n)."""

    def apply(
        self, X: Any, labels: ArrayLike, random_state: Any = None, device: str = "auto"
    ) -> Candidates:
        """Candidates for the rows of X, whose true labels are given by name.

        Examples
        --------
        >>> X = np.repeat(np.eye(3), 4, axis=0)
        >>> labels = np.repeat(["a", "b", "c"], 4)
        >>> y = InstanceDependent(epochs=5).apply(X, labels, random_state=0)
        >>> all(label in names for label, names in zip(labels, y.sets()))
        True
        """
        true = Candidates.of(labels)
        if (true.sizes > 1).any():
            msg = "labels must name the one true class of each row; some rows have several."
            raise InputError(msg)
        X = X if is_frame(X) else finite(np.asarray(X, dtype=np.float64))
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        rows = Features.of(X).rows(X, chosen_device(device))
        refuse_other_length(len(rows), len(true))
        at = torch.from_numpy(true.matrix.argmax(-1))[None].to(rows.pool.device)
        matrix = self.candidates(rows, at, true.shape[1], (seed,))[0].cpu().numpy()
        return Candidates.of(matrix, classes=true.classes)


@dataclass(frozen=True)
class InstanceDependent(Noise):
    """Wrong classes that a network finds plausible for the very row become candidates.

    A teacher g learns the true labels, softly: by plain gradient descent for few epochs. A wrong
    class j of a row joins with probability min(1, x_j / mean x), where x_j = g_j / max g over the
    wrong classes. The most plausible wrong class always joins, so no row has one candidate alone,
    unless the teacher is so certain that all wrong classes are below 1e-10.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        Of the teacher. The fewer steps, the softer it is and the more candidates there are.
    mean_over : {"all", "wrong"}
        Whether the mean counts the true class as a zero, as in the published code, or runs over
        the wrong classes alone, as in the paper's text.
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    mean_over: Literal["all", "wrong"] = "all"

    def __post_init__(self) -> None:
        if self.mean_over not in ("all", "wrong"):
            msg = f"mean_over must be 'all' or 'wrong'; got {self.mean_over!r}."
            raise InputError(msg)
        self._teacher()

    def _teacher(self) -> "Teacher":
        return Teacher(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate
        )

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        true = one_hot(labels, k).bool()  # (R, n, k)
        teacher = self._teacher().fit(Task.of(rows, true, seeds))
        chance = joining(teacher.predict(rows).probability, true, self.mean_over)
        draws = Draws.of(seeds, "instance-dependent noise", like=chance)
        return true | (draws.uniform(*chance.shape[1:]) < chance)


def joining(
    probability: Tensor, true: Tensor, mean_over: Literal["all", "wrong"] = "all"
) -> Tensor:
    """How likely each wrong class becomes a candidate, (..., k); 0 for the true one.

    >>> true = torch.tensor([True, False, False, False, False])
    >>> joining(torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04]), true)
    tensor([0.0000, 1.0000, 1.0000, 0.7500, 0.5000])
    """
    wrong = probability.masked_fill(true, 0)
    wrong = wrong / _at_least(wrong.amax(-1, keepdim=True))
    count = true.shape[-1] - (mean_over == "wrong")
    return (wrong / _at_least(wrong.sum(-1, keepdim=True) / count)).clamp(max=1)


def _at_least(divisor: Tensor, tiny: float = 1e-10) -> Tensor:
    """The divisor, or 1 where it is as good as nothing."""
    return torch.where(divisor > tiny, divisor, 1.0)


@dataclass(frozen=True)
class Teacher(DeepMethod):
    """Squared error of softmax probabilities to true labels, by plain gradient descent."""

    name: ClassVar[str] = "teacher"
    title: ClassVar[str] = "Noise teacher"
    citation: ClassVar[str] = "Fuchs, Kalinke. 2025"

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        error = batch.label_weights - net(batch.x).softmax(-1)
        return error.square().sum(-1), {}

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return SGD(parameters, lr=self.learning_rate, fused=True)
