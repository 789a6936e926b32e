"""From predictions to measures: known answers, nothing missing is averaged, and runs.parquet."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll import InputError
from robustpll.bench.grid import Condition, Grid, Run
from robustpll.bench.store import REALS, ResultStore
from robustpll.bench.summary import CURVE_POINTS, Summary, curve, read_summary, summarize
from robustpll.bench.tables import all_tables, strengths
from robustpll.measures.calibration import calibration_of
from robustpll.measures.metrics import distribution

ONE_RUN = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})


def ood_grid() -> Grid:
    plain = {"methods": ["proden"], "datasets": ["mnist"], "seeds": 2, "preset": "paper"}
    return Grid.of({**plain, "ood": [["mnist", "notmnist"]]})


def keep_entropies(made: Any, store: ResultStore, grid: Grid) -> None:
    test, ood = [(0, 0.1), (0.1, 0.3)], [(0.2, 0.6), (0.9, 1.0)]

    def answers(planned: Run, condition: Condition) -> dict[str, Any]:
        seed = planned.seed
        known = condition.part == "test"
        return made.predictions([True, True], test[seed]) if known else made.unknown(ood[seed])

    for planned in grid.runs():
        made.keep(store, planned, answers)


def test_a_run_has_one_row_for_each_condition_in_the_order_of_the_grid(
    small: Grid, full: ResultStore
) -> None:
    runs = summarize(full, small).runs
    planned = [
        (run.label, run.dataset, run.seed, condition.name)
        for run in small.runs()
        for condition in run.conditions
    ]
    rows = runs[["label", "dataset", "seed", "condition"]].itertuples(index=False, name=None)
    assert list(rows) == planned
    attacked = runs[(runs["label"] == "Proden") & (runs["epsilon"] == 0.1)]
    assert attacked["accuracy"].tolist() == pytest.approx([0.4, 0.41, 0.42] * 3)


def test_measures_of_a_run_are_those_of_its_predictions(made: Any, store: ResultStore) -> None:
    columns = made.predictions([True, True, True, False]) | {"guess": np.array([1, 0, 0, 0], bool)}
    columns["entropy"][:2] = 0, np.nan  # an entropy that is missing counts as one
    made.keep(store, ONE_RUN.runs()[0], lambda *_: columns, seconds=(3.0, 0.5))
    (row,) = summarize(store, ONE_RUN).runs.to_dict("records")
    assert (row["rows"], row["accuracy"], row["guesses"]) == (4, 0.75, 0.25)
    assert (row["entropy"], row["uncertainty"]) == (0.5, 0.25)
    right, wrong = 2 * 0.25**2, 2 * 0.75**2  # of two classes at 0.75 and 0.25
    assert row["brier"] == pytest.approx((3 * right + wrong) / 4)
    assert row["log_loss"] == pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4)
    assert (row["seconds_train"], row["seconds_examine"]) == (3.0, 0.5)
    assert (row["machine"], row["torch"], row["date"]) == ("a machine", "2", "2026-01-02")


def test_the_calibration_error_is_that_of_the_probabilities(made: Any, store: ResultStore) -> None:
    draws = np.random.default_rng(0)
    probability = draws.dirichlet(np.ones(2), 200)
    truth = np.where(draws.random(200) < probability[:, 0] ** 2, 0, 1)
    predicted = probability.argmax(-1)
    labels = {"truth": truth, "predicted": predicted, "probability": probability.max(-1)}
    columns = made.predictions(truth == predicted) | labels
    made.keep(store, ONE_RUN.runs()[0], lambda *_: columns)
    (row,) = summarize(store, ONE_RUN).runs.to_dict("records")
    assert row["ece"] == pytest.approx(calibration_of(probability, truth).error, abs=1e-6)
    assert row["ece"] > 0.05


def test_entropies_are_pooled_over_seeds_as_the_paper_does(made: Any, store: ResultStore) -> None:
    keep_entropies(made, store, ood_grid())
    summary = summarize(store, ood_grid())
    (row,) = summary.ood.to_dict("records")
    assert (row["seeds"], row["asked"]) == (2, 2)
    assert row["area"] == pytest.approx(0.35)
    assert row["area_exact"] == pytest.approx(0.55)
    assert (row["ks"], row["auroc"]) == (0.75, 0.9375)
    assert row["gamma"] == pytest.approx(3.224994, rel=0.05)  # of 10,000 pairs, not of all
    assert row["mmd"] == pytest.approx(0.771688, abs=0.005)
    test, _ = summary.curves["Proden", "mnist", "notmnist"]
    np.testing.assert_allclose(test, [[0, 0.25], [0.1, 0.75], [0.3, 1]])
    ood = summary.runs[summary.runs["part"] == "ood"]
    assert ood[["accuracy", "brier", "log_loss", "ece"]].isna().all(axis=None)
    assert ood[["auroc", "ks", "area", "entropy"]].notna().all(axis=None)


def test_the_order_of_files_and_rows_changes_nothing(
    made: Any, small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    other = ResultStore(tmp_path / "other")
    generator = np.random.default_rng(0)
    runs = list(small.runs())
    generator.shuffle(runs)  # type: ignore[arg-type]

    def shuffled(planned: Run, condition: Condition) -> dict[str, Any]:
        columns = made.of_seed(planned, condition)
        order = generator.permutation(len(columns["row"]))
        return {name: column[order] for name, column in columns.items()}

    for planned in runs:
        made.keep(other, planned, shuffled, conditions=planned.conditions[::-1])
    pd.testing.assert_frame_equal(summarize(full, small).runs, summarize(other, small).runs)


def test_runs_that_are_missing_failed_or_damaged_are_named_and_have_no_row(
    made: Any, small: Grid, full: ResultStore
) -> None:
    proden = [run for run in small.runs() if run.label == "Proden"]
    gone, failed, damaged, partial = proden[0], proden[1], proden[3], proden[4]
    full.path(gone).unlink()
    full.path(failed).unlink()
    full.failed(failed, "No memory is left.")
    full.path(damaged).write_bytes(b"nonsense")
    made.keep(full, partial, made.of_seed, conditions=partial.conditions[:1])
    summary = summarize(full, small)
    missing = summary.missing
    assert len(summary.runs) + len(missing) == sum(len(run.conditions) for run in small.runs())
    assert set(missing["label"]) == {"Proden"}
    rows = missing.groupby(["dataset", "seed"])["condition"].agg(list).to_dict()
    both = ["clean", "pgd 0.1"]
    attack = {("msrc-v2", 1): ["pgd 0.1"]}
    assert rows == {("lost", 0): both, ("lost", 1): both, ("msrc-v2", 0): both} | attack
    sentences = missing.drop_duplicates("reason").set_index("reason")["sentence"]
    assert sentences["failed"] == "No memory is left."
    assert "damaged" in sentences["unreadable"]
    assert str(full.root) not in sentences["unreadable"]
    assert set(sentences.index) == {"not run", "failed", "unreadable"}


def test_a_dataset_without_any_run_differs_from_runs_that_were_not_done(
    made: Any, small: Grid, store: ResultStore
) -> None:
    for planned in small.runs():
        if planned.dataset == "lost" and planned.label == "Proden":
            made.keep(store, planned, made.of_seed)
    missing = summarize(store, small).missing
    assert set(missing[missing["dataset"] == "lost"]["reason"]) == {"not run"}
    absent = missing[missing["dataset"] == "fg-net"]
    assert set(absent["reason"]) == {"no data"}
    assert "No run on FG-NET" in absent["sentence"].iloc[0]
    nothing = summarize(ResultStore(store.root / "nothing"), small)
    assert (nothing.stored, len(nothing.runs)) == ((), 0)
    assert list(all_tables(nothing)) == ["datasets", "missing"]
    assert len(nothing.missing) == sum(len(run.conditions) for run in small.runs())


def test_runs_of_other_grids_in_a_store_do_not_count(small: Grid, full: ResultStore) -> None:
    summary = summarize(full, small.changed(methods=["proden"], seeds=(1,)))
    assert set(summary.runs["label"]) == {"Proden"}
    assert set(summary.runs["seed"]) == {1}
    assert summary.missing.empty


def test_shares_of_time_add_up_and_models_are_counted(small: Grid, full: ResultStore) -> None:
    timing = summarize(full, small).timing.set_index("label")
    assert timing["share"].sum() == pytest.approx(1)
    assert timing["runs"].tolist() == [9, 9, 9, 9]
    assert timing.loc["Proden+Ens", "models"] == 5
    assert timing.loc["Proden", "seconds"] == pytest.approx(3.0)


def test_lines_know_their_group_and_whether_they_are_attacked() -> None:
    methods = ["pl_knn", "robust_pll", {"name": "proden_ens", "epochs": 3}]
    plain = {"methods": methods, "datasets": ["lost"], "preset": "paper", "epsilons": [0.1]}
    summary = summarize(ResultStore("nowhere"), Grid.of(plain))
    assert [line.group for line in summary.lines] == ["single", "single", "ensemble"]
    assert summary.attacked == ["RobustPll", "Proden+Ens"]


def test_generated_candidates_are_counted(store: ResultStore) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 2, "noise": "uniform"})
    matrix = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0]], bool)
    store.keep_candidates(grid.runs()[0].noise_key, matrix)
    summary = summarize(store, grid)
    assert summary.candidates == {"digits": (1.75, 0.5)}
    shown = all_tables(summary)["datasets"].texts().iloc[0]
    assert shown[["candidates on average", "one candidate in %"]].tolist() == ["1.75", "50.0"]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.integers(0, 6))
def test_a_thinned_curve_is_the_distribution_function_up_to_one_step(
    seed: int, rows: int, decimals: int
) -> None:
    entropies = np.random.default_rng(seed).beta(0.3, 2, rows).round(decimals)
    points = curve(entropies)
    values, share = distribution(entropies)
    assert len(points) <= CURVE_POINTS
    assert (points[0] == (values[0], share[0])).all()
    assert (points[-1] == (values[-1], 1)).all()
    # Both are monotone, so no point is further from the line than one step along it.
    gaps = np.abs(points[None, :, 0] - values[:, None]) + np.abs(
        points[None, :, 1] - share[:, None]
    )
    assert gaps.min(1).max() <= 2 / (CURVE_POINTS - 1)


def written(summary: Summary, path: Path) -> Path:
    path.write_bytes(summary.to_parquet())
    return path


def test_runs_parquet_holds_all_that_a_report_needs(
    made: Any, store: ResultStore, tmp_path: Path
) -> None:
    grid = ood_grid()
    grid = Grid.of(json.loads(grid.to_json()) | {"datasets": ["mnist", "lost"]})
    keep_entropies(made, store, grid.changed(datasets=["mnist"]))
    facts = {"grid": grid.name, "executor": "1 process", "runs": 2, "seconds": 3.5, "parts": {}}
    store.keep_session("20260102T030405-1", facts)
    before = summarize(store, grid)
    after = read_summary(written(before, tmp_path / "runs.parquet"))
    assert after.grid == before.grid
    assert after.lines == before.lines
    assert after.facts == before.facts
    for name in ("runs", "missing", "ood", "timing"):
        pd.testing.assert_frame_equal(getattr(after, name), getattr(before, name))
    for key, lines in before.curves.items():
        for line, same in zip(lines, after.curves[key], strict=True):
            np.testing.assert_allclose(line, same, atol=1e-5)
    one, two = all_tables(before), all_tables(after)
    assert [t.to_markdown() for t in one.values()] == [t.to_markdown() for t in two.values()]
    assert {"table-2", "sessions", "missing"} <= set(two)
    assert after.to_parquet() == before.to_parquet()


def changed_footer(path: Path, **changes: Any) -> None:
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"robustpll"]) | changes
    pq.write_table(table.replace_schema_metadata({b"robustpll": json.dumps(about)}), path)


def test_a_foreign_or_damaged_runs_parquet_is_refused(
    small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    summary = summarize(full, small)
    sound = written(summary, tmp_path / "sound.parquet").read_bytes()
    names = ("cut", "foreign", "many", "other", "format_2", "unknown")
    cut, foreign, many, other, format_2, unknown = (tmp_path / name for name in names)
    cut.write_bytes(sound[: len(sound) // 2])
    pq.write_table(pa.table({"label": ["a"]}), foreign)
    written(summary, many)
    table = pq.read_table(many)
    repeated = table.take(np.zeros(300_000, int))  # a small file, large in memory
    pq.write_table(repeated.replace_schema_metadata(table.schema.metadata), many)
    assert many.stat().st_size < 1_000_000
    fewer = small.changed(methods=["proden"])
    changed_footer(written(summary, other), grid=json.loads(fewer.to_json()))
    changed_footer(written(summary, format_2), format=2)
    changed_footer(written(summary, unknown), grid={"methods": [{"name": "no such method"}]})
    for path in (cut, foreign, many, other, format_2, unknown, tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match=r"is not the runs\.parquet of a report"):
            read_summary(path)


WORST = {"PlKnn": 0.3, "Proden": 0.1, "RobustPll": 0.5}


def test_a_worst_case_has_its_accuracy_alone_and_a_table_of_its_own(
    made: Any, store: ResultStore
) -> None:
    methods, datasets = ["pl_knn", "proden", "robust_pll"], ["lost", "bird-song", "msrc-v2"]
    values = {"methods": methods, "datasets": datasets, "seeds": 3, "epsilons": [0.1]}
    grid = Grid.of(values | {"audit": {"bird-song": [0.1], "lost": [0.05, 0.02]}})

    def answers(run: Run, condition: Condition) -> Any:
        if not condition.audit:
            return made.of_seed(run, condition)
        noise = 0.001 * ((run.seed * len(run.label)) % 5)
        columns = made.share_right(WORST[run.label] + noise - condition.audit)
        fooled = {"predicted": np.where(columns["predicted"] == 0, 0, -1)}
        return columns | fooled | dict.fromkeys(REALS, np.full(1000, np.nan))

    for run in grid.runs():
        made.keep(store, run, answers)
    summary, plain = summarize(store, grid), summarize(store, replace(grid, audit=()))
    runs = summary.runs.set_index(["label", "dataset", "seed", "condition"])
    row = runs.loc["RobustPll", "lost", 0, "audit 0.05"]
    assert (row["part"], row["epsilon"], row["rows"]) == ("test", 0.05, 1000)
    assert row["accuracy"] == pytest.approx(0.45)
    others = ["guesses", "entropy", "uncertainty", "brier", "log_loss", "ece", "auroc"]
    assert row[others].isna().all()
    tables, without = all_tables(summary), all_tables(plain)
    table = tables.pop("audit")
    assert table.columns == ["BirdSong 0.1", "Lost 0.02", "Lost 0.05"]
    best = table.cells.groupby("label")["bold"].sum().to_dict()
    assert best == {"PlKnn": 0, "Proden": 0, "RobustPll": 3}
    means = table.cells["value"][table.cells["label"] == "RobustPll"].tolist()
    assert means == pytest.approx([40, 48, 45], abs=0.5)
    assert any("first 2,000 test rows" in note for note in table.notes)
    assert strengths(summary, "bird-song") == (0.0, 0.1)
    assert {n: t.to_csv() for n, t in tables.items()} == {n: t.to_csv() for n, t in without.items()}


@pytest.mark.slow
def test_the_command_runs_an_audit(made: Any, tmp_path: Path) -> None:
    grid, store, out = tmp_path / "mine.toml", tmp_path / "store", tmp_path / "out"
    grid.write_text(
        "methods = ['pl_knn']\ndatasets = ['synthetic']\nnoise = 'uniform'\nseeds = 1\n"
        "audit = {synthetic = [0.05]}\n"
    )
    run = made.command("run", grid, "--store", store, "--device", "cpu")
    assert run.exit_code == 0, run.output
    status = made.command("status", "--store", store)
    assert "1 of 1 runs are here; 0 to run" in status.stdout
    report = made.command("report", grid, "--store", store, "--out", out)
    assert report.exit_code == 0, report.output
    runs = pd.read_csv(out / "runs.csv").set_index("condition")
    assert 0 < runs.loc["audit 0.05", "accuracy"] < runs.loc["clean", "accuracy"]
