"""`robustpll table`, as someone with a table runs it."""

import csv
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll.cli import app
from robustpll.cli.messages import as_options

VOTES = """weight,town,by bob,by eve,by zoe,gold
4,Rome,cat,cat,cat,cat
30,Bonn,dog,wolf,dog,wolf
5,,cat,,dog,cat
,Rome,dog,dog,cat,
"""
BAD = "x,c\n1,a\n2\n3,a|b\n"
FORM = ("--candidates", "c")


def run(text: str, *options: str, name: str = "table.csv", code: int = 0) -> Any:
    """Write a table, show it, and check the exit code; a refusal is one line on stderr."""
    Path(name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["table", name, *options])
    assert result.exit_code == code, result.output
    assert code != 1 or result.stdout or result.stderr.count("\n") == 1
    return result


def line_of(result: Any, first: str) -> str:
    """The first line that begins with a word, with single blanks."""
    lines = (line.split() for line in result.stdout.splitlines())
    return next(" ".join(line) for line in lines if line[:1] == [first])


def test_votes_are_counted_by_class_and_annotator() -> None:
    result = run(VOTES, "--votes", "by ", "--truth", "gold")
    assert "table.csv: 4 rows, 2 features" in result.stdout
    assert "3 classes; 1.75 candidates a row on average" in result.stdout
    assert "known for 3 rows, and is among the candidates in 100.0%" in result.stdout
    for line in (
        "cat 3 75.0%",
        "wolf 1 25.0%",
        "bob 4",
        "eve 3",
        "weight number 1",
        "town category of 2 words 1",
    ):
        assert line_of(result, line.split()[0]) == line


def test_columns_may_be_left_out_declared_and_have_words_for_gaps() -> None:
    text = "id;day;code;age;c\n7;2020-01-01;1;?;a\n3;2020-01-02;2;3,1;b\n"
    options = ("--ignore", "id", "--ignore", "day", "--categories", "code", "--missing", "?")
    result = run(text, *FORM, *options, "--delimiter", ";", "--decimal", ",")
    assert "2 rows, 2 features" in result.stdout
    assert line_of(result, "code") == "code category of 2 words 0"
    assert line_of(result, "age") == "age number 1"
    assert "classes" not in run("x,town\n1,Rome\n2,Bonn\n").stdout  # there are no candidates
    run(VOTES, "--votes", "by ", "--candidates", "gold", code=2)


def test_bad_rows_fail_and_the_first_are_shown_but_no_file_is_written() -> None:
    result = run(BAD + "4\n" * 9, *FORM, name="my.table.csv", code=1)
    messages = result.stderr.splitlines()
    assert messages[0] == "my.table.csv: 10 rows do not parse:"
    assert messages[1:6] == [f"  line {line}: has 1 cell instead of 2" for line in (3, 5, 6, 7, 8)]
    assert messages[6] == "  and 5 more; pass --errors FILE to list all of them"
    assert messages[7:] == ["Correct these rows, or pass --skip-bad-rows to leave them out."]
    result = run(BAD + "4\n" * 9, *FORM, "--skip-bad-rows", name="my.table.csv")
    assert result.stderr.startswith("my.table.csv: 10 rows do not parse (left out):\n")
    assert [path.name for path in Path().iterdir()] == ["my.table.csv"]
    assert "2 rows, 1 feature\n" in result.stdout


def test_bad_rows_are_listed_in_a_file_and_may_be_left_out() -> None:
    options, header = (*FORM, "--errors", "faults.csv"), "line,column,value,reason\n"
    for more, code in (((), 1), ((), 1), (("--skip-bad-rows",), 0)):  # it replaces its own list
        assert "faults.csv lists them.\n" in run(BAD, *options, *more, code=code).stderr
        text = Path("faults.csv").read_text(encoding="utf-8")
        assert text == f"{header}3,,2,has 1 cell instead of 2\n"
    run(BAD.replace("2\n", ""), *options)
    assert Path("faults.csv").read_text(encoding="utf-8") == header
    text = "x,=1+1,c\n" + "1,1,a\n2,2,b\n" * 100 + "3,=CMD|'/C calc',a\n-7,3,\n"
    run(text, *options, code=1)
    with Path("faults.csv").open(encoding="utf-8", newline="") as file:
        rows = [row[1:] for row in csv.reader(file)]
    assert ["'=1+1", "'=CMD|'/C calc'"] in [row[:2] for row in rows]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row)


