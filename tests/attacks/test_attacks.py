"""Attacks stay within their bounds, treat each model alone, and do harm."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustpll.attacks import PGD, Attack, AutoPGD, Square, evidential_error_to
from robustpll.engine.data import Rows, Task
from robustpll.engine.history import History
from robustpll.engine.layers import BatchNorm, folded
from robustpll.engine.networks import build_network, mlp
from robustpll.engine.predict import Networks, averaged, fused
from robustpll.engine.random import Draws
from robustpll.errors import InputError
from robustpll.methods import METHODS, Proden, ProdenDropout, RobustPll
from robustpll.methods.base import DeepMethod
from robustpll.methods.evidential import evidential_error
from robustpll.opinion import Opinion

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
DOUBLE = torch.empty(0, dtype=torch.float64)


def draws_of(*seeds: int, like: Tensor = DOUBLE) -> Draws:
    return Draws.of(seeds or SEEDS, "attack", like=like)


def bundle(*seeds: int) -> nn.Module:
    return build_network("mlp", (6,), 4, Draws.of(seeds or SEEDS, "net", like=DOUBLE)).eval()


def features(models: int = len(SEEDS), rows: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(models, rows, 6, generator=generator, dtype=torch.float64)


def test_the_current_label_may_fool_a_row_and_epsilon_0_neither_changes_nor_clips() -> None:
    """Other worked numbers are in the docstring of PGD."""
    x = torch.tensor([[[0.6, 0.535]]], dtype=torch.float64)
    moved = PGD(0.1, random_start=False)(lambda x: x, x, draws_of(0))
    np.testing.assert_allclose(moved[0, 0], (0.56, 0.575), atol=1e-12)
    still = PGD(0.0)(bundle(), 3 * features() - 1, draws_of())
    assert torch.equal(still, 3 * features() - 1)


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_attacked_rows_stay_within_epsilon_and_range_alone_as_together(attack: Any) -> None:
    low, high = (0.0, 1.0) if attack.clip is None else attack.clip
    x, net = low + (high - low) * features(), bundle()
    before = x.clone(), [p.clone() for p in net.parameters()]
    together = attack(net, x, draws_of())
    moved = (together - x).abs().amax()
    assert attack.epsilon / 2 <= moved <= attack.epsilon + 1e-12
    if attack.clip is None:
        assert ((together < 0) | (together > 1)).any()  # without a range rows may leave the cube
    else:
        assert ((together >= low) & (together <= high)).all()
    assert torch.equal(x, before[0])  # the row itself and the network stay as they were
    assert all(torch.equal(*pair) for pair in zip(net.parameters(), before[1], strict=True))
    assert all(p.grad is None for p in net.parameters())
    for m, seed in enumerate(SEEDS):
        alone = attack(bundle(seed), x[m : m + 1], draws_of(seed))
        torch.testing.assert_close(together[m], alone[0], rtol=0, atol=1e-12)


def outputs_of_pictures(x: Tensor) -> Tensor:
    return x.flatten(2).square()[..., :4]


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
@pytest.mark.parametrize("pictures", [False, True], ids=["rows", "pictures"])
def test_several_epsilons_at_once_are_each_alone(attack: Attack, pictures: bool) -> None:
    x = features().view(4, 9, 2, 3) if pictures else features()
    outputs: Any = outputs_of_pictures if pictures else bundle()
    epsilons: list[Any] = [0.05, 0.0, np.linspace(0, 0.3, 6).reshape(x.shape[2:])]
    together = attack(outputs, x, draws_of(), epsilons=epsilons)
    for moved, epsilon in zip(together.split(x.shape[1], 1), epsilons, strict=True):
        alone = replace(attack, epsilon=epsilon)(outputs, x, draws_of())
        torch.testing.assert_close(moved, alone, rtol=0, atol=1e-12)


def test_a_fixed_class_loses_ground_in_every_row() -> None:
    x, net = features(), bundle()
    moved = PGD(0.1, labels="clean", random_start=False, clip=None)(net, x, draws_of())
    clean = net(x).softmax(-1)
    top = clean.argmax(-1, keepdim=True)
    assert (net(moved).softmax(-1).gather(-1, top) < clean.gather(-1, top)).all()


@pytest.mark.parametrize("network", ["mlp", "wide"])
def test_a_folded_network_is_the_same_function(network: Any) -> None:
    net = build_network(network, (6,), 4, Draws.of(SEEDS, "net", like=DOUBLE))
    net(5 * features() - 1)  # moves the running statistics
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))
    less = folded(net.eval())
    assert not [part for part in less.modules() if isinstance(part, BatchNorm)]
    torch.testing.assert_close(less(features()), net(features()))


class Scaled(nn.Module):
    """A network whose logits are the features, only larger."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


