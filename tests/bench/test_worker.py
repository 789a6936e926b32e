"""What trains together, and what a worker computes: bundles over datasets, OOD rows, ties."""

import gzip
import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from robustpll import METHODS, load_dataset
from robustpll.bench import worker
from robustpll.bench.bundles import MOST_SECONDS, bundles, noise_bundles
from robustpll.bench.grid import Grid
from robustpll.bench.store import of_files
from robustpll.bench.worker import compute, perform
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.errors import RobustPLLError
from robustpll.methods import PUBLISHED, Method, Proden

TRAIN, TEST = 300, 120
PAPER = Grid.named("paper")


def test_the_three_large_picture_sets_are_one_bundle() -> None:
    names = ["mnist", "lost", "fmnist", "notmnist", "kmnist"]
    cut = bundles(PAPER.changed(methods=["proden"], datasets=names).runs(), joined=True)
    models = {tuple(dict.fromkeys(run.dataset for run in b.runs)): b.models for b in cut}
    assert models == {("mnist", "fmnist", "kmnist"): 15, ("notmnist",): 5, ("lost",): 5}


def test_bundles_have_every_run_once_and_can_be_stacked_and_the_longest_come_first() -> None:
    runs = PAPER.runs()
    for joined in (True, False):
        cut = bundles(runs, joined=joined)
        assert sorted(key for b in cut for key in b.keys) == sorted(run.key for run in runs)
        seconds = [bundle.seconds(cuda=joined) for bundle in cut]
        assert seconds == sorted(seconds, reverse=True)
        for bundle in cut:
            methods = [run.method for run in bundle.runs]
            type(methods[0]).stacked(methods)  # raises if they cannot be
    assert all(len(bundle.runs) == 1 for bundle in cut), "on a CPU a rest is cut like the whole"


def test_numbers_may_differ_within_a_bundle_and_other_fields_not() -> None:
    kinds = [
        {"name": "robust_pll", "label": "a", "kl_ceiling": 0.5},
        {"name": "robust_pll", "label": "b", "kl_ceiling": 2.0},
        {"name": "robust_pll", "label": "c", "batch_size": 64},
    ]
    grid = Grid.of({"methods": kinds, "datasets": ["digits"], "seeds": 2})
    labels = [{run.label for run in bundle.runs} for bundle in bundles(grid.runs(), joined=True)]
    assert sorted(map(sorted, labels)) == [["a", "b"], ["c"]]


def test_methods_for_the_host_stay_off_the_gpu() -> None:
    places = {b.runs[0].method.name: b.place for b in bundles(PAPER.runs(), joined=True)}
    assert {name for name, place in places.items() if place == "host"} == {"pl_svm", "pl_ecoc"}
    assert set(places) == {kind.name for kind in PUBLISHED}


def test_bundles_stay_within_memory_and_a_kill_loses_minutes_at_most() -> None:
    few = ["proden_ens", "robust_pll", "dst_pll", "valen"]
    many = bundles(PAPER.changed(methods=few, seeds=tuple(range(100))).runs(), joined=True)
    assert max(bundle.models for bundle in many) == 100
    for bundle in many:
        if bundle.place == "device" and len(bundle.runs) > 1:
            assert bundle.seconds(cuda=True) <= MOST_SECONDS


def test_noise_is_drawn_once_for_all_methods_and_each_kind_apart() -> None:
    together = noise_bundles(PAPER.runs(), joined=True)
    assert sorted(len(bundle.runs) for bundle in together) == [5, 15]
    assert len(noise_bundles(PAPER.runs(), joined=False)) == 20
    [run] = Grid.of({"methods": ["proden"], "datasets": ["digits"], "seeds": 1}).runs()
    assert len(noise_bundles([run, replace(run, noise=Uniform())], joined=True)) == 2


def idx(values: np.ndarray) -> bytes:
    header = struct.pack(f">{values.ndim}i", *values.shape)
    return gzip.compress(b"\0\0\x08" + bytes([values.ndim]) + header + values.tobytes())


