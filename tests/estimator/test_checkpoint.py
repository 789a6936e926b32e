"""A fit that was interrupted, even by kill -9, goes on and ends as if nothing had happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from robustpll import InputError, PLLClassifier, RobustPLLClassifier
from robustpll.callbacks import Checkpoint, CSVLogger, EpochState
from robustpll.estimator import fitting
from robustpll.methods import (
    CroSel,
    DstPll,
    Pico,
    PlKnn,
    Pop,
    Proden,
    ProdenEdl,
    RobustPll,
    RobustPllAt,
    Valen,
)

ROWS = 120
X: Any = load_digits().data[:ROWS]
LABELS: Any = load_digits().target[:ROWS]
CHOICE = np.random.default_rng(0).integers(10, size=(ROWS, 2))
SETS = [{int(label), *map(int, others)} for label, others in zip(LABELS, CHOICE, strict=True)]


def with_dropout(shape: tuple[int, ...], k: int) -> nn.Module:
    body = nn.Sequential(nn.Linear(shape[0], 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.4))
    return nn.Sequential(*body, nn.Linear(24, k))


def with_more_layers(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 9), nn.ReLU(), nn.Linear(9, k))


# The classifier, and the training and epoch after which it is interrupted
CASES: dict[str, tuple[Callable[[], Any], str, int]] = {
    "Proden": (lambda: PLLClassifier(Proden(epochs=6, batch_size=50)), "Proden", 4),
    "RobustPll": (lambda: PLLClassifier(RobustPll(epochs=6)), "RobustPll", 3),
    "two trainings": (lambda: PLLClassifier(ProdenEdl(epochs=4)), "Proden+Edl", 3),
    "the first of two trainings": (lambda: PLLClassifier(ProdenEdl(epochs=4)), "Proden", 2),
    "the default": (lambda: RobustPLLClassifier(epochs=4), "RobustPll+At", 3),
    "a module with dropout": (
        lambda: PLLClassifier(Proden(epochs=6, network=with_dropout, members=2)),
        "Proden",
        4,
    ),
    "early stopping": (
        lambda: PLLClassifier(RobustPll(epochs=8, averaged=0.5), watch=0.2),
        "RobustPll",
        6,
    ),
    "members": (
        lambda: PLLClassifier(RobustPllAt(epochs=5, members=3, schedule="one-cycle")),
        "RobustPll+At",
        4,
    ),
}
FURTHER: dict[str, tuple[Callable[[], Any], str, int]] = {
    "SGD and memory": (lambda: PLLClassifier(Pop(epochs=8, momentum=0.9)), "Pop", 6),
    "two networks": (lambda: PLLClassifier(CroSel(epochs=3)), "CroSel", 12),
    "random steps": (lambda: PLLClassifier(Valen(epochs=3)), "Valen", 12),
    "prototypes": (lambda: PLLClassifier(Pico(epochs=3, network="mlp")), "PiCO", 2),
    "an encoder": (
        lambda: PLLClassifier(DstPll(encoder="always", encoder_epochs=4)),
        "Auto-encoder",
        2,
    ),
    "early stopping of the default": (
        lambda: RobustPLLClassifier(epochs=4, early_stopping=True, learner="network"),
        "RobustPll+At",
        2,
    ),
}


class At:
    """Does something after one epoch of a training."""

    def __init__(self, title: str, epoch: int, action: Callable[[], Any]) -> None:
        self.title, self.epoch, self.action = title, epoch, action

    def on_epoch_end(self, state: EpochState) -> Any:
        return (state.title, state.epoch) == (self.title, self.epoch) and self.action()


def fail() -> None:
    raise RuntimeError("a fault of the callback")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fit(model: Any, **options: Any) -> Any:
    return model.set_params(random_state=3).fit(X, SETS, **options)


def assert_equal(one: Any, other: Any) -> None:
    for name in ("label_weights_", "labels_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.history_.keys() == other.history_.keys()
    for name, values in one.history_.items():
        np.testing.assert_array_equal(values, other.history_[name])


def interrupted(case: str, folder: Path | Checkpoint, action: Callable[[], Any] = fail) -> None:
    build, title, epoch = (CASES | FURTHER)[case]
    model = build().set_params(checkpoint=folder, callbacks=[At(title, epoch, action)])
    with pytest.raises(RuntimeError, match="a fault of the callback"):
        fit(model)
    assert not hasattr(model, "fitted_")


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in FURTHER)],
)
def test_a_fit_that_failed_goes_on_bit_for_bit(case: str, tmp_path: Path) -> None:
    build, title, epoch = (CASES | FURTHER)[case]
    interrupted(case, tmp_path / "state")
    repeated: list[EpochState] = []
    listening = SimpleNamespace(on_epoch_end=repeated.append)
    resumed = fit(build().set_params(callbacks=[listening]), resume=tmp_path / "state")
    assert_equal(resumed, fit(build()))
    assert (repeated[0].title, repeated[0].epoch) == (title, epoch)
    assert all(state.resumed for state in repeated)


@pytest.mark.parametrize(
    "case", ["Proden", *(pytest.param(c, marks=pytest.mark.slow) for c in [*CASES][1:])]
)
def test_a_process_that_was_killed_goes_on_bit_for_bit(case: str, tmp_path: Path) -> None:
    command = [sys.executable, __file__, case, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    build, _, _ = CASES[case]
    assert_equal(fit(build(), resume=str(tmp_path / "state")), fit(build()))


def test_a_finished_fit_is_read_and_not_run_again(tmp_path: Path) -> None:
    model = fit(PLLClassifier(ProdenEdl(epochs=2), checkpoint=tmp_path / "a" / "state"))
    calls = At("Proden", 1, fail), At("Proden+Edl", 1, fail)
    again = fit(PLLClassifier(ProdenEdl(epochs=2), callbacks=calls), resume=tmp_path / "a/state")
    assert_equal(again, model)


def test_a_stopped_training_stays_stopped(tmp_path: Path) -> None:
    stop = At("Proden", 2, lambda: True)
    path = tmp_path / "state"
    model = fit(PLLClassifier(ProdenEdl(epochs=4), callbacks=[stop], checkpoint=path))
    assert_equal(fit(PLLClassifier(ProdenEdl(epochs=4)), resume=path), model)


def test_without_a_seed_the_same_run_goes_on(tmp_path: Path) -> None:
    callbacks = At("Proden", 2, fail), CSVLogger(tmp_path / "log.csv")
    model = PLLClassifier(Proden(epochs=4), checkpoint=tmp_path / "state")
    with pytest.raises(RuntimeError, match="a fault"):
        clone(model).set_params(callbacks=callbacks).fit(X, SETS)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    first, second = (
        PLLClassifier(Proden(epochs=4)).fit(X, SETS, resume=tmp_path / name)
        for name in ("state", "copy")
    )
    assert_equal(first, second)


def test_a_checkpoint_is_written_as_often_as_asked(tmp_path: Path) -> None:
    for number, options in enumerate([{"epochs": 3}, {"minutes": 600.0}]):
        path = tmp_path / str(number)
        interrupted("Proden", Checkpoint(path, **options))  # after 4 epochs
        states: list[EpochState] = []
        listening = SimpleNamespace(on_epoch_end=states.append)
        once = Checkpoint(path, **options)
        fit(CASES["Proden"][0]().set_params(callbacks=[listening], checkpoint=once), resume=once)
        assert [state.epoch for state in states] == [*range(4 if number == 0 else 1, 7)]
    for wrong in ({"epochs": 0}, {"minutes": 0}, {"minutes": "1"}, {"path": 3}, {"path": ""}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' of Checkpoint must be"):
            Checkpoint(**{"path": tmp_path} | wrong)


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "method": (lambda: PLLClassifier(RobustPll(epochs=6)), r"method \(Proden, now RobustPll\)"),
    "field": (lambda: PLLClassifier(Proden(epochs=7, batch_size=50)), r"epochs \(6, now 7\)"),
    "watch": (lambda: PLLClassifier(Proden(epochs=6, batch_size=50), watch=0.2), "watch"),
    "scale": (lambda: PLLClassifier(Proden(epochs=6, batch_size=50), scale=None), "rows"),
    "weights": (
        lambda: PLLClassifier(Proden(epochs=6, batch_size=50), class_weight={0: 2.0}),
        "weights",
    ),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "state"
    interrupted("Proden", folder)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_fit_is_refused(other: str, begun: Path) -> None:
    build, words = OTHERS[other]
    before = content(begun)
    with pytest.raises(InputError, match=f"is of another fit.*{words}.*fit without resume"):
        fit(build(), resume=begun)
    assert content(begun) == before


def test_other_data_seeds_and_versions_are_refused(begun: Path, tmp_path: Path) -> None:
    model = CASES["Proden"][0]().set_params(random_state=3)
    rows, sets = X.copy(), [*SETS]
    rows[5, 20] += 1
    sets[7] = set(range(10))
    for data, words in (((rows, SETS), "differ: rows"), ((X, sets), "differ: candidates")):
        with pytest.raises(InputError, match=words):
            clone(model).fit(*data, resume=begun)
    with pytest.raises(InputError, match=r"seed \(\d+, now \d+\)"):
        clone(model).set_params(random_state=4).fit(X, SETS, resume=begun)
    shutil.copytree(begun, tmp_path / "state")
    about = json.loads((begun / "fit.json").read_text())
    for change, words in (
        (about | {"format": 99}, "another version of robustpll"),
        (about | {"fit": about["fit"] | {"version": "9.9"}}, r"version \(9.9, now "),
        ({"format": 1}, "damaged"),
        ([], "damaged"),
    ):
        (tmp_path / "state" / "fit.json").write_text(json.dumps(change))
        with pytest.raises(InputError, match=words):
            fit(clone(model), resume=tmp_path / "state")


def test_a_damaged_file_is_refused_and_stays(begun: Path, tmp_path: Path) -> None:
    name = "training-1-models-1.safetensors"
    whole = (begun / name).read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    for number, damage in enumerate([b"", whole[:100], whole[:-1], bytes(flipped), b"x" * 1000]):
        folder = tmp_path / str(number)
        shutil.copytree(begun, folder)
        (folder / name).write_bytes(damage)
        with pytest.raises(InputError, match=f"{name} is damaged.*move it away"):
            fit(CASES["Proden"][0](), resume=folder)
        assert (folder / name).read_bytes() == damage
    (folder / name).unlink()  # as the message says: this training is repeated
    assert_equal(fit(CASES["Proden"][0](), resume=folder), fit(CASES["Proden"][0]()))


def test_a_network_of_the_same_name_with_other_layers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted("a module with dropout", tmp_path / "state")
    with_more_layers.__qualname__ = with_dropout.__qualname__
    model = PLLClassifier(Proden(epochs=6, network=with_more_layers, members=2))
    with pytest.raises(InputError, match=r"is of another fit. These differ: network"):
        fit(model, resume=tmp_path / "state")
    monkeypatch.setattr(fitting, "in_words", lambda value: repr(value).split(" at ")[0])
    shutil.rmtree(tmp_path / "state")
    interrupted("a module with dropout", tmp_path / "state")
    with pytest.raises(InputError, match="not a checkpoint of this training of Proden"):
        fit(model, resume=tmp_path / "state")


def test_other_groups_of_parameters_are_refused(tmp_path: Path) -> None:
    def same(module: Any) -> Any:
        return [{"params": module.parameters(), "lr": 0.01}]

    def higher(module: Any) -> Any:
        return [{"params": module.parameters(), "lr": 1.0}]

    higher.__qualname__, higher.__name__ = same.__qualname__, same.__name__
    model = PLLClassifier(Proden(epochs=6, network=with_dropout, parameter_groups=same))
    fit(model.set_params(random_state=0, checkpoint=tmp_path / "groups"))
    model.set_params(method__parameter_groups=higher, checkpoint=None)
    with pytest.raises(InputError, match="These differ: parameter_groups"):
        fit(model, resume=tmp_path / "groups")


def test_code_is_described_alike_in_every_process_and_at_every_line(tmp_path: Path) -> None:
    program = """
