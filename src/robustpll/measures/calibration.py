"""How far probabilities can be trusted: calibration, and the error if unsure rows are rejected."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll._display import Displayed
from robustpll.errors import InputError, is_count, some_of
from robustpll.labels.parsing import refuse_rows
from robustpll.measures.metrics import Floats, sample

MOST_BINS = 20  # of a table in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Reliability(Displayed):
    """Predicted probabilities and observed frequencies, in bins of about equally many rows."""

    promised: Floats  # mean predicted probability of each bin, increasing, (b,)
    right: Floats  # share of the bin's rows for which the prediction was right, (b,)
    rows: NDArray[np.int64]  # number of rows of each bin, (b,)

    def _facts(self) -> str:
        return f"{len(self.rows)} bins, {self.rows.sum()} rows, error {self.error:.3f}"

    def _table(self) -> Any:
        import pandas as pd

        bins = {"promised": self.promised, "right": self.right, "rows": self.rows}
        return pd.DataFrame({name: column[:MOST_BINS] for name, column in bins.items()}).round(3)

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of `promised` and `right` over the rows."""
        return float(np.average(np.abs(self.promised - self.right), weights=self.rows))

    @property
    def chance(self) -> float:
        """The error that a perfectly calibrated model would have by chance, about.

        It is the mean distance of a bin's share of right predictions from its expectation; bins of
        few rows make it large.

        >>> reliability(np.full(100, 0.8), np.arange(100) < 80).chance.__round__(3)
        0.032
        """
        variance = self.promised * (1 - self.promised) / self.rows
        return float(np.average(np.sqrt(2 / np.pi * variance), weights=self.rows))


def _outcomes(values: ArrayLike, name: str, n: int) -> Floats:
    """Check and return n outcomes of 0 or 1."""
    array = sample(values, name)
    if len(array) != n or not np.isin(array, (0, 1)).all():
        shown = f"{len(array)} values ({some_of(np.unique(array))})"
        raise InputError(f"{name} must hold 0 or 1 for each of {n} rows; got {shown}.")
    return array


def reliability(promised: ArrayLike, right: ArrayLike, bins: int = 15) -> Reliability:
    """Compare predicted probabilities (n,) with outcomes of 0 or 1 (n,).

    Bins have equally many rows, but rows with equal probabilities share a bin. So the result does
    not depend on their order, and a model with few distinct probabilities has few bins.

    >>> result = reliability([0.5, 0.5, 0.5, 0.5, 0.9, 1.0], [1, 0, 1, 1, 1, 0], bins=3)
    >>> result.promised, result.right, result.rows
    (array([0.5 , 0.95]), array([0.75, 0.5 ]), array([4, 2]))
    >>> round(result.error, 4)
    0.3167
    """
    p = sample(promised, "promised")
    outcome = _outcomes(right, "right", len(p))
    if p.min() < -1e-6 or p.max() > 1 + 1e-6:  # the slack is for rounding
        raise InputError(f"promised must lie in [0, 1]; got {p.min():g} to {p.max():g}.")
    if not is_count(bins, least=1):
        raise InputError(f"bins must be an int of at least 1; got {bins!r}.")
    below = np.searchsorted(np.sort(p), p)  # equal values get the position of the first
    _, bin_of, rows = np.unique(below * bins // len(p), return_inverse=True, return_counts=True)
    return Reliability(
        np.bincount(bin_of, p) / rows, np.bincount(bin_of, outcome) / rows, rows.astype(np.int64)
    )


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationReport(Displayed):
    """How well probabilities are calibrated; smaller is better, except for the accuracy.

    `error` is the expected calibration error (ECE) of the most probable class, from 0 to 1, and
    `class_error` the mean over classes of that of each class's probability. `brier` is the mean
    squared distance of probability and truth, from 0 to 2. `log_loss` is the mean of -ln of the
    true class's probability; it is infinite if that is 0 anywhere.
    """

    accuracy: float
    error: float
    class_error: float
    brier: float
    log_loss: float
    top: Reliability = field(repr=False)  # of the most probable class
    classes: tuple[Reliability, ...] = field(repr=False)


def calibration_of(probability: ArrayLike, labels: ArrayLike, bins: int = 15) -> CalibrationReport:
    """As `calibration_report`, from probabilities (n, k) and class indices (n,).

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
    is_sound = (p >= 0).all(-1) & (np.abs(p.sum(-1) - 1) <= 1e-4) & (truth >= 0) & (truth < k)
    fault = f"Probabilities below 0 or with a sum other than 1, or labels not from 0 to {k - 1},"
    refuse_rows(~is_sound, fault, "Correct these rows.")
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


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage(Displayed):
    """The risk-coverage curve: the error among the most certain rows, for every number of them."""

    coverage: Floats  # share of accepted rows, from 1 / n to 1, (n,)
    error: Floats  # share of wrong predictions among them, (n,)

    def _facts(self) -> str:
        return f"{len(self.error)} rows, area {self.area:.3f}"

    @property
    def area(self) -> float:
        """AURC, the mean error over all coverages; smaller is better."""
        return float(self.error.mean())


def risk_coverage(certainty: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Compute the curve from certainties (n,), higher is surer, and outcomes of 0 or 1 (n,).

    For rows of equal certainty, the error is the mean over all their orders.

    >>> curve = risk_coverage([0.9, 0.8, 0.7, 0.7], [1, 0, 1, 0])
    >>> curve.error.round(4)  # 0 of 1, 1 of 2, 1.5 of 3, 2 of 4
    array([0. , 0.5, 0.5, 0.5])
    >>> curve.area
    0.375
    """
    sure = sample(certainty, "certainty")
    right = _outcomes(correct, "correct", len(sure))
    order = np.argsort(-sure, kind="stable")
    counts = np.arange(1, len(sure) + 1)
    ends = counts[np.append(np.diff(sure[order]) < 0, True)]
    wrong = np.cumsum(1 - right[order])[ends - 1]
    expected = np.interp(counts, [0, *ends], [0, *wrong])
    return RiskCoverage(counts / len(sure), expected / counts)
