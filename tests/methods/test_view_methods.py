"""Methods that compare views: worked examples by hand, and what their parts promise."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from robustpll.engine.augment import Augmentation
from robustpll.engine.data import Rows, State, Task
from robustpll.engine.random import Draws
from robustpll.engine.train import train
from robustpll.methods import (
    Alim,
    Crdpll,
    Dirk,
    Papi,
    Pico,
    Proden,
    RobustPllViews,
    dirk,
    papi,
    pico,
)
from robustpll.methods.dirk import rectified
from robustpll.methods.views import (
    TwoSpeeds,
    add_queue,
    draw_mixing,
    kl,
    mixed,
    moved_prototypes,
    outside,
    push,
    restricted,
)

KINDS = (Crdpll, RobustPllViews, Pico, Alim, Papi, Dirk)


def of(*rows: Any) -> Tensor:
    """Values of one model, (1, ...), in float64."""
    return torch.tensor([rows], dtype=torch.float64)


# Two rows of three classes; all examples share them.
S = of([1, 1, 0], [0, 1, 1]).bool()
UNIFORM = of([0.5, 0.5, 0], [0, 0.5, 0.5])
P = of([0.6, 0.3, 0.1], [0.2, 0.5, 0.3])
QUERY, KEY = of([1, 0], [0.6, 0.8]), of([0.8, 0.6], [0, 1])
PROTOTYPES = of([1, 0], [0.8, 0.6], [0, 1])
SWAPPED = torch.tensor([[1, 0]])


def check(values: Tensor, *expected: Any) -> None:
    """To the printed digits."""
    torch.testing.assert_close(values, of(*expected), rtol=0, atol=6e-7)


class Given(TwoSpeeds):
    """A network, and a slow copy, that give these outputs one after the other."""

    def __init__(self, *outputs: Tensor) -> None:
        nn.Module.__init__(self)
        self.outputs = list(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs.pop(0)

    def slowly(self, x: Tensor, keep: float) -> Tensor:
        return self.outputs.pop(0)


def step(
    method: Any, net: nn.Module, progress: float, *, prior: Tensor = UNIFORM, **batch: Any
) -> tuple[Tensor, Any]:
    """Loss and row state of a step on the two rows, whose pictures do not matter."""
    x = torch.zeros(1, 2, 4, dtype=torch.float64)
    views = dict.fromkeys(("weak", "strong", "strong2"), x)
    values = {"candidates": S, "label_weights": UNIFORM, "prior": prior, "memory": {}}
    made: Any = SimpleNamespace(**{"x": x, "views": views, "drawn": None} | values | batch)
    at = torch.tensor(progress, dtype=torch.float64)
    loss, written = method.spread(1, like=UNIFORM).step(net, made, at)
    return loss, written


def outputs(p: Tensor, embedding: Tensor) -> Tensor:
    return torch.cat([p.log(), embedding], -1)


def queues(**more: Tensor) -> dict[str, Tensor]:
    return {
        "prototypes": PROTOTYPES.clone(),
        "queue_embedding": of([1, 0], [0, 1]),
        "queue_label": of([0], [1]),
        "queue_filled": of([1], [1]),
        "queue_next": torch.zeros(1, dtype=torch.long),
    } | more


# The worked examples


def test_crdpll_as_by_hand() -> None:
    strong = of([0.5, 0.4, 0.1], [0.1, 0.6, 0.3]), of([0.7, 0.2, 0.1], [0.2, 0.4, 0.4])
    check(outside(P.log(), S), 0.105361, 0.223144)
    check(kl(UNIFORM, P.log()), 0.164252, 0.255413)
    check(kl(UNIFORM, strong[0].log()), 0.111572, 0.164252)
    check(kl(UNIFORM, strong[1].log()), 0.289909, 0.223144)
    net = Given(torch.cat([P, *strong], 1).log())
    loss, written = step(Crdpll(epochs=200), net, 50 / 200)
    check(loss, 0.388227, 0.544548)
    check(written["label_weights"], [0.673271, 0.326729, 0], [0, 0.599006, 0.400994])


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constants of the example; those of the method are in its file."""
    monkeypatch.setattr("robustpll.methods.views.TEMPERATURE", 0.5)
    monkeypatch.setattr(pico, "PROTOTYPE_SHARE", 0.9)
    monkeypatch.setattr(Pico, "kept_weights", lambda *_: torch.tensor(0.95).double())


