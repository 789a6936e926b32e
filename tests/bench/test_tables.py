"""The tables: the rule for bold, what is missing, published numbers, and escaping."""

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robustpll.bench.grid import REAL_WORLD, Condition, Grid, Run
from robustpll.bench.summary import COLUMNS, OOD_COLUMNS, Summary, summarize
from robustpll.bench.tables import (
    CELL,
    PLACE,
    PUBLISHED,
    Table,
    all_tables,
    in_latex,
    in_markdown,
    published_numbers,
    ranks_of,
)

BEST = (0.96, 0.961, 0.959, 0.96, 0.962)
WORSE = (0.955, 0.958, 0.957, 0.953, 0.96)  # p = 0.017 against the best
PAIR = [["mnist", "notmnist"]]
Answer = Callable[[Run, Condition], float | str | None]


def summary_of(
    grid: Grid, answer: Answer, ood: dict[str, tuple[int, float]] | None = None
) -> Summary:
    """The accuracy (or 1 - ECE) of each run; or why it is missing; `ood` has seeds and KS."""
    rows = []
    for run in grid.runs():
        for condition in run.conditions:
            share = answer(run, condition)
            row = {"label": run.label, "dataset": run.dataset, "seed": run.seed, "key": run.key}
            row |= {"part": condition.part, "condition": condition.name, "machine": "a machine"}
            row |= {"epsilon": condition.epsilon, "seconds_train": 2.0, "seconds_examine": 1.0}
            if isinstance(share, float):
                row |= {"accuracy": share, "ece": 1 - share, "rows": 10}
            else:
                row |= {"reason": share or "not run", "sentence": "Why."}
            rows.append(row)
    pooled = [
        (label, *pair, seeds, ks, ks, ks, 1.5)
        for pair in grid.ood
        for label, (seeds, ks) in (ood or {}).items()
    ]
    frames = pd.DataFrame(rows, columns=COLUMNS), pd.DataFrame(pooled, columns=OOD_COLUMNS)
    return Summary(grid, *frames, {}, {}, {})


def tables_of(grid: Grid, answer: Answer, **ood: Any) -> dict[str, Table]:
    return all_tables(summary_of(grid, answer, **ood))


def pictures(methods: list[Any], **changes: Any) -> Grid:
    plain = {"methods": methods, "datasets": ["mnist"], "seeds": 5, "preset": "paper"}
    return Grid.of(plain | changes)


def cell(table: Table, label: str, column: str) -> pd.Series:
    return table.cells.set_index(["label", "column"]).loc[(label, column)]


def text(table: Table, label: str, column: str) -> str:
    return str(table.texts().set_index(table.head).loc[label, column])


def bold_in(table: Table, column: str) -> list[str]:
    cells = table.cells[(table.cells["bold"] == 1) & (table.cells["column"] == column)]
    return list(cells["label"])


def test_the_worked_example_has_its_mean_deviation_and_bold() -> None:
    accuracies = {"Proden": WORSE, "RobustPll": BEST, "Proden+Ens": WORSE}
    grid = pictures(["proden", "robust_pll", "proden_ens"])
    table = tables_of(grid, lambda run, _: accuracies[run.label][run.seed])["table-1"]
    best = cell(table, "RobustPll", "MNIST")
    assert best["value"] == pytest.approx(96.04)
    assert best["std"] == pytest.approx(0.1020, abs=1e-4)
    assert text(table, "RobustPll", "MNIST") == "96.0 ± 0.1"
    assert bold_in(table, "MNIST") == ["RobustPll", "Proden+Ens"]  # ensembles are another group
    assert table.cells["group"].tolist() == [0, 0, 1]
    latex = table.to_latex()  # with rules between groups
    assert [latex.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 2, 1]
    assert r"RobustPll & \textbf{96.0 $\pm$ 0.1} \\" + "\n\\midrule" in latex


def test_a_cell_that_lacks_runs_says_so_and_is_not_bold_even_if_it_is_highest() -> None:
    accuracies = {"Proden": WORSE, "RobustPll": BEST}
    grid = pictures(["proden", "robust_pll"])

    def answer(run: Run, _: Condition) -> float | None:
        stored = run.label == "Proden" or run.seed > 1
        return accuracies[run.label][run.seed] if stored else None

    tables = tables_of(grid, answer)
    table, beside = tables["table-1"], tables["compare-1"]
    partial = cell(table, "RobustPll", "MNIST")
    assert (partial["runs"], partial["asked"]) == (3, 5)
    assert text(table, "RobustPll", "MNIST").endswith("(3 of 5 runs)")
    assert bold_in(table, "MNIST") == ["Proden"]
    assert pd.isna(cell(beside, "RobustPll", "MNIST")["agrees"])
    assert beside.notes[0].endswith("; 1 cannot be compared.")


