"""The tables of the documentation, made from stored runs.

    python benchmarks/pages.py       # rewrite the tables in pages; pictures.py draws the pictures

A table stands in a page between `<!-- NAME -->` and `<!-- end -->`. Pages in `COMMITTED` hold their
tables in git; all others are filled by docs/generate.py in each build of the site. The numbers come
from `reports/*/runs.parquet` and `benchmarks/results`; tables.toml has the columns of tables from
the latter.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from robustpll import METHODS
from robustpll.bench.summary import Summary, read_summary
from robustpll.bench.tables import PICTURES, Table, all_tables, title_of
from robustpll.measures.significance import LEVEL, paired_p
from robustpll.methods import PUBLISHED

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
COMMITTED = ("README.md",)
GRIDS = "benchmarks/grids"
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


def values(report: str, name: str, value: str = "value") -> pd.DataFrame:
    """Return the cells of a report's table: one line per label, in the order of the report."""
    cells = report_tables(report)[name].cells.set_index(["label", "column"])
    return cells[value].unstack(sort=False)


def spreads(report: str, name: str) -> pd.DataFrame:
    """Return "mean ± std" for each label and column of a report's table."""
    mean, std = (values(report, name, value).map("{:.1f}".format) for value in ("value", "std"))
    return mean + " ± " + std


def table(head: list[str], rows: Iterable[Iterable[str]]) -> Lines:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def frame_table(frame: pd.DataFrame, first: str = "") -> Lines:
    """Return a table of texts, and of numbers with one decimal."""

    def text(cell: Any) -> str:
        return cell if isinstance(cell, str) else "" if pd.isna(cell) else f"{cell:.1f}"

    rows = zip(frame.index, frame.map(text).to_numpy(), strict=True)
    return table([first, *map(str, frame.columns)], ([str(label), *row] for label, row in rows))


def spread(numbers: Results, mean: str = "mean", std: str = "std", digits: int = 1) -> str:
    return f"{numbers[mean]:.{digits}f} ± {numbers[std]:.{digits}f}"


def percent(shares: Iterable[float]) -> str:
    numbers = 100 * np.array(list(shares))
    return spread({"mean": numbers.mean(), "std": numbers.std()})


def made_by(command: str, facts: Mapping[str, Any]) -> str:
    versions = "".join(f", {n} {facts[n]}" for n in ("torch", "onnxruntime") if facts.get(n))
    return f"Made by `{command}` on {facts['machine']}{versions}, {facts['date']}."


def report_origin(report: str) -> str:
    facts = {name: "; ".join(texts) for name, texts in summary(report).facts.items()}
    return made_by(f"robustpll bench run {report}", facts)


def tables_origin() -> str:
    facts = summary("tables").facts
    about = {"machine": ", ".join(facts["machine"]), "date": max(facts["date"])}
    return made_by(f"robustpll bench run {GRIDS}/tables-report.toml --store results", about)


def clean(runs: pd.DataFrame, part: str = "test") -> pd.DataFrame:
    """Return the results on test or training rows that nothing attacks."""
    return runs[(runs["part"] == part) & (runs["condition"] == "clean")]


def grid_origin(grid: str, runs: pd.DataFrame) -> str:
    facts = {name: "; ".join(sorted(set(runs[name]))) for name in ("machine", "date")}
    return made_by(f"robustpll bench run {grid}", facts)


# README, which-method.md and concepts.md

REAL_WORLD = {name: title_of(name) for name in ("bird-song", "lost", "msrc-v2")}
MANY_CLASSES = {name: title_of(name) for name in ("fg-net", "italian")}
TABLE_OF = dict.fromkeys(PICTURES.values(), "table-1")  # which table of a report has a dataset
TABLE_OF |= dict.fromkeys(REAL_WORLD.values(), "real-world")
TABLE_OF |= dict.fromkeys(MANY_CLASSES.values(), "extra")
FULL_NAMES = {"FMNIST": "Fashion-MNIST", "KMNIST": "Kuzushiji-MNIST", "NotMNIST": "NotMNIST small"}


