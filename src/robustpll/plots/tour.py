"""The picture of the demo: training data, accuracies and entropies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustpll.plots.style import BAD, COLOURS, GOOD, MUTED, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Training data: digits with candidate labels; the label that RobustPll chose is underlined"


class Example(NamedTuple):
    """A training row, its candidates and the label that a method resolved."""

    picture: NDArray[Any]  # (h, w)
    candidates: Sequence[Any]
    resolved: Any
    truth: Any


@dataclass(frozen=True)
class Outcome:
    """The results of a method; the numbers are accuracies."""

    title: str
    test: float
    resolved: float  # of training labels
    attacked: float
    entropy_known: NDArray[np.float64]  # of test rows, (n,)
    entropy_unknown: NDArray[np.float64]  # of rows of unknown classes


def tour_picture(
    examples: Sequence[Example], outcomes: Sequence[Outcome], epsilon: float
) -> "Figure":
    """Plot training examples, accuracies and entropies."""
    figure = new_figure(13, 7.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))  # type: ignore[misc]
    top.suptitle(TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
    for axes, example in zip(top.subplots(1, len(examples)), examples, strict=True):
        _show_example(axes, *example)
    left, right = bottom.subplots(1, 2)
    groups = ("training labels\nresolved", "test rows", f"test rows,\nattacked by {epsilon:g}")
    _show_accuracy(plain(left, "How often is it right?"), outcomes, groups)
    _show_entropy(plain(right, "Does it notice what it has never seen?"), outcomes)
    return figure


def _show_example(
    axes: Any, picture: NDArray[Any], candidates: Sequence[Any], resolved: Any, truth: Any
) -> None:
    axes.imshow(picture, cmap="gray_r")
    axes.set_axis_off()
    colour = GOOD if resolved == truth else BAD
    verdict = "right" if resolved == truth else f"wrong: it is {truth}"
    axes.set_title(verdict, fontsize=9, color=colour)
    place = {"transform": axes.transAxes, "ha": "center", "va": "top"}
    for number, name in enumerate(candidates):
        text, look = str(name), {"fontsize": 10, "color": MUTED}
        if name == resolved:
            text, look = f"{name}\u0332", {"fontsize": 13, "color": colour, "fontweight": "bold"}
        axes.text((number + 0.5) / len(candidates), -0.12, text, **place, **look)


def _show_accuracy(axes: Any, outcomes: Sequence[Outcome], groups: Sequence[str]) -> None:
    width = 0.8 / len(outcomes)
    for number, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=False)):
        heights = [100 * share for share in (outcome.resolved, outcome.test, outcome.attacked)]
        places = np.arange(len(groups)) + (number - (len(outcomes) - 1) / 2) * width
        bars = axes.bar(places, heights, 0.92 * width, color=colour, label=outcome.title)
        axes.bar_label(bars, fmt="%.0f", fontsize=9, padding=2)
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set(ylim=(0, 108), ylabel="accuracy in %")
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def _show_entropy(axes: Any, outcomes: Sequence[Outcome]) -> None:
    box = {"widths": 0.3, "orientation": "horizontal", "whis": (5, 95), "showfliers": False}
    box |= {"patch_artist": True, "medianprops": {"color": "black"}}
    for row, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=False)):
        for values, y, face, name in (
            (outcome.entropy_known, row - 0.18, colour, "known digits"),
            (outcome.entropy_unknown, row + 0.18, "white", "unknown digits"),
        ):
            drawn = axes.boxplot(values, positions=[y], **box)
            drawn["boxes"][0].set(facecolor=face, edgecolor=colour)
            axes.text(1.03, y, name, va="center", fontsize=9, color=MUTED)
    axes.set_yticks(range(len(outcomes)), [outcome.title for outcome in outcomes])
    axes.invert_yaxis()
    label = "entropy: 0 is certain, 1 is clueless (middle half, 5 % to 95 %)"
    axes.set(xlim=(0, 1), xlabel=label)
