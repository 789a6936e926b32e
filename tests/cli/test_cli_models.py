"""`robustpll fit`, `compare`, `predict` and `export`, as someone with a table runs them."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from robustpll import PLLClassifier, compare, load
from robustpll.clean.decisions_file import fingerprint
from robustpll.cli import app, models
from robustpll.cli.models import COLUMNS, MEASURES, TOO_FAR, split_rows
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.measures.conformal import ConformalSets
from robustpll.methods import Auto, Proden
from robustpll.opinion import Opinion
from robustpll.tables.read import TableInPieces, read_table
from robustpll.tables.source import Reading

CLASSES = ("Esel", "Fuß", "Öl")
FEATURES = ["x", "town", "z"]
NUMBERS = 5  # of a row: x, one town or the other, z, and whether it is missing
OTHERS = ("by ann", "by bob", "sets", *(f"is {name}" for name in CLASSES), "gold", "id")
WINDOWS = {"lineterminator": "\r\n", "encoding": "utf-8-sig"}


def frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three classes around 0, 1 and 2, a word, a gap now and then, and two annotators."""
    generator = np.random.default_rng(seed)
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
    return table.assign(gold=np.array(CLASSES)[labels], id=[f"r{row}" for row in range(rows)])


def write(table: pd.DataFrame, name: str = "table.csv", **options: Any) -> None:
    if name.endswith("parquet"):
        table.to_parquet(name, index=False)
    else:
        table.to_csv(name, index=False, **options)


def form(option: str, value: str, truth: str | None = None) -> tuple[str, ...]:
    """Options that name one form of labels, and ignore the columns of the others."""
    ignored = [name for name in OTHERS if not name.startswith(value) and name != truth]
    compared = ("--truth", truth) if truth else ()
    return (option, value, *compared, *(f"--ignore={name}" for name in ignored))


VOTES, SETS, LABELLED = (
    form(*pair) for pair in (("--votes", "by "), ("--candidates", "sets"), ("--candidates", "gold"))
)


def command(*words: str, code: int = 0, refused: str | None = None) -> Any:
    """Run a command, and check its exit code; a refusal is one line that gives the reason."""
    result = CliRunner().invoke(app, [*words])
    assert result.exit_code == (code if refused is None else 1), result.output
    if refused is not None:
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        assert refused in result.stderr
    return result


def fit(
    *options: str,
    out: str = "model.pll",
    name: str = "table.csv",
    epochs: int = 3,
    method: str | None = "robust_pll",
    **expected: Any,
) -> Any:
    """Fit quickly: by one network, unless the method is None, the default."""
    line = ("fit", name, "--out", out, f"--epochs={epochs}", "--no-baselines")
    return command(*line, *([f"--method={method}"] if method else []), *options, **expected)


def predict(*options: str, name: str = "table.csv", out: str = "out.csv", **expected: Any) -> Any:
    return command("predict", "model.pll", name, "--out", out, *options, **expected)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write(frame())
        fit(*SETS, epochs=30, method=None)
    return folder / "model.pll"


@pytest.fixture
def model(fitted: Path) -> Any:
    """model.pll, and a table of other rows."""
    shutil.copy(fitted, "model.pll")
    write(frame(40, seed=1))
    return load("model.pll")


with_model = pytest.mark.usefixtures("model")


def rows_of(path: str = "out.csv", sep: str = ",") -> pd.DataFrame:
    return pd.read_csv(path, sep=sep, dtype=str, keep_default_na=False, encoding="utf-8-sig")


# fit


