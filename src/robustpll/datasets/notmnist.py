"""NotMNIST: letters of many fonts, read from their archive and cached decoded."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from robustpll._files import write_whole
from robustpll.datasets.bounded import read_members
from robustpll.datasets.catalog import Entry, cache_folder, existing
from robustpll.datasets.dataset import Dataset
from robustpll.errors import InputError

SIDE = 28
START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x1c\0\0\0\x1c\x08\0"  # 28 x 28 pixels, 8 bits, grey
FORMAT = b"robustpll notmnist 1"  # of the cache; change it with what is read

Pictures = tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]  # (n, 784), labels, notes


def load(entry: Entry) -> Dataset:
    """Read the dataset from the archive or, if the archive is unchanged, from the cache."""
    path = existing(entry, entry.files[0])
    pixels, labels, notes = _cached_pictures(path)
    sums, shape = [_pixel_sum(pixels)], (SIDE, SIDE)
    return Dataset.of(
        entry, [path], sums, pixels, labels, notes=notes, image_shape=shape, white=255
    )


def checksum(path: Path) -> str:
    """Return the SHA-256 of an archive's sorted pictures; it does not depend on the packing."""
    return _pixel_sum(_read_pictures(path)[0])


def _pixel_sum(pixels: NDArray[np.uint8]) -> str:
    return hashlib.sha256(b"".join(sorted(row.tobytes() for row in pixels))).hexdigest()


def _cached_pictures(path: Path) -> Pictures:
    """Return the pictures from the cache, if it is intact and was made from this archive."""
    cache = cache_folder() / "notmnist" / "pictures.cache"
    origin = FORMAT + hashlib.sha256(path.read_bytes()).digest()
    with suppress(OSError):
        stored = cache.read_bytes()
        if stored[:32] == hashlib.sha256(origin + stored[32:]).digest():
            with np.load(io.BytesIO(stored[32:]), allow_pickle=False) as arrays:
                return arrays["pixels"], arrays["labels"], tuple(arrays["notes"].tolist())
    pixels, labels, notes = _read_pictures(path)
    file = io.BytesIO()
    np.savez(file, pixels=pixels, labels=labels, notes=np.array(notes, str))
    with suppress(OSError):  # without a cache, the archive is decoded each time
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache, hashlib.sha256(origin + file.getvalue()).digest() + file.getvalue())
    return pixels, labels, notes


def _read_pictures(path: Path) -> Pictures:
    """Decode an archive: folders in alphabetical order, files in the order of their bytes."""

    def is_letter(name: str) -> bool:
        place = PureWindowsPath(name)
        return place.suffix == ".png" and place.parent.name in tuple("ABCDEFGHIJ")

    contents, others = read_members(path, is_letter)
    pairs = [("/".join(PureWindowsPath(name).parts[-2:]), name) for name in contents]
    pixels, letters, broken = [], [], []
    for place, name in sorted(pairs, key=lambda pair: pair[0].encode(errors="surrogateescape")):
        picture = _decode(contents[name])
        if picture is None:
            broken.append(place)
        else:
            pixels.append(picture)
            letters.append(ord(place[0]) - ord("A"))
    if not pixels:
        raise InputError(f"{path} has no readable picture in folders A to J. Download it again.")
    lists = ((broken, "pictures could not be read"), (others, "files are no PNG in folders A to J"))
    return (
        np.frombuffer(bytearray().join(pixels), np.uint8).reshape(-1, SIDE * SIDE),
        np.array(letters, np.uint8),
        tuple(f"{len(names)} {what}: {', '.join(names)}" for names, what in lists if names),
    )


def _decode(content: bytes) -> bytes | None:
    """Return the 784 bytes of a picture, row by row; None if it cannot be read."""
    from PIL import Image

    if content.startswith(START):
        # for damaged files, Pillow does not promise any type of error
        with suppress(Exception), Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            return picture.tobytes()
    return None
