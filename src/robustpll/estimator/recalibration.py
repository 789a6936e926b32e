"""How sure a model should be: one number, learned from rows that it was not trained on."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from robustpll.errors import InputError, some_of
from robustpll.opinion import Opinion, named_as

LARGEST = 1e4  # factors are looked for between this and its inverse
STEPS = 121  # of a first look; with candidates there may be more than one valley
USUAL = 10.0  # a factor of so much, or its inverse, costs half a nat: for all rows together

Source = Literal["labels", "candidates"]
Scaled = Literal["evidence", "logits"]


@dataclass(frozen=True)
class Recalibration:
    """A factor on the evidence, or on the logits, that makes probabilities mean what they say.

    Of a method with evidence e all of it is multiplied: belief is f e / (k + f sum e), uncertainty
    k / (k + f sum e). So both probability and uncertainty change, beliefs keep their proportions,
    and a row without evidence stays one. Of other methods the logits are multiplied (temperature
    scaling with temperature 1 / f; of an ensemble the logs of its mean probabilities); they leave
    nothing uncertain, before and after. The order of the classes stays as it is.

    The factor has the least log loss, the mean of -ln P(S) over rows with candidates S; a label is
    a set of one. Up to a constant that is the likelihood of the sets, if they hold the true class,
    and a set is as likely whichever of its members is true. Where sets favour the classes that the
    model confuses, they seldom show its errors, and the factor comes out too large. A factor far
    from 1 costs a little, as much as half a row or so: rows that say little change little.

    Attributes
    ----------
    factor : float
        Above 1 the model was not sure enough, below 1 it was too sure.
    of : {"evidence", "logits"}
        What is multiplied.
    source : {"labels", "candidates"}
        What it was learned from.
    rows : int
        How many rows it was learned from.
    before, after : float
        Their log loss.

    Examples
    --------
    Three of four promises of 0.9 came true, so 0.75 is what should have been said:

    >>> opinion = Opinion.of_probability(np.array([[0.9, 0.1]] * 400))
    >>> right = np.array([[True, False]] * 300 + [[False, True]] * 100)
    >>> found = Recalibration.of_rows(opinion, right)
    >>> found.opinion(opinion).probability[0].round(3)
    array([0.75, 0.25])
    >>> found
    Recalibration(logits times 0.5007 by 400 labels, log loss 0.6547 -> 0.5623)
    """

    factor: float
    of: Scaled
    source: Source
    rows: int
    before: float
    after: float

    @classmethod
    def of_rows(cls, opinion: Opinion, candidates: NDArray[np.bool_]) -> Self:
        """From an opinion of n rows, not recalibrated, and their candidates (n, k)."""
        _refuse_impossible(opinion.probability, candidates)
        source: Source = "labels" if (candidates.sum(-1) == 1).all() else "candidates"
        scaled: Scaled = "evidence" if (opinion.uncertainty > 0).any() else "logits"
        made = cls(1.0, scaled, source, len(candidates), 0.0, 0.0)

        def loss(log_factor: float) -> float:
            own = replace(made, factor=float(np.exp(log_factor)))
            return float(-own._log_probability(opinion, candidates).mean())

        def cost(log_factor: float) -> float:
            return len(candidates) * loss(log_factor) + (log_factor / math.log(USUAL)) ** 2 / 2

        looked = np.linspace(-np.log(LARGEST), np.log(LARGEST), STEPS)
        if np.ptp([loss(at) for at in looked]) < 1e-9:
            _refuse_no_answer()
        best = int(np.argmin([cost(at) for at in looked]))
        around = (looked[max(0, best - 1)], looked[min(best + 1, STEPS - 1)])
        found = minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-6})
        factor = float(np.exp(found.x))
        return replace(made, factor=factor, before=loss(0.0), after=loss(found.x))

    def opinion(self, opinion: Opinion) -> Opinion:
        """A recalibrated copy of an opinion in numpy arrays; it names the same classes."""
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
        """ln P(S) of each row, (n,); without rounding to 0 where logits are far apart."""
        if self.of == "evidence":
            inside = (self._scaled(opinion).probability * candidates).sum(-1)
            return np.asarray(np.log(inside))
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


def _refuse_impossible(probability: NDArray[Any], candidates: NDArray[np.bool_]) -> None:
    rows = np.flatnonzero((probability * candidates).sum(-1) <= 0)
    if len(rows):
        raise InputError(
            f"The model gives probability 0 to what y says of {len(rows)} rows ({some_of(rows)}), "
            "and no recalibration changes a 0. Methods that count neighbours, such as PlKnn, "
            "do that; use another method, or other rows."
        )


def _refuse_no_answer() -> None:
    raise InputError(
        "X and y do not say how sure the model should be: all factors have the same log loss. That "
        "happens if every set holds all classes, and for DstPll, whose probabilities do not depend "
        "on its uncertainty. Pass smaller sets or labels, or use another method."
    )
