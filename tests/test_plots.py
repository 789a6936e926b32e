"""Figures: what they show, without colours, and always by the same bytes."""

import copy
import io
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

from robustpll import METHODS, InputError, Opinion, PLLClassifier, Votes, load
from robustpll.evaluate.reports import calibration_report, decision_report
from robustpll.measures.calibration import reliability, risk_coverage
from robustpll.methods import Proden, RobustPll
from robustpll.plots import (
    CORNERS,
    LINES,
    LONGEST,
    attack_panels,
    distribution_lines,
    draw_reliability,
    draw_risk_coverage,
    picture_bytes,
    plot_annotators,
    plot_candidates,
    plot_confusion,
    plot_learning_curve,
    plot_opinion_simplex,
    plot_reliability,
    plot_risk_coverage,
)

SINGLE = ("Proden", "Proden+Edl", "DstPll", "RobustPll")
ENSEMBLES = ("Proden+Dropout", "Proden+Ens", "Proden+AdvEns", "RobustPll+Ens")
TEST, OOD = np.array([[0.2, 0.5], [0.4, 1]]), np.array([[0.5, 0.5], [0.9, 1]])
TITLES = [method.title for method in METHODS.values()][-9:]
FALLING = {
    title: {epsilon: 70 - 100 * epsilon - number for epsilon in (0.0, 0.1, 0.4)}
    for number, title in enumerate(TITLES)
}
DRAWN: dict[str, Callable[[list[str]], Any]] = {  # figures of methods with these names
    "entropies": lambda names: distribution_lines([dict.fromkeys(names[:4], (TEST, OOD))]),
    "attack": lambda names: attack_panels({n: {0.0: 70, 0.1: 50} for n in names}, names[0]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_picture_has_the_same_bytes_and_no_date_and_shows_odd_names(name: str) -> None:
    figure = DRAWN[name](TITLES)
    for kind in ("png", "svg"):
        first, second, third = (
            picture_bytes(one, kind) for one in (figure, figure, DRAWN[name](TITLES))
        )
        assert first == second == third, "also when it is written twice"
        assert len(first) > 1000
        assert b"<dc:date>" not in first
        assert b"Software" not in first
    odd = ["$x", r"$\nonsense{$", "_hidden", "a\nb", "<b>&"]
    assert picture_bytes(DRAWN[name](odd), "png")


def lightness(colour: Any) -> float:
    """How light a colour is when printed in black and white."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def test_the_published_figure_has_two_panels_of_four_methods() -> None:
    panels = [dict.fromkeys(titles, (TEST, OOD)) for titles in (SINGLE, ENSEMBLES)]
    figure = distribution_lines(panels)
    assert figure.get_size_inches().tolist() == [6.0, 1.8]
    for axes, titles in zip(figure.axes, (SINGLE, ENSEMBLES), strict=True):
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(titles)
        assert axes.get_xlim() == axes.get_ylim() == (0, 1)
        for test, ood in zip(axes.lines[::2], axes.lines[1::2], strict=True):
            np.testing.assert_allclose(test.get_xydata(), TEST)
            np.testing.assert_allclose(ood.get_xydata(), OOD)
            assert lightness(test.get_color()) < lightness(ood.get_color()) - 0.1
            assert test.get_linestyle() == ood.get_linestyle()
        assert len({line.get_linestyle() for line in axes.lines[::2]}) == 4


def test_each_method_has_a_panel_in_which_it_alone_is_black() -> None:
    figure = attack_panels(FALLING, "Lost")
    assert [axes.get_title(loc="left") for axes in figure.axes] == TITLES
    for axes, curve in zip(figure.axes, FALLING.values(), strict=True):
        (line,) = axes.lines
        assert to_rgb(line.get_color()) == (0, 0, 0)
        np.testing.assert_allclose(line.get_xydata(), list(curve.items()))
        (others,) = axes.collections
        assert len(others.get_segments()) == len(TITLES)
        assert min(others.get_color()[0][:3]) > 0.7
    figure = attack_panels({"a": {0.0: 50}, "b": {0.0: 50, 0.1: 20}}, "Lost")
    assert [len(axes.lines[-1].get_xdata()) for axes in figure.axes] == [1, 2]


# Measures of fitted models


NAMES = np.array(["ash", "birch", "cedar", "date palm"])
PAGES = {"light": "#ffffff", "dark": "#1e2129"}  # backgrounds of the site
# How each form of colour blindness changes linear RGB (Machado, Oliveira and Fernandes, 2009).
SEEN = {
    "by most people": np.eye(3).tolist(),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour: Any) -> Any:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    """The colour in CIELAB, in which distances are about those that people see."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ rgb / (0.9505, 1, 1.089)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("people", SEEN)
def test_colours_of_lines_stay_apart_with_colour_blindness(people: str) -> None:
    seen = [lab((np.array(SEEN[people]) @ linear(colour)).clip(0, 1)) for colour in LINES]
    assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > 25


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_lines_have_enough_contrast_on_both_pages(page: str) -> None:
    """3 to 1 is what WCAG 2.1 asks of graphics."""

    def luminance(colour: str) -> float:
        return float(linear(colour) @ (0.2126, 0.7152, 0.0722))

    for colour in LINES:
        dark, light = sorted([luminance(colour), luminance(page)])
        assert (light + 0.05) / (dark + 0.05) >= 3


def sample(k: int, n: int = 300) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Rows, sets with up to k names, and their true names."""
    random = np.random.default_rng(k)
    labels = random.integers(0, k, n)
    X = pd.DataFrame(np.eye(k)[labels] + random.normal(0, 0.5, (n, k))).add_prefix("x")
    sets = (random.random((n, k)) < 0.3) | np.eye(k, dtype=bool)[labels]
    return X, pd.Series([{*NAMES[:k][row]} for row in sets]), pd.Series(NAMES[labels])


@pytest.fixture(scope="module", params=[2, 3, 4], ids="{} classes".format)
def fitted(request: pytest.FixtureRequest) -> tuple[Any, Any, Any, Any]:
    """A model, and the rows, sets and labels of which it learned the first half."""
    X, sets, y = sample(request.param)
    model = PLLClassifier(RobustPll(epochs=8), watch=0.2, random_state=0).fit(X[:150], sets[:150])
    return model, X, sets, y


@pytest.fixture
def ax() -> Any:
    return Figure(layout="constrained").subplots()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def segments(axes: Any, gid: str) -> Any:
    """The lower and the upper end of each bar of this kind, (bars, 2)."""
    (bars,) = [one for one in axes.collections if one.get_gid() == gid]
    return np.array(bars.get_segments())[..., 1]


def curves(axes: Any) -> list[Any]:
    return [line for line in axes.lines if line.get_gid() == "curve"]


def cells(axes: Any) -> Any:
    return np.ma.filled(axes.images[0].get_array(), np.nan)


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_a_reliability_diagram_shows_bins_rows_and_the_range_of_chance(
    rows: list[tuple[float, bool]], bins: int
) -> None:
    promised, right = zip(*rows, strict=True)
    result, axes = reliability(promised, right, bins), Figure().subplots()
    draw_reliability(axes, result, "model")
    np.testing.assert_array_equal(curves(axes)[0].get_xydata().T, [result.promised, result.right])
    np.testing.assert_allclose(segments(axes, "rows")[:, 1] * len(rows), result.rows)
    low, high = segments(axes, "chance").T
    assert ((low >= 0) & (low <= result.promised + 1 / result.rows)).all()
    assert ((high <= 1) & (high >= result.promised - 1 / result.rows)).all()
    legend = axes.get_legend().get_texts()[-1].get_text()
    assert f"error {result.error:.3f}" in legend
    assert f"chance {result.chance:.3f}" in legend


def test_the_range_of_chance_holds_95_percent_of_calibrated_bins(ax: Any) -> None:
    random, promised = np.random.default_rng(0), np.repeat(np.linspace(0.1, 0.9, 9), 200)
    draw_reliability(ax, reliability(promised, promised > 0.5, bins=9), "any")
    low, high = segments(ax, "chance").T
    shares = random.binomial(200, np.linspace(0.1, 0.9, 9), (2000, 9)) / 200
    assert 0.93 < ((shares >= low) & (shares <= high)).mean() < 0.98


def test_reliability_of_a_model_is_that_of_its_report(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    assert plot_reliability(model, X[150:], y[150:], bins=5, ax=ax) is ax
    top = calibration_report(model, X[150:], y[150:], bins=5).top
    np.testing.assert_array_equal(curves(ax)[0].get_xydata().T, [top.promised, top.right])


def test_risk_coverage_shows_the_curve_its_promise_and_what_is_accepted(
    fitted: Any, ax: Any
) -> None:
    model, X, _, y = fitted
    certainty = model.predict_proba(X[150:]).max(-1)
    error = 0.99 * (1 - certainty.mean())  # which the model promises for nearly all rows
    plot_risk_coverage(model, X[150:], y[150:], error=error, ax=ax)
    curve, promise, limit, star = ax.lines
    result = risk_coverage(certainty, model.predict(X[150:]) == y[150:])
    np.testing.assert_allclose(curve.get_xydata().T, [result.coverage, result.error])
    assert promise.get_ydata()[-1] == pytest.approx(1 - certainty.mean())
    assert promise.get_ydata()[0] == pytest.approx(1 - certainty.max())
    assert set(limit.get_ydata()) == {error}
    report = decision_report(model.decide(X[150:], error=error), y[150:])
    assert 0 < report.coverage < 1
    np.testing.assert_allclose(star.get_xydata(), [[report.coverage, report.error]])
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > max(np.max(line.get_ydata()) for line in ax.lines)


def test_a_common_limit_is_named_once_and_each_model_as_it_was_fitted(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    changed = copy.copy(model).set_params(method="pl_knn")
    for one, error in ((model, 0.1), (changed, 0.1), (changed, 0.2)):
        plot_risk_coverage(one, X[150:], y[150:], error=error, ax=ax)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text for text in texts if "limit" in text] == ["limit 0.1", "limit 0.2"]
    assert not [text for text in texts if "PlKnn" in text]


def test_no_accepted_row_is_said_in_the_legend(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    plot_risk_coverage(model, X[150:], y[150:], error=1e-9, ax=ax)
    assert np.isnan(ax.lines[-1].get_ydata()).all()
    assert ax.get_legend().get_texts()[-1].get_text().endswith("accepts 0%")


@pytest.mark.parametrize("measure", ["loss", "covering_rate"])
def test_a_learning_curve_is_the_history(fitted: Any, measure: Any, ax: Any) -> None:
    plot_learning_curve(fitted[0], measure=measure, ax=ax)
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_ydata(), fitted[0].history_[measure])
    assert line.get_xdata().tolist() == [*range(1, 9)]
    ax.set_xscale("log")
    plot_learning_curve(fitted[0], measure=measure, ax=ax)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_confusions_are_those_of_scikit_learn(
    fitted: Any, *, is_new: bool, normalize: bool, ax: Any
) -> None:
    model, X, _, y = fitted
    rows = slice(150, None) if is_new else slice(150)
    plot_confusion(model, X[rows] if is_new else None, y[rows], normalize=normalize, ax=ax)
    labels = model.predict(X[rows]) if is_new else model.labels_
    expected = confusion_matrix(y[rows], labels, normalize="true" if normalize else None)
    np.testing.assert_allclose(cells(ax), expected)
    assert names(ax.xaxis) == names(ax.yaxis) == [*model.classes_]
    written = [float(text.get_text()) for text in ax.texts]
    np.testing.assert_allclose(written, expected[expected > 0], atol=0.0051)


def test_confusion_counts_answers_one_by_one_and_has_classes_unknown_to_the_model(
    fitted: Any, ax: Any
) -> None:
    model, X, *_ = fitted
    answers = [["ash", "ash"], ["birch", None], ["elm", {"ash", "birch"}]]
    plot_confusion(model, X[:3], Votes(answers), normalize=False, ax=ax)
    first, second, third = (model.classes_.tolist().index(one) for one in model.predict(X[:3]))
    expected = np.zeros((len(model.classes_) + 1, len(model.classes_)))
    expected[0, first], expected[1, second], expected[-1, third] = 2, 1, 1
    np.testing.assert_array_equal(cells(ax), expected)
    assert names(ax.yaxis) == [*model.classes_, "elm"]
    assert sorted(text.get_text() for text in ax.texts) == ["1", "1", "2"]
    ax.clear()
    plot_confusion(model, X[:1], Votes(answers[1:2]), normalize=False, ax=ax)
    assert [text.get_text() for text in ax.texts] == ["1"]


def test_points_of_a_triangle_are_the_masses_of_the_opinions(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    opinion, k = model.predict_opinion(X[150:]), len(model.classes_)
    plot_opinion_simplex(model, X[150:], y[150:], ax=ax)
    right, wrong = [one for one in ax.collections if len(one.get_offsets())]
    is_right = model.predict(X[150:]) == y[150:]
    for points, rows in ((right, is_right), (wrong, ~is_right)):
        places = np.column_stack([points.get_offsets(), np.ones(rows.sum())])
        corners = np.column_stack([CORNERS, np.ones(3)])
        masses = np.linalg.solve(corners.T, places.T).T
        belief, u = opinion.belief[rows], opinion.uncertainty[rows]
        expected = {
            2: np.column_stack([belief, u]),
            3: opinion.probability[rows],
            4: np.column_stack([1 - u - belief.max(-1), belief.max(-1), u]),
        }[k]
        np.testing.assert_allclose(masses, expected, atol=1e-6)
    if k == 3:
        assert np.corrcoef(wrong.get_sizes(), opinion.uncertainty[~is_right])[0, 1] > 0.999


def test_annotators_have_their_agreement_number_and_interval(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    answers = pd.DataFrame({"ada": y, "bob": NAMES[0], "eve": None, "kim": "elm"}).astype(object)
    answers.loc[::2, "bob"] = None
    plot_annotators(model, X, Votes(answers), ax=ax)
    labels = model.predict(X)
    expected = {"ada": (labels == y).mean(), "bob": (labels[1::2] == "ash").mean(), "kim": 0.0}
    points, (bars,) = ax.lines[0].get_xydata(), ax.containers[0].lines[2]
    ends = np.array(bars.get_segments())[..., 0]
    listed = [re.fullmatch(r"(\w+) \((\d+) answers\)", name) for name in names(ax.yaxis)]
    for match, (share, _), (low, high) in zip(listed, points, ends, strict=True):
        assert match is not None
        name, count = match.groups()
        assert share == pytest.approx(expected.pop(name))
        assert int(count) == answers[name].notna().sum()
        assert 0 <= low <= share <= high <= 1
        assert high - low < 3 / np.sqrt(int(count))
    assert not expected
    assert (np.diff(points[:, 0]) >= 0).all()


def test_many_annotators_are_placed_by_their_numbers_of_answers(fitted: Any, ax: Any) -> None:
    model, X, _, y = fitted
    answers = np.where(np.arange(30) < 1 + np.arange(300)[:, None], y.to_numpy()[:, None], None)
    plot_annotators(model, X, Votes(answers), ax=ax)
    assert sorted(ax.lines[0].get_xdata()) == [*range(271, 301)]


def test_some_candidates_are_rows_and_many_are_counted(fitted: Any, ax: Any) -> None:
    model, X, sets, _ = fitted
    labels = model.predict(X)
    plot_candidates(model, X[:9], sets[:9], ax=ax)
    expected = [[(name in row) / len(row) for name in model.classes_] for row in sets[:9]]
    np.testing.assert_allclose(cells(ax), expected)
    for line in ax.lines:
        is_candidate = line.get_marker() == "o"
        for column, row in line.get_xydata().astype(int):
            assert model.classes_[column] == labels[row]
            assert (labels[row] in sets[row]) == is_candidate
    assert sum(len(line.get_xdata()) for line in ax.lines) == 9
    counted = plot_candidates(model, X, sets, ax=Figure().subplots())
    for i, label in enumerate(model.classes_):
        for j, name in enumerate(model.classes_):
            has_name = [name in row for row in sets[labels == label]]
            share = np.mean(has_name) if has_name else np.nan
            assert cells(counted)[i, j] == pytest.approx(share, nan_ok=True)


def test_several_models_share_axes_and_look_different(ax: Any) -> None:
    rows = np.linspace(0, 1, 20)
    for number in range(12):
        draw_reliability(ax, reliability(rows, rows > 0.5, bins=3), f"model {number}")
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in curves(ax)}
    assert len(looks) == 12
    for one, other in pairwise(curves(ax)):
        assert one.get_color() != other.get_color()
        assert one.get_marker() != other.get_marker()
        assert one.get_linestyle() != other.get_linestyle()
    assert len(ax.lines) == 13, "one diagonal"
    risk = Figure().subplots()
    for right in (1, 0):
        draw_risk_coverage(risk, risk_coverage([3, 2, 1], [right] * 3), "model")
    assert risk.get_ylim()[1] > 1, "the higher curve is in sight"


def test_without_axes_a_new_figure_is_made(fitted: Any) -> None:
    model, X, sets, y = fitted
    before = plt.get_fignums()
    drawn = [
        plot_reliability(model, X, y),
        plot_risk_coverage(model, X, y),
        plot_learning_curve(model),
        plot_confusion(model, X, y),
        plot_opinion_simplex(model),
        plot_annotators(model, X, Votes(y.to_frame())),
        plot_candidates(model, X, sets),
    ]
    assert len({axes.figure.number for axes in drawn}) == len(plt.get_fignums()) - len(before) == 7


def test_many_classes_with_long_names_keep_legible_ticks(ax: Any) -> None:
    random, k = np.random.default_rng(0), 100
    long = np.array([f"a $class_{{ whose name is very long indeed, number {i}" for i in range(k)])
    X, y = random.normal(size=(400, 5)), long[np.arange(400) % k]
    plot_confusion(PLLClassifier("pl_knn").fit(X, y), X, y, ax=ax)
    ax.figure.draw_without_rendering()
    for axis, side in ((ax.xaxis, 0), (ax.yaxis, 1)):
        labels = axis.get_ticklabels()
        assert all(len(label.get_text().replace("\\", "")) <= LONGEST for label in labels)
        ends = [label.get_window_extent().get_points()[:, side] for label in labels]
        ends.sort(key=lambda pair: pair[0])
        assert all(one[1] <= other[0] + 1 for one, other in pairwise(ends)), "labels overlap"


def every_plot(model: Any, X: Any, y: Any) -> None:
    for plot in (plot_reliability, plot_risk_coverage, plot_confusion, plot_opinion_simplex):
        picture_bytes(plot(model, X, y, ax=Figure().subplots()).figure, "png")
    picture_bytes(plot_candidates(model, X, y, ax=Figure().subplots()).figure, "png")


@pytest.mark.parametrize("rows", [1, 2])
def test_a_single_row_is_drawn(fitted: Any, rows: int) -> None:
    model, X, _, y = fitted
    every_plot(model, X[:rows], y[:rows])


def test_constant_predictions_are_drawn() -> None:
    X, y = np.zeros((30, 2)), np.repeat(["$a", "_b"], 15)
    every_plot(PLLClassifier("pl_knn").fit(X, y), X, y)


MISTAKES: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "another model": (
        lambda m, X, y: plot_reliability(LogisticRegression(), X, y),
        "model must be a fitted classifier",
    ),
    "no rows": (lambda m, X, y: plot_risk_coverage(m, None, y), "Pass other rows as X"),
    "sets as truth": (lambda m, X, y: plot_reliability(m, X, [{*y}] * len(X)), "one true label"),
    "sets to confuse": (lambda m, X, y: plot_confusion(m, X, [{*y}] * len(X)), "plot_candidates"),
    "fewer labels": (lambda m, X, y: plot_confusion(m, X, y[:3]), "y has 3"),
    "no answers": (plot_annotators, "y must be Votes"),
    "NaN in X": (lambda m, X, y: plot_confusion(m, X * np.nan, y), "no value"),
    "NaN in y": (lambda m, X, y: plot_confusion(m, X, y.where(y.index > 2)), "no label"),
    "no axes": (lambda m, X, y: plot_confusion(m, X, y, ax=3), "ax must be matplotlib Axes"),
    "no name": (lambda m, X, y: plot_reliability(m, X, y, name=3), "name must be a string"),
    "no bins": (lambda m, X, y: plot_reliability(m, X, y, bins=0), "bins must be"),
    "error": (lambda m, X, y: plot_risk_coverage(m, X, y, error=2), "between 0 and 1"),
    "most": (lambda m, X, y: plot_candidates(m, X, y, most=-1), "most must be"),
    "measure": (lambda m, X, y: plot_learning_curve(m, measure="a"), "'loss' or 'covering_rate'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_leaves_no_figure(mistake: str, fitted: Any) -> None:
    model, X, _, y = fitted
    call, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=re.escape(words)):
        call(model, X, y)
    assert plt.get_fignums() == []


def test_what_a_model_has_not_recorded_is_said(fitted: Any, tmp_path: Path) -> None:
    model, X, _, y = fitted
    model.save(tmp_path / "model.pll")
    loaded = load(tmp_path / "model.pll")
    with pytest.raises(InputError, match="it was loaded"):
        plot_confusion(loaded, None, y)
    assert len(plot_learning_curve(loaded).lines) == 1
    with pytest.raises(InputError, match="Fit a method that trains networks"):
        plot_learning_curve(PLLClassifier("pl_knn").fit(X, y))
    with pytest.raises(InputError, match="Fit with watch"):
        plot_learning_curve(PLLClassifier(Proden(epochs=1)).fit(X, y), measure="covering_rate")


def test_an_opinion_without_evidence_is_at_the_top_or_in_the_middle(ax: Any) -> None:
    for k, place in ((2, CORNERS[2]), (3, CORNERS.mean(0)), (4, CORNERS[2])):
        X, y = np.eye(k), NAMES[:k]
        model = PLLClassifier("pl_knn").fit(X, y)
        model.opinion_ = Opinion.of_evidence(np.zeros((k, k)))
        axes = plot_opinion_simplex(model, ax=Figure().subplots())
        np.testing.assert_allclose(axes.collections[0].get_offsets(), [place] * k, atol=1e-12)


def test_importing_the_plots_does_not_choose_a_window_system() -> None:
    code = "import robustpll.plots, sys; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# The gallery


GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
SCRIPTS = sorted(path for path in GALLERY.glob("*.py") if path.stem != "draw")


def test_the_gallery_shows_every_script_with_its_two_pictures() -> None:
    page = (GALLERY.parent / "gallery.md").read_text()
    assert len(SCRIPTS) >= 12
    shown = re.findall(r"--8<--\n(\w+)\.py\n", page)
    assert sorted(shown) == [script.stem for script in SCRIPTS]
    for script in SCRIPTS:
        assert page.count(f"```python\n--8<--\n{script.name}\n--8<--\n```") == 1
        assert len(script.read_text().splitlines()) <= 25
        for mode, background in PAGES.items():
            file = f"gallery/{script.stem}-{mode}.png"
            assert page.count(f"({file}#only-{mode})") == 1
            picture = GALLERY.parent / file
            assert picture.stat().st_size < 60_000
            corner = Image.open(picture).convert("RGB").getpixel((0, 0))
            np.testing.assert_allclose(np.array(corner) / 255, to_rgb(background), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_draws_its_picture(script: Path) -> None:
    runpy.run_path(str(script))
    figure, buffer = plt.gcf(), io.BytesIO()
    figure.savefig(buffer, dpi=120)
    assert plt.get_fignums() == [figure.number]
    with Image.open(GALLERY / f"{script.stem}-light.png") as stored:
        assert stored.size == Image.open(buffer).size