def readme_table() -> Lines:
    """Return accuracies with the published ones, out-of-distribution KS, worst case, seconds."""
    published, missing = (values("paper", "compare-1", v) for v in ("published", "why_not"))
    frame = spreads("paper", "compare-1")
    frame += published.map(" ({:.1f})".format).where(missing == "", "")
    worst = values("audit", "audit")[[f"{name} 0.02" for name in REAL_WORLD.values()]]
    frame["unknown rows"] = values("paper", "table-2")["KS"].map("{:.2f}".format)
    frame["worst case"] = worst.mean(axis=1).map("{:.0f}".format)
    lines = frame_table(frame.assign(seconds=values("paper", "timing")["seconds per run"]))
    return [*lines, "", report_origin("audit"), report_origin("paper")]


def default_table(labels: Iterable[str] = ()) -> Lines:
    """Return the default and other methods on tables; without labels, all of the report."""
    runs = summary("tables").runs
    runs = runs[runs["label"].isin(list(labels))] if labels else runs
    test, train = clean(runs), clean(runs, "train")
    names = list(dict.fromkeys(test["dataset"]))
    votes, common = [n for n in names if n not in SETS], [n for n in names if n not in SETS[3:]]
    frame = pd.DataFrame({"tables with votes": means_over(test, "accuracy", votes)})
    for name in SETS[:3]:
        frame[name] = means_over(test, "accuracy", [name])
    frame["labels resolved"] = means_over(train, "accuracy", common)
    frame["calibration error"] = with_chance(test, common)
    frame["accepted at 5 %"] = means_over(test, "accepted", common)
    of_these = test[test["dataset"].isin(common)].groupby(["label", "dataset"])["accepted_error"]
    frame["of these wrong"] = 100 * of_these.mean().groupby("label").mean()
    shown = frame.map(lambda cell: cell if isinstance(cell, str) else f"{cell:.1f}")
    return [*frame_table(shown, "mean of 5 seeds, in %"), "", tables_origin()]


SETS = ("lost", "msrc-v2", "bird-song", "fg-net", "italian")  # real ones; the first three are small


def means_over(runs: pd.DataFrame, measure: str, datasets: Iterable[str]) -> "pd.Series[float]":
    """Return means over datasets of a method's means over seeds; NaN if it lacks one."""
    wide = runs.pivot_table(index="label", columns="dataset", values=measure, sort=False)
    return 100 * wide.reindex(columns=list(datasets)).mean(axis=1, skipna=False)


def with_chance(test: pd.DataFrame, datasets: Iterable[str]) -> "pd.Series[str]":
    """Return calibration errors; in brackets, in newer runs, that of a calibrated model."""
    errors = means_over(test, "ece", datasets).map("{:.1f}".format)
    chance = means_over(test, "ece_chance", datasets).dropna().map(" ({:.1f})".format)
    return errors + chance.reindex(errors.index, fill_value="")


USUAL = {"Auto": "`RobustPLLClassifier()`", "Majority + RF": "majority vote + random forest"}
USUAL |= {"Majority + HGB": "majority vote + boosted trees"}
USUAL |= {"Majority + LR": "majority vote + logistic regression"}
USUAL |= {"Dawid-Skene + LR": "Dawid-Skene + logistic regression"}
USUAL |= {"cleanlab + LR": "cleanlab + logistic regression"}
USUAL |= {title: title for title in ("Proden", "RobustPll", "RobustPll+Ens", "CRDPLL")}


def promise_table() -> Lines:
    """Return how well the probabilities of usual methods are calibrated, and what follows."""
    lines = default_table([*USUAL])
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    rows = [[USUAL.get(row[0], row[0]), *row[6:]] for row in cells]
    return [*table(["in %", *rows[0][1:]], rows[2:]), *lines[-2:]]