def test_a_cell_without_runs_says_why(small: Grid) -> None:
    reasons = {"Proden": None, "RobustPll": "failed"}

    def answer(run: Run, _: Condition) -> float | str | None:
        return reasons.get(run.label, 0.5) if run.dataset == "lost" else 0.5

    tables = tables_of(small, answer)
    words = [text(tables["attack-lost"], m, "0.1") for m in ("PlKnn", "Proden", "RobustPll")]
    assert words == ["not attacked", "missing", "failed"]
    assert text(tables["table-1"], "Proden", "real-world").endswith("(3 of 6 runs)")
    missing = tables["missing"].texts()
    assert missing["methods"].tolist() == ["Proden", "RobustPll"]
    assert missing["why"].tolist() == ["not run", "failed"]


def test_one_seed_gives_no_deviation_and_bold_to_the_best_alone() -> None:
    shares, grid = {"Proden": 0.5, "RobustPll": 0.6}, pictures(["proden", "robust_pll"], seeds=1)
    tables = tables_of(grid, lambda run, _: shares[run.label])
    assert text(tables["table-1"], "RobustPll", "MNIST") == "60.0"
    assert bold_in(tables["table-1"], "MNIST") == ["RobustPll"]
    assert cell(tables["calibration"], "Proden", "MNIST")["value"] == pytest.approx(50)
    assert bold_in(tables["calibration"], "MNIST") == ["RobustPll"]
    assert any(note.startswith("Less is better") for note in tables["calibration"].notes)


def test_the_pooled_column_names_its_sets_and_weighs_runs_equally(
    small: Grid,
) -> None:
    shares = {"lost": 0.7, "msrc-v2": 0.5, "fg-net": 0.1}
    tables = tables_of(small, lambda run, _: shares[run.dataset])
    assert tables["table-1"].columns == ["real-world"]
    assert text(tables["table-1"], "Proden", "real-world") == "60.0 ± 10.0"
    (note,) = (note for note in tables["table-1"].notes if note.startswith("real-world"))
    assert "2 of the paper's six sets (Lost, MSRCv2)" in note
    assert tables["extra"].columns == ["FG-NET"]
    assert text(tables["extra"], "Proden", "FG-NET") == "10.0 ± 0.0"
    assert tables["real-world"].columns == ["Lost", "MSRCv2"]
    grid = pictures(["proden", "rc"], datasets=["mnist", "kmnist", "soccer", "lost"])
    stored = ("mnist", "lost")
    table = tables_of(grid, lambda run, _: 0.5 if run.dataset in stored else "no data")["table-1"]
    assert table.columns == ["MNIST", "real-world"]
    assert any("1 of the paper's six sets (Lost)" in note for note in table.notes)


def test_table_3_has_attacked_methods_alone_and_begins_with_the_end_of_table_1(small: Grid) -> None:
    tables = tables_of(small, lambda _, condition: 0.51 - condition.epsilon)
    table = tables["table-3"]
    assert table.columns == ["0.0", "0.1"]
    assert list(dict.fromkeys(table.cells["label"])) == ["Proden", "RobustPll", "Proden+Ens"]
    assert table.cells["value"].tolist() == pytest.approx([51, 41] * 3)
    for label in ("Proden", "Proden+Ens"):
        first = cell(tables["table-1"], label, "real-world")
        assert [cell(table, label, "0.0")[key] for key in CELL] == [first[key] for key in CELL]


def test_resolved_training_labels_have_a_table_where_they_are_planned() -> None:
    def answer(_: Run, condition: Condition) -> float:
        return 0.7 if condition.part == "train" else 0.5

    tables = tables_of(pictures(["proden", "rc"], train_rows=True), answer)
    assert text(tables["resolved"], "Rc", "MNIST") == "70.0 ± 0.0"
    assert text(tables["table-1"], "Rc", "MNIST") == "50.0 ± 0.0"
    assert "compare-1" in tables
    ours = tables_of(pictures(["robust_pll_at"]), answer)
    assert "compare-1" not in ours, "the paper does not have the method"
    assert "resolved" not in ours


