"""Tables in files and frames: what is read, and which rows are bad."""

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robustpll import Candidates, InputError, Table, Votes, read_table
from robustpll.tables import source

Write = Callable[..., Path]
PETS = """weight,town,seen,gold
4.5,Rome,cat,cat
30,Bonn,dog|wolf,dog
5,Rome,cat | dog,cat
8,,wolf,
"""
ANY_FOLDER = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def sets(table: Table) -> list[frozenset[Any]]:
    return Candidates.of(table.y).sets()


# What is read


WAYS = {
    "t.csv.gz": gzip.compress(PETS.encode()),
    "T.CSV.GZ": gzip.compress(PETS.encode()),
    "t.tsv": PETS.replace(",", "\t"),
    "byte order mark.csv": PETS.encode("utf-8-sig"),
    "Windows line ends.CSV": PETS.replace("\n", "\r\n"),
    "old line ends.csv": PETS.replace("\n", "\r"),
    "no last line end.csv": PETS.rstrip(),
    "spaces around cells.csv": PETS.replace(",", " , "),
    "quotes after spaces.csv": PETS.replace("Rome", ' "Rome" '.rstrip()),
}


@pytest.mark.parametrize(("name", "content"), WAYS.items(), ids=WAYS)
def test_a_table_gives_features_candidates_truth_and_lines_however_it_is_written(
    write: Write, name: str, content: str | bytes
) -> None:
    table = read_table(write(content, name), candidates="seen", truth="gold")
    assert sets(table) == [{"cat"}, {"dog", "wolf"}, {"cat", "dog"}, {"wolf"}]
    assert list(table.features) == ["weight", "town"]
    assert table.features["weight"].tolist() == [4.5, 30, 5, 8]
    assert table.features["town"].fillna("").tolist() == ["Rome", "Bonn", "Rome", ""]
    assert table.truth is not None
    assert table.truth.tolist() == ["cat", "dog", "cat", None]
    assert table.rows.tolist() == [2, 3, 4, 5]
    assert (table.bad, len(table), table.annotators) == ((), 4, ())


def test_other_delimiters_separators_and_encodings_are_named(write: Write) -> None:
    path = write("größe;tier\n1;Bär,Wolf\n2;Wolf\n".encode("cp1252"))
    options: dict[str, Any] = {"candidates": "tier", "separator": ",", "ignore": "größe"}
    table = read_table(path, delimiter=";", encoding="cp1252", **options)
    assert sets(table) == [{"Bär", "Wolf"}, {"Wolf"}]
    for delimiter in ("§", " "):  # pyarrow cannot split by these
        path = write(f"x{delimiter}c\n1{delimiter}a\n2{delimiter}b\n")
        assert sets(read_table(path, candidates="c", delimiter=delimiter)) == [{"a"}, {"b"}]


@pytest.mark.parametrize(
    ("form", "name", "text"),
    [
        ("candidates", "c", "x,c\n1,a|b\n2,b\n3,a\n4,\n"),
        ("indicators", "is ", "x,is a,is b\n1,1,1\n2,0,1.0\n3,True,false\n4,0,0\n"),
        ("votes", "by ", "x,by u,by v\n1,a,b\n2,b,\n3,,a\n4,,\n"),
    ],
)
def test_three_forms_of_the_same_candidates_agree(
    write: Write, form: str, name: str, text: str
) -> None:
    options: dict[str, Any] = {form: name}
    table = read_table(write(text), **options, unanswered="all classes")
    assert sets(table) == [{"a", "b"}, {"b"}, {"a"}, {"a", "b"}]
    assert list(table.features) == ["x"]
    with pytest.raises(
        InputError, match=r"1 row does not parse \(line 5.*unanswered='all classes'"
    ):
        read_table(write(text), **options)


