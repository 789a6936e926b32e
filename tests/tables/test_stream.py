"""Parquet and Arrow files that are read in pieces, and trained on in windows."""

import shlex
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from torch.utils._python_dispatch import TorchDispatchMode
from typer.testing import CliRunner

from robustpll import InputError, ParquetRows, PLLClassifier, RobustPLLClassifier, Votes, load
from robustpll.cli import app
from robustpll.engine.stream import Scratch, window_sizes
from robustpll.engine.train import Training
from robustpll.estimator import streaming
from robustpll.methods import METHODS, Cavl, Cc, Proden, Rc, RobustPll, RobustPllEns
from robustpll.tables import stream

N = 700
RANDOM = np.random.default_rng(0)
LABELS = np.sort(RANDOM.integers(0, 4, N))  # a window of neighbours would have one class
NAMES = np.array(["ant", "bee", "cat", "dog"])
FEATURES = [*"abcdef"]
X = pd.DataFrame(RANDOM.normal(size=(N, 6)) + 2 * np.eye(6)[LABELS], columns=FEATURES)
CODES = [
    sorted({int(label), int(other)})
    for label, other in zip(LABELS, RANDOM.integers(0, 4, N), strict=True)
]
SETS = [{*NAMES[codes].tolist()} for codes in CODES]
ANSWERS = pd.DataFrame({"vote ann": NAMES[LABELS], "vote bob": NAMES[RANDOM.integers(0, 4, N)]})
MATRIX = np.array([[name in names for name in NAMES] for names in SETS])
INDICATORS = pd.DataFrame(MATRIX * 1, columns=[f"is {name}" for name in NAMES])


def model(method: Any = None, **options: Any) -> PLLClassifier:
    return PLLClassifier(method or RobustPll(epochs=3), random_state=0, device="cpu", **options)


def written(path: Path, **columns: Any) -> Path:
    X.assign(**columns).to_parquet(path, index=False, row_group_size=97)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path / "table.parquet", seen=[sorted(names) for names in SETS])


METHODS_TO_STREAM = [RobustPll(epochs=3), Proden(epochs=2), Rc(epochs=2), Cc(epochs=2)]
METHODS_TO_STREAM += [Cavl(epochs=2), RobustPllEns(epochs=2, averaged=0.5, schedule="one-cycle")]


@pytest.mark.parametrize("method", METHODS_TO_STREAM, ids=lambda method: method.name)
def test_with_one_window_a_streamed_fit_is_that_in_memory_bit_for_bit(
    method: Any, table: Path
) -> None:
    resident = model(method).fit(X, SETS)
    rows = ParquetRows(table, candidates="seen")
    streamed = model(method).fit(rows)
    np.testing.assert_array_equal(
        streamed.label_weights_, resident.label_weights_.astype(np.float32)
    )
    np.testing.assert_array_equal(streamed.labels_, resident.labels_)
    np.testing.assert_array_equal(streamed.history_["loss"], resident.history_["loss"])
    np.testing.assert_array_equal(streamed.predict_proba(rows), resident.predict_proba(X))
    assert streamed.features_ == resident.features_
    assert streamed.reference_ is not None
    assert resident.reference_ is not None
    assert torch.equal(streamed.reference_.rows, resident.reference_.rows)


def test_windows_of_a_sorted_file_teach_as_much_as_all_rows(table: Path) -> None:
    """Without mixing, a window of 64 rows would have a single class."""
    method = RobustPll(epochs=12, batch_size=32)
    resident = model(method).fit(X, SETS)
    streamed = model(method).fit(ParquetRows(table, candidates="seen", window=64))
    right = (resident.labels_ == NAMES[LABELS]).mean()
    assert right > 0.8
    assert (streamed.labels_ == NAMES[LABELS]).mean() > right - 0.03
    assert (streamed.predict(X) == NAMES[LABELS]).mean() > 0.75


