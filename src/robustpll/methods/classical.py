"""What the methods without a training loop share: one run after the other, in float64."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from robustpll.attacks.base import Attack
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError
from robustpll.methods.base import Method, check_fields
from robustpll.opinion import Opinion

Learned = dict[str, Tensor]  # all that a prediction needs, by name; training rows are "rows"
Around = dict[str, Tensor]  # what is found of rows before candidates are looked at, by name
Layout = dict[str, tuple[torch.dtype, tuple[int | str, ...]]]  # its types and shapes


@dataclass(frozen=True)
class OneRun:
    """One run: scaled rows (n, d) in float64, candidates and prior (n, k), the shape of one row.

    Runs with equal rows share x and what is around its rows.
    """

    x: Tensor
    around: Around
    candidates: Tensor
    prior: Tensor
    shape: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class ClassicalMethod(Method):
    """A method that says what it learns from one run, and what it then thinks of other rows."""

    family: ClassVar[str] = "classical"
    # (a, b): a fit on n rows of d features takes about a (n / 1e4)^b (d / 100) seconds on one core
    seconds: ClassVar[tuple[float, float]] = (1.0, 1.0)

    def pretraining_epochs(self, pictures: bool) -> int:
        """Epochs of the auto-encoders that a fit trains first."""
        return 0

    def __post_init__(self) -> None:
        check_fields(self)

    def around(self, x: Tensor, learned: Learned | None = None) -> Around:
        """What the training rows are to scaled rows x (q, d); without `learned`, x to each other.

        The long part of most methods: it is done once for all runs with equal rows.
        """
        return {}

    @abstractmethod
    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        """What predictions need, and the opinion of the training rows, (n, k) in float64.

        The opinion's probability is 0 outside the candidates; it is the label weights.
        """

    @abstractmethod
    def judge(self, learned: Learned, x: Tensor, around: Around) -> Opinion:
        """Of other scaled rows x (q, d) in float64, and what is around them."""

    @abstractmethod
    def layout(self, shape: Shape, k: int) -> Layout:
        """Types and shapes of what is learned from rows of this shape, for those who read a file.

        A word stands for any size of at least 1, the same wherever it occurs.
        """

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        self.refuse_weights_and_watch(task, watch)
        found: dict[int, tuple[Learned, Opinion]] = {}
        with computing("float32", task.rows.device):
            for runs in alike(task.rows):
                x = _scaled(task.rows, runs[0])
                around = self.around(x)
                found |= {run: self.learn(_one_run(task, run, x, around)) for run in runs}
        learned, opinions = zip(*(found[run] for run in range(task.models)), strict=True)
        return Classical(self, learned, _stacked(opinions))

    def refuse_weights_and_watch(self, task: Task, watch: Task | None) -> None:
        if watch is not None:
            msg = (
                f"watch must be None for {type(self).__name__}, which has no epochs to choose from."
                " Leave it out, or use a method that trains networks."
            )
            raise InputError(msg)
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

    def part(self, runs: slice) -> Self:
        return replace(self, learned=self.learned[runs], opinion=self.opinion[runs])

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
        found: dict[int, Opinion] = {}
        with computing("float32", rows.device):
            for runs in alike(rows, [id(own.get("rows")) for own in self.learned]):
                x = _scaled(rows, runs[0])
                around = self.method.around(x, self.learned[runs[0]])
                found |= {run: self.method.judge(self.learned[run], x, around) for run in runs}
        return _stacked([found[run] for run in range(rows.models)])


def alike(rows: Rows, keys: Sequence[int] | None = None) -> list[list[int]]:
    """Groups of runs with the same rows, equally scaled, and with equal keys if there are any.

    >>> pool, at = torch.tensor([[0.0], [1], [2]]), torch.tensor([[0, 1], [0, 2], [0, 1]])
    >>> alike(Rows.of(pool, at))
    [[0, 2], [1]]
    """
    groups: list[list[int]] = []
    for run in range(rows.models):
        for group in groups:
            parts = (rows.at, rows.shift, rows.scale)
            same = keys is None or keys[run] == keys[group[0]]
            if same and all(torch.equal(part[run], part[group[0]]) for part in parts):
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _one_run(task: Task, run: int, x: Tensor, around: Around) -> OneRun:
    prior = task.prior[run].double()
    return OneRun(
        x,
        around,
        task.candidates[run],
        prior / prior.sum(-1, keepdim=True),  # to the last digit, if it came in float32
        task.rows.shape,
        task.seeds[run],
    )


def _scaled(rows: Rows, run: int) -> Tensor:
    """Rows of one run, (n, d) in float64."""
    own = rows.part(slice(run, run + 1))
    return own.x(own.everything)[0].double().flatten(1)


def _stacked(opinions: Sequence[Opinion]) -> Opinion:
    """Opinions of single runs as one of R runs."""
    return Opinion(
        torch.stack([torch.as_tensor(each.belief) for each in opinions]),
        torch.stack([torch.as_tensor(each.prior) for each in opinions]),
        torch.stack([torch.as_tensor(each.uncertainty) for each in opinions]),
    )
