"""Callbacks are told of every epoch, may stop a training, and leave nothing half done."""

import copy
import csv
import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs

from robustpll import InputError, PLLClassifier, RobustPLLClassifier
from robustpll.callbacks import CSVLogger, EpochState, TensorBoard
from robustpll.methods import CroSel, PlKnn, Proden, ProdenEdl, RobustPll

X, LABELS = make_blobs(90, centers=3, random_state=0)


class StopAfter:
    """Stops every training after some epochs, and remembers what it was told."""

    def __init__(self, epoch: int = 10_000) -> None:
        self.epoch, self.states = epoch, list[EpochState]()

    def on_epoch_end(self, state: EpochState) -> Any:
        self.states.append(state)
        return np.bool_(state.epoch >= self.epoch)


def test_a_callback_is_told_everything() -> None:
    listener = StopAfter()
    method = RobustPll(epochs=4, members=2)
    model = PLLClassifier(method, watch=0.2, callbacks=[listener], random_state=0).fit(X, LABELS)
    states = listener.states
    assert [state.epoch for state in states] == [1, 2, 3, 4]
    assert {(s.title, s.epochs, s.resumed) for s in states} == {("RobustPll", 4, False)}
    seconds = [state.seconds for state in states]
    assert seconds == sorted(seconds)
    losses, rates = ([getattr(s, name) for s in states] for name in ("loss", "covering_rate"))
    assert all(loss.shape == rate.shape == (2,) for loss, rate in zip(losses, rates, strict=True))
    np.testing.assert_allclose(model.history_["loss"], np.mean(losses, 1), rtol=1e-6)
    np.testing.assert_allclose(model.history_["covering_rate"], np.mean(rates, 1), rtol=1e-6)
    states[0].loss[:] = 0  # a copy
    assert model.history_["loss"][0] > 0
    parameters = states[-1].parameters()
    assert all(len(values) == 2 for values in parameters.values())
    with pytest.raises(AttributeError):
        states[0].epoch = 5  # type: ignore[misc]


def test_several_callbacks_are_called_and_one_stops() -> None:
    calls = [StopAfter(7), StopAfter(3), StopAfter()]
    model = PLLClassifier(Proden(epochs=20), callbacks=calls, verbose=True, random_state=0)
    assert len(model.fit(X, LABELS).history_["loss"]) == 3
    assert [len(one.states) for one in calls] == [3, 3, 3]


@pytest.mark.parametrize(
    "method",
    [Proden(epochs=9), RobustPll(epochs=9), CroSel(epochs=9), RobustPll(epochs=9, averaged=0.5)],
    ids=["Proden", "RobustPll", "CroSel", "averaged"],
)
@pytest.mark.parametrize("epochs", [1, 6])
@pytest.mark.parametrize("watch", [None, 0.2])
def test_what_follows_uses_the_epochs_that_ran(method: Any, epochs: int, watch: Any) -> None:
    stop = StopAfter(epochs)
    model = PLLClassifier(method, callbacks=[stop], watch=watch, random_state=0).fit(X, LABELS)
    assert all(len(values) == epochs for values in model.history_.values())
    np.testing.assert_allclose(model.label_weights_.sum(-1), 1, rtol=1e-5)
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_stopped_training_keeps_the_best_of_the_epochs_that_ran() -> None:
    kept: list[Any] = []

    def keep(state: EpochState) -> bool:
        rate = state.covering_rate
        assert rate is not None
        kept.append((float(rate[0]), state.epoch, state.parameters()))
        return state.epoch == 5

    callbacks = [SimpleNamespace(on_epoch_end=keep)]
    method = Proden(epochs=20, learning_rate=0.05)
    model = PLLClassifier(method, watch=0.3, callbacks=callbacks, random_state=0).fit(X, LABELS)
    _, _, best = max(kept, key=lambda one: one[:2])  # of equally good ones, the last
    for name, values in model.fitted_.net.named_parameters():
        np.testing.assert_array_equal(values.numpy(), best[name])


