"""Datasets and data loaders of PyTorch, tables of other libraries, and files mapped into memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from robustpll import Candidates, InputError, PLLClassifier, Votes
from robustpll.estimator import features
from robustpll.estimator.loaders import pairs_of, rows_of
from robustpll.methods import RobustPll

RANDOM = np.random.default_rng(0)
LABELS = np.arange(60) % 3
ROWS = RANDOM.normal(size=(60, 4)).astype(np.float32) + LABELS[:, None]
SETS = [{label, (label + row % 3) % 3} for row, label in enumerate(LABELS.tolist())]
MATRIX = np.array([[label in names for label in range(3)] for names in SETS])


class Pairs(Dataset[Any]):
    """A map-style dataset of any items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    """The same items, one after the other."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def model() -> PLLClassifier:
    return PLLClassifier(RobustPll(epochs=3), random_state=0, device="cpu")


def listed(batch: list[Any]) -> Any:
    return torch.stack([row for row, _ in batch]), [names for _, names in batch]


TENSORS = torch.from_numpy(ROWS)
FORMS = {
    "map-style, sets": Pairs(list(zip(TENSORS, SETS, strict=True))),
    "map-style, lists": Pairs(
        [[row, sorted(names)] for row, names in zip(ROWS, SETS, strict=True)]
    ),
    "map-style, vectors": Pairs(list(zip(ROWS, MATRIX, strict=True))),
    "iterable, sets": Stream(list(zip(TENSORS, SETS, strict=True))),
    "iterable, vectors": Stream(list(zip(TENSORS, torch.tensor(MATRIX), strict=True))),
    "tensors": TensorDataset(TENSORS, torch.tensor(MATRIX)),
    "loader": DataLoader(TensorDataset(TENSORS, torch.tensor(MATRIX)), batch_size=7),
    "loader, sets": DataLoader(
        Pairs(list(zip(TENSORS, SETS, strict=True))), batch_size=7, collate_fn=listed
    ),
    "loader without batches": DataLoader(
        Pairs(list(zip(TENSORS, SETS, strict=True))), batch_size=None
    ),
    "loader of an iterable": DataLoader(
        Stream(list(zip(TENSORS, torch.tensor(MATRIX), strict=True))), batch_size=8
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:X has training rows")
def test_pairs_train_the_same_model_as_arrays(form: str) -> None:
    reference = model().fit(ROWS, SETS)
    trained = model().fit(FORMS[form])
    np.testing.assert_array_equal(trained.label_weights_, reference.label_weights_)
    expected = reference.predict_proba(ROWS)
    np.testing.assert_array_equal(trained.predict_proba(FORMS[form]), expected)
    assert trained.score(FORMS[form]) == reference.score(ROWS, MATRIX)
    trained.recalibrate(FORMS[form]).calibrate_decisions(FORMS[form])
    assert len(trained.decide(FORMS[form], coverage=0.5)) == 60


def test_labels_may_be_class_indices_or_names() -> None:
    for labels in (LABELS.tolist(), torch.tensor(LABELS), [*"abc"] * 20):
        X, y = pairs_of(Pairs(list(zip(ROWS, labels, strict=True))))
        np.testing.assert_array_equal(X, ROWS)
        assert y.shape == (60,)
    loader = DataLoader(Pairs(list(zip(ROWS, [*"abc"] * 20, strict=True))), batch_size=8)
    assert pairs_of(loader)[1].tolist() == [*"abc"] * 20
    assert model().fit(loader).classes_.tolist() == ["a", "b", "c"]


def test_rows_alone_can_be_predicted() -> None:
    fitted = model().fit(ROWS, SETS)
    expected = fitted.predict(ROWS)
    for rows in (Pairs(list(ROWS)), TensorDataset(TENSORS), DataLoader(TENSORS, batch_size=9)):  # type: ignore[arg-type]
        np.testing.assert_array_equal(fitted.predict(rows), expected)
    assert rows_of(Pairs([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]  # a row, not a pair


def test_pairs_are_learned_in_parts() -> None:
    parts, whole = (model().partial_fit(*form) for form in ((FORMS["tensors"],), (ROWS, MATRIX)))
    np.testing.assert_array_equal(parts.predict_proba(ROWS), whole.predict_proba(ROWS))


BAD = {
    "not a pair": (Pairs([*zip(ROWS, SETS, strict=True), ROWS[0]]), r"Item 60 of X must be a pair"),
    "a dict": (Pairs([{"x": 1}]), r"Item 0 .* a dict of length 1"),
    "another shape": (
        Pairs([(ROWS[0], {0}), (ROWS[0], {1}), (ROWS[0, :3], {0})]),
        r"Item 2 of X has rows of shape \(3,\), but those before have \(4,\)",
    ),
    "no set": (Pairs([(ROWS[0], {0, 1}), (ROWS[1], set())]), r"Item 1 of X has no candidate class"),
    "no label": (Pairs([(ROWS[0], 1), (ROWS[1], None)]), r"Item 1 of X has no candidate class"),
    "a vector of zeros": (
        DataLoader(TensorDataset(TENSORS, torch.zeros(60, 3)), batch_size=8),
        r"Batch 0, row 0, of X has no candidate class",
    ),
    "mixed forms": (Pairs([(ROWS[0], MATRIX[0]), (ROWS[1], {1})]), r"Item 1 of X .* a set of len"),
    "vectors of two lengths": (
        Pairs([(ROWS[0], MATRIX[0]), (ROWS[1], MATRIX[1, :2])]),
        r"Item 1 of X has candidates a ndarray of shape \(2,\)",
    ),
    "no rows": (Stream([]), r"X is a Stream without rows"),
    "rows of text": (Pairs([("abc", {0})]), r"Item 0 of X: a row is an array of numbers"),
    "numbers instead of rows": (Pairs([(1.0, {0})]), r"Item 0 of X: a row is an array of numbers"),
    "ragged rows": (Pairs([([[1.0], [1.0, 2.0]], {0})]), r"Item 0 of X: a row is an array"),
    "lists that torch transposes": (
        DataLoader(Pairs([(ROWS[0], ["a", "b"]), (ROWS[1], ["b", "c"])]), batch_size=2),
        r"Batch 0 .* default_collate has mixed",
    ),
    "a collate function that loses labels": (
        DataLoader(
            FORMS["tensors"], batch_size=4, collate_fn=lambda batch: (TENSORS[:4], MATRIX[:3])
        ),
        r"Batch 0 of X has 4 rows, but candidates a ndarray of shape \(3, 3\)",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_item_is_named(fault: str) -> None:
    loader, message = BAD[fault]
    with pytest.raises(InputError, match=message):
        model().fit(loader)


def test_a_dataset_holds_its_candidates_and_has_a_length() -> None:
    with pytest.raises(InputError, match="Leave y out"):
        model().fit(FORMS["tensors"], SETS)

    class Endless(Dataset[Any]):
        def __getitem__(self, index: int) -> Any:
            return ROWS[0], {0}

    with pytest.raises(InputError, match="Endless without __len__"):
        model().fit(Endless())
    with pytest.raises(InputError, match="requires y"):
        model().fit(ROWS)


FRAME = pd.DataFrame(ROWS, columns=[*"wxyz"]).assign(kind=["a", "b"] * 30)
FRAME.loc[3, "x"] = np.nan


def polars_table() -> Any:
    polars = pytest.importorskip("polars", reason="polars is a development requirement")
    return polars.DataFrame({name: FRAME[name].tolist() for name in FRAME})


def capsule_table() -> Any:
    class Capsule:
        columns = FRAME.columns.tolist()
        table = pa.Table.from_pandas(FRAME, preserve_index=False)

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.table.__arrow_c_stream__(requested_schema)

    return Capsule()


TABLES = {
    "polars": polars_table,
    "arrow": lambda: pa.Table.from_pandas(FRAME, preserve_index=False),
    "record batch": lambda: pa.RecordBatch.from_pandas(FRAME, preserve_index=False),
    "arrow capsule": capsule_table,
}


@pytest.mark.parametrize("library", TABLES)
def test_tables_of_other_libraries_are_read_as_those_of_pandas(library: str) -> None:
    table = TABLES[library]()
    reference, trained = model().fit(FRAME, SETS), model().fit(table, SETS)
    assert trained.features_ == reference.features_
    assert "x is missing" in trained.features_.columns
    assert trained.feature_names_in_.tolist() == [*"wxyz", "kind"]
    np.testing.assert_array_equal(trained.predict_proba(table), reference.predict_proba(FRAME))
    assert trained.decide(table, coverage=0.5).coverage > 0


def test_labels_and_votes_may_be_columns_of_polars_or_arrow() -> None:
    polars = pytest.importorskip("polars", reason="polars is a development requirement")
    reference = model().fit(ROWS, SETS)
    names = [sorted(each) for each in SETS]
    for y in (polars.Series(names), pa.chunked_array([names]), polars.DataFrame(MATRIX * 1)):
        trained = model().fit(ROWS, y)
        np.testing.assert_array_equal(trained.label_weights_, reference.label_weights_)
    votes = {"ann": [*"abc"] * 20, "bob": [*"aab"] * 20}
    expected = Candidates.of(Votes(pd.DataFrame(votes)))
    assert Candidates.of(Votes(polars.DataFrame(votes))) == expected
    with pytest.raises(InputError, match=r"LazyFrame holds no rows yet"):
        model().fit(polars.DataFrame(ROWS).lazy(), SETS)


def mapped(path: Path, array: Any) -> Any:
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("scale", ["minmax", "auto", "quantile", "standard", None])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
def test_a_memory_map_means_the_same_numbers_in_blocks(
    scale: Any, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = (np.exp(RANDOM.normal(size=(3000, 7))) * 20).astype(dtype)
    X[:, 3] = 1
    rules, rows = features.Features.fit_rows(X.astype(np.float64), "cpu", scale)
    monkeypatch.setattr(features, "BLOCK", 1000)
    in_blocks, mapped_rows = features.Features.fit_rows(mapped(tmp_path / "x.npy", X), "cpu", scale)
    assert in_blocks == rules
    assert torch.equal(mapped_rows.pool, rows.pool)


def test_a_memory_map_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all arrays and tensors of its size, fit and predict make one each: the scaled rows."""
    monkeypatch.setattr(features, "BLOCK", 2**14)
    y = np.arange(20_000) % 2
    X = mapped(tmp_path / "x.npy", (y[:, None] + RANDOM.normal(size=(20_000, 50))).astype("f4"))
    large: dict[str, int] = {}

    class Large(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **kwargs or {})
            is_new = isinstance(result, torch.Tensor) and result._base is None
            if is_new and result.nbytes >= X.nbytes // 2 and "view" not in str(func):
                large[str(func)] = large.get(str(func), 0) + 1
            return result

    fitted = model().set_params(method__network=lambda shape, k: torch.nn.Linear(shape[0], k))
    tracemalloc.start()
    try:
        with Large():
            fitted.fit(X, y).predict(X)
        peak = tracemalloc.get_traced_memory()[1]  # of numpy
    finally:
        tracemalloc.stop()
    assert large == {"aten.empty.memory_format": 2}
    assert peak < X.nbytes