def test_entries_of_one_label_are_one_line_that_may_lack_datasets() -> None:
    methods = [
        "proden",
        {"name": "rc", "epochs": 7, "datasets": ["lost"]},
        {"name": "rc", "epochs": 9, "datasets": ["fg-net"]},
    ]
    sets = ["msrc-v2", "lost", "fg-net"]
    grid = pictures(methods, datasets=sets, seeds=3, ood=[["msrc-v2", "lost"]])
    summary = summary_of(
        grid, lambda run, _: 0.9 if run.label == "Rc" else 0.5, {"Proden": (3, 0.5)}
    )
    assert [line.label for line in summary.lines] == ["Proden", "Rc"]
    assert summary.missing.empty
    tables = all_tables(summary)
    assert cell(tables["timing"], "Rc", "runs")["value"] == 6
    assert cell(tables["extra"], "Rc", "FG-NET")["runs"] == 3
    pooled = cell(tables["table-1"], "Rc", "real-world")
    assert (pooled["runs"], pooled["asked"]) == (3, 6)
    assert bold_in(tables["table-1"], "real-world") == ["Proden"]
    assert bold_in(tables["real-world"], "Lost") == ["Rc"]
    assert text(tables["real-world"], "Rc", "MSRCv2") == "not asked for"
    entropies = tables["ood-msrc-v2-lost"]
    assert set(entropies.cells["label"]) == {"Proden"}


def by_the_paper(run: Run, condition: Condition) -> float:
    """The published mean of each method."""
    column = {"mnist": "MNIST", "fmnist": "FMNIST"}.get(run.dataset, "real-world")
    number, column = (3, str(condition.epsilon)) if condition.epsilon else (1, column)
    return float(published_numbers().loc[(number, run.method.title, column), "published"]) / 100


def test_the_paper_agrees_with_itself() -> None:
    grid = pictures(
        ["pl_knn", "proden", "robust_pll_ens"],
        datasets=[*REAL_WORLD, "mnist", "fmnist"],
        seeds=2,
        epsilons=[0.1, 0.4],
        attacked=list(REAL_WORLD),
    )
    tables = tables_of(grid, by_the_paper)
    assert tables["compare-1"].notes[0] == "9 of 9 cells agree with the paper."
    assert tables["compare-3"].notes[0] == "6 of 6 cells agree with the paper."
    assert text(tables["compare-1"], "Proden", "MNIST") == "93.2, paper 93.2, +0.0"


def test_other_datasets_settings_and_noise_are_shown_but_not_counted() -> None:
    methods: list[Any] = ["proden", {"name": "rc", "epochs": 7}, {"name": "cc", "label": "mine"}]
    methods.append({"name": "pop", "label": "not the paper's", "epochs": 3})
    grid = pictures(methods, datasets=["mnist", "lost"], seeds=2, noise="uniform")
    table = tables_of(grid, by_the_paper)["compare-1"]
    assert table.notes[0] == "0 of 0 cells agree with the paper; 6 cannot be compared."
    reasons = {"other noise": 2, "other datasets": 2, "other settings": 2}
    assert table.cells["why_not"].value_counts().to_dict() == reasons
    assert list(dict.fromkeys(table.cells["label"])) == ["Proden", "Rc", "mine"]
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
    dataset: str, distance: float, agrees: bool
) -> None:
    grid = pictures(["proden"], datasets=[dataset], seeds=2)
    table = tables_of(grid, lambda *run: by_the_paper(*run) + distance / 100)["compare-1"]
    assert table.cells["agrees"].tolist() == [agrees]
    assert ("✗" in table.to_markdown()) is not agrees
    assert (r"$\times$" in table.to_latex()) is not agrees
    (row,) = csv.DictReader(io.StringIO(table.to_csv()))
    assert (row["agrees"], float(row["difference"])) == (f"{agrees:d}", pytest.approx(distance))


def test_table_2_bolds_the_single_best_of_a_group_if_it_is_positive() -> None:
    grid = pictures(["proden", "robust_pll", "rc", "cc", "proden_ens"], ood=PAIR)
    values = {"Proden": (5, 0.6), "RobustPll": (5, 0.8), "Cc": (3, 0.9), "Proden+Ens": (5, -0.5)}
    tables = tables_of(grid, lambda *_: 0.5, ood=values)
    table, beside = tables["table-2"], tables["compare-2"]
    words = [text(table, label, "KS") for label in ("RobustPll", "Proden+Ens", "Rc")]
    assert words == ["0.8000", "-0.5000", "missing"]
    assert bold_in(table, "KS") == ["RobustPll"]
    assert text(table, "Cc", "KS") == "0.9000 (3 of 5 runs)"
    assert pd.isna(cell(beside, "Proden", "MMD")["agrees"])
    assert cell(beside, "Proden", "MMD")["why_not"] == "bandwidth of all methods"
    assert cell(beside, "Proden", "KS")["agrees"] in (0, 1)


