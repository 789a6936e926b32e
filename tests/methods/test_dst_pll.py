"""Masses of sets are exact, and DstPll and its auto-encoder do what their papers say."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from robustpll import PLLClassifier
from robustpll.engine.data import Rows, State, Task
from robustpll.engine.history import EpochState, reporting
from robustpll.engine.random import Draws
from robustpll.methods import dst_pll
from robustpll.methods.classical import Classical
from robustpll.methods.dst_pll import AutoEncoder, DstPll, masses_of, opinion_of, table_of

Set = frozenset[int]


def slow_masses(said: list[Set], base: Set) -> dict[Set, Fraction]:
    """By the definition: one mass function after the other, all pairs of sets, then Yager."""
    masses = {base: Fraction(1)}
    for named in said:
        met = named & base
        if not met or met == base:
            continue
        combined: dict[Set, Fraction] = {}
        for known, mass in masses.items():
            for other in (met, base):
                combined[known & other] = combined.get(known & other, Fraction(0)) + mass / 2
        masses = combined
    masses[base] += masses.pop(frozenset(), Fraction(0))
    return masses


def slow_probability(masses: dict[Set, Fraction], k: int) -> list[float]:
    """Proportional to the masses of single classes, else uniform on the leading set."""
    belief = [masses.get(frozenset([c]), Fraction(0)) for c in range(k)]
    if sum(belief) > 0:
        return [float(mass / sum(belief)) for mass in belief]
    ranked = sorted(masses, key=lambda met: (-masses[met], len(met), number(met)))
    return [float(c in ranked[0]) / len(ranked[0]) for c in range(k)]


def number(classes: Set) -> int:
    return sum(1 << c for c in classes)


def matrix(sets: list[Set], k: int) -> Tensor:
    return torch.tensor([[c in classes for c in range(k)] for classes in sets])


@st.composite
def hearings(draw: st.DrawFn) -> tuple[int, list[Set], Set]:
    """Number of classes, what up to ten witnesses say, and the base; sparse or dense sets."""
    k = draw(st.integers(3, 16))
    some = st.frozensets(st.integers(0, k - 1), min_size=1)
    few = st.frozensets(st.integers(0, k - 1), min_size=1, max_size=3)
    everything = st.just(frozenset(range(k)))
    said = draw(st.lists(st.one_of(some, few, everything), min_size=1, max_size=10))
    return k, said, draw(st.one_of(some, everything))


@given(hearings())
def test_masses_and_opinions_are_those_of_the_definition(case: Any) -> None:
    k, said, base = case
    masses = slow_masses(said, base)
    listed = masses_of([number(classes) for classes in said], number(base))
    assert listed == {number(classes): mass for classes, mass in masses.items()}
    if len(base) == k <= 12:
        table = table_of(matrix(said, k)[None])[:, 0]
        assert {i: mass for i, mass in enumerate(table.tolist()) if mass} == listed
    opinion = opinion_of(matrix(said, k), torch.arange(len(said))[None], matrix([base], k))[0]
    belief = [float(masses.get(frozenset([c]), 0)) for c in range(k)]
    assert opinion.belief.tolist() == belief
    assert opinion.uncertainty.item() == 1 - sum(belief)
    expected = torch.tensor(slow_probability(masses, k), dtype=torch.float64)
    torch.testing.assert_close(opinion.probability, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("k", [9, 90])
def test_masses_of_the_most_witnesses_do_not_round(k: int) -> None:
    """Of 52 one names class 1 and all others class 0; half of the groups have this one."""
    candidates = torch.eye(k, dtype=torch.bool)[:2]
    indices = torch.tensor([[0] * 51 + [1]])
    opinion = opinion_of(candidates, indices, torch.ones(1, k, dtype=torch.bool))
    assert opinion.belief[0, 0].item() == (1 - 0.5**51) / 2
    assert opinion.belief[0, 1].item() == 0.5**52
    assert opinion.uncertainty.item() == 0.5


@pytest.mark.parametrize("k", [3, 12, 40])
@pytest.mark.parametrize("everything", [True, False])
def test_lists_and_tables_of_sets_give_the_same(
    k: int, everything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(100, k, generator=generator) < 3 / k
    candidates[torch.arange(100), torch.randint(k, (100,), generator=generator)] = True
    witnesses = torch.randint(100, (100, 20 if k == 3 else 5), generator=generator)
    base = torch.ones_like(candidates) if everything else candidates
    mixed = opinion_of(candidates, witnesses, base)
    for largest in (0, 3, 16):
        monkeypatch.setattr(dst_pll, "LARGEST_TABLE", largest)
        opinion = opinion_of(candidates, witnesses, base)
        assert torch.equal(opinion.belief, mixed.belief)
        assert torch.equal(opinion.probability, mixed.probability)


@pytest.fixture
def pictures(digits: Any) -> np.ndarray:
    return np.asarray(digits[0]).reshape(-1, 8, 8)


def test_training_rows_are_no_witnesses_of_their_own() -> None:
    """The nearest neighbour alone says what a row is."""
    X = np.array([[0.0], [0.1], [1.0], [1.2]])
    y = [{"a", "b"}, {"a", "c"}, {"b", "c"}, {"a", "b"}]
    model = PLLClassifier(DstPll(neighbours=1)).fit(X, y)
    assert model.labels_.tolist() == ["a", "a", "b", "b"]
    np.testing.assert_array_equal(model.opinion_.uncertainty, [0.5] * 4)
    shared = model.predict_opinion([[0.0]])  # of all classes: {a, b} and all have the same mass
    np.testing.assert_array_equal(shared.probability, [[0.5, 0.5, 0]])
    np.testing.assert_array_equal(shared.uncertainty, [1])


@pytest.mark.parametrize("encoder", ["auto", "never", "always"])
@pytest.mark.parametrize("shape", [(8, 8), (64,)])
def test_the_layout_is_that_of_what_is_learned(
    encoder: Any, shape: tuple[int, ...], pictures: np.ndarray, candidates: np.ndarray
) -> None:
    method = DstPll(encoder=encoder, encoder_epochs=1)
    model = PLLClassifier(method).fit(pictures[:30].reshape(30, *shape), candidates[:30])
    assert isinstance(model.fitted_, Classical)
    layout, known = method.layout(shape), {"n": 30, "d": 64, "k": 10}
    assert layout.keys() == model.fitted_.learned[0].keys()
    for name, tensor in model.fitted_.learned[0].items():
        dtype, sizes = layout[name]
        assert (tensor.dtype, *tensor.shape) == (dtype, *(known.get(s, s) for s in sizes))


def test_predictions_that_are_wrong_are_less_certain(digits: Any, candidates: np.ndarray) -> None:
    model = PLLClassifier(DstPll()).fit(digits[0], candidates)
    assert model.history_["loss"].size == 0
    unsure, wrong = (
        model.predict_opinion(digits[1]).uncertainty,
        model.predict(digits[1]) != digits[3],
    )
    assert unsure[wrong].mean() > 1.5 * unsure[~wrong].mean()


def test_codes_have_a_number_of_neighbours_of_their_own(
    pictures: np.ndarray, candidates: np.ndarray
) -> None:
    def found(neighbours: int, code_neighbours: int) -> np.ndarray:
        method = DstPll(neighbours, code_neighbours, encoder_epochs=2)
        model = PLLClassifier(method).fit(pictures[:100], candidates[:100])
        return np.stack([model.label_weights_, model.predict_proba(pictures[100:200])])

    few = found(3, 5)
    np.testing.assert_array_equal(few, found(5, 5))
    assert (few != found(3, 3)).any((1, 2)).all()


def test_encoders_train_at_once_and_equal_rows_share_one(
    pictures: np.ndarray, candidates: np.ndarray
) -> None:
    index = torch.stack([torch.arange(100), torch.arange(100, 200), torch.arange(100)])
    task = Task.of(
        Rows.of(torch.from_numpy(pictures), index), torch.from_numpy(candidates)[index], (0, 1, 2)
    )
    epochs: list[EpochState] = []
    with reporting(SimpleNamespace(on_epoch_end=epochs.append)):
        DstPll(encoder_epochs=2).fit(task)
    assert [len(state.loss) for state in epochs] == [2, 2]  # models in each epoch


def test_the_loss_of_an_auto_encoder_is_cross_entropy_plus_the_mean_divergence() -> None:
    rows = Rows.of(
        torch.rand(5, 7, generator=torch.Generator().manual_seed(0)), torch.arange(5)[None]
    )
    task = Task.of(rows, torch.ones(1, 5, 1, dtype=torch.bool), (0,))
    method = AutoEncoder()
    net = method.build((7,), 1, Draws.of([0], like=task.prior))
    draws, again = (Draws.of([1], like=task.prior) for _ in range(2))
    drawn = method.draw(5, (7,), draws)
    batch = State.of(task).batch(task, rows.everything, 0, draws, drawn)
    loss, written = method.step(net, batch, torch.tensor(0.0))

    _, mean, log_variance = net(batch.x, torch.zeros(1, 5, 48))
    own, standard = Normal(mean, log_variance.exp().sqrt()), Normal(0.0, 1.0)
    p = net.decoder(own.mean + own.stddev * again.normal(5, 48)).sigmoid()
    likelihood = (batch.x * p.log() + (1 - batch.x) * (1 - p).log()).sum(-1)
    torch.testing.assert_close(loss, kl_divergence(own, standard).mean(-1) - likelihood)
    assert loss.shape == (1, 5)
    assert not written
