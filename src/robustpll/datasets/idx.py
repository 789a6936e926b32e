"""Picture datasets in the idx format of MNIST."""

import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import read_up_to, unpacked_file, unpacked_limit
from robustpll.datasets.catalog import Entry, checked_version, existing
from robustpll.datasets.dataset import Dataset, Split, unusual_counts
from robustpll.errors import InputError

MOST_AXES = 3  # of pictures; labels have one


def load(entry: Entry) -> Dataset:
    """Read a dataset from the four usual files, each gzipped or plain."""
    paths = [existing(entry, file) for file in entry.files]
    (train, train_labels, test, test_labels), sums = zip(*map(read_idx, paths), strict=True)
    version = checked_version(entry, paths, sums)
    n, m, pictures = len(train), len(test), train.shape[1:]
    shapes = [array.shape for array in (train, train_labels, test, test_labels)]
    largest = max(labels.max(initial=0) for labels in (train_labels, test_labels))
    is_consistent = shapes == [(n, *pictures), (n,), (m, *pictures), (m,)] and len(pictures) == 2
    if not is_consistent or largest >= entry.classes:
        raise InputError(
            f"{', '.join(map(str, paths))} must hold pictures of shape (n, h, w) and labels of "
            f"shape (n,) from 0 to {entry.classes - 1}; found shapes {shapes} and labels up to "
            f"{largest}. The files do not belong together: download them again."
        )
    height, width = pictures
    return Dataset.of(
        entry,
        np.concatenate([train, test]).reshape(n + m, height * width),
        np.concatenate([train_labels, test_labels]),
        image_shape=(height, width),
        white=255,
        official=Split(np.arange(n), np.arange(n, n + m)),
        notes=unusual_counts(entry, n + m, height * width, entry.classes),
        content=version,
    )


def read_idx(path: Path) -> tuple[NDArray[np.uint8], str]:
    """Return the array in an idx file of bytes, gzipped or plain, and its content's SHA-256.

    The header has two zeros, the type of number (8: bytes), the number of axes, and the length of
    each axis. No more is unpacked than one byte beyond the size that the header declares.
    """
    limit = unpacked_limit(path.stat().st_size)
    try:
        with unpacked_file(path) as file:
            header = file.read(4)
            axes = header[3] if len(header) == 4 else 0
            header += file.read(4 * axes)
            if header[:3] != b"\0\0\x08" or len(header) != 4 + 4 * axes or axes > MOST_AXES:
                raise InputError(
                    f"{path} is not an idx file of bytes with at most {MOST_AXES} axes: it begins "
                    f"with {header[:4]!r}. Download it again."
                )
            shape = struct.unpack(f">{axes}I", header[4:])
            size = math.prod(shape)
            content = read_up_to(file, min(size, limit))
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}. Download it again.") from error
    if len(content) != size:
        more = " or more" if len(content) > size else ""
        raise InputError(
            f"{path} declares {' x '.join(map(str, shape))} bytes, but holds {len(content)}{more}. "
            "Download it again."
        )
    array = np.frombuffer(content, np.uint8).reshape(shape)
    return array, hashlib.sha256(header + content).hexdigest()
