"""Puts the stored results on trust into docs/trust.md, and draws its pictures.

    python benchmarks/trust_page.py

Tables stand between markers in the page, as `pages.py` has it; all else is written by hand.
The results are those of `trust.py`, `conformal.py`, `label_free.py` and `faulty_sets.py`, one file
each. A part whose results are not there stays empty.
"""

import json
from typing import Any

import numpy as np
from figures import reliability_picture, risk_coverage_curve
from pages import ROOT, cell, origin, rewrite, table
from trust import COVERAGES, ERRORS, PICTURED, POINTS

from robustpll import METHODS, Opinion
from robustpll.measures.calibration import Reliability
from robustpll.measures.selection import RiskCoverage
from robustpll.plots.style import COLOURS, MUTED, new_figure, plain, save_png

RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
SHOWN = ("pl_knn", "proden", "proden_ens", "robust_pll", "robust_pll_ens")


def main() -> None:
    rewrite(DOCS / "trust.md", parts())
    draw()


def parts() -> dict[str, list[str]]:
    """What stands between the markers of each name; nothing where results are not there yet."""
    found: dict[str, list[str]] = {}
    writers = {
        "trust": {
            "calibration": calibration,
            "rules": rules,
            "factors": factors,
            "scores": scores,
            "coverage": coverages,
            "error": errors,
            "strangers": strangers,
        },
        "conformal": {"conformal": conformal, "conformal sizes": conformal_sizes},
        "label-free": {"label-free": label_free},
        "faulty-sets": {"faulty sets": faulty, "detector": detector},
    }
    for file, tables in writers.items():
        report = stored(file)
        if report is not None:
            found |= {name: write(report["sets"]) for name, write in tables.items()}
            found[f"{file} origin"] = origin(report)
    return found


def stored(name: str) -> dict[str, Any] | None:
    paths = sorted(RESULTS.glob(f"{name}-20*.json"))
    return dict(json.loads(paths[-1].read_text())) if paths else None


def mean(values: list[float | None] | None, factor: float = 1.0, digits: int = 1) -> str:
    """Over the seeds; * where some of them have none, ∞ where none is finite."""
    if values is None:
        return ""
    known = [each for each in values if each is not None]
    if not known:
        return "∞"
    return f"{factor * np.mean(known):.{digits}f}{'*' * (len(known) < len(values))}"


def rows_of(sets: dict[str, Any], names: Any = METHODS) -> list[tuple[str, dict[str, Any]]]:
    """A line for each set and method, in the order of the report."""
    return [
        (f"{name}, {methods[each]['title']}", methods[each])
        for name, methods in sets.items()
        for each in names
        if each in methods
    ]


def calibration(sets: dict[str, Any]) -> list[str]:
    head = ["", "accuracy", "ECE", "by candidates", "by labels"]
    head += ["log loss", "by candidates", "by labels", "Brier", "by candidates", "by labels"]
    rows = []
    for line, found in rows_of({name: sets[name] for name in sets if len(sets[name]) > 2}):
        each = [found["calibration"].get(way) for way in ("raw", "candidates", "labels")]
        row = [line, mean(each[0]["accuracy"], 100)]
        for measure, factor, digits in (("error", 100, 1), ("log_loss", 1, 2), ("brier", 1, 2)):
            row += [mean(one and one[measure], factor, digits) for one in each]
        rows.append(row)
    return table(head, rows)


def rules(sets: dict[str, Any]) -> list[str]:
    rows = []
    for line, found in rows_of(sets):
        both = [found["calibration"].get(way) for way in ("labels", "labels, as logits")]
        if all(both):
            cells = [mean(one["error"], 100) for one in both]
            rows.append([line, *cells, *(mean(one["log_loss"], 1, 2) for one in both)])
    head = ["", "ECE, evidence", "ECE, logits", "log loss, evidence", "log loss, logits"]
    return table(head, rows)


def factors(sets: dict[str, Any]) -> list[str]:
    rows = [
        [
            line,
            *(mean(found["factors"].get(source), 1, 2) for source in ("labels", "candidates")),
            mean(found["calibration"]["raw"]["error"], 100),
            *(
                mean((found["calibration"].get(source) or {}).get("error"), 100)
                for source in ("candidates", "labels")
            ),
        ]
        for line, found in rows_of(sets, ("proden", "robust_pll"))
    ]
    head = ["", "factor by labels", "by candidates", "ECE", "by candidates", "by labels"]
    return table(head, rows)


def scores(sets: dict[str, Any]) -> list[str]:
    names = ["missing probability", "entropy", "uncertainty", "energy", "row distance"]
    rows = [
        [
            line,
            mean(found["best order"], 100),
            *(mean(found["selection"].get(name), 100) for name in names),
        ]
        for line, found in rows_of({name: sets[name] for name in sets if len(sets[name]) > 2})
    ]
    return table(["", "best order", *names], rows)


