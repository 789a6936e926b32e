"""Seconds, growth and memory of the methods without a training loop, beside plain code for the same.

    taskset -c 0,1 python benchmarks/classical_speed.py --kept scratch/candidates-mnist.npz
    python benchmarks/classical_speed.py --parts pl_ecoc --sets bird-song

MNIST with all 60,000 training rows of 784 features, and bird-song. All methods are as published,
but DstPll compares pictures without an auto-encoder. MNIST's candidates are instance-dependent:
those of `--kept`, or drawn by a teacher of two epochs. PlEcoc is measured on random candidates
too, where a wrong class is one with probability 0.5: its machines then have harder problems.

What it is compared with is in `classical_by_hand.py`. Plain code would take long, so it runs on
some rows, steps or machines, and its seconds are multiplied accordingly; the report has both
numbers. Neighbours are asked for by one call for all rows; beside that it says what asking row by
row would cost. Both sides take turns, on the same number of cores, and must agree in what they
find. Each method runs in a process of its own, whose peak of resident memory is that of the first
fit and prediction.
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
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import classical_by_hand as by_hand
import numpy as np
import scipy
import sklearn
import torch
from classical_by_hand import Clock
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import load_dataset
from robustpll.data.noise import InstanceDependent
from robustpll.data.problem import pool_of
from robustpll.engine.device import computing, device_name
from robustpll.engine.rows import Rows
from robustpll.methods.classical import Around, ClassicalMethod, Learned, OneRun
from robustpll.methods.dst_pll import DstPll
from robustpll.methods.ipal import Ipal
from robustpll.methods.pl_ecoc import PlEcoc, one_sided
from robustpll.methods.pl_knn import PlKnn
from robustpll.methods.pl_svm import PlSvm, compiled_steps, plain_steps

METHODS: dict[str, ClassicalMethod] = {
    "pl_knn": PlKnn.paper(),
    "pl_svm": PlSvm.paper(),
    "ipal": Ipal.paper(),
    "pl_ecoc": PlEcoc.paper(),
    "dst_pll": replace(DstPll.paper(), encoder="never"),
}
RANDOM = "mnist, random candidates"
SETS = ("mnist", RANDOM, "bird-song")
CPU = torch.device("cpu")
SOME, SOME_TESTED = 2000, 1000  # rows of plain code, at most
STEPS, MACHINES = 20_000, 8  # of plain PlSvm and PlEcoc
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
                show(name, part, found)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


def in_a_process(name: str, part: str, rows: int, kept: Path) -> dict[str, Any]:
    code = [sys.executable, __file__, "--one", name, part, "--rows", str(rows), "--kept", str(kept)]
    # Threads that spin while they wait would slow the other side down.
    waiting = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(code, check=True, stdout=subprocess.PIPE, text=True, env=waiting)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(name: str, part: str, found: dict[str, Any]) -> None:
    print(f"{METHODS[part].title} on {name}, {found['rows']:,} rows")
    for what in ("fit", "predict"):
        each = found[what]
        others = "".join(
            f"; {other}: {seconds:.2f} s, {seconds / each['seconds']:.1f} times as long"
            for other, seconds in each["otherwise"].items()
        )
        print(
            f"  {what}: {each['seconds']:.3f} s, by hand {each['by_hand_seconds']:.2f} s: "
            f"{each['times_as_fast']:.2f} times as fast{others}"
        )
    growth, memory = found["growth"], found["memory"]
    each = ", ".join(f"{s:.2f} s" for s in growth["seconds"])
    print(f"  growth: n^{growth['exponent']:.2f} ({each} for {growth['rows']} rows)")
    print(f"  memory: {memory['peak_mb']} MB, of which {memory['base_mb']} before the fit")
    print(f"  agreement: {found['agreement']}", flush=True)


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

    def some(self, rows: Rows, most: int) -> np.ndarray:
        """Places of the rows that plain code is given, evenly spread."""
        return np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)


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


def ours(method: ClassicalMethod, case: Case) -> Found:
    """What fit and predict do, with what is in between."""
    begun = time.perf_counter()
    x = scaled(case.rows)
    around = method.around(x)
    prior = case.candidates.double() / case.candidates.sum(1, keepdim=True)
    run = OneRun(x, around, case.candidates, prior, case.rows.shape, 0)
    learned, opinion = method.learn(run)
    fitted = time.perf_counter()
    test = scaled(case.test)
    predicted = method.judge(learned, test, method.around(test, learned)).probability
    ended = time.perf_counter()
    arrays = (x.numpy(), around, learned, opinion.probability.numpy())
    return Found(*arrays, test.numpy(), predicted.numpy(), fitted - begun, ended - fitted)


def scaled(rows: Rows) -> Tensor:
    return rows.x(rows.everything)[0].double().flatten(1)


def peak_mb() -> int:
    """Most resident memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


