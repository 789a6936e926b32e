"""Mistakes that tables come with: each is read as it was meant, or refused with the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robustpll import Candidates, InputError, PLLClassifier, read_table
from robustpll.tables import labels
from robustpll.tables.pieces import Schema, TableInPieces


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return written


def lines_of(heading: str, rows: int, row: Callable[[int], str]) -> str:
    return f"{heading}\n" + "".join(f"{row(i)}\n" for i in range(rows))


# Names of classes


def test_a_gap_does_not_turn_integers_into_other_classes(write: Callable[..., Path]) -> None:
    votes = read_table(
        write("x,by u,by v,t\n1.5,1,2.0,1.0\n2.5,2,,\n3.5,1,1.0,2.0\n"), votes="by ", truth="t"
    )
    assert Candidates.of(votes.y).sets() == [{"1", "2"}, {"2"}, {"1"}]
    assert votes.truth is not None
    assert votes.truth.tolist() == ["1", None, "2"]
    text = "x,c,t\n1.5,1|2,1.0\n2.5,1.0,\n3.5,2,2.00\n"
    sets = read_table(write(text), candidates="c", truth="t")
    assert Candidates.of(sets.y).sets() == [{"1", "2"}, {"1"}, {"2"}]
    assert sets.truth is not None
    assert sets.truth.tolist() == ["1", None, "2"]
    block = read_table(write("x,is 1,is 2,t\n1.5,1,0,1.0\n2.5,1,1,\n"), indicators="is ", truth="t")
    assert block.truth is not None
    assert block.truth.tolist() == ["1", None]


def test_class_names_that_are_no_integers_stay_as_they_are(write: Callable[..., Path]) -> None:
    table = read_table(write("x,c,t\n1,1.0,1.0\n2,2.5,1.0\n"), candidates="c", truth="t")
    assert Candidates.of(table.y).classes.tolist() == ["1.0", "2.5"]
    assert table.truth is not None
    assert table.truth.tolist() == ["1.0", "1.0"]


@pytest.mark.parametrize("names", ["1|1.0|b", "a|7|07"])
def test_two_names_of_one_number_are_refused(write: Callable[..., Path], names: str) -> None:
    with pytest.raises(InputError, match="are equal as numbers"):
        read_table(write(f"x,c\n1,{names}\n"), candidates="c")


def test_a_truth_of_other_names_is_refused(write: Callable[..., Path]) -> None:
    text = "x,c,t\n1,cat|dog,Cat\n2,dog,Dog\n"
    with pytest.raises(InputError, match=r"'t' names true labels \(Cat, Dog\) of which none is"):
        read_table(write(text), candidates="c", truth="t")


@pytest.mark.parametrize("word", ["NA", "null", "?"])
def test_a_word_for_nothing_is_no_class_in_a_set_either(
    write: Callable[..., Path], word: str
) -> None:
    text = f'x,c\n1,a|{word}\n2,"[""a"", ""{word}""]"\n3,b\n'
    table = read_table(write(text), candidates="c", missing="?", on_bad_rows="skip")
    assert [(one.line, one.value) for one in table.bad] == [(2, f"a|{word}")]
    assert f"names {word!r}, which means no value" in table.bad[0].reason
    assert Candidates.of(table.y).sets() == [{"a", word}, {"b"}]


def test_lists_as_python_writes_them_are_refused_with_two_ways_out(
    write: Callable[..., Path],
) -> None:
    with pytest.raises(InputError, match=r"json\.dumps.*Parquet"):
        read_table(write("x,c\n1,\"['a', 'b']\"\n"), candidates="c")


def test_more_candidates_than_memory_holds_are_refused_before_they_are_made(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MOST_BYTES", 5 * 10 * 9)
    texts = {
        "c": lines_of("x,c", 10, lambda i: f"0.{i},name{i}"),
        "by ": lines_of("x,by u,by v", 10, lambda i: f"0.{i},name{i},"),
    }
    for name, text in texts.items():
        form = {"candidates" if name == "c" else "votes": name}
        with pytest.raises(InputError, match=r"10 rows and 10 classes.*Merge rare classes"):
            read_table(write(text), **form)
        read_table(write(text.replace("name9", "name8")), **form)


# Columns


def test_codes_with_leading_zeros_are_no_numbers(write: Callable[..., Path]) -> None:
    text = lines_of(
        "zip,x,c", 300, lambda i: f"{'0' if i == 250 else '1'}010{i % 5},{i / 7},c{i % 3}"
    )
    path = write(text)
    with pytest.raises(InputError, match=r"'zip' holds numbers as text such as '0010\d'.*`categor"):
        read_table(path, candidates="c")
    found = read_table(path, candidates="c", categories="zip").features["zip"]
    assert found.tolist()[249:251] == ["10104", "00100"]
    assert read_table(path, ignore="c").features["zip"].tolist()[250] == "00100"
    fine = read_table(write("x,y\n0.5,0\n-0.25,10\n0,0\n")).features
    assert [str(kind) for kind in fine.dtypes] == ["float64", "int8"]


def test_rows_to_predict_are_read_like_those_learned_from(write: Callable[..., Path]) -> None:
    rng = np.random.default_rng(0)
    text = lines_of(
        "id;zip;size;town;c;t",
        60,
        lambda i: (
            f"{i};{i % 3}1;{rng.normal():.2f};{'?' if i == 5 else f't{i % 4}'};c{i % 2};c{i % 2}"
        ),
    )
    options: dict[str, Any] = {"missing": "?", "delimiter": ";", "categories": "zip"}
    table = read_table(
        write(text.replace(".", ",")),
        candidates="c",
        truth="t",
        ignore="id",
        decimal=",",
        **options,
    )
    model = PLLClassifier(method="pl_knn").fit(table.features, table.y)
    new = read_table(write("town;size;zip;t\n7;1,5;01;c0\n?;2;21;\n"), like=table)
    assert new.y is None
    assert new.truth is None
    assert list(new.features) == ["zip", "size", "town"]
    assert new.features["zip"].tolist() == ["01", "21"]
    assert new.features["size"].tolist() == [1.5, 2]
    assert new.features["town"].tolist()[0] == "7"
    assert new.features["town"].isna().tolist() == [False, True]
    assert len(model.predict(new.features)) == 2
    frame = pd.DataFrame({"zip": ["01"], "size": [0.5], "town": ["?"]})
    assert read_table(frame, like=table).features["town"].isna().all()


def test_a_table_like_another_may_have_labels_of_its_own(write: Callable[..., Path]) -> None:
    table = read_table(write("x,c,t\n1.5,a|b,a\n2.5,b,b\n"), candidates="c", truth="t")
    scored = read_table(write("t,x\nb,3.5\n"), like=table, truth="t")
    assert scored.truth is not None
    assert scored.truth.tolist() == ["b"]
    again = read_table(write("x,c\n1,b\n2,a\n"), like=table, candidates="c")
    assert Candidates.of(again.y).sets() == [{"b"}, {"a"}]
    with pytest.raises(InputError, match="of which none is a class"):
        read_table(write("t,x\nB,3.5\n"), like=table, truth="t")


def test_a_table_that_is_not_like_the_other_is_refused(write: Callable[..., Path]) -> None:
    table = read_table(write("x,c\n1.5,a\n2.5,b\n"), candidates="c")
    with pytest.raises(InputError, match=r"lacks 'x' and has 'y' besides.*`ignore`"):
        read_table(write("y\n3\n"), like=table)
    with pytest.raises(InputError, match="column 'x': 'ten' is no number"):
        read_table(write("x\nten\n"), like=table)
    with pytest.raises(InputError, match="like must be what read_table gave; got a str"):
        read_table(write("x\n1\n"), like="table.csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("truth", ["{0}", "{0}.0"])
def test_a_forgotten_truth_of_integers_is_no_feature(
    write: Callable[..., Path], truth: str
) -> None:
    text = lines_of(
        "x,label,c", 60, lambda i: f"{i / 7},{truth.format(i % 3)},{i % 3}|{(i + 1) % 3}"
    )
    with pytest.raises(InputError, match=r"'label' holds names of classes alone.*`truth`"):
        read_table(write(text), candidates="c")
    votes = lines_of("x,label,by u,by v", 60, lambda i: f"{i / 7},{i % 3},{i % 3},{i % 2}")
    with pytest.raises(InputError, match=r"'label' holds names of classes alone.*`truth`"):
        read_table(write(votes), votes="by ")


def test_small_integers_are_features_unless_they_follow_the_candidates(
    write: Callable[..., Path],
) -> None:
    """Also where every row has all classes, so that each number is a candidate by itself."""
    other = lines_of("x,rooms,c", 60, lambda i: f"{i / 7},{i % 3},{i // 2 % 3}")
    assert "rooms" in read_table(write(other), candidates="c").features
    everything = lines_of("x,rooms,c", 60, lambda i: f"{i / 7},{i % 2},0|1")
    assert "rooms" in read_table(write(everything), candidates="c").features


def test_many_words_are_refused_however_many_rows_there_are(write: Callable[..., Path]) -> None:
    text = lines_of("x,customer,c", 6000, lambda i: f"{i / 7},person {i // 4},c{i % 3}")
    with pytest.raises(InputError, match="1500 different words in 6000 rows"):
        read_table(write(text), candidates="c")
    frame = read_table(write(text), ignore="c").features
    with pytest.raises(InputError, match="1500 different words in 6000 rows"):
        PLLClassifier().fit(frame, [f"c{i % 3}" for i in range(6000)])


def test_ids_that_repeat_are_ids(write: Callable[..., Path]) -> None:
    text = lines_of("customer_id,x,c", 100, lambda i: f"{1000 + 7 * (i // 2)},{i / 7},c{i % 3}")
    with pytest.raises(InputError, match=r"'customer_id' has 50 different integers.*`ignore`"):
        read_table(write(text), candidates="c")
    few = text.replace("customer_id", "amount")
    assert "amount" in read_table(write(few), candidates="c").features


NOTATIONS = {
    "percent": lambda i: f"{i / 10}%",
    "thousands": lambda i: f'"{i},{100 + i}"',
    "money": lambda i: f'"${i},{100 + i}.50"',
    "some thousands": lambda i: f'"{1 + i // 40},{100 + i}"' if i % 3 == 0 else f"{i}",
}


@pytest.mark.parametrize("cell", NOTATIONS.values(), ids=NOTATIONS.keys())
def test_numbers_written_for_people_are_refused_with_the_right_advice(
    write: Callable[..., Path], cell: Callable[[int], str]
) -> None:
    text = lines_of("x,c", 90, lambda i: f"{cell(i)},c{i % 3}")
    with pytest.raises(InputError, match=r"'x' holds numbers such as .*without signs and separat"):
        read_table(write(text), candidates="c")


def test_decimal_commas_are_named_and_read(write: Callable[..., Path]) -> None:
    path = write(lines_of("x;word;c", 200, lambda i: f"{i // 2},{i % 2 * 5};a,b.{i % 2};c{i % 3}"))
    with pytest.raises(InputError, match=r"'x' holds numbers such as '0,0'.*decimal=','"):
        read_table(path, candidates="c", delimiter=";")
    table = read_table(path, candidates="c", delimiter=";", decimal=",")
    assert table.features["x"].tolist() == [i / 2 for i in range(200)]
    assert table.features["word"].tolist()[:2] == ["a,b.0", "a,b.1"]
    odd = write(path.read_text().replace("\n50,0;", "\n1.250,0;"))
    found = read_table(odd, candidates="c", delimiter=";", decimal=",", on_bad_rows="skip")
    assert [(one.line, one.value) for one in found.bad] == [(102, "1.250,0")]
    with pytest.raises(InputError, match="decimal=';': it must be"):
        read_table(path, decimal=";")


@pytest.mark.parametrize("cell", [["Rome", "Bonn"], {"town": "Rome"}, None])
@pytest.mark.parametrize("categories", [(), ("towns",)])
def test_lists_are_no_features(tmp_path: Path, cell: object, categories: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5], "towns": [cell, ["Rome"]], "c": ["a", "b"]})
    sources: list[pd.DataFrame | Path] = [frame]
    if not isinstance(cell, dict):  # else cells are of two kinds
        frame.to_parquet(tmp_path / "t.parquet")
        sources.append(tmp_path / "t.parquet")
    for source in sources:
        with pytest.raises(InputError, match=r"'towns' holds lists or the like, .* `ignore`"):
            read_table(source, candidates="c", categories=categories)
        assert len(read_table(source, candidates="c", ignore="towns")) == 2


def test_words_for_nothing_count_in_every_kind_of_table(tmp_path: Path) -> None:
    ages = ["?", *(str(i % 50) for i in range(99))]
    frame = pd.DataFrame(
        {"age": ages, "n": [-1, *[i % 7 for i in range(99)]], "c": ["a", "b"] * 50}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.parquet", tmp_path / "t.csv"):
        found = read_table(source, candidates="c", missing=["?", "-1"]).features
        for name in ("age", "n"):
            assert pd.api.types.is_numeric_dtype(found[name])
            assert found[name].isna().tolist() == [True, *[False] * 99]
    assert frame["age"].tolist() == ages
    with pytest.raises(InputError, match=r"but for '\?' \(row 0\).*missing='\?'"):
        read_table(frame, candidates="c")


# Rows


TABLE = lines_of("w,n,town,c", 60, lambda i: f"{i / 2},{i % 7},Rome,c{i % 3}").split("\n")


@pytest.mark.parametrize("last", ['15.0,2,Rome,c0"', '15.0,2,Rome",c0'])
def test_rows_between_two_stray_quotes_are_all_told(write: Callable[..., Path], last: str) -> None:
    """Also where what they become has as many cells as a row should have."""
    rows = [*TABLE]
    rows[10], rows[20] = '5.0,3,"Rome,c1', last
    table = read_table(write("\n".join(rows)), candidates="c", on_bad_rows="skip")
    assert [one.line for one in table.bad] == list(range(11, 22))
    assert "lines 11 to 21 are one row" in table.bad[0].reason
    assert len(table) == 60 - 11


def test_text_of_several_lines_is_one_cell(write: Callable[..., Path]) -> None:
    path = write('x,note,c\n1,"Dear all,\nit rains, so\nbye",a\n2,"Yes, I\ndo",b\n')
    table = read_table(path, candidates="c", categories="note")
    assert table.features["note"].tolist() == ["Dear all,\nit rains, so\nbye", "Yes, I\ndo"]
    assert table.rows.tolist() == [2, 5]


# Sentences instead of tracebacks


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"candidates": 1}, "candidates=1: pass one text"),
        ({"candidates": ["c"]}, r"candidates=\['c'\]: pass one text"),
        ({"votes": ["by u", "by v"]}, "votes=.*: pass one text"),
        ({"separator": None}, "separator=None: it must be one character"),
        ({"candidates": "c", "ignore": 3}, "`ignore`: there is no column 3"),
    ],
)
def test_odd_arguments_are_told_in_a_sentence(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_table(pd.DataFrame({0: [1, 2], 1: [2, 3], "c": ["a", "b"]}), **options)


def test_a_dictionary_is_no_set_of_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5], "c": [{"a": 1}, {"b": 2}]})
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        with pytest.raises(InputError, match=r"row 0: column 'c'.*begins like a JSON list"):
            read_table(source, candidates="c")


def test_a_list_of_errors_that_cannot_be_written_is_refused(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"errors_to=.* is a folder"):
        read_table(write("x,c\n1,a\n2\n3,b\n"), candidates="c", errors_to=tmp_path)


def binary_as_text(cells: list[bytes]) -> pa.Array:
    binary = pa.array(cells, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


@pytest.mark.parametrize("damaged", ["name", "x", "c", "other"])
def test_parquet_with_names_or_text_that_are_not_utf8_is_told(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    odd = binary_as_text([b"a", b"\xff\xfe"] * 10)
    words = dict.fromkeys(("x", "c", "other"), pa.array(["a", "b"] * 10)) | {damaged: odd}
    if damaged == "name":
        del words["name"]
    pq.write_table(pa.table({"n": np.arange(20.0), "QQQ": np.arange(20.0)} | words), path)
    if damaged == "name":
        path.write_bytes(path.read_bytes().replace(b"QQQ", b"Q\xffQ"))
    reason = "has names of columns" if damaged == "name" else f"Column '{damaged}' holds text"
    with pytest.raises(InputError, match=f"{reason}.* not UTF-8"):
        read_table(path, candidates="c", categories=["x", "other"])
    schema = Schema({"n": None, "x": ("a",)})
    if damaged in ("name", "x"):
        with pytest.raises(InputError, match="not UTF-8"):
            list(TableInPieces.opened(path, schema).pieces())
    else:
        assert len(list(TableInPieces.opened(path, schema).pieces())) == 1
    if damaged == "other":
        with pytest.raises(InputError, match="Column 'other' holds text that is not UTF-8"):
            list(TableInPieces.opened(path, schema).pieces(keep=["other"]))
        assert len(read_table(path, candidates="c", ignore="other", categories="x")) == 20


# Into a classifier


def test_scores_ask_for_rows_whose_truth_is_known() -> None:
    frame = pd.DataFrame(
        {"x": np.arange(40) % 2 + 0.5, "c": [[i % 2] for i in range(40)], "t": np.arange(40) % 2.0}
    )
    frame.loc[7, "t"] = np.nan
    table = read_table(frame, candidates="c", truth="t")
    model = PLLClassifier(method="pl_knn").fit(table.features, table.y)
    with pytest.raises(InputError, match=r"no label in 1 rows \(7\)"):
        model.score(table.features, table.truth)
    known = pd.notna(table.truth)
    assert table.truth is not None
    assert model.score(table.features[known], table.truth[known]) == 1


def test_words_that_are_all_new_are_refused_at_prediction() -> None:
    frame = pd.DataFrame({"zip": ["00101", "00102"] * 10, "x": np.arange(20) / 7})
    learned = frame.astype({"zip": "category"})
    model = PLLClassifier(method="pl_knn").fit(learned, ["a", "b"] * 10)
    with pytest.raises(InputError, match=r"'zip' holds no word that training saw: '101', '102'"):
        model.predict(frame.assign(zip=[101, 102] * 10))
    model.predict(frame.assign(zip="90210"))
    model.predict(frame.assign(zip=["00101", "90210"] * 10))
