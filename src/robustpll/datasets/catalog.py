"""What each dataset is, which files it needs, where these are looked for and how one gets them."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robustpll.errors import InputError

PLL_PAGE = "https://palm.seu.edu.cn/zhangml/Resources.htm"
IDX_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


@dataclass(frozen=True)
class File:
    """One file of a dataset."""

    path: str  # below a data folder
    url: str | None  # None: no program can fetch it
    content: str | None  # SHA-256 of what is in it: of the uncompressed bytes of a .gz
    # SHA-256 of the version that is meant where none is named; other versions are welcome, too
    usual: str | None = None


@dataclass(frozen=True)
class Entry:
    """A dataset's facts, known without reading it."""

    name: str
    title: str
    kind: Literal["pictures", "real-world", "built in"]
    rows: int
    features: int
    classes: int
    candidates: float | None  # on average, where they are given rather than made by noise
    licence: str
    source: str  # a page for people
    files: tuple[File, ...] = ()
    system: str = ""  # a folder where a Linux package puts the same files


def _idx(
    name: str,
    title: str,
    licence: str,
    source: str,
    address: str,
    *sums: str,
    folder: str = "",
    system: str = "",
) -> Entry:
    files = tuple(
        File(f"{folder or name}/{part}-ubyte.gz", f"{address}{part}-ubyte.gz", content)
        for part, content in zip(IDX_FILES, sums, strict=True)
    )
    facts = (70_000, 784, 10, None)
    return Entry(name, title, "pictures", *facts, licence, source, files, system)


def _mat(
    name: str, title: str, facts: tuple[int, int, int, float], usual: str | None = None
) -> Entry:
    """`facts` are rows, features, classes, candidates on average."""
    licence = "academic use"
    file = File(f"realworld/{name}.mat", None, None, usual)
    return Entry(name, title, "real-world", *facts, licence, PLL_PAGE, (file,))


def _built_in(name: str, title: str, rows: int, features: int, source: str) -> Entry:
    return Entry(name, title, "built in", rows, features, 10, None, "BSD-3-Clause", source)


_ENTRIES = (
    _mat(
        "bird-song",
        "BirdSong",
        (4_998, 38, 13, 2.1755),
        "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743",
    ),
    _mat(
        "lost",
        "Lost",
        (1_122, 108, 16, 2.2317),
        "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f",
    ),
    _mat("mir-flickr", "MIRFlickr", (2_780, 1_536, 14, 2.76)),
    _mat(
        "msrc-v2",
        "MSRCv2",
        (1_758, 48, 23, 3.1564),
        "948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393",
    ),
    _mat("soccer", "Soccer Player", (17_472, 279, 171, 2.09)),
    _mat("yahoo-news", "Yahoo! News", (22_991, 163, 219, 1.91)),
    _idx(
        "mnist",
        "MNIST",
        "CC BY-SA 3.0",
        "http://yann.lecun.com/exdb/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    _idx(
        "fmnist",
        "Fashion-MNIST",
        "MIT",
        "https://github.com/zalandoresearch/fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        folder="fashion-mnist",
        system="/usr/share/datasets/fashion-mnist",
    ),
    _idx(
        "kmnist",
        "Kuzushiji-MNIST",
        "CC BY-SA 4.0",
        "http://codh.rois.ac.jp/kmnist/",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
        "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
        "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
        "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
    ),
    Entry(
        "notmnist",
        "NotMNIST small",
        "pictures",
        18_724,
        784,
        10,
        None,
        "none stated",
        "http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
        (
            File(
                "notmnist/notMNIST_small.tar.gz",
                "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
                # of the sorted pixels of all readable pictures, one after the other
                "2712c5f52b8fdbc1ef87e3b79e2710548d85002f16495252a81b45015839cc71",
            ),
        ),
    ),
    _mat(
        "fg-net",
        "FG-NET",
        (1_002, 262, 78, 7.48),
        "5b8d43e40cee007f6438a7a74d600b5cf67ac596754a322ce91b0fc6811f45db",
    ),
    _mat(
        "italian",
        "Italian",
        (21_878, 519, 90, 1.60),
        "7981fff3efd2df21abfac990d71777dd9637bf6ab8ccd15066b086287b9e6fde",
    ),
    _built_in("digits", "Digits", 1_797, 64, "https://scikit-learn.org/stable/datasets.html"),
    _built_in("synthetic", "Synthetic", 2_000, 20, "made by the library"),
)
CATALOG: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry_of(name: str) -> Entry:
    """The facts of a dataset.

    >>> entry_of("lost").classes
    16
    """
    if str(name) not in CATALOG:
        raise InputError(f"There is no dataset {name!r}; the names are {', '.join(CATALOG)}.")
    return CATALOG[str(name)]


def cache_folder() -> Path:
    """Where downloads go unless ``ROBUSTPLL_DATA`` names a folder."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or _home("AppData", "Local")
    elif sys.platform == "darwin":
        root = _home("Library", "Caches")
    else:
        root = os.environ.get("XDG_CACHE_HOME") or _home(".cache")
    return Path(root) / "robustpll" / "data"


def _home(*parts: str) -> Path:
    try:
        return Path.home().joinpath(*parts)
    except RuntimeError as error:
        raise InputError(
            "There is no home folder to keep files in. Let the environment variable HOME name one, "
            "or ROBUSTPLL_DATA a folder for datasets."
        ) from error


def data_folders() -> tuple[Path, ...]:
    """Where files are looked for, in this order; downloads go to the first."""
    named = os.environ.get("ROBUSTPLL_DATA")
    if not named:
        return (cache_folder(),)
    try:
        folder = Path(named).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"The environment variable ROBUSTPLL_DATA is {named!r}, which begins with the home of "
            "a user who is not known here. Let it name a folder."
        ) from error
    try:
        return folder, cache_folder()
    except InputError:  # there is no home, and no need of one
        return (folder,)


def _places(entry: Entry, file: File) -> Iterator[Path]:
    for folder in data_folders():
        yield folder / file.path
    if entry.system:
        yield Path(entry.system) / Path(file.path).name


def find(entry: Entry, file: File) -> Path | None:
    """Where a file is, gzipped or plain; None if it is nowhere."""
    for path in _places(entry, file):
        for each in (path, path.with_suffix("") if path.suffix == ".gz" else path):
            if each.is_file() and not each.name.endswith(".tar"):
                return each
    return None


def existing(entry: Entry, file: File) -> Path:
    """Where a file is; an error with the remedy if it is nowhere."""
    path = find(entry, file)
    if path is None:
        looked = " and ".join(str(each) for each in _places(entry, file))
        raise InputError(f"{entry.title}: there is no file {looked}. {how_to_get(entry)}")
    return path


def how_to_get(entry: Entry) -> str:
    """What a person does to have a dataset.

    >>> how_to_get(entry_of("mnist"))
    "Run 'robustpll datasets get mnist'."
    """
    if not entry.files:
        return "It is part of the library."
    if all(file.url for file in entry.files):
        return f"Run 'robustpll datasets get {entry.name}'."
    target = data_folders()[0] / entry.files[0].path
    return (
        f"No program can fetch it: open {entry.source} in a browser, download the archive of "
        f"{entry.title}, and run 'robustpll datasets add {entry.name} FILE', which puts its .mat "
        f"file at {target}."
    )
