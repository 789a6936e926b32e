"""A captured step is the eager step; these tests need a GPU, apart from what can be compiled."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from robustpll import METHODS
from robustpll.engine import capture
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.engine.train import Training, train
from robustpll.methods import DeepMethod, RobustPll

NAMES = sorted(METHODS)


def task_on(device: str, digits: Any, candidates: np.ndarray, rows: int = 600) -> Task:
    """Two runs in float64; 600 rows are two batches of 256 and one of 88."""
    pool = torch.from_numpy(digits[0]).double().to(device)
    at = torch.stack([torch.arange(rows), torch.arange(rows) + 100]).to(device)
    return Task.of(Rows.of(pool, at), torch.from_numpy(candidates).to(device)[at], (0, 1))


def parameters(method: DeepMethod, task: Task) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in train(method, task).net.state_dict().values()]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_captured_and_eager_training_agree_to_rounding(
    name: str, compiled: bool, digits: Any, candidates: np.ndarray
) -> None:
    """51 steps, in float64: Adam makes full steps of gradients that are nothing but rounding."""
    method = METHODS[name](epochs=17)  # type: ignore[call-arg]
    task = task_on("cuda", digits, candidates)
    with patch.object(type(method), "captured", new=False):
        eager = parameters(method, task)
    with patch.object(capture, "pays_back", return_value=compiled):
        captured = parameters(method, task)
    for one, other in zip(eager, captured, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.gpu
def test_recording_leaves_no_trace(digits: Any, candidates: np.ndarray) -> None:
    """One step, captured: had the warm-up steps counted, there would be four."""
    method = RobustPll(epochs=1, batch_size=600, precision="float32")
    task = task_on("cuda", digits, candidates)
    with patch.object(RobustPll, "captured", new=False):
        eager = train(method, task)
    captured = train(method, task)
    for one, other in zip(
        eager.net.state_dict().values(), captured.net.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    torch.testing.assert_close(eager.label_weights, captured.label_weights, rtol=0, atol=1e-5)
    torch.testing.assert_close(eager.history.loss, captured.history.loss, rtol=1e-5, atol=0)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Within it an operation that waits for the device is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it does not find every such operation
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_step_never_waits_for_the_device(name: str, digits: Any, candidates: np.ndarray) -> None:
    steps: list[int] = []
    plain = Training.step

    def watched(self: Training, at: torch.Tensor, stage: int) -> None:
        with no_waiting():
            plain(self, at, stage)
        steps.append(at.shape[1])

    method = METHODS[name](epochs=2)  # type: ignore[call-arg]
    with patch.object(Training, "step", watched), patch.object(type(method), "captured", new=False):
        train(method, task_on("cuda", digits, candidates))
    assert steps == [256, 256, 88] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["lenet", "resnet"])
def test_networks_of_the_library_are_captured(
    network: str, digits: Any, candidates: np.ndarray
) -> None:
    task = task_on("cuda", digits, candidates)
    pool = task.rows.pool.reshape(-1, 8, 8)
    task = replace(task, rows=Rows.of(pool, task.rows.at))
    plain = capture.Captured.__call__
    with patch.object(capture.Captured, "__call__", autospec=True, side_effect=plain) as calls:
        fitted = train(RobustPll(epochs=3, network=network), task)
    assert calls.call_count == 9
    assert fitted.history.loss.isfinite().all()


def test_a_short_run_is_not_worth_compiling(digits: Any, candidates: np.ndarray) -> None:
    task = task_on("cpu", digits, candidates)
    task = replace(task, prior=task.prior.float())
    short, long = (_training(RobustPll(epochs=epochs), task) for epochs in (10, 10_000_000))
    assert not capture.pays_back(short)
    assert capture.pays_back(long)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses torch.jit
@pytest.mark.parametrize("name", NAMES)
def test_every_step_compiles_as_one_graph(name: str, digits: Any, candidates: np.ndarray) -> None:
    """On the CPU, where it can be seen too: no branch on a tensor, no host round trip."""
    method = METHODS[name](epochs=2, batch_size=600)  # type: ignore[call-arg]
    task = task_on("cpu", digits, candidates)
    plain = parameters(method, task)
    step = Training.step

    def compiled(self: Training, at: torch.Tensor, stage: int) -> None:
        self.compiled = True
        step(self, at, stage)

    with patch.object(Training, "step", compiled):
        again = parameters(method, task)
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def _training(method: DeepMethod, task: Task) -> Training:
    from robustpll.engine.random import Draws

    draws = Draws.of(task.seeds, like=task.prior)
    net = method.build(task.rows.shape, task.k, draws)
    optimizer = method.optimizer(net.parameters())
    zero = torch.zeros(())
    return Training(method, net, task, method.begin(task), optimizer, draws, zero, zero)
