"""Rows of no known class: another dataset's, or those of a class that is held out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll import Candidates, Dataset, InputError, load_dataset
from robustpll.datasets import notmnist
from robustpll.datasets.dataset import Split
from robustpll.datasets.noise import Uniform
from robustpll.datasets.ood import hold_out, ood_rows
from robustpll.datasets.problem import Problem
from robustpll.engine.data import Rows

NOISE = Uniform()
SEEDS = (0, 5)


def labelled(labels: list[int], **changes: Any) -> Dataset:
    """Rows that tell their number and label."""
    features = np.stack([np.arange(len(labels)), labels], 1).astype(float)
    return replace(
        load_dataset("synthetic"),
        features=features,
        labels=np.array(labels),
        classes=np.array(["a", "b", "c", "d"]),
        **changes,
    )


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Digits, with features from 0 to 1 in training but for constant ones."""
    return Problem.of(load_dataset("digits"), NOISE, SEEDS, "cpu")


def other(n: int) -> Dataset:
    """Pictures of the digits' shape; the first pixel tells the number of the row."""
    pixels = np.zeros((n, 64), dtype=np.uint8)
    pixels[:, 0] = np.arange(n) % 200
    pixels[:, 20] = 4
    return replace(load_dataset("digits"), title="Other", features=pixels, labels=None)


def scaled(rows: Rows) -> np.ndarray:
    return rows.x(rows.everything).flatten(2).numpy()


def test_subsets(problem: Problem) -> None:
    """As many first rows as there are test rows, all rows, or the test rows of each seed."""
    for n, count in ((500, 360), (100, 100)):
        assert ood_rows(problem, other(n)).at.tolist() == [list(range(count))] * 2
    assert ood_rows(problem, other(500), subset="all").at.tolist() == [list(range(500))] * 2
    rows = ood_rows(problem, other(500), subset="test-split")
    assert rows.at.tolist() == [other(500).split(seed).test.tolist() for seed in SEEDS]


@pytest.mark.parametrize("subset", ["reference", "all", "test-split"])
def test_own_normalisation_is_by_all_rows_of_the_other_set(problem: Problem, subset: Any) -> None:
    rows = ood_rows(problem, other(500), subset, "own")
    values = scaled(rows)
    number = rows.at.numpy() % 200
    np.testing.assert_allclose(values[..., 0], number / 199, atol=1e-6)
    assert (values[..., 20] == 1).all()  # constant, and not 0


@pytest.mark.parametrize("subset", ["reference", "all", "test-split"])
def test_train_normalisation_is_by_the_training_rows(problem: Problem, subset: Any) -> None:
    rows = ood_rows(problem, other(500), subset, "train")
    values = scaled(rows)
    number = rows.at.numpy() % 200
    np.testing.assert_allclose(values[..., 0], number / 16, rtol=1e-6)  # black in training
    high = problem.task.rows.pool[problem.task.rows.at[0]].flatten(1)[:, 20].max() * 16
    np.testing.assert_allclose(values[0, :, 20], 4 / high, rtol=1e-6)


def test_wrong_switches_and_shapes_are_refused(problem: Problem) -> None:
    wrong: Any = "tests"
    with pytest.raises(InputError, match="subset must be"):
        ood_rows(problem, other(9), subset=wrong)
    with pytest.raises(InputError, match="normalisation must be"):
        ood_rows(problem, other(9), normalisation=wrong)
    with pytest.raises(InputError, match=r"Synthetic has rows of shape \(20,\).*\(8, 8\)"):
        ood_rows(problem, load_dataset("synthetic"))


