"""Pictures of how sure is sure: reliability, and error against coverage."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from robustpll.errors import InputError
from robustpll.measures.calibration import Reliability
from robustpll.measures.selection import RiskCoverage
from robustpll.plots.curves import LINES, MARKERS
from robustpll.plots.style import COLOURS, MUTED, new_figure, plain, unmarked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability_picture(found: Mapping[str, Reliability]) -> "Figure":
    """How often promises came true, against what was promised; the diagonal is honest.

    Below it a model is too sure, above it not sure enough.

    Parameters
    ----------
    found : mapping
        Up to six models by name, such as one before and after it is recalibrated.

    Examples
    --------
    >>> from robustpll.measures.calibration import reliability
    >>> figure = reliability_picture({"mine": reliability([0.6, 0.7, 0.9, 0.9], [1, 0, 1, 1])})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['honest', 'mine (error 0.33)']
    """
    names = _checked(found, Reliability)
    figure = new_figure(6.4, 3.6)
    axes = plain(figure.subplots(), "Does 80 % sure mean right in 80 %?")
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, label="honest")
    for number, name in enumerate(names):
        each = found[name]
        label = f"{unmarked(name)} (error {each.error:.2f})"
        axes.plot(each.promised, each.right, label=label, **_look(number))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("probability of the predicted class")
    axes.set_ylabel("share of right predictions")
    return _finished(figure)


def risk_coverage_curve(found: Mapping[str, RiskCoverage]) -> "Figure":
    """Error among the accepted rows, the surest first, against their share.

    Parameters
    ----------
    found : mapping
        Up to six models by name.

    Examples
    --------
    >>> from robustpll.measures.selection import risk_coverage
    >>> figure = risk_coverage_curve({"mine": risk_coverage([0.9, 0.8, 0.6], [1, 1, 0])})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['mine (area 0.11)']
    """
    names = _checked(found, RiskCoverage)
    figure = new_figure(6.4, 3.6)
    axes = plain(figure.subplots(), "What is gained by not deciding everything?")
    for number, name in enumerate(names):
        each = found[name]
        label = f"{unmarked(name)} (area {each.area:.2f})"
        look = _look(number) | {"markevery": max(1, len(each.error) // 8)}
        axes.plot(100 * each.coverage, 100 * each.error, label=label, **look)
    axes.set(xlim=(0, 100))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("accepted rows in %")
    axes.set_ylabel("wrong ones among them in %")
    return _finished(figure)


def _checked(found: Any, kind: type) -> list[str]:
    names = list(found) if isinstance(found, Mapping) else []
    if not 1 <= len(names) <= len(MARKERS) or not all(isinstance(found[n], kind) for n in names):
        msg = f"found must be a mapping of 1 to {len(MARKERS)} names to {kind.__name__} objects."
        raise InputError(msg)
    return names


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number],
        "marker": MARKERS[number],
        "markersize": 4.5,
        "linestyle": LINES[number],
        "linewidth": 1.4,
    }


def _finished(figure: "Figure") -> "Figure":
    axes = figure.axes[0]
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
