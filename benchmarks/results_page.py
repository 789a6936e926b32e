"""Puts the stored results on accuracy, the ablation and the methods' speed into docs/results.md.

    python benchmarks/results_page.py

Tables stand between markers in the page, as in `robustness_page.py`; all else is written by hand.
The results are those of `accuracy.py`, `ablation.py` and `method_speed.py`.
"""

import json
from typing import Any

from robustness_page import ROOT, cell, only_one, origin, replaced, table

from robustpll import METHODS

RESULTS = ROOT / "benchmarks" / "results"
SETS = ("lost", "msrc-v2", "bird-song")


def main() -> None:
    page = ROOT / "docs" / "results.md"
    text = page.read_text()
    for name, lines in parts().items():
        text = replaced(text, name, lines)
    page.write_text(text)


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name."""
    ablation, speed = only_one(RESULTS, "ablation"), only_one(RESULTS, "method-speed")
    found = {
        "pictures": pictures(),
        "ablation": [*ablation_table(ablation), "", *origin(ablation)],
        "speed": [*speed_table(speed), "", *origin(speed)],
    }
    for preset in ("paper", "sound"):
        found[preset] = real_world(preset)
    return found


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


def pictures() -> list[str]:
    sets = merged("accuracy-*images-paper-*.json")
    rows, agreeing, cells = [], 0, 0
    for name, found in sets["mnist"].items():
        row = [found["title"]]
        for each in ("mnist", "fmnist"):
            ours, paper = sets[each][name]["test"]["0"], sets[each][name]["published"]
            agrees = abs(ours["mean"] - paper["mean"]) <= max(1, 2 * paper["std"])
            agreeing, cells = agreeing + agrees, cells + 1
            row += [cell(ours), f"{cell(paper)}{'' if agrees else ' (!)'}"]
        rows.append(row)
    head = ["", "MNIST", "published", "Fashion-MNIST", "published"]
    within = f"{agreeing} of {cells} cells lie within max(1, 2 standard deviations) of the paper's."
    return [*table(head, rows), "", within]


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
