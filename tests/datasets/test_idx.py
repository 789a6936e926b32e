"""Picture datasets in idx files: published facts, made files, broken ones."""

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robustpll import InputError, load_dataset
from robustpll.datasets.idx import read_idx

PICTURES = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
NOISE = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)
KINDS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
NAMES = [f"{kind}-ubyte" for kind in KINDS]
SOUND = {
    NAMES[0]: NOISE[:30],
    NAMES[1]: np.arange(30, dtype=np.uint8) % 10,
    NAMES[2]: NOISE[30:],
    NAMES[3]: np.arange(20, dtype=np.uint8) % 10,
}


def idx(values: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    header = struct.pack(f">{values.ndim}i", *values.shape)
    return magic + bytes([values.ndim]) + header + values.tobytes()


@pytest.mark.parametrize("values", [PICTURES, PICTURES[:, 0, 0], PICTURES[:0]], ids=np.shape)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_arrays_come_back(tmp_path: Path, values: np.ndarray, pack: type) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(idx(values)))
    array, content = read_idx(path)
    assert content == hashlib.sha256(idx(values)).hexdigest()
    assert array.dtype == np.uint8
    assert np.array_equal(array, values)


PLAIN, ZIPPED = idx(PICTURES), gzip.compress(idx(NOISE))
BROKEN = {
    "empty": (b"", "not an idx file"),
    "two bytes": (b"\0\0", "not an idx file"),
    "a web page": (b"<html>not found</html>", "not an idx file"),
    "other numbers": (idx(PICTURES, magic=b"\0\0\x0d"), "not an idx file"),
    "cut in the header": (PLAIN[:10], "not an idx file"),
    "no axes": (b"\0\0\x08\0!", "1 to 3 axes"),
    "four axes": (idx(PICTURES[None]), "1 to 3 axes"),
    "cut in half": (PLAIN[:20], r"\(4, 3, 2\), and has 20 bytes"),
    "one byte too many": (PLAIN + b"\0", "has 41 bytes"),
    "negative lengths": (b"\0\0\x08\2" + struct.pack(">2i", -2, -3) + bytes(6), "Download it"),
    "gzip, empty": (gzip.compress(b""), "not an idx file"),
    "gzip, wrong length": (gzip.compress(PLAIN[:-1]), "has 39 bytes"),
    "gzip, header alone": (ZIPPED[:10], "cannot be read"),
    "gzip, cut in half": (ZIPPED[: len(ZIPPED) // 2], "cannot be read"),
    "gzip, wrong checksum": (ZIPPED[:-8] + bytes(8), "cannot be read"),
    "gzip, wrong block": (ZIPPED[:10] + b"\xff" + ZIPPED[11:], "cannot be read"),
    "gzip, wrong method": (ZIPPED[:2] + b"\xff" + ZIPPED[3:], "cannot be read"),
}


@pytest.mark.parametrize(("raw", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_named(tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "broken-file"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=f"{path}.*{reason}"):
        read_idx(path)


@pytest.fixture
def folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unpublished: Callable[..., None]
) -> Path:
    unpublished("mnist")
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mnist").mkdir()
    return tmp_path / "mnist"


def fill(folder: Path, arrays: dict[str, np.ndarray], packed: str = "1111") -> None:
    for (name, values), is_packed in zip(arrays.items(), packed, strict=True):
        pack, suffix = (gzip.compress, ".gz") if is_packed == "1" else (bytes, "")
        (folder / f"{name}{suffix}").write_bytes(pack(idx(values)))


@pytest.mark.parametrize("packed", ["1111", "0000", "1001"])
def test_four_files_make_a_dataset(
    folder: Path, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, SOUND, packed)
    dataset = load_dataset("mnist")
    assert dataset.features.dtype == np.uint8
    assert (dataset.features == NOISE.reshape(50, 64)).all()
    assert dataset.image_shape == (8, 8)
    assert dataset.labels is not None
    assert dataset.labels.dtype == np.int64
    assert dataset.labels.tolist() == [*range(10)] * 5
    assert dataset.candidates is None
    split = dataset.split(3)
    assert (split.train.tolist(), split.test.tolist()) == ([*range(30)], [*range(30, 50)])
    assert dataset.notes == ("50 rows, where 70000 are usual", "64 features, where 784 are usual")
    dataset.features[:] = 0  # stays in memory
    monkeypatch.setattr("robustpll.datasets.catalog.cache_folder", lambda: folder.parent)
    monkeypatch.delenv("ROBUSTPLL_DATA")  # the user's cache is searched, too
    assert load_dataset("mnist").features.any()


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        (NAMES[1], SOUND[NAMES[1]][:29], r"\(29,\)"),
        (NAMES[1], SOUND[NAMES[0]], r"\(30, 8, 8\), \(30, 8, 8\)"),
        (NAMES[2], SOUND[NAMES[2]][0], r"\(8, 8\), \(20,\)"),
        (NAMES[2], SOUND[NAMES[2]][:, :7], r"\(20, 7, 8\)"),
        (NAMES[3], SOUND[NAMES[3]] + 1, r"labels up to 10"),
    ],
)
def test_files_that_do_not_go_together_are_refused(
    folder: Path, name: str, values: np.ndarray, reason: str
) -> None:
    fill(folder, SOUND | {name: values})
    with pytest.raises(InputError, match=f"{folder / name}.*{reason}.*do not belong together"):
        load_dataset("mnist")
    (folder / f"{name}.gz").unlink()
    with pytest.raises(InputError, match=f"no file {folder / name}.*datasets get mnist"):
        load_dataset("mnist")


def test_what_is_not_published_is_refused(folder: Path, unpublished: Callable[..., None]) -> None:
    """Where the catalog has the sums; where it has none, versions are told apart."""
    fill(folder, SOUND)
    first = load_dataset("mnist").content
    assert len(first) == 16
    sums = [hashlib.sha256(idx(values)).hexdigest() for values in SOUND.values()]
    unpublished("mnist", sums)
    assert load_dataset("mnist").content == ""
    changed = SOUND[NAMES[2]].copy()
    changed[7, 3, 3] ^= 1  # a single bit of a pixel
    fill(folder, SOUND | {NAMES[2]: changed})
    path = folder / f"{NAMES[2]}.gz"
    with pytest.raises(InputError, match=f"{path} does not hold what is.*datasets get mnist"):
        load_dataset("mnist")
    unpublished("mnist")
    assert load_dataset("mnist").content not in ("", first)


SECOND_CLASS = {"mnist": 1, "fmnist": "Trouser", "kmnist": "ki"}


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fmnist", "kmnist"])
def test_the_published_facts_hold(name: str) -> None:
    dataset = load_dataset(name)
    assert dataset.notes == ()
    assert dataset.features.shape == (70_000, 784)
    assert dataset.image_shape == (28, 28)
    assert len(dataset.classes) == 10
    assert dataset.classes[1] == SECOND_CLASS[name]
    assert dataset.official is not None
    assert dataset.labels is not None
    assert (len(dataset.official.train), len(dataset.official.test)) == (60_000, 10_000)
    counts = np.bincount(dataset.labels[dataset.official.train]).tolist()
    digits = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts == (digits if name == "mnist" else [6000] * 10)
