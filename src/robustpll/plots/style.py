"""One look for all pictures."""

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
    """A figure of its own: pyplot's global state is left alone, and no screen is needed."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, title: str) -> Any:
    """Only the two lines that carry a scale; the title says what is seen."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return axes


def unmarked(name: str) -> str:
    r"""A name that a picture shows as it is: no formula, and no line that a legend leaves out.

    >>> unmarked("$k$"), unmarked("_mine")
    ('\\$k\\$', ' _mine')
    """
    return (" " if name.startswith("_") else "") + " ".join(name.split()).replace("$", r"\$")


def save_png(figure: "Figure", path: Path) -> None:
    write_whole(path, picture_bytes(figure, "png"))


def picture_bytes(figure: "Figure", kind: Literal["png", "svg"]) -> bytes:
    """A figure as a file: the same one always has the same bytes, and no date.

    >>> picture_bytes(new_figure(1, 1), "svg") == picture_bytes(new_figure(1, 1), "svg")
    True
    """
    from matplotlib import rc_context

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # places are found once: a second search ends elsewhere
    nothing = {"png": ("Software",), "svg": ("Date", "Creator", "Format", "Type")}[kind]
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "robustpll"}):  # names of clip paths are random without
        figure.savefig(buffer, format=kind, dpi=130, metadata=dict.fromkeys(nothing))
    return buffer.getvalue()
