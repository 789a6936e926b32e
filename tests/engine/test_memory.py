"""Bundles and rows that do not fit the device."""

import gc
import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import PropertyMock, patch

import numpy as np
import pytest
import torch

from robustpll import InputError, PLLClassifier
from robustpll.engine.data import Feed, Rows, Task
from robustpll.engine.train import Training, train
from robustpll.methods import DeepMethod, Proden, ProdenEns, RobustPll

STEP = Training.step
METHODS = {
    "proden": Proden(epochs=2),
    "ensemble": ProdenEns(epochs=1, members=2),
    "lenet": Proden(epochs=1, network="lenet"),
    "auto": RobustPll.stacked(
        [RobustPll(epochs=1, network="auto", kl_ceiling=float(c)) for c in range(5)]
    ),
    "joined": RobustPll.stacked([RobustPll(epochs=2, kl_ceiling=float(c)) for c in range(5)]),
}


def random_task(models: int, rows: int, features: int, **options: Any) -> Task:
    """On the GPU; the first class is always a candidate."""
    numbers = torch.Generator().manual_seed(0)
    pool = torch.rand(rows, features, generator=numbers, **options)
    candidates = torch.rand(models, rows, 10, generator=numbers) < 0.4
    candidates[..., 0] = True
    indices = torch.arange(rows, device="cuda").expand(models, -1)
    return Task.of(Rows.of(pool.cuda(), indices), candidates.cuda(), tuple(range(models)))


@pytest.mark.parametrize("name", METHODS)
def test_a_bundle_that_does_not_fit_is_halved_and_gives_the_same(name: str, task_of: Any) -> None:
    method, task = METHODS[name], task_of(*range(5), rows=150, shape=(8, 8))
    if name == "auto":
        pictures = torch.linspace(0, 1, 150 * 256, dtype=torch.float64).view(150, 16, 16)
        task = replace(task, rows=Rows.of(pictures, torch.arange(150).expand(5, -1)))
    whole = train(method, task)

    def small_device(self: Training, indices: torch.Tensor, stage: int) -> None:
        if self.task.models > 2 * method.members:
            raise torch.OutOfMemoryError("no room")
        STEP(self, indices, stage)

    with (
        patch.object(Training, "step", small_device),
        pytest.warns(RuntimeWarning, match="5 runs do not fit") as warned,
    ):
        halved = train(method, task)
    assert len(warned) == 1
    assert torch.equal(halved.label_weights, whole.label_weights)
    assert torch.equal(halved.history.loss, whole.history.loss)
    assert torch.equal(halved.predict(task.rows).belief, whole.predict(task.rows).belief)
    assert halved.seeds == whole.seeds
    assert halved.method == whole.method
    assert halved.method.network != "auto"  # model files name the network that was trained


def test_one_run_that_does_not_fit_is_an_error(task_of: Any) -> None:
    with (
        patch.object(Training, "step", side_effect=torch.OutOfMemoryError("no room")),
        pytest.raises(torch.OutOfMemoryError),
    ):
        train(Proden(epochs=1), task_of(0))


@pytest.mark.parametrize("size", [64, 299])
@pytest.mark.parametrize(
    "method",
    [Proden(epochs=2), ProdenEns(epochs=1, members=2), RobustPll(epochs=2, update="after")],
)
def test_streamed_rows_give_the_same_as_resident_ones(
    method: DeepMethod, size: int, task_of: Any
) -> None:
    method, task = replace(method, batch_size=size), task_of(0, 1)
    resident = train(method, task)
    with patch.object(Rows, "on_host", new_callable=PropertyMock, return_value=True):
        streamed = train(method, task)
    assert torch.equal(streamed.label_weights, resident.label_weights)
    assert all(parameter.grad is None for parameter in streamed.net.parameters())