@pytest.mark.parametrize(
    "where", [".", "nowhere/faults.csv", "/proc/faults.csv", "table.csv", "mine.csv"]
)
def test_a_list_of_errors_that_cannot_be_written_is_refused(where: str) -> None:
    Path("mine.csv").write_text("line,what I did\n1,much\n", encoding="utf-8")
    assert run(BAD, *FORM, "--errors", where, code=1).stdout == ""
    assert Path("table.csv").read_text(encoding="utf-8") == BAD
    assert Path("mine.csv").read_text(encoding="utf-8") == "line,what I did\n1,much\n"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("x,c\n1,a\n2,\n3,b\n", FORM),
        ("x,is a,is b\n1,1,0\n2,0,0\n3,0,1\n", ("--indicators", "is ")),
        ("x,by a,by b\n1,a,a\n2,,\n3,b,b\n", ("--votes", "by ")),
    ],
)
def test_rows_without_candidates_are_told_with_the_option_that_keeps_them(
    text: str, form: tuple[str, ...]
) -> None:
    result = run(text, *form, code=1)
    assert 'names no class: give it an answer, or pass --unanswered "all' in result.stderr
    assert "*" not in result.stderr  # no pattern of columns is shown as a column
    result = run(text, *form, "--unanswered", "all classes")
    assert line_of(result, "a") == "a 2 66.7%"


NUMBERS = "".join(f"{i}.5,{'?' if i == 50 else i / 7},{'ab'[i % 2]}\n" for i in range(200))


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", (), "table.csv is empty"),
        ("x;c\n1;a\n", FORM, '--delimiter ";"'),
        ("x,c,day\n1,a,1/2/2020\n2,b,1/2/2020\n", FORM, "in --ignore"),
        ("x,c\n1,a\n", ("--candidates", "d"), "--candidates: there is no column 'd'"),
    ],
)
def test_what_cannot_be_read_is_one_line_on_stderr_that_names_options(
    text: str, options: tuple[str, ...], reason: str
) -> None:
    result = run(text, *options, code=1)
    assert result.stdout == ""
    assert reason in result.stderr
    assert "`" not in result.stderr


def test_advice_on_cells_names_options() -> None:
    assert (
        "'?' is not a number: correct it, or name it in --missing"
        in run(f"x,age,c\n{NUMBERS}", *FORM, code=1).stderr
    )
    result = run("x,c\n1,a\n2,b\n3,a;b\n", *FORM)
    assert "table.csv: The class name 'a;b' is made of other class names" in result.stderr
    assert '--separator ";"' in result.stderr


def test_names_harm_no_terminal_and_long_lists_are_cut_with_a_count() -> None:
    result = run("x,c\n1,<b>x</b>|x[red]\n2,\x1b[31mred\n", *FORM)
    assert all(name in result.stdout for name in ("<b>x</b>", "x[red]", r"\x1b[31mred"))
    assert "\x1b[31m" not in result.stdout
    result = run("x,c\n1," + "|".join(f"class{i}" for i in range(10_000)), *FORM)
    assert "10,000 classes" in result.stdout
    assert "and 9,970 more" in result.stdout
    assert len(result.stdout.splitlines()) < 60
    names = [f"{letter}mouse" for letter in "abcdefghijklmnopq"]
    rows = "".join(f"{row}.5,{name}\n{row}.7,{name.upper()}\n" for row, name in enumerate(names))
    result = run(f"x,c\n{rows}", *FORM)
    assert result.stderr.count("(1 row)") == 20  # of ten groups


PLAIN = "".join(f"{row}.5,{'Katze' if row % 2 else 'Hund'}\n" for row in range(60))
SLIPS = f"x,c\n{PLAIN}1.5,katze\n2.5,KATZE \n3.5,Katz\n4.5,?\n5.5,n/a\n"


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("table", ()),
        ("fit", ("--out", "m.pll", "--method", "pl_knn")),
        ("clean", ("--out", "cleaned", "--method", "pl_knn")),
    ],
)
def test_slips_in_class_names_are_told_by_every_command_that_reads_them(
    command: str, more: tuple[str, ...]
) -> None:
    Path("table.csv").write_text(SLIPS, encoding="utf-8")
    result = CliRunner().invoke(app, [command, "table.csv", *FORM, *more])
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "table.csv: 'Katze' (30 rows), 'KATZE' (1 row), 'katze' (1 row), 'Katz' (1 row) may "
        "mean the same class. 'Katze' is proposed.",
        "table.csv: --fold-case merges case, extra blanks; `table --propose map.csv` and "
        "--rename merge all.",
        'table.csv: \'?\' became a class. Pass --missing "?" if it means "no answer".',
        'table.csv: \'n/a\' became a class. Pass --missing "n/a" if it means "no answer".',
    ]


def test_the_remedies_for_slips_work() -> None:
    result = run(SLIPS, *FORM, "--missing", "?", "--missing", "n/a", code=1)
    assert "became a class" not in result.stderr
    assert "2 rows do not parse" in result.stderr
    columns = "x,is cat,is ?,is dog\n1,1,0,1\n2,0,1,1\n3,1,1,0\n"
    assert 'Pass --ignore "is ?"' in run(columns, "--indicators", "is ").stderr
    assert "is ?" not in run(columns, "--indicators", "is ", "--ignore", "is ?").stderr


