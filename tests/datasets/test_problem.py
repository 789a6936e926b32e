"""From a dataset to the rows of many runs, and to rows of no known class."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robustpll import Candidates, Dataset, InputError, load_dataset
from robustpll.datasets.dataset import Split
from robustpll.datasets.noise import Annotators, Flip, Noise, Uniform
from robustpll.datasets.problem import Problem, hold_out, ood_rows
from robustpll.engine.data import Rows
from robustpll.measures.people import People

SEEDS = (0, 3, 7)
CLASSES = np.array(["a", "b", "c", "d"])


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
    by_dataset = Problem.of(data, None, SEEDS, "cpu")
    by_noise = Problem.of(known(candidates=None), NextClass(), SEEDS, "cpu")
    flipped = Problem.of(data, Flip(1.0), SEEDS, "cpu")
    assert by_dataset.task.seeds == by_noise.task.seeds == SEEDS
    for run, seed in enumerate(SEEDS):
        split = data.split(seed)
        assert (by_dataset.train_labels[run].numpy() == data.labels[split.train]).all()
        assert (by_dataset.test_labels[run].numpy() == data.labels[split.test]).all()
        assert (
            by_dataset.task.candidates[run].numpy() == data.candidates.matrix[split.train]
        ).all()
    assert torch.equal(by_dataset.task.candidates, by_noise.task.candidates)
    assert torch.equal(by_dataset.task.prior, by_noise.task.prior)
    assert (flipped.task.candidates.sum(-1) == 1).all()


def test_a_prior_that_is_not_uniform_is_kept_and_the_dataset_stays_as_it_was() -> None:
    data = known()
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
        ({}, NextClass(), (0,), r"noise must be None or Flip\(share\).*NextClass.*Synthetic"),
        ({"candidates": None}, None, (0,), "noise must be.*got None for .*Synthetic"),
        ({"labels": None}, None, (0,), "needs true labels"),
        ({}, None, (), r"needs true labels and a seed.*\(\)"),
        ({}, "uniform", (0,), "noise must be.*got 'uniform'"),
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


# Rows of no known class


def flat(rows: Rows) -> np.ndarray:
    return rows.x(rows.everything).flatten(2).numpy()


def labelled(labels: list[int], **changes: Any) -> Dataset:
    """Rows that tell their number and label."""
    features = np.stack([np.arange(len(labels)), labels], 1).astype(float)
    return replace(Dataset("mine", "Mine", features, CLASSES, np.array(labels)), **changes)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Digits, with features from 0 to 1 in training but for constant ones."""
    return Problem.of(load_dataset("digits"), Uniform(), (0, 5), "cpu")


def other(n: int) -> Dataset:
    """Pictures of the digits' shape; the first pixel tells the number of the row."""
    pixels = np.zeros((n, 64), dtype=np.uint8)
    pixels[:, 0] = np.arange(n) % 200
    pixels[:, 20] = 4
    return replace(load_dataset("digits"), title="Other", features=pixels, labels=None)


@pytest.mark.parametrize(
    ("subset", "n", "indices"),
    [
        ("reference", 500, [list(range(360))] * 2),  # as many as there are test rows
        ("reference", 100, [list(range(100))] * 2),
        ("all", 500, [list(range(500))] * 2),
    ],
)
def test_subsets_are_scaled_by_all_rows_of_the_other_set_or_by_the_training_rows(
    problem: Problem, subset: Any, n: int, indices: list[list[int]]
) -> None:
    by_other, train = (ood_rows(problem, other(n), subset, by) for by in ("own", "train"))
    assert by_other.indices.tolist() == train.indices.tolist() == indices
    number = by_other.indices.numpy() % 200
    np.testing.assert_allclose(flat(by_other)[..., 0], number / min(n - 1, 199), atol=1e-6)
    assert (flat(by_other)[..., 20] == 1).all()  # constant, and not 0
    np.testing.assert_allclose(flat(train)[..., 0], number / 16, rtol=1e-6)  # black in training
    high = problem.task.rows.pool[problem.task.rows.indices[0]].flatten(1)[:, 20].max() * 16
    np.testing.assert_allclose(flat(train)[0, :, 20], 4 / high, rtol=1e-6)


def test_wrong_switches_and_shapes_are_refused(problem: Problem) -> None:
    wrong: Any = "tests"
    for switch in ("subset", "normalisation"):
        with pytest.raises(InputError, match=f"{switch}.*got.*'tests'"):
            ood_rows(problem, other(9), **{switch: wrong})
    with pytest.raises(InputError, match=r"Synthetic has rows of shape \(20,\).*\(8, 8\)"):
        ood_rows(problem, load_dataset("synthetic"))


