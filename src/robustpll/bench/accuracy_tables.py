"""Tables of accuracy and calibration: the paper's first and third, and those of datasets."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from robustpll.bench.grid import REAL_WORLD
from robustpll.bench.run import MOST_AUDITED, Condition
from robustpll.bench.tables import Cell, ReportTable, Row
from robustpll.datasets.catalog import CATALOG
from robustpll.measures.metrics import mean_std
from robustpll.measures.significance import LEVEL, Groups, Runs, bold, single_best

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.bench.summary import Line, Summary

PICTURES = {"mnist": "MNIST", "fmnist": "FMNIST", "kmnist": "KMNIST", "notmnist": "NotMNIST"}
POOLED = "real-world"
CLEAN = Condition("test")


@dataclass(frozen=True)
class Column:
    """A column of shares, in percent: of runs on one dataset or several, examined in one way."""

    head: str
    datasets: tuple[str, ...]
    condition: Condition = CLEAN
    measure: Literal["accuracy", "ece"] = "accuracy"  # of the former more is better


def table_1(summary: "Summary") -> ReportTable | None:
    """Accuracy without attack: each picture set, and the paper's real-world sets pooled."""
    columns = [Column(head, (name,)) for name, head in PICTURES.items() if name in summary.stored]
    pool = real_world(summary)
    if pool:
        columns.append(Column(POOLED, pool))
    notes = [*pooled_note(pool), *_left_out(summary, PICTURES)]
    title = "Table 1: accuracy on test rows, in percent"
    return _table(summary, "table-1", title, columns, notes=notes)


def table_3(summary: "Summary") -> ReportTable | None:
    """Accuracy under attack, on the paper's real-world sets pooled; attacked methods alone."""
    pool = attacked(summary)
    steps = sorted({epsilon for name in pool for epsilon in strengths(summary, name)})
    columns = [Column(str(epsilon), pool, Condition("test", epsilon)) for epsilon in steps]
    notes = [
        "Columns are epsilons, by which each scaled feature may move (0.0: no attack).",
        *pooled_note(pool),
    ]
    title = "Table 3: accuracy on real-world test rows under attack, in percent"
    lines = [line for line in summary.lines if line.attacked]
    return _table(summary, "table-3", title, columns, notes=notes, lines=lines)


def real_world_table(summary: "Summary") -> ReportTable | None:
    """Accuracy without attack on each of the paper's real-world sets."""
    pool = real_world(summary)
    title = "Accuracy on each real-world set, in percent"
    columns = [Column(title_of(name), (name,)) for name in pool]
    return _table(summary, "real-world", title, columns, notes=_left_out(summary, REAL_WORLD))


def extra_table(summary: "Summary") -> ReportTable | None:
    """Accuracy without attack on the sets that are not the paper's."""
    own = [
        name for name in summary.grid.datasets if name not in PICTURES and name not in REAL_WORLD
    ]
    title = "Accuracy on sets that are not in the paper, in percent"
    columns = [Column(title_of(name), (name,)) for name in own if name in summary.stored]
    return _table(summary, "extra", title, columns, notes=_left_out(summary, own))


def dataset_table(summary: "Summary", dataset: str) -> ReportTable | None:
    """Accuracy on one dataset by the strength of the attack; None if it is not attacked."""
    steps = strengths(summary, dataset)
    if len(steps) < 2:
        return None
    columns = [Column(str(each), (dataset,), Condition("test", each)) for each in steps]
    title = f"Accuracy on {title_of(dataset)} under attack, in percent"
    notes = ["Columns are epsilons, by which each scaled feature may move (0.0: no attack)."]
    return _table(summary, f"attack-{dataset}", title, columns, notes=notes)


def audit_table(summary: "Summary") -> ReportTable | None:
    """Accuracy at worst, on each dataset that the grid audits; None if there is no such."""
    columns = [
        Column(f"{title_of(name)} {epsilon:g}", (name,), Condition("test", audit=epsilon))
        for name, epsilons in summary.grid.audit
        for epsilon in sorted(epsilons)
        if name in summary.stored
    ]
    notes = [
        "Accuracy by dataset and epsilon, by which each scaled feature may move. A row counts as "
        "right only if the true class alone is the most probable, without attack and under all, at "
        "this epsilon and at smaller ones of the grid: several that follow gradients in float64, "
        "one without gradients, and rows that fool a twin. Methods without gradients face the last "
        "two alone, so that less was tried on them. An attack that was not tried may do better.",
        f"The first {MOST_AUDITED:,} test rows of each run, or all if there are fewer.",
    ]
    title = "Worst case under the audit, accuracy in percent"
    return _table(summary, "audit", title, columns, notes=notes)


def resolved_table(summary: "Summary") -> ReportTable | None:
    """How many training labels are found among the candidates; None if the grid does not ask."""
    if not summary.grid.train_rows:
        return None
    columns = [Column(title_of(name), (name,), Condition("train")) for name in summary.stored]
    notes = ["The share of training rows whose most probable class is the true one."]
    title = "Resolved training labels, in percent"
    return _table(summary, "resolved", title, columns, notes=notes)


def calibration_table(summary: "Summary") -> ReportTable | None:
    """How far probabilities are from what comes true, on test rows without attack."""
    columns = [Column(title_of(name), (name,), measure="ece") for name in summary.stored]
    notes = [
        "Less is better. The expected calibration error of the predicted class's probability, in "
        "percent: the mean distance of promised and right, in 15 bins of about equally many test "
        "rows."
    ]
    title = "Calibration: expected error of probabilities, in percent"
    return _table(summary, "calibration", title, columns, notes=notes)


