"""The demo: digits with ambiguous labels, four methods, and a review page with pictures."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll._files import OutFolder
from robustpll.attacks import PGD
from robustpll.clean.run import PAGE, PageColumns, clean_table
from robustpll.datasets.noise import Annotators, InstanceDependent
from robustpll.engine.history import progress_bars
from robustpll.estimator.abstention import networks_of
from robustpll.estimator.classifier import PLLClassifier
from robustpll.methods import Auto, PlKnn, Proden, RobustPll, Wrapped
from robustpll.plots import BAD, COLOURS, GOOD, MUTED, new_figure, picture_bytes, plain
from robustpll.tables.read import read_with_cells

UNKNOWN = (8, 9)  # classes that are not in the training data
EPSILON = 0.1
PICTURE, TABLE, FILES, REVIEW = "tour.png", "digits.csv", "digits", "review"
REVIEWED = 150  # digits on the review page, or resolved by a model

INTRODUCTION = """\
[bold]Learning digits from ambiguous labels.[/bold] A network that knows the true labels chooses, \
for each training digit, wrong classes that look plausible. They become candidates beside the true \
one. The methods see candidates only. The digits 8 and 9 are not in the training data. Auto is the \
default of RobustPLLClassifier; the random forest (RF) learns each candidate with an equal weight.
"""
EXPLANATION = f"""\
Entropy runs from 0 (certain) to 1 (clueless): unknown digits should have more of it. The attack \
moves each pixel by at most {EPSILON:g} of its range, in 10 steps. Stronger attacks exist. Auto is \
attacked through its networks; a forest has no gradient to attack it with.
"""
TITLE = "Training data: digits with candidate labels; the label that Auto chose is underlined"
BASELINE = "each candidate + RF"
MEASURES = ("labels\nresolved", "test\naccuracy", "\nattacked", "\nentropy", "entropy,\nunknown")
GROUPS = ("training labels\nresolved", "test rows", f"test rows,\nattacked by {EPSILON:g}")

Accuracies = dict[str, list[float]]  # of each method in percent, for each of GROUPS
Entropies = dict[str, tuple[Any, Any]]  # of each method, for known (n,) and unknown rows (m,)


def run_demo(folder: Path, seed: int = 0, epochs: int = 100) -> Path:
    """Train four methods, print a table, draw a picture, and clean votes; return the picture."""
    # before minutes of training; the folder of digits has no record of its own
    out, _ = (OutFolder.of(path, "demo") for path in (folder, folder / FILES))
    OutFolder.of(folder / REVIEW, "clean").refuse_others([PAGE])
    out.refuse_others([PICTURE, TABLE, *(f"{FILES}/{row}.png" for row in range(REVIEWED))])
    console = Console()
    console.print(INTRODUCTION)
    X, y = load_digits(return_X_y=True)
    known = ~np.isin(y, UNKNOWN)
    train, test, truth, test_truth = train_test_split(
        X[known], y[known], test_size=0.25, random_state=seed, stratify=y[known]
    )
    with progress_bars(console):
        candidates = InstanceDependent(epochs=30, learning_rate=0.03).apply(train, truth, seed)
        baseline = Wrapped("random_forest", labels="majority")
        models = [
            PLLClassifier(method, random_state=seed).fit(train, candidates)
            for method in (Auto(epochs=epochs), baseline, RobustPll(epochs), Proden(epochs))
        ]
    accuracies, entropies = Accuracies(), Entropies()
    columns = (Column(name, justify="right", no_wrap=True) for name in MEASURES)
    table = Table("\nmethod", *columns, box=None, padding=(0, 1))
    for model in models:
        title = BASELINE if model.method == baseline else model.resolved_method().title
        opinions = [clean := model.predict_opinion(test)]
        if can_be_attacked := bool(networks_of(model.fitted_)):
            opinions += [model.predict_opinion(test, PGD(EPSILON, labels="clean", joint=True))]
        tested = [model.classes_[opinion.predicted()] for opinion in opinions]
        right = model.labels_ == truth, *(labels == test_truth for labels in tested)
        accuracies[title] = [100 * rows.mean() for rows in right] + [np.nan] * (not can_be_attacked)
        entropies[title] = clean.entropy, model.predict_opinion(X[~known]).entropy
        shares = ["-" if np.isnan(share) else f"{share:.1f} %" for share in accuracies[title]]
        table.add_row(title, *shares, *(f"{rows.mean():.2f}" for rows in entropies[title]))
    average = f"{candidates.sizes.mean():.1f} candidates on average"
    console.print(f"\n{len(train):,} training digits with {average}.", table, EXPLANATION, sep="\n")
    figure = new_figure(13, 7.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))  # type: ignore[misc]
    top.suptitle(TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
    sets, labels = candidates.sets(), models[0].labels_
    rows = np.unique(truth, return_index=True)[1]  # the first of each class
    for axes, row in zip(top.subplots(1, len(rows)), rows, strict=True):
        axes.imshow(train[row].reshape(8, 8), cmap="gray_r")
        axes.set_axis_off()
        chosen, colour = labels[row], GOOD if labels[row] == truth[row] else BAD
        axes.set_title(f"true label: {truth[row]}", fontsize=9, color=colour)
        names = [f"{name}\u0332" if name == chosen else str(name) for name in sorted(sets[row])]
        axes.text(0.5, -0.12, "  ".join(names), transform=axes.transAxes, ha="center", va="top")
    left, right = bottom.subplots(1, 2)
    _show_accuracies(plain(left, "How often is it right?"), accuracies)
    _show_entropies(plain(right, "Does it notice what it has never seen?"), entropies)
    out.write(PICTURE, picture_bytes(figure, "png"))
    console.print(f"Picture: [bold]{folder / PICTURE}[/bold]", soft_wrap=True)
    page = _write_review(out, train[:REVIEWED], truth[:REVIEWED], seed)
    console.print(f"Digits to decide, in a browser: [bold]{page}[/bold]", soft_wrap=True)
    return folder / PICTURE


def _write_review(out: OutFolder, X: Any, truth: Any, seed: int) -> Path:
    """Write digits as picture files with simulated answers, and clean them; return the page."""
    from PIL import Image

    answers: Any = Annotators(count=3, gaps=0.0).apply(X, truth, seed).answers
    path, review = out.path / TABLE, out.path / REVIEW
    lines = ["file,answer ada,answer bob,answer eve"]
    for row, (pixels, digits) in enumerate(zip(X, answers, strict=True)):
        name, content = f"{FILES}/{row}.png", io.BytesIO()
        grey = (255 - 255 / 16 * pixels).reshape(8, 8).astype(np.uint8)
        Image.fromarray(grey).save(content, "PNG")
        out.write(name, content.getvalue())
        lines.append(",".join([name, *map(str, digits)]))
    out.write(TABLE, "\n".join([*lines, ""]).encode())
    table = read_with_cells(path, votes="answer ", image_input="file")
    limits: Any = {"error": 0.01, "most": REVIEWED, "decisions": (), "seed": seed}
    clean_table(path, table, review, PlKnn(), columns=PageColumns(images="file"), **limits)
    return review / PAGE


def _show_accuracies(axes: Any, accuracies: Accuracies) -> None:
    ticks = np.arange(len(GROUPS))
    for number, (title, heights) in enumerate(accuracies.items()):
        places = ticks + 0.21 * (number - 1.5)  # four methods around each tick
        bars = axes.bar(places, np.nan_to_num(heights), 0.19, color=COLOURS[number], label=title)
        axes.bar_label(bars, fmt=lambda share: f"{share:.0f}" if share else "-", fontsize=9)
    axes.set_xticks(ticks, GROUPS)
    axes.set(ylim=(0, 128), yticks=range(0, 101, 20), ylabel="accuracy in %")
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


def _show_entropies(axes: Any, entropies: Entropies) -> None:
    box = {"widths": 0.3, "orientation": "horizontal", "whis": (5, 95), "showfliers": False}
    box |= {"patch_artist": True, "medianprops": {"color": "black"}}
    for row, values in enumerate(entropies.values()):
        places = (row - 0.18, row + 0.18)
        boxes = axes.boxplot(values, positions=places, **box)["boxes"]
        boxes[0].set(facecolor=COLOURS[row])
        boxes[1].set(facecolor="white", edgecolor=COLOURS[row])
        for y, name in zip(places, ("known digits", "unknown digits"), strict=True):
            axes.text(1.03, y, name, va="center", fontsize=9, color=MUTED)
    axes.set_yticks(range(len(entropies)), [*entropies])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="entropy: 0 is certain, 1 is clueless (5 % to 95 %)")
