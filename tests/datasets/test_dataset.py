"""Datasets by name, and their division into training and test rows."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import robustpll
from robustpll import InputError, load_dataset
from robustpll.datasets.catalog import CATALOG, PLL_PAGE
from robustpll.datasets.dataset import Dataset, Split

PICTURES = ["mnist", "fmnist", "kmnist", "notmnist"]
REAL_WORLD = ["bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news"]
NAMES = [*PICTURES, *REAL_WORLD, "fg-net", "italian", "digits", "synthetic"]


def rows(n: int) -> Dataset:
    return replace(load_dataset("synthetic"), features=np.zeros((n, 2)))


def test_there_are_fourteen_names() -> None:
    assert sorted(CATALOG) == sorted(NAMES)


def test_an_unknown_name_is_told_the_names() -> None:
    with pytest.raises(InputError, match=r"no dataset 'MNIST'.*mnist.*synthetic"):
        load_dataset("MNIST")


@pytest.mark.parametrize("name", [name for name in NAMES if CATALOG[name].files])
def test_a_missing_file_is_named_with_the_way_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if CATALOG[name].system and Path(CATALOG[name].system).is_dir():
        pytest.skip("this system has the files")
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert str(tmp_path / "own" / CATALOG[name].files[0].path) in message
    assert f"datasets get {name}" in message or PLL_PAGE in message


@given(st.integers(5, 3000), st.integers(0, 2**32))
def test_four_fifths_train_and_the_rest_tests(n: int, seed: int) -> None:
    split = rows(n).split(seed)
    assert len(split.train) == int(0.8 * n)
    assert sorted([*split.train, *split.test]) == list(range(n))
    assert split.train.dtype == split.test.dtype == np.int64


def test_splits_are_those_of_the_published_experiments() -> None:
    """Drawn once with numpy's PCG64; a change of a digit here is a change of every result."""
    lost = rows(1122)
    first, second = lost.split(0), lost.split(1)
    assert first.train[:6].tolist() == [802, 403, 1017, 954, 19, 936]
    assert first.test[:6].tolist() == [960, 920, 820, 789, 385, 391]
    assert second.train[:6].tolist() == [109, 47, 496, 503, 788, 880]
    assert second.test[:6].tolist() == [376, 936, 1051, 601, 122, 795]


def test_a_split_depends_on_the_seed_and_on_nothing_else() -> None:
    data = rows(100)
    first = data.split(3)
    np.random.default_rng(0).random(10)
    again, other = data.split(3), data.split(4)
    assert (first.train == again.train).all()
    assert (first.test == again.test).all()
    assert (first.train != other.train).any()


def test_an_official_split_serves_every_seed() -> None:
    official = Split(np.arange(3), np.arange(3, 5))
    data = replace(rows(5), official=official)
    assert data.split(0) is data.split(7) is official


def test_a_dataset_says_what_it_is() -> None:
    data = rows(7)
    assert repr(data) == "Dataset(Synthetic: 7 rows, 2 features, 10 classes)"
    noted = replace(data, notes=("row 3 is odd", "row 4 is odd"))
    assert repr(noted) == "Dataset(Synthetic: 7 rows, 2 features, 10 classes, 2 notes)"


def test_the_package_exports_both_names() -> None:
    assert {"load_dataset", "Dataset"} <= set(dir(robustpll))
    assert isinstance(robustpll.load_dataset("synthetic"), robustpll.Dataset)


def test_loading_needs_neither_torch_nor_what_other_datasets_need() -> None:
    code = """
import sys
from robustpll import load_dataset
load_dataset("synthetic")
print([name for name in ("torch", "PIL", "h5py") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("seed", [-1, "a", None, 1.0])
def test_a_seed_is_a_number_from_zero_on(seed: Any) -> None:
    with pytest.raises(InputError, match="an int of at least 0 as its seed"):
        load_dataset("digits").split(seed)


def test_a_dataset_of_ones_own() -> None:
    X, labels = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    own = Dataset("mine", "Mine", X, np.array(["a", "b"]), labels)
    assert len(own.split(0).train) == 8
    assert repr(own) == "Dataset(Mine: 10 rows, 2 features, 2 classes)"
    with pytest.raises(InputError, match="2 rows or more"):
        Dataset("mine", "Mine", X[:1], np.array(["a", "b"]), labels[:1]).split(0)
