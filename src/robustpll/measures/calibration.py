"""Calibration: of rows predicted with probability 0.8, are 80 % correct?"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, is_count, some_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted probabilities and observed frequencies, in bins of about equally many rows.

    Attributes
    ----------
    promised : array of shape (b,)
        Mean predicted probability of each bin, increasing.
    right : array of shape (b,)
        Share of the bin's rows for which the prediction was right.
    rows : int array of shape (b,)
        Number of rows of each bin.
    """

    promised: Floats
    right: Floats
    rows: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of `promised` and `right` over the rows."""
        return float(np.average(np.abs(self.promised - self.right), weights=self.rows))


def reliability(promised: ArrayLike, right: ArrayLike, bins: int = 15) -> Reliability:
    """Compare predicted probabilities (n,) with outcomes of 0 or 1 (n,).

    Bins have equally many rows, but rows with equal probabilities share a bin. So the result does
    not depend on their order, and a model with few distinct probabilities has few bins.

    Examples
    --------
    >>> result = reliability([0.5, 0.5, 0.5, 0.5, 0.9, 1.0], [1, 0, 1, 1, 1, 0], bins=3)
    >>> result.promised, result.right, result.rows
    (array([0.5 , 0.95]), array([0.75, 0.5 ]), array([4, 2]))
    >>> round(result.error, 4)
    0.3167
    """
    p, outcome = np.asarray(promised, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if p.ndim != 1 or p.shape != outcome.shape or not len(p):
        raise InputError(
            "promised and right must be arrays of shape (n,) with one number for each row; got "
            f"{p.shape} and {outcome.shape}."
        )
    slack = 1e-6  # for rounding
    odd = np.flatnonzero(~((p >= -slack) & (p <= 1 + slack) & np.isin(outcome, (0, 1))))
    if len(odd):
        raise InputError(
            f"promised must lie in [0, 1] and right must be 0 or 1; broken in {len(odd)} rows "
            f"({some_of(odd)})."
        )
    if not is_count(bins, least=1):
        raise InputError(f"bins must be an int of at least 1; got {bins!r}.")
    below = np.searchsorted(np.sort(p), p)  # equal values get the position of the first
    _, bin_of, rows = np.unique(below * bins // len(p), return_inverse=True, return_counts=True)
    return Reliability(
        np.bincount(bin_of, p) / rows, np.bincount(bin_of, outcome) / rows, rows.astype(np.int64)
    )


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How well probabilities are calibrated; smaller is better, except for the accuracy.

    Attributes
    ----------
    accuracy : float
        Share of rows whose most probable class is the true one.
    error : float
        Expected calibration error (ECE) of the most probable class, from 0 to 1.
    class_error : float
        The mean over classes of the calibration error of each class's probability.
    brier : float
        Mean squared distance of probability and truth, from 0 to 2.
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
        names = ("accuracy", "error", "class_error", "brier", "log_loss")
        values = ", ".join(f"{name}={getattr(self, name):.4f}" for name in names)
        return f"CalibrationReport({values})"


def calibration_of(probability: ArrayLike, labels: ArrayLike, bins: int = 15) -> CalibrationReport:
    """As `calibration_report`, from probabilities (n, k) and class indices (n,).

    Examples
    --------
    >>> report = calibration_of([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], [0, 1, 1])
    >>> round(report.brier, 4), round(report.log_loss, 4)  # (0.08 + 0.72 + 0.18) / 3, ...
    (0.3267, 0.4987)
    >>> round(report.error, 4)  # (|1 - 0.8| + |0 - 0.6| + |1 - 0.7|) / 3
    0.3667
    """
    p, truth = np.asarray(probability, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or truth.shape != p.shape[:1] or not p.size or truth.dtype.kind not in "iu":
        raise InputError(
            "probability must have shape (n, k), and labels one int for each row; got shapes "
            f"{p.shape} and {truth.shape} of type {truth.dtype}."
        )
    n, k = p.shape
    sums_to_one = np.abs(p.sum(-1) - 1) <= 1e-4
    odd = np.flatnonzero(~((p >= 0).all(-1) & sums_to_one & (truth >= 0) & (truth < k)))
    if len(odd):
        raise InputError(
            "Each row's probability must not be negative and must sum to 1, and its label must be "
            f"an index from 0 to {k - 1}; broken in {len(odd)} rows ({some_of(odd)})."
        )
    is_true = np.arange(k) == truth[:, None]  # (n, k)
    with np.errstate(divide="ignore"):
        log_loss = -np.log(p[is_true]).mean()
    predicted = p.argmax(-1)
    top = reliability(p[np.arange(n), predicted], predicted == truth, bins)
    classes = tuple(reliability(p[:, j], is_true[:, j], bins) for j in range(k))
    return CalibrationReport(
        float((predicted == truth).mean()),
        top.error,
        math.fsum(one.error for one in classes) / k,
        float(np.square(p - is_true).sum(-1).mean()),
        float(log_loss),
        top,
        classes,
    )