from robustpll.estimator.fitting import in_words
def network(shape, k):
    return [part for part in shape if part in {"a", "b", "c", "d"}]
print(in_words(network))
"""
    words = set()
    for seed, text in (("1", program), ("2", "\n\n" + program)):
        (tmp_path / "words.py").write_text(text)
        command, environment = [sys.executable, "words.py"], os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        words.add(done.stdout)
    assert len(words) == 1


def test_nothing_is_replaced_or_deleted(begun: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    before = content(begun)
    for path, words in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "foreign", r"new or an empty folder.*thesis\.tex"),
        (begun, "has a checkpoint already.*resume="),
    ):
        with pytest.raises(InputError, match=words):
            fit(PLLClassifier(Proden(epochs=1), checkpoint=path))
    for path in (tmp_path / "foreign", tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(InputError, match="there is no checkpoint in"):
            fit(PLLClassifier(Proden(epochs=1)), resume=path)
    with pytest.raises(InputError, match="must be the folder that checkpoint names"):
        fit(PLLClassifier(Proden(epochs=1), checkpoint=tmp_path / "b"), resume=begun)
    assert content(begun) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "foreign"]
    assert (tmp_path / "foreign" / "thesis.tex").read_text() == "mine"


def test_a_method_without_epochs_writes_only_its_description(tmp_path: Path) -> None:
    fit(PLLClassifier(PlKnn(), checkpoint=tmp_path / "state"))
    assert [*content(tmp_path / "state")] == ["fit.json"]


if __name__ == "__main__":
    build, title, epoch = CASES[sys.argv[1]]
    fit(build().set_params(checkpoint=sys.argv[2], callbacks=[At(title, epoch, kill)]))
