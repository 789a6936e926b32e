"""`fit` and `predict` in processes that are interrupted, killed, or lack disk or memory."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from robustpll import PLLClassifier
from robustpll.cli.models import COLUMNS
from robustpll.methods import Proden

pytestmark = pytest.mark.slow

FIT = ("fit", "table.csv", "--out", "model.pll", "--candidates", "c", "--epochs")
PREDICT = ("predict", "model.pll", "new.csv", "--out", "out.csv")
PRINT_EPOCHS = """
from robustpll.engine import history
class Printing:
    def on_epoch_end(self, state):
        print("epoch", state.epoch, flush=True)
history._callbacks.set((Printing(),))
"""
KILLED_AT_3 = """
import os, signal
from robustpll.engine import history
class Killing:
    def on_epoch_end(self, state):
        if state.epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)
history._callbacks.set((Killing(),))
"""
STOP_AT_PIECE_3 = """
import itertools, sys
from robustpll.cli import models
predict_piece, numbers = models._predict_piece, itertools.count(1)
def stopping(*arguments):
    if next(numbers) == 3:
        print("piece 3", flush=True)
        sys.stdin.read()
    return predict_piece(*arguments)
models._predict_piece = stopping
"""
SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))"
RUN = """
import sys; from robustpll.cli import app
try: app()
finally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)
"""


def start(words: tuple[str, ...], setup: str = "") -> "subprocess.Popen[str]":
    """Start a command; the last word it prints is its peak memory in KiB.

    getrusage would count the memory of the parent process, too.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", setup + RUN, *words], **pipes, text=True)


def end(process: "subprocess.Popen[str]", line: str, how: signal.Signals) -> str:
    """Send a signal once the process has printed a line; return its messages."""
    assert process.stdout is not None
    assert process.stdout.readline() == line
    process.send_signal(how)
    return process.communicate()[1]


@pytest.fixture(autouse=True)
def model() -> bytes:
    """The content of model.pll; there is a table to fit, too."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)).round(3), columns=[*"xyz"])
    labels = np.where(X["x"] > 0, "cat", "dog")
    X.assign(c=labels).to_csv("table.csv", index=False)
    PLLClassifier(Proden(epochs=1), random_state=0).fit(X, labels).save("model.pll")
    return Path("model.pll").read_bytes()


def long_table(rows: int) -> None:
    Path("new.csv").write_text("x,y,z\n" + "0.5,-0.25,1.125\n" * rows)


def older_predictions() -> str:
    text = ",".join(["line", *COLUMNS]) + "\nolder\n"
    Path("out.csv").write_text(text)
    return text


def test_a_full_disk_is_told_in_a_sentence_and_leaves_the_old_file_whole(model: bytes) -> None:
    long_table(20_000)
    older = older_predictions()
    for words, name in (((*FIT, "1"), "model.pll"), (PREDICT, "out.csv")):
        process = start(words, SMALL_FILES)
        message = process.communicate()[1]
        assert process.returncode == 1
        assert message.startswith(f"{name} cannot be")
        assert message.count("\n") == 2
    assert Path("model.pll").read_bytes() == model
    assert Path("out.csv").read_text() == older
    assert len([*Path().iterdir()]) == 4


def test_an_interrupted_training_writes_nothing(model: bytes) -> None:
    process = start((*FIT, "1000000"), PRINT_EPOCHS)
    message = end(process, "epoch 1\n", signal.SIGINT)
    assert process.returncode == 130
    assert message.startswith("Stopped. No model is written.\n")
    assert Path("model.pll").read_bytes() == model
    assert len([*Path().iterdir()]) == 2


def test_a_killed_fit_goes_on_from_its_checkpoint(model: bytes) -> None:
    kept = (*FIT, "5", "--checkpoint", "state", "--resume")
    process = start(kept, KILLED_AT_3)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert Path("model.pll").read_bytes() == model
    for words in (kept, (*FIT, "5")):
        process = start(words)
        messages = process.communicate()[1]
        assert process.returncode == 0, messages
        Path("model.pll").rename(f"{len(words)}.pll")
    assert Path(f"{len(kept)}.pll").read_bytes() == Path(f"{len(FIT) + 1}.pll").read_bytes()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_write_leaves_the_old_file_whole(how: signal.Signals) -> None:
    long_table(30_000)
    older = older_predictions()
    process = start(PREDICT, STOP_AT_PIECE_3)
    messages = end(process, "piece 3\n", how)
    assert Path("out.csv").read_text() == older
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert messages.startswith("Stopped. out.csv is not written.\n")
        assert not list(Path().glob(".out.csv.*"))
    else:
        assert [path.stat().st_size > 10**5 for path in Path().glob(".out.csv.*")] == [True]


def test_memory_does_not_grow_with_the_table() -> None:
    peaks = []
    for rows in (20_000, 120_000):
        long_table(rows)
        process = start(PREDICT)
        messages = process.communicate()[1]
        assert process.returncode == 0, messages
        with Path("out.csv").open("rb") as file:
            assert sum(1 for _ in file) == rows + 1
        peaks.append(int(messages.split()[-1]) / 1024)
    # MiB. The peak of a single piece varies by 60 or so; 100,000 rows held whole take 330 more.
    assert peaks[1] - peaks[0] < 150


@pytest.mark.parametrize("head", ["x,y,z\n1,2,3\n", ""])
def test_two_gigabytes_without_a_line_end_are_refused_rather_than_read(head: str) -> None:
    with Path("new.csv").open("w", encoding="utf-8") as file:
        file.write(head)
        file.truncate(2 * 10**9)
    process = start(PREDICT)
    messages = process.communicate()[1]
    assert process.returncode == 1
    assert messages.startswith("new.csv has a line of 134,217,728 characters or more")
    assert int(messages.split()[-1]) / 1024 < 1500  # MiB
    assert not list(Path().glob("*out.csv*"))
