"""Seconds of the methods without a training loop, beside the customary way to compute the same.

    python benchmarks/classical_speed.py                                  # all parts, 60,000 rows
    python benchmarks/classical_speed.py --parts pl_svm --rows 10000      # one of them, quick

MNIST with 784 features and 10 classes; each wrong class is a candidate with probability 0.5. What
is compiled or started once is run once before it is timed.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.svm import LinearSVC
from torch.nn.functional import one_hot

from robustpll import load_dataset
from robustpll.data.problem import pool_of
from robustpll.engine.device import chosen_device, computing, device_name
from robustpll.engine.rows import Rows
from robustpll.methods.classical import ClassicalMethod, OneRun
from robustpll.methods.pl_ecoc import PlEcoc, one_sided
from robustpll.methods.pl_svm import PlSvm, compiled_steps, plain_steps

DEVICE = chosen_device("auto")
PLAIN_STEPS = 20_000  # of PlSvm in plain numpy: all of them would take too long
MACHINES = 8  # that are trained one by one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    run = mnist(asked.rows)
    report = {
        "rows": asked.rows,
        "machine": device_name(DEVICE),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    with computing("float32", DEVICE):
        for part in asked.parts:
            report[part] = PARTS[part](run)
            print(part, json.dumps(report[part], indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2) + "\n")


def mnist(rows: int) -> OneRun:
    dataset = load_dataset("mnist")
    assert dataset.labels is not None
    pool = pool_of(dataset, DEVICE)
    scaled = Rows.of(pool, torch.arange(rows, device=DEVICE)[None])
    x = scaled.x(scaled.everything)[0].double().flatten(1)
    chance = torch.rand(rows, 10, generator=torch.Generator().manual_seed(0))
    true = one_hot(torch.tensor(dataset.labels[:rows]), 10).bool()
    candidates = (true | (chance < 0.5)).to(DEVICE)
    return OneRun(x, candidates, candidates / candidates.sum(-1, keepdim=True), (784,), 0)


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = run()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return round(time.perf_counter() - begun, 3), result


def small(run: OneRun) -> OneRun:
    """The first rows, to start with."""
    first = slice(0, 500)
    return replace(
        run,
        x=run.x[first],
        candidates=run.candidates[first],
        prior=run.prior[first],
    )


def learning(method: ClassicalMethod, run: OneRun) -> tuple[float, Any]:
    method.learn(small(run))
    return seconds(lambda: method.learn(run))


def pl_svm(run: OneRun) -> dict[str, Any]:
    """All steps compiled, and some in plain numpy."""
    took, _ = learning(PlSvm(), run)
    steps = max(100_000, 10 * len(run.x))
    order = np.random.default_rng(0).integers(len(run.x), size=PLAIN_STEPS)
    x, candidates = run.x.cpu().numpy(), run.candidates.cpu().numpy()
    plain, _ = seconds(lambda: plain_steps(x, candidates, order, 1.0))
    return {
        "steps": steps,
        "compiled": compiled_steps() is not None,
        "seconds": took,
        "seconds_in_plain_numpy": round(plain * steps / PLAIN_STEPS, 1),
    }


def pl_ecoc(run: OneRun) -> dict[str, Any]:
    """All machines together, and some of them one by one with LinearSVC on the host."""
    took, (learned, _) = learning(PlEcoc(), run)
    positive, negative = one_sided(run.candidates, learned["codes"])
    sides = (positive.int() - negative.int()).cpu().numpy()  # (n, L)
    decisions = run.x @ learned["weights"][:-1] + learned["weights"][-1]
    x, count = run.x.cpu().numpy(), sides.shape[1]
    found: dict[str, Any] = {
        "machines": count,
        "rows_of_each": round(float((sides != 0).sum(0).mean())),
        "seconds": took,
    }
    some = np.linspace(0, count - 1, min(MACHINES, count)).astype(int)
    for tolerance in (1e-4, 1e-8):
        total, off = 0.0, 0.0
        for machine in some:
            own = sides[:, machine] != 0
            rows, labels = x[own], sides[own, machine]
            svc = LinearSVC(tol=tolerance, max_iter=100_000, dual="auto", random_state=0)
            one, _ = seconds(lambda svc=svc, rows=rows, labels=labels: svc.fit(rows, labels))
            total += one * count / len(some)
            apart = svc.decision_function(rows) - decisions[own, machine].cpu().numpy()
            off = max(off, float(np.abs(apart).max()))
        found[f"LinearSVC, tolerance {tolerance}"] = {
            "seconds": round(total, 2),
            "times_as_long": round(total / took, 2),
            "decision_values_apart": off,
        }
    return found


PARTS: dict[str, Callable[[OneRun], dict[str, Any]]] = {"pl_svm": pl_svm, "pl_ecoc": pl_ecoc}


if __name__ == "__main__":
    main()
