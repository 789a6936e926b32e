"""Sweeps that are killed, share a store, meet a full disk or a run that fails."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robustpll.bench import ResultStore, run_grid
from robustpll.bench.grid import Grid
from robustpll.bench.noise_cache import Drawn, Packed
from robustpll.bench.workers import LocalProcesses
from robustpll.datasets.noise import Uniform
from robustpll.errors import InputError, RobustPLLError

SMALL = """
name = "small"
methods = ["pl_knn", "proden", {name = "robust_pll_ens", members = 2, kl_ceiling = [0.5, 2]}]
datasets = ["digits", "synthetic"]
seeds = 2
noise = {name = "instance-dependent", epochs = 5, learning_rate = 0.1}
epsilons = [0.1]
epochs = 4
train_rows = true
"""
PROGRAM = [sys.executable, "-c", "from robustpll.cli import app; app()", "bench"]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def undisturbed(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> ResultStore:
    """The store of a sweep that nothing happened to, by a single process."""
    store = ResultStore(tmp_path_factory.mktemp("undisturbed"))
    outcome = run_grid(Grid.read(grid), store, device="cpu", workers=1, quiet=True)
    assert (outcome.done, outcome.failed, outcome.left) == (12, {}, 0)
    return store


def command(grid: Path, store: Path, *more: str) -> list[str]:
    return [*PROGRAM, "run", str(grid), "--store", str(store), "--device", "cpu", *more]


@contextlib.contextmanager
def sweeping(
    grid: Path, store: Path, *more: str, **options: object
) -> Iterator[subprocess.Popen[str]]:
    """A sweep in a process group of its own; whatever happens, nothing of it is left."""
    sweep = subprocess.Popen(
        command(grid, store, "--workers", "2", *more),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield sweep
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGKILL)
        sweep.communicate()


def finished_runs(store: Path) -> list[Path]:
    return sorted(store.rglob("*.parquet"))


def wait_until(true: Callable[[], object], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """Worker processes; the one that tracks resources is none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            is_worker = b"spawn_main" in (folder / "cmdline").read_bytes()
            if parent == pid and is_worker:
                found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def assert_equal(store: ResultStore, other: ResultStore, grid: Path) -> None:
    """The same runs, and equal prediction columns."""
    planned = Grid.read(grid).runs()
    assert {path.name for path in finished_runs(store.root)} == {
        path.name for path in finished_runs(other.root)
    }
    for each in planned:
        assert store.read(each.run).equals(other.read(each.run)), each
    assert not list((store.root / "claims").iterdir())
    assert not [path for path in store.root.rglob(".*") if path.is_file()]


def test_predictions_are_whole_and_learned(undisturbed: ResultStore, grid: Path) -> None:
    frame = undisturbed.frame(Grid.read(grid).runs())
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


def test_rows_are_numbered_as_in_the_dataset(undisturbed: ResultStore, grid: Path) -> None:
    from robustpll import load_dataset

    for each in Grid.read(grid).runs():
        frame = undisturbed.read(each.run).to_pandas()
        dataset = load_dataset(each.run.dataset)
        assert (dataset.labels[frame["row"]] == frame["truth"]).all()
        test = frame[(frame["part"] == "test") & (frame["condition"] == "clean")]
        assert list(test["row"]) == list(dataset.split(each.run.seed).test)


def test_a_killed_sweep_goes_on_where_it_was(
    grid: Path, undisturbed: ResultStore, tmp_path: Path
) -> None:
    with sweeping(grid, tmp_path) as sweep:
        wait_until(lambda: len(finished_runs(tmp_path)) >= 3)
        workers = children_of(sweep.pid)
        assert len(workers) == 2
        sweep.kill()
        sweep.wait()
        wait_until(lambda: not any(is_running(pid) for pid in workers))
    before = {path: path.stat().st_mtime_ns for path in finished_runs(tmp_path)}
    assert len(before) >= 3
    outcome = run_grid(str(grid), tmp_path, device="cpu", workers=2, quiet=True)
    assert (outcome.known, outcome.done) == (len(before), 12 - len(before))
    assert before == {path: path.stat().st_mtime_ns for path in before}  # nothing ran twice
    assert_equal(ResultStore(tmp_path), undisturbed, grid)


