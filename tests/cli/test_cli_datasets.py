"""`robustpll datasets`, as a person runs it."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from robustpll.cli import app
from robustpll.datasets.catalog import CATALOG

REAL = Path(os.environ.get("ROBUSTPLL_DATA", "")) / "realworld" / "lost.mat"


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of datasets."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["datasets", *map(str, words)])


def lines(result: Any, name: str) -> list[str]:
    return [line for line in result.stdout.splitlines() if line.split()[:1] == [name]]


def test_all_are_listed_with_facts_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run()
    assert result.exit_code == 0
    assert len(CATALOG) == 37
    for name, entry in CATALOG.items():
        facts, place = lines(result, name)
        assert len(facts) <= 80
        for fact in (entry.title, f"{entry.rows:,}", f"{entry.features:,}", entry.licence):
            assert f" {fact} " in f"{facts} "
        page = f"robustpll datasets get {name}" if entry.is_downloadable else entry.source
        assert place.split(maxsplit=1)[1] == (f"not here: {page}" if entry.files else "built in")
    assert "2.23" in lines(result, "lost")[0]
    assert " - " in lines(result, "mnist")[0]
    assert "\x1b" not in result.stdout


def test_places_are_shown_whole_and_the_others_with_the_way_to_get_them(data: Path) -> None:
    lost, *mnist = (data / file.path for name in ("lost", "mnist") for file in CATALOG[name].files)
    for path in (lost, *mnist[:3]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    result = run()
    assert str(lost) in lines(result, "lost")[1]
    assert "not here: robustpll datasets get mnist" in lines(result, "mnist")[1]
    mnist[3].write_bytes(b"")
    result = run()
    assert lines(result, "mnist")[1].split() == ["mnist", str(mnist[0].parent)]
    assert result.stdout.endswith("robustpll datasets add NAME ARCHIVE\n")


def test_wrong_names_and_files_are_refused(data: Path) -> None:
    Path("lost.rar").write_bytes(b"Rar!\x1a\7\1\0")
    unknown = "There is no dataset 'mnits'; the names are bird-song"
    for words, reason in (
        (("get", "mnist", "mnits"), unknown),
        (("add", "mnits", "x.mat"), unknown),
        (("add", "lost", "lost.rar"), "lost.rar cannot be read: it is no .mat file"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith(reason)
        assert result.stdout == ""
    assert not data.exists()


@pytest.mark.data
def test_add_puts_a_real_file_at_its_place(data: Path) -> None:
    result = run("add", "lost", REAL)
    assert result.exit_code == 0
    path = data / "realworld" / "lost.mat"
    assert lines(result, "lost") == [f"{'lost':16}{path}"]
    assert path.read_bytes() == REAL.read_bytes()
