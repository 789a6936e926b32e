"""Tables in pages: they stand between markers, and all else is written by hand."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def only_one(folder: Path, name: str) -> dict[str, Any]:
    (path,) = folder.glob(f"{name}-*.json")
    return dict(json.loads(path.read_text()))


def rewrite(page: Path, parts: Mapping[str, Iterable[str]]) -> None:
    """Put other lines between the markers of each name."""
    text = page.read_text()
    for name, lines in parts.items():
        text = replaced(text, name, lines)
    page.write_text(text)


def replaced(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with other lines between the markers of that name."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    found, count = re.subn(
        pattern,
        lambda at: "".join([at[1], *(f"{line}\n" for line in lines), at[2]]),
        text,
        flags=re.S,
    )
    if count != 1:
        raise SystemExit(f"The page must have one part named {name!r}; found {count}.")
    return found


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def cell(spread: dict[str, float]) -> str:
    return f"{spread['mean']:.1f} ± {spread['std']:.1f}"


def origin(report: dict[str, Any]) -> list[str]:
    return [
        f"Made by `benchmarks/{report['command']}` on {report['machine']} with torch "
        f"{report['torch']}, {report['date']}."
    ]