def test_a_bandwidth_that_is_undefined_does_not_stop_the_report(made: Any, store: Any) -> None:
    grid = pictures(["proden"], ood=PAIR, seeds=1)
    made.keep(store, grid.runs()[0], lambda *_: made.predictions([1] * 4, [1.0] * 4))
    table = all_tables(summarize(store, grid))["table-2"]
    assert text(table, "Proden", "MMD") == "undefined"
    assert text(table, "Proden", "KS") == "0.0000"


def test_time_and_datasets_have_their_tables(small: Grid) -> None:
    tables = tables_of(small, lambda *_: 0.5)
    assert tables["timing"].texts().iloc[1].tolist() == ["Proden", "9", "18.0", "9.0", "3.00"]
    sets = tables["datasets"]
    assert "one candidate in %" not in sets.columns, "the store does not tell"
    assert sets.texts().iloc[0].tolist() == ["Lost", "1,122", "108", "16", "2.23", "12"]


ODD = r"a|b_c & 50% $x$ \n {y} <b> #1 ~^ *z* `code` [l](u) \"q\""


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_any_name_keeps_the_shape_of_a_table(name: str) -> None:
    markdown = in_markdown(name)
    assert "\n" not in markdown
    assert not set(re.sub(r"\\.", "", markdown)) & set("|`*_[]#<>$\\")
    bare = re.sub(r"\\[a-z]+\{\}|\\[&%$#_{}]|\$\\(pm|leq|geq|times)\$", "", in_latex(name))
    assert not set(bare) & set("\\&%$#_{}~^\n")


@pytest.mark.parametrize("name", [ODD, "=HYPERLINK(A1)", "'+1", "-", "a,b"])
def test_odd_names_keep_the_shape_of_a_table_and_are_no_formula_in_csv(name: str) -> None:
    nan = float("nan")
    rows = [(0, 0, name, name, 1, 1 / 3, nan, 1, 0, 0, "")]
    rows.append((0, 0, name, "plain", 1, nan, nan, 0, 0, 0, name))
    table = Table("odd", name, pd.DataFrame(rows, columns=[*PLACE, *CELL]), (name,))
    for line in table.to_markdown().splitlines()[2:5]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 4  # two cells and a label
    (head, first, second) = csv.reader(io.StringIO(table.to_csv()))
    assert head == ["method", "column", *CELL]
    safe = f"'{name}" if name.startswith(("=", "'+")) else name
    assert first[:3] == [safe, safe, str(1 / 3)]
    assert second[head.index("note")] == safe
    assert not set(PUBLISHED) & set(head)