@pytest.mark.usefixtures("by_hand")
def test_pico_as_by_hand() -> None:
    scores = (QUERY @ PROTOTYPES.mT).softmax(-1)
    check(scores, [0.457329, 0.374429, 0.168242], [0.273618, 0.392185, 0.334198])
    memory, net = queues(), Given(outputs(P, QUERY), outputs(P, KEY))
    loss, written = step(Pico(epochs=800), net, 0.5, memory=memory)
    weights = written["label_weights"]
    check(weights, [0.525, 0.475, 0], [0, 0.525, 0.475])
    check(-(weights * P.log()).sum(-1), 0.840071, 0.935789)
    check(2 * (loss + (weights * P.log()).sum(-1)), 1.071427, 1.551336)
    check(loss, 1.375784, 1.711457)
    check(memory["prototypes"], [1, 0], [0.782823, 0.622244], [0, 1])
    assert torch.equal(memory["queue_embedding"], KEY)  # of this step, for later ones
    assert memory["queue_label"].flatten().tolist() == [0, 1]
    net = Given(outputs(P, QUERY), outputs(P, KEY))
    loss, written = step(Pico(epochs=800), net, 0.0, memory=queues())
    assert torch.equal(written["label_weights"], UNIFORM)
    check(2 * (loss + (UNIFORM * P.log()).sum(-1)), 0.990924, 0.982198)
    check(loss, 1.352861, 1.439659)


def test_papi_as_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Papi, "kept_weights", lambda *_: torch.tensor(0.9).double())
    check(restricted(P.log(), S), [0.666667, 0.333333, 0], [0, 0.625, 0.375])
    blends = of([0.8, 0.6], [0.6, 0.8]), of([1, 0], [0, 1])
    one, two = ((blend @ PROTOTYPES.mT / papi.TEMPERATURE).softmax(-1) for blend in blends)
    check(one, [0.288921, 0.562742, 0.148337], [0.159544, 0.529706, 0.310750])
    check(two, [0.645540, 0.331431, 0.023029], [0.027457, 0.202881, 0.769662])
    embeddings = torch.cat([QUERY, KEY, *blends], 1)
    memory = {"prototypes": PROTOTYPES.clone()}
    net = Given(outputs(P.repeat(1, 4, 1), embeddings))
    loss, written = step(Papi(epochs=500), net, 0.01, memory=memory, drawn=(SWAPPED, of(0.7)))
    weights = written["label_weights"]
    check(weights, [0.516667, 0.483333, 0], [0, 0.5125, 0.4875])
    supervised = -(weights * P.log()).sum(-1)
    check(supervised, 0.845847, 0.942175)
    check(2 * (loss - supervised), 0.878941, 1.068047)
    check(loss, 1.285317, 1.476198)
    plain, labels = torch.cat([QUERY, KEY], 1), torch.tensor([[0, 1, 0, 1]])
    expected = moved_prototypes(PROTOTYPES, plain, labels, 0.9 - 0.4 * 4 / 500)  # in epoch 5
    torch.testing.assert_close(memory["prototypes"], expected)


@pytest.mark.usefixtures("by_hand")
def test_dirk_as_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, student = of([0.5, 0.1, 0.4], [0.3, 0.1, 0.6]), of([0.6, 0.2, 0.2], [0.2, 0.3, 0.5])
    weights = [0.757576, 0.151515, 0.090909], [0.090909, 0.129870, 0.779221]
    slow = outputs(torch.cat([teacher, P], 1), torch.cat([QUERY, KEY], 1))
    net = Given(outputs(student, QUERY), slow)
    loss, written = step(Dirk(rectify="published"), net, 0.5)
    check(written["label_weights"], *weights)
    check(loss, 0.777156, 0.842787)

    positives = []

    def watched(*arguments: Any) -> Tensor:
        positive = arguments[3].clone()  # (1, 2, 6)
        positive[0, [0, 1], [0, 1]] = 0  # a row is not compared with itself
        positives.append(positive / positive.sum(-1, keepdim=True))
        return plain(*arguments)

    plain = dirk.contrast
    monkeypatch.setattr(dirk, "contrast", watched)
    memory = queues(queue_label=of([0.8, 0.2, 0], [0, 0.3, 0.7]), queue_candidate=S.double())
    net = Given(outputs(student, QUERY), slow)
    total, _ = step(Dirk(rectify="published", contrast=1.0), net, 0.5, memory=memory)
    check(positives[0][:, 0, [2, 4]], 0.504985, 0.495015)
    check(positives[0][:, 1, [3, 5]], 0.521842, 0.478158)
    check(total - loss, 1.073421, 1.551336)
    check(total, 1.850577, 2.394123)


