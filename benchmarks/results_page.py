"""Puts results on accuracy, the ablation and the methods' speed into docs/results.md and README.md.

    python benchmarks/results_page.py

Tables stand between markers in the pages, as `pages.py` has it; all else is written by hand.
They come from `reports`, which `robustpll bench report` wrote of the grids "paper", "sound" and
"audit", and from what `ablation.py`, `method_speed.py` and `robustness.py` stored.
"""

import csv
from pathlib import Path
from typing import Any

from pages import ROOT, cell, only_one, origin, rewrite, table

from robustpll import METHODS

RESULTS = ROOT / "benchmarks" / "results"
PAPER, SOUND, AUDIT = (ROOT / "reports" / name for name in ("paper", "sound", "audit"))
SETS = ("lost", "msrc-v2", "bird-song")


def main() -> None:
    rewrite(ROOT / "README.md", {"results": readme_table()})
    rewrite(ROOT / "docs" / "results.md", parts())


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name."""
    ablation, speed = only_one(RESULTS, "ablation"), only_one(RESULTS, "method-speed")
    return {
        "time": reported(PAPER, "sessions"),
        "pictures": reported(PAPER, "compare-1"),
        "unknown": reported(PAPER, "compare-2"),
        "besides": reported(PAPER, "extra"),
        "calibration": reported(PAPER, "calibration"),
        "attacked": attacked(PAPER),
        "sound time": reported(SOUND, "sessions"),
        "sound pictures": reported(SOUND, "table-1"),
        "sound unknown": reported(SOUND, "table-2"),
        "sound besides": reported(SOUND, "extra"),
        "sound attacked": attacked(SOUND),
        "ablation": [*ablation_table(ablation), "", *origin(ablation)],
        "speed": [*speed_table(speed), "", *origin(speed)],
    }


def reported(report: Path, name: str) -> list[str]:
    """A table of a report and its notes, without its title."""
    lines = (report / "tables" / f"{name}.md").read_text().splitlines()
    return lines[lines.index("") + 1 :]


def attacked(report: Path) -> list[str]:
    lines = []
    for name in SETS:
        rows = [line for line in reported(report, f"attack-{name}") if "|" in line]
        lines += [f"**{name}**", "", *(row.replace("not attacked", "") for row in rows), ""]
    return lines[:-1]


def readme_table() -> list[str]:
    """Table 1 of the report beside the published means, then what else counts."""
    with (PAPER / "tables" / "compare-1.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    columns = list(dict.fromkeys(each["column"] for each in cells))
    apart, seconds = values(PAPER, "table-2", "KS"), values(PAPER, "timing", "seconds per run")
    worst = worst_cases()
    rows = []
    for method in dict.fromkeys(each["method"] for each in cells):
        own = [beside(each) for each in cells if each["method"] == method]
        more = [f"{apart[method]:.2f}", f"{worst[method]:.0f}", f"{seconds[method]:.1f}"]
        rows.append([method, *own, *more])
    return table(["", *columns, "unknown rows", "worst case", "seconds"], rows)


def worst_cases() -> dict[str, float]:
    """Accuracy that an audit at 0.02 leaves, the mean over the real-world sets."""
    sets = [values(AUDIT, "audit", f"{title} 0.02") for title in ("Lost", "MSRCv2", "BirdSong")]
    return {method: sum(each[method] for each in sets) / len(sets) for method in sets[0]}


def values(report: Path, name: str, column: str) -> dict[str, float]:
    """A column of a table of a report, by method."""
    with (report / "tables" / f"{name}.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["column"] == column]
    return {row["method"]: float(row["value"]) for row in rows if row["value"]}


def beside(cell: dict[str, str]) -> str:
    ours = f"{float(cell['value']):.1f} ± {float(cell['std']):.1f}"
    return ours if cell["why_not"] else f"{ours} ({float(cell['published']):.1f})"


def ablation_table(report: dict[str, Any]) -> list[str]:
    sets = report["sets"]
    variants = next(iter(sets.values()))
    rows = [[each, *(cell(found[each]) for found in sets.values())] for each in variants]
    return table(["", *sets], rows)


def speed_table(report: dict[str, Any]) -> list[str]:
    rows = [
        [
            METHODS[name].title,
            f"{found['ms']:.1f}",
            f"{found['units']:g}",
            f"{found['ratio']:.2f}",
        ]
        for name, found in report["methods"].items()
    ]
    growth = [
        f"{METHODS[name].title} " + ", ".join(f"{each:.2f}" for each in found["exponents"])
        for name, found in report["growth"].items()
    ]
    sizes = ", ".join(f"{size:,.0f}" for size in next(iter(report["growth"].values()))["sizes"])
    head = ["", "ms a network and epoch", "units", "time by units"]
    return [*table(head, rows), "", f"Exponents in the rows ({sizes}): {'; '.join(growth)}."]


if __name__ == "__main__":
    main()
