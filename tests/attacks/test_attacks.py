"""Attacks stay within their bounds, treat each model alone, and do harm."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustpll.attacks.base import Attack, evidential_error_to
from robustpll.attacks.pgd import PGD, AutoPGD
from robustpll.attacks.square import Square
from robustpll.engine.data import Rows, Task
from robustpll.engine.layers import BatchNorm, folded
from robustpll.engine.networks import build_network, mlp
from robustpll.engine.predict import Attacker, Networks, averaged, fused, logits_of
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods import METHODS, Proden, ProdenDropout, RobustPll
from robustpll.methods.base import DeepMethod
from robustpll.methods.evidential import evidential_error

ATTACKS = [
    PGD(0.1),
    PGD(0.3, labels="clean"),
    PGD(0.25, steps=3, random_start=False),
    PGD(0.7, clip=None),
    PGD(0.2, clip=(0.3, 0.6)),
    PGD(0.2, labels="clean", loss="margin", keep="worst", restarts=3),
    AutoPGD(0.3, labels="clean", steps=12, restarts=2),
    AutoPGD(0.2, labels="clean", steps=12, loss="cross-entropy", clip=None),
    Square(0.2, labels="clean", queries=20),
]
SEEDS = (3, 4, 5, 6)


def draws_of(*seeds: int, like: Tensor) -> Draws:
    return Draws.of(seeds, "attack", like=like)


def bundle(*seeds: int) -> nn.Module:
    like = torch.empty(0, dtype=torch.float64)
    return build_network("mlp", (6,), 4, Draws.of(seeds, "net", like=like)).eval()


def features(models: int = len(SEEDS), rows: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(models, rows, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("start", "labels", "end"),
    [
        ((0.6, 0.553), "current", (0.58, 0.573)),  # not fooled
        ((0.6, 0.535), "current", (0.56, 0.575)),  # fooled
        ((0.6, 0.553), "clean", (0.5, 0.653)),
    ],
)
def test_worked_numbers(start: Any, labels: Any, end: Any) -> None:
    x = torch.tensor([[start]], dtype=torch.float64)
    found = PGD(0.1, labels=labels, random_start=False)(lambda x: x, x, draws_of(0, like=x))
    np.testing.assert_allclose(found[0, 0], end, atol=1e-12)


@pytest.mark.parametrize("labels", ["current", "clean"])
def test_epsilon_zero_changes_nothing_and_clips_nothing(labels: Any) -> None:
    x = 3 * features() - 1
    assert torch.equal(PGD(0.0, labels=labels)(bundle(*SEEDS), x, draws_of(*SEEDS, like=x)), x)


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_attacked_rows_stay_within_epsilon_and_range(attack: Any) -> None:
    low, high = (0.0, 1.0) if attack.clip is None else attack.clip
    x = low + (high - low) * features()
    found = attack(bundle(*SEEDS), x, draws_of(*SEEDS, like=x))
    moved = (found - x).abs().amax()
    assert moved <= attack.epsilon + 1e-12
    assert moved >= attack.epsilon / 2
    if attack.clip is not None:
        assert (found >= low).all()
        assert (found <= high).all()


def test_without_a_range_rows_may_leave_the_unit_cube() -> None:
    x = features()
    found = PGD(0.7, clip=None)(bundle(*SEEDS), x, draws_of(*SEEDS, like=x))
    assert ((found < 0) | (found > 1)).any()


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_bundle_is_attacked_as_each_model_alone(attack: Attack) -> None:
    x = features()
    together = attack(bundle(*SEEDS), x, draws_of(*SEEDS, like=x))
    for m, seed in enumerate(SEEDS):
        alone = attack(bundle(seed), x[m : m + 1], draws_of(seed, like=x))
        torch.testing.assert_close(together[m], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_several_epsilons_at_once_are_each_alone(attack: Attack) -> None:
    x, net = features(), bundle(*SEEDS)
    epsilons = (0.05, 0.0, np.linspace(0, 0.3, 6))
    together = attack.attack_each(epsilons, net, x, draws_of(*SEEDS, like=x))
    for found, epsilon in zip(together.split(x.shape[1], 1), epsilons, strict=True):
        alone = replace(attack, epsilon=epsilon)(net, x, draws_of(*SEEDS, like=x))
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [PGD, Square], ids=lambda make: make.__name__)
def test_several_epsilons_of_pictures_are_each_alone(make: Any) -> None:
    x = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    attack = make(0.1, labels="clean")

    def outputs(x: Tensor) -> Tensor:
        return x.flatten(2).square()[..., :4]

    together = attack.attack_each((0.1, 0.2), outputs, x, draws_of(0, 1, like=x))
    for found, epsilon in zip(together.split(4, 1), (0.1, 0.2), strict=True):
        alone = replace(attack, epsilon=epsilon)(outputs, x, draws_of(0, 1, like=x))
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)


def test_the_row_itself_and_the_network_stay_as_they_were() -> None:
    x, net = features(), bundle(*SEEDS)
    before = x.clone(), [p.clone() for p in net.parameters()]
    PGD(0.3)(net, x, draws_of(*SEEDS, like=x))
    assert torch.equal(x, before[0])
    assert all(torch.equal(*pair) for pair in zip(net.parameters(), before[1], strict=True))
    assert all(p.grad is None for p in net.parameters())


def test_a_fixed_class_loses_ground_in_every_row() -> None:
    x, net = features(), bundle(*SEEDS)
    attack = PGD(0.1, labels="clean", random_start=False, clip=None)
    found = attack(net, x, draws_of(*SEEDS, like=x))
    clean = net(x).softmax(-1)
    top = clean.argmax(-1, keepdim=True)
    assert (net(found).softmax(-1).gather(-1, top) < clean.gather(-1, top)).all()


@pytest.mark.parametrize("network", ["mlp", "wide"])
def test_a_folded_network_is_the_same_function(network: Any) -> None:
    draws = Draws.of(SEEDS, "net", like=torch.empty(0, dtype=torch.float64))
    net = build_network(network, (6,), 4, draws)
    net(5 * features() - 1)  # moves the running statistics
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))
    less = folded(net.eval())
    assert not [part for part in less.modules() if isinstance(part, BatchNorm)]
    torch.testing.assert_close(less(features()), net(features()))


def test_networks_that_cannot_be_folded_stay_as_they_are() -> None:
    draws = Draws.of(SEEDS, "net", like=torch.empty(0, dtype=torch.float64))
    dropping = mlp((6,), 4, draws, dropout=0.1).eval()
    assert len(folded(dropping)) == len(dropping)  # type: ignore[arg-type]
    other = Scaled(2.0)
    assert folded(other) is other


class Watched(nn.Module):
    """A network that remembers what it was shown last."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach()
        return self.net(x)


