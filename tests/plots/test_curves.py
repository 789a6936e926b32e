"""Figures of stored predictions: what they show, and that no two lines look alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from robustpll import InputError
from robustpll.plots.curves import distribution_lines
from robustpll.plots.style import save_png

SINGLE = ("Proden", "Proden+Edl", "DstPll", "RobustPll")
ENSEMBLES = ("Proden+Dropout", "Proden+Ens", "Proden+AdvEns", "RobustPll+Ens")
TEST, OOD = np.array([[0.2, 0.5], [0.4, 1]]), np.array([[0.5, 0.5], [0.9, 1]])


def panel(titles: tuple[str, ...]) -> dict[str, Any]:
    return dict.fromkeys(titles, (TEST, OOD))


def lightness(colour: Any) -> float:
    """How light a colour is when printed in black and white."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def test_the_published_figure_has_two_panels_of_four_methods(tmp_path: Path) -> None:
    figure = distribution_lines([panel(SINGLE), panel(ENSEMBLES)])
    assert figure.get_size_inches().tolist() == [6.0, 1.8]
    for axes, titles in zip(figure.axes, (SINGLE, ENSEMBLES), strict=True):
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(titles)
        assert axes.get_xlabel() == "Predictive Entropy (Test / OOD)"
        assert axes.get_xlim() == axes.get_ylim() == (0, 1)
        for test, ood in zip(axes.lines[::2], axes.lines[1::2], strict=True):
            np.testing.assert_allclose(test.get_xydata(), TEST)
            np.testing.assert_allclose(ood.get_xydata(), OOD)
            assert lightness(test.get_color()) < lightness(ood.get_color()) - 0.1
            assert test.get_linestyle() == ood.get_linestyle()
        assert len({line.get_linestyle() for line in axes.lines[::2]}) == 4
    assert figure.axes[0].get_ylabel() == "Empirical CDF"
    save_png(figure, tmp_path / "picture.png")
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.format == "PNG"
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


@pytest.mark.parametrize("panels", [[], [panel(SINGLE)] * 5, [panel(tuple("abcdefg"))], [{}]])
def test_more_lines_than_can_be_told_apart_are_refused(panels: list[Any]) -> None:
    with pytest.raises(InputError, match="panels must be 1 to 4, of 1 to 6 methods each"):
        distribution_lines(panels)
