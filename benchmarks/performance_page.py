"""Puts the stored speed of the methods without a network into docs/performance.md.

    python benchmarks/performance_page.py

The table stands between markers in the page, as `pages.py` has it; all else is written by
hand. The results are those of `classical_speed.py`.
"""

from typing import Any

from pages import ROOT, only_one, origin, rewrite, table

from robustpll import METHODS

ROW_BY_ROW = "neighbours row by row"


def main() -> None:
    report = only_one(ROOT / "benchmarks" / "results", "classical-speed")
    lines = [*classical_table(report), "", *origin(report)]
    rewrite(ROOT / "docs" / "performance.md", {"classical": lines})


def classical_table(report: dict[str, Any]) -> list[str]:
    head = ["", "fit, s", "times plain code", "row by row", "predict, s", "times plain code"]
    rows = []
    for name, parts in report["sets"].items():
        for part, found in parts.items():
            cells = [cell for what in ("fit", "predict") for cell in compared(found[what])]
            growth, memory = found["growth"]["exponent"], found["memory"]["peak_mb"]
            title = f"{name}, {METHODS[part].title}"
            rows.append([title, *cells, f"n^{growth:.1f}", f"{memory:,}"])
    return table([*head, "row by row", "growth", "MB"], rows)


def compared(found: dict[str, Any]) -> list[str]:
    """Seconds, and times as fast as plain code, whose neighbours come by one call or row by row."""
    other = found["otherwise"].get(ROW_BY_ROW)
    by_row = "" if other is None else shown(other["times_as_fast"])
    return [shown(found["seconds"]), shown(found["times_as_fast"]), by_row]


def shown(number: float) -> str:
    """With two digits or more."""
    digits = 0 if number >= 10 else 1 if number >= 1 else 2 if number >= 0.1 else 4
    return f"{number:,.{digits}f}"


if __name__ == "__main__":
    main()
