"""Files of results: complete or absent, verified, and repaired."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from robustpll.bench import Grid, ResultStore, run_grid, summarize
from robustpll.bench.grid import Condition, Run
from robustpll.bench.run import noise_key
from robustpll.bench.store import ABOUT, RunResult, StoreError, damage, schema, set_aside
from robustpll.cli import app
from robustpll.datasets.noise import Uniform
from robustpll.errors import InputError
from robustpll.methods import Proden

CLEAN, ATTACKED = Condition("test"), Condition("test", 0.1)
RUN = Run(Proden(epochs=3), "digits", Uniform(), 0, label="Proden", conditions=(CLEAN,))
VALUES = {"name": "mine", "methods": ["pl_knn"], "datasets": ["synthetic"], "noise": "uniform"}
GRID = Grid.of(VALUES | {"seeds": 2})
DEEP = "[" * 100_000


def predictions(rows: int = 50) -> pa.Table:
    generator = np.random.default_rng(0)
    columns = {
        "part": ["test"] * rows,
        "condition": ["clean"] * rows,
        "row": np.arange(rows),
        "truth": generator.integers(10, size=rows),
        "predicted": generator.integers(10, size=rows),
        "guess": np.zeros(rows, bool),
    }
    reals = {name: generator.random(rows) for name in schema().names[6:]}
    arrays = [pa.array((columns | reals)[field.name]).cast(field.type) for field in schema()]
    return pa.table(arrays, schema=schema())


def result(run: Run = RUN, *conditions: Condition, rows: int = 50) -> RunResult:
    seconds = {"train": 1.0, "examine": 0.5}
    conditions = conditions or (CLEAN,)
    return RunResult(
        run.key, run.description, conditions, seconds, {"torch": "2"}, predictions(rows)
    )


@pytest.fixture
def one_run(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "store")
    store.write(RUN, result())
    return store


def test_what_is_written_is_read(one_run: ResultStore) -> None:
    assert one_run.read(RUN).equals(predictions())
    assert one_run.about(RUN) == replace(result(), table=None)
    assert one_run.read(RUN, ["row", "truth"]).column_names == ["row", "truth"]
    relative = one_run.path(RUN).relative_to(one_run.root)
    assert relative == Path(f"runs/dataset=digits/method=proden/{RUN.key}.parquet")
    again = ResultStore(one_run.root.parent / "again")
    again.write(RUN, result())
    assert again.path(RUN).read_bytes() == one_run.path(RUN).read_bytes()


def test_a_run_is_missing_until_it_is_written_with_all_its_conditions(tmp_path: Path) -> None:
    store, train, other = ResultStore(tmp_path), Condition("train"), replace(RUN, seed=1)
    assert store.missing([RUN]) == [RUN]
    store.write(RUN, result(RUN, train, CLEAN))
    assert store.missing([RUN, other]) == [other]  # it may hold more than is requested
    [again] = store.missing([replace(RUN, conditions=(CLEAN, ATTACKED))])
    assert again.conditions == (train, CLEAN, ATTACKED)
    [one] = store.missing([other, replace(other, label="again", conditions=(CLEAN, ATTACKED))])
    assert one.conditions == (CLEAN, ATTACKED)  # two labels of one method are one run


def test_a_file_cut_anywhere_is_damaged_and_named(one_run: ResultStore) -> None:
    path = one_run.path(RUN)
    whole = path.read_bytes()
    for length in range(0, len(whole), 397):
        path.write_bytes(whole[:length])
        assert one_run.missing([RUN]) == [RUN]
        with pytest.raises(StoreError, match=RUN.key):
            one_run.about(RUN)
        [message] = one_run.damaged([RUN])
        assert str(path) in message
    one_run.write(RUN, result())
    assert one_run.damaged([RUN]) == []


def damage_pages(path: Path) -> None:
    """Change one bit of the predictions; the footer stays whole."""
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(6)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def test_a_changed_bit_among_the_predictions_is_noticed(one_run: ResultStore) -> None:
    damage_pages(one_run.path(RUN))
    with pytest.raises(StoreError, match=RUN.key):
        one_run.read(RUN)


@pytest.mark.parametrize("kind", ["no table", "another table", "another run"])
def test_a_foreign_file_is_none_of_the_results(one_run: ResultStore, kind: str) -> None:
    path, other = one_run.path(RUN), replace(RUN, seed=7)
    one_run.write(other, result(other))
    if kind == "another table":
        pq.write_table(pa.table({"a": [1]}), path)
    else:
        content = b"no table" if kind == "no table" else one_run.path(other).read_bytes()
        path.write_bytes(content)
    assert one_run.missing([RUN]) == [RUN]
    assert one_run.frame([RUN]).empty


def test_a_frame_says_whose_predictions_they_are(one_run: ResultStore) -> None:
    other = replace(RUN, label="elsewhere", seed=1)
    one_run.write(other, result(other, rows=20))
    frame = one_run.frame([RUN, other, replace(RUN, seed=2)])
    assert frame.groupby(["label", "dataset", "seed"]).size().to_dict() == {
        ("Proden", "digits", 0): 50,
        ("elsewhere", "digits", 1): 20,
    }


def test_a_failure_is_kept_until_the_run_is_there(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    assert store.failure(RUN) is None
    store.failed(RUN, "It was too much.")
    assert store.failure(RUN) == "It was too much."
    assert store.missing([RUN]) == [RUN]
    store.write(RUN, result())
    assert store.failure(RUN) is None


def test_candidates_are_kept_as_bits(tmp_path: Path) -> None:
    store, key = ResultStore(tmp_path), noise_key("digits", Uniform(), 3)
    matrix = np.random.default_rng(0).random((101, 7)) < 0.5
    assert store.candidates(key) is None
    store.keep_candidates(key, matrix)
    assert np.array_equal(store.candidates(key), matrix)  # type: ignore[arg-type]
    [path] = (tmp_path / "candidates").iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    assert store.candidates(key) is None  # they are drawn again


def test_grids_are_kept_with_the_latest_last(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for seconds, name in enumerate(("sound", "quick")):
        store.keep_grid(Grid.named(name))
        os.utime(tmp_path / "grids" / f"{name}.json", (seconds, seconds))
    assert list(store.grids().items()) == [(n, Grid.named(n)) for n in ("sound", "quick")]


def test_a_writer_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    """Killed while it writes again and again; every file is complete."""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_store import RUN, result
from robustpll.bench.store import ResultStore
store, content = ResultStore({str(tmp_path)!r}), result(rows=20_000)
print("begun", flush=True)
while True:
    store.write(RUN, content)
"""
    store = ResultStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
    if store.path(RUN).exists():
        assert store.read(RUN).equals(predictions(20_000))
    for path in tmp_path.rglob(".*"):
        os.utime(path, (0, 0))
    store.sweep()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_only_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """A store may lie in a project with hidden files."""
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


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