def test_proposed_names_survive_a_spreadsheet_with_semicolons() -> None:
    text, options = SLIPS.replace(",", ";"), (*FORM, "--delimiter", ";", "--missing", "n/a")
    for _ in range(2):  # it replaces its own file
        run(text, *options, "--skip-bad-rows", "--propose", "map.csv")
    content = Path("map.csv").read_bytes()
    assert content.startswith("\ufefffrom;to\n".encode())
    Path("map.csv").write_bytes(content.replace(b"\n", b"\r\n"))
    result = run(text, *options, "--skip-bad-rows", "--missing", "?", "--rename", "map.csv")
    assert "2 classes" in result.stdout
    assert "--rename names" not in result.stderr  # "?" may be a gap twice


def test_a_proposal_that_someone_edited_is_not_replaced() -> None:
    options = (*FORM, "--missing", "n/a", "--skip-bad-rows", "--propose", "map.csv")
    run(SLIPS, *options)
    proposed = Path("map.csv").read_text(encoding="utf-8")
    for edited in (proposed + "kat,cat\n", proposed[:-3], proposed.replace("Katze", "cat")):
        Path("map.csv").write_text(edited, encoding="utf-8")
        result = CliRunner().invoke(app, ["table", "table.csv", *options])
        assert (result.exit_code, result.stdout) == (1, "")
        assert "map.csv is there already, and is not what this table proposes" in result.stderr
        assert Path("map.csv").read_text(encoding="utf-8") == edited
    Path("map.csv").write_text("")
    run(SLIPS, *options)
    assert Path("map.csv").read_text(encoding="utf-8") == proposed


def test_a_spreadsheet_or_an_export_without_answers_is_told_what_to_save() -> None:
    result = run("", *FORM, name="table.xlsx", code=1)
    assert "Save a spreadsheet as CSV UTF-8" in result.stderr
    record = '[{"id": 1, "text": "a", "sentiment": "cat", "annotation_id": 3, "lead_time": 2.5}]'
    assert "export JSON, not JSON-MIN" in run(record, name="table.json").stderr


@pytest.mark.parametrize("separator", [",", ";", "|", " "])
def test_advice_is_typed_alike_in_every_shell(separator: str) -> None:
    message = f"Pass delimiter={separator!r}, or check `missing`."
    assert as_options(message) == f'Pass --delimiter "{separator}", or check --missing.'
    assert as_options("rename='x': no file") == "--rename 'x': no file"


def test_the_list_of_bad_rows_names_options() -> None:
    run("x,by a,by b\n1,a,a\n2,,\n3,b,b\n", "--votes", "by ", "--errors", "faults.csv", code=1)
    with Path("faults.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert 'pass --unanswered "all classes"' in row["reason"]


def test_words_that_occur_nowhere_are_told() -> None:
    absent = "no cell that is read holds"
    form = ("--votes", "by ", "--ignore", "gold", "--missing", "?", "--missing", "-9")
    result = run(VOTES.replace("wolf", "?"), *form, "--unsure", "Dog")
    assert f"--missing: {absent} '-9'." in result.stderr
    assert f"--unsure: {absent} 'Dog'. Check the spelling." in result.stderr
    assert absent not in run(VOTES.replace("30", "-9"), *form[:4], *form[6:]).stderr
    assert absent not in run(VOTES, "--votes", "by ", "--unsure", "dog", *form[2:4]).stderr
    sets = run("x,c\n1,a|?\n2,a|b\n3,b\n", *FORM, "--missing", "?", code=1)
    assert absent not in sets.stderr  # a row that does not parse holds it


def test_advice_for_python_becomes_options_or_is_left_out() -> None:
    one = run("x,c\n1,a/b\n2,a/b\n", *FORM, code=1).stderr
    assert "y names 1 class (a/b)" in one
    assert '--separator "/" splits' in one
    advice = 'Consider PLLClassifier(Wrapped("{}", labels="majority")).'
    forest, regression = map(advice.format, ("random_forest", "logistic_regression"))
    told = as_options(f"Forest is better than Auto here. {forest}\nnote")
    assert told == "Forest is better than Auto here. --method wrapped fits a forest, too.\nnote"
    for learner, advice in (("Wrapped", forest), ("Auto", regression)):
        fact = f"It is better than {learner} here."
        assert as_options(f"{fact} {advice}") == fact
    assert "save(" not in as_options("It has no ONNX graph. Use save(path) instead.")
    many = "".join(f"{row},p/{row}.png,{'ab'[row % 2]}\n" for row in range(1, 40))
    remedy = run(f"nr,file,c\n{many}", *FORM, code=1).stderr
    assert "--id" in remedy
    assert "--image-input if it has paths" in remedy
