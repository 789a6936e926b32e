"""Milliseconds per model and epoch of this code and of an older one, in turn on the same machine.

    git worktree add ../old 9bd4282
    python benchmarks/speed_ratio.py --old ../old/src

As part "models" of training_speed.py: RobustPll on random data of 60,000 x 784 with 10 classes,
compiled, for one network and for a hundred. Each side is a process, which compiles before the
first round and waits while the other one is measured.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

MODELS, EPOCHS, ROUNDS = (1, 100), 12, 3
HERE = Path(__file__).resolve()


def measure(rows: int) -> None:
    """For each line of the input, print milliseconds of the package that Python finds."""
    from training_speed import engine_ms, random_task

    tasks = {models: random_task(models, rows) for models in MODELS}
    for task in tasks.values():
        engine_ms(3, task, captured=True, compiled=True)
    print("ready", flush=True)
    for _ in sys.stdin:
        ms = {n: engine_ms(EPOCHS, task, captured=True, compiled=True) for n, task in tasks.items()}
        print(json.dumps(ms), flush=True)


def started(source: Path, rows: int) -> "subprocess.Popen[str]":
    """Start a process that measures the package in the folder `source`."""
    path = os.pathsep.join([str(source.resolve()), str(HERE.parent)])
    command = [sys.executable, str(HERE), "--measure", str(rows)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **pipes)


def answer(process: "subprocess.Popen[str]") -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise SystemExit(f"A measuring process ended with exit status {process.wait()}.")
    return line


def main() -> None:
    from common import begin

    args, report = begin(__doc__ or "", old="", rows=60_000)
    sources = {"old": Path(args.old), "new": HERE.parents[1] / "src"}
    sides = {side: started(source, args.rows) for side, source in sources.items()}
    for process in sides.values():
        assert answer(process) == "ready\n"
    ms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(ROUNDS):
        for side, process in sides.items():
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
            for models, value in json.loads(answer(process)).items():
                ms[models][side].append(value)
    for process in sides.values():
        process.communicate()
    report["models"] = {
        models: by_side | {"ratio": min(by_side["new"]) / min(by_side["old"])}
        for models, by_side in ms.items()
    }
    print(report["models"], flush=True)
    report.save()


if __name__ == "__main__":
    measure(int(sys.argv[2])) if sys.argv[1:2] == ["--measure"] else main()