def test_a_class_leaves_with_its_rows_and_its_column() -> None:
    labels = [0, 1, 2, 3, 1, 2, 0, 1]
    sets = [{"a", "b"}, {"b"}, {"c", "b"}, {"d"}, {"b", "d"}, {"c", "d"}, {"a"}, {"b", "c"}]
    candidates = Candidates.of(sets, classes=["a", "b", "c", "d"])
    split = Split(np.array([4, 0, 3, 7]), np.array([6, 1, 2, 5]))
    held = hold_out(labelled(labels, candidates=candidates, official=split), "b")
    known = held.known
    assert known.classes.tolist() == ["a", "c", "d"]
    assert known.features.tolist() == [[0, 0], [2, 2], [3, 3], [5, 2], [6, 0]]
    assert known.labels is not None
    assert known.classes[known.labels].tolist() == ["a", "c", "d", "c", "a"]
    assert known.candidates is not None
    assert known.candidates.sets() == [{"a"}, {"c"}, {"d"}, {"c", "d"}, {"a"}]
    assert known.official is not None
    assert known.features[known.official.train, 0].tolist() == [0, 3]
    assert known.features[known.official.test, 0].tolist() == [6, 2, 5]
    assert held.ood.features.tolist() == [[4, 1], [7, 1], [1, 1]]  # training ones first
    assert held.ood.labels is held.ood.candidates is None
    assert held.ood.split(0).test.tolist() == [2]


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 3), min_size=20, max_size=40),
    st.sampled_from("abcd"),
    st.integers(0, 5),
)
def test_every_row_is_known_or_not_and_splits_stay(labels: list[int], name: str, seed: int) -> None:
    data = labelled(labels)
    split, held = data.split(seed), hold_out(data, name, seed)
    assert held.known.labels is not None
    names = np.array(["a", "b", "c", "d"])[labels]
    assert held.known.classes[held.known.labels].tolist() == names[names != name].tolist()
    for part in ("train", "test"):
        before = getattr(split, part)
        known = held.known.features[getattr(held.known.split(seed), part), 0]
        gone = held.ood.features[getattr(held.ood.split(seed), part), 0]
        assert known.tolist() == before[names[before] != name].tolist()
        assert gone.tolist() == before[names[before] == name].tolist()
    assert len(held.known) + len(held.ood) == len(data)


def test_the_dataset_itself_keeps_the_class_and_notes_say_that_they_are_older() -> None:
    data = labelled([0, 1, 2, 3] * 3, notes=("row 7 is odd",))
    held = hold_out(data, "c")
    assert held.known.notes == ("before c was held out: row 7 is odd",)
    assert held.ood.notes == ()
    held.known.features[:] = -1
    held.ood.features[:] = -1
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2, 3] * 3
    assert data.features.min() == 0


def test_a_row_that_would_lose_its_last_candidate_is_named() -> None:
    candidates = Candidates.of([{"a"}, {"b"}, {"b"}, {"d"}], classes=["a", "b", "c", "d"])
    data = labelled([0, 1, 2, 3], candidates=candidates)
    with pytest.raises(InputError, match=r"Without class b.* 1 rows .*\(2\)"):
        hold_out(data, "b")


def test_what_cannot_be_held_out_is_refused() -> None:
    data = labelled([0, 1, 2, 3])
    for bad, name in (
        (data, "e"),
        (replace(data, labels=None), "a"),
        (replace(data, classes=np.array(["a", "b"])), "a"),
    ):
        with pytest.raises(InputError, match=f"true labels, at least 3 classes.* '{name}'"):
            hold_out(bad, name)


def test_a_problem_without_a_class_trains_and_meets_it(problem: Problem) -> None:
    held = hold_out(load_dataset("digits"), 4, seed=2)
    known = Problem.of(held.known, NOISE, (2,), "cpu")
    assert known.task.k == 9
    rows = ood_rows(known, held.ood, "all", "train")
    assert len(rows) + len(known.task) + len(known.test) == 1797
    assert rows.shape == problem.test.shape


@pytest.mark.data
def test_the_published_rows_are_those_of_five_letters_and_a_part_of_the_sixth(
    monkeypatch: pytest.MonkeyPatch, letters_cache: Path
) -> None:
    monkeypatch.setattr(notmnist, "cache_folder", lambda: letters_cache)
    letters = load_dataset("notmnist")
    assert letters.labels is not None
    like_mnist = replace(
        letters,
        features=np.zeros((10_020, 784), np.uint8),
        labels=np.arange(10_020) % 10,
        official=Split(np.arange(20), np.arange(20, 10_020)),
    )
    problem = Problem.of(like_mnist, NOISE, (0,), "cpu")
    rows = ood_rows(problem, letters)
    shown = letters.labels[rows.at[0].numpy()]
    assert np.bincount(shown).tolist() == [1872, 1873, 1873, 1873, 1873, 636]
    pixels = letters.features[:10_000] / 255
    np.testing.assert_allclose(scaled(rows)[0], pixels, atol=1e-6)  # every pixel spans 0 to 255
    assert len(ood_rows(problem, letters, "test-split")) == 3_745
