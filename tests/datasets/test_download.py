"""Fetching files from servers that cut, stall, lie and change their minds."""

import gzip
import hashlib
import http.server
import io
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from PIL import Image

from robustpll.datasets import download
from robustpll.datasets.catalog import CATALOG, Entry, File, entry_of, find
from robustpll.datasets.download import DownloadError, fetch, is_right
from robustpll.errors import InputError, RobustPLLError

CONTENT = np.random.default_rng(0).bytes(400_000)
BODY = gzip.compress(CONTENT)
OTHER = gzip.compress(CONTENT[::-1])
HALF = len(BODY) // 2
TAG, DATE = '"one"', "Wed, 21 Oct 2015 07:28:00 GMT"
PATIENCE = 900  # seconds until a process counts as hanging, on the slowest of machines


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the next of the server's answers says; the last one is used again and again."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.asked.append(self.headers)
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


class Server(http.server.ThreadingHTTPServer):
    answers: list[Callable[[Handler], None]]
    asked: list
    go_on: threading.Event  # ends all stalling

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/numbers.gz"

    def ranges(self) -> list[str | None]:
        return [headers["Range"] for headers in self.asked]


def honest(
    body: bytes = BODY, tag: str | None = TAG, cut: int | None = None, stall: bool = False
) -> Callable[[Handler], None]:
    """A file of one version, given as asked for; `cut` ends (or stalls) it after so many bytes."""

    def answer(handler: Handler) -> None:
        asked, version = handler.headers["Range"], handler.headers["If-Range"]
        start = int(asked[6:-1]) if asked and version in (None, tag, DATE) else 0
        end = len(body) if cut is None else cut
        headers = {"ETag": tag, "Content_Length": len(body) - start}
        if start >= len(body):
            handler.send(416, Content_Range=f"bytes */{len(body)}")
        elif start:
            headers["Content_Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            handler.send(206, body[start:end], **headers)
        else:
            handler.send(200, body[:end], **headers)
        handler.wfile.flush()
        if stall:
            handler.server.go_on.wait()

    return answer


def plain(status: int, body: bytes = b"", **headers: object) -> Callable[[Handler], None]:
    return lambda handler: handler.send(status, body, **headers)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """An honest server; what is fetched goes below tmp_path."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.asked, server.go_on = [honest()], [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def toy(server: Server, content: str = sha(CONTENT), path: str = "toy/numbers.gz") -> Entry:
    file = File(path, server.url, content)
    return Entry("toy", "Toy", "pictures", 1, 1, 1, None, "none", "https://toy.org", (file,))


def left(folder: Path) -> list[str]:
    """What lies in the folder of the dataset."""
    return sorted(path.name for path in (folder / "toy").iterdir())


def test_a_file_is_fetched_once_and_progress_is_told(server: Server, tmp_path: Path) -> None:
    told = []
    (path,) = fetch(toy(server), tell=lambda *news: told.append(news))
    assert path == tmp_path / "toy" / "numbers.gz"
    assert path.read_bytes() == BODY
    assert left(tmp_path) == ["numbers.gz"]
    assert told == sorted(told)
    assert told[-1] == ("numbers.gz", len(BODY), len(BODY))
    assert fetch(toy(server)) == (path,)
    assert len(server.asked) == 1


def test_a_file_of_the_usual_rights_is_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    (path,) = fetch(toy(server))
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("name", ["numbers.gz", "numbers"])
@pytest.mark.parametrize("pack", [bytes, lambda raw: gzip.compress(raw, compresslevel=1)])
def test_what_is_here_and_right_is_not_fetched(
    server: Server, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "toy" / name
    path.parent.mkdir()
    path.write_bytes(pack(CONTENT))
    assert fetch(toy(server)) == (path,)
    assert not server.asked


@pytest.mark.parametrize("wrong", [b"", OTHER, BODY[:HALF], CONTENT, b"<html>"], ids=len)
def test_what_is_here_but_wrong_is_said_and_replaced(
    server: Server, tmp_path: Path, wrong: bytes
) -> None:
    path = tmp_path / "toy" / "numbers.gz"
    path.parent.mkdir()
    path.write_bytes(wrong + b"!")
    said: list[str] = []
    assert fetch(toy(server), said.append) == (path,)
    assert path.read_bytes() == BODY
    assert said == [f"{path} does not hold what is published. It is fetched anew."]


def test_a_bad_download_replaces_nothing(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "toy" / "numbers.gz"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    server.answers = [honest(OTHER)]
    with pytest.raises(DownloadError, match="something else"):
        fetch(toy(server))
    assert path.read_bytes() == b"mine"
    assert left(tmp_path) == ["numbers.gz"]


LIES = {
    "other content": honest(OTHER),
    "a web page": plain(200, b"<html>Log in first</html>"),
    "nothing": plain(200),
    "half a file": honest(BODY[:HALF]),
    "too short a length": plain(200, BODY, Content_Length=HALF),
    "a byte too many": honest(BODY + b"!"),
}


@pytest.mark.parametrize("answer", LIES.values(), ids=LIES.keys())
def test_content_that_lies_is_deleted_and_named(
    server: Server, tmp_path: Path, answer: Callable[[Handler], None]
) -> None:
    server.answers = [answer]
    with pytest.raises(DownloadError, match="something else") as caught:
        fetch(toy(server))
    assert server.url in str(caught.value)
    assert str(tmp_path / "toy" / "numbers.gz") in str(caught.value)
    assert left(tmp_path) == []


def test_a_cut_connection_is_resumed_where_it_was_cut(server: Server, tmp_path: Path) -> None:
    server.answers = [honest(cut=HALF), honest(cut=HALF + 1000), honest()]
    said: list[str] = []
    (path,) = fetch(toy(server), said.append)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
    assert [headers["If-Range"] for headers in server.asked] == [None, TAG, TAG]
    assert f"ended after {HALF} of {len(BODY)} bytes" in said[0]
    assert left(tmp_path) == ["numbers.gz"]


def test_a_later_call_goes_on_where_the_last_one_gave_up(server: Server, tmp_path: Path) -> None:
    server.answers = [honest(cut=HALF), plain(503)]
    with pytest.raises(DownloadError, match=f"503.*the {HALF} bytes that came are kept"):
        fetch(toy(server))
    assert len(server.asked) == download.TRIES
    assert "numbers.gz.part" in left(tmp_path)
    server.answers = [honest()]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges()[-1] == f"bytes={HALF}-"


def test_a_stalled_connection_is_given_up_and_resumed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "STALL", 2)
    server.answers = [honest(cut=HALF, stall=True), honest()]
    said: list[str] = []
    (path,) = fetch(toy(server), said.append)
    assert path.read_bytes() == BODY
    assert "nothing came for 2 seconds" in said[0]
    assert server.ranges() == [None, f"bytes={HALF}-"]


def test_a_part_that_was_whole_needs_no_byte_more(server: Server) -> None:
    """The length that the server gives is too large, so the end seems to be missing."""
    server.answers = [plain(200, BODY, Content_Length=len(BODY) + 10, ETag=TAG), honest()]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={len(BODY)}-"]


def other_rest(handler: Handler) -> None:
    """The rest, but of another version: the server knows Range and not If-Range."""
    asked = handler.headers["Range"]
    if asked:
        start = int(asked[6:-1])
        span = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        handler.send(206, BODY[start:], ETag='"two"', Content_Range=span)
    else:
        handler.send(200, BODY, ETag='"two"')


SECOND = {
    "a server that ignores ranges": plain(200, BODY),
    "another version": honest(BODY, tag='"two"'),
    "the rest of another version": other_rest,
    "another part": plain(206, BODY[9:], ETag=TAG, Content_Range=f"bytes 9-{len(BODY) - 1}/{HALF}"),
    "a part of it knows not what": plain(206, BODY[HALF:], ETag=TAG),
    "no such part": plain(416, Content_Range=f"bytes */{HALF - 1}"),
}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND.keys())
def test_parts_that_do_not_belong_together_are_never_joined(
    server: Server, tmp_path: Path, second: Callable[[Handler], None]
) -> None:
    server.answers = [honest(OTHER, cut=HALF), second, honest(tag='"two"')]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges()[1] == f"bytes={HALF}-"
    assert left(tmp_path) == ["numbers.gz"]


@pytest.mark.parametrize(
    ("tag", "date", "if_range"),
    [(None, None, None), ('W/"one"', None, None), ('W/"one"', DATE, DATE), (TAG, DATE, TAG)],
)
def test_only_what_tells_versions_apart_is_resumed(
    server: Server, tag: str | None, date: str | None, if_range: str | None
) -> None:
    headers = {"ETag": tag, "Last_Modified": date, "Content_Length": len(BODY)}
    server.answers = [plain(200, BODY[:HALF], **headers), honest()]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.asked[1]["If-Range"] == if_range
    assert server.ranges()[1] == (if_range and f"bytes={HALF}-")


@pytest.mark.parametrize("note", [None, b"", b"\0\0\0", b"\xff", b"a\nb"], ids=repr)
def test_a_part_without_a_sound_note_is_begun_anew(
    server: Server, tmp_path: Path, note: bytes | None
) -> None:
    part = tmp_path / "toy" / "numbers.gz.part"
    part.parent.mkdir()
    part.write_bytes(OTHER[:HALF])
    if note is not None:
        part.with_name("numbers.gz.part.version").write_bytes(note)
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges() == [None]


def chunked(handler: Handler, whole: bool = True) -> None:
    """Without a length; unless whole, cut before the end is announced."""
    handler.send(200, Content_Length=None, Transfer_Encoding="chunked", ETag=TAG)
    for start in range(0, len(BODY) if whole else HALF, 50_000):
        piece = BODY[start : start + 50_000]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n" if whole else b"")


def test_a_body_of_unannounced_length_is_fetched(server: Server) -> None:
    server.answers = [lambda handler: chunked(handler, whole=False), chunked]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_that_passes_is_tried_again(server: Server, status: int) -> None:
    server.answers = [plain(status), honest()]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY


@pytest.mark.parametrize("status", [403, 404, 410, 204])
def test_an_answer_that_stays_is_not_tried_again(server: Server, status: int) -> None:
    server.answers = [plain(status), honest()]
    with pytest.raises(DownloadError, match=f"{server.url}.* {status} "):
        fetch(toy(server))
    assert len(server.asked) == 1


def test_no_server_is_a_sentence(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = File("toy/numbers.gz", f"http://127.0.0.1:{port}/", sha(CONTENT))
    entry = Entry("toy", "Toy", "pictures", 1, 1, 1, None, "", "", (file,))
    with pytest.raises(DownloadError, match=r"refused.*Try again later"):
        fetch(entry)


def test_a_redirect_within_the_web_is_followed_with_the_range(server: Server) -> None:
    there = plain(302, Location="/elsewhere")
    server.answers = [there, honest(cut=HALF), there, honest()]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges()[-1] == f"bytes={HALF}-"


@pytest.mark.parametrize("scheme", ["file", "ftp", "data", "FILE"])
def test_a_redirect_out_of_the_web_is_refused(server: Server, tmp_path: Path, scheme: str) -> None:
    secret = tmp_path / "secret.gz"
    secret.write_bytes(BODY)
    server.answers = [plain(302, Location=f"{scheme}://{secret}")]
    with pytest.raises(DownloadError, match=f"(?i)302.*{scheme}://"):
        fetch(toy(server))
    assert left(tmp_path) == []
    assert len(server.asked) == 1


@pytest.mark.parametrize("scheme", ["file", "ftp"])
def test_only_the_web_is_fetched_from(server: Server, tmp_path: Path, scheme: str) -> None:
    secret = tmp_path / "secret.gz"
    secret.write_bytes(BODY)
    file = File("toy/numbers.gz", f"{scheme}://{secret}", sha(CONTENT))
    entry = Entry("toy", "Toy", "pictures", 1, 1, 1, None, "", "", (file,))
    with pytest.raises(DownloadError, match="only http and https"):
        fetch(entry)


def endless(handler: Handler) -> None:
    handler.send(200, Content_Length=None)
    try:
        for _ in range(1000):  # 66 MB, so that a fault of the library does not fill the disk
            handler.wfile.write(bytes(1 << 16))
    except OSError:  # the other side had enough
        pass


def test_a_body_that_is_announced_as_too_large_is_not_begun(server: Server, tmp_path: Path) -> None:
    server.answers = [plain(200, BODY, Content_Length=10**9 + 1)]
    with pytest.raises(DownloadError, match="more than 1000000000 bytes"):
        fetch(toy(server))
    assert left(tmp_path) == []


def test_a_body_without_end_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MOST_BYTES", 10**6)
    server.answers = [endless]
    with pytest.raises(DownloadError, match="more than 1000000 bytes"):
        fetch(toy(server))
    assert left(tmp_path) == []
    assert len(server.asked) == 1


def test_what_follows_the_announced_end_is_not_taken(server: Server) -> None:
    server.answers = [plain(200, BODY + bytes(10**6), Content_Length=len(BODY))]
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY


def test_a_bomb_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = bytes(5_000_000)
    server.answers = [honest(gzip.compress(zeros))]
    monkeypatch.setattr(download, "MOST_BYTES", len(zeros) - 1)
    with pytest.raises(DownloadError, match="something else"):
        fetch(toy(server, sha(zeros)))
    monkeypatch.setattr(download, "MOST_BYTES", len(zeros))
    fetch(toy(server, sha(zeros)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "numbers.gz.part").symlink_to("/dev/full")
    with pytest.raises(RobustPLLError, match=r"No space left on device.*ROBUSTPLL_DATA"):
        fetch(toy(server))
    assert len(server.asked) == 1


def test_a_folder_that_cannot_be_made_is_a_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").write_bytes(b"a file, not a folder")
    with pytest.raises(RobustPLLError, match=f"{tmp_path / 'toy'}.*ROBUSTPLL_DATA"):
        fetch(toy(server))


def test_what_is_right_in_a_folder_without_rights_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system's folder has it; the data folder cannot even be made."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "numbers").write_bytes(CONTENT)
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "system" / "numbers" / "never"))
    here = (tmp_path / "system" / "numbers",)
    file = File("toy/numbers.gz", server.url, sha(CONTENT))
    system = str(tmp_path / "system")
    assert fetch(Entry("toy", "Toy", "pictures", 1, 1, 1, None, "", "", (file,), system)) == here


def test_what_no_program_can_fetch_comes_with_the_steps(server: Server, tmp_path: Path) -> None:
    lost = entry_of("lost")
    with pytest.raises(InputError, match="in a browser") as caught:
        fetch(lost)
    assert lost.source in str(caught.value)
    assert str(tmp_path / "realworld" / "lost.mat") in str(caught.value)
    path = tmp_path / "realworld" / "lost.mat"
    path.parent.mkdir()
    path.write_bytes(b"here")
    assert fetch(lost) == (path,)


def start(server: Server, *, command: bool = False) -> subprocess.Popen[str]:
    """Another process that fetches, by the library or by its command."""
    code = f"""
from robustpll.cli import app
from robustpll.datasets.catalog import CATALOG, Entry, File
from robustpll.datasets.download import fetch
CATALOG["toy"] = {toy(server)!r}
app(["datasets", "get", "toy"]) if {command} else print(*fetch(CATALOG["toy"], say=print))
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-u", "-c", code], **pipes)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_two_processes_fetch_once(server: Server, tmp_path: Path) -> None:
    server.answers = [lambda handler: (server.go_on.wait(), honest()(handler))]
    first = start(server)
    wait_for(lambda: bool(server.asked))
    second = start(server)
    assert second.stdout is not None
    assert "Another process" in second.stdout.readline()
    server.go_on.set()
    printed = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    path = tmp_path / "toy" / "numbers.gz"
    assert printed == [f"{path}\n"] * 2
    assert path.read_bytes() == BODY
    assert len(server.asked) == 1
    assert left(tmp_path) == ["numbers.gz"]


def test_a_lock_on_a_file_that_was_just_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, the process before may have left and taken its file along."""
    path, lock, first = tmp_path / "lock", download._lock, []

    def late(file: IO[bytes]) -> bool:
        if not first:
            first.append(path.unlink())
        return lock(file)

    monkeypatch.setattr(download, "_lock", late)
    with download._alone(path, print), path.open("ab") as other:
        assert not lock(other)
    assert not path.exists()


def test_a_killed_process_leaves_a_part_and_no_lock(server: Server, tmp_path: Path) -> None:
    server.answers = [honest(cut=HALF, stall=True), honest()]
    process = start(server)
    part = tmp_path / "toy" / "numbers.gz.part"
    wait_for(lambda: part.exists() and part.stat().st_size > HALF // 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    came = part.stat().st_size
    (path,) = fetch(toy(server))
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={came}-"]
    assert left(tmp_path) == ["numbers.gz"]


def test_stopping_keeps_what_came_and_says_so(server: Server, tmp_path: Path) -> None:
    server.answers = [honest(cut=HALF, stall=True), honest()]
    process = start(server, command=True)
    part = tmp_path / "toy" / "numbers.gz.part"
    wait_for(lambda: part.exists() and part.stat().st_size > HALF // 2)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert printed == "Stopped. What came so far is kept; the same command goes on from there.\n"
    came = part.stat().st_size
    again = start(server, command=True)
    assert again.communicate(timeout=PATIENCE)[0].split() == [
        "toy",
        str(tmp_path / "toy" / "numbers.gz"),
    ]
    assert server.ranges() == [None, f"bytes={came}-"]
    assert is_right(tmp_path / "toy" / "numbers.gz", toy(server).files[0])


def letters(seed: int) -> bytes:
    """An archive of ten letters, packed in some order."""
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for letter in rng.permutation(list("ABCDEFGHIJ")):
            png = io.BytesIO()
            Image.fromarray(pixels(letter)).save(png, "png")
            member = tarfile.TarInfo(f"notMNIST_small/{letter}/one.png")
            member.size = len(png.getvalue())
            archive.addfile(member, io.BytesIO(png.getvalue()))
    return file.getvalue()


def pixels(letter: str) -> np.ndarray:
    return np.random.default_rng(ord(letter)).integers(0, 256, (28, 28), dtype=np.uint8)


def test_pictures_are_checked_by_their_pixels(server: Server) -> None:
    published = sha(b"".join(sorted(pixels(letter).tobytes() for letter in "ABCDEFGHIJ")))
    entry = toy(server, published, "toy/letters.tar.gz")
    server.answers = [honest(letters(0))]
    (path,) = fetch(entry)
    path.write_bytes(letters(1))
    assert fetch(entry) == (path,)
    assert len(server.asked) == 1
    path.write_bytes(letters(1)[:-200])
    assert not is_right(path, entry.files[0])


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fmnist", "kmnist", "notmnist"])
def test_the_published_sums_are_those_of_the_data(name: str) -> None:
    entry = CATALOG[name]
    for file in entry.files:
        path = find(entry, file)
        assert path is not None
        assert is_right(path, file)
