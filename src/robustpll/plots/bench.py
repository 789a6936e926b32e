"""Figures of a benchmark, by the labels of the report; they can be read without colours."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robustpll.errors import InputError
from robustpll.measures.metrics import sample
from robustpll.plots.style import COLOURS, MUTED, new_figure, plain, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_PER_ROW = 5
PALE = "0.8"


def attack_panels(accuracies: Mapping[str, Mapping[float, float]], title: str) -> "Figure":
    """Draw accuracy against the strength of an attack: a panel for each method, others in grey.

    `accuracies` are shares from 0 to 1 by method and epsilon; `title` says what the rows are.
    """
    _refuse_none(accuracies, "accuracies")
    from matplotlib.collections import LineCollection

    across = min(PANELS_PER_ROW, len(accuracies))
    down = -(-len(accuracies) // across)
    figure = new_figure(0.4 + 1.7 * across, 0.6 + 1.5 * down)
    figure.suptitle(unmarked(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    lines = {}
    for label, shares in accuracies.items():
        epsilons = sorted(shares)
        heights = sample([shares[epsilon] for epsilon in epsilons], f"accuracies of {label}")
        lines[label] = np.column_stack([epsilons, 100 * heights])  # (points, 2)
    for axes, (label, line) in zip(panels, lines.items(), strict=False):
        others = LineCollection(list(lines.values()), color=PALE, linewidth=0.8, zorder=1)
        axes.add_collection(others)
        axes.plot(*line.T, color="black", linewidth=1.6, marker="o", markersize=3.5, zorder=2)
        plain(axes, "").set_title(unmarked(label), loc="left", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(0, 100)
    for axes in panels[len(lines) :]:
        axes.remove()
    figure.supxlabel("epsilon: how far each scaled feature may move", fontsize=8)
    figure.supylabel("accuracy in %", fontsize=8)
    return figure


def rank_diagram(average: Mapping[str, float], distance: float) -> "Figure":
    """Draw average ranks on a line (Demšar, 2006); a bar joins methods that do not differ.

    `average` has ranks by method, 1 is best; ranks that differ must do so by more than `distance`.
    """
    _refuse_none(average, "average")
    order = sorted(average, key=lambda label: average[label])
    half = -(-len(order) // 2)
    bars = joined([average[label] for label in order], distance)
    low, high, top = 1.0, float(max(len(order), 2)), 0.25 * (len(bars) + 1)
    height = top + 0.28 * (half + 1)
    figure = new_figure(7.2, 0.9 + 1.15 * height)
    axes: Any = figure.subplots()
    axes.set_axis_off()
    margin = 0.3 * (high - low)
    axes.set(xlim=(low - margin, high + margin), ylim=(height, -0.75))
    axes.hlines(0, low, high, color="black", linewidth=1)
    for place, label in enumerate(order):
        left, rank = place < half, average[label]
        depth = top + 0.28 * ((place if left else len(order) - 1 - place) + 1)
        edge = low - 0.02 * margin if left else high + 0.02 * margin
        axes.plot([rank, rank, edge], [0, depth, depth], color="black", linewidth=0.8)
        words = f"{unmarked(label)}  {rank:.2f}" if left else f"{rank:.2f}  {unmarked(label)}"
        look = {"ha": "right" if left else "left", "va": "center", "size": 8}
        offset = (-3 if left else 3, 0)
        axes.annotate(words, (edge, depth), offset, textcoords="offset points", **look)
    for place, (first, last) in enumerate(bars, 1):
        ends = average[order[first]] - 0.04, average[order[last]] + 0.04
        axes.hlines(0.25 * place, *ends, color="black", linewidth=3.5)
    for rank in range(int(low), int(high) + 1):
        axes.vlines(rank, -0.08, 0, color="black", linewidth=0.8)
        axes.annotate(str(rank), (rank, -0.12), ha="center", va="bottom", fontsize=7)
    arrow = {"arrowstyle": "|-|, widthA=0.2, widthB=0.2"}
    axes.annotate("", (low, -0.5), (low + distance, -0.5), arrowprops=arrow)
    words = f"critical difference {distance:.2f}"
    axes.annotate(words, (low, -0.56), ha="left", va="bottom", fontsize=7, color=MUTED)
    return figure


def joined(ranks: Sequence[float], distance: float) -> list[tuple[int, int]]:
    """Return the longest stretches of sorted ranks within a distance, as (first, last)."""
    stretches: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= distance)
        if last > first and (not stretches or last > stretches[-1][1]):
            stretches.append((first, last))
    return stretches


def time_bars(seconds: Mapping[str, tuple[float, float]]) -> "Figure":
    """Draw seconds of training (filled) and examining (hatched) by method, with shares of all."""
    _refuse_none(seconds, "seconds")
    both = np.array([sample(pair, f"seconds of {label}") for label, pair in seconds.items()])
    totals, places = both.sum(-1), np.arange(len(both))
    figure = new_figure(6.4, 0.9 + 0.24 * len(both))
    axes = plain(figure.subplots(), "Where the time goes")
    axes.barh(places, both[:, 0], color=COLOURS[0], label="training")
    look = {"color": "white", "edgecolor": COLOURS[0], "hatch": "////"}
    axes.barh(places, both[:, 1], left=both[:, 0], label="examining", **look)
    for place, total in zip(places, totals, strict=True):
        words = f"{total:,.0f} s, {100 * total / (totals.sum() or 1.0):.1f} %"
        axes.annotate(
            words, (total, place), (4, 0), textcoords="offset points", va="center", size=7
        )
    axes.set_yticks(places, list(map(unmarked, seconds)), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * float(totals.max() or 1.0))
    axes.set_xlabel("seconds", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _refuse_none(methods: Mapping[str, Any], name: str) -> None:
    if not methods:
        raise InputError(f"{name} must name at least one method; it is empty.")
