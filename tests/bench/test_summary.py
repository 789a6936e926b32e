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
from robustpll.bench.tables import all_tables
from robustpll.measures.calibration import calibration_of
from robustpll.measures.metrics import distribution

OOD_GRID = Grid.of(
    {"methods": ["proden"], "datasets": ["mnist", "lost"], "seeds": 2, "ood": [["mnist", "lost"]]}
)


@pytest.fixture
def ood_store(made: Any, store: ResultStore) -> ResultStore:
    """The runs of `OOD_GRID` on MNIST, two rows of each part with each seed."""
    test, ood = [(0, 0.1), (0.1, 0.3)], [(0.2, 0.6), (0.9, 1.0)]

    def answers(run: Run, condition: Condition) -> dict[str, Any]:
        known = condition.part == "test"
        return made.predictions([1, 1], test[run.seed]) if known else made.unknown(ood[run.seed])

    for run in OOD_GRID.runs():
        if run.dataset == "mnist":
            made.keep(store, run, answers)
    return store


def test_runs_have_a_row_for_each_condition_in_the_grids_order_whatever_that_of_files_and_rows(
    made: Any, small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    runs = summarize(full, small).runs
    planned = [(r.label, r.dataset, r.seed, c.name) for r in small.runs() for c in r.conditions]
    rows = runs[["label", "dataset", "seed", "condition"]].itertuples(index=False, name=None)
    assert list(rows) == planned
    attacked = runs[(runs["label"] == "Proden") & (runs["epsilon"] == 0.1)]
    assert attacked["accuracy"].tolist() == pytest.approx([0.4, 0.41, 0.42] * 3)
    other, generator = ResultStore(tmp_path / "other"), np.random.default_rng(0)

    def shuffled(run: Run, condition: Condition) -> dict[str, Any]:
        columns = made.of_seed(run, condition)
        order = generator.permutation(len(columns["row"]))
        return {name: column[order] for name, column in columns.items()}

    for index in generator.permutation(len(small.runs())):
        run = small.runs()[index]
        made.keep(other, run, shuffled, conditions=run.conditions[::-1])
    pd.testing.assert_frame_equal(runs, summarize(other, small).runs)


def test_measures_of_a_run_are_those_of_its_predictions(made: Any, store: ResultStore) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    draws = np.random.default_rng(0)
    probability = draws.dirichlet(np.ones(2), 200)
    truth = np.where(draws.random(200) < probability[:, 0] ** 2, 0, 1)
    predicted, of_truth = probability.argmax(-1), probability[np.arange(200), truth]
    columns = made.predictions(truth == predicted) | {
        "truth": truth,
        "predicted": predicted,
        "probability": probability.max(-1),
        "probability_of_truth": of_truth,
        "probability_squared": (probability**2).sum(-1),
        "guess": np.arange(200) < 50,
    }
    columns["entropy"][:100] = np.repeat([0, np.nan], 50)  # an entropy that is missing counts as 1
    made.keep(store, grid.runs()[0], lambda *_: columns, seconds=(3.0, 0.5))
    (row,) = summarize(store, grid).runs.to_dict("records")
    assert (row["rows"], row["guesses"], row["entropy"], row["uncertainty"]) == (
        200,
        *[0.25, 0.5, 0.25],
    )
    assert row["accuracy"] == (truth == predicted).mean()
    assert row["brier"] == pytest.approx(((probability - np.eye(2)[truth]) ** 2).sum(-1).mean())
    assert row["log_loss"] == pytest.approx(-np.log(of_truth).mean(), abs=1e-5)
    assert row["ece"] == pytest.approx(calibration_of(probability, truth).error, abs=1e-6)
    assert row["ece"] > 0.05
    assert (row["seconds_train"], row["seconds_examine"]) == (3.0, 0.5)
    assert (row["machine"], row["torch"], row["date"]) == ("a machine", "2", "2026-01-02")


CERTAIN = [0.99, 0.98, 0.97, 0.97, 0.9, 0.8, 0.6, 0.5]


@pytest.mark.parametrize(
    ("probability", "wrong", "expected"),  # accepted, wrong of them, acceptable
    [
        # the mean of 1 - p is 0.038 over five rows, 0.065 over six
        (CERTAIN, [0], (5 / 8, 1 / 5, 0)),
        (CERTAIN, [4], (5 / 8, 1 / 5, 4 / 8)),
        (CERTAIN, [3], (5 / 8, 1 / 5, 2 / 8)),  # a tie is accepted as a whole
        (CERTAIN, [], (5 / 8, 0, 1)),
        ([0.9, 0.9, 0.6, 0.6], [3], (0, np.nan, 2 / 4)),
        ([1.0, 1.0, 1.0, 1.0], [0, 1], (1, 1 / 2, 0)),
        ([0.99] * 39 + [0.98], [39], (1, 1 / 40, 1)),  # below 5 %
    ],
)
def test_a_model_accepts_what_it_promises_and_the_best_threshold_what_is_right(
    made: Any, store: ResultStore, probability: list[float], wrong: list[int], expected: Any
) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    order = np.random.default_rng(0).permutation(len(probability))
    columns = made.predictions(~np.isin(np.arange(len(probability)), wrong)[order])
    columns["probability"] = np.array(probability)[order]
    made.keep(store, grid.runs()[0], lambda *_: columns)
    (row,) = summarize(store, grid).runs.to_dict("records")
    shares = tuple(row[name] for name in ("accepted", "accepted_error", "acceptable"))
    assert shares == pytest.approx(expected, nan_ok=True)


def test_labels_are_accepted_at_a_stricter_promise(made: Any, store: ResultStore) -> None:
    """The mean of 1 - p is 0.005 over three rows, 0.029 over four."""
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    columns = made.predictions(np.array([True, False, True, True]))
    columns["probability"] = np.array([0.999, 0.995, 0.99, 0.9])
    made.keep(store, grid.runs()[0], lambda *_: columns)
    (row,) = summarize(store, grid).runs.to_dict("records")
    assert (row["labels_accepted"], row["accepted"]) == (3 / 4, 1)
    assert row["labels_accepted_error"] == pytest.approx(1 / 3)


def test_entropies_are_pooled_over_seeds_as_the_paper_does(ood_store: ResultStore) -> None:
    summary = summarize(ood_store, OOD_GRID)
    (row,) = summary.ood.to_dict("records")
    assert (row["seeds"], row["area"], row["ks"]) == (2, pytest.approx(0.35), 0.75)
    assert row["gamma"] == pytest.approx(3.224994, rel=0.05)  # of 10,000 pairs, not of all
    assert row["mmd"] == pytest.approx(0.771688, abs=0.005)
    test, _ = summary.curves["Proden", "mnist", "lost"]
    np.testing.assert_allclose(test, [[0, 0.25], [0.1, 0.75], [0.3, 1]])
    ood = summary.runs[summary.runs["part"] == "ood"]
    assert (
        ood[["accuracy", "brier", "log_loss", "ece", "accepted", "acceptable"]]
        .isna()
        .all(axis=None)
    )
    assert ood[["auroc", "ks", "area", "entropy"]].notna().all(axis=None)


def test_runs_that_are_missing_failed_or_damaged_are_named_and_have_no_row(
    made: Any, small: Grid, full: ResultStore
) -> None:
    gone, failed, _, damaged, partial, *_ = (r for r in small.runs() if r.label == "Proden")
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
    both = {key: ["clean", "pgd 0.1"] for key in (("lost", 0), ("lost", 1), ("msrc-v2", 0))}
    assert rows == both | {("msrc-v2", 1): ["pgd 0.1"]}
    sentences = missing.drop_duplicates("reason").set_index("reason")["sentence"]
    assert set(sentences.index) == {"not run", "failed", "unreadable"}
    assert sentences["failed"] == "No memory is left."
    assert "damaged" in sentences["unreadable"]
    assert str(full.root) not in sentences["unreadable"]


def test_a_dataset_without_any_run_differs_from_runs_that_were_not_done(
    made: Any, small: Grid, store: ResultStore
) -> None:
    nothing = summarize(store, small)
    assert (nothing.stored, len(nothing.runs)) == ((), 0)
    assert list(all_tables(nothing)) == ["datasets", "missing"]
    assert len(nothing.missing) == sum(len(run.conditions) for run in small.runs())
    for run in small.runs():
        if run.dataset == "lost" and run.label == "Proden":
            made.keep(store, run, made.of_seed)
    missing = summarize(store, small).missing.set_index("dataset")
    assert set(missing.loc["lost", "reason"]) == {"not run"}
    assert set(missing.loc["fg-net", "reason"]) == {"no data"}
    assert "No run on FG-NET" in missing.loc["fg-net", "sentence"].iloc[0]


def test_runs_of_other_grids_do_not_count_and_lines_know_groups_attacks_and_times(
    small: Grid, full: ResultStore
) -> None:
    fewer = summarize(full, small.changed(methods=["proden"], seeds=(1,)))
    assert set(zip(fewer.runs["label"], fewer.runs["seed"], strict=True)) == {("Proden", 1)}
    assert fewer.missing.empty
    summary = summarize(full, small)
    assert [line.group for line in summary.lines] == ["single"] * 3 + ["ensemble"]
    assert summary.attacked == ["Proden", "RobustPll", "Proden+Ens"]
    assert summary.timing["runs"].tolist() == [9, 9, 9, 9]
    assert summary.timing.loc["Proden"].tolist() == [9, pytest.approx(18), pytest.approx(9)]


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
    points, line = curve(entropies), np.column_stack(distribution(entropies))
    assert len(points) <= CURVE_POINTS
    assert (points[[0, -1]] == line[[0, -1]]).all()
    # Both are monotone, so no point is further from the line than one step along it.
    gaps = np.abs(points[None] - line[:, None]).sum(-1)
    assert gaps.min(1).max() <= 2 / (CURVE_POINTS - 1)


def written(summary: Summary, path: Path) -> Path:
    path.write_bytes(summary.to_parquet())
    return path


def test_runs_parquet_holds_all_that_a_report_needs(ood_store: ResultStore, tmp_path: Path) -> None:
    before = summarize(ood_store, OOD_GRID)
    after = read_summary(written(before, tmp_path / "runs.parquet"))
    assert (after.grid, after.lines, after.facts) == (before.grid, before.lines, before.facts)
    for name in ("runs", "missing", "ood", "timing"):
        pd.testing.assert_frame_equal(getattr(after, name), getattr(before, name))
    for key, lines in before.curves.items():
        for line, same in zip(lines, after.curves[key], strict=True):
            np.testing.assert_allclose(line, same, atol=1e-5)
    one, two = all_tables(before), all_tables(after)
    assert [t.to_markdown() for t in one.values()] == [t.to_markdown() for t in two.values()]
    assert {"ood-mnist-lost", "missing"} <= set(two)
    assert after.to_parquet() == before.to_parquet()


def test_a_foreign_or_damaged_runs_parquet_is_refused(
    small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    sound = written(summarize(full, small), tmp_path / "sound")
    table = pq.read_table(sound)
    about = json.loads(table.schema.metadata[b"robustpll"])
    (tmp_path / "cut").write_bytes(sound.read_bytes()[: sound.stat().st_size // 2])
    pq.write_table(pa.table({"label": ["a"]}), tmp_path / "foreign")
    pq.write_table(table.drop_columns("key"), tmp_path / "fewer columns")
    repeated = table.take(np.zeros(300_000, int))  # a small file, large in memory
    pq.write_table(repeated.replace_schema_metadata(table.schema.metadata), tmp_path / "many")
    assert (tmp_path / "many").stat().st_size < 1_000_000
    footers = {
        "other grid": {"grid": json.loads(small.changed(methods=["proden"]).to_json())},
        "other format": {"format": 2},
        "unknown method": {"grid": {"methods": [{"name": "no such method"}]}},
    }
    for name, changes in footers.items():
        footer = {b"robustpll": json.dumps(about | changes)}
        pq.write_table(table.replace_schema_metadata(footer), tmp_path / name)
    names = ("cut", "foreign", "fewer columns", "many", *footers, ".", "absent")
    for name in names:
        with pytest.raises(InputError, match=r"is not the runs\.parquet of a report"):
            read_summary(tmp_path / name)


def test_a_runs_parquet_may_lack_a_measure_that_was_added_later(
    small: Grid, full: ResultStore, tmp_path: Path
) -> None:
    path = written(summarize(full, small), tmp_path / "runs.parquet")
    later = ["brier", "accepted", "accepted_error", "acceptable"]
    pq.write_table(pq.read_table(path).drop_columns(later), path)
    summary = read_summary(path)
    runs, tables = summary.runs, all_tables(summary)
    assert runs[later].isna().all(axis=None)
    assert not {"accepted", "accepted-error", "acceptable"} & tables.keys()
    assert runs["accuracy"].notna().all()


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
    others += ["accepted", "accepted_error", "acceptable"]
    assert row[others].isna().all()
    tables, without = all_tables(summary), all_tables(plain)
    table = tables.pop("audit")
    assert table.columns == ["BirdSong 0.1", "Lost 0.02", "Lost 0.05"]
    best = table.cells.groupby("label")["bold"].sum().to_dict()
    assert best == {"PlKnn": 0, "Proden": 0, "RobustPll": 3}
    means = table.cells["value"][table.cells["label"] == "RobustPll"].tolist()
    assert means == pytest.approx([40, 48, 45], abs=0.5)
    assert any("first 2,000 test rows" in note for note in table.notes)
    assert summary.strengths("bird-song") == (0.0, 0.1)
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
    assert "1 of 1 runs are here; 0 to run" in made.command("status", "--store", store).stdout
    report = made.command("report", grid, "--store", store, "--out", out)
    assert report.exit_code == 0, report.output
    runs = pd.read_csv(out / "runs.csv").set_index("condition")
    assert 0 < runs.loc["audit 0.05", "accuracy"] < runs.loc["clean", "accuracy"]