def test_networks_that_cannot_be_folded_stay_as_they_are() -> None:
    dropping = mlp((6,), 4, Draws.of(SEEDS, "net", like=DOUBLE), dropout=0.1).eval()
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


def networks(net: nn.Module, *seeds: int, members: int = 1) -> Networks:
    nothing = torch.empty(1, 0, 4)
    opinion = Opinion.of_probability(nothing)
    return Networks(Proden(members=members), net, seeds, nothing, opinion, History())


@pytest.mark.parametrize("attack", [PGD(0.2), AutoPGD(0.2, labels="clean", steps=5)])
@pytest.mark.parametrize("joint", [True, False])
def test_only_a_joint_attack_hands_all_members_the_same_row(attack: Attack, joint: bool) -> None:
    rows = Rows.of(features(1, 12)[0], torch.arange(12).view(2, 6))
    net = Watched(bundle())
    fitted = networks(net, *SEEDS, members=2)
    assert fitted.predict(rows, replace(attack, joint=joint)).belief.shape == (2, 6, 4)
    assert torch.equal(net.seen[0], net.seen[1]) == joint
    assert torch.equal(net.seen[2], net.seen[3]) == joint
    assert not torch.equal(net.seen[0], net.seen[2])


def test_a_joint_attack_follows_the_mean_of_the_logits() -> None:
    rows = Rows.of(features(1, 6)[0], torch.arange(6)[None])
    net = Watched(bundle(3, 4))
    attack = PGD(0.2, random_start=False, joint=True)
    networks(net, 3, 4, members=2).predict(rows, attack)
    x = rows.x(rows.everything)
    alone = attack(lambda x: net.net(x.expand(2, -1, -1)).mean(0)[None], x, draws_of(3))
    torch.testing.assert_close(net.seen[0][:6], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [PGD, AutoPGD, Square], ids=lambda make: make.__name__)
def test_each_feature_has_its_own_bounds_and_some_are_fixed(make: Any) -> None:
    x = 1.2 * features() - 0.1  # some lie outside the range
    epsilon = np.array([0.1, 0.2, 0.0, 0.3, 0.05, 0.4])
    low, high = np.array([0.0, 0.1, 0.0, 0.2, 0.0, 0.0]), np.full(6, 0.9)
    fixed = np.array([False, True, False, False, True, False])
    more = {"queries": 200} if make is Square else {}
    attack = make(epsilon, labels="clean", clip=(low, high), outside="kept", fixed=fixed, **more)
    moved, start = attack(bundle(), x, draws_of()).numpy(), x.numpy()
    assert (moved >= np.maximum(start - epsilon, np.minimum(low, start))).all()
    assert (moved <= np.minimum(start + epsilon, np.maximum(high, start))).all()
    still = fixed | (epsilon == 0)
    np.testing.assert_array_equal(moved[..., still], start[..., still])
    assert (moved[..., ~still] != start[..., ~still]).mean() > 0.8


def test_rows_outside_the_range_are_moved_into_it_unless_kept() -> None:
    x = torch.tensor([[[1.5, -0.5]]])
    assert PGD(0.1)(lambda x: x, x, draws_of(0, like=x)).tolist() == [[[1.0, 0.0]]]
    moved = PGD(0.1, outside="kept")(lambda x: x, x, draws_of(0, like=x))
    assert (moved - x).abs().amax() <= 0.1 + 1e-6


@pytest.mark.parametrize("make", [PGD, AutoPGD], ids=lambda make: make.__name__)
def test_more_restarts_never_spare_a_row(make: Any) -> None:
    x, net = features(), bundle()
    top = net(x).argmax(-1, keepdim=True)

    def advantage(restarts: int) -> Tensor:
        attack = make(0.2, labels="clean", keep="worst", loss="margin", restarts=restarts, steps=20)
        logits = net(attack(net, x, draws_of()))
        return logits.scatter(-1, top, -torch.inf).amax(-1) - logits.gather(-1, top)[..., 0]

    once, often = advantage(1), advantage(4)
    assert (often >= once - 1e-12).all()
    assert (often > once + 1e-6).any()


