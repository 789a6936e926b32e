"""What each network method's paper adds: worked numbers, and behaviour only that method has."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import PLLClassifier
from robustpll.engine.data import Rows, State, Task
from robustpll.engine.random import Draws
from robustpll.engine.train import Training, train
from robustpll.methods import Cavl, CroSel, DeepMethod, Pop, Proden, Rc, Valen
from robustpll.methods.base import covering, normalize, weighted_ce
from robustpll.methods.cavl import picked
from robustpll.methods.crosel import swapped
from robustpll.methods.evidential import ProdenEdl
from robustpll.methods.proden import ProdenAdvEns, ProdenDropout, ProdenL2
from robustpll.methods.valen import concentration, revised

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
S = torch.tensor([False, True, True, False])


def small_task(n: int = 120, k: int = 4, runs: int = 1, seed: int = 0) -> Task:
    """Clusters with one or two candidates, in float64."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % k
    centres = 4 * torch.randn(k, 6, generator=generator, dtype=torch.float64)
    X = centres[labels] + torch.randn(n, 6, generator=generator, dtype=torch.float64)
    candidates = one_hot(labels, k).bool()
    candidates |= torch.rand(n, k, generator=generator) < 0.3
    rows = Rows.of(X, torch.arange(n).expand(runs, -1))
    return Task.of(rows, candidates.expand(runs, -1, -1), tuple(range(runs)))


def begun(method: DeepMethod, task: Task) -> Training:
    """A training before its first step."""
    task = task.repeated(method.members)
    draws = Draws.of(task.seeds, like=task.prior)
    spread_method = method.spread(task.models, like=task.prior)
    net = spread_method.build(task.rows.shape, task.k, draws)
    zeros = task.prior.new_zeros
    optimizer = method.optimizer(net.parameters())
    state, total = spread_method.begin(task), zeros(task.models)
    return Training(spread_method, net, task, state, optimizer, draws, zeros(()), total)


def test_the_worked_updates_and_losses() -> None:
    proden = normalize(S * P, P)
    np.testing.assert_allclose(proden, (0, 2 / 3, 1 / 3, 0), atol=1e-12)
    weights = torch.tensor([0, 0.5, 0.5, 0], dtype=torch.float64)
    assert weighted_ce(P.log(), weights).item() == pytest.approx(1.550546, abs=1e-6)
    assert covering(P.log(), S, stable=False).item() == pytest.approx(2.744418, abs=1e-6)
    assert covering(P.log(), S).item() == pytest.approx(0.798508, abs=1e-6)
    logits = torch.tensor([2, -1, 0.5, -0.2], dtype=torch.float64)
    target = picked(logits, torch.tensor([False, True, True, True]))
    assert target.tolist() == [0, 0, 1, 0]
    assert weighted_ce(logits, target).item() == pytest.approx(1.824776, abs=1e-6)
    assert swapped(torch.arange(6)).tolist() == [1, 0, 3, 2, 5, 4]


@pytest.mark.parametrize(
    ("k", "dtype", "slope"),
    [
        (10, torch.float64, -3.333333),
        (23, torch.float64, -3.328680),
        (23, torch.float32, -3.328679),
        (171, torch.float32, 0.0),
    ],
)
def test_the_published_constant_of_cc_kills_the_gradient(
    k: int, dtype: torch.dtype, slope: float
) -> None:
    """d loss / d s at s = 0.3, where s is the probability of all candidates."""
    s = torch.tensor(0.3, dtype=dtype, requires_grad=True)
    rest = (1 - s) / (k - 1)
    logits = torch.stack([s, *[rest] * (k - 1)]).log()
    covering(logits, torch.arange(k) == 0, stable=False).backward()
    assert s.grad is not None
    assert s.grad.item() == pytest.approx(slope, abs=2e-6)


