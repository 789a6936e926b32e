"""Processes that train one network together learn what one process learns.

As a program, this file is what the processes run: every training of CASES.
"""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustpll import InputError, PLLClassifier, distributed
from robustpll.engine.data import Feed, Rows, Task
from robustpll.engine.distributed import ALONE, Process, Shard, _current, current_process
from robustpll.methods import (
    METHODS,
    Cavl,
    Cc,
    Crdpll,
    DeepMethod,
    Proden,
    ProdenAdvEns,
    ProdenDropout,
    ProdenEdl,
    Pruned,
    Rc,
    RobustPll,
    RobustPllAt,
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "large-data.md"
N, K = 37, 4  # 19 and 18 rows
EXACT, NORMALIZED = 1e-11, 1e-7  # BatchNorm amplifies rounding


def task(shape: tuple[int, ...] = (5,), n: int = N) -> Task:
    """Rows in float64, with sets of candidates and different weights."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, *shape, generator=generator, dtype=torch.float64)
    candidates = torch.rand(1, n, K, generator=generator) < 0.4
    candidates[0, torch.arange(n), x.flatten(1)[:, :K].argmax(-1)] = True
    weight = torch.rand(1, n, generator=generator) + 0.5
    return Task.of(Rows.of(x, torch.arange(n)[None]), candidates, (3,), weight=weight)


class OwnNetwork(nn.Module):
    """It has frozen parameters, BatchNorm of torch, and parameters that no step uses."""

    def __init__(self, inputs: int, k: int, *, norm: bool) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, 16).requires_grad_(False)
        self.norm = nn.BatchNorm1d(16) if norm else nn.LayerNorm(16)
        self.head, self.unused = nn.Linear(16, k), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.body(x).relu()))
        return logits


def own(shape: tuple[int, ...], k: int) -> nn.Module:
    return OwnNetwork(shape[0], k, norm=False)


def own_normalized(shape: tuple[int, ...], k: int) -> nn.Module:
    return OwnNetwork(shape[0], k, norm=True)


def convolutional(shape: tuple[int, ...], k: int) -> nn.Module:
    norm = nn.BatchNorm2d(4, momentum=None)
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, k))


def short(kind: type[DeepMethod], **fields: Any) -> DeepMethod:
    fields = {"epochs": 3, "batch_size": 8, "network": "wide", "learning_rate": 0.02} | fields
    if fields["network"] in ("mlp", own_normalized, convolutional):  # rounding grows less
        fields["learning_rate"] = 0.001
    return kind(**fields)


CASES: dict[str, tuple[DeepMethod, float]] = {
    "proden": (short(Proden), EXACT),
    "rc": (short(Rc), EXACT),
    "cc": (short(Cc), EXACT),
    "cavl": (short(Cavl), EXACT),
    "robust_pll": (short(RobustPll), EXACT),
    "after the step": (short(RobustPll, update="after", loss="cross-entropy"), EXACT),
    "proden_edl": (short(ProdenEdl), EXACT),
    "members": (short(RobustPll, members=2, kl_ceiling=(1.0, 5.0)), EXACT),
    "schedule and averaged": (short(Proden, schedule="one-cycle", averaged=0.5), EXACT),
    "momentum": (short(Proden, momentum=0.9, weight_decay=0.01), EXACT),
    "processes without rows": (short(RobustPll, batch_size=2), EXACT),
    "one batch": (short(Proden, batch_size=100), EXACT),
    "own network": (short(Proden, network=own, members=2), EXACT),
    "adversaries": (short(RobustPllAt), EXACT),
    "batch norm": (short(Proden, network="mlp"), NORMALIZED),
    "batch norm of torch": (short(RobustPll, network=own_normalized, members=2), NORMALIZED),
    "dropout": (short(ProdenDropout, network="mlp"), NORMALIZED),
    "adversaries and batch norm": (short(ProdenAdvEns, network="mlp", epochs=2), NORMALIZED),
    "pictures": (short(Crdpll, network=convolutional), NORMALIZED),
    "early stopping": (short(RobustPll, epochs=8), EXACT),
}


def trained(name: str) -> dict[str, Any]:
    """What a training of CASES results in."""
    method, training = CASES[name][0], task((3, 8, 8) if name == "pictures" else (5,))
    validation = None
    if name == "early stopping":
        rows = torch.arange(N)
        training, validation = training.some_rows(rows[:-8]), training.some_rows(rows[-8:])
    fitted = method.fit(training, validation=validation)
    state = fitted.net.state_dict()  # type: ignore[attr-defined]
    results = {"weights": fitted.label_weights, "loss": fitted.history.loss}
    results |= {"belief": fitted.opinion.belief, "uncertainty": fitted.opinion.uncertainty}
    return results | {"rate": fitted.history.covering_rate} | state


def classifier_results(seed: int | None) -> dict[str, Any]:
    """The same of a classifier."""
    rows = task()
    X, y = rows.rows.pool.numpy(), rows.candidates[0].numpy()
    model = PLLClassifier(short(RobustPll), random_state=seed, watch=0.2, device="cpu").fit(X, y)
    return {
        "weights": torch.tensor(model.label_weights_),
        "labels": torch.tensor(model.labels_),
        "belief": torch.tensor(np.asarray(model.opinion_.belief)),
        "predicted": torch.tensor(model.predict_proba(X)),
    }


def torchrun(folder: Path, *program: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a program in several processes on a CPU, without a fixed port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", *program]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of both processes."""
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(folder, __file__)
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    assert left.keys() == right.keys()
    pairs = [(left[name], right[name]) for name in left]
    assert all(first.shape == second.shape for first, second in pairs)
    differences = [(first.double() - second.double()).abs() for first, second in pairs]
    return max(float(difference.max()) for difference in differences if difference.numel())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_learns(name: str, by_two: list[dict[str, Any]]) -> None:
    first, second = (results[name] for results in by_two)
    assert largest_difference(first, second) == 0
    assert largest_difference(first, trained(name)) < CASES[name][1]


@pytest.mark.slow
def test_processes_have_the_classifier_of_one(by_two: list[dict[str, Any]]) -> None:
    first, second = (results["classifier"] for results in by_two)
    assert largest_difference(first, second) == 0
    assert largest_difference(first, classifier_results(0)) < 1e-4  # in float32


@pytest.mark.slow
def test_processes_without_a_seed_use_that_of_the_first(by_two: list[dict[str, Any]]) -> None:
    first, second = (results["unseeded"] for results in by_two)
    assert largest_difference(first, second) == 0


PROGRAM = """
import numpy as np, torch
from robustpll import PLLClassifier, RobustPLLClassifier, distributed
from robustpll.methods import Proden

def network(shape, k):
    layer = torch.nn.Linear(shape[0], k)
    layer.register_forward_hook(fail)
    return layer

def fail(*_):
    global passes
    passes += 1
    if {fails} and process.rank == 1 and passes == 3:
        raise OSError("the disk of this process is full")

passes, X = 0, np.random.default_rng(0).random((40, 3))
with distributed() as process:
    if {differs}:
        X[7, 1] += process.rank
    {model}.fit(X, X.argmax(1))
"""
MODEL = "PLLClassifier(Proden(epochs=50, network=network), random_state=0)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fails": True}, "the disk of this process is full"),
        ({"differs": True}, "Those of rank 1 differ from those of rank 0"),
        ({"model": "RobustPLLClassifier()"}, "cannot train Auto together"),
    ],
    ids=["a process fails", "rows differ", "several trainings"],
)
def test_all_processes_end_with_the_error_of_one(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    options = {"fails": False, "differs": False, "model": MODEL} | options
    (tmp_path / "train.py").write_text(PROGRAM.format(**options))
    done = torchrun(tmp_path, "train.py")
    assert done.returncode != 0
    summary = done.stderr.split("FAILED")[-1]  # what torchrun says at the end
    assert message in summary
    if options["fails"]:
        assert re.search(r"rank *: 1 ", summary)


@pytest.mark.slow
def test_the_program_on_the_page_runs_in_one_process_and_in_two(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (code,) = [block for block in blocks if "distributed()" in block]
    (tmp_path / "train.py").write_text(code)
    alone = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    together = torchrun(tmp_path, "train.py")
    assert together.returncode == 0, together.stderr
    for done, count in ((alone, 1), (together, 2)):
        (accuracy,) = re.findall(rf"{count} processes, accuracy (0\.\d+)", done.stdout)
        assert float(accuracy) > 0.9
    assert together.stdout.count("60/60") <= 1  # the first process shows progress
    assert (tmp_path / "shared.pll").exists()


def test_without_torchrun_the_context_changes_nothing() -> None:
    with distributed() as process:
        assert process == ALONE
        assert process.is_first
    assert current_process() is ALONE


@pytest.fixture
def two_processes() -> Any:
    token = _current.set(Process(1, 2))
    yield
    _current.reset(token)


@pytest.mark.parametrize("rank", [0, 1])
def test_rows_may_be_streamed(rank: int) -> None:
    """Each batch has the rows of this process, or the additional row of weight 0."""
    shard, whole = Shard(Process(rank, 2), N), task()
    places = torch.tensor([*range(rank, N, 2), N - 1])
    rows = whole.some_rows(places).rows
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))[None]
    with Feed(rows, 8) as feed:
        for batch, indices in zip(
            order.split(2, dim=1),
            shard.batches(order.split(2, dim=1), rows.device, feed),
            strict=True,
        ):
            own = batch[:, batch[0] % 2 == rank] if shard.has_rows else torch.tensor([[N - 1]])
            assert torch.equal(feed.rows.x(indices), whole.rows.x(own))
            assert torch.equal(rows.x(indices), whole.rows.x(own))
            assert shard.size == batch.shape[1]


REFUSED = [RobustPll(balance=0.5), *(METHODS[name]() for name in ("pop", "valen", "pico"))]
REFUSED += [*(METHODS[name]() for name in ("pl_knn", "auto")), Pruned("valen")]


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("method", REFUSED, ids=lambda method: method.title)
def test_methods_that_compare_rows_are_refused(method: Any) -> None:
    with pytest.raises(InputError, match=r"Several processes cannot.*Proden, Rc, Cc, Cavl"):
        PLLClassifier(method).fit([[0.0], [1.0]], [0, 1])


def main() -> None:
    """Run every training, and write the results of this process."""
    warnings.simplefilter("error")
    with distributed() as process:
        results: dict[str, Any] = {name: trained(name) for name in CASES}
        results["classifier"] = classifier_results(0)
        results["unseeded"] = classifier_results(None)
    torch.save(results, f"{process.rank}.pt")


if __name__ == "__main__":
    main()
