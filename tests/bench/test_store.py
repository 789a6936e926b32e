"""Files of results: complete or absent, verified, and repaired."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustpll.bench import Grid, ResultStore, run_grid, summarize
from robustpll.bench.grid import Condition, Run
from robustpll.bench.store import ABOUT, SCHEMA, StoreError, damage, set_aside, with_record
from robustpll.datasets.noise import Uniform
from robustpll.methods import Proden

REFERENCE = Path(__file__).parents[1] / "reference"
CLEAN, ATTACKED = Condition("test"), Condition("test", 0.1)
RUN = Run(Proden(epochs=3), "digits", Uniform(), 0, label="Proden", conditions=(CLEAN,))
VALUES = {"name": "mine", "methods": ["pl_knn"], "datasets": ["synthetic"], "noise": "uniform"}
GRID = Grid.of(VALUES | {"seeds": 2})
FIRST = GRID.runs()[0]
DEEP = b"[" * 100_000


def table(run: Run = RUN, rows: int = 50) -> pa.Table:
    draws = np.random.default_rng(0)
    columns: dict[str, Any] = {name: draws.random(rows) for name in SCHEMA.names}
    columns |= {name: draws.integers(10, size=rows) for name in ("truth", "predicted")}
    columns |= {"part": ["test"] * rows, "condition": ["clean"] * rows}
    columns |= {"row": np.arange(rows), "guess": np.zeros(rows, bool)}
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
    predictions = pa.table(arrays, schema=SCHEMA)
    return with_record(predictions, run, {"train": 1.0, "examine": 0.5}, {"torch": "2"})


@pytest.fixture
def one_run(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "store")
    store.write(RUN, table())
    return store


def test_what_is_written_is_read(one_run: ResultStore) -> None:
    assert one_run.read(RUN).equals(table())
    about = one_run.about(RUN)
    assert about is not None
    assert (about["key"], about["conditions"]) == (RUN.key, (CLEAN,))
    assert about["seconds"] == {"train": 1.0, "examine": 0.5}
    assert (about["description"], about["facts"]) == (RUN.description, {"torch": "2"})
    assert one_run.read(RUN, ["row", "truth"]).column_names == ["row", "truth"]
    path = one_run.root / "runs" / "dataset=digits" / "method=proden" / f"{RUN.key}.parquet"
    before = path.read_bytes()
    one_run.write(RUN, table())
    assert path.read_bytes() == before


def test_a_run_is_missing_until_it_is_written_with_all_its_conditions(tmp_path: Path) -> None:
    store, train, other = ResultStore(tmp_path), Condition("train"), replace(RUN, seed=1)
    assert store.missing([RUN]) == [RUN]
    store.write(RUN, table(replace(RUN, conditions=(train, CLEAN))))
    assert store.missing([RUN, other]) == [other]  # it may hold more than is requested
    [again] = store.missing([replace(RUN, conditions=(CLEAN, Condition("test", audit=0.1)))])
    assert again.conditions == (train, CLEAN, Condition("test", audit=0.1))
    [one] = store.missing([other, replace(other, label="again", conditions=(CLEAN, ATTACKED))])
    assert one.conditions == (CLEAN, ATTACKED)  # two labels of one method are one run


def test_a_file_cut_anywhere_is_noticed(one_run: ResultStore) -> None:
    path = one_run.path(RUN)
    whole = path.read_bytes()
    for length in range(0, len(whole), 397):
        path.write_bytes(whole[:length])
        assert one_run.missing([RUN]) == [RUN]
        with pytest.raises(StoreError, match=RUN.key):
            one_run.about(RUN)
        [message] = damage(one_run).values()
        assert str(path) in message
    path.write_bytes(whole)
    assert damage(one_run) == {}


def test_a_frame_says_whose_predictions_they_are(one_run: ResultStore) -> None:
    other = replace(RUN, label="elsewhere", seed=1)
    one_run.write(other, table(other, rows=20))
    frame = one_run.frame([RUN, other, replace(RUN, seed=2)])
    assert frame.groupby(["label", "dataset", "seed"]).size().to_dict() == {
        ("Proden", "digits", 0): 50,
        ("elsewhere", "digits", 1): 20,
    }
    assert list(frame.columns) == ["label", "dataset", "seed", *SCHEMA.names]
    one_run.path(RUN).write_bytes(one_run.path(other).read_bytes())  # another run
    assert one_run.missing([RUN]) == [RUN]
    assert one_run.frame([RUN]).empty


def test_a_failure_is_kept_until_the_run_is_there_and_other_hidden_files_stay(
    tmp_path: Path,
) -> None:
    """A store may lie in a project with hidden files."""
    store, failures = ResultStore(tmp_path), tmp_path / "failures"
    store.failed(RUN, "It was too much.")
    left = failures / f".{RUN.key}.json.ab3_x9zk"  # of a killed writer
    others = [tmp_path / ".gitignore", tmp_path / ".env.local", failures / ".keep"]
    for path in (left, *others):
        path.write_text("")
        os.utime(path, (0, 0))
    store.sweep()
    assert not left.exists()
    assert all(path.exists() for path in others)
    assert store.failure(RUN) == "It was too much."
    assert store.missing([RUN]) == [RUN]
    store.write(RUN, table())
    assert store.failure(RUN) is None


def test_a_writer_that_is_killed_leaves_no_half_file(made: Any, tmp_path: Path) -> None:
    """Killed while it writes again and again; every file is complete."""
    folder = str(Path(__file__).parent)
    code = f"""