@pytest.mark.parametrize(
    ("option", "value"), [("--candidates", "sets"), ("--votes", "by "), ("--indicators", "is ")]
)
def test_every_form_of_labels_gives_a_model_and_a_summary(option: str, value: str) -> None:
    table = frame()
    write(table)
    result = fit(*form(option, value, "gold"), "--seed", "5", method=None)
    y = Candidates.of([set(cell.split("|")) for cell in table["sets"]])
    features = table[FEATURES].astype({"town": "string"})
    train, test = split_rows(features, y, 0.2, 5)
    assert sorted([*train, *test]) == [*range(300)]
    model = load("model.pll")
    predicted = model.predict(features.iloc[test])
    covered = y.matrix[test, np.searchsorted(model.classes_, predicted)].mean()
    right = (predicted == table["gold"].iloc[test]).mean()
    for fact in (
        "table.csv: 300 rows, 3 features",
        "3 classes;",
        f"Auto, {model.fitted_.learners}, learned from 240 rows",
        f"held out: 60 rows, drawn at random; in {covered:.1%} of them the predicted class is a",
        f"right by the true labels: {right:.1%} of 60 held-out rows",
    ):
        assert fact in result.stdout
    assert model.classes_.tolist() == list(CLASSES)
    assert model.feature_names_in_.tolist() == FEATURES
    assert sorted(path.name for path in Path().iterdir()) == ["model.pll", "table.csv"]


def test_a_summary_has_baselines_unless_they_are_not_wanted() -> None:
    write(frame())
    line = ("fit", "table.csv", "--out", "model.pll", "--method", "pl_knn")
    options = form("--votes", "by ", "gold")
    shown, content = command(*line, *options), Path("model.pll").read_bytes()
    for title in ("Majority + random forest", "Majority + logistic regression", "PlKnn"):
        assert f"\n{title} " in shown.stdout
    assert "agreement with answers, of 120 answers in held-out rows" in shown.stdout
    assert " here: " in shown.stdout
    plain = command(*line, *options, "--no-baselines")
    assert "random forest" not in plain.stdout
    assert Path("model.pll").read_bytes() == content
    few = command(*line, *options, "--held-out", "0.05")
    assert "not compared with baselines, because fewer than 20 rows are held out" in few.stdout


def test_training_rows_that_members_held_out_are_compared_if_there_are_any() -> None:
    write(frame())
    table = read_table("table.csv", candidates="sets", truth="gold", ignore=[*OTHERS[:2], "id"])
    y = Candidates.of(table.y)
    train, test = split_rows(table.features, y, 0.2, 0)
    model = PLLClassifier("pl_knn").fit(table.features.iloc[train], y[train])
    best: Any = Opinion.of_probability(y.prior[train].astype(float))  # the first candidate
    vars(model)["held_out_"] = best
    text = models._compared(model, table, y, (train, test), seed=0, seconds=1.0)
    singles = (y[train].sizes == 1).sum()
    assert f"right in rows with one candidate, of {singles} held-out rows" in text
    (line,) = [line for line in text.splitlines() if line.startswith("PlKnn   ")]
    right = (y.classes[best.predicted()] == table.truth[train]).mean()
    assert line.split()[1:] == ["1.000", "1.000", f"{right:.3f}", "1.0"]
    model.set_params(method=Auto(early_stopping=True))  # these rows would have chosen the epoch
    text = models._compared(model, table, y, (train, test), seed=0, seconds=1.0)
    assert f" of {len(test)} held-out rows" in text


@pytest.mark.parametrize(
    ("option", "method"), [("--method=pl_knn", "pl_knn"), ("--epochs=2", Auto(epochs=2))]
)
def test_compare_prints_what_the_library_says_and_writes_nothing(option: str, method: Any) -> None:
    write(frame())
    options = form("--votes", "by ", "gold")
    result = command("compare", "table.csv", *options, option, "--seed=3", "--folds=4")
    ignored = [name for name in OTHERS if not name.startswith("by ") and name != "gold"]
    table = read_table("table.csv", votes="by ", truth="gold", ignore=ignored)
    settings: Any = {"method": method, "random_state": 3, "folds": 4, "truth": table.truth}
    expected = compare(table.features, table.y, **settings)
    lines = [line.rsplit(maxsplit=1)[0] for line in str(expected).splitlines()]  # without seconds
    shown = [line.rsplit(maxsplit=1)[0] for line in result.stdout.splitlines()]
    assert shown[1:] == lines
    assert [path.name for path in Path().iterdir()] == ["table.csv"]


