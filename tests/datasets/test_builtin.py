"""Datasets that need no file."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from robustpll import load_dataset


def test_digits_are_those_of_scikit_learn() -> None:
    X, y = load_digits(return_X_y=True)
    found = load_dataset("digits")
    assert found.features.dtype == np.uint8
    assert (found.features == X).all()
    assert found.labels is not None
    assert (found.labels == y).all()
    assert found.image_shape == (8, 8)
    assert found.classes.tolist() == list(range(10))
    assert found.candidates is found.official is None


def test_synthetic_rows_are_always_the_same() -> None:
    found, again = load_dataset("synthetic"), load_dataset("synthetic")
    assert found.features.shape == (2_000, 20)
    assert (found.features == again.features).all()
    assert found.features is not again.features
    np.testing.assert_allclose(
        found.features[0, :3],
        [0.4101377462716102, 0.15836501410260007, -0.6129814252887956],
        rtol=1e-9,
    )
    assert found.labels is not None
    assert np.bincount(found.labels).tolist() == [200] * 10


def test_synthetic_rows_can_be_learned_but_not_by_a_plane_alone() -> None:
    found = load_dataset("synthetic")
    split = found.split(0)
    assert found.labels is not None
    plain = LogisticRegression(max_iter=1_000)
    plain.fit(found.features[split.train], found.labels[split.train])
    assert 0.7 < plain.score(found.features[split.test], found.labels[split.test]) < 0.9


def test_licence_and_source_are_told() -> None:
    for name in ("digits", "synthetic"):
        found = load_dataset(name)
        assert found.licence == "BSD-3-Clause"
        assert found.source
        assert found.notes == ()
