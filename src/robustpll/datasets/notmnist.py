"""NotMNIST: letters of many fonts, read from their archive and cached decoded."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from robustpll._files import write_whole
from robustpll.datasets.bounded import read_members
from robustpll.datasets.catalog import Entry, cache_folder, checked_version, existing
from robustpll.datasets.dataset import Dataset, unusual_counts
from robustpll.errors import InputError

LETTERS = "ABCDEFGHIJ"
SIDE = 28
START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x1c\0\0\0\x1c\x08\0"  # 28 x 28 pixels, 8 bits, grey
FORMAT = b"robustpll notmnist 1"  # of the cache; change it with what is read

Pictures = tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]  # (n, 784), labels, notes


def load(entry: Entry) -> Dataset:
    """Read the dataset from the archive or, if the archive is unchanged, from the cache."""
    path = existing(entry, entry.files[0])
    pixels, labels, notes = _cached_pictures(path)
    version = checked_version(entry, [path], [_pixel_sum(pixels)])
    return Dataset.of(
        entry,
        pixels,
        labels,
        image_shape=(SIDE, SIDE),
        white=255,
        notes=unusual_counts(entry, len(pixels), SIDE * SIDE, len(LETTERS)) + notes,
        content=version,
    )


def checksum(path: Path) -> str:
    """Return the SHA-256 of an archive's sorted pictures; it does not depend on the packing."""
    return _pixel_sum(_read_pictures(path)[0])


def _pixel_sum(pixels: NDArray[np.uint8]) -> str:
    return hashlib.sha256(b"".join(sorted(row.tobytes() for row in pixels))).hexdigest()


def _cached_pictures(path: Path) -> Pictures:
    """Return the pictures from the cache, if it is intact and was made from this archive."""
    cache = cache_folder() / "notmnist" / "pictures.cache"
    archive_sum = hashlib.sha256(path.read_bytes()).digest()
    stored = b""
    with suppress(OSError):
        stored = cache.read_bytes()
    if stored[:32] == hashlib.sha256(FORMAT + archive_sum + stored[32:]).digest():
        with np.load(io.BytesIO(stored[32:]), allow_pickle=False) as arrays:
            return arrays["pixels"], arrays["labels"], tuple(arrays["notes"].tolist())
    pixels, labels, notes = _read_pictures(path)
    file = io.BytesIO()
    np.savez(file, pixels=pixels, labels=labels, notes=np.array(notes, str))
    content = file.getvalue()
    with suppress(OSError):  # without a cache, the archive is decoded each time
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache, hashlib.sha256(FORMAT + archive_sum + content).digest() + content)
    return pixels, labels, notes


def _read_pictures(path: Path) -> Pictures:
    """Decode an archive: folders in alphabetical order, files in the order of their bytes."""
    contents, others = read_members(path, _is_letter)
    pixels, letters, broken = [], [], []
    for name in sorted(contents, key=lambda name: _place(name).encode(errors="surrogateescape")):
        picture, place = _decode(contents[name]), _place(name)
        if picture is None:
            broken.append(place)
        else:
            pixels.append(picture)
            letters.append(LETTERS.index(place[0]))
    if not pixels:
        raise InputError(f"{path} has no readable picture in folders A to J. Download it again.")
    lists = ((broken, "pictures could not be read"), (others, "files are no PNG in folders A to J"))
    return (
        np.frombuffer(bytearray().join(pixels), np.uint8).reshape(-1, SIDE * SIDE),
        np.array(letters, np.uint8),
        tuple(f"{len(names)} {what}: {', '.join(names)}" for names, what in lists if names),
    )


def _place(name: str) -> str:
    """Return folder and file name of a member, such as "A/name.png"."""
    return "/".join(PureWindowsPath(name).parts[-2:])


def _is_letter(name: str) -> bool:
    place = PureWindowsPath(name)
    return place.suffix == ".png" and place.parent.name in tuple(LETTERS)


def _decode(content: bytes) -> bytes | None:
    """Return the 784 bytes of a picture, row by row; None if it cannot be read."""
    from PIL import Image

    if content.startswith(START):
        # for damaged files, Pillow does not promise any type of error
        with suppress(Exception), Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            return picture.tobytes()
    return None
