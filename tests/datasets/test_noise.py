"""Noise that adds wrong classes: worked numbers, and what always holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from robustpll.datasets.noise import (
    Annotators,
    ClassDependent,
    Flip,
    Independent,
    InstanceDependent,
    Noise,
    Teacher,
    Uniform,
    joining,
)
from robustpll.engine.data import Rows, Task
from robustpll.errors import InputError

FAST = InstanceDependent(epochs=5, batch_size=16, learning_rate=0.1)
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
    certain = torch.tensor([[0.0, 1, 0]], dtype=torch.float64)  # such a teacher adds nothing
    assert joining(certain, certain.bool(), mean_over).tolist() == [[0, 0, 0]]


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


@pytest.mark.parametrize("mean_over", ["all", "wrong"])
def test_true_label_stays_and_is_never_alone(mean_over: Any) -> None:
    rows, labels = runs(0, 1)
    drawn = replace(FAST, mean_over=mean_over).candidates(rows, labels, K, (0, 1))
    assert drawn.dtype == torch.bool
    assert drawn.shape == (2, 60, K)
    assert drawn.gather(-1, labels[..., None]).all()
    assert (drawn.sum(-1) >= 2).all()
    assert not drawn.all()


@pytest.mark.parametrize(
    "noise",
    [FAST, Uniform(), Independent(), ClassDependent(), Flip(0.2, ClassDependent()), Annotators()],
)
def test_a_run_depends_on_its_seed_but_not_on_the_other_runs(noise: Noise) -> None:
    together = noise.candidates(*runs(0, 2, 1), K, (5, 7, 6))
    torch.rand(3)
    assert torch.equal(together[1], noise.candidates(*runs(2), K, (7,))[0])
    assert not torch.equal(together[1], noise.candidates(*runs(2), K, (8,))[0])


def test_teachers_in_a_bundle_equal_teachers_alone_to_the_last_bit() -> None:
    def probability(*which: int) -> Tensor:
        rows, labels = runs(*which)
        true = torch.nn.functional.one_hot(labels, K).bool()
        teacher = Teacher(epochs=5, batch_size=32, learning_rate=0.1)
        return teacher.fit(Task.of(rows, true, tuple(which))).predict(rows).probability

    together = probability(0, 1, 2)
    assert all(torch.equal(together[r], probability(r)[0]) for r in range(3))


def test_apply_keeps_names_and_true_labels_and_more_steps_leave_fewer_candidates() -> None:
    X, labels = np.repeat(np.eye(4), 15, axis=0), np.repeat(["a", "b", "c", "d"], 15)
    few, many, again = (
        replace(FAST, epochs=epochs).apply(X, labels, random_state=0, device="cpu")
        for epochs in (1, 20, 20)
    )
    assert 2 <= many.sizes.mean() < few.sizes.mean() <= 4
    assert many.classes.tolist() == ["a", "b", "c", "d"]
    assert all(label in names for label, names in zip(labels, many.sets(), strict=True))
    assert (again.matrix == many.matrix).all()


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
    ("chance", "average", "alone"),  # published: 1 + 9 q, and (1 - q)^9
    [(0.0, 1, 1), (0.1, 1.9, 0.387420), (0.3, 3.7, 0.040354), (0.5, 5.5, 0.001953), (1.0, 10, 0)],
)
def test_independent_classes_join_at_their_rate_and_some_rows_stay_clean(
    chance: float, average: float, alone: float
) -> None:
    rows, labels = labels_of(k=10, n=50_000)
    drawn = Independent(chance).candidates(rows, labels, 10, (0, 1))
    assert drawn.dtype == torch.bool
    assert drawn.gather(-1, labels[..., None]).all()
    sizes = drawn.sum(-1).double()
    assert ((sizes.mean(-1) - average).abs() < 0.05).all()
    assert (((sizes == 1).double().mean(-1) - alone).abs() < 0.01).all()
    others = drawn & (torch.arange(10) != labels[..., None])
    shares = others.double().sum(1) / 45_000  # (2, 10): each class among rows of the others
    assert ((shares - chance).abs() < 0.02).all()


def test_independent_noise_needs_a_share() -> None:
    with pytest.raises(InputError, match="'chance' of Independent must be a float from 0 to 1"):
        Independent(1.5)


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


def shares(noise: Noise, k: int, n: int) -> Tensor:
    """How often each wrong class joins each true class, (k, k)."""
    rows, labels = labels_of(k, n, seeds=1)
    drawn = noise.candidates(rows, labels, k, (3,))[0]
    return torch.stack([drawn[labels[0] == c].double().mean(0) for c in range(k)]) - torch.eye(k)


@pytest.mark.parametrize("k", [4, 5])
def test_partners_come_most_often_and_a_single_class_has_none(k: int) -> None:
    """Counted over many rows: a partner with 0.7, all others share the rest."""
    counts = shares(ClassDependent(share=1.0), k, n=4_000 * k)
    partnered = counts.amax(-1) > 0.6
    assert partnered.sum() == k - k % 2
    assert torch.equal(counts[partnered] > 0.6, (counts.T > 0.6)[partnered])  # both ways
    others = counts[partnered][(counts[partnered] < 0.6) & (counts[partnered] > 0)]
    assert others.numpy() == pytest.approx(0.3 / (k - 2), abs=0.03)
    single = counts[~partnered]
    assert single[single > 0].numpy() == pytest.approx(1 / (k - 1), abs=0.03)
    uniform = shares(Uniform(share=1.0), k, n=4_000 * k)
    assert uniform[~torch.eye(k, dtype=torch.bool)].numpy() == pytest.approx(2 / (k - 1), abs=0.03)


@pytest.mark.parametrize(
    ("certain", "possible", "impossible"),
    [
        (ClassDependent(share=1.0), 2, (2, Uniform())),
        (ClassDependent(1, 1.0, 1.0), 4, (4, ClassDependent(2, 1.0, 1.0))),
    ],
)
def test_no_more_classes_are_added_than_can_be_drawn(
    certain: Noise, possible: int, impossible: tuple[int, Noise]
) -> None:
    drawn = certain.candidates(*labels_of(possible, n=40), possible, (0, 1))
    assert (drawn.sum(-1) == 2).all()
    k, noise = impossible
    with pytest.raises(InputError, match=r"at most 1 wrong class: there are"):
        noise.candidates(*labels_of(k, n=40), k, (0, 1))


def test_flip_leaves_the_truth_out_and_no_set_is_empty() -> None:
    rows, labels = labels_of(k=6, n=12_000)
    before = Uniform().candidates(rows, labels, 6, (0, 1))
    after = Flip(0.3, Uniform()).candidates(rows, labels, 6, (0, 1))
    has_truth = after.gather(-1, labels[..., None])[..., 0]
    assert has_truth.double().mean().item() == pytest.approx(0.7, abs=0.02)
    assert torch.equal(after[has_truth], before[has_truth])
    lost, alone = ~has_truth, before.sum(-1) == 1
    assert (after[lost & alone].sum(-1) == 1).all()
    true = torch.nn.functional.one_hot(labels, 6).bool()
    several = lost & ~alone
    assert torch.equal(after[several], before[several] & ~true[several])
    instead = after[lost & alone].double().mean(0)
    assert instead.numpy() == pytest.approx(1 / 6, abs=0.04)
    with pytest.raises(InputError, match=r"Pass Flip\(share, Uniform\(\)\)"):
        Flip(0.1).candidates(rows, labels, 6, (0, 1))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (InstanceDependent, {"epochs": 0}),
        (InstanceDependent, {"learning_rate": -1.0}),
        (InstanceDependent, {"batch_size": 1}),
        (InstanceDependent, {"mean_over": "right"}),
        (Uniform, {"share": 1.5}),
        (Uniform, {"share": None}),
        (ClassDependent, {"added": 0}),
        (ClassDependent, {"added": 1.5}),
        (Flip, {"share": -0.1}),
        (Flip, {"share": "0.1"}),
        (Flip, {"noise": Uniform, "share": 0.1}),
        (Annotators, {"count": 0}),
        (Annotators, {"gaps": 1.5}),
        (Annotators, {"concentration": 0.0}),
        (Annotators, {"lowest_skill": 0.8, "highest_skill": 0.7}),
    ],
)
def test_impossible_noise_is_refused(make: Callable[..., Noise], arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        make(**arguments)


def answer_shares(noise: Annotators, k: int, n: int, seed: int = 3) -> Tensor:
    """How often each annotator names each class for each true class, (count, k, k)."""
    labels = torch.arange(n)[None] % k
    answers = noise.answers(labels, k, (seed,))[0]  # (n, count)
    named = torch.nn.functional.one_hot(answers.clamp(min=0), k).double()
    named[answers < 0] = torch.nan
    return torch.stack([named[labels[0] == c].nanmean(0) for c in range(k)], 1)


def test_annotators_are_right_by_their_skills_and_share_their_confusions() -> None:
    k = 4
    shares = answer_shares(Annotators(gaps=0.2), k, n=k * 20_000)
    right = shares.diagonal(dim1=1, dim2=2)  # (count, k)
    assert (right - right.mean(1, keepdim=True)).abs().max() < 0.02  # the same for all classes
    skills = right.mean(1)
    assert ((skills > 0.48) & (skills < 0.92)).all()
    assert skills.max() - skills.min() > 0.05
    wrong = shares.masked_fill(torch.eye(k, dtype=torch.bool), 0)
    wrong = wrong / wrong.sum(-1, keepdim=True)  # (count, k, k)
    assert (wrong - wrong.mean(0)).abs().max() < 0.04
    uneven = wrong.mean(0)[~torch.eye(k, dtype=torch.bool)]
    assert uneven.max() - uneven.min() > 0.2
    others = answer_shares(Annotators(gaps=0.2), k, n=k * 20_000, seed=4)
    assert (others.mean(0) - shares.mean(0)).abs().max() > 0.1, "each run has its own annotators"


def test_a_high_concentration_makes_wrong_answers_equally_likely() -> None:
    shares = answer_shares(Annotators(1, 0.4, 0.4, 0.0, concentration=1e6), 5, n=5 * 20_000)[0]
    assert shares.diagonal().numpy() == pytest.approx(0.4, abs=0.02)
    assert shares[~torch.eye(5, dtype=torch.bool)].numpy() == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize("gaps", [0.0, 0.3, 1.0])
def test_answers_are_missing_with_the_given_probability_but_never_all_of_a_row(gaps: float) -> None:
    labels = torch.arange(20_000)[None] % 2  # with two classes there is one wrong class
    answers = Annotators(count=4, gaps=gaps).answers(labels, 2, (0,))
    assert answers.dtype == torch.int64
    assert set(answers.unique().tolist()) == ({0, 1} if gaps == 0 else {-1, 0, 1})
    missing = (answers < 0).double().mean((0, 1))
    # A row whose answers would all be missing keeps one of the four.
    assert missing.numpy() == pytest.approx(gaps - gaps**4 / 4, abs=0.02)
    assert (answers >= 0).any(-1).all()


def test_candidates_are_the_named_classes_and_the_prior_is_the_share_of_answers() -> None:
    X, labels = np.zeros((200, 1)), np.array(["a", "b", "c", "d"] * 50)
    y = Annotators().apply(X, labels, random_state=0, device="cpu")
    again = Annotators().apply(X, labels, random_state=0, device="cpu")
    assert y.answers is not None
    np.testing.assert_array_equal(y.answers, again.answers)
    votes = np.stack([(y.answers == c).sum(-1) for c in range(4)], -1)
    np.testing.assert_array_equal(y.matrix, votes > 0)
    np.testing.assert_allclose(y.prior, votes / votes.sum(-1, keepdims=True), rtol=1e-6)
    assert y.prior.dtype == np.float32
    truth = np.array([label in names for label, names in zip(labels, y.sets(), strict=True)])
    assert 0.5 < truth.mean() < 1
    assert Uniform().apply(X, labels, random_state=0, device="cpu").answers is None
    with pytest.raises(InputError, match="at least 2 classes"):
        Annotators().apply(X, ["a"] * 200, device="cpu")


def test_rows_of_every_accepted_form_get_the_same_candidates() -> None:
    X, labels = np.random.default_rng(0).random((30, 3)), ["a", "b", "c"] * 10
    frame = pd.DataFrame(X, columns=[*"xyz"])
    forms = [X, X.tolist(), csr_array(X), coo_array(X), frame, polars.from_pandas(frame)]
    drawn = [FAST.apply(form, labels, random_state=0, device="cpu").matrix for form in forms]
    for matrix in drawn[1:]:
        np.testing.assert_array_equal(matrix, drawn[0])
