"""Processor time and peak memory of reading a large CSV file, beside pandas.

    python benchmarks/table_speed.py

A million rows of ten numbers, two words and a column of candidate sets of 20 classes. pandas only
parses: it makes no candidates, and finds no bad rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from robustpll.engine.device import chosen_device, device_name

READ = {
    "read_table": "from robustpll import read_table; t = read_table(path, candidates='label')",
    "pandas": "import pandas; t = pandas.read_csv(path)",
}
MEASURE = """
import sys, time
path = sys.argv[1]
import robustpll.tables.read, pandas, pyarrow.csv
begun = time.process_time()
{read}
seconds = time.process_time() - begun
memory = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(len(t), seconds, int(memory) / 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("scratch/table_speed.json"))
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write(path, asked.rows)
        found["megabytes of CSV"] = round(path.stat().st_size / 1e6)
        for name, read in READ.items():
            code = [sys.executable, "-c", MEASURE.format(read=read), str(path)]
            done = subprocess.run(code, check=True, capture_output=True, text=True)
            rows, seconds, memory = map(float, done.stdout.split())
            assert rows == asked.rows
            found[name] = {"processor seconds": round(seconds, 1), "peak MB": round(memory)}
    report = {
        "machine": device_name(chosen_device("cpu")),
        "date": datetime.now(UTC).date().isoformat(),
        "rows": asked.rows,
        **found,
    }
    print(json.dumps(report, indent=1))
    asked.out.write_text(json.dumps(report, indent=1) + "\n")


def write(path: Path, rows: int) -> None:
    import pandas as pd

    generator = np.random.default_rng(0)
    names = np.array([f"class {number:02}" for number in range(20)])
    sets = np.array(["|".join(names[generator.permutation(20)[: 1 + i % 4]]) for i in range(5_000)])
    columns = {f"x{number}": generator.normal(size=rows).round(6) for number in range(10)}
    columns |= {"colour": generator.choice(["red", "green", "blue"], rows)}
    columns |= {"town": generator.choice([f"town {number}" for number in range(50)], rows)}
    columns |= {"label": generator.choice(sets, rows)}
    pd.DataFrame(columns).to_csv(path, index=False)


if __name__ == "__main__":
    main()