def coverages(sets: dict[str, Any]) -> list[str]:
    rows = []
    for line, found in rows_of(sets, ("proden", "robust_pll")):
        cells = [
            mean(found["promises"][way][f"coverage {each}"][what], 100)
            for each in COVERAGES
            for way, what in (("own", "coverage"), ("labels", "coverage"), ("labels", "error"))
        ]
        rows.append([line, *cells])
    head = [""]
    for each in COVERAGES:
        promised = f"{100 * each:g} %"
        head += [f"{promised} of X", f"{promised}, fixed before", "its error"]
    return table(head, rows)


def errors(sets: dict[str, Any]) -> list[str]:
    ways = {"own": "raw", "own, candidates": "recalibrated", "candidates": "candidates"}
    ways["labels"] = "labels"
    rows = [
        [line, *(came(found["promises"].get(way), error) for error in ERRORS[1:] for way in ways)]
        for line, found in rows_of(sets, ("proden", "robust_pll"))
    ]
    head = [f"{100 * error:g} %, {name}" for error in ERRORS[1:] for name in ways.values()]
    return [*table(["", *head], rows), "", kept(sets)]


def came(promises: dict[str, Any] | None, error: float) -> str:
    """Errors among accepted rows of all seeds, and the share of accepted ones."""
    found = None if promises is None else promises[f"error {error}"]
    if found is None or None in found["coverage"]:
        return ""
    share = np.array(found["coverage"])
    if share.sum() == 0:
        return "none"
    wrong = np.array([each or 0.0 for each in found["error"]])
    return f"{100 * (wrong * share).sum() / share.sum():.1f} ({100 * share.mean():.0f})"


def kept(sets: dict[str, Any]) -> str:
    """In how many runs the error was at most the promised one, by labels."""
    held = runs = 0
    for _, found in rows_of(sets):
        for error in ERRORS:
            promise = found["promises"]["labels"][f"error {error}"]
            for one in [] if promise is None else promise["error"]:
                held, runs = held + (one is None or one <= error), runs + 1
    return (
        f"With thresholds by labels the error on the test rows was at most the promised one in "
        f"{held} of {runs} cases (all methods, sets, seeds and promises that could be given)."
    )


def strangers(sets: dict[str, Any]) -> list[str]:
    rows = [
        [
            line,
            *(mean(found["strangers"][name], 100) for name in ("sure", "unlike", "accepted")),
            mean(found["promises"]["labels"]["coverage 0.8"]["unlike"], 100),
        ]
        for line, found in rows_of(sets)
        if "strangers" in found
    ]
    head = ["", "sure enough", "found unlike", "accepted", "known rows found unlike"]
    return table(head, rows)


def conformal(sets: dict[str, Any]) -> list[str]:
    """How often sets hold the truth, by what chose their threshold."""
    ways = ("labels", "all", "any", "weighted")
    rows = []
    for name, known in sets.items():
        law = known["expected"]
        rows.append([f"{name}, expected", f"{law['mean']:.1f} ± {law['std']:.1f}", "", "", ""])
        for each in ("softmax", *SHOWN):
            if each in known["methods"]:
                found = known["methods"][each]
                cells = [found["sets"].get(way) for way in ways]
                rows.append(
                    [
                        f"{name}, {found['title']}",
                        *(
                            f"{one['covered']:.1f} ± {one['covered_std']:.1f}" if one else ""
                            for one in cells
                        ),
                    ]
                )
    return table(["", *ways], rows)


def conformal_sizes(sets: dict[str, Any]) -> list[str]:
    """Classes in a set on average, for every method."""
    ways = ["labels", "all", "any", "weighted", "MAPIE, lac", "MAPIE, aps"]
    rows = []
    for name, known in sets.items():
        for found in known["methods"].values():
            cells = [found["sets"].get(way) for way in ways]
            sizes = [f"{one['size']:.2f}" if one else "" for one in cells]
            rows.append([f"{name}, {found['title']}", f"{found['accuracy']:.1f}", *sizes])
    return table(["", "accuracy", *ways], rows)


def label_free(sets: dict[str, Any]) -> list[str]:
    measures = ("covering rate", "approximated accuracy")
    rows, costs = [], dict[str, list[float]]((each, []) for each in measures)
    for name, methods in sets.items():
        for found in methods.values():
            for stop, by in found["chosen"].items():
                means = {each: by[each]["cost"]["mean"] for each in measures}
                for each, mean in means.items():
                    costs[each].append(mean)
                title = f"{name}, {found['title']}, epoch: {stop}"
                tested = (cell(each["test"]) for each in by.values())
                points = (f"{mean:+.1f}" for mean in means.values())
                rows.append([title, cell(found["default"]), *tested, *points])
    head = ["", "default", *measures, "true labels", *(f"cost, {each}" for each in measures)]
    told = "; ".join(
        f"by {each} {np.mean(found):+.1f}, from {min(found):+.1f} to {max(found):+.1f}"
        for each, found in costs.items()
    )
    return [*table(head, rows), "", f"Mean cost of not knowing, in points: {told}."]


