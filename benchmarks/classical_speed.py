"""Seconds, growth and memory of the methods without a training loop, beside plain code.

    taskset -c 0,1 python benchmarks/classical_speed.py --kept scratch/candidates-mnist.npz
    python benchmarks/classical_speed.py --parts pl_ecoc --sets bird-song

MNIST with all 60,000 training rows of 784 features, and bird-song. All methods are as published,
but DstPll compares pictures without an auto-encoder. MNIST's candidates are instance-dependent:
those of `--kept`, or drawn by a teacher of two epochs. PlEcoc is measured on random candidates
too, where a wrong class is one with probability 0.5: its machines then have harder problems.

What it is compared with is in `classical_by_hand.py`. Plain code would take long, so it runs on
some rows, steps or machines, and its seconds are multiplied accordingly; the report has both
numbers. Plain code asks scikit-learn for neighbours in two ways, and there is a ratio for each: for
those of all rows by one call, and row by row. Both sides take turns, on the same cores and with
scaled rows, and must agree in what they find. Processor time is there as well: on a machine with
other work it says more than the clock, and growth is fitted to it. Each method runs in a process of
its own, whose peak of resident memory is that of the first fit and prediction.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
import torch
from classical_by_hand import HANDS, Clock, Found, chosen_machines, some_of, svms
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import load_dataset
from robustpll.datasets.noise import InstanceDependent
from robustpll.datasets.problem import pool_of
from robustpll.engine.data import Rows
from robustpll.engine.device import computing, device_name
from robustpll.methods.classical import ClassicalMethod, OneRun
from robustpll.methods.dst_pll import DstPll
from robustpll.methods.ipal import Ipal
from robustpll.methods.pl_ecoc import PlEcoc
from robustpll.methods.pl_knn import PlKnn
from robustpll.methods.pl_svm import PlSvm

METHODS: dict[str, ClassicalMethod] = {
    "pl_knn": PlKnn.paper(),
    "pl_svm": PlSvm.paper(),
    "ipal": Ipal.paper(),
    "pl_ecoc": PlEcoc.paper(),
    "dst_pll": replace(DstPll.paper(), encoder="never"),
}
RANDOM = "mnist, random candidates"
SETS = ("mnist", RANDOM, "bird-song")
WAYS = {  # in which plain code does a part: the usual way, and another
    "neighbours": ("neighbours of all rows by one call", "neighbours row by row"),
    "machines": ("LinearSVC to the optimum", "LinearSVC with its usual tolerance"),
}
CPU = torch.device("cpu")
MOST_TURNS, LONG_ENOUGH = 5, 15  # turns, and seconds after which none begins


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--rows", type=int, default=60_000, help="of MNIST, for a trial")
    parser.add_argument("--kept", type=Path, help="packed candidates of MNIST")
    parser.add_argument("--out", type=Path, default=Path("scratch/classical-speed.json"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # in a process of its own
    asked = parser.parse_args()
    if asked.one:
        with computing("float32", CPU):
            print(json.dumps(measured(asked.one[1], Case.of(asked.one[0], asked.rows, asked.kept))))
        return
    report: dict[str, Any] = {
        "command": f"classical_speed.py {' '.join(sys.argv[1:])}",
        "machine": device_name(CPU),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "scipy": scipy.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "sets": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        kept = asked.kept or Path(folder) / "candidates.npz"
        for name in asked.sets:
            parts = [part for part in asked.parts if name != RANDOM or part == "pl_ecoc"]
            for part in parts:
                found = in_a_process(name, part, asked.rows, kept)
                report["sets"].setdefault(name, {})[part] = found
                print(f"{METHODS[part].title} on {name}: measured", flush=True)
    show(report)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


def in_a_process(name: str, part: str, rows: int, kept: Path) -> dict[str, Any]:
    code = [sys.executable, __file__, "--one", name, part, "--rows", str(rows), "--kept", str(kept)]
    # Threads that spin while they wait would slow the other side down.
    waiting = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(code, check=True, stdout=subprocess.PIPE, text=True, env=waiting)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(report: dict[str, Any]) -> None:
    print("set, method: seconds | of plain code | times as fast (by processor time)")
    for name, parts in report["sets"].items():
        for part, found in parts.items():
            memory = found["memory"]
            print(
                f"{name}, {METHODS[part].title}: a fit grows as n^{found['growth']['exponent']:.2f}"
                f", {memory['peak_mb']} MB at the peak, {memory['base_mb']} before"
            )
            for what in ("fit", "predict"):
                for way, each in ways(found[what]).items():
                    print(
                        f"    {what:7} {each['seconds']:9.4f} | {each['by_hand_seconds']:9.3f} | "
                        f"{each['times_as_fast']:7.2f} ({each['processor_ratio']:.2f})  {way}"
                    )
            print(f"    {json.dumps(found['agreement'])}")


def ways(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a fit or prediction is compared with, by the way in which plain code does it."""
    return {found["way"]: found} | found["otherwise"]


