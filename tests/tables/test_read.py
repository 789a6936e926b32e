"""Tables in files and frames: what is read, what is refused, and where it stands."""

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

from robustpll import Candidates, InputError, RobustPLLClassifier, Table, Votes, read_table
from robustpll.tables import source as csv_rows

PETS = """weight,town,seen,gold
4.5,Rome,cat,cat
30,Bonn,dog|wolf,dog
5,Rome,cat | dog,cat
8,,wolf,
"""
SETS = [{"cat"}, {"dog", "wolf"}, {"cat", "dog"}, {"wolf"}]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


def sets(table: Table) -> list[frozenset[Any]]:
    return Candidates.of(table.y).sets()


# What is read


def test_a_csv_gives_features_candidates_truth_and_lines(write: Callable[..., Path]) -> None:
    table = read_table(write(PETS), candidates="seen", truth="gold")
    assert sets(table) == SETS
    assert list(table.features) == ["weight", "town"]
    assert table.features["weight"].tolist() == [4.5, 30, 5, 8]
    assert table.features["town"].isna().tolist() == [False, False, False, True]
    assert table.truth is not None
    assert table.truth.tolist() == ["cat", "dog", "cat", None]
    assert table.rows.tolist() == [2, 3, 4, 5]
    assert table.bad == ()
    assert len(table) == 4


WAYS: dict[str, Callable[[Path, str], Path]] = {
    "gzip": lambda folder, text: _put(folder / "t.csv.gz", gzip.compress(text.encode())),
    "tabs": lambda folder, text: _put(folder / "t.tsv", text.replace(",", "\t").encode()),
    "byte order mark": lambda folder, text: _put(folder / "t.csv", text.encode("utf-8-sig")),
    "Windows line ends": lambda folder, text: _put(
        folder / "t.CSV", text.replace("\n", "\r\n").encode()
    ),
    "no last line end": lambda folder, text: _put(folder / "t.csv", text.rstrip().encode()),
    "spaces around cells": lambda folder, text: _put(
        folder / "t.csv", text.replace(",", " , ").encode()
    ),
}


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_the_same_table_written_otherwise_reads_the_same(
    tmp_path: Path, write: Callable[..., Path], way: Callable[[Path, str], Path]
) -> None:
    first = read_table(write(PETS, "first.csv"), candidates="seen", truth="gold")
    other = read_table(way(tmp_path, PETS), candidates="seen", truth="gold")
    pd.testing.assert_frame_equal(first.features, other.features)
    assert first.y == other.y
    assert first.rows.tolist() == other.rows.tolist()


def test_other_delimiters_separators_and_encodings_are_named(write: Callable[..., Path]) -> None:
    path = write("größe;tier\n1;Bär,Wolf\n2;Wolf\n".encode("cp1252"))
    table = read_table(
        path, candidates="tier", separator=",", delimiter=";", encoding="cp1252", ignore="größe"
    )
    assert sets(table) == [{"Bär", "Wolf"}, {"Wolf"}]
    with pytest.raises(InputError, match=r"line 1, byte 3 of the file.*cp1252"):
        read_table(path, delimiter=";")
    with pytest.raises(InputError, match=r"delimited by ';'.*delimiter=';'"):
        read_table(path, encoding="cp1252")
    with pytest.raises(InputError, match=r"'utf-99'.*no such encoding"):
        read_table(path, encoding="utf-99")


def test_three_forms_of_the_same_candidates_agree(write: Callable[..., Path]) -> None:
    column = "x,c\n1,a|b\n2,b\n3,a\n"
    block = "x,is a,is b\n1,1,1\n2,0,1.0\n3,True,false\n"
    votes = "x,by u,by v\n1,a,b\n2,b,\n3,NA,a\n"
    first = read_table(write(column), candidates="c")
    assert sets(first) == [{"a", "b"}, {"b"}, {"a"}]
    for text, form in ((block, {"indicators": "is "}), (votes, {"votes": "by "})):
        other = read_table(write(text), **form)
        assert Candidates.of(other.y) == first.y
        assert list(other.features) == ["x"]


