"""Downloads from servers that cut, stall, lie and send too much."""

import gzip
import hashlib
import http.server
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from robustpll.cli import app
from robustpll.datasets import bounded, catalog
from robustpll.datasets.catalog import CATALOG, Entry, File, entry_of
from robustpll.errors import InputError, RobustPLLError

CONTENT = np.random.default_rng(0).bytes(400_000)
BODY = gzip.compress(CONTENT)
OTHER = gzip.compress(CONTENT[::-1])
HALF = len(BODY) // 2
PATIENCE = 900  # seconds until a process counts as hanging, on the slowest of machines
Answer = Callable[["Handler"], Any]


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the next of the server's answers; the last one is used again and again."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.requests += 1
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: bytes = b"", **headers: object) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": len(body)} | headers).items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    answers: list[Answer]
    requests: int
    go_on: threading.Event  # ends all stalling

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/numbers.gz"


def sends(body: bytes = BODY, status: int = 200, **headers: object) -> Answer:
    return lambda handler: handler.send(status, body, **headers)


CUT = sends(BODY[:HALF], Content_Length=len(BODY))


def stalls(handler: Handler) -> None:
    CUT(handler)
    handler.server.go_on.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, data: Path) -> Iterator[Server]:
    """A server with the right file."""
    monkeypatch.setenv("no_proxy", "*")
    server = Server(("127.0.0.1", 0), Handler)
    monkeypatch.setattr(catalog, "PAUSE", 0.0)
    server.answers, server.requests, server.go_on = [sends()], 0, threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


def toy(url: str, content: bytes = CONTENT) -> Entry:
    checksum = hashlib.sha256(content).hexdigest()
    file = File(path="toy/numbers.gz", url=url, sha256=checksum)
    return replace(entry_of("mnist"), name="toy", files=(file,))


def fetch(entry: Entry, say: Any = print, report: Any = lambda *_: None) -> list[Path]:
    return catalog.fetch(entry, say, report)


def remaining(folder: Path) -> list[str]:
    """The files in the dataset's folder, apart from the lock."""
    paths = (folder / "toy").iterdir()
    return sorted(path.name for path in paths if not path.name.endswith(".lock"))


