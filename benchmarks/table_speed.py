"""Processor time and peak memory of reading a large CSV file, beside pandas, which only parses.

    python benchmarks/table_speed.py

A million rows of ten numbers, two words and a column of candidate sets of 20 classes.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import begin

READ = {
    "read_table": "from robustpll import read_table; t = read_table(path, candidates='label')",
    "pandas": "import pandas; t = pandas.read_csv(path)",
}
MEASURE = """
import sys, time
import robustpll.tables.read, pandas, pyarrow.csv
path, begun = sys.argv[1], time.process_time()
{read}
seconds = time.process_time() - begun
memory = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(len(t), seconds, int(memory) / 1e3)
"""


def main() -> None:
    args, report = begin(__doc__, rows=1_000_000)
    random = np.random.default_rng(0)
    names = np.array([f"class {number:02}" for number in range(20)])
    sets = ["|".join(names[random.permutation(20)[: 1 + i % 4]]) for i in range(5_000)]
    columns = {f"x{number}": random.normal(size=args.rows).round(6) for number in range(10)}
    columns["colour"] = random.choice(["red", "green", "blue"], args.rows)
    columns["town"] = random.choice([f"town {number}" for number in range(50)], args.rows)
    columns["label"] = random.choice(sets, args.rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
        report["megabytes of CSV"] = round(path.stat().st_size / 1e6)
        for name, read in READ.items():
            command = [sys.executable, "-c", MEASURE.format(read=read), str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows, seconds, memory = map(float, done.stdout.split())
            assert rows == args.rows
            report.add(name, {"seconds": round(seconds, 1), "peak MB": round(memory)})


if __name__ == "__main__":
    main()
