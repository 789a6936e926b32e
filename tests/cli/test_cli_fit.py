"""`robustpll fit`, as someone with a table runs it."""

import json
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

from robustpll import load
from robustpll.clean.decisions_file import fingerprint
from robustpll.cli import app
from robustpll.cli.models import split_rows
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import read_table

CLASSES = ("Esel", "Fuß", "Öl")
LABELS = ("by ann", "by bob", "sets", *(f"is {name}" for name in CLASSES), "gold")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def frame(rows: int = 300) -> pd.DataFrame:
    """Three classes around 0, 1 and 2, a word, a gap now and then, and two annotators."""
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=rows)
    x = np.round(generator.normal(labels, 0.25), 4)
    table = pd.DataFrame({"x": x, "town": np.where(labels == 1, "Rome", "Bonn")})
    table["z"] = np.where(np.arange(rows) % 50 == 7, np.nan, np.round(x * x, 3))
    for name in ("by ann", "by bob"):
        others = generator.integers(3, size=rows)
        codes = np.where(generator.random(rows) < 0.7, labels, others)
        table[name] = np.array(CLASSES)[codes]
    pairs = zip(table["by ann"], table["by bob"], strict=True)
    table["sets"] = ["|".join(sorted({*pair})) for pair in pairs]
    for name in CLASSES:
        table[f"is {name}"] = [int(name in cell.split("|")) for cell in table["sets"]]
    table["gold"] = np.array(CLASSES)[labels]
    return table


def write(table: pd.DataFrame, name: str = "table.csv", **options: Any) -> None:
    table.to_csv(name, index=False, **options)


def fit(*options: str, out: str = "model.pll", name: str = "table.csv") -> Any:
    arguments = ["fit", name, "--out", out, "--epochs", "3", *options]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})


def form(option: str, value: str, truth: str | None = None) -> tuple[str, ...]:
    """Options that name one form of labels, and ignore the columns of the others."""
    columns = [name for name in LABELS if not name.startswith(value) and name != truth]
    compared = ("--truth", truth) if truth else ()
    return (option, value, *compared, *(f"--ignore={name}" for name in columns))


VOTES, LABELLED = form("--votes", "by "), form("--candidates", "gold")


@pytest.mark.parametrize(
    ("option", "value"), [("--candidates", "sets"), ("--votes", "by "), ("--indicators", "is ")]
)
def test_every_form_of_labels_gives_a_model_and_a_summary(option: str, value: str) -> None:
    write(frame())
    result = fit(*form(option, value, "gold"))
    assert result.exit_code == 0, result.output
    for fact in (
        "table.csv: 300 rows, 3 features",
        "3 classes;",
        "RobustPll learned from 240 rows",
        "held out: 60 rows",
        "right by the true labels",
    ):
        assert fact in result.stdout
    model = load("model.pll")
    assert model.classes_.tolist() == list(CLASSES)
    assert model.feature_names_in_.tolist() == ["x", "town", "z"]
    assert sorted(path.name for path in Path().iterdir()) == ["model.pll", "table.csv"]


def test_the_covering_rate_is_that_of_rows_that_were_not_learned_from() -> None:
    table = frame()
    write(table)
    result = fit(*form("--candidates", "sets"), "--seed", "5")
    y = Candidates.of([set(cell.split("|")) for cell in table["sets"]])
    features = table[["x", "town", "z"]].astype({"town": "string"})
    train, test = split_rows(features, y, 0.2, 5)
    assert sorted([*train, *test]) == [*range(300)]
    predicted = load("model.pll").predict(features.iloc[test])
    pairs = zip(predicted, table["sets"].iloc[test], strict=True)
    covered = np.mean([label in cell for label, cell in pairs])
    assert f"in {covered:.1%} of them the predicted class is a candidate" in result.stdout


def test_only_the_seed_changes_a_model_not_true_labels_nor_line_ends() -> None:
    table, options = frame(100), form("--votes", "by ", "gold")
    contents = []
    for changes, how, seed in (
        ({}, {}, "1"),
        ({"gold": "Öl"}, {}, "1"),
        ({}, {"lineterminator": "\r\n", "encoding": "utf-8-sig"}, "1"),
        ({}, {}, "2"),
    ):
        write(table.assign(**changes), **how)
        fit(*options, "--seed", seed)
        contents.append(Path("model.pll").read_bytes())
    assert contents[0] == contents[1] == contents[2] != contents[3]


