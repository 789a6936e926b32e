"""Selective prediction: the error that remains if the least certain rows are rejected."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError
from robustpll.measures.metrics import accuracy, sample

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk-coverage curve: the error among the most certain rows, for every number of them.

    Attributes
    ----------
    coverage : array of shape (n,)
        Share of accepted rows, from 1 / n to 1.
    error : array of shape (n,)
        Share of wrong predictions among them.
    """

    coverage: Floats
    error: Floats

    @property
    def area(self) -> float:
        """AURC, the mean error over all coverages; smaller is better."""
        return float(self.error.mean())

    @property
    def least_area(self) -> float:
        """The smallest possible area at this accuracy: all right rows before all wrong ones."""
        n = len(self.error)
        counts, right = np.arange(1, n + 1), round((1 - self.error[-1]) * n)
        return float((np.maximum(0, counts - right) / counts).mean())

    def coverage_at(self, error: float) -> float:
        """The largest coverage with at most this error; 0 if there is none."""
        valid = self.coverage[self.error <= error + 1e-12]
        return float(valid[-1]) if len(valid) else 0.0


def risk_coverage(certainty: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Compute the curve from certainties (n,), higher is surer, and outcomes of 0 or 1 (n,).

    For rows of equal certainty, the error is the mean over all their orders.

    Examples
    --------
    >>> curve = risk_coverage([0.9, 0.8, 0.7, 0.7], [1, 0, 1, 0])
    >>> curve.error.round(4)  # 0 of 1, 1 of 2, 1.5 of 3, 2 of 4
    array([0. , 0.5, 0.5, 0.5])
    >>> curve.area, round(curve.least_area, 4)
    (0.375, 0.2083)
    >>> curve.coverage_at(0.1)
    0.25
    """
    sure, right = sample(certainty, "certainty"), sample(correct, "correct")
    if len(sure) != len(right):
        raise InputError(
            f"certainty has {len(sure)} rows, but correct has {len(right)}: pass the same rows."
        )
    accuracy(right)  # refuses values other than 0 and 1
    order = np.argsort(-sure, kind="stable")
    counts = np.arange(1, len(sure) + 1)
    ends = counts[np.append(np.diff(sure[order]) < 0, True)]
    wrong = np.cumsum(1 - right[order])[ends - 1]
    expected = np.interp(counts, [0, *ends], [0, *wrong])
    return RiskCoverage(counts / len(sure), expected / counts)
