"""Conversion of arrays, images and tables into scaled numbers."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from robustpll.engine.data import Rows
from robustpll.engine.device import room
from robustpll.engine.modules import FARTHEST, Layout
from robustpll.errors import InputError, counted, some_of
from robustpll.estimator.reduction import MOST_COMPONENTS, Reduction
from robustpll.labels.parsing import is_frame

Scale = Literal["auto", "minmax", "standard", "quantile"]
SCALES = (*get_args(Scale), None)
KNOTS = 33  # quantiles of a column that its curve goes through
FEW_VALUES = 10  # a column with fewer has no curve
NARROW = 0.2  # share of its range that holds 90 % of the rows of a column with outliers or skew
BYTES = frozenset(range(256))
CHANNELS = (1, 3, 4)  # of a picture: grey, RGB, with transparency
BLOCK = 2**22  # numbers that are converted together
FEW_WORDS, MOST_WORDS = 20, 1000  # categories of a text column; each costs a number in every row
LONG = 4  # words in a cell, on average: such cells are texts, not categories
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean", "decimal")  # pandas' kinds
DATES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
TEXT, REDUCTION = "robustpll.text.", "robustpll.reduction"  # names of tensors in a model file
PARTS = ("components", "idf")
TEXT_REMEDY = "If it holds texts to learn from, name it in `text`."
REMEDY = (
    "Drop it, replace it by numbers (of text by pandas.to_numeric with errors='coerce'), or keep "
    "its words by converting it to the type 'category'."
)


class ScaledRows(Rows):
    """Rows whose pool is already scaled: `x` only selects."""

    def x(self, indices: Tensor) -> Tensor:
        return self.raw(indices)


@dataclass(frozen=True)
class Features:
    """Rules learned from training rows that turn rows into scaled numbers; stored as JSON.

    In a table, gaps in a numeric column get the median and an extra 0/1 column. Each category gets
    a 0/1 column; gaps and categories unseen in training are 0 in all of them. Columns of texts, and
    sparse rows of many columns, are reduced to a few numbers (`Reduction`).

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Rome", "Bonn", "Rome"]})
    >>> Features.fit_rows(table, "cpu")[0].columns
    ('age', 'age is missing', 'town is Bonn', 'town is Rome')
    """

    columns: tuple[str, ...]  # meaning of each number; empty for arrays and images
    shape: tuple[int, ...]  # of one row: (d,), (h, w) or (c, h, w)
    categories: dict[str, tuple[str, ...]]  # column -> its categories
    fill: dict[str, float]  # numeric column with gaps -> its training median
    shift: tuple[float, ...]  # flattened: what is subtracted,
    scale: tuple[float, ...]  # and what the difference is divided by
    curves: dict[int, "Curve"] = field(default_factory=dict)  # of some numbers, after scaling
    texts: dict[str, Reduction] = field(default_factory=dict)  # of columns
    reduction: Reduction | None = None  # of sparse rows
    layout: Layout | None = None  # of rows that are several arrays, or integers; not scaled
    unit: int = 0  # of pictures: 255 of bytes, 1 of fractions up to 1, 0 if unknown

    @classmethod
    def fit_rows(
        cls,
        X: Any,
        device: str | torch.device,
        scale: Scale | None = "minmax",
        text: Iterable[str] = (),
        layout: Layout | None = None,
    ) -> tuple[Self, Rows]:
        """Learn from an array or a sparse matrix (n, d), images or a DataFrame.

        Return its scaled rows, too. `scale` and `text` are explained at `RobustPLLClassifier`.
        What a layout has packed is not scaled.
        """
        if scale not in SCALES:
            words = ", ".join(map(repr, SCALES))
            raise InputError(f"scale must be one of {words}; got {scale!r}.")
        scale, texts = scale if layout is None else None, _text_rules(X, text)
        categories, fill = _table_rules(X, texts) if is_frame(X) else ({}, {})
        is_wide = is_sparse(X) and X.shape[1] > MOST_COMPONENTS
        reduction = Reduction.of_sparse(X) if is_wide else None
        rules = cls((), (), categories, fill, (), (), {}, texts, reduction)
        columns = tuple(rules.names(X.columns)) if is_frame(X) else ()
        numbers = rules._numbers(X)
        shift, width = _linear(numbers, scale)
        wide = np.flatnonzero(~np.isfinite(width))
        if len(wide):
            raise InputError(
                f"X spans more than a float64 can hold in {len(wide)} of its columns (from 0: "
                f"{some_of(wide)}). Divide these columns by a large number."
            )
        shape = numbers.shape[1:]
        linear: Any = {"shift": tuple(shift.tolist()), "scale": tuple(width.tolist())}
        if len(shape) > 1:
            linear["unit"] = _unit(numbers)
        features = replace(rules, columns=columns, shape=shape, layout=layout, **linear)
        if scale in ("auto", "quantile") and len(shape) == 1:
            for number in range(shape[0]):  # one after another: X may be large
                column = (numbers[:, number].astype(np.float64) - shift[number]) / width[number]
                if curve := Curve.of(column, always=scale == "quantile"):
                    features.curves[number] = curve
        return features, features._scaled(numbers, device)

    def rows(self, X: Any, device: str | torch.device = "cpu") -> Rows:
        """Scaled rows of one run, on the device if they fit there."""
        return self._scaled(self._numbers(X), device)

    def _scaled(self, numbers: NDArray[Any], device: str | torch.device) -> Rows:
        """Scale numbers in float64, some rows at a time: a date in seconds keeps its days.

        Pictures of bytes stay bytes, an eighth of the memory; each batch is scaled when it is read.
        """
        if numbers.shape[1:] != self.shape:
            raise InputError(
                f"X has rows of shape {numbers.shape[1:]}, but was fitted with {self.shape}. "
                "Pass rows of the same form as in training."
            )
        unit = torch.ones((1, 1, *self.shape), device=device)
        device = unit.device
        is_bytes = numbers.dtype == np.uint8 and numbers.ndim > 2
        if is_bytes and all(number in BYTES for number in self.shift + self.scale):
            pool = _placed(torch.from_numpy(numbers), device)
            positions = torch.arange(len(pool), device=pool.device)[None]
            parts = (unit.new_tensor(part).view_as(unit) for part in (self.shift, self.scale))
            return Rows(pool, positions, *parts)
        fits = 4 * numbers.size <= room(device)
        scaled = torch.empty(numbers.shape, device=device if fits else "cpu")
        shift, scale = (
            torch.tensor(part, dtype=torch.float64, device=scaled.device).view(self.shape)
            for part in (self.shift, self.scale)
        )
        far: list[int] = []
        for rows in row_blocks(numbers):
            raw = torch.from_numpy(np.array(numbers[rows], dtype=np.float64, order="C"))
            raw = raw.to(scaled.device).sub_(shift).div_(scale)
            for number, curve in self.curves.items():
                raw[:, number] = curve(raw[:, number].contiguous())
            part = scaled[rows].copy_(raw)
            if part.numel() and not (torch.stack(part.aminmax()).abs() <= FARTHEST).all():
                is_far = (~(part.abs() <= FARTHEST)).flatten(1).any(1)
                far += (is_far.nonzero()[:, 0] + rows.start).tolist()
        if far:
            raise InputError(
                "X is too far from the training rows to compute with in "
                f"{counted(len(far), 'row')} ({some_of(far)}). Correct or drop these rows."
            )
        scaled = _placed(scaled, device)
        positions = torch.arange(len(scaled), device=scaled.device)[None]
        return ScaledRows(scaled, positions, torch.zeros_like(unit), unit)

    def refuse_other_unit(self, X: Any) -> None:
        """Raise InputError if pictures surely go from 0 to 1 instead of 0 to 255, or reverse."""
        if not self.unit or X.ndim < 3:
            return
        most = float(X.max(initial=0))
        if self.unit == 255 and X.dtype.kind == "f" and 0 < most <= 1:
            fault = "numbers up to 1, but was fitted with numbers up to 255"
        elif self.unit == 1 and most > (1 if X.dtype.kind in "iu" else 2):  # noise may exceed 1
            fault = f"numbers up to {most:g}, but was fitted with numbers up to 1"
        else:
            return
        raise InputError(f"X holds pictures of {fault}. Scale X as in training.")

    def unusable_rows(self, X: Any) -> NDArray[np.bool_]:
        """Which rows `rows` refuses, (n,): numbers are missing, infinite or too large."""
        numbers = self._numbers(X, refuse=False)
        if numbers.dtype == np.uint8:
            return np.zeros(len(numbers), dtype=np.bool_)
        numbers = numbers.reshape(len(numbers), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (numbers - np.asarray(self.shift)) / np.asarray(self.scale)
            return np.asarray(~(np.abs(scaled) <= FARTHEST).all(-1))

    def described(self) -> dict[str, Any]:
        """The fields for JSON, without those that are empty or tensors, see `tensors`."""
        plain = asdict(replace(self, texts={}, reduction=None))
        plain["texts"] = {name: part.words for name, part in self.texts.items()}
        optional = ("curves", "texts", "reduction", "layout", "unit")
        return {name: value for name, value in plain.items() if name not in optional or value}

    def tensors(self) -> dict[str, Tensor]:
        """The arrays of reductions by name."""
        named = {f"{TEXT}{number}": one for number, one in enumerate(self.texts.values())}
        if self.reduction is not None:
            named[REDUCTION] = self.reduction
        arrays = {f"{name}.components": part.components for name, part in named.items()}
        arrays |= {f"{n}.idf": part.idf for n, part in named.items() if part.idf is not None}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @classmethod
    def from_json(cls, saved: dict[str, Any], tensors: dict[str, Tensor] | None = None) -> Self:
        """From `described` after a round trip by JSON, and `tensors`, which are removed."""
        arrays = {} if tensors is None else tensors

        def reduction(name: str, words: tuple[str, ...] = ()) -> Reduction:
            used = PARTS if words else PARTS[:1]
            components, *idf = (arrays.pop(f"{name}.{part}").numpy() for part in used)
            return Reduction(components, words, *idf)

        words_of = saved.get("texts", {}).items()
        texts = {
            str(name): reduction(f"{TEXT}{number}", tuple(words))
            for number, (name, words) in enumerate(words_of)
        }
        is_reduced = f"{REDUCTION}.{PARTS[0]}" in arrays
        reduced = {"texts": texts, "reduction": reduction(REDUCTION) if is_reduced else None}
        layout = {"layout": Layout.from_json(saved["layout"])} if saved.get("layout") else {}
        tuples = {name: tuple(saved[name]) for name in ("columns", "shift", "scale")}
        tuples["shape"] = tuple(map(int, saved["shape"]))
        categories = {name: tuple(map(str, words)) for name, words in saved["categories"].items()}
        curves = {
            int(number): Curve(*(tuple(map(float, curve[name])) for name in ("knots", "levels")))
            for number, curve in saved.get("curves", {}).items()
        }
        rules = {"categories": categories, "curves": curves}
        return cls(**saved | tuples | rules | reduced | layout)

    def names(self, columns: Iterable[Any]) -> Iterator[str]:
        """Names of the numbers that these columns of a table become."""
        for name in map(str, columns):
            if name in self.texts:
                count = len(self.texts[name].components)
                yield from (f"{name} component {number}" for number in range(count))
            elif name in self.categories:
                yield from (f"{name} is {word}" for word in self.categories[name])
            else:
                yield from (name, f"{name} is missing") if name in self.fill else (name,)

    def _numbers(self, X: Any, *, refuse: bool = True) -> NDArray[Any]:
        """X as unscaled numbers (n, *shape); `refuse` bad cells of a table."""
        X = channels_first(X, self.shape)
        if is_byte_pictures(X):
            return np.require(X, requirements=["C", "W"])  # torch warns of read-only memory
        if self.reduction is not None:
            return self.reduction.numbers(X)
        if not is_frame(X):
            return np.asarray(X.toarray() if is_sparse(X) else X)
        return np.column_stack([self._column(X[name], refuse) for name in X.columns])

    def _column(self, column: Any, refuse: bool) -> NDArray[np.float64]:
        """The numbers that one column of a table becomes, (n,) or (n, several)."""
        name, missing = str(column.name), column.isna().to_numpy()
        if name in self.texts:
            return self.texts[name].numbers(_texts(column))
        if name in self.categories:
            return self._indicators(column, missing)
        kind = NUMBERS[0] if missing.all() else _kind(column.dropna())
        if kind not in NUMBERS:
            problem = f"held numbers in training, but now holds values of kind {kind!r}"
            raise _bad_column(column.name, problem, "Convert it to numbers.")
        numbers: NDArray[np.float64] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        gaps, infinite = np.flatnonzero(missing), np.flatnonzero(np.isinf(numbers))
        if refuse and len(gaps) and name not in self.fill:
            rows = f"{counted(len(gaps), 'row')} ({some_of(gaps)})"
            problem = f"has no value in {rows}, unlike in training"
            raise _bad_column(column.name, problem, "Fill these cells, or train with such gaps.")
        if refuse and len(infinite):
            problem = f"is infinite in {counted(len(infinite), 'row')} ({some_of(infinite)})"
            raise _bad_column(column.name, problem, "Drop these rows, or cap their values.")
        if name not in self.fill:
            return numbers
        return np.column_stack([np.where(missing, self.fill[name], numbers), missing])

    def _indicators(self, column: Any, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """A 0/1 column for each category, (n, categories)."""
        known, words = self.categories[str(column.name)], _words(column)
        code = {word: number for number, word in enumerate(known)}
        codes = np.where(missing, -1, [code.get(word, -1) for word in words])
        present = sorted(set(words[~missing]))
        if len(present) > 1 and codes.max() < 0:  # a single new word may be a new town
            new, old = (some_of(map(repr, names)) for names in (present, known))
            problem = f"holds no word that training saw: {new}, not {old}"
            raise _bad_column(column.name, problem, "Read it in the same way as the training rows.")
        return np.asarray(codes[:, None] == np.arange(len(known)), dtype=np.float64)


@dataclass(frozen=True)
class Curve:
    """A piecewise linear, increasing map of a column from 0 to 1; outside of it, the identity.

    It goes through quantiles, so that a few far values do not press all others together.

    >>> curve = Curve((0.0, 0.1, 1.0), (0.0, 0.5, 1.0))
    >>> curve(torch.tensor([-1.0, 0.05, 0.1, 0.55, 3.0]))
    tensor([-1.0000,  0.2500,  0.5000,  0.7500,  3.0000])
    """

    knots: tuple[float, ...]  # increasing, from 0 to 1
    levels: tuple[float, ...]  # likewise

    @classmethod
    def of(cls, column: NDArray[np.float64], *, always: bool) -> Self | None:
        """The curve of a column (n,) with the range 0 to 1.

        None for one with few values or, unless `always`, if its values are spread over its range.
        """
        low, high = np.quantile(column, (0.05, 0.95))
        if (high - low >= NARROW and not always) or len(np.unique(column)) < FEW_VALUES:
            return None
        steps = np.linspace(0, 1, KNOTS)
        knots, position, counts = np.unique(
            np.quantile(column, steps), return_inverse=True, return_counts=True
        )
        if len(knots) < 3:
            return None
        levels = np.bincount(position, steps) / counts  # of equal quantiles, the mean
        levels = (levels - levels[0]) / (levels[-1] - levels[0])
        curve = cls(tuple(knots.tolist()), tuple(levels.tolist()))
        return curve if curve.is_sound else None  # knots may be too close to divide by

    @property
    def is_sound(self) -> bool:
        """Whether it can be computed with; a file may hold anything."""
        if not 2 <= len(self.knots) == len(self.levels) <= KNOTS:
            return False
        pair = np.array([self.knots, self.levels])
        ends_fit = (pair[:, 0] == 0).all() and (pair[:, -1] == 1).all()
        steps = np.diff(pair)
        with np.errstate(all="ignore"):
            return bool(ends_fit and (steps > 0).all() and np.isfinite(steps[1] / steps[0]).all())

    def __call__(self, column: Tensor) -> Tensor:
        knots, levels = (column.new_tensor(part) for part in (self.knots, self.levels))
        after = torch.searchsorted(knots, column).clamp(1, len(knots) - 1)
        slope = levels.diff() / knots.diff()
        inside = column.clamp(0, 1)
        curved = levels[after - 1] + (inside - knots[after - 1]) * slope[after - 1]
        return curved + (column - inside)


def _text_rules(X: Any, text: Iterable[str]) -> dict[str, Reduction]:
    """The reductions of the columns of texts."""
    texts: dict[str, Reduction] = {}
    names = {str(name): name for name in X.columns} if is_frame(X) else {}
    for name in [text] if isinstance(text, str) else text or ():
        if name not in names:
            known = some_of(map(repr, names)) if names else "a DataFrame is needed"
            raise InputError(f"text names no column of X: {name!r} (there is: {known}).")
        try:
            texts[name] = Reduction.of_texts(_texts(X[names[name]]))
        except InputError as error:
            raise _bad_column(name, str(error), "Do not name it in `text`.") from error
    return texts


def _texts(column: Any) -> list[str]:
    """The cells as texts; gaps are empty."""
    return ["" if gap else str(cell) for cell, gap in zip(column, column.isna(), strict=True)]


def _table_rules(
    X: Any, texts: dict[str, Reduction]
) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """The categories of a table's other columns, and the medians of those that have gaps."""
    categories: dict[str, tuple[str, ...]] = {}
    fill: dict[str, float] = {}
    refuse_odd_table(X)
    for name in (name for name in X.columns if str(name) not in texts):
        if fault := column_fault(X[name]):
            raise _bad_column(name, fault, TEXT_REMEDY if "texts" in fault else REMEDY)
        known = X[name].dropna()
        if _kind(known) not in NUMBERS:
            categories[str(name)] = tuple(sorted(set(_words(known))))
        elif len(known) < len(X):
            fill[str(name)] = float(known.astype(np.float64).median())
    return categories, fill