def test_a_killed_worker_is_replaced(grid: Path, undisturbed: ResultStore, tmp_path: Path) -> None:
    with sweeping(grid, tmp_path) as sweep:
        wait_until(lambda: finished_runs(tmp_path))
        os.kill(children_of(sweep.pid)[0], signal.SIGKILL)
        assert sweep.wait(900) == 0
    assert_equal(ResultStore(tmp_path), undisturbed, grid)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(
    grid: Path, undisturbed: ResultStore, tmp_path: Path
) -> None:
    with sweeping(grid, tmp_path) as sweep:
        wait_until(lambda: finished_runs(tmp_path))
        workers = children_of(sweep.pid)
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does: all processes get it
        said = sweep.communicate(timeout=900)[1]
        assert sweep.returncode == 130
        assert not any(map(is_running, workers))
    assert "Stopped." in said
    assert "Traceback" not in said
    run_grid(str(grid), tmp_path, device="cpu", workers=1, quiet=True)
    assert_equal(ResultStore(tmp_path), undisturbed, grid)


@pytest.mark.slow
def test_two_sweeps_share_a_store(grid: Path, undisturbed: ResultStore, tmp_path: Path) -> None:
    one, other = (sweeping(grid, tmp_path, "--workers", "1") for _ in range(2))
    with one as first, other as second:
        assert (first.wait(900), second.wait(900)) == (0, 0)
    jobs = [job for each in ResultStore(tmp_path).sessions().values() for job in each["jobs"]]
    titles = [job["title"] for job in jobs]
    assert len(titles) == 12 + 4  # with the noise: nothing was computed twice
    assert len(ResultStore(tmp_path).sessions()) == 2
    assert_equal(ResultStore(tmp_path), undisturbed, grid)


