"""Which predictions to accept, so that a share of the rows is decided, or few of them are wrong."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from robustpll.estimator.recalibration import Source

Floats = NDArray[np.float64]

NEVER = -1.0  # the certainty of a row that must not be accepted
LIKE_THESE = 0.99  # share of the rows set aside that count as like the training data
STARTS, STEPS = 2, 20  # of the search for a bound, see `bounded_threshold`
ACCEPTED, UNLIKE = "accepted", "unlike the training data"
NO_PROMISE = "no promise can be made"


@dataclass(frozen=True, eq=False)
class Decision:
    """What a model says of each row, and whether to go by it.

    Attributes
    ----------
    label : array of shape (n,)
        The predicted class, of rejected rows too.
    accepted : bool array of shape (n,)
        Whether the row is decided.
    reason : array of shape (n,)
        ``"accepted"``, ``"ambiguous: a or b"`` with the two most probable classes,
        ``"ambiguous: a or one of 3 others"`` where several are equally probable seconds,
        ``"unlike the training data"``, or ``"no promise can be made"`` where no threshold keeps a
        bound on the error.
    threshold : float
        The least probability of the predicted class among accepted rows; infinite if none may be.
    """

    label: NDArray[Any]
    accepted: NDArray[np.bool_]
    reason: NDArray[np.str_]
    threshold: float

    @classmethod
    def of(
        cls,
        classes: NDArray[Any],
        predicted: NDArray[np.int64],
        probability: Floats,
        like: NDArray[np.bool_],
        threshold: float,
        *,
        promised: bool = True,
    ) -> Self:
        """Of predicted classes (n,) under probabilities (n, k), for rows like the training data.

        Without `promised` no threshold is of use, however sure a row is, and the reason says so.

        >>> probability = np.array([[0.9, 0.1, 0.0], [0.1, 0.4, 0.5], [1.0, 0.0, 0.0]])
        >>> names, like = np.array(["ant", "bee", "cow"]), np.array([True, True, False])
        >>> Decision.of(names, probability.argmax(-1), probability, like, 0.8).reason.tolist()
        ['accepted', 'ambiguous: cow or bee', 'unlike the training data']
        """
        at = np.arange(len(predicted))
        accepted = like & (probability[at, predicted] >= threshold)
        others = probability.copy()
        others[at, predicted] = NEVER
        seconds = others >= others.max(-1, keepdims=True) * (1 - 1e-5) - 1e-8  # equal, or nearly
        seconds[at, predicted] = False
        rest = (
            str(classes[own][0]) if own.sum() == 1 else f"one of {own.sum()} others"
            for own in seconds
        )
        torn = [f"ambiguous: {own} or {r}" for own, r in zip(classes[predicted], rest, strict=True)]
        rejected = np.where(like, torn if promised else NO_PROMISE, UNLIKE)
        reason = np.where(accepted, ACCEPTED, rejected)
        return cls(classes[predicted], accepted, reason, threshold)

    @property
    def coverage(self) -> float:
        """Share of accepted rows."""
        return float(self.accepted.mean())

    def __len__(self) -> int:
        return len(self.label)

    def __repr__(self) -> str:
        return f"Decision({int(self.accepted.sum())} of {len(self)} rows accepted)"


@dataclass(frozen=True, eq=False)
class Trial:
    """Rows by which thresholds are found: how certain a model is of them, and how wrong."""

    certainty: Floats  # (n,) of the predicted class, falling; below 0 if unlike the training data
    wrong: Floats  # (n,): 0 or 1 by labels; else the probability that the prediction is wrong
    limit: float  # rows farther than this from the training data are unlike it
    source: Source | None = None  # of `wrong`; None: the model's own probabilities
    confidence: float | None = None  # of the bound on the error, if the source is labels

    def sorted(self) -> Self:
        order = np.argsort(-self.certainty, kind="stable")
        return replace(self, certainty=self.certainty[order], wrong=self.wrong[order])

    def __repr__(self) -> str:
        by = "by labels" if self.source == "labels" else f"by {self.source}, an estimate"
        sure = "" if self.confidence is None else f", confidence {self.confidence:g}"
        return f"Trial({len(self.wrong)} rows {by}{sure})"

    def fewest(self, error: float) -> int:
        """How many labelled rows a bound on the error takes, even if the model is right in all.

        0 where there is no bound: an estimate takes no number of rows.

        >>> trial = Trial(np.ones(40), np.zeros(40), limit=1.0, source="labels", confidence=0.9)
        >>> trial.fewest(0.05), trial.can_promise(0.05), trial.can_promise(0.1)
        (59, False, True)
        """
        return 0 if self.confidence is None else fewest_rows(error, self.confidence)

    def can_promise(self, error: float) -> bool:
        """Whether there are rows enough for a bound on the error; an estimate is always made."""
        return self.fewest(error) <= len(self.certainty)

    def threshold(self, coverage: float | None, error: float | None) -> float:
        """The certainty that accepted rows need; infinite if none may be accepted.

        It is infinite, too, where the rows are too few to promise anything: see `can_promise`.
        """
        if coverage is not None:
            return share_threshold(self.certainty, coverage)
        assert error is not None
        if self.confidence is None:
            return mean_threshold(self.certainty, self.wrong, error)
        return bounded_threshold(self.certainty, self.wrong, error, self.confidence)


def share_threshold(certainty: Floats, share: float) -> float:
    """For falling certainties: as near to this share as can be, equals together, none below 0.

    >>> share_threshold(np.array([0.9, 0.8, 0.8, 0.3]), 0.5)
    0.9
    >>> share_threshold(np.array([0.9, 0.8, 0.8, 0.3]), 0.6)
    0.8
    """
    counts = np.append(0, _ends_of_equals(certainty))
    best = counts[np.argmin(np.abs(counts - share * len(certainty)))]
    return float(certainty[best - 1]) if best else math.inf


def mean_threshold(certainty: Floats, wrong: Floats, error: float) -> float:
    """For falling certainties: as many as have a mean of `wrong` of at most `error`.

    >>> mean_threshold(np.array([0.9, 0.8, 0.7, 0.6]), np.array([0, 0, 1, 1]), error=0.34)
    0.7
    """
    counts = _ends_of_equals(certainty)
    sound = counts[np.cumsum(wrong)[counts - 1] <= (error + 1e-9) * counts]
    return float(certainty[sound[-1] - 1]) if len(sound) else math.inf


def bounded_threshold(certainty: Floats, wrong: Floats, error: float, confidence: float) -> float:
    """For falling certainties: with this confidence at most `error` of accepted rows are wrong.

    Learn then Test (Angelopoulos et al., 2021): that more are wrong is tested for ever more rows,
    the surest first, by the binomial distribution, until a test fails. One walk begins with as few
    rows as can pass, another one half-way; each may fail with half of what confidence leaves. The
    bound holds for rows drawn like these. Of fewer than `fewest_rows` none is accepted.

    >>> certainty = np.linspace(1, 0.5, 200)
    >>> bounded_threshold(certainty, certainty < 0.75, error=0.1, confidence=0.9) > 0.7
    True
    """
    level, fewest = (1 - confidence) / STARTS, fewest_rows(error, confidence)
    if fewest > len(certainty):
        return math.inf
    ends = _ends_of_equals(certainty)
    steps = np.geomspace(fewest, len(certainty), STEPS).round()
    at = np.searchsorted(ends, steps)
    counts = np.unique(ends[at[at < len(ends)]])
    passed = np.asarray(binom.cdf(np.cumsum(wrong)[counts - 1], counts, error)) <= level
    reached = 0
    for start in range(0, len(passed), max(1, math.ceil(len(passed) / STARTS))):
        failed = np.flatnonzero(~passed[start:])
        end = start + failed[0] if len(failed) else len(passed)
        reached = max(reached, counts[end - 1] if end > start else 0)
    return float(certainty[reached - 1]) if reached else math.inf


def fewest_rows(error: float, confidence: float) -> int:
    """Labelled rows without which no bound on the error can be shown, even if all are right."""
    fewest = math.log((1 - confidence) / STARTS) / math.log1p(-error)
    return math.ceil(min(fewest, 1e18))  # for the smallest errors it overflows


def _ends_of_equals(certainty: Floats) -> NDArray[np.int64]:
    """How many rows can be accepted: equally certain ones go together, those below 0 never."""
    last = np.append(certainty[1:] < certainty[:-1], True)
    return np.flatnonzero(last & (certainty >= 0)) + 1
