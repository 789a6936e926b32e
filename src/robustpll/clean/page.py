"""The review page: one HTML file in which people decide rows, with their pictures."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd

from robustpll.clean.judge import Judgement
from robustpll.clean.review import answers_of
from robustpll.clean.shown import Shown
from robustpll.html import data_uri, render_page
from robustpll.labels.votes import Votes
from robustpll.tables.images import FORMATS, bombs_as_errors, located, upright

TEMPLATE = Path(__file__).parent / "review.html.j2"
MAX_OUTSIDE, LIKELY = 2, 0.02  # offered non-candidates, and their least probability
# pixels of the longer side: of similar rows, of the row that is asked, and in full size
THUMBNAIL, MEDIUM, LARGE = 96, 320, 1024
TINY = 64  # pixels: up to here, files lose nothing, and the page shows each pixel as a square
MOST_BYTES = 50 * 10**6  # of all pictures in a page
NO_ROOM = f"linked only, as the others take {MOST_BYTES // 10**6} MB"
NO_PICTURE = f"damaged, too large, or not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


class Picture(NamedTuple):
    """What the page shows of a file; all parts are "" if a row names no file."""

    thumbnail: str = ""  # a data URI
    link: str = ""  # from the page to the file
    fault: str = ""  # why there is no thumbnail
    large: str = ""  # a data URI; "" if the thumbnail is large enough, or there is no room


def review_page(
    title: str,
    key: str,
    judged: Judgement,
    review: pd.DataFrame,
    *,
    columns: Sequence[str],
    shown: Sequence[Shown],
    notes: int = 0,
    names: Sequence[str] | None = None,
    table: str = "",
    pictures: Mapping[int, Picture] | None = None,
    votes: Votes | None = None,
    reliability: Mapping[str, float] | None = None,
    assumption: str = "",
) -> str:
    """Return the page with the rows of `review`, as `robustpll.clean.review` gives them.

    The browser stores decisions under the `key`; `table` is the fingerprint, see `RowKeys`. `shown`
    has the cells of each row; the first `notes` of their `columns` are no features. `names` are
    those of all rows, `pictures` are by position, and `reliability` is by annotator.
    """
    rows, pictures, reliability = review.index.to_numpy(), pictures or {}, reliability or {}
    annotators, answers = (), np.empty((len(judged.labels), 0), dtype=np.int64)
    if votes is not None:
        annotators, answers = answers_of(votes, judged)
    leading, confidence = judged.probability.argmax(-1), judged.confidence.round(4)
    fields = {
        "name": review["row"].astype(str).tolist(),
        "kind": review["why"].tolist(),
        "reason": review["reason"].tolist(),
        "confidence": confidence[rows].tolist(),
        "resolved": judged.resolved[rows].tolist(),
        "leading": leading[rows].tolist(),
        "lead": judged.probability[rows, leading[rows]].round(4).tolist(),
        "unsure": np.asarray(judged.opinion.uncertainty)[rows].round(3).tolist(),
        "options": [_options(judged, row) for row in rows],
        "answers": [[[n, c] for n, c in enumerate(a) if c >= 0] for a in answers[rows].tolist()],
        "picture": [pictures.get(row, []) for row in rows.tolist()],
    }
    fields |= {name: [getattr(row, name) for row in shown] for name in Shown._fields}
    resolved = {}  # of rows that are similar to others
    for position in sorted({position for row in shown for position, _ in row.similar}):
        label, is_decided = int(judged.resolved[position]), bool(judged.decided[position])
        picture = pictures.get(position, Picture()).thumbnail
        name = str(position) if names is None else names[position]
        resolved[position] = [name, label, float(confidence[position]), is_decided, picture]
    data = {
        "key": key,
        "table": table,
        "classes": [str(name) for name in judged.candidates.classes],
        "columns": list(columns),
        "notes": notes,
        "annotators": [[name, reliability.get(name)] for name in annotators],
        "resolved": resolved,
        "fields": [*fields],
        "rows": [*zip(*fields.values(), strict=True)],
    }
    head = {"title": title, "kinds": sorted(set(review["why"])), "count": len(review)}
    return render_page(TEMPLATE, data=data, assumption=assumption, **head)


def _options(judged: Judgement, row: int) -> list[list[Any]]:
    """Return the candidates of a row and likely other classes, the most probable first."""
    inside, probability = judged.candidates.matrix[row], judged.probability[row]
    order = np.argsort(-probability, kind="stable")
    others = order[~inside[order]][:MAX_OUTSIDE]
    is_offered = inside.copy()
    is_offered[others] = probability[others] >= LIKELY
    is_offered[order[0]] = True
    labels = order[is_offered[order]]
    belief = np.asarray(judged.opinion.belief)[row, labels].astype(float).round(3)
    columns = (labels, inside[labels], belief, probability[labels].round(3))
    return [list(option) for option in zip(*(column.tolist() for column in columns), strict=True)]


def load_pictures(
    paths: Sequence[str], table_folder: Path, out: Path, root: Path | None = None, large: int = 0
) -> list[Picture]:
    """Return a thumbnail and a link from the folder `out` for each path.

    Paths are relative to `root` or to the table's folder, and must lead to files below `root`
    (by default the table's folder), also through links. When all thumbnails together exceed
    50 MB, the remaining pictures are only linked. The first `large` paths get thumbnails of 320
    pixels, until half of the room is taken, and a picture of at most 1,024, if there is room left.
    """
    root, room, pictures, files = root or table_folder, MOST_BYTES, [], []
    for index, name in enumerate(paths):
        path = located(name, table_folder, root) if name else ""
        files.append(path)
        if isinstance(path, str):
            pictures.append(Picture(fault=path))
            continue
        pixels = MEDIUM if index < large and room > MOST_BYTES / 2 else THUMBNAIL
        small = thumbnail(path, pixels) if room >= 0 else ""
        room -= len(small)
        fault = NO_ROOM if room < 0 else "" if small else NO_PICTURE
        target = root / path.relative_to(root.resolve())
        try:
            link = quote(Path(os.path.relpath(target, out)).as_posix())  # never a URL scheme
        except ValueError:  # on another drive
            link = path.as_uri()
        pictures.append(Picture("" if fault else small, link, fault))
    for index, path in enumerate(files[:large]):
        if room > 0 and pictures[index].thumbnail and isinstance(path, Path):
            whole = thumbnail(path, LARGE)
            if len(pictures[index].thumbnail) < len(whole) <= room:
                room -= len(whole)
                pictures[index] = pictures[index]._replace(large=whole)
    return pictures


def thumbnail(path: Path, pixels: int = THUMBNAIL) -> str:
    """Return a picture of at most so many pixels as a data URI; "" if it is not a picture."""
    content = io.BytesIO()
    try:
        with bombs_as_errors():
            small = upright(path, pixels)
            small.thumbnail((pixels, pixels))
            kind = "PNG" if small.mode == "RGBA" or max(small.size) <= TINY else "JPEG"
            small.save(content, kind, quality=80)
    except Exception:  # Pillow documents no exceptions for damaged files
        return ""
    return data_uri(content.getvalue(), f"image/{kind.lower()}")
