"""What a method is: hyperparameters in a frozen dataclass, and the hooks the engine calls."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.networks import NETWORK_NAMES, Network, Shape, build_network
from robustpll.engine.predict import Fitted
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.errors import InputError
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.engine.train import Training

WARM_UP, MAIN = 0, 1  # stages
Number = Annotated[Any, "a float of at least 0, or a tuple with one for each member"]


class Method(ABC):
    """A learning procedure; subclasses are frozen dataclasses whose fields are hyperparameters."""

    name: ClassVar[str]  # as in METHODS and the file's name: "proden"
    title: ClassVar[str]  # as in the paper: "Proden"
    citation: ClassVar[str]
    family: ClassVar[str] = "network"
    on_host: ClassVar[bool] = False  # True: a GPU has nothing to do for it
    uncertain: ClassVar[bool] = False  # whether it tells "I do not know" from "either of these"
    # Fields that were added when runs had been stored already, with their values in those runs.
    added_fields: ClassVar[Mapping[str, object]] = {}
    predicting_part: ClassVar[str] = ""  # submodule of the network that predicts; "" for all of it

    @classmethod
    def reference(cls) -> str:
        """Its paper in a few words: "Lv et al., ICML 2020"."""
        short = []
        for citation in cls.citation.split("; "):
            authors, rest = citation.split(": ", 1)
            first, *others = authors.split(", ")
            short.append(f"{first}{' et al.' if others else ''}, {rest.rsplit('. ', 1)[1]}")
        return "; ".join(short)

    @classmethod
    def paper(cls) -> Self:
        """What produced the published tables; the plain constructor unless a method says other."""
        return cls()

    @classmethod
    def stacked(cls, methods: Sequence[Self]) -> Self:
        """One method for a bundle of runs: numbers may differ between runs, all else must agree.

        Where they differ, the result has one number for each member of each run. It is made to be
        fitted on a task of as many runs, not to be changed further.
        """
        kinds = {type(method).__name__ for method in methods}
        if len(kinds) != 1:
            msg = f"A bundle needs one method or more, all of one class; found {sorted(kinds)}."
            raise InputError(msg)
        first = methods[0]
        joined = copy.copy(first)
        for name in cls.field_names():
            values = [getattr(method, name) for method in methods]
            if all(value == values[0] for value in values):
                continue
            if name not in first.number_names():
                msg = (
                    f"Methods of one bundle must agree in {name!r}; found {values}. Only numbers "
                    f"may differ: {', '.join(first.number_names()) or 'this method has none'}."
                )
                raise InputError(msg)
            object.__setattr__(joined, name, tuple(v for m in methods for v in m.per_member(name)))
        return joined

    @abstractmethod
    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        """Learn from the runs of a task.

        With `watch`, other rows of the same runs, the epoch counts that fits their candidates best.
        """

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(each.name for each in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def number_names(cls) -> tuple[str, ...]:
        """The fields that may differ between models."""
        hints = get_type_hints(cls, include_extras=True)
        return tuple(name for name in cls.field_names() if hints[name] == Number)

    def per_member(self, name: str) -> tuple[float, ...]:
        """A number's value for each member of one run."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * getattr(self, "members", 1)


