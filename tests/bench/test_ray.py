"""A grid on a Ray cluster: machines that are lost, jobs that fail, and a cluster of one's own."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from robustpll.bench import ResultStore, run_grid
from robustpll.bench.worker import Bundle, JobResult, perform
from robustpll.engine.cluster import GPU_WORKERS, RETRIES, LostJob, RayExecutor
from robustpll.errors import InputError

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Of one node with one CPU; a new one for each test, as lost nodes are counted for a while."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def in_session(leader: int) -> list[int]:
    """Processes of a session that run."""
    members = []
    for process in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members


def at_work(node: Any) -> list[psutil.Process]:
    """Processes of a node that work on a job; Ray names them by the function they run."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    working = []
    for child in raylet.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies included
            if "ray::perform" in " ".join(child.cmdline()):
                working.append(child)
    return working


def job(compute: Callable[[], object], place: str = "cpu") -> Any:
    """A bundle that calls a function when a worker looks at its runs."""

    class Job:
        draws_noise = False

        @property
        def runs(self) -> object:
            return compute()

    bundle = Job()
    bundle.place = place  # type: ignore[attr-defined]
    return bundle


@pytest.mark.ray
def test_a_lost_machine_changes_no_result(
    made: Any, cluster: Any, grid: Path, undisturbed: ResultStore, tmp_path: Path
) -> None:
    node, finished, lost = cluster.add_node(**NODE), [], []

    class Disturbed(RayExecutor):
        """Loses the node once a run is finished and the node works on another one."""

        def submit(self, function: Any, bundle: Bundle, place: Any) -> Future[JobResult]:
            future = super().submit(function, bundle, place)
            if not lost and not bundle.draws_noise and any(finished):
                made.wait_until(lambda: at_work(node))
                lost.extend(at_work(node))
                cluster.remove_node(node, allow_graceful=False)
                for process in lost:  # a machine that is gone takes all of them along
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            return future

        def result(self, future: Future[JobResult]) -> JobResult:
            result = super().result(future)
            finished.append(len(result.tables))
            return result

    executor = Disturbed(cluster.address)
    outcome = run_grid(str(grid), tmp_path, executor=executor, quiet=True)
    assert (outcome.done, outcome.failed, outcome.left) == (12, {}, 0)
    assert lost, "nothing was lost"
    made.assert_equal(ResultStore(tmp_path), undisturbed, grid)


@pytest.mark.ray
@pytest.mark.parametrize("end", ["raise", "exit"])
def test_a_job_that_raises_runs_once_and_one_that_is_lost_again(
    cluster: Any, tmp_path: Path, end: str
) -> None:
    begun = tmp_path / "begun"

    def compute() -> None:
        with begun.open("a") as file:
            file.write("once\n")
        if end == "exit":
            os._exit(1)
        raise ValueError("no such run")

    executor = RayExecutor(cluster.address)
    future = executor.submit(perform, job(compute), "cpu")
    wait([future])
    if end == "raise":
        failure = executor.result(future)
        assert (failure.error, failure.died) == ("ValueError: no such run", False)
        assert "in compute" in failure.details
    else:
        with pytest.raises(LostJob, match=f"{RETRIES + 1} times"):
            executor.result(future)
    executor.close()
    assert len(begun.read_text().splitlines()) == (1 if end == "raise" else RETRIES + 1)


@pytest.mark.ray
def test_closing_ends_what_is_at_work_and_gpus_that_are_not_there_are_refused(
    made: Any, cluster: Any
) -> None:
    with pytest.raises(InputError, match="has no GPU"):
        RayExecutor(cluster.address, "cuda")
    executor = RayExecutor(cluster.address)  # refused if the other one were still connected
    executor.submit(perform, job(lambda: time.sleep(600)), "cpu")
    made.wait_until(lambda: at_work(cluster.head_node))
    executor.close()
    made.wait_until(lambda: not at_work(cluster.head_node))


@pytest.mark.ray
def test_a_cluster_of_ones_own_ends_with_the_program(
    made: Any, grid: Path, undisturbed: ResultStore, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", "from robustpll.cli import app; app()", "bench", "run"]
    asked = [*program, str(grid), "--store", str(tmp_path), "--ray", "local", "--device", "cpu"]
    for stopped in (True, False):
        with subprocess.Popen(
            asked, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as sweep:
            if stopped:
                made.wait_until(lambda: list(tmp_path.rglob("*.parquet")))
                os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
            errors = sweep.communicate(timeout=900)[1]
        assert sweep.returncode == (130 if stopped else 0), errors
        assert ("Stopped." in errors) == stopped
        assert "Traceback" not in errors
        assert "Token" not in errors  # nor whatever else Ray has to say
        made.wait_until(lambda: not in_session(sweep.pid))
    made.assert_equal(ResultStore(tmp_path), undisturbed, grid)


@pytest.mark.ray
def test_jobs_share_a_gpu_and_others_see_none(cluster: Any, tmp_path: Path) -> None:
    """A node may say that it has a GPU; jobs end before they would use it."""

    def compute(place: str, number: int) -> None:
        (tmp_path / f"{place} {number}").touch()
        end = time.monotonic() + 900
        while len(list(tmp_path.iterdir())) <= GPU_WORKERS and time.monotonic() < end:
            time.sleep(0.1)  # until all are here
        raise ValueError(f"{place} {os.environ['CUDA_VISIBLE_DEVICES']}")

    node = cluster.add_node(**NODE | {"num_gpus": 1})
    executor = RayExecutor(cluster.address)
    assert executor.sizes == {"cuda": GPU_WORKERS, "cpu": 1}
    places = [("cuda", number) for number in range(GPU_WORKERS)] + [("cpu", 0)]
    futures = [
        executor.submit(perform, job(partial(compute, *place), place[0]), place[0])  # type: ignore[arg-type]
        for place in places
    ]
    wait(futures)
    errors = [executor.result(future).error for future in futures]
    executor.close()
    cluster.remove_node(node)
    assert errors == ["ValueError: cuda 0"] * GPU_WORKERS + ["ValueError: cpu "]
    assert len(list(tmp_path.iterdir())) == GPU_WORKERS + 1


@pytest.mark.ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "nowhere", "", "host:port"])
def test_an_address_of_no_cluster_is_refused_before_ray_tries(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on trying for many minutes."""
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked"))
    with pytest.raises(InputError, match="address"):
        RayExecutor(address)


def test_without_ray_the_extra_is_named(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it now raises ImportError
    done = made.command("run", "quick", "--store", tmp_path, "--ray", "local")
    assert done.exit_code == 1
    assert "pip install 'robustpll[ray]'" in done.output


@pytest.mark.parametrize("wrong", [["--workers", "2"], ["--device", "abacus"]])
def test_what_does_not_go_with_ray_is_refused(made: Any, tmp_path: Path, wrong: list[str]) -> None:
    done = made.command("run", "quick", "--store", tmp_path, "--ray", "local", *wrong)
    assert done.exit_code == 1
    assert wrong[0].removeprefix("--") in done.output
