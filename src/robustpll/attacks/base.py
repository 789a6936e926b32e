"""Small changes of the input that are meant to fool a network, for all models at once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from robustpll.attacks.bounds import Reach, expanded, per_feature
from robustpll.engine.random import Draws
from robustpll.errors import InputError

Outputs = Callable[[Tensor], Tensor]  # (M, b, *shape) -> (M, b, k), to be read as logits


@dataclass(frozen=True)
class Attack(ABC):
    """Turns scaled features into attacked ones; this is what all attacks have in common.

    Parameters
    ----------
    epsilon : float or array
        How far each scaled feature may move; an array is broadcast to one row.
    labels : {"current", "clean", "true"}
        Which class to move away from: the one predicted at the moment, read anew in each step, as
        in the published experiments; the one predicted for the unchanged row; or the true one,
        which must then be passed.
    target : {"logits", "probabilities"}
        What the attack reads: the network's last layer, whatever the method makes of it, as in the
        published experiments; or the probabilities that the method predicts.
    joint : bool
        Whether the members of an ensemble are attacked together, and all see the same row. Without,
        each is handed a row that was made for it alone, as in the published experiments; no such
        input exists outside of them. Together means the mean of the members' logits or
        probabilities, by `target`. The prediction is the mean of the probabilities, so only
        ``target="probabilities"`` attacks what an ensemble is judged by.
    clip : (low, high) or None
        Range that features must not leave, numbers or arrays broadcast to one row; min-max scaled
        training rows lie in [0, 1].
    outside : {"clipped", "kept"}
        What becomes of a feature that lies outside the range from the start: it is moved into it,
        however far that is, as in the published experiments; or it may stay, and moves by no more
        than epsilon.
    fixed : bool array or None
        True for features that an attacker cannot change, broadcast to one row.
    precision : {"float32", "float64"}
        "float64" attacks a copy of the network in float64, where fewer gradients underflow to 0.
    passes : int
        For a method that predicts by a mean over random passes, how many of them the attack reads,
        if it reads probabilities.
    """

    epsilon: float | ArrayLike
    _: KW_ONLY
    labels: Literal["current", "clean", "true"] = "current"
    target: Literal["logits", "probabilities"] = "logits"
    joint: bool = False
    clip: tuple[ArrayLike, ArrayLike] | None = (0.0, 1.0)
    outside: Literal["clipped", "kept"] = "clipped"
    fixed: ArrayLike | None = None
    precision: Literal["float32", "float64"] = "float32"
    passes: int = 20

    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_fields(self)

    @property
    def needs_evidence(self) -> bool:
        """Whether only a method that predicts by evidence can be attacked so."""
        return False

    def __call__(
        self, outputs: Outputs, x: Tensor, draws: Draws, truth: Tensor | None = None
    ) -> Tensor:
        """Attacked features (M, b, *shape); `truth` holds true labels (M, b), if known."""
        return self.at_each((self.epsilon,), outputs, x, draws, truth)

    def at_each(
        self,
        epsilons: Sequence[float | ArrayLike],
        outputs: Outputs,
        x: Tensor,
        draws: Draws,
        truth: Tensor | None = None,
    ) -> Tensor:
        """Attacked features for E epsilons instead of the own, (M, E b, *shape), at one go.

        All rows under the first epsilon come first. What is drawn is the same for each epsilon.
        """
        reach = self.reach_at_each(epsilons, x)
        if not any(np.any(epsilon) for epsilon in epsilons):
            return reach.x
        if self.labels == "true" and truth is None:
            msg = f"{type(self).__name__}(labels='true') needs the true labels of the rows. "
            raise InputError(msg + "Pass labels=.")
        away_from = truth if self.labels == "true" else None
        if self.labels == "clean":
            away_from = outputs(x).argmax(-1)
        if away_from is not None:
            away_from = reach.for_each(away_from)
        return self.moved(outputs, reach, draws, away_from)

    def reach_at_each(self, epsilons: Sequence[float | ArrayLike], x: Tensor) -> Reach:
        return Reach.joined([replace(self, epsilon=epsilon).reach(x) for epsilon in epsilons])

    def reach(self, x: Tensor) -> Reach:
        """Where the features x (M, b, *shape) may go; nowhere if epsilon is 0."""
        exact = per_feature("epsilon", self.epsilon, x)
        if not np.any(self.epsilon):
            return Reach(x, x, x, exact)
        epsilon = exact.to(x)
        low, high = x - epsilon, x + epsilon
        if self.clip is not None:
            least, most = (per_feature("clip", end, x).to(x).expand_as(x) for end in self.clip)
            if self.outside == "kept":
                least, most = torch.minimum(least, x), torch.maximum(most, x)
            low, high = low.clamp(least, most), high.clamp(least, most)
        if self.fixed is not None:
            fixed = per_feature("fixed", self.fixed, x) > 0
            low, high = torch.where(fixed, x, low), torch.where(fixed, x, high)
        return Reach(x, low, high, exact)

    @abstractmethod
    def moved(self, outputs: Outputs, reach: Reach, draws: Draws, labels: Tensor | None) -> Tensor:
        """Attacked features within reach; `labels` (M, b) are to be moved away from, None: any."""


@dataclass(frozen=True)
class PGD(Attack):
    """Projected gradient ascent (Madry et al., 2018); as it stands, the published attack.

    Its labels are weak: with those of the moment it oscillates around the nearest boundary, and may
    end where it began. `AutoPGD` with the true labels is an attack to judge a method by.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of every `Attack`.
    steps : int
        Number of steps, each of ``epsilon / steps``.
    loss : {"cross-entropy", "margin", "evidential"}
        What is to rise: cross-entropy; the logit of the best other class less that of the label,
        which never saturates; or the expected squared error under the Dirichlet distribution of the
        evidence, which evidential methods train with (this needs ``target="probabilities"``).
    restarts : int
        How often to begin anew, if ``keep="worst"``.
    keep : {"last", "worst"}
        Hand back the last point, or for each row the one with the largest margin, over all steps
        and restarts.
    random_start : bool
        Begin at a uniformly drawn point within reach, rather than at the row itself.

    Examples
    --------
    With the class fixed the row is fooled; with the momentary class it is not, although the
    boundary is crossed eight times:

    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> draws = Draws.of([0], like=x)
    >>> PGD(0.1, labels="clean", random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    >>> PGD(0.1, random_start=False)(lambda x: x, x, draws)
    tensor([[[0.5800, 0.5730]]], dtype=torch.float64)
    """

    _: KW_ONLY
    steps: int = 10
    loss: Literal["cross-entropy", "margin", "evidential"] = "cross-entropy"
    restarts: int = 1
    keep: Literal["last", "worst"] = "last"
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        unsound = {
            "keep='worst' needs labels that stay: 'clean' or 'true'": (
                self.keep == "worst" and self.labels == "current"
            ),
            "restarts above 1 need keep='worst' and a random start": (
                self.restarts > 1 and (self.keep == "last" or not self.random_start)
            ),
            "loss='evidential' needs target='probabilities'": (
                self.loss == "evidential" and self.target == "logits"
            ),
        }
        for rule, broken in unsound.items():
            if broken:
                raise InputError(f"{rule}. Got {self!r}.")

    @property
    def needs_evidence(self) -> bool:
        return self.loss == "evidential"

    def moved(self, outputs: Outputs, reach: Reach, draws: Draws, labels: Tensor | None) -> Tensor:
        worst = None
        for _ in range(self.restarts):
            start = reach.somewhere(draws) if self.random_start else reach.x
            found = self.climb(outputs, reach, start, labels)
            worst = found if worst is None else worst.or_worse(found)
        assert worst is not None
        return worst.x

    def climb(
        self, outputs: Outputs, reach: Reach, start: Tensor, labels: Tensor | None
    ) -> "Point":
        """One ascent: its last point, or its worst."""
        size = (reach.epsilon / self.steps).to(reach.x)
        point = worst = self.look(outputs, reach, start, labels)
        for step in range(1, self.steps + 1):
            x = reach.project(torch.addcmul(point.x, size, point.uphill))
            if self.keep == "worst":
                point = self.look(outputs, reach, x, labels)
                worst = worst.or_worse(point)
            elif step < self.steps:
                point = self.look(outputs, reach, x, labels)
            else:
                worst = replace(point, x=x)
        return worst

    def look(self, outputs: Outputs, reach: Reach, x: Tensor, labels: Tensor | None) -> "Point":
        """The loss at x (M, E b, *shape), and which way it rises."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            found = outputs(x)
            labels = found.argmax(-1) if labels is None else labels
            loss = LOSSES[self.loss](found, labels)
            # The mean over rows has a part in the published numbers: it underflows before a sum.
            mean = torch.unflatten(loss, -1, (reach.strengths, -1)).mean(-1)
            (gradient,) = torch.autograd.grad(mean.sum(), x)
        return Point(x.detach(), gradient.sign(), loss.detach(), margin(found.detach(), labels))


@dataclass(frozen=True)
class Point:
    """What an ascent knows of where it is."""

    x: Tensor  # (M, b, *shape)
    uphill: Tensor  # (M, b, *shape): sign of the gradient
    loss: Tensor  # (M, b)
    margin: Tensor  # (M, b): above 0 where a row is fooled

    def or_worse(self, other: "Point") -> "Point":
        """Of each row the one with the larger margin."""
        return self.where(other.margin > self.margin, other)

    def where(self, rows: Tensor, other: "Point") -> "Point":
        """The other one for some of the rows (M, b)."""
        wide = expanded(rows, self.x)
        return Point(
            torch.where(wide, other.x, self.x),
            torch.where(wide, other.uphill, self.uphill),
            torch.where(rows, other.loss, self.loss),
            torch.where(rows, other.margin, self.margin),
        )


def uphill(loss_of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Which way the loss of each row rises: the sign of its gradient, of the shape of x.

    >>> uphill(lambda x: (x - 1).square().sum(-1), torch.tensor([[0.0, 3, 1]]))
    tensor([[-1.,  1.,  0.]])
    """
    if torch.compiler.is_compiling():  # where plain autograd is not to be had
        slope: Tensor = torch.func.grad(lambda x: loss_of(x).sum())(x).detach()
    else:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss_of(x).sum(), x)
    return slope.sign()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(M, b, k) and (M, b) -> (M, b)."""
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return loss.view(labels.shape)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Logit of the best other class less that of the label; above 0 if the row is fooled.

    >>> margin(torch.tensor([[[4.0, 1, 3]]]), torch.tensor([[0]]))
    tensor([[-1.]])
    """
    at = labels[..., None]
    others = logits.scatter(-1, at, -torch.inf).amax(-1)
    return others - logits.gather(-1, at)[..., 0]


def evidential_error_to(scores: Tensor, labels: Tensor) -> Tensor:
    """Expected squared error to the label, of scores that are ln of Dirichlet parameters a.

    sum_j (y_j - p_j)^2 + p_j (1 - p_j) / (A + 1), with A = sum a and p = a / A.

    >>> evidence = torch.tensor([[[4.0, 1, 1]]])
    >>> evidential_error_to((evidence + 1).log(), torch.tensor([[0]]))
    tensor([[0.3556]])
    """
    p = scores.softmax(-1)
    spread = 1 / (1 + scores.logsumexp(-1, keepdim=True).exp())
    wanted = F.one_hot(labels, p.shape[-1])
    return ((wanted - p).square() + p * (1 - p) * spread).sum(-1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "margin": margin,
    "evidential": evidential_error_to,
}


def _check_fields(attack: Attack) -> None:
    """By their annotations; whether arrays fit the rows is seen when there are some."""
    hints = get_type_hints(type(attack))
    for field in fields(attack):
        value = getattr(attack, field.name)
        sound, rule = _rule(field.name, value, hints[field.name])
        if not sound:
            name = f"{type(attack).__name__}({field.name}={value!r})"
            raise InputError(f"{name}: {field.name} must be {rule}.")


def _rule(name: str, value: Any, hint: Any) -> tuple[bool, str]:
    """Whether a value is legal, and what is."""
    if get_origin(hint) is Literal:
        return value in get_args(hint), f"one of {get_args(hint)}"
    if hint is bool:
        return isinstance(value, bool), "True or False"
    if hint is int:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return whole and value >= 1, "an int of at least 1"
    if name == "epsilon":
        return _all_numbers(value) and bool((np.asarray(value) >= 0).all()), (
            "a number of at least 0, or an array of them"
        )
    if name == "clip" and value is not None:
        pair = isinstance(value, tuple | list) and len(value) == 2 and all(map(_all_numbers, value))
        return pair and bool(np.all(np.less(*value))), "None or (low, high)"
    flags = value is None or np.asarray(value).dtype == bool
    return name != "fixed" or flags, "None or an array of True and False"


def _all_numbers(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
