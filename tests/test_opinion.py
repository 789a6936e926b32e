"""Opinions: what always holds of them; the paper's worked numbers are in the docstrings."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from torch.distributions import Dirichlet

from robustpll.errors import InputError
from robustpll.opinion import Opinion


@st.composite
def opinions(draw: st.DrawFn, shape: tuple[int, ...] = (3,)) -> tuple[np.ndarray, np.ndarray]:
    """Evidence and prior, (*shape, k) each."""
    k = draw(st.integers(2, 6))
    evidence = draw(arrays(float, (*shape, k), elements=st.floats(0, 1e3)))
    share = draw(arrays(float, (*shape, k), elements=st.floats(1e-3, 1)))
    return evidence, share / share.sum(-1, keepdims=True)


Drawn = tuple[np.ndarray, np.ndarray]


@settings(max_examples=40)
@given(opinions(), st.data())
def test_masses_moments_and_restrictions_hold_in_numpy_and_torch(
    drawn: Drawn, data: st.DataObject
) -> None:
    evidence, prior = drawn
    opinion = Opinion.of_evidence(evidence, prior)
    assert_allclose(opinion.belief.sum(-1) + opinion.uncertainty, 1)
    assert_allclose(opinion.probability.sum(-1), 1)
    assert ((opinion.entropy >= 0) & (opinion.entropy <= 1)).all()
    dirichlet = Dirichlet(torch.from_numpy(evidence + evidence.shape[-1] * prior))
    assert_allclose(opinion.probability, dirichlet.mean, rtol=1e-9)
    assert_allclose(opinion.variance, dirichlet.variance, rtol=1e-9, atol=1e-15)
    again = Opinion.of_probability(opinion.probability, opinion.uncertainty, prior)
    assert_allclose(again.belief, opinion.belief, atol=1e-12)
    candidates = data.draw(arrays(bool, evidence.shape))
    inside = opinion.within(candidates)  # moves all belief outside to the uncertainty
    assert (inside.belief == np.where(candidates, opinion.belief, 0)).all()
    assert (inside.prior == opinion.prior).all()
    lost = np.where(candidates, 0, opinion.belief).sum(-1)
    assert_allclose(inside.uncertainty, opinion.uncertainty + lost, atol=1e-12)
    tensors = Opinion.of_evidence(*map(torch.from_numpy, drawn))
    for name in ("belief", "uncertainty", "probability", "entropy", "variance", "guess"):
        assert_allclose(getattr(tensors, name).numpy(), getattr(opinion, name), atol=1e-12)
    assert (tensors.predicted().numpy() == opinion.predicted()).all()
    classes = [kind.predicted(np.random.default_rng(0)) for kind in (opinion, tensors)]
    assert (classes[0] == classes[1].numpy()).all()
    assert_allclose(tensors.numpy().probability, opinion.probability, atol=1e-12)


@settings(max_examples=40)
@given(opinions(shape=(4, 3)))
def test_mean_over_members_is_linear_for_a_common_prior(drawn: Drawn) -> None:
    evidence, prior = drawn
    members = Opinion.of_evidence(evidence, np.broadcast_to(prior[:1], prior.shape))
    assert_allclose(members.mean(0).probability, members.probability.mean(0))
    assert_allclose(members.mean(0).uncertainty, members.uncertainty.mean(0))


def test_probability_alone_commits_all_mass_also_of_whole_numbers() -> None:
    p = np.array([[0.5, 0.25, 0.25, 0], [1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])
    opinion = Opinion.of_probability(p)
    assert (opinion.belief == p).all()
    assert (opinion.uncertainty == 0).all()
    assert (opinion.variance == 0).all()
    assert_allclose(opinion.entropy, [0.75, 0, 1], atol=1e-15)
    for make in (Opinion.of_evidence, Opinion.of_probability):
        for kind in (np.array, torch.tensor):
            whole, other = make(kind([[0, 1, 0]])), make(kind([[0.0, 1, 0]]))
            assert_allclose(whole.probability, other.probability)
            assert_allclose(whole.prior, 1 / 3, rtol=1e-6)


TIED = np.array([[1.0, 3, 3, 0], [2, 1, 0, 0], [0, 0, 0, 0], [5, 0, 5, 5]])


def test_the_first_of_tied_and_nearly_tied_classes_is_predicted() -> None:
    opinion = Opinion.of_evidence(TIED)
    assert opinion.predicted().tolist() == [1, 0, 0, 0]
    assert opinion.guess.tolist() == [True, False, True, True]
    gaps = np.array([0.9e-5, 1.1e-5])  # on either side of the tolerance
    p = np.stack([np.full(2, 0.5), 0.5 - 0.5 * gaps, 0.5 * gaps], -1)
    assert Opinion.of_probability(p).guess.tolist() == [True, False]


def test_each_tied_class_is_drawn_about_equally_often() -> None:
    n, generator = 20_000, np.random.default_rng(0)
    for evidence in TIED:
        opinion = Opinion.of_evidence(np.tile(evidence, (n, 1)))
        counts = np.bincount(opinion.predicted(generator), minlength=4)
        tied = evidence == evidence.max()
        expected = n / tied.sum()
        assert (counts[~tied] == 0).all()
        assert (abs(counts[tied] - expected) <= 4 * np.sqrt(expected)).all()


def test_a_drawn_class_does_not_depend_on_which_other_rows_are_tied() -> None:
    evidence = np.zeros((50, 4))
    settled = evidence.copy()
    settled[::2, 3] = 9
    opinions = map(Opinion.of_evidence, (evidence, settled))
    before, after = (opinion.predicted(np.random.default_rng(1)) for opinion in opinions)
    assert (before[1::2] == after[1::2]).all()
    assert (after[::2] == 3).all()


GOOD = {
    "belief": np.full((4, 2), 0.25),
    "prior": np.full((4, 2), 0.5),
    "uncertainty": np.full(4, 0.5),
}


@pytest.mark.parametrize(
    ("part", "value", "rule"),
    [
        ("belief", [-0.5, 1.0], "belief and uncertainty must not be negative"),
        ("belief", [0.25, 0.75], "must sum to 1"),
        ("belief", [np.nan, 0.25], "belief"),
        ("uncertainty", 1.5, "uncertainty must"),
        ("uncertainty", -0.5, "uncertainty must"),
        ("prior", [0.5, 0.6], "prior must .* sum to 1"),
        ("prior", [1.5, -0.5], "prior"),
    ],
)
def test_broken_invariants_name_their_rows(part: str, value: object, rule: str) -> None:
    parts = {name: array.copy() for name, array in GOOD.items()}
    parts[part][[1, 3]] = value
    with pytest.raises(InputError, match=rule) as caught:
        Opinion(**parts)
    assert "rows 1, 3." in str(caught.value)


def test_shapes_kinds_and_names_must_fit_and_parts_keep_them() -> None:
    for parts in ({"prior": np.full((4, 3), 1 / 3)}, {"uncertainty": np.full((4, 2), 0.5)}):
        with pytest.raises(InputError, match="shape"):
            Opinion(**(GOOD | parts))
    assert Opinion.of_evidence([[4, 1, 1]]).uncertainty == pytest.approx([1 / 3])
    with pytest.raises(InputError, match="numpy arrays"):
        Opinion([[1.0, 0.0]], [[0.5, 0.5]], [0.0])
    with pytest.raises(InputError, match=r"classes of shape \(k,\)"):
        Opinion(**GOOD, classes=np.arange(3))
    opinion = Opinion(**GOOD, classes=np.array(["a", "b"]))
    assert (len(opinion), len(opinion[1:3])) == (4, 2)
    assert opinion[0].probability.tolist() == [0.5, 0.5]
    assert opinion[1:3].classes.tolist() == ["a", "b"]


def test_a_notebook_shows_ten_rows_with_escaped_names() -> None:
    names = np.array(["<script>alert(1)</script>", "b & c"])
    evidence = np.tile([[3.0, 0], [0, 3]], (6, 1))
    page = Opinion(**vars(Opinion.of_evidence(evidence)) | {"classes": names})._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "b &amp; c" in page
    assert page.count("<tr>") == 10  # and a head
    assert "<table" not in Opinion.of_evidence(np.zeros((2, 3, 4)))._repr_html_()  # of many runs


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a14_ensemble_mean_in_any_order_of_members(order: list[int]) -> None:
    evidence = np.array([[[4.0, 1, 1]], [[0, 0, 0]], [[0, 6, 0]]])[order]
    mean = Opinion.of_evidence(evidence).mean(0)
    assert_allclose(mean.probability, [[0.333333, 0.444444, 0.222222]], atol=5e-7)
    assert_allclose(mean.entropy, [0.965634], atol=5e-7)
    assert_allclose(mean.uncertainty, [0.555556], atol=5e-7)
