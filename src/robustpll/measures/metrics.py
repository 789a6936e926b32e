"""Accuracy, and the published measures of how far entropies of test and OOD rows lie apart.

Measures of two samples are positive if out-of-distribution (OOD) rows have higher entropies.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from robustpll.errors import InputError, is_number, some_of

Floats = NDArray[np.float64]
Gamma = Literal["pooled-mean", "median"] | float


class MeanStd(NamedTuple):
    """Mean and standard deviation over runs."""

    mean: float
    std: float


def sample(values: ArrayLike, name: str, least: int = 1) -> Floats:
    """Check and return finite numbers (n,), at least `least` of them.

    >>> sample([1, 2], "values")
    array([1., 2.])
    """
    array = np.asarray(values)
    if array.ndim != 1 or len(array) < least or array.dtype.kind not in "biuf":
        raise InputError(
            f"{name} must be a one-dimensional array of at least {least} numbers; got shape "
            f"{array.shape} of type {array.dtype}. Pass one number for each row or run."
        )
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite. Drop NaN and infinity, or use as_recorded.")
    return array.astype(np.float64)


def accuracy(correct: ArrayLike) -> float:
    """Share of correct predictions, from an array of 0 and 1.

    >>> accuracy([1, 0, 1, 1])
    0.75
    """
    values = sample(correct, "correct")
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"correct must hold 0 and 1; got {some_of(np.unique(values))}.")
    return float(values.mean())


def mean_std(values: ArrayLike) -> MeanStd:
    """Mean and population standard deviation (divided by n) over runs, such as five seeds.

    >>> result = mean_std([0.96, 0.961, 0.959, 0.96, 0.962])
    >>> f"{result.mean:.4f} ± {result.std:.6f}"
    '0.9604 ± 0.001020'
    """
    array = sample(values, "values")
    return MeanStd(float(array.mean()), float(array.std()))


def as_recorded(entropy: ArrayLike) -> Floats:
    """Round entropies as result tables do: six decimals, and 1 for NaN.

    >>> as_recorded([0.12345678, np.nan])
    array([0.123457, 1.      ])
    """
    values = np.array(entropy, dtype=np.float64)
    values[np.isnan(values)] = 1.0
    return values.round(6)


def cdf_area(test: ArrayLike, ood: ArrayLike, *, exact: bool = False) -> float:
    """Area between the empirical distribution functions of test (n,) and OOD entropies (m,).

    With `exact`, the step functions are integrated, which gives the difference of the means.
    Otherwise the number is the published one: the test function is interpolated between its steps,
    and the trapezoid rule runs over the distinct OOD values. That is not symmetric, and 0 if all
    OOD values are equal.

    >>> test, ood = [0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0]
    >>> round(cdf_area(test, ood), 6), round(cdf_area(test, ood, exact=True), 6)
    (0.35, 0.55)
    """
    t, o = sample(test, "test"), sample(ood, "ood")
    if exact:
        return float(o.mean() - t.mean())
    x, cdf = distribution(o)
    return float(trapezoid(np.interp(x, *distribution(t)) - cdf, x))


def distribution(values: ArrayLike) -> tuple[Floats, Floats]:
    """Empirical distribution function: the distinct values, and the share of values up to each.

    >>> distribution([0, 0.1, 0.1, 0.3])
    (array([0. , 0.1, 0.3]), array([0.25, 0.75, 1.  ]))
    """
    x, counts = np.unique(sample(values, "values"), return_counts=True)
    return x, counts.cumsum() / counts.sum()


def signed_ks(test: ArrayLike, ood: ArrayLike) -> float:
    """Kolmogorov-Smirnov distance of test and OOD entropies, with a sign.

    Positive if the largest difference has the test function above the OOD function.

    >>> test, ood = [0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0]
    >>> signed_ks(test, ood), signed_ks(ood, test)
    (0.75, -0.75)
    """
    t, o = sample(test, "test"), sample(ood, "ood")
    points = np.concatenate([t, o])
    up_to_t, up_to_o = (np.searchsorted(np.sort(x), points, side="right") for x in (t, o))
    gap = up_to_t * len(o) - up_to_o * len(t)  # integers, so that ties are exact
    above, below = int(gap.max()), -int(gap.min())
    return (above if above >= below else -below) / (len(t) * len(o))


def signed_mmd(test: ArrayLike, ood: ArrayLike, gamma: Gamma = "pooled-mean") -> float:
    """Maximum mean discrepancy of test and OOD entropies, positive if the OOD mean is higher.

    The kernel is exp(-gamma (a - b)^2), and no value is paired with itself. For samples of equal
    size the published rule also leaves out pairs at the same position, so their order matters a
    little. The result is at most the square root of 2. Its cost grows with n + m, not with n m.
    `gamma` is a number, or the rule of `published_gamma` or `median_gamma` on these samples. The
    published numbers share one `published_gamma` of all methods' entropies.

    >>> round(signed_mmd([0, 0.1, 0.1, 0.3], [0.2, 0.6, 0.9, 1.0], gamma=1.0), 6)
    0.615876
    """
    t, o = sample(test, "test", least=2), sample(ood, "ood", least=2)
    both = np.concatenate([t, o])
    rules = {"pooled-mean": published_gamma, "median": median_gamma}
    rule = rules.get(gamma) if isinstance(gamma, str) else None
    if rule is None and not (is_number(gamma) and float(gamma) > 0):
        raise InputError(f"gamma must be 'pooled-mean', 'median' or above 0; got {gamma!r}.")
    if both.min() == both.max():
        return 0.0
    number = rule(both) if rule else float(gamma)
    n, m = len(t), len(o)
    paired = n == m
    weights = 1 / (n * (n - 1)), 1 / (m * (m - 1)), 1 / (n * (n - 1) if paired else n * m)
    square = _kernel_sum(t, o, number, weights) - 1 / (n - 1) - 1 / (m - 1)
    if paired:
        square += 2 * weights[2] * np.exp(-number * (t - o) ** 2).sum()
    size = math.sqrt(max(0.0, square))
    return size if o.mean() > t.mean() else -size


def published_gamma(values: ArrayLike) -> float:
    """1 / (2 m^2), where m is the mean distance of 10,000 random pairs; of all pairs if that is 0.

    >>> round(published_gamma([0, 0.1, 0.1, 0.3, 0.2, 0.6, 0.9, 1.0]), 1)
    3.3
    """
    array = sample(values, "values")
    mean = float(_pair_distances(array).mean())
    if mean == 0:  # all ordered pairs; shifted by the minimum, so that equal values give exactly 0
        n, above = len(array), np.sort(array - array.min())
        mean = float(2 * (above * (2 * np.arange(n) - n + 1)).sum() / n**2)
    return _gamma_of(mean)


def median_gamma(values: ArrayLike) -> float:
    """As `published_gamma`, with the median distance: the usual rule, and the one the paper names.

    >>> round(median_gamma([0, 0.1, 0.1, 0.3, 0.2, 0.6, 0.9, 1.0]), 1)
    5.6
    """
    return _gamma_of(float(np.median(_pair_distances(sample(values, "values")))))


def _pair_distances(values: Floats) -> Floats:
    """Distances of 10,000 random pairs, drawn with replacement and a fixed seed."""
    first, second = np.random.default_rng(42).integers(len(values), size=(2, 10_000))
    return np.asarray(np.abs(values[first] - values[second]))


def _gamma_of(distance: float) -> float:
    if distance < 1e-150:  # its square would be 0
        raise InputError(f"A distance of {distance:g} gives no bandwidth. Pass gamma as a number.")
    return 1 / (2 * distance**2)


def _kernel_sum(t: Floats, o: Floats, gamma: float, weights: tuple[float, float, float]) -> float:
    """Weighted kernel sums over all pairs within t, plus within o, minus twice across.

    By Poisson's summation formula, a Gaussian repeated with a period is a sum of cosines:
    exp(-gamma x^2) = sum_f c_f cos(2 pi f x / period). A sum of cosines over pairs is a product of
    sums over values. Omitted frequencies and other repetitions add less than e^-40, so only
    rounding is lost. Entropies need about 20 frequencies.
    """
    within_t, within_o, across = weights
    low, high = min(t.min(), o.min()), max(t.max(), o.max())
    period = high - low + math.sqrt(40 / gamma)
    frequencies = math.ceil(period * math.sqrt(40 * gamma) / math.pi) + 1
    if frequencies > len(t) + len(o):
        sums = _direct_sum(t, t, gamma), _direct_sum(o, o, gamma), _direct_sum(t, o, gamma)
        return within_t * sums[0] + within_o * sums[1] - 2 * across * sums[2]
    wave_t, wave_o = (_waves(2 * math.pi * (x - low) / period, frequencies) for x in (t, o))
    height = np.exp(-((math.pi * np.arange(frequencies) / period) ** 2) / gamma)
    height[1:] *= 2  # f and -f
    spread = within_t * np.abs(wave_t) ** 2 + within_o * np.abs(wave_o) ** 2
    spread -= 2 * across * (wave_t * wave_o.conj()).real
    return math.sqrt(math.pi / gamma) / float(period) * float(height @ spread)


def _waves(angles: Floats, frequencies: int) -> NDArray[np.complex128]:
    """Sum of exp(i f angle) over the angles, for f = 0, 1, ..., (frequencies,)."""
    turn = np.exp(1j * angles)
    wave = np.ones_like(turn)
    sums = np.empty(frequencies, dtype=np.complex128)
    for f in range(frequencies):
        sums[f] = wave.sum()
        wave *= turn
    return sums


def _direct_sum(a: Floats, b: Floats, gamma: float) -> float:
    """Sum of the kernel values of all pairs, with memory for one row of them."""
    return math.fsum(float(np.exp(-gamma * (value - b) ** 2).sum()) for value in a)
