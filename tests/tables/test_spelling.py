"""Slips in class names are found, and names that are meant are left alone."""

import itertools
import string
import unicodedata

import pytest

from robustpll.tables.labels import Spellings


def groups(rows: dict[str, int]) -> list[set[str]]:
    return [{*names} for names in Spellings.of(rows).groups]


def test_hyphens_and_underscores_between_words_do_not_part_names() -> None:
    assert groups({"hot dog": 9, "hot-dog": 9, "hot_dog": 9}) == [{"hot dog", "hot-dog", "hot_dog"}]
    assert groups({"A": 9, "A-": 9, "A+": 9, "-1": 3, "1": 4}) == []


@pytest.mark.parametrize(
    "other",
    ["katze", "KATZE", "Katze ", " Katze", "\u00a0Katze", "Ｋatze", "Katz", "Kazte", "Katzze"],
)
def test_a_name_written_in_another_way_is_found(other: str) -> None:
    assert groups({"Katze": 90, other: 1, "Hund": 40}) == [{"Katze", other}]


def test_letters_that_unicode_writes_in_two_ways_are_one() -> None:
    one, other = (unicodedata.normalize(form, "Bär") for form in ("NFC", "NFD"))
    assert groups({one: 3, other: 3}) == [{one, other}]
    assert groups({"Straße": 3, "STRASSE": 3}) == [{"Straße", "STRASSE"}]
    assert groups({"polar  bear": 3, "Polar bear": 3}) == [{"polar  bear", "Polar bear"}]


def test_several_slips_of_one_name_are_one_group_with_the_most_frequent_first() -> None:
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
    ],
)
def test_names_that_are_meant_are_left_alone(names: tuple[str, str]) -> None:
    assert groups(dict(zip(names, (100, 1), strict=True))) == []


def test_of_two_frequent_names_none_is_a_slip() -> None:
    assert groups({"horse": 100, "house": 80}) == []
    assert groups({"horse": 100, "horze": 1}) == [{"horse", "horze"}]


def test_words_for_no_answer_are_found_whatever_their_case() -> None:
    rows = {"-": 3, "N/A": 2, "?": 1, "None": 4, "cat": 9, "dog": 7}
    assert Spellings.of(rows).placeholders == {"-": 3, "N/A": 2, "?": 1, "None": 4}
    assert groups(rows) == []


def test_names_without_rows_end_the_search_too() -> None:
    assert groups({"horse": 0, "house": 0, "mouse": 0}) == []


def test_many_names_are_not_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = itertools.product(string.ascii_lowercase[:10], repeat=4)
    rows = {"prefix" + "".join(each): 100 for each in letters}  # 10,000 names, each with 36 close
    looked_up = 0

    class Counted(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            nonlocal looked_up
            looked_up += 1
            return super().__getitem__(name)

    slips = __import__("robustpll.tables.labels", fromlist=["_typing_errors"])._typing_errors
    assert list(slips(Counted(rows))) == []
    assert looked_up < 200 * len(rows)