@dataclass(frozen=True)
class DeepMethod(Method):
    """A method that trains networks by the engine; it says what one step computes.

    The rule for authors: reduce over the last axis, return one loss per row, let hyperparameters
    broadcast. Then code for one model is code for M models.
    """

    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    members: int = 1
    network: Network = "mlp"
    precision: Literal["auto", "float32", "bf16"] = "auto"
    # Share of the epochs, the last ones: a network ends as the mean of those after each of them.
    averaged: float = 0.0
    added_fields: ClassVar[Mapping[str, object]] = {"averaged": 0.0}

    step_cost: ClassVar[float] = 1.0  # time of a network's step, relative to RobustPll
    captured: ClassVar[bool] = True  # False: a step cannot be a CUDA graph, and runs eagerly
    compilable: ClassVar[bool] = True  # False: torch.compile does not take a step
    attacked_jointly: ClassVar[bool] = False  # members are one function, and attacked as one
    warm_up: ClassVar[int] = 0  # epochs before the others, whose steps are of a stage of their own
    restarts: ClassVar[bool] = False  # whether the optimiser starts anew after the warm-up
    trains_twice: ClassVar[bool] = False  # its fit is more than one training by the engine

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def like(cls, other: "DeepMethod") -> Self:
        """This method with what it shares with another: epochs, batches, rates, network."""
        return cls(**{each.name: getattr(other, each.name) for each in fields(DeepMethod)})

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        return train(self, task, watch=watch)

    def spread(self, models: int, like: Tensor) -> Self:
        """A copy in which each number is a tensor (M, 1), so that it broadcasts against rows."""
        own = copy.copy(self)
        for name in self.number_names():
            values = self.per_member(name)
            if len(values) == self.members:
                values *= models // self.members  # the same members for every run
            if len(values) != models:
                msg = (
                    f"{name!r} has {len(values)} values, for a bundle of {models} models: stack as "
                    "many methods as the task has runs."
                )
                raise InputError(msg)
            object.__setattr__(own, name, like.new_tensor(values)[:, None])
        return own

    def part(self, runs: slice, of: int) -> Self:
        """The method for some of the runs of a bundle, whose numbers may be joined ones."""
        own = copy.copy(self)
        for name in self.number_names():
            values = self.per_member(name)
            if len(values) == of * self.members:
                start, stop, _ = runs.indices(of)
                each = values[start * self.members : stop * self.members]
                object.__setattr__(own, name, each)
        return own

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        """Networks with a model axis, (M, b, *shape) -> logits (M, b, k)."""
        return build_network(self.network, shape, k, draws)

    def begin(self, task: Task) -> State:
        """What changes while training."""
        return State.of(task)

    @property
    def total_epochs(self) -> int:
        """Of the whole training, a warm-up included."""
        return self.warm_up + self.epochs

    def stage(self, epoch: int) -> int:
        """Which code a step of this epoch runs."""
        return WARM_UP if epoch < self.warm_up else MAIN

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        """Random numbers for a step on so many rows of a shape, (M, rows, ...): `batch.drawn`.

        They are drawn before the step, as torch's compiler takes no generator.
        """
        return None

    @abstractmethod
    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss per row (M, b), and the row state to write back after the optimiser's step."""

    @property
    def second_pass(self) -> bool:
        """Whether row state comes from `after_step`, rather than from `step`."""
        return False

    def after_step(self, net: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Row state that needs the network as it is after the optimiser's step."""
        return {}

    def end_epoch(self, training: "Training", epoch: int) -> None:
        """What happens between epochs.

        Row state and `state.memory` must be tensors, and be changed in place: a captured step goes
        on with the tensors it was recorded with.
        """

    def finish(self, task: Task, state: State, logits: Callable[[], Tensor]) -> None:
        """Label weights that only the trained network gives; it is in evaluation mode."""

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Adam with decoupled weight decay; plain Adam if that is 0."""
        parameters = list(parameters)
        # On a CPU the fused step rounds the last few numbers of a tensor unlike the others, so a
        # model alone and in a bundle would differ; float64 is there for those who compare bits.
        fused = all(parameter.dtype != torch.float64 for parameter in parameters)
        return AdamW(
            parameters,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            fused=fused,
            capturable=parameters[0].is_cuda,
        )

    def outputs(self, net: nn.Module, x: Tensor, seeds: tuple[int, ...]) -> Tensor:
        """What an opinion is made of, (M, b, k): logits, in evaluation mode.

        A method that draws numbers here draws the same for any rows, by the models' seeds.
        """
        logits: Tensor = net(x)
        return logits

    def with_passes(self, passes: int) -> Self:
        """The method for those who need a gradient through `outputs`, with fewer random passes."""
        return self

    def opinion(self, logits: Tensor) -> Opinion:
        """Of rows with these outputs (M, n, k)."""
        return Opinion.of_probability(logits.softmax(-1))

    def scores(self, outputs: Tensor) -> Tensor:
        """For attacks, what softmax turns into the opinion's probability, (M, b, k).

        An evidential method gives ln of its Dirichlet parameters.
        """
        return outputs.log_softmax(-1)

    def training_opinion(self, task: Task, state: State) -> Opinion:
        """Of the training rows."""
        uncertainty = state.rows.get("uncertainty")
        if uncertainty is not None:
            uncertainty = uncertainty[..., 0].double()
        weights = state.rows["label_weights"].double()
        return Opinion.of_probability(weights, uncertainty, task.prior.double())


AT_LEAST: dict[str, int] = {
    "epochs": 1,
    "batch_size": 2,
    "members": 1,
    "neighbours": 1,
    "attack_steps": 1,
}


def check_fields(method: Method) -> None:
    """The one place where hyperparameters are validated; by their annotations."""
    hints = get_type_hints(type(method), include_extras=True)
    for name in method.field_names():
        value = getattr(method, name)
        sound, rule = _rule(name, value, hints[name], getattr(method, "members", 1))
        if not sound:
            msg = f"The {name!r} of {type(method).__name__} must be {rule}. Got {value!r} instead."
            raise InputError(msg)


def _rule(name: str, value: Any, hint: Any, members: int) -> tuple[bool, str]:
    """Whether a value is legal, and what is."""
    if hint is bool:
        return isinstance(value, bool), "True or False"
    if hint in (int, float, Number):
        return _rule_for_numbers(name, value, hint, members)
    if get_origin(hint) is Literal:
        legal = get_args(hint)
        return isinstance(value, str) and value in legal, f"one of {', '.join(map(repr, legal))}"
    if hint == Network:
        sound = callable(value) or (isinstance(value, str) and value in NETWORK_NAMES)
        return sound, f"{', '.join(map(repr, NETWORK_NAMES))}, or a callable (shape, k) -> module"
    msg = f"No rule is written for fields of type {hint!r}, such as {name!r}."
    raise TypeError(msg)


def _rule_for_numbers(name: str, value: Any, hint: Any, members: int) -> tuple[bool, str]:
    if hint is int:
        least = AT_LEAST.get(name, 0)
        return _is_int(value) and value >= least, f"an int of at least {least}"
    if name == "learning_rate":
        return _is_number(value) and value > 0, "a float above 0"
    if name in ("averaged", "balance"):
        return _is_number(value) and 0 <= value <= 1, "a float from 0 to 1"
    if hint is float:
        return _is_number(value) and value >= 0, "a float of at least 0"
    each = value if isinstance(value, tuple) else (value,)
    fits = not isinstance(value, tuple) or len(value) == members
    rule = f"{Number.__metadata__[0]} (members={members})"
    return fits and all(_is_number(v) and v >= 0 for v in each), rule


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and math.isfinite(value)