def test_a_feed_brings_the_rows_asked_for_and_ends_its_thread() -> None:
    pool = torch.arange(40.0).view(20, 2)
    rows = Rows.of(pool, torch.stack([torch.arange(10), torch.arange(10, 20)]))
    sizes = (4, 4, 4, 3, 2, 4, 4, 1) * 9  # more than two slots hold
    positions = [torch.randint(10, (2, b)) for b in sizes]
    with Feed(rows, 4) as feed:
        for indices, _ in zip(positions, feed.batches(positions), strict=True):
            assert torch.equal(feed.rows.x(indices), rows.x(indices))
    with Feed(rows, 4) as feed:
        next(feed.batches(positions))  # interrupted
    with pytest.raises(RuntimeError, match="after shutdown"):
        feed.gatherer.submit(print)


def test_bf16_learns_as_well_or_is_refused(digits: Any, candidates: np.ndarray) -> None:
    from robustpll.engine.device import has_bf16

    model = PLLClassifier(RobustPll(epochs=20, precision="bf16"), random_state=0, device="cpu")
    if has_bf16(torch.device("cpu")):
        assert model.fit(digits[0], candidates).score(digits[1], digits[3]) > 0.93
    else:
        with pytest.raises(InputError, match="no units for bfloat16"):
            model.fit(digits[0], candidates)


@pytest.mark.parametrize("policy", ["active", "passive"])
def test_settings_are_back_after_a_fit_and_after_an_interrupt(
    policy: str, task_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    before = torch.get_num_threads()
    threads: list[int] = []

    def interrupted(self: Training, indices: torch.Tensor, stage: int) -> None:
        threads.append(torch.get_num_threads())
        if len(threads) == 5:
            raise KeyboardInterrupt
        STEP(self, indices, stage)

    with patch.object(Training, "step", interrupted):
        train(Proden(epochs=1, batch_size=100), task_of(0))
        assert torch.get_num_threads() == before
        with pytest.raises(KeyboardInterrupt):
            train(Proden(epochs=5), task_of(0))
    assert torch.get_num_threads() == before
    assert set(threads) == {1 if policy == "active" else before}


@pytest.mark.gpu
def test_on_a_gpu_rows_beyond_the_limit_are_streamed(
    digits: Any, candidates: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PLLClassifier(RobustPll(epochs=20), random_state=0, device="cuda")
    resident = model.fit(digits[0], candidates).score(digits[1], digits[3])
    monkeypatch.setenv("ROBUSTPLL_DEVICE_BYTES", "1000")
    streamed = model.fit(digits[0], candidates).score(digits[1], digits[3])
    assert streamed == pytest.approx(resident, abs=0.02)


@pytest.mark.gpu
def test_a_full_gpu_halves_the_bundle() -> None:
    task = random_task(64, 700, 64)
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**28) / total)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            fitted = Proden(epochs=2).fit(task)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert [w for w in warned if "do not fit" in str(w.message)]
    assert fitted.label_weights.shape == (64, 700, 10)


@pytest.mark.gpu
def test_memory_stays_within_what_the_documentation_says() -> None:
    """docs/benchmarks/speed.md: 40 MB for each model of 784 features, 600 bytes for each row."""
    peaks = {}
    for models, rows in ((1, 20_000), (21, 20_000), (1, 40_000)):
        task = random_task(models, rows, 784)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        RobustPll(epochs=1).fit(task)
        peaks[models, rows] = torch.cuda.max_memory_allocated() - task.rows.pool.nbytes
        del task
    assert (peaks[21, 20_000] - peaks[1, 20_000]) / 20 < 40e6
    assert (peaks[1, 40_000] - peaks[1, 20_000]) / 20_000 < 600


@pytest.mark.gpu
@pytest.mark.parametrize("models", [1, 25])
def test_on_a_gpu_streamed_rows_give_the_same_as_resident_ones(models: int) -> None:
    """Many more batches than the slots hold, so that copies and steps overlap."""
    resident = random_task(models, 20_000, 50, dtype=torch.float64)
    pool, indices = resident.rows.pool.cpu().pin_memory(), resident.rows.indices.cpu()
    rows = replace(resident.rows, pool=pool, indices=indices)
    method = Proden(epochs=3, batch_size=64)
    one, other = (method.fit(task) for task in (resident, replace(resident, rows=rows)))
    torch.testing.assert_close(one.label_weights, other.label_weights, rtol=0, atol=1e-6)
