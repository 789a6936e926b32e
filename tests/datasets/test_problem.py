"""From a dataset to the rows of many runs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robustpll import Candidates, Dataset, InputError, load_dataset
from robustpll.datasets.dataset import Split
from robustpll.datasets.noise import Flip, Noise
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows

SEEDS = (0, 3, 7)


class NextClass(Noise):
    """The true class and the one after it."""

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        assert rows.models == len(seeds) == len(labels)
        after = torch.stack([labels, (labels + 1) % k], -1)
        return torch.zeros(*labels.shape, k).scatter(-1, after, 1).bool()


def known(**changes: object) -> Dataset:
    """Synthetic rows, whose candidates are the true class and the next."""
    data = load_dataset("synthetic")
    matrix = np.eye(10, dtype=bool)[data.labels]
    candidates = Candidates.of(matrix | np.roll(matrix, 1, axis=1))
    return replace(data, **({"candidates": candidates} | changes))


def scaled(rows: Rows) -> np.ndarray:
    return rows.x(rows.everything).numpy()


def test_rows_are_scaled_by_the_training_rows_of_each_run_alone() -> None:
    data = load_dataset("synthetic")
    problem = Problem.of(data, NextClass(), SEEDS, "cpu")
    train, test = scaled(problem.task.rows), scaled(problem.test)
    assert train.shape == (3, 1600, 20)
    assert test.shape == (3, 400, 20)
    assert test.min() < 0 or test.max() > 1  # not clipped
    for run, seed in enumerate(SEEDS):
        split = data.split(seed)
        X = data.features[split.train]
        low, high = X.min(0), X.max(0)
        expected = (data.features[split.test] - low) / (high - low)
        np.testing.assert_allclose(train[run], (X - low) / (high - low), atol=1e-6)
        np.testing.assert_allclose(test[run], expected, atol=1e-6)
        alone = Problem.of(data, NextClass(), (seed,), "cpu")
        assert (scaled(alone.test)[0] == test[run]).all()
        assert torch.equal(alone.task.candidates[0], problem.task.candidates[run])


def test_the_worked_numbers_of_scaling() -> None:
    features = np.array([[0.0, 2, 5, 0], [1, 2, 5, 0], [4, 2, 5, 0], [6, 8, -5, 3]])
    official = Split(np.arange(3), np.arange(3, 4))
    data = known(features=features, labels=np.arange(4), official=official, candidates=None)
    problem = Problem.of(data, NextClass(), (0,), "cpu")
    assert scaled(problem.task.rows).tolist() == [[[0, 1, 1, 0], [0.25, 1, 1, 0], [1, 1, 1, 0]]]
    assert scaled(problem.test).tolist() == [[[1.5, 4, -1, 3]]]


def test_pictures_keep_their_shape_and_dark_pixels_their_unit() -> None:
    data = replace(
        load_dataset("digits"),
        features=np.array([[0, 8], [0, 4], [16, 12]], dtype=np.uint8),
        labels=np.arange(3),
        image_shape=(1, 2),
        official=Split(np.arange(2), np.arange(2, 3)),
    )
    problem = Problem.of(data, NextClass(), (0,), "cpu")
    assert scaled(problem.task.rows).tolist() == [[[[0, 1]], [[0, 0]]]]
    assert scaled(problem.test).tolist() == [[[[1, 2]]]]  # always black in training: x / 16


def test_labels_and_candidates_follow_their_rows() -> None:
    data = known()
    assert data.candidates is not None
    assert data.labels is not None
    own = Problem.of(data, None, SEEDS, "cpu")
    by_noise = Problem.of(known(candidates=None), NextClass(), SEEDS, "cpu")
    flipped = Problem.of(data, Flip(1.0), SEEDS, "cpu")
    assert own.task.seeds == by_noise.task.seeds == SEEDS
    for run, seed in enumerate(SEEDS):
        split = data.split(seed)
        assert (own.train_labels[run].numpy() == data.labels[split.train]).all()
        assert (own.test_labels[run].numpy() == data.labels[split.test]).all()
        assert (own.task.candidates[run].numpy() == data.candidates.matrix[split.train]).all()
    assert torch.equal(own.task.candidates, by_noise.task.candidates)
    assert torch.equal(own.task.prior, by_noise.task.prior)
    assert (flipped.task.candidates.sum(-1) == 1).all()


def test_a_prior_that_is_not_uniform_is_kept_and_the_dataset_stays_as_it_was() -> None:
    data = known()
    assert data.candidates is not None
    prior = data.candidates.prior * np.linspace(1, 2, 10, dtype=np.float32)
    prior /= prior.sum(-1, keepdims=True)
    uneven = Candidates(data.candidates.matrix, data.candidates.classes, prior)
    data.features.flags.writeable = uneven.matrix.flags.writeable = False
    before = data.features.copy()
    problem = Problem.of(replace(data, candidates=uneven), None, (1,), "cpu")
    np.testing.assert_array_equal(problem.task.prior[0], prior[data.split(1).train])
    problem.task.rows.pool.zero_()
    problem.task.candidates.zero_()
    assert (data.features == before).all()
    assert uneven.matrix.any(-1).all()


@pytest.mark.parametrize(
    ("changes", "noise", "seeds", "reason"),
    [
        ({}, NextClass(), (0,), "Synthetic has candidates of its own"),
        ({"candidates": None}, None, (0,), "Synthetic has no candidates: pass a noise"),
        ({"labels": None}, None, (0,), "needs true labels.*labels=None"),
        ({}, None, (), r"at least one seed.*seeds=\(\)"),
        ({}, "uniform", (0,), "a Noise such as.*noise='uniform'"),
    ],
)
def test_what_does_not_make_a_problem_is_refused(
    changes: dict[str, Any], noise: Any, seeds: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        Problem.of(known(**changes), noise, seeds, "cpu")


def test_problems_of_equal_shape_are_joined() -> None:
    one, other = (Problem.of(known(), None, seeds, "cpu") for seeds in ((0, 1), (2,)))
    both = Problem.joined([one, other])
    assert both.task.seeds == (0, 1, 2)
    assert torch.equal(both.test_labels, torch.cat([one.test_labels, other.test_labels]))
    assert torch.equal(both.task.prior, torch.cat([one.task.prior, other.task.prior]))
    assert (scaled(both.test)[2] == scaled(other.test)[0]).all()
    digits = Problem.of(load_dataset("digits"), NextClass(), (0,), "cpu")
    with pytest.raises(InputError, match="equal rows, classes and features"):
        Problem.joined([one, digits])


@pytest.mark.data
@pytest.mark.parametrize("name", ["bird-song", "lost", "msrc-v2", "fg-net"])
def test_single_precision_costs_no_more_than_a_millionth(name: str) -> None:
    data = load_dataset(name)
    problem = Problem.of(data, None, (0,), "cpu")
    X = data.features[data.split(0).train]
    low, high = X.min(0), X.max(0)
    constant = low == high
    low, high = np.where(constant, 0, low), np.where(constant & (high == 0), 1, high)
    np.testing.assert_allclose(scaled(problem.task.rows)[0], (X - low) / (high - low), atol=1e-6)
    test = scaled(problem.test)
    outside = ((test < 0) | (test > 1)).any(-1).mean()
    assert name != "lost" or 0.05 < outside < 0.2  # a tenth of the test rows leaves the range
