"""`robustpll predict`, as someone with a model and a table runs it."""

import csv
import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from robustpll import PLLClassifier, load
from robustpll.cli import app
from robustpll.cli.predict import COLUMNS
from robustpll.measures.conformal import ConformalSets
from robustpll.methods import Proden
from robustpll.tables.columns import Reading
from robustpll.tables.pieces import Schema, TableInPieces

CLASSES = ("Esel", "Fuß", "Öl")
FEATURES = ["x", "town", "z"]
NUMBERS = 5  # of a row: x, a town or the other, z, and whether it is missing
MODULE = sys.modules["robustpll.cli.predict"]  # the package has a function of that name


def frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three classes around 0, 1 and 2, a word, a gap now and then, a set, an id and the truth."""
    generator = np.random.default_rng(seed)
    at = generator.integers(3, size=rows)
    x = np.round(generator.normal(at, 0.25), 4)
    second = np.where(generator.random(rows) < 0.7, at, generator.integers(3, size=rows))
    return pd.DataFrame(
        {
            "id": [f"r{row}" for row in range(rows)],
            "x": x,
            "town": np.where(at == 1, "Rome", "Bonn"),
            "z": np.where(np.arange(rows) % 50 == 7, np.nan, np.round(x * x, 3)),
            "sets": ["|".join({CLASSES[a], CLASSES[b]}) for a, b in zip(at, second, strict=True)],
            "gold": np.array(CLASSES)[at],
        }
    )


FIT = ("--candidates", "sets", "--ignore", "id", "--ignore", "gold", "--epochs", "30")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    frame().to_csv(folder / "table.csv", index=False)
    model = folder / "model.pll"
    line = ["fit", str(folder / "table.csv"), "--out", str(model), *FIT]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    return model


@pytest.fixture(autouse=True)
def folder(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fitted, "model.pll")
    return tmp_path


def predict(*options: str, name: str = "new.csv", out: str = "out.csv") -> Any:
    line = ["predict", "model.pll", name, "--out", out, *options]
    return CliRunner().invoke(app, line, env={"COLUMNS": "100"})


def rows_of(path: str = "out.csv") -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_each_row_has_what_the_library_says_of_it() -> None:
    table = frame(100, seed=1)
    table[FEATURES].to_csv("new.csv", index=False)
    result = predict()
    assert result.exit_code == 0, result.output
    found = rows_of()
    assert [*found[0]] == ["line", *COLUMNS]
    assert [int(row["line"]) for row in found] == [*range(2, 102)]
    model, X = load("model.pll"), table[FEATURES]
    opinion, decision = model.predict_opinion(X), model.decide(X, error=0.05)
    sets = ConformalSets(model, model.notes_["sets"]["least"]).predict_sets(X)
    at = opinion.predicted()
    for row, cells in enumerate(found):
        assert cells["label"] == decision.label[row]
        assert float(cells["probability"]) == pytest.approx(opinion.probability[row, at[row]], 1e-4)
        assert float(cells["belief"]) == pytest.approx(opinion.belief[row, at[row]], 1e-4)
        assert float(cells["uncertainty"]) == pytest.approx(opinion.uncertainty[row], 1e-4)
        assert float(cells["entropy"]) == pytest.approx(opinion.entropy[row], 1e-4)
        assert {*filter(None, cells["prediction_set"].split("|"))} == sets[row]
        assert cells["decision"] == ("accept" if decision.accepted[row] else "review")
        assert cells["reason"] == decision.reason[row]
    assert "100 rows predicted" in result.stdout


def test_copied_cells_keep_any_line_ends() -> None:
    cells = ["carriage\rreturn", "line\nfeed", "both\r\n", 'a "quote"', "form\x0cfeed", "\u2028"]
    frame(len(cells), seed=1).assign(id=cells).to_parquet("new.parquet", index=False)
    assert predict("--keep", "id", name="new.parquet").exit_code == 0
    assert [row["id"] for row in rows_of()] == cells


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    frame(100, seed=1).to_csv("new.csv", index=False)
    predict(out="whole.csv")
    for rows in (7, 1):
        monkeypatch.setattr(MODULE, "MOST_NUMBERS", rows * NUMBERS)
        assert predict(out="pieces.csv").exit_code == 0
        for one, other in zip(rows_of("whole.csv"), rows_of("pieces.csv"), strict=True):
            for name, cell in one.items():
                if name in ("probability", "belief", "uncertainty", "entropy"):
                    assert float(other[name]) == pytest.approx(float(cell), abs=1e-5)
                else:
                    assert other[name] == cell


@pytest.mark.parametrize("name", ["new.parquet", "new.tsv", "new.csv.gz"])
def test_other_files_give_what_csv_gives(name: str) -> None:
    table = frame(50, seed=1)
    table.to_csv("new.csv", index=False)
    if name.endswith("parquet"):
        table.to_parquet(name)
    else:
        table.to_csv(name, index=False, sep="\t" if name.endswith("tsv") else ",")
    predict("--keep", "id")
    assert predict("--keep", "id", name=name, out="other.csv").exit_code == 0
    first = "row" if name.endswith("parquet") else "line"
    for one, other in zip(rows_of(), rows_of("other.csv"), strict=True):
        assert int(other.pop(first)) == int(one.pop("line")) - (2 if first == "row" else 0)
        assert one == other


def test_columns_may_be_kept_moved_and_added() -> None:
    table = frame(20, seed=1)
    table[["z", "gold", "town", "x", "id"]].assign(colour="red").to_csv("new.csv", index=False)
    result = predict("--keep", "id", "--keep", "gold")
    assert result.exit_code == 0
    assert result.stderr == (
        "new.csv: the model was fitted without 'colour', and makes no use of that.\n"
    )
    assert [row["id"] for row in rows_of()] == table["id"].tolist()
    assert [row["gold"] for row in rows_of()] == table["gold"].tolist()
    result = predict("--keep", "ids")
    assert result.exit_code == 1
    assert "There is no column 'ids'. There is 'id'" in result.stderr


def test_true_labels_are_compared_with() -> None:
    table = frame(40, seed=1)
    table.loc[:9, "gold"] = None
    table.to_csv("new.csv", index=False)
    result = predict("--truth", "gold")
    labels = np.array([row["label"] for row in rows_of()[10:]])
    right = np.mean(labels == table["gold"][10:].to_numpy())
    assert f"right by the true labels: {right:.1%} of 30 rows" in result.stdout


def test_true_classes_that_the_model_does_not_know_are_told_apart() -> None:
    table = frame(40, seed=1)
    table.loc[:9, "gold"] = "Wolf"
    table.loc[10:11, "gold"] = "NA"  # no value, as elsewhere in CSV files
    table.to_csv("new.csv", index=False)
    result = predict("--truth", "gold")
    found = rows_of()
    labels = np.array([row["label"] for row in found[12:]])
    right = np.mean(labels == table["gold"][12:].to_numpy())
    accepted = sum(row["decision"] == "accept" for row in found[:10])
    assert f"right by the true labels: {right:.1%} of 28 rows" in result.stdout
    assert (
        "10 rows have a true class that the model does not know ('Wolf'), and "
        f"{accepted} of them are accepted"
    ) in result.stdout


def test_one_cell_too_large_to_compute_with_leaves_the_other_rows_predicted() -> None:
    table = frame(40, seed=1)
    table.loc[7, "x"], table.loc[9, "z"], table.loc[11, "x"] = 1e300, -1e30, np.inf
    table.to_csv("new.csv", index=False)
    result = predict()
    assert result.exit_code == 1
    assert "3 rows do not parse" in result.stderr
    found = rows_of()
    assert [at for at, row in enumerate(found) if not row["label"]] == [7, 9, 11]
    assert found[7]["reason"] == "column 'x': '1e+300' is too far from the training rows"
    assert found[9]["reason"] == "column 'z': '-1e+30' is too far from the training rows"
    assert {found[at]["decision"] for at in (7, 9, 11)} == {"review"}
    table.drop([7, 9, 11]).to_csv("new.csv", index=False)
    assert predict(out="rest.csv").exit_code == 0
    others = [row["label"] for at, row in enumerate(found) if at not in (7, 9, 11)]
    assert others == [row["label"] for row in rows_of("rest.csv")]
    assert predict("--skip-bad-rows").exit_code == 0


def test_a_promise_that_cannot_be_kept_leaves_all_rows_for_review() -> None:
    table = frame(300)
    table.to_csv("table.csv", index=False)
    form = ("--candidates", "gold", "--ignore", "id", "--ignore", "sets", "--epochs", "30")
    line = ["fit", "table.csv", "--out", "model.pll", *form]
    assert CliRunner().invoke(app, line).exit_code == 0
    frame(50, seed=1).to_csv("new.csv", index=False)
    result = predict("--error", "0.01")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "50 rows predicted; 50 no promise can be made (100.0%)" in result.stdout
    assert "no promise can be made that 1% or fewer of accepted rows are wrong" in result.stdout
    assert "it takes 299 labelled rows held out from the training, and these were 60" in (
        result.stdout
    )
    found = rows_of()
    assert {(row["decision"], row["reason"]) for row in found} == {
        ("review", "no promise can be made")
    }
    assert all(row["label"] in CLASSES for row in found)
    result = predict("--error", "0.1")
    assert "no promise" not in result.stdout
    assert "accept" in {row["decision"] for row in rows_of()}


def test_a_missing_column_is_told_with_the_nearest() -> None:
    frame(10).rename(columns={"town": "twon"}).to_csv("new.csv", index=False)
    result = predict()
    assert result.exit_code == 1
    assert result.stderr == (
        "new.csv lacks 'town': the model was fitted with this column. It has 'twon': rename it if "
        "it is the same.\n"
    )
    assert not Path("out.csv").exists()


def test_rows_that_do_not_parse_keep_their_place_and_say_why() -> None:
    text = 'x,town,z\n1,Rome,1\nten,Rome,1\n2,Bonn\n,Bonn,3\ninf,Bonn,3\n2,"Bo\nnn",4\n2,Oslo,4\n'
    Path("new.csv").write_text(text, encoding="utf-8")
    result = predict()
    assert result.exit_code == 1
    assert "4 rows do not parse" in result.stderr
    found = {int(row["line"]): row for row in rows_of()}
    assert [*found] == [2, 3, 4, 5, 6, 7, 9]
    assert "column 'x': 'ten' is not a number: correct it, or pass --missing" in found[3]["reason"]
    assert found[4]["reason"] == "has 2 cells instead of 3"
    assert found[5]["reason"] == "column 'x': '' is missing, and never was in training"
    assert found[6]["reason"] == "column 'x': 'inf' is infinite"
    for line in (3, 4, 5, 6):
        assert (found[line]["label"], found[line]["decision"]) == ("", "review")
    assert all(found[line]["label"] for line in (2, 7, 9))  # a new town is no fault
    assert predict("--skip-bad-rows").exit_code == 0


def test_a_table_without_a_single_good_row_is_refused() -> None:
    Path("new.csv").write_text("x,town,z\nten,Rome,1\n", encoding="utf-8")
    result = predict("--skip-bad-rows")
    assert result.exit_code == 1
    assert "No row of the table parses (line 2: column 'x': 'ten'" in result.stderr
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("text", ["", "x,town,z\n", "x,town,z\n\n\n"])
def test_an_empty_table_is_one_sentence(text: str) -> None:
    Path("new.csv").write_text(text, encoding="utf-8")
    result = predict()
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert [path.name for path in Path().glob("*out*")] == []


@pytest.mark.parametrize("name", ["x", "id"])
def test_of_two_columns_of_one_name_none_is_taken(name: str) -> None:
    table = frame(10)
    pd.concat([table, table[[name]]], axis=1).to_csv("new.csv", index=False)
    result = predict("--keep", "id")
    assert result.exit_code == 1
    assert f"Several columns are named '{name}'" in result.stderr
    assert predict().exit_code == (1 if name == "x" else 0)  # what is not used may be double


def test_words_that_are_all_new_are_refused_but_not_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODULE, "MOST_NUMBERS", 2 * NUMBERS)  # two rows at a time
    table = frame(8, seed=1)
    table["town"] = ["Rome", "Bonn", "Oslo", "Kyiv", "Lima", "Lagos", "Rome", "Bonn"]
    table.to_csv("new.csv", index=False)
    assert predict().exit_code == 0
    table["town"] = table["town"].str.upper()
    table.to_csv("new.csv", index=False)
    result = predict(out="other.csv")
    assert result.exit_code == 1
    assert "Column 'town' holds no word that training saw: 'ROME'" in result.stderr
    assert not Path("other.csv").exists()


@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
def test_rows_with_words_that_training_did_not_see_are_counted_once_a_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MOST_NUMBERS", 2 * NUMBERS)  # two rows at a time
    table = frame(8, seed=1).astype({"town": object})
    table["town"] = ["Rome", "Oslo", None, "Oslo", "Lima", "Oslo", "Bonn", "Oslo"]
    table.loc[7, "x"] = np.inf  # does not parse, and so is not counted
    save = table.to_csv if name.endswith(".csv") else table.to_parquet
    save(name, index=False)
    result = predict("--skip-bad-rows", name=name)
    assert result.exit_code == 0
    told = [line for line in result.stderr.splitlines() if "did not see" in line]
    assert len(told) == 1
    assert told[0].endswith("rows with such a word: 4 in column 'town' ('Oslo', 'Lima').")
    with_gaps = table.assign(town=table["town"].where(table["town"].isin(["Rome", "Bonn"])))
    with_gaps.to_csv("gaps.csv", index=False)
    again = predict("--skip-bad-rows", name="gaps.csv", out="again.csv")
    assert "did not see" not in again.stderr
    seen, unseen = rows_of("again.csv"), rows_of("out.csv")
    assert [row["probability"] for row in unseen] == [row["probability"] for row in seen]


def test_how_the_first_table_was_written_is_remembered_and_can_be_said_anew() -> None:
    table, how = frame(100), {"sep": ";", "decimal": ",", "na_rep": "?", "index": False}
    table.to_csv("table.csv", **how)
    said = ("--delimiter", ";", "--decimal", ",", "--missing", "?")
    line = ["fit", "table.csv", "--out", "model.pll", *FIT[:-1], "2", *said]
    assert CliRunner().invoke(app, line).exit_code == 0
    table.to_csv("new.csv", **how)
    assert predict().exit_code == 0
    table.to_csv("new.csv", index=False)
    assert predict(out="other.csv").exit_code == 1
    assert predict("--delimiter", ",", "--decimal", ".", out="other.csv").exit_code == 0
    assert rows_of() == rows_of("other.csv")
    table.to_parquet("new.parquet")
    assert predict(name="new.parquet", out="parquet.csv").exit_code == 0
    labels = [row["label"] for row in rows_of("parquet.csv")]
    assert labels == [row["label"] for row in rows_of()]


def test_windows_line_ends_and_a_mark_in_front_change_nothing() -> None:
    frame(30, seed=1).to_csv("new.csv", index=False)
    predict(out="a.csv")
    frame(30, seed=1).to_csv("new.csv", index=False, lineterminator="\r\n", encoding="utf-8-sig")
    predict(out="b.csv")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def fit_named(names: dict[str, str]) -> None:
    table = frame(200)
    for old, new in names.items():
        table["sets"] = table["sets"].str.replace(old, new, regex=False)
    table["sets"] = [json.dumps(cell.split("§")) for cell in table["sets"].str.replace("|", "§")]
    table.to_csv("table.csv", index=False)
    line = ["fit", "table.csv", "--out", "model.pll", *FIT[:-1], "2"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output


def test_names_become_no_formulas_and_numbers_stay_numbers() -> None:
    fit_named({"Esel": '=HYPERLINK("http://x")', "Fuß": "-1", "Öl": "@sum"})
    frame(200).to_csv("new.csv", index=False)
    assert predict().exit_code == 0
    found = rows_of()
    assert {row["label"] for row in found} <= {'\'=HYPERLINK("http://x")', "-1", "'@sum"}
    text = pd.read_csv("out.csv", dtype=str, keep_default_na=False)
    for name in ("label", "prediction_set", "reason"):
        assert not text[name].str.match(r"^[=@]|^-(?!1)").any()


def test_names_with_line_ends_quotes_and_separators_come_back_whole() -> None:
    fit_named({"Esel": 'a\r\n"b", c', "Fuß": "x;y", "Öl": "p q"})
    frame(50).to_csv("new.csv", index=False)
    predict()
    found = rows_of()
    assert len(found) == 50
    assert {row["label"] for row in found} <= {'a\r\n"b", c', "x;y", "p q"}


def test_where_nothing_can_be_written_is_told_before_anything_is_read() -> None:
    frame(10).to_csv("new.csv", index=False)
    before = Path("model.pll").read_bytes(), Path("new.csv").read_bytes()
    for out, reason in (
        ("nowhere/out.csv", "there is no folder nowhere"),
        ("new.csv", "is what is read, and would be lost"),
        ("/proc/out.csv", "cannot be written"),
    ):
        result = predict(out=out)
        assert result.exit_code == 1, out
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1
    assert predict(out="out.txt").exit_code == 2
    assert predict("--error", "1").exit_code == 2
    assert before == (Path("model.pll").read_bytes(), Path("new.csv").read_bytes())


def test_only_predictions_are_replaced_by_predictions() -> None:
    frame(10).to_csv("new.csv", index=False)
    mine = ("id,label,probability\n1,cat,0.5\n", "line,label\n", '"never closed', "\0" * 9000)
    for text in mine:
        Path("mine.csv").write_text(text)
        result = predict(out="mine.csv")
        assert result.exit_code == 1
        assert "mine.csv is there already, and is not what predict wrote" in result.stderr
        assert result.stderr.count("\n") == 1
        assert Path("mine.csv").read_text() == text
    assert predict("--keep", "id", "--keep", "gold").exit_code == 0
    assert predict().exit_code == 0  # over the predictions of a minute ago


def test_an_onnx_file_of_another_program_is_not_replaced() -> None:
    line = ["export", "model.pll", "--out", "model.onnx"]
    other = b"\x08\x0a\x12\x07pytorch\x1a\x052.0.0" + b"x" * 500
    for before in (other, b"a thesis about robustpll", Path("model.pll").read_bytes()):
        Path("model.onnx").write_bytes(before)
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 1
        assert "model.onnx is there already, and is not what export wrote" in result.stderr
        assert Path("model.onnx").read_bytes() == before
    Path("model.onnx").unlink()
    for _ in range(2):
        assert CliRunner().invoke(app, line).exit_code == 0


def test_a_model_from_elsewhere_is_told_in_a_sentence() -> None:
    frame(10).to_csv("new.csv", index=False)
    whole = Path("model.pll").read_bytes()
    PLLClassifier(Proden(epochs=1)).fit(np.eye(4), ["a", "b"] * 2).save("array.pll")
    save_file({"w": torch.zeros(2)}, "tensors.pll")
    others = {
        "nothing.pll": None,
        "text.pll": b"x,town\n1,Rome\n",
        "cut.pll": whole[: len(whole) // 2],
        "array.pll": Path("array.pll").read_bytes(),
        "tensors.pll": Path("tensors.pll").read_bytes(),
    }
    for name, content in others.items():
        if content is not None:
            Path(name).write_bytes(content)
        result = CliRunner().invoke(app, ["predict", name, "new.csv", "--out", "out.csv"])
        assert result.exit_code == 1, name
        assert name in result.stderr
        assert result.stderr.count("\n") == 1
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    "notes",
    [
        {"sets": 3},
        {"sets": {"least": "much"}},
        {"reading": {"missing": [["?"]]}},
        {"reading": {"missing": 7}},
        {"reading": {"delimiter": 7}},
        {"reading": "with care"},
    ],
)
def test_notes_that_make_no_sense_are_told_in_a_sentence(notes: dict[str, Any]) -> None:
    frame(10).to_csv("new.csv", index=False)
    model = load("model.pll")
    model.notes_ |= notes
    model.save("model.pll")
    result = predict()
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_a_model_without_calibration_leaves_all_rows_for_review() -> None:
    table = frame(100)
    PLLClassifier(Proden(epochs=2)).fit(table[FEATURES], table["gold"]).save("model.pll")
    table.to_csv("new.csv", index=False)
    result = predict()
    assert result.exit_code == 0
    assert "no prediction sets, and all rows are for review" in result.stdout
    assert {(row["decision"], row["prediction_set"]) for row in rows_of()} == {("review", "")}
    assert {row["reason"] for row in rows_of()} == {"no promise can be made"}
    assert all(row["label"] in CLASSES for row in rows_of())


PATIENCE = 900  # seconds until a process counts as hanging, on the slowest of machines


def command(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    """The last word it prints is its peak memory in KiB; getrusage would count its parent's."""
    code = (
        "import sys; from robustpll.cli import app\n"
        "try: app()\n"
        "finally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0],"
        " file=sys.stderr)"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], **pipes, **options)