def faulty(sets: dict[str, Any]) -> list[str]:
    lines = []
    for name, known in sets.items():
        found = known["accuracy"]
        methods = [found[each] for each in METHODS if each in found]
        shares = [f"{100 * float(share):g} %" for share in methods[0]["test"]]
        rows = [[row["title"], *map(cell, row["test"].values())] for row in methods]
        lines += [f"**{name}**", "", *table(["faulty sets", *shares], rows), ""]
    return lines[:-1]


def detector(sets: dict[str, Any]) -> list[str]:
    rows = []
    for name, known in sets.items():
        for found in known["detection"].values():
            for share, by_score in found["found"].items():
                for by, one in by_score.items():
                    recalls = [one["precision_at_recall"][at] for at in (1, 4, 7)]
                    rows.append(
                        [
                            f"{name}, {found['title']}, {100 * float(share):g} %, {by}",
                            *(f"{one[key]:.1f}" for key in ("auroc", "auroc_at_equal_size")),
                            *(f"{each:.1f}" for each in recalls),
                        ]
                    )
    head = ["", "AUROC", "at equal size", "precision at recall 20 %", "50 %", "80 %"]
    return table(head, rows)


def draw() -> None:
    save_png(opinions(), DOCS / "opinions.png")
    faulty_sets = stored("faulty-sets")
    if faulty_sets is not None:
        save_png(found_sets(faulty_sets["sets"]["lost"]["detection"]), DOCS / "faulty-found.png")
    report = stored("trust")
    found = {} if report is None else report["sets"].get(PICTURED, {})
    if "robust_pll" not in found:
        return
    lines = {
        f"{found[name]['title']}, {words}": Reliability(
            *map(np.array, found[name]["calibration"][way]["reliability"])
        )
        for name in ("proden", "robust_pll")
        for way, words in (("raw", "as trained"), ("candidates", "by candidates"))
        if way in found[name]["calibration"]
    }
    save_png(reliability_picture(lines), DOCS / "reliability.png")
    curves = {
        found[name]["title"]: RiskCoverage(POINTS, np.array(found[name]["curve"]))
        for name in SHOWN
        if name in found
    }
    save_png(risk_coverage_curve(curves), DOCS / "risk-coverage.png")


def found_sets(detection: dict[str, Any], share: str = "0.2") -> Any:
    """Precision against recall of faulty sets, by detector; at last by the sets' sizes alone."""
    figure = new_figure(6.4, 3.2)
    title = f"Which sets miss the truth? {100 * float(share):g} % of those of lost do"
    axes = plain(figure.subplots(), title)
    curves = {row["title"]: row["found"][share]["rival"] for row in detection.values()}
    curves["size alone"] = next(iter(detection.values()))["found"][share]["size"]
    for (name, found), colour in zip(curves.items(), COLOURS, strict=False):
        last = MUTED if name == "size alone" else colour
        axes.plot(range(10, 101, 10), found["precision_at_recall"], "o-", color=last, label=name)
    axes.axhline(found["faulty"], color=MUTED, linewidth=1, linestyle=":", label="guessing")
    axes.set(xlabel="faulty sets that are found, in %", ylabel="faulty among these, in %")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def opinions() -> Any:
    """Four rows with the same most probable class, and what is held of them."""
    evidence = {
        "much evidence, one class": (27.0, 0, 0),
        "much evidence, two classes": (15.0, 12, 0),
        "little evidence, one class": (1.5, 0, 0),
        "no evidence": (0.0, 0, 0),
    }
    held = Opinion.of_evidence(np.array(list(evidence.values())))
    figure = new_figure(7.6, 2.4)
    axes = plain(figure.subplots(), "Belief, and what is not committed")
    left = np.zeros(len(evidence))
    parts = [*held.belief.T, held.uncertainty]
    looks = [(f"belief in {name}", colour) for name, colour in zip("abc", COLOURS, strict=False)]
    for part, (label, colour) in zip(parts, [*looks, ("uncertainty", MUTED)], strict=True):
        axes.barh(list(evidence), part, left=left, color=colour, label=label)
        left += part
    for at, (top, entropy) in enumerate(zip(held.probability.max(-1), held.entropy, strict=True)):
        axes.text(1.02, at, f"probability of a {top:.2f}, entropy {entropy:.2f}", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.15))
    return figure


if __name__ == "__main__":
    main()