def test_compare_refuses_wrong_folds_and_columns_that_clean_added() -> None:
    write(frame(40))
    command("compare", "table.csv", *VOTES, "--folds=1", refused="folds must be an int of at least")
    write(frame(40).assign(resolved_label="Öl", confidence=1.0, resolved_by="model"))
    options = (*VOTES, "--ignore", "resolved_label")
    command("compare", "table.csv", *options, refused="was added by robustpll clean")


def test_only_the_seed_changes_a_model_not_true_labels_nor_line_ends() -> None:
    table, contents = frame(100), []
    for changes, how, seed in (({}, {}, 1), ({"gold": "Öl"}, {}, 1), ({}, WINDOWS, 1), ({}, {}, 2)):
        write(table.assign(**changes), **how)
        fit(*form("--votes", "by ", "gold"), f"--seed={seed}")
        contents.append(Path("model.pll").read_bytes())
    assert contents[0] == contents[1] == contents[2] != contents[3]


def test_a_row_with_the_only_gap_or_word_or_class_is_learned_from() -> None:
    features = pd.DataFrame({"x": [0.0] * 99 + [np.nan], "town": ["Rome"] * 98 + ["Bonn"] * 2})
    y = Candidates.of([{"a"}] * 97 + [{"a", "b"}] * 3)
    for seed in range(20):
        train, test = split_rows(features, y, 0.9, seed)
        assert len(test) == 90
        for only in ({99}, {98, 99}, {97, 98, 99}):
            assert only & {*train}


def test_few_held_out_rows_give_a_model_without_decisions_or_without_a_promise() -> None:
    write(frame(60))
    for options, fact in ((("--held-out=0",), "accepts no rows"), ((), "held out: 12 rows")):
        result = fit(*VOTES, *options)
        assert fact in result.stdout
        assert load("model.pll").trial_ is None
    table = frame(290)
    write(table)
    result = fit(*LABELLED)
    assert "from 58 labelled rows: it takes 59" in result.stderr
    result = fit(*LABELLED, "--held-out", "0.21", epochs=30)
    assert result.stderr == ""
    assert load("model.pll").trial_.can_promise(0.05)
    write(table.assign(gold=np.random.default_rng(1).permutation(table["gold"])))
    result = fit(*LABELLED, "--held-out", "0.21")
    assert "0.0% of held-out rows are accepted" in result.stdout


@pytest.mark.parametrize("fault", [InputError, MemoryError, ZeroDivisionError, KeyboardInterrupt])
def test_what_fails_after_the_training_does_not_lose_the_model(
    fault: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise fault("a fault in the evaluation")

    write(frame(200))
    monkeypatch.setattr("robustpll.PLLClassifier.calibrate_decisions", fails)
    result = fit(*VOTES, code=130 if fault is KeyboardInterrupt else 1)
    assert "The model is model.pll." in result.stdout
    model = load("model.pll")
    assert (model.trial_, model.recalibration_) == (None, None)
    assert len(model.predict(frame(10)[FEATURES])) == 10


def test_bad_rows_stop_the_training_unless_they_may_be_left_out() -> None:
    table = frame(60)
    table.loc[7, "x"] = 1e300
    write(table)
    with Path("table.csv").open("a", encoding="utf-8") as file:
        file.write("1,2\n")
    result = fit(*VOTES, code=1)
    assert "line 9: column 'x': '1e+300' is infinite or beyond 3.4e+38" in result.stderr
    assert "line 62: has 2 cells" in result.stderr
    assert "pass --skip-bad-rows" in result.stderr
    assert not Path("model.pll").exists()
    fit(*VOTES, "--skip-bad-rows")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--votes", "by ", "--method", "robustpll"), "robust_pll"),
        ((*VOTES, "--method", "pl_knn"), "'epochs' for method 'pl_knn'"),
        ((*VOTES, "--network", "lenet"), ""),
        (("--candidates", "set"), "--candidates: there is no column 'set'. There is 'sets'"),
        (("--votes", "by ", "--ignore", "twon"), "There is 'town'"),
        (("--votes", "BY_"), "it must be the beginning of some of"),
        (("--votes", "by ", "--device", "tpu"), "device must be 'auto', 'cpu' or 'cuda'"),
        ((*VOTES, "--decisions", "table.csv"), "table.csv"),
        ((), None),
        (("--votes", "by ", "--candidates", "sets"), None),
        (("--votes", "by ", "--held-out", "1"), None),
        (("--votes", "by ", "--coverage", "0"), None),
        (("--votes", "by ", "--seed", "-1"), None),
    ],
)
def test_what_cannot_be_fitted_is_refused(options: tuple[str, ...], reason: str | None) -> None:
    """Without a reason, it is wrong usage."""
    write(frame())
    fit(*options, **({"code": 2} if reason is None else {"refused": reason}))
    assert not Path("model.pll").exists()


