"""Picture datasets in the idx format of MNIST."""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import DEFLATED, read_up_to
from robustpll.datasets.catalog import Entry, existing
from robustpll.datasets.content import refuse_unpublished, version_of
from robustpll.datasets.dataset import Dataset, Split, unusual_counts
from robustpll.errors import InputError

UNSIGNED_BYTES = 8  # the only type of number that the picture sets use
MOST_AXES = 3  # of pictures; labels have one
MOST_BYTES = 2**28  # of a file's content; the picture sets have 47 MB
GARMENTS = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
SYLLABLES = "o, ki, su, tsu, na, ha, ma, ya, re, wo"
CLASSES = {"fmnist": GARMENTS.split(", "), "kmnist": SYLLABLES.split(", ")}  # else 0 .. 9


def load(entry: Entry) -> Dataset:
    """The dataset of an entry with the four usual files, each gzipped or plain."""
    paths = [existing(entry, file) for file in entry.files]
    contents = [_unpacked(path) for path in paths]
    train, train_labels, test, test_labels = map(_array, paths, contents)
    sums = [hashlib.sha256(content).hexdigest() for content in contents]
    for file, path, content in zip(entry.files, paths, sums, strict=True):
        refuse_unpublished(entry, file, path, content)
    _refuse_odd_parts(paths[:2], train, train_labels, entry.classes)
    _refuse_odd_parts(paths[2:], test, test_labels, entry.classes)
    if train.shape[1:] != test.shape[1:]:
        raise InputError(
            f"{paths[0]} and {paths[2]} must hold pictures of one size; found {train.shape[1:]} "
            f"and {test.shape[1:]}. Get the files anew."
        )
    height, width = train.shape[1:]
    features = np.concatenate([train, test]).reshape(-1, height * width)
    n = len(features)
    return Dataset.of(
        entry,
        features,
        np.concatenate([train_labels, test_labels]).astype(np.int64),
        np.array(CLASSES.get(entry.name, range(entry.classes))),
        image_shape=(height, width),
        white=255,
        official=Split(np.arange(len(train)), np.arange(len(train), n)),
        notes=unusual_counts(entry, n, height * width, entry.classes),
        content=version_of(entry, sums),
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an idx file, gzipped or plain.

    The header is two zeros, the type of number, the number of axes, and the length of each.
    """
    return _array(path, _unpacked(path))


def _unpacked(path: Path) -> bytes:
    """Header and content, and one byte more where there are more than the header says."""
    with path.open("rb") as file:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        source = gzip.GzipFile(fileobj=file) if zipped else file
        most = min(MOST_BYTES, path.stat().st_size * DEFLATED) if zipped else MOST_BYTES
        try:
            start = source.read(4)
            header = start + source.read(4 * _axes(path, start))
            size = math.prod(_shape(header))
            if size > most:
                raise InputError(
                    f"{path} says it holds {size} bytes, but a picture file of its size holds "
                    f"{most} at the most. Get it anew."
                )
            return header + read_up_to(source, size)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(
                f"{path} is a gzip file that is cut short or damaged. Get it anew."
            ) from error


def _axes(path: Path, start: bytes) -> int:
    """How many there are; an error if this is no idx file of bytes, or not of pictures."""
    if start[:3] != bytes((0, 0, UNSIGNED_BYTES)) or len(start) < 4:
        raise _no_idx(path, start)
    if start[3] > MOST_AXES:
        raise InputError(
            f"{path} has {start[3]} axes, but pictures have {MOST_AXES} at the most. Get it anew."
        )
    return start[3]


def _shape(header: bytes) -> tuple[int, ...]:
    """The length of each axis, as far as the header goes."""
    return struct.unpack(f">{(len(header) - 4) // 4}I", header[4 : len(header) // 4 * 4])


def _array(path: Path, raw: bytes) -> NDArray[np.uint8]:
    axes = _axes(path, raw[:4])
    start = 4 + 4 * axes
    if len(raw) < start:
        raise _no_idx(path, raw)
    shape = _shape(raw[:start])
    size, count = math.prod(shape), len(raw) - start
    if count != size:
        more = " or more" if count > size else ""
        raise InputError(
            f"{path} says it holds {' x '.join(map(str, shape))} bytes, but holds {count}{more}. "
            "Get it anew."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _no_idx(path: Path, start: bytes) -> InputError:
    return InputError(f"{path} is no idx file of bytes: it begins with {start[:4]!r}. Get it anew.")


def _refuse_odd_parts(
    paths: list[Path], images: NDArray[np.uint8], labels: NDArray[np.uint8], k: int
) -> None:
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise InputError(
            f"{paths[0]} and {paths[1]}: pictures of shape (n, h, w) need labels of shape (n,); "
            f"found {images.shape} and {labels.shape}. The files do not belong together: get them "
            "anew."
        )
    if labels.max(initial=0) >= k:
        raise InputError(
            f"{paths[1]} must hold labels from 0 to {k - 1}; found {labels.max()}. Get it anew."
        )
