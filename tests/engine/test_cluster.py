"""Jobs in other processes: lost workers, errors, and models that are trained in groups."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from robustpll import Candidates, InputError, PLLClassifier, RobustPLLClassifier, compare
from robustpll.clean.judge import judge
from robustpll.cli import app
from robustpll.engine.cluster import (
    RETRIES,
    LocalExecutor,
    LostJob,
    RayExecutor,
    computing_on,
    groups_of,
    moved,
)
from robustpll.methods import CroSel, PlKnn, Proden, RobustPllEns, Wrapped

pytestmark = pytest.mark.usefixtures("one_thread")  # as in the workers

RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.integers(3, size=90)
X = RANDOM.normal(TRUTH[:, None], 0.2, size=(90, 4))
Y = (RANDOM.random((90, 3)) < 0.3) | np.eye(3, dtype=bool)[TRUTH]
HELD: list[np.ndarray] = []  # in a worker


def logged(job: tuple[Path, str], device: str) -> str:
    """Note the start, and end as the job says."""
    folder, end = job
    with (folder / "begun").open("a") as file:
        file.write(f"{end}\n")
    is_first = (folder / "begun").read_text().splitlines().count(end) == 1
    if end == "always" or (end == "once" and is_first):
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raise":
        raise InputError("no such job")
    return f"{end} on {device}, {torch.get_num_threads()}"


def grown(megabytes: int, _: str) -> int:
    """Keep so much memory, and return the number of the process."""
    HELD.append(np.ones(megabytes * 2**17))
    time.sleep(1.1)  # the pool looks at a worker's memory after each second
    return os.getpid()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    is_local = request.param == "local"
    executor = LocalExecutor("cpu", workers=2) if is_local else RayExecutor("local", "cpu")
    yield executor
    executor.close()


def test_a_killed_worker_is_replaced_and_its_job_repeated(executor: Any, tmp_path: Path) -> None:
    jobs = [(tmp_path, end) for end in ("fine", "once", "also fine", "last")]
    results = executor.map(logged, jobs, "cpu")
    assert results == [f"{end} on cpu, 1" for _, end in jobs]
    begun = (tmp_path / "begun").read_text().splitlines()
    assert begun.count("once") == 2
    assert begun.count("fine") == 1


def test_a_worker_that_needs_much_memory_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process would read its datasets and compile its code again."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    with closing(LocalExecutor("cpu", workers=1)) as executor:
        assert len(set(executor.map(grown, [1, 400, 1, 1], "cpu"))) == 1


def test_a_job_that_kills_every_worker_is_given_up_and_errors_stay_what_they_are(
    executor: Any, tmp_path: Path
) -> None:
    with pytest.raises(LostJob, match=r"signal 9|4 times"):
        executor.map(logged, [(tmp_path, "always")], "cpu")
    assert (tmp_path / "begun").read_text().count("always") == RETRIES + 1
    with pytest.raises(InputError, match="no such job"):
        executor.map(logged, [(tmp_path, "fine"), (tmp_path, "raise")], "cpu")


def wait_for(port: int) -> None:
    """Ray opens its client port later than it returns, on a busy machine by a minute or more."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
            return
        time.sleep(0.5)
    pytest.fail(f"Ray did not open port {port}.")


def close(first: Any, second: Any) -> None:
    np.testing.assert_allclose(first, second, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        Proden(epochs=3, members=3),
        RobustPllEns(epochs=3, network="auto"),
        CroSel(epochs=3),  # whose two networks learn from each other
        Proden(epochs=3, members=2, network="lenet"),
    ],
    ids=lambda method: f"{method.name} {method.network}",
)
def test_members_trained_in_groups_are_those_of_a_bundle(method: Any) -> None:
    rows = np.tile(X, 49).reshape(90, 14, 14)[:, :14] if method.network == "lenet" else X
    watch: Any = {} if method.name == "crosel" else {"watch": 0.2}
    here, there = (
        PLLClassifier(method, random_state=0, device="cpu", cluster=cluster, **watch).fit(rows, Y)
        for cluster in (None, "local")
    )
    close(here.predict_proba(rows), there.predict_proba(rows))
    close(here.label_weights_, there.label_weights_)
    close(here.history_["loss"], there.history_["loss"])
    assert here.fitted_.method == there.fitted_.method
    assert here.fitted_.seeds == there.fitted_.seeds


