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
from robustpll.cli.models import COLUMNS, MEASURES
from robustpll.measures.conformal import ConformalSets
from robustpll.methods import Proden
from robustpll.tables.columns import Reading
from robustpll.tables.pieces import Schema, TableInPieces

CLASSES = ("Esel", "Fuß", "Öl")
FEATURES = ["x", "town", "z"]
NUMBERS = 5  # of a row: x, one town or the other, z, and whether it is missing
MODULE = sys.modules["robustpll.cli.models"]  # the package has a function of that name


def frame(rows: int = 300, seed: int = 1) -> pd.DataFrame:
    """Three classes around 0, 1 and 2, a word, a gap now and then, a set, an id and the truth."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=rows)
    x = np.round(generator.normal(labels, 0.25), 4)
    second = np.where(generator.random(rows) < 0.7, labels, generator.integers(3, size=rows))
    pairs = zip(labels, second, strict=True)
    return pd.DataFrame(
        {
            "id": [f"r{row}" for row in range(rows)],
            "x": x,
            "town": np.where(labels == 1, "Rome", "Bonn"),
            "z": np.where(np.arange(rows) % 50 == 7, np.nan, np.round(x * x, 3)),
            "sets": ["|".join({CLASSES[a], CLASSES[b]}) for a, b in pairs],
            "gold": np.array(CLASSES)[labels],
        }
    )


def write(table: pd.DataFrame, name: str = "new.csv", **options: Any) -> None:
    table.to_csv(name, index=False, **options)


def fit(table: pd.DataFrame, *options: str, labels: str = "sets", epochs: int = 2) -> None:
    """Fit model.pll with the features of a table."""
    columns = [name for name in table if name not in (*FEATURES, labels)]
    ignored = [f"--ignore={name}" for name in columns]
    line = ["fit", "table.csv", "--out", "model.pll", "--candidates", labels, *ignored, *options]
    result = CliRunner().invoke(app, [*line, "--epochs", str(epochs)])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write(frame(seed=0), "table.csv")
        fit(frame(seed=0), epochs=30)
    return folder / "model.pll"


@pytest.fixture(autouse=True)
def folder(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fitted, "model.pll")


def predict(*options: str, name: str = "new.csv", out: str = "out.csv") -> Any:
    line = ["predict", "model.pll", name, "--out", out, *options]
    return CliRunner().invoke(app, line, env={"COLUMNS": "100"})


def rows_of(path: str = "out.csv") -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_each_row_has_what_the_library_says_of_it() -> None:
    X = frame(100)[FEATURES]
    write(X)
    result = predict()
    assert result.exit_code == 0, result.output
    assert "100 rows predicted" in result.stdout
    cells = pd.DataFrame(rows_of())
    assert [*cells] == ["line", *COLUMNS]
    assert cells["line"].astype(int).tolist() == [*range(2, 102)]
    model = load("model.pll")
    opinion, decision = model.predict_opinion(X), model.decide(X, error=0.05)
    rows = np.arange(100), opinion.predicted()
    measures = opinion.probability[rows], opinion.belief[rows], opinion.uncertainty, opinion.entropy
    for name, values in zip(MEASURES, measures, strict=True):
        np.testing.assert_allclose(cells[name].astype(float), values, rtol=1e-4)
    sets = ConformalSets(model, model.notes_["sets"]["least"]).predict_sets(X)
    assert [{*filter(None, cell.split("|"))} for cell in cells["prediction_set"]] == [*sets]
    assert cells["label"].tolist() == decision.label.tolist()
    assert cells["decision"].eq("accept").tolist() == decision.accepted.tolist()
    assert cells["reason"].tolist() == decision.reason.tolist()


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    write(frame(40))
    predict(out="whole.csv")
    whole = pd.read_csv("whole.csv")
    for rows in (7, 1):
        monkeypatch.setattr(MODULE, "MAX_NUMBERS", rows * NUMBERS)
        assert predict(out="pieces.csv").exit_code == 0
        pd.testing.assert_frame_equal(pd.read_csv("pieces.csv"), whole, atol=1e-5)


@pytest.mark.parametrize("name", ["new.parquet", "new.tsv", "new.csv.gz", "windows.csv"])
def test_other_files_give_what_csv_gives(name: str) -> None:
    table = frame(50)
    write(table)
    if name.endswith("parquet"):
        table.to_parquet(name)
    elif name == "windows.csv":
        write(table, name, lineterminator="\r\n", encoding="utf-8-sig")
    else:
        write(table, name, sep="\t" if name.endswith("tsv") else ",")
    predict("--keep", "id")
    assert predict("--keep", "id", name=name, out="other.csv").exit_code == 0
    first = "row" if name.endswith("parquet") else "line"
    for one, other in zip(rows_of(), rows_of("other.csv"), strict=True):
        assert int(other.pop(first)) == int(one.pop("line")) - (2 if first == "row" else 0)
        assert one == other


def test_columns_may_be_kept_moved_and_added() -> None:
    table = frame(20)
    write(table[["z", "gold", "town", "x", "id"]].assign(colour="red"))
    result = predict("--keep", "id", "--keep", "gold")
    assert result.exit_code == 0
    assert "new.csv: the model was fitted without 'colour'" in result.stderr
    assert result.stderr.count("\n") == 1
    for name in ("id", "gold"):
        assert [row[name] for row in rows_of()] == table[name].tolist()
    result = predict("--keep", "ids")
    assert result.exit_code == 1
    assert "There is no column 'ids'. There is 'id'" in result.stderr
    assert predict("--keep", "label").exit_code == 1


def test_copied_cells_keep_any_line_ends() -> None:
    cells = ["carriage\rreturn", "line\nfeed", "both\r\n", 'a "quote"', "form\x0cfeed", "\u2028"]
    frame(len(cells)).assign(id=cells).to_parquet("new.parquet", index=False)
    assert predict("--keep", "id", name="new.parquet").exit_code == 0
    assert [row["id"] for row in rows_of()] == cells


def test_true_labels_are_compared_and_unknown_classes_told_apart() -> None:
    table = frame(40)
    table.loc[:9, "gold"] = "Wolf"
    table.loc[10, "gold"] = "NA"  # no value, as elsewhere in CSV files
    table.loc[11, "gold"] = None
    write(table)
    result = predict("--truth", "gold")
    rows = rows_of()
    right = np.mean([row["label"] for row in rows[12:]] == table["gold"][12:].to_numpy())
    accepted = sum(row["decision"] == "accept" for row in rows[:10])
    assert f"right by the true labels: {right:.1%} of 28 rows" in result.stdout
    assert (
        "10 rows have a true class that the model does not know ('Wolf'), and "
        f"{accepted} of them are accepted"
    ) in result.stdout


def test_one_cell_too_large_to_compute_with_leaves_the_other_rows_predicted() -> None:
    table, odd = frame(40), [7, 9, 11]
    table.loc[7, "x"], table.loc[9, "z"], table.loc[11, "x"] = 1e300, -1e30, np.inf
    write(table)
    result = predict()
    assert result.exit_code == 1
    assert "3 rows do not parse" in result.stderr
    rows = rows_of()
    assert [number for number, row in enumerate(rows) if not row["label"]] == odd
    assert rows[7]["reason"] == "column 'x': '1e+300' is too far from the training rows"
    assert rows[9]["reason"] == "column 'z': '-1e+30' is too far from the training rows"
    assert {rows[number]["decision"] for number in odd} == {"review"}
    write(table.drop(odd))
    assert predict(out="rest.csv").exit_code == 0
    labels = [row["label"] for row in rows if row["label"]]
    assert labels == [row["label"] for row in rows_of("rest.csv")]
    write(table.loc[[7, 8]])  # in a piece of their own
    assert predict("--skip-bad-rows").exit_code == 0


def test_a_promise_that_cannot_be_kept_leaves_all_rows_for_review() -> None:
    write(frame(seed=0), "table.csv")
    fit(frame(seed=0), labels="gold", epochs=30)
    write(frame(50))
    result = predict("--error", "0.01")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "50 rows predicted; 50 no promise can be made (100.0%)" in result.stdout
    assert "no promise can be made that 1% or fewer of accepted rows are wrong" in result.stdout
    assert "it needs 299 held-out rows with labels, but there are 60" in result.stdout
    rows = rows_of()
    outcomes = {(row["decision"], row["reason"]) for row in rows}
    assert outcomes == {("review", "no promise can be made")}
    assert all(row["label"] in CLASSES for row in rows)
    assert "no promise" not in predict("--error", "0.1").stdout
    assert "accept" in {row["decision"] for row in rows_of()}


def test_a_model_without_calibration_leaves_all_rows_for_review() -> None:
    table = frame(100)
    PLLClassifier(Proden(epochs=2)).fit(table[FEATURES], table["gold"]).save("model.pll")
    write(table)
    result = predict()
    assert result.exit_code == 0
    assert "no prediction sets, and all rows are for review" in result.stdout
    outcomes = {(row["decision"], row["prediction_set"], row["reason"]) for row in rows_of()}
    assert outcomes == {("review", "", "no promise can be made")}


def test_rows_that_do_not_parse_keep_their_place_and_say_why() -> None:
    text = 'x,town,z\n1,Rome,1\nten,Rome,1\n2,Bonn\n,Bonn,3\ninf,Bonn,3\n2,"Bo\nnn",4\n2,Oslo,4\n'
    Path("new.csv").write_text(text, encoding="utf-8")
    result = predict()
    assert result.exit_code == 1
    assert "4 rows do not parse" in result.stderr
    rows = {int(row["line"]): row for row in rows_of()}
    assert [*rows] == [2, 3, 4, 5, 6, 7, 9]
    assert rows[3]["reason"].startswith("column 'x': 'ten' is no")
    assert "pass --missing" in rows[3]["reason"]
    assert rows[4]["reason"] == "has 2 cells instead of 3"
    assert rows[5]["reason"] == "column 'x': '' is missing, and never was in training"
    assert rows[6]["reason"] == "column 'x': 'inf' is infinite"
    for line, row in rows.items():
        assert bool(row["label"]) == (line in (2, 7, 9))  # a new town is no fault
        assert row["label"] or row["decision"] == "review"
    assert predict("--skip-bad-rows").exit_code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("x,town,z\n", ""),
        ("x,town,z\n\n\n", ""),
        ("x,town,z\nten,Rome,1\n", "No row of the table parses (line 2: column 'x': 'ten'"),
        ("x,twon,z\n1,Rome,1\n", "new.csv lacks 'town': the model was fitted with this column. It"),
        ("x,town,z,x\n1,Rome,1,1\n", "Several columns are named 'x'"),
    ],
)
def test_a_table_that_cannot_be_predicted_is_one_sentence(text: str, reason: str) -> None:
    Path("new.csv").write_text(text, encoding="utf-8")
    result = predict("--skip-bad-rows")
    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in Path().glob("*out*")] == []


def test_of_two_columns_of_one_name_none_is_kept() -> None:
    table = frame(10)
    write(pd.concat([table, table[["id"]]], axis=1))
    assert "Several columns are named 'id'" in predict("--keep", "id").stderr
    assert predict().exit_code == 0  # columns that are not used may have equal names


def test_words_that_are_all_new_are_refused_but_not_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODULE, "MAX_NUMBERS", 2 * NUMBERS)  # two rows at a time
    towns = ["Rome", "Bonn", "Oslo", "Kyiv", "Lima", "Lagos", "Rome", "Bonn"]
    write(frame(8).assign(town=towns))
    assert predict().exit_code == 0
    write(frame(8).assign(town=[town.upper() for town in towns]))
    result = predict(out="other.csv")
    assert result.exit_code == 1
    assert "Column 'town' holds no word that training saw: 'ROME'" in result.stderr
    assert not Path("other.csv").exists()


@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
def test_rows_with_words_that_training_did_not_see_are_counted_once_a_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MAX_NUMBERS", 2 * NUMBERS)  # two rows at a time
    table = frame(8).astype({"town": object})
    table["town"] = ["Rome", "Oslo", None, "Oslo", "Lima", "Oslo", "Bonn", "Oslo"]
    table.loc[7, "x"] = np.inf  # does not parse, and so is not counted
    write(table, name) if name.endswith(".csv") else table.to_parquet(name, index=False)
    result = predict("--skip-bad-rows", name=name)
    assert result.exit_code == 0
    messages = [line for line in result.stderr.splitlines() if "did not see" in line]
    assert len(messages) == 1
    assert "4 rows have words that training did not see ('Oslo', 'Lima')" in messages[0]
    assert "in column 'town'" in messages[0]
    write(table.assign(town=table["town"].where(table["town"].isin(["Rome", "Bonn"]))), "gaps.csv")
    assert "did not see" not in predict("--skip-bad-rows", name="gaps.csv", out="again.csv").stderr
    probabilities = [row["probability"] for row in rows_of("again.csv")]
    assert [row["probability"] for row in rows_of()] == probabilities


def test_how_the_first_table_was_written_is_remembered_and_can_be_said_anew() -> None:
    table, how = frame(100), {"sep": ";", "decimal": ",", "na_rep": "?"}
    write(table, "table.csv", **how)
    fit(table, "--delimiter", ";", "--decimal", ",", "--missing", "?")
    write(table, **how)
    assert predict().exit_code == 0
    write(table)
    assert predict(out="other.csv").exit_code == 1
    assert predict("--delimiter", ",", "--decimal", ".", out="other.csv").exit_code == 0
    assert rows_of() == rows_of("other.csv")
    table.to_parquet("new.parquet")
    assert predict(name="new.parquet", out="parquet.csv").exit_code == 0
    assert [row["label"] for row in rows_of("parquet.csv")] == [row["label"] for row in rows_of()]


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (('=HYPERLINK("http://x")', "-1", "@sum"), ('\'=HYPERLINK("http://x")', "-1", "'@sum")),
        (('a\r\n"b", c', "x;y", "p q"), ('a\r\n"b", c', "x;y", "p q")),
    ],
)
def test_names_come_back_whole_but_become_no_formulas(
    names: tuple[str, ...], written: tuple[str, ...]
) -> None:
    table, renamed = frame(100), dict(zip(CLASSES, names, strict=True))
    sets = [[renamed[name] for name in cell.split("|")] for cell in table["sets"]]
    table["sets"] = [json.dumps(row) for row in sets]
    write(table, "table.csv")
    fit(table)
    write(table)
    assert predict().exit_code == 0
    rows = rows_of()
    assert len(rows) == 100
    assert {row["label"] for row in rows} <= {*written}
    for name in ("label", "prediction_set", "reason"):
        cells = pd.Series([row[name] for row in rows])
        assert not cells.str.match(r"^[=@]|^-(?!1)").any()


def test_where_nothing_can_be_written_is_told_before_anything_is_read() -> None:
    write(frame(10))
    before = Path("model.pll").read_bytes(), Path("new.csv").read_bytes()
    for out, reason in (
        ("nowhere/out.csv", "there is no folder nowhere"),
        ("new.csv", "is an input and would be overwritten"),
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
    write(frame(10))
    others = ("id,label,probability\n1,cat,0.5\n", "line,label\n", '"never closed', "\0" * 9000)
    for text in others:
        Path("mine.csv").write_text(text)
        result = predict(out="mine.csv")
        assert result.exit_code == 1
        assert "is not a file of predict" in result.stderr
        assert result.stderr.count("\n") == 1
        assert Path("mine.csv").read_text() == text
    assert predict("--keep", "id", "--keep", "gold").exit_code == 0
    assert predict().exit_code == 0  # replaces the predictions


def test_an_onnx_file_of_another_program_is_not_replaced() -> None:
    line = ["export", "model.pll", "--out", "model.onnx"]
    other = b"\x08\x0a\x12\x07pytorch\x1a\x052.0.0" + b"x" * 500
    for before in (other, b"a thesis about robustpll", Path("model.pll").read_bytes()):
        Path("model.onnx").write_bytes(before)
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 1
        assert "is not a file of export" in result.stderr
        assert Path("model.onnx").read_bytes() == before
    Path("model.onnx").unlink()
    assert CliRunner().invoke(app, line).exit_code == 0
    line[1] = "nothing.pll"
    assert "is not a file of export" not in CliRunner().invoke(app, line).stderr


def test_a_model_from_elsewhere_is_told_in_a_sentence() -> None:
    write(frame(10))
    whole = Path("model.pll").read_bytes()
    PLLClassifier(Proden(epochs=1)).fit(np.eye(4), ["a", "b"] * 2).save("array.pll")
    save_file({"w": torch.zeros(2)}, "tensors.pll")
    Path("text.pll").write_bytes(b"x,town\n1,Rome\n")
    Path("cut.pll").write_bytes(whole[: len(whole) // 2])
    for name in ("nothing.pll", "text.pll", "cut.pll", "array.pll", "tensors.pll"):
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
    write(frame(10))
    model = load("model.pll")
    model.notes_ |= notes
    model.save("model.pll")
    result = predict()
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_lists_and_dates_in_a_parquet_file_are_told_in_a_sentence() -> None:
    frame(10).assign(town=[["Rome", "Bonn"]] * 10).to_parquet("new.parquet")
    result = predict(name="new.parquet")
    assert result.exit_code == 1
    assert result.stderr.startswith("Column 'town' holds lists")
    assert result.stderr.count("\n") == 1
    for dates in (pd.date_range("2020", periods=10), pd.to_timedelta(range(10))):
        frame(10).assign(x=dates).to_parquet("new.parquet")
        result = predict(name="new.parquet")
        assert result.exit_code == 1
        assert "No row of the table parses (row 0: column 'x'" in result.stderr
    assert not Path("out.csv").exists()


def test_a_parquet_file_of_one_group_of_rows_is_not_held_whole() -> None:
    import pyarrow as pa

    numbers = np.random.default_rng(0).normal(size=(2**20, 8))
    names = [f"c{column}" for column in range(8)]
    pd.DataFrame(numbers, columns=names).to_parquet("t.parquet", row_group_size=2**20)
    table = TableInPieces.opened(Path("t.parquet"), Schema(dict.fromkeys(names)))
    before = pa.total_allocated_bytes()
    allocated, rows = 0, 0
    for piece in table.pieces():
        rows += len(piece.lines)
        allocated = max(allocated, pa.total_allocated_bytes() - before)
    assert rows == 2**20
    assert allocated < Path("t.parquet").stat().st_size / 2


def test_a_schema_reads_numbers_that_parquet_has_as_text() -> None:
    pd.DataFrame({"x": ["1.5", "?", "ten"], "code": [1.0, np.nan, 2.0]}).to_parquet("t.parquet")
    schema = Schema({"x": None, "code": ("1", "2")}, frozenset({"x"}))
    table = TableInPieces.opened(Path("t.parquet"), schema, Reading(missing=("?",)))
    (piece,) = table.pieces()
    assert piece.features["x"].isna().tolist() == [False, True]
    assert piece.features["code"].astype(object).fillna("").tolist() == ["1", ""]
    assert [(row.line, row.value) for row in piece.bad] == [(2, "ten")]


TIMEOUT = 900  # seconds until a process counts as hanging, on the slowest of machines


def start(**options: Any) -> "subprocess.Popen[str]":
    """Start predict; the last word it prints is its peak memory in KiB.

    getrusage would count the memory of the parent process, too.
    """
    code = (
        "import sys; from robustpll.cli import app\n"
        "try: app()\n"
        "finally: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0],"
        " file=sys.stderr)"
    )
    line = [sys.executable, "-c", code, "predict", "model.pll", "new.csv", "--out", "out.csv"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, **pipes, **options)


def long_table(rows: int) -> None:
    head, block = frame(1000)[FEATURES].fillna({"z": 1}).to_csv(index=False).split("\n", 1)
    with Path("new.csv").open("w", encoding="utf-8") as file:
        file.write(f"{head}\n")
        for _ in range(rows // 1000):
            file.write(block)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table() -> None:
    peaks = []
    for rows in (20_000, 120_000):
        long_table(rows)
        process = start()
        _, messages = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, messages
        with Path("out.csv").open("rb") as file:
            assert sum(1 for _ in file) == rows + 1
        peaks.append(int(messages.split()[-1]) / 1024)
    # MiB. The peak of a single piece varies by 60 or so; 100,000 rows held whole take 330 more.
    assert peaks[1] - peaks[0] < 150


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_write_leaves_the_old_file_whole(how: signal.Signals) -> None:
    long_table(300_000)
    older = ",".join(["line", *COLUMNS]) + "\nolder\n"
    Path("out.csv").write_text(older)
    process = start()
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


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_sentence() -> None:
    long_table(20_000)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))  # noqa: E731
    process = start(preexec_fn=limit)
    _, messages = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert messages.startswith("out.csv cannot be read or written: File too large.\n")
    assert not list(Path().glob("*out.csv*"))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["x,town,z\n1,Rome,1\n", ""])
def test_two_gigabytes_without_a_line_end_are_refused_rather_than_read(head: str) -> None:
    with Path("new.csv").open("w", encoding="utf-8") as file:
        file.write(head)
        file.truncate(2 * 10**9)
    process = start()
    _, messages = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert messages.startswith("new.csv has a line of 134,217,728 characters or more")
    assert int(messages.split()[-1]) / 1024 < 1500  # MiB
    assert not list(Path().glob("*out.csv*"))
