"""What trains together, and what a worker computes: bundles, OOD rows, ties, audits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from robustpll import METHODS, load_dataset
from robustpll.bench import worker
from robustpll.bench.grid import Grid, runs_here
from robustpll.bench.store import REALS, ResultStore
from robustpll.bench.summary import summarize
from robustpll.bench.worker import MOST_SECONDS, bundles, compute, perform
from robustpll.datasets.dataset import Dataset, Split
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.errors import RobustPLLError
from robustpll.evaluate.audit import Audit
from robustpll.measures.people import People
from robustpll.methods import Method, Proden

TRAIN, TEST = 300, 120
PAPER = Grid.named("paper")
DIGITS: dict[str, Any] = {"datasets": ["digits"], "noise": "uniform"}
# Of 360 test rows, and of the steps of an audit: all of it takes ten seconds and more.
AUDITED = 40
QUICK: dict[str, Any] = {"steps": 10, "restarts": 1, "queries": 50, "twin_epochs": 3}


def frames_of(grid: Grid, known: dict[str, Any], *, joined: bool) -> dict[str, pd.DataFrame]:
    """What is stored of each run, by its key, given candidates by noise key."""
    frames = {}
    for bundle in bundles(grid.runs(), joined=joined):
        tables = compute(bundle.with_candidates(known)).tables
        frames |= {key: table.to_pandas() for key, table in zip(bundle.keys, tables, strict=True)}
    return frames


def true_classes(grid: Grid, given: Dataset | None = None) -> dict[str, Any]:
    """Candidates that are the true classes of the training rows, by noise key."""
    known = {}
    for run in grid.runs():
        dataset = given or load_dataset(run.dataset)
        known[run.noise_key] = np.eye(10, dtype=bool)[dataset.labels[dataset.split(run.seed).train]]
    return known


def test_bundles_have_every_run_once_and_can_be_stacked_and_the_longest_come_first() -> None:
    runs = PAPER.runs()
    for joined in (True, False):
        cut = bundles(runs, joined=joined)
        assert sorted(key for b in cut for key in b.keys) == sorted(run.key for run in runs)
        seconds = [bundle.seconds for bundle in cut]
        assert seconds == sorted(seconds, reverse=True)
        for bundle in cut:
            methods = [run.method for run in bundle.runs]
            type(methods[0]).stacked(methods)  # raises if they cannot be
    assert all(len(bundle.runs) == 1 for bundle in cut), "on a CPU a rest is cut like the whole"


def test_a_method_that_trains_an_encoder_of_pictures_is_not_left_to_the_end() -> None:
    """On an H200, that of DstPll took longer than any other bundle of the paper."""
    cut = [b for b in bundles(PAPER.runs(), joined=True) if b.place == "cuda"]
    names = [(b.runs[0].method.name, b.runs[0].dataset) for b in cut]
    assert names.index(("dst_pll", "mnist")) < names.index(("proden", "mnist"))
    assert names.index(("dst_pll", "lost")) > names.index(("proden", "lost"))


def test_bundles_join_equal_shapes_and_leave_methods_for_the_host_off_the_gpu() -> None:
    cut = bundles(PAPER.runs(), joined=True)
    places = {bundle.runs[0].method.name: bundle.place for bundle in cut}
    assert {name for name, place in places.items() if place == "cpu"} == {"pl_svm", "pl_ecoc"}
    of_proden = [bundle for bundle in cut if bundle.runs[0].method == Proden.paper()]
    models = {tuple(dict.fromkeys(run.dataset for run in b.runs)): b.models for b in of_proden}
    assert models["mnist", "fmnist", "kmnist"] == 15
    assert set(models.values()) == {5, 15}


def test_numbers_may_differ_within_a_bundle_and_other_fields_not() -> None:
    fields = {"a": {"kl_ceiling": 0.5}, "b": {"kl_ceiling": 2.0}, "c": {"batch_size": 64}}
    kinds = [{"name": "robust_pll", "label": label} | one for label, one in fields.items()]
    grid = Grid.of(DIGITS | {"methods": kinds, "seeds": 2})
    labels = [{run.label for run in bundle.runs} for bundle in bundles(grid.runs(), joined=True)]
    assert sorted(map(sorted, labels)) == [["a", "b"], ["c"]]


def test_bundles_stay_within_memory_and_a_kill_loses_minutes_at_most() -> None:
    few = ["proden_ens", "robust_pll", "dst_pll", "valen"]
    many = bundles(PAPER.changed(methods=few, seeds=tuple(range(100))).runs(), joined=True)
    assert max(bundle.models for bundle in many) == 100
    assert all(bundle.seconds <= MOST_SECONDS for bundle in many if len(bundle.runs) > 1)


def test_noise_is_drawn_once_for_all_methods_and_each_kind_apart() -> None:
    together = bundles(PAPER.runs(), joined=True, draw_noise=True)
    assert sorted(len(bundle.runs) for bundle in together) == [5, 15]
    assert len(bundles(PAPER.runs(), joined=False, draw_noise=True)) == 20
    [run] = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 1}).runs()
    assert len(bundles([run, replace(run, noise=Uniform())], joined=True, draw_noise=True)) == 2


@pytest.fixture
def pictures(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpublished: Callable[..., None]
) -> None:
    """Two picture sets of one shape: digits, and the same lying on their side."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    scans, labels = load_digits(return_X_y=True)
    upright = (scans.reshape(-1, 8, 8) * 15).astype(np.uint8)
    for name, values in (("mnist", upright), ("kmnist", upright.transpose(0, 2, 1))):
        sums = []
        for part, rows in (("train", slice(TRAIN)), ("t10k", slice(TRAIN, TRAIN + TEST))):
            sums += made.write_pictures(tmp_path / name, part, values[rows], labels[rows])
        unpublished(name, sums)


