"""RobustPll+At: rows that are moved, and what is learned from them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robustpll import InputError, RobustPLLClassifier, robustness_report
from robustpll.engine.data import Batch, Rows, State, Task
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.methods import RobustPll, RobustPllAt

REACH = 0.07


@pytest.fixture(scope="module")
def task(digits: Any, candidates: np.ndarray) -> Task:
    rows = Rows.of(torch.from_numpy(digits[0]).double(), torch.arange(300)[None])
    return Task.of(rows, torch.from_numpy(candidates[:300])[None], (0,))


def stepped(method: RobustPllAt, task: Task) -> tuple[Any, RobustPllAt, Batch]:
    """A network, the method as the engine calls it, and a batch with what was drawn for it."""
    draws = Draws.of([0], like=task.prior)
    shape: Shape = task.rows.shape
    at = task.rows.everything
    drawn = method.draw(at.shape[1], shape, draws)
    batch = State.of(task, uncertainty=1.0).batch(task, at, 1, draws, drawn)
    return method.build(shape, task.k, draws), method.spread(1, task.prior), batch


def test_rows_move_within_reach_and_range_to_where_the_error_is_larger(task: Task) -> None:
    net, method, batch = stepped(RobustPllAt(adversary=REACH), task)
    moved, start = method.attacked(net, batch), batch.x
    assert ((moved - start).abs() <= REACH + 1e-9).all()
    assert moved.min() >= 0
    assert moved.max() <= 1
    errors = [
        method.error(method.evidence_of(net(x)), batch).mean()
        for x in (start, start + REACH * (2 * batch.drawn - 1), moved)
    ]
    assert errors[2] > max(errors[:2])


def test_a_feature_outside_of_its_range_may_stay_there(task: Task) -> None:
    net, method, batch = stepped(RobustPllAt(adversary=REACH), task)
    far = batch.x + 2
    moved = method.attacked(net, replace(batch, x=far))
    assert (moved <= far + 1e-9).all()
    assert (moved >= far - REACH - 1e-9).all()


def test_an_adversary_that_moves_nothing_teaches_what_the_rows_do(task: Task) -> None:
    """Then both halves of a batch are the same rows, whatever their shares."""
    net, method, batch = stepped(RobustPllAt(adversary=0.0, clean_share=0.4), task)
    half = torch.tensor(0.5, dtype=torch.double)
    loss, written = method.step(net, batch, half)
    fields = {name: getattr(RobustPllAt(), name) for name in RobustPll.field_names()}
    plain = RobustPll(**fields).spread(1, task.prior)
    expected, weights = plain.step(net, batch, half)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(written["label_weights"], weights["label_weights"])


def test_label_weights_come_from_rows_as_they_are(task: Task) -> None:
    """After the step, too, there is no adversary in them."""
    net, method, batch = stepped(RobustPllAt(adversary=0.5, update="after"), task)
    _, written = method.step(net, batch, torch.tensor(0.5, dtype=torch.double))
    assert written == {}
    weights = method.after_step(net, batch)["label_weights"]
    with torch.no_grad():
        plain = RobustPll(evidence="exp").spread(1, task.prior).after_step(net, batch)
    torch.testing.assert_close(weights, plain["label_weights"])


@pytest.mark.parametrize("k", [10, 120])
def test_the_divergence_by_class_is_a_kth_of_the_whole(k: int, task: Task) -> None:
    """And the rule for a hundred classes is out of use."""
    draws = torch.Generator().manual_seed(0)
    evidence = torch.rand(1, 5, k, generator=draws, dtype=torch.double)
    candidates = torch.rand(1, 5, k, generator=draws) < 0.3
    _, _, batch = stepped(RobustPllAt(), task)
    batch, half = replace(batch, candidates=candidates), torch.tensor(0.5, dtype=torch.double)
    usual = RobustPllAt()
    whole = replace(usual, kl_per_class=False).spread(1, task.prior)
    by_class = usual.spread(1, task.prior)
    torch.testing.assert_close(
        k * by_class.divergence(evidence, batch, half), whole.divergence(evidence, batch, half)
    )


@pytest.mark.slow
def test_it_withstands_an_audit_that_takes_a_plain_network_down(
    digits: Any, candidates: np.ndarray
) -> None:
    X_train, X_test, _, y_test = digits
    settings: Any = {"steps": 20, "restarts": 1, "queries": 200, "twin_epochs": 20}
    plain, hard = (
        robustness_report(
            RobustPLLClassifier(epochs=30, random_state=0, adversary=adversary).fit(
                X_train, candidates
            ),
            X_test[:200],
            y_test[:200],
            (0.1,),
            **settings,
        )
        for adversary in (None, 0.1)
    )
    assert hard.clean > plain.clean - 0.03
    assert hard.worst[0] > plain.worst[0] + 0.2


def test_a_classifier_with_an_adversary_is_hardened_and_says_what_it_uses() -> None:
    assert RobustPLLClassifier().resolved_method() == RobustPll()
    hard = RobustPLLClassifier(adversary=0.1, members=2)
    assert hard.resolved_method() == RobustPllAt(adversary=0.1, members=2)
    assert hard.set_params(evidence="relu").resolved_method().evidence == "relu"
    with pytest.raises(InputError, match="'adversary' of RobustPllAt must be"):
        RobustPLLClassifier(adversary=-1).resolved_method()


@pytest.mark.parametrize("field", [{"clean_share": 1.1}, {"attack_steps": 0}, {"adversary": "x"}])
def test_a_number_without_a_meaning_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(field))):
        RobustPllAt(**field)


@pytest.mark.parametrize("name", ["epochs", "loss", "network", "anneal"])
def test_only_what_a_method_decides_may_be_left_open(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' of RobustPll must be"):
        RobustPLLClassifier(**{name: None}).resolved_method()
