"""Which predictions to accept: recalibrated probabilities, thresholds, and novelty."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from robustpll.engine.data import Rows
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError, is_share, refuse_other_length, refuse_other_than_share
from robustpll.estimator.novelty import Reference
from robustpll.estimator.recalibration import Recalibration, Source
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

Floats = NDArray[np.float64]

ROUNDING = 1e-5  # of distances, where rows have length 1 or features go from 0 to 1
NEVER = -1.0  # certainty of a row that must not be accepted
NOT_NOVEL = 0.99  # share of the calibration rows that count as similar to the training data
STARTS, STEPS = 2, 20  # of the search in `bounded_threshold`
ACCEPTED, NOVEL, NO_PROMISE = "accepted", "unlike the training data", "no promise can be made"


@dataclass(frozen=True, eq=False)
class Decision:
    """Predicted classes, which of them to accept, and why not the others.

    Attributes
    ----------
    label : array of shape (n,)
        The predicted class, also of rejected rows.
    accepted : bool array of shape (n,)
        Whether the prediction is accepted.
    reason : array of shape (n,)
        ``"accepted"``, ``"ambiguous: a or b"`` with the two most probable classes,
        ``"ambiguous: a or one of 3 others"`` after a tie for second place, ``"unlike the training
        data"``, or ``"no promise can be made"`` if no threshold keeps a bound on the error.
    threshold : float
        The smallest probability of an accepted prediction; infinite if none can be accepted.
    """

    label: NDArray[Any]
    accepted: NDArray[np.bool_]
    reason: NDArray[np.str_]
    threshold: float

    @property
    def coverage(self) -> float:
        """Share of accepted rows."""
        return float(self.accepted.mean())

    def __len__(self) -> int:
        return len(self.label)

    def __repr__(self) -> str:
        return f"Decision({int(self.accepted.sum())} of {len(self)} rows accepted)"


def ambiguities(opinion: Opinion) -> list[str]:
    """The predicted class of each row and the next probable one, as a reason."""
    names, probability, predicted = opinion.classes, opinion.probability, opinion.predicted()
    assert names is not None
    chosen = np.arange(len(predicted)), predicted
    probability[chosen] = NEVER
    second = probability >= probability.max(-1, keepdims=True) * (1 - 1e-5) - 1e-8  # nearly equal
    second[chosen] = False
    return [
        f"ambiguous: {names[label]} or "
        + (str(names[tied][0]) if tied.sum() == 1 else f"one of {tied.sum()} others")
        for label, tied in zip(predicted, second, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class CalibrationSample:
    """Rows that thresholds are computed from: the model's certainty, and its errors."""

    certainty: Floats  # (n,) of the predicted class, falling; below 0 for novel rows
    wrong: Floats  # (n,): 0 or 1 by labels; else the probability that the prediction is wrong
    limit: float  # rows farther than this from the training data are novel
    source: Source | None = None  # of `wrong`; None: the model's own probabilities
    confidence: float | None = None  # of the bound on the error, if the source is labels

    def __post_init__(self) -> None:
        if not self.limit >= 0 or self.source not in (*get_args(Source), None):
            raise ValueError(f"the limit {self.limit!r} or the source {self.source!r} is wrong")
        if self.confidence is not None:
            refuse_other_than_share("confidence", self.confidence)

    @classmethod
    def of(
        cls, certainty: Floats, wrong: Floats, distance: Floats, limit: float, **about: Any
    ) -> Self:
        """Sort rows by their certainty; novel rows come last."""
        certainty = np.where(distance > limit, NEVER, certainty)
        order = np.argsort(-certainty, kind="stable")
        return cls(certainty[order], wrong[order], limit, **about)

    def __repr__(self) -> str:
        estimate = "" if self.source == "labels" else ", an estimate"
        sure = "" if self.confidence is None else f", confidence {self.confidence:g}"
        return f"CalibrationSample({len(self.wrong)} rows by {self.source}{estimate}{sure})"

    def fewest(self, error: float) -> int:
        """How many labelled rows a bound on the error needs; 0 for an estimate by candidates.

        >>> sample = CalibrationSample(np.ones(40), np.zeros(40), 1.0, "labels", confidence=0.9)
        >>> sample.fewest(0.05), sample.can_promise(0.05), sample.can_promise(0.1)
        (59, False, True)
        """
        return 0 if self.confidence is None else fewest_rows(error, self.confidence)

    def can_promise(self, error: float) -> bool:
        """Whether there are enough rows for a bound on the error; True for an estimate."""
        return self.fewest(error) <= len(self.certainty)

    def threshold(self, error: float) -> float:
        """The certainty that rows need for this error; infinite if none can be accepted."""
        if self.confidence is None:
            return mean_threshold(self.certainty, self.wrong, error)
        return bounded_threshold(self.certainty, self.wrong, error, self.confidence)


def share_threshold(certainty: Floats, share: float) -> float:
    """Threshold that accepts a share of falling certainties, as nearly as ties allow."""
    counts = np.append(0, _acceptable_counts(certainty))
    best = counts[np.argmin(np.abs(counts - share * len(certainty)))]
    return float(certainty[best - 1]) if best else math.inf


