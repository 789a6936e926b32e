"""The picture of the demo: what went in, what was found, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustpll.plots.style import BAD, COLOURS, GOOD, MUTED, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Example:
    """A training row and what became of its candidates."""

    picture: NDArray[Any]  # (h, w)
    candidates: Sequence[Any]
    found: Any
    truth: Any


@dataclass(frozen=True)
class Outcome:
    """What a method achieved."""

    title: str
    test: float  # accuracy, as are the next two
    resolved: float  # of the training labels it found among the candidates
    attacked: float
    entropy_known: NDArray[np.float64]  # of test rows, (n,)
    entropy_unknown: NDArray[np.float64]  # of rows of no known class


def tour_picture(
    examples: Sequence[Example], outcomes: Sequence[Outcome], epsilon: float
) -> "Figure":
    """Three answers at a glance."""
    figure = new_figure(13, 7.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))  # type: ignore[misc]
    _show_examples(top, examples)
    left, right = bottom.subplots(1, 2)
    _show_accuracy(left, outcomes, epsilon)
    _show_entropy(right, outcomes)
    return figure


def _show_examples(figure: Any, examples: Sequence[Example]) -> None:
    figure.suptitle(
        "Training data: each digit came with several candidate labels; underlined is the one that "
        "RobustPll found",
        x=0.01,
        ha="left",
        fontsize=11,
        fontweight="bold",
    )
    for axes, example in zip(figure.subplots(1, len(examples)), examples, strict=True):
        axes.imshow(example.picture, cmap="gray_r")
        axes.set_axis_off()
        right = example.found == example.truth
        names = [str(name) for name in example.candidates]
        for at, name in enumerate(names):
            here = name == str(example.found)
            axes.text(
                (at + 0.5) / len(names),
                -0.12,
                name + ("\u0332" if here else ""),
                transform=axes.transAxes,
                ha="center",
                va="top",
                fontsize=13 if here else 10,
                fontweight="bold" if here else "normal",
                color=(GOOD if right else BAD) if here else MUTED,
            )
        verdict = "right" if right else f"wrong: it is {example.truth}"
        axes.set_title(verdict, fontsize=9, color=GOOD if right else BAD)


def _show_accuracy(axes: Any, outcomes: Sequence[Outcome], epsilon: float) -> None:
    plain(axes, "How often is it right?")
    groups = ("training labels\nresolved", "test rows", f"test rows,\nattacked by {epsilon:g}")
    width = 0.8 / len(outcomes)
    for number, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=False)):
        heights = [100 * share for share in (outcome.resolved, outcome.test, outcome.attacked)]
        places = np.arange(len(groups)) + (number - (len(outcomes) - 1) / 2) * width
        bars = axes.bar(places, heights, 0.92 * width, color=colour, label=outcome.title)
        axes.bar_label(bars, fmt="%.0f", fontsize=9, padding=2)
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set_ylim(0, 108)
    axes.set_ylabel("accuracy in %")
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def _show_entropy(axes: Any, outcomes: Sequence[Outcome]) -> None:
    plain(axes, "Does it notice what it has never seen?")
    for number, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=False)):
        place = len(outcomes) - 1 - number
        for values, shift, filled in (
            (outcome.entropy_known, 0.18, True),
            (outcome.entropy_unknown, -0.18, False),
        ):
            box = axes.boxplot(
                values,
                positions=[place + shift],
                widths=0.3,
                orientation="horizontal",
                whis=(5, 95),
                showfliers=False,
                patch_artist=True,
                medianprops={"color": "black"},
            )
            box["boxes"][0].set(facecolor=colour if filled else "white", edgecolor=colour)
            middle = "known digits" if filled else "unknown digits"
            axes.text(1.03, place + shift, middle, va="center", fontsize=9, color=MUTED)
    axes.set_yticks(range(len(outcomes)), [outcome.title for outcome in reversed(outcomes)])
    axes.set_xlim(0, 1)
    axes.set_xlabel("entropy: 0 is certain, 1 is clueless (middle half, 5 % to 95 %)")