def test_a_memory_map_with_a_gap_is_refused_with_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "BLOCK", 40)
    bad = ROWS.copy()
    bad[37, 2] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinity in 1 row \(37\)"):
        model().fit(mapped(tmp_path / "x.npy", bad), SETS)
    far = ROWS.astype(np.float64)
    far[[12, 55], 0] = 1e30
    fitted = model().fit(ROWS, SETS)
    with pytest.raises(InputError, match=r"too far from .* in 2 rows \(12, 55\)"):
        fitted.predict(mapped(tmp_path / "far.npy", far))


def test_what_torchs_collate_function_cannot_join_is_told() -> None:
    pairs = Pairs([*zip(TENSORS, SETS, strict=True)])
    with pytest.raises(InputError, match=r"default_collate.*Pass the dataset, 0/1 vectors, or a"):
        pairs_of(DataLoader(pairs, batch_size=20))
    assert pairs_of(pairs)[1][0] == SETS[0]


def test_labels_may_be_arrays_of_one_number() -> None:
    items = [(row, torch.tensor([label])) for row, label in zip(TENSORS, LABELS, strict=True)]
    np.testing.assert_array_equal(pairs_of(Pairs(items))[1], LABELS)


def test_rows_of_several_arrays_must_be_collected() -> None:
    items = [({"ids": row, "mask": row}, names) for row, names in zip(TENSORS, SETS, strict=True)]
    with pytest.raises(InputError, match=r"Collect a dict or tuple of arrays, and pass it as X"):
        pairs_of(Pairs(items))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (ROWS.astype("datetime64[s]"), r"X holds dates or times \(datetime64\[s\]\)"),
        ((row for row in ROWS), "X is a generator, which has its rows only once"),
        (np.ma.array(ROWS, mask=ROWS > 3), "X contains NaN or infinity in"),
    ],
    ids=["dates", "generator", "mask"],
)
def test_arrays_that_would_be_misread_are_refused(rows: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        model().fit(rows, SETS)


def test_tensors_of_any_type_and_layout_are_rows() -> None:
    expected = model().fit(TENSORS.bfloat16().float(), SETS).predict_proba(ROWS)
    for rows in (TENSORS.bfloat16(), TENSORS.bfloat16().float().to_sparse()):
        np.testing.assert_array_equal(model().fit(rows, SETS).predict_proba(ROWS), expected)


@pytest.mark.parametrize(
    "y", [SETS, ["abc"[label] for label in LABELS], (LABELS > 0).tolist()], ids=type
)
def test_arrays_of_arrow_are_candidates_and_names_keep_their_type(y: list[Any]) -> None:
    listed = [[*names] for names in y] if y is SETS else y
    for array in (pa.array(listed), pa.chunked_array([listed[:9], listed[9:]])):
        assert Candidates.of(array) == Candidates.of(y)
    alone = Candidates.of([{name} for name in y]) if y is not SETS else Candidates.of(y)
    assert alone.classes.dtype == np.unique([*set().union(*SETS)] if y is SETS else y).dtype


def test_names_beyond_64_bits_are_refused() -> None:
    with pytest.raises(InputError, match=r"no integer of 64 bits. Convert the names to strings"):
        Candidates.of([{2**63}, {1}])
