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

SEEDS = (0, 5)
CLASSES = np.array(["a", "b", "c", "d"])


def labelled(labels: list[int], **changes: Any) -> Dataset:
    """Rows that tell their number and label."""
    features = np.stack([np.arange(len(labels)), labels], 1).astype(float)
    return replace(Dataset("mine", "Mine", features, CLASSES, np.array(labels)), **changes)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Digits, with features from 0 to 1 in training but for constant ones."""
    return Problem.of(load_dataset("digits"), Uniform(), SEEDS, "cpu")


def other(n: int) -> Dataset:
    """Pictures of the digits' shape; the first pixel tells the number of the row."""
    pixels = np.zeros((n, 64), dtype=np.uint8)
    pixels[:, 0] = np.arange(n) % 200
    pixels[:, 20] = 4
    return replace(load_dataset("digits"), title="Other", features=pixels, labels=None)


def scaled(rows: Rows) -> np.ndarray:
    return rows.x(rows.everything).flatten(2).numpy()


@pytest.mark.parametrize(
    ("subset", "n", "indices"),
    [
        ("reference", 500, [list(range(360))] * 2),  # as many as there are test rows
        ("reference", 100, [list(range(100))] * 2),
        ("all", 500, [list(range(500))] * 2),
        ("test-split", 500, [other(500).split(seed).test.tolist() for seed in SEEDS]),
    ],
)
def test_subsets_are_scaled_by_all_rows_of_the_other_set_or_by_the_training_rows(
    problem: Problem, subset: Any, n: int, indices: list[list[int]]
) -> None:
    own, train = (ood_rows(problem, other(n), subset, by) for by in ("own", "train"))
    assert own.at.tolist() == train.at.tolist() == indices
    number = own.at.numpy() % 200
    np.testing.assert_allclose(scaled(own)[..., 0], number / min(n - 1, 199), atol=1e-6)
    assert (scaled(own)[..., 20] == 1).all()  # constant, and not 0
    np.testing.assert_allclose(scaled(train)[..., 0], number / 16, rtol=1e-6)  # black in training
    high = problem.task.rows.pool[problem.task.rows.at[0]].flatten(1)[:, 20].max() * 16
    np.testing.assert_allclose(scaled(train)[0, :, 20], 4 / high, rtol=1e-6)


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
    )
    known, ood = hold_out(data, "b")
    assert known.classes.tolist() == ["a", "c", "d"]
    assert known.features.tolist() == [[0, 0], [2, 2], [3, 3], [5, 2], [6, 0]]
    assert known.classes[known.labels].tolist() == ["a", "c", "d", "c", "a"]
    assert known.candidates is not None
    assert known.candidates.sets() == [{"a"}, {"c"}, {"d"}, {"c", "d"}, {"a"}]
    assert known.features[known.split(0).train, 0].tolist() == [0, 3]
    assert known.features[known.split(0).test, 0].tolist() == [6, 2, 5]
    assert known.notes == ("before b was held out: row 7 is odd",)
    assert ood.features.tolist() == [[4, 1], [7, 1], [1, 1]]  # training ones first
    assert ood.labels is ood.candidates is None
    assert ood.notes == ()
    assert ood.split(0).test.tolist() == [2]
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
        with pytest.raises(InputError, match=f"true labels, at least 3 classes.* '{name}'"):
            hold_out(replace(data, **changes), name)
    candidates = Candidates.of([{"a"}, {"b"}, {"b"}, {"d"}], classes=["a", "b", "c", "d"])
    with pytest.raises(InputError, match=r"y\[1\] is empty"):
        hold_out(replace(data, candidates=candidates), "b")


def test_a_problem_without_a_class_trains_and_meets_it(problem: Problem) -> None:
    held = hold_out(load_dataset("digits"), 4, seed=2)
    known = Problem.of(held.known, Uniform(), (2,), "cpu")
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
    like_mnist = replace(
        letters,
        features=np.zeros((10_020, 784), np.uint8),
        labels=np.arange(10_020) % 10,
        official=Split(np.arange(20), np.arange(20, 10_020)),
    )
    problem = Problem.of(like_mnist, Uniform(), (0,), "cpu")
    rows = ood_rows(problem, letters)
    assert letters.labels is not None
    shown = letters.labels[rows.at[0].numpy()]
    assert np.bincount(shown).tolist() == [1872, 1873, 1873, 1873, 1873, 636]
    pixels = letters.features[:10_000] / 255
    np.testing.assert_allclose(scaled(rows)[0], pixels, atol=1e-6)  # every pixel spans 0 to 255
    assert len(ood_rows(problem, letters, "test-split")) == 3_745
