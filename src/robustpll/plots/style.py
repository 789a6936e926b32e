"""One look for all pictures."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustpll.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable with the common forms of colour blindness (Okabe & Ito).
COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#000000")
GOOD, BAD, MUTED = "#009e73", "#d55e00", "#8a8f98"


def new_figure(width: float, height: float) -> "Figure":
    """A figure of its own: pyplot's global state is left alone, and no screen is needed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, title: str) -> Any:
    """Only the two lines that carry a scale; the title says what is seen."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return axes


def save_png(figure: "Figure", path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    write_whole(path, buffer.getvalue())
