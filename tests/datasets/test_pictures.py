"""Picture datasets: idx files and the letters of NotMNIST, and broken files."""

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from robustpll import Dataset, InputError, load_dataset
from robustpll.datasets import catalog
from robustpll.datasets.bounded import read_content
from robustpll.datasets.catalog import CATALOG
from robustpll.datasets.pictures import letters_checksum, read_idx

PICTURES = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
NOISE = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)
KINDS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
NAMES = [f"{kind}-ubyte" for kind in KINDS]
DIGITS = np.arange(30, dtype=np.uint8) % 10
SOUND = dict(zip(NAMES, (NOISE[:30], DIGITS, NOISE[30:], DIGITS[:20]), strict=True))


def idx(values: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    header = struct.pack(f">{values.ndim}i", *values.shape)
    return magic + bytes([values.ndim]) + header + values.tobytes()


PLAIN, ZIPPED = idx(PICTURES), gzip.compress(idx(NOISE))
BROKEN = {
    "empty": (b"", "not an idx file"),
    "a web page": (b"<html>not found</html>", "not an idx file"),
    "other numbers": (idx(PICTURES, magic=b"\0\0\x0d"), "not an idx file"),
    "no axes": (b"\0\0\x08\0!", "1 to 3 axes"),
    "four axes": (idx(PICTURES[None]), "1 to 3 axes"),
    "cut in half": (PLAIN[:20], r"\[4, 3, 2\], and has 20 bytes"),
    "one byte too many": (PLAIN + b"\0", "has 41 bytes"),
    "negative lengths": (b"\0\0\x08\2" + struct.pack(">2i", -2, -3) + bytes(6), "Download it"),
    "gzip, cut in half": (ZIPPED[: len(ZIPPED) // 2], "cannot be read"),
    "gzip, wrong checksum": (ZIPPED[:-8] + bytes(8), "cannot be read"),
    "gzip, wrong block": (ZIPPED[:10] + b"\xff" + ZIPPED[11:], "cannot be read"),
}


@pytest.mark.parametrize(("raw", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_idx_files_are_named(tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "broken-file"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=f"{path}.*{reason}"):
        read_idx(path, read_content(path))


@pytest.fixture
def mnist(data: Path, unpublished: Callable[..., None]) -> Path:
    """The folder for files that pass for MNIST."""
    unpublished("mnist")
    (data / "mnist").mkdir()
    return data / "mnist"


def fill(folder: Path, arrays: dict[str, np.ndarray], packed: str = "1111") -> None:
    for (name, values), is_packed in zip(arrays.items(), packed, strict=True):
        pack, suffix = (gzip.compress, ".gz") if is_packed == "1" else (bytes, "")
        (folder / f"{name}{suffix}").write_bytes(pack(idx(values)))


@pytest.mark.parametrize("packed", ["1111", "0000", "1001"])
def test_four_idx_files_make_a_dataset(
    mnist: Path, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(mnist, SOUND, packed)
    dataset = load_dataset("mnist")
    assert (dataset.features.dtype, dataset.labels.dtype) == (np.uint8, np.int64)
    assert (dataset.features == NOISE.reshape(50, 64)).all()
    assert dataset.labels.tolist() == [*range(10)] * 5
    assert (dataset.image_shape, dataset.candidates) == ((8, 8), None)
    split = dataset.split(3)
    assert (split.train.tolist(), split.test.tolist()) == ([*range(30)], [*range(30, 50)])
    assert dataset.notes == ()
    dataset.features[:] = 0  # stays in memory
    monkeypatch.delenv("ROBUSTPLL_DATA")  # the user's cache is searched, too
    cache = mnist.parents[1] / "cache" / "robustpll"
    cache.mkdir(parents=True)
    mnist.parent.rename(cache / "data")
    assert load_dataset("mnist").features.any()


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        (NAMES[1], SOUND[NAMES[1]][:29], r"\(29,\)"),
        (NAMES[1], SOUND[NAMES[0]], r"\(30, 8, 8\), \(30, 8, 8\)"),
        (NAMES[2], SOUND[NAMES[2]][0], r"\(8, 8\), \(20,\)"),
        (NAMES[2], SOUND[NAMES[2]][:, :7], r"\(20, 7, 8\)"),
        (NAMES[3], SOUND[NAMES[3]] + 1, "labels go up to 10"),
    ],
)
def test_idx_files_that_do_not_go_together_are_refused(
    mnist: Path, name: str, values: np.ndarray, reason: str
) -> None:
    fill(mnist, SOUND | {name: values})
    with pytest.raises(InputError, match=f"{mnist / name}.*do not belong together.*{reason}"):
        load_dataset("mnist")
    (mnist / f"{name}.gz").unlink()
    with pytest.raises(InputError, match=f"no file {mnist / name}.*datasets get mnist"):
        load_dataset("mnist")


def test_idx_files_that_are_not_published_are_refused(
    mnist: Path, unpublished: Callable[..., None]
) -> None:
    """Where the catalog has the sums; where it has none, versions are told apart."""
    fill(mnist, SOUND)
    first = load_dataset("mnist").content
    assert len(first) == 16
    sums = [hashlib.sha256(idx(values)).hexdigest() for values in SOUND.values()]
    unpublished("mnist", sums)
    assert load_dataset("mnist").content == ""
    changed = SOUND[NAMES[2]].copy()
    changed[7, 3, 3] ^= 1  # a single bit of a pixel
    fill(mnist, SOUND | {NAMES[2]: changed})
    path = mnist / f"{NAMES[2]}.gz"
    with pytest.raises(InputError, match=f"{path} does not hold what is.*datasets get mnist"):
        load_dataset("mnist")
    unpublished("mnist")
    assert load_dataset("mnist").content not in ("", first)


# NotMNIST

ROOT = "notMNIST_small"


@pytest.fixture
def archive(data: Path, unpublished: Callable[..., None]) -> Path:
    """Where an archive that passes for NotMNIST is searched."""
    unpublished("notmnist")
    path = data / "notmnist" / "notMNIST_small.tar.gz"
    path.parent.mkdir()
    return path


def png(shade: Any, size: tuple[int, int] = (28, 28), mode: str = "L", form: str = "PNG") -> bytes:
    file = io.BytesIO()
    pixels = np.broadcast_to(np.uint8(shade), size)
    Image.fromarray(pixels).convert(mode).save(file, form)
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
LETTERS = {f"{ROOT}/{ORDER[number]}": png(number) for number in (3, 1, 4, 0, 2)}
GREYS = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)


def shades(dataset: Dataset) -> list[int]:
    return dataset.features[:, 0].tolist()


def test_folders_are_in_the_order_of_letters_and_files_in_that_of_bytes(archive: Path) -> None:
    pack(archive, LETTERS | {f"{ROOT}/J/b.png": png(GREYS)})
    dataset = load_dataset("notmnist")
    assert shades(dataset) == [0, 1, 2, 3, 4, GREYS[0, 0]]
    assert (dataset.features[5].reshape(28, 28) == GREYS).all()  # row by row
    assert dataset.features.shape == (6, 784)
    assert dataset.classes[dataset.labels].tolist() == ["A", "A", "A", "B", "J", "J"]
    assert dataset.classes.tolist() == list("ABCDEFGHIJ")
    assert (dataset.image_shape, dataset.official, dataset.candidates) == ((28, 28), None, None)
    assert dataset.notes == ()


BROKEN_LETTERS = {
    "empty": b"",
    "text": b"no picture",
    "cut": png(7)[:-30],
    "wrong size": png(7, size=(28, 27)),
    "claims to be huge": png(7)[:16] + b"\0\1\0\0\0\1\0\0" + png(7)[24:],
    "coloured": png(7, mode="RGB"),
    "black and white": png(7, mode="1"),
    "JPEG": png(7, form="JPEG"),
    "zeros after the header": png(7)[:33] + bytes(100),
}


def test_what_is_no_readable_letter_is_left_out_and_named(archive: Path) -> None:
    broken = {f"{ROOT}/C/{name}.png": content for name, content in BROKEN_LETTERS.items()}
    others = {f"{ROOT}/README": b"hello", f"{ROOT}/K/a.png": png(9), "A.png": png(9)}
    pack(archive, LETTERS | broken | others | {f"{ROOT}/A/a.png/": b""})
    dataset = load_dataset("notmnist")
    assert shades(dataset) == [0, 1, 2, 3, 4]
    names = ", ".join(f"C/{name}.png" for name in sorted(BROKEN_LETTERS))
    assert dataset.notes == (f"{len(BROKEN_LETTERS)} pictures could not be read: {names}",)


@pytest.mark.parametrize(
    ("members", "end", "reason"),
    [
        (LETTERS | {f"{ROOT}/../../A/a.png": b""}, None, r"/a\.png' is a link or lies"),
        (LETTERS, -20, "cannot be read"),
        ({f"{ROOT}/A/a.png": b""}, None, "no readable picture"),
    ],
    ids=["leads out", "cut", "no picture"],
)
def test_an_evil_archive_is_refused(
    archive: Path, members: dict[str, bytes], end: int | None, reason: str
) -> None:
    pack(archive, members)
    archive.write_bytes(archive.read_bytes()[:end])
    with pytest.raises(InputError, match=f"{archive}.*{reason}"):
        load_dataset("notmnist")
    assert catalog.checksum(CATALOG["notmnist"], archive) == ""


def test_letters_that_are_not_published_are_refused(
    archive: Path, tmp_path: Path, unpublished: Callable[..., None]
) -> None:
    """The sum of the pixels does not depend on the packing."""
    pack(archive, LETTERS)
    pack(tmp_path / "b", {name.replace(ROOT, "b"): LETTERS[name] for name in reversed(LETTERS)})
    content = catalog.checksum(CATALOG["notmnist"], archive)
    assert content == letters_checksum(tmp_path / "b")
    unpublished("notmnist", [content])
    assert load_dataset("notmnist").content == ""
    pack(archive, LETTERS | {next(iter(LETTERS)): png(99)})
    with pytest.raises(InputError, match="does not hold what is published"):
        load_dataset("notmnist")


# Published facts


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "second"), [("mnist", 1), ("fmnist", "Trouser"), ("kmnist", "ki")]
)
def test_the_published_facts_of_idx_files_hold(name: str, second: Any) -> None:
    dataset = load_dataset(name)
    assert (dataset.notes, dataset.image_shape) == ((), (28, 28))
    assert dataset.features.shape == (70_000, 784)
    assert (len(dataset.classes), dataset.classes[1]) == (10, second)
    assert list(map(len, dataset.official)) == [60_000, 10_000]
    counts = np.bincount(dataset.labels[dataset.official.train]).tolist()
    digits = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts == (digits if name == "mnist" else [6000] * 10)


@pytest.mark.data
def test_the_published_facts_of_letters_hold() -> None:
    dataset = load_dataset("notmnist")
    assert dataset.features.shape == (18_724, 784)
    counts = dict(zip(dataset.classes.tolist(), np.bincount(dataset.labels).tolist(), strict=True))
    assert counts == {letter: 1873 if letter in "BCDE" else 1872 for letter in "ABCDEFGHIJ"}
    assert (np.diff(dataset.labels) >= 0).all()
    split = dataset.split(0)
    assert (len(split.train), len(split.test)) == (14_979, 3_745)
    assert (dataset.features.min(), dataset.features.max()) == (0, 255)
    assert not [note for note in dataset.notes if "could not be read" not in note]
