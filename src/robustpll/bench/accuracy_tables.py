"""Tables of accuracy: the paper's first and third, and those of single datasets."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robustpll.bench.grid import REAL_WORLD
from robustpll.bench.tables import Cell, ReportTable, Row
from robustpll.data.catalog import CATALOG
from robustpll.evaluate.metrics import mean_std
from robustpll.evaluate.significance import LEVEL, Groups, Runs, bold, single_best

if TYPE_CHECKING:
    import pandas as pd

    from robustpll.bench.summary import Line, Summary

PICTURES = {"mnist": "MNIST", "fmnist": "FMNIST", "kmnist": "KMNIST", "notmnist": "NotMNIST"}
POOLED = "real-world"


@dataclass(frozen=True)
class Column:
    """A column of accuracies: runs on one dataset or several, clean or under attack."""

    head: str
    datasets: tuple[str, ...]
    epsilon: float = 0.0


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
    columns = [Column(str(epsilon), pool, epsilon) for epsilon in steps]
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
    columns = [Column(str(epsilon), (dataset,), epsilon) for epsilon in steps]
    title = f"Accuracy on {title_of(dataset)} under attack, in percent"
    notes = ["Columns are epsilons, by which each scaled feature may move (0.0: no attack)."]
    return _table(summary, f"attack-{dataset}", title, columns, notes=notes)


def accuracy_cells(summary: "Summary", column: Column) -> dict[str, Cell]:
    """The cell of each label, with bold by the paper's rule; incomplete cells take no part."""
    found = _of_column(summary.runs, column)
    lacking = _of_column(summary.missing, column)
    runs: dict[str, dict[Hashable, float]] = {line.label: {} for line in summary.lines}
    rows = zip(found["label"], found["dataset"], found["seed"], found["accuracy"], strict=True)
    for label, dataset, seed, accuracy in rows:
        runs[label][dataset, int(seed)] = 100 * float(accuracy)
    cells = {
        label: _cell(list(each.values()), lacking[lacking["label"] == label]["reason"], column)
        for label, each in runs.items()
    }
    complete = {label: runs[label] for label, cell in cells.items() if cell.complete}
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
    own = runs[(runs["dataset"] == dataset) & (runs["part"] == "test")]
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
    found = [accuracy_cells(summary, column) for column in columns]
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
    of_test = (frame["part"] == "test") & (frame["epsilon"] == column.epsilon)
    return frame[of_test & frame["dataset"].isin(column.datasets)]


def _cell(values: Sequence[float], reasons: "pd.Series[str]", column: Column) -> Cell:
    asked = len(values) + len(reasons)
    if values:
        mean, std = mean_std(values)
        return Cell(mean, std if asked > 1 else None, len(values), asked)
    if not asked:
        return Cell(note="not attacked" if column.epsilon else "not asked for")
    return Cell(asked=asked, note="failed" if (reasons == "failed").any() else "missing")