def usual_table() -> Lines:
    """Return the default beside what people do today, on tables, crowds and pictures."""
    runs, crowds = summary("tables").runs, values("crowds", "accuracy")
    test, train = clean(runs), clean(runs, "train")
    names = [name for name in dict.fromkeys(test["dataset"]) if name not in SETS[3:]]
    pictures = pd.concat([values("pictures", "table-1"), values("sound", "table-1")])
    columns = {
        "7 tables with votes": means_over(test, "accuracy", [n for n in names if n not in SETS]),
        "3 candidate-set tables": means_over(test, "accuracy", SETS[:3]),
        "2 real crowds": crowds[["LabelMe", "Sentiment"]].mean(axis=1),
        "4 picture sets": pictures[[*PICTURES.values()]].mean(axis=1),
        **dict(values("cifar", "accuracy")[["CIFAR-10", "CIFAR-10N"]].items()),
        "training labels right": means_over(train, "accuracy", names),
        "calibration error": with_chance(test, names).where(lambda c: ~c.str.contains("nan")),
    }
    frame = pd.DataFrame({name: column.reindex([*USUAL]) for name, column in columns.items()})
    origins = []
    for report in ("tables", "crowds", "pictures", "sound", "cifar"):
        seeds, date = len(set(summary(report).runs["seed"])), max(summary(report).facts["date"])
        origins.append(f"[{report}](reports/{report}) ({seeds} seed{'s' * (seeds > 1)}, {date})")
    machines = {name for report in ("tables", "cifar") for name in summary(report).facts["machine"]}
    origin = f"Stored runs: {', '.join(origins)}. Machines: {'; '.join(sorted(machines))}."
    return [*frame_table(frame.rename(USUAL), "in %"), "", origin]


MAJORITY = ("Majority + RF", "Majority + HGB", "Majority + LR")


def majority_table() -> Lines:
    """Return the default beside the best classifier of a majority vote, for each dataset."""
    rows, behind, seconds = [], [], values("tables", "timing")["seconds per run"]
    for report in ("tables", "crowds"):
        accuracy, resolved = (values(report, name) for name in ("accuracy", "resolved"))
        usual = accuracy.index.intersection(MAJORITY)
        for name in resolved.columns.drop("mean"):
            known = name in accuracy  # of crowds without features, there are no test rows
            best = [accuracy.loc[usual, name].max(), accuracy.loc["Auto", name]] if known else []
            cells = [f"{number:.1f}" for number in best] or ["", ""]
            cells += [f"{resolved.loc[usual, name].max():.1f}", f"{resolved.loc['Auto', name]:.1f}"]
            title = name + " (crowd)" * (report == "crowds" and known)
            rows.append([title, *cells])
            if known and best[1] <= best[0]:
                behind.append(title)
    head = ["", "accuracy, majority vote", "accuracy, default"]
    head += ["labels, majority vote", "labels, default"]
    ahead = sum(bool(row[1]) for row in rows) - len(behind)
    note = f"The default is at most as accurate on {' and '.join(behind)}; it is more accurate on "
    note += f"the {ahead} others. A run on a table takes {seconds['Auto']:.0f} s, that of a vote "
    note += f"and a forest {seconds['Majority + RF']:.0f} s."
    return [*table(head, rows), "", note, "", tables_origin(), crowd_origin()]


def best(dataset: str, *, ensembles: bool) -> str:
    """Return the title of the best published ensemble, or of the best other method."""
    titles = [kind.title for kind in PUBLISHED if (kind.family == "ensemble") == ensembles]
    return str(values("paper", TABLE_OF[dataset])[dataset][titles].idxmax())


def dataset_table() -> Lines:
    single, rows = [kind.title for kind in PUBLISHED if kind.family != "ensemble"], []
    for dataset, name in TABLE_OF.items():
        accuracy, bold = (values("paper", name, v)[dataset] for v in ("value", "bold"))
        facts = values("paper", "datasets").loc[FULL_NAMES.get(dataset, dataset)]
        top, ensemble = best(dataset, ensembles=False), best(dataset, ensembles=True)
        row = [dataset, f"{facts['rows']:,.0f}", f"{facts['classes']:.0f}"]
        row += [f"{facts['candidates on average']:.1f}", f"{top} {accuracy[top]:.1f}"]
        row += [", ".join(title for title in single if bold[title] and title != top)]
        rows.append([*row, f"{ensemble} {accuracy[ensemble]:.1f}", f"{accuracy['RobustPll']:.1f}"])
    head = ["", "rows", "classes", "candidates", "best", "not distinguishable", "best ensemble"]
    return [*table([*head, "RobustPll"], rows), "", report_origin("paper")]