def test_empty_and_damaged_files_are_one_sentence() -> None:
    write(frame(2000), "damaged.csv.gz")
    whole = bytearray(Path("damaged.csv.gz").read_bytes())
    whole[2000:2100] = bytes(byte ^ 0x5A for byte in whole[2000:2100])
    Path("damaged.csv.gz").write_bytes(whole)
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("x,by ann\n")
    for name in ("empty.csv", "header.csv", "damaged.csv.gz"):
        assert fit("--votes", "by ", name=name, refused="").stderr.startswith(name)


def test_what_a_person_decided_is_a_single_candidate() -> None:
    table = frame(60)
    write(table)
    ignored = [name for name in OTHERS if not name.startswith("by ")]
    opened = read_table("table.csv", votes="by ", ignore=ignored)
    key = fingerprint(opened, Candidates.of(opened.y))
    row = int(np.flatnonzero(table["by ann"] != table["by bob"])[0])
    decision = f"{row + 2},{table['by bob'][row]},2026-01-01T00:00:00Z,{key}\n"
    Path("decisions.csv").write_text(f"row,decision,when,table\n{decision}", encoding="utf-8")
    result = fit(*VOTES, "--decisions", "decisions.csv", "--held-out", "0")
    assert "decided by a person: 1\n" in result.stdout
    table.loc[row, "by ann"] = table["by bob"][row]
    write(table)
    fit(*VOTES, "--held-out", "0", out="as if agreed.pll")
    assert Path("model.pll").read_bytes() == Path("as if agreed.pll").read_bytes()
    fit(*VOTES, "--decisions", "decisions.csv", refused="decided for another table")


def test_columns_that_clean_added_are_no_features() -> None:
    write(frame(60).assign(resolved_label="Öl", confidence=0.9, resolved_by="model"))
    fit(*VOTES, "--ignore", "resolved_label", refused="'confidence' was added by robustpll clean")
    ignored = (f"--ignore={name}" for name in ("resolved_label", "confidence", "resolved_by"))
    fit(*VOTES, *ignored)


def test_warnings_of_the_library_are_printed_as_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: Any, **__: Any) -> None:
        warnings.warn("It has learned little.", UserWarning, stacklevel=2)

    monkeypatch.setattr("robustpll.estimator.base.check_training", warn)
    write(frame(60))
    result = fit(*VOTES)
    assert result.stderr == "It has learned little.\n"


def test_a_table_larger_than_memory_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROBUSTPLL_HOST_BYTES", str(2**30))
    with Path("table.csv").open("wb") as file:  # 2 GB, of which the disk stores the beginning
        file.write(frame(30_000).to_csv(index=False).encode())
        file.truncate(2 * 10**9)
    monkeypatch.setattr(
        "robustpll.tables.read.read_table", lambda *_, **__: pytest.fail("the table was read")
    )
    fit("--votes", "by ", refused="too large to learn from here")


# predict


def test_each_row_has_what_the_library_says_of_it(model: Any) -> None:
    X = frame(100, seed=1)[FEATURES]
    write(X)
    result = predict()
    assert "100 rows predicted" in result.stdout
    cells = rows_of()
    assert [*cells] == ["line", *COLUMNS]
    assert cells["line"].astype(int).tolist() == [*range(2, 102)]
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


@with_model
def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    write(frame(20, seed=1))
    predict(out="whole.csv")
    for rows in (7, 1):
        monkeypatch.setattr(models, "MAX_NUMBERS", rows * NUMBERS)
        predict(out="pieces.csv")
        whole, pieces = pd.read_csv("whole.csv"), pd.read_csv("pieces.csv")
        pd.testing.assert_frame_equal(pieces, whole, atol=1e-5)