def long_table(rows: int, name: str = "new.csv") -> None:
    block = frame(1000, seed=1)[FEATURES].fillna({"z": 1}).to_csv(index=False).split("\n", 1)
    with Path(name).open("w", encoding="utf-8") as file:
        file.write(block[0] + "\n")
        for _ in range(rows // 1000):
            file.write(block[1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table() -> None:
    peaks = []
    for rows in (20_000, 200_000):
        long_table(rows)
        process = command("predict", "model.pll", "new.csv", "--out", "out.csv")
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
        with Path("out.csv").open("rb") as file:
            assert sum(1 for _ in file) == rows + 1
        peaks.append(int(told.split()[-1]) / 1024)
    # MiB. The peak of a single piece varies by 60 or so; 450,000 rows held whole took 1,500 more.
    assert peaks[1] - peaks[0] < 150


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_write_leaves_the_old_file_whole(how: signal.Signals) -> None:
    long_table(300_000)
    older = ",".join(["line", *COLUMNS]) + "\nolder\n"
    Path("out.csv").write_text(older)
    process = command("predict", "model.pll", "new.csv", "--out", "out.csv")
    deadline = time.monotonic() + PATIENCE
    while not any(path.stat().st_size > 10**6 for path in Path().glob(".out.csv.*")):
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.1)
    process.send_signal(how)
    _, told = process.communicate(timeout=PATIENCE)
    assert Path("out.csv").read_text() == older
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert told.startswith("Stopped. out.csv is not written.\n")
        assert not list(Path().glob(".out.csv.*"))


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_sentence() -> None:
    long_table(20_000)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))  # noqa: E731
    process = command("predict", "model.pll", "new.csv", "--out", "out.csv", preexec_fn=limit)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.startswith("out.csv cannot be written: File too large.\n")
    assert not list(Path().glob("*out.csv*"))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["x,town,z\n1,Rome,1\n", ""])
