"""Milliseconds per model and epoch, beside the customary way to train one network.

    python benchmarks/training_speed.py                    # all parts that this machine can run
    python benchmarks/training_speed.py --parts models     # one of them

RobustPll on random data of 60,000 x 784 with 10 classes and batches of 256 on CUDA, 6,000 rows on a
CPU. The baseline is the customary code: a DataLoader that shuffles, Adam as constructed, label
weights kept on the host, a step of many small kernels. Both sides run in one go.
"""

import argparse
import json
import math
import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fleet import train_all
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from robustpll.engine import graphs
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device, computing, device_name, has_bf16
from robustpll.engine.history import reporting
from robustpll.engine.train import train
from robustpll.methods import DeepMethod, RobustPll
from robustpll.methods.evidential import evidential_error, flat_kl

DEVICE = chosen_device("auto")
CUDA = DEVICE.type == "cuda"
FEATURES, CLASSES, BATCH = 784, 10, 256


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def random_task(models: int, rows: int, features: int = FEATURES, classes: int = CLASSES) -> Task:
    pool = torch.rand(rows, features, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    at = torch.arange(rows, device=DEVICE).expand(models, -1)
    chance = torch.rand(1, rows, classes, generator=torch.Generator().manual_seed(1))
    chance[..., 0] = 0.0  # class 0 is always a candidate
    candidates = (chance < 0.5).to(DEVICE).expand(models, -1, -1)
    return Task.of(Rows.of(pool, at), candidates, tuple(range(models)))


def epoch_seconds(method: DeepMethod, task: Task, first: int = 1) -> float:
    """Seconds of an epoch, the mean of all after the first ones, in which graphs are recorded.

    The device is waited for after these and after the last only, as in a real training.
    """
    times: list[float] = []

    def tell(_: str, epoch: int, epochs: int, __: torch.Tensor) -> None:
        if epoch in (first, epochs):
            wait()
            times.append(time.perf_counter())

    with reporting(tell):
        train(method, task)
    return (times[1] - times[0]) / (method.total_epochs - first)


def engine(method: RobustPll, task: Task, *, captured: bool, compiled: bool) -> dict[str, float]:
    """Milliseconds per model and epoch, and the seconds that setting up took."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(RobustPll, "captured", new=captured))
        stack.enter_context(patch.object(graphs, "pays_back", return_value=compiled))
        begun = time.perf_counter()
        seconds = epoch_seconds(method, task)
        whole = time.perf_counter() - begun
    return {"ms": 1000 * seconds / task.models, "set_up_s": whole - seconds * method.epochs}


def baseline_epoch_seconds(rows: int, epochs: int) -> list[float]:
    """The customary training of one network."""
    task = random_task(1, rows)
    x, candidates = task.rows.x(task.rows.everything)[0].cpu(), task.candidates[0].cpu()
    weights = task.prior[0].cpu().clone()
    loader = DataLoader(
        TensorDataset(x, candidates, torch.arange(rows)), batch_size=BATCH, shuffle=True
    )
    layers: list[nn.Module] = []
    for inputs in (FEATURES, 300, 300):
        layers += [nn.Linear(inputs, 300), nn.ReLU(), nn.BatchNorm1d(300)]
    net = nn.Sequential(*layers, nn.Linear(300, CLASSES)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    seconds = []
    for epoch in range(epochs):
        begun = time.perf_counter()
        for x_host, y_host, at in loader:
            yb = y_host.to(DEVICE)
            evidence = net(x_host.to(DEVICE)).relu()
            error = evidential_error(evidence, weights[at].to(DEVICE))
            loss = (error + min(2 * epoch / epochs, 1) * flat_kl(evidence * ~yb)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                belief = evidence / (evidence.sum(-1, keepdim=True) + CLASSES) * yb
                rest = 1 - belief.sum(-1, keepdim=True)
                weights[at] = (belief + yb / yb.sum(-1, keepdim=True) * rest).cpu()
        wait()
        seconds.append(time.perf_counter() - begun)
    return seconds


def ceilings() -> dict[str, float]:
    """What this device reaches: a large TF32 product, and a copy in its memory."""
    a = torch.randn(8192, 8192, device=DEVICE)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    product = timed(lambda: a @ a, 10)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    big = torch.empty(2**30, device=DEVICE)  # 4 GiB
    other = torch.empty_like(big)
    copy = timed(lambda: other.copy_(big), 10)
    return {"tflops": 2 * 8192**3 / product / 1e12, "gb_per_s": 2 * 4 * 2**30 / copy / 1e9}


def timed(action: Any, times: int) -> float:
    for _ in range(3):
        action()
    wait()
    begun = time.perf_counter()
    for _ in range(times):
        action()
    wait()
    return (time.perf_counter() - begun) / times


def flops_per_row() -> float:
    """Multiplications and additions of a forward and a backward pass."""
    return 6.0 * (FEATURES * 300 + 2 * 300 * 300 + 300 * CLASSES)


def bytes_per_step() -> float:
    """What a step of one model moves at least, if every kernel reads and writes once.

    For a parameter: forward, backward, gradient, and Adam's four reads and three writes. For a row:
    its features are gathered, and read by the first product and its gradient; a hidden unit is
    written, read and normalised in both directions, twelve times in all.
    """
    parameters = FEATURES * 300 + 2 * 300 * 300 + 300 * CLASSES
    return 4.0 * (10 * parameters + BATCH * (4 * FEATURES + 12 * 3 * 300))


def part_models(rows: int) -> dict[str, Any]:
    """How the time for a model falls with the number of models."""
    with computing("auto", DEVICE):  # TF32 on both sides
        base = statistics.median(baseline_epoch_seconds(rows, 3)[1:]) * 1000
    print(f"baseline: {base:.0f} ms per epoch")
    method = RobustPll(epochs=6, batch_size=BATCH)
    table, most = [], ceilings()
    for models in (1, 5, 25, 100):
        task = random_task(models, rows)
        row: dict[str, Any] = {"models": models}
        ways = {"eager": (False, False), "graph": (True, False), "compiled": (True, True)}
        for way, (captured, compiled) in ways.items():
            epochs = 3 if way == "eager" else 12
            found = engine(
                replace(method, epochs=epochs), task, captured=captured, compiled=compiled
            )
            row[way] = found
            row[way]["times_baseline"] = base / found["ms"]
        row["tflops"] = flops_per_row() * rows / (row["compiled"]["ms"] / 1000) / 1e12
        seconds = row["compiled"]["ms"] / 1000
        row["gb_per_s"] = bytes_per_step() * math.ceil(rows / BATCH) / seconds / 1e9
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
        table.append(row)
        ratios = (
            f"{way} {row[way]['ms']:.1f} ms ({row[way]['times_baseline']:.0f}x)" for way in ways
        )
        print(f"M = {models:3}: {', '.join(ratios)}")
        print(
            f"  compiling {row['compiled']['set_up_s']:.0f} s; "
            f"{row['tflops']:.1f} of {most['tflops']:.0f} TFLOP/s, "
            f"{row['gb_per_s']:.0f} of {most['gb_per_s']:.0f} GB/s"
        )
    return {"baseline_ms": base, "ceilings": most, "table": table}


def part_kernels(rows: int) -> dict[str, Any]:
    """Where a step's time goes, for 1 and 100 models: the epochs after the first are looked at."""
    from torch.profiler import ProfilerActivity, profile

    found = {}
    for models in (1, 100):
        seen = profile(activities=[ProfilerActivity.CUDA])

        def tell(_: str, epoch: int, epochs: int, __: torch.Tensor, seen: Any = seen) -> None:
            wait()
            if epoch == 1:
                seen.start()
            elif epoch == epochs:
                seen.stop()

        task = random_task(models, rows // 10)
        with patch.object(graphs, "pays_back", return_value=True), reporting(tell):
            RobustPll(epochs=5).fit(task)
        steps = 4 * -(-len(task) // BATCH)
        events = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)
        total = sum(event.device_time_total for event in events)
        found[str(models)] = {
            "microseconds_per_step": round(total / steps, 1),
            "kernels_per_step": round(sum(event.count for event in events) / steps, 1),
            "share": {e.key[:80]: round(e.device_time_total / total, 3) for e in events[:12]},
        }
        print(json.dumps(found[str(models)], indent=1))
    return found


def part_flight(rows: int) -> dict[str, Any]:
    """Eight bundles of five models: one after the other, and side by side."""
    method = RobustPll(epochs=40)  # so that recording the graphs, one at a time, counts little
    bundles = [(method, random_task(5, rows)) for _ in range(8)]
    seconds = {}
    with patch.object(graphs, "pays_back", return_value=True):
        train_all(bundles[:1])  # compiles
        for in_flight in (1, 8):
            wait()
            begun = time.perf_counter()
            train_all(bundles, in_flight)
            wait()
            seconds[in_flight] = time.perf_counter() - begun
    ratios = {str(count): seconds[1] / taken for count, taken in seconds.items()}
    print("bundles in flight, times the throughput:", ratios)
    return {"seconds": {str(c): s for c, s in seconds.items()}, "throughput": ratios}


def part_streaming(rows: int) -> dict[str, Any]:
    """2 million rows, resident and streamed from the host; seconds of an epoch."""
    rows = 2_000_000 if rows == 60_000 else rows
    task = random_task(1, rows)
    on_host = replace(
        task, rows=replace(task.rows, pool=task.rows.pool.cpu().pin_memory(), at=task.rows.at.cpu())
    )
    method, found = RobustPll(epochs=3), {}
    for compiled in (False, True):
        for name, each in (("resident", task), ("streamed", on_host)):
            with patch.object(graphs, "pays_back", return_value=compiled):
                seconds = epoch_seconds(method, each)
            found[f"{name}{' compiled' if compiled else ''}"] = seconds
    found["ratio"] = found["streamed"] / found["resident"]
    found["ratio compiled"] = found["streamed compiled"] / found["resident compiled"]
    print("streaming:", found)
    return found


def part_memory(rows: int) -> dict[str, Any]:
    """Peak memory on the device for each model and each row beyond the pool."""
    peaks = {}
    for models, count in ((1, rows), (51, rows), (1, 2 * rows)):
        task = random_task(models, count)
        pool = task.rows.pool.nbytes
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        RobustPll(epochs=1).fit(task)
        peaks[models, count] = torch.cuda.max_memory_allocated() - pool
    found = {
        "mb_per_model": (peaks[51, rows] - peaks[1, rows]) / 50 / 1e6,
        "bytes_per_row": (peaks[1, 2 * rows] - peaks[1, rows]) / rows,
    }
    print("memory:", found)
    return found


def part_growth(_: int) -> dict[str, Any]:
    """How the time of an epoch grows with rows, classes, features and models."""
    found: dict[str, Any] = {}
    sides = {
        "rows": [1_000, 10_000, 100_000, 1_000_000],
        "classes": [10, 100, 1_000, 10_000],
        "features": [10, 100, 1_000, 10_000],
        "models": [1, 10, 100, 1_000],
    }
    plain = {"models": 1, "rows": 20_000, "features": 100, "classes": 10}
    for side, sizes in sides.items():
        seconds = []
        for size in sizes:
            shape = plain | {side: size}
            if side == "models":
                shape["rows"] = 2_000
            with patch.object(graphs, "pays_back", return_value=False):
                seconds.append(epoch_seconds(RobustPll(epochs=4), random_task(**shape)))
        exponents = [
            math.log(later / sooner) / math.log(large / small)
            for (sooner, later), (small, large) in zip(
                pairwise(seconds), pairwise(sizes), strict=True
            )
        ]
        found[side] = {"sizes": sizes, "seconds": seconds, "exponents": exponents}
        print(side, [f"{s:.4f} s" for s in seconds], [f"{e:.2f}" for e in exponents])
    return found


def part_pictures(rows: int) -> dict[str, Any]:
    """LeNet and ResNet: five in a bundle against one after the other."""
    found = {}
    for network in ("lenet", "resnet"):
        seconds = {}
        for models in (1, 5):
            task = random_task(models, rows // 10)
            pool = task.rows.pool.view(-1, 28, 28)
            task = replace(task, rows=Rows.of(pool, task.rows.at))
            method = RobustPll(epochs=4, network=network)
            for captured in (False, True):
                with patch.object(RobustPll, "captured", new=captured):
                    taken = epoch_seconds(method, task) / models
                seconds[f"M = {models}, {'graph' if captured else 'eager'}"] = 1000 * taken
        found[network] = seconds
        print(network, {name: f"{ms:.1f} ms" for name, ms in seconds.items()})
    return found


def part_cpu(rows: int) -> dict[str, Any]:
    """Against the baseline on the same threads, interleaved, median of five; in milliseconds."""
    ways: dict[str, Any] = {"baseline": lambda: baseline_epoch_seconds(rows, 2)[1]}
    for models in (1, 5):
        for precision in ("float32", "bf16") if has_bf16(DEVICE) else ("float32",):
            method, task = RobustPll(epochs=2, precision=precision), random_task(models, rows)
            ways[f"M = {models}, {precision}"] = lambda m=method, t=task: (
                epoch_seconds(m, t) / t.models
            )
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, run in ways.items():
            taken[name].append(1000 * run())
    medians = {name: statistics.median(each) for name, each in taken.items()}
    ratios = {name: medians["baseline"] / ms for name, ms in medians.items()}
    print("CPU, times the baseline:", {name: f"{ratio:.2f}" for name, ratio in ratios.items()})
    return {"ms": medians, "times_baseline": ratios, "threads": torch.get_num_threads()}


ON_CUDA = {
    "models": part_models,
    "kernels": part_kernels,
    "flight": part_flight,
    "streaming": part_streaming,
    "memory": part_memory,
    "growth": part_growth,
    "pictures": part_pictures,
}
PARTS = ON_CUDA if CUDA else {"cpu": part_cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--rows", type=int, default=60_000 if CUDA else 6_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/training_speed.json"))
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "machine": device_name(DEVICE),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "rows": asked.rows,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for part in asked.parts:
        report[part] = PARTS[part](asked.rows)
        asked.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