def mean_threshold(certainty: Floats, wrong: Floats, error: float) -> float:
    """Threshold that accepts most of falling certainties with a mean of `wrong` up to `error`."""
    counts = _acceptable_counts(certainty)
    sound = counts[np.cumsum(wrong)[counts - 1] <= (error + 1e-9) * counts]
    return float(certainty[sound[-1] - 1]) if len(sound) else math.inf


def bounded_threshold(certainty: Floats, wrong: Floats, error: float, confidence: float) -> float:
    """Threshold above which, with this confidence, at most `error` of rows are wrong.

    Learn then Test (Angelopoulos et al., 2021): binomial tests of growing numbers of rows, the
    most certain first, until one fails. One sequence starts with the fewest rows that can pass,
    another half-way; each gets half of the error probability. It holds for rows drawn like these.
    """
    level, fewest = (1 - confidence) / STARTS, fewest_rows(error, confidence)
    if fewest > len(certainty):
        return math.inf
    ends = _acceptable_counts(certainty)
    steps = np.searchsorted(ends, np.geomspace(fewest, len(certainty), STEPS).round())
    counts = np.unique(ends[steps[steps < len(ends)]])
    passed = np.asarray(binom.cdf(np.cumsum(wrong)[counts - 1], counts, error)) <= level
    reached = 0
    for start in range(0, len(passed), max(1, math.ceil(len(passed) / STARTS))):
        failed = np.flatnonzero(~passed[start:])
        end = start + failed[0] if len(failed) else len(passed)
        reached = max(reached, counts[end - 1] if end > start else 0)
    return float(certainty[reached - 1]) if reached else math.inf


def fewest_rows(error: float, confidence: float) -> int:
    """Labelled rows that a bound on the error needs, even if all predictions are right."""
    fewest = math.log((1 - confidence) / STARTS) / math.log1p(-error)
    return math.ceil(min(fewest, 1e18))  # for the smallest errors it overflows


def _acceptable_counts(certainty: Floats) -> NDArray[np.int64]:
    """Numbers of rows that can be accepted: ties stay together, rows below 0 stay out."""
    last = np.append(certainty[1:] < certainty[:-1], True)
    return np.flatnonzero(last & (certainty >= 0)) + 1


