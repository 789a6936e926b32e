"""Whether probabilities mean what they say: of rows with probability 0.8, are 80 % right?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, is_count, refuse_other_length, some_of
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.labels.candidates import Candidates, is_label_vector

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What was promised and what came true, in bins of about equally many rows.

    Attributes
    ----------
    promised : array of shape (b,)
        Mean probability of each bin, rising.
    right : array of shape (b,)
        Share of the bin's rows of which the promise came true.
    rows : int array of shape (b,)
        How many rows each bin has.
    """

    promised: Floats
    right: Floats
    rows: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Mean distance of promised and right over the rows: the expected calibration error."""
        return float(np.average(np.abs(self.promised - self.right), weights=self.rows))


def reliability(promised: ArrayLike, right: ArrayLike, bins: int = 15) -> Reliability:
    """Of promised probabilities (n,), and whether (0 or 1) they came true (n,).

    Bins have equally many rows, but rows with the same promise are never parted: the result does
    not depend on their order, and a model of few different promises has few bins.

    Examples
    --------
    >>> found = reliability([0.5, 0.5, 0.5, 0.5, 0.9, 1.0], [1, 0, 1, 1, 1, 0], bins=3)
    >>> found.promised, found.right, found.rows
    (array([0.5 , 0.95]), array([0.75, 0.5 ]), array([4, 2]))
    >>> round(found.error, 4)
    0.3167
    """
    p, came = _promises(promised, right)
    if not is_count(bins, least=1):
        msg = f"bins must be an int of at least 1; got {bins!r}."
        raise InputError(msg)
    below = np.searchsorted(np.sort(p), p)  # equal ones share the place of the first
    _, at, rows = np.unique(below * bins // len(p), return_inverse=True, return_counts=True)
    return Reliability(
        np.bincount(at, p) / rows, np.bincount(at, came) / rows, rows.astype(np.int64)
    )


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How far probabilities can be trusted; smaller is better, but for the accuracy.

    Attributes
    ----------
    accuracy : float
        Share of rows whose most probable class is the true one.
    error : float
        Expected calibration error (ECE) of the most probable class, from 0 to 1.
    class_error : float
        The same for each class's own probability, the mean over the classes.
    brier : float
        Mean over rows of the squared distance of probability and truth, from 0 to 2.
    log_loss : float
        Mean of -ln of the true class's probability; infinite if that is 0 anywhere.
    top : Reliability
        Of the most probable class.
    classes : tuple of Reliability
        Of each class.
    """

    accuracy: float
    error: float
    class_error: float
    brier: float
    log_loss: float
    top: Reliability
    classes: tuple[Reliability, ...]

    def __repr__(self) -> str:
        parts = ("accuracy", "error", "class_error", "brier", "log_loss")
        shown = ", ".join(f"{name}={getattr(self, name):.4f}" for name in parts)
        return f"CalibrationReport({shown})"


def calibration_report(model: Any, X: Any, y: Any, bins: int = 15) -> CalibrationReport:
    """How far a fitted classifier's probabilities can be trusted.

    Parameters
    ----------
    model : PLLClassifier or its kind
        Fitted, by any method.
    X : array, DataFrame or pictures
        Rows that were not trained on.
    y : array of shape (n,)
        Their true labels.
    bins : int
        Of each `Reliability`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = calibration_report(model, np.eye(3), ["a", "b", "c"])
    >>> report.accuracy, report.error < 0.2
    (1.0, True)
    """
    if not isinstance(model, CandidateClassifier):
        msg = (
            "model must be a fitted classifier of this library, such as PLLClassifier; got "
            f"{type(model).__name__}. For probabilities of other models use calibration_of."
        )
        raise InputError(msg)
    if not is_label_vector(y):
        msg = "y must hold true labels, one for each row; got candidate sets, which say less."
        raise InputError(msg)
    named = Candidates.of(y, classes=model.classes_).matrix
    probability = model.predict_proba(X)
    refuse_other_length(len(probability), len(named))
    return calibration_of(probability, named.argmax(-1), bins)


def calibration_of(probability: ArrayLike, labels: ArrayLike, bins: int = 15) -> CalibrationReport:
    """As `calibration_report`, from probabilities (n, k) and labels (n,), numbers from 0.

    Examples
    --------
    >>> found = calibration_of([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 1, 1])
    >>> round(found.brier, 4), round(found.log_loss, 4)  # (0.08 + 0.72 + 0.18) / 3, ...
    (0.3267, 0.4987)
    >>> round(found.error, 4)  # (|1 - 0.8| + |0 - 0.6| + |1 - 0.7|) / 3
    0.3667
    """
    p, truth = _checked(probability, labels)
    n, k = p.shape
    is_true = np.arange(k) == truth[:, None]  # (n, k)
    of_truth = p[is_true]
    with np.errstate(divide="ignore"):
        log_loss = -np.log(of_truth).mean()
    predicted = p.argmax(-1)
    top = reliability(p[np.arange(n), predicted], predicted == truth, bins)
    each = tuple(reliability(p[:, j], is_true[:, j], bins) for j in range(k))
    return CalibrationReport(
        float((predicted == truth).mean()),
        top.error,
        math.fsum(one.error for one in each) / k,
        float(np.square(p - is_true).sum(-1).mean()),
        float(log_loss),
        top,
        each,
    )


def _promises(promised: ArrayLike, right: ArrayLike) -> tuple[Floats, Floats]:
    p, came = np.asarray(promised, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if p.ndim != 1 or p.shape != came.shape or not len(p):
        msg = (
            "promised and right must be arrays of shape (n,) with one number for each row; got "
            f"{p.shape} and {came.shape}."
        )
        raise InputError(msg)
    slack = 1e-6  # of rounding
    odd = np.flatnonzero(~((p >= -slack) & (p <= 1 + slack) & ((came == 0) | (came == 1))))
    if len(odd):
        msg = (
            f"promised must lie in [0, 1] and right must be 0 or 1; broken in {len(odd)} rows "
            f"({some_of(odd)})."
        )
        raise InputError(msg)
    return p, came


def _checked(probability: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    p, truth = np.asarray(probability, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or truth.shape != p.shape[:1] or not p.size or truth.dtype.kind not in "iu":
        msg = (
            "probability must have shape (n, k), and labels one int for each row; got shapes "
            f"{p.shape} and {truth.shape} of type {truth.dtype}."
        )
        raise InputError(msg)
    sums = np.abs(p.sum(-1) - 1) <= 1e-4
    odd = np.flatnonzero(~((p >= 0).all(-1) & sums & (truth >= 0) & (truth < p.shape[1])))
    if len(odd):
        msg = (
            f"Each row's probability must not be negative and sum to 1, and its label be a number "
            f"from 0 to {p.shape[1] - 1}; broken in {len(odd)} rows ({some_of(odd)})."
        )
        raise InputError(msg)
    return p, truth.astype(np.int64)
