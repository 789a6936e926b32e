"""Pictures of stored predictions: what they show, and that no two lines look alike."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from robustpll import InputError
from robustpll.plots.curves import attack_curves, entropy_curves, ood_histogram
from robustpll.plots.style import save_png

EPSILONS = [0.0, 0.1, 0.2]
SINGLE = ("Proden", "Proden+Edl", "DstPll", "RobustPll")
ENSEMBLES = ("Proden+Dropout", "Proden+Ens", "Proden+AdvEns", "RobustPll+Ens")


def entropies(titles: tuple[str, ...]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    return {title: (draw.beta(0.3, 3, 200), draw.beta(3, 1, 200)) for title in titles}


def accuracies(titles: tuple[str, ...]) -> dict[str, dict[str, list[float]]]:
    return {title: {"published": [0.7, 0.4, 0.3], "audit": [0.7, 0.1, 0.0]} for title in titles}


def grey(colour: Any) -> float:
    """How light a colour is when printed in black and white."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.fixture
def two_panels() -> Figure:
    return entropy_curves([entropies(SINGLE), entropies(ENSEMBLES)])


@pytest.mark.parametrize(
    "figure",
    [
        entropy_curves([entropies(SINGLE), entropies(ENSEMBLES)]),
        attack_curves(EPSILONS, accuracies(SINGLE)),
        ood_histogram(*entropies(SINGLE)["RobustPll"]),
    ],
    ids=["entropy", "attack", "histogram"],
)
def test_a_picture_becomes_a_file_with_something_in_it(figure: Figure, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    save_png(figure, path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_the_published_figure_has_two_panels_of_four_methods(two_panels: Figure) -> None:
    assert two_panels.get_size_inches().tolist() == [6.0, 1.8]
    assert [legend(axes) for axes in two_panels.axes] == [list(SINGLE), list(ENSEMBLES)]
    assert [len(axes.lines) for axes in two_panels.axes] == [8, 8]
    for axes in two_panels.axes:
        assert axes.get_xlabel() == "Predictive Entropy (Test / OOD)"
        assert axes.get_xlim() == axes.get_ylim() == (0, 1)
    assert two_panels.axes[0].get_ylabel() == "Empirical CDF"


def test_test_curves_are_darker_than_ood_curves_and_styles_tell_methods_apart(
    two_panels: Figure,
) -> None:
    for axes in two_panels.axes:
        for test, ood in zip(axes.lines[::2], axes.lines[1::2], strict=True):
            assert grey(test.get_color()) < grey(ood.get_color()) - 0.1
            assert test.get_linestyle() == ood.get_linestyle()
        assert len({line.get_linestyle() for line in axes.lines[::2]}) == 4


def test_a_curve_is_the_distribution_function_of_its_entropies() -> None:
    figure = entropy_curves([{"Proden": ([0.2, 0.2, 0.6, 0.4], [0.5, 0.1])}])
    test, ood = figure.axes[0].lines
    np.testing.assert_allclose(test.get_xydata(), [[0.2, 0.5], [0.4, 0.75], [0.6, 1]])
    np.testing.assert_allclose(ood.get_xydata(), [[0.1, 0.5], [0.5, 1]])


def test_six_methods_under_two_attacks_give_twelve_lines_that_differ() -> None:
    figure = attack_curves(EPSILONS, accuracies((*SINGLE, "Cc", "Rc")))
    lines = figure.axes[0].lines
    assert len(lines) == 12
    looks = [(line.get_marker(), line.get_linestyle()) for line in lines]  # colours apart
    assert all(one != other for one, other in combinations(looks, 2))
    assert legend(figure.axes[0])[:2] == ["Proden, published", "Proden, audit"]
    np.testing.assert_allclose(lines[1].get_xydata(), [[0, 70], [0.1, 10], [0.2, 0]])


def test_an_attack_has_one_style_though_a_method_lacks_another() -> None:
    found = {"Proden": {"audit": [0.5, 0.2, 0.1]}} | accuracies(("RobustPll",))
    alone, published, audit = attack_curves(EPSILONS, found).axes[0].lines
    assert alone.get_linestyle() == audit.get_linestyle() != published.get_linestyle()


def test_a_histogram_shows_shares_of_rows_so_that_sizes_do_not_matter() -> None:
    figure = ood_histogram([0.0, 1.0] * 50, [0.0, 1.0, 1.0, 1.0], score="energy")
    axes = figure.axes[0]
    assert legend(axes) == ["known rows", "OOD rows"]
    assert axes.get_xlabel().startswith("energy")
    heights = [bar.get_height() for bar in axes.patches[:50]]  # of the known rows
    assert (heights[0], heights[-1], sum(heights)) == pytest.approx((50, 50, 100))
    outline = axes.patches[50].get_path().vertices[:, 1]
    assert outline.max() == pytest.approx(75)


def test_equal_scores_have_a_histogram_too() -> None:
    assert len(ood_histogram([0.5, 0.5], [0.5]).axes[0].patches) == 51


def test_more_lines_than_can_be_told_apart_are_refused() -> None:
    many = tuple("abcdefg")
    with pytest.raises(InputError, match="1 to 6 entries; found 7"):
        entropy_curves([entropies(many)])
    with pytest.raises(InputError, match="accuracies must have 1 to 6"):
        attack_curves(EPSILONS, accuracies(many))
    with pytest.raises(InputError, match="panels must have 1 to 4"):
        entropy_curves([])


def test_accuracies_that_do_not_go_with_the_epsilons_are_refused() -> None:
    with pytest.raises(InputError, match="2 accuracies of Proden, audit, but 3 epsilons"):
        attack_curves(EPSILONS, {"Proden": {"audit": [0.5, 0.1]}})


def test_gaps_in_a_sample_are_refused() -> None:
    with pytest.raises(InputError, match="ood must be finite"):
        ood_histogram([0.1], [np.nan])
