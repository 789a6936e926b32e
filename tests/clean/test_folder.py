"""`clean` replaces what it wrote itself, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll._output_folder import OutFolder
from robustpll.clean import run as module
from robustpll.cli import app
from robustpll.errors import InputError

RECORD = ".robustpll-clean.json"
WRITTEN = (
    "annotators.csv",
    "candidates_that_look_wrong.csv",
    "confused_pairs.csv",
    "review.html",
    "rows_for_review.csv",
    "sets_that_miss_the_truth.csv",
    "table.csv",
    "twins.csv",
)


def run(path: Path, out: Path) -> Any:
    form = ["--votes", "by ", "--ignore", "name", "--ignore", "gold", "--method", "pl_knn"]
    return CliRunner().invoke(app, ["clean", str(path), *form, "--out", str(out)])


@pytest.fixture
def no_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*_: object, **__: object) -> None:
        pytest.fail("something was learned first")

    monkeypatch.setattr(module, "judge", learn)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.usefixtures("no_learning")
def test_a_file_of_somebody_else_is_told_before_anything_is_learned(pets: Path, name: str) -> None:
    (pets.parent / name).write_text("mine")
    result = run(pets, pets.parent)
    assert result.exit_code == 1
    assert f"holds {name}, not written by robustpll clean" in result.stderr
    assert "name another folder, or move away" in result.stderr
    assert result.stderr.count("\n") == 1
    assert (pets.parent / name).read_text() == "mine"


def test_the_same_folder_takes_the_next_run_but_not_over_what_was_edited(pets: Path) -> None:
    out = pets.parent / "out"
    assert run(pets, out).exit_code == 0
    assert run(pets, out).exit_code == 0
    edited = out / "twins.csv"
    edited.write_text(edited.read_text() + "# to ask Ada\n")
    result = run(pets, out)
    assert result.exit_code == 1
    assert "holds twins.csv, not written by robustpll clean or changed since" in result.stderr
    assert edited.read_text().endswith("# to ask Ada\n")
    edited.unlink()
    assert run(pets, out).exit_code == 0


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"sha256": 3}', '{"sha256": {"a": 3}}', "[" * 10**5, " " * 2**21]
)
@pytest.mark.usefixtures("no_learning")
def test_a_damaged_record_counts_as_none(pets: Path, record: str) -> None:
    (pets.parent / RECORD).write_text(record)
    (pets.parent / "table.csv").write_text("mine")
    result = run(pets, pets.parent)
    assert result.exit_code == 1
    assert f"Its record {RECORD} is damaged, and counts for nothing." in result.stderr


def test_a_folder_without_a_record_says_so(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("of version 0.1")
    with pytest.raises(InputError, match=r"It has no record \(\.robustpll-clean\.json\)"):
        OutFolder.of(tmp_path, "clean").refuse_others(["table.csv"])


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link"])
def test_folders_and_links_are_not_replaced_either(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table.csv"
    (tmp_path / "other").write_text("mine")
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / ("other" if kind == "link" else "nowhere"))
    assert OutFolder.of(tmp_path, "clean").others(["table.csv"]) == ["table.csv"]


def test_what_is_changed_while_rows_are_judged_is_not_replaced(tmp_path: Path) -> None:
    folder = OutFolder.of(tmp_path, "clean")
    folder.write("table.csv", b"one")
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(InputError, match=r"holds table\.csv"):
        folder.write("table.csv", b"two")
    assert (tmp_path / "table.csv").read_text() == "mine"


@pytest.mark.parametrize("stops_at", [RECORD, "table.csv"])
def test_a_stop_between_the_record_and_the_file_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops_at: str
) -> None:
    from robustpll import _output_folder as module
    from robustpll._files import write_whole

    def stopped(path: Path, content: bytes) -> None:
        if path.name == stops_at:
            raise KeyboardInterrupt
        write_whole(path, content)

    OutFolder.of(tmp_path, "clean").write("table.csv", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_whole", stopped)
        with pytest.raises(KeyboardInterrupt):
            OutFolder.of(tmp_path, "clean").write("table.csv", b"new")
    assert (tmp_path / "table.csv").read_bytes() == b"old"
    OutFolder.of(tmp_path, "clean").write("table.csv", b"newer")
    assert (tmp_path / "table.csv").read_bytes() == b"newer"
    sums = json.loads((tmp_path / RECORD).read_text())["sha256"]
    assert len(sums["table.csv"]) == 2


def test_a_file_of_the_name_of_a_probe_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".writable").write_text("mine")
    OutFolder.of(tmp_path, "clean")
    assert (tmp_path / ".writable").read_text() == "mine"
