"""The strong attack beside the Adversarial Robustness Toolbox."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustpll.attacks import AutoPGD
from robustpll.engine.data import Rows, Task
from robustpll.engine.predict import Networks
from robustpll.methods import Proden

ROWS, STEPS, RESTARTS, SEEDS = 500, 30, 2, (0, 1, 2)


class One(nn.Module):
    """One model of a bundle, as others expect a network: (b, d) -> (b, k)."""

    def __init__(self, bundle: nn.Module, which: int) -> None:
        super().__init__()
        self.bundle, self.which = bundle, which

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.bundle(x.expand(len(SEEDS), *x.shape))
        return logits[self.which]


@pytest.fixture(scope="module")
def trained(digits: tuple[np.ndarray, ...], candidates: np.ndarray) -> tuple[Networks, Rows]:
    train, test = torch.from_numpy(digits[0]).float(), torch.from_numpy(digits[1][:ROWS]).float()
    rows = Rows.of(train, torch.arange(len(train)).expand(len(SEEDS), -1))
    given = torch.from_numpy(candidates).expand(len(SEEDS), -1, -1)
    fitted = Proden(epochs=20).fit(Task.of(rows, given, seeds=SEEDS))
    assert isinstance(fitted, Networks)
    return fitted, rows.others(test, torch.arange(ROWS).expand(len(SEEDS), -1))


def fooled_by_peer(net: nn.Module, x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
    """Which rows the Auto-PGD of the toolbox fools, on the cross-entropy of the logits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.attacks.evasion import AutoProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier

        classifier = PyTorchClassifier(
            net, nn.CrossEntropyLoss(), x.shape[1:], 10, clip_values=(0, 1), device_type="cpu"
        )
        attack = AutoProjectedGradientDescent(
            classifier,
            eps=epsilon,
            eps_step=2 * epsilon,
            max_iter=STEPS,
            nb_random_init=RESTARTS,
            batch_size=ROWS,
            loss_type="cross_entropy",
            verbose=False,
        )
        np.random.seed(0)  # noqa: NPY002 -- the toolbox draws from the global generator
        moved = attack.generate(x, np.eye(10)[y])
    assert np.abs(moved - x).max() <= epsilon + 1e-6
    with torch.no_grad():
        found: np.ndarray = net(torch.from_numpy(moved)).argmax(-1).numpy() != y
    return found


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.15])
def test_no_more_rows_survive_than_under_the_toolbox(
    trained: tuple[Networks, Rows],
    digits: Any,
    epsilon: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where the toolbox makes a folder
    pytest.importorskip("art")
    fitted, rows = trained
    y = digits[3][:ROWS]
    truth = torch.from_numpy(y).expand(len(SEEDS), -1)
    attack = AutoPGD(epsilon, loss="cross-entropy", steps=STEPS, restarts=RESTARTS)
    ours = (fitted.predict(rows, attack, truth).predicted() == truth).double().mean(-1)
    x = rows.x(rows.everything).numpy()
    for run in range(len(SEEDS)):
        theirs = 1 - fooled_by_peer(One(fitted.net, run), x[run], y, epsilon).mean()
        assert theirs < 0.8, "the toolbox must have done some harm"
        assert float(ours[run]) <= theirs + 0.01