@pytest.mark.parametrize(("methods", "q"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(methods: int, q: float) -> None:
    scores = pd.DataFrame({m: [place - m for place in range(14)] for m in range(methods)})
    average, distance, p = ranks_of(scores)
    assert average.tolist() == [m + 1 for m in range(methods)]
    assert p == pytest.approx(stats.chi2.sf(14 * (methods - 1), methods - 1))
    assert distance == pytest.approx(q * (methods * (methods + 1) / (6 * 14)) ** 0.5, rel=1e-3)


def test_ranks_leave_out_datasets_on_which_runs_are_missing(small: Grid) -> None:
    table = tables_of(small, lambda *_: 0.5)["ranks"]
    assert table.texts()["average rank"].tolist() == ["2.50"] * 4
    assert "over 3 datasets (Lost, MSRCv2, FG-NET)" in table.notes[0]
    assert "p = 1." in table.notes[0]
    gone = small.runs()[0]
    fewer = tables_of(small, lambda run, _: None if run == gone else 0.5)["ranks"]
    assert "over 2 datasets (MSRCv2, FG-NET)" in fewer.notes[0]
    for fewer_of in ({"methods": ["proden", "robust_pll"]}, {"datasets": ["lost"]}):
        assert "ranks" not in tables_of(small.changed(**fewer_of), lambda *_: 0.5)


TABLES = {
    "methods": ["pl_knn", "proden", {"name": "robust_pll", "datasets": ["wine", "lost"]}],
    "datasets": ["wine", "lost", "hayes-roth", "breast-cancer"],
    "noise": "annotators",
    "seeds": 2,
    "train_rows": True,
}


def accepting(grid: Grid, answer: Answer) -> Summary:
    """As `summary_of`; a model accepts all rows, or none at an accuracy of 0.5."""
    summary = summary_of(grid, answer)
    accuracy = summary.planned["accuracy"]
    summary.planned["accepted"] = (accuracy != 0.5).astype(float).where(accuracy.notna())
    summary.planned["accepted_error"] = (1 - accuracy).where(accuracy != 0.5)
    summary.planned["acceptable"] = accuracy
    return summary


def test_tables_have_a_column_for_each_dataset_and_their_mean() -> None:
    shares = {"wine": 0.9, "lost": 0.6, "hayes-roth": 0.7, "breast-cancer": 0.8}

    def answer(run: Run, _: Condition) -> float:
        return shares[run.dataset] - 0.01 * run.seed - 0.1 * (run.label == "Proden")

    tables = all_tables(accepting(Grid.of(TABLES), answer))
    titles = ["Wine", "Lost", "Hayes-Roth", "Breast cancer", "mean"]
    for name in ("accuracy", "resolved", "calibration", "accepted", "acceptable", "seconds"):
        assert tables[name].columns == titles, name
    assert not {"table-1", "real-world", "extra"} & tables.keys()
    accuracy = tables["accuracy"]
    assert text(accuracy, "PlKnn", "Lost") == "59.5 ± 0.5"
    assert text(accuracy, "PlKnn", "mean") == "74.5"
    assert text(accuracy, "RobustPll", "Wine") == "89.5 ± 0.5"
    assert text(accuracy, "RobustPll", "mean") == "not all"
    assert text(tables["calibration"], "Proden", "mean") == "35.5"
    assert text(tables["seconds"], "Proden", "mean") == "2.00"
    assert bold_in(accuracy, "mean") == ["PlKnn"]
    for name in ("accepted", "accepted-error", "seconds"):
        assert tables[name].cells["bold"].sum() == 0
        assert not any("Bold" in note for note in tables[name].notes)


def test_datasets_without_features_are_in_tables_of_labels_alone() -> None:
    names = ["wine", "bluebirds-votes"]
    summary = summary_of(
        Grid.of(TABLES | {"methods": ["pl_knn"], "datasets": names}), lambda *_: 0.7
    )
    for measure in ("labels_accepted", "labels_accepted_error"):
        summary.planned[measure] = summary.planned["accuracy"].where(summary.planned["seed"] == 0)
    tables = all_tables(summary)
    titles = ["Wine", "Bluebirds, votes", "mean"]
    for name in ("resolved", "accepted-labels", "accepted-labels-error", "calibration-labels"):
        assert tables[name].columns == titles, name
    for name in ("accuracy", "calibration", "seconds"):
        assert tables[name].columns == ["Wine"], name
    assert text(tables["accepted-labels"], "PlKnn", titles[1]) == "70.0 (1 of 2 runs)"


def test_an_ensemble_that_is_alone_is_compared_with_all_methods_on_tables() -> None:
    grid = Grid.of(TABLES | {"methods": ["pl_knn", "proden", "auto"], "seeds": 3})
    table = tables_of(grid, lambda run, _: 0.8 - 0.1 * (run.label != "Proden"))["accuracy"]
    assert bold_in(table, "Wine") == ["Proden"]


def test_the_bold_of_a_mean_takes_a_dataset_once_whatever_the_number_of_seeds() -> None:
    """Means differ by 1, 2, 0 and 1 points: p = 0.09 over datasets, below 0.001 over 5 seeds."""
    points = {"wine": 0.01, "lost": 0.02, "hayes-roth": 0.0, "breast-cancer": 0.01}

    def answer(run: Run, _: Condition) -> float:
        return 0.8 - 0.01 * run.seed + points[run.dataset] * (run.label == "PlKnn")

    accuracy = tables_of(Grid.of(TABLES | {"seeds": 5}), answer)["accuracy"]
    assert bold_in(accuracy, "Lost") == ["PlKnn"]
    assert bold_in(accuracy, "mean") == ["PlKnn", "Proden"]


def test_an_error_among_no_rows_is_undefined_and_not_missing() -> None:
    def answer(run: Run, _: Condition) -> float | None:
        return {"PlKnn": 0.5, "Proden": 0.9}.get(run.label)

    table = all_tables(accepting(Grid.of(TABLES), answer))["accepted-error"]
    columns = [text(table, label, "Wine") for label in ("PlKnn", "Proden", "RobustPll")]
    assert columns == ["undefined", "10.0 ± 0.0", "missing"]


def test_reports_of_the_papers_datasets_stay_without_tables_of_all_datasets(small: Grid) -> None:
    names = tables_of(small, lambda run, _: 0.5 + 0.01 * run.seed)
    assert {"table-1", "real-world", "extra"} <= names.keys()
    assert not {"accuracy", "seconds"} & names.keys()
    assert "mean" not in names["calibration"].columns
