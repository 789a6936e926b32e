"""Puts the stored results on robustness into docs/robustness.md, and draws its pictures.

    python benchmarks/robustness_page.py
    python benchmarks/robustness_page.py --results /tmp/trial --docs /tmp/docs

Tables stand between markers in the page, ``<!-- attacks -->`` and ``<!-- end -->``; all else on it
is written by hand. The results are those of `robustness.py` and `ood.py`, one file each.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from figures import attack_curves, ood_histogram
from pages import ROOT, cell, only_one, origin, rewrite, table

from robustpll.plots.curves import distribution_lines
from robustpll.plots.style import save_png

MIDDLE = "0.05"  # the epsilon at which attacks are compared with each other
SINGLE = ("proden", "proden_edl", "robust_pll")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    attacked, ood = (only_one(asked.results, name) for name in ("robustness", "ood"))
    tables = {
        "attacks": attack_tables(attacked),
        "checks": checks(attacked),
        "each attack": each_attack(attacked),
        "attack origin": origin(attacked),
        "entropies": entropy_table(ood),
        "scores": score_table(ood),
        "ood origin": origin(ood),
    }
    rewrite(asked.docs / "robustness.md", tables)
    draw(attacked, ood, asked.docs)


def attack_tables(report: dict[str, Any]) -> list[str]:
    lines = []
    for name, methods in report["sets"].items():
        rows = []
        for row in methods.values():
            for kind, curve in (("published", row["published"]), ("audit", row["worst"])):
                cells = [cell(row["clean"]), *map(cell, curve.values())]
                rows.append([f"{row['title']}, {kind}", *cells])
        count = next(iter(methods.values()))["test_rows"]
        epsilons = [f"{epsilon:g}" for epsilon in report["epsilons"]]
        shown = (
            f"![Accuracy on {name} against epsilon, published attack and audit](attacks-{name}.png)"
        )
        lines += [f"**{name}**, {count} test rows:", "", *table(["epsilon", "0", *epsilons], rows)]
        lines += ["", shown, ""]
    return lines[:-1]


def checks(report: dict[str, Any]) -> list[str]:
    rows = [
        [
            f"{name}, {row['title']}",
            *(f"{row['zero_gradients'][kind]['mean']:.1f}" for kind in ("float32", "float64")),
            f"{row['unbounded']['mean']:.1f}",
            f"{len(row['warnings'])} of {report['seeds']}",
        ]
        for name, methods in report["sets"].items()
        for row in methods.values()
    ]
    head = [
        "",
        "no gradient, float32",
        "no gradient, float64",
        "out of reach",
        "runs with warnings",
    ]
    return table(head, rows)


def each_attack(report: dict[str, Any]) -> list[str]:
    every = [row for methods in report["sets"].values() for row in methods.values()]
    attacks = list(dict.fromkeys(attack for row in every for attack in row["attacks"]))
    attacks.sort(key=lambda attack: attack in ("square", "transfer"))
    rows = []
    for name, methods in report["sets"].items():
        for row in methods.values():
            found = [row["attacks"].get(attack) for attack in attacks]
            cells = ["" if each is None else f"{each[MIDDLE]['mean']:.1f}" for each in found]
            worst = f"{row['worst'][MIDDLE]['mean']:.1f}"
            rows.append([f"{name}, {row['title']}", *cells, worst])
    return table(["", *attacks, "all"], rows)


def entropy_table(report: dict[str, Any]) -> list[str]:
    rows = []
    for row in report["methods"].values():
        cells = [row["title"], cell(row["accuracy"])]
        for name, paper in row["published"].items():
            cells += [f"{row['measures'][name]['pooled']:.4f}", f"{paper:.4f}"]
        for name in ("exact area", "mmd, median"):
            value = row["measures"][name]["pooled"]
            cells.append("" if value is None else f"{value:.4f}")
        rows.append(cells)
    head = ["", "accuracy", "area", "published", "KS", "published", "MMD", "published"]
    return [
        *table([*head, "exact area", "MMD, median"], rows),
        "",
        "![Distribution functions of the entropies of test and unknown rows](ood-curves.png)",
        "",
        "![How often RobustPll has which entropy, for test and unknown rows](ood-histogram.png)",
    ]


def score_table(report: dict[str, Any]) -> list[str]:
    rows = []
    for row in report["methods"].values():
        for score, found in row["separations"].items():
            cells = [cell(found[name]) for name in ("auroc", "aupr", "fpr95")]
            rows.append([f"{row['title']}, {score}", *cells])
    return table(["", "AUROC", "AUPR", "FPR at 95 %"], rows)


def draw(attacked: dict[str, Any], ood: dict[str, Any], folder: Path) -> None:
    epsilons = [0.0, *attacked["epsilons"]]
    for name, methods in attacked["sets"].items():
        curves = {row["title"]: attack_lines(row) for row in methods.values()}
        figure = attack_curves(epsilons, curves)
        figure.axes[0].set_title(f"{name}: how much does it withstand?", loc="left")
        save_png(figure, folder / f"attacks-{name}.png")
    found = ood["methods"]
    panels = [
        {row["title"]: both_lines(row) for name, row in found.items() if (name in SINGLE) == single}
        for single in (True, False)
    ]
    save_png(distribution_lines([panel for panel in panels if panel]), folder / "ood-curves.png")
    if "robust_pll" in found:
        samples = [spread_out(found["robust_pll"]["entropies"][kind]) for kind in ("test", "ood")]
        figure = ood_histogram(*samples, score="entropy of RobustPll")
        save_png(figure, folder / "ood-histogram.png")


def attack_lines(row: dict[str, Any]) -> dict[str, list[float]]:
    """Accuracies from 0 to 1, that without attack first."""
    kinds = {"audit": row["worst"], "published": row["published"]}
    return {
        kind: [row["clean"]["mean"] / 100, *(each["mean"] / 100 for each in curve.values())]
        for kind, curve in kinds.items()
    }


def both_lines(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Of binned test and OOD entropies: points (bins + 1, 2) of the distribution functions."""
    test, ood = (np.cumsum([0, *row["entropies"][kind]]) for kind in ("test", "ood"))
    edges = np.linspace(0, 1, len(test))
    return np.column_stack([edges, test / test[-1]]), np.column_stack([edges, ood / ood[-1]])


def spread_out(counts: list[int]) -> np.ndarray:
    """As many values in the middle of each bin as were counted there."""
    return np.repeat((np.arange(len(counts)) + 0.5) / len(counts), counts)


if __name__ == "__main__":
    main()