@with_model
@pytest.mark.parametrize("name", ["new.parquet", "new.tsv", "new.csv.gz", "windows.csv"])
def test_other_files_give_what_csv_gives(name: str) -> None:
    how = {"new.tsv": {"sep": "\t"}, "windows.csv": WINDOWS}.get(name, {})
    write(frame(40, seed=1), name, **how)
    predict("--keep", "id")
    predict("--keep", "id", name=name, out="other.csv")
    rows, others = rows_of(), rows_of("other.csv")
    if name == "new.parquet":
        others["line"] = (others.pop("row").astype(int) + 2).astype(str)
    pd.testing.assert_frame_equal(rows, others[[*rows]])


@with_model
def test_columns_may_be_kept_moved_and_added() -> None:
    table = frame(20)
    write(table[["z", "gold", "town", "x", "id"]].assign(colour="red"))
    predict("--keep", "id", "--keep", "gold")
    pd.testing.assert_frame_equal(rows_of()[["id", "gold"]], table[["id", "gold"]])
    assert "There is no column 'ids'. There is 'id'" in predict("--keep", "ids", code=1).stderr
    predict("--keep", "label", code=1)
    write(pd.concat([table, table[["id"]]], axis=1))  # two columns of one name
    assert "Several columns are named 'id'" in predict("--keep", "id", code=1).stderr
    predict()  # such columns may be left unused
    cells = ["carriage\rreturn", "line\nfeed", "both\r\n", 'a "quote"', "form\x0cfeed", "\u2028"]
    write(frame(len(cells)).assign(id=cells), "new.parquet")
    predict("--keep", "id", name="new.parquet")
    assert rows_of()["id"].tolist() == cells


@with_model
def test_true_labels_are_compared_and_unknown_classes_told_apart() -> None:
    table = frame(40, seed=1)
    table.loc[:9, "gold"] = "Wolf"
    table.loc[10, "gold"] = "NA"  # no value, as elsewhere in CSV files
    table.loc[11, "gold"] = None
    write(table)
    result = predict("--truth", "gold")
    rows = rows_of()
    right = (rows["label"] == table["gold"])[12:]
    accepted = (rows["decision"] == "accept")[12:]
    assert "rows with a true class that the model does not know: 10" in result.stdout
    assert f"right by the true labels: {right.mean():.1%} of 28 rows, " in result.stdout
    assert f"{right[accepted].mean():.1%} of {accepted.sum()} accepted" in result.stdout


@with_model
def test_one_cell_too_large_to_compute_with_leaves_the_other_rows_predicted() -> None:
    table, odd = frame(40), [7, 9, 11]
    table.loc[7, "x"], table.loc[9, "z"], table.loc[11, "x"] = 1e300, -1e30, np.inf
    write(table)
    result = predict(code=1)
    assert "3 rows do not parse" in result.stderr
    rows = rows_of()
    assert np.flatnonzero(rows["label"] == "").tolist() == odd
    assert rows["reason"][9] == TOO_FAR
    assert rows["reason"][[7, 11]].str.contains("is infinite or beyond 3.4e+38", regex=False).all()
    assert {*rows["decision"][odd]} == {"review"}
    write(table.drop(odd))
    predict(out="rest.csv")
    assert rows["label"].drop(odd).tolist() == rows_of("rest.csv")["label"].tolist()
    write(table.loc[[7, 8]])  # in a piece of their own
    predict("--skip-bad-rows")


