"""Model files that were damaged or made up: refused as such, or as good as before."""

import copy
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from robustpll import InputError, ModelFileError, PLLClassifier, RobustPLLClassifier, load
from robustpll.estimator.model_file import KEY, SUM, checksum
from robustpll.methods import PlKnn, Proden

REFERENCE = Path(__file__).parents[1] / "reference"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
WORDS = np.array(["ant", "bee", "cow"])[np.arange(120) % 3]
TABLE = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 1, np.nan, X[:, 1]), "c": WORDS})


def load_and_try(path: Path, **arguments: Any) -> Any:
    """A model that answers with finite probabilities, or None if the file or its rows are refused.

    For those who look for files that do anything else; rows are drawn from where the training rows
    lay, and from beyond.
    """
    try:
        model = load(path, **arguments)
        features = model.features_
        with np.errstate(over="ignore"):
            some = np.array([0.0, 0.3, 1.0, 9.0])[:, None] * features.scale + features.shift
        rows = features.rows(some.reshape(-1, *features.shape), model.fitted_.device)
        opinion = model._recalibrated(model._raw_opinion(rows))
        distance = model._distance(rows)
    except (ModelFileError, InputError):
        return None
    answers = (opinion.probability, opinion.uncertainty, opinion.entropy, distance)
    assert all(np.isfinite(answer).all() for answer in answers)
    return model


def small(shape: tuple[int, ...], k: int) -> torch.nn.Module:
    return torch.nn.Linear(shape[0], k)


def fitted(kind: str) -> Any:
    if kind == "own network":
        return PLLClassifier(Proden(epochs=2, network=small), random_state=0).fit(X, WORDS)
    if kind == "neighbours":
        return PLLClassifier(PlKnn(neighbours=3)).fit(TABLE, WORDS)
    model = RobustPLLClassifier(epochs=2, members=2, random_state=0, class_weight={"ant": 2.0})
    model.fit(TABLE, WORDS).recalibrate(TABLE, WORDS).calibrate_decisions(TABLE, WORDS)
    model.notes_ = {"reading": {"sheet": None}}
    return model


KINDS = ("networks", "neighbours", "own network")
SAVED = dict[str, tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SAVED:
    """A file of each kind, and the arguments it is loaded with."""
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        fitted(kind).save(folder / f"{kind}.pll")
    return {
        kind: (folder / f"{kind}.pll", {"network": small} if kind == "own network" else {})
        for kind in KINDS
    }


def same(model: Any, other: Any) -> bool:
    """Whether two models answer alike."""
    rows = RNG.random((5, len(model.features_.scale))).reshape(5, *model.features_.shape)
    answers = [m._recalibrated(m._raw_opinion(m.features_.rows(rows))) for m in (model, other)]
    return (
        np.array_equal(answers[0].probability, answers[1].probability)
        and np.array_equal(answers[0].uncertainty, answers[1].uncertainty)
        and np.array_equal(model.classes_, other.classes_)
    )


# Bytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_refused_or_changes_nothing(
    kind: str, saved: SAVED, tmp_path: Path
) -> None:
    path, arguments = saved[kind]
    whole, model, draw = path.read_bytes(), load(path, **arguments), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [draw.randrange(header) for _ in range(50)]
    places += [draw.randrange(len(whole)) for _ in range(20)]
    refused = 0
    for at in places:
        flipped = bytearray(whole)
        flipped[at] ^= draw.randrange(1, 256)
        (tmp_path / "flipped.pll").write_bytes(flipped)
        other = load_and_try(tmp_path / "flipped.pll", **arguments)
        refused += other is None
        assert other is None or same(model, other)
    assert refused > 60


def test_a_changed_number_is_told_by_the_checksum(saved: SAVED, tmp_path: Path) -> None:
    whole = bytearray(saved["networks"][0].read_bytes())
    whole[-5] ^= 1
    (tmp_path / "model.pll").write_bytes(whole)
    with pytest.raises(ModelFileError, match=r"model\.pll is damaged: its content is not what was"):
        load(tmp_path / "model.pll")


def test_a_file_of_0_1_without_a_checksum_is_read() -> None:
    with safe_open(REFERENCE / "model-0.1.0.pll", framework="pt") as opened:
        assert list(opened.metadata()) == [KEY]
    assert load_and_try(REFERENCE / "model-0.1.0.pll") is not None


