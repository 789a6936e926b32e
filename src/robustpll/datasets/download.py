"""Fetching the files of a dataset: resumed when cut, checked by content, whole or not there."""

import errno
import gzip
import hashlib
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from robustpll import __version__
from robustpll._files import write_whole
from robustpll.datasets.catalog import Entry, File, data_folders, existing, find
from robustpll.errors import InputError, RobustPLLError

MOST_BYTES = 10**9  # of a download and, apart from that, of what is in it; datasets have 50 MB
TRIES = 5
PAUSE = 1.0  # seconds before the second try; doubled before each further one
CHUNK = 2**16  # bytes that are read and written at once
STALL = 30.0  # seconds without a byte, after which a connection is given up
PASSING = (408, 425, 429)  # answers that may soon be others, besides those of 500 and above
GZIP = b"\x1f\x8b"

Say = Callable[[str], None]  # is given sentences for a person
Tell = Callable[[str, int, int | None], None]  # is given a file's name, bytes so far, bytes in all


class DownloadError(RobustPLLError):
    """A file could not be fetched; the message says which, why, and what to do."""


class _PassingError(Exception):
    """A fault that the next try may not meet again."""


def nobody(*_: object) -> None:
    """Listens to nothing."""


def fetch(entry: Entry, say: Say = nobody, tell: Tell = nobody) -> tuple[Path, ...]:
    """Where the files of a dataset are, after those that were absent or wrong were fetched.

    >>> from robustpll.datasets.catalog import entry_of
    >>> fetch(entry_of("digits"))  # built in
    ()
    """
    return tuple(_fetch_file(entry, file, say, tell) for file in entry.files)


def _fetch_file(entry: Entry, file: File, say: Say, tell: Tell) -> Path:
    if file.url is None:
        return existing(entry, file)
    target = data_folders()[0] / file.path
    with sentences_for_disk_errors(target):
        present = _right(entry, file)
        if present is not None:
            return present
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.with_name(f"{target.name}.lock"), say):
            # Another process may have brought it meanwhile.
            return _right(entry, file, say) or _fetch_to(target, entry, file, say, tell)


@contextmanager
def sentences_for_disk_errors(target: Path) -> Iterator[None]:
    """Within it an OSError becomes an error that says what to do.

    >>> with sentences_for_disk_errors(Path("a.mat")):
    ...     raise PermissionError(errno.EACCES, "Permission denied")
    Traceback (most recent call last):
    robustpll.errors.RobustPLLError: a.mat cannot be read or written: Permission denied. ...
    """
    try:
        yield
    except OSError as error:
        raise RobustPLLError(
            f"{error.filename or target} cannot be read or written: {error.strerror or error}. "
            "Make room or see to the rights there, or let the environment variable ROBUSTPLL_DATA "
            "name another folder."
        ) from error


def _fetch_to(target: Path, entry: Entry, file: File, say: Say, tell: Tell) -> Path:
    part = _Part(target.with_name(f"{target.name}.part"))
    by_hand = f"Or get the file by way of {entry.source} and put it at {target}."
    try:
        _download(str(file.url), part, say, lambda *sizes: tell(target.name, *sizes))
    except DownloadError as error:
        raise DownloadError(f"{error} {by_hand}") from error
    if not is_right(part.path, file):
        part.forget()
        raise DownloadError(
            f"{file.url} holds something else than what is published: the sum of the content of "
            f"{target.name} differs. What came was deleted. Try again later. {by_hand}"
        )
    part.path.replace(target)
    part.forget()
    return target


def _right(entry: Entry, file: File, say: Say = nobody) -> Path | None:
    path = find(entry, file)
    if path is None or is_right(path, file):
        return path
    say(f"{path} does not hold what is published. It is fetched anew.")
    return None


def is_right(path: Path, file: File) -> bool:
    """Whether a file's content is what is published, however it is compressed.

    >>> import tempfile
    >>> file = File("note.gz", None, hashlib.sha256(b"hello").hexdigest())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "note.gz"
    ...     _ = path.write_bytes(gzip.compress(b"hello", compresslevel=1))
    ...     is_right(path, file)
    True
    """
    try:
        return content_sum(path, file) == file.content
    except (EOFError, gzip.BadGzipFile, zlib.error, InputError):  # cut short or damaged
        return False


