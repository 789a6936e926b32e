"""How much each row counts: sample weights and class weights become one number a row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates

ClassWeight = Mapping[Any, float] | str | None


def row_weights(
    candidates: Candidates, class_weight: ClassWeight, sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Weights (n,) with mean 1: only their ratios matter.

    A row's class weight is the mean of its candidates' weights under the prior.

    >>> y = Candidates.of([{"a"}, {"a", "b"}, {"b"}])
    >>> row_weights(y, {"a": 3.0, "b": 1.0}, None)
    array([1.5, 1. , 0.5])
    """
    n = len(candidates)
    weight = _numbers("sample_weight", 1.0 if sample_weight is None else sample_weight)
    weight = np.full(n, weight) if weight.ndim == 0 else weight
    if weight.shape != (n,):
        raise InputError(
            f"sample_weight needs shape ({n},), one number a row; got shape {weight.shape}."
        )
    if class_weight is not None:
        of_class = _class_weights(candidates, class_weight)
        weight = weight / weight.max() * (candidates.prior @ (of_class / of_class.max()))
    if not weight.any():
        raise InputError(
            "All rows have weight zero: sample_weight or class_weight leaves nothing to learn."
        )
    weight = weight / weight.max()  # first, so that the mean of huge weights does not overflow
    return np.asarray(weight / weight.mean())


def _class_weights(candidates: Candidates, class_weight: ClassWeight) -> NDArray[np.float64]:
    """One weight for each class, (k,)."""
    if isinstance(class_weight, Mapping):
        names = candidates.classes.tolist()
        unknown = [name for name in class_weight if name not in names]
        if unknown:
            raise InputError(
                f"class_weight names unknown classes ({some_of(map(repr, unknown))}): the classes "
                f"are {some_of(map(repr, names), 10)}. Correct the names."
            )
        return _numbers("class_weight", [class_weight.get(name, 1.0) for name in names])
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = candidates.prior.sum(0, dtype=np.float64)
        return np.asarray(np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0))
    raise InputError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}.")


def _numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Finite numbers of at least 0, not all zero."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers; got {values!r}.") from error
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        raise InputError(
            f"{name} must be finite, not negative, and not all zero; got "
            f"{some_of(numbers.ravel())}."
        )
    return numbers