@pytest.fixture(scope="module")
def sound(inline: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    run_grid(GRID, folder, executor=inline(), quiet=True)
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> ResultStore:
    """A copy, to be damaged."""
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return ResultStore(tmp_path)


def path_of(store: ResultStore) -> Path:
    return store.path(GRID.runs()[0])


def test_a_sound_store_is_sound(store: ResultStore, tmp_path: Path) -> None:
    assert damage(store) == {}
    done = command("verify", "--store", store.root)
    assert done.exit_code == 0
    assert "are sound" in done.stderr
    assert command("verify", "--store", tmp_path / "nowhere").exit_code == 1


def test_damaged_predictions_are_listed_and_run_again_once_they_are_aside(
    inline: Any, store: ResultStore
) -> None:
    path, before = path_of(store), store.read(GRID.runs()[0])
    damage_pages(path)
    content = path.read_bytes()
    listed = command("verify", "--store", store.root)
    assert listed.exit_code == 1
    assert str(path) in listed.stdout
    assert path.read_bytes() == content
    repaired = command("verify", "--store", store.root, "--repair")
    assert repaired.exit_code == 0
    aside = store.root / "damaged" / path.relative_to(store.root)
    assert str(aside) in repaired.stdout
    assert aside.read_bytes() == content
    assert not path.exists()
    assert "1 of 2 runs are here; 1 to run" in command("status", "--store", store.root).stdout
    assert run_grid(GRID, store, executor=inline(), quiet=True).done == 1
    assert store.read(GRID.runs()[0]).equals(before)
    assert damage(store) == {}


def test_no_file_that_was_moved_aside_is_overwritten(store: ResultStore) -> None:
    path, contents = path_of(store), []
    for content in (b"one", b"two", b"three"):
        path.write_bytes(content)
        contents.append(set_aside(store, path).read_bytes())
    assert contents == [b"one", b"two", b"three"]
    assert len(list((store.root / "damaged").rglob("*.parquet*"))) == 3


def with_footer(path: Path, footer: bytes) -> None:
    pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata({ABOUT: footer}), path)


