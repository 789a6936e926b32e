"""Versions of one dataset's file: told apart in the store, and never in one table."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.io import savemat

from robustpll import load_dataset
from robustpll.bench import Grid, ResultStore, run_grid, summarize, worker
from robustpll.bench.grid import runs_here
from robustpll.bench.store import of_store
from robustpll.bench.summary import read_summary
from robustpll.bench.worker import bundles
from robustpll.datasets import catalog
from robustpll.datasets.catalog import CATALOG
from robustpll.errors import InputError

REPORTS = Path(__file__).parents[2] / "reports"
Put = Callable[[bytes], str]
Run = Callable[[Grid, Path], Any]
LOST = Grid.of({"name": "mine", "methods": ["pl_knn"], "datasets": ["lost"], "seeds": 2})


def mat(seed: int, right: float = 0.9, wrong: float = 0.4) -> bytes:
    """Forty rows of three classes; with each seed it is another version."""
    draws = np.random.default_rng(seed)
    labels = np.arange(40) % 3
    target = np.eye(3)[labels].T
    partial = np.maximum(target, draws.random((3, 40)) < wrong)
    data = np.eye(3)[labels] + draws.normal(scale=1 - right, size=(40, 3))
    file = io.BytesIO()
    savemat(file, {"data": data, "partial_target": partial, "target": target})
    return file.getvalue()


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Put:
    """Puts a file in the place of Lost's; hands back how its version is called."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    path = tmp_path / "data" / "realworld" / "lost.mat"
    path.parent.mkdir(parents=True)

    def put(content: bytes) -> str:
        path.write_bytes(content)
        return load_dataset("lost").content

    return put