@pytest.mark.parametrize("method", ["proden", "robust_pll_ens", "ipal"])
def test_datasets_of_one_shape_train_at_once_and_are_told_apart(
    pictures: None, method: str
) -> None:
    values = {"methods": [method], "datasets": ["mnist", "kmnist"], "seeds": 2, "epochs": 3}
    grid = Grid.of(values | {"noise": "uniform", "ood": [["mnist", "kmnist"]]})
    assert [len(bundles(grid.runs(), joined=joined)) for joined in (True, False)] == [1, 4]
    known = true_classes(grid)
    together, alone = (frames_of(grid, known, joined=joined) for joined in (True, False))
    for run in grid.runs():
        one, other = together[run.key], alone[run.key]
        columns = ["part", "condition", "row", "truth"]
        assert one[columns].equals(other[columns])
        assert (one["predicted"] == other["predicted"]).mean() > 0.99
        assert abs(one["entropy"] - other["entropy"]).median() < 1e-4
        parts = one["part"].value_counts().to_dict()
        assert parts == {"test": TEST} | ({"ood": TEST} if run.dataset == "mnist" else {})
        unknown = one[one["part"] == "ood"]
        assert (unknown["truth"] == -1).all()
        assert unknown["probability_of_truth"].isna().all()
        assert list(unknown["row"]) == list(range(len(unknown)))


def test_agreement_with_people_is_recorded_where_they_saw_the_test_rows(
    monkeypatch: pytest.MonkeyPatch, store: ResultStore
) -> None:
    digits = load_dataset("digits")
    assert digits.labels is not None
    rows = digits.split(0).test
    counts = 9 * np.eye(10, dtype=np.int64)[digits.labels[rows]]
    counts[::3] += 3  # they doubt every third row
    people = People(rows, counts, np.arange(5), np.eye(10, dtype=bool)[digits.labels[rows[:5]]])
    monkeypatch.setattr(worker, "load_dataset", lambda name: replace(digits, people=people))
    grid = Grid.of(DIGITS | {"methods": ["proden"], "seeds": 2, "epochs": 5})
    for joined in (True, False):  # the other seed has other test rows
        for bundle in bundles(grid.runs(), joined=joined):
            tables = compute(bundle.with_candidates(true_classes(grid))).tables
            for run, table in zip(bundle.runs, tables, strict=True):
                store.write(run, table)
        measured = summarize(store, grid).runs.set_index("seed")
        assert measured["people_cross_entropy"].isna().tolist() == [joined, True]
    first = measured.loc[0]
    assert 0 < first["people_cross_entropy"] < np.log(10)
    assert first["people_rank"] > 0.5
    assert 0.3 < first["people_auroc"] < 0.7  # digits do not show which rows people doubt
    assert first["people_possible"] >= 0.6