def test_without_a_promise_or_calibration_all_rows_are_for_review() -> None:
    table = frame()
    write(table)
    fit(*LABELLED, epochs=30)
    calibrated = Path("model.pll").read_bytes()
    write(frame(50))
    assert "no promise" not in predict("--error", "0.1").stdout
    assert "accept" in {*rows_of()["decision"]}
    PLLClassifier(Proden(epochs=2), random_state=0).fit(table[FEATURES], table["gold"]).save(
        "model.pll"
    )
    result = predict(out="uncalibrated.csv")
    told = "no prediction sets, and all rows are for review: no 30 rows were held out"
    assert told in result.stdout
    assert "call calibrate_decisions before save" in result.stdout
    assert {*rows_of("uncalibrated.csv")["prediction_set"]} == {""}
    Path("model.pll").write_bytes(calibrated)
    result = predict("--error", "0.01")
    assert "50 rows predicted; no promise can be made: 50 (100.0%)" in result.stdout
    assert "from 60 labelled rows: it takes 299" in result.stderr
    assert result.stderr.count("\n") == 1
    for name in ("out.csv", "uncalibrated.csv"):
        facts = rows_of(name)[["decision", "reason"]].drop_duplicates()
        assert facts.to_numpy().tolist() == [["review", "no promise can be made"]]
        assert {*rows_of(name)["label"]} <= {*CLASSES}


@with_model
def test_rows_that_do_not_parse_keep_their_place_and_say_why() -> None:
    text = 'x,town,z\n1,Rome,1\nten,Rome,1\n2,Bonn\n,Bonn,3\ninf,Bonn,3\n2,"Bo\nnn",4\n2,Oslo,4\n'
    Path("table.csv").write_text(text, encoding="utf-8")
    result = predict(code=1)
    assert "4 rows do not parse" in result.stderr
    rows = rows_of().astype({"line": int}).set_index("line")
    assert [*rows.index] == [2, 3, 4, 5, 6, 7, 9]
    reasons = rows["reason"]
    assert reasons[3].startswith("column 'x': 'ten' is no")
    assert "--missing" in reasons[3]
    assert reasons[4] == "has 2 cells instead of 3"
    assert reasons[5] == "column 'x': '' is missing, and never was in training"
    assert [*rows.index[rows["label"] != ""]] == [2, 7, 9]  # a new town is no fault
    assert {*rows["decision"][rows["label"] == ""]} == {"review"}
    predict("--skip-bad-rows")


@with_model
@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("", ""),
        ("x,town,z\n", ""),
        ("x,town,z\n\n\n", ""),
        ("x,town,z\nten,Rome,1\n", "No row of the table parses (line 2: column 'x': 'ten'"),
        (
            "x,twon,z\n1,Rome,1\n",
            "There is no column 'town'. There is 'twon'",
        ),
        ("x,town,z,x\n1,Rome,1,1\n", "Several columns are named 'x'"),
        ({"town": [["Rome", "Bonn"]] * 10}, "Column 'town' holds lists"),
        ({"x": pd.date_range("2020", periods=10)}, "No row of the table parses (row 0: column 'x'"),
        ({"x": pd.to_timedelta(range(10))}, "No row of the table parses (row 0: column 'x'"),
    ],
)
def test_a_table_that_cannot_be_predicted_is_one_sentence(table: Any, reason: str) -> None:
    if isinstance(table, str):
        Path("table.csv").write_text(table, encoding="utf-8")
        predict("--skip-bad-rows", refused=reason)
    else:
        write(frame(10).assign(**table), "new.parquet")
        predict(name="new.parquet", refused=reason)
    assert [path.name for path in Path().glob("*out*")] == []


@with_model
@pytest.mark.parametrize("name", ["new.csv", "new.parquet"])
def test_words_that_training_did_not_see_are_counted_over_all_pieces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MAX_NUMBERS", 2 * NUMBERS)  # two rows at a time
    table = frame(8).astype({"town": object})
    table["town"] = ["Rome", "Oslo", None, "Oslo", "Lima", "Oslo", "Bonn", "Oslo"]
    table.loc[7, "x"] = np.inf  # does not parse, and so is not counted
    write(table, name)
    result = predict("--skip-bad-rows", name=name)
    (message,) = (line for line in result.stderr.splitlines() if "did not see" in line)
    words = "did not see ('Oslo', 'Lima') become gaps, in 4 rows of column 'town'"
    assert words in message
    write(table.assign(town=table["town"].where(table["town"].isin(["Rome", "Bonn"]))), name)
    assert "did not see" not in predict("--skip-bad-rows", name=name, out="gaps.csv").stderr
    assert rows_of()["probability"].tolist() == rows_of("gaps.csv")["probability"].tolist()
    write(table.assign(town=table["town"].str.upper()), name)
    reason = "Column 'town' holds no word that training saw: "
    predict("--skip-bad-rows", name=name, out="upper.csv", refused=reason)
    assert not Path("upper.csv").exists()