def method_table() -> Lines:
    frame = pd.DataFrame({"kind": {kind.title: kind.family for kind in PUBLISHED}})
    frame["pictures"] = values("paper", "table-1")[[*PICTURES.values()]].mean(axis=1)
    for report, constructor in (("paper", ""), ("sound", ", plain constructor")):
        means = values(report, "real-world")[[*REAL_WORLD.values()]].mean(axis=1)
        frame[f"real-world{constructor}"] = means
    frame["KS of entropies"] = values("paper", "table-2")["KS"].map("{:.2f}".format)
    frame["has uncertainty"] = ["yes" * kind.uncertain for kind in PUBLISHED]
    frame["seconds per run"] = values("paper", "timing")["seconds per run"].map("{:.2f}".format)
    return [*frame_table(frame, "method"), "", report_origin("paper"), report_origin("sound")]


# Tables of benchmarks/settings.md and benchmarks/robustness.md

OURS = tuple(kind.title for kind in METHODS.values() if not kind.published)
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
    frame = accuracies(runs)
    for name in dict.fromkeys(runs["dataset"]):
        own = runs[runs["dataset"] == name]
        frame = frame.join(means(clean(own, "train"), "accuracy", f"{name} resolved"))
        frame = frame.join(means(clean(own), "ece", f"{name} ECE"))
    return frame


def preset_runs() -> pd.DataFrame:
    """Return the audited runs of published presets that differ from the plain constructor."""
    runs = runs_of("audit-paper")
    runs = runs[~runs["key"].isin(summary("audit").runs["key"])]
    return runs.assign(label=runs["label"] + ".paper")


def by_seed(runs: pd.DataFrame, dataset: str, condition: str = "clean") -> dict[str, pd.Series]:
    """Return the test accuracies of each label, in percent."""
    tests = runs[(runs["dataset"] == dataset) & (runs["condition"] == condition)]
    tests = tests[tests["part"] == "test"].set_index("seed")
    groups = tests.groupby("label", sort=False)["accuracy"]
    return {str(label): 100 * accuracy.sort_index() for label, accuracy in groups}


def paired_table() -> Lines:
    """Return our accuracies and, in brackets, the methods that they do not beat."""
    beyond, audit = runs_of("beyond"), summary("audit").runs
    others = pd.concat([audit[~audit["label"].isin(OURS)], preset_runs()])
    labels = [f"{title}{steps}" for steps in ("", " 5 steps") for title in OURS]
    labels = [label for label in labels if label in set(beyond["label"])]
    frame = pd.DataFrame(index=labels)
    for dataset in REAL_WORLD:
        for condition in ("clean", "audit 0.02", "audit 0.05"):
            ours, theirs = (by_seed(runs, dataset, condition) for runs in (beyond, others))
            cells = []
            for label in labels:
                mean, unbeaten = ours[label].mean(), []
                for other, accuracy in theirs.items():
                    differs = paired_p(ours[label], accuracy) < LEVEL
                    if mean < accuracy.mean() if differs else condition != "clean":
                        unbeaten.append(f"{other} {accuracy.mean():.1f}")
                listed = ", ".join(unbeaten) if len(unbeaten) <= 8 else f"{len(unbeaten)} methods"
                cells.append(f"{mean:.1f}" + (f" ({listed})" if listed else ""))
            frame[f"{dataset}{SUFFIXES[condition]}"] = cells
    return [*frame_table(frame), "", grid_origin("beyond", beyond)]


def letters_table() -> Lines:
    """Return accuracy on pictures, separation from letters, and cost relative to RobustPll."""
    beyond = runs_of("beyond")
    runs = pd.concat([summary("sound").runs, beyond[beyond["label"].isin(OURS)]])
    tests, letters = clean(runs), runs[runs["part"] == "ood"]
    tests = tests[tests["dataset"].isin(PICTURES)]
    frame = means(tests, "accuracy", tests["dataset"])[list(PICTURES)]
    frame = frame.join(means(tests[tests["dataset"] == "mnist"], "ece", "mnist ECE"))
    for measure in ("auroc", "ks", "area"):
        frame = frame.join(means(letters, measure, f"letters {measure}"))
    rows = stored("method-speed")["methods"].items()
    costs = {METHODS[name].title: row["ratio"] * row["units"] for name, row in rows}
    lines = frame_table(frame.assign(cost=pd.Series(costs)))
    return [*lines, "", report_origin("sound"), grid_origin("beyond", beyond)]