def test_the_checksum_covers_names_types_shapes_bytes_and_the_description() -> None:
    tensors = {"a": torch.arange(4.0), "b": torch.tensor(3)}
    sums = {
        checksum("{}", tensors),
        checksum("{} ", tensors),
        checksum("{}", {"a": tensors["a"]}),
        checksum("{}", {"a": tensors["a"], "c": tensors["b"]}),
        checksum("{}", tensors | {"a": tensors["a"].view(2, 2)}),
        checksum("{}", tensors | {"a": tensors["a"].view(torch.int32)}),
        checksum("{}", tensors | {"a": -tensors["a"]}),
    }
    assert len(sums) == 7
    assert checksum("{}", dict(reversed(tensors.items()))) in sums


# Descriptions


def described(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as opened:
        about: dict[str, Any] = json.loads(opened.metadata()[KEY])
    return about


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the parts of a description are; of long lists the first few alone."""
    yield at
    inner = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inner = list(enumerate(value))[:2]
    for key, item in inner:
        yield from places(item, (*at, key))


ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**30, -(10**400), 2**63, 2**31, 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "0", "\0", "é" * 50, "x" * 20_000),
    *([], {}, [[]], [0], [None], ["a", "b"], [1.0] * 7, {"a": 1}, {"": {}}, [[[[[]]]]]),
]


def mutated(about: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One to three changes: a part deleted, replaced, wrapped, doubled, cut or renamed."""
    about = copy.deepcopy(about)
    for _ in range(draw.randint(1, 3)):
        *outer, last = draw.choice([at for at in places(about) if at])
        holder: Any = about
        for key in outer:
            holder = holder[key]
        change = draw.randrange(7)
        if change == 0:
            del holder[last]
        elif change == 1:
            holder[last] = [holder[last]]
        elif change == 2 and isinstance(holder[last], list):
            holder[last] = holder[last] * 2
        elif change == 3 and isinstance(holder[last], list):
            holder[last] = holder[last][:-1]
        elif change == 4 and isinstance(holder, dict):
            holder[f"{last}x"] = holder.pop(last)
        else:
            holder[last] = copy.deepcopy(draw.choice(ODD))
    return about


@pytest.mark.parametrize("summed", [True, False], ids=["with its checksum", "without a checksum"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_description_is_refused_or_harmless(
    kind: str, summed: bool, saved: SAVED, tmp_path: Path
) -> None:
    """Nothing but ModelFileError and InputError comes out; see `load_and_try`."""
    path, arguments = saved[kind]
    about, tensors, draw = described(path), load_file(path), random.Random(kind)
    refused = 0
    for _ in range(100):
        text = json.dumps(mutated(about, draw))
        metadata = {KEY: text} | ({SUM: checksum(text, tensors)} if summed else {})
        save_file(tensors, tmp_path / "odd.pll", metadata)
        refused += load_and_try(tmp_path / "odd.pll", **arguments) is None
    assert refused > 50


def with_changes(
    path: Path, to: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]
) -> Path:
    about, tensors = described(path), load_file(path)
    change(about, tensors)
    save_file(tensors, to, {KEY: json.dumps(about)})
    return to


LIES: dict[str, Callable[[Any, Any], Any]] = {
    "a weight that is not finite": lambda _, t: t["linear2.weight"].view(-1)[7].fill_(np.inf),
    "a statistic that is no number": lambda _, t: t["norm1.running_var"].fill_(np.nan),
    "100,000 kept rows": lambda _, t: t.update({"robustpll.reference": torch.zeros(2, 100_000, 1)}),
    "narrow kept rows": lambda _, t: t.update({"robustpll.reference": torch.zeros(2, 9, 299)}),
    "kept rows of one member": lambda _, t: t.update(
        {"robustpll.reference": torch.zeros(1, 9, 300)}
    ),
    "a long class name": lambda about, _: about["classes"]["names"].__setitem__(0, "x" * 10**7),
    "a class name with NUL": lambda about, _: about["classes"]["names"].__setitem__(0, "a\0"),
    "another column": lambda about, _: about["feature_names_in"].__setitem__(0, "z"),
    "columns in another order": lambda about, _: about["feature_names_in"].reverse(),
    "words for a number": lambda about, _: about["features"]["categories"].update(a=["x"]),
    "scale 0": lambda about, _: about["features"]["scale"].__setitem__(0, 0.0),
    "an unsorted trial": lambda _, t: t["robustpll.trial"].copy_(t["robustpll.trial"].flip(1)),
    "five members": lambda about, _: (
        about["method"]["fields"].update(members=5),
        about.update(seeds=[0] * 5),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_computed_with_is_refused_when_it_is_loaded(
    lie: str, saved: SAVED, tmp_path: Path
) -> None:
    path = with_changes(saved["networks"][0], tmp_path / "lie.pll", LIES[lie])
    with pytest.raises(ModelFileError, match=r"lie\.pll"):
        load(path)


def test_a_long_class_name_takes_no_more_memory_than_the_file(saved: SAVED, tmp_path: Path) -> None:
    names = ["x" * 10**6, *map(str, range(2000))]  # 8 GB as an array of numpy's
    path = with_changes(
        saved["networks"][0],
        tmp_path / "wide.pll",
        lambda about, _: about["classes"].update(names=names),
    )
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"1,000,000 characters"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * path.stat().st_size
    finally:
        tracemalloc.stop()


# What is no file


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pll")
    with pytest.raises(
        ModelFileError, match=r"pipe\.pll is not a model file, but a folder, a pipe"
    ):
        load(tmp_path / "pipe.pll")


# Saving


def test_a_model_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    model = fitted("networks")
    with torch.no_grad():
        model.fitted_.net[1].weight[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match=r"not saved: tensor 'linear1\.weight' .* learning_rate"):
        model.save(tmp_path / "model.pll")
    assert not list(tmp_path.iterdir())


def test_a_description_that_could_not_be_read_is_not_saved(tmp_path: Path) -> None:
    model = fitted("neighbours")
    model.notes_ = ["not a dict"]
    with pytest.raises(InputError, match=r"not saved.*not a mapping"):
        model.save(tmp_path / "model.pll")


# Devices


@pytest.mark.parametrize(
    ("error", "device"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "cuda"),
        (RuntimeError("CUDA error: device-side assert triggered"), "cuda"),
        (MemoryError(), "cpu"),
    ],
    ids=["no room", "broken", "host"],
)
def test_a_device_without_room_is_not_taken_for_a_damaged_file(
    error: Exception,
    device: str,
    saved: SAVED,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(
        "robustpll.estimator.model_file.chosen_device", lambda name: torch.device(device)
    )
    monkeypatch.setattr("robustpll.estimator.model_file.Classical", full)
    monkeypatch.setattr("robustpll.estimator.novelty.Reference.of_rows", lambda rows: None)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    remedy = 'device="cpu"' if device == "cuda" else "not enough memory"
    with pytest.raises(InputError, match=remedy) as caught:
        load(saved["neighbours"][0])
    assert "damaged" not in str(caught.value)


# Processes


FORKING = """
import os, sys
import numpy as np, torch
import robustpll

torch.set_num_threads(4)
models = [robustpll.load(path, device="cpu") for path in sys.argv[1:]]
assert torch.get_num_threads() == 4
child = os.fork()
if child == 0:
    rows = np.random.default_rng(0).normal(size=(3000, 200))
    fine = all(np.isfinite(model.predict_proba(rows)).all() for model in models)
    os._exit(0 if fine else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_model_that_was_loaded_before_a_fork_predicts_after_it(tmp_path: Path) -> None:
    """As a server does that loads first and forks its workers; a hang is ended by the watchdog."""
    rows, labels = RNG.normal(size=(90, 200)), np.arange(90) % 3
    PLLClassifier(PlKnn()).fit(rows, labels).save(tmp_path / "neighbours.pll")
    RobustPLLClassifier(epochs=1).fit(rows, labels).save(tmp_path / "networks.pll")
    paths = [str(tmp_path / f"{name}.pll") for name in ("neighbours", "networks")]
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("OMP_", "MKL_"))}
    command = [sys.executable, "-c", FORKING, *paths]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        assert process.wait(timeout=300) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)  # with the child that hangs
            process.wait()
