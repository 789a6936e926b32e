"""`robustpll datasets`, as a person runs it."""

import gzip
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from robustpll.cli import app
from robustpll.datasets.catalog import CATALOG, File

CONTENT = b"five pictures"
DATA = Path(os.environ.get("ROBUSTPLL_DATA", ""))


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder that a server gives; MNIST is one file in it, Fashion-MNIST one that is not."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "mnist.gz").write_bytes(gzip.compress(CONTENT))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        for name in ("mnist", "fmnist", "kmnist", "notmnist"):
            url = f"http://127.0.0.1:{server.server_port}/{name}.gz"
            sum_ = hashlib.sha256(CONTENT).hexdigest()
            file = File(path=f"{name}/{name}.gz", url=url, content=sum_)
            entry = replace(CATALOG[name], files=(file,), own_checksum=False)
            monkeypatch.setitem(CATALOG, name, entry)
        yield folder
        server.shutdown()
        thread.join()


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["datasets", *map(str, words)])


def lines(result: Result, name: str) -> list[str]:
    return [line for line in result.stdout.splitlines() if line.split()[:1] == [name]]


def test_all_fourteen_are_listed_with_facts_and_place() -> None:
    result = run()
    assert result.exit_code == 0
    assert len(CATALOG) == 14
    for name, entry in CATALOG.items():
        facts, place = lines(result, name)
        for fact in (entry.title, f"{entry.rows:,}", f"{entry.features:,}", entry.licence):
            assert f" {fact} " in f"{facts} "
        assert place.split(maxsplit=1)[1] == ("not here" if entry.files else "built in")
    assert "2.23" in lines(result, "lost")[0]
    assert " - " in lines(result, "mnist")[0]
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout


def test_places_are_shown_whole_however_long(tmp_path: Path) -> None:
    lost = tmp_path / "data" / "realworld" / "lost.mat"
    mnist = [tmp_path / "data" / file.path for file in CATALOG["mnist"].files]
    for path in (lost, *mnist[:3]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    result = run()
    assert str(lost) in lines(result, "lost")[1]
    assert "not here (3 of 4 files are)" in lines(result, "mnist")[1]
    mnist[3].write_bytes(b"")
    result = run()
    assert lines(result, "mnist")[1].split() == ["mnist", str(mnist[0].parent)]
    ways = result.stdout.split("To get ")[1:]
    assert ways[0].startswith("fmnist, kmnist, notmnist, run")
    assert "robustpll datasets get fmnist kmnist notmnist\n" in ways[0]
    assert CATALOG["lost"].source in ways[1]
    assert "robustpll datasets add NAME ARCHIVE\n" in ways[1]
    assert "lost" not in ways[1]


def test_the_list_needs_no_torch() -> None:
    code = """
import sys
from typer.testing import CliRunner
from robustpll.cli import app
assert CliRunner().invoke(app, ["datasets"]).exit_code == 0
print([name for name in ("torch", "pandas", "sklearn") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_get_fetches_once_and_says_where(served: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / "mnist" / "mnist.gz"
    result = run("get", "mnist")
    assert result.exit_code == 0
    assert result.stdout == f"mnist       {path}\n"
    assert result.stderr == ""
    assert gzip.decompress(path.read_bytes()) == CONTENT
    (served / "mnist.gz").unlink()
    assert run("get", "mnist", "digits").stdout == f"mnist       {path}\ndigits      built in\n"


def test_what_fails_does_not_keep_the_others(served: Path, tmp_path: Path) -> None:
    result = run("get", "fmnist", "lost", "mnist")
    assert result.exit_code == 1
    assert len(lines(result, "mnist")) == 1
    refused, steps = result.stderr.splitlines()
    assert "/fmnist.gz cannot be downloaded: 404" in refused
    assert "in a browser" in steps
    assert str(tmp_path / "data" / "realworld" / "lost.mat") in steps
    for name in ("fmnist", "kmnist", "notmnist"):
        shutil.copy(served / "mnist.gz", served / f"{name}.gz")
    result = run("get", "all")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names == ["mnist", "fmnist", "kmnist", "notmnist"]


@pytest.mark.parametrize("command", [["get", "mnist", "mnits"], ["add", "mnits", "x.mat"]])
def test_an_unknown_name_is_refused_before_anything_is_fetched(
    served: Path, tmp_path: Path, command: list[str]
) -> None:
    result = run(*command)
    assert result.exit_code == 1
    assert "There is no dataset 'mnits'; the names are bird-song" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "data").exists()
    assert run("get").exit_code == 2


def test_add_refuses_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "lost.rar").write_bytes(b"Rar!\x1a\7\1\0")
    result = run("add", "lost", tmp_path / "lost.rar")
    assert result.exit_code == 1
    assert result.stderr == (
        f"{tmp_path / 'lost.rar'} is a .rar archive. Unpack it first and pass its .mat file.\n"
    )


@pytest.mark.data
def test_add_puts_a_real_file_at_its_place(tmp_path: Path) -> None:
    real = DATA / "realworld" / "lost.mat"
    result = run("add", "lost", real)
    assert result.exit_code == 0
    path = tmp_path / "data" / "realworld" / "lost.mat"
    assert lines(result, "lost") == [f"lost        {path}"]
    assert path.read_bytes() == real.read_bytes()