def test_windows_give_the_same_for_a_seed_and_results_by_row(table: Path) -> None:
    rows = ParquetRows(table, candidates="seen", window=256)
    first, again = (model().fit(rows) for _ in range(2))
    other = model().set_params(random_state=1).fit(rows)
    np.testing.assert_array_equal(first.label_weights_, again.label_weights_)
    assert not np.array_equal(first.label_weights_, other.label_weights_)
    weights = first.label_weights_
    assert isinstance(weights, np.memmap)
    assert not weights.flags.writeable
    assert weights.shape == MATRIX.shape
    assert (weights[~MATRIX] == 0).all()  # each row has its own candidates again
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert all(label in names for label, names in zip(first.labels_, SETS, strict=True))


@given(
    st.integers(2, 300), st.integers(2, 80), st.lists(st.integers(1, 90), min_size=1), st.integers()
)
def test_rows_come_back_from_windows_in_order(
    n: int, window: int, chunks: list[int], seed: int
) -> None:
    with Scratch((n, 3, 11), window, seed, Path()) as scratch:
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        matrix = np.random.default_rng(0).random((n, 11)) < 0.5
        prior = np.random.default_rng(1).random((n, 11), dtype=np.float32)
        start = 0
        while start < n:
            part = slice(start, min(n, start + chunks[len(scratch.chunks) % len(chunks)]))
            scratch.add(x[part], matrix[part], prior[part])
            start = part.stop
        contents = [scratch.read(number) for number in range(len(scratch.sizes))]
        rows, bits, shares = (np.concatenate(parts) for parts in zip(*contents, strict=True))
        order = (rows[:, 0] / 3).astype(int)
        assert sorted(order) == [*range(n)]
        np.testing.assert_array_equal(rows, x[order])
        np.testing.assert_array_equal(bits, matrix[order])
        np.testing.assert_array_equal(shares, prior[order])
        np.testing.assert_array_equal(scratch.in_order(scratch.rows), x)
        assert scratch.sizes.sum() == n
        assert min(scratch.sizes) >= 2