def ceiling_table() -> Lines:
    """Return variants of RobustPll, with the p-value against a ceiling of 1, and their ECE."""
    beyond = runs_of("beyond")
    datasets = beyond.groupby("label", sort=False)["dataset"].agg(set)
    is_variant = datasets.index.str.startswith("RobustPll") & ~datasets.index.isin(OURS)
    names = (*REAL_WORLD, *MANY_CLASSES)
    frame = pd.DataFrame(index=datasets[is_variant & datasets.map({*names}.issubset)].index)
    for name in names:
        accuracy, cells = by_seed(beyond, name), []
        for label in frame.index:
            p = paired_p(accuracy[label], accuracy["RobustPll ceiling 1"])
            cells.append(f"{accuracy[label].mean():.1f}" + ("" if np.isnan(p) else f" ({p:.3f})"))
        frame[name] = cells
        frame = frame.join(means(clean(beyond[beyond["dataset"] == name]), "ece", f"{name} ECE"))
    return [*frame_table(frame), "", grid_origin("beyond", beyond)]


def balance_table() -> Lines:
    """Return FMNIST accuracies of all methods, with p-values against balanced classes."""
    both, beyond, label = runs_of("balance"), runs_of("beyond"), "RobustPll balanced"
    ours, rows = by_seed(both, "fmnist")[label], []
    sources = {"": both, " ": beyond[beyond["label"].isin(OURS)]}
    sources |= {"()": summary("sound").runs, ".paper()": summary("paper").runs}
    for suffix, source in sources.items():
        for other, theirs in by_seed(source, "fmnist").items():
            p = f"{paired_p(ours, theirs):.4f}" if other != label else ""
            rows.append([f"{other}{suffix}".strip(), percent(theirs / 100), p])
    origin = grid_origin(f"{GRIDS}/balance.toml", both)
    return [*table(["", "FMNIST", "p"], rows), "", origin]


# columns of tables, datasets
CROWDS = {name: [name] for name in ("LabelMe", "Sentiment", "Sentiment TF-IDF", "CIFAR-10N, Lite0")}
CROWDS["votes only"] = [f"{name}, votes" for name in ("Bluebirds", "Dogs", "Faces", "Products")]
CROWDS["simulated"] = ["Digits", "Vowel", "Segment", "Satimage"]


def crowd_means(name: str) -> pd.DataFrame:
    """Return means over the datasets of each kind of crowd that have a value."""
    frame = values("crowds", name)
    kinds = {kind: [name for name in names if name in frame] for kind, names in CROWDS.items()}
    return pd.DataFrame({kind: frame[names].mean(axis=1) for kind, names in kinds.items() if names})


def crowd_label_table() -> Lines:
    """Return right labels of training rows, and wrong ones of the accepted labels."""
    frame, shares = crowd_means("resolved"), crowd_means("accepted-labels")
    for kind, wrong in crowd_means("accepted-labels-error").items():
        cells = wrong.map("{:.1f}".format) + shares[kind].map(" of {:.0f}".format)
        frame[f"wrong of accepted, {kind}"] = cells.where(wrong.notna(), "none accepted")
    return [*frame_table(frame), "", crowd_origin()]


def crowd_model_table() -> Lines:
    calibration = crowd_means("calibration").add_prefix("calibration error, ")
    return [*frame_table(crowd_means("accuracy").join(calibration)), "", crowd_origin()]


def crowd_origin() -> str:
    seeds = len(summary("crowds").grid.seeds)
    return report_origin("crowds").replace("crowds`", f"crowds --seeds {seeds} --store results`")


