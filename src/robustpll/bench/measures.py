"""The measures of a benchmark: how each is computed from stored predictions, and how it is shown.

To add a measure, add one entry to `MEASURES`: it becomes a column of `Summary.runs`, `runs.csv` and
`runs.parquet`, and of the table of runs on the page. Any table may show it by its name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.evaluate.ood import separation
from robustpll.measures import metrics
from robustpll.measures.calibration import reliability
from robustpll.measures.metrics import as_recorded, cdf_area, signed_ks

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]  # stored predictions of one run under one condition
Entropies = tuple[Floats, Floats]  # of test rows (n,) and of out-of-distribution rows (m,)

CURVE_POINTS = 500  # more points cannot be seen in a figure
SMALLEST = 1e-6  # probabilities are stored to six decimals: 0 may mean any smaller number


@dataclass(frozen=True)
class Measure:
    """A number that is computed from the predictions of one run under one condition."""

    title: str
    compute: Callable[[Columns], float]
    needs: tuple[str, ...] = ("probability",)  # without these columns the measure is NaN
    scale: int = 1  # the factor from stored to shown values: 100 for percent
    decimals: int = 3
    higher_is_better: bool = True
    in_table: bool = False  # whether the page's table of runs shows it, or only a run's details

    @property
    def heading(self) -> str:
        return f"{self.title} in %" if self.scale == 100 else self.title


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean(dtype=np.float64))


def _right(columns: Columns) -> NDArray[Any]:
    return np.equal(columns["truth"], columns["predicted"])


def _brier(columns: Columns) -> float:
    of_truth, squared = columns["probability_of_truth"], columns["probability_squared"]
    return _mean(1 - 2 * of_truth.astype(float) + squared.astype(float))


def _log_loss(columns: Columns) -> float:
    return _mean(-np.log(np.maximum(columns["probability_of_truth"].astype(float), SMALLEST)))


def _ece(columns: Columns) -> float:
    return reliability(columns["probability"], _right(columns)).error


def _entropies(columns: Columns) -> Entropies:
    return columns["known_entropy"], as_recorded(columns["entropy"])


_TRUTH, _OOD = ("truth", "probability"), ("known_entropy", "probability")
MEASURES = {  # by their columns in `Summary.runs`
    "rows": Measure("rows", lambda c: len(c["row"]), (), decimals=0),
    "accuracy": Measure("accuracy", lambda c: _mean(_right(c)), ("truth",), 100, 1, in_table=True),
    "guesses": Measure("guesses", lambda c: _mean(c["guess"]), scale=100, decimals=2),
    "entropy": Measure("entropy", lambda c: _mean(as_recorded(c["entropy"])), in_table=True),
    "uncertainty": Measure("uncertainty", lambda c: _mean(c["uncertainty"]), in_table=True),
    "brier": Measure("Brier", _brier, _TRUTH, higher_is_better=False, in_table=True),
    "log_loss": Measure("log loss", _log_loss, _TRUTH, higher_is_better=False),
    "ece": Measure("ECE", _ece, _TRUTH, 100, 1, higher_is_better=False),
    "auroc": Measure("AUROC", lambda c: separation(*_entropies(c)).auroc, _OOD, in_table=True),
    "ks": Measure("KS", lambda c: signed_ks(*_entropies(c)), _OOD),
    "area": Measure("CDF area", lambda c: cdf_area(*_entropies(c)), _OOD),
}
POOLED_MEASURES = ("area", "area_exact", "ks", "mmd", "mmd_median", "gamma", "auroc")


def measured(columns: Columns) -> dict[str, float]:
    """Return all measures of one run under one condition; those that lack their columns are NaN.

    Rows of no known class have no truth, and an audit stores no probabilities. The column
    `known_entropy` holds the entropies of the same run's test rows.
    """
    usable = set(columns)
    if (columns["truth"] < 0).any():
        usable.discard("truth")
    if np.isnan(columns["probability"]).all():
        usable.discard("probability")
    return {
        name: measure.compute(columns) if usable.issuperset(measure.needs) else math.nan
        for name, measure in MEASURES.items()
    }


def compared(methods: Mapping[str, Entropies]) -> dict[str, dict[str, float]]:
    """Return how far apart test and OOD entropies are, for methods of one table.

    All methods share one bandwidth, so a method's MMD depends on which others are there. Where the
    bandwidth is undefined, the MMD is NaN.
    """
    pool = np.concatenate([part for entropies in methods.values() for part in entropies])
    gammas = []
    for rule in (metrics.published_gamma, metrics.median_gamma):
        try:
            gammas.append(rule(pool))
        except InputError:  # no two values differ, or most are equal
            gammas.append(math.nan)
    rows = {}
    for label, pair in methods.items():
        mmd, mmd_median = (
            math.nan if math.isnan(gamma) else metrics.signed_mmd(*pair, gamma=gamma)
            for gamma in gammas
        )
        exact, auroc = cdf_area(*pair, exact=True), separation(*pair).auroc
        values = (cdf_area(*pair), exact, signed_ks(*pair), mmd, mmd_median, gammas[0], auroc)
        rows[label] = dict(zip(POOLED_MEASURES, values, strict=True))
    return rows


def curve(values: Floats) -> Floats:
    """Return the empirical distribution function as a line of at most 500 points, (points, 2)."""
    points, share = metrics.distribution(values)
    length = points + share  # strictly increasing along the line
    wanted = np.linspace(length[0], length[-1], CURVE_POINTS)
    indices = np.unique(np.searchsorted(length, wanted).clip(max=len(points) - 1))
    return np.column_stack([points[indices], share[indices]])
