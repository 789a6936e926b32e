"""Seconds and memory to load each dataset, beside a plain reading of the same files by hand.

    ROBUSTPLL_DATA=... python benchmarks/data_speed.py --out benchmarks/results/data-speed.json

Both sides take turns and give the same arrays, the one by hand without any check. Seconds are
medians over the turns, and so is the ratio of each turn. Memory is the peak of what Python and
NumPy ask for. Real-world files that are not there are made, of the usual size. NotMNIST is loaded
from its archive, and from the cache that this leaves.
"""

import argparse
import gzip
import io
import json
import os
import statistics
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import sparse
from scipy.io import loadmat, savemat
from sklearn.datasets import load_digits, make_classification

from robustpll import load_dataset
from robustpll.datasets.catalog import CATALOG, Entry, cache_folder, existing, find
from robustpll.engine.device import device_name

Arrays = tuple[np.ndarray, ...]
FIRST, SECOND = "notmnist, from the archive", "notmnist, from the cache"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # made files and NotMNIST's cache, for now only
        sets = {}
        for name, entry in CATALOG.items():
            made = make(entry)
            if not all(find(entry, file) for file in entry.files):
                print(f"{name}: its files are not there")
                continue
            forget()
            named = FIRST if name == "notmnist" else name
            sets[named] = {"made": made} | measured(entry, asked.turns, fresh=True)
            if name == "notmnist":
                sets[SECOND] = {"made": made} | measured(entry, asked.turns, fresh=False)
        gain = sets[FIRST]["seconds"] / sets[SECOND]["seconds"] if FIRST in sets else None
    print(f"NotMNIST's second load is {gain:.0f} times as fast as the first" if gain else "")
    report = {
        "machine": device_name(torch.device("cpu")),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "turns": asked.turns,
        "notmnist_second_load_times_as_fast": gain,
        "sets": sets,
    }
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(report, indent=2) + "\n")


def measured(entry: Entry, turns: int, *, fresh: bool) -> dict[str, Any]:
    """One dataset by both ways, in turns."""

    def ours() -> Arrays:
        found = load_dataset(entry.name)
        if fresh:
            forget()
        matrix = () if found.candidates is None else (found.candidates.matrix,)
        assert found.labels is not None
        return (found.features, found.labels, *matrix)

    ways = {"": ours, "by_hand_": lambda: by_hand(entry)}
    for one, other in zip(*(way() for way in ways.values()), strict=True):
        assert np.array_equal(one, other), entry.name
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, load in ways.items():
            begun = time.perf_counter()
            load()
            taken[way].append(time.perf_counter() - begun)
    found: dict[str, Any] = {}
    for way, load in ways.items():
        found[f"{way}seconds"] = round(statistics.median(taken[way]), 5)
        found[f"{way}peak_mb"] = round(peak(load) / 1e6, 1)
    ratios = [ours / theirs for ours, theirs in zip(*taken.values(), strict=True)]
    found["ratio"] = round(statistics.median(ratios), 3)
    found["memory_ratio"] = round(found["peak_mb"] / found["by_hand_peak_mb"], 3)
    print(
        f"{entry.name}: {found['seconds']:.4f} s, by hand {found['by_hand_seconds']:.4f} s: ratio "
        f"{found['ratio']:.2f}; {found['peak_mb']:.0f} MB, by hand {found['by_hand_peak_mb']:.0f}"
    )
    return found


def peak(load: Callable[[], Arrays]) -> int:
    tracemalloc.start()
    load()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def forget() -> None:
    (cache_folder() / "notmnist" / "pictures.cache").unlink(missing_ok=True)


def make(entry: Entry) -> bool:
    """Write a real-world file of the usual size and form, if there is none."""
    if entry.kind != "real-world" or find(entry, entry.files[0]):
        return False
    assert entry.candidates is not None
    drawn = np.random.default_rng(0)
    n, k = entry.rows, entry.classes
    target = np.eye(k)[drawn.integers(0, k, n)].T
    further = drawn.random((k, n)) < (entry.candidates - 1) / (k - 1)
    path = cache_folder() / entry.files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    data = drawn.normal(size=(n, entry.features))
    sets = {"partial_target": np.maximum(target, further), "target": target}
    matrices = {key: sparse.csc_matrix(value) for key, value in sets.items()}
    savemat(path, {"data": data} | matrices, do_compression=True)
    return True


def by_hand(entry: Entry) -> Arrays:
    """The same arrays as a script would read them."""
    paths = [existing(entry, file) for file in entry.files]
    if entry.kind == "real-world":
        return mat(paths[0])
    if entry.name == "notmnist":
        return letters(paths[0])
    if entry.name == "digits":
        features, labels = load_digits(return_X_y=True)
        return features.astype(np.uint8), labels
    if entry.name == "synthetic":
        kinds = {"n_informative": 10, "n_redundant": 5, "n_clusters_per_class": 1, "n_classes": 10}
        return tuple(
            make_classification(2000, 20, **kinds, class_sep=1.5, flip_y=0.0, random_state=0)
        )
    contents = []
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            contents.append(file.read())
    pictures = [np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784) for raw in contents[::2]]
    labels = [np.frombuffer(raw, np.uint8, offset=8) for raw in contents[1::2]]
    return np.concatenate(pictures), np.concatenate(labels).astype(np.int64)


def mat(path: Path) -> Arrays:
    found = loadmat(path)
    features = found["data"].astype(np.float64)
    features = features[:, features.var(0) > 1e-30]
    sets, labels = (
        found[key].toarray().T if sparse.issparse(found[key]) else found[key].T
        for key in ("partial_target", "target")
    )
    return features, labels.argmax(-1), sets.astype(bool)


def letters(path: Path) -> Arrays:
    found = []
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                try:
                    pixels = np.asarray(Image.open(io.BytesIO(file.read())))
                except OSError:
                    continue
                inner = PurePosixPath(member.name)
                found.append((inner.parent.name, inner.name, pixels))
    found.sort(key=lambda picture: picture[:2])
    labels = np.array([ord(letter) - ord("A") for letter, _, _ in found])
    return np.stack([pixels for _, _, pixels in found]).reshape(-1, 784), labels


if __name__ == "__main__":
    main()
