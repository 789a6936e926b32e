"""The catalog of datasets: their facts, where their files are, and which version a file is."""

import hashlib
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from robustpll.datasets.bounded import read_content
from robustpll.errors import InputError

USUAL = "usual"  # what people call the version whose checksum is in the catalog


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a dataset."""

    path: str  # below a data folder
    url: str | None = None  # None if the file must be downloaded by hand
    content: str | None = None  # SHA-256 of its content; other files are refused
    usual: str | None = None  # SHA-256 of the usual version; other versions are accepted


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The facts about a dataset that are known without reading it."""

    name: str
    title: str
    kind: Literal["pictures", "real-world", "built in"]
    loader: str  # the module of robustpll.datasets that reads the files
    rows: int
    features: int
    classes: int
    licence: str
    source: str  # a web page for people
    candidates: float | None = None  # average per row; None if noise makes them
    class_names: tuple[str, ...] = ()  # empty if the names are 0, 1, ...
    files: tuple[File, ...] = ()
    own_checksum: bool = False  # whether the loader defines `checksum`

    @property
    def module(self) -> Any:
        return import_module(f"robustpll.datasets.{self.loader}")

    @property
    def is_downloadable(self) -> bool:
        return bool(self.files) and all(file.url for file in self.files)


def _read_catalog() -> dict[str, Entry]:
    tables = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
    for facts in tables.values():
        facts["files"] = tuple(File(**file) for file in facts.get("files", ()))
        facts["class_names"] = tuple(facts.get("class_names", ()))
    return {name: Entry(name=name, **facts) for name, facts in tables.items()}


CATALOG = _read_catalog()


def entry_of(name: str) -> Entry:
    """Return the catalog entry of a dataset."""
    if str(name) not in CATALOG:
        raise InputError(f"There is no dataset {name!r}; the names are {', '.join(CATALOG)}.")
    return CATALOG[str(name)]


def cache_folder() -> Path:
    """Return the folder for downloads if ``ROBUSTPLL_DATA`` is not set."""
    places = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Caches")}
    variable, below_home = places.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    try:
        root = Path(os.environ.get(variable) or Path.home() / below_home)
    except RuntimeError as error:
        raise InputError(
            "There is no home folder to keep files in. Set the environment variable HOME, or set "
            "ROBUSTPLL_DATA to a folder for datasets."
        ) from error
    return root / "robustpll" / "data"


def data_folders() -> tuple[Path, ...]:
    """Return the folders in which files are searched, in this order; downloads go to the first."""
    named = os.environ.get("ROBUSTPLL_DATA")
    if not named:
        return (cache_folder(),)
    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:
        msg = f"ROBUSTPLL_DATA is {named!r}, the home of an unknown user. Set it to a folder."
        raise InputError(msg) from error
    try:
        return folder, cache_folder()
    except InputError:  # without a home folder, the named folder is enough
        return (folder,)


def find(entry: Entry, file: File) -> Path | None:
    """Return the path of a file, gzipped or plain; None if it does not exist."""
    names = (file.path, file.path.removesuffix(".gz"))
    paths = (folder / name for folder in data_folders() for name in names)
    return next((path for path in paths if path.is_file() and path.suffix != ".tar"), None)


def existing(entry: Entry, file: File) -> Path:
    """Return the path of a file; raise an error with the remedy if it does not exist."""
    path = find(entry, file)
    if path is None:
        places = " and ".join(str(folder / file.path) for folder in data_folders())
        raise InputError(f"{entry.title}: there is no file {places}. {how_to_get(entry)}")
    return path


def how_to_get(entry: Entry) -> str:
    """Return a sentence that tells how to get a dataset."""
    if not entry.files:
        return "It is part of the library."
    if entry.is_downloadable:
        return f"Run 'robustpll datasets get {entry.name}'."
    return (
        f"No program can download it: open {entry.source} in a browser, download the archive of "
        f"{entry.title}, and run 'robustpll datasets add {entry.name} FILE', which writes its .mat "
        f"file to {data_folders()[0] / entry.files[0].path}."
    )


def checksum(entry: Entry, path: Path) -> str:
    """Return the SHA-256 of a file's content, unpacked if it is gzipped; "" if it is damaged."""
    try:
        if entry.own_checksum:
            return str(entry.module.checksum(path))
        return hashlib.sha256(read_content(path)).hexdigest()
    except InputError:
        return ""


def version_of(entry: Entry, paths: Sequence[Path], sums: Sequence[str]) -> str:
    """Return the version of files with these checksums: "" for the usual one, else 16 digits.

    Files that are not the published ones are refused, if the catalog has their checksums.
    """
    files = tuple(zip(entry.files, paths, sums, strict=True))
    for file, path, content in files:
        if file.content not in (None, content):
            raise InputError(
                f"{path} does not hold what is published: the SHA-256 of its content is {content}, "
                f"that of {entry.title} is {file.content}. {how_to_get(entry)}"
            )
    if all(content in (file.content, file.usual) for file, _, content in files):
        return ""
    return hashlib.sha256("".join(sums).encode()).hexdigest()[:16]


def version_here(name: str) -> str:
    """Return the version of a dataset's local files without loading them."""
    entry = entry_of(name)
    if all(file.content for file in entry.files):  # no other content is ever loaded
        return ""
    paths = [existing(entry, file) for file in entry.files]
    return version_of(entry, paths, [checksum(entry, path) for path in paths])
