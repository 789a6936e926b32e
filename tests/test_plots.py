"""Figures: what they show, without colours, and always by the same bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from robustpll import METHODS
from robustpll.plots import (
    attack_panels,
    distribution_lines,
    picture_bytes,
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
