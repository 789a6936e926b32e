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

from robustpll.datasets import catalog, download
from robustpll.datasets.catalog import CATALOG, Entry, File, checksum, entry_of, find
from robustpll.datasets.download import DownloadError
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
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server with the right file; downloads go below tmp_path."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.requests, server.go_on = [sends()], 0, threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def toy(url: str, content: str = sha(CONTENT)) -> Entry:
    file = File(path="toy/numbers.gz", url=url, content=content)
    return replace(entry_of("mnist"), name="toy", files=(file,))


def fetch(entry: Entry, say: Any = print, report: Any = lambda *_: None) -> tuple[Path, ...]:
    return download.fetch(entry, say, report)


def remaining(folder: Path) -> list[str]:
    """The files in the dataset's folder, apart from the lock."""
    paths = (folder / "toy").iterdir()
    return sorted(path.name for path in paths if not path.name.endswith(".lock"))


def test_a_file_is_downloaded_once_and_progress_is_reported(server: Server, tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    reports: list[tuple[str, int, int]] = []
    (path,) = fetch(toy(server.url), report=lambda *news: reports.append(news))
    assert path == tmp_path / "toy" / "numbers.gz"
    assert path.read_bytes() == BODY
    assert remaining(tmp_path) == ["numbers.gz"]
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert reports == sorted(reports)
    assert reports[-1] == ("numbers.gz", len(BODY), len(BODY))
    assert fetch(toy(server.url)) == (path,)
    assert server.requests == 1


@pytest.mark.parametrize("name", ["numbers.gz", "numbers"])
@pytest.mark.parametrize("pack", [bytes, lambda raw: gzip.compress(raw, compresslevel=1)])
def test_a_correct_file_is_not_downloaded(
    server: Server, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "toy" / name
    path.parent.mkdir()
    path.write_bytes(pack(CONTENT))
    assert fetch(toy(server.url)) == (path,)
    assert not server.requests


@pytest.mark.parametrize("wrong", [b"", OTHER, BODY[:HALF]], ids=len)
def test_a_wrong_file_is_reported_and_replaced(
    server: Server, tmp_path: Path, wrong: bytes
) -> None:
    path = tmp_path / "toy" / "numbers.gz"
    path.parent.mkdir()
    path.write_bytes(wrong)
    messages: list[str] = []
    assert fetch(toy(server.url), messages.append) == (path,)
    assert path.read_bytes() == BODY
    assert messages == [f"{path} does not hold what is published. It is downloaded again."]


LIES = {
    "other content": sends(OTHER),
    "a web page": sends(b"<html>Log in first</html>"),
    "nothing": sends(b"", 204),
    "half a file": sends(BODY[:HALF]),
    "too short a length": sends(BODY, Content_Length=HALF),
    "a byte too many": sends(BODY + b"!"),
}


@pytest.mark.parametrize("answer", LIES.values(), ids=LIES.keys())
def test_wrong_content_is_deleted_and_replaces_nothing(
    server: Server, tmp_path: Path, answer: Answer
) -> None:
    path = tmp_path / "toy" / "numbers.gz"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    server.answers = [answer]
    with pytest.raises(DownloadError, match="does not hold what is published") as caught:
        fetch(toy(server.url))
    assert server.url in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"mine"
    assert remaining(tmp_path) == ["numbers.gz"]


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
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(download, "STALL", 0.5)
    server.answers = [answer, sends(b"", 302, Location="/elsewhere"), chunked]
    messages: list[str] = []
    (path,) = fetch(toy(server.url), messages.append)
    assert path.read_bytes() == BODY
    assert "Trying again (2 of 5)" in messages[0]
    assert remaining(tmp_path) == ["numbers.gz"]


def test_a_failure_that_stays_is_an_error(server: Server, tmp_path: Path) -> None:
    server.answers = [CUT]
    with pytest.raises(DownloadError, match=r"cannot be downloaded.*Try again later"):
        fetch(toy(server.url))
    assert server.requests == download.TRIES
    assert remaining(tmp_path) == []


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_final_answer_is_not_tried_again(server: Server, status: int) -> None:
    server.answers = [sends(b"", status), sends()]
    with pytest.raises(DownloadError, match=f"{server.url}.* {status} "):
        fetch(toy(server.url))
    assert server.requests == 1


def test_no_server_is_a_sentence(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=r"refused.*Try again later"):
        fetch(toy(f"http://127.0.0.1:{port}/"))


@pytest.mark.parametrize("scheme", ["file", "ftp", "data", "FILE"])
def test_only_the_web_is_downloaded_from(server: Server, tmp_path: Path, scheme: str) -> None:
    """Neither by the catalog nor by a redirect."""
    secret = tmp_path / "secret.gz"
    secret.write_bytes(BODY)
    server.answers = [sends(b"", 302, Location=f"{scheme}://{secret}")]
    for url in (server.url, f"{scheme}://{secret}"):
        with pytest.raises(DownloadError, match=f"(?i){scheme}:/"):
            fetch(toy(url))
    assert remaining(tmp_path) == []
    assert server.requests == 1


def endless(handler: Handler) -> None:
    handler.send(200, Content_Length=None)
    try:
        for _ in range(1000):  # 66 MB, so that a fault of the library does not fill the disk
            handler.wfile.write(bytes(1 << 16))
    except OSError:  # the other side has had enough
        pass


@pytest.mark.parametrize(
    "answer", [endless, sends(BODY, Content_Length=10**9 + 1)], ids=["endless", "announced"]
)
def test_a_body_that_is_too_large_is_not_downloaded(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(download, "MOST_BYTES", 10**6)
    server.answers = [answer]
    with pytest.raises(DownloadError, match="more than 1000000 bytes"):
        fetch(toy(server.url))
    assert remaining(tmp_path) == []
    assert server.requests == 1


def test_a_bomb_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = bytes(5_000_000)
    server.answers = [sends(gzip.compress(zeros))]
    monkeypatch.setattr(catalog, "MOST_BYTES", len(zeros) - 1)
    with pytest.raises(DownloadError, match="does not hold what is published"):
        fetch(toy(server.url, sha(zeros)))
    monkeypatch.setattr(catalog, "MOST_BYTES", len(zeros))
    fetch(toy(server.url, sha(zeros)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "numbers.gz.part").symlink_to("/dev/full")
    with pytest.raises(RobustPLLError, match=r"No space left on device.*ROBUSTPLL_DATA"):
        fetch(toy(server.url))
    assert server.requests == 1


def test_a_folder_that_cannot_be_made_is_a_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").write_bytes(b"a file, not a folder")
    with pytest.raises(RobustPLLError, match=f"{tmp_path / 'toy'}.*ROBUSTPLL_DATA"):
        fetch(toy(server.url))


def test_the_system_folder_serves_where_the_data_folder_cannot_be_made(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "numbers").write_bytes(CONTENT)
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "system" / "numbers" / "never"))
    entry = replace(toy(server.url), system=str(tmp_path / "system"))
    assert fetch(entry) == (tmp_path / "system" / "numbers",)


def test_a_file_without_address_comes_with_the_steps(server: Server, tmp_path: Path) -> None:
    lost, path = entry_of("lost"), tmp_path / "realworld" / "lost.mat"
    with pytest.raises(InputError, match="in a browser") as caught:
        fetch(lost)
    assert lost.source in str(caught.value)
    assert str(path) in str(caught.value)
    path.parent.mkdir()
    path.write_bytes(b"here")
    assert fetch(lost) == (path,)


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


def test_two_processes_download_once(server: Server, tmp_path: Path) -> None:
    server.answers = [lambda handler: (server.go_on.wait(), sends()(handler))]
    processes = [start(server), start(server)]
    wait_for(lambda: server.requests > 0)
    server.go_on.set()
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert outputs == [f"toy         {tmp_path / 'toy' / 'numbers.gz'}\n"] * 2
    assert server.requests == 1
    assert remaining(tmp_path) == ["numbers.gz"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_after_a_killed_process_the_next_one_downloads(
    server: Server, tmp_path: Path, name: str
) -> None:
    server.answers = [stalls, sends()]
    process = start(server)
    part = tmp_path / "toy" / "numbers.gz.part"
    wait_for(lambda: part.exists() and part.stat().st_size > HALF // 2)
    process.send_signal(getattr(signal, name))
    output, _ = process.communicate(timeout=PATIENCE)
    assert "numbers.gz" not in remaining(tmp_path)
    if name == "SIGINT":
        assert process.returncode == 130
        assert output.startswith("Stopped. Complete files are kept.")
        assert remaining(tmp_path) == []
    (path,) = fetch(toy(server.url))
    assert path.read_bytes() == BODY
    assert remaining(tmp_path) == ["numbers.gz"]


@pytest.mark.data
def test_the_published_sums_are_those_of_the_data() -> None:
    entry = CATALOG["mnist"]
    for file in entry.files:
        path = find(entry, file)
        assert path is not None
        assert checksum(entry, path) == file.content
