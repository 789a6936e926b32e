"""Rates of distractors, estimated from candidate sets and predictions."""

import numpy as np
import pytest

from robustpll.labels.distractors import dependence, distractor_rates, posterior_given_rates

N, K = 4000, 6


def drawn(rates: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidate sets of rows whose class follows known probabilities; these, and the classes."""
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(K, 0.3), N)
    truth = (probability.cumsum(-1) > rng.random((N, 1))).argmax(-1)
    candidates = (np.arange(K) == truth[:, None]) | (rng.random((N, K)) < rates)
    return candidates, probability, truth


@pytest.mark.parametrize("seed", range(3))
def test_rates_that_sets_were_drawn_with_are_found(seed: int) -> None:
    rates = np.array([0.02, 0.1, 0.3, 0.5, 0.8, 0.05])
    candidates, probability, truth = drawn(rates, seed)
    found = distractor_rates(candidates, probability, np.ones(N))
    np.testing.assert_allclose(found, rates, atol=0.04)
    resolved = posterior_given_rates(candidates, probability, found).argmax(-1)
    plain = np.where(candidates, probability, 0).argmax(-1)
    assert (resolved == truth).mean() > (plain == truth).mean()


def test_weights_count_rows_and_labels_have_no_distractors() -> None:
    candidates, probability, truth = drawn(np.full(K, 0.3))
    candidates[: N // 2] = np.arange(K) == truth[: N // 2, None]
    halves = np.repeat([0.0, 1.0], N // 2)
    weighted = distractor_rates(candidates, probability, halves)
    there = halves > 0
    alone = distractor_rates(candidates[there], probability[there], halves[there])
    np.testing.assert_allclose(weighted, alone, atol=1e-12)
    assert (distractor_rates(candidates, probability, 1 - halves) < 0.01).all()
    single = np.ones((5, 1), dtype=bool)
    assert distractor_rates(single, np.ones((5, 1)), np.ones(5)).shape == (1,)


def test_distractors_that_a_model_predicts_are_told_from_random_ones() -> None:
    candidates, probability, _ = drawn(np.linspace(0.1, 0.5, K))
    assert abs(dependence(candidates, probability, np.ones(N))) < 0.03
    second = np.argsort(probability, -1)[:, -2]
    candidates[np.arange(N), second] = True
    assert dependence(candidates, probability, np.ones(N)) > 0.1