def test_how_the_first_table_was_written_is_remembered_and_can_be_said_anew() -> None:
    table, how = frame(100), {"sep": ";", "decimal": ",", "na_rep": "?"}
    write(table, **how)
    fit(*SETS, "--delimiter", ";", "--decimal", ",", "--missing", "?")
    reading = load("model.pll").notes_["reading"]
    assert (reading["delimiter"], reading["decimal"], reading["missing"]) == (";", ",", ["?"])
    assert {*reading["left_out"]} == {*OTHERS}
    predict()
    write(table)
    predict(out="other.csv", code=1)
    write(table, "points.csv", sep=";")
    advice = (
        "is not a number: correct it, or name it in --missing if it means no value; pass --decimal"
    )
    predict(name="points.csv", out="other.csv", refused=f'{advice} "." if this is its decimal sign')
    predict("--delimiter", ",", "--decimal", ".", out="other.csv")
    ours = rows_of(sep=";")  # opens in the same spreadsheet
    assert ours["probability"].str.contains(",").all()
    ours[[*MEASURES]] = ours[[*MEASURES]].replace(",", ".", regex=True)
    pd.testing.assert_frame_equal(ours, rows_of("other.csv"))
    predict("--delimiter", ",", "--decimal", ".")  # replaces its own file, of either form
    write(table, "new.parquet")
    predict(name="new.parquet", out="parquet.csv")
    assert rows_of("parquet.csv", ";")["label"].tolist() == ours["label"].tolist()


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
    table["sets"] = [
        json.dumps([renamed[name] for name in cell.split("|")]) for cell in table["sets"]
    ]
    write(table)
    fit(*SETS)
    predict()
    rows = rows_of()
    assert len(rows) == 100
    assert {*rows["label"]} <= {*written}
    for name in ("label", "prediction_set", "reason"):
        assert not rows[name].str.match(r"^[=@]|^-(?!1)").any()


@with_model
def test_files_of_others_are_not_replaced_and_this_is_told_before_anything_is_read() -> None:
    Path("folder.csv").mkdir()
    Path("thesis.txt").write_text("years of work")
    save_file({"w": np.zeros(2)}, "tensors.pll", {"format": "np"})
    others = ("id,label,probability\n1,cat,0.5\n", "line,label\n", '"never closed', "\0" * 9000)
    for number, text in enumerate(others):
        Path(f"mine{number}.csv").write_text(text)
    onnx = b"\x08\x0a\x12\x07pytorch\x1a\x052.0.0" + b"x" * 500, b"a thesis about robustpll"
    for number, content in enumerate((*onnx, Path("model.pll").read_bytes())):
        Path(f"mine{number}.onnx").write_bytes(content)
    files = [path for path in Path().iterdir() if path.is_file()]
    before = [path.read_bytes() for path in files]
    common = {
        "nowhere/out.csv": "cannot be written: there is no folder nowhere",
        "folder.csv": "is no plain file",
        "table.csv/out.csv": "cannot be written: table.csv is a file",
        "table.csv": "is an input and would be overwritten",
        "/proc/out.csv": "cannot be written",
    }
    models = dict.fromkeys(("thesis.txt", "tensors.pll"), "is not a model of robustpll")
    predictions = {f"mine{number}.csv": "is not a file of predict" for number in range(4)}
    for out, reason in (common | models).items():
        fit(*VOTES, out=out, refused=reason)
    for out, reason in (common | predictions).items():
        predict(out=out, refused=reason)
    export = ["export", "nothing.pll", "--out"]
    for number in range(3):
        command(*export, f"mine{number}.onnx", refused="not a file of export")
    predict(out="out.txt", code=2)
    predict("--error", "1", code=2)
    assert [path.read_bytes() for path in files] == before
    for _ in range(2):  # a command may replace its own files
        fit(*VOTES)
        predict("--keep", "id", "--keep", "gold")
    Path("own.onnx").write_bytes(b"\x08\x0a\x12\x09robustpll\x1a\x050.1.0")
    command(*export, "own.onnx", refused="nothing.pll")


