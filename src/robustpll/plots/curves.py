"""Distribution functions of stored predictions; they can be told apart without colours."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from robustpll.errors import InputError
from robustpll.plots.style import new_figure, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MAX_PANELS = 4


def distribution_lines(panels: Sequence[Mapping[str, tuple[ArrayLike, ArrayLike]]]) -> "Figure":
    """Plot distribution functions of test entropies (dark) and OOD entropies (light).

    Each panel maps up to six methods to the points (p, 2) of their two lines.

    >>> line = [[0.0, 0.5], [0.4, 1.0]]
    >>> len(distribution_lines([{"Proden": (line, line)}]).axes[0].lines)
    2
    """
    if not 1 <= len(panels) <= MAX_PANELS or not all(1 <= len(p) <= len(LINES) for p in panels):
        sizes = [len(panel) for panel in panels]
        raise InputError(
            f"panels must be 1 to {MAX_PANELS}, of 1 to {len(LINES)} methods each; got panels of "
            f"{sizes} methods. Draw several figures."
        )
    from matplotlib import colormaps

    figure, shades = new_figure(3.0 * len(panels), 1.8), colormaps["tab20"]  # dark, light, dark ...
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(places, panels, strict=True):
        for number, (title, (test, ood)) in enumerate(panel.items()):
            style = {"linestyle": LINES[number], "linewidth": 1.2}
            label, dark, light = unmarked(title), shades(2 * number), shades(2 * number + 1)
            axes.plot(*np.asarray(test, float).T, color=dark, label=label, **style)
            axes.plot(*np.asarray(ood, float).T, color=light, **style)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_xlabel("Predictive Entropy (Test / OOD)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(color="0.9", linewidth=0.6)
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
        axes.legend(frameon=False, fontsize=7, handlelength=2.6, **above)
    places[0].set_ylabel("Empirical CDF", fontsize=8)
    return figure