@pytest.mark.parametrize("cluster", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_the_default_is_the_same_on_a_cluster(
    cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ADDRESS", "local")  # join no cluster of others
    here, there = (
        RobustPLLClassifier(epochs=3, random_state=0, device="cpu", cluster=name).fit(X, Y)
        for name in (None, cluster)
    )
    close(here.predict_proba(X), there.predict_proba(X))
    close(here.held_out_.probability, there.held_out_.probability)
    there.save(tmp_path / "model.pll")  # which says nothing of the cluster


@pytest.mark.slow
def test_folds_of_clean_and_compare_are_the_same_on_a_cluster() -> None:
    y = Candidates.of(Y)
    judged = [judge(X, y, PlKnn(), seed=1, device="cpu", cluster=c) for c in (None, "local")]
    close(judged[0].probability, judged[1].probability)
    method = Wrapped(LogisticRegression())
    options: Any = {"method": method, "random_state": 0, "device": "cpu"}
    tables = [compare(X, y, cluster=cluster, **options).learners for cluster in (None, "local")]
    scores = [[(one.title, one.score) for one in table] for table in tables]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("wrong", ["nowhere", "", 3])
def test_what_is_no_cluster_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="cluster must be None, 'local', 'ray'"):
        PLLClassifier(Proden(epochs=1), cluster=wrong).fit(X, Y)
    with pytest.raises(InputError, match=r"address.*ray://127.0.0.1:1"):
        PLLClassifier(Proden(epochs=1), cluster="ray://127.0.0.1:1").fit(X, Y)


def test_groups_are_even_and_there_are_none_without_a_cluster() -> None:
    assert groups_of(10) == []
    with computing_on("local", "cpu"):
        groups = groups_of(7)
        assert groups_of(1) == []
    sizes = [group.stop - group.start for group in groups]
    assert sum(sizes) == 7
    assert max(sizes) - min(sizes) <= 1


def test_moving_leaves_everything_else_as_it_is() -> None:
    method, tensor = RobustPllEns(), torch.ones(2)
    value = {"a": [tensor, (1, "b")], "method": method}
    result = moved(value, "meta")
    assert result["method"] is method
    assert result["a"][0].device.type == "meta"
    assert result["a"][1] is value["a"][1]


@pytest.mark.slow
def test_a_script_with_its_own_network_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import numpy as np, torch
from robustpll import PLLClassifier
from robustpll.methods import Proden
def network(shape, k):
    return torch.nn.Linear(shape[0], k)
X, y = np.repeat(np.eye(3), 10, axis=0), np.repeat(["a", "b", "c"], 10)
method = Proden(epochs=60, members=2, network=network, learning_rate=0.1)
print(PLLClassifier(method, random_state=0, cluster="local").fit(X, y).score(X, y))
""")
    words = [sys.executable, str(script)]
    assert subprocess.run(words, check=True, capture_output=True).stdout.strip() == b"1.0"


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # of files that Ray leaves open
def test_a_cluster_that_this_machine_does_not_belong_to_is_used_by_its_client_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    node: Any = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    node["ray_client_server_port"] = port
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        wait_for(port)
        here, there = (
            PLLClassifier(RobustPllEns(epochs=3), random_state=0, device="cpu", cluster=name)
            for name in (None, f"ray://127.0.0.1:{port}")
        )
        close(here.fit(X, Y).predict_proba(X), there.fit(X, Y).predict_proba(X))
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("command", ["fit", "compare", "clean"])
def test_commands_take_a_cluster(command: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    lines = [f"{row % 7 + row % 2 * 50},{'a|b' if row % 3 else 'b'}" for row in range(60)]
    table.write_text("\n".join(["weight,label", *lines]))
    out = [] if command == "compare" else ["--out", str(tmp_path / "out")]
    words = [command, str(table), "--candidates", "label", *out, "--cluster", "nowhere"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "cluster must be None, 'local'" in result.output
