"""Puts what was found beyond the paper into docs/beyond.md.

    python benchmarks/beyond_page.py

Tables stand between markers in the page, as `pages.py` has it; all else is written by hand. They
come from the reports of the grids "sound", "paper" and "audit", from the runs of the grid "beyond",
of those in `grids` and of `adversarial_variants.py`, and from what `method_speed.py` stored; one
file each, or one for each time a grid was run.
"""

import pandas as pd
from pages import ROOT, only_one, rewrite, table

from robustpll import METHODS
from robustpll.measures.significance import paired_p
from robustpll.methods import FURTHER

RESULTS, REPORTS = ROOT / "benchmarks" / "results", ROOT / "reports"
SMALL, MORE = ("lost", "msrc-v2", "bird-song"), ("fg-net", "italian")
PICTURES = ("mnist", "fmnist", "kmnist", "notmnist")
BALANCED = ("balanced", "unbalanced")
LEVEL = 0.05  # of the paired t-tests
OURS = tuple(each.title for each in FURTHER)
TITLES = {"clean": "", "audit 0.02": " 0.02", "audit 0.05": " 0.05", "audit 0.1": " 0.1"}


def main() -> None:
    own = ("", "-averaged", "-ensembles")
    tables = runs_of(*(f"choose-tables{part}" for part in (*own, "-ceilings")))
    pictures = runs_of(*(f"choose-pictures{part}" for part in (*own, "-short")))
    beyond, audit = runs_of("beyond"), pd.read_csv(REPORTS / "audit" / "runs.csv")
    published = runs_of("audit-paper")
    published = published[~published["key"].isin(audit["key"])]
    named = published.assign(label=published["label"] + ".paper")
    parts = {
        "tables": accuracies(tables),
        "pictures": with_unknown(pictures),
        "variants": variants(),
        "digits": with_labels(runs_of("beyond-digits")),
        "audit": with_labels(audit),
        "audit-paper": with_labels(named),
        "paired": paired(beyond, pd.concat([audit[~audit["label"].isin(OURS)], named])),
        "others": others("sound", beyond),
        "others-paper": others("paper"),
        "plain": plain(beyond),
        "balance": balance(beyond),
        "strengths": strengths(),
    }
    rewrite(ROOT / "docs" / "beyond.md", parts)
    print_quoted(beyond, audit)


def print_quoted(beyond: pd.DataFrame, audit: pd.DataFrame) -> None:
    """p-values that the words of the page quote, and the tables do not show."""
    now = beyond[beyond["label"] == "RobustPll"]
    for label in ("RobustPll softplus", "RobustPll exp 3", "RobustPll averaged"):
        own = beyond[beyond["label"] == label]
        found = {name: paired_p(by_seed(own, name), by_seed(now, name)) for name in SMALL + MORE}
        print(f"{label} against RobustPll:", {name: round(p, 3) for name, p in found.items()})
    for name, other in (("lost", "CroSel"), ("msrc-v2", "Ipal")):
        pair = (audit[audit["label"] == label] for label in ("RobustPll+AtEns", other))
        p = paired_p(*(by_seed(own, name, part="train") for own in pair))
        print(f"labels resolved on {name}, RobustPll+AtEns against {other}: {p:.3f}")
    both = runs_of("balance")
    mine = by_seed(both[both["label"] == f"RobustPll {BALANCED[0]}"], "fmnist")
    for report in ("sound", "paper"):
        runs = pd.read_csv(REPORTS / report / "runs.csv")
        found = {
            label: paired_p(mine, by_seed(own, "fmnist")) for label, own in runs.groupby("label")
        }
        unsure = {label: round(p, 3) for label, p in found.items() if p >= LEVEL}
        print(f"balanced on FMNIST, not told from those of {report!r}: {unsure}")


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


def paired(beyond: pd.DataFrame, nineteen: pd.DataFrame) -> list[str]:
    """Of each setting: who is better without attack, and who is not worse under the audit."""
    conditions = [(name, each) for name in SMALL for each in ("clean", "audit 0.02", "audit 0.05")]
    rows = []
    for label in (f"{title}{steps}" for steps in ("", " 5 steps") for title in OURS):
        own = beyond[beyond["label"] == label]
        cells = [unbeaten(own, nineteen, *each) for each in conditions]
        rows.append([label, *cells])
    return table(["", *(f"{name}{TITLES[each]}" for name, each in conditions)], rows)


