"""The tables and pictures of the documentation, made from stored runs.

    python benchmarks/pages.py                  # rewrite the tables in pages, and the pictures
    python benchmarks/pages.py --screenshots    # only the two screenshots; needs Chromium

A table stands in a page between `<!-- NAME -->` and `<!-- end -->`. Pages in `COMMITTED` hold their
tables in git; pages that end in "-tables.md" are filled by docs/generate.py in each build of the
site. The numbers come from `reports/*/runs.parquet` and `benchmarks/results`.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from robustpll import METHODS, Opinion
from robustpll.bench.summary import Summary, read_summary
from robustpll.bench.tables import Table, all_tables
from robustpll.measures.significance import LEVEL, paired_p
from robustpll.methods import FURTHER, PUBLISHED
from robustpll.plots import BAD, COLOURS, GOOD, MUTED, new_figure, picture_bytes, plain

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
COMMITTED = ("README.md", "docs/which-method.md", "docs/robustness.md", "docs/clean.md")
COMMITTED += ("docs/performance.md", "docs/export.md", "docs/data.md")
Lines = list[str]
Results = dict[str, Any]

# Reading results, writing tables


@cache
def stored(name: str) -> Results:
    """Return the newest results of a script; the name may end in "*MACHINE"."""
    script, _, machine = name.partition("*")
    path = max(RESULTS.glob(f"{script}-20*{machine}.json"))
    return {"command": f"{script.replace('-', '_')}.py"} | json.loads(path.read_text())


@cache
def runs_of(grid: str) -> pd.DataFrame:
    """Return the newest runs of a grid that has no report, one row per run and condition."""
    path = max(RESULTS.glob(f"{grid}-20*.csv"))
    return pd.read_csv(path).assign(date=re.findall(r"\d{4}-\d\d-\d\d", path.name)[0])


@cache
def summary(report: str) -> Summary:
    return read_summary(ROOT / "reports" / report / "runs.parquet")


@cache
def report_tables(report: str) -> dict[str, Table]:
    return all_tables(summary(report))


@cache
def cells(report: str, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the cells of a report's table, by label and column."""
    rows = report_tables(report)[name].cells.to_dict("records")
    return {(row["label"], row["column"]): row for row in rows}


def value(report: str, name: str, label: str, column: str) -> float:
    return float(cells(report, name)[label, column]["value"])


def table(head: list[str], rows: Iterable[Iterable[str]]) -> Lines:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def frame_table(frame: pd.DataFrame) -> Lines:
    """Return a table of numbers with one decimal."""
    texts = frame.map(lambda number: "" if pd.isna(number) else f"{number:.1f}")
    rows = zip(texts.index, texts.to_numpy(), strict=True)
    return table(["", *map(str, frame.columns)], ([str(label), *row] for label, row in rows))


def spread(numbers: Mapping[str, Any]) -> str:
    """Return "mean ± std" of a stored spread or of a cell of a report."""
    mean = numbers["mean"] if "mean" in numbers else numbers["value"]
    text = f"{mean:.1f} ± {numbers['std']:.1f}"
    return f"**{text}**" if numbers.get("bold") else text


def percent(shares: Iterable[float]) -> str:
    values = 100 * np.array(list(shares))
    return spread({"mean": values.mean(), "std": values.std()})


def made_by(command: str, facts: Mapping[str, Any]) -> str:
    versions = "".join(f", {n} {facts[n]}" for n in ("torch", "onnxruntime") if facts.get(n))
    return f"Made by `{command}` on {facts['machine']}{versions}, {facts['date']}."


def report_origin(report: str) -> str:
    facts = {name: "; ".join(values) for name, values in summary(report).facts.items()}
    return made_by(f"robustpll bench run {report}", facts)


def grid_origin(grid: str, runs: pd.DataFrame) -> str:
    facts = {name: "; ".join(sorted(set(runs[name]))) for name in ("machine", "date")}
    return made_by(f"robustpll bench run {grid}", facts)


def report_lines(report: str, name: str) -> Lines:
    """Return a table of a report with its notes, without its title."""
    lines = report_tables(report)[name].to_markdown().splitlines()
    return [*lines[lines.index("") + 1 :], "", report_origin(report)]


def replaced(text: str, name: str, lines: Iterable[str]) -> str:
    """Return a page with other lines between the markers of that name."""
    body = "".join(f"{line}\n" for line in lines)
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
    new, count = re.subn(pattern, lambda match: match[1] + body + match[2], text, flags=re.S)
    if count != 1:
        raise SystemExit(f"The page must have one part named {name!r}; it has {count}.")
    return new


# README and which-method.md

PICTURES = {"mnist": "MNIST", "fmnist": "FMNIST", "kmnist": "KMNIST", "notmnist": "NotMNIST"}
REAL_WORLD = {"bird-song": "BirdSong", "lost": "Lost", "msrc-v2": "MSRCv2"}
MANY_CLASSES = {"fg-net": "FG-NET", "italian": "Italian"}
TABLE_OF = dict.fromkeys(PICTURES.values(), "table-1")  # which table of a report has a dataset
TABLE_OF |= dict.fromkeys(REAL_WORLD.values(), "real-world")
TABLE_OF |= dict.fromkeys(MANY_CLASSES.values(), "extra")
FULL_NAMES = {"FMNIST": "Fashion-MNIST", "KMNIST": "Kuzushiji-MNIST", "NotMNIST": "NotMNIST small"}