def test_rectified_labels_as_by_hand() -> None:
    full = of(0.2, 0.3, 0.5)
    torch.testing.assert_close(rectified(full.log(), torch.ones(1, 3).bool()), full)
    sure = rectified(of(0.98, 0.015, 0.005).log(), of(1, 0, 0).bool())
    check(sure, 0.433526, 0.424855, 0.141618)


@pytest.mark.parametrize("other", [5.0, 17.0, 40.0, 200.0])
def test_rectified_labels_of_a_teacher_who_is_surely_wrong_sum_to_one(other: float) -> None:
    r = rectified(of(0.0, -1.0, other).float(), of(1, 1, 0).bool())
    assert r.sum() == pytest.approx(1)
    assert r[0, 0] / r[0, 1] == pytest.approx(math.e, rel=1e-5)


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.integers(1, 14))
def test_a_candidate_beats_other_classes_by_the_teachers_share(u: list[float], sets: int) -> None:
    """The smallest candidate, divided by the largest other class, is 1 / the candidates' share."""
    p = of(*u) / sum(u)
    s = torch.tensor([[bool(sets >> j & 1) for j in range(4)]])
    r = rectified(p.log(), s)
    assert r.sum() == pytest.approx(1)
    assert r[s].min() / r[~s].max() == pytest.approx(1 / p[s].sum())
    for part in (s, ~s):  # ratios within each part stay
        torch.testing.assert_close(r[part] / r[part].sum(), p[part] / p[part].sum())


def test_alim_as_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    s = of([0.2, 0.1, 0.7], [0.1, 0.6, 0.3])
    batch: Any = SimpleNamespace(candidates=S, memory={"factor": of([0.2])})
    check(Alim().margins(s, batch)["margin"], [0.285714], [6.0])
    scale = Alim(target="scale")
    target = scale.target_of(s * scale.factors(batch))
    check(target, [0.454545, 0.227273, 0.318182], [0.021739, 0.652174, 0.326087])
    assert Alim().target_of(s * scale.factors(batch)).argmax(-1).tolist() == [[0, 1]]
    batch.memory["factor"] = of([0.4])
    target = scale.target_of(s * scale.factors(batch))
    check(target, [0.344828, 0.172414, 0.482759], [0.042553, 0.638298, 0.319149])
    assert Alim().target_of(s * scale.factors(batch)).argmax(-1).tolist() == [[2, 1]]

    # a step whose scores are s, since the prototypes are the axes
    monkeypatch.setattr(Pico, "kept_weights", lambda *_: torch.tensor(0.9).double())
    own = outputs(s, s.log() * Alim.temperature)
    net = Given(own, own, outputs(of([0.3, 0.4, 0.3], [0.2, 0.5, 0.3]), s))
    axes, wide = torch.eye(3, dtype=torch.float64)[None], torch.zeros(1, 2, 3).double()
    memory = queues(prototypes=axes, queue_embedding=wide, factor=of([0.4]))
    method = Alim(target="scale", contrast=0.0)
    loss, written = step(method, net, 0.5, memory=memory, drawn=(SWAPPED, of(0.7)))
    weights = written["label_weights"]
    check(weights, [0.484483, 0.467241, 0.048276], [0.004255, 0.513830, 0.481915])
    supervised = -(weights * s.log()).sum(-1)
    check(supervised, 1.872827, 0.852488)
    blend = mixed(weights, SWAPPED, of(0.7))
    check(blend, [0.340415, 0.481218, 0.178368], [0.148324, 0.499853, 0.351823])
    check(loss - supervised, 1.065535, 1.008775)


