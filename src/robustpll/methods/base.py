"""What a method is: hyperparameters and hooks. Then formulas that several methods share."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_type_hints

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from robustpll.engine.augment import AUGMENT, Augment
from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import steady_statistics
from robustpll.engine.modules import ParameterGroups
from robustpll.engine.networks import NETWORK_NAMES, Network, Shape, build_network
from robustpll.engine.predict import Fitted
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.errors import AT_LEAST_1, POSITIVE, SHARE, InputError, Rule, check_fields, is_number
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.engine.train import Training

WARM_UP, MAIN = 0, 1  # stages
Step = tuple[Tensor, dict[str, Tensor]]  # loss per row (M, b), row state to write
Count = Annotated[int, AT_LEAST_1]
Share = Annotated[float, SHARE]
Positive = Annotated[float, POSITIVE]
MOMENTUM = Rule("of at least 0 and below 1", lambda momentum: 0 <= momentum < 1)
NETWORK = Rule(
    f"{', '.join(map(repr, NETWORK_NAMES))}, a module, or a callable (shape, k) -> module",
    lambda network: callable(network) or (isinstance(network, str) and network in NETWORK_NAMES),
)

GROUPS = Rule(
    "None, or a function from a module to a list of dicts with 'params', 'lr' and 'weight_decay'",
    lambda groups: groups is None or callable(groups),
)


def _number_rule(words: str, most: float = math.inf) -> Rule:
    def holds(value: Any) -> bool:
        values = value if isinstance(value, tuple) else (value,)
        return all(is_number(one) and 0 <= one <= most for one in values)

    return Rule(f"{words}, or a tuple with one for each member", holds)


# Fields that may differ between the models of a bundle; in a step, they are tensors (M, 1).
Number = Annotated[Any, _number_rule("a float of at least 0")]
ShareNumber = Annotated[Any, _number_rule("a float from 0 to 1", most=1)]


class Method(ABC):
    """A learning procedure; subclasses are frozen dataclasses whose fields are hyperparameters."""

    name: ClassVar[str]  # key in METHODS: "proden"
    title: ClassVar[str]  # as in the paper: "Proden"
    citation: ClassVar[str]  # "Authors: Title. Venue Year"; several are joined by "; "
    family: ClassVar[str] = "network"  # or "classical", "ensemble"
    published: ClassVar[bool] = True  # False: the paper's grids and tables do not have it
    on_host: ClassVar[bool] = False  # True: a GPU does not make it faster
    scale: ClassVar[Any] = "minmax"  # of features, where nobody chooses it
    uncertain: ClassVar[bool] = False  # whether uncertainty differs from spread-out probability
    added_fields: ClassVar[dict[str, Any]] = {}  # newer than stored runs: values in these runs
    by_row: ClassVar[Any] = False  # True: a row's step needs no other row; see `distributed`
    paper_fields: ClassVar[dict[str, Any]] = {}  # values that differ in the published version

    @property
    def package(self) -> str:
        """An optional package that it imports; empty if it needs none."""
        return ""

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def reference(cls) -> str:
        """Return the paper in a few words: "Lv et al., ICML 2020"."""
        short = []
        for citation in cls.citation.split("; "):
            authors, rest = citation.split(": ", 1)
            first, *others = authors.split(", ")
            short.append(f"{first}{' et al.' if others else ''}, {rest.rsplit('. ', 1)[1]}")
        return "; ".join(short)

    @classmethod
    def paper(cls) -> Self:
        """Return the version that produced the published tables; see `paper_fields`."""
        return cls(**cls.paper_fields)

    @classmethod
    def stacked(cls, methods: Sequence[Self]) -> Self:
        """Return one method for a bundle of as many runs, which differ in `Number` fields only.

        Such a field then has one number for each member of each run.
        """
        first, values = methods[0], dict[str, tuple[float, ...]]()
        for name in cls.number_names():
            if any(getattr(method, name) != getattr(first, name) for method in methods):
                values[name] = tuple(v for method in methods for v in method.per_member(name))
        return first.changed(**values)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, unchecked: a number may have values of several runs."""
        method = copy.copy(self)
        for name, value in values.items():
            object.__setattr__(method, name, value)
        return method

    @abstractmethod
    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        """Learn from the runs of a task.

        With `validation`, other rows of the same runs, keep the epoch that fits them best.
        """

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def number_names(cls) -> tuple[str, ...]:
        """Return the names of the fields that may differ between models."""
        hints = get_type_hints(cls)  # Any: `Number`
        return tuple(name for name in cls.field_names() if hints[name] is Any)

    def per_member(self, name: str) -> tuple[float, ...]:
        """Return a number's value for each member of one run."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * getattr(self, "members", 1)


@dataclass(frozen=True)
class DeepMethod(Method):
    """A method that trains networks by the engine; it defines what one step computes.

    Reduce over the last axis, return one loss per row, and let hyperparameters broadcast: then
    code for one model is code for M models.
    """

    epochs: Count = 200
    batch_size: Annotated[int, Rule("of at least 2", lambda size: size >= 2)] = 256
    learning_rate: Positive = 1e-3
    weight_decay: float = 0.0
    members: Count = 1
    network: Annotated[Network, NETWORK] = "mlp"
    precision: Literal["auto", "float32", "bf16"] = "auto"
    averaged: Share = 0.0  # the final network is the mean over this share of the epochs, the last
    schedule: Literal["constant", "one-cycle"] = "constant"  # of the learning rate
    augment: Annotated[Augment, AUGMENT] = "auto"  # how pictures are changed in training
    momentum: Annotated[float, MOMENTUM] = 0.0  # above 0: Nesterov's, of SGD instead of Adam
    parameter_groups: Annotated[ParameterGroups, GROUPS] = None  # with rates of their own
    clip: float = 0.0  # largest norm of the gradient of each model; 0: any

    added_fields: ClassVar[dict[str, Any]] = {"averaged": 0.0, "schedule": "constant"}
    added_fields |= {"augment": "auto", "momentum": 0.0, "parameter_groups": None, "clip": 0.0}
    views: ClassVar[tuple[str, ...]] = ()  # of pictures: "weak", "strong", "strong2"
    captured: ClassVar[bool] = True  # False: a step cannot be a CUDA graph, and runs eagerly
    compilable: ClassVar[bool] = True  # False: torch.compile does not support a step
    moves_rows: ClassVar[bool] = False  # True: also trains on changed rows, which ids do not have
    attacked_jointly: ClassVar[bool] = False  # members are one function, and attacked as one
    warm_up: ClassVar[int] = 0  # epochs before the others, with steps in a stage of their own
    restarts: ClassVar[bool] = False  # whether the optimizer is reset after the warm-up
    incremental: ClassVar[bool] = True  # False: it remembers several epochs, so no partial_fit
    final_weights: ClassVar[Literal["as trained", "normalised", "predicted"]] = "as trained"
    cost: ClassVar[float] = 1.0  # time of a step of one network: benchmarks/method_speed.py

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.number_names():
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.members:
                rule = f"a float, or a tuple with one for each member (members={self.members})"
                owner = f"The {name!r} of {type(self).__name__}"
                raise InputError(f"{owner} must be {rule}. Got {value!r} instead.")

    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        return train(self, task, validation=validation)

    def spread(self, models: int, like: Tensor) -> Self:
        """Return a copy in which each number is a tensor (M, 1), to broadcast against rows."""
        numbers = {name: self.per_member(name) for name in self.number_names()}
        for name, values in numbers.items():  # the same members for every run
            numbers[name] = values * (models // self.members if len(values) == self.members else 1)
        return self.changed(**{n: like.new_tensor(v)[:, None] for n, v in numbers.items()})

    def part(self, runs: slice, of: int) -> Self:
        """Return the method for some of the runs of a bundle; see `stacked`."""
        members, (start, stop, _) = self.members, runs.indices(of)
        numbers = {name: self.per_member(name) for name in self.number_names()}
        models = slice(start * members, stop * members)
        return self.changed(**{n: v[models] for n, v in numbers.items() if len(v) == of * members})

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        """Return networks with a model axis, (M, b, *shape) -> logits (M, b, k)."""
        return build_network(self.network, shape, k, draws)

    def classifier(self, net: nn.Module) -> nn.Module:
        """Return the part of a network from `build` that predicts."""
        return net

    def begin(self, task: Task) -> State:
        """Return the state that training changes."""
        return State.of(task)

    @property
    def total_epochs(self) -> int:
        """Epochs of the whole training, including the warm-up."""
        return self.warm_up + self.epochs

    def stage(self, epoch: int) -> int:
        """Return which code a step of this epoch runs."""
        return WARM_UP if epoch < self.warm_up else MAIN

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        """Return random numbers for a step on rows of a shape, (M, rows, ...): `batch.drawn`.

        They are drawn before the step, because torch's compiler supports no generator.
        """
        return None

    @abstractmethod
    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        """Return the loss per row (M, b), and row state to write after the optimiser's step."""

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the label weights for logits (M, b, k), and other row state; no gradient."""
        return {}

    @property
    def second_pass(self) -> bool:
        """Whether row state comes from `after_step`, not from `step`: by a field `update`."""
        return getattr(self, "update", "before") == "after"

    def before_step(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return row state from the logits of a step, unless a second pass computes it."""
        return {} if self.second_pass else self.reweigh(logits.detach(), batch)

    def after_step(self, net: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return row state from one more pass, after the optimiser's step."""
        with torch.no_grad(), steady_statistics(net):
            return self.reweigh(net(batch.x), batch)

    def end_epoch(self, training: "Training", epoch: int) -> None:
        """Change the state between epochs: tensors in place, because a captured step keeps them."""

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        """Set the final label weights; the trained network is in evaluation mode."""
        weights = state.rows["label_weights"]
        if self.final_weights == "normalised":
            weights.copy_(normalize(weights, task.prior))
        elif self.final_weights == "predicted":
            weights = task.candidates * logits().softmax(-1)
            state.rows["label_weights"] = normalize(weights, task.prior.double())

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return Adam with decoupled weight decay, or SGD with coupled one if it has momentum."""
        parameters = list(parameters)
        # On a CPU the fused step rounds the end of a tensor differently, so a model alone and in
        # a bundle would differ. Bits are compared in float64 only.
        fused = all(parameter.dtype != torch.float64 for parameter in parameters)
        options: Any = {"fused": fused, "weight_decay": self.weight_decay}
        if self.momentum:
            options["fused"] |= parameters[0].is_cuda  # else it waits for the rate of a schedule
            rate, momentum = self.learning_rate, self.momentum
            return SGD(parameters, rate, momentum=momentum, nesterov=True, **options)
        options["capturable"] = parameters[0].is_cuda
        return AdamW(parameters, self.learning_rate, **options)

    def outputs(self, net: nn.Module, x: Tensor, seeds: tuple[int, ...]) -> Tensor:
        """Return what `opinion` takes, (M, b, k): logits, in evaluation mode.

        A method that draws numbers here draws the same for any rows, by the models' seeds.
        """
        logits: Tensor = net(x)
        return logits

    def with_passes(self, passes: int) -> Self:
        """Return the method with at most so many random passes in `outputs`, for gradients."""
        return self

    def opinion(self, logits: Tensor) -> Opinion:
        """Return the opinion of rows with these outputs (M, n, k)."""
        return Opinion.of_probability(logits.softmax(-1))

    def scores(self, outputs: Tensor) -> Tensor:
        """Return what softmax turns into the opinion's probability, for attacks, (M, b, k)."""
        return outputs.log_softmax(-1)

    def training_opinion(self, task: Task, state: State) -> Opinion:
        """Return the opinion of the training rows, by row state of these names."""
        rows, prior = {n: value.double() for n, value in state.rows.items()}, task.prior.double()
        uncertainty = rows["uncertainty"][..., 0] if "uncertainty" in rows else None
        if "belief" in rows:
            return Opinion(rows["belief"], prior, uncertainty)
        return Opinion.of_probability(rows["label_weights"], uncertainty, prior)


def normalize(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Return rows (..., k) divided by their sums; a row of zeros becomes that of `otherwise`."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def weighted_ce(logits: Tensor, label_weights: Tensor) -> Tensor:
    """Return the cross-entropy of softmax(logits) against label weights (..., k) -> (...).

    -sum_j w_j ln(p_j + 1e-10): the summand bounds the loss, and is part of the published numbers.
    """
    return -(label_weights * (logits.softmax(-1) + 1e-10).log()).sum(-1)


def covering(logits: Tensor, candidates: Tensor, *, stable: bool = True) -> Tensor:
    """Return -ln of the probability that softmax(logits) gives to all candidates -> (...).

    By log-sum-exp it has a gradient however small that probability is; see `Cc` for the other form.
    """
    if stable:
        return logits.logsumexp(-1) - logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)
    constant = 1 / (2 ** (logits.shape[-1] - 1) - 1)
    return -torch.log(constant * (candidates * logits.softmax(-1)).sum(-1) + 1e-10)