def test_cavl_begins_with_all_candidates_and_then_keeps_one_each() -> None:
    task = small_task()
    training = begun(Cavl(), task)
    training.step(task.rows.everything, training.method.stage(0))
    weights = training.state.rows["label_weights"]
    assert (weights.amax(-1) == 1).all()
    assert (weights.sum(-1) == 1).all()
    assert (weights[~task.candidates] == 0).all()


def test_rc_as_published_lets_rows_count_by_their_candidates_mass() -> None:
    training = begun(Rc.paper(), small_task())
    training.step(training.task.rows.everything, 0)
    sums = training.state.rows["label_weights"].sum(-1)
    assert (sums < 1).any()
    training.method.finish(training.task, training.state, lambda: torch.empty(0))
    sums = training.state.rows["label_weights"].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_weight_decay_shrinks_the_networks() -> None:
    decoupled = ProdenL2(epochs=10, weight_decay=3.0)
    methods = Proden(epochs=10), decoupled, replace(decoupled, decay="l2")
    free, *shrunk = (
        sum(p.square().sum().item() for p in train(method, small_task()).net.parameters())
        for method in methods
    )
    assert max(shrunk) < 0.98 * free


def test_proden_edl_learns_the_labels_that_proden_named() -> None:
    task = small_task()
    fitted = ProdenEdl(epochs=20).fit(task)
    named = Proden(epochs=20).fit(task).opinion.predicted()
    assert torch.equal(fitted.label_weights.argmax(-1), named)
    assert set(fitted.label_weights.unique().tolist()) == {0, 1}
    assert (fitted.opinion.uncertainty > 0).all()


def test_attacked_copies_are_part_of_the_loss() -> None:
    """With no distance at all the copy is the row, and the loss twice Proden's."""
    task = small_task()
    plain = begun(Proden(members=5), task)

    def loss(method: DeepMethod) -> Tensor:
        other = begun(method, task)
        other.net.load_state_dict(plain.net.state_dict())
        batch = other.state.batch(other.task, other.task.rows.everything, 0, other.draws)
        return other.method.step(other.net, batch, other.progress)[0]

    once, twice, further = map(
        loss, (Proden(members=5), ProdenAdvEns(epsilon=0.0), ProdenAdvEns(epsilon=0.01))
    )
    torch.testing.assert_close(twice, 2 * once)
    assert (further.mean(-1) > twice.mean(-1)).all()


def test_dropout_passes_are_averaged_and_repeat_themselves() -> None:
    task = small_task(n=40)
    method = ProdenDropout(epochs=5, rate=0.3, passes=200)
    fitted = train(method, task)
    probability = fitted.predict(task.rows).probability
    assert torch.equal(probability, fitted.predict(task.rows).probability)
    off = fitted.net(task.rows.x(task.rows.everything)).softmax(-1)
    assert not torch.allclose(probability, off, atol=1e-4)
    other = replace(fitted, seeds=(1,)).predict(task.rows).probability  # other units dropped
    assert not torch.equal(probability, other)
    torch.testing.assert_close(probability, other, atol=0.1, rtol=0)


def purified(method: Pop, mean: Tensor, epochs: int = 1) -> State:
    """The state after so many purifications of rows whose weights are always `mean` (n, k)."""
    n = len(mean)
    rows = Rows.of(torch.ones(n, 2, dtype=torch.float64), torch.arange(n)[None])
    task = Task.of(rows, (mean > 0)[None], (0,))
    training = begun(method, task)
    training.state.rows["label_weights"].copy_(mean)
    training.state.memory["window"][:] = mean
    for event in range(epochs):
        training.method.end_epoch(training, 20 + 5 * event)
    return training.state


