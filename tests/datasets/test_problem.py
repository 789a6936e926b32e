"""From a dataset to the rows of many runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from robustpll import Candidates, Dataset, InputError, load_dataset
from robustpll.datasets.dataset import Split
from robustpll.datasets.noise import Noise
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
    assert data.labels is not None
    matrix = np.eye(10, dtype=bool)[data.labels]
    candidates = Candidates.of(matrix | np.roll(matrix, 1, axis=1))
    return replace(data, candidates=candidates, **changes)


def scaled(rows: Rows) -> np.ndarray:
    return rows.x(rows.everything).numpy()


def test_rows_are_scaled_by_the_training_rows_of_each_run() -> None:
    data = load_dataset("synthetic")
    problem = Problem.of(data, NextClass(), SEEDS, "cpu")
    train, test = scaled(problem.task.rows), scaled(problem.test)
    assert train.shape == (3, 1600, 20)
    assert test.shape == (3, 400, 20)
    for run, seed in enumerate(SEEDS):
        split = data.split(seed)
        X = data.features[split.train]
        low, high = X.min(0), X.max(0)
        expected = (data.features[split.test] - low) / (high - low)
        np.testing.assert_allclose(train[run], (X - low) / (high - low), atol=1e-6)
        np.testing.assert_allclose(test[run], expected, atol=1e-6)
    assert test.min() < 0 or test.max() > 1  # not clipped


def test_the_worked_numbers_of_scaling() -> None:
    features = np.array([[0.0, 2, 5, 0], [1, 2, 5, 0], [4, 2, 5, 0], [6, 8, -5, 3]])
    official = Split(np.arange(3), np.arange(3, 4))
    data = known(features=features, labels=np.arange(4), official=official)
    problem = Problem.of(replace(data, candidates=None), NextClass(), (0,), "cpu")
    assert scaled(problem.task.rows).tolist() == [[[0, 1, 1, 0], [0.25, 1, 1, 0], [1, 1, 1, 0]]]
    assert scaled(problem.test).tolist() == [[[1.5, 4, -1, 3]]]


def test_pictures_keep_their_shape_and_dark_pixels_their_unit() -> None:
    pixels = np.array([[0, 8], [0, 4], [16, 12]], dtype=np.uint8)
    data = replace(
        load_dataset("digits"),
        features=pixels,
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
    given = Problem.of(data, None, SEEDS, "cpu")
    made = Problem.of(replace(data, candidates=None), NextClass(), SEEDS, "cpu")
    assert given.task.seeds == made.task.seeds == SEEDS
    for run, seed in enumerate(SEEDS):
        split = data.split(seed)
        assert (given.train_labels[run].numpy() == data.labels[split.train]).all()
        assert (given.test_labels[run].numpy() == data.labels[split.test]).all()
        assert (given.task.candidates[run].numpy() == data.candidates.matrix[split.train]).all()
    assert torch.equal(given.task.candidates, made.task.candidates)
    assert torch.equal(given.task.prior, made.task.prior)


def test_a_prior_that_is_not_uniform_is_kept() -> None:
    data = known()
    assert data.candidates is not None
    prior = data.candidates.prior * np.linspace(1, 2, 10, dtype=np.float32)
    prior /= prior.sum(-1, keepdims=True)
    uneven = Candidates(data.candidates.matrix, data.candidates.classes, prior)
    problem = Problem.of(replace(data, candidates=uneven), None, (1,), "cpu")
    np.testing.assert_array_equal(problem.task.prior[0], prior[data.split(1).train])


def test_a_run_does_not_depend_on_its_neighbours() -> None:
    data = load_dataset("synthetic")
    together = Problem.of(data, NextClass(), SEEDS, "cpu")
    for run, seed in enumerate(SEEDS):
        alone = Problem.of(data, NextClass(), (seed,), "cpu")
        assert (scaled(alone.test)[0] == scaled(together.test)[run]).all()
        assert torch.equal(alone.task.candidates[0], together.task.candidates[run])


def test_the_dataset_stays_as_it_was() -> None:
    data = known()
    assert data.candidates is not None
    data.features.flags.writeable = data.candidates.matrix.flags.writeable = False
    before = data.features.copy()
    problem = Problem.of(data, None, SEEDS, "cpu")
    problem.task.rows.pool.zero_()
    problem.task.candidates.zero_()
    assert (data.features == before).all()
    assert data.candidates.matrix.any(-1).all()


def test_candidates_come_from_one_side() -> None:
    data = known()
    with pytest.raises(InputError, match="Synthetic has candidates of its own"):
        Problem.of(data, NextClass(), (0,), "cpu")
    with pytest.raises(InputError, match="Synthetic has no candidates: pass a noise"):
        Problem.of(replace(data, candidates=None), None, (0,), "cpu")


def test_true_labels_and_seeds_are_needed() -> None:
    with pytest.raises(InputError, match=r"true labels.*Synthetic with no labels"):
        Problem.of(known(labels=None), None, (0,), "cpu")
    with pytest.raises(InputError, match=r"at least one seed.*seeds=\(\)"):
        Problem.of(known(), None, (), "cpu")


@pytest.mark.data
def test_about_a_tenth_of_the_test_rows_of_lost_leave_the_range() -> None:
    problem = Problem.of(load_dataset("lost"), None, range(5), "cpu")
    test = scaled(problem.test)
    assert problem.task.candidates.shape == (5, 897, 16)
    outside = ((test < 0) | (test > 1)).any(-1).mean()
    assert 0.05 < outside < 0.2


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