def cells_of(summary: "Summary", column: Column) -> dict[str, Cell]:
    """The cell of each label, with bold by the paper's rule; incomplete cells take no part."""
    found = _of_column(summary.runs, column)
    lacking = _of_column(summary.missing, column)
    runs: dict[str, dict[Hashable, float]] = {line.label: {} for line in summary.lines}
    values = (found[name] for name in ("label", "dataset", "seed", column.measure))
    for label, dataset, seed, share in zip(*values, strict=True):
        runs[label][dataset, int(seed)] = 100 * float(share)
    most = len(column.datasets) * len(summary.grid.seeds)
    cells = {
        label: _cell(
            list(each.values()), lacking[lacking["label"] == label]["reason"], column, most
        )
        for label, each in runs.items()
    }
    complete = {label: runs[label] for label, cell in cells.items() if cell.complete}
    if column.measure == "ece":
        complete = {m: {at: 100 - x for at, x in own.items()} for m, own in complete.items()}
    best = _best(complete, {line.label: line.group for line in summary.lines})
    return {label: replace(cell, bold=label in best) for label, cell in cells.items()}


def _best(column: Mapping[str, Runs], groups: Groups) -> frozenset[str]:
    if any(len(runs) < 2 for runs in column.values()):  # nothing to test
        return single_best(
            {label: math.fsum(runs.values()) for label, runs in column.items()}, groups
        )
    return bold(column, groups)


def real_world(summary: "Summary") -> tuple[str, ...]:
    """Those of the paper's six sets that have runs."""
    return tuple(name for name in REAL_WORLD if name in summary.stored)


def attacked(summary: "Summary") -> tuple[str, ...]:
    """Those of them that were attacked."""
    return tuple(name for name in real_world(summary) if len(strengths(summary, name)) > 1)


def strengths(summary: "Summary", dataset: str) -> tuple[float, ...]:
    """Under which a dataset was examined, 0 included."""
    runs = summary.runs
    audited = runs["condition"].str.startswith("audit")
    own = runs[(runs["dataset"] == dataset) & (runs["part"] == "test") & ~audited]
    return tuple(sorted(float(epsilon) for epsilon in own["epsilon"].unique()))


def title_of(dataset: str) -> str:
    """As people write it: "Lost"."""
    return CATALOG[dataset].title if dataset in CATALOG else dataset


def pooled_note(pool: Sequence[str]) -> list[str]:
    """Which of the paper's six sets a pooled column rests on."""
    if not pool:
        return []
    titles = ", ".join(title_of(name) for name in pool)
    count = "all" if len(pool) == len(REAL_WORLD) else f"{len(pool)} of"
    note = (
        f"{POOLED}: {count} the paper's six sets ({titles}), whose runs are pooled with equal "
        "weight, so that the deviation is mostly that between sets."
    )
    without = [title_of(name) for name in REAL_WORLD if name not in pool]
    if without:
        note += f" Without {', '.join(without)}: compare methods here, not with the paper."
    return [note]


def grouped(
    lines: "Iterable[Line]", cells: Mapping[str, Sequence[Cell]]
) -> tuple[tuple[Row, ...], ...]:
    """Rows of single methods, then those of ensembles."""
    lines = list(lines)
    groups = (
        tuple(Row(line.label, tuple(cells[line.label])) for line in lines if line.group == group)
        for group in ("single", "ensemble")
    )
    return tuple(group for group in groups if group)


def _table(
    summary: "Summary",
    name: str,
    title: str,
    columns: Sequence[Column],
    *,
    notes: Sequence[str],
    lines: "Sequence[Line] | None" = None,
) -> ReportTable | None:
    """None if there is nothing to show."""
    lines = summary.lines if lines is None else lines
    if not columns or not lines:
        return None
    found = [cells_of(summary, column) for column in columns]
    groups = grouped(lines, {line.label: [each[line.label] for each in found] for line in lines})
    table = ReportTable(name, title, tuple(c.head for c in columns), groups, (1,) * len(columns))
    return replace(table, notes=(_rule(summary), *_incomplete(table), *notes))


def _rule(summary: "Summary") -> str:
    seeds = len(summary.grid.seeds)
    if seeds == 1:
        return (
            "One seed: a column of one dataset has no spread, and bold is the best of its group "
            "alone (ensembles, others)."
        )
    return (
        f"Mean ± standard deviation over {seeds} seeds. Bold: the best of its group (ensembles, "
        "others), and those that a paired t-test does not tell from it "
        f"(p ≥ {LEVEL:g}, not corrected for the number of tests)."
    )


def _incomplete(table: ReportTable) -> list[str]:
    if all(cell.complete or not cell.asked for row in table.rows for cell in row.cells):
        return []
    return ["Cells that lack runs say how many they have, and take no part in bold."]


def _left_out(summary: "Summary", names: Iterable[str]) -> list[str]:
    absent = [n for n in names if n in summary.grid.datasets and n not in summary.stored]
    titles = ", ".join(PICTURES.get(name, title_of(name)) for name in absent)
    return [f"Asked for, but no run is stored: {titles}."] if absent else []


def _of_column(frame: "pd.DataFrame", column: Column) -> "pd.DataFrame":
    asked = column.condition
    alike = (frame["part"] == asked.part) & (frame["condition"] == asked.name)
    return frame[alike & frame["dataset"].isin(column.datasets)]


def _cell(values: Sequence[float], reasons: "pd.Series[str]", column: Column, most: int) -> Cell:
    """Of `most` runs, unless none is asked for; a method may run on some of the datasets alone."""
    if not len(values) + len(reasons):
        return Cell(note="not attacked" if column.condition.epsilon else "not asked for")
    if values:
        mean, std = mean_std(values)
        return Cell(mean, std if most > 1 else None, len(values), most)
    return Cell(asked=most, note="failed" if (reasons == "failed").any() else "missing")
