"""`robustpll clean`, as someone with a table runs it."""

import csv
import io
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll.clean import run as clean_module
from robustpll.clean.decisions_file import fingerprint
from robustpll.cli import app
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import read_table
from robustpll.tables.source import CsvFile

RECORD = ".robustpll-clean.json"
FILES = (
    "annotators.csv",
    "candidates_that_look_wrong.csv",
    "confused_pairs.csv",
    "review.html",
    "rows_for_review.csv",
    "sets_that_miss_the_truth.csv",
    "table.csv",
    "twins.csv",
)
FORM = ("--votes", "by ", "--truth", "gold", "--ignore", "name")
HEAD = "row,decision,when,table\n"
Run = Callable[..., Any]


def decided(path: Path, *lines: str, key: str | None = None) -> str:
    """Write a file of decisions for the table, and return its path."""
    if key is None:
        table = read_table(path, votes="by ", truth="gold", ignore="name")
        key = fingerprint(table, Candidates.of(table.y))
    file = path.parent / "decisions.csv"
    file.write_text(HEAD + "".join(f"{line},{key}\n" for line in lines), encoding="utf-8")
    return str(file)


def rows_of(path: Path, delimiter: str = ",") -> list[list[str]]:
    text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
    return list(csv.reader(text, delimiter=delimiter))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != RECORD}


def refused(result: Any, reason: str) -> None:
    """It ends with exit code 1 and one line that gives the reason."""
    assert result.exit_code == 1, result.output
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_folder_has_the_table_its_labels_and_all_findings(cleaned: tuple[Path, Any]) -> None:
    pets, result = cleaned
    assert result.exit_code == 0, result.output
    out = pets.parent / "out"
    assert sorted(file.name for file in out.iterdir()) == [RECORD, *FILES]
    before, after = rows_of(pets), rows_of(out / "table.csv")
    assert [row[: len(before[0])] for row in after] == before  # every cell is unchanged
    table = pd.read_csv(out / "table.csv")
    assert (table["resolved_label"] == table["gold"]).mean() > 0.95
    assert set(table["resolved_by"].fillna("")) <= {"model", ""}
    assert "120 rows, 3 classes" in result.stdout
    assert "by the true labels these are right" in result.stdout


def test_the_best_annotator_comes_first(cleaned: tuple[Path, Any]) -> None:
    ranked = pd.read_csv(cleaned[0].parent / "out" / "annotators.csv")
    assert ranked["annotator"].tolist() == ["ada", "bob", "zoe"]
    assert ((ranked["low"] <= ranked["agreement"]) & (ranked["agreement"] <= ranked["high"])).all()


def test_the_summary_and_the_page_say_what_the_expected_errors_assume(
    cleaned: tuple[Path, Any],
) -> None:
    pets, result = cleaned
    page = (pets.parent / "out" / "review.html").read_text(encoding="utf-8")
    suspects = len(pd.read_csv(pets.parent / "out" / "sets_that_miss_the_truth.csv"))
    for text in (result.stdout, page):
        assert "assumes that at most 5% of the sets miss the true class" in text
        assert f"In {suspects:,} rows ({suspects / 120:.1%}) the model predicts" in text
    help_text = CliRunner().invoke(app, ["clean", "--help"]).stdout.replace("│", " ")
    assert "if at most 5% of the sets miss the true class" in " ".join(help_text.split())


def test_no_file_holds_formulas_that_a_spreadsheet_would_compute(pets: Path, run: Run) -> None:
    text = pets.read_text().replace("bee", "=1+1").replace("name", "+name").replace("pet 3", "@pet")
    pets.write_text(text)
    assert run(pets, *FORM[:-1], "+name", "--wrong", "1e-6").exit_code == 0
    out = pets.parent / "out"
    assert set(pd.read_csv(out / "table.csv")["resolved_label"]) == {"ant", "'=1+1", "cow"}
    named = 0
    for path in out.glob("*.csv"):
        cells = pd.Series([cell for row in rows_of(path) for cell in row])
        words = cells[pd.to_numeric(cells, errors="coerce").isna()]
        assert not words.str.startswith(("=", "+", "-", "@")).any(), path.name
        named += "'=1+1" in set(words)
    assert named >= 4