@pytest.fixture
def pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpublished: Callable[..., None]
) -> Iterator[None]:
    """Two picture sets of one shape: digits, and the same lying on their side."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    scans, labels = load_digits(return_X_y=True)
    upright = (scans.reshape(-1, 8, 8) * 15).astype(np.uint8)
    for name, values in (("mnist", upright), ("kmnist", upright.transpose(0, 2, 1))):
        (tmp_path / name).mkdir()
        sums = []
        for part, rows in (("train", slice(TRAIN)), ("t10k", slice(TRAIN, TRAIN + TEST))):
            files = {"images-idx3": values[rows], "labels-idx1": labels[rows].astype(np.uint8)}
            for kind, array in files.items():
                (tmp_path / name / f"{part}-{kind}-ubyte.gz").write_bytes(idx(array))
                sums.append(hashlib.sha256(gzip.decompress(idx(array))).hexdigest())
        unpublished(name, sums)
    worker._dataset.cache_clear()
    yield
    worker._dataset.cache_clear()


@pytest.mark.parametrize("method", ["proden", "robust_pll_ens", "ipal"])
def test_datasets_of_one_shape_train_at_once_and_are_told_apart(
    pictures: None, method: str
) -> None:
    values = {"methods": [method], "datasets": ["mnist", "kmnist"], "seeds": 2, "epochs": 3}
    grid = Grid.of(values | {"noise": "uniform", "ood": [["mnist", "kmnist"]]})
    tables = {}
    truth = np.eye(10, dtype=bool)
    known = {run.noise_key: truth[load_dataset(run.dataset).labels[:TRAIN]] for run in grid.runs()}
    for joined in (True, False):
        cut = bundles(grid.runs(), joined=joined)
        assert len(cut) == (1 if joined else 4)
        for bundle in cut:
            for result in compute(bundle.with_candidates(known)).results:
                assert result.table is not None
                tables[joined, result.key] = result.table.to_pandas()
    for run in grid.runs():
        one, other = tables[True, run.key], tables[False, run.key]
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


def test_files_of_other_sizes_than_usual_are_no_bundle(
    pictures: None, tmp_path: Path, unpublished: Callable[..., None]
) -> None:
    """The bundle fails, and the driver takes its runs one by one."""
    unpublished("kmnist")
    small = np.zeros((50, 8, 8), np.uint8)
    (tmp_path / "kmnist" / "train-images-idx3-ubyte.gz").write_bytes(idx(small))
    (tmp_path / "kmnist" / "train-labels-idx1-ubyte.gz").write_bytes(idx(small[:, 0, 0]))
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["mnist", "kmnist"], "seeds": 1})
    [bundle] = bundles(of_files(grid.runs()), joined=True)
    rows = {"mnist": TRAIN, "kmnist": 50}
    known = {run.noise_key: np.ones((rows[run.dataset], 10), dtype=bool) for run in bundle.runs}
    failed = perform(bundle.with_candidates(known))
    assert "equal rows" in failed.error
    assert "Traceback" in failed.details
    for part in bundle.parts():
        [result] = compute(part.with_candidates(known)).results
        assert result.table is not None
        assert result.table.num_rows == TEST


def test_ties_are_broken_at_random_by_run_and_row() -> None:
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["digits"], "seeds": 2})
    every_class = np.ones((1437, 10), dtype=bool)
    frames = []
    for bundle in bundles(grid.runs(), joined=False):
        full = bundle.with_candidates(dict.fromkeys(bundle.needs, every_class))
        one, again = (compute(full).results[0].table for _ in range(2))
        assert one is not None
        assert one.equals(again)
        frames.append(one.to_pandas())
    for frame in frames:
        assert frame["guess"].all()
        assert frame["predicted"].value_counts().between(15, 70).all()  # of 360, for each class
        assert frame["entropy"].eq(1).all()
    assert not frames[0]["predicted"].equals(frames[1]["predicted"])


METHODS_AS = [kind() for kind in METHODS.values()]
STACKED = [Proden(network="lenet")]


@pytest.mark.parametrize("method", METHODS_AS + STACKED, ids=lambda method: repr(method)[:40])
def test_a_part_of_what_was_fitted_predicts_as_the_whole(method: Method) -> None:
    fewer = {"epochs": 2, "passes": 5, "encoder_epochs": 1}
    method = replace(method, **{n: v for n, v in fewer.items() if n in method.field_names()})
    problem = Problem.of(load_dataset("digits"), Uniform(), (0, 1, 2), device="cpu")
    task = replace(problem.task, rows=_fewer(problem.task.rows, 200))
    short = {name: getattr(task, name)[:, :200] for name in ("candidates", "prior", "weight")}
    fitted = method.fit(replace(task, **short))
    rows = _fewer(problem.test, 50)
    whole = fitted.predict(rows).probability
    for runs in (slice(0, 2), slice(1, 3), slice(2, 3)):
        part = fitted.part(runs)
        torch.testing.assert_close(part.predict(rows.part(runs)).probability, whole[runs])
        torch.testing.assert_close(part.label_weights, fitted.label_weights[runs])


def _fewer(rows: object, count: int) -> object:
    return replace(rows, at=rows.at[:, :count])  # type: ignore[attr-defined, type-var]


def test_predictions_that_are_no_numbers_are_no_result() -> None:
    diverging = {"name": "proden", "learning_rate": 1e30, "epochs": 2}
    values = {"methods": [diverging], "datasets": ["digits"], "seeds": 1, "noise": "uniform"}
    [bundle] = bundles(Grid.of(values).runs(), joined=False)
    known = {key: np.ones((1437, 10), dtype=bool) for key in bundle.needs}
    with pytest.raises(RobustPLLError, match="Proden gives 360 rows probabilities that are no num"):
        compute(bundle.with_candidates(known))
