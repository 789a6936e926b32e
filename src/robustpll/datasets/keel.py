"""Tables of the KEEL collection: comma-separated, without a header, the class last."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from robustpll.datasets.bounded import damage_explained, read_content
from robustpll.datasets.catalog import Entry, paths_of
from robustpll.datasets.dataset import Dataset
from robustpll.datasets.mat import LARGEST
from robustpll.errors import InputError, counted
from robustpll.estimator.features import Features
from robustpll.labels.parsing import refuse_rows

MOST_BYTES, MOST_COLUMNS = 2**24, 1000  # the largest tables have 1.4 MB and 65 columns
GAPS = ("", "?", "<null>")


def load(entry: Entry) -> Dataset:
    """Read a dataset from its table; words become 0/1 columns, gaps the median of their column."""
    (path,) = paths_of(entry)
    content = read_content(path)
    cells = read_cells(path, content)
    names = _as_numbers(cells.pop(cells.columns[-1]))
    refuse_rows(names.isna().to_numpy(), f"{path}: no class", "Correct or drop them.")
    classes, labels = np.unique(names.to_numpy(), return_inverse=True)
    if len(classes) != entry.classes:
        raise InputError(
            f"{path} has {counted(len(classes), 'class', 'classes')} in its last column, but "
            f"{entry.title} has {entry.classes}. Download it again."
        )
    table = cells.apply(_as_numbers)
    try:
        features = Features.fit_rows(table, "cpu")[0]._numbers(table)  # before they are scaled
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    too_large = ~(np.abs(features) <= LARGEST).all(-1)
    refuse_rows(too_large, f"{path}: numbers beyond {LARGEST:g}", "Correct or drop them.")
    classes = classes.astype(str) if classes.dtype == object else classes
    return Dataset.of(entry, [content], features=features, labels=labels, classes=classes)


def read_cells(path: Path, content: bytes) -> pd.DataFrame:
    """Return the cells of a table as text, None for gaps; lines that start with @ are skipped."""
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES} bytes: too much for such a table.")
    with damage_explained(path):
        lines = [line for line in content.decode().splitlines() if line.strip()]
    rows = [line.split(",") for line in lines if not line.startswith("@")]
    widths = {len(row) for row in rows}
    if len(widths) != 1 or not 1 < max(widths) <= MOST_COLUMNS:
        raise InputError(
            f"{path} must have rows of equal length, from 2 to {MOST_COLUMNS} cells with a comma "
            f"between them; its rows have {sorted(widths)[:5]} cells. Download it again."
        )
    cells: Any = [[None if (text := cell.strip()) in GAPS else text for cell in r] for r in rows]
    return pd.DataFrame(cells, dtype=object)


def _as_numbers(column: pd.Series) -> pd.Series:
    """Return a column of text as numbers, if all its cells are numbers or gaps."""
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().equals(column.notna()) else column
