"""Average ranks of the methods over datasets, and how far apart they must be to differ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from robustpll.bench.accuracy_tables import Column, cells_of, title_of
from robustpll.errors import InputError
from robustpll.measures.significance import LEVEL

if TYPE_CHECKING:
    from robustpll.bench.summary import Summary


@dataclass(frozen=True)
class Ranks:
    """Average ranks; 1 is best."""

    average: Mapping[str, float]  # by label
    datasets: tuple[str, ...]  # the blocks: methods are ranked within each
    distance: float  # Nemenyi's critical difference at level 0.05: averages further apart differ
    p: float  # of Friedman's test that no two methods differ
    left_out: tuple[str, ...] = ()  # datasets on which not all methods have all their runs

    @property
    def caption(self) -> str:
        """What was compared, and how."""
        titles = ", ".join(map(title_of, self.datasets))
        pairs = len(self.average) * (len(self.average) - 1) / 2
        least = 2 / 2 ** len(self.datasets)  # the smallest p-value a signed-rank test can give
        blind = (
            " Pairwise Wilcoxon tests with Holm's correction could not find any difference with so "
            "few datasets."
        )
        without = f" Left out, as runs are missing: {', '.join(map(title_of, self.left_out))}."
        return (
            f"Average ranks by accuracy without attack over {len(self.datasets)} datasets "
            f"({titles}); 1 is best. A dataset counts once, by the mean of its seeds, since seeds "
            "of one dataset are no independent evidence about others. Methods under one bar are "
            f"not told apart: by Nemenyi's test at level {LEVEL:g} average ranks must differ by "
            f"more than {self.distance:.2f}. Friedman's test that all are equal: p = {self.p:.2g}."
            f"{blind if least * pairs > LEVEL else ''}{without if self.left_out else ''}"
        )


def ranks_of(scores: Mapping[str, ArrayLike]) -> tuple[dict[str, float], float, float]:
    """Average ranks, Nemenyi's critical difference, and the p-value of Friedman's test.

    Scores (datasets,) of each method: higher is better; ties share their ranks.

    >>> average, distance, p = ranks_of({"a": [9, 8, 9, 7], "b": [8, 7, 9, 6], "c": [5, 5, 5, 5]})
    >>> average, round(distance, 3), round(p, 3)
    ({'a': 1.125, 'b': 1.875, 'c': 3.0}, 1.657, 0.022)
    """
    table = np.array([np.asarray(each, float) for each in scores.values()])  # (methods, datasets)
    if table.ndim != 2 or table.shape[0] < 3 or table.shape[1] < 2:
        msg = (
            "Ranks need three methods or more, and scores on the same two datasets or more for "
            f"each; got shape {table.shape}. Compare two methods by paired_p."
        )
        raise InputError(msg)
    methods, datasets = table.shape
    average = stats.rankdata(-table, axis=0).mean(-1)
    quantile = stats.studentized_range.ppf(1 - LEVEL, methods, math.inf) / math.sqrt(2)
    distance = float(quantile) * math.sqrt(methods * (methods + 1) / (6 * datasets))
    equal = bool((table == table[0]).all())
    p = 1.0 if equal else float(stats.friedmanchisquare(*table).pvalue)
    return dict(zip(scores, average.tolist(), strict=True)), distance, p


def ranked(summary: "Summary") -> Ranks | None:
    """Ranks over the datasets on which all methods have all runs.

    None unless there are two of these, and three methods.
    """
    scores: dict[str, list[float]] = {line.label: [] for line in summary.lines}
    datasets, left_out = [], []
    for dataset in summary.stored:
        cells = cells_of(summary, Column(dataset, (dataset,)))
        if not all(cell.complete for cell in cells.values()):
            left_out.append(dataset)
            continue
        datasets.append(dataset)
        for label, cell in cells.items():
            scores[label].append(cell.value or 0.0)
    if len(datasets) < 2 or len(scores) < 3:
        return None
    average, distance, p = ranks_of(scores)
    return Ranks(average, tuple(datasets), distance, p, tuple(left_out))