@dataclass(frozen=True)
class Case:
    """Rows of one run, to learn from and to predict, and candidates (n, k)."""

    rows: Rows
    test: Rows
    candidates: Tensor

    @classmethod
    def of(cls, name: str, most: int, kept: Path) -> "Case":
        dataset = load_dataset(name.split(",", maxsplit=1)[0])
        assert dataset.labels is not None
        pool, split = pool_of(dataset, CPU), dataset.split(0)
        train, test = (torch.tensor(at)[None] for at in (split.train[:most], split.test))
        rows = Rows.of(pool, train)
        if dataset.candidates is not None:
            candidates = torch.tensor(dataset.candidates.matrix)[train[0]]
        else:
            labels = torch.tensor(dataset.labels)[train[0]]
            candidates = random(labels) if name == RANDOM else dependent(rows, labels, kept)
        return cls(rows, rows.others(pool, test), candidates)

    def first(self, n: int) -> "Case":
        rows = replace(self.rows, at=self.rows.at[:, :n])
        return replace(self, rows=rows, candidates=self.candidates[:n])


def random(labels: Tensor) -> Tensor:
    chance = torch.rand(len(labels), 10, generator=torch.Generator().manual_seed(0))
    return one_hot(labels, 10).bool() | (chance < 0.5)


def dependent(rows: Rows, labels: Tensor, kept: Path) -> Tensor:
    """From the file, whose first run must be of these rows; else drawn, and kept there."""
    n = len(labels)
    if not kept.exists():
        drawn = InstanceDependent(epochs=2).candidates(rows, labels[None], 10, (0,))
        np.savez(kept, bits=np.packbits(drawn.numpy()))
    bits = np.unpackbits(np.load(kept)["bits"], count=10 * n)
    candidates = torch.from_numpy(bits.reshape(n, 10).astype(bool))
    assert candidates.gather(1, labels[:, None]).all()
    return candidates


def ours(method: ClassicalMethod, case: Case, fit: Clock, predict: Clock) -> Found:
    """What fit and predict do with scaled rows, and what is in between."""
    x, test = scaled(case.rows), scaled(case.test)
    prior = case.candidates.double() / case.candidates.sum(1, keepdim=True)

    def fitted() -> tuple[Any, ...]:
        around = method.precompute(x)
        run = OneRun(x, around, case.candidates, prior, 0)
        return around, *method.fit_run(run)

    around, learned, opinion = fit.time("all", 1, 1, fitted)
    other = predict.time(
        "all", 1, 1, lambda: method.predict_run(learned, test, method.precompute(test, learned))
    )
    return Found(
        x.numpy(),
        case.candidates.numpy(),
        test.numpy(),
        {name: value.numpy() for name, value in around.items()},
        {name: value.numpy() for name, value in learned.items()},
        opinion.probability.numpy(),
        other.probability.numpy(),
    )


def scaled(rows: Rows) -> Tensor:
    return rows.x(rows.everything)[0].double().flatten(1)


