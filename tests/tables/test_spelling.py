"""Typing errors in class names are found, and names that are meant are left alone."""

import itertools
import string
import unicodedata

import pytest

from robustpll.tables.labels import Spellings, _typing_errors

NFC, NFD = (unicodedata.normalize(form, "Bär") for form in ("NFC", "NFD"))
OTHERS = ["katze", "KATZE", "Katze ", "\u00a0Katze", "Ｋatze", "Katz", "Kazte", "Katzze", "Kotze"]


def groups(rows: dict[str, int]) -> list[set[str]]:
    return [{*names} for names in Spellings.of(rows).groups]


@pytest.mark.parametrize("other", OTHERS)
def test_a_name_written_in_another_way_is_found(other: str) -> None:
    assert groups({"Katze": 90, other: 1, "Hund": 40}) == [{"Katze", other}]


@pytest.mark.parametrize(
    "names",
    [
        ("hot dog", "hot-dog", "hot_dog"),
        (NFC, NFD),
        ("Straße", "STRASSE"),
        ("polar  bear", "Polar bear"),
    ],
)
def test_names_that_differ_in_signs_alone_are_one_whatever_their_rows(
    names: tuple[str, ...],
) -> None:
    assert groups(dict.fromkeys(names, 9)) == [set(names)]


def test_several_errors_are_one_group_with_the_most_frequent_first() -> None:
    (names,) = Spellings.of({"Katz": 1, "katze": 9, "KATZE": 2, "Katze": 90}).groups
    assert list(names.items()) == [("Katze", 90), ("katze", 9), ("KATZE", 2), ("Katz", 1)]


@pytest.mark.parametrize(
    "names",
    [
        ("cat", "car"),  # short words
        ("a1", "a2"),
        ("class10", "class11"),  # digits are meant
        ("Grade A", "Grade B"),  # the words that differ are short
        ("grade_a", "grade_b"),
        ("type ii", "type iii"),
        ("lion", "tiger"),
        ("active", "inactive"),
        ("stable", "tables"),  # equal without the s
        ("A", "A-"),
        ("-1", "1"),
    ],
)
def test_names_that_are_meant_are_left_alone(names: tuple[str, str]) -> None:
    assert groups(dict(zip(names, (100, 1), strict=True))) == []


def test_of_two_frequent_names_none_is_an_error() -> None:
    assert groups({"horse": 100, "house": 80}) == []
    assert groups({"horse": 100, "horze": 1}) == [{"horse", "horze"}]
    assert groups({"horse": 0, "house": 0, "mouse": 0}) == []


def test_words_for_no_answer_are_found_whatever_their_case() -> None:
    rows = {"-": 3, "N/A": 2, "?": 1, "None": 4, "cat": 9, "dog": 7}
    assert Spellings.of(rows).placeholders == {"-": 3, "N/A": 2, "?": 1, "None": 4}
    assert groups(rows) == []


def test_many_names_are_not_compared_pair_by_pair() -> None:
    letters = itertools.product(string.ascii_lowercase[:10], repeat=4)
    lookups = 0

    class Counted(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            nonlocal lookups
            lookups += 1
            return super().__getitem__(name)

    rows = Counted({"prefix" + "".join(four): 100 for four in letters})  # each has 36 close names
    assert list(_typing_errors(rows)) == []
    assert lookups < 200 * len(rows)