def test_rows_are_assigned_to_windows_as_if_at_random() -> None:
    """The share of early rows in a window varies as that of a random sample."""
    shares = []
    for seed in range(200):
        with Scratch((100, 1, 2), 20, seed, Path()) as scratch:
            for start in range(0, 100, 25):
                rows = np.arange(start, start + 25, dtype=np.float32)[:, None]
                scratch.add(rows, np.ones((25, 2), dtype=bool))
            shares += [(scratch.read(number)[0] < 50).mean() for number in range(5)]
    expected = np.sqrt(0.25 / 20 * 80 / 99)  # without replacement
    assert np.mean(shares) == pytest.approx(0.5)
    assert np.std(shares) == pytest.approx(expected, rel=0.1)


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "texts": ({"seen": ["|".join(sorted(s)) for s in SETS]}, {"candidates": "seen"}, SETS),
    "other separator": (
        {"seen": [";".join(sorted(s)) for s in SETS]},
        {"candidates": "seen", "separator": ";"},
        SETS,
    ),
    "categories": (
        {"seen": pd.Categorical(["|".join(sorted(s)) for s in SETS])},
        {"candidates": "seen"},
        SETS,
    ),
    "lists of integers": ({"seen": CODES}, {"candidates": "seen"}, CODES),
    "labels": ({"seen": NAMES[LABELS]}, {"candidates": "seen"}, NAMES[LABELS]),
    "numbers of classes": ({"seen": LABELS}, {"candidates": "seen"}, LABELS),
    "votes": ({**ANSWERS}, {"votes": "vote "}, Votes(ANSWERS)),
    "indicators": ({**INDICATORS}, {"indicators": "is "}, SETS),
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_all_forms_mean_the_same_as_in_memory(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, options, y = FORMS[form]
    path = written(tmp_path / "t.parquet", **columns)
    monkeypatch.setattr(stream, "PIECE_ROWS", 90)  # a piece may have one class alone
    rows = ParquetRows(path, **options)
    resident, streamed = model().fit(X, y), model().fit(rows)
    np.testing.assert_array_equal(streamed.label_weights_, resident.label_weights_)
    assert streamed.classes_.tolist() == resident.classes_.tolist()
    assert streamed.classes_.dtype == resident.classes_.dtype
    _, candidates = rows.read()
    assert candidates is not None
    assert candidates.matrix.tolist() == MATRIX.tolist() or form in (
        "labels",
        "numbers of classes",
        "votes",
    )


def test_folders_and_arrow_files_are_read_by_name(tmp_path: Path, table: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    cells = pa.parquet.read_table(table)
    count = pa.array(np.arange(N) % 5)
    cells = cells.set_column(0, "a", count.cast(pa.float64()))
    pa.parquet.write_table(cells.slice(0, 300), folder / "1.parquet")
    pa.feather.write_feather(cells.slice(300, 250), folder / "2.arrow", chunksize=60)
    integers = cells.slice(550).set_column(0, "a", count.slice(550))  # another type of numbers
    pa.parquet.write_table(integers, folder / "3.parquet")
    (folder / "notes.txt").write_text("not a table")
    rows = ParquetRows(folder, candidates="seen")
    assert rows.count() == N
    resident = model().fit(X.assign(a=np.arange(N) % 5), SETS)
    np.testing.assert_array_equal(model().fit(rows).label_weights_, resident.label_weights_)


@pytest.mark.filterwarnings("ignore:X has training rows")
def test_predictions_of_pieces_are_those_in_memory(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE_ROWS", 64)
    fitted = model().fit(X, SETS)
    rows, out = ParquetRows(table), tmp_path / "out.parquet"
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(X))
    np.testing.assert_allclose(fitted.predict_proba(rows), fitted.predict_proba(X), atol=1e-6)
    in_pieces, whole = fitted.decide(rows, coverage=0.7), fitted.decide(X, coverage=0.7)
    np.testing.assert_array_equal(in_pieces.accepted, whole.accepted)
    assert rows.write_predictions(fitted, out, keep=["seen"], probabilities=True) == N
    answers = pd.read_parquet(out)
    assert not answers["accepted"].any()  # not calibrated
    np.testing.assert_array_equal(answers["label"], fitted.predict(X))
    np.testing.assert_allclose(
        answers[[f"probability of {name}" for name in NAMES]], fitted.predict_proba(X), atol=1e-6
    )
    assert [*map(set, answers["seen"])] == SETS
    fitted.calibrate_decisions(X, SETS)
    rows.write_predictions(fitted, out, error=0.2)
    answers, decision = pd.read_parquet(out), fitted.decide(X, error=0.2)
    np.testing.assert_array_equal(answers["accepted"], decision.accepted)
    np.testing.assert_array_equal(answers["reason"], decision.reason)
    with pytest.raises(InputError, match="keep: the output has a column 'label'"):
        ParquetRows(written(tmp_path / "l.parquet", label=1)).write_predictions(
            fitted, out, keep=["label"]
        )


def test_a_model_without_names_of_features_is_refused(table: Path, tmp_path: Path) -> None:
    fitted, rows = model().fit(X.to_numpy(), SETS), ParquetRows(table)
    with pytest.raises(InputError, match="fitted without names of features"):
        fitted.predict(rows)
    with pytest.raises(InputError, match="fitted without names of features"):
        rows.write_predictions(fitted, tmp_path / "out.parquet")
    with pytest.raises(NotFittedError):
        model().predict(rows)


def test_no_file_that_is_read_is_replaced_by_predictions(table: Path) -> None:
    fitted, before = model().fit(X, SETS), table.read_bytes()
    with pytest.raises(InputError, match="would be lost"):
        ParquetRows(table.parent).write_predictions(fitted, table)
    assert table.read_bytes() == before


@pytest.mark.parametrize("rows", [N - 50, N + 50])
def test_files_that_change_between_the_passes_are_refused(rows: int, table: Path) -> None:
    streamed, scan = ParquetRows(table, candidates="seen", window=256), streaming._scan

    def scan_and_change(*arguments: Any) -> Any:
        result = scan(*arguments)
        cells = pa.parquet.read_table(table)
        pa.parquet.write_table(pa.concat_tables([cells, cells]).slice(0, rows), table)
        return result

    with (
        patch.object(streaming, "_scan", scan_and_change),
        pytest.raises(InputError, match="changed while it was read"),
    ):
        model().fit(streamed)


def test_a_split_is_of_rows_whatever_columns_are_read(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = ParquetRows(table, candidates="seen").split(0.3, random_state=1)
    (most, y), (some, _) = train.read(), test.read()
    assert 0.2 * N < len(some) < 0.4 * N
    both = pd.concat([most, some]).sort_values("a").reset_index(drop=True)
    pd.testing.assert_frame_equal(both, X.sort_values("a").reset_index(drop=True))
    monkeypatch.setattr(stream, "PIECE_ROWS", 31)
    columns = [cells["a"].to_numpy() for cells, _ in test.batches(["a"])]
    np.testing.assert_array_equal(np.concatenate(columns), some["a"])
    streamed = model().fit(train)
    assert y is not None
    np.testing.assert_array_equal(streamed.label_weights_, model().fit(most, y).label_weights_)


def test_a_part_of_a_split_is_split_like_all_rows(table: Path) -> None:
    rows = ParquetRows(table, candidates="seen", features=["a"])
    train, test = rows.split(0.3)
    parts = [*train.split(0.5), *test.split(0.5)]  # with the same seed
    sizes = [len(part.read()[0]) for part in parts]
    assert all(size > 70 for size in sizes), sizes
    values = np.concatenate([part.read()[0]["a"] for part in parts])
    np.testing.assert_array_equal(np.sort(values), np.sort(X["a"]))  # no row is in two parts


def test_classes_of_whole_numbers_are_integers_as_in_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", seen=LABELS.astype(float))
    _, y = ParquetRows(path, candidates="seen").read()
    assert y is not None
    np.testing.assert_array_equal(y.classes, [0, 1, 2, 3])
    assert y.classes.dtype.kind == "i"


def test_damaged_text_is_an_error_and_no_crash(tmp_path: Path, table: Path) -> None:
    path = tmp_path / "t.arrow"
    cells = pa.table({"a": X["a"], "seen": pa.array(["ant"] * N)})
    with pa.ipc.new_file(path, cells.schema) as file:
        file.write(cells)
    offsets, content = np.arange(0, 3 * N, 3, dtype="<i4"), path.read_bytes()
    assert content.count(offsets.tobytes()) == 1
    path.write_bytes(content.replace(offsets.tobytes(), (offsets << 20).tobytes()))
    with pytest.raises(InputError, match=r"t\.arrow is not an Arrow file, or is damaged"):
        ParquetRows(path, candidates="seen").read()
    path = table.with_name("text.parquet")
    pa.parquet.write_table(cells, path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"ant", b"\xff\xfe\xff"))
    with pytest.raises(InputError, match="text that is not UTF-8"):
        ParquetRows(path, candidates="seen").read()


def test_a_model_of_a_stream_is_saved_and_loaded(table: Path, tmp_path: Path) -> None:
    fitted = model().fit(ParquetRows(table, candidates="seen", window=256))
    fitted.save(tmp_path / "model.pll")
    loaded = load(tmp_path / "model.pll")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def bad_file(path: Path, fault: str) -> Any:
    """Write a table with a fault; return options of ParquetRows and the expected message."""
    sets: list[Any] = [sorted(names) for names in SETS]
    columns: dict[str, Any] = {"seen": sets}
    if fault in ("empty set", "no set"):
        sets[612] = [] if fault == "empty set" else None
        message = r"t\.parquet, row 612: column 'seen': .* names no class"
    elif fault in ("NaN", "infinite", "gap"):
        cell = {"NaN": np.nan, "infinite": np.inf, "gap": None}[fault]
        column = pd.Series(
            [*X["c"][:555], cell, *X["c"][556:]], dtype="Float64" if cell is None else float
        )
        columns["c"] = column
        message = r"t\.parquet, row 555: column 'c'.*(has no value|is not finite)"
    elif fault == "text":
        columns["c"] = ["1"] * N
        message = r"Column 'c' of .*t\.parquet holds .*string, not numbers"
    elif fault == "one class":
        columns["seen"] = [["ant"]] * N
        message = "at least 2 classes are needed"
    else:
        message = {
            "empty file": "t.parquet has columns, but no rows",
            "no column": "there is no column 'said'",
            "no feature": "There is no column 'zz'",
        }[fault]
    if fault == "gap":  # pandas would write NaN
        cells = pa.Table.from_pandas(X.assign(**columns), preserve_index=False)
        pa.parquet.write_table(cells, path)
    else:
        frame = X.assign(**columns)
        (frame[:0] if fault == "empty file" else frame).to_parquet(path, index=False)
    options: dict[str, Any] = {"candidates": "said" if fault == "no column" else "seen"}
    return options | ({"features": ["a", "zz"]} if fault == "no feature" else {}), message


FAULTS = ("empty set", "no set", "NaN", "infinite", "gap", "text", "one class", "empty file")


@pytest.mark.parametrize("fault", [*FAULTS, "no column", "no feature"])
def test_a_bad_file_is_refused_with_file_and_row(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE_ROWS", 100)
    options, message = bad_file(tmp_path / "t.parquet", fault)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(InputError, match=message):
        model().fit(ParquetRows(tmp_path / "t.parquet", scratch=scratch, **options))
    assert not [*scratch.iterdir()]


def test_bad_files_and_folders_are_refused(tmp_path: Path, table: Path) -> None:
    whole = table.read_bytes()
    for name, content in (("cut.parquet", whole[:-5000]), ("cut.arrow", b"ARROW1" + whole[:99])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name} is not .* damaged"):
            model().fit(ParquetRows(tmp_path / name, candidates="seen"))
    arrow = tmp_path / "holes.arrow"
    cells = pa.parquet.read_table(table)
    pa.feather.write_feather(cells, arrow, compression="lz4", chunksize=60)
    content = bytearray(arrow.read_bytes())
    content[4000:30000] = bytes(26000)
    arrow.write_bytes(content)
    with pytest.raises(InputError, match=r"holes\.arrow is not an Arrow file, or is damaged"):
        model().fit(ParquetRows(arrow, candidates="seen"))
    inside = bytearray(whole)
    inside[3000:9000] = bytes(6000)  # of a column's pages
    (tmp_path / "holes.parquet").write_bytes(inside)
    with pytest.raises(InputError, match=r"holes\.parquet"):
        model().fit(ParquetRows(tmp_path / "holes.parquet", candidates="seen"))
    folder = tmp_path / "two"
    folder.mkdir()
    with pytest.raises(InputError, match="there is no file that ends in"):
        model().fit(ParquetRows(folder, candidates="seen"))
    (folder / "1.parquet").write_bytes(whole)
    X.assign(seen="ant").to_parquet(folder / "2.parquet")
    with pytest.raises(InputError, match=r"Column 'seen' is of type list.* in .*1\.parquet, and"):
        model().fit(ParquetRows(folder, candidates="seen"))
    X.to_parquet(folder / "2.parquet")
    with pytest.raises(InputError, match=r"1\.parquet and .*2\.parquet differ in column 'seen'"):
        model().fit(ParquetRows(folder, candidates="seen"))


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "the default": (RobustPLLClassifier(), {}, r"needs all rows.*proden.*PLLClassifier\(RobustPll"),
    "valen": (PLLClassifier("valen"), {}, "Valen needs all rows in memory"),
    "pop": (PLLClassifier("pop"), {}, "Pop needs all rows in memory"),
    "classes of all rows": (
        PLLClassifier(RobustPll(balance=0.5, balance_to="candidates")),
        {},
        "RobustPll needs all rows in memory",
    ),
    "neighbours": (PLLClassifier("pl_knn"), {}, "needs all rows in memory"),
    "early stopping": (model(watch=0.1), {}, "watch cannot be used with streamed rows"),
    "weights": (model(class_weight="balanced"), {}, "class_weight cannot be used"),
    "quantiles": (model(scale="quantile"), {}, "scale='quantile' needs all rows"),
    "no folder": (model(), {"scratch": "nowhere"}, "scratch='nowhere': there is no such folder"),
    "no window": (model(), {"window": 1}, "window=1: it must be the number of rows"),
    "a word as window": (model(), {"window": "all"}, "window='all': it must be the number of rows"),
    "two forms": (model(), {"votes": "x"}, "candidates and votes are passed"),
    "no labels": (model(), {"candidates": None}, "no labels: pass candidates, votes or"),
    "labels as features": (model(), {"features": ["a", "seen"]}, "features must name columns"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_streamed_is_refused_before_rows_are_read(case: str, table: Path) -> None:
    classifier, options, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        classifier.fit(ParquetRows(table, **{"candidates": "seen", **options}))


def test_labels_and_weights_beside_a_stream_are_refused(table: Path) -> None:
    rows = ParquetRows(table, candidates="seen")
    for options in ({"y": SETS}, {"sample_weight": np.ones(N)}):
        with pytest.raises(InputError, match="cannot be used with streamed rows"):
            model().fit(rows, **options)


def test_numbers_too_large_to_compute_with_are_refused_with_their_column(tmp_path: Path) -> None:
    rows = ParquetRows(written(tmp_path / "far.parquet", b=X["b"] * 1e30, seen=NAMES[LABELS]))
    rows = replace(rows, candidates="seen")
    with pytest.raises(InputError, match="Column 'b' holds numbers too large"):
        model(scale=None).fit(rows)
    model().fit(rows)  # scaled to the range 0 to 1


def test_what_needs_all_rows_says_how_to_read_them(table: Path) -> None:
    rows = ParquetRows(table, candidates="seen")
    classifier = model().fit(rows)
    for ask in (classifier.recalibrate, classifier.calibrate_decisions, classifier.partial_fit):
        with pytest.raises(InputError, match=r"Pass X\.read\(\)\[0\]"):
            ask(rows, SETS)


def test_a_streamed_fit_forgets_the_optimizer_of_partial_fits(table: Path) -> None:
    classifier = model().partial_fit(X, SETS)
    assert hasattr(classifier, "optimizer_")
    assert not hasattr(classifier.fit(ParquetRows(table, candidates="seen")), "optimizer_")


def test_a_full_disk_is_found_before_files_are_written(table: Path) -> None:
    with (
        patch("shutil.disk_usage", return_value=type("Usage", (), {"free": 1000})),
        pytest.raises(InputError, match=r"Scratch files in .* need about .* `scratch`"),
    ):
        model().fit(ParquetRows(table, candidates="seen"))


def test_scratch_files_have_no_names_and_are_closed_after_ctrl_c(
    table: Path, tmp_path: Path
) -> None:
    scratch, step, seen = tmp_path / "scratch", Training.step, list[list[Path]]()
    scratch.mkdir()

    def stop(self: Training, *arguments: Any) -> None:
        seen.append([*scratch.iterdir()])
        if len(seen) == 5:
            raise KeyboardInterrupt
        step(self, *arguments)

    classifier = model(RobustPll(epochs=3, batch_size=64))
    rows = ParquetRows(table, candidates="seen", window=128, scratch=scratch)
    with patch.object(Training, "step", stop), pytest.raises(KeyboardInterrupt):
        classifier.fit(rows)
    assert seen == [[]] * 5
    assert not [*scratch.iterdir()]
    assert not hasattr(classifier, "fitted_")


def test_the_memory_does_not_grow_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither numpy nor torch allocates a third of the features in float32."""
    monkeypatch.setattr(stream, "PIECE_ROWS", 512)
    count = 20_000
    y = np.arange(count) % 2
    wide = pd.DataFrame(RANDOM.normal(size=(count, 40)).astype(np.float32) + y[:, None])
    wide.columns = [f"x{number}" for number in range(40)]
    wide.assign(seen=y).to_parquet(tmp_path / "wide.parquet", row_group_size=1000)
    most, largest = 4 * count * 40 // 3, 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            result = func(*args, **kwargs or {})
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.nbytes)
            return result

    def network(shape: Any, k: int) -> Any:
        return torch.nn.Linear(shape[0], k)

    del wide
    tracemalloc.start()
    try:
        with Largest():
            method = Proden(epochs=4, network=network, batch_size=512, learning_rate=0.05)
            rows = ParquetRows(tmp_path / "wide.parquet", candidates="seen", window=1024)
            fitted = model(method).fit(rows)
            rows.write_predictions(fitted, tmp_path / "out.parquet")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert largest < most
    assert peak < most
    assert fitted.score(*rows.read()) > 0.9
    with pytest.raises(InputError, match=r"y is None.*Pass \*X.read\(\)"):
        fitted.score(rows)


def test_all_methods_say_whether_they_can_be_streamed(table: Path) -> None:
    from robustpll.estimator.streaming import is_streamable

    able = {name for name, kind in METHODS.items() if is_streamable(kind())}
    assert {"proden", "rc", "cc", "cavl", "robust_pll", "robust_pll_at", "proden_ens"} <= able
    assert able.isdisjoint({"auto", "pop", "valen", "crosel", "proden_edl", "pico", "pl_knn"})


def test_commands_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("big.parquet"), seen=[sorted(s) for s in SETS], truth=NAMES[LABELS], id=range(N))
    run = CliRunner().invoke
    fit = shlex.split(
        "fit big.parquet --candidates seen --truth truth --id id --stream --out m.pll"
    )
    done = run(app, [*fit, "--epochs", "8"])
    assert done.exit_code == 0, done.output
    assert "RobustPll, 8 epochs" in done.output
    assert "right by the true labels" in done.output
    predict = shlex.split("predict m.pll big.parquet --stream --keep id --out answers.parquet")
    for _ in range(2):  # a file of its own is replaced
        done = run(app, predict)
        assert done.exit_code == 0, done.output
    answers = pd.read_parquet("answers.parquet")
    assert (answers["label"] == NAMES[LABELS]).mean() > 0.7
    assert answers["id"].tolist() == [*range(N)]
    assert "No row is accepted" not in done.output
    assert run(app, [*fit, "--epochs", "1", "--held-out", "0"]).exit_code == 0
    done = run(app, predict)
    assert "No row is accepted: no 30 rows were held out to fix a threshold. Use" in done.output
    assert not pd.read_parquet("answers.parquet")["accepted"].any()
    assert run(app, [*predict[:-1], "big.parquet"]).exit_code == 1
    written(Path("other.parquet"))
    done = run(app, [*predict[:-1], "other.parquet"])
    assert "would be lost" in done.output
    assert len(pd.read_parquet("other.parquet").columns) == 6
    for options in (["--text", "a"], ["--delimiter", ";"], ["--early-stopping"]):
        done = run(app, [*fit, *options])
        assert done.exit_code == 2
        assert f"does not take {options[0]}" in " ".join(done.output.split())
    for option in ("truth", "question", "image-input", "images-root"):
        done = run(app, [*predict, f"--{option}", "id"])
        assert done.exit_code == 2
        assert f"does not take --{option}" in " ".join(done.output.split())
    done = run(app, [*fit, "--method", "valen"])
    assert done.exit_code == 1
    assert "Valen needs all rows in memory" in done.output


def test_held_out_rows_of_a_stream_do_not_end_the_command_after_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = pd.Series(LABELS.astype(str))
    names[::9] = [f"rare {number}" for number in range(len(names[::9]))]
    written(Path("t.parquet"), seen=names, truth=LABELS)
    run = CliRunner().invoke
    fit = shlex.split("fit t.parquet --candidates seen --stream --epochs 8")
    done = run(app, [*fit, "--truth", "truth", "--out", "m.pll"])
    assert done.exit_code == 0, done.output
    assert "held-out rows left out, with classes no other row has (rare" in done.output
    right = done.stdout.partition("right by the true labels: ")[2]  # 1 is the class "1"
    assert float(right.partition("%")[0]) > 40
    done = run(app, [*fit, "--truth", "true", "--out", "none.pll"])
    assert done.exit_code == 1
    assert "There is no column 'true'. There is 'truth'" in done.output
    assert not Path("none.pll").exists()


def test_window_sizes_cover_all_rows() -> None:
    for n in range(2, 60):
        for window in range(2, 20):
            sizes = window_sizes(n, window)
            assert sizes.sum() == n
            assert sizes.min() >= 2