STRONG = AutoPGD(0.2, labels="clean", steps=5)


@pytest.mark.parametrize("attack", [PGD(0.2), STRONG], ids=["logits", "probabilities"])
@pytest.mark.parametrize("joint", [True, False])
def test_only_a_joint_attack_hands_all_members_the_same_row(attack: Attack, joint: bool) -> None:
    pool = features(1, 12)[0]
    rows = Rows.of(pool, torch.arange(12).view(2, 6)).repeated(2)  # two runs of two members
    net = Watched(bundle(*SEEDS))
    together = 2 if joint else 1
    attacked = Attacker(attack, together, draws_of(*SEEDS[::together], like=pool), None, (0.2,))
    logits = logits_of(Proden(members=2), net, rows, attacked, SEEDS)
    assert logits.shape == (4, 6, 4)
    assert torch.equal(net.seen[0], net.seen[1]) == joint
    assert torch.equal(net.seen[2], net.seen[3]) == joint
    assert not torch.equal(net.seen[0], net.seen[2])


def test_a_joint_attack_follows_the_mean_of_the_logits() -> None:
    pool = features(1, 6)[0]
    rows = Rows.of(pool, torch.arange(6)[None]).repeated(2)
    net = Watched(bundle(3, 4))
    attack = PGD(0.2, random_start=False)
    logits_of(
        Proden(members=2), net, rows, Attacker(attack, 2, draws_of(3, like=pool), None, (0.2,))
    )
    x = rows.x(rows.everything)[:1]
    alone = attack(lambda x: net.net(x.expand(2, -1, -1)).mean(0)[None], x, draws_of(3, like=x))
    torch.testing.assert_close(net.seen[0][:6], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [PGD, AutoPGD, Square], ids=lambda make: make.__name__)
