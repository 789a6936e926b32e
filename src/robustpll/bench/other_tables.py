"""Tables of what is not accuracy: OOD rows, time, datasets, and what is missing."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robustpll.bench.accuracy_tables import grouped, title_of
from robustpll.bench.tables import Cell, ReportTable, Row
from robustpll.measures.significance import single_best

if TYPE_CHECKING:
    from robustpll.bench.summary import Summary

OOD_HEADS = {"area": "CDF area", "ks": "KS", "mmd": "MMD"}
PUBLISHED_PAIR = ("mnist", "notmnist")


def table_2(summary: "Summary") -> ReportTable | None:
    """How far apart the entropies of test and OOD rows are: MNIST against NotMNIST."""
    return ood_table(summary, *PUBLISHED_PAIR)


def ood_table(summary: "Summary", dataset: str, other: str) -> ReportTable | None:
    """The same for any dataset and another; None if there are no such runs."""
    frame = summary.ood[(summary.ood["dataset"] == dataset) & (summary.ood["other"] == other)]
    if frame.empty:
        return None
    rows: dict[str, Any] = {row["label"]: row for row in frame.to_dict("records")}
    asked = {each.label for each in summary.grid.runs() if each.run.dataset == dataset}
    summary = replace(summary, lines=tuple(e for e in summary.lines if e.label in asked))
    columns = [_ood_column(summary, rows, measure) for measure in OOD_HEADS]
    cells = {line.label: [each[line.label] for each in columns] for line in summary.lines}
    published = (dataset, other) == PUBLISHED_PAIR
    title = f"entropies on test rows of {title_of(dataset)} and on {title_of(other)}"
    return ReportTable(
        "table-2" if published else f"ood-{dataset}-{other}",
        f"Table 2: {title}" if published else title.capitalize(),
        tuple(OOD_HEADS.values()),
        grouped(summary.lines, cells),
        (4,) * len(OOD_HEADS),
        _ood_notes(summary, rows),
    )


def timing_table(summary: "Summary") -> ReportTable | None:
    """Seconds by method."""
    cells = {
        row["label"]: [
            Cell(float(row["runs"])),
            Cell(float(row["models"])) if row["models"] else Cell(),
            *(Cell(float(row[name])) for name in ("seconds", "seconds_train", "seconds_examine")),
            Cell(100 * float(row["share"])),
        ]
        for row in summary.timing.to_dict("records")
    }
    if not cells:
        return None
    heads = ("runs", "models per run", "seconds per run", "training", "examining", "share in %")
    notes = (
        "Runs are trained together; a run's seconds are its share of those of its bundle. "
        "Examining is predicting, attacks included.",
        f"Machine: {', '.join(summary.facts['machine'])}.",
    )
    lines = [line for line in summary.lines if line.label in cells]
    groups = grouped(lines, cells)
    return ReportTable("timing", "Time by method", heads, groups, (0, 0, 2, 1, 1, 1), notes)


def sessions_table(summary: "Summary") -> ReportTable | None:
    """Where the time of each `bench run` went."""
    heads = {
        "starting": ("starting",),
        "noise": ("noise, load", "noise, train"),
        "loading": ("runs, load",),
        "training": ("runs, train",),
        "examining": ("runs, examine",),
        "writing": ("write",),
    }
    rows = []
    for name, told in summary.sessions.items():
        spent = [sum(told["parts"].get(part, 0.0) for part in parts) for parts in heads.values()]
        begun = f"{name[:4]}-{name[4:6]}-{name[6:8]} {name[9:11]}:{name[11:13]}"
        cells = [Cell(float(told["runs"])), Cell(float(told["seconds"])), *map(Cell, spent)]
        rows.append(Row(f"{begun}, {told['executor']}", tuple(cells)))
    if not rows:
        return None
    notes = ("Seconds; those after the clock's are summed over all processes.",)
    columns, digits = ("runs", "by the clock", *heads), (0,) * (2 + len(heads))
    groups = (tuple(rows),)
    return ReportTable("sessions", "Where the time went", columns, groups, digits, notes, "begun")


def overview_table(summary: "Summary") -> ReportTable:
    """The datasets of the grid."""
    heads = {
        "rows": "rows",
        "features": "features",
        "classes": "classes",
        "candidates": "candidates on average",
        "single": "one candidate in %",
    }
    frame = summary.datasets.dropna(axis="columns", how="all")  # what the store does not tell
    names = [name for name in heads if name in frame.columns]
    rows = []
    for facts in frame.to_dict("records"):
        cells = [_fact(float(facts[name]) * (100 if name == "single" else 1)) for name in names]
        runs = summary.runs[summary.runs["dataset"] == facts["dataset"]]
        rows.append(Row(facts["title"], (*cells, Cell(float(runs["key"].nunique())))))
    return ReportTable(
        "datasets",
        "Datasets",
        (*(heads[name] for name in names), "stored runs"),
        (tuple(rows),),
        (*({"candidates": 2, "single": 1}.get(name, 0) for name in names), 0),
        ("Candidates that noise made are counted on the training rows of all seeds.",),
        "dataset",
    )


def missing_table(summary: "Summary") -> ReportTable | None:
    """What the grid asks for and the store lacks; None if nothing is."""
    rows = []
    keys = ["dataset", "reason", "sentence"]
    for named, group in summary.missing.groupby(keys, sort=False):
        dataset, reason, sentence = map(str, named)
        runs = len(group.drop_duplicates(["label", "seed"]))
        methods = ", ".join(dict.fromkeys(group["label"]))
        everyone = len(summary.lines) > 1 and group["label"].nunique() == len(summary.lines)
        words = ("all" if everyone else methods, reason, sentence)
        cells = (Cell(float(runs)), *(Cell(note=word) for word in words))
        rows.append(Row(title_of(dataset), cells))
    if not rows:
        return None
    heads = ("runs", "methods", "why", "in words")
    title = "Runs that are asked for, but missing"
    return ReportTable("missing", title, heads, (tuple(rows),), (0, 0, 0, 0), (), "dataset")


def _ood_column(summary: "Summary", rows: dict[str, Any], measure: str) -> dict[str, Cell]:
    cells = {
        line.label: _ood_cell(summary, rows.get(line.label), measure) for line in summary.lines
    }
    complete = {label: cell.value or 0.0 for label, cell in cells.items() if cell.complete}
    groups = {line.label: line.group for line in summary.lines}
    best = single_best(complete, groups) if complete else frozenset()
    return {label: replace(cell, bold=label in best) for label, cell in cells.items()}


def _ood_cell(summary: "Summary", row: dict[str, Any] | None, measure: str) -> Cell:
    asked = len(summary.grid.seeds)
    if row is None:
        return Cell(asked=asked, note="missing")
    value = float(row[measure])
    if math.isnan(value):
        return Cell(asked=asked, note="undefined")
    return Cell(value, runs=int(row["seeds"]), asked=asked)


def _ood_notes(summary: "Summary", rows: dict[str, Any]) -> tuple[str, ...]:
    gamma = float(next(iter(rows.values()))["gamma"])
    notes = [
        f"Entropies are pooled over {len(summary.grid.seeds)} seeds. Positive: the method is less "
        "sure of rows of no known class. Bold: the best of its group (ensembles, others), if it is "
        "above 0."
    ]
    if not math.isnan(gamma):
        notes.append(
            f"MMD: the bandwidth (gamma = {gamma:.4g}) comes from the entropies of all methods "
            "here, so that each number depends on which were run."
        )
    few = [label for label, row in rows.items() if row["seeds"] < row["asked"]]
    absent = [line.label for line in summary.lines if line.label not in rows]
    if few or absent:
        notes.append(f"Not all runs are there: {', '.join([*few, *absent])}.")
    return tuple(notes)


def _fact(value: float) -> Cell:
    return Cell(note="") if math.isnan(value) else Cell(value)
