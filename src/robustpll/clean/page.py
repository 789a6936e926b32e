"""The review page: one HTML file in which people decide rows, and what it shows of a row."""

import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd

from robustpll.clean.decisions_file import CHANGED, CONFLICT, Decided
from robustpll.clean.judge import Floats, Ints, Judgement
from robustpll.clean.review import answers_of
from robustpll.html import data_uri, render_page
from robustpll.labels.votes import Votes
from robustpll.tables.images import FORMATS, bombs_as_errors, located, upright
from robustpll.tables.read import Table

TEMPLATE = Path(__file__).parent / "review.html.j2"
MAX_OUTSIDE, LIKELY = 2, 0.02  # offered non-candidates, and their least probability
# pixels of the longer side: of similar rows, of the row that is asked, and in full size
THUMBNAIL, MEDIUM, LARGE = 96, 320, 1024
TINY = 64  # pixels: up to here, files lose nothing, and the page shows each pixel as a square
MOST_BYTES = 50 * 10**6  # of all pictures in a page
NO_ROOM = f"linked only, as the others take {MOST_BYTES // 10**6} MB"
NO_PICTURE = f"damaged, too large, or not {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
MAX_COLUMNS = 40  # of the table
MAX_TEXT, SHORT = 20_000, 300  # characters of a cell; and after ROOM characters of all cells
ROOM = 20 * 10**6
SIMILAR, SIMILAR_CELLS = 3, 3  # similar rows, and features of each
SNAPSHOT, SNAPSHOT_CELL = 600, 40  # characters of a decided row, and of a cell, that a file keeps


class Picture(NamedTuple):
    """What the page shows of a file; all parts are "" if a row names no file."""

    thumbnail: str = ""  # a data URI
    link: str = ""  # from the page to the file
    fault: str = ""  # why there is no thumbnail
    large: str = ""  # a data URI; "" if the thumbnail is large enough, or there is no room


class Shown(NamedTuple):
    """What the table and people say about a row on the page."""

    content: str  # see `RowKeys`
    cells: Sequence[tuple[int, str]] = ()  # number of the column, and text; features by relevance
    id: str = ""
    same: int = 1  # number of rows in the table with the same cells
    round: int = 1  # of the decision that is asked for, see `Decision`
    snapshot: str = "{}"  # JSON of the first cells, to compare with a later version of the row
    said: Sequence[Sequence[str]] = ()  # reviewer, decision and date, if the row is asked again
    versions: Sequence[Sequence[str]] = ()  # of a row that changed, see `versions`
    similar: Sequence[tuple[int, list[str]]] = ()  # positions, and their first features


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
        "unsure": np.asarray(judged.opinion.uncertainty)[rows].round(4).tolist(),
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
    belief = np.asarray(judged.opinion.belief)[row, labels].astype(float).round(4)
    columns = (labels, inside[labels], belief, probability[labels].round(4))
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


def relevance(features: pd.DataFrame, probability: Floats, rows: Ints) -> Floats:
    """Return how much each value tells apart the two likeliest classes of these rows, (m, d)."""
    # For a number: the difference of its distances to the means of both classes, in standard
    # deviations. For a word: the difference of its shares in both classes. A row counts for a class
    # by its `probability` (n, k).
    order = np.argsort(-probability[rows], kind="stable")
    first, second = order[:, 0], order[:, min(1, order.shape[1] - 1)]
    weight = probability / probability.sum(0).clip(min=1e-12)
    scores, here = np.zeros((len(rows), features.shape[1])), np.arange(len(rows))
    for number, name in enumerate(features):
        column = features[name]
        if column.dtype.kind in "biuf":
            x = column.to_numpy(dtype=np.float64, na_value=np.nan)
            known = x[np.isfinite(x)]
            spread = (known.std() if len(known) else 0) or 1.0
            x = np.where(np.isfinite(x), (x - (known.mean() if len(known) else 0)) / spread, 0.0)
            away = np.abs(x[rows, None] - (x @ weight))
            scores[:, number] = np.abs(away[here, first] - away[here, second])
        else:
            codes, words = pd.factorize(column, use_na_sentinel=False)
            share = np.zeros((len(words), weight.shape[1]))
            np.add.at(share, codes, weight)
            scores[:, number] = np.abs(share[codes[rows], first] - share[codes[rows], second])
    return scores


