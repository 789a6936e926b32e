"""What a worker computes: bundles over datasets, OOD rows, ties."""

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
from robustpll.bench.bundles import bundles, filled
from robustpll.bench.grid import Grid
from robustpll.bench.noise_cache import Packed
from robustpll.bench.versions import of_files
from robustpll.bench.worker import perform
from robustpll.datasets.noise import Uniform
from robustpll.datasets.problem import Problem
from robustpll.errors import RobustPLLError
from robustpll.methods import Method, Proden

TRAIN, TEST = 300, 120


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
            found = {"images-idx3": values[rows], "labels-idx1": labels[rows].astype(np.uint8)}
            for kind, array in found.items():
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
    asked = {"methods": [method], "datasets": ["mnist", "kmnist"], "seeds": 2, "epochs": 3}
    grid = Grid.of(asked | {"noise": "uniform", "ood": [["mnist", "kmnist"]]})
    found = {}
    for joined in (True, False):
        cut = bundles(grid.runs(), joined=joined)
        assert len(cut) == (1 if joined else 4)
        for bundle in cut:
            known = {
                each: Packed.of(np.eye(10, dtype=bool)[load_dataset(each.dataset).labels[:TRAIN]])
                for each in bundle.needs
            }
            done = perform(filled(bundle, known))
            for key, table in zip(bundle.keys, done.tables, strict=True):
                found[joined, key] = table.to_pandas()
    for each in grid.runs():
        one, other = found[True, each.run.key], found[False, each.run.key]
        columns = ["part", "condition", "row", "truth"]
        assert one[columns].equals(other[columns])
        assert (one["predicted"] == other["predicted"]).mean() > 0.99
        assert abs(one["entropy"] - other["entropy"]).median() < 1e-4
        parts = one["part"].value_counts().to_dict()
        assert parts == {"test": TEST} | ({"ood": TEST} if each.run.dataset == "mnist" else {})
        unknown = one[one["part"] == "ood"]
        assert (unknown["truth"] == -1).all()
        assert unknown["probability_of_truth"].isna().all()
        assert list(unknown["row"]) == list(range(len(unknown)))


def test_files_of_other_sizes_than_usual_are_no_bundle(
    pictures: None, tmp_path: Path, unpublished: Callable[..., None]
) -> None:
    """What should be of one shape is not: it is told, and the driver takes the runs one by one."""
    unpublished("kmnist")
    small = np.zeros((50, 8, 8), np.uint8)
    (tmp_path / "kmnist" / "train-images-idx3-ubyte.gz").write_bytes(idx(small))
    (tmp_path / "kmnist" / "train-labels-idx1-ubyte.gz").write_bytes(idx(small[:, 0, 0]))
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["mnist", "kmnist"], "seeds": 1})
    [bundle] = bundles(of_files(grid.runs()), joined=True)
    rows = {"mnist": TRAIN, "kmnist": 50}
    known = {d: Packed.of(np.ones((rows[d.dataset], 10), dtype=bool)) for d in bundle.needs}
    with pytest.raises(ValueError, match="equal rows"):
        perform(filled(bundle, known))
    for part in bundle.parts():
        [table] = perform(filled(part, known)).tables
        assert table.num_rows == TEST


def test_ties_are_broken_at_random_by_run_and_row() -> None:
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["digits"], "seeds": 2})
    every_class = Packed.of(np.ones((1437, 10), dtype=bool))
    found = []
    for bundle in bundles(grid.runs(), joined=False):
        full = filled(bundle, dict.fromkeys(bundle.needs, every_class))
        [one], [again] = perform(full).tables, perform(full).tables
        assert one.equals(again)
        found.append(one.to_pandas())
    for frame in found:
        assert frame["guess"].all()
        assert frame["predicted"].value_counts().between(15, 70).all()  # of 360, for each class
        assert frame["entropy"].eq(1).all()
    assert not found[0]["predicted"].equals(found[1]["predicted"])


METHODS_AS = [kind() for kind in METHODS.values()]
STACKED = [Proden(network="lenet")]


@pytest.mark.parametrize("method", METHODS_AS + STACKED, ids=lambda method: repr(method)[:40])
def test_a_part_of_what_was_fitted_predicts_as_the_whole(method: Method) -> None:
    fewer = {"epochs": 2, "passes": 5, "encoder_epochs": 1}
    method = replace(method, **{n: v for n, v in fewer.items() if n in method.field_names()})
    problem = Problem.of(load_dataset("digits"), Uniform(), (0, 1, 2), device="cpu")
    task = replace(problem.task, rows=_fewer(problem.task.rows))
    short = {name: getattr(task, name)[:, :200] for name in ("candidates", "prior", "weight")}
    fitted = method.fit(replace(task, **short))
    rows = _fewer(problem.test, 50)
    whole = fitted.predict(rows).probability
    for runs in (slice(0, 2), slice(1, 3), slice(2, 3)):
        part = fitted.part(runs)
        torch.testing.assert_close(part.predict(rows.part(runs)).probability, whole[runs])
        torch.testing.assert_close(part.label_weights, fitted.label_weights[runs])


def _fewer(rows: object, count: int = 200) -> object:
    return replace(rows, at=rows.at[:, :count])  # type: ignore[attr-defined, type-var]


def test_predictions_that_are_no_numbers_are_no_result() -> None:
    diverging = {"name": "proden", "learning_rate": 1e30, "epochs": 2}
    asked = {"methods": [diverging], "datasets": ["digits"], "seeds": 1, "noise": "uniform"}
    [bundle] = bundles(Grid.of(asked).runs(), joined=False)
    known = {each: Packed.of(np.ones((1437, 10), dtype=bool)) for each in bundle.needs}
    with pytest.raises(RobustPLLError, match="Proden gives 360 rows probabilities that are no num"):
        perform(filled(bundle, known))
