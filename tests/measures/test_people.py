"""Agreement with people, on rows that can be counted by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from robustpll.measures.people import People, agreement_with

COUNTS = np.array([[10, 0, 0], [6, 4, 0], [0, 0, 10], [1, 8, 1]])
SHARES = COUNTS / 10
POSSIBLE = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]], dtype=bool)
PEOPLE = People(np.arange(4) + 100, COUNTS, np.array([0, 1, 1, 3]), POSSIBLE)


def test_whoever_predicts_the_shares_of_answers_agrees_best() -> None:
    best = agreement_with(PEOPLE, SHARES)
    entropy = -sum(p * math.log(p) for row in SHARES for p in row if p) / 4
    assert best["cross_entropy"] == pytest.approx(entropy)
    assert best["rank_correlation"] == pytest.approx(1)
    assert best["disagreement"] == 1  # rows 1 and 3 have less than 90 % for one class
    assert best["possible"] == 0.75  # the third person held class 0 of row 1 impossible
    rng = np.random.default_rng(0)
    for p in rng.dirichlet(np.ones(3), size=(20, 4)):
        other = agreement_with(PEOPLE, p)
        assert other["cross_entropy"] > best["cross_entropy"]
        assert other["rank_correlation"] < 1


def test_measures_are_those_of_their_definition() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.0, 0.5, 0.5], [0.1, 0.9, 0.0]])
    measures = agreement_with(PEOPLE, p)
    logs = [math.log(0.7), 0.6 * math.log(0.2) + 0.4 * math.log(0.5), math.log(0.5)]
    logs.append(0.1 * math.log(0.1) + 0.8 * math.log(0.9) + 0.1 * math.log(1e-6))
    assert measures["cross_entropy"] == pytest.approx(-sum(logs) / 4)
    entropy = -(p * np.log(p.clip(1e-6))).sum(-1)
    assert measures["disagreement"] == roc_auc_score([0, 1, 0, 1], entropy)
    assert measures["possible"] == 1.0  # classes 0, 1, 1 and 1
