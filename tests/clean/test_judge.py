"""Out-of-fold judgement: nobody's candidates judge themselves."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustpll.clean.judge import Judgement, judge, parts, posterior, recalibrated
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.methods import PlKnn, Proden
from robustpll.opinion import Opinion

Judged = Callable[..., Judgement]


def clusters(rows: int = 91) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    truth = random.integers(3, size=rows)
    X = random.normal(truth[:, None], 0.1, size=(rows, 2))
    return X, truth, (random.random((rows, 3)) < 0.3) | np.eye(3, dtype=bool)[truth]


@given(st.integers(4, 60), st.integers(2, 7), st.integers(0, 3))
def test_every_row_is_judged_once_and_by_a_model_that_did_not_see_it(
    n: int, folds: int, seed: int
) -> None:
    folds = min(folds, n // 2)
    taught, judged = parts(n, folds, seed)
    assert set(judged.flatten().tolist()) == set(range(n))
    seen: set[int] = set()
    for learned, own in zip(taught.tolist(), judged.tolist(), strict=True):
        assert not set(learned) & set(own)
        assert len(set(learned)) == len(learned)  # a row twice would count double
        assert not seen & set(own)
        seen |= set(own)
    assert taught.shape[1] >= n - -(-n // folds)


@pytest.mark.parametrize("method", [PlKnn(), Proden(epochs=2)], ids=["classical", "network"])
def test_what_a_row_says_of_itself_does_not_change_what_is_held_of_it(method: object) -> None:
    X, truth, y = clusters()
    before = judge(X, Candidates.of(y), method)
    lied = y.copy()
    lied[7] = np.arange(3) == (truth[7] + 1) % 3
    after = judge(X, Candidates.of(lied), method)
    raw_before, raw_after = (one.opinion.probability[7] for one in (before, after))
    # recalibration looks at all sets: one factor for all, which keeps the order
    assert np.argsort(raw_before).tolist() == np.argsort(raw_after).tolist()
    np.testing.assert_allclose(raw_before, raw_after, atol=0.05)


def test_labels_are_resolved_and_a_set_without_the_truth_stands_out() -> None:
    X, truth, y = clusters()
    y[7] = np.arange(3) != truth[7]
    judged = judge(X, Candidates.of(y), PlKnn())
    assert (judged.labels == truth).sum() == len(truth) - 1
    assert judged.missing.argmax() == 7
    assert judged.confidence.argmin() == 7


def test_the_same_seed_gives_the_same_judgement() -> None:
    X, _, y = clusters()
    one, other, third = (judge(X, Candidates.of(y), PlKnn(), seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.probability, other.probability)
    assert not np.array_equal(one.probability, third.probability)


def test_decided_rows_are_certain(judged_as: Judged) -> None:
    judged = judged_as([[0.9, 0.1, 0]] * 2, [{"bee"}, {"ant", "bee"}])
    decided = replace(judged, decided=np.array([True, False]))
    assert decided.confidence[0] == 1
    assert decided.confidence[1] < 1
    assert decided.labels.tolist() == ["bee", "ant"]


def test_votes_and_the_model_are_weighed_together() -> None:
    prior = np.array([[0.75, 0.25, 0]])
    indifferent = posterior(np.full((1, 3), 1 / 3), prior)[0]
    assert indifferent[0] / indifferent[1] == pytest.approx(3)
    convinced = posterior(np.array([[0.05, 0.9, 0.05]]), prior)[0]
    assert convinced[1] > convinced[0]


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.1))
def test_probabilities_sum_to_one_even_where_the_model_rules_all_candidates_out(
    p: list[float],
) -> None:
    probability = np.array([p]) / sum(p)
    for prior in ([[0.5, 0.5, 0]], [[1.0, 0, 0]], [[0.2, 0.3, 0.5]]):
        found = posterior(probability, np.array(prior))
        assert found.sum() == pytest.approx(1)
        assert (found >= 0).all()


def test_a_model_that_is_too_sure_is_made_less_sure() -> None:
    random = np.random.default_rng(0)
    truth = random.random(2000) < 0.7
    belief = np.tile([0.01, 0.99], (2000, 1))
    found = recalibrated(Opinion.of_probability(belief), np.stack([~truth, truth], 1))
    assert found.probability[0, 1] == pytest.approx(0.7, abs=0.06)


@pytest.mark.parametrize("folds", [1, 50, 2.5])
def test_folds_must_leave_something_to_learn_from(folds: object) -> None:
    X, _, y = clusters(91)
    with pytest.raises(InputError, match="folds must be an int of at least 2"):
        judge(X, Candidates.of(y), PlKnn(), folds=folds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["probability", "resolved", "labels", "confidence", "missing", "best_outside", "near"]
)
def test_what_all_rows_share_is_computed_once(judged_as: Judged, name: str) -> None:
    judged = judged_as([[0.9, 0.1, 0]] * 2, [{"bee"}, {"ant", "bee"}])
    assert getattr(judged, name) is getattr(judged, name)
