"""RobustPll: what its ceiling counts, and balanced label weights."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robustpll import InputError
from robustpll.engine.data import Batch, Rows, State, Task
from robustpll.engine.random import Draws
from robustpll.methods import RobustPll
from robustpll.opinion import Opinion


def task_of(digits: Any, candidates: np.ndarray, n: int = 300) -> Task:
    rows = Rows.of(torch.from_numpy(digits[0]), torch.arange(n)[None])
    return Task.of(rows, torch.from_numpy(candidates[:n])[None], (0,))


def test_with_ten_classes_the_default_trains_as_the_published_ceiling(
    digits: Any, candidates: np.ndarray
) -> None:
    """To the last bit: numbers of the one are numbers of the other."""
    task = task_of(digits, candidates)
    published = replace(RobustPll.paper(), anneal="from-one", epochs=4)
    usual, other = RobustPll(epochs=4).fit(task), published.fit(task)
    assert torch.equal(usual.label_weights, other.label_weights)
    assert torch.equal(usual.predict(task.rows).belief, other.predict(task.rows).belief)


@pytest.fixture
def forgotten(digits: Any, candidates: np.ndarray) -> tuple[torch.Tensor, Batch]:
    """Evidence (1, n, k) that hardly ever names the class 3, and the rows' candidates."""
    task = task_of(digits, candidates)
    draws = torch.Generator().manual_seed(0)
    evidence = 100 * torch.rand(task.candidates.shape, generator=draws)
    evidence[..., 3] /= 50
    everything = task.rows.everything
    return evidence, State.of(task).batch(task, everything, 1, Draws.of([0], like=task.prior))


def shares(method: RobustPll, evidence: torch.Tensor, batch: Batch) -> torch.Tensor:
    own = method.spread(1, evidence)
    weights = own.reweigh(evidence, batch)["label_weights"]
    return weights.mean((0, 1))


def test_a_balance_gives_a_class_back_that_evidence_forgets(forgotten: Any) -> None:
    plain, half, whole = (shares(RobustPll(balance=b), *forgotten)[3] for b in (0.0, 0.5, 1.0))
    assert plain < 0.08
    assert plain < half < whole < 0.11


def test_balanced_weights_are_an_opinion_on_the_candidates(forgotten: Any) -> None:
    evidence, batch = forgotten
    found = RobustPll(balance=1.0).spread(1, evidence).reweigh(evidence, batch)
    weights, uncertainty = found["label_weights"], found["uncertainty"]
    assert not weights[~batch.candidates].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    belief = weights - uncertainty * batch.prior
    assert belief.min() > -1e-6
    most = Opinion.of_evidence(evidence, batch.prior).within(batch.candidates).uncertainty
    assert (uncertainty[..., 0] <= most + 1e-6).all()


def test_a_balance_of_few_parts_in_a_thousand_changes_as_little(forgotten: Any) -> None:
    plain, barely = (shares(RobustPll(balance=b), *forgotten) for b in (0.0, 0.001))
    torch.testing.assert_close(plain, barely, rtol=0.01, atol=0)


@pytest.mark.parametrize(
    "fields", [{"balance": 1.5}, {"balance": -0.1}, {"balance": 0.5, "loss": "cross-entropy"}]
)
def test_a_balance_without_a_meaning_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="balance"):
        RobustPll(**fields)
