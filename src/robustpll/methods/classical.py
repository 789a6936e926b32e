"""The base of methods without a training loop: one run after the other, in float64."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from robustpll.attacks import Attack
from robustpll.engine.cluster import groups_of, mapped
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import computing
from robustpll.engine.history import History
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError
from robustpll.methods.base import DeepMethod, Method
from robustpll.opinion import Opinion, stacked

Tensors = dict[str, Tensor]  # by name; what a run learned has its training rows as "rows"
# Types and shapes of tensors. A word is any size of at least 1, the same wherever it occurs: "d" is
# the number of features of a row, "k" that of classes.
Layout = dict[str, tuple[torch.dtype, tuple[int | str, ...]]]
TABLE = torch.float64, ("n", "d")
SETS = torch.bool, ("n", "k")


@dataclass(frozen=True)
class OneRun:
    """One run; runs with equal rows share `x` and `precomputed`."""

    x: Tensor  # scaled rows (n, d) in float64
    precomputed: Tensors  # what depends on the rows alone, not on candidates
    candidates: Tensor  # (n, k)
    prior: Tensor  # (n, k)
    weight: Tensor  # (n,): sample weights, for methods whose `check` accepts them
    seed: int


@dataclass(frozen=True)
class ClassicalMethod(Method):
    """A method that defines what it learns from one run, and how it predicts other rows."""

    family = "classical"
    # (a, b): fitting n rows of d features takes about a (n / 1e4)^b (d / 100) seconds on one core
    cost: ClassVar[tuple[float, float]] = (1.0, 1.0)
    learns: ClassVar[Layout]  # what `fit_run` returns, to check a file

    def precompute(self, x: Tensor, learned: Tensors | None = None) -> Tensors:
        """Return what depends on rows x (q, d) and training rows (default: x), for equal runs."""
        return {}

    @abstractmethod
    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        """Return what predictions need, and the training rows' opinion (n, k): label weights."""

    @abstractmethod
    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        """Return the opinion of other scaled rows x (q, d) in float64."""

    def layout(self, shape: Shape) -> Layout:
        """Return types and shapes of what is learned from rows of this shape."""
        return self.learns

    def encoder_of(self, shape: Shape) -> DeepMethod | None:
        """Return how a network is trained that replaces rows of this shape by codes, if any is."""
        return None

    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        self.check(task, validation)
        if groups := groups_of(task.models, on_host=self.on_host):
            jobs = [(self, task.part(runs)) for runs in groups]
            parts = mapped(ClassicalMethod.fit_runs, jobs, task.prior, on_host=self.on_host)
            results = [result for part in parts for result in part]
        else:
            results = self.fit_runs(task)
        learned, opinions = zip(*results, strict=True)
        return Classical(self, learned, stacked(opinions))

    def fit_runs(self, task: Task) -> list[tuple[Tensors, Opinion]]:
        """Return what is learned from each run, as `fit_run` does."""
        results: dict[int, tuple[Tensors, Opinion]] = {}
        with computing("float32", task.rows.device):
            for runs in equal_runs(task.rows):
                x = scaled_rows(task.rows, runs[0])
                precomputed = self.precompute(x)
                for run in runs:
                    prior = task.prior[run].double()
                    prior = prior / prior.sum(-1, keepdim=True)  # exact, even if it was float32
                    labels = task.candidates[run], prior, task.weight[run]
                    results[run] = self.fit_run(OneRun(x, precomputed, *labels, task.seeds[run]))
        return [results[run] for run in range(task.models)]

    def check(self, task: Task, validation: Task | None) -> None:
        """Refuse what only networks can use."""
        if validation is not None or not bool((task.weight == 1).all()):
            raise InputError(
                f"{self.title} has no epochs to choose from, and takes no weights of rows or "
                "classes. Leave out watch and weights, or use a method that trains networks."
            )


@dataclass(frozen=True)
class Classical(Fitted):
    """What a classical method learned from R runs."""

    method: ClassicalMethod
    learned: tuple[Tensors, ...]
    opinion: Opinion
    history: History = field(default_factory=History)

    @property
    def label_weights(self) -> Tensor:  # type: ignore[override]
        weights: Tensor = self.opinion.probability
        return weights

    @property
    def device(self) -> torch.device:
        return next(iter(self.learned[0].values())).device

    def without_training_rows(self) -> Self:
        return replace(self, opinion=self.opinion[:, :0])

    def part(self, runs: slice) -> Self:
        return replace(self, learned=self.learned[runs], opinion=self.opinion[runs])

    def attacked(self, rows: Rows, attack: Attack, truth: Tensor | None = None) -> Rows:
        if attack.needs_gradient:
            raise InputError(f"{self.method.title} has no gradient to attack it with. Use Square.")
        return super().attacked(rows, attack, truth)

    def predict(
        self, rows: Rows, attack: Attack | None = None, truth: Tensor | None = None
    ) -> Opinion:
        if attack is not None:
            rows = self.attacked(rows, attack, truth)
        opinions: dict[int, Opinion] = {}
        with computing("float32", rows.device):
            for runs in equal_runs(rows, [id(learned.get("rows")) for learned in self.learned]):
                x = scaled_rows(rows, runs[0])
                precomputed = self.method.precompute(x, self.learned[runs[0]])
                for run in runs:
                    opinions[run] = self.method.predict_run(self.learned[run], x, precomputed)
        return stacked([opinions[run] for run in range(rows.models)])


def equal_runs(rows: Rows, keys: Sequence[int] | None = None) -> list[list[int]]:
    """Return groups of runs with the same rows, equally scaled, and with equal keys if given."""
    groups: dict[tuple[object, ...], list[int]] = {}
    tensors = [tensor.cpu().numpy() for tensor in (rows.indices, rows.shift, rows.scale)]
    for run in range(rows.models):
        content = (values[run].tobytes() for values in tensors)
        groups.setdefault((*content, keys and keys[run]), []).append(run)
    return list(groups.values())


def scaled_rows(rows: Rows, run: int) -> Tensor:
    """Return the rows of one run, (n, d) in float64."""
    part = rows.part([run])
    return part.x(part.everything)[0].double().flatten(1)