def test_two_gigabytes_without_a_line_end_are_refused_rather_than_read(head: str) -> None:
    with Path("new.csv").open("w", encoding="utf-8") as file:
        file.write(head)
        file.truncate(2 * 10**9)
    process = command("predict", "model.pll", "new.csv", "--out", "out.csv")
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert told.startswith("new.csv has a line of 134,217,728 characters or more")
    assert int(told.split()[-1]) / 1024 < 1500  # MiB
    assert not list(Path().glob("*out.csv*"))


def test_a_parquet_file_of_one_group_of_rows_is_not_held_whole() -> None:
    import pyarrow as pa

    numbers = np.random.default_rng(0).normal(size=(2**20, 8))
    names = [f"c{at}" for at in range(8)]
    pd.DataFrame(numbers, columns=names).to_parquet("t.parquet", row_group_size=2**20)
    table = TableInPieces.opened(Path("t.parquet"), Schema(dict.fromkeys(names)))
    before = pa.total_allocated_bytes()
    held, rows = 0, 0
    for piece in table.pieces():
        rows += len(piece.lines)
        held = max(held, pa.total_allocated_bytes() - before)
    assert rows == 2**20
    assert held < Path("t.parquet").stat().st_size / 2


def test_lists_in_place_of_words_are_told_in_a_sentence() -> None:
    frame(10).assign(town=[["Rome", "Bonn"]] * 10).to_parquet("new.parquet")
    result = predict(name="new.parquet")
    assert result.exit_code == 1
    assert result.stderr.startswith("Column 'town' holds lists, which are not features")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("dates", [pd.date_range("2020", periods=10), pd.to_timedelta(range(10))])
def test_dates_in_place_of_numbers_are_no_numbers(dates: Any) -> None:
    frame(10).assign(x=dates).to_parquet("new.parquet")
    result = predict(name="new.parquet")
    assert result.exit_code == 1
    assert "No row of the table parses (row 0: column 'x'" in result.stderr
    assert "is not a number" in result.stderr
    assert not Path("out.csv").exists()


def test_a_schema_reads_numbers_that_parquet_has_as_text() -> None:
    pd.DataFrame({"x": ["1.5", "?", "ten"], "code": [1.0, np.nan, 2.0]}).to_parquet("t.parquet")
    schema = Schema({"x": None, "code": ("1", "2")}, frozenset({"x"}))
    table = TableInPieces.opened(Path("t.parquet"), schema, Reading(missing=("?",)))
    (piece,) = table.pieces()
    assert piece.features["x"].isna().tolist() == [False, True]
    assert piece.features["code"].astype(object).fillna("").tolist() == ["1", ""]
    assert [one[0::2] for one in piece.bad] == [(2, "ten")]
    assert piece.bad[0].reason == "is not a number"
