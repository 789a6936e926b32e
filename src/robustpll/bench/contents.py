"""What a report holds: its tables and figures, in their order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from robustpll.bench.accuracy_tables import (
    Column,
    attacked,
    audit_table,
    calibration_table,
    cells_of,
    dataset_table,
    extra_table,
    real_world_table,
    resolved_table,
    strengths,
    table_1,
    table_3,
    title_of,
)
from robustpll.bench.compare import compared_tables
from robustpll.bench.measures import Curves
from robustpll.bench.other_tables import (
    PUBLISHED_PAIR,
    missing_table,
    ood_table,
    overview_table,
    sessions_table,
    table_2,
    timing_table,
)
from robustpll.bench.ranks import ranked
from robustpll.bench.run import Condition
from robustpll.bench.tables import ReportTable
from robustpll.plots.bench import attack_panels, rank_diagram, time_bars
from robustpll.plots.curves import distribution_lines
from robustpll.plots.style import picture_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robustpll.bench.summary import Summary

# The methods of the paper's figure, by panel.
PANELS = (
    ("proden", "proden_edl", "dst_pll", "robust_pll"),
    ("proden_dropout", "proden_ens", "proden_adv_ens", "robust_pll_ens"),
)


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure of a report; `name` is that of its files."""

    name: str
    title: str
    caption: str
    figure: "Figure"

    @cached_property
    def svg(self) -> bytes:
        """As the page shows it."""
        return picture_bytes(self.figure, "svg")


def all_tables(summary: "Summary") -> tuple[ReportTable, ...]:
    """Those that a summary has something for."""
    found: list[ReportTable | None] = [table_1(summary), table_2(summary), table_3(summary)]
    found += compared_tables(summary)
    found += [real_world_table(summary), extra_table(summary), resolved_table(summary)]
    found += [calibration_table(summary), audit_table(summary)]
    found += [dataset_table(summary, dataset) for dataset in summary.stored]
    found += [ood_table(summary, *pair) for pair in summary.grid.ood if pair != PUBLISHED_PAIR]
    found += [overview_table(summary), timing_table(summary), sessions_table(summary)]
    found += [missing_table(summary)]
    return tuple(table for table in found if table is not None)


def all_figures(summary: "Summary") -> tuple[ReportFigure, ...]:
    """Those that a summary has something for."""
    return (
        *_entropy_figures(summary),
        *_attack_figures(summary),
        *_rank_figure(summary),
        *_time_figure(summary),
    )


def entropy_panels(summary: "Summary", dataset: str, other: str) -> list[Mapping[str, Curves]]:
    """Curves of the paper's eight methods, in its two panels; of others if none of them is here.

    Of several lines with one method the first is taken.
    """
    of_pair = {
        line: summary.curves[line.label, dataset, other]
        for line in summary.lines
        if (line.label, dataset, other) in summary.curves
    }
    panels: list[dict[str, Curves]] = []
    for methods in PANELS:
        first = {line.method: line for line in reversed(of_pair) if line.method in methods}
        panels.append({first[m].label: of_pair[first[m]] for m in methods if m in first})
    if not any(panels):
        panels = [
            {line.label: each for line, each in list(of_pair.items())[at : at + 4]} for at in (0, 4)
        ]
    return [panel for panel in panels if panel]


def _entropy_figures(summary: "Summary") -> Iterator[ReportFigure]:
    for dataset, other in summary.grid.ood:
        panels = entropy_panels(summary, dataset, other)
        if not panels:
            continue
        published = (dataset, other) == PUBLISHED_PAIR
        titles = f"{title_of(dataset)} and {title_of(other)}"
        caption = (
            f"Entropies on test rows of {title_of(dataset)} (dark) and on {title_of(other)}, whose "
            "rows are of no known class (light): the share of rows up to each entropy, pooled over "
            "the seeds. The further the light line is to the right of the dark one, the better a "
            "method notices what it does not know."
        )
        name = "entropy" if published else f"entropy-{dataset}-{other}"
        figure = distribution_lines(panels)
        yield ReportFigure(name, f"Entropies: {titles}", caption, figure)


def _attack_figures(summary: "Summary") -> Iterator[ReportFigure]:
    pool = attacked(summary)
    titles = ", ".join(map(title_of, pool))
    if len(pool) > 1:
        yield from _attack_figure(summary, "attack", f"Real-world sets pooled: {titles}", pool)
    for dataset in summary.stored:
        title = title_of(dataset)
        yield from _attack_figure(summary, f"attack-{dataset}", title, (dataset,))


def _attack_figure(
    summary: "Summary", name: str, title: str, datasets: tuple[str, ...]
) -> Iterator[ReportFigure]:
    """Lines through the complete cells of attacked methods."""
    steps = sorted({epsilon for each in datasets for epsilon in strengths(summary, each)})
    if len(steps) < 2:
        return
    lines: dict[str, dict[float, float]] = {}
    for epsilon in steps:
        cells = cells_of(summary, Column("", datasets, Condition("test", epsilon)))
        for line in summary.lines:
            cell = cells[line.label]
            if line.attacked and cell.complete and cell.value is not None:
                lines.setdefault(line.label, {})[epsilon] = cell.value / 100
    if not lines:
        return
    caption = (
        "Accuracy on test rows against the strength of the published attack, mean over the seeds; "
        "the other methods are grey. Methods without gradients are not attacked, and points that "
        "lack runs are not drawn."
    )
    yield ReportFigure(name, f"Attack: {title}", caption, attack_panels(lines, title))


def _rank_figure(summary: "Summary") -> Iterator[ReportFigure]:
    ranks = ranked(summary)
    if ranks is not None:
        figure = rank_diagram(ranks.average, ranks.distance)
        yield ReportFigure("ranks", "Average ranks", ranks.caption, figure)


def _time_figure(summary: "Summary") -> Iterator[ReportFigure]:
    times = summary.timing
    columns = (times[name] for name in ("label", "seconds_train", "seconds_examine"))
    seconds = {label: (train, examine) for label, train, examine in zip(*columns, strict=True)}
    if seconds:
        caption = (
            "Seconds of all runs of a method; runs that are trained together share those of their "
            f"bundle. Machine: {', '.join(summary.facts['machine'])}."
        )
        yield ReportFigure("timing", "Time by method", caption, time_bars(seconds))