def _linear(
    numbers: NDArray[Any], scale: Scale | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What is subtracted from each number of a row, and what it is then divided by, flattened."""
    size = int(np.prod(numbers.shape[1:]))
    if scale is None:
        return np.zeros(size), np.ones(size)
    is_bytes = numbers.dtype == np.uint8 and numbers.ndim > 2
    if is_bytes and (scale == "auto" or (scale == "minmax" and numbers.ndim == 4)):
        return np.zeros(size), np.full(size, 255.0)  # an attack of 2/255 is what people expect
    flat = numbers.reshape(len(numbers), -1)
    blocks = [*row_blocks(flat)]
    low = np.min([flat[rows].min(0) for rows in blocks], 0).astype(np.float64)
    high = np.max([flat[rows].max(0) for rows in blocks], 0).astype(np.float64)
    if scale != "standard":
        shift, width = min_max(low, high)
        if len(numbers.shape) > 2 and _unit(numbers) == 255:  # a constant pixel may change later
            width[low == high] = 255
        return shift, width
    mean = _sum(flat[rows].astype(np.float64) for rows in blocks) / len(flat)
    with np.errstate(over="ignore"):  # an infinite deviation is refused
        squares = _sum((flat[rows].astype(np.float64) - mean) ** 2 for rows in blocks)
    deviation = np.sqrt(squares / len(flat))
    is_constant = low == high  # rounding may leave a deviation
    return np.where(is_constant, low, mean), np.where(is_constant, 1.0, deviation)


def min_max(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shift and scale of columns with these extremes; a constant becomes 1, or stays 0."""
    is_constant = low == high
    low = np.where(is_constant, 0.0, low)
    with np.errstate(over="ignore"):  # an infinite width is refused
        return low, np.where(is_constant & (high == 0), 1.0, high - low)


def _unit(pictures: NDArray[Any]) -> int:
    """The range that pixels are sure to have: from 0, or -1, to 1; to 255; or 0."""
    low, high = float(pictures.min()), float(pictures.max())
    if pictures.dtype.kind == "f" and high <= 1:
        return 1
    is_full = pictures.dtype == np.uint8 or (pictures.dtype.kind == "f" and high > 128)
    return 255 if is_full and low >= 0 and 1 < high <= 255 else 0


def _sum(blocks: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum over the rows of all blocks, added one after another as numpy does for one array."""
    total: Any = None
    for block in blocks:
        rows = block if total is None else np.concatenate([total[None], block])
        total = rows.sum(0)
    return np.asarray(total)


def row_blocks(numbers: Any) -> Iterator[slice]:
    """Slices of rows whose numbers take 32 MiB in float64: X may be a file mapped into memory."""
    size = max(1, BLOCK // max(1, math.prod(numbers.shape[1:])))
    return (slice(start, start + size) for start in range(0, max(1, len(numbers)), size))


def channels_first(X: Any, shape: tuple[int, ...] = ()) -> Any:
    """Return pictures (n, c, h, w) of pictures with channels first or last, anything else as it is.

    An axis of 1, 3 or 4 is that of the channels; if both or none are, the other two axes must be
    equal. Rows of the known `shape` need no guess; grey ones get or lose their axis of channels.

    >>> channels_first(np.zeros((5, 32, 48, 3))).shape, channels_first(np.zeros((5, 3, 4, 4))).shape
    ((5, 3, 32, 48), (5, 3, 4, 4))
    """
    if getattr(X, "ndim", 0) == 4 and X.shape[1:] != shape:
        _, second, third, last = X.shape
        is_first, is_last = second in CHANNELS, last in CHANNELS
        if is_first == is_last:
            is_first, is_last = third == last, second == third
        if is_first == is_last:
            raise InputError(
                f"X has shape {X.shape}, which may be (n, c, h, w) or (n, h, w, c). Transpose it "
                "to (n, c, h, w) with 1, 3 or 4 channels c; with other numbers of them, pad to "
                "h = w."
            )
        X = X if is_first else np.moveaxis(X, -1, 1)
    fits = getattr(X, "ndim", 0) in (3, 4) and (1, *shape)[-3:] == (1, *X.shape[1:])[-3:]
    return X.reshape(len(X), *shape) if fits else X


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of SciPy."""
    return bool(sparse.issparse(X))


def is_byte_pictures(X: Any) -> bool:
    """Whether X is an array of pictures (n, h, w) or (n, c, h, w) of the type uint8."""
    return isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim in (3, 4)


def _placed(pool: Tensor, device: torch.device) -> Tensor:
    """Return rows on the device if they fit there, else in memory that it can copy from."""
    if pool.device == device or pool.nbytes <= room(device):
        return pool.to(device)
    return pool.pin_memory() if device.type == "cuda" else pool


def _bad_column(name: Any, problem: str, remedy: str) -> InputError:
    return InputError(f"Column {name!r} {problem}. {remedy}")


def plain_array(X: Any) -> Any:
    """X without a mask, whose cells become NaN; refuse dates, and what has its rows only once."""
    if isinstance(X, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(X), np.nan, X.data) if np.ma.is_masked(X) else X.data
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise InputError(f"X holds dates or times ({X.dtype}). Turn them into numbers.")
    if isinstance(X, Iterator):
        kind = type(X).__name__
        raise InputError(f"X is a {kind}, which has its rows only once. Pass an array of them.")
    return X


def finite(X: Any) -> Any:
    """X, an array or a sparse matrix, if it holds neither NaN nor infinity."""
    if is_sparse(X):
        entries = X.tocoo(copy=False)
        rows = np.unique(entries.row[~np.isfinite(entries.data)])
    else:
        parts = ((X[part], part.start) for part in row_blocks(X) if X.dtype.kind == "f")
        bad = [
            start + np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(-1))
            for x, start in parts
        ]
        rows = np.concatenate([*bad, []]).astype(int)
    if len(rows):
        raise InputError(
            f"Input X contains NaN or infinity in {counted(len(rows), 'row')} ({some_of(rows)}). "
            "Fill or drop them, or pass a DataFrame: there gaps (NaN) are filled with the median."
        )
    return X


def refuse_odd_table(X: Any, least: int = 1) -> None:
    """Raise unless a DataFrame has `least` rows, a column, and distinct column names."""
    if len(X) < least or X.shape[1] == 0:
        raise InputError(
            f"X has {counted(len(X), 'row')} (n_samples={len(X)}) and "
            f"{counted(X.shape[1], 'column')}; at least {least} and 1 are needed."
        )
    if not X.columns.is_unique:
        names = some_of(map(repr, X.columns[X.columns.duplicated()]))
        raise InputError(f"X has several columns named {names}. Rename or drop all but one.")


def _words(column: Any) -> NDArray[Any]:
    """Cells as text, converted one by one: a gap among integers must not make them floats."""
    return np.array([str(cell) for cell in column.astype(object)], dtype=object)


def column_fault(column: Any) -> str:
    """Return why a column of a table cannot be a feature, or "" if it can.

    Text must be categorical; a column of the type 'category' is declared to be.
    """
    import pandas as pd

    known = column.dropna()
    if known.empty:
        return "has no value in any row"
    is_declared = hasattr(known, "cat")
    kind = _kind(known.cat.categories if is_declared else known)
    if kind in (*DATES, "complex"):
        return f"holds dates, times or complex numbers ({kind})"
    if kind in NUMBERS or is_declared:
        return ""
    cells = known.drop_duplicates() if kind == "string" else known
    if any(isinstance(cell, list | tuple | set | dict | np.ndarray) for cell in cells):
        return "holds lists"
    words = pd.Series(sorted(set(_words(cells))))
    odd = words[pd.to_numeric(words, errors="coerce").isna()]
    if len(odd) <= len(words) / 2:
        others = f", but for {some_of(map(repr, odd))}" if len(odd) else ""
        return f"holds numbers as text{others}"
    is_long = words.str.count(r"\S+").mean() >= LONG
    most = max(FEW_WORDS, min(len(known) / (10 if is_long else 2), MOST_WORDS))
    what = "texts" if is_long else "words"
    fault = f"has {len(words)} different {what} in {len(known)} rows"
    fault += ", too many for categories" if is_long else ", so it names rows"
    return fault if len(words) > most else ""


def _kind(known: Any) -> str:
    """The kind of a column's values in pandas' terms, such as "integer" or "categorical"."""
    import pandas as pd

    return str(pd.api.types.infer_dtype(known))