def readme_table() -> Lines:
    """Return accuracies with the published ones, out-of-distribution KS, worst case, seconds."""
    compared = cells("paper", "compare-1")
    columns = list(dict.fromkeys(column for _, column in compared))
    rows = []
    for method in dict.fromkeys(label for label, _ in compared):
        row = [method]
        for cell in (compared[method, column] for column in columns):
            published = "" if cell["why_not"] else f" ({cell['published']:.1f})"
            row.append(spread(cell | {"bold": 0}) + published)
        worst = fmean(value("audit", "audit", method, f"{d} 0.02") for d in REAL_WORLD.values())
        ks = value("paper", "table-2", method, "KS")
        seconds = value("paper", "timing", method, "seconds per run")
        rows.append([*row, f"{ks:.2f}", f"{worst:.0f}", f"{seconds:.1f}"])
    return table(["", *columns, "unknown rows", "worst case", "seconds"], rows)


def best(dataset: str, ensembles: bool) -> str:
    """Return the title of the best published ensemble, or of the best other method."""
    titles = [kind.title for kind in PUBLISHED if (kind.family == "ensemble") == ensembles]
    return max(titles, key=lambda title: value("paper", TABLE_OF[dataset], title, dataset))


def mean_accuracies(title: str) -> tuple[float, float, float]:
    """Return accuracy on pictures, on real-world sets, and on these by the plain constructor."""
    pictures = fmean(value("paper", "table-1", title, name) for name in PICTURES.values())
    real_world = [
        fmean(value(report, "real-world", title, name) for name in REAL_WORLD.values())
        for report in ("paper", "sound")
    ]
    return pictures, real_world[0], real_world[1]


def dataset_table() -> Lines:
    rows = []
    for dataset, name in TABLE_OF.items():
        columns = ("rows", "classes", "candidates on average")
        full_name = FULL_NAMES.get(dataset, dataset)
        size, classes, sets = (value("paper", "datasets", full_name, c) for c in columns)
        titles = [best(dataset, ensembles=False), best(dataset, ensembles=True), "RobustPll"]
        numbers = [f"{value('paper', name, title, dataset):.1f}" for title in titles]
        bold = [
            title
            for (title, c), cell in cells("paper", name).items()
            if c == dataset and cell["bold"]
        ]
        single = [kind.title for kind in PUBLISHED if kind.family != "ensemble"]
        alike = ", ".join(title for title in single if title in bold and title != titles[0])
        row = [
            dataset,
            f"{size:,.0f}",
            f"{classes:.0f}",
            f"{sets:.1f}",
            f"{titles[0]} {numbers[0]}",
        ]
        rows.append([*row, alike, f"{titles[1]} {numbers[1]}", numbers[2]])
    head = ["", "rows", "classes", "candidates", "best", "not distinguishable", "best ensemble"]
    return [*table([*head, "RobustPll"], rows), "", report_origin("paper")]


def method_table() -> Lines:
    rows = []
    for kind in PUBLISHED:
        numbers = [f"{mean:.1f}" for mean in mean_accuracies(kind.title)]
        numbers.append(f"{value('paper', 'table-2', kind.title, 'KS'):.2f}")
        seconds = f"{value('paper', 'timing', kind.title, 'seconds per run'):.2f}"
        rows.append([kind.title, kind.family, *numbers, "yes" * kind.uncertain, seconds])
    head = ["method", "kind", "pictures", "real-world", "real-world, plain constructor"]
    lines = table([*head, "KS of entropies", "has uncertainty", "seconds per run"], rows)
    return [*lines, "", report_origin("paper"), report_origin("sound")]


# results-tables.md


def ablation_table(report: Results) -> Lines:
    sets = report["sets"]
    variants = next(iter(sets.values()))
    return table(
        ["", *sets], ([v, *(spread(found[v]) for found in sets.values())] for v in variants)
    )


def cost_table(report: Results) -> Lines:
    rows = [
        [METHODS[name].title, f"{row['ms']:.1f}", f"{row['units']:g}", f"{row['ratio']:.2f}"]
        for name, row in report["methods"].items()
    ]
    growth = "; ".join(
        f"{METHODS[name].title} " + ", ".join(f"{exponent:.2f}" for exponent in row["exponents"])
        for name, row in report["growth"].items()
    )
    sizes = ", ".join(f"{size:,.0f}" for size in next(iter(report["growth"].values()))["sizes"])
    lines = table(["", "ms per network and epoch", "units", "time per unit"], rows)
    return [*lines, "", f"Exponents in the rows ({sizes}): {growth}."]


# beyond-tables.md

OURS = tuple(kind.title for kind in FURTHER)
SUFFIXES = {"clean": "", "audit 0.02": " 0.02", "audit 0.05": " 0.05", "audit 0.1": " 0.1"}


def means(runs: pd.DataFrame, measure: str, columns: pd.Series | str) -> pd.DataFrame:
    """Return means in percent: one line per label, one column per value of `columns`."""
    named = runs.assign(column=columns)
    names = list(dict.fromkeys(named["column"].dropna()))
    wide = 100 * named.pivot_table(measure, "label", "column")
    return wide.reindex(index=list(dict.fromkeys(runs["label"])), columns=names)


def accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return test accuracy by dataset, without attack and under the audit; AUROC of OOD rows."""
    tests, letters = runs[runs["part"] == "test"], runs[runs["part"] == "ood"]
    frame = means(tests, "accuracy", tests["dataset"] + tests["condition"].map(SUFFIXES))
    return frame.join(means(letters, "auroc", "letters AUROC")) if len(letters) else frame


def audit_frame(runs: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies, resolved training labels and calibration errors of each dataset."""
    train = runs[runs["part"] == "train"]
    clean = runs[(runs["part"] == "test") & (runs["condition"] == "clean")]
    frame = accuracies(runs)
    for name in dict.fromkeys(runs["dataset"]):
        frame = frame.join(means(train[train["dataset"] == name], "accuracy", f"{name} resolved"))
        frame = frame.join(means(clean[clean["dataset"] == name], "ece", f"{name} ECE"))
    return frame


