"""What README and the documentation show is run, and what they claim is where they say."""

import csv
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from robustpll.cli import app

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BENCHMARKS = DOCS.parent / "benchmarks"
with patch.object(sys, "path", [str(BENCHMARKS), *sys.path]):
    pages = import_module("pages")


def blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    code = re.findall(r"^( *)```python\n(.*?)^\1```", text, flags=re.DOTALL | re.MULTILINE)
    assert code
    return [dedent(block) for _, block in code]


FACTS = {  # by page: what holds after its code has run
    "../README.md": [
        "model.score(X_test, y_test) > 0.97",
        "(model.labels_ == y_train).mean() > 0.98",
        "Path('votes.pll').exists()",
    ],
    "concepts.md": ["opinion.uncertainty[0] > opinion.uncertainty[1]"],
    "how-to/imbalanced-classes.md": [
        "corrected_recall[8:].mean() > recall[8:].mean() + 0.1",
        "corrected_recall.mean() > recall.mean() + 0.02",
    ],
    "how-to/many-classes.md": [
        "top_five > 0.95 > model.score(X_test, y_test) > 0.8",
        "covered > 0.97 and 1 < predicted.sum(1).mean() < 10",
    ],
    "how-to/noisy-sets.md": [
        "missing[worst].mean() > 0.9 > 0.5 > missing.mean()",
        "again.score(X[900:], y[900:]) > model.score(X[900:], y[900:])",
        "(outside[worst] == y[worst]).mean() > 0.8",
    ],
    "how-to/abstain.md": [
        "estimate.coverage > decision.coverage > 0.5",
        "(decision.label != y[1300:])[decision.accepted].mean() <= 0.02",
        "set(strange.reason) == {'unlike the training data'}",
        "held > 0.96",
    ],
    "how-to/calibration.md": [
        "report.error < 0.05 < after.error + 0.05 < before.error",
        "network.recalibration_.factor > 1",
    ],
    "how-to/data.md": [
        "len(y) == 1437",
        "cleaned.groupby('town').label.unique().str[0].tolist() == ['dog', 'cat']",
        "model.predict(table.features).shape == (40,)",
        "prior.shape == (4, 3)",
    ],
    "how-to/export.md": [
        "accepted.mean() > 0.3",
        "(labels != y[1400:])[accepted].mean() < 0.05 < (labels != y[1400:]).mean()",
        # The model also refuses rows unlike the training data.
        "(accepted >= model.decide(X[1400:], error=0.05).accepted).all()",
    ],
    "how-to/robustness.md": [
        "first_report.worst[1] < (published.predicted() == y_test[:100]).mean()",
        "report.separations['row distance'].auroc > 0.9",
        "defended.score(X_test, y_test) > 0.75",
    ],
    "index.md": ["model.score(X_test, y_test) > 0.97", "(model.labels_ == y_train).mean() > 0.98"],
    "how-to/scikit-learn.md": [
        "model.score(X_test, y_test) > 0.9",
        "(held_out == y_train).mean() > 0.9",
        "watched.score(X_test, y_test) > 0.8",
    ],
    "how-to/own-network.md": [
        "min(m.score(pictures[1200:], y[1200:]) for m in (model, convnet, tuned)) > 0.9",
        "min(reader.score(texts, names), bag.score(texts['input_ids'], names)) > 0.9",
    ],
    "how-to/training.md": [
        "1 < len(stopped.history_['loss']) < 100",
        "len(kept.history_['loss']) == 20",
        "later.score(X_test, y_test) > 0.8",
        "parts.score(X_test, y_test) > 0.7",
        "clipped.score(X_test, y_test) > 0.8",
    ],
    "how-to/pictures.md": [
        "table.X.shape == (150, 3, 32, 32)",
        "len(labels) == 60",
        "len(set(labels)) > 1",
    ],
    "how-to/large-data.md": [
        "(predicted == label).mean() > 0.8",
        "covered > 0.8",
        "count == len(streamed.labels_) + len(y_test) == 3000",
        "set(streamed.labels_.tolist()) == {0, 1, 2}",
        "model.score(X[500:], y[500:]) > 0.85",
        "search.best_score_ > 0.5",
    ],
    "how-to/text.md": ["label == ['good']", "wide.score(X[150:], topic[150:]) > 0.9"],
}
README = "../README.md"
OTHERS = [
    page.relative_to(DOCS).as_posix()
    for page in PAGES
    if re.search(r"```python\n(?!--8<--)", page.read_text())  # files of the gallery have own tests
]
OTHERS.remove("how-to/extending.md")  # see below