def test_a_row_with_the_only_gap_or_word_or_class_is_learned_from() -> None:
    features = pd.DataFrame({"x": [0.0] * 99 + [np.nan], "town": ["Rome"] * 98 + ["Bonn"] * 2})
    y = Candidates.of([{"a"}] * 97 + [{"a", "b"}] * 3)
    for seed in range(20):
        train, test = split_rows(features, y, 0.9, seed)
        assert 99 in train
        assert {98, 99} & {*train}
        assert {97, 98, 99} & {*train}
        assert len(test) == 90


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (("--held-out", "0"), ("learned from 60 rows", "no rows are held out")),
        ((), ("held out: 12 rows", "too few for prediction sets and decisions")),
    ],
)
def test_few_held_out_rows_give_no_decisions(
    options: tuple[str, ...], facts: tuple[str, str]
) -> None:
    write(frame(60))
    result = fit(*VOTES, *options)
    assert result.exit_code == 0
    assert all(fact in result.stdout for fact in facts)
    assert load("model.pll").trial_ is None


def test_a_coverage_that_needs_more_rows_is_refused_before_the_training() -> None:
    write(frame())
    result = fit(*VOTES, "--coverage", "0.99")
    assert result.exit_code == 1
    assert "--coverage 0.99 needs 99 held-out rows, but there are 60" in result.stderr
    assert not Path("model.pll").exists()


@pytest.mark.parametrize("rows", [150, 290])
def test_labels_too_few_for_a_promise_still_give_a_model(rows: int) -> None:
    write(frame(rows))
    result = fit(*LABELLED)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "no promise can be made that 5% or fewer of accepted rows are wrong" in result.stdout
    assert f"it needs 59 held-out rows with labels, but there are {rows // 5}" in result.stdout
    advice = f"--held-out {np.ceil(5900 / rows) / 100:g}"
    assert f"Pass {advice}" in result.stdout
    result = fit(*LABELLED, *advice.split(), "--epochs", "30")
    assert "no promise can be made" not in result.stdout
    assert load("model.pll").trial_.can_promise(0.05)


def test_labels_that_the_model_cannot_tell_apart_give_a_model_without_a_promise() -> None:
    table = frame(400)
    write(table.assign(gold=np.random.default_rng(1).permutation(table["gold"])))
    result = fit(*LABELLED)
    assert result.exit_code == 0, result.output
    fact = "too many predictions of held-out rows are wrong. predict accepts no row"
    assert fact in result.stdout


def test_true_labels_that_are_few_or_of_unknown_classes_are_told_apart() -> None:
    table = frame(100)
    y = Candidates.of([set(cell.split("|")) for cell in table["sets"]])
    row = split_rows(table[["x", "town", "z"]].astype({"town": "string"}), y, 0.2, 0)[1][0]
    gold = np.full(100, "Wolf", dtype=object)
    gold[row] = table["gold"][row]  # the only row that can be compared
    write(table.assign(gold=gold))
    result = fit(*form("--candidates", "sets", "gold"))
    assert result.exit_code == 0, result.output
    assert "right by the true labels: predictions of held-out rows" in result.stdout
    assert "nan" not in result.stdout
    assert "99 rows have a true class that is no candidate of any row" in result.stdout


