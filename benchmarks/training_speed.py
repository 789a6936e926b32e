"""Milliseconds per model and epoch, beside the customary way to train one network.

    python benchmarks/training_speed.py                    # all parts that this machine can run
    python benchmarks/training_speed.py --parts models     # one of them

RobustPll on random data of 60,000 x 784 with 10 classes and batches of 256 on CUDA, 6,000 rows on a
CPU. The baseline is the customary code: a DataLoader that shuffles, Adam as constructed, label
weights kept on the host, a step of many small kernels. Both sides run in one go.
"""

import argparse
import json
import platform
import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from robustpll.engine import capture
from robustpll.engine.device import chosen_device
from robustpll.engine.history import reporting
from robustpll.engine.rows import Rows
from robustpll.engine.task import Task
from robustpll.methods import RobustPll
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


def epoch_seconds(method: RobustPll, task: Task) -> list[float]:
    """Seconds of each epoch after the first, in which graphs are recorded."""
    ends: list[float] = []

    def tell(*_: Any) -> None:
        wait()
        ends.append(time.perf_counter())

    with reporting(tell):
        method.fit(task)
    return [later - sooner for sooner, later in zip(ends, ends[1:], strict=False)]


def engine(method: RobustPll, task: Task, *, captured: bool, compiled: bool) -> dict[str, float]:
    """Median milliseconds per model and epoch, and the seconds until the first epoch was done."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(RobustPll, "captured", new=captured))
        stack.enter_context(patch.object(capture, "pays_back", return_value=compiled))
        begun = time.perf_counter()
        seconds = epoch_seconds(method, task)
        whole = time.perf_counter() - begun
    middle = statistics.median(seconds)
    return {
        "ms": 1000 * middle / task.models,
        "set_up_s": whole - middle * method.epochs,
    }


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
        for xb, yb, at in loader:
            xb, yb = xb.to(DEVICE), yb.to(DEVICE)
            evidence = net(xb).relu()
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


def part_models(rows: int) -> dict[str, Any]:
    """How the time for a model falls with the number of models."""
    base = statistics.median(baseline_epoch_seconds(rows, 3)[1:]) * 1000
    print(f"baseline: {base:.0f} ms per epoch")
    method = RobustPll(epochs=6, batch_size=BATCH)
    table = []
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
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
        table.append(row)
        print(
            f"M = {models:3}: "
            + ", ".join(
                f"{way} {row[way]['ms']:.1f} ms ({row[way]['times_baseline']:.0f}x)" for way in ways
            )
            + f"; compiling took {row['compiled']['set_up_s']:.0f} s; {row['tflops']:.1f} TFLOP/s"
        )
    return {"baseline_ms": base, "ceilings": ceilings(), "table": table}


def part_kernels(rows: int) -> dict[str, Any]:
    """Where a step's time goes, for 1 and 100 models."""
    from torch.profiler import ProfilerActivity, profile

    found = {}
    for models in (1, 100):
        task = random_task(models, rows // 10)
        with patch.object(capture, "pays_back", return_value=True):
            RobustPll(epochs=2).fit(task)
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                RobustPll(epochs=4).fit(task)
        events = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)[:14]
        total = sum(e.device_time_total for e in seen.key_averages())
        steps = 4 * (len(task) // BATCH + 1)
        found[str(models)] = {
            "microseconds_per_step": total / steps,
            "kernels_per_step": sum(e.count for e in seen.key_averages()) / steps,
            "share": {e.key[:90]: round(e.device_time_total / total, 3) for e in events},
        }
        print(json.dumps(found[str(models)], indent=1))
    return found


PARTS = {"models": part_models, "kernels": part_kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--rows", type=int, default=60_000 if CUDA else 6_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/training_speed.json"))
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if CUDA else platform.processor(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "rows": asked.rows,
    }
    for part in asked.parts:
        report[part] = PARTS[part](asked.rows)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