def test_facts_are_about_pages_with_code() -> None:
    assert {*FACTS} <= {README, *OTHERS}


@pytest.mark.parametrize(
    "page", [README, *(pytest.param(page, marks=pytest.mark.slow) for page in OTHERS)]
)
def test_the_code_on_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page == "how-to/export.md":
        pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    monkeypatch.chdir(tmp_path)  # pages save models
    rows = [f"{i % 7 + i % 2 * 50},4,{'cat|dog' if i % 3 else 'dog'}" for i in range(40)]
    Path("animals.csv").write_text("\n".join(["weight,legs,label", *rows]))
    names: dict[str, Any] = {"Path": Path}
    for block in blocks(page):
        if not re.search(r"\bray\b", block):  # see below
            exec(block, names)
        names.setdefault("first_report", names.get("report"))
    for fact in FACTS.get(page, ()):
        assert eval(fact, names), fact
    assert not re.search("False$", capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_the_code_for_ray_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ADDRESS", "local")  # join no cluster of others
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("how-to/large-data.md"):
        exec(block, names)
    written = pd.read_parquet("answers").sort_values("id")
    assert (written["label"].to_numpy() == names["y"]).mean() > 0.8
    assert not re.search("False$", capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_method_on_extending_learns_alone_and_in_a_grid(tmp_path: Path) -> None:
    """Its first and fourth blocks are files, the others are programs that import them."""
    method, *programs = blocks("how-to/extending.md")
    noise = programs.pop(2)
    (tmp_path / "best_candidate.py").write_text(method)
    (tmp_path / "next_class.py").write_text(noise)
    said = ""
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        command = [sys.executable, "-W", "error", "program.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    accuracies = [float(number) for number in re.findall(r"0\.9\d+", said)]
    # one network, an ensemble, four lines of a grid; two lines of another, on own noise
    assert len(accuracies) == 8, said
    assert "p-value: 0." in said


@pytest.mark.parametrize("page", pages.COMMITTED)
def test_the_tables_of_a_page_are_those_of_the_stored_runs(page: str) -> None:
    text = (DOCS.parent / page).read_text()
    assert "<!-- end -->" in text
    assert pages.filled(text) == text


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "<!-- end -->" in page.read_text()],
    ids=lambda page: page.stem,
)
def test_the_tables_of_the_site_say_what_made_them(page: Path) -> None:
    for part in pages.filled(page.read_text()).split("<!-- end -->")[:-1]:
        assert re.search(r"\nMade by `(robustpll bench run|python benchmarks/)[^\n]*\.\n$", part)


def test_every_result_is_used_by_a_table_or_named_by_a_page() -> None:
    """A result may also stand behind a sentence, whose page names the command."""
    files = (*PAGES, BENCHMARKS / "pages.py", BENCHMARKS / "tables.toml")
    text = "".join(path.read_text() for path in files)
    for path in (BENCHMARKS / "results").iterdir():
        name = re.sub(r"-20\d\d-.*", "", path.name)
        script = f"{name.replace('-', '_')}.py"
        assert name in text or script in text, path.name


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables that the commands name: three kinds, and what three people said of them."""
    monkeypatch.chdir(tmp_path)
    random, kinds = np.random.default_rng(0), ("cat", "dog", "emu")
    for file, said in (("animals.csv", True), ("new.csv", False)):
        lines = ["name,weight,legs" + (",vote ann,vote bob,vote eve" if said else "")]
        for row in range(180):
            label = row % 3
            votes = [kinds[label if random.random() < 0.7 else random.integers(3)] for _ in "abe"]
            measured = f"{random.normal(3 * label):.3f},{random.normal(label):.3f}"
            lines.append(",".join([f"pet {row}", measured, *(votes if said else [])]))
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_commands_about_texts_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small encoders in place of pretrained ones."""
    monkeypatch.chdir(tmp_path)
    with patch.object(sys, "path", [str(Path(__file__).parent / "tables"), *sys.path]):
        encoders = import_module("test_encoders")
    encoders.write_picture_encoder(Path("encoder.onnx"))
    encoders.write_text_encoder(Path("minilm"))
    random, words = np.random.default_rng(0), (("dull", "weak", "flat"), ("great", "good", "fine"))
    votes, tables = "vote ann,vote bob", {"reviews": [], "new": [], "photos": []}
    for row in range(120):
        kinds = ",".join(
            random.choice(["bad", "good"], 2, p=[0.9 - row % 2 * 0.8, 0.1 + row % 2 * 0.8])
        )
        text = " and ".join(random.choice(words[row % 2], 4))
        Image.new("RGB", (4, 4), (200 * (row % 2), row, 0)).save(f"{row}.png")
        cells = {"reviews": f"{text} {row},{kinds}", "new": text, "photos": f"{row}.png,{kinds}"}
        for name, line in cells.items():
            tables[name].append(line)
    for name, column in (
        ("reviews", f"review,{votes}"),
        ("new", "review"),
        ("photos", f"file,{votes}"),
    ):
        Path(f"{name}.csv").write_text("\n".join([column, *tables[name]]))
    text = (DOCS / "how-to/text.md").read_text()
    lines = re.findall(r"^robustpll .*", text, flags=re.MULTILINE)
    assert len(lines) == 8
    for line in lines:
        _, command, *options = shlex.split(line)
        short = ("--epochs", "5", "--no-baselines") if command in ("fit", "clean") else ()
        result = CliRunner().invoke(app, [command, *options, *short])
        assert result.exit_code == 0, (line, result.output)
    assert len(pd.read_csv("answers.csv")) == 120


def decide(file: str, label: str) -> None:
    """What a person at the page does: decides the first rows, and downloads."""
    page = Path("cleaned/review.html").read_text(encoding="utf-8")
    (key,) = re.findall(r'"table": ?"(\w+)"', page)
    with Path("cleaned/rows_for_review.csv").open(encoding="utf-8-sig") as asked:
        rows = [row["row"] for row in csv.DictReader(asked)][:3]
    assert rows
    lines = [f"{row},{label},2026-11-15T10:00:00.000Z,{key}\n" for row in rows]
    Path(file).write_text("row,decision,when,table\n" + "".join(lines))


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/tutorials/commands.md", "docs/how-to/clean.md", "docs/how-to/pictures.md"],
)
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
    if page == "docs/how-to/pictures.md":
        exec(blocks("how-to/pictures.md")[0], {})  # draws them
    for line in lines:
        _, command, *options = shlex.split(line, comments=True)
        decisions = [file for file in ("decisions.csv", "ada.csv", "bob.csv") if file in options]
        for file in decisions:
            if not Path(file).exists():
                decide(file, "ripe" if page == "docs/how-to/pictures.md" else "dog")
        short = ("--epochs", "5") if command in ("fit", "clean") and "wrapped" not in line else ()
        result = CliRunner().invoke(app, [command, *options, *short])
        assert result.exit_code == 0, (line, result.output)
        if decisions:
            assert "decided by a person: 3" in result.stdout
    if "predict" in " ".join(lines):
        with Path("answers.csv").open(encoding="utf-8-sig") as file:
            rows = len(Path("new.csv").read_text().splitlines()) - 1
            assert len([row["label"] for row in csv.DictReader(file)]) == rows >= 60


