"""The commands where something around them is odd: streams, terminals, variables, no home."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll.cli import app
from robustpll.datasets.catalog import data_folders
from robustpll.errors import InputError

TABLE = "x,c\n1,Öl\n2,猫\n3,Öl|猫\n"
SHOW = ("table", "table.csv", "--candidates", "c")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


def command(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    line = [sys.executable, "-c", "from robustpll.cli import app; app()", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(line, **pipes | options, timeout=120, check=False)


def test_names_that_a_terminal_lacks_are_escaped() -> None:
    for more in (
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ):
        done = command(*SHOW, env=os.environ | more)
        assert done.returncode == 0, done.stderr
        assert rb"\xd6l" in done.stdout
        assert rb"\u732b" in done.stdout
        assert done.stderr == b""
    assert "猫".encode() in command(*SHOW, env=os.environ | {"PYTHONUTF8": "1"}).stdout


def test_output_that_does_not_fit_on_the_disk_is_told_in_a_sentence() -> None:
    for arguments in (SHOW, ("--version",)):
        with Path("/dev/full").open("wb") as full:
            done = command(*arguments, stdout=full)
        assert done.returncode == 1
        reason = b"What the command prints cannot be written: No space left on device.\n"
        assert done.stderr == reason


def test_a_reader_that_went_away_ends_the_command_quietly() -> None:
    for arguments in (SHOW, ("datasets",)):
        read, write = os.pipe()
        os.close(read)
        done = command(*arguments, stdout=write)
        os.close(write)
        assert done.returncode == 1
        assert done.stderr == b""


def test_streams_that_are_closed_or_full_end_in_no_traceback() -> None:
    code = "import sys; sys.stdout = None; from robustpll.cli import app; app(['--version'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    with Path("/dev/full").open("wb") as full:
        assert command("table", "no.csv", stderr=full).returncode == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"COLUMNS": "abc", "LINES": "abc", "NO_COLOR": "1", "ROBUSTPLL_DATA": ""}
        | {"ROBUSTPLL_HOST_BYTES": "", "ROBUSTPLL_DEVICE_BYTES": ""},
        {"COLUMNS": "-5", "TERM": "dumb", "ROBUSTPLL_DATA": "table.csv"}
        | {"OMP_NUM_THREADS": "abc", "OMP_WAIT_POLICY": "never"},
    ],
)
def test_odd_variables_do_no_harm(variables: dict[str, str]) -> None:
    fit = ("fit", *SHOW[1:], "--out", "m.pll", "--method", "pl_knn")
    for arguments in (SHOW, ("datasets",), fit):
        done = command(*arguments, env=os.environ | variables)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["ROBUSTPLL_HOST_BYTES", "ROBUSTPLL_DEVICE_BYTES"])
@pytest.mark.parametrize("value", ["much", "-1"])
def test_a_limit_that_is_no_count_is_told_in_a_sentence(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    line = ["fit", "table.csv", "--candidates", "c", "--out", "m.pll", "--epochs", "1"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"The environment variable {name} must be a count")
    assert f"it is {value!r}" in result.stderr


def test_without_a_home_only_the_datasets_that_need_one_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("ROBUSTPLL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    for arguments in (["datasets"], ["datasets", "get", "mnist"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        assert "There is no home folder to keep files in." in result.stderr
    assert CliRunner().invoke(app, ["datasets", "get", "digits"]).exit_code == 0
    assert CliRunner().invoke(app, [*SHOW]).exit_code == 0
    monkeypatch.setenv("ROBUSTPLL_DATA", "here")
    assert data_folders() == (Path("here"),)
    assert CliRunner().invoke(app, ["datasets"]).exit_code == 0


def test_a_data_folder_of_an_unknown_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBUSTPLL_DATA", "~nobody-of-this-name/data")
    with pytest.raises(InputError, match="ROBUSTPLL_DATA is '~nobody-of-this-name/data'"):
        data_folders()
    assert CliRunner().invoke(app, ["datasets"]).exit_code == 1