def content_sum(path: Path, file: File) -> str:
    """Of at most MOST_BYTES: what holds more, a bomb perhaps, is not read to its end."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as raw:
        zipped = raw.read(len(GZIP)) == GZIP
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if zipped else nullcontext(raw) as content:
            while chunk := content.read(1 << 20):
                size += len(chunk)
                if size > MOST_BYTES:
                    return ""
                digest.update(chunk)
    if file.path.endswith(".tar.gz"):
        from robustpll.datasets.notmnist import pixel_sum

        return pixel_sum(path)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Part:
    """What came of a file so far and, in a note beside it, of which version of the file."""

    path: Path

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.version")

    def state(self) -> tuple[int, str]:
        """How many bytes are here and their version; (0, "") where nothing can be resumed."""
        try:
            size, version = self.path.stat().st_size, self.note.read_text("ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return 0, ""
        return (size, version) if size and version and version.isprintable() else (0, "")

    def begin(self, version: str) -> None:
        self.path.write_bytes(b"")  # first, so that old bytes never stand beside a new version
        write_whole(self.note, version.encode("ascii", errors="replace"))

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _download(url: str, part: _Part, say: Say, tell: Callable[[int, int | None], None]) -> None:
    """All bytes of an address, in several tries where connections are cut or stall."""
    if not _is_web(url):
        raise DownloadError(f"{url} is not fetched: only http and https are.")
    for tries in range(1, TRIES + 1):
        try:
            return _transfer(url, part, tell)
        except _PassingError as error:
            reason = str(error)
        if tries < TRIES:
            say(f"{url}: {reason}. Trying again ({tries + 1} of {TRIES}).")
            time.sleep(PAUSE * 2 ** (tries - 1))
    kept = part.state()[0]
    more = f"; the {kept} bytes that came are kept, and it goes on from there" if kept else ""
    raise DownloadError(f"{url} cannot be fetched: {reason}. Try again later{more}.")


def _transfer(url: str, part: _Part, tell: Callable[[int, int | None], None]) -> None:
    """One connection: what is missing, or all if the server has no rest of the same version.

    What the network does raises _PassingError; an OSError is of the disk.
    """
    with _answer(url, *part.state()) as answer:
        have, total = _begin(url, answer, part)
        _refuse_large(total or 0, url, part)
        with part.path.open("ab") as file:
            while True:
                with _network():
                    chunk = answer.read1(CHUNK if total is None else min(CHUNK, total - have))
                if not chunk:
                    break
                file.write(chunk)
                have += len(chunk)
                _refuse_large(have, url, part)
                tell(have, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and have < total:
        raise _PassingError(f"the connection ended after {have} of {total} bytes")


def _answer(url: str, have: int, version: str) -> HTTPResponse | HTTPError:
    rest = {"Range": f"bytes={have}-", "If-Range": version} if have else {}
    request = Request(url, headers={"User-Agent": f"robustpll/{__version__}", **rest})
    with _network():
        try:
            answer: HTTPResponse = build_opener(_WebOnly).open(request, timeout=STALL)
        except HTTPError as error:
            return error
    return answer


def _begin(url: str, answer: HTTPResponse | HTTPError, part: _Part) -> tuple[int, int | None]:
    """How many bytes are here and how many there are in all; None if the server does not say."""
    status = answer.status or 0
    if status == 200 and isinstance(answer, HTTPResponse):
        part.begin(_version(answer))
        return 0, answer.length
    have, version = part.state()
    if have and status in (206, 416):  # the rest; there is no rest
        sent = answer.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", sent)
        if found and int(found[1] or found[2]) == have and _version(answer) in ("", version):
            return have, int(found[2])
        part.forget()
        raise _PassingError("the server has not the rest of what came before")
    reason = f"the server answers {status} {answer.reason}"
    if status >= 500 or status in PASSING:
        raise _PassingError(reason)
    raise DownloadError(f"{url} cannot be fetched: {reason}.")


def _version(answer: HTTPResponse | HTTPError) -> str:
    """What tells versions of a file apart byte by byte, which a weak ETag does not."""
    tag: str = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def _refuse_large(size: int, url: str, part: _Part) -> None:
    if size > MOST_BYTES:
        part.forget()
        raise DownloadError(f"{url} is not fetched: it has more than {MOST_BYTES} bytes.")


@contextmanager
def _network() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise _PassingError(f"nothing came for {STALL:g} seconds") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise _PassingError(f"the connection failed ({reason})") from error


def _is_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


class _WebOnly(HTTPRedirectHandler):
    """Follows no server to ftp; the base class refuses file and the like by itself."""

    def redirect_request(  # noqa: PLR0917 - the base class's
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not _is_web(newurl):
            reason = f"{msg}, and leads to {newurl}, which is neither http nor https"
            raise HTTPError(newurl, code, reason, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _alone(path: Path, say: Say) -> Iterator[None]:
    """Waits until no other process is inside with the same lock file.

    The system frees the lock of a process that dies, so none is left behind.
    """
    told = False
    while True:
        with path.open("ab") as file:
            if _lock(file) and _is_at(file, path):
                try:
                    yield
                finally:
                    with suppress(PermissionError):  # Windows keeps files that are open
                        path.unlink(missing_ok=True)
                return
        if not told:
            say(f"Another process fetches {path.with_suffix('')}. Waiting for it.")
            told = True
        time.sleep(0.1)


def _lock(file: IO[bytes]) -> bool:
    """Whether the lock could be had. Where a file system has no locks, the sums must do."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether a file that was opened is still there: the one before may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
