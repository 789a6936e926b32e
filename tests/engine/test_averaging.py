"""Networks averaged over the last epochs: which ones, and that nothing else changes."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from robustpll import InputError
from robustpll.engine.data import Rows, Task
from robustpll.engine.layers import tensors_of
from robustpll.engine.train import Training
from robustpll.methods import Proden, RobustPllAt


@dataclass(frozen=True)
class Remembering(Proden):
    """Proden that keeps a copy of its networks after each epoch."""

    name: ClassVar[str] = "remembering"
    kept: ClassVar[list[list[torch.Tensor]]] = []

    def end_epoch(self, training: Training, epoch: int) -> None:
        self.kept.append([tensor.detach().clone() for tensor, _ in tensors_of(training.net)])


@pytest.fixture
def task(digits: Any, candidates: np.ndarray) -> Task:
    at = torch.arange(300).expand(2, -1)
    rows = Rows.of(torch.from_numpy(digits[0]).double(), at)
    return Task.of(rows, torch.from_numpy(candidates)[at], (0, 1))


@pytest.mark.parametrize(("share", "last"), [(0.5, 3), (1.0, 6), (0.1, 1), (0.01, 1), (0.7, 4)])
def test_the_network_is_the_mean_of_those_after_the_last_epochs(
    share: float, last: int, task: Task
) -> None:
    Remembering.kept.clear()
    fitted = Remembering(epochs=6, averaged=share).fit(task)
    for at, (tensor, _) in enumerate(tensors_of(fitted.net)):
        mean = torch.stack([each[at] for each in Remembering.kept[-last:]]).mean(0)
        torch.testing.assert_close(tensor, mean)


def test_the_training_goes_as_any_other(task: Task) -> None:
    plain, averaged = Proden(epochs=5).fit(task), Proden(epochs=5, averaged=0.6).fit(task)
    assert torch.equal(plain.history.loss, averaged.history.loss)
    assert torch.equal(plain.label_weights, averaged.label_weights)
    assert not torch.equal(
        plain.predict(task.rows).probability, averaged.predict(task.rows).probability
    )


def test_watched_rows_choose_among_averages(task: Task) -> None:
    """All epochs but the first are averaged: what is left is the mean up to the best one."""
    Remembering.kept.clear()
    watch = task.some_rows(torch.arange(100, 300))
    learned = task.some_rows(torch.arange(100))
    fitted = Remembering(epochs=6, averaged=5 / 6).fit(learned, watch=watch)
    best = fitted.history.covering_rate.T  # (M, epochs)
    for model, rates in enumerate(best):
        at = int((rates == rates.max()).nonzero()[-1])
        for number, (tensor, _) in enumerate(tensors_of(fitted.net)):
            epochs = [each[number][model] for each in Remembering.kept[: at + 1]]
            mean = torch.stack(epochs[1:] or epochs).mean(0)
            torch.testing.assert_close(tensor[model], mean)


@pytest.mark.parametrize("share", [-0.1, 1.5, "half"])
def test_a_share_is_between_0_and_1(share: Any) -> None:
    with pytest.raises(InputError, match="averaged"):
        replace(RobustPllAt(), averaged=share)
