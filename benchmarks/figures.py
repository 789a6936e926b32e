"""Figures of the pages on robustness and trust; lines differ in more than their colours."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from robustpll.errors import InputError
from robustpll.measures.calibration import Reliability
from robustpll.measures.metrics import sample
from robustpll.measures.selection import RiskCoverage
from robustpll.plots.curves import LINES
from robustpll.plots.style import COLOURS, MUTED, new_figure, plain, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^vP"


def reliability_picture(models: Mapping[str, Reliability]) -> "Figure":
    """Plot the share of right predictions against their probability, for up to six models."""
    figure, axes = _axes(6.4, "Does 80 % sure mean right in 80 %?", models)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, label="calibrated")
    for number, (name, curve) in enumerate(models.items()):
        label = f"{unmarked(name)} (error {curve.error:.2f})"
        axes.plot(curve.promised, curve.right, label=label, **_look(number, number))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return _labelled(figure, "probability of the predicted class", "share of right predictions")


def risk_coverage_curve(models: Mapping[str, RiskCoverage]) -> "Figure":
    """Plot the error among accepted rows against their share, for up to six models."""
    figure, axes = _axes(6.4, "What is gained by not deciding everything?", models)
    for number, (name, curve) in enumerate(models.items()):
        label = f"{unmarked(name)} (area {curve.area:.2f})"
        look = _look(number, number) | {"markevery": max(1, len(curve.error) // 8)}
        axes.plot(100 * curve.coverage, 100 * curve.error, label=label, **look)
    axes.set(xlim=(0, 100))
    axes.set_ylim(bottom=0)
    return _labelled(figure, "accepted rows in %", "wrong ones among them in %")


def attack_curves(
    epsilons: ArrayLike, accuracies: Mapping[str, Mapping[str, ArrayLike]]
) -> "Figure":
    """Plot accuracy against epsilon: methods differ in marker and colour, attacks in line style.

    `accuracies` maps up to six methods to their accuracies (e,) by the attack's name.
    """
    figure, axes = _axes(7.6, "How much does it withstand?", accuracies)
    attacks = list(dict.fromkeys(attack for curves in accuracies.values() for attack in curves))
    for number, (title, curves) in enumerate(accuracies.items()):
        for attack, values in curves.items():
            label, look = f"{title}, {attack}", _look(number, attacks.index(attack))
            heights = 100 * sample(values, f"accuracies of {label}")
            axes.plot(sample(epsilons, "epsilons"), heights, label=label, **look)
    axes.set_ylim(0, 100)
    return _labelled(figure, "epsilon: how far each scaled feature may move", "accuracy in %")


def ood_histogram(known: ArrayLike, ood: ArrayLike, score: str = "entropy") -> "Figure":
    """Plot the histograms of a score on known rows (filled) and OOD rows (outlined), in %."""
    samples = sample(known, "known"), sample(ood, "ood")
    edges = np.histogram_bin_edges(np.concatenate(samples), bins=50)
    figure = new_figure(6.0, 3.2)
    axes = plain(figure.subplots(), "Does it notice what it has never seen?")
    looks: tuple[dict[str, Any], ...] = (
        {"color": COLOURS[1], "label": "known rows"},
        {"histtype": "step", "linewidth": 1.6, "color": "black", "label": "OOD rows"},
    )
    for values, look in zip(samples, looks, strict=True):
        axes.hist(values, edges, weights=np.full(len(values), 100 / len(values)), **look)
    axes.set_xlabel(f"{score}: higher is more unlike the training data")
    axes.set_ylabel("rows in %")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _axes(width: float, title: str, lines: Mapping[str, Any]) -> tuple["Figure", Any]:
    if not 1 <= len(lines) <= len(MARKERS):
        raise InputError(f"A figure shows 1 to {len(MARKERS)} names; got {len(lines)}.")
    figure = new_figure(width, 3.6)
    return figure, plain(figure.subplots(), title)


def _look(number: int, line: int) -> dict[str, Any]:
    look = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 4.5}
    return look | {"linestyle": LINES[line], "linewidth": 1.4}


def _labelled(figure: "Figure", x: str, y: str) -> "Figure":
    axes = figure.axes[0]
    axes.set(xlabel=x, ylabel=y)
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
