"""Mistakes that tables come with: each is read as it was meant, or refused with the remedy."""

import gzip
import itertools
import string
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustpll import Candidates, InputError, PLLClassifier, read_table
from robustpll.labels.spelling import _typing_errors, label_variants
from robustpll.tables import labels, source
from robustpll.tables.read import TableInPieces

Write = Callable[..., Path]
PETS = "weight,town,seen,gold\n4.5,Rome,cat,cat\n30,Bonn,dog|wolf,dog\n8,,wolf,\n"
SETS = {"candidates": "c"}
TRUTH = {"candidates": "c", "truth": "t"}
SEEN = {"candidates": "seen"}


def lines_of(heading: str, rows: int, row: Callable[[int], str]) -> str:
    return f"{heading}\n" + "".join(f"{row(i)}\n" for i in range(rows))


# Arguments and files


FRAME = pd.DataFrame({0: [1, 2], 1: [2, 3], "c": ["a", "b"]})
TYPED = pd.DataFrame({"x": [0.5, 1.5], "c": [{"a": 1}, {"b": 2}]})
DATES = pd.DataFrame({"born": pd.date_range("2020-01-01", periods=30), "id": range(30)})


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        ("", {}, "is empty. Its first line must name the columns"),
        ("sep=;\nx;c\n", {"delimiter": ";"}, "begins with 'sep=;', .* pass delimiter=';'"),
        ("sep=;\nx;c\n", {}, "begins with 'sep=;', .*Delete this line, and pass delimiter=';'"),
        ("\n\n", {}, "is empty. Its first line must name the columns"),
        ("x,c\n", {}, "has columns, but no rows"),
        ("x,c,x\n1,2,3\n", {}, "Several columns are named 'x'"),
        ("x,c\n1,a\n2,a\n", SETS, "names 1 class \\(a\\): at least 2"),
        ("x,c\n1,\n2,\n", SETS | {"on_bad_rows": "skip"}, "2 rows do not parse .line 2"),
        (PETS, {"candidates": "sen"}, "no column 'sen'. There is 'seen'"),
        (PETS, SEEN | {"ignore": ["id"]}, "`ignore`: there is no column 'id'"),
        (PETS, SEEN | {"truth": "seen"}, "'seen' is named in both `candidates` and `truth`"),
        (PETS, SEEN | {"votes": "t"}, "candidates and votes are passed"),
        (PETS, {"indicators": "is "}, "indicators='is ': it must be the beginning of some"),
        (PETS, {"votes": ""}, "votes='': it must be the beginning of some"),
        (PETS, {"votes": "seen"}, "votes='seen': .* not the whole name of one"),
        (PETS, SEEN | {"separator": "||"}, r"separator='\|\|': it must be one"),
        (PETS, {"delimiter": ",,"}, "delimiter=',,': it must be one character"),
        (PETS, {"decimal": ";"}, "decimal=';': it must be"),
        (PETS, {"on_bad_rows": "warn"}, "on_bad_rows='warn': it must be one of .*'skip'"),
        (PETS, {"unanswered": "none"}, "unanswered='none': it must be one of"),
        (PETS, {"like": "table.csv"}, "like='table.csv': it must be a result of read_table"),
        (PETS, {"encoding": "utf-99"}, "is not text in utf-99 .unknown encoding"),
        (PETS.replace(",", ";"), {}, "delimited by ';'. Pass delimiter=';'"),
        ("x,is a\n1,1\n", {"indicators": "is "}, "names 1 class"),
        ("x,by u\n1,a\n2,a\n", {"votes": "by "}, "names 1 class"),
        ("x,c,t\n1,a|b,\n", TRUTH, "'t' names no true label"),
        ("x,c,t\n1,a|b,A\n", TRUTH, r"\('A'\) of which none is a class"),
        ('x,c\n1,a\n2,"b\n3,a\n', SETS, "a quoted cell begins in line 3 and does not end"),
        (FRAME, {"votes": ["by u", "by v"]}, "votes=.*: it must be the beginning"),
        (FRAME, {"delimiter": ";"}, "are for CSV files"),
        (FRAME, {"candidates": "c", "ignore": 3}, "`ignore`: there is no column 3"),
        (TYPED, SETS, r"row 0: column 'c'.*begins like a JSON list"),
        (DATES.assign(c=["a", "b"] * 15), SETS, r"'born' holds dates.*'id' has 30 different int"),
        ([[1, 2]], {}, "a path or a DataFrame; got a list"),
    ],
)
def test_what_cannot_be_read_is_refused(
    write: Write, content: Any, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(write(content) if isinstance(content, str) else content, **options)


def test_files_that_are_no_tables_are_named(write: Write, tmp_path: Path) -> None:
    packed, content = gzip.compress(PETS.encode() * 100), PETS.encode() * 2000
    odd = content[:40_000] + b"\xfc" + content[40_001:]
    broken = {
        tmp_path / "nowhere.csv": "There is no file",
        write(PETS, "t.xlsx"): "ends in '.xlsx'.*Save a spreadsheet as CSV UTF-8",
        write(PETS, "t.parquet"): "is not a Parquet file",
        write(PETS, "plain.csv.gz"): "Not a gzipped file.*Rename it without .gz",
        write(packed[:-20], "cut.csv.gz"): "file ended before",
        write(odd, "odd.csv"): r"not text in utf-8.* byte 0xfc .*Save it as CSV UTF-8",
    }
    for path, reason in broken.items():
        with pytest.raises(InputError, match=reason) as caught:
            read_table(path)
        assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="is not text in utf-16"):
        read_table(write(b"\xff\xfea"), encoding="utf-16")