def preset_runs() -> pd.DataFrame:
    """Return the audited runs of published presets that differ from the plain constructor."""
    runs = runs_of("audit-paper")
    runs = runs[~runs["key"].isin(summary("audit").runs["key"])]
    return runs.assign(label=runs["label"] + ".paper")


def by_seed(runs: pd.DataFrame, dataset: str, condition: str = "clean") -> pd.Series:
    """Return test accuracies in percent."""
    chosen = runs[(runs["dataset"] == dataset) & (runs["condition"] == condition)]
    chosen = chosen[chosen["part"] == "test"].sort_values("seed")
    return 100 * chosen.set_index("seed")["accuracy"]


def paired_table() -> Lines:
    """Return our accuracies and, in brackets, the methods that they do not beat."""
    beyond, audit = runs_of("beyond"), summary("audit").runs
    others = pd.concat([audit[~audit["label"].isin(OURS)], preset_runs()])
    conditions = [(d, c) for d in REAL_WORLD for c in ("clean", "audit 0.02", "audit 0.05")]
    rows = []
    for label in (f"{title}{steps}" for steps in ("", " 5 steps") for title in OURS):
        rows.append([label])
        for dataset, condition in conditions:
            ours, unbeaten = by_seed(beyond[beyond["label"] == label], dataset, condition), []
            for other, runs in others.groupby("label", sort=False):
                theirs = by_seed(runs, dataset, condition)
                differs = paired_p(ours, theirs) < LEVEL
                better = differs and ours.mean() < theirs.mean()
                if better or (not differs and condition != "clean"):
                    unbeaten.append(f"{other} {theirs.mean():.1f}")
            listed = ", ".join(unbeaten) if len(unbeaten) <= 8 else f"{len(unbeaten)} methods"
            rows[-1].append(f"{ours.mean():.1f}" + (f" ({listed})" if listed else ""))
    lines = table(["", *(f"{d}{SUFFIXES[c]}" for d, c in conditions)], rows)
    return [*lines, "", grid_origin("beyond", beyond)]


def letters_table() -> Lines:
    """Return accuracy on pictures, separation from letters, and cost relative to RobustPll."""
    beyond = runs_of("beyond")
    runs = pd.concat([summary("sound").runs, beyond[beyond["label"].isin(OURS)]])
    tests = runs[(runs["part"] == "test") & (runs["condition"] == "clean")]
    tests, letters = tests[tests["dataset"].isin(PICTURES)], runs[runs["part"] == "ood"]
    frame = means(tests, "accuracy", tests["dataset"])[list(PICTURES)]
    frame = frame.join(means(tests[tests["dataset"] == "mnist"], "ece", "mnist ECE"))
    for measure in ("auroc", "ks", "area"):
        frame = frame.join(means(letters, measure, f"letters {measure}"))
    rows = stored("method-speed")["methods"].items()
    costs = {METHODS[name].title: row["ratio"] * row["units"] for name, row in rows}
    lines = frame_table(frame.assign(cost=[costs.get(label) for label in frame.index]))
    return [*lines, "", report_origin("sound"), grid_origin("beyond", beyond)]


def ceiling_table() -> Lines:
    """Return variants of RobustPll, with the p-value against a ceiling of 1, and their ECE."""
    names, beyond = (*REAL_WORLD, *MANY_CLASSES), runs_of("beyond")
    before, rows = beyond[beyond["label"] == "RobustPll ceiling 1"], []
    for label, runs in beyond.groupby("label", sort=False):
        is_variant = str(label).startswith("RobustPll") and label not in OURS
        if not is_variant or set(names) - set(runs["dataset"]):
            continue
        rows.append([str(label)])
        clean = runs[(runs["part"] == "test") & (runs["condition"] == "clean")]
        for name in names:
            ours, ece = by_seed(runs, name), 100 * clean["ece"][clean["dataset"] == name].mean()
            p = paired_p(ours, by_seed(before, name))
            rows[-1] += [
                f"{ours.mean():.1f}" + ("" if np.isnan(p) else f" ({p:.3f})"),
                f"{ece:.1f}",
            ]
    lines = table(["", *(f"{name}{more}" for name in names for more in ("", " ECE"))], rows)
    return [*lines, "", grid_origin("beyond", beyond)]


def balance_table() -> Lines:
    """Return FMNIST accuracies of all methods, with p-values against balanced classes."""
    both, beyond = runs_of("balance"), runs_of("beyond")
    ours, rows = by_seed(both[both["label"] == "RobustPll balanced"], "fmnist"), []
    sources = {"": both, " ": beyond[beyond["label"].isin(OURS)]}
    sources |= {"()": summary("sound").runs, ".paper()": summary("paper").runs}
    for suffix, source in sources.items():
        for label, runs in source.groupby("label", sort=False):
            theirs = by_seed(runs, "fmnist")
            p = f"{paired_p(ours, theirs):.4f}" if label != "RobustPll balanced" else ""
            rows.append([f"{label}{suffix}".strip(), percent(theirs / 100), p])
    return [
        *table(["", "FMNIST", "p"], rows),
        "",
        grid_origin("benchmarks/grids/balance.toml", both),
    ]