def test_a_file_is_downloaded_once_and_progress_is_reported(server: Server, data: Path) -> None:
    (data / "usual").write_bytes(b"")
    reports: list[tuple[str, int, int]] = []
    (path,) = fetch(toy(server.url), report=lambda *news: reports.append(news))
    assert path == data / "toy" / "numbers.gz"
    assert path.read_bytes() == BODY
    assert remaining(data) == ["numbers.gz"]
    assert path.stat().st_mode == (data / "usual").stat().st_mode
    assert reports == sorted(reports)
    assert reports[-1] == ("numbers.gz", len(BODY), len(BODY))
    assert fetch(toy(server.url)) == [path]
    assert server.requests == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [("numbers.gz", gzip.compress(CONTENT, 1)), ("numbers.gz", CONTENT), ("numbers", CONTENT)],
    ids=["packed anew", "not packed", "plain"],
)
def test_a_correct_file_is_not_downloaded(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    """Even if no folder can be made."""
    path = data.parent / "cache" / "robustpll" / "data" / "toy" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    monkeypatch.setenv("ROBUSTPLL_DATA", str(path / "never"))
    assert fetch(toy(server.url)) == [path]
    assert not server.requests


LIES = {
    "other content": sends(OTHER),
    "a web page": sends(b"<html>Log in first</html>"),
    "nothing": sends(b"", 204),
    "too short a length": sends(BODY, Content_Length=HALF),
    "a byte too many": sends(BODY + b"!"),
}


@pytest.mark.parametrize("wrong", [OTHER, BODY[:HALF]], ids=len)
@pytest.mark.parametrize("answer", LIES.values(), ids=LIES.keys())
def test_a_wrong_file_is_replaced_by_the_published_content_alone(
    server: Server, data: Path, answer: Answer, wrong: bytes
) -> None:
    path = data / "toy" / "numbers.gz"
    path.parent.mkdir()
    path.write_bytes(wrong)
    server.answers = [answer, sends()]
    with pytest.raises(RobustPLLError, match=f"{server.url} .*does not hold what.*{path}"):
        fetch(toy(server.url))
    assert path.read_bytes() == wrong
    assert remaining(data) == ["numbers.gz"]
    messages: list[str] = []
    assert fetch(toy(server.url), messages.append) == [path]
    assert path.read_bytes() == BODY
    assert messages == [f"{path} does not hold what is published. It is downloaded again."]


def chunked(handler: Handler, is_whole: bool = True) -> None:
    """Without a length; unless whole, cut before the end is announced."""
    handler.send(200, Content_Length=None, Transfer_Encoding="chunked")
    for start in range(0, len(BODY) if is_whole else HALF, 50_000):
        piece = BODY[start : start + 50_000]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n" if is_whole else b"")


PASSING = {
    "cut": CUT,
    "cut, of unknown length": lambda handler: chunked(handler, is_whole=False),
    "stalled": stalls,
    "503": sends(b"", 503),
    "429": sends(b"", 429),
}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING.keys())
def test_a_failure_that_may_pass_is_tried_again(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(catalog, "STALL", 0.5)
    server.answers = [answer, sends(b"", 302, Location="/elsewhere"), chunked]
    messages: list[str] = []
    (path,) = fetch(toy(server.url), messages.append)
    assert path.read_bytes() == BODY
    assert "Trying again (2 of 5)" in messages[0]
    assert remaining(data) == ["numbers.gz"]


def endless(handler: Handler) -> None:
    handler.send(200, Content_Length=None)
    try:
        for _ in range(1000):  # 66 MB, so that a fault of the library does not fill the disk
            handler.wfile.write(bytes(1 << 16))
    except OSError:  # the other side has had enough
        pass


FINAL = {
    "cut each time": (CUT, catalog.TRIES, "cannot be downloaded.*Try again later"),
    "403": (sends(b"", 403), 1, "numbers.gz.* 403 "),
    "404": (sends(b"", 404), 1, "numbers.gz.* 404 "),
    "endless": (endless, 1, "more than 1000000 bytes"),
    "too large": (sends(BODY, Content_Length=10**6 + 1), 1, "more than 1000000 bytes"),
    "bomb": (sends(gzip.compress(bytes(5_000_000))), 1, "does not hold what is published"),
}


@pytest.mark.parametrize("kind", FINAL)
def test_a_failure_that_stays_is_an_error(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    answer, requests, reason = FINAL[kind]
    monkeypatch.setattr(catalog, "MOST_BYTES", 10**6)
    monkeypatch.setattr(bounded, "MOST_BYTES", 10**6)
    server.answers = [answer]
    with pytest.raises(RobustPLLError, match=reason):
        fetch(toy(server.url, bytes(5_000_000)))
    assert server.requests == requests
    assert remaining(data) == []


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_only_the_web_is_downloaded_from(server: Server, data: Path, scheme: str) -> None:
    """Neither by the catalog nor by a redirect; and without a server there is a sentence."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RobustPLLError, match=r"refused.*Try again later"):
        fetch(toy(f"http://127.0.0.1:{port}/"))
    secret = data / "secret.gz"
    secret.write_bytes(BODY)
    server.answers = [sends(b"", 302, Location=f"{scheme}://{secret}")]
    for url in (server.url, f"{scheme}://{secret}"):
        with pytest.raises(RobustPLLError, match=f"(?i){scheme}:/"):
            fetch(toy(url))
    assert remaining(data) == []
    assert server.requests == 1


def test_a_file_without_address_comes_with_the_steps(server: Server, data: Path) -> None:
    lost, path = entry_of("lost"), data / "realworld" / "lost.mat"
    with pytest.raises(InputError, match=f"{lost.source} in a browser.*{path}"):
        fetch(lost)
    path.parent.mkdir()
    path.write_bytes(b"here")
    assert fetch(lost) == [path]


# The command

PICTURES = ("mnist", "fmnist", "kmnist", "notmnist", "cifar10")


@pytest.fixture
def served(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, which gives the same file for every dataset of pictures."""
    for name in PICTURES:
        (file,) = toy(server.url).files
        files = (replace(file, path=f"{name}/{name}.gz"),)
        monkeypatch.setitem(CATALOG, name, replace(CATALOG[name], files=files, checksum=""))
    return server


def get(*names: str) -> Any:
    return CliRunner().invoke(app, ["datasets", "get", *names])


def test_get_downloads_once_and_says_where(served: Server, data: Path) -> None:
    path = data / "mnist" / "mnist.gz"
    result = get("mnist")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{'mnist':16}{path}\n"
    assert path.read_bytes() == BODY
    assert get("mnist", "digits").stdout == f"{'mnist':16}{path}\n{'digits':16}built in\n"
    assert served.requests == 1
    result = get("all")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [*PICTURES]


def test_what_fails_does_not_keep_the_others(served: Server, data: Path) -> None:
    served.answers = [sends(b"", 404), sends()]
    result = get("fmnist", "lost", "mnist")
    assert result.exit_code == 1
    assert result.stdout == f"{'mnist':16}{data / 'mnist' / 'mnist.gz'}\n"
    failure, steps = result.stderr.splitlines()
    assert f"{served.url} cannot be downloaded: 404" in failure
    assert "in a browser" in steps
    assert str(data / "realworld" / "lost.mat") in steps


def start(server: Server) -> subprocess.Popen[str]:
    """Another process that downloads."""
    code = f"""
from robustpll.cli import app
from robustpll.datasets.catalog import CATALOG, Entry, File
CATALOG["toy"] = {toy(server.url)!r}
app(["datasets", "get", "toy"])
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-u", "-c", code], **pipes)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_processes_download_once(server: Server, data: Path) -> None:
    server.answers = [lambda handler: (server.go_on.wait(), sends()(handler))]
    processes = [start(server), start(server)]
    wait_for(lambda: server.requests > 0)
    server.go_on.set()
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert outputs == [f"{'toy':16}{data / 'toy' / 'numbers.gz'}\n"] * 2
    assert server.requests == 1
    assert remaining(data) == ["numbers.gz"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_after_a_killed_process_the_next_one_downloads(
    server: Server, data: Path, name: str
) -> None:
    server.answers = [stalls, sends()]
    process = start(server)
    part = data / "toy" / "numbers.gz.part"
    wait_for(lambda: part.exists() and part.stat().st_size > HALF // 2)
    process.send_signal(getattr(signal, name))
    output, _ = process.communicate(timeout=PATIENCE)
    assert "numbers.gz" not in remaining(data)
    if name == "SIGINT":
        assert process.returncode == 130
        assert output.startswith("Stopped. Complete files are kept.")
        assert remaining(data) == []
    (path,) = fetch(toy(server.url))
    assert path.read_bytes() == BODY
    assert remaining(data) == ["numbers.gz"]
