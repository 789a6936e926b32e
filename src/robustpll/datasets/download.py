"""Download the files of a dataset, and check their content before they get their names."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from robustpll import __version__
from robustpll.datasets import catalog
from robustpll.datasets.bounded import MOST_BYTES
from robustpll.datasets.catalog import Entry, File
from robustpll.errors import RobustPLLError

TRIES = 5
PAUSE = 1.0  # seconds before the second try; doubled before each further one
STALL = 30.0  # seconds without a byte, after which a connection is closed
CHUNK = 2**16  # bytes to read and write at once
HEADERS = {"User-Agent": f"robustpll/{__version__}", "Accept-Encoding": "identity"}

Say = Callable[[str], None]  # gets sentences for a person
Report = Callable[[str, int, int | None], None]  # gets a file's name, bytes so far, bytes in all


class DownloadError(RobustPLLError):
    """A file could not be downloaded; the message says which, why, and what to do."""


@contextmanager
def disk_errors_explained(target: Path) -> Iterator[None]:
    """Turn an OSError into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise RobustPLLError(
            f"{error.filename or target} cannot be read or written: {error.strerror or error}. "
            "Free some space, check the permissions, or set the environment variable "
            "ROBUSTPLL_DATA to another folder."
        ) from error


def fetch(entry: Entry, say: Say, report: Report) -> tuple[Path, ...]:
    """Return the paths of a dataset's files; download those that are missing or wrong."""
    return tuple(_fetch_file(entry, file, say, report) for file in entry.files)


def _fetch_file(entry: Entry, file: File, say: Say, report: Report) -> Path:
    if file.url is None:
        return catalog.existing(entry, file)
    from filelock import FileLock

    target = catalog.data_folders()[0] / file.path
    part = target.with_name(f"{target.name}.part")
    remedy = f"Try again later, or get it from {entry.source} and move it to {target}."
    with disk_errors_explained(target):
        if path := _published(entry, file):
            return path
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f".{target.name}.lock")):  # free if its process is killed
            if path := _published(entry, file):  # another process downloaded it meanwhile
                return path
            if path := catalog.find(entry, file):
                say(f"{path} does not hold what is published. It is downloaded again.")
            try:
                _download(file.url, part, say, report, remedy)
                if catalog.checksum(entry, part) == file.content:
                    return part.replace(target)
            finally:
                part.unlink(missing_ok=True)
    raise DownloadError(
        f"{file.url} does not hold what is published: its content has another checksum. The "
        f"download was deleted. {remedy}"
    )


def _published(entry: Entry, file: File) -> Path | None:
    path = catalog.find(entry, file)
    return path if path and catalog.checksum(entry, path) == file.content else None


def _download(url: str, part: Path, say: Say, report: Report, remedy: str) -> None:
    """Write the content of an address to a file; try again if the connection fails."""
    import requests

    for attempt in range(1, TRIES + 1):
        try:
            with (
                requests.get(url, stream=True, timeout=STALL, headers=HEADERS) as response,
                part.open("wb") as file,
            ):
                response.raise_for_status()
                length = response.headers.get("Content-Length", "")
                total = int(length) if length.isdecimal() else None
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    if max(file.tell(), total or 0) > MOST_BYTES:
                        raise DownloadError(f"{url} has more than {MOST_BYTES} bytes: too many.")
                    report(part.stem, file.tell(), total)
        except requests.RequestException as error:
            status = 500 if error.response is None else error.response.status_code
            is_final = status < 500 and status not in (408, 425, 429)
            if is_final or isinstance(error, ValueError) or attempt == TRIES:
                raise DownloadError(f"{url} cannot be downloaded: {error}. {remedy}") from error
            say(f"{url}: {error}. Trying again ({attempt + 1} of {TRIES}).")
            time.sleep(PAUSE * 2 ** (attempt - 1))
        else:
            return
