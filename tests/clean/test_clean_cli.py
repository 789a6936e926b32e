"""`robustpll clean`, as someone with a table runs it."""

import csv
import html
import io
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustpll.clean import run as clean_module
from robustpll.clean.decisions_file import fingerprint
from robustpll.clean.review import FINDINGS
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import read_table

RECORD = ".robustpll-clean.json"
FILES = {"review.html", "rows_for_review.csv", "table.csv"}
FILES |= {f"{search.__name__}.csv" for search in FINDINGS}
Run = Callable[..., Any]


def decided(path: Path, *lines: str) -> str:
    """Write a file of decisions for the table, and return its path."""
    table = read_table(path, votes="by ", truth="gold", ignore="name")
    key = fingerprint(table, Candidates.of(table.y))
    file = path.parent / "decisions.csv"
    rows = ["row,decision,when,table", *(f"{line},{key}" for line in lines)]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode())  # as a spreadsheet saves it
    return str(file)


def rows_of(path: Path, delimiter: str = ",") -> list[list[str]]:
    text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
    return list(csv.reader(text, delimiter=delimiter))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != RECORD}


def succeeded(result: Any) -> None:
    assert result.exit_code == 0, result.output


def refused(result: Any, reason: str) -> None:
    """It ends with exit code 1 and one line that gives the reason."""
    assert result.exit_code == 1, result.output
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_model_is_compared_with_baselines_unless_they_are_not_wanted(
    pets: Path, run: Run
) -> None:
    result = run(pets, baselines=True)
    assert result.exit_code == 0, result.output
    for title in ("Majority + random forest", "Majority + logistic regression", "PlKnn"):
        assert f"\n{title} " in result.stdout
    assert "agreement with answers, of " in result.stdout
    assert "random forest" not in run(pets).stdout


def test_the_default_method_resolves_the_labels(pets: Path, run: Run) -> None:
    result = run(pets, "--epochs=5", method=None, baselines=True)
    succeeded(result)
    assert "\nAuto " in result.stdout
    table = pd.read_csv(pets.parent / "out" / "table.csv")
    assert (table["resolved_label"] == table["gold"]).mean() > 0.95


def test_the_folder_has_the_table_its_labels_and_all_findings(cleaned: tuple[Path, Any]) -> None:
    pets, result = cleaned
    succeeded(result)
    out = pets.parent / "out"
    assert {file.name for file in out.iterdir()} == {RECORD, *FILES}
    before, after = rows_of(pets), rows_of(out / "table.csv")
    assert [row[: len(before[0])] for row in after] == before  # every cell is unchanged
    table = pd.read_csv(out / "table.csv")
    assert (table["resolved_label"] == table["gold"]).mean() > 0.95
    assert set(table["resolved_by"].fillna("")) <= {"model", ""}
    ranked = pd.read_csv(out / "annotators.csv")
    assert ranked["annotator"].tolist() == ["ada", "bob", "zoe"]  # the best one comes first
    assert "120 rows, 3 classes" in result.stdout
    assert "right by the true labels" in result.stdout
    assert ranked["reliability"].between(0.5, 1).all()
    assert ranked["most_confused"][1:].str.contains(" taken for ").all()
    assert "3 annotators, right in " in result.stdout
    assert re.search(r"Fleiss' kappa 0\.\d+, Krippendorff's alpha 0\.\d+", result.stdout)
    page = (out / "review.html").read_text(encoding="utf-8")
    for text in (result.stdout, html.unescape(page)):
        assert "It estimates that nobody named the true class of" in text
        assert "no promise" not in text


def test_one_annotator_agrees_with_nobody(pets: Path, run: Run) -> None:
    others = ("--ignore", "by bob", "--ignore", "by zoe", "--ignore", "gold", "--ignore", "name")
    result = run(pets, form=("--votes", "by a", "--skip-bad-rows", *others))
    succeeded(result)
    assert re.search(r"\n1 annotator, right in \d+% of the answers", result.stdout)
    assert "kappa" not in result.stdout
    assert "annotators.csv: annotators (1)\n" in result.stdout


def test_someone_without_answers_has_no_reliability_and_does_not_count(
    pets: Path, run: Run
) -> None:
    frame = pd.read_csv(pets)
    frame.assign(**{"by new": None}).to_csv(pets, index=False)
    result = run(pets)
    succeeded(result)
    assert "3 annotators, right in " in result.stdout
    table = pd.read_csv(pets.parent / "out" / "annotators.csv").set_index("annotator")
    assert table.loc["new", "answers"] == 0
    assert table["reliability"].isna().tolist() == (table["answers"] == 0).tolist()


