"""The commands as a newcomer runs them, and with odd streams, variables or no home."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll import METHODS, __version__
from robustpll.cli import app
from robustpll.demo import run_demo
from robustpll.errors import InputError

SHOW = ("table", "table.csv", "--candidates", "c")
VERSION = "from robustpll.cli import app; app(['--version'])"


@pytest.fixture(autouse=True)
def table(folder: None) -> None:
    Path("table.csv").write_text("x,c\n1,Öl\n2,猫\n3,Öl|猫\n", encoding="utf-8")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words])


def python(code: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([sys.executable, "-c", code], check=False, **pipes | options)


def test_the_version_and_the_datasets_are_printed_without_loading_torch() -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"robustpll {__version__}\n")
    code = "from robustpll.cli import app; app(['datasets'], standalone_mode=False); import sys\n"
    code += "print([name for name in ('torch', 'pandas', 'sklearn') if name in sys.modules])"
    assert python(code).stdout.endswith(b"\n[]\n")


def test_the_package_is_a_command() -> None:
    command = [sys.executable, "-m", "robustpll", "--version"]
    assert (
        subprocess.run(command, capture_output=True, check=True).stdout
        == run("--version").stdout_bytes
    )


def test_every_method_is_listed_with_its_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    result = run("methods")
    assert result.exit_code == 0
    for name, method in METHODS.items():
        line = next(line for line in result.output.splitlines() if line.split()[:1] == [name])
        assert {method.title, method.family} <= {*line.split()}
        assert method.reference() in line
    assert METHODS["proden"].reference() == "Lv et al., ICML 2020"


def test_no_command_shows_help_and_wrong_usage_is_exit_code_2() -> None:
    assert "demo" in run().output
    result = run("dmeo")
    assert result.exit_code == 2
    assert "No such command 'dmeo'" in result.output
    assert run("demo", "--seed", "-1").exit_code == 2
    assert run("datasets", "get").exit_code == 2


def test_a_demo_draws_a_picture_and_replaces_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new folder" / "tour.png"
    assert run_demo(path.parent, epochs=1) == path
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert len(path.read_bytes()) > 50_000
    printed = capsys.readouterr().out
    assert str(path) in printed.replace("\n", "")
    assert all(title in printed for title in ("Auto", "each candidate + RF", "RobustPll", "Proden"))
    page = path.parent / "review" / "review.html"
    assert str(page) in printed.replace("\n", "")
    assert page.read_text(encoding="utf-8").count("data:image/png") > 5
    path.write_bytes(b"my own")
    with pytest.raises(InputError, match=r"holds tour.png, not written by robustpll demo"):
        run_demo(path.parent)
    assert path.read_bytes() == b"my own"


@pytest.mark.parametrize("mine", ["digits/7.png", "digits.csv", "review/review.html", "digits"])
def test_a_demo_keeps_the_files_of_others_and_says_so_before_it_trains(
    tmp_path: Path, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustpll.demo.PLLClassifier", None)
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_bytes(b"my own")
    with pytest.raises(InputError, match=r"not written by robustpll|must be a writable folder"):
        run_demo(tmp_path, epochs=1)
    assert (tmp_path / mine).read_bytes() == b"my own"


@pytest.mark.parametrize("out", ["table.csv/folder", "table.csv", "/proc/demo"])
def test_a_demo_that_cannot_be_written_is_refused_before_it_begins(out: str) -> None:
    result = run("demo", "--out", out)
    assert result.exit_code == 1
    assert f"must be a writable folder or the name of a new one; {out} is not" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.slow
def test_the_demo_tells_the_story(tmp_path: Path) -> None:
    """As the command runs it: the default is right more often, and doubts what it never saw."""
    program = Path(sys.executable).with_name("robustpll")
    done = subprocess.run([program, "demo", "--out", tmp_path], capture_output=True, check=True)
    rows = {
        line.split()[0]: [float(cell) for cell in line.replace("%", "").split()[1:]]
        for line in done.stdout.decode().splitlines()
        if line.count("%") == 3
    }
    assert len(rows) == 3
    for resolved, test, attacked, known, unknown in rows.values():
        assert min(test, resolved) > 70
        assert known < unknown
        assert attacked < test
    assert rows["Auto"][1] > rows["RobustPll"][1] > rows["Proden"][1]
    assert rows["Auto"][2] > rows["RobustPll"][2]


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_names_that_a_terminal_lacks_are_escaped(variables: dict[str, str]) -> None:
    done = python(f"from robustpll.cli import app; app({[*SHOW]})", env=os.environ | variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xd6l" in done.stdout
    assert b"\\u732b" in done.stdout


def test_output_that_cannot_be_written_is_told_in_a_sentence_and_a_lost_reader_is_not() -> None:
    with Path("/dev/full").open("wb") as full:
        done = python(VERSION, stdout=full)
        assert done.returncode == 1
        assert done.stderr == b"The output cannot be written: No space left on device.\n"
    read, write = os.pipe()
    os.close(read)
    done = python(VERSION, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"Traceback" not in python(f"import sys; sys.stdout = None; {VERSION}").stderr


@pytest.mark.parametrize(
    ("variables", "commands"),
    [
        (
            {"COLUMNS": "abc", "LINES": "abc", "NO_COLOR": "1", "ROBUSTPLL_DATA": ""},
            (SHOW, ("datasets",)),
        ),
        (
            {"COLUMNS": "-5", "TERM": "dumb", "ROBUSTPLL_DATA": "table.csv"}
            | {"OMP_NUM_THREADS": "abc", "OMP_WAIT_POLICY": "never"}
            | {"ROBUSTPLL_HOST_BYTES": "", "ROBUSTPLL_DEVICE_BYTES": ""},
            (("datasets",), ("fit", *SHOW[1:], "--out", "m.pll", "--method", "pl_knn")),
        ),
    ],
)
def test_odd_variables_do_no_harm(
    variables: dict[str, str], commands: tuple[tuple[str, ...], ...]
) -> None:
    code = "from robustpll.cli import app\n"
    code += "".join(f"app({[*words]}, standalone_mode=False)\n" for words in commands)
    done = python(code, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["ROBUSTPLL_HOST_BYTES", "ROBUSTPLL_DEVICE_BYTES"])
@pytest.mark.parametrize("value", ["much", "-1"])
def test_a_limit_that_is_no_count_is_told_in_a_sentence(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    result = run("fit", "table.csv", "--candidates", "c", "--out", "m.pll", "--epochs", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"The environment variable {name} must be a count")
    assert f"it is {value!r}" in result.stderr


def test_without_a_home_only_the_datasets_that_need_one_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for name in ("ROBUSTPLL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    for words in (("datasets",), ("datasets", "get", "mnist")):
        result = run(*words)
        assert result.exit_code == 1
        assert "There is no home folder: set ROBUSTPLL_DATA" in result.stderr
    assert run("datasets", "get", "digits").exit_code == 0
    assert run(*SHOW).exit_code == 0
    monkeypatch.setenv("ROBUSTPLL_DATA", "here")
    assert run("datasets").exit_code == 0
    monkeypatch.setenv("ROBUSTPLL_DATA", "~nobody-of-this-name/data")
    result = run("datasets")
    assert result.exit_code == 1
    assert "There is no home folder: set ROBUSTPLL_DATA" in result.stderr