def with_changed_footer(path: Path, **changes: object) -> None:
    record = json.loads(pq.read_schema(path).metadata[ABOUT])
    with_footer(path, json.dumps(record | changes).encode())


def without_columns(path: Path) -> None:
    metadata = pq.read_schema(path).metadata
    pq.write_table(pa.table({"row": [1]}).replace_schema_metadata(metadata), path)


CONDITIONS = [{"part": "test"}, {"part": "test", "epsilon": 0.1}]
RUNS = {
    "pages": damage_pages,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: with_footer(path, b"nonsense"),
    "no UTF-8": lambda path: with_footer(path, b"\xff\xfe{}"),
    "a list": lambda path: with_footer(path, b"[1, 2]"),
    "deep": lambda path: with_footer(path, DEEP.encode()),
    "no seconds": lambda path: with_changed_footer(path, seconds={}),
    "no columns": without_columns,
    "another name": lambda path: path.rename(path.with_stem("0" * 20)),
    "a condition less": lambda path: with_changed_footer(path, conditions=CONDITIONS),
}


@pytest.mark.parametrize("spoil", RUNS.values(), ids=RUNS.keys())
def test_every_damage_of_a_run_is_found(
    store: ResultStore, spoil: Callable[[Path], object]
) -> None:
    spoil(path_of(store))
    [(path, message)] = damage(store).items()
    assert path.name in message
    summarize(store, GRID)  # lists it as missing
    assert command("status", "--store", store.root).exit_code == 0


OTHERS = {
    "no JSON": b"nonsense",
    "no UTF-8": b'{"a": "\xff"}',
    "a list": b"[]",
    "nothing": b"{}",
    "deep": DEEP.encode(),
    "other kinds": b'{"grid": 1, "name": 3, "methods": 7, "error": {}}',
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("folder", ["grids", "sessions"])
def test_damaged_notes_are_messages_and_no_tracebacks(
    store: ResultStore, folder: str, content: bytes
) -> None:
    [path] = (store.root / folder).iterdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged or not of this benchmark"):
        store.grids() if folder == "grids" else store.sessions()
    for words in (("status",), ("report", "--out", store.root / "report")):
        told = command(*words, "--store", store.root)
        assert told.exception is None or isinstance(told.exception, SystemExit)
    assert str(path) in command("verify", "--store", store.root, "--repair").stdout
    assert damage(store) == {}


def test_a_damaged_record_of_a_failure_is_a_message(store: ResultStore) -> None:
    run = GRID.runs()[0]
    store.failed(run, "no memory")
    [path] = (store.root / "failures").iterdir()
    for content in OTHERS.values():
        path.write_bytes(content)
        assert store.failure(run) is not None
    assert damage(store).keys() == {path}


def test_damaged_candidates_are_found(store: ResultStore) -> None:
    path = min((store.root / "candidates").iterdir())
    content = bytearray(path.read_bytes())
    for i in range(0, len(content), 97):
        path.write_bytes(content[:i] + bytes([content[i] ^ 0xFF]) + content[i + 1 :])
        assert set(damage(store)) <= {path}  # whatever is wrong with it, no other error is raised
    path.write_bytes(content[:-30])
    assert set(damage(store)) == {path}


def test_a_grid_of_a_method_that_is_not_known_here_is_not_damaged(store: ResultStore) -> None:
    [path] = (store.root / "grids").iterdir()
    path.write_text(path.read_text().replace('"pl_knn"', '"best_candidate"'))
    assert damage(store) == {}
    told = command("status", "--store", store.root)
    assert told.exit_code == 1
    assert "There is no method 'best_candidate'" in told.stderr


def test_a_run_that_is_renamed_to_another_version_is_found(store: ResultStore) -> None:
    run = GRID.runs()[0]
    other = store.path(replace(run, content="0123456789abcdef"))
    other.write_bytes(store.path(run).read_bytes())
    assert set(damage(store)) == {other}


def test_a_grid_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(InputError, match="it is no plain file"):
            Grid.read(path)


@pytest.mark.parametrize("text", [f"a = {DEEP}", f"a = {'{b = ' * 50_000}"], ids=["list", "table"])
def test_a_grid_file_that_is_nested_deeply_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"deep\.toml is no TOML: nested too deeply"):
        Grid.read(path)