DEEP = [method for method in METHODS.values() if issubclass(method, DeepMethod)]


@pytest.mark.parametrize("kind", DEEP, ids=lambda kind: kind.name)
def test_softmax_of_the_scores_is_what_a_method_predicts(kind: type[DeepMethod]) -> None:
    outputs = 8 * features(kind().members, 5) - 4
    method = kind().spread(len(outputs), like=outputs)
    scores = method.scores(outputs)
    torch.testing.assert_close(scores.softmax(-1), method.opinion(outputs).probability)


def test_the_evidential_loss_is_the_one_that_methods_train_with_also_of_members() -> None:
    evidence = 5 * features(2, 7)
    labels = torch.arange(14).view(2, 7) % 6
    error = evidential_error(evidence, torch.eye(6)[labels].double())
    torch.testing.assert_close(evidential_error_to((evidence + 1).log(), labels), error)
    method, outputs = RobustPll(members=2), 8 * features(4, 5) - 2
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

    def moves(precision: Any) -> bool:
        attack = PGD(0.05, labels="clean", random_start=False, precision=precision)
        moved = networks(Scaled(gap / 0.8), 0).attacked(Rows.scaled(x), attack)
        return not torch.equal(moved.x(moved.everything), x)

    assert not moves("float32")
    assert moves("float64")


def test_rounding_to_float32_does_not_leave_the_bounds() -> None:
    x = features(1, 50).float()
    attack = AutoPGD(0.1, labels="clean", steps=5, precision="float64")
    rows = networks(bundle(3), 3).attacked(Rows.scaled(x), attack)
    moved = rows.x(rows.everything)
    assert moved.dtype == torch.float32
    bounds = attack.bounds(x, [attack.epsilon])
    assert ((moved >= bounds.low) & (moved <= bounds.high)).all()


def test_square_asks_for_outputs_alone_and_stays_at_the_ends() -> None:
    x, net = features(), bundle()
    attack = Square(0.2, labels="clean", queries=100)
    with torch.no_grad():
        moved = attack(lambda x: torch.from_numpy(net(x).numpy()), x, draws_of())
    bounds = attack.bounds(x, [attack.epsilon])
    assert ((moved == bounds.low) | (moved == bounds.high)).all()
    before, after = (net(rows).softmax(-1) for rows in (x, moved))
    top = before.argmax(-1, keepdim=True)
    assert (after.gather(-1, top) < before.gather(-1, top)).double().mean() > 0.9


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7)], ids=["grey", "colour"])
def test_square_finds_the_pixel_that_matters(shape: tuple[int, ...]) -> None:
    x = torch.full((2, 4, *shape), 0.5)

    def outputs(x: Tensor) -> Tensor:
        pixel = x.flatten(2)[..., 17]
        return torch.stack([pixel, torch.full_like(pixel, 0.45)], -1)

    truth = torch.zeros(2, 4, dtype=torch.long)
    moved = Square(0.1, queries=300)(outputs, x, draws_of(0, 1, like=x), truth)
    torch.testing.assert_close(moved.flatten(2)[..., 17], torch.full((2, 4), 0.4))


WRONG: dict[str, list[Any]] = {"epsilon": [-0.1, np.nan, "a", [0.1, -0.1]], "labels": ["best"]}
WRONG |= {
    "clip": [(1, 0), 3, (0, "a"), (0, 1, 2), ([0, 0], [1, 1, 1])],
    "fixed": [[0.5]],
    "steps": [0],
    "joint": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, v) for name in WRONG for v in WRONG[name]])
