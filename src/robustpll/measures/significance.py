"""Which results to print in bold: the best, and those that a paired test does not tell from it."""

import math
import warnings
from collections.abc import Hashable, Mapping

from numpy.typing import ArrayLike
from scipy import stats

from robustpll.errors import InputError
from robustpll.measures.metrics import sample

LEVEL = 0.05

Runs = Mapping[Hashable, float]  # accuracy by (dataset, seed), or another key of a run
Groups = Mapping[str, Hashable]  # method -> group, such as "ensemble"


def paired_p(first: ArrayLike, second: ArrayLike) -> float:
    """p-value of the two-sided paired t-test; NaN for equal samples and for a single pair.

    >>> best = [0.96, 0.961, 0.959, 0.96, 0.962]
    >>> round(paired_p(best, [0.955, 0.958, 0.957, 0.953, 0.96]), 6)
    0.017256
    >>> paired_p(best, best)
    nan
    """
    a, b = sample(first, "first"), sample(second, "second")
    if len(a) != len(b):
        raise InputError(f"first and second must have equal length; got {len(a)} and {len(b)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # differences that are nearly equal
        return float(stats.ttest_rel(a, b).pvalue)


def bold(column: Mapping[str, Runs], groups: Groups | None = None) -> frozenset[str]:
    """Return the methods that are bold in a column of accuracies.

    In each group these are the method with the highest mean (the first of several), and all methods
    whose paired t-test against it gives p >= 0.05 or is undefined. There is no correction for the
    number of tests.

    Parameters
    ----------
    column : mapping of methods, in the table's order, to their runs
        Runs map (dataset, seed) to accuracy, with the same keys for all methods of a group.
    groups : mapping of methods to groups, optional
        Methods are compared within their group, such as ensembles; by default all together.

    Examples
    --------
    >>> a = dict(enumerate([0.96, 0.961, 0.959, 0.96, 0.962]))
    >>> b = dict(enumerate([0.955, 0.958, 0.957, 0.953, 0.96]))
    >>> sorted(bold({"Proden": b, "RobustPll": a}))
    ['RobustPll']
    """
    marked: set[str] = set()
    for methods in _grouped(column, groups):
        keys = column[methods[0]].keys()
        if any(column[method].keys() != keys for method in methods):
            raise InputError(f"{', '.join(methods)} must have the same datasets and seeds.")
        runs = {method: [column[method][key] for key in keys] for method in methods}
        best = max(methods, key=lambda method: math.fsum(runs[method]))
        p_values = {method: paired_p(runs[method], runs[best]) for method in methods}
        marked |= {method for method, p in p_values.items() if math.isnan(p) or p >= LEVEL}
        marked.add(best)
    return frozenset(marked)


def single_best(column: Mapping[str, float], groups: Groups | None = None) -> frozenset[str]:
    """Return the methods that are bold in a column of signed measures, such as `signed_ks`.

    In each group this is the first method with the highest value, if that is positive.

    >>> groups = {"Proden": "single", "RobustPll": "single", "Proden+Ens": "ensemble"}
    >>> single_best({"Proden": 0.1, "RobustPll": 0.5, "Proden+Ens": -0.2}, groups)
    frozenset({'RobustPll'})
    """
    sample([float(value) for value in column.values()], "column")
    best = [max(methods, key=column.__getitem__) for methods in _grouped(column, groups)]
    return frozenset(method for method in best if column[method] > 0)


def _grouped(column: Mapping[str, object], groups: Groups | None) -> list[list[str]]:
    """Methods of each group, in the table's order."""
    members: dict[Hashable, list[str]] = {}
    for method in column:
        if groups is not None and method not in groups:
            raise InputError(f"groups must name a group for every method; none for {method}.")
        members.setdefault(groups and groups[method], []).append(method)
    return list(members.values())
