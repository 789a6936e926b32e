"""Puts what was tried beyond the paper into docs/beyond.md.

    python benchmarks/beyond_page.py

Tables stand between markers in the page, as `pages.py` has it; all else is written by hand. They
come from the runs of the grids in `grids`, of `adversarial_variants.py` and of the report of the
grid "audit"; one file each, or one for each time a grid was run.
"""

import pandas as pd
from pages import ROOT, rewrite, table

RESULTS, AUDIT = ROOT / "benchmarks" / "results", ROOT / "reports" / "audit"
TITLES = {"clean": "", "audit 0.02": " 0.02", "audit 0.05": " 0.05", "audit 0.1": " 0.1"}


def main() -> None:
    tables = runs_of("choose-tables", "choose-tables-averaged")
    pictures = runs_of("choose-pictures", "choose-pictures-averaged")
    digits = runs_of("beyond-digits")
    audit = pd.read_csv(AUDIT / "runs.csv")
    parts = {
        "tables": accuracies(tables),
        "pictures": with_unknown(pictures),
        "variants": variants(),
        "digits": with_labels(digits),
        "audit": with_labels(audit),
    }
    rewrite(ROOT / "docs" / "beyond.md", parts)


def runs_of(*grids: str) -> pd.DataFrame:
    """Of one grid after the other, each from its newest file."""
    newest = [max(RESULTS.glob(f"{grid}-20*.csv")) for grid in grids]
    return pd.concat([pd.read_csv(path) for path in newest], ignore_index=True)


def means(runs: pd.DataFrame, value: str, columns: pd.Series) -> pd.DataFrame:
    """In percent, a line for each label and a column for each of `columns`, in their order."""
    labels, names = dict.fromkeys(runs["label"]), dict.fromkeys(columns)
    wide = 100 * runs.assign(column=columns).pivot_table(
        index="label", columns="column", values=value
    )
    return wide.reindex(index=list(labels), columns=list(names))


def of_test(runs: pd.DataFrame) -> pd.DataFrame:
    """By dataset and condition, clean ones first."""
    tests = runs[runs["part"] == "test"]
    return means(tests, "accuracy", tests["dataset"] + tests["condition"].map(TITLES))


def accuracies(runs: pd.DataFrame) -> list[str]:
    return lines(of_test(runs))


def with_unknown(runs: pd.DataFrame) -> list[str]:
    """And the AUROC of the entropy for rows of no known class."""
    unknown = runs[runs["part"] == "ood"]
    return lines(
        of_test(runs).join(means(unknown, "auroc", "unknown rows" + unknown["part"].str[:0]))
    )


def with_labels(runs: pd.DataFrame) -> list[str]:
    """And resolved training labels and calibration, for each dataset."""
    train = runs[runs["part"] == "train"]
    clean = runs[(runs["part"] == "test") & (runs["condition"] == "clean")]
    found = of_test(runs)
    for name in dict.fromkeys(runs["dataset"]):
        resolved, known = train[train["dataset"] == name], clean[clean["dataset"] == name]
        found = found.join(means(resolved, "accuracy", resolved["dataset"] + " resolved"))
        found = found.join(means(known, "ece", known["dataset"] + " calibration error"))
    return lines(found)


def variants() -> list[str]:
    (path,) = RESULTS.glob("adversarial-variants-*.csv")
    runs = pd.read_csv(path)
    runs["label"] = runs["variant"] + ", " + runs["adversary"].map("{:g}".format)
    own = {"clean": "", "worst at 0.02": " 0.02", "worst at 0.05": " 0.05"}
    parts = [means(runs, column, runs["dataset"] + title) / 100 for column, title in own.items()]
    joined = pd.concat(parts, axis=1)
    names = dict.fromkeys(runs["dataset"])
    return lines(joined[[name + title for name in names for title in own.values()]])


def lines(found: pd.DataFrame) -> list[str]:
    rows = [
        [str(label), *("" if pd.isna(value) else f"{value:.1f}" for value in row)]
        for label, row in zip(found.index, found.to_numpy(), strict=True)
    ]
    return table(["", *map(str, found.columns)], rows)


if __name__ == "__main__":
    main()