def test_claims_of_a_killed_sweep_are_free(tmp_path: Path) -> None:
    from robustpll.bench.locks import Claims

    code = f"""
import time
from pathlib import Path
from robustpll.bench.locks import Claims
with Claims(Path({str(tmp_path)!r})) as claims:
    print(claims.take("run"), flush=True)
    time.sleep(900)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with Claims(tmp_path) as claims:
            assert not claims.take("run")
            other.kill()
            other.wait()
            assert claims.take("run")


def test_a_silent_owner_of_another_machine_loses_its_claims(tmp_path: Path) -> None:
    from robustpll.bench.locks import SILENCE, Claims

    life = tmp_path / "other.alive"
    life.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    (tmp_path / "run.claim").write_text("other")
    with Claims(tmp_path) as claims:
        assert not claims.take("run")
        os.utime(life, (time.time() - SILENCE - 1,) * 2)
        assert claims.take("run")


@pytest.mark.slow
def test_a_full_disk_stops_cleanly(grid: Path, undisturbed: ResultStore, tmp_path: Path) -> None:
    largest = max(path.stat().st_size for path in finished_runs(undisturbed.root))
    limit = (largest * 9 // 10, resource.RLIM_INFINITY)

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    with sweeping(grid, tmp_path, preexec_fn=no_room) as sweep:
        said = sweep.communicate(timeout=900)[1]
        assert sweep.returncode == 1
    assert "could not be written: File too large" in said
    assert "Traceback" not in said
    run_grid(str(grid), tmp_path, device="cpu", workers=2, quiet=True)
    assert_equal(ResultStore(tmp_path), undisturbed, grid)


@pytest.mark.slow
def test_a_run_that_fails_is_recorded_and_tried_again(tmp_path: Path) -> None:
    """A network for pictures takes no plain rows."""
    asked = {"methods": [{"name": "proden", "network": "lenet"}, "pl_knn"], "seeds": 1, "epochs": 1}
    grid = Grid.of(asked | {"datasets": ["synthetic"], "noise": "uniform"})
    store = ResultStore(tmp_path)
    for _ in range(2):
        outcome = run_grid(grid, store, device="cpu", workers=1, quiet=True)
        [(name, sentence)] = outcome.failed.items()
        assert name == "Proden on synthetic, seed 0"
        assert store.failure(grid.runs()[0].run) == sentence
    assert outcome.known == 1
    shown = subprocess.run(
        [*PROGRAM, "status", "--store", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert "1 of 2 runs are here; 0 to run, 1 failed" in shown
    assert sentence in shown


def test_neighbours_of_a_run_that_fails_are_not_lost(tmp_path: Path) -> None:
    """Runs of one bundle, one of which has candidates of other rows."""
    asked = {"methods": ["proden"], "datasets": ["digits"], "seeds": 3, "epochs": 2}
    grid, store = Grid.of(asked | {"noise": "uniform"}), ResultStore(tmp_path)
    store.keep_candidates(Drawn("digits", Uniform(), 1), Packed.of(np.ones((5, 10), dtype=bool)))
    executor = LocalProcesses("cpu", workers=1)
    executor.joined = True  # as on a GPU
    outcome = run_grid(grid, store, executor=executor, quiet=True)
    assert outcome.done == 2
    assert list(outcome.failed) == ["Proden on digits, seed 1"]
    assert "its files changed" in outcome.failed["Proden on digits, seed 1"]


def test_noise_that_fails_fails_its_runs(tmp_path: Path) -> None:
    asked = {"methods": ["pl_knn"], "datasets": ["digits"], "seeds": 2}
    grid = Grid.of(asked | {"noise": {"name": "uniform", "added": 10}})  # of 9 wrong classes
    outcome = run_grid(grid, tmp_path, device="cpu", workers=1, quiet=True)
    assert outcome.done == 0
    assert all("10 wrong classes" in sentence for sentence in outcome.failed.values())
    assert len(outcome.failed) == 2


def test_data_that_cannot_be_read_fails_its_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "realworld").mkdir(parents=True)
    (tmp_path / "data" / "realworld" / "lost.mat").write_bytes(b"nothing of the kind")
    grid = Grid.of({"methods": ["pl_knn"], "datasets": ["digits", "lost"], "seeds": 1})
    grid = replace(grid, noise=Uniform())
    outcome = run_grid(grid, tmp_path / "store", device="cpu", workers=1, quiet=True)
    assert outcome.done == 1
    assert list(outcome.failed) == ["PlKnn on lost, seed 0"]


def test_absent_data_is_named(tmp_path: Path) -> None:
    away = {"ROBUSTPLL_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    options = ["--methods", "pl_knn", "--seeds", "1", "--workers", "1", "--noise", "uniform"]
    for datasets, code in (("lost", 1), ("lost,digits", 0)):
        asked = [*PROGRAM, "run", "paper", "--store", str(tmp_path / "store"), *options]
        done = subprocess.run(
            [*asked, "--datasets", datasets, "--device", "cpu"],
            capture_output=True,
            text=True,
            env=os.environ | away,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "robustpll datasets add lost" in done.stderr
        assert "Traceback" not in done.stderr


def test_nothing_begins_after_the_time_is_up(grid: Path, tmp_path: Path) -> None:
    outcome = run_grid(Grid.read(grid), tmp_path, device="cpu", until=0, quiet=True)
    assert (outcome.done, outcome.left) == (0, 12)


@pytest.mark.slow
def test_more_conditions_are_examined_on_request(grid: Path, tmp_path: Path) -> None:
    small = Grid.read(grid).changed(methods=["proden"], datasets=["digits"], seeds=(0,))
    plain = replace(small, epsilons=(), train_rows=False)
    store = ResultStore(tmp_path)
    assert run_grid(small, store, device="cpu", workers=1, quiet=True).done == 1
    before = store.read(small.runs()[0].run)
    assert run_grid(plain, store, device="cpu", workers=1, quiet=True).known == 1
    further = replace(plain, epsilons=(0.2,))
    assert run_grid(further, store, device="cpu", workers=1, quiet=True).done == 1
    after = store.read(small.runs()[0].run).to_pandas()
    kept = after[after["condition"] != "pgd 0.2"].reset_index(drop=True)
    assert len(kept) < len(after)
    assert kept["predicted"].equals(before.to_pandas()["predicted"])


@pytest.mark.slow
def test_a_worker_that_cannot_begin_is_told(tmp_path: Path) -> None:
    """A script without a guard calls itself in every worker."""
    script = tmp_path / "script.py"
    script.write_text(f"""
from robustpll.bench import Grid, run_grid
grid = Grid.of({{"methods": ["pl_knn"], "datasets": ["digits"], "noise": "uniform", "seeds": 1}})
run_grid(grid, {str(tmp_path / "store")!r}, device="cpu", workers=1, quiet=True)
""")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode != 0
    assert "if __name__ == '__main__':" in done.stderr


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"until": -1.0}, {"device": "abacus"}])
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        run_grid("quick", tmp_path, quiet=True, **wrong)  # type: ignore[arg-type]


def test_errors_of_the_store_are_the_librarys(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(RobustPLLError, match="could not be written"):
        run_grid("quick", tmp_path / "store", device="cpu", quiet=True)
