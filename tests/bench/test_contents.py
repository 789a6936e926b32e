"""Figures of a report: which there are, and what stands in for what is missing."""

from typing import Any

import pytest

from robustpll.bench.contents import all_figures, entropy_panels
from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import Summary, summarize
from robustpll.plots.style import picture_bytes


def ood_summary(made: Any, store: ResultStore, methods: list[Any]) -> Summary:
    given = {"methods": methods, "datasets": ["digits"], "seeds": 1, "ood": [["digits", "lost"]]}
    grid = Grid.of(given)

    def answers(_: PlannedRun, condition: Condition) -> Any:
        known = condition.part == "test"
        return made.predictions([True] * 3, [0, 0, 0.1]) if known else made.unknown([0.5, 0.9])

    for planned in grid.runs():
        made.keep(store, planned, answers)
    return summarize(store, grid)


def test_the_figure_of_entropies_has_the_papers_panels(made: Any, store: ResultStore) -> None:
    methods = ["robust_pll_ens", "rc", "robust_pll", "proden", "dst_pll", "proden_ens"]
    panels = entropy_panels(ood_summary(made, store, methods), "digits", "lost")
    assert [list(panel) for panel in panels] == [
        ["Proden", "DstPll", "RobustPll"],
        ["Proden+Ens", "RobustPll+Ens"],
    ]


def test_other_methods_are_drawn_if_none_of_the_papers_is_there(
    made: Any, store: ResultStore
) -> None:
    panels = entropy_panels(ood_summary(made, store, ["rc", "cc"]), "digits", "lost")
    assert [list(panel) for panel in panels] == [["Rc", "Cc"]]


def test_of_two_lines_with_one_method_the_first_is_drawn(made: Any, store: ResultStore) -> None:
    methods: list[Any] = ["proden", {"name": "proden", "label": "short", "epochs": 2}]
    panels = entropy_panels(ood_summary(made, store, methods), "digits", "lost")
    assert [list(panel) for panel in panels] == [["Proden"]]


def test_a_report_has_the_figures_that_its_runs_allow(small: Grid, full: ResultStore) -> None:
    names = [figure.name for figure in all_figures(summarize(full, small))]
    assert names == [
        "attack",
        "attack-lost",
        "attack-msrc-v2",
        "attack-fg-net",
        "ranks",
        "timing",
    ]


def test_an_empty_store_has_no_figures(small: Grid, store: ResultStore) -> None:
    assert all_figures(summarize(store, small)) == ()


def test_points_that_lack_runs_are_not_drawn(small: Grid, full: ResultStore) -> None:
    planned = next(each for each in small.runs() if each.label == "Proden")
    full.path(planned.run).unlink()
    figures = {each.name: each for each in all_figures(summarize(full, small))}
    drawn = [axes.get_title(loc="left") for axes in figures["attack-lost"].figure.axes]
    assert drawn == ["RobustPll", "Proden+Ens"]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_store_gives_the_same_pictures(made: Any, store: ResultStore, kind: Any) -> None:
    summary = ood_summary(made, store, ["proden", {"name": "rc", "label": "$odd_"}])
    first, second = (
        [picture_bytes(each.figure, kind) for each in all_figures(summary)] for _ in range(2)
    )
    assert first == second
    assert len(first) == 2  # entropies and time
