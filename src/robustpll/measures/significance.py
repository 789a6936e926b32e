"""Which results are bold: those that no paired test tells from the best."""

import math
from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from robustpll.errors import InputError, some_of
from robustpll.measures.metrics import sample

LEVEL = 0.05

Runs = Mapping[Hashable, float]  # accuracy by (dataset, seed), or whatever tells runs apart
Groups = Mapping[str, Hashable]  # such as "ensemble", by method


def paired_p(first: ArrayLike, second: ArrayLike) -> float:
    """p-value of the two-sided paired t-test; NaN where it is undefined.

    That is for equal samples, and for a single pair.

    >>> best = [0.96, 0.961, 0.959, 0.96, 0.962]
    >>> round(paired_p(best, [0.955, 0.958, 0.957, 0.953, 0.96]), 6)
    0.017256
    >>> paired_p(best, best)
    nan
    """
    a, b = sample(first, "first"), sample(second, "second")
    if len(a) != len(b):
        msg = f"Pairs are needed, but there are {len(a)} and {len(b)} numbers. Pass equal numbers."
        raise InputError(msg)
    gaps = a - b
    if len(gaps) < 2 or not gaps.any():
        return math.nan
    error = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if error == 0:
        return 0.0  # always the same difference
    return float(2 * stats.t.sf(abs(float(gaps.mean())) / error, df=len(gaps) - 1))


def bold(column: Mapping[str, Runs], groups: Groups | None = None) -> frozenset[str]:
    """The methods that are bold in a column of accuracies.

    In each group that is the best one, of the highest mean and first if several have it, and all
    whose paired two-sided t-test against it gives p >= 0.05 or is undefined. Tests are not
    corrected for their number.

    Parameters
    ----------
    column : mapping of methods, in the table's order, to their runs
        Runs are a mapping of (dataset, seed) to accuracy, the same keys for all methods of a group.
    groups : mapping of methods to groups, optional
        Methods are compared within their group, such as ensembles; without it with all.

    Examples
    --------
    >>> a = dict(enumerate([0.96, 0.961, 0.959, 0.96, 0.962]))
    >>> b = dict(enumerate([0.955, 0.958, 0.957, 0.953, 0.96]))
    >>> sorted(bold({"Proden": b, "RobustPll": a}))
    ['RobustPll']
    """
    found: set[str] = set()
    for methods in _grouped(column, groups):
        runs = _by_the_same_keys({method: column[method] for method in methods})
        best = max(methods, key=lambda method: math.fsum(runs[method]))
        tests = {method: paired_p(runs[method], runs[best]) for method in methods}
        found |= {method for method, p in tests.items() if math.isnan(p) or p >= LEVEL}
        found.add(best)
    return frozenset(found)


def single_best(column: Mapping[str, float], groups: Groups | None = None) -> frozenset[str]:
    """The methods that are bold in a column of signed measures, such as `signed_ks`.

    In each group that is the one with the highest value, first if several have it, provided that
    this is positive.

    >>> groups = {"Proden": "single", "RobustPll": "single", "Proden+Ens": "ensemble"}
    >>> single_best({"Proden": 0.1, "RobustPll": 0.5, "Proden+Ens": -0.2}, groups)
    frozenset({'RobustPll'})
    """
    sample([float(value) for value in column.values()], "column")
    best = [max(methods, key=column.__getitem__) for methods in _grouped(column, groups)]
    return frozenset(method for method in best if column[method] > 0)


def _grouped(column: Mapping[str, object], groups: Groups | None) -> list[list[str]]:
    """Methods of each group, in the table's order."""
    if groups is None:
        return [list(column)] if column else []
    without = [method for method in column if method not in groups]
    if without:
        msg = f"groups must name a group for every method; there is none for {some_of(without)}."
        raise InputError(msg)
    names = dict.fromkeys(groups[method] for method in column)
    return [[method for method in column if groups[method] == name] for name in names]


def _by_the_same_keys(runs: Mapping[str, Runs]) -> dict[str, np.ndarray]:
    """Accuracies of each method, paired by place."""
    first = next(iter(runs))
    keys = list(runs[first])
    for method, own in runs.items():
        odd = own.keys() ^ runs[first].keys()
        if odd:
            msg = (
                f"Runs are compared in pairs, but {method} and {first} differ in "
                f"{some_of(sorted(map(str, odd)))}. Pass the same datasets and seeds for both."
            )
            raise InputError(msg)
    return {m: sample([float(own[key]) for key in keys], m) for m, own in runs.items()}
