"""`fit` and `predict` in processes that are interrupted, killed, or lack disk or memory."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from robustpll import PLLClassifier
from robustpll.cli.models import COLUMNS
from robustpll.methods import Proden

pytestmark = pytest.mark.slow

TIMEOUT = 900  # seconds until a process counts as hanging, on the slowest of machines
FIT = ("fit", "table.csv", "--out", "model.pll", "--candidates", "c", "--epochs")
PREDICT = ("predict", "model.pll", "new.csv", "--out", "out.csv")
PRINT_EPOCHS = """
from robustpll.engine import history
history._listener.set(lambda title, epoch, *_: print("epoch", epoch, flush=True))
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
    line = [sys.executable, "-c", setup + RUN, *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def model() -> bytes:
    """The content of model.pll; there is a table to fit, too."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)).round(3), columns=[*"xyz"])
    labels = np.where(X["x"] > 0, "cat", "dog")
    X.assign(c=labels).to_csv("table.csv", index=False)
    PLLClassifier(Proden(epochs=1), random_state=0).fit(X, labels).save("model.pll")
    return Path("model.pll").read_bytes()


def long_table(rows: int) -> None:
    block = "0.5,-0.25,1.125\n" * 1000
    with Path("new.csv").open("w", encoding="utf-8") as file:
        file.write("x,y,z\n")
        for _ in range(rows // 1000):
            file.write(block)


def test_a_full_disk_is_told_in_a_sentence_and_leaves_the_old_file_whole(model: bytes) -> None:
    long_table(20_000)
    older = ",".join(["line", *COLUMNS]) + "\nolder\n"
    Path("out.csv").write_text(older)
    for words, name in (((*FIT, "1"), "model.pll"), (PREDICT, "out.csv")):
        process = start(words, SMALL_FILES)
        _, message = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 1
        assert message.startswith(f"{name} cannot be")
        assert message.count("\n") == 2
    assert Path("model.pll").read_bytes() == model
    assert Path("out.csv").read_text() == older
    assert len([*Path().iterdir()]) == 4


def test_an_interrupted_training_writes_nothing(model: bytes) -> None:
    process = start((*FIT, "1000000"), PRINT_EPOCHS)
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch 1\n"
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert message.startswith("Stopped. No model is written.\n")
    assert Path("model.pll").read_bytes() == model
    assert len([*Path().iterdir()]) == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_write_leaves_the_old_file_whole(how: signal.Signals) -> None:
    long_table(300_000)
    older = ",".join(["line", *COLUMNS]) + "\nolder\n"
    Path("out.csv").write_text(older)
    process = start(PREDICT)
    deadline = time.monotonic() + TIMEOUT
    while not any(path.stat().st_size > 10**6 for path in Path().glob(".out.csv.*")):
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.1)
    process.send_signal(how)
    _, messages = process.communicate(timeout=TIMEOUT)
    assert Path("out.csv").read_text() == older
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert messages.startswith("Stopped. out.csv is not written.\n")
        assert not list(Path().glob(".out.csv.*"))


def test_memory_does_not_grow_with_the_table() -> None:
    peaks = []
    for rows in (20_000, 120_000):
        long_table(rows)
        process = start(PREDICT)
        _, messages = process.communicate(timeout=TIMEOUT)
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
    _, messages = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert messages.startswith("new.csv has a line of 134,217,728 characters or more")
    assert int(messages.split()[-1]) / 1024 < 1500  # MiB
    assert not list(Path().glob("*out.csv*"))