def test_pop_rules_out_what_is_small_beside_the_largest() -> None:
    mean = torch.tensor([[0.9995, 0.0005, 0], [0.6, 0.39, 0.01]], dtype=torch.float64)
    state = purified(Pop(), mean)
    assert state.rows["kept"][0].tolist() == [[1, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(state.rows["label_weights"][0, 0], (1, 0, 0))
    assert state.memory["threshold"].item() == pytest.approx(0.002)
    assert purified(Pop(), mean, epochs=60).memory["threshold"].item() == pytest.approx(0.04)


def test_pop_as_published_raises_its_threshold_by_a_thousandth_of_itself() -> None:
    """And only if fewer than one entry in 10,000 was ruled out."""
    rest = torch.full((4000, 3), 1 / 3, dtype=torch.float64)
    assert purified(Pop.paper(), rest).memory["threshold"].item() == pytest.approx(0.001001)
    rest[:4] = torch.tensor([0.9999, 0.0001, 0], dtype=torch.float64)
    assert purified(Pop.paper(), rest).memory["threshold"].item() == pytest.approx(0.001)


@pytest.mark.parametrize("persistent", [True, False])
def test_what_pop_rules_out_stays_so_unless_as_published(persistent: bool) -> None:
    task = small_task()
    training = begun(Pop(persistent=persistent), task)
    kept = training.state.rows["kept"]
    several = (task.candidates.sum(-1) > 1)[0]
    first = task.candidates[0].long().argmax(-1)
    kept[0, several, first[several]] = 0
    training.step(task.rows.everything, 0)
    weights = training.state.rows["label_weights"][0, several, first[several]]
    assert bool((weights == 0).all()) is persistent


def test_crosel_selects_rows_whose_views_agree_on_a_likely_candidate() -> None:
    sure, unsure = [0.95, 0.03, 0.02], [0.6, 0.3, 0.1]
    # then: not likely enough, once another class, no candidate
    rows = [[sure] * 3, [unsure] * 3, [sure[::-1], sure, sure], [sure] * 3]
    views = torch.tensor(rows, dtype=torch.float64).permute(1, 0, 2)[:, None].repeat(1, 2, 1, 1)
    candidates = torch.tensor([[1, 1, 0]] * 3 + [[0, 1, 1]]).bool().expand(2, 4, 3)
    selected = CroSel().spread(2, like=views)._selected(views, candidates)
    assert selected.tolist() == [[True, False, False, False]] * 2


@pytest.mark.parametrize("true_cross", [True, False])
def test_crosel_stores_views_under_the_right_name_unless_as_published(true_cross: bool) -> None:
    """After an epoch each network's last view is its own, or the other's."""
    task = small_task()
    training = begun(CroSel(true_cross=true_cross), task)
    view = training.state.rows["view"]
    view[0], view[1] = 0.25, 0.75
    training.method.end_epoch(training, epoch=10)
    last = training.state.memory["views"][-1]
    assert (last[0] == (0.25 if true_cross else 0.75)).all()
    training.method.end_epoch(training, epoch=5)  # in the warm-up always its own
    assert (training.state.memory["views"][-1][0] == 0.25).all()


def test_crosel_learns_only_from_selected_rows_if_there_are_enough() -> None:
    task = small_task(n=100)
    training = begun(CroSel(), task)
    memory = training.state.memory
    memory["views"][:] = 0.25
    memory["views"][:, 1, :40] = torch.tensor([0.97, 0.01, 0.01, 0.01], dtype=torch.float64)
    training.state.rows["view"].copy_(memory["views"][-1])
    training.method.end_epoch(training, epoch=10)
    picked_rows = task.candidates[0, :40, 0].nonzero()[:, 0]
    assert memory["in use"][:, 0].tolist() == [0, 1]
    assert memory["count"][1].item() == len(picked_rows)
    assert set(memory["order"][1, : len(picked_rows)].tolist()) == set(picked_rows.tolist())
    unsure = 2 * (1 - len(picked_rows) / 100)  # the first network learns from the second's rows
    assert memory["unsure"][:, 0].tolist() == pytest.approx([unsure, 2.0])


def test_valens_graph_in_a_batch_is_that_of_all_rows() -> None:
    """Against the dense matrix, whose rows are divided by their sums."""
    task = small_task(n=50)
    for graph in ("rows", "columns"):
        training = begun(Valen(graph=graph), task)  # type: ignore[arg-type]
        training.method.end_epoch(training, epoch=9)
        listed = training.state.memory["neighbours"][0]
        dense = torch.eye(50, dtype=torch.float64)
        dense.scatter_(1, listed, 1.0)
        dense = dense if graph == "rows" else dense.T.clone()
        dense = dense / dense.sum(-1, keepdim=True)
        indices = torch.randperm(50, generator=torch.Generator().manual_seed(1))[None, :20]
        batch = training.state.batch(training.task, indices, 1, training.draws)
        graph_of_batch = training.method._adjacency(batch)[0]  # type: ignore[attr-defined]
        torch.testing.assert_close(graph_of_batch, dense[indices[0]][:, indices[0]])


def test_valens_formulas() -> None:
    weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    predicted = torch.tensor([0.2, 0.0, 0.8], dtype=torch.float64)
    np.testing.assert_allclose(revised(predicted, weights), (1, 5e-10, 0), rtol=1e-6)
    np.testing.assert_allclose(concentration(predicted, weights > 0), (1.01, 0.01, 0.01))
    nothing = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    np.testing.assert_allclose(concentration(nothing, weights > 0), (0.51, 0.51, 0.01))


def test_samples_of_a_dirichlet_have_its_mean_and_gradient() -> None:
    """Against torch.distributions, whose pathwise derivative this is."""
    concentrations = torch.tensor([[0.5, 1.0, 3.0]], dtype=torch.float64).expand(20_000, 3)
    draws = Draws.of((0,), like=concentrations)
    wanted = concentrations[None].clone().requires_grad_()
    drawn = draws.dirichlet(wanted)
    np.testing.assert_allclose(drawn.mean((0, 1)).detach(), np.array([0.5, 1, 3]) / 4.5, atol=0.01)
    drawn[..., 0].sum().backward()
    assert wanted.grad is not None
    mean_slope = (4.5 - 0.5) / 4.5**2  # d/da_0 of a_0 / sum a
    assert wanted.grad[..., 0].mean().item() == pytest.approx(mean_slope, abs=0.01)


def test_bf16_reaches_every_part_of_valen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustpll.engine.train.has_bf16", lambda device: True)  # or emulated
    X = np.random.default_rng(0).random((100, 8))
    y = [{"a", "b"} if i % 3 else {"a"} for i in range(100)]
    exact, rough = (
        PLLClassifier(Valen(epochs=2, precision=precision), random_state=0, device="cpu")
        .fit(X, y)
        .fitted_.net.named_parameters()
        for precision in ("float32", "bf16")
    )
    for (name, mine), (_, other) in zip(exact, rough, strict=True):
        assert "weight" not in name or not torch.equal(mine, other)


def test_rows_without_weight_do_not_teach_crosel() -> None:
    task = small_task()
    silent = torch.arange(len(task)) % 2 == 0
    weight = torch.where(silent, 0.0, 2.0).double()[None]
    other = task.candidates.clone()
    other[0, silent] = other[0, silent].roll(1, -1)
    first, second = (
        train(CroSel(epochs=5), replace(task.with_candidates(candidates), weight=weight))
        for candidates in (task.candidates, other)
    )
    for mine, among in zip(first.net.parameters(), second.net.parameters(), strict=True):
        torch.testing.assert_close(mine, among)


def test_valens_encoder_may_be_as_sure_as_it_likes() -> None:
    training = begun(Valen(), small_task())
    for name, parameter in training.net.named_parameters():
        if name.startswith("encoder.output"):
            parameter.data.mul_(1e5)
    training.step(training.task.rows.everything, 1)
    assert all(parameter.isfinite().all() for parameter in training.net.parameters())
