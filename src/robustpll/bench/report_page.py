"""The page of a benchmark: what it says, and in which order."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robustpll.bench.accuracy_tables import title_of
from robustpll.bench.contents import ReportFigure
from robustpll.bench.run import PlannedRun
from robustpll.bench.tables import ReportTable, number
from robustpll.html.shell import Column, Details, LongTable, render_page

if TYPE_CHECKING:
    from robustpll.bench.summary import Summary

TEMPLATE = Path(__file__).with_name("report.html.j2")
SECTIONS = {  # where tables and figures go, by the beginning of their names
    "Accuracy": ("table-1", "real-world", "extra", "resolved", "ranks"),
    "Calibration": ("calibration",),
    "Rows of no known class": ("table-2", "ood", "entropy"),
    "Attacks": ("table-3", "attack"),
    "Worst case under the audit": ("audit",),
    "Time and cost": ("timing", "sessions"),
    "Datasets": ("datasets",),
    "Missing runs": ("missing",),
}
FOLDED = "attack-"  # a table and a figure for each dataset
RUN = ["label", "dataset", "seed"]
UNDONE = {  # by the reason in the summary
    "not run": "not made yet, or not under all conditions",
    "failed": "failed",
    "unreadable": "stored in files that cannot be read",
}


class Measure(NamedTuple):
    """A column of the table of runs."""

    name: str  # in the frame
    title: str
    decimals: int
    factor: float = 1.0
    in_table: bool = True


MEASURES = (
    Measure("rows", "rows", 0, in_table=False),
    Measure("accuracy", "accuracy in %", 1, 100),
    Measure("guesses", "guesses in %", 2, 100, in_table=False),
    Measure("entropy", "entropy", 3),
    Measure("uncertainty", "uncertainty", 3),
    Measure("brier", "Brier", 3),
    Measure("log_loss", "log loss", 3, in_table=False),
    Measure("ece", "ECE in %", 1, 100, in_table=False),
    Measure("auroc", "AUROC", 3),
    Measure("ks", "KS", 3, in_table=False),
    Measure("area", "CDF area", 3, in_table=False),
)


@dataclass(frozen=True)
class Section:
    """A part of the page, or what a click on its title unfolds."""

    title: str
    tables: list[ReportTable]
    figures: list[ReportFigure]
    folded: list["Section"] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return self.title.lower().replace(" ", "-")


def page(summary: "Summary", tables: Sequence[ReportTable], figures: Sequence[ReportFigure]) -> str:
    """The whole page. It names the days of the runs, and none of its own making.

    >>> from robustpll.bench.grid import Grid
    >>> from robustpll.bench.store import ResultStore
    >>> from robustpll.bench.summary import summarize
    >>> nothing = summarize(ResultStore("nowhere"), Grid.named("quick"))
    >>> f"0 of {len(nothing.grid.runs())} runs are stored" in page(nothing, [], [])
    True
    """
    return render_page(
        TEMPLATE,
        grid=summary.grid,
        headline=_headline(summary),
        missing=list(_missing(summary)),
        verdicts=[(t.title.split(" beside")[0], t.notes[0]) for t in tables if t.beside],
        sections=list(_sections(_with_published(tables), figures)),
        runs=_run_table(summary),
        number=number,
        is_number=_is_number,
        is_judged=_is_judged,
    )


def _sections(tables: Sequence[ReportTable], figures: Sequence[ReportFigure]) -> Iterator[Section]:
    """What a summary has something for; what is about one dataset is folded away."""
    folded = {
        table.name: Section(
            table.title, [table], [each for each in figures if each.name == table.name]
        )
        for table in tables
        if table.name.startswith(FOLDED)
    }
    for title, names in SECTIONS.items():
        section = Section(
            title,
            [each for each in tables if each.name.startswith(names) and each.name not in folded],
            [each for each in figures if each.name.startswith(names) and each.name not in folded],
            [each for name, each in folded.items() if name.startswith(names)],
        )
        if section.tables or section.figures or section.folded:
            yield section


def _with_published(tables: Sequence[ReportTable]) -> list[ReportTable]:
    """Tables that have a twin beside the paper's take its numbers and notes; the twins go."""
    twins = {table.name.replace("compare", "table"): table for table in tables if table.beside}
    return [
        _joined(table, twins[table.name]) if table.name in twins else table
        for table in tables
        if not table.beside
    ]


def _joined(table: ReportTable, twin: ReportTable) -> ReportTable:
    published = {
        (row.label, head): cell.published
        for row in twin.rows
        for head, cell in zip(twin.columns, row.cells, strict=True)
    }
    found = table.changed(
        lambda label, head, cell: replace(cell, published=published.get((label, head)))
    )
    notes = tuple(dict.fromkeys(table.notes + twin.notes))
    return replace(found, notes=notes, beside=True)


def _is_number(table: ReportTable, column: int) -> bool:
    """Whether a column has numbers; others have words, which are set from the left."""
    return any(row.cells[column].value is not None for row in table.rows)


