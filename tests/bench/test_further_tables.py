"""Calibration, resolved training labels, and methods that run on some of the datasets alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robustpll.bench.accuracy_tables import (
    calibration_table,
    real_world_table,
    resolved_table,
    table_1,
)
from robustpll.bench.contents import all_tables
from robustpll.bench.grid import Condition, Grid, PlannedRun
from robustpll.bench.other_tables import ood_table, timing_table
from robustpll.bench.store import ResultStore
from robustpll.bench.summary import Summary, summarize
from robustpll.bench.tables import ReportTable, Row
from robustpll.measures.calibration import calibration_of

SHARES = {"Proden": 0.5, "RobustPll": 0.7, "Rc": 0.9, "Proden+Ens": 0.6}  # all promise 0.75


def row_of(table: ReportTable | None, label: str) -> Row:
    assert table is not None
    (row,) = (row for row in table.rows if row.label == label)
    return row


def kept(made: Any, store: ResultStore, grid: Grid) -> Summary:
    def answers(planned: PlannedRun, condition: Condition) -> Any:
        if condition.part == "ood":
            return made.unknown([0.5, 0.9])
        seed = 0.001 * ((planned.run.seed * len(planned.label)) % 3)
        return made.share_right(SHARES[planned.label] + seed - 0.2 * (condition.part == "test"))

    for planned in grid.runs():
        made.keep(store, planned, answers)
    return summarize(store, grid)


def asked(**changes: Any) -> Grid:
    plain = {
        "methods": ["proden", "robust_pll", "rc", "proden_ens"],
        "datasets": ["lost", "msrc-v2"],
    }
    return Grid.of(plain | {"seeds": 3} | changes)


def test_the_calibration_error_is_that_of_the_probabilities_themselves(
    made: Any, store: ResultStore
) -> None:
    grid = Grid.of({"methods": ["proden"], "datasets": ["lost"], "seeds": 1})
    draws = np.random.default_rng(0)
    probability = draws.dirichlet(np.ones(2), 200)
    truth = np.where(draws.random(200) < probability[:, 0] ** 2, 0, 1)
    predicted = probability.argmax(-1)
    columns = made.predictions(truth == predicted) | {
        "truth": truth,
        "predicted": predicted,
        "probability": probability.max(-1),
    }
    made.keep(store, grid.runs()[0], lambda *_: columns)
    (row,) = summarize(store, grid).runs.to_dict("records")
    assert row["ece"] == pytest.approx(calibration_of(probability, truth).error, abs=1e-6)
    assert row["ece"] > 0.05


def test_rows_of_no_known_class_have_no_calibration_error(made: Any, store: ResultStore) -> None:
    runs = kept(made, store, asked(ood=[["lost", "msrc-v2"]])).runs
    assert runs[runs["part"] == "ood"]["ece"].isna().all()
    assert runs[runs["part"] == "test"]["ece"].notna().all()


def test_of_calibration_less_is_better(made: Any, store: ResultStore) -> None:
    table = calibration_table(kept(made, store, asked()))
    assert table is not None
    assert table.columns == ("Lost", "MSRCv2")
    values = {row.label: row.cells[0].value for row in table.rows}
    expected = {label: 100 * (0.75 - share + 0.2) for label, share in SHARES.items()}
    assert values == pytest.approx(expected, abs=0.3)
    assert [row.label for row in table.rows if row.cells[0].bold] == ["Rc", "Proden+Ens"]
    assert any(note.startswith("Less is better") for note in table.notes)


def test_of_one_seed_the_least_calibration_error_is_bold(made: Any, store: ResultStore) -> None:
    table = calibration_table(kept(made, store, asked(seeds=1)))
    assert table is not None
    assert [row.label for row in table.rows if row.cells[0].bold] == ["Rc", "Proden+Ens"]


def test_training_labels_that_are_resolved_have_a_table_where_they_are_asked_for(
    made: Any, store: ResultStore
) -> None:
    summary = kept(made, store, asked(train_rows=True))
    table = resolved_table(summary)
    assert row_of(table, "RobustPll").cells[1].value == pytest.approx(70, abs=0.3)
    assert row_of(table_1(summary), "RobustPll").cells[0].value == pytest.approx(50, abs=0.3)
    assert row_of(table, "Rc").cells[0].bold
    assert resolved_table(summarize(store, replace(summary.grid, train_rows=False))) is None


PARTS: list[Any] = [
    "proden",
    {"name": "rc", "epochs": 7, "datasets": ["lost"]},
    {"name": "rc", "epochs": 9, "datasets": ["fg-net"]},
]


def test_entries_of_one_label_are_one_line(made: Any, store: ResultStore) -> None:
    grid = asked(methods=PARTS, datasets=["lost", "msrc-v2", "fg-net"])
    summary = kept(made, store, grid)
    assert [line.label for line in summary.lines] == ["Proden", "Rc"]
    assert summary.missing.empty
    assert row_of(timing_table(summary), "Rc").cells[0].value == 6
    (extra,) = (table for table in all_tables(summary) if table.name == "extra")
    assert row_of(extra, "Rc").cells[0].complete


def test_a_method_is_not_held_against_others_where_it_runs_on_fewer_datasets(
    made: Any, store: ResultStore
) -> None:
    grid = asked(methods=PARTS, datasets=["lost", "msrc-v2", "fg-net"])
    summary = kept(made, store, grid)
    pooled = row_of(table_1(summary), "Rc").cells[0]
    assert (pooled.runs, pooled.asked, pooled.bold) == (3, 6, False)
    assert row_of(table_1(summary), "Proden").cells[0].bold
    lost, msrc = row_of(real_world_table(summary), "Rc").cells
    assert lost.bold
    assert (msrc.value, msrc.note) == (None, "not asked for")


def test_the_table_of_entropies_has_the_methods_that_run_there(
    made: Any, store: ResultStore
) -> None:
    grid = asked(methods=PARTS, datasets=["msrc-v2", "lost", "fg-net"], ood=[["msrc-v2", "lost"]])
    table = ood_table(kept(made, store, grid), "msrc-v2", "lost")
    assert table is not None
    assert [row.label for row in table.rows] == ["Proden"]
    assert not any("Not all runs" in note for note in table.notes)
