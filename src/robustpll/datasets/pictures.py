"""Picture datasets: idx files such as MNIST, the letters of NotMNIST; and built-in datasets."""

import hashlib
import io
import math
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import read_content, read_members
from robustpll.datasets.catalog import Entry, paths_of
from robustpll.datasets.dataset import Dataset, Split
from robustpll.errors import InputError, counted

SIDE = 28  # pixels of a letter
LETTER = re.compile(r"(?s)(?:.*[/\\])?([A-J][/\\][^/\\]+\.png)")  # a path; \1: folder and name
START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x1c\0\0\0\x1c\x08\0"  # 28 x 28 pixels, 8 bits, grey


def load_builtin(entry: Entry) -> Dataset:
    """Return a dataset of scikit-learn, or synthetic rows that are always the same."""
    from sklearn.datasets import load_breast_cancer, load_digits, make_classification

    if entry.name == "digits":
        features, labels = load_digits(return_X_y=True)  # 8 x 8 pixels from 0 to 16
        pixels = features.astype(np.uint8)
        return Dataset.of(entry, features=pixels, labels=labels, image_shape=(8, 8), white=16)
    if entry.name == "breast-cancer":
        features, labels = load_breast_cancer(return_X_y=True)
        return Dataset.of(entry, features=features, labels=labels)
    counts = {"n_informative": 10, "n_redundant": 5, "n_clusters_per_class": 1}
    counts |= {"n_samples": entry.rows, "n_features": entry.features, "n_classes": entry.classes}
    features, labels = make_classification(**counts, class_sep=1.5, flip_y=0.0, random_state=0)
    return Dataset.of(entry, features=features, labels=labels)


def load_idx(entry: Entry) -> Dataset:
    """Read a dataset from the four usual files, each gzipped or plain."""
    paths = paths_of(entry)
    contents = [read_content(path) for path in paths]
    arrays = [*map(read_idx, paths, contents)]
    train, train_labels, test, test_labels = arrays
    n, m, picture = len(train), len(test), train.shape[1:]
    shapes = [array.shape for array in arrays]
    labels = np.concatenate([train_labels.ravel(), test_labels.ravel()])
    is_consistent = shapes == [(n, *picture), (n,), (m, *picture), (m,)] and len(picture) == 2
    if not is_consistent or labels.max(initial=0) >= entry.classes:
        raise InputError(
            f"{', '.join(map(str, paths))} do not belong together: their shapes are {shapes}, "
            f"and labels go up to {labels.max(initial=0)}. Download them again."
        )
    return Dataset.of(
        entry,
        contents,
        features=np.concatenate([train, test]).reshape(n + m, math.prod(picture)),
        labels=labels.astype(np.int64),
        image_shape=picture,
        white=255,
        official=Split(np.arange(n), np.arange(n, n + m)),
    )


def read_idx(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Return the array in the content of an idx file of bytes; `path` is for messages."""
    # The header has two zeros, the type (8: bytes), the number of axes, and 4 bytes per length.
    axes = content[3] if content.startswith(b"\0\0\x08") and len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = [int.from_bytes(content[place : place + 4]) for place in range(4, start, 4)]
    if not 1 <= axes <= 3 or math.prod(shape) != len(content) - start:
        raise InputError(
            f"{path} is not an idx file of bytes with 1 to 3 axes: it declares the shape {shape}, "
            f"and has {len(content)} bytes. Download it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def load_letters(entry: Entry) -> Dataset:
    """Read NotMNIST from its archive; pictures are in the order of their folders and names."""
    (path,) = paths_of(entry)
    letters = _read_letters(path)
    pixels = {place: picture for place, picture in letters.items() if picture}
    broken = [place for place, picture in letters.items() if not picture]
    unread = counted(len(broken), "picture")
    return Dataset.of(
        entry,
        [_sum_of(letters)],
        features=np.frombuffer(bytearray().join(pixels.values()), np.uint8).reshape(-1, SIDE**2),
        labels=np.array([ord(place[0]) - ord("A") for place in pixels], np.int64),
        notes=(f"{unread} could not be read: {', '.join(broken)}",) * bool(broken),
        image_shape=(SIDE, SIDE),
        white=255,
    )


def letters_checksum(path: Path) -> str:
    """Return the SHA-256 of an archive's sorted pictures; it does not depend on the packing."""
    return _sum_of(_read_letters(path))


def _sum_of(letters: dict[str, bytes | None]) -> str:
    return hashlib.sha256(b"".join(sorted(filter(None, letters.values())))).hexdigest()


def _read_letters(path: Path) -> dict[str, bytes | None]:
    """Return the decoded pictures of an archive by folder and name; None if one is broken."""
    contents = read_members(path, LETTER.fullmatch)
    by_place = {LETTER.sub(r"\1", name): content for name, content in contents.items()}
    letters = {place: _decode(by_place[place]) for place in sorted(by_place)}
    if not any(letters.values()):
        raise InputError(f"{path} has no readable picture in folders A to J. Download it again.")
    return letters


def _decode(content: bytes) -> bytes | None:
    """Return the 784 bytes of a picture, row by row; None if it cannot be read."""
    from PIL import Image

    if content.startswith(START):
        # for damaged files, Pillow does not promise any type of error
        with suppress(Exception), Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            return picture.tobytes()
    return None
