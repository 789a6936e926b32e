"""Pictures of a benchmark: what they show, without colours, and always by the same bytes."""

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from robustpll import METHODS, InputError
from robustpll.plots.bench import attack_panels, joined, rank_diagram, time_bars
from robustpll.plots.style import picture_bytes

TITLES = [method.title for method in METHODS.values()][-9:]
FALLING = {
    title: {epsilon: 0.7 - epsilon - 0.01 * number for epsilon in (0.0, 0.1, 0.4)}
    for number, title in enumerate(TITLES)
}
RANKS = {title: 1.0 + 0.9 * number for number, title in enumerate(TITLES)}
SECONDS = {title: (10.0 * number, 1.0) for number, title in enumerate(TITLES, 1)}


DRAWN = {
    "attack": lambda: attack_panels(FALLING, "Lost"),
    "ranks": lambda: rank_diagram(RANKS, 3.0),
    "time": lambda: time_bars(SECONDS),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_picture_has_the_same_bytes_and_no_date(name: str) -> None:
    figure = DRAWN[name]()
    for kind in ("png", "svg"):
        first, second, third = (
            picture_bytes(each, kind) for each in (figure, figure, DRAWN[name]())
        )
        assert first == second == third, "also when it is written twice"
        assert len(first) > 1000
        assert b"<dc:date>" not in first
        assert b"Software" not in first


def test_each_method_has_a_panel_in_which_it_alone_is_black() -> None:
    figure = attack_panels(FALLING, "Lost")
    assert [axes.get_title(loc="left") for axes in figure.axes] == TITLES
    for axes, curve in zip(figure.axes, FALLING.values(), strict=True):
        (own,) = axes.lines
        assert to_rgb(own.get_color()) == (0, 0, 0)
        points = [[epsilon, 100 * share] for epsilon, share in curve.items()]
        np.testing.assert_allclose(own.get_xydata(), points)
        (others,) = axes.collections
        assert len(others.get_segments()) == len(TITLES)
        assert min(others.get_color()[0][:3]) > 0.7
    figure = attack_panels({"a": {0.0: 0.5}, "b": {0.0: 0.5, 0.1: 0.2}}, "Lost")
    assert [len(axes.lines[-1].get_xdata()) for axes in figure.axes] == [1, 2]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_rank_diagram_names_all_methods_with_their_ranks() -> None:
    words = " ".join(texts(rank_diagram(RANKS, 3.0)))
    for title, rank in RANKS.items():
        assert title in words
        assert f"{rank:.2f}" in words
    assert "critical difference 3.00" in words
    figure = rank_diagram({"a": 1.0, "b": 2.0, "c": 3.0}, distance=0.5)
    assert not [bar for bar in figure.axes[0].collections if bar.get_linewidth()[0] > 2]


def test_bars_join_exactly_those_that_are_within_the_distance() -> None:
    ranks = sorted(np.random.default_rng(0).uniform(1, 10, 12).tolist())
    for distance in (0.1, 1.0, 3.0, 20.0):
        bars = joined(ranks, distance)
        for i, low in enumerate(ranks):
            for j in range(i + 1, len(ranks)):
                together = any(first <= i and j <= last for first, last in bars)
                assert together == (ranks[j] - low <= distance)
        nested = [(a, b) for a in bars for b in bars if a != b and a[0] <= b[0] and b[1] <= a[1]]
        assert not nested


def test_time_is_told_in_seconds_and_shares_of_all() -> None:
    figure = time_bars({"Proden": (30.0, 10.0), "Valen": (120.0, 40.0)})
    assert texts(figure) == ["40 s, 20.0 %", "160 s, 80.0 %"]
    hatched = [patch.get_hatch() for patch in figure.axes[0].patches]
    assert hatched == [None, None, "////", "////"]


@pytest.mark.parametrize("label", ["$x", r"$\nonsense{$", "_hidden", "a\nb", "<b>&"])
def test_odd_names_are_shown_as_they_are(label: str) -> None:
    for figure in (
        attack_panels({label: {0.0: 0.5}}, label),
        rank_diagram({label: 1.0, "b": 2.0}, 1.0),
        time_bars({label: (1.0, 1.0)}),
    ):
        assert picture_bytes(figure, "png")


@pytest.mark.parametrize(
    "draw", [lambda: attack_panels({}, ""), lambda: rank_diagram({}, 1), lambda: time_bars({})]
)
def test_a_picture_of_nothing_is_refused(draw: Any) -> None:
    with pytest.raises(InputError, match="at least one method"):
        draw()
