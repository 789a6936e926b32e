"""The last part of a search for neighbours on a CPU, compiled: which references to compare."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustpll.methods.numba_utils import compiled

Floats = NDArray[Any]
Places = NDArray[np.int64]

GROUP = 16  # columns of which the minimum is looked at first


class Asked(NamedTuple):
    """A block of queries and what is known of their distances to all references."""

    queries: Floats  # (b, d)
    own: Places  # (b,): references that are left out
    rough: Floats  # (b, n): lower bounds
    minima: Floats  # (b, groups) of groups of every (n // GROUP)-th column, then columns left
    first: Places  # (b, few): groups with the least minima
    terms: Floats  # (b, 3): a, b, c; with a bound above (a + b t)^2 - c one is farther than t


class Found(NamedTuple):
    """What is written to."""

    at: Places  # (b, count)
    distance: Floats  # (b, count)
    sure: NDArray[np.bool_]  # (b,)


class Compiled(NamedTuple):
    """The two functions below as machine code."""

    least: Callable[[Floats, Places], None]
    compare: Callable[[Asked, Floats, int, Found], None]


@cache
def compiled_comparison() -> Compiled | None:
    least, compare = compiled(fast_least), compiled(fast_compare)
    return None if least is None or compare is None else Compiled(least, compare)


def fast_least(values: Floats, at: Places) -> None:
    """Writes where the least numbers of each row of values (b, n) are, least first, (b, few)."""
    few = at.shape[1]
    for i in range(len(values)):
        worst = np.inf
        for j in range(values.shape[1]):
            value = values[i, j]
            if j < few or value < worst:
                place = min(j, few - 1)
                while place > 0 and values[i, at[i, place - 1]] > value:
                    at[i, place] = at[i, place - 1]
                    place -= 1
                at[i, place] = j
                if j >= few - 1:
                    worst = values[i, at[i, few - 1]]


def fast_compare(asked: Asked, references: Floats, most: int, found: Found) -> None:
    """Finds the nearest references (n, d) of each query, nearest first; of equals the first.

    The least of each of the first groups is compared, and then all whose bounds do not say that
    they are farther than what was found; but `most` at the most, or the result is not sure. What
    is compared becomes NaN among the bounds.
    """
    queries, own, rough, minima, first, terms = asked
    at, distance, sure = found
    size, few, count = rough.shape[1] // GROUP, first.shape[1], at.shape[1]
    for i in range(len(rough)):
        filled, compared, limit = 0, 0, np.inf
        for turn in range(few + minima.shape[1]):
            group = first[i, turn] if turn < few else turn - few
            bar = minima[i, group] if turn < few else limit
            if compared > most or not minima[i, group] <= bar:
                continue
            for member in range(0 if group < size else GROUP - 1, GROUP):
                j = member * size + group
                if j == own[i] or not rough[i, j] <= bar:
                    continue
                square = 0.0
                for f in range(queries.shape[1]):
                    square += (queries[i, f] - references[j, f]) ** 2
                apart = np.sqrt(square)
                rough[i, j] = np.nan
                compared += 1
                last = distance[i, count - 1]
                if filled == count and (apart > last or (apart == last and j > at[i, count - 1])):
                    continue
                place = min(filled, count - 1)
                while place > 0 and (
                    distance[i, place - 1] > apart
                    or (distance[i, place - 1] == apart and at[i, place - 1] > j)
                ):
                    distance[i, place], at[i, place] = distance[i, place - 1], at[i, place - 1]
                    place -= 1
                distance[i, place], at[i, place] = apart, j
                filled = min(filled + 1, count)
                if filled == count:
                    reach = terms[i, 0] + terms[i, 1] * distance[i, count - 1]
                    limit = reach * reach - terms[i, 2]
        sure[i] = compared <= most and filled == count and not np.isnan(limit)