def strength_table() -> Lines:
    runs = runs_of("choose-adversary").drop(columns=["seed", "date"])
    frame = runs.groupby(["dataset", "adversary"], sort=False).mean()
    frame.index = [f"{name}, {adversary:g}" for name, adversary in frame.index]
    made = "Made by `python benchmarks/choose_adversary.py` on AMD EPYC, 2 cores, 2026-11-16."
    return [*frame_table(frame), "", made]


def recall_table() -> Lines:
    runs = runs_of("class-recall").drop(columns="date").astype(str)
    made = "Made by `python benchmarks/class_recall.py` from the runs of these grids, 2026-11-16."
    return [*table(list(runs.columns), runs.to_numpy().tolist()), "", made]


# trust-tables.md

COVERAGES, ERRORS = (0.5, 0.8), (0.05, 0.1, 0.2)  # promises that trust.py tries
FEW = ("proden", "robust_pll")  # methods that it runs on all datasets
SHOWN = ("pl_knn", "proden", "proden_ens", "robust_pll", "robust_pll_ens")


def mean_of(values: list[float | None] | None, factor: float = 100.0, digits: int = 1) -> str:
    """Return the mean over seeds; * if some seeds have none, ∞ if no value is finite."""
    if values is None:
        return ""
    known = [number for number in values if number is not None]
    mean = f"{factor * fmean(known):.{digits}f}" if known else "∞"
    return mean + "*" * (0 < len(known) < len(values))


def titled(sets: Results, names: Iterable[str] = METHODS) -> list[tuple[str, Results]]:
    """Return a title and the results, for each dataset and method."""
    pairs = (
        (dataset, results[n]) for dataset, results in sets.items() for n in names if n in results
    )
    return [(f"{dataset}, {result['title']}", result) for dataset, result in pairs]


def calibration_table(report: Results) -> Lines:
    sets, ways, rows = report["sets"], ("raw", "candidates", "labels"), []
    for title, result in titled({d: sets[d] for d in sets if len(sets[d]) > 2}):
        found = [result["calibration"].get(way, {}) for way in ways]
        rows.append([title, mean_of(found[0]["accuracy"])])
        for measure, factor, digits in (("error", 100, 1), ("log_loss", 1, 2), ("brier", 1, 2)):
            rows[-1] += [mean_of(way.get(measure), factor, digits) for way in found]
    head = [c for m in ("ECE", "log loss", "Brier") for c in (m, "by candidates", "by labels")]
    return table(["", "accuracy", *head], rows)


def factor_table(report: Results) -> Lines:
    rows = []
    for title, result in titled(report["sets"], FEW):
        factors = [mean_of(result["factors"].get(way), 1, 2) for way in ("labels", "candidates")]
        ways = [result["calibration"].get(way, {}) for way in ("raw", "candidates", "labels")]
        rows.append([title, *factors, *(mean_of(way.get("error")) for way in ways)])
    head = ["", "factor by labels", "by candidates", "ECE", "by candidates", "by labels"]
    return table(head, rows)


def score_table(report: Results) -> Lines:
    sets = report["sets"]
    names = ["missing probability", "entropy", "uncertainty", "energy", "row distance"]
    rows = []
    for title, result in titled({d: sets[d] for d in sets if len(sets[d]) > 2}):
        areas = [mean_of(result["selection"].get(name)) for name in names]
        rows.append([title, mean_of(result["best order"]), *areas])
    return table(["", "best order", *names], rows)


def coverage_table(report: Results) -> Lines:
    columns, rows = (("own", "coverage"), ("labels", "coverage"), ("labels", "error")), []
    for title, result in titled(report["sets"], FEW):
        rows.append([title])
        for coverage in COVERAGES:
            for way, column in columns:
                rows[-1].append(mean_of(result["promises"][way][f"coverage {coverage}"][column]))
    words = ("of X", "fixed before", "its error")
    return table(["", *(f"{100 * c:g} %, {word}" for c in COVERAGES for word in words)], rows)


def error_text(promise: Results | None) -> str:
    """Return the error of accepted rows and, in brackets, their share."""
    if promise is None or None in promise["coverage"]:
        return ""
    share, wrong = np.array(promise["coverage"]), np.array(promise["error"], float)
    if not share.any():
        return "none"
    return f"{100 * np.nansum(wrong * share) / share.sum():.1f} ({100 * share.mean():.0f})"


def error_table(report: Results) -> Lines:
    ways = {"own": "raw", "own, candidates": "recalibrated", "candidates": "candidates"}
    ways["labels"] = "labels"
    rows, pairs = [], [(error, way) for error in ERRORS[1:] for way in ways]
    for title, result in titled(report["sets"], FEW):
        promises = [result["promises"].get(way, {}).get(f"error {error}") for error, way in pairs]
        rows.append([title, *map(error_text, promises)])
    kept = [
        number is None or number <= error
        for _, result in titled(report["sets"])
        for error in ERRORS
        for number in (result["promises"]["labels"][f"error {error}"] or {"error": []})["error"]
    ]
    sentence = (
        f"With thresholds from labels, the error on test rows was at most the promised one in "
        f"{sum(kept)} of {len(kept)} cases (all methods, datasets, seeds and promises)."
    )
    head = [f"{100 * error:g} %, {ways[way]}" for error, way in pairs]
    return [*table(["", *head], rows), "", sentence]


