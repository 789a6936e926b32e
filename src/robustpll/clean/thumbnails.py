"""Small pictures for the page, made from the files that a column names."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from robustpll.html.shell import data_uri

LARGEST = 96  # pixels of the longer side
MOST_BYTES = 50 * 10**6  # of all pictures in a page
MOST_PIXELS = 10**8  # of a file: more is no photograph, and may be meant to fill the memory


def pictures(paths: Sequence[str], beside: Path, out: Path) -> list[tuple[str, str]]:
    """For each path: the thumbnail as its own address, or "", and a link from `out` to the file.

    Paths are relative to the folder `beside`. When the thumbnails are 50 MB together, the others
    are linked only; so are files that are no pictures. No file, no link.

    >>> pictures(["no such.png", ""], Path("."), Path("."))
    [('', ''), ('', '')]
    """
    room = MOST_BYTES
    found = []
    for name in paths:
        path = beside / name
        if not name or not path.is_file():
            found.append(("", ""))
            continue
        small = thumbnail(path) if room > 0 else ""
        room -= len(small)
        found.append((small if room >= 0 else "", link(path, out)))
    return found


def thumbnail(path: Path) -> str:
    """A picture of at most 96 pixels as its own address; "" where the file is none."""
    import warnings

    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures; they are refused below
            with Image.open(path) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return ""
                opened.draft("RGB", (2 * LARGEST, 2 * LARGEST))  # JPEG is read small, and fast
                small = ImageOps.exif_transpose(opened)
                clear = small.mode in ("RGBA", "LA", "PA") or "transparency" in small.info
                small = small.convert("RGBA" if clear else "RGB")
                small.thumbnail((LARGEST, LARGEST))
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError):
        return ""  # what a file holds is not ours: Pillow's readers raise all of these
    content = io.BytesIO()
    kind = "PNG" if small.mode == "RGBA" or max(small.size) <= 32 else "JPEG"
    small.save(content, kind, quality=80)
    return data_uri(content.getvalue(), f"image/{kind.lower()}")


def link(path: Path, out: Path) -> str:
    """From a page in the folder `out` to a file; no name in it can be a scheme.

    >>> link(Path("pictures/a b.png"), Path("out"))
    '../pictures/a%20b.png'
    """
    try:
        relative = os.path.relpath(path, out)
    except ValueError:  # on another drive
        return path.resolve().as_uri()
    return quote(Path(relative).as_posix())
