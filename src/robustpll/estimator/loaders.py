"""Rows and candidates of PyTorch's datasets and data loaders, collected into arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from robustpll.engine.modules import is_several
from robustpll.errors import InputError
from robustpll.labels.parsing import SETS, array_of, object_array

COLLATED = "Pass the dataset, 0/1 vectors, or a collate_fn that returns lists of sets."


def pairs_of(loader: Any, y: Any = None) -> tuple[Any, Any]:
    """Return the rows of a dataset or loader of pairs as one array, and `y` of their candidates.

    Other rows, and their `y`, are returned as they are.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> pairs_of(TensorDataset(torch.eye(2), torch.tensor([[1, 1], [0, 1]])))[1]
    array([[1, 1],
           [0, 1]])
    """
    if not isinstance(loader, Dataset | DataLoader):
        return loader, y
    if y is not None:
        kind = type(loader).__name__
        raise InputError(f"X is a {kind}, whose pairs hold the candidates. Leave y out.")
    rows, labels = list[NDArray[Any]](), list[Any]()
    for place, item, is_batch in _items(loader):
        if not isinstance(item, list | tuple) or len(item) != 2:
            rule = "must be a pair of a row and its candidates"
            raise InputError(f"{place} of X {rule}, but is {_described(item)}.")
        rows.append(_rows(item[0], place, is_batch, rows))
        for where, label in _labels(item[1], place, is_batch, len(rows[-1])):
            labels.append(_label(label, where))
            if _vector_size(labels[-1]) != _vector_size(labels[0]):
                rule = "Give all rows labels, all rows sets, or all rows 0/1 vectors of one length"
                raise InputError(f"{where} of X has candidates {_described(label)}. {rule}.")
    X = _joined(rows, loader)
    if _vector_size(labels[0]):
        return X, np.stack(labels)
    has_sets = any(isinstance(label, SETS) for label in labels)
    return X, object_array(labels) if has_sets else array_of(labels)


def rows_of(loader: Any) -> Any:
    """Return the rows of a dataset or loader, or a tensor, as an array, and others as they are."""
    if not isinstance(loader, Dataset | DataLoader):
        return array_of_tensor(loader)
    rows = list[NDArray[Any]]()
    for place, item, is_batch in _items(loader):  # second parts of pairs are ignored
        is_pair = isinstance(item, list | tuple) and len(item) in (1, 2) and np.ndim(item[0])
        rows.append(_rows(item[0] if is_pair else item, place, is_batch, rows))
    return _joined(rows, loader)


def array_of_tensor(value: Any) -> Any:
    """Return a tensor of any device as an array, anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().to_dense().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _items(loader: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the place of each item, the item, and whether it is a batch."""
    is_batch = isinstance(loader, DataLoader) and loader.batch_sampler is not None
    items = loader
    if not isinstance(loader, DataLoader | IterableDataset):
        if not hasattr(loader, "__len__"):
            kind = type(loader).__name__
            raise InputError(f"X is a {kind} without __len__. Define it, or use IterableDataset.")
        items = (loader[number] for number in range(len(loader)))
    by_default = is_batch and loader.collate_fn is default_collate
    for number, item in enumerate(_mixed_items(loader) if by_default else items):
        place = f"{'Batch' if is_batch else 'Item'} {number}"
        last = item[-1] if by_default and isinstance(item, list | tuple) and item else ()
        if isinstance(last, list | tuple) and any(not isinstance(part, str) for part in last):
            raise InputError(
                f"{place} of X has candidates that torch's default_collate has mixed. {COLLATED}"
            )
        yield place, item, is_batch


def _mixed_items(loader: Any) -> Iterator[Any]:
    """Yield batches of torch's default_collate, which cannot join sets."""
    try:
        yield from loader
    except TypeError as error:
        if "default_collate" not in str(error):
            raise
        raise InputError(f"{str(error).partition(';')[0]}. {COLLATED}") from error


def _rows(rows: Any, place: str, is_batch: bool, before: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the row or rows of an item as an array (b, *shape), of the shape of those before."""
    try:
        array = np.asarray(array_of_tensor(rows))
    except (ValueError, TypeError):  # lists of several lengths, bfloat16
        array = np.empty(0, dtype=object)
    array = array if is_batch else array[None]
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        rule = "a batch has an array of rows" if is_batch else "a row is an array of numbers"
        remedy = " Collect a dict or tuple of arrays, and pass it as X." if is_several(rows) else ""
        raise InputError(f"{place} of X: {rule}, but this is {_described(rows)}.{remedy}")
    if before and array.shape[1:] != before[0].shape[1:]:
        first, this = before[0].shape[1:], array.shape[1:]
        raise InputError(f"{place} of X has rows of shape {this}, but those before have {first}.")
    return array


def _labels(labels: Any, place: str, is_batch: bool, rows: int) -> Iterator[tuple[str, Any]]:
    """Yield the place and the candidates of each row of an item."""
    if not is_batch:
        yield place, labels
        return
    if not hasattr(labels, "__len__") or len(labels) != rows:
        raise InputError(f"{place} of X has {rows} rows, but candidates {_described(labels)}.")
    yield from ((f"{place}, row {number},", label) for number, label in enumerate(labels))


def _label(label: Any, place: str) -> Any:
    """Return a label, a set or list of names, or a 0/1 vector (k,); refuse an empty one."""
    label = array_of_tensor(label)
    if isinstance(label, np.ndarray) and label.shape == (1,):  # a label, as there are two classes
        label = label[0]
    if isinstance(label, np.ndarray | np.generic) and (not label.ndim or label.dtype.kind in "OU"):
        label = label.tolist()
    if isinstance(label, np.ndarray):
        is_empty = not label.any()
    else:
        is_empty = label is None or (isinstance(label, SETS) and not label)
    if is_empty:
        raise InputError(f"{place} of X has no candidate class. Each row needs at least one.")
    return label


def _vector_size(label: Any) -> tuple[int, ...]:
    """Return the shape of a 0/1 vector; () for names."""
    return label.shape if isinstance(label, np.ndarray) else ()


def _joined(rows: list[NDArray[Any]], loader: Any) -> NDArray[Any]:
    if not rows:
        raise InputError(f"X is a {type(loader).__name__} without rows.")
    return np.concatenate(rows)


def _described(value: Any) -> str:
    """Return the type and size of a value, for messages."""
    kind = type(value).__name__
    if hasattr(value, "shape"):
        return f"a {kind} of shape {tuple(value.shape)}"
    return f"a {kind} of length {len(value)}" if hasattr(value, "__len__") else f"a {kind}"