def test_numbers_and_words_for_no_value_are_read_back_from_the_table(
    tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "numbers.csv"
    sizes = ["-1,5", "-", "-none-", "+2", "-3e-2", "-1.000,5"]
    rows = [f"{sizes[row % 6]};{row % 2 - 1};{'ant' if row % 2 else '-bee'}" for row in range(60)]
    path.write_text("\n".join(["size;x;by ann", *rows]))
    form = ("--votes", "by ", "--delimiter", ";", "--decimal", ",", "--ignore", "size")
    result = run(path, *form, "--missing", "-none-", "--missing", "-")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "out" / "table.csv", sep=";", dtype=str, keep_default_na=False)
    assert table["size"].tolist() == [sizes[row % 6] for row in range(60)]
    assert table["x"].tolist() == [str(row % 2 - 1) for row in range(60)]
    assert set(table["by ann"]) == {"ant", "'-bee"}


def test_cells_with_line_ends_of_any_kind_stay_cells(pets: Path, run: Run) -> None:
    text = pets.read_text().replace("bee", '"b\ree"').replace("pet 3,", '"pet\r\n3",')
    pets.write_bytes(text.encode())
    assert run(pets, *FORM, "--wrong", "1e-6").exit_code == 0
    out = pets.parent / "out"
    added = ("resolved_label", "confidence", "resolved_by")
    again = read_table(out / "table.csv", votes="by ", truth="gold", ignore=("name", *added))
    assert len(again) == 120
    assert Candidates.of(again.y).classes.tolist() == ["ant", "b\ree", "cow"]
    for path in out.glob("*.csv"):
        assert len({len(row) for row in rows_of(path)}) == 1, path.name


