"""Decisions survive changes of the table, but not of their own row."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll.clean.page import relevance, versions
from robustpll.cli import app

HEAD = ("row", "decision", "when", "table", "kind", "id", "content", "reviewer", "round", "cells")
Run = Callable[..., Any]
WRONG = ("--wrong", "1e-6")  # so that many rows are asked


def page_data(out: Path) -> dict[str, Any]:
    """The data of a review page, with its rows as dictionaries by name."""
    text = (out / "review.html").read_text(encoding="utf-8")
    block = re.search(r'<script type="application/json" id="review">(.*?)</script>', text, re.S)
    assert block is not None
    data = json.loads(block[1])
    rows = [dict(zip(data["fields"], row, strict=True)) for row in data["rows"]]
    return data | {"rows": {row["name"]: row for row in rows}}


def decide(path: Path, said: dict[str, tuple[str, str]], reviewer: str = "") -> str:
    """Write decisions (kind and class) about rows of the page, as the browser does."""
    data, text = page_data(path.parent / "out"), io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for minute, (name, (kind, label)) in enumerate(said.items()):
        row, when = data["rows"][name], f"2026-11-15T10:{minute:02}:00.000Z"
        place = (row["id"], row["content"], reviewer, row["round"], row["snapshot"])
        writer.writerow((name, label, when, data["table"], kind, *place))
    file = path.parent / f"decisions {reviewer}.csv"
    file.write_text(text.getvalue(), encoding="utf-8")
    return str(file)


def succeeded(result: Any) -> str:
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def labels(path: Path, out: str = "again") -> pd.DataFrame:
    table = pd.read_csv(path.parent / out / "table.csv", keep_default_na=False)
    return table.set_index("name")[["resolved_label", "confidence", "resolved_by"]]


def asked(path: Path, count: int, out: str = "out") -> list[str]:
    return (
        pd.read_csv(path.parent / out / "rows_for_review.csv")["row"].astype(str)[:count].tolist()
    )


def name_of(row: str) -> str:
    return f"pet {int(row) - 2}"  # line 2 is the first row


@pytest.fixture
def reviewed(pets: Path, run: Run) -> tuple[Path, list[str], str]:
    """A table, four rows of its page, and decisions about them of all kinds."""
    succeeded(run(pets, *WRONG, "--id", "name"))
    rows = asked(pets, 4)
    listed = pd.read_csv(pets.parent / "out" / "rows_for_review.csv", dtype=str)
    assert listed["id"].tolist() == [*map(name_of, listed["row"])]
    kinds = [("label", "cow"), ("label", "ant"), ("cannot tell", ""), ("exclude", "")]
    return pets, rows, decide(pets, dict(zip(rows, kinds, strict=True)))


def check(path: Path, rows: list[str], out: str = "again") -> None:
    """All four decisions are applied."""
    table = labels(path, out)
    cells = [tuple(table.loc[name_of(row)]) for row in rows]
    assert cells[:2] == [("cow", "1.0", "person"), ("ant", "1.0", "person")]
    assert cells[2:] == [("", "", "person: cannot tell"), ("", "", "excluded")]
    names = {table.index[int(row) - 2] for row in asked(path, 200, out)}
    assert not {name_of(row) for row in rows} & names


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("change", ["none", "cell", "new rows", "order", "ignore", "annotator"])
def test_what_changes_elsewhere_leaves_decisions_valid(
    reviewed: tuple[Path, list[str], str], run: Run, change: str, by_id: bool
) -> None:
    path, rows, decisions = reviewed
    head, *lines = path.read_text().splitlines()
    other = next(n for n in range(len(lines)) if str(n + 2) not in rows)
    if change == "cell":
        lines[other] = re.sub(r"^(pet \d+),[^,]*", r"\1,0.5", lines[other])
    elif change == "new rows":
        lines = [f"new {n},{line.split(',', 1)[1]}" for n, line in enumerate(lines[:5])] + lines
    elif change == "order":
        lines.reverse()
    elif change == "annotator":
        head += ",by eve"
        lines = [f"{line},{'cow' if n == other else ''}" for n, line in enumerate(lines)]
    path.write_text("\n".join([head, *lines, ""]))
    form = ["--votes", "by ", "--truth", "gold"]
    form += ["--ignore", "legs"] if change == "ignore" else []
    form += ["--id", "name"] if by_id else ["--ignore", "name"]
    output = succeeded(run(path, *WRONG, "--decisions", decisions, out="again", form=tuple(form)))
    assert "decided by a person: 2; " in output
    assert "rows that people cannot tell: 1; excluded: 1" in output
    assert "match no row" not in output
    check(path, rows)


def test_a_row_that_changed_is_asked_again_in_both_versions(
    reviewed: tuple[Path, list[str], str], run: Run
) -> None:
    path, rows, decisions = reviewed
    lines = path.read_text().splitlines()
    cells = lines[int(rows[0]) - 1].split(",")
    before, cells[1] = cells[1], "7.25"
    lines[int(rows[0]) - 1] = ",".join(cells)
    path.write_text("\n".join([*lines, ""]))
    output = succeeded(run(path, *WRONG, "--id=name", "--decisions", decisions, out="again"))
    assert "rows to decide again, because they changed after the decision: 1" in output
    assert asked(path, 1, "again") == rows[:1]  # it comes first
    assert labels(path).loc[name_of(rows[0]), "resolved_by"] == ""
    row = page_data(path.parent / "again")["rows"][rows[0]]
    assert (row["kind"], row["said"][0][1]) == ("row changed", "cow")
    assert row["versions"][0] == ["size", before, "7.25"]
    assert ["by ada", cells[3], cells[3]] in row["versions"]
    assert not any(name == "gold" for name, *_ in row["versions"])  # the truth is not shown
    output = succeeded(run(path, *WRONG, "--decisions", decisions, out="third"))  # by content
    assert "decisions not applied, because they match no row: 1" in output
    assert "changed after" not in output


def test_deleted_rows_are_counted_and_equal_rows_share_a_decision(pets: Path, run: Run) -> None:
    form = ("--votes", "by ", "--truth", "gold")
    head, *lines = [line.split(",", 1)[1] for line in pets.read_text().splitlines()]
    pets.write_text("\n".join([head, *lines, lines[3], ""]))  # line 5 is line 122, too
    succeeded(run(pets, "--wrong", "1e-12", form=form))
    data = page_data(pets.parent / "out")["rows"]
    assert data["5"]["content"] == data["122"]["content"]
    assert (data["5"]["same"], data["6"]["same"]) == (2, 1)
    decisions = decide(pets, {"5": ("label", "cow"), "6": ("label", "cow")})
    pets.write_text("\n".join([head, *lines[:4], *lines[5:], lines[3], ""]))
    options = ("--decisions", decisions)
    output = succeeded(run(pets, *options, form=form, out="again"))
    assert "decided by a person: 2; " in output
    assert "decisions not applied, because they match no row: 1" in output


def test_ids_must_be_unique_and_there(pets: Path, run: Run) -> None:
    pets.write_text(pets.read_text().replace("pet 7,", "pet 5,").replace("pet 9,", "pet 8,"))
    result = run(pets, "--id", "name")
    assert result.exit_code == 1
    reason = "value in column 'name', but several rows have 'pet 5', 'pet 8' ('pet 5' in"
    assert reason in result.stderr
    assert "('pet 5' in rows 7, 9). Correct the table, or name another column." in result.stderr
    pets.write_text(pets.read_text().replace("pet 5,", ",", 1).replace("pet 8,", "pet 9,", 1))
    assert "but some do not ('' in rows 7)" in run(pets, "--id", "name").stderr
    assert "--id: there is no column 'nane'" in run(pets, "--id", "nane").stderr


def test_several_people_agree_or_are_asked_again(pets: Path, run: Run) -> None:
    succeeded(run(pets, *WRONG, "--id", "name"))
    rows = asked(pets, 3)
    votes = [("label", "cow"), ("label", "ant"), ("exclude", "")]
    ada = decide(pets, dict(zip(rows, votes, strict=True)), "ada")
    bob = decide(pets, dict(zip(rows, [*votes[:2], ("label", "bee")], strict=True)), "bob")
    options = (*WRONG, "--id", "name", "--decisions", ada, "--decisions", bob)
    output = succeeded(run(pets, *options, out="again"))
    assert "decided by several people: 3 rows, 66.7% alike, Cohen's kappa 0.57" in output
    assert "rows to decide again, because several people decided differently: 1" in output
    assert asked(pets, 1, "again") == [rows[2]]
    row = page_data(pets.parent / "again")["rows"][rows[2]]
    assert (row["kind"], row["round"]) == ("conflict", 2)
    assert [said[:2] for said in row["said"]] == [["ada", "exclude"], ["bob", "bee"]]
    assert row["reason"].startswith("ada decided exclude, bob decided bee")


def test_fit_and_compare_leave_out_excluded_rows_and_keep_the_sets_of_others(
    reviewed: tuple[Path, list[str], str],
) -> None:
    path, rows, decisions = reviewed
    form = ["--votes", "by ", "--ignore", "gold", "--method", "pl_knn"]
    cells = [line.split(",") for line in path.read_text().splitlines()]
    for row, label in zip(rows[:2], ("cow", "ant"), strict=True):
        cells[int(row) - 1][3:6] = [label] * 3
    del cells[int(rows[3]) - 1]
    by_hand = path.parent / "by hand.csv"
    by_hand.write_text("\n".join(",".join(line) for line in cells) + "\n")
    models = []
    for table, options in ((path, ["--decisions", decisions]), (by_hand, [])):
        models.append(path.parent / f"{table.stem}.pll")
        command = ["fit", str(table), "--out", str(models[-1]), "--held-out", "0", *form]
        output = succeeded(CliRunner().invoke(app, [*command, "--id", "name", *options]))
    assert models[0].read_bytes() == models[1].read_bytes()
    command = ["compare", str(path), *form, "--id", "name", "--decisions", decisions]
    output = succeeded(CliRunner().invoke(app, command))
    assert f"{path}: 119 rows" in output


def test_decisions_about_a_parquet_table_with_numbers_as_labels_and_ids(
    tmp_path: Path, run: Run
) -> None:
    rows = np.arange(60)
    answers = {"by 1": rows % 3, "by 2": (rows + 1) % 3}
    frame = pd.DataFrame({"number": rows + 100, "x": rows % 3 + rows / 500, **answers})
    path, form = tmp_path / "numbers.parquet", ("--votes", "by ", "--id", "number")
    frame.to_parquet(path)
    succeeded(run(path, "--wrong", "1e-9", form=form))
    data = page_data(tmp_path / "out")["rows"]
    assert data["7"]["id"] == "107"
    said = {"7": ("label", "2"), "14": ("exclude", ""), "28": ("cannot tell", "")}
    options = ("--wrong", "1e-9", "--decisions", decide(path, said))
    frame.iloc[::-1].to_parquet(path)
    succeeded(run(path, *options, form=form, out="again"))
    table = pd.read_parquet(tmp_path / "again" / "table.parquet").set_index("number")
    assert table.loc[107, ["resolved_label", "resolved_by"]].tolist() == [2, "person"]
    assert table.loc[[114, 128], ["resolved_label", "confidence"]].isna().all(axis=None)
    by = table["resolved_by"]
    assert [by[114], by[128]] == ["excluded", "person: cannot tell"]


def test_features_that_tell_the_two_leading_classes_apart_come_first() -> None:
    """A constant, a number that differs between the classes, noise, and words."""
    random, labels = np.random.default_rng(0), np.arange(60) % 3
    features = pd.DataFrame(
        {
            "constant": 1,
            "all gaps": np.nan,
            "third": np.where(labels == 2, 9.0, 0.0),  # tells only the third class apart
            "word": np.array(["up", "down", "up"])[labels],
            "number": labels + random.normal(0, 0.1, 60),
        }
    )
    features.loc[5, ["number", "word"]] = None
    probability = np.eye(3)[labels] * 0.7 + 0.1
    probability[3] = (0.5, 0.4, 0.1)
    score = relevance(features, probability, np.array([3, 5]))
    assert score.shape == (2, 5)
    assert {*np.argsort(-score[0])[:2]} == {3, 4}
    assert score[0, :3].max() < 0.1 < score[0, 3:].min()
    assert np.isfinite(score).all()


def test_snapshots_are_compared_with_what_is_there_even_if_they_were_edited() -> None:
    now = {"size": "1.5", "name": "pet", "long": "x" * 100}
    before = json.dumps({"name": "pet", "size": "2.5", "gone": "y", "long": "x" * 39 + "…"})
    rows = versions(before, now)
    assert rows[:2] == [["size", "2.5", "1.5"], ["gone", "y", ""]]
    assert {row[0] for row in rows[2:]} == {"name", "long"}
    for text in ("", "[1]", "{", "3", "null", "[" * 10_000):
        assert versions(text, now) == []