def test_each_feature_has_its_own_bounds_and_some_are_fixed(make: Any) -> None:
    x = 1.2 * features() - 0.1  # some lie outside the range
    epsilon = np.array([0.1, 0.2, 0.0, 0.3, 0.05, 0.4])
    low, high = np.array([0.0, 0.1, 0.0, 0.2, 0.0, 0.0]), np.full(6, 0.9)
    fixed = np.array([False, True, False, False, True, False])
    more = {"queries": 200} if make is Square else {}
    attack = make(epsilon, labels="clean", clip=(low, high), outside="kept", fixed=fixed, **more)
    found = attack(bundle(*SEEDS), x, draws_of(*SEEDS, like=x)).numpy()
    x = x.numpy()
    assert (found >= np.maximum(x - epsilon, np.minimum(low, x))).all()
    assert (found <= np.minimum(x + epsilon, np.maximum(high, x))).all()
    still = fixed | (epsilon == 0)
    np.testing.assert_array_equal(found[..., still], x[..., still])
    assert (found[..., ~still] != x[..., ~still]).mean() > 0.8


def test_rows_outside_the_range_are_moved_into_it_unless_kept() -> None:
    x = torch.tensor([[[1.5, -0.5]]])
    draws = draws_of(0, like=x)
    assert PGD(0.1)(lambda x: x, x, draws).tolist() == [[[1.0, 0.0]]]
    kept = PGD(0.1, outside="kept")(lambda x: x, x, draws)
    assert (kept - x).abs().amax() <= 0.1 + 1e-6


@pytest.mark.parametrize("name", ["epsilon", "clip", "fixed"])
def test_arrays_that_do_not_fit_a_row_are_refused(name: str) -> None:
    wrong: dict[str, Any] = {
        "epsilon": np.full(5, 0.1),
        "clip": (np.zeros((2, 6)), 1.0),
        "fixed": np.ones(7, bool),
    }
    x = features()
    attack = PGD(**({"epsilon": 0.1} | {name: wrong[name]}))
    with pytest.raises(InputError, match=f"{name} has shape"):
        attack(bundle(*SEEDS), x, draws_of(*SEEDS, like=x))


@pytest.mark.parametrize("make", [PGD, AutoPGD], ids=lambda make: make.__name__)
def test_more_restarts_never_spare_a_row(make: Any) -> None:
    x, net = features(), bundle(*SEEDS)
    own = net(x).argmax(-1, keepdim=True)

    def advantage(restarts: int) -> Tensor:
        attack = make(0.2, labels="clean", keep="worst", loss="margin", restarts=restarts)
        logits = net(attack(net, x, draws_of(*SEEDS, like=x)))
        return logits.scatter(-1, own, -torch.inf).amax(-1) - logits.gather(-1, own)[..., 0]

    once, often = advantage(1), advantage(4)
    assert (often >= once - 1e-12).all()
    assert (often > once + 1e-6).any()


def test_the_evidential_loss_is_the_one_that_methods_train_with() -> None:
    evidence = 5 * features(2, 7)
    labels = torch.arange(14).view(2, 7) % 6
    found = evidential_error_to((evidence + 1).log(), labels)
    torch.testing.assert_close(found, evidential_error(evidence, torch.eye(6)[labels].double()))


DEEP = [method for method in METHODS.values() if issubclass(method, DeepMethod)]


@pytest.mark.parametrize("kind", DEEP, ids=lambda kind: kind.name)
def test_softmax_of_the_scores_is_what_a_method_predicts(kind: type[DeepMethod]) -> None:
    outputs = 8 * features(kind().members, 5) - 4
    method = kind().spread(len(outputs), like=outputs)
    scores = method.scores(outputs)
    torch.testing.assert_close(scores.softmax(-1), method.opinion(outputs).probability)


