"""Figures as functions of fitted models, or of numbers; they can be read without colours."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps, rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from robustpll.errors import InputError, is_count, refuse_other_length
from robustpll.estimator.abstention import certainty_of
from robustpll.estimator.base import refuse_unfitted, true_labels
from robustpll.evaluate.reports import calibration_report, decision_report
from robustpll.labels.candidates import Candidates, candidates_with
from robustpll.labels.votes import Votes
from robustpll.measures.calibration import Reliability, RiskCoverage, risk_coverage
from robustpll.opinion import Opinion

__all__ = ["plot_annotators", "plot_candidates", "plot_confusion", "plot_learning_curve"]
__all__ += ["plot_opinion_simplex", "plot_reliability", "plot_risk_coverage"]

# Distinguishable with the common forms of colour blindness (Okabe & Ito).
COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7", "#f0e442", "#000000")
GOOD, BAD, MUTED, PALE = "#009e73", "#d55e00", "#8a8f98", "#cccccc"
# Of lines and markers: distinguishable with each form of colour blindness, and with a contrast of 3
# to 1 both on white and on a dark page, which few of the above have.
LINES = ("#0072b2", BAD, "#9030f8", "#909870")
DASHES, MARKERS = ("-", "--", "-.", ":"), ("o", "s", "^", "D", "v")
# ids of lines, to find them when another model is added
CURVE, DIAGONAL, PROMISED, LIMIT = "curve", "diagonal", "promised", "limit"
MEASURES = {"loss": "mean loss", "covering_rate": "covering rate of the validation rows"}
CORNERS = np.array([[0, 0], [1, 0], [0.5, 0.75**0.5]])  # of the triangle of opinions
MOST_NAMES, MOST_CELLS = 20, 12  # that are legible along an axis
LONGEST, WIDEST = 18, 32  # letters of a name, and of all names side by side
PANELS_PER_ROW = 5


def new_figure(width: float, height: float) -> Figure:
    """Return a figure that needs no screen and does not touch pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, title: str) -> Any:
    """Remove the top and right border, and set the title."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return axes


def unmarked(name: str) -> str:
    r"""Escape a name for matplotlib: no formula, and no label that a legend leaves out.

    >>> unmarked("$k$"), unmarked("_mine")
    ('\\$k\\$', ' _mine')
    """
    return (" " if name.startswith("_") else "") + " ".join(name.split()).replace("$", r"\$")


def picture_bytes(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """Return a figure as a file; the same figure always has the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second layout would differ slightly
    nothing = {"png": ("Software",), "svg": ("Date", "Creator", "Format", "Type")}[kind]
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "robustpll"}):  # else the names of clip paths are random
        figure.savefig(buffer, format=kind, dpi=130, metadata=dict.fromkeys(nothing))
    return buffer.getvalue()


def distribution_lines(panels: Sequence[Mapping[str, tuple[ArrayLike, ArrayLike]]]) -> Figure:
    """Plot distribution functions of test entropies (dark) and OOD entropies (light).

    Each panel maps up to four methods to the points (p, 2) of their two lines.
    """
    figure, shades = new_figure(3.0 * len(panels), 1.8), colormaps["tab20"]  # dark, light, dark ...
    places = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(places, panels, strict=True):
        for number, (title, lines) in enumerate(panel.items()):
            label, style = unmarked(title), {"linestyle": DASHES[number], "linewidth": 1.2}
            test, ood = (np.asarray(line, float).T for line in lines)
            axes.plot(*test, color=shades(2 * number), label=label, **style)
            axes.plot(*ood, color=shades(2 * number + 1), **style)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_xlabel("Predictive Entropy (Test / OOD)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(color="0.9", linewidth=0.6)
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2}
        axes.legend(frameon=False, fontsize=7, handlelength=2.6, **above)
    places[0].set_ylabel("Empirical CDF", fontsize=8)
    return figure


