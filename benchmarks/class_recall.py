"""How many rows of each class are recognised, from the predictions that a store holds.

    robustpll bench run sound --methods robust_pll,robust_pll_ens --datasets fmnist --store results
    robustpll bench run benchmarks/grids/balance.toml --store results
    python benchmarks/class_recall.py --store results --grids sound benchmarks/grids/balance.toml

A line for each method of the grids, and the class that most of the worst one's rows are taken for.
"""

import argparse
from pathlib import Path

import pandas as pd

from robustpll import load_dataset
from robustpll.bench import Grid, ResultStore


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--grids", nargs="+", required=True)
    parser.add_argument("--dataset", default="fmnist")
    parser.add_argument("--methods", nargs="+", default=["robust_pll", "robust_pll_ens"])
    parser.add_argument("--out", type=Path, default=Path("scratch/class-recall.csv"))
    asked = parser.parse_args()
    names = dict(enumerate(load_dataset(asked.dataset).classes))
    store, found = ResultStore(asked.store), {}
    for each in asked.grids:
        grid = Grid.read(Path(each)) if each.endswith(".toml") else Grid.named(each)
        chosen = [
            run
            for run in grid.runs()
            if run.dataset == asked.dataset and run.method.name in asked.methods
        ]
        frame = store.frame(chosen, ("part", "condition", "truth", "predicted"))
        frame = frame[(frame["part"] == "test") & (frame["condition"] == "clean")]
        for label, own in frame.groupby("label"):
            found[label] = recalls(own, names)
    lines = pd.DataFrame(found).T
    lines.to_csv(asked.out, index_label="label", float_format="%.1f")
    print(lines.to_string())


def recalls(predictions: pd.DataFrame, names: dict[int, str]) -> pd.Series:
    """In percent; "mistaken for" tells of the class with the lowest."""
    shares = 100 * pd.crosstab(predictions["truth"], predictions["predicted"], normalize="index")
    right = pd.Series({name: shares.at[at, at] for at, name in names.items()}).round(1)
    at = next(at for at, name in names.items() if name == right.idxmin())
    others = shares.loc[at].drop(at)
    mistaken = f"{names[others.idxmax()]}, {others.max():.0f} %"
    return pd.concat([right, pd.Series({"mistaken for": mistaken})])


if __name__ == "__main__":
    main()