def test_a_class_leaves_with_its_rows_and_its_column() -> None:
    sets = [{"a", "b"}, {"b"}, {"c", "b"}, {"d"}, {"b", "d"}, {"c", "d"}, {"a"}, {"b", "c"}]
    data = labelled(
        [0, 1, 2, 3, 1, 2, 0, 1],
        candidates=Candidates.of(sets, classes=["a", "b", "c", "d"]),
        official=Split(np.array([4, 0, 3, 7]), np.array([6, 1, 2, 5])),
        notes=("row 7 is odd",),
        people=People(np.array([7]), np.eye(4, dtype=int)[:1], np.array([0]), np.eye(4) > 0),
    )
    known, ood = hold_out(data, "b")
    assert known.people is ood.people is None  # they would be about other rows
    assert known.classes.tolist() == ["a", "c", "d"]
    assert known.features.tolist() == [[0, 0], [2, 2], [3, 3], [5, 2], [6, 0]]
    assert known.classes[known.labels].tolist() == ["a", "c", "d", "c", "a"]
    assert known.candidates.sets() == [{"a"}, {"c"}, {"d"}, {"c", "d"}, {"a"}]
    assert known.features[known.split(0).train, 0].tolist() == [0, 3]
    assert known.features[known.split(0).test, 0].tolist() == [6, 2, 5]
    assert ood.features.tolist() == [[1, 1], [4, 1], [7, 1]]
    assert ood.labels is ood.candidates is None
    assert known.notes == ood.notes == ()  # they would name other rows
    assert (ood.split(0).train.tolist(), ood.split(0).test.tolist()) == ([1, 2], [0])
    known.features[:] = ood.features[:] = -1
    assert data.features.min() == 0


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 3), min_size=20, max_size=40),
    st.sampled_from("abcd"),
    st.integers(0, 5),
)
def test_every_row_is_known_or_not_and_splits_stay(labels: list[int], name: str, seed: int) -> None:
    data, names = labelled(labels), CLASSES[labels]
    known, ood = hold_out(data, name, seed)
    assert known.classes[known.labels].tolist() == names[names != name].tolist()
    for part in ("train", "test"):
        before = getattr(data.split(seed), part)
        rows = known.features[getattr(known.split(seed), part), 0]
        gone = ood.features[getattr(ood.split(seed), part), 0]
        assert rows.tolist() == before[names[before] != name].tolist()
        assert gone.tolist() == before[names[before] == name].tolist()
    assert len(known) + len(ood) == len(data)


def test_what_cannot_be_held_out_is_refused() -> None:
    data = labelled([0, 1, 2, 3])
    for changes, name in (({}, "e"), ({"labels": None}, "a"), ({"classes": CLASSES[:2]}, "a")):
        with pytest.raises(InputError, match=f"true labels and at least 3 classes.* '{name}'"):
            hold_out(replace(data, **changes), name)
    candidates = Candidates.of([{"a"}, {"b"}, {"b"}, {"d"}], classes=["a", "b", "c", "d"])
    with pytest.raises(InputError, match=r"no candidate class in 1 row \(1\)"):
        hold_out(replace(data, candidates=candidates), "b")


def test_a_problem_without_a_class_trains_and_meets_it(problem: Problem) -> None:
    known_only, ood = hold_out(load_dataset("digits"), 4, seed=2)
    known = Problem.of(known_only, Uniform(), (2,), "cpu")
    assert known.task.k == 9
    rows = ood_rows(known, ood, "all", "train")
    assert len(rows) + len(known.task) + len(known.test) == 1797
    assert rows.shape == problem.test.shape


@pytest.mark.data
def test_the_published_rows_are_those_of_five_letters_and_a_part_of_the_sixth() -> None:
    letters = load_dataset("notmnist")
    like_mnist = replace(
        letters,
        features=np.zeros((10_020, 784), np.uint8),
        labels=np.arange(10_020) % 10,
        official=Split(np.arange(20), np.arange(20, 10_020)),
    )
    problem = Problem.of(like_mnist, Uniform(), (0,), "cpu")
    rows = ood_rows(problem, letters)
    shown = letters.labels[rows.indices[0].numpy()]
    assert np.bincount(shown).tolist() == [1872, 1873, 1873, 1873, 1873, 636]
    pixels = letters.features[:10_000] / 255
    np.testing.assert_allclose(flat(rows)[0], pixels, atol=1e-6)  # every pixel spans 0 to 255


def test_answers_of_annotators_follow_their_rows_and_stay_when_runs_are_joined() -> None:
    data = load_dataset("synthetic")
    first, second = (Problem.of(data, Annotators(), (seed,), "cpu") for seed in (0, 3))
    both = Problem.of(data, Annotators(), (0, 3), "cpu")
    joined = Problem.joined([first, second])
    for name in ("candidates", "prior", "answers"):
        assert torch.equal(getattr(joined.task, name), getattr(both.task, name)), name
    answers, labels = both.task.answers, both.train_labels
    assert answers is not None
    is_right = (answers == labels[..., None])[answers >= 0]
    assert 0.5 < is_right.double().mean() < 0.9
    assert torch.equal(both.task.prior > 0, both.task.candidates)
    other = Problem.of(data, Uniform(), (3,), "cpu")
    assert Problem.joined([first, other]).task.answers is None


def test_answers_of_a_dataset_are_given_to_its_tasks() -> None:
    data = load_dataset("synthetic")
    names = data.classes[data.labels]
    y = Annotators().apply(data.features, names, random_state=0, device="cpu")
    task = Problem.of(replace(data, candidates=y), None, (0, 1), "cpu").task
    assert y.answers is not None
    for run in (0, 1):
        np.testing.assert_array_equal(task.answers[run], y.answers[data.split(run).train])
