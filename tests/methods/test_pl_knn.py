"""PlKnn: published numbers, what becomes of rows without votes, and few rows."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from robustpll import InputError, PLLClassifier, Votes, load_dataset
from robustpll.methods.pl_knn import PlKnn, votes_of

# Two pairs of neighbours. The first pair has no candidate in common, the second has all.
X = np.array([[0.0], [1], [10], [11]])
Y = [{"a", "b"}, {"c"}, {"a", "c"}, {"a", "c"}]


def test_the_worked_numbers_are_met() -> None:
    candidates = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 1]]).bool()
    distance = torch.tensor([[1.0, 2, 2]], dtype=torch.float64)
    votes = votes_of(torch.arange(3)[None], distance, candidates)[0]
    np.testing.assert_allclose(votes, [0.8, 2.0, 0.6], atol=1e-15)
    np.testing.assert_allclose(votes / votes.sum(), [0.235294, 0.588235, 0.176471], atol=1e-6)


def test_neighbours_at_the_rows_own_place_all_count_fully() -> None:
    distance = torch.tensor([[0.0, 0, 9e-7], [0, 0, 1.1e-6]], dtype=torch.float64)
    votes = votes_of(torch.arange(3).repeat(2, 1), distance, torch.eye(3).bool())
    np.testing.assert_allclose(votes, [[1, 1, 1], [1, 1, 0]], atol=1e-15)


def test_votes_are_those_of_a_plain_loop(digits: Any, candidates: np.ndarray) -> None:
    train, test = digits[0][:400] / 16, digits[1][:50] / 16
    model = PLLClassifier(PlKnn(neighbours=7)).fit(train, candidates[:400])
    span = train.max(0) - train.min(0)
    shift = np.where(span > 0, train.min(0), 0)
    scale = np.where(span > 0, span, np.where(train.max(0) > 0, train.max(0), 1))
    train, test = (train - shift) / scale, (test - shift) / scale
    for row, found in zip(test, model.predict_proba(digits[1][:50] / 16), strict=True):
        far = cdist(row[None], train)[0]
        near = far.argsort(kind="stable")[:7]
        share = sum((1 - far[i] / far[near].sum()) * candidates[i] for i in near)
        np.testing.assert_allclose(found, share / share.sum(), atol=1e-6)


def test_a_training_row_does_not_vote_for_itself() -> None:
    model = PLLClassifier(PlKnn(neighbours=1)).fit(X, [{"a", "b"}, {"a"}, {"b"}, {"a", "b"}])
    assert model.labels_.tolist() == ["a", "a", "b", "b"]


def test_a_row_without_votes_keeps_its_candidates_and_in_the_paper_gets_all_classes() -> None:
    sound, paper = (
        PLLClassifier(method).fit(X, Y).label_weights_
        for method in (PlKnn(neighbours=1), PlKnn(neighbours=1, undecided="all"))
    )
    np.testing.assert_allclose(sound, [[0.5, 0.5, 0], [0, 0, 1], [0.5, 0, 0.5], [0.5, 0, 0.5]])
    np.testing.assert_allclose(paper[:2], np.full((2, 3), 1 / 3))
    np.testing.assert_allclose(paper[2:], sound[2:])


def test_a_row_without_votes_of_neighbours_keeps_those_of_annotators() -> None:
    answers = np.array([["a", "a", "b"], ["c", "c", "c"], ["a", "c", "c"], ["a", "c", "c"]])
    model = PLLClassifier(PlKnn(neighbours=1)).fit(X, Votes(answers))
    np.testing.assert_allclose(model.label_weights_[0], [2 / 3, 1 / 3, 0], atol=1e-7)
    np.testing.assert_allclose(model.label_weights_[2], [0.5, 0, 0.5])


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("method", [PlKnn(), PlKnn.paper()])
def test_fewer_rows_than_neighbours_work(method: PlKnn, n: int) -> None:
    y = [{"a", "b"}, {"b"}, {"b"}, {"a"}, {"b"}][:n]
    model = PLLClassifier(method).fit(np.arange(n)[:, None] * 1.0, y)
    assert model.labels_[0] == "b"
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_duplicates_of_a_row_are_its_neighbours() -> None:
    rows = np.zeros((6, 2))
    rows[5] = 1
    y = [{"a", "b"}, {"b"}, {"b", "c"}, {"a", "b"}, {"b", "c"}, {"a"}]
    model = PLLClassifier(PlKnn(neighbours=4)).fit(rows, y)
    assert model.labels_.tolist() == ["b"] * 5 + ["a"]


def test_the_settings_are_checked_and_the_published_ones_differ_in_one() -> None:
    assert PlKnn.paper() == PlKnn(neighbours=10, undecided="all")
    assert PlKnn() == PlKnn(neighbours=10, undecided="prior")
    for neighbours in (0, -1, 2.5):
        with pytest.raises(InputError, match="'neighbours' of PlKnn must be an int of at least"):
            PlKnn(neighbours=neighbours)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'undecided' of PlKnn must be one of 'prior', 'all'"):
        PlKnn(undecided="none")  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "usual"), [("lost", 41.2), ("msrc-v2", 44.2), ("bird-song", 66.7)]
)
def test_real_data_gives_the_usual_accuracy(name: str, usual: float) -> None:
    dataset, found = load_dataset(name), []
    assert dataset.candidates is not None
    for seed in range(5):
        train, test = dataset.split(seed).train, dataset.split(seed).test
        model = PLLClassifier(PlKnn.paper())
        model.fit(dataset.features[train], dataset.candidates[train])
        truth = dataset.classes[dataset.labels[test]]
        found.append(100 * model.score(dataset.features[test], truth))
    assert np.mean(found) == pytest.approx(usual, abs=0.3)
