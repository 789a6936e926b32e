"""Datasets, and noise that turns true labels into candidates."""

from typing import TYPE_CHECKING

from robustpll.datasets.catalog import entry_of

if TYPE_CHECKING:
    from robustpll.datasets.dataset import Dataset


def load_dataset(name: str) -> "Dataset":
    """A dataset by its name.

    Files are looked for below the folder that the environment variable ``ROBUSTPLL_DATA`` names,
    then in the user's cache folder. "digits" and "synthetic" need none.

    Parameters
    ----------
    name : str
        With noise to come: "mnist", "fmnist", "kmnist", "notmnist", "digits", "synthetic". With
        candidates of their own: "bird-song", "lost", "mir-flickr", "msrc-v2", "soccer",
        "yahoo-news", "fg-net", "italian".

    Examples
    --------
    >>> load_dataset("digits")
    Dataset(Digits: 1797 rows, 64 features, 10 classes)
    """
    entry = entry_of(name)
    from robustpll.datasets import builtin, idx, mat, notmnist

    loaders = {"pictures": idx.load, "real-world": mat.load, "built in": builtin.load}
    load = notmnist.load if name == "notmnist" else loaders[entry.kind]
    return load(entry)