def make_usual(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """As if the catalogue knew this version of Lost."""
    entry = CATALOG["lost"]
    file = replace(entry.files[0], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(CATALOG, "lost", replace(entry, files=(file,)))


@pytest.fixture
def run(inline: Any) -> Run:
    def run(grid: Grid, store: Path) -> Any:
        outcome = run_grid(grid, store, executor=inline(), quiet=True)
        assert outcome.failed == {}
        return outcome

    return run


def test_a_summary_is_about_one_version_and_says_which(put: Put, run: Run, tmp_path: Path) -> None:
    contents = {"clear": mat(0, right=0.95), "noisy": mat(1, right=0.0)}
    versions = {}
    for name, content in contents.items():
        versions[name] = put(content)
        outcome = run(LOST, tmp_path)
        assert (outcome.known, outcome.done) == (0, 2)
    put(contents["clear"])
    assert run(LOST, tmp_path).known == 2
    store = ResultStore(tmp_path)
    with pytest.raises(InputError, match="2 versions of the file of lost") as caught:
        summarize(store, LOST)
    assert all(f"{version} (2 runs)" in str(caught.value) for version in versions.values())
    summaries = {
        name: summarize(store, LOST, {"lost": version}) for name, version in versions.items()
    }
    for name, summary in summaries.items():
        assert len(summary.runs) == 2
        assert summary.contents == {"lost": versions[name]}
        assert all(key.endswith(versions[name]) for key in summary.runs["key"])
    assert summaries["clear"].runs["accuracy"].min() > summaries["noisy"].runs["accuracy"].max()
    with pytest.raises(InputError, match="2 versions"):
        store.frame(LOST.runs())
    with pytest.raises(InputError, match="got 'other'"):
        summarize(store, LOST, {"lost": "other"})


def test_runs_that_name_their_version_need_no_choice(tmp_path: Path) -> None:
    store, [run, _] = ResultStore(tmp_path), LOST.runs()
    other = replace(run, content="0123456789abcdef")
    store.path(run).parent.mkdir(parents=True)
    for version in (run, other):
        store.path(version).touch()
    with pytest.raises(InputError, match="2 versions"):
        of_store(store, [run])
    assert of_store(store, [other]) == (other,)


def test_a_version_of_a_dataset_that_no_run_is_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"version of lots is chosen, .* the runs are on lost"):
        summarize(ResultStore(tmp_path), LOST, {"lots": "usual"})


def test_commands_say_what_there_is_and_take_a_version(
    made: Any, put: Put, run: Run, tmp_path: Path
) -> None:
    store, out = tmp_path / "store", tmp_path / "report"
    first = put(mat(0))
    run(LOST, store)
    second = put(mat(1))
    status = made.command("status", "--store", store).stdout
    assert "0 of 2 runs are here; 2 to run" in status
    assert f"2 stored runs are on another version of its file ({first})" in status
    assert f"the one that is here ({second})" in status
    run(LOST, store)
    words = ("report", "--store", store, "--out", out)
    refused = made.command(*words)
    assert refused.exit_code == 1
    assert "--version lost=" in refused.stderr
    assert not out.exists()
    done = made.command(*words, "--version", f"lost={first}")
    assert done.exit_code == 0, done.stderr
    assert f"is the version {first}, not the usual one" in (out / "index.html").read_text()
    assert read_summary(out / "runs.parquet").contents == {"lost": first}
    odd = made.command(*words, "--version", "lost")
    assert odd.exit_code == 1
    assert "DATASET=VERSION" in odd.stderr


def test_runs_of_an_old_store_count_for_the_version_that_the_catalogue_knows(
    put: Put, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 0.1 stored no content: its keys are those of runs on the usual version."""
    usual, other = mat(0), mat(1)
    make_usual(monkeypatch, usual)
    assert put(usual) == ""
    run(LOST, tmp_path)
    names = {path.stem for path in tmp_path.glob("runs/*/*/*.parquet")}
    assert names == {planned.key for planned in LOST.runs()}
    assert run(LOST, tmp_path).known == 2
    assert summarize(ResultStore(tmp_path), LOST).contents == {}
    changed = put(other)
    assert run(LOST, tmp_path).known == 0
    with pytest.raises(InputError, match=rf"usual \(2 runs\), {changed} \(2 runs\)"):
        summarize(ResultStore(tmp_path), LOST)
    assert len(summarize(ResultStore(tmp_path), LOST, {"lost": "usual"}).runs) == 2


def test_a_store_gives_its_report_where_no_data_are(
    made: Any, put: Put, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mat(0))
    store = ResultStore(tmp_path / "store")
    run(LOST, store.root)
    before = summarize(store, LOST)
    for name in ("ROBUSTPLL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    assert before.runs.equals(summarize(store, LOST).runs)
    assert "2 of 2 runs are here" in made.command("status", "--store", store.root).stdout


def test_a_version_changes_the_key_alone_and_no_prediction(
    put: Put, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the guesses, which are random."""
    content = mat(3, wrong=1.0)
    put(content)
    tables = []
    for folder in ("other", "usual"):
        store = ResultStore(tmp_path / folder)
        run(LOST, store.root)
        tables.append([store.read(planned) for planned in runs_here(LOST)[0]])
        make_usual(monkeypatch, content)
    assert sum(table["guess"].to_pylist().count(True) for table in tables[0]) > 0
    assert all(one.equals(other) for one, other in zip(*tables, strict=True))


def test_a_file_that_changes_after_the_plan_was_made_is_not_trained_on(put: Put) -> None:
    put(mat(7))
    [bundle, *_] = bundles(runs_here(LOST)[0], joined=False)
    put(mat(8))
    with pytest.raises(InputError, match="that the run needs"):
        worker.compute(bundle)


def test_planning_reads_a_file_once(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    put(mat(0))
    counted = Mock(wraps=catalog.checksum)
    monkeypatch.setattr(catalog, "checksum", counted)
    grid = replace(LOST, seeds=tuple(range(50)))
    first = runs_here(grid)[0]
    assert counted.call_count == 1
    put(mat(1))
    assert runs_here(grid)[0] != first


def test_candidates_that_noise_made_are_of_one_version_too(
    made: Any, run: Run, tmp_path: Path, unpublished: Callable[..., None], put: Put
) -> None:
    unpublished("mnist")
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["mnist"], "seeds": 1, "noise": "uniform"})
    keys = set()
    for rows in (100, 120):
        for part, n in (("train", rows), ("t10k", 20)):
            images = np.random.default_rng(rows).integers(0, 256, (n, 4, 4))
            made.write_pictures(tmp_path / "data" / "mnist", part, images, np.arange(n) % 10)
        keys |= {planned.noise_key for planned in runs_here(grid)[0]}
        assert run(grid, tmp_path / "store").done == 1
    assert {path.stem for path in (tmp_path / "store" / "candidates").iterdir()} == keys
    assert len(keys) == 2


@pytest.mark.parametrize("name", ["paper", "sound", "audit"])
def test_runs_of_the_published_reports_have_their_keys(name: str) -> None:
    summary = read_summary(REPORTS / name / "runs.parquet")
    keys = {planned.key for planned in summary.grid.runs()}
    assert keys.issuperset(summary.runs["key"])


@pytest.mark.data
def test_the_files_here_are_those_of_the_published_reports() -> None:
    grid = Grid.of({"datasets": ["bird-song", "lost", "msrc-v2", "fg-net", "italian"], "seeds": 1})
    assert runs_here(grid)[0] == grid.runs()
    assert load_dataset("lost").content == ""