def test_votes_keep_their_annotators_and_shares(write: Callable[..., Path]) -> None:
    text = "x,by bob,by eve,by zoe,truth\n1,cat,dog,cat,cat\n2,,dog,,dog\n"
    table = read_table(write(text), votes="by ", truth="truth")
    assert isinstance(table.y, Votes)
    assert table.annotators == ("bob", "eve", "zoe")
    assert Candidates.of(table.y).prior.tolist() == [pytest.approx([2 / 3, 1 / 3]), [0, 1]]
    fewer = read_table(write(text), votes="by ", ignore=["truth", "by zoe"])
    assert fewer.annotators == ("bob", "eve")


def test_a_truth_that_bears_the_prefix_is_no_vote(write: Callable[..., Path]) -> None:
    text = "x,label u,label v,label true\n1,a,b,c\n2,b,b,b\n"
    table = read_table(write(text), votes="label ", truth="label true")
    assert table.annotators == ("u", "v")
    assert sets(table) == [{"a", "b"}, {"b"}]
    assert list(table.features) == ["x"]


def test_without_candidates_there_are_features_only(write: Callable[..., Path]) -> None:
    table = read_table(write(PETS), ignore=["seen", "gold"])
    assert table.y is None
    assert table.truth is None
    assert table.annotators == ()
    assert list(table.features) == ["weight", "town"]


def test_a_row_without_candidates_may_have_all_classes(write: Callable[..., Path]) -> None:
    texts = {
        "candidates": ("c", "x,c\n1,a\n2,\n3,b\n"),
        "indicators": ("is ", "x,is a,is b\n1,1,0\n2,0,0\n3,0,1\n"),
        "votes": ("by ", "x,by u,by v\n1,a,\n2,,\n3,b,b\n"),
    }
    for form, (name, text) in texts.items():
        path = write(text)
        open_ = read_table(path, **{form: name}, unanswered="all classes")
        assert sets(open_) == [{"a"}, {"a", "b"}, {"b"}]
        with pytest.raises(InputError, match=r"1 rows do not parse \(line 3"):
            read_table(path, **{form: name})


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", "2", "-3"], "int8", [1, 2, -3]),
        (["1", "", "300"], "Int16", [1, None, 300]),
        (["1", "9007199254740993", "3"], "int64", [1, 2**53 + 1, 3]),
        (["1", "2.5", "1e3"], "float64", [1, 2.5, 1000]),
        (["1", "NA", "nan", " 2.5 ", "null", "<NA>"], "float64", [1, None, None, 2.5, None, None]),
        (["99999999999999999999", "+1", ".5"], "float64", [1e20, 1, 0.5]),
    ],
)
def test_numbers_come_in_compact_types_with_their_gaps(
    write: Callable[..., Path], cells: list[str], dtype: str, values: list[Any]
) -> None:
    text = "x,y\n" + "".join(f'"{cell}",0\n' for cell in cells)
    column = read_table(write(text), ignore="y").features["x"]
    assert str(column.dtype) == dtype
    assert [None if pd.isna(cell) else cell for cell in column] == values


@pytest.mark.parametrize("word", ["0x10", "1_000", "1,5", "ten"])
def test_what_only_programs_take_for_a_number_is_text(
    write: Callable[..., Path], word: str
) -> None:
    table = read_table(write(f'x,y\n"{word}",1\n"{word}",2\n'))
    assert table.features["x"].tolist() == [word, word]


def test_declared_categories_keep_their_spelling(write: Callable[..., Path]) -> None:
    table = read_table(write("zip,x\n01234,1\n1234,1\n01234,2\n"), categories="zip")
    assert table.features["zip"].dtype == "category"
    assert table.features["zip"].tolist() == ["01234", "1234", "01234"]


