"""Answers of real crowds about rows with features, in files of numpy arrays."""

import hashlib
import io
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustpll.datasets.bounded import damage_explained, read_content, unpacked_limit
from robustpll.datasets.catalog import Entry, paths_of
from robustpll.datasets.dataset import Dataset, Split
from robustpll.errors import InputError
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import votes_for


def load(entry: Entry) -> Dataset:
    """Read a crowd; training rows have answers, test rows are those of the official split.

    The arrays are x_train, x_test, y_train, y_test and votes (rows, annotators), -1 for none.
    """
    arrays: dict[str, NDArray[Any]] = {}
    sums = []
    for path in paths_of(entry):
        content = read_content(path)
        sums.append(hashlib.sha256(content).hexdigest())
        with damage_explained(path), zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > unpacked_limit(len(content)):
                raise InputError(f"{path} unpacks to {size:,} bytes: too many for its size.")
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays |= {name: file[name] for name in file.files}
    other = InputError(f"{paths_of(entry)[0]} has other arrays than {entry.title}.")
    try:
        parts = [(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
        features = np.concatenate([x for x, _ in parts]).astype(np.float64)
        labels = np.concatenate([y for _, y in parts]).astype(np.int64)
        votes, k = arrays["votes"].astype(np.int64), entry.classes
        sizes = {len(votes), len(parts[0][0]), len(parts[0][1])}
        is_fitting = len(sizes) == 1 and len(features) == len(labels) and votes.ndim == 2
        is_fitting = is_fitting and bool(((labels >= 0) & (labels < k)).all() & (votes < k).all())
    except (KeyError, IndexError, ValueError) as error:
        raise other from error
    if not is_fitting:
        raise other
    answers = np.full((len(labels), votes.shape[1]), -1)
    answers[: len(votes)] = votes.clip(min=-1)
    named = votes_for(answers, k)
    total = named.sum(-1, keepdims=True)
    matrix = np.where(total > 0, named > 0, True)
    prior = np.where(total > 0, named / np.maximum(total, 1), 1 / k).astype(np.float32)
    classes = np.array(entry.class_names or range(k))
    count = len(parts[0][0])
    return Dataset.of(
        entry,
        sums,
        features=features,
        labels=labels,
        candidates=Candidates(matrix, classes, prior, answers),
        official=Split(np.arange(count), np.arange(count, len(labels))),
    )