def test_the_summary_says_how_many_questions_a_laxer_promise_saves(pets: Path, run: Run) -> None:
    strict, lax = run(pets, "--wrong", "1e-6"), run(pets, "--wrong", "0.05", out="lax")
    succeeded(strict)
    left = re.search(r"--wrong 0.05 would leave (\d+) of (\d+) rows", strict.stdout)
    assert left is not None
    asked = [pd.read_csv(pets.parent / out / "rows_for_review.csv") for out in ("lax", "out")]
    assert [int(count) for count in left.groups()] == [len(frame) for frame in asked]
    assert "would leave" not in lax.stdout
    assert ("in a browser" in lax.stdout) == (len(asked[0]) > 0)


def test_a_table_without_features_is_refused_with_a_remedy(pets: Path, run: Run) -> None:
    frame = pd.read_csv(pets)
    frame.drop(columns=["size", "legs"]).to_csv(pets, index=False)
    result = run(pets)
    assert result.exit_code == 1
    assert "no column is left to learn from" in result.stderr
    assert "--image-input" in result.stderr


def test_decided_rows_tell_how_reliable_annotators_are(pets: Path, run: Run) -> None:
    frame = pd.read_csv(pets)
    moment = "2026-11-15T10:00:00.000Z"
    lines = [f"{row + 2},{label},{moment}" for row, label in enumerate(frame["gold"])]
    result = run(pets, "--decisions", decided(pets, *lines))
    succeeded(result)
    assert "no promise" not in result.stdout
    people = pd.read_csv(pets.parent / "out" / "annotators.csv").set_index("annotator")
    right = {
        name: (frame[f"by {name}"] == frame["gold"])[frame[f"by {name}"].notna()].mean()
        for name in people.index
    }
    for name, share in right.items():
        assert people.loc[name, "reliability"] == pytest.approx(share, abs=0.1)


def test_a_promise_says_what_it_rests_on(pets: Path, run: Run) -> None:
    about = ("--truth", "gold", "--ignore", "name")
    others = ("--ignore", "by bob", "--ignore", "by zoe")
    one = run(pets, form=("--votes", "by a", *about, *others))
    succeeded(one)
    assert "This is no promise: fewer than 30 rows have two answers" in one.stdout
    frame = pd.read_csv(pets)
    answers = frame.filter(like="by ")
    frame["set"] = ["|".join(sorted(set(row.dropna()))) for _, row in answers.iterrows()]
    frame.drop(columns=answers.columns).to_csv(pets, index=False)
    sets = run(pets, form=("--candidates", "set", *about))
    succeeded(sets)
    assert "assumes that at most 5% of the sets miss the true class" in sets.stdout


def test_no_file_holds_formulas_and_cells_with_line_ends_stay_cells(pets: Path, run: Run) -> None:
    """A class is named like a formula; names and cells hold line ends of all kinds."""
    text = pets.read_text().replace("bee", '"=1+\r1"').replace("name", "+name")
    pets.write_bytes(text.replace("pet 3,", '"@pet\r\n3",').encode())
    form = ("--votes", "by ", "--truth", "gold", "--ignore", "+name")
    succeeded(run(pets, "--wrong", "1e-6", form=form))
    out, files_with_name = pets.parent / "out", 0
    for path in out.glob("*.csv"):
        rows = rows_of(path)
        assert len({len(row) for row in rows}) == 1, path.name
        cells = pd.Series([cell for row in rows for cell in row])
        words = cells[pd.to_numeric(cells, errors="coerce").isna()]
        assert not words.str.startswith(("=", "+", "-", "@")).any(), path.name
        files_with_name += "'=1+\r1" in set(words)
    assert files_with_name >= 4
    added = ("resolved_label", "confidence", "resolved_by")
    again = read_table(out / "table.csv", votes="by ", truth="gold", ignore=("'+name", *added))
    assert len(again) == 120
    assert Candidates.of(again.y).classes.tolist() == ["'=1+\r1", "ant", "cow"]