def test_a_line_without_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 20)
    with pytest.raises(InputError, match="has a line of 20 characters or more"):
        read_table(write(f"x,c\n1,a\n2,{'a' * 50}\n3,b\n"), candidates="c", on_bad_rows="skip")


@pytest.mark.parametrize("damaged", ["name", "x", "c", "other"])
def test_parquet_with_names_or_text_that_are_not_utf8_is_refused(
    damaged: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    binary = pa.array([b"a", b"\xff\xfe"] * 10, pa.binary())
    odd = pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())
    words = dict.fromkeys(("x", "c", "other"), pa.array(["a", "b"] * 10))
    words |= {} if damaged == "name" else {damaged: odd}
    pq.write_table(pa.table({"n": np.arange(20.0), "QQQ": np.arange(20.0)} | words), path)
    if damaged == "name":
        path.write_bytes(path.read_bytes().replace(b"QQQ", b"Q\xffQ"))
    with pytest.raises(InputError, match="text that is not UTF-8"):
        read_table(path, candidates="c", categories=["x", "other"])
    words = {"n": None, "x": ("a",)}
    if damaged in ("name", "x"):
        with pytest.raises(InputError, match="not UTF-8"):
            list(TableInPieces(path, words).pieces())
    else:  # other columns are not read
        assert len(list(TableInPieces(path, words).pieces())) == 1


# Names of classes


@pytest.mark.parametrize(
    ("form", "name", "text"),
    [
        ("votes", "by ", "x,by u,by v,t\n1.5,1,2.0,1.0\n2.5,2,,\n3.5,1,1.0,2.0\n"),
        ("candidates", "c", "x,c,t\n1.5,1|2,1.0\n2.5,2.0,\n3.5,1,2.00\n"),
        ("indicators", "is ", "x,is 1,is 2,t\n1.5,1,1,1.0\n2.5,0,1,\n3.5,1,0,2.0\n"),
    ],
)
def test_a_gap_does_not_turn_integers_into_other_classes(
    write: Write, form: str, name: str, text: str
) -> None:
    options: dict[str, Any] = {form: name, "truth": "t"}
    table = read_table(write(text), **options)
    assert Candidates.of(table.y).sets() == [{"1", "2"}, {"2"}, {"1"}]
    assert table.truth is not None
    assert table.truth.tolist() == ["1", None, "2"]
    other = read_table(write("x,c,t\n1,1.0,1.0\n2,2.5,1.0\n"), candidates="c", truth="t")
    assert Candidates.of(other.y).classes.tolist() == ["1.0", "2.5"]


