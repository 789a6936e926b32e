"""Users' own modules: how they are built, what they get and return, and their parameter groups."""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from robustpll.errors import InputError, is_count, is_number, some_of
from robustpll.labels.parsing import refuse_rows

ParameterGroups = Callable[[nn.Module], Iterable[Mapping[str, Any]]] | None
OPTIONS = ("lr", "weight_decay")  # of a parameter group
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
TYPES = {"b": "bool", "i": "int64", "u": "int64", "f": "float32"}  # by numpy's letter
READABLE = {"bool": "biu", "int64": "biu", "float32": "biuf"}  # numpy's letters of each type
TOO_LARGE = 2**24  # float32 holds all smaller integers
FARTHEST = 2.0**64  # bound on other numbers: networks multiply them in float32, up to 3e38
PASS = "Pass a module, or a callable (shape, k) -> module."


@dataclass(frozen=True)
class Layout:
    """How several arrays, or integers, lie side by side in rows of numbers.

    >>> X = {"ids": np.array([[3, 1], [2, 0]]), "weight": np.array([0.5, 1.5])}
    >>> layout = Layout.of(X)
    >>> layout.types, layout.packed(X).tolist()
    (('int64', 'float32'), [[3.0, 1.0, 0.5], [2.0, 0.0, 1.5]])
    """

    form: Literal["array", "tuple", "dict"]
    names: tuple[str, ...]  # of the arrays of a dict: arguments of `forward`
    shapes: tuple[tuple[int, ...], ...]  # of one row in each array
    types: tuple[str, ...]  # of each array

    @classmethod
    def of(cls, X: Any) -> Self:
        """The layout of a dict or tuple of arrays, or of an array."""
        arrays = _arrays(X).values()
        form: Any = "dict" if is_dict(X) else "tuple" if is_several(X) else "array"
        shapes, types = [array.shape[1:] for array in arrays], [TYPES[a.dtype.kind] for a in arrays]
        return cls(form, tuple(X) if form == "dict" else (), tuple(shapes), tuple(types))

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """From its fields after a round trip by JSON; raises any error if they are no layout."""
        types, shapes = tuple(saved["types"]), tuple(map(tuple, saved["shapes"]))
        count = {"array": 1, "tuple": len(types), "dict": len({*saved["names"]})}[saved["form"]]
        names = tuple(map(str, saved["names"]))
        sizes = [size for shape in shapes for size in shape]
        is_sound = {*types} <= READABLE.keys() and all(is_count(size, least=1) for size in sizes)
        counts = {count, len(types), len(shapes), len(names) if saved["form"] == "dict" else count}
        if not is_sound or counts != {count} or not count:
            raise ValueError("its layout of arrays cannot be computed with")
        return cls(saved["form"], names, shapes, types)

    @property
    def sizes(self) -> list[int]:
        """How many numbers a row of each array has."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def shape(self) -> Any:
        """The shape of a row that a callable gets: of an array, or a dict or tuple of shapes."""
        several = dict(zip(self.names, self.shapes, strict=True)) if self.names else self.shapes
        return self.shapes[0] if self.form == "array" else several

    def packed(self, X: Any) -> NDArray[np.float32]:
        """The arrays of X side by side, (n, numbers); refuses others than those of the layout."""
        arrays, places = _arrays(X), self.names or range(len(self.types))
        labels = ["X"] if self.form == "array" else [f"X[{place!r}]" for place in places]
        if {*arrays} != {*labels}:
            words = ", ".join(labels)
            raise InputError(f"X must hold {words}, as in training; it holds {some_of(arrays)}.")
        columns = []
        for label, shape, kind in zip(labels, self.shapes, self.types, strict=True):
            array = arrays[label]
            if array.shape[1:] != shape or array.dtype.kind not in READABLE[kind]:
                raise InputError(
                    f"{label} has rows of shape {array.shape[1:]} and type {array.dtype}; in "
                    f"training, they had {shape} and {kind}. Convert, pad or cut it."
                )
            flat = array.reshape(len(array), -1)
            _refuse_values(label, flat)
            columns.append((flat != 0 if kind == "bool" else flat).astype(np.float32))
        return np.concatenate(columns, 1)

    def call(self, module: nn.Module, rows: Tensor) -> Any:
        """What a module returns for rows (b, numbers), which it gets as arrays."""
        dtypes = {"int64": torch.int64, "bool": torch.bool, "float32": rows.dtype}
        columns = zip(torch.split(rows, self.sizes, 1), self.shapes, self.types, strict=True)
        arrays = [part.reshape(-1, *shape).to(dtypes[kind]) for part, shape, kind in columns]
        if self.names:
            return module(**dict(zip(self.names, arrays, strict=True)))
        return module(*arrays)


def is_several(X: Any) -> bool:
    """Whether X is a dict or a tuple of arrays; a tuple of lists is an array of rows."""
    is_tuple = isinstance(X, tuple) and bool(X) and all(getattr(x, "ndim", 0) for x in X)
    return is_tuple or is_dict(X)


def is_dict(X: Any) -> bool:
    """Whether X is a dict, and no sparse matrix that behaves as one."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def _arrays(X: Any) -> dict[str, NDArray[Any]]:
    """The arrays of X by their names in messages, with equally many rows."""
    items = dict(X if is_dict(X) else enumerate(X)) if is_several(X) else {}
    if is_dict(X) and not (X and all(isinstance(name, str) for name in X)):
        raise InputError(
            "X must be a dict with an array for each argument of the network's forward(), such as "
            f"{{'input_ids': ids}}; its keys are {[*X]!r:.100}."
        )
    arrays = {}
    for label, part in {f"X[{n!r}]": x for n, x in items.items()}.items() or [("X", X)]:
        try:
            array = np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part)
        except (ValueError, TypeError):  # lists of different lengths, bfloat16
            array = np.empty((), dtype=object)
        if not array.size or not array.ndim or array.dtype.kind not in TYPES:
            raise InputError(
                f"{label} must be an array of integers, floats or bools, with a row for each of y; "
                f"got type {array.dtype} and shape {array.shape}. Pad rows to one length."
            )
        arrays[label] = array
    if len({*map(len, arrays.values())}) > 1:
        sizes = ", ".join(f"{label} has {len(array)}" for label, array in arrays.items())
        raise InputError(f"The arrays of X must have equally many rows: {sizes}.")
    return arrays


