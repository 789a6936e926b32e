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
from robustpll.cli.fit import parted
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import read_table

CLASSES = ("Esel", "Fuß", "Öl")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three classes around 0, 1 and 2, a word, a gap now and then, and who said what."""
    generator = np.random.default_rng(seed)
    at = generator.integers(3, size=rows)
    x = np.round(generator.normal(at, 0.25), 4)
    said = {
        f"by {who}": np.where(generator.random(rows) < 0.7, at, generator.integers(3, size=rows))
        for who in ("ann", "bob")
    }
    table = pd.DataFrame({"x": x, "town": np.where(at == 1, "Rome", "Bonn")})
    table["z"] = np.where(np.arange(rows) % 50 == 7, np.nan, np.round(x * x, 3))
    for name, codes in said.items():
        table[name] = np.array(CLASSES)[codes]
    sets = zip(table["by ann"], table["by bob"], strict=True)
    table["sets"] = ["|".join(sorted({*pair})) for pair in sets]
    for name in CLASSES:
        table[f"is {name}"] = [int(name in cell.split("|")) for cell in table["sets"]]
    table["gold"] = np.array(CLASSES)[at]
    return table


LABELS = ("by ann", "by bob", "sets", *(f"is {name}" for name in CLASSES), "gold")


def write(table: pd.DataFrame, name: str = "table.csv", **options: Any) -> None:
    table.to_csv(name, index=False, **options)


def fit(*options: str, out: str = "model.pll", name: str = "table.csv") -> Any:
    arguments = ["fit", name, "--out", out, "--epochs", "3", *options]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})


def others(form: str, *, truth: bool = True) -> list[str]:
    """Options that leave out what the other forms say."""
    keeps = {"candidates": ("sets",), "votes": LABELS[:2], "indicators": LABELS[3:6]}[form]
    names = [name for name in LABELS if name not in keeps and (name != "gold" or not truth)]
    return [part for name in names for part in ("--ignore", name)]


@pytest.mark.parametrize(
    ("form", "value"), [("candidates", "sets"), ("votes", "by "), ("indicators", "is ")]
)
def test_every_form_of_labels_gives_a_model_and_a_summary(form: str, value: str) -> None:
    write(frame())
    result = fit(f"--{form}", value, "--truth", "gold", *others(form))
    assert result.exit_code == 0, result.output
    assert "table.csv: 300 rows, 3 features" in result.stdout
    assert "3 classes;" in result.stdout
    assert "RobustPll learned from 240 rows" in result.stdout
    assert "held out: 60 rows" in result.stdout
    assert "right by the true labels" in result.stdout
    model = load("model.pll")
    assert model.classes_.tolist() == list(CLASSES)
    assert model.feature_names_in_.tolist() == ["x", "town", "z"]
    assert sorted(path.name for path in Path().iterdir()) == ["model.pll", "table.csv"]


def test_the_covering_rate_is_that_of_rows_that_were_not_learned_from() -> None:
    table = frame()
    write(table)
    result = fit("--candidates", "sets", *others("candidates", truth=False), "--seed", "5")
    y = Candidates.of([set(cell.split("|")) for cell in table["sets"]])
    features = table[["x", "town", "z"]].astype({"town": "string"})
    learned, held = parted(features, y, 0.2, 5)
    assert {*learned} | {*held} == {*range(300)}
    assert {*learned}.isdisjoint(held)
    predicted = load("model.pll").predict(features.iloc[held])
    own = table["sets"].iloc[held]
    covered = np.mean([label in cell for label, cell in zip(predicted, own, strict=True)])
    assert f"in {covered:.1%} of them the predicted class is a candidate" in result.stdout


def test_the_same_seed_gives_the_same_file_and_another_seed_another() -> None:
    write(frame())
    for out, seed in (("a.pll", "1"), ("b.pll", "1"), ("c.pll", "2")):
        fit("--votes", "by ", *others("votes", truth=False), "--seed", seed, out=out)
    a, b, c = (Path(name).read_bytes() for name in ("a.pll", "b.pll", "c.pll"))
    assert a == b
    assert a != c


def test_true_labels_do_not_change_the_model() -> None:
    table = frame()
    write(table)
    fit("--votes", "by ", "--truth", "gold", *others("votes"), out="a.pll")
    table["gold"] = "Öl"
    write(table)
    fit("--votes", "by ", "--truth", "gold", *others("votes"), out="b.pll")
    assert Path("a.pll").read_bytes() == Path("b.pll").read_bytes()


def test_a_row_with_the_only_gap_or_word_or_class_is_learned_from() -> None:
    features = pd.DataFrame({"x": [0.0] * 99 + [np.nan], "town": ["Rome"] * 98 + ["Bonn"] * 2})
    y = Candidates.of([{"a"}] * 97 + [{"a", "b"}] * 3)
    for seed in range(20):
        learned, held = parted(features, y, 0.9, seed)
        assert 99 in learned
        assert {98, 99} & {*learned}
        assert {97, 98, 99} & {*learned}
        assert len(held) == 90


def test_all_rows_may_be_learned_from_but_then_nothing_is_promised() -> None:
    write(frame(60))
    result = fit("--votes", "by ", *others("votes", truth=False), "--held-out", "0")
    assert result.exit_code == 0
    assert "learned from 60 rows" in result.stdout
    assert "no rows are held out" in result.stdout
    assert load("model.pll").trial_ is None


def test_few_held_out_rows_give_a_rate_but_no_decisions() -> None:
    write(frame(60))
    result = fit("--votes", "by ", *others("votes", truth=False))
    assert "held out: 12 rows" in result.stdout
    assert "too few for prediction sets and decisions" in result.stdout


def test_a_coverage_that_takes_more_rows_is_refused_before_the_training() -> None:
    write(frame())
    result = fit("--votes", "by ", *others("votes", truth=False), "--coverage", "0.99")
    assert result.exit_code == 1
    assert "--coverage 0.99 takes 99 held-out rows, and these are 60" in result.stderr
    assert not Path("model.pll").exists()


LABELLED = ("--candidates", "gold", *(part for name in LABELS[:-1] for part in ("--ignore", name)))


@pytest.mark.parametrize("rows", [150, 200, 290])
def test_labels_too_few_for_a_promise_still_give_a_model(rows: int) -> None:
    write(frame(rows))
    result = fit(*LABELLED)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "no promise can be made that 5% or fewer of accepted rows are wrong" in result.stdout
    assert f"it takes 59 held-out rows with labels, and these are {rows // 5}" in result.stdout
    advice = f"Pass --held-out {np.ceil(5900 / rows) / 100:g}"
    assert advice in result.stdout
    result = fit(*LABELLED, *advice.removeprefix("Pass ").split(), "--epochs", "30")
    assert "no promise can be made" not in result.stdout
    assert load("model.pll").trial_.can_promise(0.05)


def test_labels_that_the_model_cannot_tell_apart_give_a_model_without_a_promise() -> None:
    table = frame(400)
    table["gold"] = np.random.default_rng(1).permutation(table["gold"])
    write(table)
    result = fit(*LABELLED)
    assert result.exit_code == 0, result.output
    assert (
        "too many predictions of held-out rows are wrong. So predict marks all rows for review"
        in result.stdout
    )


def test_true_labels_that_are_few_or_of_unknown_classes_are_told_apart() -> None:
    table = frame(100)
    features = table[["x", "town", "z"]].astype({"town": "string"})
    y = Candidates.of([set(cell.split("|")) for cell in table["sets"]])
    held = parted(features, y, 0.2, 0)[1]
    gold = table["gold"].copy()
    table["gold"] = "Wolf"
    table.loc[held[0], "gold"] = gold[held[0]]  # the only row that can be compared
    write(table)
    result = fit("--candidates", "sets", "--truth", "gold", *others("candidates"))
    assert result.exit_code == 0, result.output
    assert "right by the true labels: predictions of held-out rows" in result.stdout
    assert "nan" not in result.stdout
    assert "99 rows have a true class that is no candidate of any row" in result.stdout


@pytest.mark.parametrize("fault", [InputError, MemoryError, ZeroDivisionError, KeyboardInterrupt])
def test_what_fails_after_the_training_does_not_lose_the_model(
    fault: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise fault("a fault in judging")

    write(frame(200))
    monkeypatch.setattr("robustpll.estimator.abstention.AbstentionMixin.calibrate_decisions", fails)
    result = fit("--votes", "by ", *others("votes", truth=False))
    assert result.exit_code == (130 if fault is KeyboardInterrupt else 1)
    assert "The model is model.pll, but without decisions and prediction sets." in result.stderr
    model = load("model.pll")
    assert (model.trial_, model.recalibration_) == (None, None)
    assert len(model.predict(frame(10)[["x", "town", "z"]])) == 10


def test_a_cell_too_large_to_compute_with_is_a_bad_row() -> None:
    table = frame(60)
    table.loc[7, "x"] = 1e300
    write(table)
    options = ("--votes", "by ", *others("votes", truth=False))
    for command_ in (["fit", "table.csv", "--out", "model.pll"], ["table", "table.csv"]):
        result = CliRunner().invoke(app, [*command_, *options])
        assert result.exit_code == 1
        assert "line 9: column 'x': '1e+300' is beyond 3.4e+38" in result.stderr
    assert not Path("model.pll").exists()
    assert fit(*options, "--skip-bad-rows").exit_code == 0


def test_another_method_and_its_options() -> None:
    write(frame(90))
    arguments = ["fit", "table.csv", "--votes", "by ", *others("votes", truth=False)]
    arguments += ["--out", "model.pll", "--method", "pl_knn"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert load("model.pll").method.name == "pl_knn"
    result = CliRunner().invoke(app, [*arguments, "--epochs", "3"])
    assert result.exit_code == 1
    assert "'epochs' for method 'pl_knn'" in result.stderr
    result = fit("--votes", "by ", "--network", "lenet", *others("votes", truth=False))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--votes", "by ", "--method", "robustpll"), "Did you mean 'robust_pll'?"),
        (("--candidates", "set"), "--candidates: there is no column 'set'. There is 'sets'"),
        (("--votes", "by ", "--ignore", "twon"), "There is 'town'"),
        (("--votes", "BY_"), "no column begins with it, of 'by ann', 'by bob'. Pass"),
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


def test_a_form_of_labels_is_needed_and_only_one() -> None:
    write(frame(30))
    assert fit().exit_code == 2
    assert fit("--votes", "by ", "--candidates", "sets").exit_code == 2
    assert fit("--votes", "by ", "--held-out", "1").exit_code == 2
    assert fit("--votes", "by ", "--seed", "-1").exit_code == 2


@pytest.mark.parametrize("text", ["", "x,by ann\n"])
def test_an_empty_table_is_one_sentence(text: str) -> None:
    Path("table.csv").write_text(text, encoding="utf-8")
    result = fit("--votes", "by ")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1


def test_a_damaged_gzip_file_is_one_sentence() -> None:
    write(frame(2000), "table.csv.gz")
    whole = Path("table.csv.gz").read_bytes()
    damaged = bytes(byte ^ 0x5A for byte in whole[2000:2100])
    Path("table.csv.gz").write_bytes(whole[:2000] + damaged + whole[2100:])
    result = fit("--votes", "by ", name="table.csv.gz")
    assert result.exit_code == 1
    assert result.stderr.startswith("table.csv.gz is a gzip file that is cut short or damaged")
    assert result.stderr.count("\n") == 1


def test_what_a_person_decided_is_a_single_candidate() -> None:
    table = frame(60)
    write(table)
    form = ("--votes", "by ", *others("votes", truth=False))
    read = read_table(
        "table.csv", votes="by ", ignore=[name for name in LABELS if name[:3] != "by "]
    )
    key = fingerprint(read, Candidates.of(read.y))
    open_row = int(np.flatnonzero(table["by ann"] != table["by bob"])[0])
    lines = f"{open_row + 2},{table['by bob'][open_row]},2026-01-01T00:00:00Z,{key}\n"
    Path("decisions.csv").write_text(f"row,decision,when,table\n{lines}", encoding="utf-8")
    result = fit(*form, "--decisions", "decisions.csv", "--held-out", "0")
    assert result.exit_code == 0, result.output
    assert "decided by a person: 1\n" in result.stdout
    table.loc[open_row, "by ann"] = table["by bob"][open_row]
    write(table)
    fit(*form, "--held-out", "0", out="as if agreed.pll")
    assert Path("model.pll").read_bytes() == Path("as if agreed.pll").read_bytes()
    result = fit(*form, "--decisions", "decisions.csv")
    assert result.exit_code == 1
    assert "decided for another table" in result.stderr


def test_what_clean_holds_of_a_label_is_no_feature() -> None:
    table = frame(60).assign(resolved_label="Öl", confidence=0.9, resolved_by="model")
    write(table)
    form = ("--votes", "by ", *others("votes", truth=False))
    result = fit(*form, "--ignore", "resolved_label")
    assert result.exit_code == 1
    assert "'confidence' was added by robustpll clean" in result.stderr
    result = fit(*form, "--ignore=resolved_label", "--ignore=confidence", "--ignore=resolved_by")
    assert result.exit_code == 0, result.output


def test_bad_rows_stop_the_training_unless_they_may_be_left_out() -> None:
    write(frame(100))
    with Path("table.csv").open("a", encoding="utf-8") as file:
        file.write("1,2\n")
    options = ("--votes", "by ", *others("votes", truth=False))
    result = fit(*options)
    assert result.exit_code == 1
    assert "line 102: has 2 cells" in result.stderr
    assert "pass --skip-bad-rows" in result.stderr
    assert not Path("model.pll").exists()
    assert fit(*options, "--skip-bad-rows").exit_code == 0


def test_windows_line_ends_and_a_mark_in_front_change_nothing() -> None:
    options = ("--votes", "by ", *others("votes", truth=False))
    write(frame(100))
    fit(*options, out="a.pll")
    write(frame(100), lineterminator="\r\n", encoding="utf-8-sig")
    fit(*options, out="b.pll")
    assert Path("a.pll").read_bytes() == Path("b.pll").read_bytes()


def test_where_nothing_can_be_written_is_told_before_anything_is_read() -> None:
    write(frame(30))
    before = Path("table.csv").read_bytes()
    Path("folder").mkdir()
    for out, reason in (
        ("nowhere/model.pll", "there is no folder nowhere"),
        ("folder", "is a folder"),
        ("table.csv/model.pll", "there is no folder"),
        ("table.csv", "is what is read, and would be lost"),
        ("/proc/model.pll", "cannot be written"),
    ):
        result = fit("--votes", "by ", out=out)
        assert result.exit_code == 1, out
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1
    assert Path("table.csv").read_bytes() == before


def test_only_a_model_is_replaced_by_a_model() -> None:
    write(frame(30))
    form = ("--votes", "by ", *others("votes", truth=False))
    Path("thesis.txt").write_text("years of work")
    save_file({"w": np.zeros(2)}, "tensors.pll", {"format": "np"})
    tensors = Path("tensors.pll").read_bytes()
    for out in ("thesis.txt", "tensors.pll"):
        result = fit(*form, out=out)
        assert result.exit_code == 1
        assert f"{out} is there already, and is not a model of robustpll" in result.stderr
        assert result.stderr.count("\n") == 1
        assert "learned" not in result.stdout
    assert Path("thesis.txt").read_text() == "years of work"
    assert Path("tensors.pll").read_bytes() == tensors
    assert fit(*form).exit_code == 0
    assert fit(*form).exit_code == 0  # over the model of a minute ago


def test_one_file_cannot_be_the_model_and_the_list_of_bad_rows() -> None:
    write(frame(60))
    result = fit("--votes", "by ", "--errors", "model.pll")
    assert result.exit_code == 2
    assert "are the same file" in result.stderr
    assert not Path("model.pll").exists()


def test_a_training_that_learned_little_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn(*_: Any, **__: Any) -> None:
        warnings.warn("It has learned little.", UserWarning, stacklevel=2)

    monkeypatch.setattr("robustpll.estimator.classifier.check_training", warn)
    write(frame(60))
    result = fit("--votes", "by ", *others("votes", truth=False))
    assert result.exit_code == 0
    assert result.stderr == "It has learned little.\n"


PATIENCE = 900  # seconds until a process counts as hanging, on the slowest of machines
TELL_EPOCHS = """
from robustpll.engine import history
history._listener.set(lambda title, epoch, *_: print("epoch", epoch, flush=True))
"""


def command(*arguments: str, setup: str = "", **options: Any) -> "subprocess.Popen[str]":
    line = [sys.executable, "-c", f"{setup}\nfrom robustpll.cli import app; app()", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, **pipes, **options)


@pytest.mark.slow
def test_a_model_that_does_not_fit_on_the_disk_leaves_the_old_one_whole() -> None:
    write(frame(60))
    options = ("--votes", "by ", *others("votes", truth=False), "--epochs", "1")
    assert fit("--votes", "by ", *others("votes", truth=False)).exit_code == 0
    older = Path("model.pll").read_bytes()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    process = command("fit", "table.csv", "--out", "model.pll", *options, preexec_fn=limit)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.startswith("model.pll cannot be")
    assert told.count("\n") == 1
    assert Path("model.pll").read_bytes() == older
    assert sorted(path.name for path in Path().iterdir()) == ["model.pll", "table.csv"]


@pytest.mark.slow
def test_an_interrupted_training_writes_nothing() -> None:
    write(frame(300))
    options = ("--votes", "by ", *others("votes", truth=False), "--epochs", "1000000")
    process = command("fit", "table.csv", "--out", "model.pll", *options, setup=TELL_EPOCHS)
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch 1\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told == "Stopped. No model is written.\n"
    assert [path.name for path in Path().iterdir()] == ["table.csv"]


def test_a_table_larger_than_memory_is_refused_rather_than_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROBUSTPLL_HOST_BYTES", str(2**30))
    head = frame(30_000).to_csv(index=False).encode()
    with Path("table.csv").open("wb") as file:  # 2 GB, of which the disk stores the beginning
        file.write(head)
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
    options = ("--delimiter", ";", "--decimal", ",", "--missing", "?")
    result = fit("--votes", "by ", *others("votes", truth=False), *options)
    assert result.exit_code == 0, result.output
    with safe_open("model.pll", framework="np") as opened:
        reading = json.loads(opened.metadata()["robustpll"])["notes"]["reading"]
    assert (reading["delimiter"], reading["decimal"], reading["missing"]) == (";", ",", ["?"])
    assert {*reading["left_out"]} == {*LABELS}
