"""Files of results: there and whole, or not there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustpll.bench.grid import Condition, Grid, PlannedRun, Run
from robustpll.bench.noise_cache import Drawn, Packed
from robustpll.bench.store import About, ResultStore, StoreError, schema
from robustpll.datasets.noise import Uniform
from robustpll.methods import Proden

CLEAN, ATTACKED = Condition("test"), Condition("test", 0.1)
RUN = Run(Proden(epochs=3), "digits", Uniform(), 0)
PLANNED = PlannedRun("Proden", RUN, (CLEAN,))


def predictions(rows: int = 50, condition: Condition = CLEAN) -> pa.Table:
    generator = np.random.default_rng(0)
    columns = {
        "part": [condition.part] * rows,
        "condition": [condition.name] * rows,
        "row": np.arange(rows),
        "truth": generator.integers(10, size=rows),
        "predicted": generator.integers(10, size=rows),
        "guess": np.zeros(rows, bool),
    }
    reals = {name: generator.random(rows) for name in schema().names[6:]}
    arrays = [pa.array((columns | reals)[f.name]).cast(f.type) for f in schema()]
    return pa.table(arrays, schema=schema())


def about(run: Run = RUN, *conditions: Condition) -> About:
    conditions = conditions or (CLEAN,)
    seconds = {"train": 1.0, "examine": 0.5}
    return About(run.key, run.description, conditions, seconds, {"torch": "2"})


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    kept = ResultStore(tmp_path / "store")
    kept.write(RUN, predictions(), about())
    return kept


def test_what_is_written_is_read(store: ResultStore) -> None:
    assert store.read(RUN).equals(predictions())
    assert store.about(RUN) == about()
    assert store.read(RUN, ["row", "truth"]).column_names == ["row", "truth"]
    relative = store.path(RUN).relative_to(store.root)
    assert relative == Path(f"runs/dataset=digits/method=proden/{RUN.key}.parquet")


def test_a_run_is_missing_until_it_is_written(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    assert store.missing([PLANNED]) == [PLANNED]
    store.write(RUN, predictions(), about())
    assert store.missing([PLANNED]) == []
    other = replace(PLANNED, run=replace(RUN, seed=1))
    assert store.missing([PLANNED, other]) == [other]


def test_a_run_that_lacks_a_condition_is_missing_with_all_of_them(tmp_path: Path) -> None:
    store, train = ResultStore(tmp_path), Condition("train")
    store.write(RUN, predictions(), about(RUN, train, CLEAN))
    [again] = store.missing([replace(PLANNED, conditions=(CLEAN, ATTACKED))])
    assert again.conditions == (train, CLEAN, ATTACKED)
    assert store.missing([PLANNED]) == []  # it holds more than is asked for


def test_labels_of_one_method_are_one_run(tmp_path: Path) -> None:
    attacked = PlannedRun("again", RUN, (CLEAN, ATTACKED))
    [only] = ResultStore(tmp_path).missing([PLANNED, attacked])
    assert only.conditions == (CLEAN, ATTACKED)


def test_a_file_cut_anywhere_is_damaged_and_named(store: ResultStore) -> None:
    path = store.path(RUN)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert store.missing([PLANNED]) == [PLANNED]
        with pytest.raises(StoreError, match=RUN.key):
            store.about(RUN)
        [sentence] = store.damaged([PLANNED])
        assert str(path) in sentence
    store.write(RUN, predictions(), about())
    assert store.damaged([PLANNED]) == []


def test_a_changed_byte_among_the_predictions_is_noticed(store: ResultStore) -> None:
    path = store.path(RUN)
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(6)
    at = column.data_page_offset + column.total_compressed_size - 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(StoreError, match=RUN.key):
        store.read(RUN)


@pytest.mark.parametrize(
    "foreign",
    [
        lambda path, _: path.write_bytes(b"no table"),
        lambda path, _: pq.write_table(pa.table({"a": [1]}), path),
        lambda path, store: path.write_bytes(_of_another_run(store)),
    ],
    ids=["no table", "another table", "another run"],
)
def test_a_foreign_file_is_none_of_the_results(
    store: ResultStore, foreign: Callable[[Path, ResultStore], object]
) -> None:
    foreign(store.path(RUN), store)
    assert store.missing([PLANNED]) == [PLANNED]
    assert store.frame([PLANNED]).empty


def _of_another_run(store: ResultStore) -> bytes:
    other = replace(RUN, seed=7)
    store.write(other, predictions(), about(other))
    return store.path(other).read_bytes()


def test_a_frame_says_whose_predictions_they_are(store: ResultStore) -> None:
    other = replace(PLANNED, label="elsewhere", run=replace(RUN, seed=1))
    store.write(other.run, predictions(20), about(other.run))
    frame = store.frame([PLANNED, other, replace(PLANNED, run=replace(RUN, seed=2))])
    assert frame.groupby(["label", "dataset", "seed"]).size().to_dict() == {
        ("Proden", "digits", 0): 50,
        ("elsewhere", "digits", 1): 20,
    }


def test_a_failure_is_kept_until_the_run_is_there(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    assert store.failure(RUN) is None
    store.failed(RUN, "It was too much.")
    assert store.failure(RUN) == "It was too much."
    assert store.missing([PLANNED]) == [PLANNED]
    store.write(RUN, predictions(), about())
    assert store.failure(RUN) is None


def test_candidates_are_kept_as_bits(tmp_path: Path) -> None:
    store, drawn = ResultStore(tmp_path), Drawn("digits", Uniform(), 3)
    matrix = np.random.default_rng(0).random((101, 7)) < 0.5
    assert store.candidates(drawn) is None
    store.keep_candidates(drawn, Packed.of(matrix))
    kept = store.candidates(drawn)
    assert kept is not None
    assert (kept.matrix() == matrix).all()
    [path] = (tmp_path / "candidates").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert store.candidates(drawn) is None  # they are drawn anew


def test_grids_are_kept_with_the_latest_last(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for at, name in enumerate(("sound", "quick")):
        store.keep_grid(Grid.named(name))
        os.utime(tmp_path / "grids" / f"{name}.json", (at, at))
    assert store.grids() == {name: Grid.named(name) for name in ("sound", "quick")}


def test_equal_predictions_are_equal_files_but_for_what_is_said_about_them(tmp_path: Path) -> None:
    one, other = ResultStore(tmp_path / "one"), ResultStore(tmp_path / "other")
    for store in (one, other):
        store.write(RUN, predictions(), about())
    assert one.path(RUN).read_bytes() == other.path(RUN).read_bytes()


def test_a_writer_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    """Killed many times while it writes over and over; whatever is there is whole."""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_store import RUN, about, predictions
from robustpll.bench.store import ResultStore
store, table = ResultStore({str(tmp_path)!r}), predictions(20_000)
print("begun", flush=True)
while True:
    store.write(RUN, table, about())
"""
    store = ResultStore(tmp_path)
    for wait in (0.05, 0.09, 0.13):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(wait)
            writer.send_signal(signal.SIGKILL)
        if store.path(RUN).exists():
            assert store.read(RUN).equals(predictions(20_000))
    left = [path for path in tmp_path.rglob(".*") if path.is_file()]
    for path in left:
        os.utime(path, (0, 0))
    store.sweep()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_only_what_writers_left_is_swept(tmp_path: Path) -> None:
    """A store may lie in somebody's project: hidden files there are not ours."""
    store = ResultStore(tmp_path)
    store.failed(RUN, "no memory")
    [kept] = (tmp_path / "failures").iterdir()
    left = kept.with_name(f".{kept.name}.ab3_x9zk")
    others = [tmp_path / ".gitignore", tmp_path / ".env.local", tmp_path / "failures" / ".keep"]
    for path in (left, *others):
        path.write_text("")
        os.utime(path, (0, 0))
    store.sweep()
    assert not left.exists()
    assert all(path.exists() for path in (kept, *others))
