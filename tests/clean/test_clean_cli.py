"""`robustpll clean`, as someone with a table runs it."""

import csv
import io
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from robustpll import PLLClassifier
from robustpll.clean.decisions_file import fingerprint
from robustpll.cli import app
from robustpll.labels.candidates import Candidates
from robustpll.tables.read import read_table
from robustpll.tables.source import CsvFile

RECORD = ".robustpll-clean.json"
FORM = ("--votes", "by ", "--truth", "gold", "--ignore", "name")
HEAD = "row,decision,when,table\n"


def run(path: Path, *options: str, out: str = "out") -> Any:
    quick = ("--method", "pl_knn", "--out", str(path.parent / out))
    return CliRunner().invoke(app, ["clean", str(path), *options, *quick])


def key_of(path: Path) -> str:
    table = read_table(path, votes="by ", truth="gold", ignore="name")
    return fingerprint(table, Candidates.of(table.y))


def decided(path: Path, *lines: str, key: str | None = None) -> str:
    file = path.parent / "decisions.csv"
    key = key_of(path) if key is None else key
    file.write_text(HEAD + "".join(f"{line},{key}\n" for line in lines), encoding="utf-8")
    return str(file)


def test_the_folder_has_the_table_its_labels_and_all_findings(pets: Path) -> None:
    result = run(pets, *FORM)
    assert result.exit_code == 0, result.output
    out = pets.parent / "out"
    assert sorted(file.name for file in out.iterdir()) == [
        ".robustpll-clean.json",
        "annotators.csv",
        "candidates_that_look_wrong.csv",
        "confused_pairs.csv",
        "review.html",
        "rows_for_review.csv",
        "sets_that_miss_the_truth.csv",
        "table.csv",
        "twins.csv",
    ]
    before, after = (
        list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines()))
        for file in (pets, out / "table.csv")
    )
    assert [row[: len(before[0])] for row in after] == before  # every cell as it was
    table = pd.read_csv(out / "table.csv")
    assert (table["resolved_label"] == table["gold"]).mean() > 0.95
    assert set(table["resolved_by"].fillna("")) <= {"model", ""}
    assert "120 rows, 3 classes" in result.stdout
    assert "by the true labels these are right" in result.stdout


def test_no_file_holds_formulas_that_a_spreadsheet_would_compute(pets: Path) -> None:
    text = pets.read_text().replace("bee", "=1+1").replace("name", "+name").replace("pet 3", "@pet")
    pets.write_text(text)
    form = ("--votes", "by ", "--truth", "gold", "--ignore", "+name", "--wrong", "1e-6")
    assert run(pets, *form).exit_code == 0
    out = pets.parent / "out"
    assert set(pd.read_csv(out / "table.csv")["resolved_label"]) == {"ant", "'=1+1", "cow"}
    named = 0
    for path in out.glob("*.csv"):
        rows = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
        cells = [cell for row in rows for cell in row if not is_number(cell)]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))], path.name
        named += "'=1+1" in cells
    assert named >= 4


def is_number(cell: str) -> bool:
    try:
        return float(cell) is not None
    except ValueError:
        return False


def test_numbers_and_words_for_no_value_are_read_back_from_the_table(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    sizes = ["-1,5", "-", "-none-", "+2", "-3e-2", "-1.000,5"]
    rows = [f"{sizes[at % 6]};{at % 2 - 1};{'ant' if at % 2 else '-bee'}" for at in range(60)]
    path.write_text("\n".join(["size;x;by ann", *rows]))
    form = ("--votes", "by ", "--delimiter", ";", "--decimal", ",", "--ignore", "size")
    result = run(path, *form, "--missing", "-none-", "--missing", "-")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "out" / "table.csv", sep=";", dtype=str, keep_default_na=False)
    assert found["size"].tolist() == [sizes[at % 6] for at in range(60)]
    assert found["x"].tolist() == [str(at % 2 - 1) for at in range(60)]
    assert set(found["by ann"]) == {"ant", "'-bee"}


