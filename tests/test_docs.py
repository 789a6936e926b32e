"""What the documentation shows is run."""

import csv
import json
import re
import shlex
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from robustpll.cli import app

DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS = DOCS.parent / "benchmarks"


def blocks(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    assert found
    return found


@pytest.mark.slow
def test_the_code_on_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "weight,legs,label",
        *(f"{i % 7 + i % 2 * 50},4,{'cat|dog' if i % 3 else 'dog'}" for i in range(40)),
    ]
    Path("animals.csv").write_text("\n".join(lines))
    names: dict[str, object] = {}
    for block in blocks("data.md"):
        exec(block, names)
    assert len(names["y"]) == 1437  # type: ignore[arg-type]
    assert names["model"].predict(names["table"].features).shape == (40,)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_code_on_robustness_runs() -> None:
    names: dict[str, Any] = {}
    published, worst = None, None
    for block in blocks("robustness.md"):
        exec(block, names)
        published, worst = names["published"], worst or names["report"].worst
    right = (published.predicted() == names["y_test"][:100]).mean()
    assert worst[1] < right
    assert names["report"].separations["row distance"].auroc > 0.9


def test_the_tables_on_robustness_are_those_of_the_stored_runs() -> None:
    page, results = (DOCS / "robustness.md").read_text(), DOCS.parent / "benchmarks" / "results"
    stored = [*results.glob("robustness-*.json"), *results.glob("ood-*.json")]
    if not stored:
        assert ", audit |" not in page  # no number without its run
        return
    attacked, ood = (json.loads(path.read_text()) for path in stored)
    for report in (attacked, ood):
        assert f"{report['machine']} with torch {report['torch']}, {report['date']}" in page
    for methods in attacked["sets"].values():
        for row in methods.values():
            for kind, curve in (("published", row["published"]), ("audit", row["worst"])):
                cells = map(cell, (row["clean"], *curve.values()))
                assert f"| {row['title']}, {kind} | {' | '.join(cells)} |" in page
    for row in ood["methods"].values():
        measured = [f"{row['measures'][name]['pooled']:.4f}" for name in row["published"]]
        paper = [f"{number:.4f}" for number in row["published"].values()]
        pairs = [f"{ours} | {theirs}" for ours, theirs in zip(measured, paper, strict=True)]
        assert f"| {row['title']} | {cell(row['accuracy'])} | {' | '.join(pairs)} |" in page
        for score, found in row["separations"].items():
            cells = (cell(found[name]) for name in ("auroc", "aupr", "fpr95"))
            assert f"| {row['title']}, {score} | {' | '.join(cells)} |" in page


@pytest.mark.slow
def test_the_code_on_trust_runs() -> None:
    names: dict[str, Any] = {}
    for block in blocks("trust.md"):
        exec(block, names)
    decision = names["decision"]
    wrong = (decision.label != names["labels"][1300:])[decision.accepted]
    assert decision.coverage > 0.3
    assert wrong.mean() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "new_rows", "truth"),
    [
        ("ten-minutes.md", "X_test", "y_test"),
        ("own-network.md", "pictures[1200:]", "y[1200:]"),
    ],
)
def test_the_code_on_a_guide_runs(
    page: str,
    new_rows: str,
    truth: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # they save models
    names: dict[str, Any] = {}
    for block in blocks(page):
        exec(block, names)
    assert "False" not in capsys.readouterr().out
    assert names["model"].score(eval(new_rows, names), eval(truth, names)) > 0.9


@pytest.mark.slow
def test_the_method_on_extending_learns_alone_and_in_a_grid(tmp_path: Path) -> None:
    """Its first block is a file, the others are programs that import it."""
    method, *programs = blocks("extending.md")
    (tmp_path / "best_candidate.py").write_text(method)
    said = ""
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        command = [sys.executable, "-W", "error", "program.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    accuracies = [float(number) for number in re.findall(r"0\.9\d+", said)]
    assert len(accuracies) == 5, said  # one network, an ensemble, and three lines of a grid


@pytest.mark.slow
def test_the_code_on_export_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("export.md"):
        exec(block, names)
    accepted, right = names["accepted"], names["labels"] == names["y"][1400:]
    assert accepted.mean() > 0.3
    assert (~right)[accepted].mean() < 0.05 < (~right).mean()
    by_model = names["model"].decide(names["X"][1400:], error=0.05)
    assert (accepted >= by_model.accepted).all()  # which also refuses rows unlike the training data


@pytest.mark.parametrize("name", ["clean", "results", "trust"])
def test_the_tables_are_those_of_the_stored_runs(name: str) -> None:
    """The page's own script would write it as it is."""
    page = (DOCS / f"{name}.md").read_text()
    spec = spec_from_file_location(f"{name}_page", BENCHMARKS / f"{name}_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    with patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
        spec.loader.exec_module(script)
    for part, lines in script.parts().items():
        assert sys.modules["pages"].replaced(page, part, lines) == page, part


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables that the commands name: three kinds, and what three people said of them."""
    monkeypatch.chdir(tmp_path)
    random, kinds = np.random.default_rng(0), ("cat", "dog", "emu")
    for file, said in (("animals.csv", True), ("new.csv", False)):
        lines = ["weight,legs," + ("vote ann,vote bob,vote eve" if said else "name")]
        for row in range(180):
            label = row % 3
            votes = [kinds[label if random.random() < 0.7 else random.integers(3)] for _ in "abe"]
            measured = f"{random.normal(3 * label):.3f},{random.normal(label):.3f}"
            lines.append(f"{measured},{','.join(votes) if said else f'pet {row}'}")
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def decide() -> None:
    """What a person at the page does: decides the first rows, and downloads."""
    page = Path("cleaned/review.html").read_text(encoding="utf-8")
    (key,) = re.findall(r'"key": ?"(\w+)"', page)
    with Path("cleaned/rows_for_review.csv").open(encoding="utf-8-sig") as file:
        rows = [row["row"] for row in csv.DictReader(file)][:3]
    assert rows
    lines = [f"{row},dog,2026-11-15T10:00:00.000Z,{key}\n" for row in rows]
    Path("decisions.csv").write_text("row,decision,when,table\n" + "".join(lines))


@pytest.mark.parametrize("page", ["README.md", "docs/first-day.md", "docs/clean.md"])
@pytest.mark.usefixtures("animals")
def test_the_commands_run_one_after_the_other(page: str) -> None:
    """Trained for a few epochs only, but else as they stand."""
    text = (DOCS.parent / page).read_text()
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        for line in block.splitlines()
        if line.startswith("robustpll ") and " bench " not in line  # which takes hours
    ]
    assert len(lines) > 1
    for line in lines:
        _, command, *options = shlex.split(line, comments=True)
        if "decisions.csv" in options and not Path("decisions.csv").exists():
            decide()
        short = ("--epochs", "5") if command in ("fit", "clean") else ()
        result = CliRunner().invoke(app, [command, *options, *short])
        assert result.exit_code == 0, (line, result.output)
        if "decisions.csv" in options:
            assert "decided by a person: 3" in result.stdout
    if "predict" in " ".join(lines):
        with Path("answers.csv").open(encoding="utf-8-sig") as file:
            assert len([row["label"] for row in csv.DictReader(file)]) == 180


def cell(spread: dict[str, float]) -> str:
    return f"{spread['mean']:.1f} ± {spread['std']:.1f}"


def test_links_lead_to_files() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (DOCS / link).exists(), f"{page.name}: {link}"
