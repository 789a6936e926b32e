"""What the stored predictions of a run amount to, and the entropies of several runs together."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.evaluate.ood import separation
from robustpll.measures.calibration import reliability
from robustpll.measures.metrics import (
    accuracy,
    as_recorded,
    cdf_area,
    distribution,
    median_gamma,
    published_gamma,
    signed_ks,
    signed_mmd,
)

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]  # of the predictions under one condition, in the order of rows

POINTS = 500  # of a curve: more cannot be seen
LEAST = 1e-6  # probabilities are stored to this step, so 0 means less, not never


class Curves(NamedTuple):
    """Distribution functions of entropies, as lines (points, 2)."""

    test: Floats
    ood: Floats


class Entropies(NamedTuple):
    """Of the same runs' test and OOD rows, (n,) and (m,)."""

    test: Floats
    ood: Floats


def by_condition(table: Any) -> dict[tuple[str, str], Columns]:
    """The columns of an Arrow table of predictions for each (part, condition), sorted by row."""
    names = ["part", "condition"]
    arrays = {name: table[name].to_numpy() for name in table.column_names if name not in names}
    found = {}
    groups = table.select(names).to_pandas().groupby(names, observed=True).indices
    for condition, at in groups.items():
        in_order = at[np.argsort(arrays["row"][at], kind="stable")]
        found[condition] = {name: values[in_order] for name, values in arrays.items()}
    return found


def measured(columns: Columns) -> dict[str, float]:
    """Measures of one run under one condition; those that need true labels are NaN without.

    Of a worst case there are no probabilities, but accuracy alone.

    >>> right = {"truth": [1, 0], "predicted": [1, 1], "guess": [False, True]}
    >>> sure = {"entropy": [0.0, 1.0], "uncertainty": [0.0, 0.5], "probability": [1.0, 0.5]}
    >>> of_truth = {"probability_of_truth": [1.0, 0.5], "probability_squared": [1.0, 0.5]}
    >>> found = measured({n: np.array(c) for n, c in (right | sure | of_truth).items()})
    >>> found["accuracy"], found["guesses"], found["brier"], round(found["log_loss"], 4)
    (0.5, 0.5, 0.25, 0.3466)
    >>> found["ece"]  # (|1 - 1| + |0 - 0.5|) / 2
    0.25
    """
    truth, of_truth = columns["truth"], columns["probability_of_truth"].astype(np.float64)
    known = len(truth) > 0 and bool((truth >= 0).all())
    right = truth == columns["predicted"]
    if known and np.isnan(columns["probability"]).all():
        return {"rows": len(truth), "accuracy": accuracy(right)}
    squared = columns["probability_squared"].astype(np.float64)
    log_loss = -np.log(np.maximum(of_truth, LEAST))
    return {
        "rows": len(truth),
        "accuracy": accuracy(right) if known else math.nan,
        "guesses": float(columns["guess"].mean()),
        "entropy": float(as_recorded(columns["entropy"]).mean()),
        "uncertainty": float(columns["uncertainty"].mean(dtype=np.float64)),
        "brier": float((1 - 2 * of_truth + squared).mean()) if known else math.nan,
        "log_loss": float(log_loss.mean()) if known else math.nan,
        "ece": reliability(columns["probability"], right).error if known else math.nan,
    }


def separated(entropies: Entropies) -> dict[str, float]:
    """How far apart test and OOD rows of one run are.

    >>> found = separated(Entropies(np.array([0, 0.1, 0.1, 0.3]), np.array([0.2, 0.6, 0.9, 1])))
    >>> found["ks"], found["auroc"], round(found["area"], 6)
    (0.75, 0.9375, 0.35)
    """
    return {
        "auroc": separation(*entropies).auroc,
        "ks": signed_ks(*entropies),
        "area": cdf_area(*entropies),
    }


def pooled(runs: Sequence[Entropies]) -> Entropies:
    """Of several runs, one after the other."""
    return Entropies(*(np.concatenate(each) for each in zip(*runs, strict=True)))


def compared(methods: Mapping[str, Entropies]) -> dict[str, dict[str, float]]:
    """How far apart test and OOD rows are, for methods that are compared with each other.

    They share one bandwidth, of the entropies of all, so that a method's discrepancy depends on
    which others are there. A bandwidth that does not exist makes the discrepancy NaN.

    >>> sample = Entropies(np.array([0, 0.1, 0.1, 0.3]), np.array([0.2, 0.6, 0.9, 1.0]))
    >>> found = compared({"Proden": sample})["Proden"]
    >>> round(found["mmd"], 1), round(found["gamma"], 1), round(found["area_exact"], 6)
    (0.8, 3.3, 0.55)
    """
    everything = np.concatenate([part for each in methods.values() for part in each])
    gamma, median = _or_nan(published_gamma, everything), _or_nan(median_gamma, everything)
    return {
        label: {
            **separated(each),
            "area_exact": cdf_area(*each, exact=True),
            "mmd": math.nan if math.isnan(gamma) else signed_mmd(*each, gamma=gamma),
            "mmd_median": math.nan if math.isnan(median) else signed_mmd(*each, gamma=median),
            "gamma": gamma,
        }
        for label, each in methods.items()
    }


def curve(values: Floats) -> Floats:
    """The distribution function as a line through at most 500 of its points, (points, 2).

    >>> curve(np.array([0, 0.1, 0.1, 0.3])).tolist()
    [[0.0, 0.25], [0.1, 0.75], [0.3, 1.0]]
    """
    at, share = distribution(values)
    along = at + share  # rises strictly, by each step to the right and up
    wanted = np.linspace(along[0], along[-1], POINTS)
    kept = np.unique(np.searchsorted(along, wanted).clip(max=len(at) - 1))
    return np.column_stack([at[kept], share[kept]])


def _or_nan(rule: Callable[[Floats], float], values: Floats) -> float:
    try:
        return rule(values)
    except InputError:  # the values do not differ, or most do not
        return math.nan
