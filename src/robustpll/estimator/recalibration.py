"""One factor on the evidence or the logits, learned from rows that were not trained on."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from robustpll.errors import InputError, some_of
from robustpll.opinion import Opinion, named_as

LARGEST = 1e4  # factors are searched between this and its inverse
STEPS = 121  # of the first, coarse search: with candidates there may be several minima
USUAL = 10.0  # this factor, or its inverse, costs half a nat for all rows together

Source = Literal["labels", "candidates"]
Scaled = Literal["evidence", "logits"]


@dataclass(frozen=True)
class Recalibration:
    """A factor on the evidence, or on the logits, that calibrates probabilities.

    With evidence e, belief becomes f e / (k + f sum e) and uncertainty k / (k + f sum e). Methods
    without evidence get temperature scaling with temperature 1 / f. The order of the classes stays.

    The factor minimises the log loss, the mean of -ln P(S) over rows with candidates S. If sets
    favour the classes that the model confuses, it comes out too large. A small penalty keeps it
    near 1 for few rows.

    Attributes
    ----------
    factor : float
        Above 1 the model was not sure enough, below 1 it was too sure.
    of : {"evidence", "logits"}
        What is multiplied.
    source, rows
        What it was learned from ("labels" or "candidates"), and from how many rows.
    before, after : float
        Their log loss.

    Examples
    --------
    >>> opinion = Opinion.of_probability(np.array([[0.9, 0.1]] * 400))
    >>> right = np.array([[True, False]] * 300 + [[False, True]] * 100)
    >>> recalibration = Recalibration.of_rows(opinion, right)
    >>> recalibration.opinion(opinion).probability[0].round(3)
    array([0.75, 0.25])
    >>> recalibration
    Recalibration(logits times 0.5007 by 400 labels, log loss 0.6547 -> 0.5623)
    """

    factor: float
    of: Scaled
    source: Source
    rows: int
    before: float
    after: float

    def __post_init__(self) -> None:
        numbers = [math.isinf(n) for n in (self.factor, self.before, self.after)]  # or it raises
        words = self.of in get_args(Scaled) and self.source in get_args(Source)
        if numbers[0] or not (words and self.factor > 0):
            raise ValueError(f"a recalibration of {self.of!r} by the factor {self.factor!r}")

    @classmethod
    def of_rows(cls, opinion: Opinion, candidates: NDArray[np.bool_]) -> Self:
        """Learn from an uncalibrated opinion of n rows and their candidates (n, k)."""
        zero = np.flatnonzero((opinion.probability * candidates).sum(-1) <= 0)
        if len(zero):
            raise InputError(
                f"The model gives probability 0 to what y says of {len(zero)} rows "
                f"({some_of(zero)}), and no recalibration changes a 0. Methods that count "
                "neighbours, such as PlKnn, do that; use another method, or other rows."
            )
        source: Source = "labels" if (candidates.sum(-1) == 1).all() else "candidates"
        scaled: Scaled = "evidence" if (opinion.uncertainty > 0).any() else "logits"
        start = cls(1.0, scaled, source, len(candidates), 0.0, 0.0)

        def loss(log_factor: float) -> float:
            tried = replace(start, factor=float(np.exp(log_factor)))
            return float(-tried._log_probability(opinion, candidates).mean())

        def penalised(log_factor: Any, loss: Any) -> Any:
            return len(candidates) * loss + (log_factor / math.log(USUAL)) ** 2 / 2

        grid = np.linspace(-np.log(LARGEST), np.log(LARGEST), STEPS)
        losses = np.array([loss(log_factor) for log_factor in grid])
        if np.ptp(losses) < 1e-9:
            raise InputError(
                "X and y do not say how sure the model should be: all factors have the same log "
                "loss. That happens if every set holds all classes, and for DstPll, whose "
                "probabilities do not depend on its uncertainty. Pass smaller sets or labels, or "
                "use another method."
            )
        best = int(np.argmin(penalised(grid, losses)))
        bounds = (grid[max(0, best - 1)], grid[min(best + 1, STEPS - 1)])
        least = minimize_scalar(
            lambda x: penalised(x, loss(x)), None, bounds, method="bounded", options={"xatol": 1e-6}
        ).x
        return replace(start, factor=float(np.exp(least)), before=loss(0.0), after=loss(least))

    def opinion(self, opinion: Opinion) -> Opinion:
        """A recalibrated copy of an opinion in numpy arrays, with the same predicted classes."""
        return named_as(self._scaled(opinion), opinion)

    def _scaled(self, opinion: Opinion) -> Opinion:
        if self.of == "evidence":
            total = self.factor * (1 - opinion.uncertainty) + opinion.uncertainty
            belief = self.factor * opinion.belief / total[..., None]
            return replace(opinion, belief=belief, uncertainty=opinion.uncertainty / total)
        logs = _logs(opinion.belief)
        belief = np.exp(self.factor * (logs - logs.max(-1, keepdims=True)))
        return replace(opinion, belief=belief / belief.sum(-1, keepdims=True))

    def _log_probability(self, opinion: Opinion, candidates: NDArray[np.bool_]) -> NDArray[Any]:
        """ln P(S) of each row, (n,); logits far apart do not round it to 0."""
        if self.of == "evidence":
            return np.asarray(np.log((self._scaled(opinion).probability * candidates).sum(-1)))
        logs = self.factor * _logs(opinion.belief)
        return np.asarray(logsumexp(logs, axis=-1, b=candidates) - logsumexp(logs, axis=-1))

    def __repr__(self) -> str:
        return (
            f"Recalibration({self.of} times {self.factor:.4g} by {self.rows} {self.source}, "
            f"log loss {self.before:.4f} -> {self.after:.4f})"
        )


def _logs(probability: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probability))
