"""The published numbers, beside those of a summary."""

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from robustpll.bench.accuracy_tables import POOLED, attacked, real_world, table_1, table_3
from robustpll.bench.grid import REAL_WORLD
from robustpll.bench.other_tables import OOD_HEADS, table_2
from robustpll.bench.tables import Cell, Published, ReportTable
from robustpll.datasets.noise import InstanceDependent

if TYPE_CHECKING:
    from robustpll.bench.summary import Line, Summary

POINTS = 2.0  # of real-world accuracy, pooled
OOD = 0.07  # of area and KS
BUILDERS = {1: table_1, 2: table_2, 3: table_3}
WITHIN = {
    1: f"max(1.0, 2 std) points, and {POINTS:g} points for {POOLED}; std is the paper's",
    2: f"{OOD:g}; MMD is not counted, as it depends on the bandwidth",
    3: f"{POINTS:g} points",
}
PAPER_HEADS = {"CDF area": "cdf_area", "KS": "ks", "MMD": "mmd"}


class Number(NamedTuple):
    """A number of the paper, in the unit of its table; `std` is None in the second."""

    mean: float
    std: float | None
    bold: bool


@cache
def published_numbers() -> Mapping[tuple[int, str, str], Number]:
    """The paper's three tables, by (table, method, column).

    >>> published_numbers()[1, "RobustPll", "MNIST"]
    Number(mean=96.0, std=0.1, bold=True)
    >>> len(published_numbers())
    222
    """
    text = files("robustpll.bench").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        std = float(row["std"]) if row["std"] else None
        number = Number(float(row["mean"]), std, row["bold"] == "1")
        found[int(row["table"]), row["method"], row["column"]] = number
    return MappingProxyType(found)


def compared_tables(summary: "Summary") -> tuple[ReportTable, ...]:
    """Those of the paper's three tables that the summary has, with the published numbers beside.

    A cell is counted if all its runs are there, made by the paper's settings on the paper's
    datasets; the others are shown, and say why they do not count.
    """
    known = {line.label: line for line in summary.lines if _in_paper(line)}
    tables = {number: builder(summary) for number, builder in BUILDERS.items()}
    return tuple(
        _beside(summary, number, table, known)
        for number, table in tables.items()
        if table is not None and any(row.label in known for row in table.rows)
    )


def agreement(table: ReportTable) -> str:
    """How many cells of a table from `compared_tables` are as published, in a sentence.

    >>> from robustpll.bench.tables import Row
    >>> near, far = (Cell(x, runs=1, asked=1, published=Published(1, 0, 1.0)) for x in (1.5, 3))
    >>> agreement(ReportTable("table-1", "", ("a", "b"), ((Row("m", (near, far)),),), (1, 1)))
    '1 of 2 cells agree with the paper.'
    """
    cells = [cell for row in table.rows for cell in row.cells]
    verdicts = [cell.agrees for cell in cells if cell.agrees is not None]
    sentence = f"{sum(verdicts)} of {len(verdicts)} cells agree with the paper."
    if not verdicts:
        sentence = "No cell can be held against the paper."
    reasons = Counter(why for cell in cells if cell.agrees is None and (why := _why_not(cell)))
    if reasons:
        told = ", ".join(f"{count} ({why})" for why, count in reasons.items())
        sentence += f" Not counted: {told}."
    return sentence


def _beside(
    summary: "Summary", number: int, table: ReportTable, known: Mapping[str, "Line"]
) -> ReportTable:
    groups = (tuple(row for row in group if row.label in known) for group in table.groups)
    of_paper = replace(
        table,
        name=f"compare-{number}",
        title=f"Table {number} beside the paper's",
        groups=tuple(group for group in groups if group),
        beside=True,
    )

    def with_published(label: str, head: str, cell: Cell) -> Cell:
        published = _published(summary, number, known[label], head)
        return replace(cell, bold=False, published=published)

    found = of_paper.changed(with_published)
    pooled = tuple(note for note in table.notes if note.startswith(POOLED))
    rule = f"To agree is to be within {WITHIN[number]}."
    return replace(found, notes=(agreement(found), rule, *pooled))


def _published(summary: "Summary", number: int, line: "Line", head: str) -> Published | None:
    column = {1: head, 2: PAPER_HEADS.get(head, ""), 3: f"eps={head}"}[number]
    paper = published_numbers().get((number, line.title, column))
    if paper is None:
        return None
    why_not = _reason(summary, number, line, head)
    tolerance = None if why_not else _tolerance(number, head, paper)
    return Published(paper.mean, paper.std, tolerance, why_not)


def _reason(summary: "Summary", number: int, line: "Line", head: str) -> str:
    """Why a cell cannot be compared, if so."""
    pooled = number == 3 or head == POOLED
    if not line.as_published:
        return "other settings"
    if pooled and (attacked if number == 3 else real_world)(summary) != REAL_WORLD:
        return "other datasets"
    if not pooled and summary.grid.noise != InstanceDependent():
        return "other noise"
    return "bandwidth of all methods" if head == OOD_HEADS["mmd"] else ""


def _tolerance(number: int, head: str, paper: Number) -> float:
    if number == 2:
        return OOD
    return POINTS if number == 3 or head == POOLED else max(1.0, 2 * (paper.std or 0.0))


def _why_not(cell: Cell) -> str:
    if cell.published is None:
        return ""
    if cell.value is None or not cell.complete:
        return "runs missing"
    return cell.published.why_not


def _in_paper(line: "Line") -> bool:
    """Whether a line stands for the method that the paper has: by its name, or its settings."""
    known = any(method == line.title for _, method, _ in published_numbers())
    return known and (line.as_published or line.label == line.title)