def test_votes_keep_their_annotators_and_shares(write: Write) -> None:
    text = "x,by bob,by eve,by zoe,by truth\n1,cat,dog,cat,emu\n2,,dog,,dog\n"
    table = read_table(write(text), votes="by ", truth="by truth")
    assert isinstance(table.y, Votes)
    assert table.annotators == ("bob", "eve", "zoe")
    assert Candidates.of(table.y).prior.tolist() == [pytest.approx([2 / 3, 1 / 3]), [0, 1]]
    fewer = read_table(write(text), votes="by ", ignore=["by truth", "by zoe"])
    assert fewer.annotators == ("bob", "eve")
    assert list(fewer.features) == ["x"]


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", "2", "-3"], "int8", [1, 2, -3]),
        (["1", "", "300"], "Int16", [1, None, 300]),
        (["1", "9007199254740993", "3"], "int64", [1, 2**53 + 1, 3]),
        (["1", "2.5", "1e3"], "float64", [1, 2.5, 1000]),
        (["1", "NA", "nan", " 2.5 ", "null", "<NA>"], "float64", [1, None, None, 2.5, None, None]),
        (["99999999999999999999", "+1", ".5"], "float64", [1e20, 1, 0.5]),
        (["0x10", "1_000", "1,5", "ten"], "string", ["0x10", "1_000", "1,5", "ten"]),
    ],
)
@pytest.mark.parametrize("quote", ["", '"'])
def test_cells_come_in_compact_types_with_their_gaps(
    write: Write, cells: list[str], dtype: str, values: list[Any], quote: str
) -> None:
    quoted = [f'"{cell}"' if "," in cell else f"{quote}{cell}{quote}" for cell in cells]
    column = read_table(write("x,y\n" + "".join(f"{cell},0\n" for cell in quoted))).features["x"]
    assert str(column.dtype) == dtype
    assert [None if pd.isna(cell) else cell for cell in column] == values


def test_a_word_among_numbers_is_a_bad_row_or_a_word_for_no_value(write: Write) -> None:
    rows = [f"{i / 8},{'12;5' if i == 150 else i % 3},c{i % 2}\n" for i in range(200)]
    path = write("b,odd,c\n" + "".join(rows))
    with pytest.raises(InputError, match="line 152: column 'odd': '12;5' is not a number"):
        read_table(path, candidates="c")
    table = read_table(path, candidates="c", on_bad_rows="skip")
    assert [(fault.line, fault.value) for fault in table.bad] == [(152, "12;5")]
    assert table.features["odd"].tolist() == [i % 3 for i in range(200) if i != 150]
    assert len(read_table(path, candidates="c", missing="12;5")) == 200


ROW = st.sampled_from(
    ["1,a\n", "2,b\r\n", '"3",a\n', '4,"b\n"\n', "\n", "5\n", "6,a,b\n", '7,"a"x\n', " 8 , b\r"]
)

ROWS = st.lists(ROW, min_size=1, max_size=12).filter(lambda rows: set(rows) != {"\n"})


@ANY_FOLDER
@given(ROWS, st.integers(1, 4))
def test_the_quick_and_the_exact_parser_agree(
    tmp_path: Path, rows: list[str], most_lines: int
) -> None:
    """In chunks of few lines most rows are parsed quickly; in a single one, exactly."""
    path = tmp_path / "t.csv"
    path.write_bytes(("x,c\n" + "".join(rows)).encode())
    (whole,) = source.CsvFile(path, source.Reading()).batches(["x", "c"])
    chunks = [*source.CsvFile(path, source.Reading()).batches(["x", "c"], most_lines)]
    assert max(len(chunk.lines) for chunk in chunks) <= most_lines
    assert [row for chunk in chunks for row in chunk.cells.to_pylist()] == whole.cells.to_pylist()
    assert [line for chunk in chunks for line in chunk.lines] == whole.lines.tolist()
    assert [fault for chunk in chunks for fault in chunk.bad] == whole.bad


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8).filter(
    lambda name: (
        name[0] not in "[{"
        and name not in source.GAPS
        and (source.number_of(name) is None or str(source.number_of(name)) == f"{name}.0")
    )
)
SOME_SETS = st.lists(st.sets(NAMES, min_size=1, max_size=4), min_size=1, max_size=8).filter(
    lambda rows: len(set().union(*rows)) > 1
)


