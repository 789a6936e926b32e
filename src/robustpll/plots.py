"""Figures as functions of numbers; they can be read without colours."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

# Distinguishable with the common forms of colour blindness (Okabe & Ito).
COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#000000")
GOOD, BAD, MUTED, PALE = "#009e73", "#d55e00", "#8a8f98", "#cccccc"
DASHES = ("-", "--", "-.", ":")
PANELS_PER_ROW = 5


def new_figure(width: float, height: float) -> Figure:
    """Return a figure that needs no screen and does not touch pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, title: str) -> Any:
    """Remove the top and right border, and set the title."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return axes


def unmarked(name: str) -> str:
    r"""Escape a name for matplotlib: no formula, and no label that a legend leaves out.

    >>> unmarked("$k$"), unmarked("_mine")
    ('\\$k\\$', ' _mine')
    """
    return (" " if name.startswith("_") else "") + " ".join(name.split()).replace("$", r"\$")


def picture_bytes(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """Return a figure as a file; the same figure always has the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second layout would differ slightly
    nothing = {"png": ("Software",), "svg": ("Date", "Creator", "Format", "Type")}[kind]
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "robustpll"}):  # else the names of clip paths are random
        figure.savefig(buffer, format=kind, dpi=130, metadata=dict.fromkeys(nothing))
    return buffer.getvalue()


def distribution_lines(panels: Sequence[Mapping[str, tuple[ArrayLike, ArrayLike]]]) -> Figure:
    """Plot distribution functions of test entropies (dark) and OOD entropies (light).

    Each panel maps up to four methods to the points (p, 2) of their two lines.
    """
    figure, shades = new_figure(3.0 * len(panels), 1.8), colormaps["tab20"]  # dark, light, dark ...
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(places, panels, strict=True):
        for number, (title, lines) in enumerate(panel.items()):
            label, style = unmarked(title), {"linestyle": DASHES[number], "linewidth": 1.2}
            test, ood = (np.asarray(line, float).T for line in lines)
            axes.plot(*test, color=shades(2 * number), label=label, **style)
            axes.plot(*ood, color=shades(2 * number + 1), **style)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_xlabel("Predictive Entropy (Test / OOD)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(color="0.9", linewidth=0.6)
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
        axes.legend(frameon=False, fontsize=7, handlelength=2.6, **above)
    places[0].set_ylabel("Empirical CDF", fontsize=8)
    return figure


def attack_panels(accuracies: Mapping[str, Mapping[float, float]], title: str) -> Figure:
    """Draw accuracy against the strength of an attack: a panel for each method, others in grey.

    `accuracies` are in percent, by method and epsilon; `title` says what the rows are.
    """
    across = min(PANELS_PER_ROW, len(accuracies))
    down = -(-len(accuracies) // across)
    figure = new_figure(0.4 + 1.7 * across, 0.6 + 1.5 * down)
    figure.suptitle(unmarked(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    lines = {label: np.array(sorted(curve.items())) for label, curve in accuracies.items()}
    for axes, (label, line) in zip(panels, lines.items(), strict=False):  # line: (points, 2)
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
