"""What a network of the user's own means for X: some inputs are not scaled, but passed on."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from robustpll.engine.layers import seeded
from robustpll.engine.modules import EMBEDDINGS, Layout, Unpacking, is_dict, is_several, own_module
from robustpll.errors import InputError
from robustpll.estimator.features import is_byte_pictures, is_sparse
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import as_pandas, is_frame
from robustpll.methods import Auto, Method


def with_layout(method: Method, X: Any, y: Any) -> tuple[Any, Layout | None]:
    """Return the method whose network unpacks X, and the layout of X, if it has one.

    A dict or tuple of arrays has a layout, and integers for a network with an embedding have one.
    """
    network = getattr(method, "network", "")
    if isinstance(network, str):
        if is_dict(X):
            raise InputError(
                "X is a dict of arrays, which only a network of your own takes. Pass a module as "
                "`network` of a method that trains networks, or one array as X."
            )
        return method, None
    if not is_several(X) and not _are_ids(X, network, y):
        return method, None
    layout = Layout.of(X)
    changes: dict[str, Any] = {"network": Unpacking(network, layout)}
    is_moved = getattr(method, "moves_rows", False) or np.any(getattr(method, "adversary", 0) or 0)
    if is_moved or getattr(method, "learner", "") == "trees":
        raise InputError(
            f"{method.title} with these settings changes rows or grows trees, which needs scaled "
            "features; X has ids or several arrays. Use adversary=0 and learner='network', or "
            "another method."
        )
    if isinstance(method, Auto):
        changes |= {"learner": "network", "adversary": 0.0}
    return replace(method, **changes), layout  # type: ignore[type-var]


def _are_ids(X: Any, network: Any, y: Any) -> bool:
    """Whether X is an array of integers, no table and no pictures, and the network embeds them."""
    if is_frame(as_pandas(X)) or is_sparse(X) or is_byte_pictures(X):
        return False
    try:
        array = np.asarray(X)
    except ValueError:  # `fit` says what is wrong with it
        return False
    if array.dtype.kind not in "iu" or array.ndim < 2:
        return False
    with seeded(0, torch.device("cpu")):
        module = own_module(network, array.shape[1:], len(Candidates.of(y).classes))
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())
