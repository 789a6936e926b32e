"""Three methods with three seeds each: run by a grid, and compared.

python examples/compare_methods.py

The same by commands, into the folder `results`, where a second call finds all runs done:

    robustpll bench run examples/three_methods.toml --store results
    robustpll bench report three_methods --store results --out report
"""

import tempfile
from pathlib import Path

from robustpll.bench import Grid, ResultStore, run_grid, summarize


def main() -> None:
    grid = Grid.read(Path(__file__).with_name("three_methods.toml"))
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStore(folder)
        outcome = run_grid(grid, store, device="cpu", workers=2, quiet=True)
        print(f"{outcome.done} runs done, {outcome.known} known before")
        runs = summarize(store, grid).runs

    accuracy = 100 * runs.set_index("label")["accuracy"]
    print(accuracy.groupby("label", sort=False).agg(["count", "mean", "std"]).round(1))


# Processes are started anew, and read this file: what must run once stands below this line.
if __name__ == "__main__":
    main()
