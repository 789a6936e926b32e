"""The paper's propositions and worked numbers, shown of the code that trains."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize
from scipy.special import digamma
from torch import Tensor, nn
from torch.distributions import Dirichlet, kl_divergence

from robustpll.engine.data import Batch, Rows, State, Task
from robustpll.engine.random import Draws
from robustpll.methods import DeepMethod, Proden, RobustPll, RobustPllEns
from robustpll.methods.evidential import evidential_error, flat_kl, surprise
from robustpll.opinion import Opinion

E = (3.0, 0, 2, 5)  # the evidence of A6 to A10


class Given(nn.Module):
    """A network whose outputs are its parameters."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = nn.Parameter(torch.as_tensor(outputs, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs


def masks(k: int, *sets: set[int]) -> Tensor:
    return torch.tensor([[[j in one for j in range(k)] for one in sets]])


def batch_of(candidates: Tensor, label_weights: Any = None) -> Batch:
    """Rows (M, b) without features; the prior is uniform on the candidates."""
    models, b, _ = candidates.shape
    prior = candidates.double() / candidates.sum(-1, keepdim=True)
    rows = Rows.of(torch.zeros(b, 1).double(), torch.arange(b).expand(models, -1))
    task = Task.of(rows, candidates, tuple(range(models)), prior)
    state = State.of(task, uncertainty=1.0)
    if label_weights is not None:
        state.rows["label_weights"] = torch.tensor(label_weights, dtype=torch.float64)
    return state.batch(task, rows.everything, 0, Draws.of(task.seeds, like=task.prior))


