"""Picture datasets in the idx format of MNIST."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.data.catalog import Entry, existing
from robustpll.data.dataset import Dataset, Split, unusual_counts
from robustpll.errors import InputError

UNSIGNED_BYTES = 8  # the only type of number that the picture sets use
GARMENTS = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
SYLLABLES = "o, ki, su, tsu, na, ha, ma, ya, re, wo"
CLASSES = {"fmnist": GARMENTS.split(", "), "kmnist": SYLLABLES.split(", ")}  # else 0 .. 9


def load(entry: Entry) -> Dataset:
    """The dataset of an entry with the four usual files, each gzipped or plain."""
    paths = [existing(entry, file) for file in entry.files]
    train, train_labels, test, test_labels = (read_idx(path) for path in paths)
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
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an idx file, gzipped or plain.

    The header is two zeros, the type of number, the number of axes, and the length of each.
    """
    with path.open("rb") as file:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        try:
            raw = gzip.GzipFile(fileobj=file).read() if zipped else file.read()
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(
                f"{path} is a gzip file that is cut short or damaged. Get it anew."
            ) from error
    axes = raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * axes
    if raw[:3] != bytes((0, 0, UNSIGNED_BYTES)) or len(raw) < start:
        raise InputError(
            f"{path} is no idx file of bytes: it begins with {raw[:4]!r}. Get it anew."
        )
    shape = tuple(np.frombuffer(raw, dtype=">u4", count=axes, offset=4).tolist())
    if len(raw) - start != math.prod(shape):
        raise InputError(
            f"{path} says it holds {' x '.join(map(str, shape))} bytes, but holds "
            f"{len(raw) - start}. Get it anew."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


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
