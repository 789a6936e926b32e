"""Running a grid: kills, shared stores, full disks, failing runs, and processes on one GPU."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from robustpll import load_dataset
from robustpll.bench import Grid, ResultStore, run_grid
from robustpll.cli import app
from robustpll.engine.cluster import MPS, MPS_PIPES, mps_service
from robustpll.errors import InputError, RobustPLLError

PROGRAM = [sys.executable, "-c", "from robustpll.cli import app; app()", "bench"]
KNN: dict[str, Any] = {"methods": ["pl_knn"], "datasets": ["digits"], "noise": "uniform"}


def run_quietly(grid: Grid, store: ResultStore | Path, executor: Any) -> Any:
    return run_grid(grid, store, executor=executor, quiet=True)


@contextmanager
def driver(
    grid: Path, store: Path, *more: str, **options: object
) -> Iterator[subprocess.Popen[str]]:
    """A `bench run` in its own process group; nothing of it survives the block."""
    words = ["run", str(grid), "--store", str(store), "--device", "cpu", "--workers", "2", *more]
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finished_runs(store: Path) -> list[Path]:
    return sorted(store.rglob("*.parquet"))


def workers_of(pid: int) -> list[psutil.Process]:
    """Worker processes, without the resource tracker."""
    children = psutil.Process(pid).children()
    return [child for child in children if "popen_loky" in " ".join(child.cmdline())]


def is_running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def assert_same(made: Any, undisturbed: ResultStore, grid: Path) -> Any:
    """Checks that a store has what the undisturbed one has, and no files left over."""

    def check(folder: Path) -> None:
        made.assert_equal(ResultStore(folder), undisturbed, grid)
        assert not list((folder / "locks").iterdir())
        for path in folder.rglob(".*"):  # a kill may have hit a write
            os.utime(path, (0, 0))
        ResultStore(folder).sweep()
        assert not [path for path in folder.rglob(".*") if path.is_file()]

    return check


def test_predictions_are_whole_and_learned_and_rows_are_those_of_the_dataset(
    undisturbed: ResultStore, grid: Path
) -> None:
    runs = Grid.read(grid).runs()
    frame = undisturbed.frame(runs)
    assert set(frame["condition"]) == {"clean", "pgd 0.1"}
    assert frame["probability"].between(0, 1).all()
    assert (frame["probability_squared"] <= frame["probability"] + 1e-5).all()
    assert (frame["belief"] + frame["uncertainty"] < 1 + 1e-5).all()
    clean = frame[(frame["part"] == "test") & (frame["condition"] == "clean")]
    right = (clean["predicted"] == clean["truth"]).groupby(clean["label"]).mean()
    assert (right > 0.15).all(), right  # by chance 0.1
    assert right.max() > 0.4, right
    same = clean[clean["predicted"] == clean["truth"]]
    assert (same["probability"] == same["probability_of_truth"]).all()
    attacked = frame[frame["condition"] == "pgd 0.1"]
    assert set(attacked["label"]) == {"Proden", "RobustPll+Ens"}
    assert (attacked["predicted"] == attacked["truth"]).mean() < right.max()
    for (name, seed), rows in clean.groupby(["dataset", "seed"]):
        dataset = load_dataset(name)
        assert (dataset.labels[rows["row"]] == rows["truth"]).all()
        assert set(rows["row"]) == set(dataset.split(seed).test)


def test_a_killed_driver_goes_on_where_it_was_and_a_killed_worker_is_replaced(
    made: Any, grid: Path, assert_same: Any, tmp_path: Path
) -> None:
    with driver(grid, tmp_path) as first:
        made.wait_until(lambda: len(finished_runs(tmp_path)) >= 3)
        workers = workers_of(first.pid)
        assert len(workers) == 2
        first.kill()
        first.wait()
        made.wait_until(lambda: not any(map(is_running, workers)))
    before = {path: path.stat().st_mtime_ns for path in finished_runs(tmp_path)}
    assert 3 <= len(before) < 12
    with driver(grid, tmp_path) as second:
        made.wait_until(
            lambda: len(finished_runs(tmp_path)) > len(before) or second.poll() is not None
        )
        with suppress(IndexError, psutil.NoSuchProcess):
            workers_of(second.pid)[0].kill()
        assert second.wait(900) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}  # nothing ran twice
    assert_same(tmp_path)


def test_a_run_that_kills_its_worker_twice_is_recorded_and_others_go_on(
    inline: Any, tmp_path: Path
) -> None:
    class Dying(inline):  # type: ignore[misc]
        """Loses its worker whenever the synthetic dataset is trained on."""

        def result(self, future: Any) -> Any:
            bundle, result = self.submitted[-1], future.result()
            dies = not bundle.draws_noise and "synthetic" in bundle.title
            return replace(result, error="It was killed.", died=True) if dies else result

    grid, executor = Grid.of(KNN | {"datasets": ["synthetic", "digits"], "seeds": 2}), Dying(True)
    outcome = run_quietly(grid, tmp_path, executor)
    assert (outcome.done, outcome.left) == (2, 0)
    assert set(outcome.failed) == {f"PlKnn on synthetic, seed {seed}" for seed in (0, 1)}
    tried = [bundle.title for bundle in executor.submitted if "PlKnn on synthetic" in bundle.title]
    assert tried == ["PlKnn on synthetic (runs: 2)"] * 2 + ["PlKnn on synthetic (runs: 1)"] * 4


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(
    made: Any, grid: Path, assert_same: Any, tmp_path: Path
) -> None:
    with driver(grid, tmp_path) as process:
        made.wait_until(lambda: finished_runs(tmp_path))
        workers = workers_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes get it
        errors = process.communicate(timeout=900)[1]
        assert process.returncode == 130
        assert not any(map(is_running, workers))
    assert "Stopped." in errors
    assert "Traceback" not in errors
    run_grid(str(grid), tmp_path, device="cpu", workers=1, quiet=True)
    assert_same(tmp_path)


@pytest.mark.slow
def test_two_drivers_share_a_store(grid: Path, assert_same: Any, tmp_path: Path) -> None:
    one, other = (driver(grid, tmp_path, "--workers", "1") for _ in range(2))
    with one as first, other as second:
        errors = [process.communicate(timeout=900)[1] for process in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0), errors
    assert_same(tmp_path)


def test_a_run_that_another_driver_computes_is_left_to_it(
    inline: Any, grid: Path, tmp_path: Path, undisturbed: ResultStore
) -> None:
    small, store = Grid.read(grid).changed(methods=["pl_knn"], datasets=["digits"]), tmp_path
    first, second = small.runs()
    (store / "locks").mkdir()
    lock = FileLock(store / "locks" / f"{first.key}.lock")
    lock.acquire()

    class Other(inline):  # type: ignore[misc]
        """The other driver finishes its run when this one has nothing else to do."""

        def submit(self, function: Any, bundle: Any, place: Any) -> Any:
            if bundle.keys == (second.key,):
                path = ResultStore(store).path(first)
                path.parent.mkdir(parents=True)
                shutil.copy(undisturbed.path(first), path)
                lock.release()
            return super().submit(function, bundle, place)

    executor = Other()
    outcome = run_quietly(small, store, executor)
    assert (outcome.done, outcome.left) == (2, 0)
    assert first.key not in [key for bundle in executor.submitted for key in bundle.keys]


@pytest.mark.slow
def test_a_full_disk_stops_cleanly(
    grid: Path, undisturbed: ResultStore, assert_same: Any, tmp_path: Path
) -> None:
    largest = max(path.stat().st_size for path in finished_runs(undisturbed.root))
    limit = (largest * 9 // 10, resource.RLIM_INFINITY)
    no_room = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limit)
    with driver(grid, tmp_path, preexec_fn=no_room) as process:
        errors = process.communicate(timeout=900)[1]
        assert process.returncode == 1
    assert "could not be written: File too large" in errors
    assert "Traceback" not in errors
    run_grid(str(grid), tmp_path, device="cpu", workers=2, quiet=True)
    assert_same(tmp_path)


def test_a_run_that_fails_is_recorded_and_tried_again(
    made: Any, inline: Any, tmp_path: Path
) -> None:
    """A network for pictures takes no plain rows."""
    methods = [{"name": "proden", "network": "lenet"}, "pl_knn"]
    values = {"methods": methods, "datasets": ["synthetic"], "seeds": 1, "epochs": 1}
    grid = Grid.of(KNN | values)
    for known in (0, 1):
        outcome = run_quietly(grid, tmp_path, inline())
        [(name, message)] = outcome.failed.items()
        assert (name, outcome.known) == ("Proden on synthetic, seed 0", known)
        assert ResultStore(tmp_path).failure(grid.runs()[0]) == message
    shown = made.command("status", "--store", tmp_path).stdout
    assert "1 of 2 runs are here; 0 to run, 1 failed" in shown
    assert message in shown


def test_what_fails_is_named_and_other_runs_are_not_lost(
    inline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored candidates of other rows, a damaged file, and noise that needs more classes."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    (tmp_path / "realworld").mkdir()
    (tmp_path / "realworld" / "lost.mat").write_bytes(b"nothing of the kind")
    grid = Grid.of(KNN | {"datasets": ["digits", "lost"], "seeds": 2})
    store, seeds = ResultStore(tmp_path / "store"), (0, 1)
    store.keep_candidates(grid.runs()[1].noise_key, np.ones((5, 10), dtype=bool))
    outcome = run_quietly(grid, store, inline(joined=True))
    assert (outcome.done, outcome.left) == (1, 0)
    lost = {f"PlKnn on lost, seed {seed}" for seed in seeds}
    assert set(outcome.failed) == {"PlKnn on digits, seed 1"} | lost
    assert "do not fit the dataset" in outcome.failed["PlKnn on digits, seed 1"]
    grid = Grid.of(KNN | {"noise": {"name": "uniform", "added": 10}, "seeds": 2})
    outcome = run_quietly(grid, store, inline())
    assert (outcome.done, outcome.left, len(outcome.failed)) == (0, 0, 2)
    assert all("can add at most 9 wrong classes" in message for message in outcome.failed.values())


def test_absent_data_is_named_and_nothing_begins_after_the_time_is_up(tmp_path: Path) -> None:
    away = {"ROBUSTPLL_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    options = "--methods pl_knn --seeds 1 --workers 1 --noise uniform --device cpu --until 0"
    words = ["bench", "run", "paper", "--store", str(tmp_path / "store"), *options.split()]
    for datasets, code in (("lost", 1), ("lost,digits", 0)):
        done = CliRunner(env=away).invoke(app, [*words, "--datasets", datasets])
        assert done.exit_code == code, done.output
        assert "robustpll datasets add lost" in done.stderr
    assert "0 runs done" in done.stderr
    assert "1 left." in done.stderr


def test_more_conditions_are_evaluated_on_request(inline: Any, grid: Path, tmp_path: Path) -> None:
    small = Grid.read(grid).changed(methods=["proden"], datasets=["digits"], seeds=(0,))
    plain, store = replace(small, epsilons=(), train_rows=False), ResultStore(tmp_path)
    assert run_quietly(small, store, inline()).done == 1
    before = store.read(small.runs()[0])
    assert run_quietly(plain, store, inline()).known == 1
    further = replace(plain, epsilons=(0.2,))
    assert run_quietly(further, store, inline()).done == 1
    after = store.read(small.runs()[0]).to_pandas()
    rest = after[after["condition"] != "pgd 0.2"].reset_index(drop=True)
    assert len(rest) < len(after)
    assert rest["predicted"].equals(before.to_pandas()["predicted"])


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Workers do not import it."""
    script = tmp_path / "script.py"
    script.write_text(f"""
from robustpll.bench import Grid, run_grid
run_grid(Grid.of({KNN | {"seeds": 1}!r}), {str(tmp_path)!r}, device="cpu", workers=1, quiet=True)
""")
    words = [sys.executable, str(script)]
    subprocess.run(words, check=True, timeout=900)
    assert len(finished_runs(tmp_path)) > 0


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"until": -1.0}, {"device": "abacus"}])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        run_grid("quick", tmp_path, quiet=True, **wrong)
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(RobustPLLError, match="could not be written"):
        run_grid("quick", tmp_path / "store", device="cpu", quiet=True)


@pytest.mark.parametrize("variable", [("PATH", ""), (MPS_PIPES, "elsewhere")])
def test_no_mps_service_is_started_where_there_is_none_or_the_user_runs_one(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.delenv(MPS_PIPES, raising=False)
    monkeypatch.setenv(*variable)
    with mps_service() as settings:
        assert settings == {}


@pytest.mark.gpu
def test_processes_compute_under_the_mps_service_which_ends_with_them() -> None:
    program = "import torch; print(torch.ones(3, 3, device='cuda').sum().item())"
    with mps_service() as settings:
        if not settings:
            pytest.skip("NVIDIA's multi-process service is not here")
        environment = os.environ | settings
        product = subprocess.check_output([sys.executable, "-c", program], env=environment)
        assert product.strip() == b"9.0"
    listing = subprocess.run(
        [MPS], input=b"get_server_list\n", env=environment, capture_output=True, check=False
    )
    assert listing.returncode != 0
