"""Real-world datasets: .mat files with candidates and true labels."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.catalog import Entry, existing
from robustpll.datasets.content import refuse_unpublished, version_of
from robustpll.datasets.dataset import Dataset, unusual_counts
from robustpll.datasets.mat_file import read_bytes, read_mat
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates

KEYS = ("data", "partial_target", "target")  # (n, d), (k, n), (k, n), each dense or sparse
LARGEST = 1e38  # so that float32 holds the difference of any two features
LEAST_VARIANCE = 1e-30  # a feature with no more says nothing and is removed


def load(entry: Entry) -> Dataset:
    """The dataset of an entry whose one file is a .mat file, of any version."""
    path = existing(entry, entry.files[0])
    raw = read_bytes(path)
    data, partial, target = read_mat(path, KEYS, raw)
    content = hashlib.sha256(raw).hexdigest()
    refuse_unpublished(entry, entry.files[0], path, content)
    _refuse_odd_shapes(path, data.shape, partial.shape, target.shape)
    n, d = data.shape
    features, constant = _informative(path, data)
    candidates, truth = _zero_one(path, KEYS[1], partial), _zero_one(path, KEYS[2], target)
    _refuse_rows(path, candidates.sum(-1) == 0, "no candidate", "Drop them, or add candidates")
    _refuse_rows(path, truth.sum(-1) != 1, "not exactly one true label", "Correct or drop them")
    labels = truth.argmax(-1)
    notes = unusual_counts(entry, n, d, candidates.shape[1])
    outside = np.flatnonzero(~candidates[np.arange(n), labels])
    if len(outside):
        notes += (f"the true label is no candidate in {len(outside)} rows: {_named(outside)}",)
    if len(constant):
        notes += (f"{len(constant)} constant features were removed: {_named(constant)}",)
    y = Candidates.of(candidates)
    facts = {"notes": notes, "content": version_of(entry, [content])}
    return Dataset.of(entry, features, labels, y.classes, candidates=y, **facts)


def _refuse_odd_shapes(
    path: Path, data: tuple[int, int], partial: tuple[int, int], target: tuple[int, int]
) -> None:
    if 0 in data or partial != target or partial[1] != data[0]:
        raise InputError(
            f"{path}: for 'data' of n rows and d features, 'partial_target' and 'target' must both "
            f"be k x n; found {data}, {partial} and {target}. Transpose what is the wrong way round"
            ", or get the file anew."
        )


def _informative(path: Path, data: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features (n, d) without the constant ones, and which those are."""
    dense = data.toarray() if hasattr(data, "toarray") else data
    low, high = (end.astype(np.float64) for end in (dense.min(0), dense.max(0)))
    if not (low.min() >= -LARGEST and high.max() <= LARGEST):  # NaN is neither
        odd = ~(np.abs(dense) <= LARGEST).all(-1)
        _refuse_rows(path, odd, f"NaN, infinity or numbers beyond {LARGEST:g}", "Correct them")
    # so small a variance needs a range of no more than this: few features are looked at closely
    near = np.flatnonzero(high - low <= 2 * np.sqrt(len(dense) * LEAST_VARIANCE))
    constant = near[(dense[:, near] - low[near]).var(0) <= LEAST_VARIANCE]
    kept = np.delete(dense, constant, axis=1) if len(constant) else dense
    if kept.shape[1] == 0:
        raise InputError(
            f"{path}: all features are constant, so nothing can be learned. Get the file anew."
        )
    return np.array(kept, dtype=np.float64, order="K"), constant


def _zero_one(path: Path, key: str, found: Any) -> NDArray[np.bool_]:
    """A matrix (k, n) of 0 and 1 as bool, (n, k)."""
    values = found
    if hasattr(found, "toarray"):
        found.sum_duplicates()
        values = found.data
    odd = values[~((values == 0) | (values == 1))]
    if odd.size:
        raise InputError(
            f"{path}: {key!r} must hold 0 and 1 alone; found {odd.size} other values "
            f"({some_of(np.unique(odd))}). Correct them."
        )
    binary = found.astype(bool).T
    return np.ascontiguousarray(binary.toarray() if hasattr(binary, "toarray") else binary)


def _named(numbers: NDArray[np.int64]) -> str:
    """All of them: a note is the only place that tells."""
    return ", ".join(map(str, numbers))


def _refuse_rows(path: Path, odd: Any, what: str, remedy: str) -> None:
    """Where `odd` (n,) is true."""
    rows = np.flatnonzero(odd)
    if len(rows):
        raise InputError(f"{path}: {what} in {len(rows)} rows ({some_of(rows)}). {remedy}.")