def test_the_table_of_the_paper_says_where_it_was_measured_and_how_much_agrees() -> None:
    page, summary = (DOCS / "benchmarks" / "paper.md").read_text(), pages.summary("paper")
    made = pages.filled(page)
    assert summary.facts["date"][0] in made
    assert any(machine in made for machine in summary.facts["machine"])
    cells = pages.report_tables("paper")["compare-1"].cells
    assert cells["label"].nunique() == 19
    assert f"{(cells['agrees'] == 1).sum()} of the 76 picture cells agree" in page


def test_readme_names_the_reports_behind_its_table() -> None:
    readme = (DOCS / README).read_text()
    for report in re.findall(r"\]\(reports/([\w-]+)\) \(\d+ seed", readme):
        assert max(pages.summary(report).facts["date"]) in readme
    assert readme.count("](reports/") == 5


def test_links_lead_to_files() -> None:
    made = re.compile(r"^(\.\./)*(api|changelog|methods/\w+)\.md$|://")  # by docs/generate.py
    for page in (DOCS / README, *PAGES):
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
        paths = [page.parent / link for link in links if not made.search(link)]
        absent = [path for path in paths if not (path.exists() or notebook_of(path).exists())]
        assert absent == [], page.name


def notebook_of(path: Path) -> Path:
    """Return the notebook that docs/generate.py makes a page of."""
    return path.with_suffix(".ipynb" if path.suffix == ".md" else path.suffix)
