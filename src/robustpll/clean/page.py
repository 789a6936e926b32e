"""The review page: one HTML file in which people decide rows, with thumbnails of pictures."""

import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from robustpll.clean.judge import Judgement
from robustpll.html import data_uri, render_page

TEMPLATE = Path(__file__).parent / "review.html.j2"
MAX_OUTSIDE, LIKELY = 2, 0.02  # offered non-candidates, and their least probability
MAX_COLUMNS = 40  # of the table
MAX_CELL = 300  # characters
THUMBNAIL = 96  # pixels of the longer side
MOST_BYTES = 50 * 10**6  # of all thumbnails in a page
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")  # other formats may run programs

MISSING, OUTSIDE = "missing", "outside the folder"
NO_ROOM = f"linked only, as the others take {MOST_BYTES // 10**6} MB"
NO_PICTURE = f"damaged, too large, or not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


class Picture(NamedTuple):
    """What the page shows of a file; all parts are "" if a row names no file."""

    thumbnail: str = ""  # a data URI
    link: str = ""  # from the page to the file
    fault: str = ""  # why there is no thumbnail


def review_page(
    title: str,
    key: str,
    judged: Judgement,
    review: pd.DataFrame,
    *,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    pictures: Sequence[Sequence[str]] | None = None,
    votes: NDArray[np.float64] | None = None,
    assumption: str = "",
) -> str:
    """Return the page with the rows of `review`, as `robustpll.clean.review` gives them.

    The browser stores decisions under the `key`, see `fingerprint`. `columns` and `cells` are what
    the table says about these rows; `votes` (n, k) counts the votes for each class in all rows.
    """
    indices = review.index.to_numpy()
    rows = zip(  # in the order that review.js expects
        review["row"].astype(str),
        review["why"],
        review["reason"],
        (1 - judged.confidence[indices]).round(4).tolist(),
        judged.resolved[indices].tolist(),
        np.asarray(judged.opinion.uncertainty)[indices].round(3).tolist(),
        [_options(judged, index, votes) for index in indices],
        [[c if len(c) <= MAX_CELL else f"{c[: MAX_CELL - 1]}…" for c in row] for row in cells],
        pictures or [[]] * len(review),
        strict=True,
    )
    classes = [str(name) for name in judged.candidates.classes]
    data = {"key": key, "classes": classes, "columns": list(columns), "voted": votes is not None}
    shown = {"title": title, "kinds": sorted(set(review["why"])), "count": len(review)}
    return render_page(TEMPLATE, data=data | {"rows": list(rows)}, assumption=assumption, **shown)


def _options(judged: Judgement, row: int, votes: NDArray[np.float64] | None) -> list[list[Any]]:
    """Return the candidates of a row, the most probable first, then likely other classes."""
    inside, probability = judged.candidates.matrix[row], judged.probability[row]
    order = np.argsort(-probability, kind="stable")
    others = order[~inside[order]][:MAX_OUTSIDE]
    labels = np.concatenate([order[inside[order]], others[probability[others] >= LIKELY]])
    columns = (
        labels,
        inside[labels],
        np.asarray(judged.opinion.belief)[row, labels].astype(float).round(3),
        probability[labels].round(3),
        np.zeros_like(labels) if votes is None else votes[row, labels].astype(int),
    )
    return [list(option) for option in zip(*(column.tolist() for column in columns), strict=True)]


def load_pictures(
    paths: Sequence[str], table_folder: Path, out: Path, root: Path | None = None
) -> list[Picture]:
    """Return a thumbnail and a link from the folder `out` for each path.

    Paths are relative to `root` or to the table's folder, and must lead to files below `root`
    (by default the table's folder), also through links. When all thumbnails together exceed
    50 MB, the remaining pictures are only linked.
    """
    root, room, pictures = root or table_folder, MOST_BYTES, []
    for name in paths:
        path = _located(name, table_folder, root) if name else ""
        if isinstance(path, str):
            pictures.append(Picture(fault=path))
            continue
        small = thumbnail(path) if room >= 0 else ""
        room -= len(small)
        fault = NO_ROOM if room < 0 else "" if small else NO_PICTURE
        target = root / path.relative_to(root.resolve())
        try:
            link = quote(Path(os.path.relpath(target, out)).as_posix())  # never a URL scheme
        except ValueError:  # on another drive
            link = path.as_uri()
        pictures.append(Picture("" if fault else small, link, fault))
    return pictures


def _located(name: str, table_folder: Path, root: Path) -> Path | str:
    """Return the file that a cell names, or why it is not shown."""
    try:
        paths = [(folder.resolve() / name).resolve() for folder in (root, table_folder)]
        inside = [path for path in paths if path.is_relative_to(root.resolve())]
        files = [path for path in inside if path.is_file()]  # a pipe or a device would block
    except (OSError, ValueError, RuntimeError):  # impossible names, circular links
        return MISSING
    return files[0] if files else MISSING if inside else OUTSIDE


def thumbnail(path: Path) -> str:
    """Return a picture of at most 96 pixels as a data URI; "" if the file is not a picture."""
    from PIL import Image, ImageOps

    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # a picture of 10**8 pixels may be meant to fill the memory
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as opened:
                opened.draft("RGB", (2 * THUMBNAIL, 2 * THUMBNAIL))  # faster for JPEG
                small = ImageOps.exif_transpose(opened)
                transparent = small.mode in ("RGBA", "LA", "PA") or "transparency" in small.info
                small = small.convert("RGBA" if transparent else "RGB")
                small.thumbnail((THUMBNAIL, THUMBNAIL))
            kind = "PNG" if transparent or max(small.size) <= 32 else "JPEG"
            small.save(content, kind, quality=80)
    except Exception:  # Pillow documents no exceptions for damaged files
        return ""
    return data_uri(content.getvalue(), f"image/{kind.lower()}")