def _is_judged(table: ReportTable) -> bool:
    """Whether any cell is told to be as published, or not."""
    return any(cell.agrees is not None for row in table.rows for cell in row.cells)


def _headline(summary: "Summary") -> str:
    """What was done, when and where."""
    grid, facts, here = summary.grid, summary.facts, len(summary.stored)
    stored = len(summary.runs[RUN].drop_duplicates())
    few = f"{here} of " if here < len(grid.datasets) else ""
    told = (
        f"{_counted(len(summary.lines), 'method')} on {few}"
        f"{_counted(len(grid.datasets), 'dataset')} with {_counted(len(grid.seeds), 'seed')}: "
        f"{stored:,} of {_counted(len(grid.runs()), 'run')} are stored."
    )
    if not stored:
        return told
    seconds = summary.timing["seconds_train"].sum() + summary.timing["seconds_examine"].sum()
    return (
        f"{told} They were made {_days(facts['date'])} on {', '.join(facts['machine'])} with "
        f"robustpll {', '.join(facts['version'])} and torch {', '.join(facts['torch'])}, and took "
        f"{_duration(float(seconds))} of computing.{_versions(summary)}"
    )


def _versions(summary: "Summary") -> str:
    """Of which datasets the file is another one than the catalogue's."""
    return "".join(
        f" The file of {title_of(name)} is the version {content}, not the usual one."
        for name, content in summary.contents.items()
    )


def _missing(summary: "Summary") -> Iterator[str]:
    """What the grid asks for and the store lacks: a sentence for each reason."""
    lacking = summary.missing.drop_duplicates([*RUN, "reason"])
    reasons = lacking["reason"]
    if absent := list(dict.fromkeys(lacking["dataset"][reasons == "no data"])):
        runs = _counted(int((reasons == "no data").sum()), "run")
        yield f"{runs} on {', '.join(map(title_of, absent))}: none of them is stored"
    for reason, words in UNDONE.items():
        if count := int((reasons == reason).sum()):
            yield f"{_counted(count, 'run')} {words}"


def _run_table(summary: "Summary") -> LongTable:
    """All runs under all conditions; rows of one run open the same details."""
    columns = [
        Column("method", choose=True, in_details=False),
        Column("dataset", choose=True, in_details=False),
        Column("seed", 0, in_details=False),
        Column("condition", choose=True),
        *(Column(each.title, each.decimals, in_table=each.in_table) for each in MEASURES),
    ]
    plans = {(each.label, each.run.dataset, each.run.seed): each for each in summary.grid.runs()}
    rows, details, opens = [], [], []
    before = None
    for record in summary.runs.to_dict("records"):
        if _run(record) != before:
            before = _run(record)
            details.append(_details(record, plans[before]))
        rows.append(_cells(record))
        opens.append(len(details) - 1)
    return LongTable("runs", columns, rows, details, opens)


def _run(record: Mapping[Any, Any]) -> tuple[str, str, int]:
    """What tells runs of a grid apart."""
    return record["label"], record["dataset"], record["seed"]


def _cells(record: Mapping[Any, Any]) -> tuple[str | float | None, ...]:
    condition = "training rows" if record["part"] == "train" else record["condition"]
    # Two decimals more than are shown: what looks alike is still sorted, and the page stays small.
    numbers = (
        None
        if math.isnan(record[each.name])
        else round(each.factor * record[each.name], each.decimals + 2)
        for each in MEASURES
    )
    return *_run(record), condition, *numbers


def _details(record: Mapping[Any, Any], plan: PlannedRun) -> Details:
    description = plan.run.description
    method, noise = description["method"], description["noise"]
    return Details(
        f"{record['label']} on {title_of(record['dataset'])}, seed {record['seed']}",
        {
            "Run": {
                "key": record["key"],
                "seconds of training": round(record["seconds_train"], 3),
                "seconds of examining": round(record["seconds_examine"], 3),
                "machine": record["machine"],
            },
            f"Method: {method['class']}": method["fields"],
            "Candidates": noise or {"noise": "none: the dataset has candidates"},
        },
    )


def _counted(count: int, word: str) -> str:
    """
    >>> _counted(1, "run"), _counted(1140, "run")
    ('1 run', '1,140 runs')
    """
    return f"{count:,} {word}{'s' * (count != 1)}"


def _days(stamps: Sequence[str]) -> str:
    """
    >>> _days(["2026-11-09"]), _days(["2026-10-31", "2026-11-02", "2026-11-09"])
    ('on 9 November 2026', 'from 31 October 2026 to 9 November 2026')
    """
    first, last = (
        f"{day.day} {day:%B %Y}" for day in map(date.fromisoformat, (stamps[0], stamps[-1]))
    )
    return f"on {first}" if first == last else f"from {first} to {last}"


def _duration(seconds: float) -> str:
    """
    >>> _duration(42.4), _duration(600), _duration(9000)
    ('42 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
