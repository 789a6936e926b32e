"""NotMNIST: published facts, order, broken and evil archives, and the cache."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustpll import Dataset, InputError, load_dataset
from robustpll.datasets import catalog, notmnist
from robustpll.datasets.catalog import CATALOG
from robustpll.datasets.notmnist import checksum

ROOT = "notMNIST_small"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The one file that is kept, in a cache folder of its own."""
    monkeypatch.setattr(notmnist, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "notmnist" / "pictures.cache"


@pytest.fixture
def archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, unpublished: Callable[..., None]
) -> Path:
    """Where a made archive is looked for."""
    unpublished("notmnist")
    assert not cache.exists()
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    path = tmp_path / "notmnist" / "notMNIST_small.tar.gz"
    path.parent.mkdir()
    return path


def png(shade: int, size: tuple[int, int] = (28, 28), mode: str = "L", form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("L", size, shade).convert(mode).save(file, form)
    return file.getvalue()


def pack(path: Path, members: dict[str, bytes]) -> None:
    """Names that end in "/" are folders."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(info, io.BytesIO(content))


ORDER = ("A/B.png", "A/b.png", "A/é.png", "B/a.png", "J/a.png")
SOUND = {f"{ROOT}/{ORDER[number]}": png(number) for number in (3, 1, 4, 0, 2)}


def shades(dataset: Dataset) -> list[int]:
    return dataset.features[:, 0].tolist()


def test_folders_are_in_the_order_of_letters_and_files_in_that_of_bytes(archive: Path) -> None:
    pack(archive, SOUND)
    dataset = load_dataset("notmnist")
    assert shades(dataset) == [0, 1, 2, 3, 4]
    assert dataset.features.shape == (5, 784)
    assert dataset.features.dtype == np.uint8
    assert dataset.labels is not None
    assert dataset.classes[dataset.labels].tolist() == ["A", "A", "A", "B", "J"]
    assert dataset.classes.tolist() == list("ABCDEFGHIJ")
    assert dataset.image_shape == (28, 28)
    assert dataset.official is dataset.candidates is None
    assert dataset.notes == ("5 rows, where 18724 are usual",)


def test_pixels_are_read_row_by_row(archive: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    pack(archive, {f"{ROOT}/C/x.png": file.getvalue()})
    assert (load_dataset("notmnist").features[0].reshape(28, 28) == picture).all()


BROKEN = {
    "empty": b"",
    "text": b"no picture",
    "cut": png(7)[:-30],
    "wrong size": png(7, size=(28, 27)),
    "claims to be huge": png(7)[:16] + b"\0\1\0\0\0\1\0\0" + png(7)[24:],
    "coloured": png(7, mode="RGB"),
    "black and white": png(7, mode="1"),
    "JPEG": png(7, form="JPEG"),
    "nothing after the header": png(7)[:33],
    "zeros after the header": png(7)[:33] + bytes(100),
}


def test_what_is_no_readable_letter_is_left_out_and_named(archive: Path) -> None:
    broken = {f"{ROOT}/C/{name}.png": content for name, content in BROKEN.items()}
    others = {f"{ROOT}/README": b"hello", f"{ROOT}/K/a.png": png(9), "A.png": png(9)}
    pack(archive, SOUND | broken | others | {f"{ROOT}/A/a.png/": b""})
    dataset = load_dataset("notmnist")
    assert shades(dataset) == [0, 1, 2, 3, 4]
    names = ", ".join(f"C/{name}.png" for name in sorted(BROKEN))
    assert dataset.notes[1:] == (
        f"{len(BROKEN)} pictures could not be read: {names}",
        f"3 files are no PNG in folders A to J: {', '.join(others)}",
    )


EVIL = {
    "leads out": (SOUND | {f"{ROOT}/../../A/a.png": b""}, None, r"/a\.png' is a link or lies out"),
    "cut": (SOUND, -20, "cannot be read"),
    "no picture": ({f"{ROOT}/A/a.png": b""}, None, "no readable picture"),
}


@pytest.mark.parametrize(("members", "end", "reason"), EVIL.values(), ids=EVIL.keys())
def test_an_evil_archive_is_refused(
    archive: Path, cache: Path, members: dict[str, bytes], end: int | None, reason: str
) -> None:
    pack(archive, members)
    archive.write_bytes(archive.read_bytes()[:end])
    with pytest.raises(InputError, match=f"{archive}.*{reason}"):
        load_dataset("notmnist")
    assert not cache.exists()
    assert catalog.checksum(CATALOG["notmnist"], archive) == ""


def same(one: Dataset, other: Dataset) -> bool:
    arrays = ((one.features, other.features), (one.labels, other.labels))
    return all(np.array_equal(*pair) for pair in arrays) and one.notes == other.notes


def unreadable(*_: object) -> None:
    raise AssertionError("the archive was decoded")


def test_the_second_load_decodes_nothing(
    archive: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(archive, SOUND | {f"{ROOT}/A/c.png": b""})
    first = load_dataset("notmnist")
    assert cache.is_file()
    monkeypatch.setattr(notmnist, "_decode", unreadable)
    second = load_dataset("notmnist")
    assert same(first, second)
    second.features[:] = 9  # what a reader does to it
    assert same(first, load_dataset("notmnist"))


def test_a_changed_archive_is_noticed_even_with_size_and_time_unchanged(archive: Path) -> None:
    pack(archive, SOUND)
    load_dataset("notmnist")
    before = archive.stat()
    pack(archive, {name: png(50 + number) for number, name in enumerate(SOUND)})
    with archive.open("ab") as file:
        file.write(bytes(before.st_size - archive.stat().st_size))
    os.utime(archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert archive.stat().st_size == before.st_size
    assert shades(load_dataset("notmnist")) == [53, 51, 54, 50, 52]


@pytest.mark.parametrize("damage", [0, 31, 32, -1, "empty", "cut", "a file"])
def test_a_damaged_cache_is_made_anew(archive: Path, cache: Path, damage: int | str) -> None:
    pack(archive, SOUND)
    first = load_dataset("notmnist")
    sound = cache.read_bytes()
    if damage == "a file":  # where the folder should be: there is no cache
        cache.unlink()
        cache.parent.rmdir()
        cache.parent.write_text("")
        assert same(load_dataset("notmnist"), first)
        return
    broken = bytearray(sound)
    if isinstance(damage, int):
        broken[damage] ^= 1
    else:
        del broken[20 if damage == "cut" else 0 :]
    cache.write_bytes(broken)
    assert same(load_dataset("notmnist"), first)
    assert cache.read_bytes() == sound


def test_what_is_not_published_is_refused_also_from_the_cache(
    archive: Path, tmp_path: Path, unpublished: Callable[..., None]
) -> None:
    """The sum of the pixels does not depend on the packing."""
    pack(archive, SOUND)
    pack(tmp_path / "b", {name.replace(ROOT, "b"): SOUND[name] for name in reversed(SOUND)})
    content = checksum(archive)
    assert content == checksum(tmp_path / "b") == catalog.checksum(CATALOG["notmnist"], archive)
    unpublished("notmnist", [content])
    assert load_dataset("notmnist").content == ""
    pack(archive, SOUND | {next(iter(SOUND)): png(99)})
    for _ in range(2):
        with pytest.raises(InputError, match="does not hold what is published"):
            load_dataset("notmnist")


@pytest.mark.data
def test_the_published_facts_hold(letters_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notmnist, "cache_folder", lambda: letters_cache)
    dataset = load_dataset("notmnist")
    assert dataset.features.shape == (18_724, 784)
    assert dataset.labels is not None
    counts = dict(zip(dataset.classes.tolist(), np.bincount(dataset.labels).tolist(), strict=True))
    assert counts == {letter: 1873 if letter in "BCDE" else 1872 for letter in "ABCDEFGHIJ"}
    assert (np.diff(dataset.labels) >= 0).all()
    split = dataset.split(0)
    assert (len(split.train), len(split.test)) == (14_979, 3_745)
    assert (dataset.features.min(), dataset.features.max()) == (0, 255)
    assert not [note for note in dataset.notes if "could not be read" not in note]
    monkeypatch.setattr(notmnist, "_decode", unreadable)
    assert same(load_dataset("notmnist"), dataset)