def unbeaten(own: pd.DataFrame, nineteen: pd.DataFrame, name: str, condition: str) -> str:
    mine, kept = by_seed(own, name, condition), []
    for label, runs in nineteen.groupby("label", sort=False):
        other = by_seed(runs, name, condition)
        sure = paired_p(mine, other) < LEVEL
        if (sure and mine.mean() < other.mean()) or (not sure and condition != "clean"):
            kept.append(f"{label} {other.mean():.1f}")
    if len(kept) > 8:
        kept = [f"{len(kept)} lines"]
    return f"{mine.mean():.1f}" + (f" ({', '.join(kept)})" if kept else "")


def by_seed(
    runs: pd.DataFrame, name: str, condition: str = "clean", part: str = "test"
) -> pd.Series:
    """Accuracies in percent."""
    chosen = (runs["dataset"] == name) & (runs["condition"] == condition) & (runs["part"] == part)
    return 100 * runs[chosen].sort_values("seed").set_index("seed")["accuracy"]


def others(report: str, beyond: pd.DataFrame | None = None) -> list[str]:
    """Pictures, unknown rows and cost of all methods."""
    runs = pd.read_csv(REPORTS / report / "runs.csv")
    if beyond is not None:
        runs = pd.concat([runs, beyond[beyond["label"].isin(OURS)]])
    tests = runs[(runs["part"] == "test") & (runs["condition"] == "clean")]
    tests = tests[tests["dataset"].isin(PICTURES)]
    unknown = runs[runs["part"] == "ood"]
    found = means(tests, "accuracy", tests["dataset"])[list(PICTURES)]
    errors = means(tests, "ece", tests["dataset"] + " calibration error")
    found = found.join(errors[["mnist calibration error"]])
    for measure in ("auroc", "ks", "area"):
        found = found.join(means(unknown, measure, "letters " + measure + unknown["part"].str[:0]))
    speed = only_one(RESULTS, "method-speed")["methods"]
    cost = {METHODS[name].title: own["ratio"] * own["units"] for name, own in speed.items()}
    return lines(found.assign(cost=[cost.get(label) for label in found.index]))


def plain(beyond: pd.DataFrame) -> list[str]:
    """What RobustPll might be, with the p-value beside what it was."""
    was = beyond[beyond["label"] == "RobustPll ceiling 1"]
    rows = []
    for label in (each for each in dict.fromkeys(beyond["label"]) if each.startswith("RobustPll")):
        runs = beyond[beyond["label"] == label]
        if set(SMALL + MORE) - set(runs["dataset"]) or label in OURS:
            continue
        row = [label]
        for name in SMALL + MORE:
            mine = by_seed(runs, name)
            p = f" ({paired_p(mine, by_seed(was, name)):.3f})".replace(" (nan)", "")
            clean = (runs["dataset"] == name) & (runs["part"] == "test")
            clean &= runs["condition"] == "clean"
            row += [f"{mine.mean():.1f}{p}", f"{100 * runs[clean]['ece'].mean():.1f}"]
        rows.append(row)
    heads = [f"{name}{more}" for name in SMALL + MORE for more in ("", " calibration error")]
    return table(["", *heads], rows)


def balance(beyond: pd.DataFrame) -> list[str]:
    """FMNIST, with the p-values of balanced classes beside the others."""
    sound, both = pd.read_csv(REPORTS / "sound" / "runs.csv"), runs_of("balance")
    runs, without = (both[both["label"] == f"RobustPll {each}"] for each in BALANCED)
    mine, rows = by_seed(runs, "fmnist"), []
    for label, own in [
        *((each, sound[sound["label"] == each]) for each in ("RobustPll", "RobustPll+Ens")),
        *((each, beyond[beyond["label"] == each]) for each in OURS),
        ("RobustPll unbalanced", without),
        ("RobustPll balanced", runs),
    ]:
        found = by_seed(own, "fmnist")
        p = "" if own is runs else f"{paired_p(mine, found):.4f}"
        rows.append([label, f"{found.mean():.1f} ± {found.std(ddof=0):.1f}", p])
    return table(["", "FMNIST", "p"], rows)


def strengths() -> list[str]:
    """Means over the seeds, in percent."""
    runs = runs_of("choose-adversary").drop(columns="seed")
    found = runs.groupby(["dataset", "adversary"], sort=False).mean().round(1)
    rows = [[name, f"{reach:g}", *map(str, row)] for (name, reach), row in found.T.items()]
    return table(["", "adversary", *found.columns], rows)


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
