"""Reading idx files, sound and broken."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from robustpll.data.images import Images, data_folder, read_idx
from robustpll.errors import InputError

PICTURES = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def idx(values: np.ndarray, magic: bytes = b"\0\0\x08") -> bytes:
    header = struct.pack(f">{values.ndim}i", *values.shape)
    return magic + bytes([values.ndim]) + header + values.tobytes()


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize("values", [PICTURES, PICTURES[:, 0, 0], PICTURES[:0]], ids=np.shape)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_arrays_come_back(tmp_path: Path, values: np.ndarray, pack: type) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(idx(values)))
    found = read_idx(path)
    assert found.dtype == np.uint8
    assert found.shape == values.shape
    assert (found == values).all()


def with_byte(raw: bytes, at: int) -> bytes:
    """The same with one byte set to 255."""
    return raw[:at] + b"\xff" + raw[at + 1 :]


PLAIN = idx(PICTURES)
ZIPPED = gzip.compress(idx(noise()))
BROKEN = {
    "empty": (b"", "no idx file"),
    "two bytes": (b"\0\0", "no idx file"),
    "a web page": (b"<html>not found</html>", "no idx file"),
    "other numbers": (idx(PICTURES, magic=b"\0\0\x0d"), "no idx file"),
    "cut in the header": (PLAIN[:10], "no idx file"),
    "cut in half": (PLAIN[: len(PLAIN) // 2], "4 x 3 x 2 bytes, but holds 4"),
    "one byte too many": (PLAIN + b"\0", "holds 25"),
    "negative lengths": (b"\0\0\x08\x02" + struct.pack(">2i", -2, -3) + bytes(6), "Get it anew"),
    "gzip, empty": (gzip.compress(b""), "no idx file"),
    "gzip, wrong length": (gzip.compress(PLAIN[:-1]), "holds 23"),
    "gzip, header alone": (ZIPPED[:10], "cut short or damaged"),
    "gzip, cut in half": (ZIPPED[: len(ZIPPED) // 2], "cut short or damaged"),
    "gzip, wrong checksum": (ZIPPED[:-8] + bytes(8), "cut short or damaged"),
    "gzip, wrong block": (with_byte(ZIPPED, 10), "cut short or damaged"),
    "gzip, wrong method": (with_byte(ZIPPED, 2), "cut short or damaged"),
}


@pytest.mark.parametrize(("raw", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_are_named(tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "broken-file"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=reason) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def fill(folder: Path, packed: list[bool]) -> None:
    for i, (name, gz) in enumerate(zip(NAMES, packed, strict=True)):
        values = PICTURES[: 3 - i // 2] if "images" in name else PICTURES[: 3 - i // 2, 0, 0]
        raw = idx(values)
        (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(raw) if gz else raw)


@pytest.mark.parametrize("packed", [[True] * 4, [False] * 4, [True, False, False, True]])
def test_the_four_files_of_a_folder(tmp_path: Path, packed: list[bool]) -> None:
    fill(tmp_path, packed)
    found = Images.read(tmp_path)
    assert (found.train == PICTURES[:3]).all()
    assert (found.test == PICTURES[:2]).all()
    assert found.train_labels.tolist() == [0, 6, 12]
    assert found.test_labels.tolist() == [0, 6]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    fill(tmp_path, [False] * 4)
    (tmp_path / name).unlink()
    with pytest.raises(InputError) as caught:
        Images.read(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_data_is_looked_for_below_the_named_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path))
    assert data_folder("mnist") == tmp_path / "mnist"
    monkeypatch.delenv("ROBUSTPLL_DATA")
    with pytest.raises(InputError, match=r"'mnist'.*ROBUSTPLL_DATA"):
        data_folder("mnist")


@pytest.mark.data
def test_mnist_has_its_official_size() -> None:
    mnist = Images.read(data_folder("mnist"))
    assert mnist.train.shape == (60_000, 28, 28)
    assert mnist.test.shape == (10_000, 28, 28)
    assert np.unique(mnist.train_labels).tolist() == list(range(10))
    assert np.bincount(mnist.test_labels, minlength=10).sum() == 10_000
    assert mnist.train.max() == 255
