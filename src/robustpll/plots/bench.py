"""Pictures of a benchmark: of measures, by the labels of the report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError
from robustpll.measures.metrics import sample
from robustpll.plots.style import COLOURS, MUTED, new_figure, plain, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Strengths = Mapping[float, float]  # epsilon -> accuracy

ACROSS = 5  # panels beside each other
PALE = "0.8"


def attack_panels(accuracies: Mapping[str, Strengths], title: str) -> "Figure":
    """Accuracy against the strength of an attack: a panel for each method, the others in grey.

    So any number of methods can be told apart without colours.

    Parameters
    ----------
    accuracies : mapping of methods to mappings of epsilon to accuracy
        Shares from 0 to 1.
    title : str
        What the rows are.

    Examples
    --------
    >>> falling = {"Proden": {0.0: 0.7, 0.1: 0.3}, "RobustPll": {0.0: 0.7, 0.1: 0.5}}
    >>> figure = attack_panels(falling, "Lost")
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['Proden', 'RobustPll']
    """
    _refuse_none(accuracies, "accuracies")
    from matplotlib.collections import LineCollection

    across = min(ACROSS, len(accuracies))
    down = -(-len(accuracies) // across)
    figure = new_figure(0.4 + 1.7 * across, 0.6 + 1.5 * down)
    figure.suptitle(unmarked(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    places = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    lines = {label: _points(each, label) for label, each in accuracies.items()}
    everyone = list(lines.values())
    for axes, (label, own) in zip(places, lines.items(), strict=False):
        axes.add_collection(LineCollection(everyone, color=PALE, linewidth=0.8, zorder=1))
        axes.plot(*own.T, color="black", linewidth=1.6, marker="o", markersize=3.5, zorder=2)
        plain(axes, "").set_title(unmarked(label), loc="left", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(0, 100)
    for axes in places[len(lines) :]:
        axes.remove()
    figure.supxlabel("epsilon: how far each scaled feature may move", fontsize=8)
    figure.supylabel("accuracy in %", fontsize=8)
    return figure


def rank_diagram(average: Mapping[str, float], distance: float) -> "Figure":
    """Average ranks on a line (Demšar, 2006); a bar joins methods that are not told apart.

    Parameters
    ----------
    average : mapping of methods to their average ranks
        1 is best.
    distance : float
        By which ranks must differ at least.

    Examples
    --------
    >>> figure = rank_diagram({"a": 1.2, "b": 1.9, "c": 2.9}, distance=1.0)
    >>> [text.get_text() for text in figure.axes[0].texts][:3]
    ['a  1.20', 'b  1.90', '2.90  c']
    """
    _refuse_none(average, "average")
    order = sorted(average, key=lambda label: average[label])
    half = -(-len(order) // 2)
    bars = joined([average[label] for label in order], distance)
    low, high, top = 1.0, float(max(len(order), 2)), 0.25 * (len(bars) + 1)
    height = top + 0.28 * (half + 1)
    figure = new_figure(7.2, 0.9 + 1.15 * height)
    axes = figure.subplots()
    axes.set_axis_off()
    margin = 0.3 * (high - low)
    axes.set(xlim=(low - margin, high + margin), ylim=(height, -0.75))
    axes.hlines(0, low, high, color="black", linewidth=1)
    for number, label in enumerate(order):
        left = number < half
        depth = top + 0.28 * ((number if left else len(order) - 1 - number) + 1)
        edge = low - 0.02 * margin if left else high + 0.02 * margin
        rank = average[label]
        axes.plot([rank, rank, edge], [0, depth, depth], color="black", linewidth=0.8)
        parts = (unmarked(label), f"{rank:.2f}")
        words, side = ("  ".join(parts), "right") if left else ("  ".join(parts[::-1]), "left")
        gap = (-3 if left else 3, 0)  # points
        axes.annotate(
            words, (edge, depth), gap, textcoords="offset points", ha=side, va="center", size=8
        )
    for number, (first, last) in enumerate(bars):
        ends = average[order[first]] - 0.04, average[order[last]] + 0.04
        axes.hlines(0.25 * (number + 1), *ends, color="black", linewidth=3.5)
    _draw_scale(axes, low, high, distance)
    return figure


def joined(ranks: Sequence[float], distance: float) -> list[tuple[int, int]]:
    """The longest stretches of rising ranks that lie within a distance, as (first, last).

    >>> joined([1.0, 1.5, 2.4, 4.0], distance=1.0)
    [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(at for at, other in enumerate(ranks) if other - rank <= distance)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def time_bars(seconds: Mapping[str, tuple[float, float]]) -> "Figure":
    """Seconds of training (filled) and examining (hatched) by method, with the share of all.

    >>> figure = time_bars({"Proden": (30.0, 10.0), "Valen": (120.0, 40.0)})
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['40 s, 20.0 %', '160 s, 80.0 %']
    """
    _refuse_none(seconds, "seconds")
    both = np.array([sample(each, f"seconds of {label}") for label, each in seconds.items()])
    whole = both.sum() or 1.0
    figure = new_figure(6.4, 0.9 + 0.24 * len(both))
    axes = plain(figure.subplots(), "Where the time goes")
    places = np.arange(len(both))
    axes.barh(places, both[:, 0], color=COLOURS[0], label="training")
    looks = {"color": "white", "edgecolor": COLOURS[0], "hatch": "////"}
    axes.barh(places, both[:, 1], left=both[:, 0], label="examining", **looks)
    for place, each in zip(places, both.sum(-1), strict=True):
        words = f" {each:,.0f} s, {100 * each / whole:.1f} %".strip()
        axes.annotate(words, (each, place), (4, 0), textcoords="offset points", va="center", size=7)
    axes.set_yticks(places, list(map(unmarked, seconds)), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * float(both.sum(-1).max() or 1.0))
    axes.set_xlabel("seconds", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def _draw_scale(axes: Any, low: float, high: float, distance: float) -> None:
    """Ticks for whole ranks, and the critical difference as a ruler above them."""
    for rank in range(int(low), int(high) + 1):
        axes.vlines(rank, -0.08, 0, color="black", linewidth=0.8)
        axes.annotate(str(rank), (rank, -0.12), ha="center", va="bottom", fontsize=7)
    end = low + distance
    axes.annotate(
        "", (low, -0.5), (end, -0.5), arrowprops={"arrowstyle": "|-|, widthA=0.2, widthB=0.2"}
    )
    words = f"critical difference {distance:.2f}"
    axes.annotate(words, (low, -0.56), ha="left", va="bottom", fontsize=7, color=MUTED)


def _points(accuracies: Strengths, label: str) -> NDArray[np.float64]:
    """Of a line, (p, 2)."""
    epsilons = sorted(accuracies)
    heights = sample([accuracies[epsilon] for epsilon in epsilons], f"accuracies of {label}")
    return np.column_stack([epsilons, 100 * heights])


def _refuse_none(several: Mapping[str, Any], name: str) -> None:
    if not several:
        msg = f"{name} must name at least one method; it is empty."
        raise InputError(msg)
