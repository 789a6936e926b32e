"""NotMNIST: letters of many fonts, read from their archive and kept decoded."""

import gzip
import hashlib
import io
import tarfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Self

import numpy as np
from numpy.typing import NDArray

from robustpll._files import write_whole
from robustpll.datasets.bounded import read_up_to
from robustpll.datasets.catalog import Entry, cache_folder, existing
from robustpll.datasets.content import refuse_unpublished, version_of
from robustpll.datasets.dataset import Dataset, unusual_counts
from robustpll.errors import InputError

LETTERS = tuple("ABCDEFGHIJ")
SIDE = 28
START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x1c\0\0\0\x1c\x08\0"  # 28 x 28 pixels, 8 bits, grey
MOST_BYTES = 2**28  # of the unpacked archive; it has 22 MB
MOST_MEMBERS = 100_000  # of the archive; it has 18,738
FORMAT = b"robustpll notmnist 1"  # of the cache; a change of what is read needs another


def load(entry: Entry) -> Dataset:
    """The dataset, from the archive or, if that is the same as last time, from the cache."""
    path = existing(entry, entry.files[0])
    found = _pictures(path)
    content = found.pixel_sum()
    refuse_unpublished(entry, entry.files[0], path, content)
    notes = unusual_counts(entry, len(found.pixels), SIDE * SIDE, len(LETTERS))
    return Dataset.of(
        entry,
        found.pixels,
        found.labels.astype(np.int64),
        np.array(LETTERS),
        image_shape=(SIDE, SIDE),
        white=255,
        notes=notes + found.notes,
        content=version_of(entry, [content]),
    )


def pixel_sum(path: Path) -> str:
    """SHA-256 of the pixels of all pictures of an archive, sorted and joined.

    It does not depend on how the archive was packed.
    """
    return Pictures.read(path, path.read_bytes()).pixel_sum()


@dataclass(frozen=True, eq=False)
class Pictures:
    """What an archive holds, decoded."""

    pixels: NDArray[np.uint8]  # (n, 784)
    labels: NDArray[np.uint8]  # (n,)
    notes: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, archive: bytes) -> Self:
        """Decode an archive: folders in alphabetical order, files in that of their bytes."""
        files, others = _letters(path, archive)
        decoded = {name: _pixels(content) for name, content in files.items()}
        pixels = [found for found in decoded.values() if found is not None]
        if not pixels:
            raise InputError(
                f"{path} holds no picture that can be read in folders A to J. Get it anew."
            )
        letters = [_place(name)[0] for name, found in decoded.items() if found is not None]
        broken = [_place(name) for name, found in decoded.items() if found is None]
        notes = tuple(
            f"{len(names)} {what}: {', '.join(names)}"
            for names, what in (
                (broken, "pictures could not be read"),
                (others, "files were passed over, as they are no PNG in a folder A to J"),
            )
            if names
        )
        return cls(
            np.frombuffer(bytearray().join(pixels), np.uint8).reshape(-1, SIDE * SIDE),
            np.array([LETTERS.index(letter) for letter in letters], np.uint8),
            notes,
        )

    def pixel_sum(self) -> str:
        """As `pixel_sum` of the archive."""
        pictures = sorted(picture.tobytes() for picture in self.pixels)
        return hashlib.sha256(b"".join(pictures)).hexdigest()

    def packed(self) -> bytes:
        file = io.BytesIO()
        np.savez(file, pixels=self.pixels, labels=self.labels, notes=np.array(self.notes, str))
        return file.getvalue()

    @classmethod
    def unpacked(cls, content: bytes) -> Self:
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            return cls(found["pixels"], found["labels"], tuple(found["notes"].tolist()))


def _pictures(path: Path) -> Pictures:
    """From the cache, if it is whole and was made from this very archive; else it is made anew."""
    archive, cache = path.read_bytes(), cache_folder() / "notmnist" / "pictures.cache"
    try:
        kept = cache.read_bytes()
    except OSError:
        kept = b""
    if kept[:32] == _seal(archive, kept[32:]):
        return Pictures.unpacked(kept[32:])
    found = Pictures.read(path, archive)
    content = found.packed()
    with suppress(OSError):  # where nothing can be written, it is decoded each time
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache, _seal(archive, content) + content)
    return found


def _seal(archive: bytes, content: bytes) -> bytes:
    """Another one if the archive, the decoded content or the format is another."""
    seal = hashlib.sha256(FORMAT + hashlib.sha256(archive).digest())
    seal.update(content)
    return seal.digest()


def _letters(path: Path, archive: bytes) -> tuple[dict[str, bytes], list[str]]:
    """The PNG files of an archive by name, in order, and the names of all other files.

    Nothing is written to disk, and so a link or a path out of the archive would do no harm; but an
    archive with one is not the one that was meant.
    """
    tar, members = _unpacked(path, archive)
    files, others = {}, []
    for member in members:
        inner = PureWindowsPath(member.name)  # knows both separators, and drives
        if inner.anchor or ".." in inner.parts or not (member.isfile() or member.isdir()):
            raise InputError(
                f"{path} holds {member.name!r}, a link or a path that leads out. Do not use it."
            )
        if inner.suffix == ".png" and inner.parent.name in LETTERS:
            files[member.name] = tar[member.offset_data : member.offset_data + member.size]
        elif member.isfile():
            others.append(member.name)
    in_order = sorted(files, key=lambda name: _place(name).encode(errors="surrogateescape"))
    return {name: files[name] for name in in_order}, others


def _place(name: str) -> str:
    """Folder and file name of a member, such as "A/name.png"."""
    return "/".join(PureWindowsPath(name).parts[-2:])


def _unpacked(path: Path, archive: bytes) -> tuple[bytes, list[tarfile.TarInfo]]:
    try:
        with gzip.open(io.BytesIO(archive)) as file:
            tar = read_up_to(file, MOST_BYTES)
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as members:
            found = list(islice(members, MOST_MEMBERS + 1))
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise InputError(
            f"{path} is a .tar.gz file that is cut short or damaged: {error}. Get it anew."
        ) from error
    if len(tar) > MOST_BYTES or len(found) > MOST_MEMBERS:
        raise InputError(
            f"{path} unpacks to more than {MOST_BYTES} bytes or {MOST_MEMBERS} files. Get it anew: "
            "NotMNIST small has less."
        )
    return tar, found


def _pixels(content: bytes) -> bytes | None:
    """A picture's 784 bytes, row by row; None if it cannot be read."""
    from PIL import Image

    if not content.startswith(START):
        return None
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            return picture.tobytes()
    except Exception:  # of whatever kind: for damaged files Pillow promises none
        return None
