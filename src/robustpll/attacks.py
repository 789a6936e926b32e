"""Adversarial attacks for all models at once; they need only a function from rows to scores.

PGD is the published attack. Use Auto-PGD to judge a method, and Square if there is no gradient.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial, reduce
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from robustpll.engine.random import Draws
from robustpll.errors import AT_LEAST_1, InputError, Rule, check_fields

MOMENTUM = 0.75  # share of the new direction, and of the steps that must have raised the loss
# Square halves the changed part of a row after these shares of the queries.
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)

Outputs = Callable[[Tensor], Tensor]  # (M, b, *shape) -> (M, b, k), read as logits
Evaluate = Callable[[Tensor], "Point"]  # of features (M, b, *shape)
Labels = Literal["current", "clean", "true"]
Target = Literal["logits", "probabilities"]
Outside = Literal["clipped", "kept"]
Loss = Literal["cross-entropy", "margin", "evidential"]
Count = Annotated[int, AT_LEAST_1]


def _all_finite(value: Any, least: float = -math.inf) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and bool((np.isfinite(array) & (array >= least)).all())


def _is_range(value: Any) -> bool:
    try:  # arrays may not fit each other
        low, high = map(np.asarray, value)
        return _all_finite(low) and _all_finite(high) and bool((low < high).all())
    except (TypeError, ValueError):
        return False


SIZE = Rule("a number of at least 0, or an array of them", partial(_all_finite, least=0))
RANGE = Rule("None or (low, high)", lambda value: value is None or _is_range(value))
MASK = Rule("None or an array of bool", lambda mask: mask is None or np.asarray(mask).dtype == bool)


@dataclass(frozen=True)
class Bounds:
    """The box that each attacked row must stay in, for E epsilons; tensors are (M, E b, *shape)."""

    x: Tensor
    low: Tensor
    high: Tensor
    epsilon: Tensor  # float64, broadcasts to (E b, *shape)
    count: int = 1  # E

    @property
    def rows(self) -> int:
        return self.x.shape[1] // self.count

    def tile(self, values: Tensor) -> Tensor:
        """Repeat values (M, b, ...) for every epsilon: (M, E b, ...)."""
        return values if self.count == 1 else torch.cat([values] * self.count, 1)

    def project(self, x: Tensor) -> Tensor:
        return x.clamp(self.low, self.high)

    def random_point(self, draws: Draws) -> Tensor:
        """Draw uniformly within epsilon, then project into the box."""
        noise = 2 * draws.uniform(self.rows, *self.x.shape[2:]).to(self.x) - 1
        return self.project(self.x + self.epsilon.to(self.x) * self.tile(noise))


@dataclass(frozen=True)
class Attack(ABC):
    """Turns scaled features into attacked ones; `PGD` describes the fields of all attacks."""

    epsilon: Annotated[float | ArrayLike, SIZE]
    _: KW_ONLY
    labels: Labels = "current"
    target: Target = "logits"
    joint: bool = False
    clip: Annotated[tuple[ArrayLike, ArrayLike] | None, RANGE] = (0.0, 1.0)
    outside: Outside = "clipped"
    fixed: Annotated[ArrayLike | None, MASK] = None
    precision: Literal["float32", "float64"] = "float32"
    passes: Count = 20

    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(
        self,
        outputs: Outputs,
        x: Tensor,
        draws: Draws,
        truth: Tensor | None = None,
        epsilons: Sequence[float | ArrayLike] | None = None,
    ) -> Tensor:
        """Return attacked features (M, b, *shape); `truth` holds true labels (M, b), if known.

        E epsilons replace the attack's own, and share draws: the result is (M, E b, *shape).
        """
        epsilons = (self.epsilon,) if epsilons is None else epsilons
        bounds = self.bounds(x, epsilons)
        if not any(np.any(epsilon) for epsilon in epsilons):
            return bounds.x
        if self.labels == "current":
            return self.perturb(outputs, bounds, draws, None)
        labels = outputs(x).argmax(-1) if self.labels == "clean" else truth
        if labels is None:
            raise InputError("labels='true' needs the true labels of the rows. Pass labels=.")
        return self.perturb(outputs, bounds, draws, bounds.tile(labels))

    def bounds(self, x: Tensor, epsilons: Sequence[float | ArrayLike]) -> Bounds:
        """Return the box for features x (M, b, *shape) under each epsilon; for 0 it is x alone."""
        sizes = [per_feature("epsilon", size, x) for size in epsilons]
        shape = np.broadcast_shapes((1,) * (x.ndim - 2), *(size.shape for size in sizes))
        exact = torch.stack([size.expand(shape) for size in sizes])  # (E, ...)
        exact = exact.repeat_interleave(x.shape[1], 0)  # (E b, ...)
        still = ~(exact > 0).flatten(1).any(1)
        x = torch.cat([x] * len(sizes), 1)
        low, high = x - exact.to(x), x + exact.to(x)
        if self.clip is not None:
            least, most = (per_feature("clip", end, x).to(x).expand_as(x) for end in self.clip)
            if self.outside == "kept":
                least, most = torch.minimum(least, x), torch.maximum(most, x)
            low, high = low.clamp(least, most), high.clamp(least, most)
        fixed = expand(still[None], x)
        if self.fixed is not None:
            fixed = fixed | (per_feature("fixed", self.fixed, x) > 0)
        low, high = torch.where(fixed, x, low), torch.where(fixed, x, high)
        return Bounds(x, low, high, exact, len(sizes))

    @abstractmethod
    def perturb(self, outputs: Outputs, box: Bounds, draws: Draws, labels: Tensor | None) -> Tensor:
        """Return features moved away from `labels` (M, b), by default the current prediction."""


def per_feature(name: str, value: ArrayLike, x: Tensor) -> Tensor:
    """Convert a number or an array to a float64 tensor that broadcasts to rows (M, b, *shape)."""
    array, shape = np.asarray(value), tuple(x.shape[2:])
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        msg = f"{name} has shape {array.shape}, but one row has shape {shape}. "
        raise InputError(msg + "Pass one value, or one for each feature.") from None
    return torch.tensor(array, dtype=torch.float64, device=x.device)


def expand(values: Tensor, x: Tensor) -> Tensor:
    """(M, b) -> (M, b, 1, ...), to be broadcast against features x (M, b, *shape)."""
    return values.view(*values.shape, *(1 for _ in x.shape[2:]))


def sign_of_gradient(loss_of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the sign of the gradient of each row's loss, in the shape of x."""
    if torch.compiler.is_compiling():  # plain autograd is not available there
        gradient: Tensor = torch.func.grad(lambda x: loss_of(x).sum())(x).detach()
    else:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss_of(x).sum(), x)
    return gradient.sign()


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(M, b, k) and (M, b) -> (M, b)."""
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return loss.view(labels.shape)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Logit of the best other class minus that of the label; positive if the row is fooled."""
    index = labels[..., None]
    others = logits.scatter(-1, index, -torch.inf).amax(-1)
    return others - logits.gather(-1, index)[..., 0]