def _refuse_values(label: str, flat: NDArray[Any]) -> None:
    """Raise InputError if numbers (n, numbers) cannot be computed with in float32."""
    if flat.dtype.kind == "f":
        bad, most = ~(np.abs(flat) <= FARTHEST), "NaN, infinity or numbers beyond 1e19"
        remedy = "Fill or drop them."
    else:
        bad, most = (flat <= -TOO_LARGE) | (flat >= TOO_LARGE), "integers of 2**24 or more"
        remedy = "Renumber ids from 0; pass measured numbers as floats."
    if bad.any():
        refuse_rows(bad.any(-1), f"{label} has {most}", remedy)


@dataclass(frozen=True, eq=False)
class Unpacking:
    """A user's network with the layout of its inputs; `network` takes it as a callable."""

    network: Any
    layout: Layout

    def __call__(self, shape: tuple[int, ...], k: int) -> nn.Module:
        return own_module(self.network, self.layout.shape, k)


def own_module(network: Any, shape: Any, k: int) -> nn.Module:
    """Copy a user's module, or build one by a user's class or callable (shape, k) -> module."""
    if isinstance(network, nn.Module):
        try:
            return copy.deepcopy(network)
        except Exception as error:
            problem = f"network is a module that cannot be copied ({error})"
            raise InputError(f"{problem}. Pass a callable (shape, k) -> module.") from error
    name = getattr(network, "__name__", type(network).__name__)
    arguments = _arguments(name, network, (shape, k))
    try:
        module = network(*arguments)
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        call = f"{name}({', '.join(map(repr, arguments))})"
        reason = f"{call} raised {type(error).__name__}: {error}"
        raise InputError(f"network cannot be built: {reason}. {PASS}") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"network must return a torch.nn.Module; {name} returned {module!r:.100}.")
    # It may return the same module every time. One that holds computed tensors, as with
    # torch.nn.utils.weight_norm, or lazy buffers cannot be copied.
    with suppress(RuntimeError, ValueError):
        module = copy.deepcopy(module)
    return module