@ANY_FOLDER
@pytest.mark.filterwarnings("ignore:The class name")
@given(SOME_SETS, st.sampled_from(["csv", "tsv", "parquet", "frame", "frame of sets", *"|;/ "]))
def test_sets_come_back_from_every_kind_of_table(
    tmp_path: Path, rows: list[set[str]], kind: str
) -> None:
    """Names hold quotes, separators, HTML and other signs."""
    options: dict[str, Any] = {"candidates": "c"}
    frame = pd.DataFrame({"x": [0.5] * len(rows), "c": [sorted(names) for names in rows]})
    table: Any = tmp_path / f"table.{kind if kind.isalpha() else 'csv'}"
    if kind.startswith("frame"):
        table = frame if kind == "frame" else frame.assign(c=rows)
    elif kind == "parquet":
        frame.to_parquet(table)
    else:
        text = [json.dumps(names) for names in frame["c"]]
        if not kind.isalpha():
            options["separator"] = kind
            rows = [{name.replace(kind, "_") for name in names} for names in rows]
            text = [kind.join(names) for names in rows]
            if len(set().union(*rows)) < 2:
                return
        frame.assign(c=text).to_csv(table, sep="\t" if kind == "tsv" else ",", index=False)
    assert sets(read_table(table, **options)) == rows


def test_integers_in_typed_tables_stay_integers() -> None:
    frame = pd.DataFrame({"x": [0.1, 0.2], "c": [[3, 5], [5]], "t": [3.0, None]})
    table = read_table(frame, candidates="c", truth="t")
    assert sets(table) == [{3, 5}, {5}]
    assert table.truth is not None
    assert table.truth.tolist() == [3, None]
    with pytest.raises(InputError, match=r"\('3'\) of which none is a class \(3, 5\)"):
        read_table(frame.assign(t="3"), candidates="c", truth="t")
    truth = read_table(frame.assign(c=["3|5", "5"]), candidates="c", truth="t").truth
    assert truth is not None
    assert truth.tolist() == ["3", None]


# Rows that do not parse


BAD = """x,y,note,c
1,5,"two
lines",a

2,5,short
3,inf,,b
4,5,,
5,5,,"['a', 'b']"
5,5,,"{'a', 'b'}"
6,5,,a||b
7,inf,,zebra
8,5,"qu"ote,a
9,5,,"[[1]]"
7,5,,a|b|a
10,5,,a|b
"""
FAULTS = [
    (5, "", "2,5,short", "has 3 cells instead of 4"),
    (6, "y", "inf", "is infinite"),
    (7, "c", "", "names no class"),
    (8, "c", "['a', 'b']", "json.dumps(sorted(names)), or save the table with lists as Parquet"),
    (9, "c", "{'a', 'b'}", "begins like a JSON list"),
    (10, "c", "a||b", "has an empty name"),
    (11, "y", "inf", "is infinite"),  # and its class does not exist
    (12, "", "", "has quotes that are not paired"),
    (13, "c", "[[1]]", "begins like a JSON list"),
    (14, "c", "a|b|a", "names 'a' twice"),
]


