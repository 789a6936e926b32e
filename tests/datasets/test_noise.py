"""Noise that adds wrong classes: worked numbers, and what always holds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from robustpll.datasets.noise import (
    ClassDependent,
    Flip,
    InstanceDependent,
    Noise,
    Teacher,
    Uniform,
    joining,
)
from robustpll.engine.data import Rows, Task
from robustpll.errors import InputError

FAST = InstanceDependent(epochs=10, batch_size=16, learning_rate=0.1)
K = 5


def runs(*which: int, n: int = 60) -> tuple[Rows, Tensor]:
    """Rows and labels of runs over one pool; a run has the same ones wherever it stands."""
    generator = torch.Generator().manual_seed(0)
    pool = torch.rand(200, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(K, (200,), generator=generator)
    order = torch.stack([torch.randperm(200, generator=generator)[:n] for _ in range(4)])
    indices = order[list(which)]
    return Rows.of(pool, indices), labels[indices]


@pytest.mark.parametrize(
    ("mean_over", "chances", "size"),
    [("all", (0, 1, 1, 0.75, 0.5), 4.25), ("wrong", (0, 1, 1, 0.6, 0.4), 4.0)],
)
def test_worked_numbers(mean_over: Any, chances: Any, size: float) -> None:
    g = torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04], dtype=torch.float64)
    chance = joining(g, torch.arange(5) == 0, mean_over)
    np.testing.assert_allclose(chance, chances, atol=1e-12)
    assert 1 + chance.sum().item() == pytest.approx(size)


@pytest.mark.parametrize("mean_over", ["all", "wrong"])
@settings(max_examples=30)
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
    drawn = replace(FAST, mean_over=mean_over).candidates(rows, labels, K, (0, 1))
    assert drawn.dtype == torch.bool
    assert drawn.shape == (2, 60, K)
    assert drawn.gather(-1, labels[..., None]).all()
    assert (drawn.sum(-1) >= 2).all()
    assert not drawn.all()


def test_a_run_depends_on_its_seed_but_not_on_the_other_runs() -> None:
    seeds = (11, 12, 13)
    together = FAST.candidates(*runs(0, 1, 2), K, seeds)
    torch.rand(3)
    for r, seed in enumerate(seeds):
        assert torch.equal(together[r], FAST.candidates(*runs(r), K, (seed,))[0])
    assert not torch.equal(together[0], FAST.candidates(*runs(0), K, (8,))[0])


def test_teachers_in_a_bundle_equal_teachers_alone_to_the_last_bit() -> None:
    def probability(*which: int) -> Tensor:
        rows, labels = runs(*which)
        true = torch.nn.functional.one_hot(labels, K).bool()
        teacher = Teacher(epochs=5, batch_size=32, learning_rate=0.1)
        return teacher.fit(Task.of(rows, true, tuple(which))).predict(rows).probability

    together = probability(0, 1, 2)
    assert all(torch.equal(together[r], probability(r)[0]) for r in range(3))


def test_a_teacher_with_more_steps_leaves_fewer_candidates() -> None:
    X, labels = np.repeat(np.eye(4), 15, axis=0), np.repeat(["a", "b", "c", "d"], 15)
    few, many = (
        replace(FAST, epochs=epochs).apply(X, labels, random_state=0, device="cpu").sizes.mean()
        for epochs in (1, 20)
    )
    assert 2 <= many < few <= 4


def test_apply_keeps_names_and_true_labels() -> None:
    X, names = np.repeat(np.eye(3), 8, axis=0), np.repeat(["cat", "dog", "owl"], 8)
    y = FAST.apply(X, names, random_state=0, device="cpu")
    assert y.classes.tolist() == ["cat", "dog", "owl"]
    assert all(name in one for name, one in zip(names, y.sets(), strict=True))
    again = FAST.apply(X, names, random_state=0, device="cpu")
    assert (again.matrix == y.matrix).all()


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"learning_rate": -1.0}, {"batch_size": 1}, {"mean_over": "right"}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        InstanceDependent(**wrong).apply(np.eye(3), ["a", "b", "c"], device="cpu")


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(InputError, match="X has 3 rows, but y has 2"):
        FAST.apply(np.eye(3), ["a", "b"], device="cpu")
    with pytest.raises(InputError, match="one true class"):
        FAST.apply(np.eye(2), [{"a", "b"}, {"a"}])


def labels_of(k: int, n: int, seeds: int = 2) -> tuple[Rows, Tensor]:
    """Many rows without features, so that shares can be counted."""
    indices = torch.arange(n).expand(seeds, -1)
    labels = torch.arange(n) % k
    return Rows.of(torch.ones(n, 1, dtype=torch.float64), indices), labels.expand(seeds, -1)


@pytest.mark.parametrize(
    ("noise", "average"), [(Uniform(), 1 + 2 * 0.5), (ClassDependent(), 1 + 0.7)]
)
def test_the_presets_add_so_many_classes_to_such_a_share(noise: Noise, average: float) -> None:
    rows, labels = labels_of(k=7, n=7_000)
    drawn = noise.candidates(rows, labels, 7, (0, 1))
    sizes = drawn.sum(-1)
    assert set(sizes.unique().tolist()) == {1, 1 + noise.added}  # type: ignore[attr-defined]
    assert sizes.double().mean().item() == pytest.approx(average, abs=0.05)
    assert drawn.gather(-1, labels[..., None]).all()
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("k", [4, 5])
def test_partners_come_most_often_and_a_single_class_has_none(k: int) -> None:
    """Counted over many rows: a partner with 0.7, all others share the rest."""
    rows, labels = labels_of(k, n=4_000 * k, seeds=1)
    drawn = ClassDependent(share=1.0).candidates(rows, labels, k, (3,))[0]
    counts = torch.stack([drawn[labels[0] == c].double().mean(0) for c in range(k)])  # (k, k)
    counts = counts - torch.eye(k)
    partnered = counts.amax(-1) > 0.6
    assert partnered.sum() == k - k % 2
    assert torch.equal(counts[partnered] > 0.6, (counts.T > 0.6)[partnered])  # both ways
    others = counts[partnered][(counts[partnered] < 0.6) & (counts[partnered] > 0)]
    assert others.numpy() == pytest.approx(0.3 / (k - 2), abs=0.03)
    single = counts[~partnered]
    assert single[single > 0].numpy() == pytest.approx(1 / (k - 1), abs=0.03)


def test_uniform_noise_prefers_no_class() -> None:
    rows, labels = labels_of(k=5, n=20_000, seeds=1)
    drawn = Uniform(share=1.0).candidates(rows, labels, 5, (0,))[0]
    counts = torch.stack([drawn[labels[0] == c].double().mean(0) for c in range(5)])
    wrong = counts[~torch.eye(5, dtype=torch.bool)]
    assert wrong.numpy() == pytest.approx(2 / 4, abs=0.03)


def test_two_classes_have_one_wrong_class() -> None:
    rows, labels = labels_of(k=2, n=50)
    assert ClassDependent(share=1.0).candidates(rows, labels, 2, (0, 1)).all()
    with pytest.raises(InputError, match="adds 2 wrong classes, but there are only 2"):
        Uniform().candidates(rows, labels, 2, (0, 1))


def test_flip_leaves_the_truth_out_and_no_set_is_empty() -> None:
    rows, labels = labels_of(k=6, n=12_000)
    before = Uniform().candidates(rows, labels, 6, (0, 1))
    after = Flip(0.3, Uniform()).candidates(rows, labels, 6, (0, 1))
    kept = after.gather(-1, labels[..., None])[..., 0]
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.02)
    assert torch.equal(after[kept], before[kept])
    lost, alone = ~kept, before.sum(-1) == 1
    assert (after[lost & alone].sum(-1) == 1).all()
    true = torch.nn.functional.one_hot(labels, 6).bool()
    several = lost & ~alone
    assert torch.equal(after[several], before[several] & ~true[several])
    instead = after[lost & alone].double().mean(0)
    assert instead.numpy() == pytest.approx(1 / 6, abs=0.04)


def test_flip_needs_something_to_flip() -> None:
    rows, labels = labels_of(k=3, n=9)
    with pytest.raises(InputError, match=r"Pass Flip\(share, Uniform\(\)\)"):
        Flip(0.1).candidates(rows, labels, 3, (0, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Uniform(share=1.5),
        lambda: Uniform(share=None),  # type: ignore[arg-type]
        lambda: ClassDependent(added=0),
        lambda: ClassDependent(added=1.5),  # type: ignore[arg-type]
        lambda: Flip(-0.1),
        lambda: Flip("0.1"),  # type: ignore[arg-type]
        lambda: Flip(0.1, Uniform),  # type: ignore[arg-type]
    ],
)
def test_impossible_noise_is_refused(make: Any) -> None:
    with pytest.raises(InputError, match="must be"):
        make()


@pytest.mark.parametrize("noise", [Uniform(), ClassDependent(), Flip(0.2, ClassDependent())])
def test_a_runs_noise_does_not_depend_on_the_other_runs(noise: Noise) -> None:
    alone = noise.candidates(*runs(2), K, (7,))
    among = noise.candidates(*runs(0, 2, 1), K, (5, 7, 6))
    assert torch.equal(alone[0], among[1])


def test_a_partner_who_is_certain_cannot_be_joined_by_others() -> None:
    rows, labels = labels_of(k=4, n=40)
    assert (ClassDependent(1, 1.0, 1.0).candidates(rows, labels, 4, (0, 1)).sum(-1) == 2).all()
    with pytest.raises(InputError, match="only draws the partner"):
        ClassDependent(2, 1.0, 1.0).candidates(rows, labels, 4, (0, 1))


def test_noise_that_does_not_look_at_features_takes_any() -> None:
    words = np.array([["red"], ["blue"], [None]] * 10, dtype=object)
    y = Flip(0.5, Uniform()).apply(words, ["a", "b", "c"] * 10, random_state=0)
    assert len(y) == 30