def attack_panels(accuracies: Mapping[str, Mapping[float, float]], title: str) -> Figure:
    """Draw accuracy against the strength of an attack: a panel for each method, others in grey.

    `accuracies` are in percent, by method and epsilon; `title` says what the rows are.
    """
    across = min(PANELS_PER_ROW, len(accuracies))
    down = -(-len(accuracies) // across)
    figure = new_figure(0.4 + 1.7 * across, 0.6 + 1.5 * down)
    figure.suptitle(unmarked(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    lines = {label: np.array(sorted(curve.items())) for label, curve in accuracies.items()}
    for axes, (label, line) in zip(panels, lines.items(), strict=False):  # line: (points, 2)
        others = LineCollection(list(lines.values()), color=PALE, linewidth=0.8, zorder=1)
        axes.add_collection(others)
        axes.plot(*line.T, color="black", linewidth=1.6, marker="o", markersize=3.5, zorder=2)
        plain(axes, "").set_title(unmarked(label), loc="left", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(0, 100)
    for axes in panels[len(lines) :]:
        axes.remove()
    figure.supxlabel("epsilon: how far each scaled feature may move", fontsize=8)
    figure.supylabel("accuracy in %", fontsize=8)
    return figure


# Measures of a fitted model. Each function takes the model first, then rows and their labels, and
# returns the axes. `X=None` means the training rows, with what `fit` learned about them.


def draw_reliability(axes: Any, result: Reliability, name: str) -> None:
    """Draw a reliability diagram, with the rows of each bin and the range of chance."""
    if not any(line.get_gid() == DIAGONAL for line in axes.lines):
        look = {"color": MUTED, "linewidth": 1, "gid": DIAGONAL, "zorder": 1}
        axes.plot([0, 1], [0, 1], label="calibrated", **look)
    fewest, most = result.rows.min(), result.rows.max()
    rows = f"{fewest:,.0f}" + (f" to {most:,.0f}" if most > fewest else "")
    chance = f"(by chance {result.chance:.3f}; rows per bin: {rows})"
    words = f"{name}: error {result.error:.3f}\n{chance}"
    (line,) = axes.plot(result.promised, result.right, label=words, **_next_look(axes))
    ends: Any = binom.interval(0.95, result.rows, result.promised.clip(0, 1))
    look = {"color": line.get_color(), "alpha": 0.3, "zorder": 1}
    axes.vlines(result.promised, *(ends / result.rows), linewidth=6, gid="chance", **look)
    shares = result.rows / result.rows.sum()
    axes.vlines(result.promised, 0, shares, linewidth=3, gid="rows", **look)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set(xlabel="probability of the predicted class", ylabel="share of right predictions")
    _show_legend(axes)


def draw_risk_coverage(axes: Any, result: RiskCoverage, name: str) -> Any:
    """Draw the error of accepted rows against their share; return the line."""
    every = max(1, len(result.error) // 10)
    look = {"markevery": (every - 1, every), **_next_look(axes)}
    (line,) = axes.plot(result.coverage, result.error, label=name, **look)
    axes.set(xlim=(-0.02, 1.02), xlabel="share of accepted rows", ylabel="error among them")
    _show_from_zero(axes)
    return line


def plot_reliability(
    model: Any, X: Any, y: Any, *, bins: int = 15, name: str | None = None, ax: Any = None
) -> Any:
    """Plot how often predictions are right against their probability.

    A wide pale bar is the range of 95 % in which a bin of a perfectly calibrated model lies by
    chance. A thin bar at the bottom is the bin's share of the rows. The legend has the expected
    calibration error, and the error that a calibrated model would have by chance.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X, y
        Rows that were not trained on, and their true labels (n,).
    bins : int
        Number of bins, of about equally many rows; see `reliability`.
    name : str, optional
        Of the model in the legend; the title of its method by default.
    ax : matplotlib Axes, optional
        Where to draw, also beside the curves of other models; a new figure by default.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> plot_reliability(PLLClassifier("pl_knn").fit(X, y), np.eye(3), ["a", "b", "b"]).get_xlabel()
    'probability of the predicted class'
    """
    _refuse_other_axes(ax)
    _refuse_no_rows(X)
    result, name = calibration_report(model, X, y, bins).top, _name_of(model, name)
    axes = _axes_of(ax)
    draw_reliability(axes, result, name)
    return axes


def plot_risk_coverage(
    model: Any,
    X: Any,
    y: Any,
    *,
    error: float | None = None,
    name: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot the error of the most certain rows against their share.

    The dotted line is the error that the model's probabilities promise. With `error`, a dashed line
    and a star show this limit, and what ``decide(X, error=error)`` accepts.

    Parameters
    ----------
    model, name, ax
        As for `plot_reliability`.
    X, y
        Rows that were not trained on, and their true labels (n,).
    error : float, optional
        The share of wrong predictions to allow among accepted rows. It is a bound, if
        `calibrate_decisions` was called with other labelled rows.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> model = PLLClassifier("pl_knn").fit(X, y)
    >>> plot_risk_coverage(model, np.eye(3), ["a", "b", "b"], error=0.5).lines[0].get_ydata()
    array([0.333..., 0.333..., 0.333...])
    """
    _refuse_other_axes(ax)
    _refuse_no_rows(X)
    opinion, name = _opinion_of(model, X), _name_of(model, name)
    right = opinion.predicted() == true_labels(model, y, len(opinion))
    decision = None if error is None else model.decide(X, error=error)
    certainty, axes = certainty_of(opinion), _axes_of(ax)
    result = risk_coverage(certainty, right)
    line = draw_risk_coverage(axes, result, f"{name}: area {result.area:.3f}")
    promised = np.cumsum(1 - np.sort(certainty)[::-1]) / np.arange(1, len(certainty) + 1)
    look = {"color": line.get_color(), "linestyle": ":", "linewidth": 1.6, "gid": PROMISED}
    is_first = not any(line.get_gid() == PROMISED for line in axes.lines)
    label = "promised by probabilities" if is_first else None
    axes.plot(result.coverage, promised, label=label, **look)
    if decision is not None:
        is_first = all(line.get_gid() != f"{LIMIT} {error}" for line in axes.lines)
        label = f"limit {error:g}" if is_first else None
        look = {"color": MUTED, "linestyle": "--", "linewidth": 1, "gid": f"{LIMIT} {error}"}
        axes.axhline(error, label=label, **look)
        coverage, reached = decision.coverage, decision_report(decision, y).error
        words = f"accepts {coverage:.0%}"
        words += "" if reached is None else f", error {reached:.3f}"
        edge = {"markeredgecolor": rcParams["text.color"], "markersize": 14, "clip_on": False}
        look = {"color": line.get_color(), "marker": "*", "linestyle": "", **edge}
        height = np.nan if reached is None else reached
        axes.plot([coverage], [height], label=f"{name} {words}", **look)
    _show_from_zero(axes)
    return axes


def plot_learning_curve(
    model: Any,
    *,
    measure: Literal["loss", "covering_rate"] = "loss",
    name: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot the loss, or the covering rate of the validation rows, of each epoch.

    Parameters
    ----------
    model, name, ax
        As for `plot_reliability`.
    measure : {"loss", "covering_rate"}
        A key of the model's ``history_``; a `PLLClassifier` with `watch` has a covering rate.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> model = PLLClassifier("proden", random_state=0).set_params(method__epochs=5).fit(X, y)
    >>> plot_learning_curve(model).lines[0].get_xdata()
    array([1, 2, 3, 4, 5])
    """
    _refuse_other_axes(ax)
    refuse_unfitted(model)
    if measure not in MEASURES:
        known = " or ".join(map(repr, MEASURES))
        raise InputError(f"measure must be {known}; got {measure!r}.")
    values, name = model.history_.get(measure, ()), _name_of(model, name)
    if not len(values):
        remedies = {
            "loss": "Fit a method that trains networks once, such as PLLClassifier('proden')",
            "covering_rate": "Fit with watch=0.1, a parameter of PLLClassifier",
        }
        raise InputError(f"{name} has recorded no {measure} of epochs. {remedies[measure]}.")
    axes, epochs = _axes_of(ax), np.arange(1, len(values) + 1)
    every = max(1, len(values) // 10)
    axes.plot(epochs, values, label=name, markevery=(every - 1, every), **_next_look(axes))
    if isinstance(locator := axes.xaxis.get_major_locator(), MaxNLocator):  # no logarithmic axis
        locator.set_params(integer=True)
    axes.set(xlabel="epoch", ylabel=MEASURES[measure])
    _show_legend(axes)
    return axes


def plot_confusion(model: Any, X: Any, y: Any, *, normalize: bool = True, ax: Any = None) -> Any:
    """Plot how often a label, or an annotator's answer, goes with each label of the model.

    Parameters
    ----------
    model, ax
        As for `plot_reliability`.
    X
        Rows; None for the training rows, whose labels are the resolved ones.
    y
        One label for each row, such as the true one, or `Votes`, whose answers count one by one.
        Answers that are not certain of one class do not count.
    normalize : bool
        Whether a cell is the share of its row, or a number.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> axes = plot_confusion(PLLClassifier("pl_knn").fit(X, y), np.eye(3), ["a", "b", "b"])
    >>> [text.get_text() for text in axes.texts]
    ['1.00', '0.50', '0.50']
    """
    _refuse_other_axes(ax)
    opinion = _opinion_of(model, X)
    given = _given(model, y, len(opinion))
    answers = given.answers
    if answers is None:
        if (given.sizes > 1).any():
            raise InputError(
                "y holds candidate sets. Pass labels or Votes, or use plot_candidates."
            )
        answers = given.matrix.argmax(-1)[:, None]
    rows, _ = np.nonzero(answers >= 0)
    table = np.zeros((len(given.classes), len(model.classes_)))
    np.add.at(table, (answers[answers >= 0], opinion.predicted()[rows]), 1.0)
    axes, form = _axes_of(ax), ".2f" if normalize else ".0f"
    shown = _shares(table) if normalize else table
    _draw_table(axes, shown, model.classes_, given.classes, form)
    axes.set_xlabel("resolved label" if X is None else "predicted label")
    axes.set_ylabel("answer" if isinstance(y, Votes) else "label in y")
    return axes


def plot_opinion_simplex(model: Any, X: Any = None, y: Any = None, *, ax: Any = None) -> Any:
    """Plot the opinion about each row as a point in a triangle.

    For two classes, the corners are belief in each class, and uncertainty. For three classes, a row
    is at its probabilities, and its size grows with its uncertainty. For more, the corners are
    belief in the predicted class, belief in all others, and uncertainty.

    Parameters
    ----------
    model, ax
        As for `plot_reliability`.
    X
        Rows; None for the training rows.
    y : optional
        True labels (n,). Wrong predictions are then crosses.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> axes = plot_opinion_simplex(PLLClassifier("pl_knn").fit(X, y), np.eye(3))
    >>> [text.get_text() for text in axes.texts]
    ['a', 'b', 'c']
    """
    _refuse_other_axes(ax)
    opinion = _opinion_of(model, X)
    right = None if y is None else opinion.predicted() == true_labels(model, y, len(opinion))
    axes, names = _axes_of(ax), [_short(name) for name in model.classes_]
    belief, u = opinion.belief, opinion.uncertainty
    if len(names) == 2:
        masses = np.column_stack([belief, u])
        names = [*(f"belief in {name}" for name in names), "uncertainty"]
    elif len(names) == 3:
        masses = opinion.probability
    else:
        top = np.take_along_axis(belief, opinion.predicted()[:, None], 1)[:, 0]
        masses = np.column_stack([belief.sum(-1) - top, top, u])
        names = ["belief in\nother classes", "belief in the\npredicted class", "uncertainty"]
    axes.plot(*CORNERS[[0, 1, 2, 0]].T, color=MUTED, linewidth=1, zorder=1)
    places = zip(CORNERS, names, ("top", "top", "bottom"), (-0.04, -0.04, 0.04), strict=True)
    for (x, height), text, side, gap in places:
        axes.text(x, height + gap, text, ha="center", va=side)
    _draw_points(axes, masses @ CORNERS, right, u if len(model.classes_) == 3 else None)
    axes.set(xlim=(-0.2, 1.2), ylim=(-0.2, 1.0), aspect="equal")
    axes.set_axis_off()
    return axes


def plot_annotators(model: Any, X: Any, y: Any, *, ax: Any = None) -> Any:
    """Plot how often each annotator's answers are the model's labels, with an interval of 95 %.

    The interval is that of a share known from so many answers (Jeffreys). It does not tell of wrong
    labels: who agrees with them looks right. Up to 20 annotators are listed by name with the number
    of their answers; more are placed by this number. The dotted line is what answers at random get.

    Parameters
    ----------
    model, ax
        As for `plot_reliability`.
    X
        Rows; None for the training rows, whose labels are the resolved ones.
    y : Votes
        The answers about these rows. Those that are not certain of one class do not count.

    Examples
    --------
    >>> from robustpll import PLLClassifier, Votes
    >>> X, y = np.repeat(np.eye(2), 20, axis=0), np.repeat([["a", "a"], ["b", "a"]], 20, axis=0)
    >>> axes = plot_annotators(PLLClassifier("pl_knn").fit(X, y[:, 0]), X, Votes(y))
    >>> [text.get_text() for text in axes.get_yticklabels()]
    ['1 (40 answers)', '0 (40 answers)']
    """
    _refuse_other_axes(ax)
    opinion = _opinion_of(model, X)
    answers = _given(model, y, len(opinion)).answers
    if answers is None:
        raise InputError(f"y must be Votes with answers of one class; got {type(y).__name__}.")
    right = (answers == opinion.predicted()[:, None]).sum(0)
    counts = (answers >= 0).sum(0)
    names = np.array(y.annotators if isinstance(y, Votes) else range(len(counts)), dtype=str)
    order = np.argsort(right / counts.clip(1), kind="stable")
    order = order[counts[order] > 0]
    right, counts, names = right[order], counts[order], names[order]
    share = right / counts
    ends: Any = beta.ppf([[0.025], [0.975]], right + 0.5, counts - right + 0.5)
    low, high = np.where(right == 0, 0.0, ends[0]), np.where(right == counts, 1.0, ends[1])
    axes, chance = _axes_of(ax), 1 / len(model.classes_)
    lengths = [share - low, high - share]
    look = {"fmt": "o", "color": LINES[0], "ecolor": MUTED, "capsize": 3, "markersize": 6}
    dotted = {"color": MUTED, "linestyle": ":", "label": "answers at random"}
    words = "share of answers that are the model's label"
    if len(names) <= MOST_NAMES:
        axes.errorbar(share, np.arange(len(names)), xerr=lengths, **look)
        labels = [f"{_short(n)} ({c:,} answers)" for n, c in zip(names, counts, strict=True)]
        axes.set_yticks(np.arange(len(names)), labels)
        axes.set(xlim=(-0.02, 1.02), xlabel=words)
        axes.axvline(chance, **dotted)
    else:
        axes.errorbar(counts, share, yerr=lengths, alpha=0.7, **look)
        axes.set(xscale="log", ylim=(-0.02, 1.02), xlabel="number of answers", ylabel=words)
        axes.axhline(chance, **dotted)
    _show_legend(axes)
    return axes


def plot_candidates(model: Any, X: Any, y: Any, *, most: int = 40, ax: Any = None) -> Any:
    """Plot candidate sets and the label that the model chooses for each row.

    Up to `most` rows have a line each. Darker cells have a larger share of the votes; a circle is
    the model's label, a cross one that is no candidate. More rows are counted: a line is a label of
    the model, and its cells tell how often each class was a candidate of the rows with this label.

    Parameters
    ----------
    model, ax
        As for `plot_reliability`.
    X
        Rows; None for the training rows, whose labels are the resolved ones.
    y
        Candidates of these rows, in any form that `Candidates.of` accepts.
    most : int
        Number of rows above which they are counted.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 2, axis=0), [{"a"}, {"a", "b"}] + [{"b"}, {"b", "c"}] * 2
    >>> axes = plot_candidates(PLLClassifier("pl_knn").fit(X, y), X, y)
    >>> axes.images[0].get_array().shape
    (6, 3)
    """
    _refuse_other_axes(ax)
    if not is_count(most):
        raise InputError(f"most must be a number of rows, 0 or more; got {most!r}.")
    opinion = _opinion_of(model, X)
    given = _given(model, y, len(opinion))
    axes, label = _axes_of(ax), opinion.predicted()
    kind = "resolved" if X is None else "predicted"
    if len(opinion) <= most:
        _draw_table(axes, given.prior, given.classes, np.arange(len(label)))
        inside = given.matrix[np.arange(len(label)), label]
        look = {"color": BAD, "markeredgecolor": "white", "markersize": 8, "linestyle": ""}
        for rows, words, marker in ((inside, "", "o"), (~inside, ", no candidate", "X")):
            if rows.any():
                look |= {"marker": marker, "label": f"{kind} label{words}"}
                axes.plot(label[rows], np.flatnonzero(rows), **look)
        axes.set(xlabel="class", ylabel="row")
        _show_legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    else:
        is_label = label == np.arange(len(model.classes_))[:, None]  # (k, n)
        table = is_label.astype(float) @ given.matrix
        counts = is_label.sum(-1, keepdims=True)
        _draw_table(axes, _shares(table, counts), given.classes, model.classes_, ".2f")
        axes.set(xlabel="candidate", ylabel=f"{kind} label")
    return axes


def _refuse_other_axes(ax: Any) -> None:
    if not isinstance(ax, Axes | None):
        remedy = "Make some by matplotlib.pyplot.subplots(), or leave it out"
        raise InputError(f"ax must be matplotlib Axes or None; got {type(ax).__name__}. {remedy}.")


def _refuse_no_rows(X: Any) -> None:
    if X is None:
        raise InputError("X is None, but training rows look too good. Pass other rows as X and y.")


def _axes_of(ax: Any) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1] if ax is None else ax


def _name_of(model: Any, name: Any) -> str:
    if not isinstance(name, str | None):
        raise InputError(f"name must be a string or None; got {name!r}.")
    return unmarked(model.fitted_.method.title if name is None else name)


def _opinion_of(model: Any, X: Any) -> Opinion:
    """Opinions about rows, or about the training rows."""
    refuse_unfitted(model)
    opinion = getattr(model, "opinion_", None) if X is None else model.predict_opinion(X)
    if opinion is None:
        fault = (
            "X is None, but the model has no training rows: it was loaded, or they were streamed"
        )
        raise InputError(f"{fault}. Pass rows as X.")
    known: Opinion = opinion
    return known


def _given(model: Any, y: Any, rows: int) -> Candidates:
    """Candidates of so many rows, with the model's classes first."""
    given = candidates_with(y, model.classes_)
    refuse_other_length(rows, len(given))
    return given


def _shares(table: Any, totals: Any = None) -> Any:
    """Divide each row by its sum, or by other totals (n, 1); NaN without any."""
    totals = table.sum(-1, keepdims=True) if totals is None else totals
    return np.divide(table, totals, where=totals > 0, out=np.full(table.shape, np.nan))


def _next_look(axes: Any) -> dict[str, Any]:
    """How the next curve differs from those that the axes have."""
    number = sum(line.get_gid() == CURVE for line in axes.lines)
    colours, lap = len(LINES), number // len(LINES)  # a colour comes again with another style
    look = {"color": LINES[number % colours], "linestyle": DASHES[(number + lap) % len(DASHES)]}
    marker = MARKERS[number % len(MARKERS)]
    return {**look, "marker": marker, "markersize": 5, "linewidth": 1.5, "gid": CURVE}


def _show_from_zero(axes: Any) -> None:
    """Let the vertical axis begin at 0 and reach the highest curve, and show the legend."""
    axes.autoscale(axis="y")
    axes.set_ylim(bottom=0)
    _show_legend(axes)


def _show_legend(axes: Any, **place: Any) -> None:
    look = {"loc": "best", "fontsize": "small", "framealpha": 0.8, "edgecolor": "none"}
    for handle in axes.legend(**look | place).legend_handles:
        handle.set_alpha(1)


def _short(name: Any) -> str:
    """Return a class name without formulas, cut in the middle if it is long."""
    text = " ".join(str(name).split())
    text = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[1 - LONGEST // 2 :]}"
    return text.replace("$", r"\$")


def _draw_table(
    axes: Any, table: Any, columns: NDArray[Any], rows: NDArray[Any], form: str = ""
) -> None:
    """Draw a table as shades; with a `form`, write the numbers into the cells of a small one."""
    most = max(1.0, np.nanmax(table, initial=0.0))
    image = axes.imshow(table, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, rows)):
        step = -(-len(names) // MOST_NAMES)
        axis.set_ticks(np.arange(0, len(names), step), [_short(name) for name in names[::step]])
    if sum(len(label.get_text()) + 1 for label in axes.get_xticklabels()) > WIDEST:
        steep = len(axes.get_xticks()) > MOST_CELLS
        look = {"rotation": 90 if steep else 45, "ha": "right", "rotation_mode": "anchor"}
        for label in axes.get_xticklabels():
            label.set(**look, va="center" if steep else "top")
    if form and max(table.shape) <= MOST_CELLS:
        for (row, column), value in np.ndenumerate(table):
            if value > 0:  # neither 0 nor NaN
                colour = "white" if value > 0.6 * most else "black"
                axes.text(column, row, format(value, form), color=colour, ha="center", va="center")
    elif form:
        axes.figure.colorbar(image, ax=axes)


def _draw_points(axes: Any, places: Any, right: Any, uncertainty: Any) -> None:
    """Draw rows at places (n, 2): circles, or crosses if they are wrong; larger if uncertain."""
    kinds = [(np.ones(len(places), bool), "rows", "o", LINES[0])]
    if right is not None:
        kinds = [(right, "right", "o", LINES[0]), (~right, "wrong", "X", LINES[1])]
    alpha = float(np.clip(300 / len(places), 0.25, 0.9))
    sizes = np.full(len(places), 30.0) if uncertainty is None else _area(uncertainty)
    for rows, words, marker, colour in kinds:
        if rows.any():
            look = {"marker": marker, "color": colour, "alpha": alpha, "linewidth": 0}
            label = f"{words} ({rows.sum():,})"
            axes.scatter(*places[rows].T, s=sizes[rows], label=label, **look)
    for mass in () if uncertainty is None else (0.1, 0.5, 0.9):
        ring = {"facecolor": "none", "edgecolor": MUTED, "label": f"uncertainty {mass}"}
        axes.scatter([], [], s=_area(mass), **ring)
    _show_legend(axes)


def _area(uncertainty: Any) -> Any:
    return 12 + 200 * uncertainty
