"""Training and prediction on rows that are read in pieces, because they exceed the memory."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.distributed import current_process
from robustpll.engine.history import progress_bars, reporting
from robustpll.engine.modules import FARTHEST
from robustpll.engine.networks import try_network
from robustpll.engine.stream import WINDOW_NUMBERS, Scratch, WindowTask
from robustpll.errors import InputError, counted, is_count
from robustpll.estimator.abstention import Reference
from robustpll.estimator.features import Features, ScaledRows, min_max
from robustpll.estimator.fitting import check_training, checked_callbacks
from robustpll.labels.parsing import as_names, checked_classes
from robustpll.methods import METHODS, Method
from robustpll.methods.base import DeepMethod

HOOKS = ("fit", "end_epoch", "finish")  # methods that change them may need all rows
SCALES = ("method", "minmax", None)


class StreamedRows:
    """Rows that are read in pieces: the base of `robustpll.ParquetRows`."""

    frames: Callable[[Any], Iterator[Any]]


def feature_names(model: Any) -> tuple[str, ...]:
    """Return the names of a fitted model's features."""
    check_is_fitted(model, "fitted_")
    if len(model.features_.shape) > 1:
        raise InputError("The model was fitted with pictures, which cannot be streamed.")
    if not hasattr(model, "feature_names_in_"):
        rule = "Fit it with a DataFrame or ParquetRows"
        raise InputError(f"The model was fitted without names of features. {rule}.")
    return tuple(map(str, model.feature_names_in_))


def is_streamable(method: Method) -> bool:
    """Whether a method uses no rows outside of the batch, so that a window of rows is enough."""
    if not isinstance(method, DeepMethod):
        return False
    if any(getattr(type(method), hook) is not getattr(DeepMethod, hook) for hook in HOOKS):
        return False
    rows = Rows.scaled(torch.zeros(1, 2, 1))
    task = Task.of(rows, torch.ones(1, 2, 2, dtype=torch.bool), (0,)).repeated(method.members)
    return not method.spread(task.models, like=task.prior).begin(task).memory


