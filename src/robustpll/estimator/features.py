"""How a raw row becomes numbers: arrays, tables with categories and gaps, pictures."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from robustpll.engine.data import Rows
from robustpll.engine.device import room
from robustpll.errors import InputError, some_of
from robustpll.labels.parsing import is_frame

# Of a scaled number, which is 0 to 1 in training: a network's layers multiply it, in float32, whose
# largest number is 3e38. A power of two is the same in both precisions.
FARTHEST = 2.0**64


@dataclass(frozen=True)
class Features:
    """How rows become numbers, as learned from the training rows; can be written as JSON.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Rome", "Bonn", "Rome"]})
    >>> features = Features.of(table)
    >>> features.columns
    ('age', 'age is missing', 'town is Bonn', 'town is Rome')
    >>> rows = features.rows(table)
    >>> rows.x(rows.everything)[0]
    tensor([[0.0000, 0.0000, 0.0000, 1.0000],
            [0.5000, 1.0000, 1.0000, 0.0000],
            [1.0000, 0.0000, 0.0000, 1.0000]])
    """

    columns: tuple[str, ...]  # what each number means; empty for arrays and pictures
    shape: tuple[int, ...]  # of a row's numbers: (d,) or a picture's
    categories: dict[str, tuple[str, ...]]  # column -> its categories, one number each
    fill: dict[str, float]  # column with gaps -> the training median that fills them
    shift: tuple[float, ...]  # flattened, as Rows.of found them on the training rows
    scale: tuple[float, ...]

    @classmethod
    def of(cls, X: Any) -> Self:
        """Learn from training rows: an array (n, d), pictures (n, h, w) or (n, c, h, w), a table.

        In a table a numeric gap gets the median and a column that says so. Of categories each
        gets a column of 0 and 1; a gap, and a category that training did not see, is 0 in all.
        """
        categories: dict[str, tuple[str, ...]] = {}
        fill: dict[str, float] = {}
        if is_frame(X):
            refuse_odd_table(X)
            for name in X.columns:
                _study(X[name], categories, fill)
        blank = cls((), (), categories, fill, (), ())
        columns = tuple(blank.names(X.columns)) if is_frame(X) else ()
        raw = blank._numbers(X)
        pool = torch.from_numpy(raw)
        found = Rows.of(pool, torch.arange(len(pool))[None])
        shift, scale = (tuple(part.flatten().tolist()) for part in (found.shift, found.scale))
        if not np.isfinite(scale).all():
            wide = np.flatnonzero(~np.isfinite(scale))
            raise InputError(
                f"X spans more than a float64 can hold in {len(wide)} of its columns (from 0: "
                f"{some_of(wide)}). Divide these columns by a large number."
            )
        return cls(columns, raw.shape[1:], categories, fill, shift, scale)

    def rows(self, X: Any, device: str | torch.device = "cpu") -> Rows:
        """Scaled rows of one run. Scaling is done in float64: a date in seconds keeps its days."""
        raw = torch.from_numpy(self._numbers(X))
        if tuple(raw.shape[1:]) != self.shape:
            raise InputError(
                f"X has rows of shape {tuple(raw.shape[1:])}, but was fitted with {self.shape}. "
                "Pass rows of the same form as in training."
            )
        unit = torch.ones((1, 1, *self.shape), device=device)
        device = unit.device
        if 1.5 * raw.nbytes <= room(device):  # with what becomes of it, in half the bytes
            raw = raw.to(device)
        shift, scale = (
            torch.tensor(part, dtype=raw.dtype, device=raw.device).view(self.shape)
            for part in (self.shift, self.scale)
        )
        scaled = raw.sub_(shift).div_(scale).float()
        if scaled.numel() and not (torch.stack(scaled.aminmax()).abs() <= FARTHEST).all():
            far = (~(scaled.abs() <= FARTHEST)).flatten(1).any(1).nonzero()[:, 0].tolist()
            raise InputError(
                f"X is too far from the training rows to compute with in {len(far)} rows "
                f"({some_of(far)}). Correct or drop these rows."
            )
        at = torch.arange(len(raw))[None]
        if scaled.device != device and scaled.nbytes > room(device):
            scaled = scaled.pin_memory() if device.type == "cuda" else scaled
        else:
            scaled, at = scaled.to(device), at.to(device)
        return Rows(scaled, at, torch.zeros_like(unit), unit)

    def unusable_rows(self, X: Any) -> NDArray[np.bool_]:
        """Which rows cannot be predicted, (n,): `rows` refuses X while there is one among them.

        That is a number which is no number, infinite, or too far from the training rows to compute
        with, or an empty cell where training had none. X has the form of the training rows.

        >>> features = Features.of(np.array([[0.0, 1], [2, 3]]))
        >>> features.unusable_rows(np.array([[1.0, 2], [1e300, 2], [np.nan, 2]]))
        array([False,  True,  True])
        """
        numbers = self._numbers(X, refuse=False).reshape(len(X), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (numbers - np.asarray(self.shift)) / np.asarray(self.scale)
            return np.asarray(~(np.abs(scaled) <= FARTHEST).all(-1))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """As `to_json` gave it; lists become tuples again."""
        return cls(
            tuple(found["columns"]),
            tuple(int(size) for size in found["shape"]),
            {name: tuple(words) for name, words in found["categories"].items()},
            {name: float(value) for name, value in found["fill"].items()},
            tuple(float(value) for value in found["shift"]),
            tuple(float(value) for value in found["scale"]),
        )

    def names(self, columns: Iterable[Any]) -> Iterator[str]:
        """What the numbers mean that these columns of a table become."""
        for name in columns:
            if str(name) in self.categories:
                yield from (f"{name} is {word}" for word in self.categories[str(name)])
            else:
                yield str(name)
                if str(name) in self.fill:
                    yield f"{name} is missing"

    def _numbers(self, X: Any, *, refuse: bool = True) -> NDArray[np.float64]:
        """Unscaled numbers (n, *shape); may refuse cells of a table that are none."""
        if not is_frame(X):
            return np.array(X, dtype=np.float64, order="C")  # torch wants to own it
        parts = [part for name in X.columns for part in self._column(X[name], refuse)]
        return np.stack(parts, axis=1) if parts else np.empty((len(X), 0))

    def _column(self, column: Any, refuse: bool) -> Iterator[NDArray[np.float64]]:
        """The numbers that one column of a table becomes, (n,) each."""
        name, missing = str(column.name), column.isna().to_numpy()
        if name in self.categories:
            words = _words(column)
            _refuse_other_words(column.name, set(words[~missing]), self.categories[name])
            for word in self.categories[name]:
                yield ((words == word) & ~missing).astype(np.float64)
            return
        kind = "nothing" if missing.all() else _kind(column.dropna())
        if kind not in (*NUMBERS, "nothing"):
            raise InputError(
                f"Column {column.name!r} held numbers in training, but now holds values of kind "
                f"{kind!r}. Convert it to numbers."
            )
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if refuse:
            gaps = missing & (name not in self.fill)
            _refuse_odd_cells(column.name, np.flatnonzero(gaps), np.flatnonzero(np.isinf(numbers)))
        if name in self.fill:
            yield np.where(missing, self.fill[name], numbers)
            yield missing.astype(np.float64)
        else:
            yield numbers


def _refuse_odd_cells(name: Any, gaps: NDArray[np.intp], infinite: NDArray[np.intp]) -> None:
    """Rows in which a column has no number to go by."""
    if len(gaps):
        raise InputError(
            f"Column {name!r} has no value in {len(gaps)} rows ({some_of(gaps)}), but had one in "
            "every training row. Fill these cells, or train with rows that have such gaps."
        )
    if len(infinite):
        raise InputError(
            f"Column {name!r} is infinite in {len(infinite)} rows ({some_of(infinite)}). Drop "
            "these rows, or cap their values."
        )


def _refuse_other_words(name: Any, found: set[str], known: tuple[str, ...]) -> None:
    """One new word may be a new town; several without a known one are written otherwise."""
    if len(found) > 1 and found.isdisjoint(known):
        raise InputError(
            f"Column {name!r} holds no word that training saw: {some_of(map(repr, sorted(found)))} "
            f"instead of {some_of(map(repr, known))}. Read it in the same way as the training rows."
        )


def finite(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """X, if it holds neither NaN nor infinity."""
    odd = ~np.isfinite(X).reshape(len(X), -1).all(-1)
    if odd.any():
        rows = np.flatnonzero(odd)
        raise InputError(
            f"Input X contains NaN or infinity in {len(rows)} rows ({some_of(rows)}). Fill or drop "
            "them, or pass a DataFrame: there gaps (NaN) are filled with the median."
        )
    return X


def refuse_odd_table(X: Any, least: int = 1) -> None:
    """A DataFrame must have rows, columns, and one column of each name."""
    if len(X) < least or X.shape[1] == 0:
        raise InputError(
            f"X has {len(X)} rows (n_samples={len(X)}) and {X.shape[1]} columns; at least {least} "
            "rows and 1 column are needed."
        )
    if not X.columns.is_unique:
        twice = some_of(repr(name) for name in X.columns[X.columns.duplicated()])
        raise InputError(
            f"X has several columns named {twice}. Rename or drop all but one of each."
        )


def _words(column: Any) -> NDArray[Any]:
    """Cells as they print one by one: a gap among integers must not make them floats."""
    return np.array([str(cell) for cell in column.astype(object)], dtype=object)


def _study(column: Any, categories: dict[str, tuple[str, ...]], fill: dict[str, float]) -> None:
    """Learn from one column of a table what its words are, or what fills its gaps."""
    known = column.dropna()
    if known.empty:
        raise InputError(f"Column {column.name!r} has no value in any row. Drop it.")
    if _kind(known) in NUMBERS:
        if len(known) < len(column):
            fill[str(column.name)] = float(known.astype(np.float64).median())
    else:
        found = sorted(set(_words(known)))
        if not hasattr(known, "cat"):
            _refuse_odd_words(str(column.name), found, known)
        categories[str(column.name)] = tuple(found)


FEW_WORDS = 20
MOST_WORDS = 1000  # each costs a number in every row


def _refuse_odd_words(name: str, found: list[str], known: Any) -> None:
    """Text that is no category: numbers in disguise, names of rows, lists."""
    if any(isinstance(cell, list | tuple | set | dict | np.ndarray) for cell in known):
        raise InputError(
            f"Column {name!r} holds lists or the like, which are no features. Drop or unpack it."
        )
    odd = [word for word in found if not _is_number(word)]
    if len(odd) < len(found) and len(odd) <= len(found) / 2:
        rest = f", but for {some_of(map(repr, odd))}" if odd else ""
        raise InputError(
            f"Column {name!r} holds numbers as text{rest}. Convert it with "
            "pandas.to_numeric(column, errors='coerce'), or to the type 'category' if the numbers "
            "are mere names."
        )
    if len(found) > max(FEW_WORDS, min(len(known) / 2, MOST_WORDS)):
        raise InputError(
            f"Column {name!r} has {len(found)} different words in {len(known)} rows: it names rows "
            "rather than describing them. Drop it, or convert it to the type 'category' to keep it."
        )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean", "decimal")
DATES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")


def _kind(known: Any) -> str:
    """What a column's cells are, in pandas' words; "categorical" if it was declared so."""
    import pandas as pd

    kind = str(pd.api.types.infer_dtype(known))
    inner = kind
    if kind == "categorical":
        inner = str(pd.api.types.infer_dtype(known.cat.categories))
    if inner in (*DATES, "complex"):
        what = "dates or times" if inner in DATES else "complex numbers"
        raise InputError(
            f"Column {known.name!r} holds {what}, which are no features as such. Drop it, or "
            "replace it by numbers that matter, such as the hour or the days since an event."
        )
    return kind
