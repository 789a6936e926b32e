"""The demo: three methods learn digits from ambiguous labels; nothing is downloaded."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll._files import OutFolder
from robustpll.attacks import PGD
from robustpll.datasets.noise import InstanceDependent
from robustpll.engine.history import progress_bars
from robustpll.estimator.classifier import PLLClassifier
from robustpll.methods import Proden, RobustPll, RobustPllEns
from robustpll.plots import BAD, COLOURS, GOOD, MUTED, new_figure, picture_bytes, plain

UNKNOWN = (8, 9)  # classes that are not in the training data
EPSILON = 0.1
PICTURE = "tour.png"

INTRODUCTION = """\
[bold]Learning digits from ambiguous labels.[/bold] A network that knows the true labels chooses, \
for each training digit, wrong classes that look plausible. They become candidates beside the true \
one. The methods see candidates only. The digits 8 and 9 are not in the training data.
"""
EXPLANATION = f"""\
Entropy runs from 0 (certain) to 1 (clueless): unknown digits should have more of it. The attack \
moves each pixel by at most {EPSILON:g} of its range, in 10 steps away from the class that was \
predicted for the clean digit, against all members at once. Stronger attacks exist.
"""
TITLE = "Training data: digits with candidate labels; the label that RobustPll chose is underlined"
HEADINGS: tuple[str, ...] = ("test\naccuracy", "training labels\nresolved", "entropy,\nknown")
HEADINGS += ("entropy,\nunknown", "accuracy,\nattacked")
GROUPS = ("training labels\nresolved", "test rows", f"test rows,\nattacked by {EPSILON:g}")

Accuracies = dict[str, list[float]]  # of each method in percent, for each of GROUPS
Entropies = dict[str, tuple[Any, Any]]  # of each method, for known (n,) and unknown rows (m,)


def run_demo(folder: Path, seed: int = 0, epochs: int = 100) -> Path:
    """Train three methods, print a table and draw a picture; return the picture's path."""
    out, console = OutFolder.of(folder, "demo"), Console()
    out.refuse_others([PICTURE])
    console.print(INTRODUCTION)
    X, y = load_digits(return_X_y=True)
    known = ~np.isin(y, UNKNOWN)
    train, test, truth, test_truth = train_test_split(
        X[known], y[known], test_size=0.25, random_state=seed, stratify=y[known]
    )
    with progress_bars(console):
        noise = InstanceDependent(epochs=30, learning_rate=0.03)  # there are few rows
        candidates = noise.apply(train, truth, seed)
        models = [
            PLLClassifier(method(epochs=epochs), random_state=seed).fit(train, candidates)
            for method in (RobustPll, RobustPllEns, Proden)
        ]
    accuracies, entropies = Accuracies(), Entropies()
    for model in models:
        title, clean = model.resolved_method().title, model.predict_opinion(test)
        attacked = model.predict_opinion(test, PGD(EPSILON, labels="clean", joint=True))
        tested = [model.classes_[opinion.predicted()] for opinion in (clean, attacked)]
        right = model.labels_ == truth, *(labels == test_truth for labels in tested)
        accuracies[title] = [100 * rows.mean() for rows in right]
        entropies[title] = clean.entropy, model.predict_opinion(X[~known]).entropy
    console.print(
        f"\n{len(train):,} training digits with {candidates.sizes.mean():.1f} candidates out of "
        f"{len(candidates.classes)} classes on average; {len(test)} test digits; "
        f"{(~known).sum()} unknown ones."
    )
    console.print(_table(accuracies, entropies), EXPLANATION, sep="\n")
    figure = new_figure(13, 7.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))  # type: ignore[misc]
    top.suptitle(TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
    sets, labels = candidates.sets(), models[0].labels_
    rows = np.unique(truth, return_index=True)[1]  # the first of each class
    for axes, row in zip(top.subplots(1, len(rows)), rows, strict=True):
        axes.imshow(train[row].reshape(8, 8), cmap="gray_r")
        _show_labels(axes, sorted(sets[row]), labels[row], truth[row])
    left, right = bottom.subplots(1, 2)
    _show_accuracies(plain(left, "How often is it right?"), accuracies)
    _show_entropies(plain(right, "Does it notice what it has never seen?"), entropies)
    out.write(PICTURE, picture_bytes(figure, "png"))
    console.print(f"Picture: [bold]{folder / PICTURE}[/bold]", soft_wrap=True)
    return folder / PICTURE


def _table(accuracies: Accuracies, entropies: Entropies) -> Table:
    columns = (Column(heading, justify="right", no_wrap=True) for heading in HEADINGS)
    table = Table("\nmethod", *columns, box=None, padding=(0, 1), header_style="bold")
    for title, shares in accuracies.items():
        resolved, test, attacked = (f"{share:.1f} %" for share in shares)
        known, unknown = (f"{entropy.mean():.2f}" for entropy in entropies[title])
        table.add_row(title, test, resolved, known, unknown, attacked)
    return table


def _show_labels(axes: Any, candidates: list[Any], resolved: Any, truth: Any) -> None:
    axes.set_axis_off()
    is_right = resolved == truth
    colour, verdict = (GOOD, "right") if is_right else (BAD, f"wrong: it is {truth}")
    axes.set_title(verdict, fontsize=9, color=colour)
    place = {"transform": axes.transAxes, "ha": "center", "va": "top"}
    for number, name in enumerate(candidates):
        text, look = str(name), {"fontsize": 10, "color": MUTED}
        if name == resolved:
            text, look = f"{name}\u0332", {"fontsize": 13, "color": colour, "fontweight": "bold"}
        axes.text((number + 0.5) / len(candidates), -0.12, text, **place, **look)


def _show_accuracies(axes: Any, accuracies: Accuracies) -> None:
    width, ticks = 0.8 / len(accuracies), np.arange(len(GROUPS))
    for number, (title, heights) in enumerate(accuracies.items()):
        places = ticks + (number - (len(accuracies) - 1) / 2) * width
        bars = axes.bar(places, heights, 0.92 * width, color=COLOURS[number], label=title)
        axes.bar_label(bars, fmt="%.0f", fontsize=9, padding=2)
    axes.set_xticks(ticks, GROUPS)
    axes.set(ylim=(0, 108), ylabel="accuracy in %")
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def _show_entropies(axes: Any, entropies: Entropies) -> None:
    box = {"widths": 0.3, "orientation": "horizontal", "whis": (5, 95), "showfliers": False}
    box |= {"patch_artist": True, "medianprops": {"color": "black"}}
    for row, (known, unknown) in enumerate(entropies.values()):
        colour = COLOURS[row]
        for values, y, face, name in (
            (known, row - 0.18, colour, "known digits"),
            (unknown, row + 0.18, "white", "unknown digits"),
        ):
            drawn = axes.boxplot(values, positions=[y], **box)
            drawn["boxes"][0].set(facecolor=face, edgecolor=colour)
            axes.text(1.03, y, name, va="center", fontsize=9, color=MUTED)
    axes.set_yticks(range(len(entropies)), [*entropies])
    axes.invert_yaxis()
    label = "entropy: 0 is certain, 1 is clueless (middle half, 5 % to 95 %)"
    axes.set(xlim=(0, 1), xlabel=label)