def test_a_table_of_a_german_spreadsheet_stays_one(tmp_path: Path, run: Run) -> None:
    """Byte order mark, semicolons, decimal commas, words for no value, names of all kinds."""
    names = ("Käse; alt", 'Öl "extra"', "-油")
    sizes = ["-1,5", "-", "-none-", "+2", "-3e-2", "-1.000,5"]
    rows = [[sizes[row % 6], f"{row % 3},{row:02}", *[names[row % 3]] * 2] for row in range(60)]
    rows[7][3] = names[2]
    path = tmp_path / "Käse.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("Größe", "x", "von Zoë", "von 李"), *rows])
    form = ("--votes", "von ", "--delimiter", ";", "--decimal", ",", "--ignore", "Größe")
    succeeded(run(path, "--missing", "-none-", "--missing", "-", form=form))
    written = rows_of(tmp_path / "out" / "table.csv", ";")[1:]
    assert [[cell.removeprefix("'") for cell in row[:4]] for row in written] == rows
    assert [row[0] for row in written] == [row[0] for row in rows]  # numbers, not formulas
    assert [row[4] for row in written[:3]] == [*names[:2], "'-油"]
    assert all("," in row[5] for row in written)  # confidence, as a number of this table
    people = rows_of(tmp_path / "out" / "annotators.csv", ";")  # opens in the same spreadsheet
    assert {row[0] for row in people[1:]} == {"Zoë", "李"}
    assert all("," in row[people[0].index("low")] for row in people[1:])
    assert names[2] in (tmp_path / "out" / "review.html").read_text(encoding="utf-8")


