"""Each example runs as it stands, from any folder, and prints what it should."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBER = r"(\d\.\d+)"


def run(name: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    variables = os.environ | {"OMP_WAIT_POLICY": "passive"}
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 900}
    done = subprocess.run(command, cwd=folder, env=variables, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []  # nothing is left behind
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    match = re.search(pattern, text)
    assert match, text
    return [float(group) for group in match.groups()]


@pytest.mark.slow
def test_a_model_of_votes_beats_their_majority(tmp_path: Path) -> None:
    text = run("table_of_votes.py", tmp_path)
    (majority,) = numbers(f"by majority: {NUMBER}", text)
    (model,) = numbers(f"by the model: {NUMBER}", text)
    assert majority < model
    assert numbers(f"new rows: {NUMBER}", text)[0] > 0.9


@pytest.mark.slow
def test_pictures_are_learned_by_lenet_and_by_a_network_of_ones_own(tmp_path: Path) -> None:
    text = run("pictures.py", tmp_path)
    for title in ("RobustPll", "Proden"):
        assert min(numbers(f"{title}: accuracy {NUMBER}, .*pictures {NUMBER}", text)) > 0.9
    text = run("own_network.py", tmp_path)
    assert min(numbers(rf"1 of them: accuracy {NUMBER}\n3 of them: accuracy {NUMBER}", text)) > 0.85
    assert "says the same: True" in text


@pytest.mark.slow
def test_three_methods_are_compared_by_a_program_and_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run("compare_methods.py", tmp_path)
    assert "9 runs done, 0 known before" in text
    for label in ("PlKnn", "Proden", "RobustPll, weak divergence"):
        assert numbers(rf"{label} +3 +(\d+\.\d)", text)[0] > 90
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    program = (EXAMPLES / "compare_methods.py").read_text()
    commands = re.findall(r"^    robustpll (bench .*)$", program, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, (command, result.output)
    assert "RobustPll, weak divergence" in Path("report/index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_model_that_abstains_keeps_its_bound_and_refuses_broken_rows(tmp_path: Path) -> None:
    text = run("abstain.py", tmp_path)
    (without,) = numbers(f"without abstaining: {NUMBER}", text)
    among, promised = numbers(rf"accepted scans: {NUMBER} \(promised: {NUMBER}\)", text)
    assert among <= promised < without
    assert " 0 of the 40 broken ones" in text


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text()
    names = [path.name for path in EXAMPLES.glob("*.py")]
    assert names
    assert [name for name in names if f'run("{name}"' not in text] == []