def test_an_averaged_network_is_the_mean_of_the_epochs_that_ran() -> None:
    """Of 8 epochs the last 4 are averaged; it stops after the sixth, so the mean has two."""
    stop = StopAfter(6)
    kept: list[Any] = []
    keep = SimpleNamespace(on_epoch_end=lambda state: kept.append(state.parameters()))
    method = Proden(epochs=8, averaged=0.5)
    model = PLLClassifier(method, callbacks=[stop, keep], random_state=0).fit(X, LABELS)
    for name, values in model.fitted_.net.named_parameters():
        mean = (kept[4][name] + kept[5][name]) / 2
        np.testing.assert_allclose(values.numpy(), mean, rtol=1e-5, atol=1e-7)


def test_each_training_of_a_fit_is_stopped_alone() -> None:
    stop = StopAfter(2)
    PLLClassifier(ProdenEdl(epochs=5), callbacks=[stop], random_state=0).fit(X, LABELS)
    trainings = [(state.title, state.epoch) for state in stop.states]
    assert trainings == [("Proden", 1), ("Proden", 2), ("Proden+Edl", 1), ("Proden+Edl", 2)]
    default = RobustPLLClassifier(epochs=9, callbacks=[StopAfter(2)], random_state=0)
    assert len(default.fit(X, LABELS).history_["loss"]) in (0, 2)  # 0: trees alone
    silent = StopAfter()
    PLLClassifier(PlKnn(), callbacks=[silent]).fit(X, LABELS)
    assert silent.states == []


def test_an_error_of_a_callback_reaches_the_user_and_leaves_the_model() -> None:
    def fail(state: EpochState) -> None:
        raise KeyError(state.title)

    model = PLLClassifier(Proden(epochs=3), random_state=0).fit(X, LABELS)
    before = dict(vars(model))
    model.set_params(callbacks=[SimpleNamespace(on_epoch_end=fail)])
    with pytest.raises(KeyError, match="Proden"):
        model.fit(X, LABELS)
    assert all(vars(model)[name] is before[name] for name in before if name != "callbacks")


@pytest.mark.parametrize("wrong", [print, [print], "log.csv", CSVLogger("a"), [CSVLogger], None, 3])
def test_other_callbacks_are_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="callbacks must be a list of objects"):
        PLLClassifier(Proden(epochs=1), callbacks=wrong).fit(X, LABELS)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_a_log_has_a_line_for_each_epoch(tmp_path: Path) -> None:
    path, epochs = tmp_path / "log.csv", list[int]()

    def look(state: EpochState) -> None:
        epochs.append(len(read(path)))  # complete while the training goes on

    callbacks = [CSVLogger(str(path)), SimpleNamespace(on_epoch_end=look)]
    model = PLLClassifier(ProdenEdl(epochs=2), callbacks=callbacks, random_state=0).fit(X, LABELS)
    assert epochs == [1, 2, 3, 4]
    lines = read(path)
    assert [*lines[0]] == ["training", "epoch", "loss", "covering_rate", "seconds"]
    assert [line["training"] for line in lines] == ["Proden"] * 2 + ["Proden+Edl"] * 2
    losses = [float(line["loss"]) for line in lines[2:]]
    np.testing.assert_allclose(losses, model.history_["loss"], rtol=1e-5)
    clone(model).set_params(watch=0.2).fit(X, LABELS)  # a further fit adds its lines
    assert len(read(path)) == 8
    assert [bool(line["covering_rate"]) for line in read(path)] == [False] * 6 + [True] * 2