def evidential_error_to(scores: Tensor, labels: Tensor) -> Tensor:
    """As `methods.evidential.evidential_error`, of scores that are ln of Dirichlet parameters."""
    p = scores.softmax(-1)
    spread = 1 / (1 + scores.logsumexp(-1, keepdim=True).exp())
    target = F.one_hot(labels, p.shape[-1])
    return ((target - p).square() + p * (1 - p) * spread).sum(-1)


LOSSES = {"cross-entropy": cross_entropy, "margin": margin, "evidential": evidential_error_to}


class Point(NamedTuple):
    x: Tensor  # (M, b, *shape)
    direction: Tensor  # (M, b, *shape): sign of the gradient
    loss: Tensor  # (M, b)
    margin: Tensor  # (M, b): positive where a row is fooled

    def or_larger_margin(self, other: "Point") -> "Point":
        return self.where(other.margin > self.margin, other)

    def where(self, rows: Tensor, other: "Point") -> "Point":
        """The other point for the rows (M, b) that are True."""
        pairs = zip(self, other, strict=True)
        return Point(*(torch.where(expand(rows, mine), theirs, mine) for mine, theirs in pairs))


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Projected gradient ascent (Madry et al., 2018); the defaults are the published attack.

    The default labels make it weak: it oscillates around the nearest boundary and may end where it
    began. Use `AutoPGD` with the true labels to judge a method.

    Parameters
    ----------
    epsilon : float or array
        Largest change of each scaled feature; an array is broadcast to one row.
    labels : {"current", "clean", "true"}
        The class to move away from: the one predicted in each step, as published; the one
        predicted for the unchanged row; or the true class, which must then be passed.
    target : {"logits", "probabilities"}
        What it reads: the network's last layer, as published, or the predicted probabilities.
    joint : bool
        Whether all members of an ensemble see the same row. Otherwise each gets its own, as
        published; no real input does that. With ``target="probabilities"``, their mean is attacked.
    clip : (low, high) or None
        Valid range of the features, as numbers or arrays; min-max scaled rows lie in [0, 1].
    outside : {"clipped", "kept"}
        Move features outside the range into it, as published, or change them by up to epsilon.
    fixed : bool array or None
        True for features that an attacker cannot change, broadcast to one row.
    precision : {"float32", "float64"}
        "float64" attacks a float64 copy of the network, where fewer gradients underflow to 0.
    passes : int
        Number of random forward passes to average, for methods that predict by such a mean.
    steps : int
        Number of steps, each of size ``epsilon / steps``.
    loss : {"cross-entropy", "margin", "evidential"}
        The loss to raise: cross-entropy; the logit of the best other class minus that of the label,
        which never saturates; or the expected squared error that evidential methods train with
        (this needs ``target="probabilities"``).
    restarts : int
        Number of random starts, if ``keep="worst"``.
    keep : {"last", "worst"}
        Return the last point, or the point of largest margin over all steps and restarts.
    random_start : bool
        Start at a uniformly drawn point within bounds, rather than at the row itself.

    Examples
    --------
    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> PGD(0.1, labels="clean", random_start=False)(lambda x: x, x, Draws.of([0], like=x))
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    """

    steps: Count = 10
    loss: Loss = "cross-entropy"
    restarts: Count = 1
    keep: Literal["last", "worst"] = "last"
    random_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep == "worst" and self.labels == "current":
            raise InputError(f"keep='worst' needs labels='clean' or 'true'. Got {self!r}.")
        if self.restarts > 1 and (self.keep == "last" or not self.random_start):
            raise InputError(f"restarts above 1 need keep='worst', random_start. Got {self!r}.")
        if self.loss == "evidential" and self.target == "logits":
            raise InputError(f"loss='evidential' needs target='probabilities'. Got {self!r}.")

    def perturb(self, outputs: Outputs, box: Bounds, draws: Draws, labels: Tensor | None) -> Tensor:
        evaluate, restarts = partial(self.evaluate, outputs, box, labels), range(self.restarts)
        starts = (box.random_point(draws) if self.random_start else box.x for _ in restarts)
        ends = (self.ascend(evaluate, box, start) for start in starts)
        return reduce(Point.or_larger_margin, ends).x

    def ascend(self, evaluate: Evaluate, bounds: Bounds, start: Tensor) -> Point:
        """Run one ascent and return its last point, or its worst."""
        size = (bounds.epsilon / self.steps).to(bounds.x)
        point = worst = evaluate(start)
        for step in range(1, self.steps + 1):
            x = bounds.project(torch.addcmul(point.x, size, point.direction))
            if self.keep == "last" and step == self.steps:
                return point._replace(x=x)  # its gradient is not needed
            point = evaluate(x)
            if self.keep == "worst":
                worst = worst.or_larger_margin(point)
        return worst

    def evaluate(self, outputs: Outputs, bounds: Bounds, labels: Tensor | None, x: Tensor) -> Point:
        """Compute loss, gradient sign and margin at x (M, E b, *shape)."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            logits = outputs(x)
            labels = logits.argmax(-1) if labels is None else labels
            loss = LOSSES[self.loss](logits, labels)
            # The published numbers need the mean over rows: it underflows before a sum does.
            mean = torch.unflatten(loss, -1, (bounds.count, -1)).mean(-1)
            (gradient,) = torch.autograd.grad(mean.sum(), x)
        return Point(x.detach(), gradient.sign(), loss.detach(), margin(logits.detach(), labels))