import sys; sys.path.insert(0, {folder!r})
from test_store import RUN, ResultStore, table
store, content = ResultStore({str(tmp_path)!r}), table(rows=20_000)
print("begun", flush=True)
while True:
    store.write(RUN, content)
"""
    store = ResultStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        made.wait_until(lambda: list(tmp_path.rglob(".*.parquet.*")) or store.path(RUN).exists())
        writer.kill()
    if store.path(RUN).exists():
        assert store.read(RUN).equals(table(rows=20_000))
    for path in tmp_path.rglob(".*"):
        os.utime(path, (0, 0))
    store.sweep()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


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


def test_damaged_predictions_are_listed_and_run_again_once_they_are_aside(
    made: Any, inline: Any, store: ResultStore, tmp_path: Path
) -> None:
    path, before = store.path(FIRST), store.read(FIRST)
    verify = ("verify", "--store", store.root)
    assert "are sound" in made.command(*verify).stderr
    assert made.command("verify", "--store", tmp_path / "nowhere").exit_code == 1
    damage_pages(path)
    content = path.read_bytes()
    listed = made.command(*verify)
    assert (listed.exit_code, path.read_bytes()) == (1, content)
    assert str(path) in listed.stdout
    repaired = made.command(*verify, "--repair")
    aside = store.root / "damaged" / path.relative_to(store.root)
    assert (repaired.exit_code, aside.read_bytes(), path.exists()) == (0, content, False)
    assert str(aside) in repaired.stdout
    assert "1 of 2 runs are here; 1 to run" in made.command("status", "--store", store.root).stdout
    assert run_grid(GRID, store, executor=inline(), quiet=True).done == 1
    assert store.read(FIRST).equals(before)
    assert damage(store) == {}
    set_aside(store, path)
    assert len(list(aside.parent.iterdir())) == 2, "nothing that lies aside is overwritten"
    assert aside.read_bytes() == content


def damage_pages(path: Path) -> None:
    """Change one bit of the predictions; the footer stays whole."""
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(6)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def with_footer(path: Path, footer: bytes | None = None, **changes: object) -> None:
    record = json.loads(pq.read_schema(path).metadata[ABOUT]) | changes
    metadata = {ABOUT: footer or json.dumps(record).encode()}
    pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata(metadata), path)


def without_columns(path: Path) -> None:
    metadata = pq.read_schema(path).metadata
    pq.write_table(pa.table({"row": [1]}).replace_schema_metadata(metadata), path)


CONDITIONS = [{"part": "test"}, {"part": "test", "epsilon": 0.1}]
SPOILED: dict[str, Callable[[Path], object]] = {
    "pages": damage_pages,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "no table": lambda path: path.write_bytes(b"nothing of the kind"),
    "no JSON": lambda path: with_footer(path, b"nonsense"),
    "no UTF-8": lambda path: with_footer(path, b"\xff\xfe{}"),
    "a list": lambda path: with_footer(path, b"[1, 2]"),
    "deep": lambda path: with_footer(path, DEEP),
    "no seconds": lambda path: with_footer(path, seconds={}),
    "no columns": without_columns,
    "another name": lambda path: path.rename(path.with_stem("0" * 20)),
    "another version": lambda path: path.rename(path.with_stem(f"{path.stem}-{'0' * 16}")),
    "a condition less": lambda path: with_footer(path, conditions=CONDITIONS),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_every_damage_of_a_run_is_found(
    made: Any, store: ResultStore, spoil: Callable[[Path], object]
) -> None:
    spoil(store.path(FIRST))
    [(path, message)] = damage(store).items()
    assert path.name in message
    summarize(store, GRID.changed(seeds=(0,)))  # lists it as missing
    assert made.command("status", "--store", store.root).exit_code == 0


def test_conditions_that_were_stored_before_there_were_audits_are_the_same(
    store: ResultStore,
) -> None:
    with_footer(store.path(FIRST), conditions=[{"part": "test", "epsilon": 0.1, "ood": ""}])
    assert (store.about(FIRST) or {})["conditions"] == (ATTACKED,)


NO_NOTES = (b"nonsense", b'{"a": "\xff"}', b"[]", b"{}", DEEP)


@pytest.mark.parametrize("folder", ["grids", "failures"])
def test_damaged_notes_are_messages_and_no_tracebacks(
    made: Any, store: ResultStore, folder: str
) -> None:
    store.failed(FIRST, "no memory")
    [path] = (store.root / folder).iterdir()
    sound = path.read_bytes()
    for content in NO_NOTES:
        path.write_bytes(content)
        assert set(damage(store)) == {path}
        assert store.failure(FIRST)
        if folder == "grids":
            with pytest.raises(StoreError, match="is damaged or not of this version"):
                store.grids()
        for words in (("status",), ("report", "--out", store.root / "report")):
            exception = made.command(*words, "--store", store.root).exception
            assert exception is None or isinstance(exception, SystemExit)
    assert str(path) in made.command("verify", "--store", store.root, "--repair").stdout
    path.write_bytes(sound)
    assert damage(store) == {}


def test_candidates_are_kept_as_bits_and_their_damage_is_found(store: ResultStore) -> None:
    matrix = np.random.default_rng(0).random((101, 7)) < 0.5
    assert store.candidates("mine") is None
    store.keep_candidates("mine", matrix)
    assert np.array_equal(store.candidates("mine"), matrix)  # type: ignore[arg-type]
    path = store.root / "candidates" / "mine.npz"
    content = path.read_bytes()
    for i in range(0, len(content), 97):
        path.write_bytes(content[:i] + bytes([content[i] ^ 0xFF]) + content[i + 1 :])
        assert set(damage(store)) <= {path}  # whatever is wrong with it, no other error is raised
    path.write_bytes(content[:-30])
    assert set(damage(store)) == {path}
    assert store.candidates("mine") is None  # they are drawn again


def test_a_grid_of_a_method_that_is_not_known_here_is_not_damaged(
    made: Any, store: ResultStore
) -> None:
    [path] = (store.root / "grids").iterdir()
    path.write_text(path.read_text().replace('"pl_knn"', '"best_candidate"'))
    assert damage(store) == {}
    done = made.command("status", "--store", store.root)
    assert done.exit_code == 1
    assert "There is no method 'best_candidate'" in done.stderr
    assert "--repair" not in done.stderr, "it would not move a file that is not damaged"
    assert "version of robustpll that wrote it" in done.stderr


# Accuracies that version 0.1.0 computed from a store that it wrote.
OF_0_1_0 = {
    ("Proden", 0): 0.2361111111,
    ("Proden", 1): 0.2472222222,
    ("PlKnn", 0): 0.2805555556,
    ("PlKnn", 1): 0.325,
}


def test_a_store_of_version_0_1_0_is_read_and_nothing_in_it_runs_again(tmp_path: Path) -> None:
    """Two methods on digits, with candidates and notes of a session; never rewritten."""
    folder = tmp_path / "store"
    shutil.copytree(REFERENCE / "store-0.1.0", folder)
    store, grid = ResultStore(folder), Grid.of_json((folder / "grids" / "tiny.json").read_text())
    runs = summarize(store, grid).runs
    accuracies = runs.set_index(["label", "seed"])["accuracy"].to_dict()
    assert accuracies == pytest.approx(OF_0_1_0, abs=1e-9)
    outcome = run_grid(grid, folder, device="cpu", workers=1, quiet=True)
    assert (outcome.known, outcome.done) == (4, 0)