class AbstentionMixin:
    """Recalibration and decisions of a fitted classifier."""

    classes_: NDArray[Any]
    fitted_: Fitted
    recalibration_: Recalibration | None
    """What `recalibrate` learned; None before."""
    trial_: CalibrationSample | None
    """The rows passed to `calibrate_decisions`; None before."""
    reference_: Reference | None
    """Training rows for the novelty of others; None for files of version 0.1.0."""

    if TYPE_CHECKING:

        def _rows(self, X: Any) -> Rows: ...

    def recalibrate(self, X: Any, y: Any) -> Self:
        """Calibrate probabilities and uncertainty by other rows; predicted classes do not change.

        The result, `recalibration_`, is part of the model file. It resets `calibrate_decisions`.

        Parameters
        ----------
        X : array, DataFrame or images
            Some hundred rows or more that were not trained on.
        y : object
            Their true labels, or candidates in any form that `Candidates.of` accepts. Labels are
            better: with candidates each member of a set is assumed equally likely to be true.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, random_state=0)
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[:150], y[:150])
        >>> model.recalibrate(X[150:], y[150:]).recalibration_
        Recalibration(evidence times ... by 150 labels, log loss 0... -> 0...)
        """
        candidates, _, opinion = self._calibration_rows(X, y)
        self.recalibration_ = Recalibration.of_rows(opinion, candidates.matrix)
        self.trial_ = None
        return self

    def calibrate_decisions(self, X: Any, y: Any, *, confidence: float | None = None) -> Self:
        """Fix thresholds by other rows, so that `decide` treats each row independently.

        Parameters
        ----------
        X : array, DataFrame or images
            Rows that were not trained on, drawn like those to be decided.
        y : object
            With true labels, ``decide(X, error=0.05)`` bounds the error with some confidence, if
            these rows were not used to recalibrate. With candidates the error is only estimated,
            by the probability of the predicted class among the candidates: recalibrate first.
        confidence : float, optional
            Of the bound on the error, 0.9 by default; only with labels.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, centers=np.eye(3), cluster_std=0.4, random_state=0)
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[:150], y[:150])
        >>> model.calibrate_decisions(X[150:], y[150:]).trial_
        CalibrationSample(150 rows by labels, confidence 0.9)
        >>> model.decide([[1, 0, 0], [0.5, 0.6, 0], [9, 9, 9]], error=0.1).reason.tolist()
        ['accepted', 'ambiguous: 0 or 1', 'unlike the training data']
        """
        candidates, rows, raw = self._calibration_rows(X, y)
        by_labels = bool((candidates.sizes == 1).all())
        if by_labels:
            confidence = 0.9 if confidence is None else confidence
        elif confidence is not None:
            raise InputError(
                "confidence is for labels: candidates in y give an estimate without one."
            )
        opinion, distance = self._recalibrated(raw), self._distance(rows)
        chosen = np.arange(len(rows)), opinion.predicted()
        inside = np.where(candidates.matrix, opinion.probability, 0.0)
        right = inside[chosen] / np.maximum(inside.sum(-1), 1e-300)  # 0 / 0 is 0
        limit = max(ROUNDING, float(np.quantile(distance, NOT_NOVEL, method="higher")))
        about = {"source": "labels" if by_labels else "candidates", "confidence": confidence}
        certainty = opinion.probability[chosen]
        self.trial_ = CalibrationSample.of(certainty, 1 - right, distance, limit, **about)
        return self

    def decide(
        self, X: Any, *, coverage: float | None = None, error: float | None = None
    ) -> Decision:
        """Predict, and say which predictions to accept, and why not the others.

        The most probable predictions are accepted first. Novel rows are never accepted, even if
        the coverage then falls short. A row is novel if its distance to the training data exceeds
        the 99th percentile of the calibration distances, or, without calibration, the largest
        distance of a training row to the others. Models of version 0.1.0 find no row novel.

        Parameters
        ----------
        X : array, DataFrame or images
            Rows of the same form as in training.
        coverage : float
            The share of rows to accept, as nearly as ties allow.
        error : float
            The share of wrong predictions to allow among accepted rows. Pass one of the two.

        Notes
        -----
        If `calibrate_decisions` got too few labelled rows for a bound on the error, a warning says
        how many it takes, and no row is accepted. Without it, `coverage` is a share of X, and the
        error is estimated from the probabilities of X: recalibrate first.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> X = np.repeat(np.eye(3), 20, axis=0)
        >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
        >>> model = RobustPLLClassifier(epochs=100, random_state=0).fit(X, y)
        >>> model.decide([[1, 0, 0], [0, 1, 0], [0, 0.4, 0.6]], coverage=2 / 3).reason.tolist()
        ['accepted', 'accepted', 'ambiguous: c or b']
        """
        _refuse_other_promises(coverage, error)
        check_is_fitted(self, "fitted_")
        rows, sample = self._rows(X), self.trial_
        opinion, distance = self._recalibrated(self._raw_opinion(rows)), self._distance(rows)
        predicted = opinion.predicted()
        certainty = opinion.probability[np.arange(len(predicted)), predicted]
        if sample is None:
            limit = math.inf if self.reference_ is None else self.reference_.limit
            sample = CalibrationSample.of(certainty, 1 - certainty, distance, limit)
        rejected: Any = ambiguities(opinion)
        if error is None:
            threshold = share_threshold(sample.certainty, float(coverage or 0))
        else:
            threshold = sample.threshold(error)
            if sample.confidence is not None and math.isinf(threshold):
                rejected = NO_PROMISE
            if not sample.can_promise(error):
                warnings.warn(_no_promise(sample, error), UserWarning, stacklevel=2)
        like = distance <= sample.limit
        accepted = like & (certainty >= threshold)
        reason = np.where(accepted, ACCEPTED, np.where(like, rejected, NOVEL))
        return Decision(self.classes_[predicted], accepted, reason, threshold)

    def _calibration_rows(self, X: Any, y: Any) -> tuple[Candidates, Rows, Opinion]:
        """Candidates, rows, and their opinion before any recalibration."""
        check_is_fitted(self, "fitted_")
        candidates, rows = Candidates.of(y, classes=self.classes_), self._rows(X)
        refuse_other_length(len(rows), len(candidates))
        return candidates, rows, self._raw_opinion(rows)

    def _raw_opinion(self, rows: Rows, *attack: Any) -> Opinion:
        """The opinion before any recalibration; `attack` is an attack and the true labels."""
        return replace(self.fitted_.predict(rows, *attack)[0].numpy(), classes=self.classes_)

    def _recalibrated(self, opinion: Opinion) -> Opinion:
        return opinion if self.recalibration_ is None else self.recalibration_.opinion(opinion)

    def _distance(self, rows: Rows) -> Floats:
        """Distance to the training data, (n,); 0 if the model has no reference rows."""
        if self.reference_ is None:
            return np.zeros(len(rows))
        return np.asarray(self.reference_.distance(self.fitted_, rows).cpu())


def _refuse_other_promises(coverage: float | None, error: float | None) -> None:
    if (coverage is None) == (error is None):
        raise InputError(
            "decide needs either coverage or error, and not both: "
            "decide(X, coverage=0.9) or decide(X, error=0.05)."
        )
    if error is not None:
        refuse_other_than_share("error", error)
    elif not (is_share(coverage) and coverage):
        raise InputError(f"coverage must be a number above 0 and at most 1; got {coverage!r}.")


def _no_promise(sample: CalibrationSample, error: float) -> str:
    return (
        f"error={error:g} cannot be promised with confidence {sample.confidence:g} from "
        f"{len(sample.certainty)} labelled rows: it takes {sample.fewest(error)}, even if all are "
        "right. So no row is accepted. Pass more rows to calibrate_decisions, or allow a larger "
        "error."
    )