@pytest.mark.parametrize("torn", ["", "Proden,3,0.5"])
def test_a_resumed_fit_replaces_the_lines_that_it_repeats(torn: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("training,epoch,loss,covering_rate,seconds\nProden,3,9,,9\nOther,1,9,,9\n")

    def fail(state: EpochState) -> None:
        if state.epoch == 3:
            raise RuntimeError

    log, failing = CSVLogger(path), SimpleNamespace(on_epoch_end=fail)
    model = PLLClassifier(Proden(epochs=4), callbacks=[log, failing], random_state=0)
    with pytest.raises(RuntimeError):
        model.set_params(checkpoint=tmp_path / "state").fit(X, LABELS)
    with path.open("a") as file:
        file.write(torn)  # of a crash
    model.set_params(callbacks=[log]).fit(X, LABELS, resume=tmp_path / "state")
    lines = [(line["training"], line["epoch"]) for line in read(path)]
    assert lines == [("Proden", "3"), ("Other", "1"), *(("Proden", str(e)) for e in range(1, 5))]


@pytest.mark.parametrize("last", [0, 1])
def test_a_fit_that_is_resumed_at_its_start_keeps_the_lines_of_an_earlier_fit(
    last: int, tmp_path: Path
) -> None:
    log = CSVLogger(tmp_path / "log.csv")
    model = PLLClassifier(Proden(epochs=3), callbacks=[log], random_state=0).fit(X, LABELS)

    def fail(state: EpochState) -> None:
        raise RuntimeError

    failing = SimpleNamespace(on_epoch_end=fail)
    model.set_params(checkpoint=tmp_path / "state", callbacks=[log, failing][1 - last :])
    with pytest.raises(RuntimeError):  # before the first checkpoint
        model.fit(X, LABELS)
    assert len(read(tmp_path / "log.csv")) == 3 + last
    model.set_params(callbacks=[log]).fit(X, LABELS, resume=tmp_path / "state")
    assert [line["epoch"] for line in read(tmp_path / "log.csv")] == ["1", "2", "3"] * 2


def test_a_log_replaces_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("mine")
    for wrong, words in ((path, "would be lost"), (tmp_path / "no" / "log.csv", "no folder")):
        with pytest.raises(InputError, match=words):
            PLLClassifier(Proden(epochs=1), callbacks=[CSVLogger(wrong)]).fit(X, LABELS)
    assert path.read_text() == "mine"


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    accumulators: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    board = TensorBoard(tmp_path)
    model = PLLClassifier(RobustPll(epochs=3), watch=0.2, callbacks=[board], random_state=0)
    model.fit(X, LABELS)
    events = accumulators.EventAccumulator(str(tmp_path / "RobustPll"))
    events.Reload()
    for name, values in (("loss", "loss"), ("covering rate", "covering_rate")):
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2, 3]
        written = [scalar.value for scalar in scalars]
        np.testing.assert_allclose(written, model.history_[values], rtol=1e-5)
    copies = (clone(model).callbacks[0], copy.deepcopy(board), pickle.loads(pickle.dumps(board)))
    assert all(one.folder == tmp_path for one in copies)  # though a writer has a thread


def test_tensorboard_shows_an_epoch_once_if_the_fit_was_interrupted(tmp_path: Path) -> None:
    accumulators: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )

    def fail(state: EpochState) -> None:
        if state.epoch == 2:
            raise KeyboardInterrupt

    board, failing = TensorBoard(tmp_path / "runs"), SimpleNamespace(on_epoch_end=fail)
    model = PLLClassifier(Proden(epochs=3), callbacks=[board, failing], random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(checkpoint=tmp_path / "state").fit(X, LABELS)
    model.set_params(callbacks=[board]).fit(X, LABELS, resume=tmp_path / "state")
    events = accumulators.EventAccumulator(str(tmp_path / "runs" / "Proden"))
    events.Reload()
    assert [scalar.step for scalar in events.Scalars("loss")] == [1, 2, 3]


def test_a_board_that_is_gone_has_no_thread(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    before = {*threading.enumerate()}
    board = TensorBoard(tmp_path)
    model = PLLClassifier(Proden(epochs=1), callbacks=[board], random_state=0).fit(X, LABELS)
    threads = {*threading.enumerate()} - before
    assert threads
    model.set_params(callbacks=[])
    del board
    gc.collect()
    assert not any(thread.is_alive() for thread in threads)


def test_without_tensorboard_a_sentence_says_what_to_install() -> None:
    code = """
import sys
sys.modules["tensorboard"] = None
from robustpll.callbacks import TensorBoard
try:
    TensorBoard("runs")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'robustpll[tensorboard]'" in done.stdout
