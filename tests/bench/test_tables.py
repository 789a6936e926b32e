"""The tables: published numbers, the rule for bold, and names that mean something elsewhere."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustpll import InputError
from robustpll.bench.accuracy_tables import (
    REAL_WORLD,
    dataset_table,
    extra_table,
    real_world_table,
    table_1,
    table_3,
)
from robustpll.bench.compare import agreement, compared_tables, published_numbers
from robustpll.bench.contents import all_tables
from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.other_tables import missing_table, overview_table, table_2, timing_table
from robustpll.bench.ranks import ranked, ranks_of
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import Summary, summarize
from robustpll.bench.tables import Cell, Published, ReportTable, Row, in_latex, in_markdown

BEST = (0.96, 0.961, 0.959, 0.96, 0.962)
WORSE = (0.955, 0.958, 0.957, 0.953, 0.96)  # p = 0.017 against the best


def of(table: ReportTable | None, label: str, column: str) -> Cell:
    assert table is not None
    (row,) = (row for row in table.rows if row.label == label)
    return row.cells[table.columns.index(column)]


def text(table: ReportTable | None, label: str, column: str) -> str:
    assert table is not None
    (row,) = (row for row in table.rows if row.label == label)
    return table.texts(row)[table.columns.index(column)]


def summary_of(made: Any, store: ResultStore, grid: Grid, share: Any) -> Summary:
    """All runs, with accuracies by (planned run, condition)."""
    for planned in grid.runs():
        made.keep(store, planned, lambda *asked: made.share_right(share(*asked)))
    return summarize(store, grid)


def pictures(methods: list[Any], **changes: Any) -> Grid:
    given = {"methods": methods, "datasets": ["mnist"], "seeds": 5, "preset": "paper"}
    return Grid.of(given | changes)


@pytest.fixture
def paired(made: Any, store: ResultStore) -> Summary:
    grid = pictures(["proden", "robust_pll", "proden_ens"])
    accuracies = {"Proden": WORSE, "RobustPll": BEST, "Proden+Ens": WORSE}
    return summary_of(made, store, grid, lambda run, _: accuracies[run.label][run.run.seed])


def test_the_worked_example_has_its_mean_deviation_and_bold(paired: Summary) -> None:
    table = table_1(paired)
    assert of(table, "RobustPll", "MNIST").value == pytest.approx(96.04)
    assert of(table, "RobustPll", "MNIST").std == pytest.approx(0.1020, abs=1e-4)
    assert of(table, "RobustPll", "MNIST").bold
    assert not of(table, "Proden", "MNIST").bold
    assert of(table, "Proden+Ens", "MNIST").bold, "ensembles are a group of their own"
    assert text(table, "RobustPll", "MNIST") == "96.0 ± 0.1"
    assert table is not None
    assert [len(group) for group in table.groups] == [2, 1]


def test_a_cell_that_lacks_runs_says_so_and_is_not_bold_though_it_is_highest(
    paired: Summary, store: ResultStore
) -> None:
    lost = [each for each in paired.grid.runs() if each.label == "RobustPll"][:2]
    for planned in lost:
        store.path(planned.run).unlink()
    table = table_1(summarize(store, paired.grid))
    cell = of(table, "RobustPll", "MNIST")
    assert (cell.runs, cell.asked, cell.bold, cell.complete) == (3, 5, False, False)
    assert text(table, "RobustPll", "MNIST").endswith("(3 of 5 runs)")
    assert of(table, "Proden", "MNIST").bold, "the best of the complete ones"
    assert table is not None
    assert any("lack runs" in note for note in table.notes)


def test_a_cell_without_runs_says_why(small: Grid, full: ResultStore) -> None:
    for planned in small.runs():
        if planned.label in ("Proden", "RobustPll") and planned.run.dataset == "lost":
            full.path(planned.run).unlink()
            if planned.label == "RobustPll":
                full.failed(planned.run, "It broke.")
    summary = summarize(full, small)
    table = dataset_table(summary, "lost")
    words = [text(table, label, "0.1") for label in ("PlKnn", "Proden", "RobustPll")]
    assert words == ["not attacked", "missing", "failed"]
    assert text(table_1(summary), "Proden", "real-world").endswith("(3 of 6 runs)")
    told = missing_table(summary)
    assert told is not None
    assert [told.texts(row)[1:3] for row in told.rows] == [
        ("Proden", "not run"),
        ("RobustPll", "failed"),
    ]


def test_one_seed_gives_no_spread_and_bold_to_the_best_alone(made: Any, store: ResultStore) -> None:
    grid = pictures(["proden", "robust_pll"], seeds=1)
    shares = {"Proden": 0.5, "RobustPll": 0.6}
    table = table_1(summary_of(made, store, grid, lambda run, _: shares[run.label]))
    assert text(table, "RobustPll", "MNIST") == "60.0"
    assert [of(table, label, "MNIST").bold for label in shares] == [False, True]


def test_the_pooled_column_names_its_sets_and_weighs_runs_alike(
    made: Any, store: ResultStore, small: Grid
) -> None:
    shares = {"lost": 0.7, "msrc-v2": 0.5, "fg-net": 0.1}
    summary = summary_of(made, store, small, lambda run, _: shares[run.run.dataset])
    table = table_1(summary)
    assert table is not None
    assert table.columns == ("real-world",)
    assert text(table, "Proden", "real-world") == "60.0 ± 10.0"
    (note,) = (note for note in table.notes if note.startswith("real-world"))
    assert "2 of the paper's six sets (Lost, MSRCv2)" in note
    assert "Without BirdSong, MIRFlickr, Soccer Player, Yahoo! News" in note
    alone = extra_table(summary)
    assert alone is not None
    assert (alone.columns, text(alone, "Proden", "FG-NET")) == (("FG-NET",), "10.0 ± 0.0")
    each = real_world_table(summary)
    assert each is not None
    assert each.columns == ("Lost", "MSRCv2")


def test_sets_that_are_asked_for_and_absent_are_named_not_averaged(
    made: Any, store: ResultStore
) -> None:
    grid = pictures(["proden", "rc"], datasets=["mnist", "kmnist", "soccer", "lost"])
    for planned in grid.runs():
        if planned.run.dataset in ("mnist", "lost"):
            made.keep(store, planned, made.of_seed)
    table = table_1(summarize(store, grid))
    assert table is not None
    assert table.columns == ("MNIST", "real-world")
    assert "Asked for, but no run is stored: KMNIST." in table.notes
    assert any("1 of the paper's six sets (Lost)" in note for note in table.notes)


def test_table_3_has_attacked_methods_alone_and_begins_with_the_end_of_table_1(
    small: Grid, full: ResultStore
) -> None:
    summary = summarize(full, small)
    table = table_3(summary)
    assert table is not None
    assert table.columns == ("0.0", "0.1")
    assert [row.label for row in table.rows] == ["Proden", "RobustPll", "Proden+Ens"]
    for row in table.rows:
        first = of(table_1(summary), row.label, "real-world")
        assert (row.cells[0].value, row.cells[0].std) == (first.value, first.std)
        assert [cell.value for cell in row.cells] == pytest.approx([51, 41])


def by_the_paper(run: PlannedRun, condition: Condition) -> float:
    """The published mean of each method."""
    title, dataset = run.run.method.title, run.run.dataset
    numbers = published_numbers()
    if condition.epsilon:
        return numbers[3, title, f"eps={condition.epsilon}"].mean / 100
    column = {"mnist": "MNIST", "fmnist": "FMNIST"}.get(dataset, "real-world")
    return numbers[1, title, column].mean / 100


def test_the_paper_agrees_with_itself(made: Any, store: ResultStore) -> None:
    grid = pictures(
        ["pl_knn", "proden", "robust_pll_ens"],
        datasets=[*REAL_WORLD, "mnist", "fmnist"],
        seeds=2,
        epsilons=[0.1, 0.4],
        attacked=list(REAL_WORLD),
    )
    first, third = compared_tables(summary_of(made, store, grid, by_the_paper))
    assert agreement(first) == "9 of 9 cells agree with the paper."
    assert agreement(third) == "6 of 6 cells agree with the paper."
    assert agreement(first) in first.notes
    assert text(first, "Proden", "MNIST") == "93.2, paper 93.2, +0.0"


def test_other_datasets_settings_and_noise_are_shown_but_not_counted(
    made: Any, store: ResultStore
) -> None:
    methods: list[Any] = ["proden", {"name": "rc", "epochs": 7}, {"name": "cc", "label": "mine"}]
    grid = pictures(methods, datasets=["mnist", "lost"], seeds=2, noise="uniform")
    (table,) = compared_tables(summary_of(made, store, grid, by_the_paper))
    assert agreement(table) == (
        "No cell can be held against the paper. Not counted: 2 (other noise), "
        "2 (other datasets), 2 (other settings)."
    )
    assert [row.label for row in table.rows] == ["Proden", "Rc", "mine"]
    assert text(table, "Proden", "real-world") == "64.1, paper 64.1, +0.0"


@pytest.mark.parametrize(
    ("dataset", "distance", "agrees"),
    [
        ("mnist", 0.9, True),  # std 0.5: the floor of 1.0
        ("mnist", 1.2, False),
        ("fmnist", 4.9, True),  # std 2.5
        ("fmnist", -5.2, False),
    ],
)
def test_pictures_agree_within_one_point_or_two_deviations(
    made: Any, store: ResultStore, dataset: str, distance: float, agrees: bool
) -> None:
    grid = pictures(["proden"], datasets=[dataset], seeds=2)

    def off(run: PlannedRun, condition: Condition) -> float:
        return by_the_paper(run, condition) + distance / 100

    (table,) = compared_tables(summary_of(made, store, grid, off))
    assert table.rows[0].cells[0].agrees is agrees
    assert ("✗" in table.to_markdown()) is not agrees
    assert (r"$\times$" in table.to_latex()) is not agrees


def test_a_cell_that_lacks_runs_is_no_agreement(made: Any, store: ResultStore) -> None:
    grid = pictures(["proden"], seeds=2)
    made.keep(store, grid.runs()[0], lambda *_: made.share_right(0.932))
    (table,) = compared_tables(summarize(store, grid))
    assert table.rows[0].cells[0].agrees is None
    assert "Not counted: 1 (runs missing)" in agreement(table)


def entropic(made: Any, store: ResultStore, grid: Grid, labels: dict[str, float]) -> Summary:
    """Test rows are sure, OOD rows as unsure as `labels` say."""

    def answers(planned: PlannedRun, condition: Condition) -> Any:
        if condition.part == "ood":
            return made.unknown([labels[planned.label], labels[planned.label] + 0.1] * 10)
        return made.predictions([True] * 20, [0.4, 0.5] * 10)

    for planned in grid.runs():
        if planned.label in labels:
            made.keep(store, planned, answers)
    return summarize(store, grid)


def test_table_2_bolds_the_single_best_of_a_group_if_it_is_positive(
    made: Any, store: ResultStore
) -> None:
    methods = ["proden", "robust_pll", "rc", "proden_ens"]
    grid = pictures(methods, ood=[["mnist", "notmnist"]], seeds=2)
    summary = entropic(made, store, grid, {"Proden": 0.6, "RobustPll": 0.8, "Proden+Ens": 0})
    table = table_2(summary)
    assert table is not None
    assert text(table, "RobustPll", "KS") == "1.0000"
    assert text(table, "Proden+Ens", "KS") == "-1.0000"
    bold = [row.label for row in table.rows if row.cells[2].bold]
    assert bold == ["RobustPll"]
    assert text(table, "Rc", "KS") == "missing"
    assert "Not all runs are there: Rc." in table.notes
    _, beside = compared_tables(summary)
    cell = of(beside, "Proden", "MMD")
    assert cell.agrees is None
    assert cell.published is not None
    assert cell.published.why_not == "bandwidth of all methods"


def test_entropies_that_are_all_equal_have_no_bandwidth_and_do_not_stop_the_report(
    made: Any, store: ResultStore
) -> None:
    grid = pictures(["proden"], ood=[["mnist", "notmnist"]], seeds=1)
    made.keep(
        store,
        grid.runs()[0],
        lambda _, c: (
            made.unknown([1.0] * 4) if c.part == "ood" else made.predictions([1] * 4, [1.0] * 4)
        ),
    )
    table = table_2(summarize(store, grid))
    assert text(table, "Proden", "MMD") == "undefined"
    assert text(table, "Proden", "KS") == "0.0000"


def test_time_and_datasets_have_their_tables(small: Grid, full: ResultStore) -> None:
    summary = summarize(full, small)
    times = timing_table(summary)
    assert text(times, "Proden+Ens", "models per run") == "5"
    assert text(times, "PlKnn", "models per run") == ""
    assert text(times, "Proden", "share in %") == "25.0"
    sets = overview_table(summary)
    assert "one candidate in %" not in sets.columns, "the store does not tell"
    assert sets.texts(sets.rows[0]) == ("1,122", "108", "16", "2.23", "12")


def test_the_same_store_gives_the_same_bytes(small: Grid, full: ResultStore) -> None:
    first, second = (all_tables(summarize(full, small)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.to_markdown() == other.to_markdown()
        assert one.to_latex() == other.to_latex()
        assert one.to_csv() == other.to_csv()
    names = [table.name for table in first]
    assert len(set(names)) == len(names)


ODD = r"a|b_c & 50% $x$ \n {y} <b> #1 ~^ *z* `code` [l](u) \"q\""


def odd_table(label: str) -> ReportTable:
    rows = (Row(label, (Cell(1.0, bold=True), Cell(note=label))),)
    return ReportTable("odd", label, (label, "plain"), (rows,), (1, 1), (label,))


def test_markdown_shows_odd_names_as_they_are() -> None:
    markdown = odd_table(ODD).to_markdown()
    for line in markdown.splitlines()[2:5]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 4  # two cells and a label
    assert "<b>" not in markdown
    assert not re.search(r"(?<!\\)[`$\[]", markdown)


@given(st.text(max_size=40))
def test_any_name_keeps_the_shape_of_a_table(name: str) -> None:
    markdown = in_markdown(name)
    assert "\n" not in markdown
    assert not set(re.sub(r"\\.", "", markdown)) & set("|`*_[]#<>$\\")
    latex = in_latex(name)
    bare = re.sub(r"\\[a-z]+\{\}|\\[&%$#_{}]|\$\\(pm|leq|geq|times)\$", "", latex)
    assert not set(bare) & set("\\&%$#_{}~^\n")


def test_csv_holds_names_and_unrounded_numbers() -> None:
    (head, first, second) = csv.reader(io.StringIO(odd_table(ODD).to_csv()))
    assert head[:4] == ["method", "column", "value", "std"]
    assert first[:3] == [ODD, ODD, "1.0"]
    assert second[head.index("note")] == ODD
    cell = Cell(1 / 3, runs=5, asked=5, published=Published(0.5, None, 0.1))
    table = replace(odd_table("a"), groups=((Row("a", (cell, Cell())),),), beside=True)
    head, first, _ = csv.reader(io.StringIO(table.to_csv()))
    row = dict(zip(head, first, strict=True))
    assert float(row["value"]) == 1 / 3
    assert float(row["difference"]) == 1 / 3 - 0.5
    assert row["agrees"] == "0"


def test_latex_has_rules_of_booktabs_between_groups(paired: Summary) -> None:
    table = table_1(paired)
    assert table is not None
    latex = table.to_latex()
    assert [latex.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 2, 1]
    assert r"RobustPll & \textbf{96.0 $\pm$ 0.1} \\" in latex


@pytest.mark.parametrize(("methods", "q"), [(3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(methods: int, q: float) -> None:
    scores = {str(each): [each + place for place in range(14)] for each in range(methods)}
    _, distance, _ = ranks_of(scores)
    assert distance == pytest.approx(q * (methods * (methods + 1) / (6 * 14)) ** 0.5, rel=1e-3)


def test_methods_in_the_same_order_on_all_datasets_have_whole_ranks() -> None:
    average, _, p = ranks_of({"a": [3, 6, 9, 4], "b": [2, 5, 8, 3], "c": [1, 4, 7, 2]})
    assert average == {"a": 1, "b": 2, "c": 3}
    assert p == pytest.approx(2.718281828**-4)  # chi square of 8 with two degrees of freedom


def test_ranks_leave_out_datasets_on_which_runs_are_missing(small: Grid, full: ResultStore) -> None:
    everything = ranked(summarize(full, small))
    assert everything is not None
    assert everything.datasets == ("lost", "msrc-v2", "fg-net")
    assert everything.average == {line.label: 2.5 for line in summarize(full, small).lines}
    assert everything.p == 1
    full.path(small.runs()[0].run).unlink()
    fewer = ranked(summarize(full, small))
    assert fewer is not None
    assert (fewer.datasets, fewer.left_out) == (("msrc-v2", "fg-net"), ("lost",))
    assert "Left out, as runs are missing: Lost" in fewer.caption
    assert "could not find any difference" in fewer.caption


def test_two_methods_or_one_dataset_have_no_ranks() -> None:
    with pytest.raises(InputError, match="three methods or more"):
        ranks_of({"a": [1, 2], "b": [2, 1]})
    with pytest.raises(InputError, match="three methods or more"):
        ranks_of({"a": [1], "b": [2], "c": [3]})
