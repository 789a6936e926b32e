"""Typing errors in class names are found, and names that are meant are left alone."""

import itertools
import string
import unicodedata

import pytest

from robustpll.tables.labels import _typing_errors, suspicious_names

NFC, NFD = (unicodedata.normalize(form, "Bär") for form in ("NFC", "NFD"))
OTHERS = ["katze", "KATZE", "Katze ", "\u00a0Katze", "Ｋatze", "Katz", "Kazte", "Katzze", "Kotze"]
MEANT = ["cat car", "class10 class11", "Grade.A Grade.B", "grade_a grade_b", "type.ii type.iii",
         "lion tiger", "active inactive", "stable tables", "A A-", "-1 1"]  # fmt: skip


def groups(rows: dict[str, int]) -> list[set[str]]:
    return [{*names} for names in suspicious_names(rows)[0]]


@pytest.mark.parametrize("other", OTHERS)
def test_a_name_written_in_another_way_is_found(other: str) -> None:
    assert groups({"Katze": 90, other: 1, "Hund": 40}) == [{"Katze", other}]


@pytest.mark.parametrize(
    "names", [("hot dog", "hot-dog", "hot_dog"), (NFC, NFD), ("Straße", "STRASSE")]
)
def test_names_that_differ_in_signs_alone_are_one_whatever_their_rows(
    names: tuple[str, ...],
) -> None:
    assert groups(dict.fromkeys(names, 9)) == [set(names)]


@pytest.mark.parametrize("names", MEANT)
def test_names_that_are_meant_are_left_alone(names: str) -> None:
    frequent, rare = (name.replace(".", " ") for name in names.split())
    assert groups({frequent: 100, rare: 1}) == []


def test_rare_names_are_errors_of_the_most_frequent_one() -> None:
    ((names,), _) = suspicious_names({"Katz": 1, "katze": 9, "KATZE": 2, "Katze": 90})
    assert list(names.items()) == [("Katze", 90), ("katze", 9), ("KATZE", 2), ("Katz", 1)]
    assert groups({"horse": 100, "house": 80}) == []
    assert groups({"horse": 0, "house": 0, "mouse": 0}) == []


def test_words_for_no_answer_are_found_whatever_their_case() -> None:
    rows = {"-": 3, "N/A": 2, "?": 1, "None": 4, "cat": 9, "dog": 7}
    assert suspicious_names(rows)[1] == {"-": 3, "N/A": 2, "?": 1, "None": 4}
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
