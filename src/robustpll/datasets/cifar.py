"""CIFAR-10 as published or in lossless sheets, and the answers that people gave about it."""

import hashlib
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import damage_explained, read_content, read_members
from robustpll.datasets.catalog import Entry, paths_of
from robustpll.datasets.crowds import arrays_of, candidates_of
from robustpll.datasets.dataset import Dataset, Split
from robustpll.errors import InputError
from robustpll.measures.people import People

SHEETS = "labels.npz"  # beside it are the pictures, train_00.webp to train_49.webp and test_*
BATCH = re.compile(r"(?:.*/)?((?:data_batch_[1-5]|test_batch)\.bin)")
TRAINING, ROW = 50_000, 3_073  # a byte for the label, then those of the picture
# MD5 of the six published files of 10,000 rows
SUMS = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
)


def load(entry: Entry) -> Dataset:
    """Read all pictures, and the answers of people if the entry has a second file."""
    path, *further = paths_of(entry)
    rows = _rows(path)
    labels = rows[:, 0].astype(np.int64)
    candidates = None
    for answered in further:
        with damage_explained(answered):
            votes = arrays_of(answered, read_content(answered))["votes"].astype(np.int64)
            answers = np.full((len(labels), votes.shape[1]), -1)
            answers[:TRAINING] = votes
            candidates = candidates_of(entry, answers)
    return Dataset.of(
        entry,
        [_checksum_of(rows), *map(checksum, further)],
        features=rows[:, 1:],
        labels=labels,
        candidates=candidates,
        image_shape=(3, 32, 32),
        white=255,
        official=Split(np.arange(TRAINING), np.arange(TRAINING, len(labels))),
        people=_people(path.parents[1]),
    )


def checksum(path: Path) -> str:
    """Return the SHA-256 of CIFAR-10's rows in either form, or of another file's content."""
    if path.name == "votes.npz":
        return hashlib.sha256(read_content(path)).hexdigest()
    return _checksum_of(_rows(path))


def _checksum_of(rows: NDArray[np.uint8]) -> str:
    return hashlib.sha256(rows.data).hexdigest()


def _rows(path: Path) -> NDArray[np.uint8]:
    """Return the rows (60000, 3073) as published, labels first."""
    rows = _from_sheets(path) if path.name == SHEETS else _from_archive(path)
    parts = rows.reshape(6, -1)
    if tuple(hashlib.md5(part.data, usedforsecurity=False).hexdigest() for part in parts) != SUMS:
        raise InputError(
            f"{path} does not hold CIFAR-10 as published. Download cifar-10-binary.tar.gz again "
            "from its authors."
        )
    return rows


def _from_archive(path: Path) -> NDArray[np.uint8]:
    contents = read_members(path, BATCH.fullmatch)
    by_name = {BATCH.sub(r"\1", name): content for name, content in contents.items()}
    joined = b"".join(by_name[name] for name in sorted(by_name))
    size = 60_000 * ROW
    return np.frombuffer(joined.ljust(size, b"\0")[:size], np.uint8).reshape(-1, ROW)


def _from_sheets(path: Path) -> NDArray[np.uint8]:
    """Read pictures that have ten of them side by side, and a hundred rows of these."""
    from PIL import Image

    rows = np.zeros((60_000, ROW), np.uint8)
    names = [f"train_{number:02}.webp" for number in range(50)]
    names += [f"test_{number:02}.webp" for number in range(10)]
    arrays = arrays_of(path, read_content(path))
    with damage_explained(path):
        rows[:, 0] = np.concatenate([arrays["train"], arrays["test"]])
    for number, sheet_path in enumerate(map(path.with_name, names)):
        with damage_explained(sheet_path), Image.open(sheet_path, formats=("WEBP",)) as picture:
            sheet = np.asarray(picture).reshape(100, 32, 10, 32, 3)
        part = slice(1000 * number, 1000 * (number + 1))
        rows[part, 1:] = sheet.transpose(0, 2, 4, 1, 3).reshape(1000, ROW - 1)
    return rows


def _people(folder: Path) -> People | None:
    """Return what people said about test pictures (CIFAR-10H and CIFAR-10S), if it is there."""
    paths = [folder / "cifar10h/counts.npz", folder / "cifar10s/answers.npz"]
    if not all(path.is_file() for path in paths):
        return None
    counted, answered = (arrays_of(path, read_content(path)) for path in paths)
    with damage_explained(folder):
        counts, asked = counted["counts"].astype(np.int64), answered["picture"].astype(np.int64)
        rows = np.arange(TRAINING, TRAINING + len(counts))
        return People(rows, counts, asked, ~answered["impossible"])