def test_scores_of_members_become_those_of_their_mean_opinion() -> None:
    method = RobustPll(members=2)
    outputs = 8 * features(4, 5) - 2
    mean = fused(method.opinion(outputs), 2)
    scores = averaged(method.scores(outputs).unflatten(0, (-1, 2)))
    torch.testing.assert_close(scores.softmax(-1), mean.probability)
    torch.testing.assert_close(6 / scores.exp().sum(-1), mean.uncertainty)
    labels = torch.zeros(2, 5, dtype=torch.long)
    wanted = torch.eye(6, dtype=torch.float64)[labels]
    error = ((wanted - mean.probability) ** 2 + mean.variance).sum(-1)
    torch.testing.assert_close(evidential_error_to(scores, labels), error)


@pytest.mark.parametrize("gap", [200.0, 400.0])
def test_float64_moves_rows_whose_gradient_is_zero_in_float32(gap: float) -> None:
    x = torch.tensor([[[0.9, 0.1]]])
    scale = gap / 0.8

    def moves(precision: Any) -> bool:
        attack = PGD(0.05, labels="clean", random_start=False, precision=precision)
        attacked = Attacker(attack, 1, draws_of(0, like=x), None, (0.05,))
        outputs = attacked.outputs(Proden(), Scaled(scale), None)
        return not torch.equal(attacked.features(outputs, x, torch.zeros(1, 1).long()), x)

    assert not moves("float32")
    assert moves("float64")


