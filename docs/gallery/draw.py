"""Draw the pictures of the gallery, each for light and for dark pages.

python docs/gallery/draw.py            # all, which takes a few minutes
python docs/gallery/draw.py confusion  # some
"""

import io
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
from PIL import Image

mpl.use("Agg")  # no window is opened

from matplotlib import pyplot

FOLDER = Path(__file__).parent
PAGE, TEXT = "#1e2129", "#e2e4e9"  # of the site's dark pages
COLOURS = 64  # of a file


def style(mode: str) -> dict[str, str]:
    """Return matplotlib's settings for a mode, "light" or "dark"."""
    if mode == "light":
        return {}
    background = dict.fromkeys(["figure.facecolor", "axes.facecolor", "savefig.facecolor"], PAGE)
    texts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return background | dict.fromkeys(texts, TEXT) | {"legend.facecolor": PAGE}


def picture(script: Path, mode: str) -> bytes:
    """Run a script, and return its figure as a PNG file of few colours."""
    buffer, small = io.BytesIO(), io.BytesIO()
    with mpl.rc_context(style(mode)):
        runpy.run_path(str(script))
        pyplot.gcf().savefig(buffer, dpi=120)
        pyplot.close("all")
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> None:
    for script in sorted(FOLDER.glob("*.py")):
        if script.stem != "draw" and (script.stem in sys.argv or len(sys.argv) == 1):
            for mode in ("light", "dark"):
                (FOLDER / f"{script.stem}-{mode}.png").write_bytes(picture(script, mode))


if __name__ == "__main__":
    main()
