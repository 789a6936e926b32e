"""Picture datasets in the idx format of MNIST."""

import hashlib
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import read_content
from robustpll.datasets.catalog import Entry, existing
from robustpll.datasets.dataset import Dataset, Split
from robustpll.errors import InputError

MOST_AXES = 3  # of pictures; labels have one


def load(entry: Entry) -> Dataset:
    """Read a dataset from the four usual files, each gzipped or plain."""
    paths = [existing(entry, file) for file in entry.files]
    (train, train_labels, test, test_labels), sums = zip(*map(read_idx, paths), strict=True)
    n, m, pictures = len(train), len(test), train.shape[1:]
    shapes = [array.shape for array in (train, train_labels, test, test_labels)]
    labels = np.concatenate([train_labels.ravel(), test_labels.ravel()])
    is_consistent = shapes == [(n, *pictures), (n,), (m, *pictures), (m,)] and len(pictures) == 2
    if not is_consistent or labels.max(initial=0) >= entry.classes:
        raise InputError(
            f"{', '.join(map(str, paths))} must hold pictures of shape (n, h, w) and labels of "
            f"shape (n,) from 0 to {entry.classes - 1}; found shapes {shapes} and labels up to "
            f"{labels.max(initial=0)}. The files do not belong together: download them again."
        )
    features = np.concatenate([train, test]).reshape(n + m, math.prod(pictures))
    official = Split(np.arange(n), np.arange(n, n + m))
    shape = (pictures[0], pictures[1])
    return Dataset.of(
        entry, paths, sums, features, labels, image_shape=shape, white=255, official=official
    )


def read_idx(path: Path) -> tuple[NDArray[np.uint8], str]:
    """Return the array in an idx file of bytes, gzipped or plain, and its content's SHA-256.

    The header has two zeros, the type of number (8: bytes), the number of axes, and the length of
    each axis.
    """
    content = read_content(path)
    start = 4 + 4 * (content[3] if len(content) > 3 else 0)
    is_idx = content.startswith(b"\0\0\x08") and 4 < start <= min(4 + 4 * MOST_AXES, len(content))
    shape = struct.unpack(f">{start // 4 - 1}I", content[4:start]) if is_idx else ()
    if not is_idx or math.prod(shape) != len(content) - start:
        raise InputError(
            f"{path} is not an idx file of bytes with 1 to {MOST_AXES} axes: it begins with "
            f"{content[:4]!r}, declares the shape {shape}, and has {len(content)} bytes. Download "
            "it again."
        )
    array = np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    return array, hashlib.sha256(content).hexdigest()
