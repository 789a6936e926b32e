"""Puts the stored results of `cleaning.py` into docs/clean.md, and draws its picture.

    python benchmarks/clean_page.py

Tables stand between markers in the page, as `pages.py` has it; all else is written by hand.
"""

from typing import Any

import numpy as np
from pages import ROOT, cell, only_one, origin, rewrite, table

from robustpll import METHODS
from robustpll.plots.style import BAD, COLOURS, GOOD, MUTED, new_figure, plain, save_png

DOCS = ROOT / "docs"
WAYS = {  # as they are stored, and as people read them
    "majority": "majority",
    "Dawid-Skene": "Dawid-Skene",
    "cleanlab": "cleanlab",
    "robustpll": "robustpll",
    "cleanlab, robustpll": "cleanlab by robustpll",
}
ASKED = "5, hard rows"  # the crowd after which people are asked
AGAIN = {
    "robustpll, again, in its order": "robustpll, trained again",
    "robustpll, again, at random": "trained again, at random",
}
Run = dict[str, Any]


def main() -> None:
    rewrite(DOCS / "clean.md", parts())
    save_png(picture(stored()["sets"]), DOCS / "cleaning.png")


def stored() -> dict[str, Any]:
    return only_one(ROOT / "benchmarks" / "results", "cleaning")


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name."""
    report = stored()
    cases = {
        (name, crowd): runs
        for name, crowds in report["sets"].items()
        for crowd, runs in crowds.items()
    }
    models = {**WAYS, "RobustPll from votes": "RobustPll from the votes", "truth": "the truth"}
    asked = {name: runs for (name, crowd), runs in cases.items() if crowd == ASKED}
    return {
        "labels": labels(cases),
        "best labels": best(cases),
        "models": by_way(cases, "test", models),
        "questions": by_way(
            {(name, ""): runs for name, runs in asked.items()}, "questions", WAYS | AGAIN
        ),
        "orders": orders(report.get("orders", {})),
        "sureness": sureness(report.get("orders", {}), cases),
        "cleaning origin": made(report),
    }


def spread(values: list[float]) -> str:
    """Mean and standard deviation over the seeds, in percent."""
    percent = 100 * np.array(values)
    return cell({"mean": percent.mean(), "std": percent.std()})


def by_way(
    cases: dict[tuple[str, str], list[Run]], measure: str, ways: dict[str, str]
) -> list[str]:
    """A line for each set and crowd, a column for each way."""
    rows = [
        [
            ", ".join(filter(None, case)),
            *(spread([run[measure][way] for run in runs]) for way in ways),
        ]
        for case, runs in cases.items()
    ]
    return table(["", *ways.values()], rows)


def labels(cases: dict[tuple[str, str], list[Run]]) -> list[str]:
    """Beside the ways, in how many rows somebody named the truth."""
    lines = by_way(cases, "labels", WAYS)
    named = [spread([run["named"] for run in runs]) for runs in cases.values()]
    ends = ["truth named", "---", *named]
    return [f"{line} {end} |" for line, end in zip(lines, ends, strict=True)]


def best(cases: dict[tuple[str, str], list[Run]]) -> list[str]:
    """Who has the most right labels on average, and how often robustpll has more in single runs."""

    def winner(runs: list[Run], ways: list[str]) -> str:
        return max(ways, key=lambda way: float(np.mean([run["labels"][way] for run in runs])))

    found = []
    for ways, words in ((list(WAYS)[:-1], "Of the first four"), (list(WAYS), "Of all five")):
        won = [winner(runs, ways) for runs in cases.values()]
        counts = ", ".join(f"{WAYS[way]} in {won.count(way)}" for way in ways if way in won)
        found.append(
            f"- {words}, the most right labels on average has {counts} of {len(won)} cases."
        )
    every = [run["labels"] for runs in cases.values() for run in runs]
    more = [
        f"{sum(run['robustpll'] > run[way] for run in every)} times more than {WAYS[way]}"
        for way in WAYS
        if way != "robustpll"
    ]
    return [*found, f"- In {len(every)} single runs robustpll has {', '.join(more)}."]


def orders(found: dict[str, list[dict[str, float]]]) -> list[str]:
    columns = ("before", "in this order", "by doubt alone", "at random")
    rows = [
        [named(case), *(spread([run[words] for run in runs]) for words in columns)]
        for case, runs in found.items()
    ]
    return table(["", *columns], rows)


def named(case: str) -> str:
    name, method, faulty = case.split(", ")
    return f"{name}{', faulty' if float(faulty) else ''}, {METHODS[method]().title}"


def sureness(
    found: dict[str, list[dict[str, float]]], cases: dict[tuple[str, str], list[Run]]
) -> list[str]:
    """How sure the labels seem to be, and how many are right."""
    rows = [
        [", ".join(case), *(spread(part) for part in zip(*pairs, strict=True))]
        for case, pairs in {
            **{
                case: [(run["confidence"], run["labels"]["robustpll"]) for run in runs]
                for case, runs in cases.items()
            },
            **{
                (named(case),): [(run["confidence"], run["before"]) for run in runs]
                for case, runs in found.items()
            },
        }.items()
    ]
    return table(["", "mean confidence", "right labels"], rows)


def made(report: dict[str, Any]) -> list[str]:
    (line,) = origin(report)
    packages = ", ".join(f"{name} {version}" for name, version in report["packages"].items())
    return [
        f"{line} Mean ± standard deviation over {report['seeds']} seeds, in percent; networks of "
        f"robustpll were trained for {report['epochs']} epochs. {packages}."
    ]


def picture(sets: dict[str, dict[str, list[Run]]]) -> Any:
    """Right labels by each way, and how many questions put the rest right."""
    figure = new_figure(9.6, 3.4)
    left, right = figure.subplots(1, 2)
    plain(left, "Right labels, of five annotators' votes")
    plain(right, "Questions until 95 % are right")
    looks = dict(zip(WAYS, (MUTED, COLOURS[2], COLOURS[0], GOOD, COLOURS[1]), strict=True))
    for way, colour in looks.items():
        shares = [
            100 * np.mean([run["labels"][way] for run in one[ASKED]]) for one in sets.values()
        ]
        left.plot(shares, range(len(sets)), "o", color=colour, label=WAYS[way])
    shown = {"majority": MUTED, "cleanlab": COLOURS[0], "robustpll, again, at random": BAD}
    shown["robustpll, again, in its order"] = GOOD
    height = 0.8 / len(shown)
    for at, (way, colour) in enumerate(shown.items()):
        shares = [
            100 * np.mean([run["questions"][way] for run in one[ASKED]]) for one in sets.values()
        ]
        places = np.arange(len(sets)) + (at - (len(shown) - 1) / 2) * height
        right.barh(places, shares, height, color=colour, label=(WAYS | AGAIN)[way])
    for axes, scale in ((left, "right labels, in %"), (right, "answered rows, in %")):
        axes.set_yticks(range(len(sets)), list(sets))
        axes.invert_yaxis()
        axes.set_xlabel(scale)
        axes.legend(
            frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2
        )
    return figure


if __name__ == "__main__":
    main()