@pytest.mark.slow
def test_the_worst_case_is_measured_on_pictures_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default, and with an adversary; on few rows."""
    random = np.random.default_rng(0)
    labels, size = np.arange(50) % 10, 3 * 16 * 16
    pixels = (25 * labels[:, None] + random.integers(0, 20, (50, size))).astype(np.uint8)
    split = Split(np.arange(40), np.arange(40, 50))
    facts: Any = {"labels": labels, "image_shape": (3, 16, 16), "white": 255, "official": split}
    dataset = Dataset("cifar10", "CIFAR-10", pixels, np.arange(10), **facts)
    monkeypatch.setattr(worker, "load_dataset", lambda name: dataset)
    monkeypatch.setattr(worker, "AUDITED_PICTURES", 4)
    monkeypatch.setattr(worker, "FEWER_STEPS", QUICK)
    grid = Grid.named("cifar-worst").changed(epochs=4)
    frames = frames_of(grid, true_classes(grid, dataset), joined=False)
    assert len(frames) == 2
    for frame in frames.values():
        counts = frame["condition"].value_counts()
        assert counts.to_dict() == {"clean": 50, "audit 0.00784314": 4}


def test_files_of_other_sizes_than_usual_are_no_bundle(
    made: Any, pictures: None, tmp_path: Path, unpublished: Callable[..., None]
) -> None:
    """The bundle fails, and the driver takes its runs one by one."""
    unpublished("kmnist")
    made.write_pictures(tmp_path / "kmnist", "train", np.zeros((50, 8, 8)), np.zeros(50))
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["mnist", "kmnist"], "seeds": 1})
    [bundle] = bundles(runs_here(grid)[0], joined=True)
    rows = {"mnist": TRAIN, "kmnist": 50}
    known = {run.noise_key: np.ones((rows[run.dataset], 10), dtype=bool) for run in bundle.runs}
    failed = perform(bundle.with_candidates(known))
    assert "Sizes of tensors must match" in failed.error
    assert "Traceback" in failed.details
    for run in bundle.runs:
        [table] = compute(replace(bundle, runs=(run,)).with_candidates(known)).tables
        assert table.num_rows == TEST


def test_ties_are_broken_at_random_by_run_and_row() -> None:
    grid = Grid.of(DIGITS | {"methods": ["pl_knn"], "seeds": 2})
    every_class = {run.noise_key: np.ones((1437, 10), dtype=bool) for run in grid.runs()}
    first, again = (frames_of(grid, every_class, joined=False) for _ in range(2))
    for key, frame in first.items():
        assert frame.equals(again[key])
        assert frame["guess"].all()
        assert frame["predicted"].value_counts().between(15, 70).all()  # of 360, for each class
        assert frame["entropy"].eq(1).all()
    one, other = first.values()
    assert not one["predicted"].equals(other["predicted"])


METHODS_AS = [*(kind() for kind in METHODS.values()), Proden(network="lenet")]


@pytest.mark.parametrize("method", METHODS_AS, ids=lambda method: repr(method)[:40])
def test_a_part_of_what_was_fitted_predicts_as_the_whole(method: Method) -> None:
    fewer = {"epochs": 2, "passes": 5, "encoder_epochs": 1}
    method = replace(method, **{n: v for n, v in fewer.items() if n in method.field_names()})
    problem = Problem.of(load_dataset("digits"), Uniform(), (0, 1, 2), device="cpu")
    task, test = problem.task, problem.test
    short = {name: getattr(task, name)[:, :200] for name in ("candidates", "prior", "weight")}
    fitted = method.fit(
        replace(task, rows=replace(task.rows, indices=task.rows.indices[:, :200]), **short)
    )
    rows = replace(test, indices=test.indices[:, :50])
    whole = fitted.predict(rows).probability
    for runs in (slice(0, 2), slice(1, 3), slice(2, 3)):
        part = fitted.part(runs)
        torch.testing.assert_close(part.predict(rows.part(runs)).probability, whole[runs])
        torch.testing.assert_close(part.label_weights, fitted.label_weights[runs])


def test_predictions_that_are_no_numbers_are_no_result() -> None:
    diverging = {"name": "proden", "learning_rate": 1e30, "epochs": 2}
    grid = Grid.of(DIGITS | {"methods": [diverging], "seeds": 1})
    with pytest.raises(RobustPLLError, match="Proden gives 360 rows probabilities that are no num"):
        frames_of(grid, true_classes(grid), joined=False)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST_AUDITED", AUDITED)
    monkeypatch.setattr(worker, "Audit", partial(Audit, **QUICK))


@pytest.mark.parametrize("method", ["proden", "pl_knn"])
def test_what_is_stored_says_which_rows_withstood_everything(few: None, method: str) -> None:
    values = DIGITS | {"methods": [method], "seeds": 2, "epochs": 3}
    grid = Grid.of(values | {"audit": {"digits": [0.1, 0.02]}})
    together = frames_of(grid, true_classes(grid), joined=True)
    for frame in together.values():
        clean = frame[frame["condition"] == "clean"].iloc[:AUDITED]
        parts = [frame[frame["condition"] == f"audit {epsilon}"] for epsilon in (0.02, 0.1)]
        for part in parts:
            assert part["row"].tolist() == clean["row"].tolist()
            assert part["truth"].tolist() == clean["truth"].tolist()
            assert part[list(REALS)].isna().all(axis=None)
            assert not part["guess"].any()
        right = [(part["predicted"] == part["truth"]).to_numpy() for part in (clean, *parts)]
        assert (right[1] <= right[0]).all(), "who is wrong without attack withstands none"
        assert (right[2] <= right[1]).all(), "nor does who moved by more already"
        assert right[2].sum() < right[1].sum()
    for key, alone in frames_of(grid, true_classes(grid), joined=False).items():
        is_audit = alone["condition"].str.startswith("audit")
        assert (together[key]["predicted"] == alone["predicted"])[is_audit].mean() > 0.97


def test_what_is_stored_is_the_worst_case_of_a_report(few: None) -> None:
    problem = Problem.of(load_dataset("digits"), Uniform(), (3,), device="cpu")
    fitted = Proden(epochs=3).fit(problem.task)
    grid = Grid.of(DIGITS | {"methods": ["proden"], "seeds": [3], "audit": {"digits": [0.05, 0.1]}})
    [table] = worker.evaluate(fitted, grid.runs(), problem)
    frame = table.to_pandas()
    rows = replace(problem.test, indices=problem.test.indices[:, :AUDITED])
    labels = problem.test_labels[:, :AUDITED]
    [report] = Audit((0.05, 0.1), **QUICK).reports(fitted, rows, labels)
    for epsilon, share in zip(report.epsilons, report.worst, strict=True):
        part = frame[frame["condition"] == f"audit {epsilon}"]
        assert (part["predicted"] == part["truth"]).mean() == pytest.approx(share)


@pytest.mark.data
def test_real_rows_are_audited_as_the_grid_says(few: None) -> None:
    small = {"methods": ["robust_pll_at"], "datasets": ["lost"], "seeds": (0, 1), "epochs": 3}
    frames = frames_of(Grid.named("audit").changed(**small), {}, joined=True)
    assert len(frames) == 2
    for frame in frames.values():
        right = (frame["predicted"] == frame["truth"]).groupby(frame["condition"]).mean()
        assert list(right.index) == ["clean", "audit 0.02", "audit 0.05"]
        assert right.iloc[1:].is_monotonic_decreasing
        assert frame["part"].value_counts().to_dict() == {"train": 897, "test": 225 + 2 * AUDITED}


def test_annotators_are_drawn_anew_and_alike_in_every_bundle() -> None:
    grid = Grid.of(DIGITS | {"methods": ["pl_knn"], "noise": "annotators", "seeds": 3})
    assert bundles(grid.runs(), joined=True, draw_noise=True) == []
    (together,) = bundles(grid.runs(), joined=True)
    assert together.needs == ()
    [(_, problem)] = worker._problems(together, "cpu")
    assert problem.task.answers is not None
    for index, alone in enumerate(bundles(grid.runs(), joined=False)):
        [(_, single)] = worker._problems(alone, "cpu")
        assert torch.equal(single.task.answers[0], problem.task.answers[index])
        assert torch.equal(single.task.prior[0], problem.task.prior[index])
    joined, apart = (frames_of(grid, {}, joined=joined) for joined in (True, False))
    for key, frame in apart.items():
        pd.testing.assert_frame_equal(joined[key], frame)