def conformal_table(report: Results) -> Lines:
    ways, rows = ("labels", "all", "any", "weighted"), []
    for dataset, known in report["sets"].items():
        rows.append([f"{dataset}, expected", spread(known["expected"]), "", "", ""])
        for title, result in titled({dataset: known["methods"]}, ("softmax", *SHOWN)):
            sets = [result["sets"].get(way) for way in ways]
            texts = [f"{w['covered']:.1f} ± {w['covered_std']:.1f}" if w else "" for w in sets]
            rows.append([title, *texts])
    return table(["", *ways], rows)


def set_size_table(report: Results) -> Lines:
    ways, rows = ["labels", "all", "any", "weighted", "MAPIE, lac", "MAPIE, aps"], []
    for dataset, known in report["sets"].items():
        for result in known["methods"].values():
            sets = [result["sets"].get(way) for way in ways]
            sizes = [f"{found['size']:.2f}" if found else "" for found in sets]
            rows.append([f"{dataset}, {result['title']}", f"{result['accuracy']:.1f}", *sizes])
    return table(["", "accuracy", *ways], rows)


def label_free_table(report: Results) -> Lines:
    measures = ("covering rate", "approximated accuracy")
    rows, costs = [], []
    for title, result in titled(report["sets"]):
        for stop, chosen in result["chosen"].items():
            costs.append([chosen[measure]["cost"]["mean"] for measure in measures])
            tested = [spread(choice["test"]) for choice in chosen.values()]
            points = [f"{cost:+.1f}" for cost in costs[-1]]
            rows.append([f"{title}, {stop}", spread(result["default"]), *tested, *points])
    head = ["", "default", *measures, "true labels", *(f"cost, {name}" for name in measures)]
    words = "; ".join(
        f"by {name} {fmean(column):+.1f}, from {min(column):+.1f} to {max(column):+.1f}"
        for name, column in zip(measures, zip(*costs, strict=True), strict=True)
    )
    return [*table(head, rows), "", f"Mean cost in points: {words}."]


def missing_truth_table(report: Results) -> Lines:
    rows: list[list[str]] = []
    results = titled({dataset: known["accuracy"] for dataset, known in report["sets"].items()})
    rows = [[title, *map(spread, result["test"].values())] for title, result in results]
    return table(["", *(f"{100 * float(share):g} %" for share in results[0][1]["test"])], rows)


def detector_table(report: Results) -> Lines:
    rows = []
    for title, result in titled({d: known["detection"] for d, known in report["sets"].items()}):
        for share, scores in result["found"].items():
            for name, quality in scores.items():
                numbers = [quality["auroc"], quality["auroc_at_equal_size"]]
                numbers += [quality["precision_at_recall"][place] for place in (1, 4, 7)]
                texts = [f"{number:.1f}" for number in numbers]
                rows.append([f"{title}, {100 * float(share):g} %, {name}", *texts])
    head = ["", "AUROC", "at equal size", "precision at recall 20 %", "50 %", "80 %"]
    return table(head, rows)


# robustness.md and robustness-tables.md


def attack_overview(report: Results) -> Lines:
    columns, rows = (("published", "0.05"), ("worst", "0.02"), ("worst", "0.05")), []
    for title, row in titled(report["sets"]):
        rows.append([title, spread(row["clean"]), *(spread(row[kind][e]) for kind, e in columns)])
    return table(["", "no attack", "published, 0.05", "audit, 0.02", "audit, 0.05"], rows)


def attack_table(report: Results) -> Lines:
    rows = [
        [f"{title}, {kind}", spread(row["clean"]), *map(spread, row[key].values())]
        for title, row in titled(report["sets"])
        for kind, key in (("published", "published"), ("audit", "worst"))
    ]
    return table(["epsilon", "0", *(f"{epsilon:g}" for epsilon in report["epsilons"])], rows)


def gradient_table(report: Results) -> Lines:
    rows = []
    for title, row in titled(report["sets"]):
        shares = [*row["zero_gradients"].values(), row["unbounded"]]
        numbers = [f"{share['mean']:.1f}" for share in shares]
        rows.append([title, *numbers, f"{len(row['warnings'])} of {report['seeds']}"])
    head = ["", "no gradient, float32", "no gradient, float64", "unbounded", "runs with warnings"]
    return table(head, rows)


def single_attack_table(report: Results) -> Lines:
    results = titled(report["sets"])
    attacks = list(dict.fromkeys(attack for _, row in results for attack in row["attacks"]))
    attacks.sort(key=lambda attack: attack in ("square", "transfer"))
    rows = []
    for title, row in results:
        found = [*(row["attacks"].get(attack) for attack in attacks), row["worst"]]
        rows.append([title, *(f"{by['0.05']['mean']:.1f}" if by else "" for by in found)])
    return table(["", *attacks, "all"], rows)


def separation_table(report: Results) -> Lines:
    rows = [
        [f"{row['title']}, {score}", *(spread(found[n]) for n in ("auroc", "aupr", "fpr95"))]
        for row in report["methods"].values()
        for score, found in row["separations"].items()
    ]
    return table(["", "AUROC", "AUPR", "FPR at 95 %"], rows)


# clean.md and clean-tables.md

WAYS = {  # stored name: title
    "majority": "majority",
    "Dawid-Skene": "Dawid-Skene",
    "cleanlab": "cleanlab",
    "robustpll": "robustpll",
    "cleanlab, robustpll": "cleanlab with robustpll",
}
CROWD = "5, hard rows"  # after which questions are asked
AGAIN = {
    "robustpll, again, in its order": "robustpll, trained again",
    "robustpll, again, at random": "trained again, at random",
}


