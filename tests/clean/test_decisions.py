"""Decisions read back: names of all kinds, dates of all kinds, and people who disagree."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from robustpll.clean.decisions_file import (
    CANNOT_TELL,
    CHANGED,
    CONFLICT,
    EXCLUDE,
    GONE,
    Decisions,
    RowKeys,
    read_decisions,
)
from robustpll.errors import InputError

KEY = "0123456789abcdef"
ROWS = np.arange(2, 12)
KEYS = RowKeys(ROWS, KEY, [f"content {row}" for row in ROWS], [f"id {row}" for row in ROWS])
NAMES = np.array(["ant", "bee", "cow"])
NOON, LATER = "2026-11-15T12:00:00.000Z", "2026-11-15T13:00:00.000Z"
LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r", "\r\n"]
HEAD = ("row", "decision", "when", "table", "kind", "id", "content", "reviewer", "round", "cells")


def write(path: Path, *lines: tuple[object, ...], head: tuple[str, ...] = HEAD[:4]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # else a carriage return is not quoted
    writer.writerows([head, *lines])
    path.write_bytes(text.getvalue().encode())
    return path


def old(path: Path, *lines: tuple[object, ...]) -> Path:
    """A file as version 0.1 wrote it."""
    return write(path, *((*line, KEY) for line in lines))


def new(path: Path, *lines: dict[str, object]) -> Path:
    """A file with all columns; rows are 2 to 11."""
    usual = {"row": 2, "decision": "ant", "when": NOON, "table": "another", "kind": "label"}
    usual |= {"id": "", "content": "content 2", "reviewer": "eve", "round": 1, "cells": "{}"}
    return write(path, *(tuple((usual | line)[name] for name in HEAD) for line in lines), head=HEAD)


def read(*paths: Path, names: np.ndarray = NAMES, keys: RowKeys = KEYS) -> Decisions:
    return read_decisions(paths, keys, names)


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=10, unique=True))
@example([f"a{mark}b" for mark in LINE_ENDS])
def test_any_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    classes = np.array([name for name in names if not name.startswith("'")] or ["a"], dtype=object)
    lines = [(row, name, NOON) for row, name in zip(ROWS, classes, strict=False)]
    path = old(tmp_path_factory.mktemp("decided") / "d.csv", *lines)
    assert list(read(path, names=classes).settled.values()) == list(range(len(classes)))


def test_names_like_formulas_are_read_with_the_apostrophe_of_the_page_and_without(
    tmp_path: Path,
) -> None:
    names = np.array(["=1+1", "'=1+1", "'tis", "-1"])
    cells = [(2, "'=1+1"), (3, "''=1+1"), (4, "'tis"), (5, "-1"), (6, "'-1"), (7, "=1+1")]
    path = old(tmp_path / "d.csv", *((*line, NOON) for line in cells))
    assert list(read(path, names=names).settled.values()) == [0, 1, 2, 3, 3, 0]


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
        decisions = read(old(tmp_path / "d.csv", *order))
        assert (decisions.settled, decisions.again) == ({0: 1}, {})


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_file_that_a_spreadsheet_saved_with_other_delimiters_is_read(
    tmp_path: Path, delimiter: str
) -> None:
    path = tmp_path / "d.csv"
    cells = (
        [*HEAD],
        ["2", "ant", "16.11.2026 9:00", "", "label", "", "content 2", "a, b", "1", "{}"],
    )
    path.write_text("\r\n".join(map(delimiter.join, cells)), encoding="utf-8-sig")
    assert read(path).settled == {0: 0}


def test_a_file_in_another_encoding_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes("row,decision,when,table\n2,Öl,,".encode("cp1252"))
    with pytest.raises(InputError, match="Save it as CSV UTF-8"):
        read(path)


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
    path = old(tmp_path / "d.csv", (2, "ant", NOON), (3, "bee", when))
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}, line 3: `when` is {when!r}, which is not a date")
    assert "2026-11-15T10:00:00.000Z" in str(refused.value)


def test_different_decisions_of_a_person_at_the_same_moment_are_refused(tmp_path: Path) -> None:
    path = old(
        tmp_path / "one.csv",
        (5, "ant", "2026-11-15T12:00:00Z"),
        (5, "cow", "2026-11-15T13:00:00+01:00"),
    )
    reason = r"one\.csv, line 2 and .*one\.csv, line 3 decide row 5 differently at the same time"
    with pytest.raises(InputError, match=reason):
        read(path)


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
        (f"2,ant,{NOON},{KEY},guess", "`kind` is 'guess', and should be label, cannot tell or"),
        (f"2,ant,{NOON},{KEY},label,x,content 2,eve,x", "`round` is 'x'"),
    ],
)
def test_lines_that_do_not_fit_are_refused(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f"{','.join(HEAD)}\n{line}\n")
    with pytest.raises(InputError, match=reason):
        read(path)


def test_rows_are_found_by_their_content_and_changed_ones_by_their_id(tmp_path: Path) -> None:
    path = new(
        tmp_path / "d.csv",
        {"content": "content 3", "row": 99},
        {"content": "content 4", "kind": "cannot tell", "decision": ""},
        {"content": "content 5", "kind": "exclude", "decision": ""},
        {"content": "before", "id": "id 6", "decision": "cow"},
        {"content": "elsewhere", "id": "id 77"},
        {"content": "elsewhere"},
        {"content": "content 8", "decision": "emu"},
    )
    decisions = read(path)
    assert decisions.settled == {1: 0, 2: CANNOT_TELL, 3: EXCLUDE}
    assert decisions.why == {4: CHANGED, 6: GONE}
    assert [decision.name for decision in decisions.again[4]] == ["cow"]
    assert decisions.unmatched == 2
    assert [*decisions.messages()] == [
        "rows to decide again, because they changed after the decision: 1",
        "rows to decide again, because the table has no such class (emu): 1",
        "decisions not applied, because they match no row: 2",
    ]
    both = new(tmp_path / "d.csv", {"content": "before", "id": "id 6"}, {"content": "content 6"})
    assert (read(both).settled, read(both).again) == ({4: 0}, {})  # the changed row was decided


def test_cells_that_name_no_class_are_named_and_blanks_around_a_name_do_not_count(
    tmp_path: Path,
) -> None:
    assert read(new(tmp_path / "c.csv", {"decision": " ant "})).settled == {0: 0}
    decisions = read(new(tmp_path / "d.csv", {"decision": "Katze"}))
    assert "no such class (Katze): 1" in "".join(decisions.messages())
    with pytest.raises(InputError, match=r"line 2: `decision` is empty"):
        read(new(tmp_path / "e.csv", {"decision": " "}))


def test_equal_rows_share_a_decision(tmp_path: Path) -> None:
    keys = RowKeys(ROWS[:3], KEY, ["content 2", "other", "content 2"])
    assert read(new(tmp_path / "d.csv", {}), keys=keys).settled == {0: 0, 2: 0}


def test_people_who_agree_settle_a_row_and_others_are_asked_again(tmp_path: Path) -> None:
    names = {2: "ant bee", 3: "ant ant", 4: "bee bee", 5: "cow cow"}
    lines = [
        {"content": f"content {row}", "reviewer": who, "decision": name, "id": ""}
        for row, both in names.items()
        for who, name in zip(("ada", "bob"), both.split(), strict=True)
    ]
    decisions = read(new(tmp_path / "d.csv", *lines))
    assert decisions.settled == {1: 0, 2: 1, 3: 2}
    assert decisions.why == {0: CONFLICT}
    assert {d.reviewer: d.name for d in decisions.again[0]} == {"ada": "ant", "bob": "bee"}
    several, conflicts = decisions.messages()
    assert several == "decided by several people: 4 rows, 75.0% alike, Cohen's kappa 0.64"
    assert conflicts.endswith("because several people decided differently: 1")
    settling = {"content": "content 2", "reviewer": "bob", "decision": "bee", "round": 2}
    decisions = read(new(tmp_path / "d.csv", *lines, settling | {"when": LATER}))
    assert (decisions.settled[0], decisions.again) == (1, {})
    assert next(decisions.messages()) == several  # by what they said on their own
    late = settling | {"reviewer": "ada", "decision": "cow"}
    decisions = read(new(tmp_path / "d.csv", *lines, settling, late))
    assert {one.name for one in decisions.again[0]} == {"bee", "cow"}  # of the second round


def test_files_without_names_are_several_people_and_repeated_lines_count_once(
    tmp_path: Path,
) -> None:
    one = old(tmp_path / "one.csv", (2, "ant", NOON), (3, "ant", NOON))
    other = old(tmp_path / "other.csv", (2, "ant", NOON), (3, "bee", LATER))
    decisions = read(one, other)
    assert (decisions.settled, decisions.why) == ({0: 0}, {1: CONFLICT})
    assert len(decisions.shared) == 1  # row 2 was decided once
    assert {one.reviewer for one in decisions.again[1]} == {str(one), str(other)}
    nameless = new(tmp_path / "one.csv", {"reviewer": ""})
    named = new(tmp_path / "other.csv", {"reviewer": "ada"}, {"reviewer": "ada", "when": LATER})
    decisions = read(nameless, named)  # ada told her name later
    assert (decisions.settled, decisions.shared) == ({0: 0}, [])


def test_cannot_tell_and_exclude_are_decisions_unlike_classes_of_these_names(
    tmp_path: Path,
) -> None:
    lines: list[dict[str, object]] = [
        {"reviewer": "ada", "decision": "exclude"},
        {"reviewer": "bob", "decision": "", "kind": "exclude"},
    ]
    names = np.array(["ant", "exclude"])
    assert read(new(tmp_path / "d.csv", *lines), names=names).why == {0: CONFLICT}
    assert read(new(tmp_path / "d.csv", lines[0]), names=names).settled == {0: 1}