@pytest.mark.parametrize(
    ("margins", "missing", "factor"),
    [([0.285714, 6.0], 0.5, 1.0), ([6, 1.2, 0.5, 0.286], 0.3, 0.5), ([0.1, 0.2], 0.0, 0.0)],
)
def test_the_factor_of_alim_is_a_quantile_of_margins(
    margins: list[float], missing: float, factor: float
) -> None:
    rows = {"margin": torch.tensor(margins)[None, :, None]}
    state = State(rows, {"factor": torch.zeros(1, 1, 1)})
    training: Any = SimpleNamespace(state=state, task=margins)
    method = Alim(epochs=100, missing=missing, start=0.1)
    method.end_epoch(training, 8)
    assert state.memory["factor"].item() == 0  # too early
    method.end_epoch(training, 9)
    assert state.memory["factor"].item() == pytest.approx(factor)


@pytest.mark.parametrize(
    ("method", "epoch", "share"),
    [
        (Pico(epochs=800), 1, 0.95),
        (Pico(epochs=800), 401, 0.875),
        (Pico(epochs=400), 1, 0.95**2),
        (Pico(epochs=10), 9, 0.5),
        (Papi(epochs=500), 0, 0.99),
        (Papi(epochs=500), 1, 0.95),
        (Alim(epochs=1000), 0, 0.99),
        (Alim(epochs=1000), 1, 0.95),
        (Alim(epochs=500), 0, 0.99**2),
    ],
)
def test_label_weights_move_as_published_and_faster_in_short_trainings(
    method: Any, epoch: int, share: float
) -> None:
    kept = method.kept_weights(torch.tensor(epoch / method.epochs, dtype=torch.float64))
    assert kept.item() == pytest.approx(share)


# What the parts promise


def test_prototypes_move_as_row_by_row() -> None:
    random = torch.Generator().manual_seed(0)
    prototypes, rows = (
        torch.randn(2, 4, 5, generator=random),
        torch.randn(2, 9, 5, generator=random),
    )
    labels = torch.randint(3, (2, 9), generator=random)  # none has the last class
    moved = prototypes.clone()
    for m in range(2):
        for row, label in zip(rows[m], labels[m], strict=True):
            moved[m, label] = 0.8 * moved[m, label] + 0.2 * row
    moved = moved / moved.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(moved_prototypes(prototypes, rows, labels, 0.8), moved)


def test_a_queue_keeps_the_last_rows() -> None:
    task: Any = SimpleNamespace(models=2, prior=torch.zeros(2, 1, 3))
    state = State({})
    add_queue(state, task, 5, label=1)
    memory, pushed = state.memory, 0
    for size in (3, 3, 4):
        rows = torch.arange(pushed, pushed + size).expand(2, -1)[..., None]
        push(memory, label=rows.float())
        pushed += size
        assert memory["queue_filled"].sum().item() == 2 * min(pushed, 5)
    assert sorted(memory["queue_label"][0].flatten().tolist()) == [5, 6, 7, 8, 9]
    push(memory, label=torch.full((2, 7, 1), 4.0))  # more than there is room for
    assert (memory["queue_label"] == 4).all()


def test_mixing_draws_partners_and_shares_of_a_beta_distribution() -> None:
    draws = Draws.of(range(4000), like=torch.empty(0, dtype=torch.float64))
    for concentration in (4, 8):
        partner, share = draw_mixing(6, draws, concentration)
        assert (partner.sort(-1).values == torch.arange(6)).all()
        assert share.shape == (4000, 1)
        assert share.mean().item() == pytest.approx(0.5, abs=0.01)
        variance = 1 / (4 * (2 * concentration + 1))
        assert share.var().item() == pytest.approx(variance, rel=0.1)
    values = torch.rand(2, 3, 4, 5)
    partner, share = torch.tensor([[2, 0, 1], [0, 1, 2]]), torch.tensor([[0.25], [1.0]])
    both = mixed(values, partner, share)
    torch.testing.assert_close(both[0, 1], 0.25 * values[0, 1] + 0.75 * values[0, 0])
    torch.testing.assert_close(both[1], values[1])


def test_the_slow_copy_follows_and_only_the_fast_network_predicts() -> None:
    net = TwoSpeeds(nn.Linear(2, 2))
    start = net.slow.weight.clone()
    with torch.no_grad():
        net.fast.weight += 1
    net.slowly(torch.zeros(1, 2), 0.9)
    torch.testing.assert_close(net.slow.weight, start + 0.1)
    assert torch.equal(net(torch.ones(1, 2)), net.fast(torch.ones(1, 2)))
    assert not any(p.requires_grad for p in net.slow.parameters())


