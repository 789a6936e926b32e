"""Datasets, and noise that turns true labels into candidates."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from robustpll.datasets.catalog import entry_of

if TYPE_CHECKING:
    from robustpll.datasets.dataset import Dataset


def load_dataset(name: str) -> "Dataset":
    """Load a dataset by its name.

    Files are searched in the folder that the environment variable ``ROBUSTPLL_DATA`` names, then
    in the user's cache folder.

    Parameters
    ----------
    name : str
        A name that ``robustpll datasets`` lists, such as "mnist", to which noise adds candidates,
        or "lost", which has candidates.

    Examples
    --------
    >>> load_dataset("digits")
    Dataset(Digits: 1797 rows, 64 features, 10 classes)
    """
    entry = entry_of(name)
    dataset: Dataset = resolve_name(f"robustpll.datasets.{entry.loader}")(entry)
    return dataset