def step(
    method: DeepMethod, outputs: Any, batch: Batch, progress: float = 0.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """One step of the real method on given outputs (M, b, k)."""
    spread_method = method.spread(batch.x.shape[0], like=batch.prior)
    return spread_method.step(Given(outputs), batch, torch.tensor(progress, dtype=torch.float64))


def written(outputs: Any, candidates: Tensor, **kwargs: Any) -> Opinion:
    """Label weights and uncertainty that RobustPll writes, as numpy opinion (b, ...)."""
    batch = batch_of(candidates)
    _, state = step(RobustPll(**kwargs), outputs, batch)
    weights, doubt = state["label_weights"][0], state["uncertainty"][0, :, 0]
    return Opinion.of_probability(weights, doubt, batch.prior[0]).numpy()


@st.composite
def problems(draw: st.DrawFn, elements: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Evidence (2, k) of two rows and the candidates (k,) that both have."""
    k = draw(st.integers(2, 6))
    elements = st.floats(0, 50) if elements is None else elements
    candidates = draw(arrays(bool, k))
    assume(candidates.any())
    return draw(arrays(float, (2, k), elements=elements)), candidates


def weights_of(evidence: np.ndarray, candidates: np.ndarray, **kwargs: Any) -> np.ndarray:
    mask = torch.from_numpy(np.broadcast_to(candidates, evidence.shape).copy())[None]
    return written(evidence[None], mask, **kwargs).probability


@pytest.mark.parametrize(
    ("e", "weights", "error", "variance"),
    [
        ((4, 1, 1), (1, 0, 0), 0.296296, 0.059259),  # A1
        ((7, 4, 4), (0.5, 0.5, 0), 0.129630, 0.034113),  # A2
        ((0, 0, 0), (0.5, 0.5, 0), 0.166667, 0.166667),  # A3
        (E, (0.5, 0, 0.5, 0), 0.316327, 0.045578),  # A7
        ((4, 1, 1, 0), (1, 0, 0, 0), 0.34, 0.06),  # A8
    ],
)
def test_a1_to_a3_squared_error(e: Any, weights: Any, error: float, variance: float) -> None:
    batch = batch_of(torch.ones(1, 1, len(e), dtype=torch.bool), [[weights]])
    loss, _ = step(RobustPll(), [[e]], batch)
    assert loss.item() == pytest.approx(error + variance, abs=1e-6)
    opinion = Opinion.of_evidence(np.array(e, dtype=float))
    assert opinion.variance.sum() == pytest.approx(variance, abs=5e-7)


@pytest.mark.parametrize(("e", "s", "alpha"), [((4, 1, 1), 0, (1, 2, 2)), (E, 3, (4, 1, 3, 1))])
def test_a5_candidates_are_spared_from_the_divergence(e: Any, s: int, alpha: Any) -> None:
    batch = batch_of(masks(len(e), {s}))
    with_kl, without = (
        step(replace(RobustPll.paper(), kl_ceiling=ceiling), [[e]], batch, progress=1)[0]
        for ceiling in (1.0, 0.0)
    )
    meant = kl_divergence(*(Dirichlet(torch.tensor(a).double()) for a in (alpha, (1,) * len(e))))
    assert (with_kl - without).item() == pytest.approx(meant.item(), abs=1e-12)


@pytest.mark.parametrize(
    ("s", "belief", "doubt", "weights"),
    [
        ({0, 2}, (3 / 14, 0, 2 / 14, 0), 9 / 14, (7.5 / 14, 0, 6.5 / 14, 0)),
        ({0, 3}, (3 / 14, 0, 0, 5 / 14), 6 / 14, (6 / 14, 0, 0, 8 / 14)),
        ({1}, (0, 0, 0, 0), 1, (0, 1, 0, 0)),
        ({0, 1, 2, 3}, (3 / 14, 0, 2 / 14, 5 / 14), 4 / 14, (4 / 14, 1 / 14, 3 / 14, 6 / 14)),
    ],
)
def test_a6_label_weights_and_opinion(s: set[int], belief: Any, doubt: float, weights: Any) -> None:
    opinion = written([[E]], masks(4, s))
    assert_allclose(opinion.probability[0], weights, atol=1e-12)
    assert_allclose(opinion.uncertainty[0], doubt, atol=1e-12)
    assert_allclose(opinion.belief[0], belief, atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_a6_without_evidence_the_starting_weights_stay(loss: str) -> None:
    opinion = written([[(0.0, -1, 0, -5)]], masks(4, {0, 2}), loss=loss)
    assert_allclose(opinion.probability, [(0.5, 0, 0.5, 0)])
    assert opinion.uncertainty == 1


def test_a7_a8_objective_gradient_and_batch_mean() -> None:
    batch = batch_of(masks(4, {0, 2}, {0}))
    spread_method = replace(RobustPll.paper(), kl_ceiling=0.25).spread(1, like=batch.prior)
    net = Given([[E, (4, 1, 1, -2)]])  # relu makes a 0 of -2
    loss, _ = spread_method.step(net, batch, torch.tensor(1.0))
    loss.sum().backward()
    assert_allclose(loss[0, 0].item(), 0.825088, atol=5e-7)
    assert_allclose(loss.mean().item(), 0.666177, atol=5e-7)
    # relu has no slope at the 0 of class 1: its entry -0.146867 shows from just above
    assert_allclose(net.outputs.grad[0, 0], (-0.042834, 0, -0.052358, 0.127405), atol=5e-7)


def test_a7_gradient_with_respect_to_evidence() -> None:
    e = torch.tensor(E, dtype=torch.float64, requires_grad=True)
    off = torch.tensor((0, 1, 0, 1))
    weights = torch.tensor((0.5, 0, 0.5, 0))
    (evidential_error(e, weights) + 0.25 * flat_kl(e * off)).backward()
    assert_allclose(e.grad, (-0.042834, -0.146867, -0.052358, 0.127405), atol=5e-7)


@pytest.mark.parametrize(
    ("e", "psi", "weights", "loss"),
    [
        ((4, 1, 1), (0.634524, 1.717857, 1.717857), (0.5, 0.5, 0), 1.176190),
        (E, (1.346800, 3.180134, 1.680134, 0.896800), (0.5, 0, 0.5, 0), 1.513467),
    ],
)
def test_a10_cross_entropy(e: Any, psi: Any, weights: Any, loss: float) -> None:
    assert_allclose(surprise(torch.tensor(e).double()), psi, atol=5e-7)
    batch = batch_of(torch.ones(1, 1, len(e), dtype=torch.bool), [[weights]])
    expected, _ = step(RobustPll(loss="cross-entropy"), [[e]], batch)
    assert expected.item() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize(
    ("e", "s", "weights"),
    [
        ((4.0, 1, 1), {0, 1}, (1, 0, 0)),
        ((4.0, 1, 1), {1, 2}, (0, 0.5, 0.5)),
        (E, {0, 2}, (1, 0, 0, 0)),
        (E, {0, 2, 3}, (0, 0, 0, 1)),
    ],
)
def test_a10_cross_entropy_update(e: Any, s: set[int], weights: Any) -> None:
    batch = batch_of(masks(len(e), s))
    _, state = step(RobustPll(loss="cross-entropy"), [[e]], batch)
    assert state["label_weights"].tolist() == [[list(weights)]]


def coefficients(method: RobustPll, k: int, progress: float) -> Tensor:
    """How much each model's loss counts the divergence, (M,)."""
    models = method.members
    outputs = torch.zeros(models, 1, k).double()
    outputs[..., -1] = 2.0
    batch = batch_of(torch.arange(k).lt(k - 1).expand(models, 1, k))
    loss, _ = step(method, outputs, batch, progress)
    plain, _ = step(RobustPll(members=models, kl_ceiling=0.0), outputs, batch, progress)
    flat = torch.ones(k).double()
    divergence = kl_divergence(Dirichlet(flat + outputs[0, 0]), Dirichlet(flat))
    return ((loss - plain) / divergence)[:, 0].detach()


@pytest.mark.parametrize(
    ("anneal", "expected"),
    [
        ("from-zero", (0, 0.01, 0.49, 0.5, 0.99, 1, 1)),
        ("from-one", (0.01, 0.02, 0.5, 0.51, 1, 1, 1)),
    ],
)
def test_a12_annealing(anneal: Any, expected: tuple[float, ...]) -> None:
    for epoch, coefficient in zip((0, 1, 49, 50, 99, 100, 199), expected, strict=True):
        weight = coefficients(RobustPll(anneal=anneal), 10, epoch / 200)
        assert weight.item() == pytest.approx(coefficient, abs=1e-12)


@pytest.mark.parametrize(("k", "factor"), [(2, 1), (10, 1), (99, 1), (100, 0.0005), (171, 0.0005)])
def test_a12_many_classes_shrink_the_divergence(k: int, factor: float) -> None:
    published = RobustPll.paper()
    assert coefficients(published, k, 0.9).item() == pytest.approx(factor, rel=1e-9)
    whole = replace(published, kl_scale_large_k=1.0)
    assert coefficients(whole, k, 0.9).item() == pytest.approx(1)
    assert coefficients(RobustPll(), k, 0.9).item() == pytest.approx(10 / max(k, 10))


def test_a12_each_member_has_its_ceiling() -> None:
    assert_allclose(coefficients(RobustPllEns.paper(), 10, 50 / 200), (0.25, 0.5, 1, 2, 4))


def test_proden_keeps_its_weights_where_all_candidates_underflow() -> None:
    batch = batch_of(masks(3, {1, 2}), [[(0, 0.9, 0.1)]])
    loss, state = step(Proden(), [[(2000.0, 0, 0)]], batch)
    assert loss.item() == pytest.approx(-np.log(1e-10))
    assert state["label_weights"].tolist() == [[[0, 0.9, 0.1]]]


@pytest.mark.parametrize("e", [(4, 1, 1), (0, 0, 0), E, (0.3, 20, 0.1, 0, 7)])
def test_loss_is_the_expected_squared_error_under_the_dirichlet(e: Any) -> None:
    evidence = np.array(e, dtype=float)
    weights = np.linspace(1, 2, len(e)) / np.linspace(1, 2, len(e)).sum()
    drawn = np.random.default_rng(0).dirichlet(evidence + 1, size=200_000)
    errors = np.square(weights - drawn).sum(-1)
    expected = evidential_error(torch.from_numpy(evidence), torch.from_numpy(weights)).item()
    assert abs(expected - errors.mean()) <= 4 * errors.std() / np.sqrt(len(errors))


@given(arrays(float, st.integers(2, 8), elements=st.floats(0, 100)))
def test_divergence_from_the_flat_dirichlet(evidence: np.ndarray) -> None:
    a = torch.from_numpy(evidence + 1)
    meant = kl_divergence(Dirichlet(a), Dirichlet(torch.ones_like(a)))
    assert flat_kl(a - 1).item() == pytest.approx(meant.item(), abs=1e-9, rel=1e-9)


@pytest.mark.parametrize("evidence", ["relu", "softplus", "exp"])
@given(outputs=arrays(float, (2, 4), elements=st.floats(-30, 30)))
def test_any_evidence_gives_weights_on_the_candidates(evidence: Any, outputs: np.ndarray) -> None:
    candidates = np.array([True, False, True, True])
    mask = torch.from_numpy(np.tile(candidates, (1, 2, 1)))
    opinion = written(outputs[None], mask, evidence=evidence)
    assert_allclose(opinion.probability.sum(-1), 1)
    assert (opinion.probability[:, ~candidates] == 0).all()
    higher = np.diff(outputs[:, candidates], axis=-1) > 0
    assert (np.diff(opinion.probability[:, candidates], axis=-1)[higher] >= -1e-12).all()


@pytest.mark.parametrize(
    ("evidence", "e"),
    [("relu", (2, 0)), ("softplus", (2.126928, 0.313262)), ("exp", (7.389056, 0.367879))],
)
def test_evidence_of_two_outputs(evidence: Any, e: Any) -> None:
    opinion = RobustPll(evidence=evidence).opinion(torch.tensor([[[2.0, -1]]]).double())
    assert_allclose(opinion.belief[0, 0] / opinion.uncertainty[0, 0] * 2, e, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_update_before_or_after_the_step_differs_in_whose_outputs_it_reads(loss: Any) -> None:
    batch = batch_of(masks(4, {0, 2}))
    old, new = [[E]], [[(1.0, 0, 4, 0)]]
    before, after = (
        RobustPll(loss=loss, update=update).spread(1, like=batch.prior)
        for update in ("before", "after")
    )
    progress = torch.tensor(0.3)
    of_old, of_new = (before.step(Given(outputs), batch, progress)[1] for outputs in (old, new))
    assert after.second_pass
    assert not before.second_pass
    assert after.step(Given(old), batch, progress)[1] == {}
    second = after.after_step(Given(new), batch)
    assert second.keys() == of_new.keys()
    assert all(torch.equal(value, of_new[name]) for name, value in second.items())
    assert not torch.equal(second["label_weights"], of_old["label_weights"])
    assert not any(value.requires_grad for value in (*second.values(), *of_old.values()))


def test_votes_share_the_uncertainty() -> None:
    mask = masks(4, {0, 2})
    batch = batch_of(mask)
    batch.prior[:] = torch.tensor((0.75, 0, 0.25, 0))
    _, state = step(RobustPll(), [[E]], batch)
    expected = np.array((3, 0, 2, 0)) / 14 + 9 / 14 * np.array((0.75, 0, 0.25, 0))
    assert_allclose(state["label_weights"][0, 0], expected)


@given(problems())
def test_proposition_1_error_below_variance_iff_weight_within_a_deviation(
    problem: tuple[np.ndarray, np.ndarray],
) -> None:
    evidence, candidates = problem
    opinion, weights = Opinion.of_evidence(evidence), weights_of(evidence, candidates)
    distance = abs(weights - opinion.probability)
    deviation = Dirichlet(torch.from_numpy(evidence + 1)).stddev.numpy()
    clear = abs(distance - deviation) > 1e-9
    below = np.square(distance) < opinion.variance
    assert (below[clear] == (distance < deviation)[clear]).all()


@settings(max_examples=25)
@given(problems())
def test_proposition_2_weights_minimise_the_loss(problem: tuple[np.ndarray, np.ndarray]) -> None:
    evidence, candidates = problem
    mean = evidence[0] + 1
    mean /= mean.sum()

    def loss(weights: np.ndarray) -> float:
        return float(np.square(weights - mean).sum())

    minimum = minimize(
        loss,
        candidates / candidates.sum(),
        jac=lambda weights: 2 * (weights - mean),
        method="SLSQP",
        bounds=[(0, float(allowed)) for allowed in candidates],
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14},
    )
    weights = weights_of(evidence, candidates)[0]
    assert minimum.success
    assert loss(weights) <= minimum.fun + 1e-10
    assert_allclose(weights, minimum.x, atol=1e-5)


@given(problems())
def test_propositions_3_and_4_the_optimal_weights_are_an_opinion_and_move_less_than_outputs(
    problem: tuple[np.ndarray, np.ndarray],
) -> None:
    evidence, s = problem
    total = (evidence + 1).sum(-1, keepdims=True)
    p = (evidence + 1) / total
    optimal = np.where(s, p + (1 - p[:, s].sum(-1, keepdims=True)) / s.sum(), 0)
    belief = np.where(s, evidence / total, 0)
    opinion = Opinion(belief, np.tile(s / s.sum(), (2, 1)), 1 - belief.sum(-1))
    weights = weights_of(evidence, s)
    assert_allclose(opinion.probability, optimal, atol=1e-12)
    assert_allclose(weights, optimal, atol=1e-12)
    assert np.square(np.diff(weights, axis=0)).sum() <= np.square(np.diff(p, axis=0)).sum() + 1e-12


@settings(max_examples=40)
@given(problems(elements=st.integers(0, 4).map(float)))
def test_proposition_5_cross_entropy_weights_solve_the_linear_program(
    problem: tuple[np.ndarray, np.ndarray],
) -> None:
    evidence, candidates = problem
    psi = digamma((evidence[0] + 1).sum()) - digamma(evidence[0] + 1)
    program = linprog(
        psi, A_eq=np.ones((1, len(psi))), b_eq=[1], bounds=[(0, float(s)) for s in candidates]
    )
    batch = batch_of(torch.from_numpy(candidates)[None, None])
    _, state = step(RobustPll(loss="cross-entropy"), evidence[None, :1], batch)
    weights = state["label_weights"][0, 0].numpy()
    assert weights @ psi == pytest.approx(program.fun, abs=1e-9)
    ties = candidates & np.isclose(psi, psi[candidates].min())
    assert_allclose(weights, ties / ties.sum())