def test_robust_pll_views_predicts_evidence_and_heeds_the_prior() -> None:
    method = RobustPllViews()
    logits = torch.tensor([[[0.0, 2.0, -3.0]]])
    opinion = method.opinion(logits)
    torch.testing.assert_close(method.scores(logits).softmax(-1), opinion.probability)
    assert opinion.uncertainty > 0
    both = torch.cat([P, P], 1).log()
    weights = [
        step(method, Given(both.clone()), 0.5, prior=prior)[1]["label_weights"]
        for prior in (UNIFORM, of([0.8, 0.2, 0], [0, 0.2, 0.8]))
    ]
    expected = weights[0] * of([0.8, 0.2, 0], [0, 0.2, 0.8])
    torch.testing.assert_close(weights[1], expected / expected.sum(-1, keepdim=True))


# On pictures


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_pictures_is_the_same_alone_and_in_a_bundle(kind: Any, task_of: Any) -> None:
    method = kind(epochs=2, batch_size=50, network="small")
    alone = train(method, task_of(7, rows=120, shape=(8, 8)))
    bundle = train(method, task_of(5, 7, rows=120, shape=(8, 8)))
    assert torch.equal(alone.label_weights[0], bundle.label_weights[1])
    for one, both in zip(
        alone.net.state_dict().values(), bundle.net.state_dict().values(), strict=True
    ):
        assert torch.equal(one[0], both[1])


@pytest.mark.parametrize("method", KINDS)
def test_a_convolutional_network_learns_from_views(
    method: Any, digits: Any, candidates: Any
) -> None:
    """In float32, for which a CPU has fast convolutions."""
    pool, sets = torch.from_numpy(digits[0]).float().view(-1, 8, 8), torch.from_numpy(candidates)
    task = Task.of(Rows.of(pool, torch.arange(300)[None]), sets[None, :300], (0,))
    fitted = train(method(epochs=12, batch_size=50, network="convnet"), task)
    assert fitted.history.loss.isfinite().all()
    predicted = fitted.predict(task.rows).predicted()
    covered = task.candidates.gather(-1, predicted[..., None]).double().mean()
    assert covered > 0.6  # by chance: 0.37


def test_pictures_and_mirror_images_are_predicted_alike_where_training_mirrors_them() -> None:
    pool = torch.rand(40, 3 * 16 * 16, generator=torch.Generator().manual_seed(0))
    pictures = pool.view(40, 3, 16, 16)
    sets = torch.eye(4, dtype=torch.bool).repeat(10, 1)[None]
    task = Task.of(Rows.of(pictures, torch.arange(40)[None]), sets, (0,))
    both = (Rows.of(x, torch.arange(40)[None]) for x in (pictures, pictures.flip(-1)))
    plain, mirrored = both
    settings: Any = {"epochs": 2, "batch_size": 20, "network": "convnet"}
    for augment, alike in (
        ("auto", True),
        (Augmentation(flip=False), False),
        (Augmentation(flip=True), True),
        (None, False),
    ):
        fitted = train(RobustPllViews(augment=augment, **settings), task)
        ps = [fitted.predict(rows).probability for rows in (plain, mirrored)]
        assert torch.allclose(*ps, rtol=0, atol=1e-5) is alike, augment


def test_sgd_trains_with_one_cycle_and_differs_from_adam(task_of: Any) -> None:
    settings: Any = {"epochs": 8, "batch_size": 50, "network": "small", "schedule": "one-cycle"}
    task = task_of(0, rows=300)
    by_sgd = train(Proden(**settings, momentum=0.9, learning_rate=0.1), task)
    by_adam = train(Proden(**settings, learning_rate=0.003), task)
    for fitted in (by_sgd, by_adam):
        assert fitted.history.loss[-1] < 0.8 * fitted.history.loss[0]
    assert not torch.equal(by_sgd.label_weights, by_adam.label_weights)


def test_an_adversary_makes_a_third_view(task_of: Any) -> None:
    settings: Any = {"epochs": 2, "batch_size": 50, "network": "small"}
    task = task_of(0, rows=120, shape=(8, 8))
    moved, plain = (train(RobustPllViews(**settings, adversary=a), task) for a in (0.05, 0.0))
    assert moved.history.loss.isfinite().all()
    assert not torch.equal(moved.label_weights, plain.label_weights)