def test_every_bad_row_is_listed_with_its_true_line(write: Write, tmp_path: Path) -> None:
    path, errors = write(BAD), tmp_path / "errors.csv"
    with pytest.raises(InputError, match=r"10 rows do not parse \(line 5: has 3 cells") as caught:
        read_table(path, candidates="c", errors_to=errors)
    assert f"{errors} lists them" in str(caught.value)
    with errors.open(newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["line", "column", "value", "reason"]
    for row, fault in zip(rows, FAULTS, strict=True):
        assert (int(row[0]), row[1], row[2]) == fault[:3]
        assert fault[3] in row[3]
    table = read_table(path, candidates="c", on_bad_rows="skip", categories="note")
    assert table.features["x"].tolist() == [1, 10]
    assert table.features["note"].tolist()[0] == "two\nlines"
    assert table.rows.tolist() == [2, 15]
    assert [fault.line for fault in table.bad] == [fault[0] for fault in FAULTS]
    assert sets(table) == [{"a"}, {"a", "b"}]
    assert Candidates.of(table.y).classes.tolist() == ["a", "b"]


def test_text_of_several_lines_is_one_cell(write: Write) -> None:
    path = write('x,note,c\n1,"Dear all,\nit rains, so\nbye",a\n2,"Yes, I\ndo",b\n')
    table = read_table(path, candidates="c", categories="note")
    assert table.features["note"].tolist() == ["Dear all,\nit rains, so\nbye", "Yes, I\ndo"]
    assert table.rows.tolist() == [2, 5]


def test_a_list_of_errors_is_replaced_once_there_are_none(write: Write, tmp_path: Path) -> None:
    errors, path = tmp_path / "errors.csv", write(PETS)
    errors.write_text("line,column,value,reason\n3,x,ten,is not a number\n")
    read_table(path, candidates="seen", truth="gold", errors_to=errors)
    assert errors.read_text() == "line,column,value,reason\n"
    with pytest.raises(InputError, match="is not a list of bad rows: it would be lost"):
        read_table(path, candidates="seen", truth="gold", errors_to=path)
    assert path.read_text() == PETS
    with pytest.raises(InputError, match=r"is no plain file"):
        read_table(path, candidates="seen", errors_to=tmp_path)


def test_bad_rows_of_a_frame_are_named_by_position(tmp_path: Path) -> None:
    frame = pd.DataFrame({"is a": [1, 0, 2, 0], "is b": [1, 1, 0, 0]}, index=[9, 9, 9, 9])
    with pytest.raises(InputError, match=r"2 rows .*row 2: column 'is a': '2' is neither 0 nor 1"):
        read_table(frame, indicators="is ", errors_to=tmp_path / "e.csv")
    assert pd.read_csv(tmp_path / "e.csv")["row"].tolist() == [2, 3]
    assert read_table(frame, indicators="is ", on_bad_rows="skip").rows.tolist() == [0, 1]


@pytest.mark.parametrize("last", ['15.0,2,Rome,c0"', '15.0,2,Rome",c0'])
def test_rows_between_two_stray_quotes_are_one_bad_row(write: Write, last: str) -> None:
    """Also if they become a row with the right number of cells."""
    rows = ["w,n,town,c", *(f"{i / 2},{i % 7},Rome,c{i % 3}" for i in range(60))]
    rows[10], rows[20] = '5.0,3,"Rome,c1', last
    table = read_table(write("\n".join(rows)), candidates="c", on_bad_rows="skip")
    assert [fault.line for fault in table.bad] == [11]
    assert "whole rows in a cell: lines 11 to 21" in table.bad[0].reason
    assert len(table) == 60 - 11


# Size

MEASURED = """
import sys
from pathlib import Path
from robustpll import read_table
import pandas, pyarrow.compute, pyarrow.csv, scipy.sparse, sklearn.exceptions

def peak():  # not getrusage: its peak is inherited from the parent process
    return float(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3

before = peak()
table = read_table(sys.argv[1], candidates="c")
print(peak() - before, len(table))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="others count memory otherwise")
def test_memory_is_a_small_multiple_of_the_table(tmp_path: Path) -> None:
    """As Python's objects 4 million cells take more than 250 MB; as numbers 32 MB."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400_000, 10)).round(6), columns=list("0123456789"))
    frame["c"] = rng.choice(["a", "b", "a|b", "b|c"], len(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "t.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, read = map(float, done.stdout.split())
    assert read == len(frame)
    assert grown < 200


def test_words_of_labels_that_are_read_as_gaps_are_told_if_they_may_be_a_class(write: Any) -> None:
    votes = "x,by u,by v\n1,a,NA\n2,b,{}\n3,NA,a\n4,b,b\n"
    with pytest.warns(UserWarning, match="Column 'by v': 'NA' is read as no label. If it is a cla"):
        read_table(write(votes.format("")), votes="by ")
    read_table(write(votes.format("a")), votes="by ")  # the word for gaps
    with pytest.warns(UserWarning, match="Column 't': 'NA' is read as no label"):
        read_table(write('x,c,t\n1,"[""NA""]",NA\n2,b,b\n'), candidates="c", truth="t")
    read_table(write(votes.format("")), votes="by ", missing="NA")


def test_an_annotator_is_no_feature(write: Any) -> None:
    path = write("x,by u,by v\n1,a,b\n2,b,a\n3,a,a\n")
    for role in ("text", "categories"):
        with pytest.raises(InputError, match=f"'by u' is named in both `votes` and `{role}`"):
            read_table(path, votes="by ", **{role: ["by u"]})
    assert read_table(path, votes="by ", ignore=["by u"]).features.columns.tolist() == ["x"]
