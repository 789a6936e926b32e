"""Attacks stay within their reach, treat each model alone, and do harm."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustpll.engine.attack import PGD
from robustpll.engine.networks import build_network
from robustpll.engine.predict import Attacked, Networks, logits_of
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.errors import InputError
from robustpll.methods import Proden

ATTACKS = [
    PGD(0.1),
    PGD(0.3, labels="clean"),
    PGD(0.25, steps=3, random_start=False),
    PGD(0.7, clip=None),
    PGD(0.2, clip=(0.3, 0.6)),
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
def test_attacked_rows_stay_within_epsilon_and_range(attack: PGD) -> None:
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
def test_a_bundle_is_attacked_as_each_model_alone(attack: PGD) -> None:
    x = features()
    together = attack(bundle(*SEEDS), x, draws_of(*SEEDS, like=x))
    for m, seed in enumerate(SEEDS):
        alone = attack(bundle(seed), x[m : m + 1], draws_of(seed, like=x))
        torch.testing.assert_close(together[m], alone[0], rtol=0, atol=1e-12)


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


class Watched(nn.Module):
    """A network that remembers what it was shown last."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach()
        return self.net(x)


@pytest.mark.parametrize("joint", [True, False])
def test_only_a_joint_attack_hands_all_members_the_same_row(joint: bool) -> None:
    pool = features(1, 12)[0]
    rows = Rows.of(pool, torch.arange(12).view(2, 6)).repeated(2)  # two runs of two members
    net = Watched(bundle(*SEEDS))
    together = 2 if joint else 1
    attacked = Attacked(PGD(0.2), together, draws_of(*SEEDS[::together], like=pool), None)
    logits = logits_of(Proden(members=2), net, rows, attacked)
    assert logits.shape == (4, 6, 4)
    assert torch.equal(net.seen[0], net.seen[1]) == joint
    assert torch.equal(net.seen[2], net.seen[3]) == joint
    assert not torch.equal(net.seen[0], net.seen[2])


def test_a_joint_attack_follows_the_mean_of_the_logits() -> None:
    pool = features(1, 6)[0]
    rows = Rows.of(pool, torch.arange(6)[None]).repeated(2)
    net = Watched(bundle(3, 4))
    attack = PGD(0.2, random_start=False)
    logits_of(Proden(members=2), net, rows, Attacked(attack, 2, draws_of(3, like=pool), None))
    x = rows.x(rows.everything)[:1]
    alone = attack(lambda x: net.net(x.expand(2, -1, -1)).mean(0)[None], x, draws_of(3, like=x))
    torch.testing.assert_close(net.seen[0][:6], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": -0.1},
        {"epsilon": np.nan},
        {"epsilon": "a"},
        {"steps": 0},
        {"labels": "best"},
        {"clip": (1, 0)},
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        PGD(**({"epsilon": 0.1} | wrong))


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
    found = [fitted.predict(rows, PGD(0.2)).probability for _ in range(2)]
    assert torch.equal(*found)


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