def peak_mb() -> int:
    """Most resident memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def measured(part: str, case: Case) -> dict[str, Any]:
    """One method on one set: both sides in turns, growth and memory."""
    method = METHODS[part]
    ours(method, case.first(2000), Clock(), Clock())  # what is compiled or started once
    memory = {"base_mb": peak_mb()}
    mine, hands, others = ({"fit": [], "predict": []} for _ in range(3))
    begun = time.perf_counter()
    while len(mine["fit"]) < MOST_TURNS and time.perf_counter() - begun < LONG_ENOUGH:
        for side in (mine, hands):
            for clocks in side.values():
                clocks.append(Clock())
        found = ours(method, case, mine["fit"][-1], mine["predict"][-1])
        memory.setdefault("peak_mb", peak_mb())  # of the first turn: plain code takes memory too
        agreement = HANDS[part](found, hands["fit"][-1], hands["predict"][-1])
        for what, clocks in others.items():
            clocks.append(otherwise(found, hands[what][-1], what))
    about = {
        "method": repr(method),
        "rows": len(case.rows),
        "test_rows": len(case.test),
        "candidates": round(float(case.candidates.sum(1).double().mean()), 3),
        "turns": len(mine["fit"]),
        "memory": memory,
        "agreement": agreement,
    }
    for what in ("fit", "predict"):
        usual, other = WAYS.get(next(iter(set(WAYS) & set(hands[what][-1].parts)), ""), ("", ""))
        about[what] = {"way": usual} | compared(mine[what], hands[what]) | {"otherwise": {}}
        if other:
            about[what]["otherwise"][other] = compared(mine[what], others[what])
    about["growth"] = growth(method, case, about["fit"]["processor"])
    return about


def compared(mine: list[Clock], hands: list[Clock]) -> dict[str, Any]:
    """Medians over the turns, and of the ratio of each turn."""
    found: dict[str, Any] = {}
    for kind, ratio in (("seconds", "times_as_fast"), ("processor", "processor_ratio")):
        own, other = ([clock.total(kind) for clock in side] for side in (mine, hands))
        found[kind] = round(statistics.median(own), 4)
        found[f"by_hand_{kind}"] = round(statistics.median(other), 3)
        ratios = [theirs / ours for ours, theirs in zip(own, other, strict=True)]
        found[ratio] = round(statistics.median(ratios), 2)
    return found | {"by_hand_parts": hands[-1].parts}


def otherwise(found: Found, hand: Clock, what: str) -> Clock:
    """Of plain code that does one of its parts in another way."""
    clock = Clock(dict(hand.parts))
    if "machines" in hand.parts:
        some, sides = chosen_machines(found)
        of = len(found.learned["codes"])
        clock.time("machines", len(some), of, lambda: svms(found.x, sides, max_iter=10_000))
    if "neighbours" in hand.parts:
        asked = found.x if what == "fit" else found.test_x
        some = some_of(len(asked), min(500, 2**30 // found.x.size))
        search = NearestNeighbors(n_neighbors=11).fit(found.x)
        one_by_one = lambda: [search.kneighbors(asked[[place]]) for place in some]  # noqa: E731
        clock.time("neighbours", len(some), len(asked), one_by_one)
    return clock


def growth(method: ClassicalMethod, case: Case, whole: float) -> dict[str, Any]:
    """Processor seconds of a fit at four sizes, and the exponent e of n^e that fits them best."""
    n = len(case.rows)
    sizes = [n // 8, n // 4, n // 2, n]
    seconds = []
    for size in sizes[:-1]:
        clocks = [Clock() for _ in range(1 if whole > 3 else 3)]
        for clock in clocks:
            ours(method, case.first(size), clock, Clock())
        seconds.append(statistics.median(clock.total("processor") for clock in clocks))
    seconds.append(whole)
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    return {
        "rows": sizes,
        "processor": [round(each, 4) for each in seconds],
        "exponent": round(float(exponent), 2),
    }


if __name__ == "__main__":
    main()
