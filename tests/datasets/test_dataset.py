"""Datasets by name, and their split into training and test rows."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits

from robustpll import InputError, load_dataset
from robustpll.datasets.catalog import CATALOG
from robustpll.datasets.dataset import Dataset, Split


def rows(n: int) -> Dataset:
    X, labels = np.zeros((n, 2)), np.arange(n) % 2
    return Dataset("mine", "Mine", X, np.array(["a", "b"]), labels)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"no dataset 'MNIST'.*mnist.*synthetic"):
        load_dataset("MNIST")


@pytest.mark.parametrize("name", [name for name, entry in CATALOG.items() if entry.files])
def test_a_missing_file_is_named_with_the_way_to_get_it(name: str, data: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert str(data / CATALOG[name].files[0].path) in message
    assert f"datasets get {name}" in message or CATALOG[name].source in message


@settings(max_examples=30)
@given(st.integers(5, 3000), st.integers(0, 2**32))
def test_four_fifths_train_and_the_rest_tests(n: int, seed: int) -> None:
    split = rows(n).split(seed)
    assert len(split.train) == int(0.8 * n)
    assert sorted([*split.train, *split.test]) == list(range(n))
    assert split.train.dtype == split.test.dtype == np.int64


def test_splits_are_those_of_the_published_experiments() -> None:
    """Drawn once with numpy's PCG64; a change of a digit here is a change of every result."""
    first, second = rows(1122).split(0), rows(1122).split(1)
    assert first.train[:6].tolist() == [802, 403, 1017, 954, 19, 936]
    assert first.test[:6].tolist() == [960, 920, 820, 789, 385, 391]
    assert second.train[:6].tolist() == [109, 47, 496, 503, 788, 880]
    assert second.test[:6].tolist() == [376, 936, 1051, 601, 122, 795]
    data = replace(rows(5), official=Split(np.arange(3), np.arange(3, 5)))
    assert data.split(0) is data.split(7) is data.official


@pytest.mark.parametrize(("n", "seed"), [(7, -1), (7, "a"), (7, None), (7, 1.0), (1, 0)])
def test_impossible_splits_are_refused(n: int, seed: Any) -> None:
    with pytest.raises(InputError, match="needs 2 rows and an int >= 0 as seed"):
        rows(n).split(seed)


def test_loading_needs_neither_torch_nor_what_other_datasets_need() -> None:
    code = """
import sys
from robustpll import load_dataset
load_dataset("synthetic")
print([name for name in ("torch", "PIL", "h5py", "requests") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_digits_are_those_of_scikit_learn() -> None:
    X, y = load_digits(return_X_y=True)
    digits = load_dataset("digits")
    assert digits.features.dtype == np.uint8
    assert (digits.features == X).all()
    assert (digits.labels == y).all()
    assert digits.classes.tolist() == list(range(10))
    facts = (digits.image_shape, digits.candidates, digits.official, digits.licence)
    assert facts == ((8, 8), None, None, "BSD-3-Clause")


def test_synthetic_rows_are_always_the_same() -> None:
    synthetic, again = load_dataset("synthetic"), load_dataset("synthetic")
    assert synthetic.features.shape == (2_000, 20)
    assert (synthetic.features == again.features).all()
    assert synthetic.features is not again.features
    first = [0.4101377462716102, 0.15836501410260007, -0.6129814252887956]
    np.testing.assert_allclose(synthetic.features[0, :3], first, rtol=1e-9)
    assert np.bincount(synthetic.labels).tolist() == [200] * 10


def test_breast_cancer_is_that_of_scikit_learn() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    dataset = load_dataset("breast-cancer")
    assert (dataset.features == X).all()
    assert (dataset.labels == y).all()
    assert dataset.classes.tolist() == ["malignant", "benign"]
    assert (dataset.image_shape, dataset.candidates, dataset.white) == (None, None, 1)