@with_model
def test_predictions_that_someone_edited_are_not_replaced() -> None:
    predict()
    written = Path("out.csv").read_text(encoding="utf-8-sig")
    (label,) = {*rows_of()["label"][:1]}
    for edited in (written.replace(label, "zebra", 1), written + "\n", written[:-9]):
        Path("out.csv").write_text(edited, encoding="utf-8-sig")
        predict(refused="out.csv was changed since it was written")
        assert Path("out.csv").read_text(encoding="utf-8-sig") == edited
    Path("out.csv").write_text(written, encoding="utf-8-sig")
    write(frame(20, seed=2))
    predict()  # what nobody edited is replaced, also by predictions of another table
    assert len(rows_of()) == 20
    Path(".out.csv.sha256").unlink()  # as after a crash
    predict()
    assert Path(".out.csv.sha256").exists()


def test_a_damaged_model_or_one_from_elsewhere_is_told_in_a_sentence(model: Any) -> None:
    whole = Path("model.pll").read_bytes()
    PLLClassifier(Proden(epochs=1), random_state=0).fit(np.eye(4), ["a", "b"] * 2).save("array.pll")
    save_file({"w": np.zeros(2)}, "tensors.pll")
    Path("text.pll").write_bytes(b"x,town\n1,Rome\n")
    Path("cut.pll").write_bytes(whole[: len(whole) // 2])
    for name in ("nothing.pll", "text.pll", "cut.pll", "array.pll", "tensors.pll"):
        command("predict", name, "table.csv", "--out", "out.csv", refused=name)
    for notes in (
        {"sets": 3},
        {"sets": {"least": "much"}},
        {"reading": {"missing": [["?"]]}},
        {"reading": {"missing": 7}},
        {"reading": {"delimiter": 7}},
        {"reading": "with care"},
    ):
        model.notes_ = notes
        model.save("model.pll")
        predict(refused="")
    assert not Path("out.csv").exists()


def test_a_parquet_file_of_one_group_of_rows_is_not_held_whole() -> None:
    names = [*"abcdefgh"]
    numbers = np.random.default_rng(0).normal(size=(2**20, 8))
    pd.DataFrame(numbers, columns=names).to_parquet("t.parquet", row_group_size=2**20)
    table = TableInPieces(Path("t.parquet"), dict.fromkeys(names))
    before = pa.total_allocated_bytes()
    allocated, rows = 0, 0
    for piece in table.pieces():
        rows += len(piece.lines)
        allocated = max(allocated, pa.total_allocated_bytes() - before)
    assert rows == 2**20
    assert allocated < Path("t.parquet").stat().st_size / 2


def test_a_schema_reads_numbers_that_parquet_has_as_text() -> None:
    pd.DataFrame({"x": ["1.5", "?", "ten"], "code": [1.0, np.nan, 2.0]}).to_parquet("t.parquet")
    words = {"x": None, "code": ("1", "2")}
    table = TableInPieces(Path("t.parquet"), words, {"x"}, requested=Reading(missing=("?",)))
    (piece,) = table.pieces()
    assert piece.features["x"].isna().tolist() == [False, True]
    assert piece.features["code"].astype(object).fillna("").tolist() == ["1", ""]
    assert [(row.line, row.value) for row in piece.bad] == [(2, "ten")]


def test_a_checkpoint_is_begun_resumed_and_not_replaced() -> None:
    write(frame())
    state = ("--checkpoint", "state")
    fit(*SETS, *state, "--resume")  # nothing to go on from
    first = Path("model.pll").read_bytes()
    fit(*SETS, *state, refused="state has a checkpoint already")
    fit(*SETS, *state, "--resume", epochs=4, refused="epochs (3, now 4)")
    assert Path("model.pll").read_bytes() == first
    fit(*SETS, *state, "--resume", out="again.pll")
    assert Path("again.pll").read_bytes() == first
    fit(*SETS, "--resume", refused="--resume needs the folder")
