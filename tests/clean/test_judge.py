"""Out-of-fold judgement: no row is judged by a model that saw its candidates."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll.clean.judge import Judgement, fold_indices, judge, posterior, recalibrated
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.methods import Method, PlKnn, Proden
from robustpll.opinion import Opinion

Judged = Callable[..., Judgement]


def clusters(rows: int = 91) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    truth = random.integers(3, size=rows)
    X = random.normal(truth[:, None], 0.1, size=(rows, 2))
    return X, truth, (random.random((rows, 3)) < 0.3) | np.eye(3, dtype=bool)[truth]


@settings(max_examples=40)
@given(st.integers(4, 60), st.integers(2, 7), st.integers(0, 3))
def test_every_row_is_judged_once_and_by_a_model_that_did_not_see_it(
    n: int, folds: int, seed: int
) -> None:
    folds = min(folds, n // 2)
    train, test = fold_indices(n, folds, seed)
    judged: set[int] = set()
    for learned, fold in zip(train.tolist(), test.tolist(), strict=True):
        assert not set(learned) & set(fold)
        assert len(set(learned)) == len(learned)  # a row twice would count double
        assert not judged & set(fold)
        judged |= set(fold)
    assert judged == set(range(n))
    assert train.shape[1] >= n - -(-n // folds)


@pytest.mark.parametrize("method", [PlKnn(), Proden(epochs=1)], ids=["classical", "network"])
def test_the_candidates_of_a_row_do_not_change_its_prediction(method: Method) -> None:
    X, truth, y = clusters()
    changed = y.copy()
    changed[7] = np.arange(3) == (truth[7] + 1) % 3
    before, after = (
        judge(X, Candidates.of(sets), method, folds=2).opinion.probability[7]
        for sets in (y, changed)
    )
    # recalibration looks at all sets: one factor for all, which keeps the order
    assert np.argsort(before).tolist() == np.argsort(after).tolist()
    np.testing.assert_allclose(before, after, atol=0.05)


def test_labels_are_resolved_and_a_set_without_the_truth_stands_out() -> None:
    X, truth, y = clusters()
    y[7] = np.arange(3) != truth[7]
    judged = judge(X, Candidates.of(y), PlKnn(), seed=3)
    assert (judged.labels == truth).sum() == len(truth) - 1
    assert judged.missing.argmax() == 7
    assert judged.confidence.argmin() == 7
    same, other = (judge(X, Candidates.of(y), PlKnn(), seed=seed).probability for seed in (3, 4))
    assert np.array_equal(judged.probability, same)
    assert not np.array_equal(judged.probability, other)


def test_decided_rows_are_certain(judged_as: Judged) -> None:
    decided = np.array([True, False])
    judged = judged_as([[0.9, 0.1, 0]] * 2, [{"bee"}, {"ant", "bee"}], decided=decided)
    assert judged.confidence[0] == 1
    assert judged.confidence[1] < 1
    assert judged.labels.tolist() == ["bee", "ant"]


def test_votes_and_the_model_are_weighed_together() -> None:
    prior = np.array([[0.75, 0.25, 0]])
    indifferent = posterior(np.full((1, 3), 1 / 3), prior)[0]
    assert indifferent[0] / indifferent[1] == pytest.approx(3)
    convinced = posterior(np.array([[0.05, 0.9, 0.05]]), prior)[0]
    assert convinced[1] > convinced[0]
    both = posterior(np.array([[0.5, 0.4, 0.1]]), np.array([[0.25, 0.75, 0.0]]))[0]
    np.testing.assert_allclose(both, [0.29, 0.70, 0.01], atol=0.006)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.1))
def test_probabilities_sum_to_one_even_where_the_model_rules_all_candidates_out(
    p: list[float],
) -> None:
    for prior in ([[0.5, 0.5, 0]], [[1.0, 0, 0]], [[0.2, 0.3, 0.5]]):
        probability = posterior(np.array([p]) / sum(p), np.array(prior))
        assert probability.sum() == pytest.approx(1)
        assert (probability >= 0).all()


def test_a_model_that_is_too_sure_is_made_less_sure() -> None:
    truth = np.random.default_rng(0).random(2000) < 0.7
    belief = np.tile([0.01, 0.99], (2000, 1))
    opinion = recalibrated(Opinion.of_probability(belief), np.stack([~truth, truth], 1))
    assert opinion.probability[0, 1] == pytest.approx(0.7, abs=0.06)
    same = Opinion.of_probability(belief)
    assert recalibrated(same, np.ones((2000, 2), dtype=bool)) is same  # such sets say nothing


@pytest.mark.parametrize("folds", [1, 50, 2.5])
def test_folds_must_leave_something_to_learn_from(folds: object) -> None:
    X, _, y = clusters(91)
    with pytest.raises(InputError, match="folds must be an int of at least 2"):
        judge(X, Candidates.of(y), PlKnn(), folds=folds)  # type: ignore[arg-type]