def strength_table() -> Lines:
    runs = runs_of("choose-adversary").drop(columns=["seed", "date"])
    frame = runs.groupby(["dataset", "adversary"], sort=False).mean()
    frame.index = [f"{name}, {adversary:g}" for name, adversary in frame.index]
    made = "Made by `python benchmarks/choose_adversary.py` on AMD EPYC, 2 cores, 2026-11-16."
    return [*frame_table(frame), "", made]


def recall_table() -> Lines:
    runs = runs_of("class-recall").drop(columns="date").set_index("label").astype(str)
    made = "Made by `python benchmarks/class_recall.py` from the runs of these grids, 2026-11-16."
    return [*frame_table(runs, "label"), "", made]


# Tables of scripts

WAYS = {way: way for way in ("majority", "Dawid-Skene", "cleanlab", "robustpll")}  # and titles
WAYS["cleanlab, robustpll"] = "cleanlab with robustpll"
TITLES = {name: kind.title for name, kind in METHODS.items()} | {"worst": "audit"}


def rows_of(
    node: Any, pattern: str, titles: tuple[str, ...] = (), above: Results | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield titles and results of all nodes that match a pattern, such as "sets/*/a|b".

    A name in a pattern is a step down. "*" and "a|b" match several nodes, which give the title;
    methods come in the order of `METHODS`. Results also have the entries of the nodes above.
    """
    step, _, rest = pattern.partition("/")
    above = above or {}
    if not step:
        yield ", ".join(titles), above | node if isinstance(node, dict) else node
        return
    order = {name: place for place, name in enumerate(METHODS)}
    names = [name for name in (node if step == "*" else step.split("|")) if name in node]
    for name in sorted(names, key=lambda name: order.get(name, -1)):
        child = node[name]
        title = child.get("title") if isinstance(child, dict) else None
        more = () if step == name else (title or TITLES.get(name, name),)
        yield from rows_of(child, rest, (*titles, *more), above | node)


def cell_of(value: Any, column: str) -> str:
    """Return a cell by "path:format"; a path into a list of runs gives a list."""
    path, _, form = column.partition(":")
    for key in path.split("/"):
        if isinstance(value, list):
            value = value[int(key)] if key.isdigit() else [run[key] for run in value]
        else:
            value = None if value is None else value.get(key)
    if value is None:
        return ""
    return FORMATS[form](value) if form in FORMATS else format(value, form)


def mean_of(numbers: list[float | None], factor: float = 100.0, digits: int = 1) -> str:
    """Return the mean over seeds; * if some seeds have none, ∞ if no value is finite."""
    known = [number for number in numbers if number is not None]
    mean = f"{factor * fmean(known):.{digits}f}" if known else "∞"
    return mean + "*" * (0 < len(known) < len(numbers))


def error_text(promise: Results) -> str:
    """Return the error of accepted rows and, in brackets, their share."""
    if None in promise["coverage"]:
        return ""
    share, wrong = np.array(promise["coverage"]), np.array(promise["error"], float)
    if not share.any():
        return "none"
    return f"{100 * np.nansum(wrong * share) / share.sum():.1f} ({100 * share.mean():.0f})"


def time_text(times: Results, digits: int) -> str:
    low, middle, high = (f"{times[key]:.{digits}f}" for key in ("10 %", "median ms", "90 %"))
    return f"{middle} ({low} to {high})"


FORMATS: dict[str, Callable[[Any], str]] = {
    "spread": spread,
    "spread of 2": partial(spread, digits=2),
    "error": partial(spread, std="standard_error"),
    "covered": partial(spread, mean="covered", std="covered_std"),
    "percent": percent,
    "mean": mean_of,
    "mean of 2": partial(mean_of, factor=1, digits=2),
    "promise": error_text,
    "ms of 0": partial(time_text, digits=0),
    "ms of 2": partial(time_text, digits=2),
    "count": lambda warnings: f"{len(warnings)} of 5",
    "at most": "at most {:.1%}".format,
    "interval": lambda found: "{mean:.1%} ({low:.1%} to {high:.1%})".format(**found),
}


def promise_note(report: Results) -> Lines:
    is_kept = [
        number is None or number <= error
        for _, result in rows_of(report, "sets/*/*")
        for error in (0.05, 0.1, 0.2)
        for number in (result["promises"]["labels"][f"error {error}"] or {"error": []})["error"]
    ]
    cases = f"{sum(is_kept)} of {len(is_kept)} cases (all methods, datasets, seeds and promises)"
    promise = "With thresholds from labels, the error on test rows was at most the promised one in"
    return ["", f"{promise} {cases}."]


def label_note(report: Results) -> Lines:
    """Return who has the most correct labels."""
    cases = [runs for _, runs in rows_of(report, "sets/*/*")]
    runs, lines = pd.DataFrame([run["labels"] for case in cases for run in case])[[*WAYS]], []
    case_means = runs.groupby(np.repeat(np.arange(len(cases)), [*map(len, cases)])).mean()
    for ways, words in (([*WAYS][:-1], "the first four"), ([*WAYS], "all five")):
        won = case_means[ways].idxmax(axis=1).value_counts()
        counts = ", ".join(f"{WAYS[way]} in {won[way]}" for way in ways if way in won)
        lines += [
            "",
            f"Most correct labels on average, of {words}: {counts} of {len(cases)} cases.",
        ]
    wins = runs.lt(runs["robustpll"], axis=0).sum()
    ahead = ", ".join(f"{WAYS[way]} in {wins[way]}" for way in WAYS if way != "robustpll")
    return [*lines, "", f"Of {len(runs)} runs, robustpll is ahead of {ahead}."]


SCRIPT_TABLES = tomllib.loads((ROOT / "benchmarks" / "tables.toml").read_text())
NOTES = {"error": promise_note, "labels": label_note}
OF_RUNS: dict[str, Callable[[], Lines]] = {
    "results": readme_table,
    "default": usual_table,
    "majority": majority_table,
    "promises": promise_table,
    "default and all": default_table,
    "datasets": dataset_table,
    "methods": method_table,
    "paired": paired_table,
    "letters": letters_table,
    "ceilings": ceiling_table,
    "balance": balance_table,
    "strengths": strength_table,
    "crowd labels": crowd_label_table,
    "crowd models": crowd_model_table,
    "recall": recall_table,
}


def script_lines(name: str) -> Lines:
    """Return a table of the results that a script stored."""
    form = SCRIPT_TABLES[name]
    report, columns = stored(form["results"]), form["columns"]
    rows = (
        [title, *(cell_of(row, column) for column in columns.values())]
        for title, row in rows_of(report, form["rows"])
    )
    lines = table([form.get("head", ""), *columns], rows)
    lines += NOTES[name](report) if name in NOTES else []
    command = f"python benchmarks/{report['command'].removeprefix('benchmarks/')}"
    return [*lines, "", made_by(command, report)]


def lines_of(name: str) -> Lines:
    """Return a table by its name, followed by the command that made it."""
    if name in OF_RUNS:
        return OF_RUNS[name]()
    if name in SCRIPT_TABLES:
        return script_lines(name)
    kind, _, rest = name.partition(": ")
    if kind == "tried":  # a grid of settings that were tried
        runs = runs_of(rest)
        return [*frame_table(accuracies(runs)), "", grid_origin(f"{GRIDS}/{rest}.toml", runs)]
    if kind == "audited":
        runs = summary("audit").runs if rest == "audit" else preset_runs()
        grid = "audit" if rest == "audit" else f"{GRIDS}/audit-paper.toml"
        return [*frame_table(audit_frame(runs)), "", grid_origin(grid, runs)]
    lines = report_tables(kind)[rest].to_markdown().splitlines()
    return [*lines[lines.index("") + 1 :], "", report_origin(kind)]  # without its title


def filled(text: str) -> str:
    """Return a page with all its tables."""

    def part(match: re.Match[str]) -> str:
        return "".join(f"{line}\n" for line in (match[1], *lines_of(match[2]))) + "<!-- end -->"

    return re.sub(r"(<!-- (?!end)([^\n]+) -->)\n.*?<!-- end -->", part, text, flags=re.S)


def main() -> None:
    for page in COMMITTED:
        (ROOT / page).write_text(filled((ROOT / page).read_text()))


if __name__ == "__main__":
    main()