def by_way(report: Results, measure: str, ways: Mapping[str, str], crowd: str = "") -> Lines:
    rows = [
        [f"{dataset}, {name}", *(percent(run[measure][way] for run in runs) for way in ways)]
        for dataset, crowds in report["sets"].items()
        for name, runs in crowds.items()
        if name.startswith(crowd)
    ]
    return table(["", *ways.values()], rows)


def label_table(report: Results) -> Lines:
    """Return correct labels by way, and who has the most of them."""
    cases = [runs for crowds in report["sets"].values() for runs in crowds.values()]
    named = ["truth named", "---", *(percent(run["named"] for run in runs) for runs in cases)]
    lines = by_way(report, "labels", WAYS)
    lines = [f"{line} {cell} |" for line, cell in zip(lines, named, strict=True)]
    for ways, words in ((list(WAYS)[:-1], "the first four"), (list(WAYS), "all five")):
        means_of = [{w: fmean(run["labels"][w] for run in runs) for w in ways} for runs in cases]
        won = [max(numbers, key=numbers.__getitem__) for numbers in means_of]
        counts = ", ".join(f"{WAYS[way]} in {won.count(way)}" for way in ways if way in won)
        lines += ["", f"Most correct labels on average, of {words}: {counts} of {len(won)} cases."]
    runs = [run["labels"] for several in cases for run in several]
    wins = {way: sum(run["robustpll"] > run[way] for run in runs) for way in WAYS}
    ahead = ", ".join(f"{WAYS[way]} in {wins[way]}" for way in WAYS if way != "robustpll")
    return [*lines, "", f"Of {len(runs)} runs, robustpll is ahead of {ahead}."]


def confidence_table(report: Results) -> Lines:
    rows = []
    for dataset, crowds in report["sets"].items():
        for crowd, runs in crowds.items():
            correct = percent(run["labels"]["robustpll"] for run in runs)
            sure = percent(run["confidence"] for run in runs)
            rows.append([f"{dataset}, {crowd}", sure, correct])
    return table(["", "mean confidence", "correct labels"], rows)


def crowd_table(report: Results) -> Lines:
    rows = []
    for name, facts in report["sets"].items():
        counts = [f"{facts['rows']:,}", f"{facts['missing']:.1%}", f"{facts['suspects']:.1%}"]
        wrong = [f"at most {facts['expected']:.1%}", f"{facts['wrong']:.1%}"]
        rows.append([name, *counts, f"{facts['resolved']:,}", *wrong])
    head = ["crowd", "rows", "sets without the truth", "model predicts no candidate", "resolved"]
    return table([*head, "expected wrong", "wrong"], rows)


# performance.md, export.md, data.md


def model_count_table(report: Results) -> Lines:
    rows = []
    for row in report["models"]["table"]:
        times = [f"{row[way]['ms']:,.1f}" for way in ("eager", "graph", "compiled")]
        rates = [f"{row['compiled']['times_baseline']:.0f}", f"{row['tflops']:.1f}"]
        rows.append([str(row["models"]), *times, *rates, f"{row['gb_per_s']:,.0f}"])
    head = ["models at once", "eager", "graph", "graph, compiled", "times the baseline"]
    return table([*head, "TFLOP/s", "GB/s"], rows)


def precision_table(report: Results) -> Lines:
    rows: dict[str, list[str]] = {}
    for name, found in report["accuracy"].items():
        text = f"{found['mean']:.1f} ± {found['standard_error']:.1f}"
        rows.setdefault(name.rsplit(", ", 1)[0], []).append(text)
    head = ["", "float32", 'TF32 (`"auto"`)', '`"bf16"`']
    return table(head, ([name, *texts] for name, texts in rows.items()))


def classical_table(report: Results) -> Lines:
    rows = []
    for title, found in titled(report["sets"]):
        seconds = [f"{found[part]:.2f}" for part in ("fit", "predict")]
        library = [found["call"], f"{found['call_seconds']:.2f}" if found["call"] else ""]
        rows.append([title, *seconds, f"{found['peak_mb']:,}", *library])
    return table(["", "fit, s", "predict, s", "peak MB", "one call of scikit-learn", "s"], rows)


