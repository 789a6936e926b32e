"""The pictures of the documentation, drawn from stored runs.

python benchmarks/pictures.py                  # the figures
python benchmarks/pictures.py --screenshots    # the two screenshots; needs Chromium
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from pages import DOCS, ROOT, WAYS, Results, stored

from robustpll import Opinion
from robustpll.measures.calibration import Reliability, RiskCoverage
from robustpll.plots import (
    COLOURS,
    GOOD,
    MUTED,
    draw_reliability,
    draw_risk_coverage,
    new_figure,
    picture_bytes,
    plain,
)

CROWD = "5, hard rows"  # after which questions are asked
SHOWN = ("pl_knn", "proden", "proden_ens", "robust_pll", "robust_pll_ens")


def line_picture(title: str, lines: list[tuple[Any, ...]], labels: tuple[str, str]) -> Any:
    """Draw lines, each (name, x, y, look)."""
    figure = new_figure(6.8, 3.4)
    axes = plain(figure.subplots(), title)
    for name, x, y, look in lines:
        axes.plot(x, y, label=name, **look)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def pictures() -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of each picture in docs."""
    report = stored("robustness")
    for dataset, methods in report["sets"].items():
        lines = []
        for row, colour in zip(methods.values(), COLOURS, strict=False):
            for kind, key, style in (("audit", "worst", "-"), ("published", "published", ":")):
                accuracy = [row["clean"]["mean"], *(by["mean"] for by in row[key].values())]
                look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3}
                lines.append((f"{row['title']}, {kind}", [0, *report["epsilons"]], accuracy, look))
        labels = ("epsilon", "accuracy, in %")
        yield f"attacks-{dataset}", line_picture(f"{dataset}: accuracy under attack", lines, labels)
    bird = stored("trust")["sets"]["bird-song"]  # its curves are stored
    figure = new_figure(6.8, 5.4)
    axes = plain(figure.subplots(), "Does 80 % mean 80 %?")
    for name in ("proden", "robust_pll"):
        for way, words in (("raw", "as trained"), ("candidates", "recalibrated")):
            curve = Reliability(*map(np.array, bird[name]["calibration"][way]["reliability"]))
            draw_reliability(axes, curve, f"{bird[name]['title']}, {words}")
    yield "reliability", figure
    figure = new_figure(6.8, 3.8)
    axes = plain(figure.subplots(), "Error of the most certain rows")
    for name in SHOWN:
        curve = RiskCoverage(np.linspace(0.02, 1, 50), np.array(bird[name]["curve"]))
        draw_risk_coverage(axes, curve, bird[name]["title"])
    yield "risk-coverage", figure
    detection = stored("missing-truth")["sets"]["lost"]["detection"]
    scores = {row["title"]: row["found"]["0.2"]["rival"] for row in detection.values()}
    scores["size alone"] = detection["pl_knn"]["found"]["0.2"]["size"]
    lines = [
        (name, range(10, 101, 10), quality["precision_at_recall"], {"color": colour, "marker": "o"})
        for (name, quality), colour in zip(scores.items(), COLOURS, strict=False)
    ]
    title = "Which sets of lost miss the truth? 20 % of them do"
    yield "faulty-found", line_picture(title, lines, ("recall, in %", "precision, in %"))
    yield "opinions", opinion_picture()
    yield "simplex", simplex_picture()
    yield "cleaning", cleaning_picture(stored("cleaning")["sets"])
    yield "growth", growth_picture(stored("training-speed*h200")["growth"])


EVIDENCE = {  # for classes a and b
    "much evidence, one class": (27.0, 0),
    "much evidence, two classes": (15.0, 12),
    "little evidence, one class": (1.5, 0),
    "no evidence": (0.0, 0),
}


def opinion_picture() -> Any:
    """Draw four rows with the same most probable class."""
    opinion = Opinion.of_evidence(np.array([[*row, 0.0] for row in EVIDENCE.values()]))
    figure = new_figure(7.6, 2.4)
    axes, left = plain(figure.subplots(), "Belief and uncertainty"), np.zeros(len(EVIDENCE))
    masses = [*opinion.belief.T, opinion.uncertainty]
    names = ("belief in a", "belief in b", "belief in c", "uncertainty")
    for mass, name, colour in zip(masses, names, (*COLOURS[:3], MUTED), strict=True):
        axes.barh(list(EVIDENCE), mass, left=left, color=colour, label=name)
        left += mass
    for row, top in enumerate(opinion.probability.max(-1)):
        text = f"probability of a {top:.2f}, entropy {opinion.entropy[row]:.2f}"
        axes.text(1.02, row, text, va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.15))
    return figure


