"""A user's program, checked by mypy and pyright; it is never run.

`assert_type` fails if the type of a public function or attribute changes.
"""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import robustpll
from robustpll import (
    METHODS,
    PGD,
    AutoPGD,
    Candidates,
    Comparison,
    ConformalSets,
    Dataset,
    Decision,
    InputError,
    Not,
    Opinion,
    ParquetRows,
    PLLClassifier,
    RobustPLLClassifier,
    Square,
    Sure,
    Table,
    Unsure,
    Votes,
    calibration_report,
    compare,
    label_variants,
    load,
    load_dataset,
    missing_truth_scores,
    ood_report,
    read_table,
    robustness_report,
)
from robustpll.bench import Grid, ResultStore, run_grid, summarize
from robustpll.callbacks import CSVLogger, EpochState
from robustpll.evaluate.audit import RobustnessReport
from robustpll.evaluate.ood import OodReport
from robustpll.measures.calibration import CalibrationReport
from robustpll.methods import Auto, Proden, RobustPll, Wrapped
from robustpll.model_selection import CandidateKFold


class StopAtTen:
    """A callback needs no base class."""

    def on_epoch_end(self, state: EpochState) -> bool:
        assert_type(state.loss, NDArray[Any])
        return state.epoch >= 10


def labels(X: NDArray[np.float64]) -> Candidates:
    y = Candidates.of([{"cat"}, {"cat", "dog"}], classes=["cat", "dog"])
    assert_type(y, Candidates)
    assert_type(y.matrix, NDArray[np.bool_])
    assert_type(y.prior, NDArray[np.float32])
    assert_type(y.sets(), list[frozenset[Any]])
    assert_type(y[:1], Candidates)
    assert_type(len(y), int)
    votes = Votes([["cat", Not("dog")], [Sure("dog", 0.8), Unsure()]], unanswered="all classes")
    assert_type(votes.annotators, tuple[str, ...])
    assert_type(Votes.long(["x"], ["ann"], ["cat"]), Votes)
    assert_type(label_variants(votes).mapping, dict[str, str | None])
    return Candidates.of(votes)


def models(X: NDArray[np.float64], y: Candidates, path: Path) -> None:
    model = RobustPLLClassifier(epochs=5, random_state=0, callbacks=[StopAtTen(), CSVLogger(path)])
    assert_type(model.fit(X, y), RobustPLLClassifier)
    other = PLLClassifier(Proden(epochs=3), device="cpu", verbose=True).fit(X, y, resume=path)
    assert_type(other, PLLClassifier)
    for method in ("auto", Auto(), RobustPll(kl_ceiling=1.0), Wrapped("random_forest")):
        PLLClassifier(method).fit(X, y)
    assert_type(other.predict(X), NDArray[Any])
    assert_type(other.predict_proba(X), NDArray[np.float64])
    opinion = other.predict_opinion(X, PGD(0.1, steps=10))
    assert_type(opinion, Opinion)
    decision = other.calibrate_decisions(X, y).decide(X, error=0.05)
    assert_type(decision, Decision)
    assert_type(decision.accepted, NDArray[np.bool_])
    assert_type(decision.coverage, float)
    other.recalibrate(X, y).save(path)
    loaded = load(path, device="cpu")
    assert_type(loaded, PLLClassifier | RobustPLLClassifier)
    assert_type(loaded.predict(X), NDArray[Any])
    assert_type(ConformalSets.of(other, X, y).predict_sets(X), list[frozenset[Any]])
    other.predict_opinion(X, AutoPGD(0.1))
    other.predict_opinion(X, Square(0.1, queries=5))


def reports(model: PLLClassifier, X: NDArray[np.float64], truth: NDArray[np.str_]) -> list[float]:
    audit = robustness_report(model, X, truth, (0.1, 0.2), steps=5)
    assert_type(audit, RobustnessReport)
    assert_type(audit.worst, tuple[float, ...])
    far = ood_report(model, X, X + 3, X_train=X)
    assert_type(far, OodReport)
    assert_type(far.to_frame(), pd.DataFrame)
    calibration = calibration_report(model, X, truth)
    assert_type(calibration, CalibrationReport)
    result = compare(X, truth, method="proden", folds=3)
    assert_type(result, Comparison)
    assert_type(result.verdict, str)
    missing_truth_scores(model, X, truth, folds=3)
    return [audit.clean, far.area, calibration.error]


def tables(path: Path) -> None:
    table = read_table(path, votes="vote ", on_bad_rows="skip", text=["review"])
    assert_type(table, Table)
    assert_type(table.features, pd.DataFrame)
    assert_type(table.y, Candidates | Votes | None)
    assert_type(table.annotators, tuple[str, ...])
    rows = ParquetRows(path, candidates="seen", features=["a", "b"])
    training, test = rows.split(0.2)
    PLLClassifier("robust_pll").fit(training)
    assert_type(test.count(), int)
    dataset = load_dataset("digits")
    assert_type(dataset, Dataset)
    assert_type(dataset.split(seed=0).train, NDArray[np.int64])
    for train, test_rows in CandidateKFold(5).split(dataset.features, dataset.candidates):
        assert len(train) > len(test_rows)


def benchmark(path: Path) -> None:
    store = ResultStore(path)
    run_grid(Grid.named("quick"), store, device="cpu", quiet=True)
    assert_type(summarize(store, Grid.named("quick")).runs, pd.DataFrame)


def names() -> list[str]:
    try:
        with robustpll.distributed():
            return [*METHODS, robustpll.__version__]
    except InputError as error:
        return [str(error)]