def serving_table(report: Results) -> Lines:
    rows = []
    for method, sides in report["sets"].items():
        for side, found in sides.items():
            rows.append([f"{method}, {side}"])
            for part, digits in (("batch", 0), ("row", 2)):
                low, middle, high = (found[part][key] for key in ("10 %", "median ms", "90 %"))
                rows[-1].append(f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
    return table(["", f"{report['rows']:,} rows", "one row"], rows)


def noise_table(report: Results) -> Lines:
    kinds = [kind for kind in next(iter(report["sets"].values())) if kind != "published"]
    rows = []
    for name, found in report["sets"].items():
        averages = [f"{found[kind]['mean']:.2f} ± {found[kind]['std']:.2f}" for kind in kinds]
        rows.append([PICTURES[name], f"{found['published']:.2f}", *averages])
    return table(["", "published", *kinds], rows)


# Which table has which name

OF_RUNS: dict[str, Callable[[], Lines]] = {
    "results": readme_table,
    "datasets": dataset_table,
    "methods": method_table,
    "paired": paired_table,
    "letters": letters_table,
    "ceilings": ceiling_table,
    "balance": balance_table,
    "strengths": strength_table,
    "recall": recall_table,
}
OF_SCRIPTS: dict[str, tuple[str, Callable[[Results], Lines]]] = {
    "ablation": ("ablation", ablation_table),
    "cost": ("method-speed", cost_table),
    "calibration": ("trust", calibration_table),
    "factors": ("trust", factor_table),
    "scores": ("trust", score_table),
    "coverage": ("trust", coverage_table),
    "error": ("trust", error_table),
    "conformal": ("conformal", conformal_table),
    "set sizes": ("conformal", set_size_table),
    "label-free": ("label-free", label_free_table),
    "missing truth": ("missing-truth", missing_truth_table),
    "detector": ("missing-truth", detector_table),
    "attack overview": ("robustness", attack_overview),
    "attacks": ("robustness", attack_table),
    "gradients": ("robustness", gradient_table),
    "single attacks": ("robustness", single_attack_table),
    "separations": ("ood", separation_table),
    "labels": ("cleaning", label_table),
    "models": ("cleaning", lambda r: by_way(r, "test", WAYS | MORE)),
    "questions": ("cleaning", lambda r: by_way(r, "questions", WAYS | AGAIN, CROWD)),
    "confidence": ("cleaning", confidence_table),
    "crowds": ("real-crowds", crowd_table),
    "model counts": ("training-speed*h200", model_count_table),
    "precision": ("precision*h200", precision_table),
    "classical": ("classical-speed", classical_table),
    "serving, CPU": ("serving-speed*cpu", serving_table),
    "serving, GPU": ("serving-speed*h200", serving_table),
    "noise": ("noise-averages", noise_table),
}
MORE = {"RobustPll from votes": "RobustPll from the votes", "truth": "the truth"}
GRIDS = "benchmarks/grids"


def lines_of(name: str) -> Lines:
    """Return a table by its name, followed by the command that made it."""
    if name in OF_RUNS:
        return OF_RUNS[name]()
    if name in OF_SCRIPTS:
        source, make = OF_SCRIPTS[name]
        report = stored(source)
        command = f"python benchmarks/{report['command'].removeprefix('benchmarks/')}"
        return [*make(report), "", made_by(command, report)]
    kind, _, rest = name.partition(": ")
    if kind == "tried":  # a grid of settings that were tried
        runs = runs_of(rest)
        return [*frame_table(accuracies(runs)), "", grid_origin(f"{GRIDS}/{rest}.toml", runs)]
    if kind == "audited":
        runs = summary("audit").runs if rest == "audit" else preset_runs()
        grid = "audit" if rest == "audit" else f"{GRIDS}/audit-paper.toml"
        return [*frame_table(audit_frame(runs)), "", grid_origin(grid, runs)]
    return report_lines(kind, rest)


def filled(text: str) -> str:
    """Return a page with all its tables."""
    for name in re.findall(r"<!-- (.+) -->\n", text):
        if name != "end":
            text = replaced(text, name, lines_of(name))
    return text


# Pictures


def line_picture(title: str, lines: list[tuple[Any, ...]], labels: tuple[str, str]) -> Any:
    """Draw lines, each (name, x, y, look)."""
    figure = new_figure(6.8, 3.4)
    axes = plain(figure.subplots(), title)
    for name, x, y, look in lines:
        axes.plot(x, y, label=name, **look)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def pictures() -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of each picture in docs."""
    report = stored("robustness")
    for dataset, methods in report["sets"].items():
        lines = []
        for row, colour in zip(methods.values(), COLOURS, strict=False):
            for kind, key, style in (("audit", "worst", "-"), ("published", "published", ":")):
                means_of = [row["clean"]["mean"], *(found["mean"] for found in row[key].values())]
                look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3}
                lines.append((f"{row['title']}, {kind}", [0, *report["epsilons"]], means_of, look))
        labels = ("epsilon", "accuracy, in %")
        yield f"attacks-{dataset}", line_picture(f"{dataset}: accuracy under attack", lines, labels)
    bird = stored("trust")["sets"]["bird-song"]  # its curves are stored
    lines = [("calibrated", [0, 1], [0, 1], {"color": MUTED, "linewidth": 1})]
    for name, colour in zip(FEW, COLOURS, strict=False):
        for way, words, style in (("raw", "as trained", ":"), ("candidates", "recalibrated", "-")):
            promised, right, *_ = bird[name]["calibration"][way]["reliability"]
            look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3}
            lines.append((f"{bird[name]['title']}, {words}", promised, right, look))
    labels = ("probability of the predicted class", "share of correct predictions")
    yield "reliability", line_picture("Does 80 % mean 80 %?", lines, labels)
    lines = [
        (bird[name]["title"], np.linspace(0.02, 1, 50), bird[name]["curve"], {"color": colour})
        for name, colour in zip(SHOWN, COLOURS, strict=False)
    ]
    labels = ("share of accepted rows", "error among them")
    yield "risk-coverage", line_picture("Error of the most certain rows", lines, labels)
    detection = stored("missing-truth")["sets"]["lost"]["detection"]
    scores = {row["title"]: row["found"]["0.2"]["rival"] for row in detection.values()}
    scores["size alone"] = detection["pl_knn"]["found"]["0.2"]["size"]
    lines = [
        (name, range(10, 101, 10), found["precision_at_recall"], {"color": colour, "marker": "o"})
        for (name, found), colour in zip(scores.items(), COLOURS, strict=False)
    ]
    title = "Which sets of lost miss the truth? 20 % of them do"
    yield "faulty-found", line_picture(title, lines, ("recall, in %", "precision, in %"))
    yield "opinions", opinion_picture()
    yield "cleaning", cleaning_picture(stored("cleaning")["sets"])
    yield "growth", growth_picture(stored("training-speed*h200")["growth"])


def opinion_picture() -> Any:
    """Draw four rows with the same most probable class."""
    evidence = {
        "much evidence, one class": (27.0, 0, 0),
        "much evidence, two classes": (15.0, 12, 0),
        "little evidence, one class": (1.5, 0, 0),
        "no evidence": (0.0, 0, 0),
    }
    opinion = Opinion.of_evidence(np.array(list(evidence.values())))
    figure = new_figure(7.6, 2.4)
    axes, left = plain(figure.subplots(), "Belief and uncertainty"), np.zeros(len(evidence))
    masses = [*opinion.belief.T, opinion.uncertainty]
    names = ("belief in a", "belief in b", "belief in c", "uncertainty")
    for mass, name, colour in zip(masses, names, (*COLOURS[:3], MUTED), strict=True):
        axes.barh(list(evidence), mass, left=left, color=colour, label=name)
        left += mass
    for row, top in enumerate(opinion.probability.max(-1)):
        text = f"probability of a {top:.2f}, entropy {opinion.entropy[row]:.2f}"
        axes.text(1.02, row, text, va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.15))
    return figure


def cleaning_picture(sets: Results) -> Any:
    figure = new_figure(9.6, 3.4)
    left, right = figure.subplots(1, 2)
    plain(left, "Correct labels from five annotators' votes").set_xlabel("correct labels, in %")
    plain(right, "Questions until 95 % are correct").set_xlabel("answered rows, in %")
    places = np.arange(len(sets))
    for way, colour in zip(WAYS, (MUTED, COLOURS[2], COLOURS[0], GOOD, COLOURS[1]), strict=True):
        shares = [
            100 * fmean(run["labels"][way] for run in crowds[CROWD]) for crowds in sets.values()
        ]
        left.plot(shares, places, "o", color=colour, label=WAYS[way])
    asked = {"majority": MUTED, "cleanlab": COLOURS[0]} | dict(zip(AGAIN, (GOOD, BAD), strict=True))
    for number, (way, colour) in enumerate(asked.items()):
        shares = [
            100 * fmean(r["questions"][way] for r in crowds[CROWD]) for crowds in sets.values()
        ]
        right.barh(
            places + 0.2 * (number - 1.5), shares, 0.2, color=colour, label=(WAYS | AGAIN)[way]
        )
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
    for axes in (left, right):
        axes.set_yticks(places, list(sets))
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=7, **below)
    return figure


def growth_picture(growth: Results) -> Any:
    figure = new_figure(12, 3.2)
    for axes, (side, found) in zip(figure.subplots(1, len(growth)), growth.items(), strict=True):
        sizes, seconds = np.array(found["sizes"]), np.array(found["seconds"])
        plain(axes, side).loglog(sizes, seconds, "o-", color=COLOURS[0])
        axes.loglog(sizes, seconds[-1] * sizes / sizes[-1], ":", color=MUTED)
        axes.set(ylim=(seconds.min() / 3, seconds.max() * 3), xlabel=f"number of {side}")
    figure.axes[0].set_ylabel("seconds per epoch (dotted: linear)")
    return figure


def screenshots() -> None:
    """Take bench-page.png of a report, and review.png of digits with simulated votes."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        review, path = cleaned_digits(Path(folder)), shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((ROOT / "reports" / "paper" / "index.html").as_uri())
        page.screenshot(path=DOCS / "bench-page.png")
        page.goto(review.as_uri())
        for key in "11s2":
            page.keyboard.press(key)
        page.screenshot(path=DOCS / "review.png")
        browser.close()


def cleaned_digits(folder: Path) -> Path:
    """Return the review page of 1,000 digits with the votes of five annotators."""
    from PIL import Image
    from sklearn.datasets import load_digits
    from typer.testing import CliRunner

    from robustpll.cli import app

    names = np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    random, (pixels, labels) = np.random.default_rng(0), load_digits(return_X_y=True)
    pixels, labels = pixels[:1000], labels[:1000]
    frame = pd.DataFrame(pixels).add_prefix("pixel ").assign(truth=names[labels])
    frame["picture"] = [f"pictures/{row}.png" for row in range(len(labels))]
    for annotator, skill in {"ada": 0.95, "bob": 0.85, "eve": 0.8, "kim": 0.7, "zoe": 0.5}.items():
        mistaken = (labels + random.integers(1, 10, len(labels))) % 10
        votes = names[np.where(random.random(len(labels)) < skill, labels, mistaken)]
        silent = (random.random(len(labels)) < 0.3) & (annotator != "ada")
        frame[f"vote {annotator}"] = np.where(silent, "", votes)
    (folder / "pictures").mkdir()
    for path, row in zip(frame["picture"], pixels, strict=True):
        grey = Image.fromarray(255 - (row.reshape(8, 8) * 15.9).astype(np.uint8))
        grey.resize((96, 96), Image.Resampling.BICUBIC).save(folder / path)
    frame.to_csv(folder / "digits.csv", index=False)
    options = ["--votes", "vote ", "--truth", "truth", "--images", "picture", "--wrong", "0.002"]
    command = ["clean", str(folder / "digits.csv"), "--out", str(folder / "out"), *options]
    result = CliRunner().invoke(app, [*command, "--epochs", "50"])
    assert result.exit_code == 0, result.output
    return folder / "out" / "review.html"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--screenshots", action="store_true")
    if parser.parse_args().screenshots:
        screenshots()
        return
    for page in COMMITTED:
        (ROOT / page).write_text(filled((ROOT / page).read_text()))
    for name, figure in pictures():
        (DOCS / f"{name}.png").write_bytes(picture_bytes(figure, "png"))


if __name__ == "__main__":
    main()
