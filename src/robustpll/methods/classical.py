"""What the methods without a training loop share: one run after the other, in float64."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from robustpll.engine.attack import Attack
from robustpll.engine.history import History
from robustpll.engine.predict import Fitted
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.errors import InputError
from robustpll.methods.base import Method, check_fields
from robustpll.opinion import Opinion

Learned = dict[str, Tensor]  # all that a prediction needs, by name


@dataclass(frozen=True)
class Problem:
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
    def learn(self, problem: Problem) -> tuple[Learned, Opinion]:
        """What predictions need, and the opinion of the training rows, (n, k) in float64.

        The opinion's probability is 0 outside the candidates; it is the label weights.
        """

    @abstractmethod
    def judge(self, learned: Learned, x: Tensor) -> Opinion:
        """Of other scaled rows x (q, d) in float64."""

    def fit(self, task: Task) -> Fitted:
        if not bool((task.weight == 1).all()):
            msg = f"{type(self).__name__} does not take weights of rows or classes. Leave them out."
            raise InputError(msg)
        found = [self.learn(_problem(task, run)) for run in range(task.models)]
        opinions = [opinion for _, opinion in found]
        opinion = _stacked(opinions)
        return Classical(self, tuple(learned for learned, _ in found), opinion)


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

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        if attack is not None:
            msg = f"{self.method.title} is no network, and has no gradient to attack it with."
            raise InputError(msg)
        x = rows.x(rows.everything).double().flatten(2)
        pairs = zip(self.learned, x, strict=True)
        return _stacked([self.method.judge(learned, each) for learned, each in pairs])


def _problem(task: Task, run: int) -> Problem:
    rows = task.rows.part(slice(run, run + 1))
    return Problem(
        rows.x(rows.everything)[0].double().flatten(1),
        task.candidates[run],
        task.prior[run].double(),
        rows.shape,
        task.seeds[run],
    )


def _stacked(opinions: list[Opinion]) -> Opinion:
    """Opinions of single runs as one of R runs."""
    return Opinion(
        torch.stack([torch.as_tensor(each.belief) for each in opinions]),
        torch.stack([torch.as_tensor(each.prior) for each in opinions]),
        torch.stack([torch.as_tensor(each.uncertainty) for each in opinions]),
    )
