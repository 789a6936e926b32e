"""Noise that adds wrong classes: worked numbers, and what always holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from robustpll.data.noise import InstanceDependent, Teacher, joining
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.errors import InputError

FAST = InstanceDependent(epochs=10, batch_size=16, learning_rate=0.1)
K = 5


def runs(*which: int, n: int = 60) -> tuple[Rows, Tensor]:
    """Rows and labels of runs over one pool; a run has the same ones wherever it stands."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.rand(200, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(K, (200,), generator=generator)
    order = torch.stack([torch.randperm(200, generator=generator)[:n] for _ in range(4)])
    at = order[list(which)]
    return Rows.of(pool, at), labels[at]


@pytest.mark.parametrize(
    ("mean_over", "chances", "size"),
    [("all", (0, 1, 1, 0.75, 0.5), 4.25), ("wrong", (0, 1, 1, 0.6, 0.4), 4.0)],
)
def test_worked_numbers(mean_over: Any, chances: Any, size: float) -> None:
    g = torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04], dtype=torch.float64)
    found = joining(g, torch.arange(5) == 0, mean_over)
    np.testing.assert_allclose(found, chances, atol=1e-12)
    assert 1 + found.sum().item() == pytest.approx(size)


@pytest.mark.parametrize("mean_over", ["all", "wrong"])
@given(weights=arrays(float, (4, 6), elements=st.floats(1e-6, 1)))
def test_the_likeliest_wrong_class_always_joins(mean_over: Any, weights: np.ndarray) -> None:
    g = torch.from_numpy(weights / weights.sum(-1, keepdims=True))
    true = torch.eye(6, dtype=torch.bool)[:4]
    chance = joining(g, true, mean_over)
    assert ((chance >= 0) & (chance <= 1)).all()
    assert (chance[true] == 0).all()
    likeliest = g.masked_fill(true, 0).argmax(-1, keepdim=True)
    assert (chance.gather(-1, likeliest) == 1).all()


def test_a_teacher_that_is_certain_adds_nothing() -> None:
    certain = torch.tensor([[0.0, 1, 0]], dtype=torch.float64)
    assert joining(certain, certain.bool()).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("mean_over", ["all", "wrong"])
def test_true_label_stays_and_is_never_alone(mean_over: Any) -> None:
    rows, labels = runs(0, 1)
    found = replace(FAST, mean_over=mean_over).candidates(rows, labels, K, (0, 1))
    assert found.dtype == torch.bool
    assert found.shape == (2, 60, K)
    assert found.gather(-1, labels[..., None]).all()
    assert (found.sum(-1) >= 2).all()
    assert not found.all()


def test_candidates_depend_on_the_seed_alone() -> None:
    rows, labels = runs(0)
    first = FAST.candidates(rows, labels, K, (7,))
    torch.rand(3)
    np.random.default_rng().random(3)
    assert torch.equal(FAST.candidates(rows, labels, K, (7,)), first)
    assert not torch.equal(FAST.candidates(rows, labels, K, (8,)), first)


def test_runs_in_a_bundle_equal_runs_alone() -> None:
    seeds = (11, 12, 13)
    together = FAST.candidates(*runs(0, 1, 2), K, seeds)
    for r, seed in enumerate(seeds):
        assert torch.equal(together[r], FAST.candidates(*runs(r), K, (seed,))[0])


def test_teachers_in_a_bundle_equal_teachers_alone_to_the_last_bit() -> None:
    def probability(*which: int) -> Tensor:
        rows, labels = runs(*which)
        true = torch.nn.functional.one_hot(labels, K).bool()
        teacher = Teacher(epochs=5, batch_size=32, learning_rate=0.1)
        return teacher.fit(Task.of(rows, true, tuple(which))).predict(rows).probability

    together = probability(0, 1, 2)
    assert all(torch.equal(together[r], probability(r)[0]) for r in range(3))


def test_a_teacher_with_more_steps_leaves_fewer_candidates(
    digits: tuple[np.ndarray, ...],
) -> None:
    X, _, y, _ = digits
    sizes = [
        InstanceDependent(epochs=epochs, batch_size=64, learning_rate=0.1)
        .apply(X, y, random_state=0, device="cpu")
        .matrix.sum(-1)
        .mean()
        for epochs in (1, 15)
    ]
    assert 2 <= sizes[1] < sizes[0] <= 10


def test_apply_keeps_names_and_true_labels() -> None:
    X, names = np.repeat(np.eye(3), 8, axis=0), np.repeat(["cat", "dog", "owl"], 8)
    y = FAST.apply(X, names, random_state=0, device="cpu")
    assert y.classes.tolist() == ["cat", "dog", "owl"]
    assert all(name in one for name, one in zip(names, y.sets(), strict=True))
    again = FAST.apply(X, names, random_state=0, device="cpu")
    assert (again.matrix == y.matrix).all()


def test_as_many_labels_as_rows_are_needed() -> None:
    with pytest.raises(InputError, match="X has 3 rows, but y has 2"):
        FAST.apply(np.eye(3), ["a", "b"], device="cpu")


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"learning_rate": -1.0}, {"batch_size": 1}, {"mean_over": "right"}]
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        InstanceDependent(**wrong).apply(np.eye(3), ["a", "b", "c"], device="cpu")


def test_labels_must_be_single() -> None:
    with pytest.raises(InputError, match="one true class"):
        InstanceDependent(epochs=1).apply(np.eye(2), [{"a", "b"}, {"a"}])
