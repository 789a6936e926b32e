"""From predictions to measures: known answers, and that nothing missing is averaged away."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustpll.bench.contents import all_tables
from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.measures import POINTS, curve
from robustpll.bench.run import noise_key
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import Summary, summarize
from robustpll.datasets.noise import Uniform
from robustpll.measures.metrics import distribution


def pair_grid(**changes: Any) -> Grid:
    plain = {"methods": ["proden"], "datasets": ["mnist"], "seeds": 2, "preset": "paper"}
    return Grid.of({**plain, "ood": [["mnist", "notmnist"]], **changes})


def test_a_run_has_one_row_for_each_condition_in_the_order_of_the_grid(
    small: Grid, full: ResultStore
) -> None:
    runs = summarize(full, small).runs
    asked = [
        (each.label, each.run.dataset, each.run.seed, condition.name)
        for each in small.runs()
        for condition in each.conditions
    ]
    found = runs[["label", "dataset", "seed", "condition"]].itertuples(index=False, name=None)
    assert list(found) == asked
    assert {"clean", "pgd 0.1"} == set(runs["condition"])
    attacked = runs[(runs["label"] == "Proden") & (runs["epsilon"] == 0.1)]
    assert attacked["accuracy"].tolist() == pytest.approx([0.4, 0.41, 0.42] * 3)


def test_measures_of_a_run_are_those_of_its_predictions(made: Any, store: ResultStore) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    columns = made.predictions([True, True, True, False]) | {"guess": np.array([1, 0, 0, 0], bool)}
    made.keep(store, grid.runs()[0], lambda *_: columns, seconds=(3.0, 0.5))
    (row,) = summarize(store, grid).runs.to_dict("records")
    assert (row["rows"], row["accuracy"], row["guesses"]) == (4, 0.75, 0.25)
    assert (row["entropy"], row["uncertainty"]) == (0.5, 0.25)
    right, wrong = 2 * 0.25**2, 2 * 0.75**2  # of two classes at 0.75 and 0.25
    assert row["brier"] == pytest.approx((3 * right + wrong) / 4)
    assert row["log_loss"] == pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4)
    assert (row["seconds_train"], row["seconds_examine"]) == (3.0, 0.5)


def test_entropies_are_pooled_over_seeds_as_the_paper_does(made: Any, store: ResultStore) -> None:
    grid = pair_grid()
    test, ood = [(0, 0.1), (0.1, 0.3)], [(0.2, 0.6), (0.9, 1.0)]

    def answers(planned: PlannedRun, condition: Condition) -> dict[str, Any]:
        seed = planned.run.seed
        known = condition.part == "test"
        return made.predictions([True, True], test[seed]) if known else made.unknown(ood[seed])

    for planned in grid.runs():
        made.keep(store, planned, answers)
    summary = summarize(store, grid)
    (row,) = summary.ood.to_dict("records")
    assert (row["seeds"], row["asked"]) == (2, 2)
    assert row["area"] == pytest.approx(0.35)
    assert row["area_exact"] == pytest.approx(0.55)
    assert (row["ks"], row["auroc"]) == (0.75, 0.9375)
    assert row["gamma"] == pytest.approx(3.224994, rel=0.05)  # of 10,000 pairs, not of all
    assert row["mmd"] == pytest.approx(0.771688, abs=0.005)
    lines = summary.curves["Proden", "mnist", "notmnist"]
    np.testing.assert_allclose(lines.test, [[0, 0.25], [0.1, 0.75], [0.3, 1]])
    assert np.isnan(summary.runs[summary.runs["part"] == "ood"]["accuracy"]).all()


def test_an_entropy_that_is_missing_counts_as_one(made: Any, store: ResultStore) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    made.keep(store, grid.runs()[0], lambda *_: made.predictions([True, True], [np.nan, 0.0]))
    assert summarize(store, grid).runs["entropy"].tolist() == [0.5]


def test_the_order_of_files_and_rows_changes_nothing(
    made: Any, small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    other = ResultStore(tmp_path / "other")
    generator = np.random.default_rng(0)
    runs = list(small.runs())
    generator.shuffle(runs)  # type: ignore[arg-type]

    def shuffled(planned: PlannedRun, condition: Condition) -> dict[str, Any]:
        columns = made.of_seed(planned, condition)
        at = generator.permutation(len(columns["row"]))
        return {name: each[at] for name, each in columns.items()}

    for planned in runs:
        made.keep(other, planned, shuffled, conditions=planned.conditions[::-1])
    assert written(summarize(full, small)) == written(summarize(other, small))


def written(summary: Summary) -> list[tuple[str, ...]]:
    return [(t.to_markdown(), t.to_latex(), t.to_csv()) for t in all_tables(summary)]


def test_runs_that_are_missing_failed_or_damaged_are_named_and_have_no_row(
    small: Grid, full: ResultStore
) -> None:
    of_proden = [each for each in small.runs() if each.label == "Proden"]
    gone, failed, damaged = of_proden[0], of_proden[1], of_proden[3]
    full.path(gone.run).unlink()
    full.path(failed.run).unlink()
    full.failed(failed.run, "No memory is left.")
    full.path(damaged.run).write_bytes(b"nonsense")
    summary = summarize(full, small)
    assert len(summary.runs) == len(asked_for(small)) - 3 * 2
    found = summary.missing.drop_duplicates("reason").set_index("reason")
    assert found.loc["not run", ["dataset", "seed"]].tolist() == ["lost", 0]
    assert found.loc["failed", "sentence"] == "No memory is left."
    assert "damaged" in found.loc["unreadable", "sentence"]
    assert str(full.root) not in found.loc["unreadable", "sentence"]
    assert (summary.missing["label"] == "Proden").all()
    assert len(summary.missing) == 3 * 2  # clean and attacked


def asked_for(grid: Grid) -> list[Condition]:
    return [condition for each in grid.runs() for condition in each.conditions]


def test_a_condition_that_a_file_lacks_is_missing_and_the_others_are_not(
    made: Any, small: Grid, full: ResultStore
) -> None:
    planned = next(each for each in small.runs() if each.label == "RobustPll")
    made.keep(full, planned, made.of_seed, conditions=planned.conditions[:1])
    summary = summarize(full, small)
    (row,) = summary.missing.to_dict("records")
    assert (row["label"], row["condition"], row["reason"]) == ("RobustPll", "pgd 0.1", "not run")


def test_a_dataset_without_any_run_is_told_from_runs_that_were_not_done(
    made: Any, small: Grid, store: ResultStore
) -> None:
    for planned in small.runs():
        if planned.run.dataset == "lost" and planned.label == "Proden":
            made.keep(store, planned, made.of_seed)
    missing = summarize(store, small).missing
    assert set(missing[missing["dataset"] == "lost"]["reason"]) == {"not run"}
    absent = missing[missing["dataset"] == "fg-net"]
    assert set(absent["reason"]) == {"no data"}
    assert "No run on FG-NET" in absent["sentence"].iloc[0]


def test_an_empty_store_has_a_report_that_names_all_that_is_missing(
    small: Grid, store: ResultStore
) -> None:
    summary = summarize(store, small)
    assert summary.stored == ()
    assert [table.name for table in all_tables(summary)] == ["datasets", "missing"]
    assert len(summary.missing) == len(asked_for(small))


def test_runs_of_other_grids_in_a_store_do_not_count(small: Grid, full: ResultStore) -> None:
    fewer = small.changed(methods=["proden"], seeds=(1,))
    summary = summarize(full, fewer)
    assert set(summary.runs["label"]) == {"Proden"}
    assert set(summary.runs["seed"]) == {1}
    assert summary.missing.empty


def test_shares_of_time_add_up_and_models_are_counted(small: Grid, full: ResultStore) -> None:
    timing = summarize(full, small).timing.set_index("label")
    assert timing["share"].sum() == pytest.approx(1)
    assert timing["runs"].tolist() == [9, 9, 9, 9]
    assert timing.loc["Proden+Ens", "models"] == 5
    assert timing.loc["Proden", "seconds"] == pytest.approx(3.0)


def test_lines_know_their_group_and_whether_their_settings_are_the_papers() -> None:
    grid = Grid.of(
        {
            "methods": ["pl_knn", "robust_pll", {"name": "proden_ens", "epochs": 3}],
            "datasets": ["lost"],
            "preset": "paper",
            "epsilons": [0.1],
        }
    )
    lines = summarize(ResultStore("nowhere"), grid).lines
    assert [line.group for line in lines] == ["single", "single", "ensemble"]
    assert [line.attacked for line in lines] == [False, True, True]
    assert [line.as_published for line in lines] == [True, True, False]


def test_candidates_that_noise_made_are_counted(store: ResultStore) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 2, "noise": "uniform"})
    matrix = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0]], bool)
    store.keep_candidates(noise_key("digits", Uniform(), 0), matrix)
    (row,) = summarize(store, grid).datasets.to_dict("records")
    assert (row["candidates"], row["single"]) == (1.75, 0.5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.integers(0, 6))
def test_a_thinned_curve_is_the_distribution_function_but_for_what_cannot_be_seen(
    seed: int, rows: int, decimals: int
) -> None:
    entropies = np.random.default_rng(seed).beta(0.3, 2, rows).round(decimals)
    points = curve(entropies)
    at, share = distribution(entropies)
    assert len(points) <= POINTS
    assert (points[0] == (at[0], share[0])).all()
    assert (points[-1] == (at[-1], 1)).all()
    # Both are monotone, so no point is further from the line than one step along it.
    gaps = np.abs(points[None, :, 0] - at[:, None]) + np.abs(points[None, :, 1] - share[:, None])
    assert gaps.min(1).max() <= 2 / (POINTS - 1)
