"""Time and memory of training on a Parquet file in windows, and on rows in memory.

    python benchmarks/streaming.py [--rows 20000000] [--part 1000000] [--epochs 1]

Makes a Parquet file of 50 features and 10 classes in a scratch folder (4 GB for 20 million rows),
and removes it in the end. Each training is a process of its own. Trainings of a part of the rows
alternate, in memory and streamed, before and after that of all rows. Prints microseconds of CPU
time per row and epoch, because other programs may share the cores, and the peak of memory.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import begin

FEATURES, CLASSES, CHUNK = 50, 10, 2**18


def write(path: Path, rows: int) -> None:
    """Write rows of a random teacher; each wrong class is a candidate with probability 0.2."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    teacher = random.normal(size=(FEATURES, CLASSES)).astype(np.float32)
    names = [f"x{number}" for number in range(FEATURES)]
    schema = pa.schema([(name, pa.float32()) for name in names] + [("c", pa.list_(pa.int8()))])
    options: Any = {"compression": "none", "use_dictionary": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for start in range(0, rows, CHUNK):
            size = min(CHUNK, rows - start)
            X = random.standard_normal((size, FEATURES), dtype=np.float32)
            label = (X @ teacher + random.gumbel(size=(size, CLASSES))).argmax(1)
            matrix = random.random((size, CLASSES)) < 0.2
            matrix[np.arange(size), label] = True
            offsets = np.append(0, matrix.sum(1).cumsum())
            lists = pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(matrix.nonzero()[1], pa.int8())
            )
            writer.write_batch(pa.record_batch([*map(pa.array, X.T.copy()), lists], schema=schema))


def train(kind: str, path: Path, epochs: int) -> dict[str, Any]:
    """Train in this process, "streamed" or in "memory"; return times and the peak of memory."""
    from robustpll import ParquetRows, PLLClassifier
    from robustpll.engine.history import reporting
    from robustpll.methods import RobustPll

    rows = ParquetRows(path, candidates="c", scratch=path.parent)
    model = PLLClassifier(RobustPll(epochs=epochs), random_state=0, device="cpu")
    data: tuple[Any, ...] = (rows,)
    if kind == "memory":
        frame, y = rows.read()
        data = (frame.to_numpy(), y)
        del frame
    next(rows.pieces())  # imports what reads files
    wall, times = time.perf_counter(), [time.process_time()]
    clock = SimpleNamespace(on_epoch_end=lambda _: times.append(time.process_time()))
    with reporting(clock):
        model.fit(*data)
    times.append(time.process_time())
    n = len(model.labels_)
    result = {"rows": n, "wall_seconds": time.perf_counter() - wall}
    result["microseconds"] = 1e6 * (times[-1] - times[0]) / (n * epochs)
    if epochs > 1:  # without the first epoch, which includes the preparation
        result["microseconds_later"] = 1e6 * (times[-2] - times[1]) / (n * (epochs - 1))
    if kind == "streamed":
        model.save(path.with_suffix(".pll"))
    return result | {"loss": model.history_["loss"].tolist()}


def predict(path: Path) -> dict[str, Any]:
    """Predict all rows to a Parquet file."""
    from robustpll import ParquetRows, load

    model, begun = load(path.with_suffix(".pll")), time.process_time()
    count = ParquetRows(path).write_predictions(model, path.with_suffix(".answers.parquet"))
    return {"rows": count, "microseconds": 1e6 * (time.process_time() - begun) / count}


def measured(*arguments: Any) -> dict[str, Any]:
    """Run a measurement in a process of its own, with two threads."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    variables = os.environ | {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def child(kind: str, path: str, epochs: str) -> None:
    result = predict(Path(path)) if kind == "predict" else train(kind, Path(path), int(epochs))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux
    result |= {"load": os.getloadavg()[0], "peak_gb": peak / 1e9}
    rounded = {n: round(v, 3) if isinstance(v, float) else v for n, v in result.items()}
    print(json.dumps(rounded))


def main() -> None:
    args, report = begin(__doc__, rows=20_000_000, part=1_000_000, epochs=1)
    with tempfile.TemporaryDirectory(dir=args.out.parent.resolve()) as name:
        needed, free = args.rows * FEATURES * 12, shutil.disk_usage(name).free
        if needed > free:
            raise SystemExit(f"{needed / 1e9:.0f} GB of disk are needed, {free / 1e9:.0f} are free")
        whole, part = Path(name, "whole.parquet"), Path(name, "part.parquet")
        write(part, args.part)
        write(whole, args.rows)
        for number in range(2):
            report.add(f"memory {number}", measured("memory", part, args.epochs))
            report.add(f"streamed {number}", measured("streamed", part, args.epochs))
            if not number:
                report.add("all rows", measured("streamed", whole, args.epochs))
        report.add("prediction", measured("predict", whole, 0))
    runs = report["sets"]

    def mean(kind: str) -> float:
        return float(np.mean([runs[f"{kind} {number}"]["microseconds"] for number in range(2)]))

    report["ratio_same_rows"] = round(mean("streamed") / mean("memory"), 3)
    report["ratio_all_rows"] = round(runs["all rows"]["microseconds"] / mean("memory"), 3)
    report.save()
    print(report["ratio_same_rows"], report["ratio_all_rows"])


if __name__ == "__main__":
    child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
