"""Curves and histograms of stored predictions; they can be read without colours."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from robustpll.errors import InputError
from robustpll.measures.metrics import distribution, sample
from robustpll.plots.style import COLOURS, new_figure, plain, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = "osD^vP"


def entropy_curves(panels: Sequence[Mapping[str, tuple[ArrayLike, ArrayLike]]]) -> "Figure":
    """Distribution functions of test entropies (dark) and OOD entropies (light).

    Parameters
    ----------
    panels : sequence of mappings
        Each panel names up to six methods, with their test and OOD entropies.

    Examples
    --------
    >>> panel = {"Proden": ([0, 0.1, 0.2], [0.1, 0.5, 0.9])}
    >>> figure = entropy_curves([panel, panel])
    >>> [len(axes.lines) for axes in figure.axes]
    [2, 2]
    """
    return distribution_lines(
        [
            {title: (_steps(test), _steps(ood)) for title, (test, ood) in panel.items()}
            for panel in panels
        ]
    )


def distribution_lines(panels: Sequence[Mapping[str, tuple[ArrayLike, ArrayLike]]]) -> "Figure":
    """As `entropy_curves`, from the points (p, 2) that the lines go through.

    >>> line = [[0.0, 0.5], [0.4, 1.0]]
    >>> len(distribution_lines([{"Proden": (line, line)}]).axes[0].lines)
    2
    """
    _refuse_many(panels, "panels", most=4)
    from matplotlib import colormaps

    figure = new_figure(3.0 * len(panels), 1.8)
    shades = colormaps["tab20"]
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(places, panels, strict=True):
        _refuse_many(panel, "A panel", most=len(LINES))
        for number, (title, both) in enumerate(panel.items()):
            at = 2 * number  # dark and light shades stand side by side
            for points, shade, label in zip(both, (at, at + 1), (title, None), strict=True):
                axes.plot(
                    *np.asarray(points, float).T,
                    linestyle=LINES[number],
                    color=shades(shade),
                    linewidth=1.2,
                    label=label and unmarked(label),
                )
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Predictive Entropy (Test / OOD)")
        axes.xaxis.label.set_fontsize(8)
        axes.tick_params(labelsize=7)
        axes.grid(color="0.9", linewidth=0.6)
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
            fontsize=7,
            handlelength=2.6,
        )
    places[0].set_ylabel("Empirical CDF", fontsize=8)
    return figure


def _steps(values: ArrayLike) -> ArrayLike:
    return np.column_stack(distribution(values))


def attack_curves(
    epsilons: ArrayLike, accuracies: Mapping[str, Mapping[str, ArrayLike]]
) -> "Figure":
    """Accuracy against the strength of attacks, for several methods and kinds of attack.

    Parameters
    ----------
    epsilons : array of shape (e,)
        Strengths.
    accuracies : mapping
        Up to six methods, each with its accuracies (e,) by the attack's name, such as "published"
        and "audit". Methods differ in colour and marker, attacks in the style of the line.

    Examples
    --------
    >>> falling = {"published": [0.7, 0.5], "audit": [0.7, 0.1]}
    >>> figure = attack_curves([0, 0.1], {"Proden": falling, "RobustPll": falling})
    >>> [line.get_label() for line in figure.axes[0].lines][:2]
    ['Proden, published', 'Proden, audit']
    """
    _refuse_many(accuracies, "accuracies", most=len(MARKERS))
    strengths = sample(epsilons, "epsilons")
    attacks = list(dict.fromkeys(name for each in accuracies.values() for name in each))
    _refuse_many(attacks, "The attacks in accuracies", most=len(LINES))
    figure = new_figure(7.6, 3.6)
    axes = plain(figure.subplots(), "How much does it withstand?")
    for marker, colour, (title, curves) in zip(MARKERS, COLOURS, accuracies.items(), strict=False):
        for attack, values in curves.items():
            heights = 100 * sample(values, f"accuracies of {title}, {attack},")
            if len(heights) != len(strengths):
                msg = (
                    f"There are {len(heights)} accuracies of {title}, {attack}, but "
                    f"{len(strengths)} epsilons. Pass one accuracy for each epsilon."
                )
                raise InputError(msg)
            axes.plot(
                strengths,
                heights,
                marker=marker,
                markersize=4.5,
                linestyle=LINES[attacks.index(attack)],
                color=colour,
                label=f"{title}, {attack}",
            )
    axes.set_ylim(0, 100)
    axes.set_xlabel("epsilon: how far each scaled feature may move")
    axes.set_ylabel("accuracy in %")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def ood_histogram(known: ArrayLike, ood: ArrayLike, score: str = "entropy") -> "Figure":
    """A score's distribution on known rows (filled) and OOD rows (outlined), each in %.

    >>> figure = ood_histogram([0, 0.1, 0.2], [0.1, 0.5, 0.9])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['known rows', 'OOD rows']
    """
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


def _refuse_many(several: Any, name: str, most: int) -> None:
    """More would look alike."""
    if not 1 <= len(several) <= most:
        msg = f"{name} must have 1 to {most} entries; found {len(several)}. Draw several figures."
        raise InputError(msg)