def test_arguments_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name!r} of PGD must be"):
        PGD(**({"epsilon": 0.1} | {name: value}))


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (PGD, {"restarts": 3}, "restarts above 1 need keep"),
        (PGD, {"keep": "worst"}, "needs labels=.clean. or .true."),
        (PGD, {"loss": "evidential", "labels": "true"}, "needs target='probabilities'"),
        (AutoPGD, {"keep": "last"}, "of AutoPGD must be one of .worst."),
        (Square, {"labels": "current"}, "of Square must be one of .clean., .true."),
        (Square, {"part": 0.0}, "of Square must be a float above 0"),
        (PGD, {"epsilon": np.full(5, 0.1)}, "epsilon has shape"),
        (PGD, {"clip": (np.zeros((2, 6)), 1.0)}, "clip has shape"),
        (PGD, {"fixed": np.ones(7, bool)}, "fixed has shape"),
    ],
)
def test_arguments_that_contradict_each_other_or_a_row_are_refused(
    make: Any, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(**({"epsilon": 0.1} | wrong))(bundle(), features(), draws_of())


Trained = tuple[Networks, Rows, Tensor]


def fitted_by(
    method: DeepMethod, digits: Any, candidates: np.ndarray, runs: int = 1, n: int = 300
) -> Trained:
    """Fit to n rows in each run; return 250 test rows and their labels, too."""
    train, test = torch.from_numpy(digits[0][:n]).float(), torch.from_numpy(digits[1][:250]).float()
    rows = Rows.of(train, torch.arange(len(train)).expand(runs, -1))
    sets = torch.from_numpy(candidates[:n]).expand(runs, -1, -1)
    fitted = method.fit(Task.of(rows, sets, tuple(range(runs))))
    assert isinstance(fitted, Networks)
    others = rows.others(test, torch.arange(250).expand(runs, -1))
    return fitted, others, torch.from_numpy(digits[3][:250]).expand(runs, -1)


@pytest.fixture(scope="module")
def trained(digits: Any, candidates: np.ndarray) -> Trained:
    """Two runs on all rows."""
    return fitted_by(Proden(epochs=10), digits, candidates, runs=2, n=len(candidates))


def accuracy(trained: Trained, attack: Attack | None, labels: Tensor | None = None) -> float:
    """The share of right predictions under an attack on these labels, by default the true ones."""
    fitted, rows, truth = trained
    predicted = fitted.predict(rows, attack, truth if labels is None else labels).predicted()
    return float((predicted == truth).double().mean())


def test_stronger_attacks_leave_less(trained: Trained) -> None:
    plain = PGD(0.1, labels="true")
    strongest = AutoPGD(0.1, steps=10, restarts=2)
    margin = PGD(0.1, labels="true", loss="margin", keep="worst", restarts=2)
    clean = accuracy(trained, None)
    assert clean > 0.9
    assert accuracy(trained, PGD(0.0)) == clean
    assert accuracy(trained, PGD(0.3)) < 0.7
    assert accuracy(trained, PGD(0.3, labels="clean")) < 0.3
    strong, harm = accuracy(trained, strongest), accuracy(trained, plain)
    assert accuracy(trained, PGD(0.1)) > harm >= accuracy(trained, margin) >= strong
    assert strong < accuracy(trained, Square(0.1, queries=100)) < accuracy(trained, PGD(0.01))


class One(nn.Module):
    """One model of a bundle of two, as others expect a network: (b, d) -> (b, k)."""

    def __init__(self, bundle: nn.Module, which: int) -> None:
        super().__init__()
        self.bundle, self.which = bundle, which

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.bundle(x.expand(2, *x.shape))
        return logits[self.which]


def fooled_by_peer(net: nn.Module, x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
    """Which rows the Auto-PGD of the toolbox fools, on the cross-entropy of the logits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.attacks.evasion import AutoProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier

        classifier = PyTorchClassifier(
            net, nn.CrossEntropyLoss(), x.shape[1:], 10, clip_values=(0, 1), device_type="cpu"
        )
        sizes = {"eps": epsilon, "eps_step": 2 * epsilon, "max_iter": 30, "nb_random_init": 5}
        settings = {"batch_size": len(x), "loss_type": "cross_entropy", "verbose": False}
        attack = AutoProjectedGradientDescent(classifier, **sizes, **settings)
        np.random.seed(0)  # noqa: NPY002 -- the toolbox draws from the global generator
        moved = attack.generate(x, np.eye(10)[y])
    assert np.abs(moved - x).max() <= epsilon + 1e-6
    with torch.no_grad():
        fooled: np.ndarray = net(torch.from_numpy(moved)).argmax(-1).numpy() != y
    return fooled


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.15])
def test_no_more_rows_survive_than_under_the_adversarial_robustness_toolbox(
    trained: Trained, epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where the toolbox makes a folder
    pytest.importorskip("art")
    fitted, rows, truth = trained
    attack = AutoPGD(epsilon, loss="cross-entropy", steps=30, restarts=5)
    ours = (fitted.predict(rows, attack, truth).predicted() == truth).double().mean(-1)
    x = rows.x(rows.everything).numpy()
    for run in range(2):
        fooled = fooled_by_peer(One(fitted.net, run), x[run], truth[run].numpy(), epsilon)
        assert fooled.mean() > 0.2, "the toolbox must have done some harm"
        assert float(ours[run]) <= 1 - fooled.mean() + 0.01


def test_an_attack_is_the_same_each_time_and_on_the_true_class_needs_it(trained: Trained) -> None:
    fitted, rows, truth = trained
    once, again = (fitted.predict(rows, PGD(0.2)).probability for _ in range(2))
    assert torch.equal(once, again)
    attack = PGD(0.1, labels="true")
    with pytest.raises(InputError, match="true labels"):
        fitted.predict(rows, attack)
    assert accuracy(trained, attack) < 0.7 < accuracy(trained, attack, (truth + 1) % 10)


def test_attacked_rows_can_be_had_and_fool_as_the_attack_does(trained: Trained) -> None:
    fitted, rows, truth = trained
    attack = AutoPGD(0.1, steps=5)
    moved = fitted.attacked(rows, attack, truth)
    distance = (moved.x(moved.everything) - rows.x(rows.everything)).abs()
    assert distance.amax() <= 0.1 + 1e-6
    torch.testing.assert_close(
        fitted.predict(moved).probability, fitted.predict(rows, attack, truth).probability
    )


@pytest.mark.parametrize("members", [1, 2])
def test_predictions_at_several_epsilons_are_those_at_each(
    members: int, digits: Any, candidates: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, rows, _ = fitted_by(Proden(epochs=2, members=members), digits, candidates)
    epsilons, joint = (0.05, 0.3), PGD(0.1, joint=True)
    alone = [fitted.predict(rows, PGD(epsilon)).probability for epsilon in epsilons]
    attacked = [fitted.attacked(rows, replace(joint, epsilon=epsilon)) for epsilon in epsilons]
    for size in (2**25, 2**10):  # at once, and in pieces
        for limit in ("NUMBERS_AT_ONCE", "IN_CACHE"):
            monkeypatch.setattr(f"robustpll.engine.predict.{limit}", size)
        together = fitted.predict_at_each(epsilons, rows, PGD(0.1))
        for opinion, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(opinion.probability, expected, rtol=0, atol=1e-3)
        moved = fitted.attacked(rows, joint, epsilons=epsilons)
        parts = moved.x(moved.everything).split(250, 1)
        for part, one in zip(parts, attacked, strict=True):
            torch.testing.assert_close(part, one.x(one.everything), rtol=0, atol=1e-3)


@pytest.mark.gpu
def test_a_gpu_does_as_much_harm_as_a_cpu(digits: Any, candidates: np.ndarray) -> None:
    fitted, rows, truth = fitted_by(Proden(epochs=10, members=2), digits, candidates)
    there = replace(fitted, net=copy.deepcopy(fitted.net).cuda())
    on_gpu = Rows(*(part.cuda() for part in (rows.pool, rows.indices, rows.shift, rows.scale)))
    for attack in (PGD(0.1), AutoPGD(0.1, precision="float64"), Square(0.1, queries=200)):
        after = there.predict_at_each((0.02, 0.1), on_gpu, attack, truth.cuda())
        before = fitted.predict_at_each((0.02, 0.1), rows, attack, truth)
        for pair in zip(after, before, strict=True):
            shares = [(opinion.predicted().cpu() == truth).double().mean() for opinion in pair]
            assert abs(shares[0] - shares[1]) < 0.05


def test_random_passes_are_attacked_in_expectation(digits: Any, candidates: np.ndarray) -> None:
    model = fitted_by(ProdenDropout(epochs=15, passes=30), digits, candidates)
    once, often = (accuracy(model, AutoPGD(0.1, steps=6, passes=passes)) for passes in (1, 10))
    clean = accuracy(model, None)
    assert clean > 0.8
    assert often <= once
    assert often < clean - 0.2


def test_only_methods_with_evidence_have_an_evidential_loss(
    trained: Trained, digits: Any, candidates: np.ndarray
) -> None:
    attack = AutoPGD(0.1, steps=10, loss="evidential")
    with pytest.raises(InputError, match="does not predict evidence"):
        accuracy(trained, attack)
    model = fitted_by(RobustPll(epochs=30), digits, candidates)
    assert accuracy(model, attack) < accuracy(model, None) - 0.3
