"""A dataset in memory, and its split into training and test rows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from robustpll._display import ROWS, Displayed
from robustpll.datasets.catalog import Entry, version_of
from robustpll.errors import InputError, is_count, some_of
from robustpll.labels.candidates import Candidates
from robustpll.measures.people import People


class Split(NamedTuple):
    """The indices of the training rows and of the test rows, in order."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Displayed):
    """Rows with true labels, candidates or both.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> digits = load_dataset("digits")
    >>> digits.features.shape, digits.image_shape
    ((1797, 64), (8, 8))
    >>> len(digits.split(seed=0).train)
    1437
    """

    name: str  # as for `load_dataset`
    title: str  # for display
    features: NDArray[Any]  # (n, d), unscaled: bytes for pictures, row by row, else float64
    classes: NDArray[Any]  # the names of the classes, (k,)
    labels: NDArray[np.int64] | None = None  # the true labels as positions in `classes`, (n,)
    candidates: Candidates | None = None  # None if noise has to make them
    image_shape: tuple[int, ...] | None = None  # (h, w) or (c, h, w) of rows that are pictures
    white: int = 1  # the value of a white pixel, by which pictures are divided first; else 1
    official: Split | None = None  # the split that the authors of the dataset prescribe
    licence: str = "your own"
    source: str = "your own"  # the web page that the data comes from
    notes: tuple[str, ...] = ()  # what was left out or is unusual, with the rows or files
    content: str = ""  # version of the files: 16 digits of a SHA-256; empty for the usual one
    people: People | None = None  # answers about test rows, which no model learns from

    @classmethod
    def of(cls, entry: Entry, contents: Sequence[bytes | str] = (), **fields: Any) -> Self:
        """Return the dataset of a catalog entry, read from files with these contents or sums."""
        sums = [c if isinstance(c, str) else hashlib.sha256(c).hexdigest() for c in contents]
        facts = {"title": entry.title, "licence": entry.licence, "source": entry.source}
        classes = np.array(entry.class_names or range(entry.classes))
        fields = {"classes": classes, **facts, **fields}
        return cls(entry.name, content=version_of(entry, sums), **fields)

    def split(self, seed: int) -> Split:
        """Return the official split, or else a random one with 80 % of the rows for training.

        The random split is not stratified; it is that of the published experiments, row by row.
        """
        if self.official is not None:
            return self.official
        n = len(self)
        if n < 2 or not is_count(seed):
            raise InputError(f"A split needs 2 rows and an int >= 0 as seed; got {n} and {seed!r}.")
        generator = np.random.Generator(np.random.PCG64(seed))
        train = generator.choice(n, size=n * 4 // 5, replace=False, shuffle=False)
        test = np.setdiff1d(np.arange(n), train)
        generator.shuffle(train)
        generator.shuffle(test)
        return Split(train, test)

    def __len__(self) -> int:
        return len(self.features)

    def _facts(self) -> str:
        n, d = self.features.shape
        facts = [f"{n} rows", f"{d} features", f"{len(self.classes)} classes"]
        if self.candidates is not None:
            facts.append(self.candidates._facts().split(", ")[-1])
        return f"{self.title}: {', '.join(facts)}"

    def _table(self) -> Any:
        import pandas as pd

        facts = {"source": self.source, "licence": self.licence, "classes": some_of(self.classes)}
        return pd.DataFrame({"": facts.values()}, index=[*facts])

    def _notes(self) -> tuple[str, ...]:
        return self.notes[:ROWS]