@pytest.mark.parametrize("at_once", [1, 40, 2**18])
def test_how_many_rows_are_read_at_once_changes_nothing(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Among them a column of numbers with one word, and one that turns into text at its end."""
    monkeypatch.setattr(csv_rows, "CHUNK", at_once)
    monkeypatch.setattr(csv_rows, "CHUNK_PER_COLUMN", 1)
    odd = ["x" if i == 150 else i % 3 for i in range(200)]
    codes = [f"{'0' if i < 196 else 'w'}{i % 5}" for i in range(200)]
    rows = [f"{i % 7},{i / 8},{odd[i]},{codes[i]},c{i % 2}\n" for i in range(200)]
    path = write("a,b,odd,code,c\n" + "".join(rows))
    table = read_table(path, candidates="c", categories="code", on_bad_rows="skip")
    assert [(one.line, one.column, one.value) for one in table.bad] == [(152, "odd", "x")]
    assert table.features["odd"].tolist() == [i % 3 for i in range(200) if i != 150]
    assert table.features["b"].tolist() == [i / 8 for i in range(200) if i != 150]
    assert table.features["a"].dtype == "int8"
    later = read_table(path, ignore=["c", "odd"])
    assert later.features["code"].tolist() == codes


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8).filter(
    lambda name: (
        name[0] not in "[{"
        and name not in (*csv_rows.GAPS, "nan")
        and (csv_rows.number_of(name) is None or str(csv_rows.number_of(name)) == f"{name}.0")
    )
)
SOME_SETS = st.lists(st.sets(NAMES, min_size=1, max_size=4), min_size=1, max_size=8).filter(
    lambda found: len(set().union(*found)) > 1
)
ANY_FOLDER = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ANY_FOLDER
@pytest.mark.filterwarnings("ignore:The class name")
@given(SOME_SETS, st.sampled_from(["csv", "tsv", "parquet", "frame", "frame of sets"]))
def test_sets_come_back_from_every_kind_of_table(
    tmp_path: Path, found: list[set[str]], kind: str
) -> None:
    """Names hold quotes, separators, HTML and what else there is."""
    frame = pd.DataFrame({"x": [0.5] * len(found), "c": [sorted(names) for names in found]})
    source: Any = tmp_path / f"table.{kind}"
    if kind == "frame of sets":
        source = frame.assign(c=found)
    elif kind == "frame":
        source = frame
    elif kind == "parquet":
        frame.to_parquet(source)
    else:
        text = frame.assign(c=[json.dumps(names) for names in frame["c"]])
        text.to_csv(source, sep="\t" if kind == "tsv" else ",", index=False)
    assert sets(read_table(source, candidates="c")) == found


@ANY_FOLDER
@pytest.mark.filterwarnings("ignore:The class name")
@given(SOME_SETS, st.sampled_from("|;/ "))
def test_sets_come_back_from_separated_names(
    tmp_path: Path, found: list[set[str]], separator: str
) -> None:
    found = [{name.replace(separator, "_") for name in names} for names in found]
    if len(set().union(*found)) < 2:
        return
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ([number / 2, separator.join(names)] for number, names in enumerate(found))
        csv.writer(file).writerows([["x", "c"], *rows])
    table = read_table(tmp_path / "table.csv", candidates="c", separator=separator)
    assert sets(table) == found


def test_odd_class_names_are_mere_text(write: Callable[..., Path]) -> None:
    text = 'x,c\n1,"[""a|b"", ""<b>x</b>""]"\n2,<b>x</b>\n3,"[1, ""x[bold]""]"\n'
    assert sets(read_table(write(text), candidates="c")) == [
        {"a|b", "<b>x</b>"},
        {"<b>x</b>"},
        {"1", "x[bold]"},
    ]


def test_integers_in_typed_tables_stay_integers() -> None:
    frame = pd.DataFrame({"x": [0.1, 0.2], "c": [[3, 5], [5]], "t": [3.0, None]})
    table = read_table(frame, candidates="c", truth="t")
    assert isinstance(table.y, Candidates)
    assert table.y.classes.tolist() == [3, 5]
    assert table.truth is not None
    assert table.truth.tolist() == [3, None]
    with pytest.raises(InputError, match=r"'t' holds text.*candidates are integers"):
        read_table(frame.assign(t="3"), candidates="c", truth="t")
    text = frame.assign(c=["3|5", "5"])
    found = read_table(text, candidates="c", truth="t").truth
    assert found is not None
    assert found.tolist() == ["3", None]


def test_an_index_that_pandas_saved_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5], "c": ["a|b", "a"]}, index=[7, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet", candidates="c").features) == ["x"]


def test_ten_thousand_classes_are_read(write: Callable[..., Path]) -> None:
    names = [f"class number {i}" for i in range(10_000)]
    text = "x,c\n" + f"0.5,{'|'.join(names)}\n" + "".join(f"0.5,{name}\n" for name in names[:50])
    table = read_table(write(text), candidates="c")
    assert isinstance(table.y, Candidates)
    assert table.y.shape == (51, 10_000)
    assert table.y.sizes.tolist() == [10_000, *[1] * 50]


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
7,5,,a|b|a
8,5,"qu"ote,a
9,5,,"[[1]]"
10,5,,a|b
"""
FAULTS = [
    (5, "", "2,5,short", "has 3 cells instead of 4"),
    (6, "y", "inf", "is infinite"),
    (7, "c", "", "names no class"),
    (8, "c", "['a', 'b']", "begins like a JSON list"),
    (9, "c", "{'a', 'b'}", "begins like a JSON list"),
    (10, "c", "a||b", "has an empty name"),
    (11, "c", "a|b|a", "names 'a' twice"),
    (12, "", "", "quotes are not paired"),
    (13, "c", "[[1]]", "is a JSON list of something else"),
]


def test_every_bad_row_is_listed_with_its_true_line(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    path, errors = write(BAD), tmp_path / "errors.csv"
    with pytest.raises(InputError, match=r"9 rows do not parse \(line 5: has 3 cells") as caught:
        read_table(path, candidates="c", errors_to=errors)
    assert f"{errors} lists them" in str(caught.value)
    with errors.open(newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["line", "column", "value", "reason"]
    assert len(rows) == len(FAULTS)
    for row, fault in zip(rows, FAULTS, strict=True):
        assert (int(row[0]), row[1], row[2]) == fault[:3]
        assert fault[3] in row[3]
    table = read_table(path, candidates="c", on_bad_rows="skip", categories="note")
    assert table.features["x"].tolist() == [1, 10]
    assert table.rows.tolist() == [2, 14]
    assert [one.line for one in table.bad] == [fault[0] for fault in FAULTS]
    assert sets(table) == [{"a"}, {"a", "b"}]


def test_a_word_among_many_numbers_is_a_bad_row(write: Callable[..., Path]) -> None:
    rows = [f"{i / 2},c{i % 3}" for i in range(200)]
    rows[120] = "12;5,c1"
    path = write("x,c\n" + "\n".join(rows))
    with pytest.raises(InputError, match="line 122: column 'x': '12;5' is no number"):
        read_table(path, candidates="c")
    table = read_table(path, candidates="c", on_bad_rows="skip")
    assert table.features["x"].tolist() == [i / 2 for i in range(200) if i != 120]
    read_table(path, candidates="c", missing="12;5")


def test_a_class_that_only_bad_rows_name_does_not_exist(write: Callable[..., Path]) -> None:
    path = write("x,c\n1.5,a\ninf,zebra\n2.5,a|b\n")
    table = read_table(path, candidates="c", on_bad_rows="skip")
    assert isinstance(table.y, Candidates)
    assert table.y.classes.tolist() == ["a", "b"]


def test_bad_rows_of_a_frame_are_named_by_position(tmp_path: Path) -> None:
    frame = pd.DataFrame({"is a": [1, 0, 2, 0], "is b": [1, 1, 0, 0]}, index=[9, 9, 9, 9])
    with pytest.raises(InputError, match=r"2 rows .*row 2: column 'is a': '2' is neither 0 nor 1"):
        read_table(frame, indicators="is ", errors_to=tmp_path / "e.csv")
    listed = pd.read_csv(tmp_path / "e.csv")
    assert listed["row"].tolist() == [2, 3]
    assert read_table(frame, indicators="is ", on_bad_rows="skip").rows.tolist() == [0, 1]


def test_a_list_of_errors_is_replaced_once_there_are_none(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    errors = tmp_path / "errors.csv"
    read_table(write(BAD), candidates="c", errors_to=errors, on_bad_rows="skip", categories="note")
    assert len(errors.read_text().splitlines()) == 10
    path = write(PETS)
    read_table(path, candidates="seen", truth="gold", errors_to=errors)
    assert errors.read_text() == "line,column,value,reason\n"
    with pytest.raises(InputError, match="is the table itself"):
        read_table(path, candidates="seen", truth="gold", errors_to=path)
    assert path.read_text() == PETS


def test_a_quote_that_swallows_rows_cannot_be_skipped(write: Callable[..., Path]) -> None:
    path = write('x,c\n1,a\n2,"b\n3,a\n4,b\n')
    with pytest.raises(InputError, match="begins in line 3 and does not end there"):
        read_table(path, candidates="c", on_bad_rows="skip")


# What is refused


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", {}, "is empty: a header"),
        ("\n\n", {}, "is empty: a header"),
        ("x,c\n", {}, "has columns, but no rows"),
        ("x,c,x\n1,2,3\n", {}, "Several columns are named 'x'"),
        ("x,c\n1,a\n2,a\n", {"candidates": "c"}, "names 1 class \\(a\\): at least 2"),
        ("x,c\n1,\n2,\n", {"candidates": "c", "on_bad_rows": "skip"}, "no row parses. In line 2"),
        (PETS, {"candidates": "sen"}, "no column 'sen'. There is 'seen'"),
        (PETS, {"candidates": "seen", "ignore": ["id"]}, "`ignore`: there is no column 'id'"),
        (PETS, {"candidates": "seen", "truth": "seen"}, "'seen' is named in both `candidates` and"),
        (PETS, {"candidates": "seen", "ignore": "seen"}, "in both `candidates` and `ignore`"),
        (PETS, {"candidates": "seen", "votes": "t"}, "candidates and votes are passed"),
        (PETS, {"indicators": "is "}, "indicators='is ': no column begins with it"),
        (PETS, {"votes": ""}, "votes='': no column begins with it"),
        (PETS, {"votes": "seen"}, "votes='seen' is the whole name of a column"),
        (PETS, {"candidates": "seen", "separator": "||"}, "separator='||': it must be one"),
        (PETS, {"candidates": "seen", "separator": ""}, "separator='': it must be one"),
        (PETS, {"delimiter": ",,"}, "delimiter=',,': it must be one character"),
        (PETS, {"on_bad_rows": "warn"}, "on_bad_rows='warn': it must be 'error' or 'skip'"),
        (PETS, {"unanswered": "none"}, "unanswered='none': it must be 'error' or 'all classes'"),
        ("x,is a\n1,1\n", {"indicators": "is "}, "'is ' names 1 class"),
        ("x,by u\n1,a\n2,a\n", {"votes": "by "}, "'by ' names 1 class"),
        ("x,c,t\n1,a|b,\n", {"candidates": "c", "truth": "t"}, "'t' names no true label"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(
    write: Callable[..., Path], text: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(write(text), **options)


def test_files_that_are_no_tables_are_named(write: Callable[..., Path], tmp_path: Path) -> None:
    packed = gzip.compress(PETS.encode() * 100)
    broken = {
        tmp_path / "nowhere.csv": "There is no file",
        write(PETS, "t.xlsx"): "ends in '.xlsx'.*Rename",
        write(PETS, "t.parquet"): "no Parquet file, or is damaged",
        write(PETS, "plain.csv.gz"): "no gzip file, though its name ends in .gz",
        write(packed[:-20], "cut.csv.gz"): "gzip file that is cut short or damaged",
    }
    for path, reason in broken.items():
        with pytest.raises(InputError, match=reason) as caught:
            read_table(path)
        assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="a path or a DataFrame; got a list"):
        read_table([[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="are for CSV files"):
        read_table(pd.DataFrame({"x": [1]}), delimiter=";")


def test_text_that_is_not_utf8_is_refused_by_line_and_byte(write: Callable[..., Path]) -> None:
    content = PETS.encode() * 2000
    at = content.index(b"Bonn", len(content) // 2)
    path = write(content[:at] + b"\xfc" + content[at + 1 :])
    line = content[:at].count(b"\n") + 1
    with pytest.raises(InputError, match=f"line {line}, byte {at + 1} of the file"):
        read_table(path, candidates="seen")
    with pytest.raises(InputError, match="is not text in utf-16"):
        read_table(write(b"\xff\xfea"), encoding="utf-16")


def column_table(name: str, cells: list[Any]) -> pd.DataFrame:
    labels = [f"c{i % 3}" for i in range(len(cells))]
    return pd.DataFrame({name: cells, "width": 0.5, "labels": labels})


REFUSED = {
    "dates": ("born", ["2020-01-31", "1999-12-01", ""] * 10, "dates or times such as '2020-01-31'"),
    "other dates": ("born", ["3/14/2015", "1.2.99", "Mar 3, 2020"] * 10, "dates or times"),
    "times": ("at", ["2020-01-31T10:00:00Z", "12:30", "1:05 pm"] * 10, "dates or times"),
    "row numbers": ("n", list(range(1, 31)), "numbers rows"),
    "an id": ("customer_id", [907, 12, 55], "numbers rows"),
    "a saved index": ("", [5, 0, 7], "numbers rows"),
    "names of rows": ("file", [f"img-{i}.png" for i in range(30)], "30 different words in 30 rows"),
    "numbers with a word": (
        "age",
        ["31", "42", "?", "55"],
        r"but for '\?' \(line 4\).*missing='\?'",
    ),
    "nothing": ("empty", ["", "NA", ""], "no value in any row"),
    "the truth": ("gold", ["c0", "c1", "c2"] * 10, "names of classes alone.*`truth`"),
}


@pytest.mark.parametrize(("name", "cells", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_column_that_is_no_feature_is_refused_with_advice(
    tmp_path: Path, name: str, cells: list[Any], reason: str
) -> None:
    path = tmp_path / "t.csv"
    column_table(name, cells).to_csv(path, index=False)
    with pytest.raises(InputError, match=f"Column '{name}' .*{reason}") as caught:
        read_table(path, candidates="labels")
    assert any(name in str(caught.value) for name in ("`ignore`", "missing=", "`truth`"))
    assert list(read_table(path, candidates="labels", ignore=name).features) == ["width"]
    if name != "empty":
        kept = read_table(path, candidates="labels", categories=name).features
        assert list(kept) == [name, "width"]


def test_dates_with_a_type_are_refused_too_and_all_columns_at_once(tmp_path: Path) -> None:
    frame = column_table("born", list(pd.date_range("2020-01-01", periods=30)))
    frame.assign(id=range(30)).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(
        InputError, match=r"'born' holds dates.*2020-01-01.*'id' has 30 different int"
    ):
        read_table(tmp_path / "t.parquet", candidates="labels")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("age", [20, *range(20, 41)]),  # unique but for one
        ("paid", [907, 12, 55]),
        ("town", [f"town {i % 15}" for i in range(60)]),
        ("day", ["Monday", "May", "sat"] * 10),
        ("version", ["1.2", "1.10", "2.0"] * 10),
        ("ratio", [i / 7 for i in range(60)]),
    ],
)
def test_a_feature_is_not_mistaken_for_something_else(
    tmp_path: Path, name: str, cells: list[Any]
) -> None:
    path = tmp_path / "t.csv"
    column_table(name, cells).to_csv(path, index=False)
    assert list(read_table(path, candidates="labels").features) == [name, "width"]


def test_a_few_rows_to_predict_may_all_be_different(write: Callable[..., Path]) -> None:
    towns = "".join(f"{i},town {i}\n" for i in range(30))
    assert read_table(write("age,town\n" + towns)).features.shape == (30, 2)
    assert read_table(write("age,town\n7,Rome\n")).features.shape == (1, 2)
    with pytest.raises(InputError, match="'born' holds dates"):
        read_table(write("age,born\n7,2020-01-01\n"))


# Into a classifier


@pytest.fixture(scope="module")
def learned() -> tuple[RobustPLLClassifier, pd.DataFrame]:
    """From a table in which the weight tells cats from dogs and the town says nothing."""
    rng = np.random.default_rng(0)
    dog = rng.random(120) < 0.5
    frame = pd.DataFrame(
        {
            "weight": np.where(dog, 30.0, 4.0) + rng.normal(size=120),
            "town": rng.choice(["Rome", "Bonn"], 120),
            "age": pd.array(rng.integers(1, 15, 120), dtype="Int64"),
            "seen": np.where(rng.random(120) < 0.3, "cat|dog", np.where(dog, "dog", "cat")),
            "gold": np.where(dog, "dog", "cat"),
        }
    )
    frame.loc[3, "age"] = pd.NA
    table = read_table(frame, candidates="seen", truth="gold")
    model = RobustPLLClassifier(epochs=30, random_state=0).fit(table.features, table.y)
    return model, frame


def test_a_classifier_learns_from_a_csv_and_predicts_another(
    learned: tuple[RobustPLLClassifier, pd.DataFrame], tmp_path: Path
) -> None:
    model, frame = learned
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", candidates="seen", truth="gold")
    again = RobustPLLClassifier(epochs=30, random_state=0).fit(table.features, table.y)
    others = read_table(tmp_path / "t.csv", truth="gold", ignore="seen")
    assert (again.predict(others.features) == model.predict(others.features)).all()
    assert again.score(others.features, others.truth) > 0.9
    new = table.features.assign(town="Oslo")
    assert again.score(new, others.truth) > 0.9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("weight,town\n4,Rome\n", "(?s)missing.*age"),
        ("weight,town,age,extra\n4,Rome,3,1\n", "(?s)unseen.*extra"),
        ("town,weight,age\nRome,4,3\n", "order"),
        ("weight,town,age\nheavy,Rome,3\n", "'weight' held numbers in training"),
        ("weight,town,age\n,Rome,3\n4,Rome,3\n", "'weight' has no value in 1 rows"),
    ],
)
def test_a_table_of_another_form_is_refused_at_prediction(
    learned: tuple[RobustPLLClassifier, pd.DataFrame],
    write: Callable[..., Path],
    text: str,
    reason: str,
) -> None:
    with pytest.raises(ValueError, match=reason):
        learned[0].predict(read_table(write(text)).features)


# Size

MEASURED = """
import sys
from pathlib import Path
from robustpll import read_table
import pandas, pyarrow.compute, scipy.sparse, sklearn.exceptions

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
    rows = 400_000
    frame = pd.DataFrame(rng.normal(size=(rows, 10)).round(6), columns=list("0123456789"))
    frame["c"] = rng.choice(["a", "b", "a|b", "b|c"], rows)
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "t.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, read = map(float, done.stdout.split())
    assert read == rows
    assert grown < 200
