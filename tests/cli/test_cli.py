"""The commands, as a newcomer runs them."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robustpll import METHODS, __version__
from robustpll.cli import app
from robustpll.demo import run_demo
from robustpll.errors import InputError

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"robustpll {__version__}\n"


def test_the_version_needs_no_torch() -> None:
    code = "import sys; from robustpll.cli import app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_method_is_listed_with_its_paper() -> None:
    result = CliRunner().invoke(app, ["methods"], env={"COLUMNS": "300"})
    assert result.exit_code == 0
    for name, method in METHODS.items():
        line = next(line for line in result.output.splitlines() if line.split()[:1] == [name])
        assert method.title in line
        assert method.reference() in line
        assert method.family in line
    assert METHODS["proden"].reference() == "Lv et al., ICML 2020"


def test_no_command_shows_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output
    assert "methods" in result.output


def test_an_unknown_command_fails_with_a_sentence() -> None:
    result = CliRunner().invoke(app, ["dmeo"])
    assert result.exit_code == 2
    assert "No such command 'dmeo'" in result.output


def test_a_short_demo_prints_a_table_and_draws_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_demo(tmp_path / "new folder", epochs=3)
    printed = capsys.readouterr().out
    assert path.read_bytes().startswith(PNG)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert str(path) in printed.replace("\n", "")
    for title in ("RobustPll", "RobustPll+Ens", "Proden"):
        assert title in printed


def test_a_demo_may_run_again_but_replaces_no_other_picture(tmp_path: Path) -> None:
    path = run_demo(tmp_path, epochs=1)
    first = path.read_bytes()
    assert run_demo(tmp_path, seed=1, epochs=1).read_bytes() != first
    other = PNG + b"of my own"
    path.write_bytes(other)
    with pytest.raises(InputError, match="is not a picture of the demo"):
        run_demo(tmp_path, epochs=1)
    assert path.read_bytes() == other


@pytest.mark.parametrize("out", ["file/folder", "file", "/proc/demo"])
def test_a_demo_that_cannot_be_written_is_told_before_it_begins(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--out", out])
    assert result.exit_code == 1
    assert f"{out}/tour.png cannot be written" in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_seed_that_is_none_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["demo", "--seed", "-1"]).exit_code == 2


@pytest.mark.slow
def test_the_demo_tells_the_story(tmp_path: Path) -> None:
    """As the command runs it: RobustPll is right more often, and doubts what it never saw."""
    done = subprocess.run(
        [Path(sys.executable).with_name("robustpll"), "demo", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {
        line.split()[0]: [float(cell) for cell in line.replace("%", "").split()[1:]]
        for line in done.stdout.splitlines()
        if line.count("%") == 3
    }
    assert len(rows) == 3
    for test, found, known, unknown, attacked in rows.values():
        assert test > 70
        assert found > 70
        assert known < unknown
        assert attacked < test
    assert rows["RobustPll"][0] > rows["Proden"][0]
    assert rows["RobustPll+Ens"][4] > rows["Proden"][4]