@pytest.mark.parametrize("word", ["NA", "null", "?"])
def test_a_word_for_nothing_is_no_class_in_a_set_either(write: Write, word: str) -> None:
    text = f'x,c\n1,a|{word}\n2,"[""a"", ""{word}""]"\n3,b\n4,<b>|x[bold]\n'
    table = read_table(
        write(text), candidates="c", missing=word if word == "?" else (), on_bad_rows="skip"
    )
    assert [(fault.line, fault.value) for fault in table.bad] == [(2, f"a|{word}")]
    assert f"names {word!r}, which means no value" in table.bad[0].reason
    assert Candidates.of(table.y).sets() == [{"a", word}, {"b"}, {"<b>", "x[bold]"}]


@pytest.mark.parametrize("options", [SETS, {"votes": "c"}])
def test_more_candidates_than_memory_holds_are_refused_before_they_are_made(
    write: Write, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(labels, "MOST_BYTES", 5 * 10 * 9)
    text = lines_of("x,c" if "candidates" in options else "x,c1", 10, lambda i: f"0.{i},name{i}")
    with pytest.raises(InputError, match=r"10 rows and 10 classes.*Merge rare classes"):
        read_table(write(text), **options)
    read_table(write(text.replace("name9", "name8")), **options)


# Columns that are no features

REFUSED: dict[str, tuple[str, list[Any], str]] = {
    "dates": ("born", ["2020-01-31", "1999-12-01", ""] * 10, "dates or times .'2020-01-31'"),
    "times": ("at", ["2020-01-31T10:00:00Z", "1:05 pm", "Mar 3, 2020"] * 10, "dates or times"),
    "row numbers": ("n", list(range(1, 31)), "numbers rows"),
    "an id": ("customer_id", [907, 12, 55], "numbers rows"),
    "repeated ids": ("customer_id", [7 * (i // 2) for i in range(100)], "50 different integers"),
    "a saved index": ("", [5, 0, 7], "numbers rows"),
    "names of rows": ("file", [f"img-{i}.png" for i in range(30)], "30 different words in 30 rows"),
    "many words": ("who", [f"p {i // 4}" for i in range(6000)], "1500 different words in 6000"),
    "a word": ("age", ["31", "42", "?", "55"], r"but for '\?'.*`missing`"),
    "nothing": ("empty", ["", "NA", ""], "no value in any row"),
    "the truth": ("gold", ["c0", "c1", "c2"] * 10, "only names of classes.*`truth`"),
    "percent": ("x", [f"{i / 10}%" for i in range(90)], "numbers as text .*1234.5"),
    "thousands": (
        "x",
        [f"{i},{100 + i}" for i in range(90)],
        "numbers as text .*decimal=','",
    ),
    "decimal commas": ("x", ["1,5", "200,75", ""] * 30, "decimal commas. Pass decimal=','"),
    "both marks": (
        "x",
        ["1,5", "1.200,75", ""] * 30,
        r"decimal commas. Save '1\.200,75' and others without thousands .*Pass decimal=','",
    ),
    "money": ("x", ["$1,100.50", "$2,100.00", "7"] * 30, "numbers as text .*1234.5"),
    "zip codes": ("zip", ["10104", "00100"] * 9, "numbers as text .'10104'.*`categories`"),
}
ACCEPTED: dict[str, list[Any]] = {
    "age": [20, *range(20, 41)],  # unique but for one
    "paid": [907, 12, 55],
    "amount": [1000 + 7 * (i // 2) for i in range(100)],
    "town": [f"town {i % 15}" for i in range(60)],
    "day": ["Monday", "May", "sat"] * 10,
    "version": ["1.2", "1.10", "2.0"] * 10,
    "ratio": [i / 7 for i in range(60)],
}


def column_table(name: str, cells: list[Any]) -> pd.DataFrame:
    classes = [f"c{i % 3}" for i in range(len(cells))]
    return pd.DataFrame({name: cells, "width": 0.5, "labels": classes})


@pytest.mark.parametrize(("name", "cells", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_column_that_is_no_feature_is_refused_with_advice(
    tmp_path: Path, name: str, cells: list[Any], reason: str
) -> None:
    path = tmp_path / "t.csv"
    column_table(name, cells).to_csv(path, index=False)
    with pytest.raises(InputError, match=f"Column '{name}' .*{reason}") as caught:
        read_table(path, candidates="labels")
    assert any(word in str(caught.value) for word in ("`ignore`", "missing=", "`truth`", "1234.5"))
    assert list(read_table(path, candidates="labels", ignore=name).features) == ["width"]
    declared = read_table(path, candidates="labels", categories=name).features[name]
    assert declared.dropna().tolist() == [str(cell) for cell in cells if cell not in ("", "NA")]


def test_thousands_are_named_although_decimal_commas_are_read(write: Write) -> None:
    path = write("x;c\n" + "1.200,75;a\n13,5;b\n" * 30)
    with pytest.raises(InputError, match=r"Save '1\.200,75' and others without thousands"):
        read_table(path, delimiter=";", decimal=",", **SETS)


@pytest.mark.parametrize("start", [b"PK\3\4\x14\0\x08", b"\xd0\xcf\x11\xe0\xa1\xb1"])
@pytest.mark.parametrize("encoding", [None, "cp1252", "latin-1"])
def test_a_spreadsheet_that_is_called_csv_is_recognised_in_every_encoding(
    write: Write, start: bytes, encoding: str | None
) -> None:
    path = write(start + bytes(range(256)), "book.csv")
    with pytest.raises(InputError, match=r"book\.csv is a spreadsheet .* save it as CSV UTF-8"):
        read_table(path, encoding=encoding)


def test_a_file_of_names_in_another_encoding_is_told_how_to_save_it(write: Write) -> None:
    names = write("from;to\nkät;cat\n".encode("cp1252"), "map.csv")
    with pytest.raises(InputError, match=r"map\.csv is not UTF-8\. Save it as CSV UTF-8"):
        read_table(write(PETS), rename=names, **SEEN)


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_feature_is_not_mistaken_for_something_else(tmp_path: Path, name: str) -> None:
    column_table(name, ACCEPTED[name]).to_csv(tmp_path / "t.csv", index=False)
    assert list(read_table(tmp_path / "t.csv", candidates="labels").features) == [name, "width"]


def test_rows_to_predict_may_all_be_different(write: Write) -> None:
    towns = lines_of("age,town", 30, lambda i: f"{i},town {i}")
    assert read_table(write(towns)).features.shape == (30, 2)


def test_integers_are_features_unless_they_follow_the_candidates(write: Write) -> None:
    """They are features, too, if every row has all classes."""
    sets = "x,label,c", lambda i: f"{i / 7},{i % 3},{i % 3}|{(i + 1) % 3}"
    floats = "x,label,c", lambda i: f"{i / 7},{i % 3}.0,{i % 3}|{(i + 1) % 3}"
    votes = "x,label,by u,by v", lambda i: f"{i / 7},{i % 3},{i % 3},{i % 2}"
    for (heading, row), form in ((sets, SETS), (floats, SETS), (votes, {"votes": "by "})):
        with pytest.raises(InputError, match=r"'label' holds only names of classes.*`truth`"):
            read_table(write(lines_of(heading, 60, row)), **form)  # type: ignore[arg-type]
    for row in (lambda i: f"{i / 7},{i % 2},{i // 2 % 3}", lambda i: f"{i / 7},{i % 2},0|1"):
        table = read_table(write(lines_of("x,rooms,c", 60, row)), candidates="c")
        assert "rooms" in table.features


@pytest.mark.parametrize("start", [0, 10**6, 10**12])
def test_true_labels_that_are_numbers_are_no_features(start: int) -> None:
    truth, other = start + np.arange(60) % 3, start + np.arange(60) // 3 % 3
    sets = ["|".join({str(a), str(b)}) for a, b in zip(truth, other, strict=True)]
    for column in (truth, truth.astype(float)):
        frame = pd.DataFrame({"x": np.arange(60) / 7, "code": column, "seen": sets})
        with pytest.raises(InputError, match="'code' holds only names of classes"):
            read_table(frame, candidates="seen")


def test_codes_with_leading_zeros_are_no_numbers(write: Write) -> None:
    text = lines_of("zip,x", 300, lambda i: f"{'0' if i == 250 else '1'}010{i % 5},{i / 7}")
    assert read_table(write(text)).features["zip"].tolist()[250] == "00100"
    numbers = read_table(write("x,y\n0.5,0\n-0.25,10\n0,0\n")).features
    assert [str(kind) for kind in numbers.dtypes] == ["float64", "int8"]


def test_decimal_commas_are_read(write: Write) -> None:
    text = lines_of("x;word;c", 200, lambda i: f"{i // 2},{i % 2 * 5};a,b.{i % 2};c{i % 3}")
    options: dict[str, Any] = {"candidates": "c", "delimiter": ";", "decimal": ","}
    table = read_table(write(text), **options)
    assert table.features["x"].tolist() == [i / 2 for i in range(200)]
    assert table.features["word"].tolist()[:2] == ["a,b.0", "a,b.1"]
    odd = write(text.replace("\n50,0;", "\n1.250,0;"))
    bad = read_table(odd, **options, on_bad_rows="skip").bad
    assert [(fault.line, fault.value) for fault in bad] == [(102, "1.250,0")]


@pytest.mark.parametrize("cell", [["Rome", "Bonn"], {"town": "Rome"}, None])
@pytest.mark.parametrize("categories", [(), ("towns",)])
def test_lists_are_no_features(tmp_path: Path, cell: object, categories: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5], "towns": [cell, ["Rome"]], "c": ["a", "b"]})
    tables: list[pd.DataFrame | Path] = [frame]
    if not isinstance(cell, dict):  # else cells are of two kinds
        frame.to_parquet(tmp_path / "t.parquet")
        tables.append(tmp_path / "t.parquet")
    for table in tables:
        with pytest.raises(InputError, match=r"'towns' holds lists, .*`ignore`"):
            read_table(table, candidates="c", categories=categories)
        assert len(read_table(table, candidates="c", ignore="towns")) == 2


def test_words_for_nothing_count_in_every_kind_of_table(tmp_path: Path) -> None:
    ages, numbers = ["?", *(str(i % 50) for i in range(99))], [-1, *(i % 7 for i in range(99))]
    frame = pd.DataFrame({"age": ages, "n": numbers, "c": ["a", "b"] * 50})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, tmp_path / "t.parquet", tmp_path / "t.csv"):
        features = read_table(table, candidates="c", missing=["?", "-1"]).features
        for name in ("age", "n"):
            assert pd.api.types.is_numeric_dtype(features[name])
            assert features[name].isna().tolist() == [True, *[False] * 99]
    assert frame["age"].tolist() == ages
    with pytest.raises(InputError, match=r"numbers as text \('\?', '0'.*`missing`"):
        read_table(frame, candidates="c")


# A second table


def test_rows_to_predict_are_read_like_those_learned_from(write: Write) -> None:
    text = lines_of(
        "id;zip;size;town;c;t",
        60,
        lambda i: f"{i};{i % 3}1;{i},5;{'?' if i == 5 else f't{i % 4}'};c{i % 2};c{i % 2}",
    )
    options: dict[str, Any] = {"missing": "?", "delimiter": ";", "categories": "zip"}
    options |= {"candidates": "c", "truth": "t", "ignore": "id", "decimal": ","}
    table = read_table(write(text), **options)
    model = PLLClassifier(method="pl_knn").fit(table.features, table.y)
    new = read_table(write("town;size;zip;t\n7;1,5;01;c0\n?;2;21;\n"), like=table)
    assert (new.y, new.truth) == (None, None)
    assert list(new.features) == ["zip", "size", "town"]
    assert new.features["zip"].tolist() == ["01", "21"]
    assert new.features["size"].tolist() == [1.5, 2]
    assert new.features["town"].fillna("").tolist() == ["7", ""]
    assert len(model.predict(new.features)) == 2
    frame = pd.DataFrame({"zip": ["01"], "size": [0.5], "town": ["?"]})
    assert read_table(frame, like=table).features["town"].isna().all()


def test_a_table_like_another_may_have_labels_of_its_own(write: Write) -> None:
    table = read_table(write("x,c,t\n1.5,a|b,a\n2.5,b,b\n"), candidates="c", truth="t")
    scored = read_table(write("t,x\nb,3.5\n"), like=table, truth="t")
    assert scored.truth is not None
    assert scored.truth.tolist() == ["b"]
    again = read_table(write("x,c\n1,b\n2,a\n"), like=table, candidates="c")
    assert Candidates.of(again.y).sets() == [{"b"}, {"a"}]
    for text, options, reason in (
        ("t,x\nB,3.5\n", {"truth": "t"}, "of which none is a class"),
        ("y\n3\n", {}, "`like`: there is no column 'x'. There is 'y'"),
        ("x\nten\n", {}, "column 'x': 'ten' is not a number"),
    ):
        with pytest.raises(InputError, match=reason):
            read_table(write(text), like=table, **options)  # type: ignore[arg-type]


# Typing errors in class names

NFC, NFD = (unicodedata.normalize(form, "Bär") for form in ("NFC", "NFD"))
OTHERS = ["katze", "KATZE", "Katze ", "\u00a0Katze", "Ｋatze", "Katz", "Kazte", "Katzze", "Kotze"]
MEANT = ["cat car", "class10 class11", "Grade.A Grade.B", "grade_a grade_b", "type.ii type.iii",
         "lion tiger", "active inactive", "stable tables", "A A-", "-1 1",
         "1.2 12", "big.cat big.car"]  # fmt: skip


def groups(rows: dict[str, int]) -> list[set[str]]:
    return [{*names} for names in label_variants(rows).groups]


@pytest.mark.parametrize("other", OTHERS)
def test_a_name_written_in_another_way_is_found(other: str) -> None:
    assert groups({"Katze": 90, other: 1, "Hund": 40}) == [{"Katze", other}]


@pytest.mark.parametrize(
    "names",
    [("hot dog", "hot-dog", "hot_dog", "Hotdog"), (NFC, NFD), ("Straße", "STRASSE"),
     ("New York", "NewYork"), ("co-op", "coop"), ("No", "N o"), ("class 1", "class1")],
)  # fmt: skip
def test_names_that_differ_in_signs_alone_are_one_whatever_their_rows(
    names: tuple[str, ...],
) -> None:
    assert groups(dict.fromkeys(names, 9)) == [set(names)]


@pytest.mark.parametrize("names", MEANT)
def test_names_that_are_meant_are_left_alone(names: str) -> None:
    frequent, rare = (name.replace(".", " ") for name in names.split())
    assert groups({frequent: 100, rare: 1}) == []


def test_rare_names_are_errors_of_the_most_frequent_one() -> None:
    (names,) = label_variants({"Katz": 1, "katze": 9, "KATZE": 2, "Katze": 90}).groups
    assert list(names.items()) == [("Katze", 90), ("katze", 9), ("KATZE", 2), ("Katz", 1)]
    assert groups({"horse": 100, "house": 80}) == []
    assert groups({"horse": 0, "house": 0, "mouse": 0}) == []


def test_words_for_no_answer_are_found_whatever_their_case() -> None:
    rows = {"-": 3, "N/A": 2, "?": 1, "None": 4, "cat": 9, "dog": 7}
    assert label_variants(rows).placeholders == {"-": 3, "N/A": 2, "?": 1, "None": 4}
    assert groups(rows) == []


def test_many_names_are_not_compared_pair_by_pair() -> None:
    lookups = 0

    class Counted(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            nonlocal lookups
            lookups += 1
            return super().__getitem__(name)

    letters = itertools.product(string.ascii_lowercase[:10], repeat=3)
    rows = Counted({"prefix" + "".join(three): 100 for three in letters})  # each has 27 close names
    assert list(_typing_errors(rows)) == []
    assert lookups < 200 * len(rows)
