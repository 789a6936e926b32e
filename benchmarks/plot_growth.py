"""Draws how the time of an epoch grows, from a report of training_speed.py.

python benchmarks/plot_growth.py benchmarks/results/training-speed-....json docs/growth.png
"""

import json
import sys
from pathlib import Path

import numpy as np

from robustpll.plots.style import COLOURS, new_figure, plain, save_png


def main(report: Path, picture: Path) -> None:
    found = json.loads(report.read_text())["growth"]
    figure = new_figure(12, 3.2)
    for axes, (side, grown) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        sizes, seconds = grown["sizes"], np.array(grown["seconds"])
        plain(axes, side).loglog(sizes, seconds, "o-", color=COLOURS[0])
        axes.loglog(sizes, seconds[-1] * np.array(sizes) / sizes[-1], ":", color="grey")
        axes.set_ylim(seconds.min() / 3, seconds.max() * 3)
        axes.set_xlabel(f"number of {side}")
    figure.axes[0].set_ylabel("seconds per epoch")
    figure.axes[0].text(0.05, 0.9, "dotted: linear", transform=figure.axes[0].transAxes)
    save_png(figure, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