def test_labels_may_be_numbers_with_gaps_and_rows_without_answers(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "numbers.csv"
    lines = [f"{row % 3}.{row},{row % 3},{'' if row % 2 else row % 3}" for row in range(60)]
    path.write_text("\r\n".join(["x,by 1,by 2", *lines, "1.5,,"]), encoding="utf-8")
    form = ("--votes", "by ", "--unanswered", "all classes")
    succeeded(run(path, "--wrong", "1e-9", form=form))
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert table["resolved_label"][:60].tolist() == [row % 3 for row in range(60)]
    assert pd.read_csv(tmp_path / "out" / "annotators.csv")["answers"].tolist() == [60, 30]


def test_parquet_stays_parquet_and_gets_the_same_labels(
    cleaned: tuple[Path, Any], tmp_path: Path, run: Run
) -> None:
    before = pd.read_csv(cleaned[0])
    path = tmp_path / "pets.parquet"
    before.set_index(np.arange(7, 127)).to_parquet(path)  # pandas adds a column for the index
    succeeded(run(path))
    table = pd.read_parquet(tmp_path / "out" / "table.parquet")
    assert table[before.columns].to_numpy().tolist() == before.to_numpy().tolist()
    other = pd.read_csv(cleaned[0].parent / "out" / "table.csv")
    assert table["resolved_label"].tolist() == other["resolved_label"].tolist()


def test_the_table_is_read_once(pets: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """If it changes while labels are resolved, they belong to the rows that were read."""
    before, judge = rows_of(pets), clean_module.judge

    def judge_late(*arguments: Any, **options: Any) -> Any:
        pets.write_text("nothing")
        return judge(*arguments, **options)

    monkeypatch.setattr(clean_module, "judge", judge_late)
    succeeded(run(pets))
    after = rows_of(pets.parent / "out" / "table.csv")
    assert [row[: len(before[0])] for row in after] == before


def test_decided_rows_have_one_candidate_and_are_not_asked_again(pets: Path, run: Run) -> None:
    run(pets, "--wrong", "0.001")
    first = pd.read_csv(pets.parent / "out" / "rows_for_review.csv")
    asked = int(first["row"][0])
    wrong, other = ("cow", "ant") if first["resolved_label"][0] != "cow" else ("ant", "cow")
    lines = (f"{asked},{wrong},2026-01-02T00:00:00Z", f"{asked},{other},2026-01-01T00:00:00Z")
    result = run(pets, "--wrong", "0.001", "--decisions", decided(pets, *lines), out="again")
    succeeded(result)
    assert "decided by a person: 1; " in result.stdout
    row = pd.read_csv(pets.parent / "again" / "table.csv").loc[asked - 2]  # line 2 is the first row
    assert (row["resolved_label"], row["confidence"], row["resolved_by"]) == (wrong, 1, "person")
    again = pd.read_csv(pets.parent / "again" / "rows_for_review.csv")
    assert asked not in again["row"].tolist()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--truth", "gould"), "There is 'gold'"),
        (("--images", "nane"), "there is no column 'nane'. There is 'name'"),
        (("--images-root", "."), "--images-root must be the folder of the pictures"),
        (("--method", "pl_nn"), "method must be"),
        (("--epochs", "3"), "Invalid parameter 'epochs'"),
        (("--folds", "1"), "folds must be an int of at least 2"),
        (("--out", __file__), "out must be a writable folder"),
        (("--decisions", __file__), "cannot be read"),
        (("--decisions", "nothing.csv"), "there is no file nothing.csv"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    pets: Path, options: tuple[str, ...], reason: str, run: Run
) -> None:
    refused(run(pets, *options), reason)


@pytest.mark.parametrize("option", ["--wrong", "--most"])
def test_zero_is_wrong_usage(pets: Path, option: str, run: Run) -> None:
    assert run(pets, option, "0").exit_code == 2


def test_the_table_itself_is_never_written_over(pets: Path, run: Run) -> None:
    path = pets.rename(pets.parent / "table.csv")
    before = path.read_bytes()
    refused(run(path, out="."), "holds table.csv, not written by robustpll clean")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["table.csv"]


def test_only_own_files_are_replaced_and_others_refused_before_anything_is_learned(
    pets: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    succeeded(run(pets))
    succeeded(run(pets))
    edited = pets.parent / "out" / "twins.csv"
    edited.write_text("# to ask Ada\n")
    (pets.parent / "review.html").write_text("mine")
    monkeypatch.setattr(clean_module, "judge", lambda *_, **__: pytest.fail("it was learned"))
    refused(run(pets), "holds twins.csv, not written by robustpll clean or changed since")
    refused(run(pets, out="."), "holds review.html, not written by robustpll clean")
    assert edited.read_text() == "# to ask Ada\n"


def test_a_table_that_was_cleaned_before_and_an_empty_one_are_refused(
    cleaned: tuple[Path, Any], tmp_path: Path, run: Run
) -> None:
    labelled = cleaned[0].parent / "out" / "table.csv"
    added = [f"--ignore={name}" for name in ("resolved_label", "confidence", "resolved_by")]
    refused(run(labelled, *added, out=tmp_path), "has a column 'resolved_label' already")
    empty = tmp_path / "empty.csv"
    empty.write_text("x,by ann\n")
    refused(run(empty, form=("--votes", "by ")), "empty.csv")
    assert [*tmp_path.iterdir()] == [empty]


STOPPED = """
import os, sys
from robustpll.cli import app
left, sync = int(sys.argv.pop(1)), os.fsync
def stopped(handle):
    global left
    left -= 1
    if left == 0:
        os.ftruncate(handle, os.fstat(handle).st_size // 2)  # half of it is on the disk
        os.kill(os.getpid(), 9)
    sync(handle)
os.fsync = stopped
app()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sync", [1, 7, 16])
def test_a_killed_run_leaves_each_file_old_or_new_and_can_be_run_again(
    pets: Path, sync: int, run: Run
) -> None:
    options = ("--wrong", "0.001", "--decisions", decided(pets, "2,cow,2026-01-01T00:00:00Z"))
    succeeded(run(pets, *options[:2]))
    succeeded(run(pets, *options, out="new"))
    out = pets.parent / "out"
    old, new = contents(out), contents(pets.parent / "new")
    form = ("--votes", "by ", "--truth", "gold", "--ignore", "name", "--method", "pl_knn")
    command = ["clean", str(pets), *form, *options, "--out", str(out)]
    killed = subprocess.run([sys.executable, "-c", STOPPED, str(sync), *command], check=False)
    assert killed.returncode == -9
    now = {name: (out / name).read_bytes() for name in old}
    assert all(now[name] in (old[name], new[name]) for name in old)
    changed = sum(now[name] != old[name] for name in old)
    assert changed < sum(new[name] != old[name] for name in old)
    succeeded(run(pets, *options))
    assert {name: (out / name).read_bytes() for name in old} == new


def test_a_full_disk_is_reported_in_one_line(pets: Path, run: Run) -> None:
    succeeded(run(pets))
    old, before = contents(pets.parent / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
        result = run(pets)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused(result, "cannot be")
    assert contents(pets.parent / "out") == old
    succeeded(run(pets))