def test_cells_with_line_ends_of_any_kind_stay_cells(pets: Path) -> None:
    text = pets.read_text().replace("bee", '"b\ree"').replace("pet 3,", '"pet\r\n3",')
    pets.write_bytes(text.encode())
    assert run(pets, *FORM, "--wrong", "1e-6").exit_code == 0
    out = pets.parent / "out"
    added = ("resolved_label", "confidence", "resolved_by")
    again = read_table(out / "table.csv", votes="by ", truth="gold", ignore=("name", *added))
    assert len(again) == 120
    assert Candidates.of(again.y).classes.tolist() == ["ant", "b\ree", "cow"]
    for path in out.glob("*.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            assert len({len(row) for row in csv.reader(file)}) == 1, path.name


def test_the_summary_and_the_page_say_what_the_expected_errors_assume(pets: Path) -> None:
    result = run(pets, *FORM)
    page = (pets.parent / "out" / "review.html").read_text(encoding="utf-8")
    suspects = len(pd.read_csv(pets.parent / "out" / "sets_that_miss_the_truth.csv"))
    for text in (result.stdout, page):
        assert "assumes that at most 5% of the sets miss the true class" in text
        assert f"In {suspects:,} rows ({suspects / 120:.1%}) the model itself predicts" in text
    help_text = CliRunner().invoke(app, ["clean", "--help"]).stdout.replace("│", " ")
    assert "if at most 5% of the sets miss the true class" in " ".join(help_text.split())


def test_the_table_is_gone_through_once_to_write_it_and_to_show_its_rows(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, records = [0], CsvFile.records

    def counted(file: CsvFile) -> Any:
        count[0] += 1
        return records(file)

    monkeypatch.setattr(CsvFile, "records", counted)
    read_table(pets, votes="by ", truth="gold", ignore="name")
    before = count[0]
    form = ("--votes", "by ", "--truth", "gold", "--images", "name", "--wrong", "1e-6")
    assert run(pets, *form).exit_code == 0
    assert count[0] == 2 * before + 1


def test_a_table_that_changes_meanwhile_gets_no_labels(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robustpll.clean import run as module

    def judged_late(*arguments: Any, **options: Any) -> Any:
        lines = pets.read_text().splitlines()
        pets.write_text("\n".join([lines[0], *lines[2:]]))
        return judge(*arguments, **options)

    judge = module.judge
    monkeypatch.setattr(module, "judge", judged_late)
    result = run(pets, *FORM)
    assert result.exit_code == 1
    assert "was changed while its labels were resolved" in result.stderr
    assert not (pets.parent / "out" / "table.csv").exists()


def test_the_best_annotator_is_found_without_the_truth(pets: Path) -> None:
    run(pets, "--votes", "by ", "--ignore", "name", "--ignore", "gold")
    ranked = pd.read_csv(pets.parent / "out" / "annotators.csv")
    assert ranked["annotator"].tolist() == ["ada", "bob", "zoe"]
    assert ((ranked["low"] <= ranked["agreement"]) & (ranked["agreement"] <= ranked["high"])).all()


def test_decided_rows_are_single_candidates_and_are_not_asked_again(pets: Path) -> None:
    run(pets, *FORM, "--wrong", "0.001")
    first = pd.read_csv(pets.parent / "out" / "rows_for_review.csv")
    asked = int(first["row"][0])
    wrong = "cow" if first["resolved_label"][0] != "cow" else "ant"
    file = decided(pets, f"{asked},{wrong},2026-01-01T00:00:00Z")
    result = run(pets, *FORM, "--wrong", "0.001", "--decisions", file, out="again")
    assert result.exit_code == 0, result.output
    assert "decided by a person: 1\n" in result.stdout
    again = pets.parent / "again"
    table = pd.read_csv(again / "table.csv")
    row = table.loc[asked - 2]  # line 2 is the first row
    assert (row["resolved_label"], row["confidence"], row["resolved_by"]) == (wrong, 1, "person")
    assert asked not in pd.read_csv(again / "rows_for_review.csv")["row"].tolist()


def test_the_latest_decision_counts_and_windows_line_ends_are_read(pets: Path) -> None:
    file = Path(
        decided(pets, "2,bee,2026-01-02T00:00:00Z", "3,ant,2026-01-01T00:00:00Z",
                "2,cow,2026-01-01T00:00:00Z")
    )  # fmt: skip
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    result = run(pets, *FORM, "--decisions", str(file))
    assert result.exit_code == 0, result.output
    table = pd.read_csv(pets.parent / "out" / "table.csv")
    assert table["resolved_label"][:2].tolist() == ["bee", "ant"]


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("2,emu,now", None, "there is no class 'emu' in the table"),
        ("1,ant,now", None, "there is no row '1' in the table"),
        ("2,ant,now", "0123456789abcdef", "decided for another table"),
        ("2,ant", None, "3 cells instead of 4"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    pets: Path, line: str, key: str | None, reason: str
) -> None:
    result = run(pets, *FORM, "--decisions", decided(pets, line, key=key))
    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_none_of_decisions_is_refused(pets: Path) -> None:
    result = run(pets, *FORM, "--decisions", str(pets))
    assert result.exit_code == 1
    assert "has no column 'row', but 'name', 'size'" in result.stderr
    result = run(pets, *FORM, "--decisions", str(pets.parent / "nothing.csv"))
    assert "cannot be read (No such file or directory)" in result.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--votes", "by ", "--truth", "gould", "--ignore", "name"), "There is 'gold'"),
        (("--candidates", "by adam", "--ignore", "name"), "There is 'by ada'"),
        ((*FORM, "--images", "nane"), "--images: there is no column 'nane'. There is 'name'"),
        ((*FORM, "--method", "pl_nn"), "method must be"),
        ((*FORM, "--epochs", "3"), "Invalid parameter 'epochs'"),
        ((*FORM, "--folds", "1"), "folds must be an int of at least 2"),
        ((*FORM, "--most", "0"), "most must be an int of at least 1"),
    ],
)
def test_what_cannot_be_is_one_line_on_stderr(
    pets: Path, options: tuple[str, ...], reason: str
) -> None:
    quick = () if "--method" in options else ("--method", "pl_knn")
    arguments = ["clean", str(pets), "--out", str(pets.parent / "out"), *quick, *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_candidates_or_with_an_odd_share_it_is_wrong_usage(pets: Path) -> None:
    assert run(pets, "--ignore", "name").exit_code == 2
    assert run(pets, *FORM, "--wrong", "0").exit_code == 2


def test_the_table_itself_is_never_written_over(pets: Path) -> None:
    path = pets.rename(pets.parent / "table.csv")
    before = path.read_bytes()
    result = run(path, *FORM, out=".")
    assert result.exit_code == 1
    assert "is the table itself" in result.stderr
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["table.csv"]


def test_labels_may_be_numbers_with_gaps_and_rows_without_answers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    lines = [f"{row % 3}.{row},{row % 3},{'' if row % 2 else row % 3}" for row in range(60)]
    path.write_text("\r\n".join(["x,by 1,by 2", *lines, "1.5,,"]), encoding="utf-8")
    result = run(path, "--votes", "by ", "--unanswered", "all classes", "--wrong", "1e-9")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert table["resolved_label"][:60].tolist() == [row % 3 for row in range(60)]
    assert pd.read_csv(tmp_path / "out" / "annotators.csv")["answers"].tolist() == [60, 30]


def test_what_cannot_be_written_is_told_before_anything_is_learned(pets: Path) -> None:
    result = run(pets, *FORM, out="pets.csv")
    assert result.exit_code == 1
    assert "out must be a folder" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_told(pets: Path) -> None:
    (pets.parent / "out").mkdir(mode=0o500)
    assert "out must be a folder that can be written" in run(pets, *FORM).stderr


def test_a_table_that_was_cleaned_before_is_not_taken_for_a_fresh_one(pets: Path) -> None:
    assert run(pets, *FORM).exit_code == 0
    labelled = pets.parent / "out" / "table.csv"
    added = [f"--ignore={name}" for name in ("resolved_label", "confidence", "resolved_by")]
    result = run(labelled, *FORM, *added)
    assert result.exit_code == 1
    assert "has a column 'resolved_label' already" in result.stderr


@pytest.mark.parametrize("text", ["", "x,by ann\n"])
def test_an_empty_table_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text, encoding="utf-8")
    result = run(path, "--votes", "by ")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["empty.csv"]


def test_a_file_that_is_no_table_is_one_sentence(pets: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.pll"
    PLLClassifier("pl_knn").fit([[0.0], [1.0]], ["ant", "bee"]).save(model)
    as_csv = tmp_path / "model.csv"
    as_csv.write_bytes(model.read_bytes())
    for path in (model, as_csv, tmp_path):
        result = run(path, "--votes", "by ")
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_a_table_larger_than_memory_is_refused_rather_than_killed(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBUSTPLL_HOST_BYTES", str(2**30))
    with pets.open("ab") as file:  # 2 GB, of which the disk stores the beginning
        file.write(pets.read_bytes().split(b"\n", 1)[1] * 300)
        file.truncate(2 * 10**9)
    result = run(pets, *FORM)
    assert result.exit_code == 1
    assert "too large to learn from here" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (pets.parent / "out").exists()


def test_a_table_of_a_german_spreadsheet_stays_one(tmp_path: Path) -> None:
    """A mark in front, semicolons, decimal commas, Windows line ends, and names of all kinds."""
    names = ("Käse; alt", 'Öl "extra"', "油")
    rows = [(f"{row % 3},{row:02}", names[row % 3], names[row % 3]) for row in range(60)]
    rows[7] = (rows[7][0], names[0], names[2])
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\r\n").writerows(
        [("Größe", "von Zoë", "von 李"), *rows]
    )
    path = tmp_path / "Käse.csv"
    path.write_bytes(text.getvalue().encode("utf-8-sig"))
    reading = ("--votes", "von ", "--delimiter", ";", "--decimal", ",")
    result = run(path, *reading)
    assert result.exit_code == 0, result.output
    written = (tmp_path / "out" / "table.csv").read_text(encoding="utf-8-sig")
    found = list(csv.reader(io.StringIO(written, newline=""), delimiter=";"))
    assert [tuple(row[:3]) for row in found[1:]] == rows
    assert [row[3] for row in found[1:7]] == [*names, *names]
    assert all("," in row[4] for row in found[1:])  # confidence, as a number of this table
    annotators = (tmp_path / "out" / "annotators.csv").read_bytes().decode("utf-8-sig")
    assert {line.split(",")[0] for line in annotators.splitlines()[1:]} == {"Zoë", "李"}
    assert names[2] in (tmp_path / "out" / "review.html").read_text(encoding="utf-8")


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
@pytest.mark.parametrize("file", [1, 2, 7, 16])
def test_a_killed_run_leaves_each_file_old_or_new_and_can_be_run_again(
    pets: Path, file: int
) -> None:
    options = [*FORM, "--method", "pl_knn", "--wrong", "0.001"]
    key = decided(pets, "2,cow,2026-01-01T00:00:00Z")
    assert run(pets, *options).exit_code == 0
    assert run(pets, *options, "--decisions", key, out="new").exit_code == 0
    out, new = pets.parent / "out", pets.parent / "new"
    old = {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.name != ".robustpll-clean.json"
    }
    line = ["clean", str(pets), *options, "--decisions", key, "--out", str(out)]
    found = subprocess.run([sys.executable, "-c", STOPPED, str(file), *line], check=False)
    assert found.returncode == -9
    changed = 0
    for name, before in old.items():
        now = (out / name).read_bytes()
        assert now in (before, (new / name).read_bytes()), name
        changed += now != before
    assert changed < sum((new / name).read_bytes() != old[name] for name in old)
    result = run(pets, *options, "--decisions", key)
    assert result.exit_code == 0, result.output
    assert all((out / name).read_bytes() == (new / name).read_bytes() for name in old)


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_sentence(pets: Path) -> None:
    assert run(pets, *FORM).exit_code == 0
    out = pets.parent / "out"
    old = {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.name != ".robustpll-clean.json"
    }
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))  # noqa: E731
    code = "from robustpll.cli import app; app()"
    line = ["clean", str(pets), *FORM, "--method", "pl_knn", "--out", str(out)]
    found = subprocess.run(
        [sys.executable, "-c", code, *line],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert "cannot be" in found.stderr
    assert found.stderr.count("\n") == 1
    assert {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.name != ".robustpll-clean.json"
    } == old
    assert run(pets, *FORM).exit_code == 0


def test_parquet_stays_parquet(pets: Path) -> None:
    path = pets.with_suffix(".parquet")
    pd.read_csv(pets).to_parquet(path)
    assert run(path, *FORM).exit_code == 0
    found = pd.read_parquet(pets.parent / "out" / "table.parquet")
    assert found["name"].tolist() == [f"pet {row}" for row in range(120)]
    assert (found["resolved_label"] == found["gold"]).mean() > 0.95


def test_pictures_are_small_and_inside_the_page_or_else_linked(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robustpll.clean import thumbnails

    folder = pets.parent / "my pictures"
    folder.mkdir()
    for row in range(120):
        Image.new("RGB", (200, 100), (row, 0, 0)).save(folder / f"pet {row}.jpg")
    (folder / "pet 3.jpg").write_bytes(b"no picture")
    text = pets.read_text(encoding="utf-8").replace("pet ", "my pictures/pet ")
    lines = text.splitlines()
    pets.write_text("\n".join(f"{line.replace(',', '.jpg,', 1)}" for line in lines))
    form = ("--votes", "by ", "--truth", "gold", "--images", "name.jpg", "--wrong", "1e-9")
    assert run(pets, *form).exit_code == 0
    page = (pets.parent / "out" / "review.html").read_text(encoding="utf-8")
    assert page.count('"data:image/jpeg;base64,') == page.count("../my%20pictures/pet%20") - 1
    monkeypatch.setattr(thumbnails, "MOST_BYTES", 3000)
    assert run(pets, *form, out="less").exit_code == 0
    less = (pets.parent / "less" / "review.html").read_text(encoding="utf-8")
    assert 0 < less.count('"data:image/jpeg;base64,') < 10
    assert less.count("../my%20pictures/pet%20") == page.count("../my%20pictures/pet%20")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_a_thumbnail_has_at_most_96_pixels_a_side_in_any_mode(tmp_path: Path, mode: str) -> None:
    import base64
    import io

    from robustpll.clean.thumbnails import thumbnail

    path = tmp_path / ("large.tif" if mode in ("CMYK", "I;16") else "large.png")
    Image.new(mode, (300, 500)).save(path)
    small = Image.open(io.BytesIO(base64.b64decode(thumbnail(path).split(",")[1])))
    assert max(small.size) == 96