def test_the_table_is_read_once_more_to_write_it_and_to_show_its_rows(
    pets: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    count, records = [0], CsvFile.records

    def counted(file: CsvFile) -> Any:
        count[0] += 1
        return records(file)

    monkeypatch.setattr(CsvFile, "records", counted)
    read_table(pets, votes="by ", truth="gold", ignore="name")
    before = count[0]
    assert run(pets, *FORM[:-2], "--images", "name", "--wrong", "1e-6").exit_code == 0
    assert count[0] == 2 * before + 1


def test_a_table_that_changes_meanwhile_gets_no_labels(
    pets: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    judge = clean_module.judge

    def judge_late(*arguments: Any, **options: Any) -> Any:
        lines = pets.read_text().splitlines()
        pets.write_text("\n".join([lines[0], *lines[2:]]))
        return judge(*arguments, **options)

    monkeypatch.setattr(clean_module, "judge", judge_late)
    refused(run(pets, *FORM), "was changed while its labels were resolved")
    assert not (pets.parent / "out" / "table.csv").exists()


def test_decided_rows_have_one_candidate_and_are_not_asked_again(pets: Path, run: Run) -> None:
    """The latest decision counts; a byte order mark and Windows line ends are accepted."""
    run(pets, *FORM, "--wrong", "0.001")
    first = pd.read_csv(pets.parent / "out" / "rows_for_review.csv")
    asked = int(first["row"][0])
    wrong, other = ("cow", "ant") if first["resolved_label"][0] != "cow" else ("ant", "cow")
    lines = (f"{asked},{wrong},2026-01-02T00:00:00Z", f"{asked},{other},2026-01-01T00:00:00Z")
    file = Path(decided(pets, *lines))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    result = run(pets, *FORM, "--wrong", "0.001", "--decisions", str(file), out="again")
    assert result.exit_code == 0, result.output
    assert "decided by a person: 1\n" in result.stdout
    table = pd.read_csv(pets.parent / "again" / "table.csv")
    row = table.loc[asked - 2]  # line 2 is the first row
    assert (row["resolved_label"], row["confidence"], row["resolved_by"]) == (wrong, 1, "person")
    again = pd.read_csv(pets.parent / "again" / "rows_for_review.csv")
    assert asked not in again["row"].tolist()


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("2,emu,now", None, "there is no class 'emu' in the table"),
        ("1,ant,now", None, "there is no row '1' in the table"),
        ("2,ant,now", "0123456789abcdef", "decided for another table"),
        ("2,ant", None, "the line must have 4 cells"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    pets: Path, line: str, key: str | None, reason: str, run: Run
) -> None:
    refused(run(pets, *FORM, "--decisions", decided(pets, line, key=key)), reason)


def test_a_file_without_decisions_is_refused(pets: Path, run: Run) -> None:
    missing = str(pets.parent / "nothing.csv")
    refused(run(pets, *FORM, "--decisions", str(pets)), "has no column 'row', but 'name', 'size'")
    refused(run(pets, *FORM, "--decisions", missing), "cannot be read (No such file or directory)")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--votes", "by ", "--truth", "gould", "--ignore", "name"), "There is 'gold'"),
        (("--candidates", "by adam", "--ignore", "name"), "There is 'by ada'"),
        ((*FORM, "--images", "nane"), "--images: there is no column 'nane'. There is 'name'"),
        ((*FORM, "--images-root", "."), "--images-root must be the folder of the pictures"),
        ((*FORM, "--method", "pl_nn"), "method must be"),
        ((*FORM, "--epochs", "3"), "Invalid parameter 'epochs'"),
        ((*FORM, "--folds", "1"), "folds must be an int of at least 2"),
        ((*FORM, "--most", "0"), "most must be an int of at least 1"),
        ((*FORM, "--out", __file__), "out must be a writable folder"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    pets: Path, options: tuple[str, ...], reason: str, run: Run
) -> None:
    refused(run(pets, *options), reason)


def test_without_candidates_or_with_an_odd_share_it_is_wrong_usage(pets: Path, run: Run) -> None:
    assert run(pets, "--ignore", "name").exit_code == 2
    assert run(pets, *FORM, "--wrong", "0").exit_code == 2


def test_the_table_itself_is_never_written_over(pets: Path, run: Run) -> None:
    path = pets.rename(pets.parent / "table.csv")
    before = path.read_bytes()
    refused(run(path, *FORM, out="."), "is the table itself")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("name", ["annotators.csv", "rows_for_review.csv", "review.html"])
def test_a_file_of_somebody_else_is_refused_before_anything_is_learned(
    pets: Path, name: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(clean_module, "judge", lambda *_, **__: pytest.fail("it was learned"))
    (pets.parent / name).write_text("mine")
    refused(run(pets, *FORM, out="."), f"holds {name}, not written by robustpll clean")
    assert (pets.parent / name).read_text() == "mine"


def test_the_same_folder_takes_the_next_run_but_not_over_what_was_edited(
    pets: Path, run: Run
) -> None:
    assert run(pets, *FORM).exit_code == 0
    edited = pets.parent / "out" / "twins.csv"
    edited.write_text(edited.read_text() + "# to ask Ada\n")
    refused(run(pets, *FORM), "holds twins.csv, not written by robustpll clean or changed since")
    assert edited.read_text().endswith("# to ask Ada\n")
    edited.unlink()
    assert run(pets, *FORM).exit_code == 0


def test_labels_may_be_numbers_with_gaps_and_rows_without_answers(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "numbers.csv"
    lines = [f"{row % 3}.{row},{row % 3},{'' if row % 2 else row % 3}" for row in range(60)]
    path.write_text("\r\n".join(["x,by 1,by 2", *lines, "1.5,,"]), encoding="utf-8")
    result = run(path, "--votes", "by ", "--unanswered", "all classes", "--wrong", "1e-9")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert table["resolved_label"][:60].tolist() == [row % 3 for row in range(60)]
    assert pd.read_csv(tmp_path / "out" / "annotators.csv")["answers"].tolist() == [60, 30]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(pets: Path, run: Run) -> None:
    (pets.parent / "out").mkdir(mode=0o500)
    refused(run(pets, *FORM), "out must be a writable folder")


def test_a_table_that_was_cleaned_before_is_not_taken_for_a_fresh_one(
    cleaned: tuple[Path, Any], tmp_path: Path, run: Run
) -> None:
    labelled = cleaned[0].parent / "out" / "table.csv"
    added = [f"--ignore={name}" for name in ("resolved_label", "confidence", "resolved_by")]
    refused(run(labelled, *FORM, *added, out=tmp_path), "has a column 'resolved_label' already")


@pytest.mark.parametrize("content", [b"", b"x,by ann\n", b"\x93\x01{\x00" * 99, None])
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, content: bytes | None, run: Run
) -> None:
    path = tmp_path / "table" / "empty.csv"
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    refused(run(path, "--votes", "by "), "empty.csv")
    assert [*path.parent.iterdir()] == [path]


def test_a_table_larger_than_memory_is_refused_rather_than_killed(
    pets: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("ROBUSTPLL_HOST_BYTES", str(2**30))
    with pets.open("ab") as file:  # 2 GB, of which the disk stores the beginning
        file.write(pets.read_bytes().split(b"\n", 1)[1] * 300)
        file.truncate(2 * 10**9)
    refused(run(pets, *FORM), "too large to learn from here")
    assert not (pets.parent / "out").exists()


def test_a_table_of_a_german_spreadsheet_stays_one(tmp_path: Path, run: Run) -> None:
    """A byte order mark, semicolons, decimal commas, Windows line ends, and names of all kinds."""
    names = ("Käse; alt", 'Öl "extra"', "油")
    rows = [[f"{row % 3},{row:02}", names[row % 3], names[row % 3]] for row in range(60)]
    rows[7] = [rows[7][0], names[0], names[2]]
    path = tmp_path / "Käse.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("Größe", "von Zoë", "von 李"), *rows])
    result = run(path, "--votes", "von ", "--delimiter", ";", "--decimal", ",")
    assert result.exit_code == 0, result.output
    written = rows_of(tmp_path / "out" / "table.csv", ";")[1:]
    assert [row[:3] for row in written] == rows
    assert [row[3] for row in written[:6]] == [*names, *names]
    assert all("," in row[4] for row in written)  # confidence, as a number of this table
    assert {row[0] for row in rows_of(tmp_path / "out" / "annotators.csv")[1:]} == {"Zoë", "李"}
    assert names[2] in (tmp_path / "out" / "review.html").read_text(encoding="utf-8")


def test_parquet_stays_parquet_and_gets_the_same_labels(
    cleaned: tuple[Path, Any], tmp_path: Path, run: Run
) -> None:
    before = pd.read_csv(cleaned[0])
    path = tmp_path / "pets.parquet"
    before.set_index(np.arange(7, 127)).to_parquet(path)  # pandas adds a column for the index
    assert run(path, *FORM).exit_code == 0
    table = pd.read_parquet(tmp_path / "out" / "table.parquet")
    assert table[before.columns].to_numpy().tolist() == before.to_numpy().tolist()
    other = pd.read_csv(cleaned[0].parent / "out" / "table.csv")
    assert table["resolved_label"].tolist() == other["resolved_label"].tolist()


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
    decisions = ("--decisions", decided(pets, "2,cow,2026-01-01T00:00:00Z"))
    assert run(pets, *FORM, "--wrong", "0.001").exit_code == 0
    assert run(pets, *FORM, "--wrong", "0.001", *decisions, out="new").exit_code == 0
    out = pets.parent / "out"
    old, new = contents(out), contents(pets.parent / "new")
    line = ["clean", str(pets), *FORM, "--method", "pl_knn", "--wrong", "0.001", *decisions]
    command = [sys.executable, "-c", STOPPED, str(sync), *line, "--out", str(out)]
    assert subprocess.run(command, check=False).returncode == -9
    now = {name: (out / name).read_bytes() for name in old}
    assert all(now[name] in (old[name], new[name]) for name in old)
    changed = sum(now[name] != old[name] for name in old)
    assert changed < sum(new[name] != old[name] for name in old)
    result = run(pets, *FORM, "--wrong", "0.001", *decisions)
    assert result.exit_code == 0, result.output
    assert {name: (out / name).read_bytes() for name in old} == new


def test_a_full_disk_is_reported_in_one_line(pets: Path, run: Run) -> None:
    assert run(pets, *FORM).exit_code == 0
    old, before = contents(pets.parent / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
        result = run(pets, *FORM)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused(result, "cannot be")
    assert contents(pets.parent / "out") == old
    assert run(pets, *FORM).exit_code == 0
