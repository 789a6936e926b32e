"""RobustPll and RobustPll+At: the ceiling, balanced label weights, and rows that are moved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robustpll import PLLClassifier, robustness_report
from robustpll.engine.data import Batch, Rows, State, Task
from robustpll.engine.random import Draws
from robustpll.methods import RobustPll, RobustPllAt
from robustpll.methods.evidential import attacked
from robustpll.opinion import Opinion

BOUND = 0.07
HALF = torch.tensor(0.5, dtype=torch.double)


@pytest.fixture(scope="module")
def task(digits: Any, candidates: np.ndarray) -> Task:
    rows = Rows.of(torch.from_numpy(digits[0]).double(), torch.arange(300)[None])
    return Task.of(rows, torch.from_numpy(candidates[:300])[None], (0,))


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.double)


def stepped(method: RobustPll, task: Task) -> tuple[Any, Any, Batch]:
    """A network, the method as the engine calls it, and a batch with what was drawn for it."""
    draws, shape, index = Draws.of([0], like=task.prior), task.rows.shape, task.rows.everything
    drawn = method.draw(index.shape[1], shape, draws)
    batch = State.of(task, uncertainty=1.0).batch(task, index, 1, draws, drawn)
    return method.build(shape, task.k, draws), method.spread(1, task.prior), batch


def test_with_ten_classes_the_default_trains_as_the_published_ceiling(task: Task) -> None:
    """To the last bit: numbers of the one are numbers of the other."""
    published = replace(RobustPll.paper(), anneal="from-one", epochs=4)
    usual, other = RobustPll(epochs=4).fit(task), published.fit(task)
    assert torch.equal(usual.label_weights, other.label_weights)
    assert torch.equal(usual.predict(task.rows).belief, other.predict(task.rows).belief)


def test_a_balance_gives_a_class_back_that_evidence_forgets(task: Task) -> None:
    """The evidence hardly ever names class 3."""
    evidence, batch = 100 * uniform(*task.candidates.shape), stepped(RobustPll(), task)[2]
    evidence[..., 3] /= 50
    written = {
        balance: RobustPll(balance=balance).spread(1, evidence).reweigh(evidence, batch)
        for balance in (0.0, 0.001, 0.5, 1.0)
    }
    shares = {name: state["label_weights"].mean((0, 1)) for name, state in written.items()}
    assert shares[0.0][3] < 0.08
    assert shares[0.0][3] < shares[0.5][3] < shares[1.0][3] < 0.11
    torch.testing.assert_close(shares[0.0], shares[0.001], rtol=0.01, atol=0)
    weights, uncertainty = written[1.0]["label_weights"], written[1.0]["uncertainty"]
    assert not weights[~batch.candidates].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights - uncertainty * batch.prior).min() > -1e-6  # belief
    most = Opinion.of_evidence(evidence, batch.prior).within(batch.candidates).uncertainty
    assert (uncertainty[..., 0] <= most + 1e-6).all()


def test_rows_move_within_bounds_and_range_to_where_the_error_is_larger(task: Task) -> None:
    net, method, batch = stepped(RobustPllAt(adversary=BOUND), task)
    start = batch.x

    def error(x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(method.error(method.evidence_of(net(x)), batch))

    moved = attacked(error, start, method.adversary, method.attack_steps, batch.drawn)
    assert ((moved - start).abs() <= BOUND + 1e-9).all()
    assert moved.min() >= 0
    assert moved.max() <= 1
    errors = [error(x).mean() for x in (start, start + BOUND * (2 * batch.drawn - 1), moved)]
    assert errors[2] > max(errors[:2])
    far = start + 2  # a feature outside of its range may stay there
    moved = attacked(error, far, method.adversary, method.attack_steps, batch.drawn)
    assert (moved <= far + 1e-9).all()
    assert (moved >= far - BOUND - 1e-9).all()


def test_an_adversary_that_moves_nothing_teaches_what_the_rows_do(task: Task) -> None:
    """Then both halves of a batch are the same rows, whatever their shares."""
    net, method, batch = stepped(RobustPllAt(adversary=0.0, clean_share=0.4), task)
    loss, written = method.step(net, batch, HALF)
    fields = {name: getattr(RobustPllAt(), name) for name in RobustPll.field_names()}
    expected, weights = RobustPll(**fields).spread(1, task.prior).step(net, batch, HALF)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(written["label_weights"], weights["label_weights"])


def test_label_weights_come_from_rows_as_they_are(task: Task) -> None:
    """After the step, too, there is no adversary in them."""
    net, method, batch = stepped(RobustPllAt(adversary=0.5, update="after"), task)
    assert method.step(net, batch, HALF)[1] == {}
    weights = method.after_step(net, batch)["label_weights"]
    with torch.no_grad():
        plain = RobustPll(evidence="exp").spread(1, task.prior).after_step(net, batch)
    torch.testing.assert_close(weights, plain["label_weights"])


@pytest.mark.parametrize("k", [10, 120])
def test_the_divergence_by_class_is_a_kth_of_the_whole(k: int, task: Task) -> None:
    """And the rule for a hundred classes is out of use."""
    evidence, candidates = uniform(1, 5, k), uniform(1, 5, k, seed=1) < 0.3
    _, by_class, batch = stepped(RobustPllAt(), task)
    batch = replace(batch, candidates=candidates)
    whole = RobustPllAt(kl_per_class=False).spread(1, task.prior)
    expected = whole.divergence(evidence, batch, HALF)
    torch.testing.assert_close(k * by_class.divergence(evidence, batch, HALF), expected)


@pytest.mark.slow
def test_it_withstands_an_audit_that_takes_a_plain_network_down(
    digits: Any, candidates: np.ndarray
) -> None:
    settings: Any = {"steps": 20, "restarts": 1, "queries": 200, "twin_epochs": 20}
    methods = (RobustPll(epochs=30), RobustPllAt(epochs=30, adversary=0.1))
    models = (PLLClassifier(method, random_state=0) for method in methods)
    plain, hard = (
        robustness_report(
            model.fit(digits[0], candidates), digits[1][:200], digits[3][:200], (0.1,), **settings
        )
        for model in models
    )
    assert hard.clean > plain.clean - 0.03
    assert hard.worst[0] > plain.worst[0] + 0.2