@dataclass(frozen=True, kw_only=True)
class AutoPGD(PGD):
    """Auto-PGD (Croce & Hein, ICML 2020): each row starts with long steps and adapts their size.

    The first step has twice the length of epsilon. At checkpoints, a row returns to its best point
    and halves its step if its loss rose in fewer than three quarters of the steps, or if it found
    nothing better with an unchanged step. The defaults attack the prediction: the margin between
    the true class and the best other one, in the mean probability of the members.

    It has the parameters of `PGD`, and always keeps the worst point.

    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> AutoPGD(0.1, labels="clean")(lambda x: x, x, Draws.of([0], like=x))
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    """

    labels: Labels = "true"
    target: Target = "probabilities"
    joint: bool = True
    outside: Outside = "kept"
    steps: Count = 50
    loss: Loss = "margin"
    keep: Literal["worst"] = "worst"

    def ascend(self, evaluate: Evaluate, bounds: Bounds, start: Tensor) -> Point:
        point = best = worst = evaluate(start)
        previous, epsilon = start, bounds.epsilon.to(start)
        size = torch.full_like(point.loss, 2.0)  # (M, b), in units of epsilon
        halved = torch.zeros_like(size, dtype=torch.bool)  # at the last checkpoint
        rises, best_loss, since = torch.zeros_like(size), best.loss, 0
        for step in range(1, self.steps + 1):
            ahead = bounds.project(point.x + expand(size, start) * epsilon * point.direction)
            share = MOMENTUM if step > 1 else 1.0
            x = point.x + share * (ahead - point.x) + (1 - share) * (point.x - previous)
            last, previous = point, point.x
            point = evaluate(bounds.project(x))
            worst = worst.or_larger_margin(point)
            rises = rises + (point.loss > last.loss)
            best = best.where(point.loss > best.loss, point)
            since += 1
            if step in checkpoints(self.steps):
                stalled = ~halved & (best.loss <= best_loss)
                halved = (rises < MOMENTUM * since) | stalled
                size = torch.where(halved, size / 2, size)
                point = point.where(halved, best)
                previous = torch.where(expand(halved, start), best.x, previous)
                rises, best_loss, since = torch.zeros_like(size), best.loss, 0
        return worst


