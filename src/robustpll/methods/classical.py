"""What the methods without a training loop share: one run after the other, in float64."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from robustpll.engine.attack import Attack
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.errors import InputError
from robustpll.methods.base import Method, check_fields
from robustpll.opinion import Opinion

Learned = dict[str, Tensor]  # all that a prediction needs, by name
Layout = dict[str, tuple[torch.dtype, tuple[int | str, ...]]]  # its types and shapes


@dataclass(frozen=True)
class OneRun:
    """One run: scaled rows (n, d) in float64, candidates and prior (n, k), the shape of one row."""

    x: Tensor
    candidates: Tensor
    prior: Tensor
    shape: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class ClassicalMethod(Method):
    """A method that says what it learns from one run, and what it then thinks of other rows."""

    family: ClassVar[str] = "classical"

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        """What predictions need, and the opinion of the training rows, (n, k) in float64.

        The opinion's probability is 0 outside the candidates; it is the label weights.
        """

    @abstractmethod
    def judge(self, learned: Learned, x: Tensor) -> Opinion:
        """Of other scaled rows x (q, d) in float64."""

    @abstractmethod
    def layout(self, shape: Shape, k: int) -> Layout:
        """Types and shapes of what is learned from rows of this shape, for those who read a file.

        A word stands for any size of at least 1, the same wherever it occurs.
        """

    def fit(self, task: Task) -> Fitted:
        self.refuse_weights(task)
        with computing("float32", task.rows.device):
            found = [self.learn(_one_run(task, run)) for run in range(task.models)]
        learned, opinions = zip(*found, strict=True)
        return Classical(self, learned, _stacked(opinions))

    def refuse_weights(self, task: Task) -> None:
        if not bool((task.weight == 1).all()):
            msg = f"{type(self).__name__} does not take weights of rows or classes. Leave them out."
            raise InputError(msg)


@dataclass(frozen=True)
class Classical(Fitted):
    """What a classical method learned from R runs."""

    method: ClassicalMethod
    learned: tuple[Learned, ...]
    opinion: Opinion

    @property
    def label_weights(self) -> Tensor:  # type: ignore[override]
        weights: Tensor = self.opinion.probability
        return weights

    @property
    def history(self) -> History:  # type: ignore[override]
        return History()

    @property
    def device(self) -> torch.device:
        return next(iter(self.learned[0].values())).device

    def without_training_rows(self) -> Self:
        return replace(self, opinion=self.opinion[:, :0])

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        if attack.needs_gradient:
            msg = (
                f"{self.method.title} is no network, and has no gradient to attack it with. Use "
                "Square, which needs none."
            )
            raise InputError(msg)
        return super().attacked(rows, attack, truth)

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        if attack is not None:
            rows = self.attacked(rows, attack, truth)
        each = [rows.part(slice(run, run + 1)) for run in range(rows.models)]
        pairs = zip(self.learned, each, strict=True)
        with computing("float32", rows.device):
            return _stacked([self.method.judge(learned, _scaled(own)) for learned, own in pairs])


def _one_run(task: Task, run: int) -> OneRun:
    rows, prior = task.rows.part(slice(run, run + 1)), task.prior[run].double()
    return OneRun(
        _scaled(rows),
        task.candidates[run],
        prior / prior.sum(-1, keepdim=True),  # to the last digit, if it came in float32
        rows.shape,
        task.seeds[run],
    )


def _scaled(rows: Rows) -> Tensor:
    """Rows of one run, (n, d) in float64."""
    return rows.x(rows.everything)[0].double().flatten(1)


def _stacked(opinions: Sequence[Opinion]) -> Opinion:
    """Opinions of single runs as one of R runs."""
    return Opinion(
        torch.stack([torch.as_tensor(each.belief) for each in opinions]),
        torch.stack([torch.as_tensor(each.prior) for each in opinions]),
        torch.stack([torch.as_tensor(each.uncertainty) for each in opinions]),
    )