def fit_streamed(model: Any, method: Any, X: Any, passed: dict[str, Any]) -> None:
    """Fit a classifier by two passes over X, then by windows of rows in scratch files."""
    _refuse(model, method, X, passed)
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    scale = model._scale_for(method)
    features, classes, n = _scan(X, scale)
    (d,), k, size = features.shape, len(classes), method.batch_size
    with closing(X.pieces()) as pieces:
        two = [np.resize(column[:2], 2) for column in next(pieces).columns]
    rows = Rows.scaled(torch.from_numpy(_scaled(two, features))[None])
    try_network(method, rows, k, is_scaled=scale is not None)
    window = WINDOW_NUMBERS // (d + 10 * k * method.members) if X.window is None else X.window
    window = max(1, window // size) * size  # only the last one ends with a smaller batch
    folder = _folder(X, n * (4 * d + k // 8 + 1 + 4 * method.members * (2 * k + 1) + 12 * k))
    with Scratch((n, d, k), window, seed, folder) as scratch:
        for piece in X.pieces():
            candidates = piece.candidates(classes)
            prior = candidates.prior if X.has_prior else None
            scratch.add(_scaled(piece.columns, features), candidates.matrix, prior)
        if scratch.left.any():
            raise InputError("X has fewer rows than before: it changed while it was read.")
        task = _window(scratch, d, seed, chosen_device(model.device))
        bars = progress_bars() if model.verbose else nullcontext()
        with bars, reporting(*checked_callbacks(model.callbacks)):
            fitted = method.fit(task)
        sample = task.sample()
        results = (fitted.label_weights[0], fitted.opinion[0])  # of the last window
        check_training(fitted, sample, *results, stopped_early=False)
        model.label_weights_ = scratch.in_order(scratch.label_weights)
        model.labels_ = scratch.in_order(scratch.predicted, classes)
    model.features_, model.classes_ = features, classes
    model.feature_names_in_, model.n_features_in_ = np.array(X.names, dtype=object), d
    model._set_fitted(fitted)
    model.opinion_ = model.held_out_ = None  # they would take as much memory as the rows
    model.reference_ = Reference.of(model.fitted_, sample.rows, seed)


def _scaled(columns: list[NDArray[Any]], features: Features) -> NDArray[np.float32]:
    """Return the rows (b, d) of these columns, scaled in float64 as in memory."""
    rows = np.empty((len(columns[0]), len(columns)), np.float32)
    parts = zip(columns, features.shift, features.scale, strict=True)
    for number, (column, shift, scale) in enumerate(parts):
        rows[:, number] = (column.astype(np.float64) - shift) / scale
    return rows


def _window(scratch: Scratch, d: int, seed: int, device: torch.device) -> WindowTask:
    """Return a task with tensors for the largest window."""
    size = int(scratch.sizes.max())
    unit, positions = torch.ones((1, 1, d), device=device), torch.arange(size, device=device)[None]
    rows = ScaledRows(torch.zeros((size, d), device=device), positions, 0 * unit, unit)
    prior = torch.zeros((1, size, scratch.k), device=device)
    weight = torch.ones((1, size), device=device)
    return WindowTask(rows, prior.bool(), prior, weight, (seed,), scratch=scratch)


def _refuse(model: Any, method: Method, X: Any, passed: dict[str, Any]) -> None:
    """Raise InputError for what needs all rows in memory."""
    if not is_streamable(method):
        able = ", ".join(name for name, kind in METHODS.items() if is_streamable(kind()))
        raise InputError(
            f"{method.title} needs all rows in memory. Methods that can be streamed are {able}: "
            "use PLLClassifier(RobustPll(...)), or fit a sample of the rows."
        )
    passed |= {"class_weight": model.class_weight, "text": model.text or None}
    passed |= {"watch": model.validation_share, "checkpoint": model.checkpoint}
    passed |= {"cluster": model.cluster, "warm_start": getattr(model, "warm_start", False) or None}
    passed["distributed()"] = None if current_process().count == 1 else True
    if names := [name for name, value in passed.items() if value is not None]:
        raise InputError(f"{names[0]} cannot be used with streamed rows. Leave it out.")
    if model.scale not in SCALES:
        raise InputError(f"scale={model.scale!r} needs all rows in memory. Use 'minmax' or None.")
    if not (X.window is None or is_count(X.window, 2)):
        rule = "it must be the number of rows in memory, 2 or more"
        raise InputError(f"window={X.window!r}: {rule}.")


def _scan(X: Any, scale: str | None) -> tuple[Features, NDArray[Any], int]:
    """Read all rows; return how they are scaled, the names of the classes, and their number."""
    d, n, names = len(X.names), 0, set[Any]()
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for piece in X.pieces():
        low = np.minimum(low, [column.min() for column in piece.columns])
        high = np.maximum(high, [column.max() for column in piece.columns])
        n, names = n + len(piece.columns[0]), names | piece.classes
    if n < 2:
        raise InputError(f"X has {counted(n, 'row')} to learn from; at least 2 are needed.")
    shift, width = (np.zeros(d), np.ones(d)) if scale is None else min_max(low, high)
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite width is refused
        farthest = np.maximum(abs(low - shift), abs(high - shift)) / width
    if wide := [name for name, far in zip(X.names, farthest, strict=True) if not far <= FARTHEST]:
        rule = "holds numbers too large to compute with. Divide its values"
        raise InputError(f"Column {wide[0]!r} {rule}.")
    classes = checked_classes(np.unique(as_names([*names])))
    numbers = (tuple(shift.tolist()), tuple(width.tolist()))
    return Features(X.names, (d,), {}, {}, *numbers), classes, n


def _folder(X: Any, needed: int) -> Path:
    """Return the folder of the scratch files; raise if its disk has less space than `needed`."""
    folder = Path(tempfile.gettempdir() if X.scratch is None else X.scratch)
    if not folder.is_dir():
        raise InputError(f"scratch={str(folder)!r}: there is no such folder. Make it.")
    free = shutil.disk_usage(folder).free
    if needed > free:
        sizes = f"about {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free"
        raise InputError(f"Scratch files in {folder} need {sizes}. Pass a folder as `scratch`.")
    return folder