def _arguments(name: str, network: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of shape and k that a class or callable takes: both or none."""
    try:
        signature = inspect.signature(network)
    except ValueError:  # of one that is not written in Python
        return arguments
    # What a class takes with defaults, as a width, is rarely a shape.
    for possible in ((), arguments) if isinstance(network, type) else (arguments, ()):
        with suppress(TypeError):
            signature.bind(*possible)
            return possible
    raise InputError(
        "network is called with the shape of a row and the number of classes, or without "
        f"arguments; {name}{signature} takes others. {PASS}"
    )


def logits_in(output: Any) -> Tensor:
    """The logits that a module returned: a tensor, or the `logits` or the first entry of others."""
    if not isinstance(output, Tensor):
        is_dict = isinstance(output, Mapping)
        logits = output.get("logits") if is_dict else getattr(output, "logits", None)
        is_tuple = isinstance(output, tuple | list) and bool(output)
        output = output[0] if logits is None and is_tuple else logits
    if not isinstance(output, Tensor):
        raise InputError(
            "network must return logits: a tensor, an object or dict with `logits`, or a tuple "
            "that begins with them."
        )
    return output


def refuse_ids(layer: Any, arguments: tuple[Any, ...]) -> None:
    """Raise InputError for ids that an embedding does not have; CUDA would stop the process.

    A training step on CUDA is not checked, because it would wait for the device.
    """
    ids = arguments[0] if arguments else None
    if not isinstance(ids, Tensor) or not ids.numel() or (ids.is_cuda and layer.training):
        return
    if ids.is_floating_point():
        raise InputError("An embedding of the network takes integers. Pass its array as int64.")
    low, high = (int(number) for number in ids.aminmax())
    if low < 0 or high >= layer.num_embeddings:
        raise InputError(
            f"An embedding of the network has ids from 0 to {layer.num_embeddings - 1}; X has ids "
            f"from {low} to {high}. Renumber them, or build a larger embedding."
        )


def is_frozen(module: nn.Module, name: str) -> bool:
    """Whether no parameter of a part learns; a part without any is as the part that holds it."""
    while not (parameters := [*module.get_submodule(name).parameters()]) and name:
        name = name.rpartition(".")[0]
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def regroup(optimizer: Optimizer, modules: Iterable[nn.Module], groups: ParameterGroups) -> None:
    """Give the parameters of modules the learning rates and weight decays of a user's groups.

    Frozen parameters are left out. Parameters in no group keep the optimizer's values.
    """
    if groups is None:
        return
    rest = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    grouped: dict[Any, list[Tensor]] = {}  # by options: equal groups of all modules are one
    for module in modules:
        unused = {id(parameter) for parameter in module.parameters()}
        returned = groups(module)
        for options, parameters in map(_group, returned if returned else [returned]):
            if not unused.issuperset(map(id, parameters)) or len({*parameters}) < len(parameters):
                raise InputError(
                    "parameter_groups returned a parameter twice, or one that the module does not "
                    "have. Use the parameters of the module that it gets, a copy, once each."
                )
            unused -= {*map(id, parameters)}
            learning = [rest.pop(id(p)) for p in parameters if id(p) in rest]
            grouped.setdefault(options, []).extend(learning)
    grouped.setdefault((), []).extend(rest.values())
    optimizer.param_groups.clear()
    for options, parameters in grouped.items():
        if parameters:
            optimizer.add_param_group({"params": parameters, **dict(options)})


def _group(group: Any) -> tuple[Any, list[Tensor]]:
    """The options of a user's group, and its parameters."""
    options = dict(group) if isinstance(group, Mapping) else {}
    parameters = options.pop("params", None)
    numbers = [name in OPTIONS and is_number(v) and v >= 0 for name, v in options.items()]
    if parameters is None or not all(numbers):
        raise InputError(
            "parameter_groups must return a list of dicts with 'params' and, where they differ "
            f"from the method's, 'lr' and 'weight_decay' of at least 0; got {group!r:.100}."
        )
    parameters = [parameters] if isinstance(parameters, Tensor) else [*parameters]
    unnamed = [p[1] if isinstance(p, tuple) else p for p in parameters]  # named_parameters()
    return tuple(sorted(options.items())), unnamed
