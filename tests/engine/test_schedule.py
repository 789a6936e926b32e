"""The learning rate of each step."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

from robustpll.engine.train import Training, one_cycle, train
from robustpll.methods import CroSel, Proden, ProdenL2, RobustPll

STEP = Training.step


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 10, 100, 1001])
def test_one_cycle_is_that_of_torch(steps: int) -> None:
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    cycle: Any = {"cycle_momentum": False, "div_factor": 25.0, "final_div_factor": 40.0}
    theirs = OneCycleLR(optimizer, max_lr=1.0, total_steps=steps, pct_start=0.3, **cycle)
    for step in range(steps):
        assert one_cycle(step, steps) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9)
        if step < steps - 1:
            optimizer.step()
            theirs.step()


@pytest.mark.parametrize(
    "method",
    [
        RobustPll(epochs=4, batch_size=100, schedule="one-cycle", learning_rate=0.01),
        ProdenL2(epochs=4, batch_size=100, schedule="one-cycle", learning_rate=0.01, decay="l2"),
        CroSel(epochs=4, batch_size=100, schedule="one-cycle", learning_rate=0.01),
    ],
    ids=lambda method: method.name,
)
def test_each_step_has_its_rate(method: Any, task_of: Any) -> None:
    """301 rows in batches of 100: the last row joins the third batch."""
    rates: list[float] = []

    def watched(self: Training, indices: torch.Tensor, stage: int) -> None:
        rates.append(float(self.optimizer.param_groups[0]["lr"]))
        STEP(self, indices, stage)

    with patch.object(Training, "step", watched):
        train(method, task_of(0, rows=301))
    steps = 3 * method.total_epochs
    assert rates == [0.01 * one_cycle(step, steps) for step in range(steps)]


def test_a_constant_rate_stays_a_number(task_of: Any) -> None:
    seen = []
    optimizer = Proden.optimizer

    def watched(self: Proden, parameters: Any) -> Any:
        seen.append(optimizer(self, parameters))
        return seen[0]

    with patch.object(Proden, "optimizer", watched):
        train(Proden(epochs=1), task_of(0))
    assert isinstance(seen[0], AdamW)
    assert seen[0].param_groups[0]["lr"] == 1e-3
