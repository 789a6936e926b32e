"""Puts results on accuracy, the ablation and the methods' speed into docs/results.md and README.md.

    python benchmarks/results_page.py

Tables stand between markers in the pages, as `pages.py` has it; all else is written by hand.
They come from `reports/paper`, which `robustpll bench report` wrote, and from what `accuracy.py`,
`ablation.py` and `method_speed.py` stored.
"""

import csv
import json
from typing import Any

from pages import ROOT, cell, only_one, origin, rewrite, table

from robustpll import METHODS

RESULTS, REPORT = ROOT / "benchmarks" / "results", ROOT / "reports" / "paper"
SETS = ("lost", "msrc-v2", "bird-song")


def main() -> None:
    rewrite(ROOT / "README.md", {"results": readme_table()})
    rewrite(ROOT / "docs" / "results.md", parts())


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name."""
    ablation, speed = only_one(RESULTS, "ablation"), only_one(RESULTS, "method-speed")
    return {
        "pictures": reported("compare-1"),
        "time": reported("sessions"),
        "unknown": reported("compare-2"),
        "besides": reported("extra"),
        "paper": [line for name in SETS for line in (f"**{name}**", "", *attacked(name), "")][:-1],
        "sound": real_world("sound"),
        "ablation": [*ablation_table(ablation), "", *origin(ablation)],
        "speed": [*speed_table(speed), "", *origin(speed)],
    }


def reported(name: str) -> list[str]:
    """A table of the report and its notes, without its title."""
    lines = (REPORT / "tables" / f"{name}.md").read_text().splitlines()
    return lines[lines.index("") + 1 :]


def attacked(name: str) -> list[str]:
    return [line.replace("not attacked", "") for line in reported(f"attack-{name}") if "|" in line]


def readme_table() -> list[str]:
    """Table 1 of the report, with the published means in brackets."""
    with (REPORT / "tables" / "compare-1.csv").open() as lines:
        cells = list(csv.DictReader(lines))
    columns = list(dict.fromkeys(each["column"] for each in cells))
    rows = []
    for method in dict.fromkeys(each["method"] for each in cells):
        own = [each for each in cells if each["method"] == method]
        rows.append([method, *map(beside, own)])
    return table(["", *columns], rows)


def beside(cell: dict[str, str]) -> str:
    ours = f"{float(cell['value']):.1f} ± {float(cell['std']):.1f}"
    return ours if cell["why_not"] else f"{ours} ({float(cell['published']):.1f})"


def merged(pattern: str) -> dict[str, Any]:
    """Results of network and classical methods, by set and method, in the report's order."""
    sets: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob(pattern)):
        for name, about in json.loads(path.read_text())["sets"].items():
            sets.setdefault(name, {}).update(about["methods"])
    return {
        name: {each: found[each] for each in METHODS if each in found}
        for name, found in sets.items()
    }


def real_world(preset: str) -> list[str]:
    sets = merged(f"accuracy-realworld-{preset}-*.json")
    classical = merged(f"accuracy-classical-{preset}-*.json")
    lines = []
    for name in SETS:
        methods = classical[name] | sets[name]
        rows = [
            [methods[each]["title"], *(cell(one) for one in methods[each]["test"].values())]
            for each in METHODS
        ]
        width = max(map(len, rows))
        rows = [row + [""] * (width - len(row)) for row in rows]
        lines += [f"**{name}**", "", *table(["epsilon", "0", "0.1", "0.2", "0.3", "0.4"], rows), ""]
    return lines[:-1]


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
