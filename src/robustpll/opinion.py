"""Subjective-logic opinions: belief in each class, and uncertainty."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from robustpll._display import ROWS, Displayed
from robustpll.errors import InputError, some_of

Array = Any  # a Tensor or a numpy array; all arrays of one opinion are of the same kind


@dataclass(frozen=True, eq=False, repr=False)
class Opinion(Displayed):
    """Opinions about rows: belief in each class, a prior, and uncertainty.

    Users get numpy arrays, the engine uses tensors. Arrays are checked: belief and uncertainty are
    not negative and sum to 1, as the prior does. Tensors are not, as a GPU would have to wait.

    Attributes
    ----------
    belief : array of shape (..., n, k)
        Mass committed to each class.
    prior : array of shape (..., n, k)
        How the uncommitted mass is shared among classes.
    uncertainty : array of shape (..., n)
        The uncommitted mass.
    classes : array of shape (k,), optional
        Names of the classes, for display.

    Examples
    --------
    Softmax gives the same result for (4, 1, 1) and (7, 4, 4); as evidence they differ:

    >>> opinion = Opinion.of_evidence(np.array([[4.0, 1, 1], [7, 4, 4]]))
    >>> opinion.probability.round(3)
    array([[0.556, 0.222, 0.222],
           [0.444, 0.278, 0.278]])
    >>> opinion.variance.round(3)
    array([[0.025, 0.017, 0.017],
           [0.013, 0.011, 0.011]])
    >>> opinion.uncertainty.round(3)
    array([0.333, 0.167])
    """

    belief: Array
    prior: Array
    uncertainty: Array
    classes: NDArray[Any] | None = None
    # Tied classes (..., n, k), if `named_as` set them; `replace` with other numbers drops them.
    _leaders: Array | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.belief, torch.Tensor):
            self._check()

    @classmethod
    def of_evidence(cls, evidence: Array, prior: Array | None = None) -> Self:
        """Create from non-negative evidence (..., n, k); the prior defaults to uniform.

        belief = e / (k + sum e), uncertainty = k / (k + sum e).
        """
        evidence, prior = _with_prior(evidence, prior)
        k = evidence.shape[-1]
        total = evidence.sum(-1) + k  # (..., n)
        return cls(evidence / total[..., None], prior, k / total)

    @classmethod
    def of_probability(
        cls, probability: Array, uncertainty: Array | None = None, prior: Array | None = None
    ) -> Self:
        """Create from probabilities (..., n, k); uncertainty (..., n) defaults to 0."""
        probability, prior = _with_prior(probability, prior)
        if uncertainty is None:
            return cls(probability, prior, 0.0 * probability[..., 0])
        belief = (probability - prior * uncertainty[..., None]).clip(min=0.0)
        return cls(belief, prior, uncertainty)

    @property
    def probability(self) -> Array:
        """belief + prior * uncertainty, (..., n, k)."""
        return self.belief + self.prior * self.uncertainty[..., None]

    @property
    def entropy(self) -> Array:
        """Entropy of the probability divided by log k, (..., n): 0 is certain, 1 is uniform."""
        p, xp = self.probability, _namespace(self.belief)
        logs = xp.log(xp.where(p > 0, p, xp.ones_like(p)))
        return (-(p * logs).sum(-1) / math.log(p.shape[-1])).clip(0.0, 1.0)

    @property
    def variance(self) -> Array:
        """Variance of each class's probability under the opinion's Dirichlet distribution.

        p (1 - p) / (A + 1) with A = k / uncertainty, (..., n, k); 0 without uncertainty.
        """
        p, u = self.probability, self.uncertainty[..., None]
        return p * (1 - p) * u / (p.shape[-1] + u)

    @property
    def guess(self) -> Array:
        """Whether several classes share the largest probability, (..., n)."""
        return self._tied().sum(-1) > 1

    def predicted(self, generator: np.random.Generator | None = None) -> Array:
        """Index of the most probable class, (..., n): the first of tied classes, or a random one.

        All predictions of this library use this rule. A number is drawn for every row, tied or not,
        so that rows do not depend on each other.
        """
        chosen = self._tied()
        if generator is not None:
            random: Array = generator.random(tuple(chosen.shape[:-1]))
            if isinstance(chosen, torch.Tensor):
                random = torch.as_tensor(random, device=chosen.device)
            rank = random * chosen.sum(-1)  # rounded down: which of the tied classes, from 0
            chosen = chosen.cumsum(-1) > rank[..., None]
        return (1 * chosen).argmax(-1)  # of integers, as torch has no argmax of booleans

    def within(self, candidates: Array) -> Self:
        """Turn belief outside the candidates (..., n, k) into uncertainty; the prior stays."""
        belief = self.belief * candidates
        return replace(self, belief=belief, uncertainty=1 - belief.sum(-1))

    def mean(self, axis: int) -> "Opinion":
        """Average over an axis of members."""
        return each_part(lambda array: array.mean(axis), replace(self))  # without _leaders

    def numpy(self) -> "Opinion":
        """Convert to numpy arrays on the host, and check them."""
        return each_part(lambda array: np.asarray(torch.as_tensor(array).detach().cpu()), self)

    def __getitem__(self, index: Any) -> "Opinion":
        """Select along the leading axes."""
        return each_part(lambda array: array[index], self)

    def __len__(self) -> int:
        return len(self.uncertainty)

    def _tied(self) -> Array:
        """Classes whose probability equals the largest up to 1e-8 + 1e-5 of it, (..., n, k)."""
        if self._leaders is not None:
            return self._leaders
        p = self.probability
        top = _namespace(p).amax(p, -1)[..., None]
        return top - p <= 1e-8 + 1e-5 * top

    def _check(self) -> None:
        belief, prior, uncertainty = arrays = self.belief, self.prior, self.uncertainty
        numpys = all(isinstance(array, np.ndarray | np.floating) for array in arrays)
        shape, *shapes = map(np.shape, arrays)
        names = shape[-1:] if self.classes is None else np.shape(self.classes)
        if not numpys or shapes != [shape, shape[:-1]] or names != shape[-1:]:
            raise InputError(
                "belief and prior must be numpy arrays of shape (..., n, k), uncertainty of shape "
                f"(..., n), classes of shape (k,), or all tensors; got {shape}, {shapes}, {names}."
            )
        masses = np.append(belief, uncertainty[..., None], axis=-1)
        off = 1e-4  # above the rounding of a float32 sum over thousands of classes
        for name, mass in (("belief and uncertainty", masses), ("prior", prior)):
            right = (mass >= -off).all(-1) & (abs(mass.sum(-1) - 1) <= off)
            if not right.all():
                remedy = f"Correct the rows {some_of(np.flatnonzero(~right))}"
                raise InputError(f"{name} must not be negative and must sum to 1. {remedy}.")

    def _facts(self) -> str:
        *lead, n, k = self.belief.shape
        runs = f"{' x '.join(map(str, lead))} x " if lead else ""
        return f"{runs}{n} rows, {k} classes"

    def _table(self) -> Any:
        """The first rows; None if there are several runs or members."""
        import pandas as pd

        if len(self.belief.shape) != 2:
            return None
        opinion = self[:ROWS].numpy()
        predicted = opinion.predicted()
        columns = {
            "class": predicted if self.classes is None else np.asarray(self.classes)[predicted],
            "probability": opinion.probability.max(-1),
            "belief in it": np.take_along_axis(opinion.belief, predicted[:, None], -1)[:, 0],
            "uncertainty": opinion.uncertainty,
        }
        return pd.DataFrame(columns).round(2)


def each_part(change: Callable[..., Array], *opinions: Opinion) -> Opinion:
    """Apply a function to the beliefs of opinions, to their priors and to their uncertainties."""

    def changed(name: str) -> Array:
        return change(*(getattr(opinion, name) for opinion in opinions))

    parts = {name: changed(name) for name in ("belief", "prior", "uncertainty")}
    result = replace(opinions[0], **parts)
    if opinions[0]._leaders is not None:
        object.__setattr__(result, "_leaders", changed("_leaders"))
    return result


def stacked(opinions: Iterable[Opinion]) -> Opinion:
    """Opinions of single runs as one of R runs, (R, ...)."""
    return each_part(lambda *parts: torch.stack(parts), *opinions)


def named_as(opinion: Opinion, other: Opinion) -> Opinion:
    """Copy an opinion with the `predicted` and `guess` of another, as rounding may change ties."""
    same = replace(opinion)
    object.__setattr__(same, "_leaders", other._tied())
    return same


def _namespace(array: Array) -> Any:
    return torch if isinstance(array, torch.Tensor) else np


def _with_prior(values: Any, prior: Array | None) -> tuple[Array, Array]:
    """Values (..., n, k) as an array, unless they are a tensor; the prior defaults to uniform."""
    values = values if isinstance(values, torch.Tensor) else np.asarray(values)
    if prior is None:
        prior = _namespace(values).ones_like(values) / values.shape[-1]
    return values, prior
