"""Small pictures for the page, made from the files that a column names."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from robustpll.html.shell import data_uri

LARGEST = 96  # pixels of the longer side
MOST_BYTES = 50 * 10**6  # of all pictures in a page
MOST_PIXELS = 10**8  # of a file: more is no photograph, and may be meant to fill the memory
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")  # others may run programs, as EPS does

MISSING, OUTSIDE, NO_PICTURE, NO_ROOM = (
    "missing",
    "outside the folder",
    f"damaged, too large, or not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}",
    f"linked only, as the others take {MOST_BYTES // 10**6} MB",
)


class Picture(NamedTuple):
    """What the page shows of a file; each part may be "". A row that names none has three such."""

    small: str = ""  # the thumbnail as its own address
    link: str = ""  # from the page to the file
    fault: str = ""  # why there is no thumbnail


def pictures(
    paths: Sequence[str], beside: Path, out: Path, root: Path | None = None
) -> list[Picture]:
    """For each path: the thumbnail, and a link from `out`.

    Paths are relative to the folder `root` or else, where nothing is there, to the folder `beside`
    of the table. What they lead to, through links too, must be below the root, which is the
    table's folder if there is none. When the thumbnails are 50 MB together, the others are linked
    only; so are files that are no pictures.

    >>> pictures(["no such.png", "", "../a.png"], Path("."), Path("."))
    [Picture(small='', link='', fault='missing'), Picture(small='', link='', fault=''),
     Picture(small='', link='', fault='outside the folder')]
    """
    room = MOST_BYTES
    shown = []
    for name in paths:
        picture = _picture(name, beside, out, root or beside, room > 0) if name else Picture()
        room -= len(picture.small)
        shown.append(picture if room >= 0 else picture._replace(small="", fault=NO_ROOM))
    return shown


def _picture(name: str, beside: Path, out: Path, root: Path, room: bool) -> Picture:
    try:
        real_root = root.resolve()
        path = (real_root / name).resolve()
        if not path.is_relative_to(real_root) or not path.exists():
            path = (beside.resolve() / name).resolve()
        if not path.is_relative_to(real_root):
            return Picture(fault=OUTSIDE)
        is_there, is_file = path.exists(), path.is_file()  # a pipe or a device would block
    except (OSError, ValueError, RuntimeError):  # names that no file can have, links in a circle
        return Picture(fault=MISSING)
    if not is_file:
        return Picture(fault=NO_PICTURE if is_there else MISSING)
    address = link(root / path.relative_to(real_root), out)
    if not room:
        return Picture(link=address, fault=NO_ROOM)
    small = thumbnail(path)
    return Picture(small, address, "" if small else NO_PICTURE)


def thumbnail(path: Path) -> str:
    """A picture of at most 96 pixels as its own address; "" where the file is none."""
    import warnings

    from PIL import Image, ImageOps

    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures; they are refused below
            with Image.open(path, formats=FORMATS) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return ""
                opened.draft("RGB", (2 * LARGEST, 2 * LARGEST))  # JPEG is read small, and fast
                small = ImageOps.exif_transpose(opened)
                clear = small.mode in ("RGBA", "LA", "PA") or "transparency" in small.info
                small = small.convert("RGBA" if clear else "RGB")
                small.thumbnail((LARGEST, LARGEST))
            kind = "PNG" if small.mode == "RGBA" or max(small.size) <= 32 else "JPEG"
            small.save(content, kind, quality=80)
    except Exception:  # of whatever kind: for damaged files Pillow promises none
        return ""
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