def checkpoints(steps: int) -> set[int]:
    """Steps after which the step size is adapted: shares 0.22, 0.41, 0.57, ... of all steps."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return {math.ceil(share * steps) for share in shares[1:] if share <= 1}


@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    """Square attack (Andriushchenko et al., ECCV 2020): random search on outputs alone.

    Every feature is always at its lower or upper bound. A query moves some features to a random
    bound, and is kept for the rows whose margin it raises. In a picture it moves a square, each
    channel to one bound; in a table it moves random features independently. It attacks any method,
    including those without a network.

    Parameters
    ----------
    epsilon, labels, target, joint, clip, outside, fixed, precision, passes
        As of `PGD`; labels must be "clean" or "true".
    queries : int
        Number of times the outputs are computed.
    part : float
        Share of a row that the first queries change.

    Examples
    --------
    >>> x = torch.tensor([[[0.6, 0.553]]], dtype=torch.float64)
    >>> Square(0.1, labels="clean", queries=50)(lambda x: x, x, Draws.of([0], like=x))
    tensor([[[0.5000, 0.6530]]], dtype=torch.float64)
    """

    labels: Literal["clean", "true"] = "true"
    target: Target = "probabilities"
    joint: bool = True
    outside: Outside = "kept"
    queries: Count = 1000
    part: Annotated[float, Rule("above 0 and at most 1", lambda part: 0 < part <= 1)] = 0.8

    needs_gradient: ClassVar[bool] = False

    def perturb(self, outputs: Outputs, box: Bounds, draws: Draws, labels: Tensor | None) -> Tensor:
        assert labels is not None
        best = _corner(box, draws, stripes=True)
        best_margin = margin(outputs(best), labels)  # (M, b)
        for query in range(1, self.queries):
            share = self.part / 2 ** sum(query > after * self.queries for after in HALVINGS)
            changed = box.tile(_changed_features(box, share, draws))
            trial = torch.where(changed, _corner(box, draws), best)
            trial_margin = margin(outputs(trial), labels)
            better = trial_margin > best_margin
            best = torch.where(expand(better, best), trial, best)
            best_margin = torch.where(better, trial_margin, best_margin)
        return best


def _corner(bounds: Bounds, draws: Draws, *, stripes: bool = False) -> Tensor:
    """Each feature, or channel or column (`stripes`) of a picture, at a random bound."""
    shape = list(bounds.x.shape[2:])
    if len(shape) >= 2:
        shape = [*shape[:-2], 1, shape[-1] if stripes else 1]
    up = bounds.tile(draws.uniform(bounds.rows, *shape) < 0.5)
    return torch.where(up, bounds.high, bounds.low)


def _changed_features(bounds: Bounds, share: float, draws: Draws) -> Tensor:
    """Mask (M, b, *shape) of about that share of the features, at least one."""
    x, b, shape = bounds.x, bounds.rows, list(bounds.x.shape[2:])
    if len(shape) < 2:
        count = max(1, round(share * x[0, 0].numel()))
        return draws.uniform(b, *shape).argsort(-1).argsort(-1) < count
    height, width = shape[-2:]
    side = min(max(1, round((share * height * width) ** 0.5)), height, width)
    room = x.new_tensor([height - side + 1, width - side + 1])
    top, left = (draws.uniform(b, 2).to(x) * room).long().unbind(-1)  # (M, b) each
    rows, columns = (torch.arange(size, device=x.device) for size in (height, width))
    down = (rows >= top[..., None]) & (rows < top[..., None] + side)  # (M, b, height)
    across = (columns >= left[..., None]) & (columns < left[..., None] + side)
    inside: Tensor = down[..., None] & across[..., None, :]  # (M, b, height, width)
    return inside if len(shape) == 2 else inside[:, :, None]
