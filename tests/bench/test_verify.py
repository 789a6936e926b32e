"""Damage in a store: told in sentences, found by reading all, moved aside, made anew."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from robustpll.bench import Grid, ResultStore, run_grid, summarize
from robustpll.bench.locks import SILENCE, Claims
from robustpll.bench.stored_files import ABOUT, StoreError
from robustpll.bench.verify import damage, set_aside
from robustpll.cli import app
from robustpll.errors import InputError

DEEP = "[" * 100_000
ASKED = {"name": "mine", "methods": ["pl_knn"], "datasets": ["synthetic"], "noise": "uniform"}
GRID = Grid.of(ASKED | {"seeds": 2})


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    run_grid(GRID, folder, device="cpu", workers=1, quiet=True)
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> ResultStore:
    """A copy of it, to be damaged."""
    for path in sound.rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(sound)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return ResultStore(tmp_path)


def the_run(store: ResultStore) -> Path:
    return store.path(GRID.runs()[0].run)


def damage_pages(path: Path) -> None:
    """One bit among the predictions; the footer stays whole."""
    raw = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(6)
    raw[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(raw)


def test_a_sound_store_is_sound(store: ResultStore) -> None:
    assert damage(store) == {}
    done = command("verify", "--store", store.root)
    assert done.exit_code == 0
    assert "are sound" in done.stderr


def test_damaged_predictions_are_listed_and_run_again_once_they_are_aside(
    store: ResultStore,
) -> None:
    path = the_run(store)
    before = store.read(GRID.runs()[0].run)
    damage_pages(path)
    raw = path.read_bytes()
    listed = command("verify", "--store", store.root)
    assert listed.exit_code == 1
    assert str(path) in listed.stdout
    assert path.read_bytes() == raw
    repaired = command("verify", "--store", store.root, "--repair")
    assert repaired.exit_code == 0
    aside = store.root / "damaged" / path.relative_to(store.root)
    assert str(aside) in repaired.stdout
    assert aside.read_bytes() == raw
    assert not path.exists()
    assert "1 of 2 runs are here; 1 to run" in command("status", "--store", store.root).stdout
    assert run_grid(GRID, store, device="cpu", workers=1, quiet=True).done == 1
    assert store.read(GRID.runs()[0].run).equals(before)
    assert damage(store) == {}


def test_nothing_that_lies_aside_is_overwritten(store: ResultStore) -> None:
    path = the_run(store)
    contents = []
    for content in (b"one", b"two", b"three"):
        path.write_bytes(content)
        contents.append(set_aside(store, path).read_bytes())
    assert contents == [b"one", b"two", b"three"]
    assert len(list((store.root / "damaged").rglob("*.parquet*"))) == 3


def with_footer(path: Path, footer: bytes) -> None:
    pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata({ABOUT: footer}), path)


def as_another_run(path: Path) -> None:
    path.rename(path.with_stem("0" * 20))


def without_a_condition(path: Path) -> None:
    plain = json.loads(pq.read_schema(path).metadata[ABOUT])
    plain["conditions"].append({"part": "test", "epsilon": 0.1})
    with_footer(path, json.dumps(plain).encode())


def without_seconds(path: Path) -> None:
    plain = json.loads(pq.read_schema(path).metadata[ABOUT])
    with_footer(path, json.dumps(plain | {"seconds": {}}).encode())


def without_columns(path: Path) -> None:
    metadata = pq.read_schema(path).metadata
    pq.write_table(pa.table({"row": [1]}).replace_schema_metadata(metadata), path)


RUNS = {
    "pages": damage_pages,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: with_footer(path, b"nonsense"),
    "no UTF-8": lambda path: with_footer(path, b"\xff\xfe{}"),
    "a list": lambda path: with_footer(path, b"[1, 2]"),
    "deep": lambda path: with_footer(path, DEEP.encode()),
    "no seconds": without_seconds,
    "no columns": without_columns,
    "another name": as_another_run,
    "a condition less": without_a_condition,
}


@pytest.mark.parametrize("spoil", RUNS.values(), ids=RUNS.keys())
def test_every_damage_of_a_run_is_found(
    store: ResultStore, spoil: Callable[[Path], object]
) -> None:
    spoil(the_run(store))
    [(path, sentence)] = damage(store).items()
    assert path.name in sentence
    summarize(store, GRID)  # which names it as missing
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
def test_damaged_notes_are_sentences_and_no_tracebacks(
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


def test_a_damaged_note_of_a_failure_is_a_sentence(store: ResultStore) -> None:
    run = GRID.runs()[0].run
    store.failed(run, "no memory")
    [path] = (store.root / "failures").iterdir()
    for content in OTHERS.values():
        path.write_bytes(content)
        assert store.failure(run) is not None
    path.write_bytes(DEEP.encode())
    assert damage(store).keys() == {path}


def test_damaged_candidates_are_found(store: ResultStore) -> None:
    path = sorted((store.root / "candidates").iterdir())[0]
    raw = bytearray(path.read_bytes())
    for at in range(0, len(raw), 97):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :])
        assert set(damage(store)) <= {path}  # whatever is wrong with it, no other error is raised
    path.write_bytes(raw[:-30])
    assert set(damage(store)) == {path}


def test_a_grid_of_a_method_that_is_not_known_here_is_not_damaged(store: ResultStore) -> None:
    [path] = (store.root / "grids").iterdir()
    path.write_text(path.read_text().replace('"pl_knn"', '"best_candidate"'))
    assert damage(store) == {}
    told = command("status", "--store", store.root)
    assert told.exit_code == 1
    assert "There is no method 'best_candidate'" in told.stderr


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


def test_no_folder_is_no_sound_store(tmp_path: Path) -> None:
    assert command("verify", "--store", tmp_path / "nowhere").exit_code == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock of this process shows."""
    shown = [1000.0]
    monkeypatch.setattr("robustpll.bench.locks.time.monotonic", lambda: shown[0])
    return shown


def claimed_elsewhere(folder: Path, touched: float) -> Path:
    """A claim of another machine, whose sign of life has this time."""
    life = folder / "other.alive"
    life.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    (folder / "run.claim").write_text("other")
    os.utime(life, (touched, touched))
    return life


def test_a_claim_from_the_future_is_told_and_expires(tmp_path: Path, clock: list[float]) -> None:
    said: list[str] = []
    life = claimed_elsewhere(tmp_path, 4e9)  # in the year 2096
    with Claims(tmp_path, said.append) as claims:
        assert not claims.take("run")
        [sentence] = said
        assert f"{life} is from the future" in sentence
        clock[0] += SILENCE - 1
        assert not claims.take("run")
        clock[0] += 2
        assert claims.take("run")
    assert len(said) == 1


def test_an_owner_with_a_wrong_clock_keeps_its_claim_while_it_is_alive(
    tmp_path: Path, clock: list[float]
) -> None:
    life = claimed_elsewhere(tmp_path, 4e9)
    with Claims(tmp_path) as claims:
        for beat in range(1, 10):
            assert not claims.take("run")
            clock[0] += SILENCE - 1
            os.utime(life, (4e9 + beat, 4e9 + beat))
        assert not claims.take("run")
        clock[0] += SILENCE + 1
        assert claims.take("run")


def test_a_version_of_the_store_is_part_of_the_name_that_is_checked(store: ResultStore) -> None:
    """A run that is renamed to another version of its dataset is found out."""
    run = GRID.runs()[0].run
    other = store.path(replace(run, content="0123456789abcdef"))
    other.write_bytes(store.path(run).read_bytes())
    assert set(damage(store)) == {other}
