"""The published measures: accuracy, and how far the entropies of test and OOD rows lie apart.

Measures of two samples are positive where OOD rows have the higher entropies: a model that is
unsure of what it does not know.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from robustpll.errors import InputError, some_of

Floats = NDArray[np.float64]
Gamma = Literal["pooled-mean", "median"] | float

DECIMALS = 6  # of stored entropies
PAIRS, PAIRS_SEED = 10_000, 42  # of which the bandwidth is made
NUMBERS_AT_ONCE = 2**18  # of kernel values, so that they stay in the cache


class MeanStd(NamedTuple):
    """Mean and standard deviation over runs."""

    mean: float
    std: float


def accuracy(correct: ArrayLike) -> float:
    """Share of right predictions, from a column that says of each row whether it was right.

    >>> accuracy([1, 0, 1, 1])
    0.75
    """
    found = sample(correct, "correct")
    odd = found[(found != 0) & (found != 1)]
    if len(odd):
        msg = (
            f"correct must hold 0 and 1, or False and True; found {some_of(odd)}. Compare "
            "predicted and true labels first."
        )
        raise InputError(msg)
    return float(found.mean())


def mean_std(values: ArrayLike) -> MeanStd:
    """Over runs, such as five seeds; the deviation is that of the population (divided by n).

    >>> found = mean_std([0.96, 0.961, 0.959, 0.96, 0.962])
    >>> f"{found.mean:.4f} ± {found.std:.6f}"
    '0.9604 ± 0.001020'
    """
    found = sample(values, "values")
    return MeanStd(float(found.mean()), float(found.std()))


def as_recorded(entropy: ArrayLike) -> Floats:
    """Entropies as result tables hold them: six decimals, and 1 where there is none (NaN).

    >>> as_recorded([0.12345678, np.nan])
    array([0.123457, 1.      ])
    """
    found = np.array(entropy, dtype=np.float64)
    found[np.isnan(found)] = 1.0
    return found.round(DECIMALS)


def cdf_area(test: ArrayLike, ood: ArrayLike, *, exact: bool = False) -> float:
    """Area between the empirical distribution functions of test and OOD entropies.

    Parameters
    ----------
    test, ood : arrays of shape (n,) and (m,)
        Entropies.
    exact : bool
        The integral of the two step functions' difference, which is the difference of the means.
        Without it, the published number: the test function is interpolated between its steps, and
        the trapezoid rule runs over the distinct OOD values alone. It is not symmetric, and 0 where
        all OOD values are equal.

    Examples
    --------
    >>> test, ood = [0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0]
    >>> round(cdf_area(test, ood), 6), round(cdf_area(ood, test), 6)
    (0.35, -0.14375)
    >>> round(cdf_area(test, ood, exact=True), 6)
    0.55
    """
    t, o = sample(test, "test"), sample(ood, "ood")
    if exact:
        return float(o.mean() - t.mean())
    at_test, below_test = distribution(t)
    at_ood, below_ood = distribution(o)
    gap = np.interp(at_ood, at_test, below_test) - below_ood
    return float(trapezoid(gap, at_ood))


def distribution(values: ArrayLike) -> tuple[Floats, Floats]:
    """The empirical distribution function: distinct values, and the share up to each.

    >>> distribution([0, 0.1, 0.1, 0.3])
    (array([0. , 0.1, 0.3]), array([0.25, 0.75, 1.  ]))
    """
    at, counts = np.unique(sample(values, "values"), return_counts=True)
    return at, counts.cumsum() / counts.sum()


def signed_ks(test: ArrayLike, ood: ArrayLike) -> float:
    """The Kolmogorov-Smirnov distance of test and OOD entropies, with a sign.

    It is positive where the test function is further above the other than it is below anywhere,
    also if both are equal.

    >>> test, ood = [0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0]
    >>> signed_ks(test, ood), signed_ks(ood, test)
    (0.75, -0.75)
    """
    t, o = sample(test, "test"), sample(ood, "ood")
    points = np.concatenate([t, o])
    gap = _number_up_to(points, t) * len(o) - _number_up_to(points, o) * len(t)  # whole: ties count
    above, below = int(gap.max()), -int(gap.min())
    return (above if above >= below else -below) / (len(t) * len(o))


def signed_mmd(test: ArrayLike, ood: ArrayLike, gamma: Gamma = "pooled-mean") -> float:
    """The maximum mean discrepancy of test and OOD entropies, positive where OOD's mean is higher.

    The kernel is exp(-gamma (a - b)^2). No value is paired with itself. Samples of equal size are
    compared as published: a test value is not paired with the OOD value at the same place, so their
    order matters a little. Samples of other sizes are compared in all pairs. The largest number is
    the square root of 2.

    All pairs count, at a price that grows with the number of values, not of pairs.

    Parameters
    ----------
    test, ood : arrays of shape (n,) and (m,)
        At least two entropies each.
    gamma : {"pooled-mean", "median"} or float
        A number, or the rule of `published_gamma` or `median_gamma` on these two samples. The
        published numbers share one `published_gamma` of all methods' entropies.

    Examples
    --------
    >>> test, ood = [0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0]
    >>> round(signed_mmd(test, ood, gamma=1.0), 6), round(signed_mmd(ood, test, gamma=5.0), 6)
    (0.615876, -0.772866)
    """
    t, o = sample(test, "test", least=2), sample(ood, "ood", least=2)
    both = np.concatenate([t, o])
    number = _checked_gamma(gamma, both)
    if both.min() == both.max():
        return 0.0
    n, m = len(t), len(o)
    paired = n == m
    weights = 1 / (n * (n - 1)), 1 / (m * (m - 1)), 1 / (n * (n - 1) if paired else n * m)
    square = _kernel_sum(t, o, number, weights) - 1 / (n - 1) - 1 / (m - 1)
    if paired:
        square += 2 * weights[2] * _kernel(t - o, number).sum()
    size = math.sqrt(max(0.0, square))
    return size if o.mean() > t.mean() else -size


def published_gamma(values: ArrayLike) -> float:
    """1 / (2 m^2) for the mean distance m of 10,000 random pairs; the draw is always the same.

    For the published numbers `values` are the test and OOD entropies of all methods and seeds, so
    a method's number depends on which others were run. Where no drawn pair differs, m is the mean
    over all pairs.

    >>> round(published_gamma([0, 0.1, 0.1, 0.3, 0.2, 0.6, 0.9, 1.0]), 1)
    3.3
    """
    found = sample(values, "values")
    mean = float(_distances_of_pairs(found).mean()) or _mean_distance(found)
    return _gamma_of(mean, "mean", "There is nothing to compare.")


def median_gamma(values: ArrayLike) -> float:
    """As `published_gamma`, by the median distance: the usual rule, and the one the paper names.

    >>> round(median_gamma([0, 0.1, 0.1, 0.3, 0.2, 0.6, 0.9, 1.0]), 1)
    5.6
    """
    median = float(np.median(_distances_of_pairs(sample(values, "values"))))
    return _gamma_of(median, "median", "Use published_gamma, or gamma='pooled-mean'.")


def sample(values: ArrayLike, name: str, least: int = 1) -> Floats:
    """Finite numbers (n,), at least so many; the one check of all measures.

    >>> sample([1, 2], "values")
    array([1., 2.])
    """
    found = np.asarray(values)
    if found.ndim != 1 or len(found) < least or found.dtype.kind not in "biuf":
        msg = (
            f"{name} must be a one-dimensional array of at least {least} numbers; got shape "
            f"{found.shape} of type {found.dtype}. Pass one number for each row or run."
        )
        raise InputError(msg)
    odd = np.flatnonzero(~np.isfinite(found))
    if len(odd):
        msg = (
            f"{name} must be finite; {len(odd)} of its numbers are not (at {some_of(odd)}). "
            "Correct or drop them; as_recorded replaces missing entropies."
        )
        raise InputError(msg)
    return found.astype(np.float64)


def _number_up_to(points: Floats, values: Floats) -> NDArray[np.int64]:
    """How many values are at most each point."""
    return np.searchsorted(np.sort(values), points, side="right").astype(np.int64)


def _checked_gamma(gamma: Gamma, both: Floats) -> float:
    rules = {"pooled-mean": published_gamma, "median": median_gamma}
    if isinstance(gamma, str) and gamma in rules:
        return rules[gamma](both) if both.min() < both.max() else 1.0
    number = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not number or not 0 < float(gamma) < math.inf:
        msg = f"gamma must be 'pooled-mean', 'median' or a number above 0; got {gamma!r}."
        raise InputError(msg)
    return float(gamma)


def _distances_of_pairs(values: Floats) -> Floats:
    """Of random pairs, drawn with replacement."""
    at = np.random.default_rng(PAIRS_SEED).integers(len(values), size=(2, PAIRS))
    distances: Floats = np.abs(values[at[0]] - values[at[1]])
    return distances


def _mean_distance(values: Floats) -> float:
    """Over all ordered pairs, a value with itself included."""
    n, above = len(values), np.sort(values - values.min())  # equal values give 0, unrounded
    return float(2 * (above * (2 * np.arange(n) - n + 1)).sum() / n**2)


def _gamma_of(distance: float, kind: str, remedy: str) -> float:
    if distance < 1e-150:  # its square would be 0
        msg = f"The {kind} distance of the values is {distance:g}: no bandwidth. {remedy}"
        raise InputError(msg)
    return 1 / (2 * distance**2)


def _kernel(gaps: Floats, gamma: float) -> Floats:
    return np.exp(-gamma * gaps**2)


def _kernel_sum(t: Floats, o: Floats, gamma: float, weights: tuple[float, float, float]) -> float:
    """Kernel values of all pairs within t, within o, less twice those across; each weighted.

    By Poisson's summation formula a Gaussian that is repeated every `period` is a sum of cosines,
    exp(-gamma x^2) = sum_f c_f cos(2 pi f x / period), and a sum of cosines over pairs is a
    product of sums over values. What other repetitions add, and frequencies that are left out, is
    below e^-40, so nothing but rounding is lost. For entropies some 20 frequencies do.
    """
    within_t, within_o, across = weights
    low, high = min(t.min(), o.min()), max(t.max(), o.max())
    period = high - low + math.sqrt(40 / gamma)
    frequencies = math.ceil(period * math.sqrt(40 * gamma) / math.pi) + 1
    if frequencies > len(t) + len(o):
        each = _direct_sum(t, t, gamma), _direct_sum(o, o, gamma), _direct_sum(t, o, gamma)
        return within_t * each[0] + within_o * each[1] - 2 * across * each[2]
    of_t, of_o = (_waves(2 * math.pi * (each - low) / period, frequencies) for each in (t, o))
    height = np.exp(-((math.pi * np.arange(frequencies) / period) ** 2) / gamma)
    height[1:] *= 2  # f and -f
    spread = within_t * np.abs(of_t) ** 2 + within_o * np.abs(of_o) ** 2
    spread -= 2 * across * (of_t * of_o.conj()).real
    return math.sqrt(math.pi / gamma) / float(period) * float(height @ spread)


def _waves(angles: Floats, frequencies: int) -> NDArray[np.complex128]:
    """Sum of exp(i f angle) over the angles, for f from 0, (frequencies,)."""
    turn = np.exp(1j * angles)
    wave = np.ones_like(turn)
    found = np.empty(frequencies, dtype=np.complex128)
    for f in range(frequencies):
        found[f] = wave.sum()
        wave *= turn
    return found


def _direct_sum(a: Floats, b: Floats, gamma: float) -> float:
    """Kernel values of all pairs, block by block."""
    size = max(1, NUMBERS_AT_ONCE // len(b))
    blocks = (a[at : at + size, None] - b for at in range(0, len(a), size))
    return math.fsum(float(_kernel(block, gamma).sum()) for block in blocks)