class Scaled(nn.Module):
    """A network whose logits are the features, only larger."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


def test_rounding_to_float32_does_not_leave_the_bounds() -> None:
    x = features(1, 50).float()
    attack = AutoPGD(0.1, labels="clean", steps=5, precision="float64")
    attacked = Attacker(attack, 1, draws_of(3, like=x), None, (0.1,))
    outputs = attacked.outputs(Proden(), bundle(3), (3,))
    found = attacked.features(outputs, x, torch.arange(50)[None])
    assert found.dtype == torch.float32
    bounds = attack.bounds(x)
    assert ((found >= bounds.low) & (found <= bounds.high)).all()


def test_square_asks_for_outputs_alone_and_stays_at_the_ends() -> None:
    x, net = features(), bundle(*SEEDS)
    attack = Square(0.2, labels="clean", queries=100)
    with torch.no_grad():
        found = attack(lambda x: torch.from_numpy(net(x).numpy()), x, draws_of(*SEEDS, like=x))
    bounds = attack.bounds(x)
    assert ((found == bounds.low) | (found == bounds.high)).all()
    before, after = (net(each).softmax(-1) for each in (x, found))
    top = before.argmax(-1, keepdim=True)
    assert (after.gather(-1, top) < before.gather(-1, top)).double().mean() > 0.9


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7)], ids=["grey", "colour"])
def test_square_finds_the_pixel_that_matters(shape: tuple[int, ...]) -> None:
    x = torch.full((2, 4, *shape), 0.5)

    def outputs(x: Tensor) -> Tensor:
        pixel = x.flatten(2)[..., 17]
        return torch.stack([pixel, torch.full_like(pixel, 0.45)], -1)

    attack = Square(0.1, queries=300)
    truth = torch.zeros(2, 4, dtype=torch.long)
    found = attack(outputs, x, draws_of(0, 1, like=x), truth)
    torch.testing.assert_close(found.flatten(2)[..., 17], torch.full((2, 4), 0.4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": -0.1},
        {"epsilon": np.nan},
        {"epsilon": "a"},
        {"steps": 0},
        {"labels": "best"},
        {"clip": (1, 0)},
        {"clip": 3},
        {"clip": (0, "a")},
        {"epsilon": [0.1, -0.1]},
        {"restarts": 0},
        {"loss": "hinge"},
        {"fixed": [0.5]},
        {"joint": 1},
        {"precision": "float16"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        PGD(**({"epsilon": 0.1} | wrong))


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (PGD, {"restarts": 3}, "restarts above 1 need keep"),
        (PGD, {"keep": "worst"}, "labels that stay"),
        (PGD, {"loss": "evidential", "labels": "true"}, "needs target='probabilities'"),
        (AutoPGD, {"keep": "last"}, "returns to its best"),
        (Square, {"labels": "current"}, "labels='clean' or 'true'"),
        (Square, {"part": 0.0}, "part above 0"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    make: Any, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(0.1, **wrong)


@pytest.fixture(scope="module")
def trained(digits: tuple[np.ndarray, ...], candidates: np.ndarray) -> tuple[Networks, Rows]:
    """Two runs, and their test rows."""
    train, test = (torch.from_numpy(part).float() for part in digits[:2])
    rows = Rows.of(train, torch.arange(len(train)).expand(2, -1))
    task = Task.of(rows, torch.from_numpy(candidates).expand(2, -1, -1), seeds=(0, 1))
    return Proden(epochs=10).fit(task), rows.others(test, torch.arange(len(test)).expand(2, -1))


@pytest.mark.parametrize(("labels", "most"), [("current", 0.7), ("clean", 0.3)])
def test_a_trained_network_loses_accuracy(
    digits: tuple[np.ndarray, ...], trained: tuple[Networks, Rows], labels: Any, most: float
) -> None:
    truth = torch.from_numpy(digits[3])
    fitted, rows = trained

    def accuracy(attack: PGD | None) -> Tensor:
        return (fitted.predict(rows, attack).predicted() == truth).double().mean(-1)

    assert (accuracy(None) > 0.9).all()
    assert torch.equal(accuracy(PGD(0.0)), accuracy(None))
    assert (accuracy(PGD(0.3, labels=labels)) < most).all()


def test_an_attack_is_the_same_each_time(trained: tuple[Networks, Rows]) -> None:
    fitted, rows = trained
    once, again = (fitted.predict(rows, PGD(0.2)).probability for _ in range(2))
    assert torch.equal(once, again)


def test_an_attack_on_the_true_class_needs_it_and_leaves_it(
    trained: tuple[Networks, Rows], digits: Any
) -> None:
    fitted, rows = trained
    attack = PGD(0.1, labels="true")
    with pytest.raises(InputError, match="true labels"):
        fitted.predict(rows, attack)
    truth = torch.from_numpy(digits[3]).expand(2, -1)
    wrong = (truth + 1) % 10
    right = (fitted.predict(rows, attack, truth).predicted() == truth).double().mean()
    spared = (fitted.predict(rows, attack, wrong).predicted() == truth).double().mean()
    assert right < 0.7 < spared


def test_stronger_attacks_leave_less(trained: tuple[Networks, Rows], digits: Any) -> None:
    fitted, rows = trained
    truth = torch.from_numpy(digits[3]).expand(2, -1)

    def accuracy(attack: Attack) -> float:
        return float((fitted.predict(rows, attack, truth).predicted() == truth).double().mean())

    plain = PGD(0.1, labels="true")
    restarted = PGD(0.1, labels="true", loss="margin", keep="worst", restarts=3)
    strong = AutoPGD(0.1, steps=15, restarts=2)
    assert accuracy(PGD(0.1)) > accuracy(plain) >= accuracy(restarted) >= accuracy(strong)
    assert accuracy(strong) < accuracy(Square(0.1, queries=200)) < accuracy(PGD(0.01))


def test_attacked_rows_can_be_had_and_fool_as_the_attack_does(
    trained: tuple[Networks, Rows], digits: Any
) -> None:
    fitted, rows = trained
    truth = torch.from_numpy(digits[3]).expand(2, -1)
    attack = AutoPGD(0.1, steps=5)
    moved = fitted.attacked(rows, attack, truth)
    distance = (moved.x(moved.everything) - rows.x(rows.everything)).abs()
    assert distance.amax() <= 0.1 + 1e-6
    torch.testing.assert_close(
        fitted.predict(moved).probability, fitted.predict(rows, attack, truth).probability
    )


@pytest.mark.parametrize("size", [2**25, 2**10], ids=["at once", "in pieces"])
@pytest.mark.parametrize("members", [1, 2])
def test_predictions_at_several_epsilons_are_those_at_each(
    size: int, members: int, digits: Any, candidates: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, rows = fitted_by(Proden(epochs=3, members=members), digits, candidates)
    epsilons = (0.05, 0.1, 0.3)
    alone = [fitted.predict(rows, PGD(epsilon)).probability for epsilon in epsilons]
    for limit in ("NUMBERS_AT_ONCE", "IN_CACHE"):
        monkeypatch.setattr(f"robustpll.engine.predict.{limit}", size)
    together = fitted.predict_at_each(epsilons, rows, PGD(0.1))
    for found, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(found.probability, expected, rtol=0, atol=1e-3)
    joint = PGD(0.1, joint=True)
    moved = fitted.attacked(rows, joint, epsilons=epsilons)
    for start, epsilon in enumerate(epsilons):
        part = moved.x(moved.everything)[:, start * 300 : (start + 1) * 300]
        one = fitted.attacked(rows, replace(joint, epsilon=epsilon))
        torch.testing.assert_close(part, one.x(one.everything), rtol=0, atol=1e-3)


@pytest.mark.gpu
def test_a_gpu_does_as_much_harm_as_a_cpu(digits: Any, candidates: np.ndarray) -> None:
    truth = torch.from_numpy(digits[3][:300])[None]
    fitted, rows = fitted_by(Proden(epochs=10, members=2), digits, candidates)
    there = replace(fitted, net=copy.deepcopy(fitted.net).cuda())
    on_gpu = Rows(*(part.cuda() for part in (rows.pool, rows.at, rows.shift, rows.scale)))
    for attack in (PGD(0.1), AutoPGD(0.1, precision="float64"), Square(0.1, queries=200)):
        after = there.predict_at_each((0.02, 0.1), on_gpu, attack, truth.cuda())
        before = fitted.predict_at_each((0.02, 0.1), rows, attack, truth)
        for gpu, cpu in zip(after, before, strict=True):
            shares = [(each.predicted().cpu() == truth).double().mean() for each in (gpu, cpu)]
            assert abs(shares[0] - shares[1]) < 0.05


def fitted_by(method: DeepMethod, digits: Any, candidates: np.ndarray) -> tuple[Networks, Rows]:
    train, test = (torch.from_numpy(part[:300]).float() for part in digits[:2])
    rows = Rows.of(train, torch.arange(300)[None])
    fitted = method.fit(Task.of(rows, torch.from_numpy(candidates[:300])[None], seeds=(0,)))
    assert isinstance(fitted, Networks)
    return fitted, rows.others(test, torch.arange(300)[None])


def test_members_with_rows_of_their_own_are_no_rows_to_be_had(
    digits: Any, candidates: np.ndarray
) -> None:
    fitted, rows = fitted_by(Proden(epochs=1, members=2), digits, candidates)
    with pytest.raises(InputError, match="joint=True"):
        fitted.attacked(rows, PGD(0.1))


def test_random_passes_are_attacked_in_expectation(digits: Any, candidates: np.ndarray) -> None:
    fitted, rows = fitted_by(ProdenDropout(epochs=15, passes=60), digits, candidates)
    truth = torch.from_numpy(digits[3][:300])[None]

    def accuracy(attack: Attack | None) -> float:
        return float((fitted.predict(rows, attack, truth).predicted() == truth).double().mean())

    found = [accuracy(AutoPGD(0.1, steps=6, passes=passes)) for passes in (1, 20)]
    assert accuracy(None) > 0.8
    assert found[1] <= found[0]
    assert found[1] < accuracy(None) - 0.2


def test_only_methods_with_evidence_have_an_evidential_loss(
    trained: tuple[Networks, Rows], digits: Any, candidates: np.ndarray
) -> None:
    attack = AutoPGD(0.1, steps=10, loss="evidential")
    with pytest.raises(InputError, match="does not predict evidence"):
        trained[0].predict(trained[1], attack)
    fitted, rows = fitted_by(RobustPll(epochs=30), digits, candidates)
    truth = torch.from_numpy(digits[3][:300])[None]
    clean, after = (
        (fitted.predict(rows, each, truth).predicted() == truth).double().mean()
        for each in (None, attack)
    )
    assert after < clean - 0.3
