"""Decisions read back: names of all kinds, dates of all kinds, and people who disagree."""

import csv
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robustpll.clean.decisions_file import read_decisions
from robustpll.errors import InputError

KEY = "0123456789abcdef"
ROWS = np.arange(2, 12)
NAMES = np.array(["ant", "bee", "cow"])
NOON = "2026-11-15T12:00:00.000Z"
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r", "\r\n"]


def write(path: Path, *lines: tuple[object, ...]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # else a carriage return is not quoted
    writer.writerows([("row", "decision", "when", "table"), *((*line, KEY) for line in lines)])
    path.write_bytes(text.getvalue().encode())
    return path


def read(*paths: Path, names: np.ndarray = NAMES) -> dict[int, int]:
    return read_decisions(paths, ROWS, names, KEY)


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=10, unique=True))
@example([f"a{mark}b" for mark in LINE_ENDS])
def test_any_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    classes = np.array([name for name in names if not name.startswith("'")] or ["a"], dtype=object)
    lines = [(row, name, NOON) for row, name in zip(ROWS, classes, strict=False)]
    path = write(tmp_path_factory.mktemp("decided") / "d.csv", *lines)
    assert list(read(path, names=classes).values()) == list(range(len(classes)))


def test_names_like_formulas_are_read_with_the_apostrophe_of_the_page_and_without(
    tmp_path: Path,
) -> None:
    names = np.array(["=1+1", "'=1+1", "'tis", "-1"])
    cells = [(2, "'=1+1"), (3, "''=1+1"), (4, "'tis"), (5, "-1"), (6, "'-1"), (7, "=1+1")]
    path = write(tmp_path / "d.csv", *((*line, NOON) for line in cells))
    assert list(read(path, names=names).values()) == [0, 1, 2, 3, 3, 0]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-09-01T10:00:00.000Z", "2026-11-16T10:00:00.000Z"),
        ("1.9.2026 10:00", "16.11.2026 9:00"),
        ("2026/9/1", "2026/11/16"),
        ("11/16/2026 9:59 AM", "11/16/2026 1:00:30 PM"),
        ("16/11/2026 09:00", "2026-11-16T10:00:00Z"),
        ("11/11/2026 09:00:59", "11/11/2026 9:01"),
        ("2026-11-16T10:00:00+02:00", "2026-11-16T09:00:00Z"),
        ("2026-11-16 08:00:00", "2026-11-16T10:00:00+01:00"),  # without a zone it is in UTC
    ],
)
def test_the_latest_moment_counts_and_not_the_largest_text(
    tmp_path: Path, earlier: str, later: str
) -> None:
    lines = [(2, "ant", earlier), (2, "bee", later)]
    for order in (lines, lines[::-1]):
        with pytest.warns(UserWarning, match="1 rows were decided more than once"):
            assert read(write(tmp_path / "d.csv", *order)) == {0: 1}


@pytest.mark.parametrize(
    "when",
    [
        "9/1/2026",
        "11/16/26",
        "",
        "46342.4167",
        "31.2.2026",
        "11/16/2026 13:00 PM",
        "0001-01-01T00:00:00+23:00",
    ],
)
def test_what_is_no_date_or_may_be_two_is_refused_with_its_line(tmp_path: Path, when: str) -> None:
    path = write(tmp_path / "d.csv", (2, "ant", NOON), (3, "bee", when))
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}, line 3: `when` is {when!r}, which is not a date")
    assert "2026-11-15T10:00:00.000Z" in str(refused.value)


def test_people_who_disagree_are_reported_and_the_later_one_counts(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", (2, "ant", "2026-11-15T12:00:00Z"), (3, "ant", NOON))
    other = write(tmp_path / "other.csv", (2, "cow", "2026-11-15T11:00:00Z"), (3, "ant", NOON))
    with pytest.warns(UserWarning, match=r"1 rows .* \(rows 2\)"):
        assert read(one, other) == {0: 0, 1: 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they agree with themselves
        assert read(one, one) == {0: 0, 1: 0}


def test_different_decisions_of_the_same_moment_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", (5, "ant", "2026-11-15T12:00:00Z"))
    other = write(tmp_path / "other.csv", (5, "cow", "2026-11-15T13:00:00+01:00"))
    reason = r"other\.csv, line 2 and .*one\.csv, line 2 decide row 5 differently at the same time"
    with pytest.raises(InputError, match=reason):
        read(one, other)
    late = write(tmp_path / "late.csv", (5, "bee", "2026-11-16T12:00:00Z"))
    with pytest.warns(UserWarning, match="1 rows"):
        assert read(one, other, late) == {3: 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"2,emu,{NOON},{KEY}", "no class 'emu'"),
        (f"1,ant,{NOON},{KEY}", "has no row 1"),
        (f"2,ant,{NOON},other", "decided for another table"),
        (f"2,ant,{NOON}", "decided for another table"),
        (f"2,{'a' * 200_000},{NOON},{KEY}", "cannot be read"),
        (f'2,"a"b,{NOON},{KEY}', "cannot be read"),
        (f'2,"never closed,{NOON},{KEY}', "cannot be read"),
    ],
)
def test_lines_that_do_not_fit_are_refused(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f"row,decision,when,table\n{line}\n")
    with pytest.raises(InputError, match=reason):
        read(path)
