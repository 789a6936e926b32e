"""The share of rows of each class that are recognized, from the predictions in a store.

robustpll bench run sound --methods robust_pll,robust_pll_ens --datasets fmnist --store results
robustpll bench run benchmarks/grids/balance.toml --store results
python benchmarks/class_recall.py results sound benchmarks/grids/balance.toml > recall.csv
"""

import sys
from pathlib import Path

import pandas as pd

from robustpll import load_dataset
from robustpll.bench import Grid, ResultStore


def main() -> None:
    store, *grids = sys.argv[1:]
    names = list(load_dataset("fmnist").classes)
    lines = {}
    for name in grids:
        grid = Grid.read(Path(name)) if name.endswith(".toml") else Grid.named(name)
        chosen = [
            run
            for run in grid.runs()
            if run.dataset == "fmnist" and run.method.name in ("robust_pll", "robust_pll_ens")
        ]
        frame = ResultStore(store).frame(chosen, ("part", "condition", "truth", "predicted"))
        frame = frame[(frame["part"] == "test") & (frame["condition"] == "clean")]
        for label, rows in frame.groupby("label"):
            shares = pd.crosstab(rows["truth"], rows["predicted"], normalize="index")
            shares = 100 * shares.set_axis(names).set_axis(names, axis=1)
            recall = {name: round(shares.at[name, name], 1) for name in names}
            worst = min(recall, key=recall.__getitem__)
            others = shares.loc[worst].drop(worst)
            recall["mistaken for"] = f"{others.idxmax()}, {others.max():.0f} %"
            lines[label] = recall
    pd.DataFrame(lines).T.to_csv(sys.stdout, index_label="label")


if __name__ == "__main__":
    main()