@pytest.mark.parametrize("fault", [InputError, MemoryError, ZeroDivisionError, KeyboardInterrupt])
def test_what_fails_after_the_training_does_not_lose_the_model(
    fault: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise fault("a fault in the evaluation")

    write(frame(200))
    monkeypatch.setattr("robustpll.PLLClassifier.calibrate_decisions", fails)
    result = fit(*VOTES)
    assert result.exit_code == (130 if fault is KeyboardInterrupt else 1)
    assert "The model is model.pll, but without decisions and prediction sets." in result.stderr
    model = load("model.pll")
    assert (model.trial_, model.recalibration_) == (None, None)
    assert len(model.predict(frame(10)[["x", "town", "z"]])) == 10


def test_bad_rows_stop_the_training_unless_they_may_be_left_out() -> None:
    table = frame(60)
    table.loc[7, "x"] = 1e300
    write(table)
    with Path("table.csv").open("a", encoding="utf-8") as file:
        file.write("1,2\n")
    result = fit(*VOTES)
    assert result.exit_code == 1
    assert "line 9: column 'x': '1e+300' is beyond 3.4e+38" in result.stderr
    assert "line 62: has 2 cells" in result.stderr
    assert "pass --skip-bad-rows" in result.stderr
    assert not Path("model.pll").exists()
    assert fit(*VOTES, "--skip-bad-rows").exit_code == 0


def test_another_method_and_its_options() -> None:
    write(frame(90))
    arguments = ["fit", "table.csv", *VOTES, "--out", "model.pll", "--method", "pl_knn"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert load("model.pll").method.name == "pl_knn"
    result = CliRunner().invoke(app, [*arguments, "--epochs", "3"])
    assert result.exit_code == 1
    assert "'epochs' for method 'pl_knn'" in result.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--votes", "by ", "--method", "robustpll"), "Did you mean 'robust_pll'?"),
        ((*VOTES, "--network", "lenet"), ""),
        (("--candidates", "set"), "--candidates: there is no column 'set'. There is 'sets'"),
        (("--votes", "by ", "--ignore", "twon"), "There is 'town'"),
        (("--votes", "BY_"), "no column begins with it"),
        (("--votes", "by ", "--device", "tpu"), "device must be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_wrong_names_are_told_with_the_nearest(options: tuple[str, ...], sentence: str) -> None:
    write(frame(30))
    result = fit(*options)
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not Path("model.pll").exists()


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--votes", "by ", "--candidates", "sets"),
        ("--votes", "by ", "--held-out", "1"),
        ("--votes", "by ", "--coverage", "0"),
        ("--votes", "by ", "--seed", "-1"),
        ("--votes", "by ", "--errors", "model.pll"),
    ],
)
def test_wrong_usage_is_exit_code_2(options: tuple[str, ...]) -> None:
    write(frame(30))
    assert fit(*options).exit_code == 2
    assert not Path("model.pll").exists()


def test_empty_and_damaged_files_are_one_sentence() -> None:
    write(frame(2000), "damaged.csv.gz")
    whole = bytearray(Path("damaged.csv.gz").read_bytes())
    whole[2000:2100] = bytes(byte ^ 0x5A for byte in whole[2000:2100])
    Path("damaged.csv.gz").write_bytes(whole)
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("x,by ann\n")
    for name in ("empty.csv", "header.csv", "damaged.csv.gz"):
        result = fit("--votes", "by ", name=name)
        assert result.exit_code == 1
        assert result.stderr.startswith(name)
        assert result.stderr.count("\n") == 1


def test_what_a_person_decided_is_a_single_candidate() -> None:
    table = frame(60)
    write(table)
    ignored = [name for name in LABELS if not name.startswith("by ")]
    opened = read_table("table.csv", votes="by ", ignore=ignored)
    key = fingerprint(opened, Candidates.of(opened.y))
    row = int(np.flatnonzero(table["by ann"] != table["by bob"])[0])
    decision = f"{row + 2},{table['by bob'][row]},2026-01-01T00:00:00Z,{key}\n"
    Path("decisions.csv").write_text(f"row,decision,when,table\n{decision}", encoding="utf-8")
    result = fit(*VOTES, "--decisions", "decisions.csv", "--held-out", "0")
    assert result.exit_code == 0, result.output
    assert "decided by a person: 1\n" in result.stdout
    table.loc[row, "by ann"] = table["by bob"][row]
    write(table)
    fit(*VOTES, "--held-out", "0", out="as if agreed.pll")
    assert Path("model.pll").read_bytes() == Path("as if agreed.pll").read_bytes()
    result = fit(*VOTES, "--decisions", "decisions.csv")
    assert result.exit_code == 1
    assert "decided for another table" in result.stderr


def test_columns_that_clean_added_are_no_features() -> None:
    write(frame(60).assign(resolved_label="Öl", confidence=0.9, resolved_by="model"))
    result = fit(*VOTES, "--ignore", "resolved_label")
    assert result.exit_code == 1
    assert "'confidence' was added by robustpll clean" in result.stderr
    ignored = (f"--ignore={name}" for name in ("resolved_label", "confidence", "resolved_by"))
    assert fit(*VOTES, *ignored).exit_code == 0


def test_where_nothing_can_be_written_is_told_before_anything_is_read() -> None:
    write(frame(30))
    Path("folder").mkdir()
    Path("thesis.txt").write_text("years of work")
    save_file({"w": np.zeros(2)}, "tensors.pll", {"format": "np"})
    files = ("table.csv", "thesis.txt", "tensors.pll")
    before = [Path(name).read_bytes() for name in files]
    for out, reason in (
        ("nowhere/model.pll", "there is no folder nowhere"),
        ("folder", "is a folder"),
        ("table.csv/model.pll", "there is no folder"),
        ("table.csv", "is an input and would be overwritten"),
        ("/proc/model.pll", "cannot be written"),
        ("thesis.txt", "is not a model of robustpll"),
        ("tensors.pll", "is not a model of robustpll"),
    ):
        result = fit(*VOTES, out=out)
        assert result.exit_code == 1, out
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""
    assert [Path(name).read_bytes() for name in files] == before
    for _ in range(2):  # a model may be replaced
        assert fit(*VOTES).exit_code == 0


def test_a_training_that_learned_little_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn(*_: Any, **__: Any) -> None:
        warnings.warn("It has learned little.", UserWarning, stacklevel=2)

    monkeypatch.setattr("robustpll.estimator.classifier.check_training", warn)
    write(frame(60))
    result = fit(*VOTES)
    assert result.exit_code == 0
    assert result.stderr == "It has learned little.\n"


def test_a_table_larger_than_memory_is_refused_rather_than_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROBUSTPLL_HOST_BYTES", str(2**30))
    with Path("table.csv").open("wb") as file:  # 2 GB, of which the disk stores the beginning
        file.write(frame(30_000).to_csv(index=False).encode())
        file.truncate(2 * 10**9)
    monkeypatch.setattr(
        "robustpll.tables.read.read_table", lambda *_, **__: pytest.fail("the table was read")
    )
    result = fit("--votes", "by ")
    assert result.exit_code == 1
    assert "too large to learn from here" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_model_file_says_how_its_table_was_read() -> None:
    write(frame(100), sep=";", decimal=",", na_rep="?")
    result = fit(*VOTES, "--delimiter", ";", "--decimal", ",", "--missing", "?")
    assert result.exit_code == 0, result.output
    with safe_open("model.pll", framework="np") as opened:
        reading = json.loads(opened.metadata()["robustpll"])["notes"]["reading"]
    assert (reading["delimiter"], reading["decimal"], reading["missing"]) == (";", ",", ["?"])
    assert {*reading["left_out"]} == {*LABELS}


TIMEOUT = 900  # seconds until a process counts as hanging, on the slowest of machines
PRINT_EPOCHS = """
from robustpll.engine import history
history._listener.set(lambda title, epoch, *_: print("epoch", epoch, flush=True))
"""


def start(*options: str, setup: str = "", **more: Any) -> "subprocess.Popen[str]":
    line = [sys.executable, "-c", f"{setup}\nfrom robustpll.cli import app; app()"]
    line += ["fit", "table.csv", "--out", "model.pll", *VOTES, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, **pipes, **more)


@pytest.mark.slow
def test_a_model_that_does_not_fit_on_the_disk_leaves_the_old_one_whole() -> None:
    write(frame(60))
    assert fit(*VOTES).exit_code == 0
    older = Path("model.pll").read_bytes()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    process = start("--epochs", "1", preexec_fn=limit)
    _, message = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert message.startswith("model.pll cannot be")
    assert message.count("\n") == 1
    assert Path("model.pll").read_bytes() == older
    assert sorted(path.name for path in Path().iterdir()) == ["model.pll", "table.csv"]


@pytest.mark.slow
def test_an_interrupted_training_writes_nothing() -> None:
    write(frame(300))
    process = start("--epochs", "1000000", setup=PRINT_EPOCHS)
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch 1\n"
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert message == "Stopped. No model is written.\n"
    assert [path.name for path in Path().iterdir()] == ["table.csv"]
