"""What all attacks share: their parameters, the bounds of a perturbation, and losses."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from robustpll.engine.random import Draws
from robustpll.errors import InputError

Outputs = Callable[[Tensor], Tensor]  # (M, b, *shape) -> (M, b, k), read as logits


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
        """Number of rows per epsilon, b."""
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
    """Turns scaled features into attacked ones; the base class of all attacks.

    Parameters
    ----------
    epsilon : float or array
        Largest change of each scaled feature; an array is broadcast to one row.
    labels : {"current", "clean", "true"}
        The class to move away from: the class predicted in each step, as in the published
        experiments; the class predicted for the unchanged row; or the true class, which must then
        be passed.
    target : {"logits", "probabilities"}
        What the attack reads: the network's last layer, as in the published experiments, or the
        probabilities that the method predicts.
    joint : bool
        Whether the members of an ensemble are attacked together and see the same row. Otherwise
        each member gets its own row, as in the published experiments; no real input does that.
        An ensemble predicts the mean probability, so only ``target="probabilities"`` attacks it.
    clip : (low, high) or None
        Valid range of the features, as numbers or arrays; min-max scaled rows lie in [0, 1].
    outside : {"clipped", "kept"}
        How to treat features outside the range: move them into it, as in the published
        experiments, or let them stay and change by at most epsilon.
    fixed : bool array or None
        True for features that an attacker cannot change, broadcast to one row.
    precision : {"float32", "float64"}
        "float64" attacks a float64 copy of the network, where fewer gradients underflow to 0.
    passes : int
        Number of random forward passes to average, for methods that predict by such a mean.
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
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            valid, rule = _check(field.name, value, hints[field.name])
            if not valid:
                name = f"{type(self).__name__}({field.name}={value!r})"
                raise InputError(f"{name}: {field.name} must be {rule}.")

    @property
    def needs_evidence(self) -> bool:
        """Whether the attack works only on methods that predict evidence."""
        return False

    def __call__(
        self, outputs: Outputs, x: Tensor, draws: Draws, truth: Tensor | None = None
    ) -> Tensor:
        """Return attacked features (M, b, *shape); `truth` holds true labels (M, b), if known."""
        return self.attack_each((self.epsilon,), outputs, x, draws, truth)

    def attack_each(
        self,
        epsilons: Sequence[float | ArrayLike],
        outputs: Outputs,
        x: Tensor,
        draws: Draws,
        truth: Tensor | None = None,
    ) -> Tensor:
        """Return attacked features for E epsilons at once, (M, E b, *shape); they share draws."""
        bounds = self.bounds_of_each(epsilons, x)
        if not any(np.any(epsilon) for epsilon in epsilons):
            return bounds.x
        if self.labels == "true" and truth is None:
            name = f"{type(self).__name__}(labels='true')"
            raise InputError(f"{name} needs the true labels of the rows. Pass labels=.")
        labels = truth if self.labels == "true" else None
        if self.labels == "clean":
            labels = outputs(x).argmax(-1)
        return self.perturb(outputs, bounds, draws, None if labels is None else bounds.tile(labels))

    def bounds_of_each(self, epsilons: Sequence[float | ArrayLike], x: Tensor) -> Bounds:
        """Return the bounds of the same rows under several epsilons, as one object."""
        parts = [replace(self, epsilon=epsilon).bounds(x) for epsilon in epsilons]
        if len(parts) == 1:
            return parts[0]
        size = np.broadcast_shapes(*(part.epsilon.shape for part in parts))
        epsilon = torch.stack([part.epsilon.expand(size) for part in parts])
        epsilon = epsilon.view(len(parts), *(1,) * (x.ndim - 1 - epsilon.ndim), *epsilon.shape[1:])
        boxes = zip(*((part.x, part.low, part.high) for part in parts), strict=True)
        rows, low, high = (torch.cat(tensors, 1) for tensors in boxes)
        return Bounds(rows, low, high, epsilon.repeat_interleave(x.shape[1], 0), len(parts))

    def bounds(self, x: Tensor) -> Bounds:
        """Return the box for features x (M, b, *shape); with epsilon 0 it is x alone."""
        exact = per_feature("epsilon", self.epsilon, x)
        if not np.any(self.epsilon):
            return Bounds(x, x, x, exact)
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
        return Bounds(x, low, high, exact)

    @abstractmethod
    def perturb(
        self, outputs: Outputs, bounds: Bounds, draws: Draws, labels: Tensor | None
    ) -> Tensor:
        """Return features moved away from `labels` (M, b), by default the current prediction."""


def per_feature(name: str, value: ArrayLike, x: Tensor) -> Tensor:
    """Convert a number or an array to a float64 tensor that broadcasts to rows (M, b, *shape)."""
    array, shape = np.asarray(value), tuple(x.shape[2:])
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        msg = f"{name} has shape {array.shape}, but one row has shape {shape}. "
        raise InputError(msg + "Pass one value, or one for each feature.")
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
    """Expected squared error to the label, of scores that are ln of Dirichlet parameters a.

    sum_j (y_j - p_j)^2 + p_j (1 - p_j) / (A + 1), with A = sum a and p = a / A.
    """
    p = scores.softmax(-1)
    spread = 1 / (1 + scores.logsumexp(-1, keepdim=True).exp())
    target = F.one_hot(labels, p.shape[-1])
    return ((target - p).square() + p * (1 - p) * spread).sum(-1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "margin": margin,
    "evidential": evidential_error_to,
}


def _check(name: str, value: Any, hint: Any) -> tuple[bool, str]:
    """Whether a field's value is valid by its annotation, and the rule in words."""
    if get_origin(hint) is Literal:
        return value in get_args(hint), f"one of {get_args(hint)}"
    if hint is bool:
        return isinstance(value, bool), "True or False"
    if hint is int:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return whole and value >= 1, "an int of at least 1"
    if name == "epsilon":
        valid = _all_finite(value) and bool((np.asarray(value) >= 0).all())
        return valid, "a number of at least 0, or an array of them"
    if name == "clip" and value is not None:
        pair = isinstance(value, tuple | list) and len(value) == 2 and all(map(_all_finite, value))
        return pair and bool(np.all(np.less(*value))), "None or (low, high)"
    valid = name != "fixed" or value is None or np.asarray(value).dtype == bool
    return valid, "None or an array of True and False"


def _all_finite(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and bool(np.isfinite(array).all())