def simplex_picture() -> Any:
    """Draw the same rows, of two classes, in the triangle of belief and uncertainty."""
    opinion = Opinion.of_evidence(np.array([*EVIDENCE.values()]))
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    corners = np.array([[1.0, 0], [0, 0], [0.5, 0.8]])  # belief in a, in b, uncertainty
    axes.plot(*corners[[0, 1, 2, 0]].T, color=MUTED, linewidth=1)
    points = np.column_stack([opinion.belief, opinion.uncertainty]) @ corners
    for (x, height), p, name in zip(points, opinion.probability[:, 0], EVIDENCE, strict=True):
        axes.plot([x, p], [height, 0], "--", color=MUTED, linewidth=1)
        axes.plot(x, height, "o", color=COLOURS[0])
        axes.plot(p, 0, "|", color=COLOURS[0], markersize=10)
        is_left = "two" in name
        place = ((-8, 2) if is_left else (8, 2), "right" if is_left else "left")
        look: Any = {"textcoords": "offset points", "fontsize": 9}
        text = name.replace(", two", ",\ntwo")
        axes.annotate(text, (x, height), place[0], ha=place[1], **look)
    places = zip(corners, ("belief in a", "belief in b", "uncertainty"), (-1, -1, 1), strict=True)
    for (x, height), name, side in places:
        vertical = "bottom" if side > 0 else "top"
        axes.text(x, height + 0.05 * side, name, ha="center", va=vertical)
    axes.set(xlim=(-0.15, 1.55), ylim=(-0.12, 0.92), aspect="equal")
    axes.set_axis_off()
    return figure


def cleaning_picture(sets: Results) -> Any:
    figure = new_figure(9.6, 3.4)
    left, right = figure.subplots(1, 2)
    plain(left, "Correct labels from five annotators' votes").set_xlabel("correct labels, in %")
    plain(right, "Questions until 95 % are correct").set_xlabel("answered rows, in %")
    places = np.arange(len(sets))

    def percents(measure: str, way: str) -> list[float]:
        return [100 * fmean(run[measure][way] for run in crowds[CROWD]) for crowds in sets.values()]

    for way, colour in zip(WAYS, (MUTED, COLOURS[2], COLOURS[0], GOOD, COLOURS[1]), strict=True):
        left.plot(percents("labels", way), places, "o", color=colour, label=WAYS[way])
    asked = {"majority": MUTED, "cleanlab": COLOURS[0], "robustpll": GOOD}
    for number, (way, colour) in enumerate(asked.items()):
        look = {"color": colour, "label": WAYS[way]}
        right.barh(places + 0.25 * (number - 1), percents("questions", way), 0.25, **look)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}
    for axes in (left, right):
        axes.set_yticks(places, list(sets))
        axes.invert_yaxis()
        axes.legend(frameon=False, fontsize=7, **below)
    return figure


def growth_picture(growth: Results) -> Any:
    figure = new_figure(12, 3.2)
    for axes, (side, times) in zip(figure.subplots(1, len(growth)), growth.items(), strict=True):
        sizes, seconds = np.array(times["sizes"]), np.array(times["seconds"])
        plain(axes, side).loglog(sizes, seconds, "o-", color=COLOURS[0])
        axes.loglog(sizes, seconds[-1] * sizes / sizes[-1], ":", color=MUTED)
        axes.set(ylim=(seconds.min() / 3, seconds.max() * 3), xlabel=f"number of {side}")
    figure.axes[0].set_ylabel("seconds per epoch (dotted: linear)")
    return figure


def screenshots() -> None:
    """Take bench-page.png of a report, and review.png of digits with simulated votes."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        review, path = cleaned_digits(Path(folder)), shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((ROOT / "reports" / "paper" / "index.html").as_uri())
        page.screenshot(path=DOCS / "bench-page.png")
        page.goto(review.as_uri())
        for key in "11s2":
            page.keyboard.press(key)
        page.screenshot(path=DOCS / "review.png")
        browser.close()


def cleaned_digits(folder: Path) -> Path:
    """Return the review page of 1,000 digits with the votes of five annotators."""
    from PIL import Image
    from sklearn.datasets import load_digits
    from typer.testing import CliRunner

    from robustpll.cli import app

    names = np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    random, (pixels, labels) = np.random.default_rng(0), load_digits(return_X_y=True)
    pixels, labels = pixels[:1000], labels[:1000]
    frame = pd.DataFrame(pixels).add_prefix("pixel ").assign(truth=names[labels])
    frame["picture"] = [f"pictures/{row}.png" for row in range(len(labels))]
    for annotator, skill in {"ada": 0.95, "bob": 0.85, "eve": 0.8, "kim": 0.7, "zoe": 0.5}.items():
        mistaken = (labels + random.integers(1, 10, len(labels))) % 10
        votes = names[np.where(random.random(len(labels)) < skill, labels, mistaken)]
        silent = (random.random(len(labels)) < 0.3) & (annotator != "ada")
        frame[f"vote {annotator}"] = np.where(silent, "", votes)
    (folder / "pictures").mkdir()
    for path, row in zip(frame["picture"], pixels, strict=True):
        grey = Image.fromarray(255 - (row.reshape(8, 8) * 15.9).astype(np.uint8))
        grey.resize((96, 96), Image.Resampling.BICUBIC).save(folder / path)
    frame.to_csv(folder / "digits.csv", index=False)
    options = ["--votes", "vote ", "--truth", "truth", "--images", "picture", "--wrong", "2e-4"]
    command = ["clean", str(folder / "digits.csv"), "--out", str(folder / "out"), *options]
    result = CliRunner().invoke(app, [*command, "--epochs", "50"])
    assert result.exit_code == 0, result.output
    return folder / "out" / "review.html"


def main() -> None:
    if "--screenshots" in sys.argv:
        screenshots()
        return
    for name, figure in pictures():
        (DOCS / f"{name}.png").write_bytes(picture_bytes(figure, "png"))


if __name__ == "__main__":
    main()