def shown_rows(
    decided: Decided,
    judged: Judgement,
    review: pd.DataFrame,
    *,
    rows: Ints,
    notes: Sequence[str],
    labels: Sequence[str],
) -> tuple[list[str], list[Shown]]:
    """Return the columns that the page may show, and what it shows of these rows.

    All `notes` are shown, then features by `relevance`. `labels` are columns that only snapshots
    have. The rows of `review` are open, and not similar rows of others.
    """
    table, keys, notes = decided.table, decided.keys, notes[:MAX_COLUMNS]
    columns, room = [*notes, *map(str, table.features), *labels], ROOM
    scores = relevance(table.features, judged.probability, rows)
    best = np.argsort(-scores, axis=-1, kind="stable")[:, : MAX_COLUMNS - len(notes)] + len(notes)
    fixed = [*range(len(notes)), *range(len(columns) - len(labels), len(columns))]
    is_open = decided.cannot_tell | np.isin(np.arange(len(table)), review.index)
    similar = [near[~is_open[near]][:SIMILAR].tolist() for near in judged.near[0][rows]]
    lines = [*zip(rows.tolist(), similar, best.tolist(), strict=True)]
    cells_at = {(row, n) for row, _, order in lines for n in (*fixed, *order)}
    for _, near, order in lines:
        cells_at.update(product(near, order[:SIMILAR_CELLS]))
    texts = _texts_at(table, columns, cells_at)
    counts, shown = Counter(keys.contents), []
    for row, near, order in lines:
        place, most = int(decided.remaining[row]), MAX_TEXT if room > 0 else SHORT
        cells = [(n, cut(texts[row, n], most)) for n in (*range(len(notes)), *order)]
        room -= sum(len(text) for _, text in cells)
        said = decided.decisions.again.get(place, [])
        is_changed = decided.decisions.why.get(place) == CHANGED
        now = texts_of(table, columns, [row] * is_changed)
        shown.append(
            Shown(
                keys.contents[place],
                cells,
                keys.ids[place] if keys.ids else "",
                counts[keys.contents[place]],
                round=1 if is_changed or not said else said[0].round + 1,
                snapshot=_snapshot([(columns[n], texts[row, n]) for n in (*fixed, *order)]),
                said=[(one.reviewer, one.name, f"{one.when:%Y-%m-%d}") for one in said],
                versions=versions(said[-1].cells, now[0]) if is_changed else (),
                similar=[
                    (n, [cut(texts[n, c], SNAPSHOT_CELL) for c in order[:SIMILAR_CELLS]])
                    for n in near
                ],
            )
        )
    return columns[: len(columns) - len(labels)], shown


def _texts_at(
    table: Table, columns: Sequence[str], places: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Return the text of single cells by row and number of the column; few of many are needed."""
    texts, rows_by_column = {}, defaultdict[int, list[int]](list)
    for row, number in places:
        rows_by_column[number].append(row)
    for number, rows in rows_by_column.items():
        for row, cells in zip(rows, texts_of(table, [columns[number]], rows), strict=True):
            texts[row, number] = cells[columns[number]]
    return texts


def texts_of(table: Table, columns: Sequence[str], rows: Any) -> list[dict[str, str]]:
    """Return the cells of these columns and rows as text, by name."""
    cells = table.cells.select(list(dict.fromkeys(columns)))
    records = cells.take(np.asarray(rows, dtype=np.int64)).to_pylist()
    return [{n: "" if c is None else str(c).strip() for n, c in row.items()} for row in records]


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _snapshot(cells: Sequence[tuple[str, str]]) -> str:
    """Return the first of these cells that are not empty, as JSON of limited length."""
    kept, size = {}, 0
    for name, cell in cells:
        text = cut(cell, SNAPSHOT_CELL)
        size += len(name) + len(text) + 8  # with quotes, colon and comma
        if text and size <= SNAPSHOT:
            kept[name] = text
    return json.dumps(kept, ensure_ascii=False)


def versions(snapshot: str, now: Mapping[str, str]) -> list[list[str]]:
    """Return column, text before and text now of each cell of a snapshot, changed ones first."""
    before: Any = {}
    with suppress(ValueError, RecursionError):  # someone may have edited the file
        before = json.loads(snapshot)
    pairs = before.items() if isinstance(before, dict) else ()
    rows = [[n, str(was)[:SHORT], cut(now.get(n, ""), SNAPSHOT_CELL)] for n, was in pairs]
    return sorted(rows, key=lambda row: row[1] == row[2])


def asked_again(decided: Decided) -> dict[int, tuple[str, str]]:
    """Return why remaining rows are asked again: the kind of doubt and the reason."""
    reasons = {}
    for index, said in decided.decisions.again.items():
        why, names = decided.decisions.why[index], " or ".join(dict.fromkeys(d.name for d in said))
        reason = f"decided as {names}, which is no class of the table now"
        if why == CONFLICT:
            reason = ", ".join(f"{one.reviewer} decided {one.name}" for one in said)
        elif why == CHANGED:
            reason = f"decided as {names} before the row changed"
        reasons[int(np.searchsorted(decided.remaining, index))] = (why, reason)
    return reasons