def measured(part: str, case: Case) -> dict[str, Any]:
    """One method on one set: both sides in turns, growth and memory."""
    method = METHODS[part]
    ours(method, case.first(500))  # what is compiled or started once
    base, begun = peak_mb(), time.perf_counter()
    turns: list[tuple[Found, Clock, Clock]] = []
    while len(turns) < MOST_TURNS and time.perf_counter() - begun < LONG_ENOUGH:
        found = ours(method, case)
        peak = max(base, peak_mb()) if not turns else peak
        fit, predict = Clock(), Clock()
        agreement = HANDS[part](case, found, fit, predict)
        turns.append((found, fit, predict))
    about = {
        "method": repr(method),
        "rows": len(case.rows),
        "test_rows": len(case.test),
        "candidates": round(float(case.candidates.sum(1).double().mean()), 3),
        "turns": len(turns),
        "memory": {"base_mb": base, "peak_mb": peak},
        "agreement": agreement,
    }
    for what, side in (("fit", 1), ("predict", 2)):
        mine = [getattr(turn[0], f"{what}_seconds") for turn in turns]
        hands = [turn[side] for turn in turns]
        ratios = [hand.seconds / own for own, hand in zip(mine, hands, strict=True)]
        about[what] = {
            "seconds": round(statistics.median(mine), 4),
            "by_hand_seconds": round(statistics.median(hand.seconds for hand in hands), 3),
            "times_as_fast": round(statistics.median(ratios), 2),
            "by_hand_parts": hands[-1].parts,
            "otherwise": otherwise(part, case, turns[-1][0], hands[-1], what),
        }
    about["growth"] = growth(method, case, about["fit"]["seconds"])
    return about


def otherwise(part: str, case: Case, found: Found, hand: Clock, what: str) -> dict[str, float]:
    """Seconds of plain code that does one thing in another way."""
    if part == "pl_ecoc" and what == "fit":
        some, sides = chosen_machines(case, found)
        usual = Clock()
        count = len(found.learned["codes"])
        usual.time("machines", len(some), count, lambda: by_hand.svms(found.x, sides))
        rest = hand.seconds - hand.parts["machines"]["seconds"] * count / len(some)
        return {"with LinearSVC's tolerance": round(rest + usual.seconds, 3)}
    if "neighbours" not in hand.parts:
        return {}
    asked = found.x if what == "fit" else found.test_x
    places = case.some(case.rows if what == "fit" else case.test, 20)
    search = NearestNeighbors(n_neighbors=11).fit(found.x)
    alone, together = Clock(), hand.parts["neighbours"]
    alone.time(
        "rows", len(places), len(asked), lambda: [search.kneighbors(asked[[p]]) for p in places]
    )
    rest = hand.seconds - together["seconds"] * together["of"] / together["done"]
    return {"neighbours row by row": round(rest + alone.seconds, 2)}


def growth(method: ClassicalMethod, case: Case, whole: float) -> dict[str, Any]:
    """Seconds of a fit at four sizes, and the exponent e of n^e that fits them best."""
    n = len(case.rows)
    sizes = [n // 8, n // 4, n // 2, n]
    seconds = []
    for size in sizes[:-1]:
        part = case.first(size)
        turns = 1 if whole > 3 else 3
        seconds.append(min(ours(method, part).fit_seconds for _ in range(turns)))
    seconds.append(whole)
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    return {
        "rows": sizes,
        "seconds": [round(each, 4) for each in seconds],
        "exponent": round(float(exponent), 3),
    }


if __name__ == "__main__":
    main()
