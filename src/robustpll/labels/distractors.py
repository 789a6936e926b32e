"""Distractors: candidates beside the true class, and how often each class is one."""

import numpy as np
from numpy.typing import NDArray

from robustpll.labels.votes import Floats, normalized

Bools = NDArray[np.bool_]
IMAGINED = 10.0  # rows with the mean rate that are added to each class, so that few rows say little
RARE, FREQUENT = 1e-3, 1 - 1e-3  # bounds of a rate: probabilities are divided by it
ROUNDS = 20
STABLE = 1e-3  # largest change of a rate after which rounds end


def distractor_rates(candidates: Bools, probability: Floats, weight: Floats) -> Floats:
    """Estimate how often each class is a candidate of a row of another class, (k,).

    Given its rate d_j, a candidate j of a row is the true class with a probability proportional to
    p_j / d_j: a class that is in most sets tells little. Rates and true classes are estimated in
    turns (expectation maximisation). `probability` (n, k) must not depend on the row's own set.

    >>> candidates = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]] * 50) > 0
    >>> probability = np.eye(3)[[0, 0, 0, 1, 2] * 50] * 0.94 + 0.02
    >>> distractor_rates(candidates, probability, np.ones(250)).round(2)
    array([0.03, 0.73, 0.01])
    """
    k = candidates.shape[1]
    extra = np.average(candidates.sum(-1) - 1, weights=weight) / max(k - 1, 1)
    rates = np.full(k, extra).clip(RARE, FREQUENT)
    for _ in range(ROUNDS):
        before = rates
        is_other = weight[:, None] * (1 - posterior_given_rates(candidates, probability, rates))
        seen = np.einsum("nk,nk->k", candidates, is_other) + IMAGINED * extra
        rates = (seen / (is_other.sum(0) + IMAGINED)).clip(RARE, FREQUENT)
        if np.abs(rates - before).max() < STABLE:
            break
    return np.asarray(rates)


def posterior_given_rates(candidates: Bools, probability: Floats, rates: Floats) -> Floats:
    """Return the probability (n, k) of each candidate to be the true class, given the rates."""
    return normalized(np.where(candidates, probability / rates, 0.0))


def dependence(candidates: Bools, probability: Floats, weight: Floats) -> float:
    """Return how much a model's probabilities tell about distractors; 0 if nothing.

    It is b in odds of a distractor ~ p^b, beside the rate of its class. If distractors depend on
    the row, a model may learn to predict them instead of the true class.
    """
    rates = distractor_rates(candidates, probability, weight)
    is_other = weight[:, None] * (1 - posterior_given_rates(candidates, probability, rates))
    logs = np.log(probability.clip(min=1e-12))
    logs = logs - np.average(logs, axis=0, weights=is_other + 1e-12)
    score = (is_other * (candidates - rates) * logs).sum()  # one step of Newton's method from 0
    information = (is_other * rates * (1 - rates) * logs**2).sum()
    return float(score / max(information, 1e-12))
