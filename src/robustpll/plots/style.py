"""The common look of all figures."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robustpll._files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinguishable with the common forms of colour blindness (Okabe & Ito).
COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#000000")
GOOD, BAD, MUTED = "#009e73", "#d55e00", "#8a8f98"


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure that needs no screen and does not touch pyplot's global state."""
    from matplotlib.figure import Figure

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


def save_png(figure: "Figure", path: Path) -> None:
    write_whole(path, picture_bytes(figure, "png"))


def picture_bytes(figure: "Figure", kind: Literal["png", "svg"]) -> bytes:
    """Return a figure as a file; the same figure always has the same bytes.

    >>> picture_bytes(new_figure(1, 1), "svg") == picture_bytes(new_figure(1, 1), "svg")
    True
    """
    from matplotlib import rc_context

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second layout would differ slightly
    nothing = {"png": ("Software",), "svg": ("Date", "Creator", "Format", "Type")}[kind]
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "robustpll"}):  # else the names of clip paths are random
        figure.savefig(buffer, format=kind, dpi=130, metadata=dict.fromkeys(nothing))
    return buffer.getvalue()
