"""Datasets that need no file."""

import numpy as np

from robustpll.datasets.catalog import Entry
from robustpll.datasets.dataset import Dataset


def load(entry: Entry) -> Dataset:
    """Digits or synthetic rows, by the name of the entry."""
    return _digits(entry) if entry.name == "digits" else _synthetic(entry)


def _digits(entry: Entry) -> Dataset:
    """Scans of 8 x 8 pixels from 0 to 16."""
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return Dataset.of(
        entry,
        features.astype(np.uint8),
        labels.astype(np.int64),
        np.arange(entry.classes),
        image_shape=(8, 8),
        white=16,
    )


def _synthetic(entry: Entry) -> Dataset:
    """A blob for each class in ten directions, mixed into the others; always the same rows."""
    from sklearn.datasets import make_classification

    features, labels = make_classification(
        entry.rows,
        entry.features,
        n_classes=entry.classes,
        n_informative=10,
        n_redundant=5,
        n_clusters_per_class=1,
        class_sep=1.5,
        flip_y=0.0,
        random_state=0,
    )
    return Dataset.of(entry, features, labels.astype(np.int64), np.arange(entry.classes))
