"""Datasets that need no file."""

import numpy as np

from robustpll.datasets.catalog import Entry
from robustpll.datasets.dataset import Dataset


def load(entry: Entry) -> Dataset:
    """Return scikit-learn's digits, or synthetic rows that are always the same."""
    from sklearn.datasets import load_digits, make_classification

    if entry.name == "digits":
        features, labels = load_digits(return_X_y=True)  # 8 x 8 pixels from 0 to 16
        pixels = features.astype(np.uint8)
        return Dataset.of(entry, [], [], pixels, labels, image_shape=(8, 8), white=16)
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
    return Dataset.of(entry, [], [], features, labels)
