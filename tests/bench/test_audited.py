"""The worst case as a condition of a run: how it is asked for, computed, stored and shown."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll import InputError, load_dataset
from robustpll.bench import worker
from robustpll.bench.bundles import bundles
from robustpll.bench.grid import Condition, Grid, Run, present
from robustpll.bench.report import write_report
from robustpll.bench.store import REALS, ResultStore, RunResult
from robustpll.bench.summary import summarize
from robustpll.bench.tables import all_tables, strengths
from robustpll.bench.worker import compute
from robustpll.cli import app
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.evaluate.audit import Audit
from robustpll.methods import Proden

# Of 360 test rows, and of the steps of an audit: all of it takes ten seconds and more.
ROWS = 40
QUICK: dict[str, Any] = {"steps": 10, "restarts": 1, "queries": 50, "twin_epochs": 3}
WITH_AUDIT = """
methods = ["proden", "pl_knn"]
datasets = ["digits", "lost"]
seeds = 2
noise = "uniform"
epsilons = [0.1]
epochs = 5
train_rows = true
audit = {lost = [0.05, 0.02]}
"""


def mine(folder: Path, text: str) -> Grid:
    path = folder / "mine.toml"
    path.write_text(text)
    return Grid.read(path)


def test_a_dataset_is_audited_for_all_methods_after_the_published_attack(tmp_path: Path) -> None:
    grid = mine(tmp_path, WITH_AUDIT)
    assert grid.audit == (("lost", (0.05, 0.02)),)
    names = {
        (each.label, each.dataset): [
            one.name for one in sorted(each.conditions, key=lambda one: one.order)
        ]
        for each in grid.runs()
    }
    worst = ["audit 0.02", "audit 0.05"]
    assert names["Proden", "lost"] == ["clean", "clean", "pgd 0.1", *worst]
    assert names["PlKnn", "lost"] == ["clean", "clean", *worst]
    assert names["Proden", "digits"] == ["clean", "clean", "pgd 0.1"]


def test_an_audit_survives_json_and_leaves_with_its_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = mine(tmp_path, WITH_AUDIT)
    assert Grid.of_json(grid.to_json()) == grid
    assert grid.changed(datasets=["digits"]).audit == ()
    assert grid.changed(datasets=["lost"]).audit == grid.audit
    for name in ("ROBUSTPLL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    here, _ = present(grid)
    assert here is not None
    assert (here.datasets, here.audit) == (("digits",), ())


def test_conditions_that_were_stored_before_there_were_audits_are_the_same() -> None:
    stored = {"part": "test", "epsilon": 0.1, "ood": ""}
    told = {"format": 1, "key": "k", "description": {}, "facts": {}}
    told |= {"seconds": {"train": 1.0, "examine": 1.0}}
    assert RunResult.of_json({**told, "conditions": [stored]}, "k").conditions == (
        Condition("test", 0.1),
    )


def test_a_run_that_was_not_audited_is_missing_and_keeps_its_other_conditions(
    made: Any, store: ResultStore
) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1, "epsilons": [0.1]})
    made.keep(store, grid.runs()[0], made.of_seed)
    assert store.missing(grid.runs()) == []
    audited = replace(grid, audit=(("lost", (0.02,)),), epsilons=())
    [again] = store.missing(audited.runs())
    assert [each.name for each in again.conditions] == ["clean", "pgd 0.1", "audit 0.02"]
    summary = summarize(store, audited)
    assert summary.missing["condition"].tolist() == ["audit 0.02"]
    assert summary.missing["epsilon"].tolist() == [0.02]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit = {mnist = [0.1]}", "mnist"),
        ("audit = {lost = []}", "epsilons above 0"),
        ("audit = {lost = [0.0]}", "epsilons above 0"),
        ("audit = {lost = [0.1, 0.1]}", "each once"),
        ("audit = {lost = [inf]}", "above 0"),
        ("audit = {lost = ['much']}", "much"),
        ("audit = {lost = 0.1}", "audit must be a table"),
        ("audit = [0.1]", "audit must be a table"),
    ],
)
def test_an_audit_that_cannot_be_meant_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError, match=r"mine\.toml") as refused:
        mine(tmp_path, f"datasets = ['lost']\n{line}")
    assert said in str(refused.value)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST_AUDITED", ROWS)
    monkeypatch.setattr(worker, "Audit", partial(Audit, **QUICK))


def audited(method: str, *, joined: bool) -> dict[str, pd.DataFrame]:
    """What is stored of two seeds of digits, by the key of the run."""
    asked = {"methods": [method], "datasets": ["digits"], "seeds": 2, "epochs": 3}
    grid = Grid.of(asked | {"noise": "uniform", "audit": {"digits": [0.1, 0.02]}})
    digits, truth = load_dataset("digits"), np.eye(10, dtype=bool)
    known = {
        run.noise_key: truth[digits.labels[digits.split(run.seed).train]] for run in grid.runs()
    }
    frames = {}
    for bundle in bundles(grid.runs(), joined=joined):
        results = compute(bundle.with_candidates(known)).results
        frames |= {result.key: result.table.to_pandas() for result in results}
    return frames


@pytest.mark.parametrize("method", ["proden", "pl_knn"])
def test_what_is_stored_says_which_rows_withstood_everything(few: None, method: str) -> None:
    for frame in audited(method, joined=True).values():
        clean = frame[frame["condition"] == "clean"].iloc[:ROWS]
        parts = [frame[frame["condition"] == f"audit {each}"] for each in (0.02, 0.1)]
        for part in parts:
            assert part["row"].tolist() == clean["row"].tolist()
            assert part["truth"].tolist() == clean["truth"].tolist()
            assert part[list(REALS)].isna().all(axis=None)
            assert not part["guess"].any()
        right = [(part["predicted"] == part["truth"]).to_numpy() for part in parts]
        first = (clean["predicted"] == clean["truth"]).to_numpy()
        assert (right[0] <= first).all(), "who is wrong without attack withstands none"
        assert (right[1] <= right[0]).all(), "nor does who moved by more already"
        assert right[1].sum() < right[0].sum()


def test_a_bundle_is_audited_as_its_runs_alone(few: None) -> None:
    together, alone = audited("proden", joined=True), audited("proden", joined=False)
    assert together.keys() == alone.keys()
    for key, one in together.items():
        worst, other = (
            frame[frame["condition"].str.startswith("audit")] for frame in (one, alone[key])
        )
        assert (worst["predicted"].to_numpy() == other["predicted"].to_numpy()).mean() > 0.97


def test_what_is_stored_is_the_worst_case_of_a_report(few: None) -> None:
    problem = Problem.of(load_dataset("digits"), Uniform(), (3,), device="cpu")
    fitted = Proden(epochs=3).fit(problem.task)
    grid = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": [3]})
    planned = replace(grid, audit=(("digits", (0.05, 0.1)),)).runs()
    [table] = worker.evaluate(fitted, planned, problem)
    frame = table.to_pandas()
    rows = replace(problem.test, at=problem.test.at[:, :ROWS])
    [report] = Audit((0.05, 0.1), **QUICK).reports(fitted, rows, problem.test_labels[:, :ROWS])
    for epsilon, share in zip(report.epsilons, report.worst, strict=True):
        own = frame[frame["condition"] == f"audit {epsilon}"]
        assert (own["predicted"] == own["truth"]).mean() == pytest.approx(share)


@pytest.mark.data
def test_real_rows_are_audited_as_the_grid_says(few: None) -> None:
    small = {"methods": ["robust_pll_at"], "datasets": ["lost"], "seeds": (0, 1), "epochs": 3}
    [bundle] = bundles(Grid.named("audit").changed(**small).runs(), joined=True)
    results = compute(bundle).results
    assert len(results) == 2
    for result in results:
        frame = result.table.to_pandas()
        right = (frame["predicted"] == frame["truth"]).groupby(frame["condition"]).mean()
        assert list(right.index) == ["clean", "audit 0.02", "audit 0.05"]
        assert right.iloc[1:].is_monotonic_decreasing
        assert frame["part"].value_counts().to_dict() == {"train": 897, "test": 225 + 2 * ROWS}


def worst_case(made: Any, share: float, n: int = 1000) -> dict[str, Any]:
    """As a worker stores it."""
    found = made.share_right(share, n)
    nothing = {name: np.full(n, np.nan) for name in REALS}
    return found | nothing | {"predicted": np.where(found["predicted"] == 0, 0, -1)}


@pytest.fixture
def lost_and_birds() -> Grid:
    return Grid.of(
        {
            "name": "worst",
            "methods": ["pl_knn", "proden", "robust_pll"],
            "datasets": ["lost", "bird-song", "msrc-v2"],
            "seeds": 3,
            "epsilons": [0.1],
            "audit": {"bird-song": [0.1], "lost": [0.05, 0.02]},
        }
    )


WORST = {"PlKnn": 0.3, "Proden": 0.1, "RobustPll": 0.5}


@pytest.fixture
def kept(lost_and_birds: Grid, store: ResultStore, made: Any) -> ResultStore:
    def answers(planned: Run, condition: Condition) -> Any:
        if condition.audit:
            noise = 0.001 * ((planned.seed * len(planned.label)) % 5)
            return worst_case(made, WORST[planned.label] + noise - condition.audit)
        return made.of_seed(planned, condition)

    for planned in lost_and_birds.runs():
        made.keep(store, planned, answers)
    return store


def test_a_worst_case_has_its_accuracy_and_no_other_measure(
    kept: ResultStore, lost_and_birds: Grid, tmp_path: Path
) -> None:
    write_report(summarize(kept, lost_and_birds), tmp_path)
    runs = pd.read_csv(tmp_path / "runs.csv").set_index(["label", "dataset", "seed", "condition"])
    row = runs.loc["RobustPll", "lost", 0, "audit 0.05"]
    assert (row["part"], row["epsilon"], row["rows"]) == ("test", 0.05, 1000)
    assert row["accuracy"] == pytest.approx(0.45)
    others = ["guesses", "entropy", "uncertainty", "brier", "log_loss", "ece", "auroc"]
    assert row[others].isna().all()


def test_the_table_of_the_worst_case_has_a_column_for_each_dataset_and_epsilon(
    kept: ResultStore, lost_and_birds: Grid, tmp_path: Path
) -> None:
    summary = summarize(kept, lost_and_birds)
    table = all_tables(summary)["audit"]
    assert table.title == "Worst case under the audit, accuracy in percent"
    assert table.columns == ["BirdSong 0.1", "Lost 0.02", "Lost 0.05"]
    best = table.cells.groupby("label")["bold"].sum().to_dict()
    assert best == {"PlKnn": 0, "Proden": 0, "RobustPll": 3}
    means = table.cells["value"][table.cells["label"] == "RobustPll"].tolist()
    assert means == pytest.approx([40, 48, 45], abs=0.5)
    assert any("first 2,000 test rows" in note for note in table.notes)
    page = write_report(summary, tmp_path).read_text()
    assert table.title in page
    assert "<h2>Worst case under the audit</h2>" in page
    assert {path.suffix for path in (tmp_path / "tables").glob("audit.*")} == {
        *(".md", ".tex", ".csv")
    }


def test_an_audit_changes_no_other_table(kept: ResultStore, lost_and_birds: Grid) -> None:
    audited = summarize(kept, lost_and_birds)
    plain = summarize(kept, replace(lost_and_birds, audit=()))
    assert strengths(audited, "bird-song") == (0.0, 0.1)
    with_audit, without = all_tables(audited), all_tables(plain)
    assert [name for name in with_audit if name != "audit"] == list(without)
    assert "audit" in with_audit
    for name, table in without.items():
        assert table.to_csv() == with_audit[name].to_csv()


@pytest.mark.slow
def test_the_command_runs_an_audit(tmp_path: Path) -> None:
    asked = tmp_path / "mine.toml"
    asked.write_text(
        "methods = ['pl_knn']\ndatasets = ['synthetic']\nnoise = 'uniform'\nseeds = 1\n"
        "audit = {synthetic = [0.05]}\n"
    )
    store, out = str(tmp_path / "store"), tmp_path / "out"
    run = CliRunner().invoke(app, ["bench", "run", str(asked), "--store", store, "--device", "cpu"])
    assert run.exit_code == 0, run.output
    status = CliRunner().invoke(app, ["bench", "status", "--store", store])
    assert "1 of 1 runs are here; 0 to run" in status.stdout
    told = CliRunner().invoke(
        app, ["bench", "report", str(asked), "--store", store, "--out", str(out)]
    )
    assert told.exit_code == 0, told.output
    runs = pd.read_csv(out / "runs.csv").set_index("condition")
    assert 0 < runs.loc["audit 0.05", "accuracy"] < runs.loc["clean", "accuracy"]
