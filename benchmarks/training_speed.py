"""Milliseconds per model and epoch, beside the customary way to train one network.

    python benchmarks/training_speed.py                    # all parts that this machine can run
    python benchmarks/training_speed.py --parts models     # one of them

RobustPll on random data of 60,000 x 784 with 10 classes and batches of 256 on CUDA, 6,000 rows on a
CPU. Part "pictures": random pictures of 3 x 32 x 32, resnet9, batches of 512. The baseline is a
DataLoader that shuffles, Adam, and label weights on the host. On a CPU, part "sklearn" compares an
epoch of 100,000 x 50 with one of scikit-learn's MLPClassifier.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from common import begin
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from robustpll.engine import graphs
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device, computing, has_bf16, threads
from robustpll.engine.history import EpochState, reporting
from robustpll.engine.networks import mlp
from robustpll.engine.train import train
from robustpll.methods import Crdpll, DeepMethod, Proden, RobustPll, RobustPllAt
from robustpll.methods.evidential import evidential_error, flat_kl

DEVICE = chosen_device("auto")
CUDA = DEVICE.type == "cuda"
FEATURES, CLASSES, BATCH = 784, 10, 256
PARAMETERS = FEATURES * 300 + 2 * 300 * 300 + 300 * CLASSES
# What a step of one model moves if every kernel reads and writes once. Per parameter: forward,
# backward, gradient, Adam's four reads and three writes; per row: features and hidden units.
BYTES_PER_STEP = 4.0 * (10 * PARAMETERS + BATCH * (4 * FEATURES + 12 * 3 * 300))


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def random_task(models: int, rows: int, features: int = FEATURES, classes: int = CLASSES) -> Task:
    pool = torch.rand(rows, features, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    indices = torch.arange(rows, device=DEVICE).expand(models, -1)
    chance = torch.rand(1, rows, classes, generator=torch.Generator().manual_seed(1))
    chance[..., 0] = 0.0  # class 0 is always a candidate
    candidates = (chance < 0.5).to(DEVICE).expand(models, -1, -1)
    return Task.of(Rows.of(pool, indices), candidates, tuple(range(models)))


Clock = Callable[[], float]


def epoch_seconds(
    method: DeepMethod, task: Task, first: int = 1, clock: Clock = time.perf_counter
) -> float:
    """Return the mean seconds of an epoch after the first ones, in which graphs are recorded."""
    times: list[float] = []

    class Watch:
        def on_epoch_end(self, state: EpochState) -> None:
            if state.epoch in (first, state.epochs):  # the device is waited for twice only
                wait()
                times.append(clock())

    with reporting(Watch()):
        train(method, task)
    return (times[1] - times[0]) / (method.total_epochs - first)


def engine_ms(epochs: int, task: Task, *, captured: bool, compiled: bool, **fields: Any) -> float:
    """Return milliseconds per model and epoch."""
    with (
        patch.object(RobustPll, "captured", new=captured),
        patch.object(graphs, "pays_back", return_value=compiled),
    ):
        return 1000 * epoch_seconds(RobustPll(epochs=epochs, **fields), task) / task.models


def baseline_ms(rows: int, epochs: int) -> float:
    """Return milliseconds per epoch of the customary training of one network."""
    task = random_task(1, rows)
    x, candidates = task.rows.x(task.rows.everything)[0].cpu(), task.candidates[0].cpu()
    weights, data = task.prior[0].cpu().clone(), TensorDataset(x, candidates, torch.arange(rows))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    layers: list[nn.Module] = []
    for inputs in (FEATURES, 300, 300):
        layers += [nn.Linear(inputs, 300), nn.ReLU(), nn.BatchNorm1d(300)]
    net = nn.Sequential(*layers, nn.Linear(300, CLASSES)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    seconds = []
    for epoch in range(epochs):
        begun = time.perf_counter()
        for x_host, y_host, indices in loader:
            yb = y_host.to(DEVICE)
            evidence = net(x_host.to(DEVICE)).relu()
            error = evidential_error(evidence, weights[indices].to(DEVICE))
            loss = (error + min(2 * epoch / epochs, 1) * flat_kl(evidence * ~yb)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                belief = evidence / (evidence.sum(-1, keepdim=True) + CLASSES) * yb
                rest = 1 - belief.sum(-1, keepdim=True)
                weights[indices] = (belief + yb / yb.sum(-1, keepdim=True) * rest).cpu()
        wait()
        seconds.append(time.perf_counter() - begun)
    return 1000 * statistics.median(seconds[1:])


def part_models(rows: int) -> dict[str, Any]:
    """How the time per model falls with the number of models."""
    with computing("auto", DEVICE):  # TF32 on both sides
        base = baseline_ms(rows, 3)
    ways = {"eager": (3, False, False), "graph": (12, True, False), "compiled": (12, True, True)}
    table: dict[str, Any] = {}
    for models in (1, 5, 25, 100):
        task = random_task(models, rows)
        row = table[str(models)] = {}
        for way, (epochs, captured, compiled) in ways.items():
            ms = engine_ms(epochs, task, captured=captured, compiled=compiled)
            row[way] = {"ms": ms, "times_baseline": base / ms}
        seconds = row["compiled"]["ms"] / 1000
        row["tflops"] = 6 * PARAMETERS * rows / seconds / 1e12
        row["gb_per_s"] = BYTES_PER_STEP * math.ceil(rows / BATCH) / seconds / 1e9
    return {"baseline_ms": base, "table": table}


def part_streaming(rows: int) -> dict[str, Any]:
    """Return seconds of an epoch over 2 million rows, on the device and from the host."""
    task = random_task(1, 2_000_000 if rows == 60_000 else rows)
    pool, indices = task.rows.pool.cpu().pin_memory(), task.rows.indices.cpu()
    on_host = replace(task, rows=replace(task.rows, pool=pool, indices=indices))
    ratios = {}
    for compiled in (False, True):
        sides = {"resident": task, "streamed": on_host}
        ms = {n: engine_ms(3, t, captured=True, compiled=compiled) for n, t in sides.items()}
        ratios[f"ratio{' compiled' * compiled}"] = ms["streamed"] / ms["resident"]
    return ratios


def part_memory(rows: int) -> dict[str, Any]:
    """Return peak memory on the device per model, and per row beside the features."""
    peaks = {}
    for models, count in ((1, rows), (51, rows), (1, 2 * rows)):
        task = random_task(models, count)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        RobustPll(epochs=1).fit(task)
        peaks[models, count] = torch.cuda.max_memory_allocated() - task.rows.pool.nbytes
    per_model = (peaks[51, rows] - peaks[1, rows]) / 50 / 1e6
    per_row = (peaks[1, 2 * rows] - peaks[1, rows]) / rows
    return {"mb_per_model": per_model, "bytes_per_row": per_row}


def picture_task(models: int, rows: int) -> Task:
    task = random_task(models, rows, 1)
    shape, generator = (3, 32, 32), torch.Generator().manual_seed(0)
    pool = torch.randint(256, (rows, *shape), generator=generator, dtype=torch.uint8).to(DEVICE)
    scale = torch.full((models, 1, *shape), 255.0, device=DEVICE)
    rows_of_all = Rows(pool, task.rows.indices, torch.zeros_like(scale), scale)
    return replace(task, rows=rows_of_all)


def part_pictures(rows: int) -> dict[str, Any]:
    """Return milliseconds per 50,000 pictures: captured, compiled, and three models at once."""
    batches, table = (50 if rows == 60_000 else 2), dict[str, Any]()
    fields: Any = {"network": "resnet9", "batch_size": 512, "epochs": 4, "momentum": 0.9}
    for kind in (Proden, Crdpll):
        row = table[kind.title] = {}
        for way, models, compiled in (("captured", 1, False), ("one", 1, True), ("three", 3, True)):
            with patch.object(graphs, "pays_back", return_value=compiled):
                task = picture_task(models, 512 * batches)
                seconds = epoch_seconds(kind(learning_rate=0.01, **fields), task)
            row[way] = 1000 * seconds / models * 50_000 / len(task)
        row["ratio of three to one"] = row["three"] / row["one"]
        print(kind.title, row, flush=True)
    return table


def part_growth(_: int) -> dict[str, Any]:
    """How the time of an epoch grows with rows, classes, features and models."""
    sides = {"rows": [1_000, 10_000, 100_000, 1_000_000]}
    sides |= {side: [10, 100, 1_000, 10_000] for side in ("classes", "features")}
    sides["models"] = [1, 10, 100, 1_000]
    growth: dict[str, Any] = {}
    for side, sizes in sides.items():
        shape = {"models": 1, "rows": 2_000 if side == "models" else 20_000}
        shape |= {"features": 100, "classes": 10}
        with patch.object(graphs, "pays_back", return_value=False):
            tasks = (random_task(**(shape | {side: size})) for size in sizes)
            seconds = [epoch_seconds(RobustPll(epochs=4), task) for task in tasks]
        growth[side] = {"sizes": sizes, "seconds": seconds, "exponents": exponents(sizes, seconds)}
    return growth


def exponents(sizes: list[int], seconds: list[float]) -> list[float]:
    pairs = zip(pairwise(seconds), pairwise(sizes), strict=True)
    return [math.log(s2 / s1) / math.log(n2 / n1) for (s1, s2), (n1, n2) in pairs]


def part_cpu(rows: int) -> dict[str, Any]:
    """Compare with the baseline on the same threads, in turns; medians of five."""
    ways: dict[str, Any] = {"baseline": partial(baseline_ms, rows, 2)}
    for models in (1, 5):
        task = random_task(models, rows)
        for precision in ("float32", "bf16") if has_bf16(DEVICE) else ("float32",):
            way = partial(engine_ms, captured=False, compiled=False, precision=precision)
            ways[f"M = {models}, {precision}"] = partial(way, 2, task)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, measure in ways.items():
            taken[name].append(measure())
    medians = {name: statistics.median(times) for name, times in taken.items()}
    ratios = {name: medians["baseline"] / ms for name, ms in medians.items()}
    return {"ms": medians, "times_baseline": ratios, "threads": torch.get_num_threads()}


def sklearn_seconds(task: Task, hidden: tuple[int, ...], clock: Clock) -> float:
    """Return the seconds of one epoch of an MLPClassifier on the same rows, with random labels."""
    x, labels = task.rows.pool.numpy(), np.arange(len(task)) % CLASSES
    model = MLPClassifier(hidden, solver="adam", batch_size=BATCH, random_state=0)
    model.partial_fit(x[:BATCH], labels[:BATCH], classes=np.arange(CLASSES))
    begun = clock()
    model.partial_fit(x, labels)
    return clock() - begun


def part_sklearn(_: int) -> dict[str, Any]:
    """Return medians of an epoch's seconds in turns, and their ratios to MLPClassifier's.

    On one thread they are processor seconds, which other work on the machine hardly changes; on
    all cores, wall-clock seconds.
    """
    task, result = random_task(1, 100_000, 50), dict[str, Any]()
    methods = (RobustPll(epochs=2), RobustPllAt(epochs=2, adversary=0.0), Proden(epochs=2))
    for count in (1, os.cpu_count() or 1):
        clock = time.process_time if count == 1 else time.perf_counter
        for hidden in ((300, 300, 300), (256, 256)):
            build = partial(mlp, widths=hidden)
            ways = {m.title: partial(epoch_seconds, m, task, 1, clock) for m in methods}
            ways["MLPClassifier"] = partial(sklearn_seconds, task, hidden, clock)
            taken: dict[str, list[float]] = {name: [] for name in ways}
            with (
                threadpool_limits(count),
                threads(count),
                patch.object(DeepMethod, "build", lambda _, *sizes, build=build: build(*sizes)),
            ):
                for _ in range(3):
                    for name, measure in ways.items():
                        taken[name].append(measure())
            seconds = {name: statistics.median(times) for name, times in taken.items()}
            ratios = {name: s / seconds["MLPClassifier"] for name, s in seconds.items()}
            title = f"{count} threads, hidden {'-'.join(map(str, hidden))}"
            result[title] = {"seconds": seconds, "ratios": ratios}
            print(title, result[title], flush=True)
    return result


ON_CUDA = {"models": part_models, "streaming": part_streaming, "memory": part_memory}
ON_CUDA |= {"growth": part_growth, "pictures": part_pictures}
PARTS = ON_CUDA if CUDA else {"cpu": part_cpu, "sklearn": part_sklearn}


def main() -> None:
    args, report = begin(__doc__, parts=tuple(PARTS), rows=60_000 if CUDA else 6_000)
    for part in args.parts:
        report[part] = PARTS[part](args.rows)
        print(part, report[part], flush=True)
        report.save()


if __name__ == "__main__":
    main()
