"""Picture datasets in the idx format of MNIST."""

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError

UNSIGNED_BYTES = 8  # the only type of number that the picture sets use


@dataclass(frozen=True)
class Images:
    """Pictures (n, h, w) of bytes with their labels (n,), in the official two parts."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The four usual files of a folder, each gzipped or plain."""
        found = cls(
            *(
                read_idx(_existing(folder / f"{part}-{kind}-ubyte"))
                for part in ("train", "t10k")
                for kind in ("images-idx3", "labels-idx1")
            )
        )
        for images, labels in ((found.train, found.train_labels), (found.test, found.test_labels)):
            if images.ndim != 3 or labels.shape != (len(images),):
                msg = (
                    f"{folder}: pictures of shape (n, h, w) need labels of shape (n,); found "
                    f"{images.shape} and {labels.shape}. The files do not belong together."
                )
                raise InputError(msg)
        return found


def data_folder(name: str) -> Path:
    """Where a dataset is looked for: below ``ROBUSTPLL_DATA``."""
    root = os.environ.get("ROBUSTPLL_DATA")
    if not root:
        msg = (
            f"The dataset {name!r} is looked for below the folder that the environment variable "
            "ROBUSTPLL_DATA names, and that is not set. Set it to the folder with your datasets."
        )
        raise InputError(msg)
    return Path(root) / name


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an idx file, gzipped or plain.

    The header is two zeros, the type of number, the number of axes, and the length of each.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            msg = f"{path} is a gzip file that is cut short or damaged. Get it anew."
            raise InputError(msg) from error
    axes = raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * axes
    if raw[:3] != bytes((0, 0, UNSIGNED_BYTES)) or len(raw) < start:
        msg = f"{path} is no idx file of bytes: it begins with {raw[:4]!r}. Get it anew."
        raise InputError(msg)
    shape = tuple(np.frombuffer(raw, dtype=">u4", count=axes, offset=4).tolist())
    if len(raw) - start != math.prod(shape):
        msg = (
            f"{path} says it holds {' x '.join(map(str, shape))} bytes, but holds "
            f"{len(raw) - start}. Get it anew."
        )
        raise InputError(msg)
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _existing(path: Path) -> Path:
    zipped = path.with_name(path.name + ".gz")
    for one in (zipped, path):
        if one.exists():
            return one
    msg = f"There is neither {zipped} nor {path}: download the dataset's four idx files there."
    raise InputError(msg)
