"""Fitted scikit-learn forests as plain tensors: to predict on any device, to save and to export."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from robustpll.errors import InputError
from robustpll.methods.classical import Layout

AT_ONCE = 2**17  # rows * trees that are walked together: about 6 MiB, in a CPU's cache
LEVELS = 4  # steps between two looks at which rows have reached a leaf
DEEPEST = 1_000  # levels that a file may have: each takes time


def is_forest(estimator: Any) -> bool:
    """Whether an estimator is one of scikit-learn's forests, whose answer is the mean of trees."""
    from sklearn import ensemble as of

    random = of.RandomForestClassifier, of.RandomForestRegressor
    return type(estimator) in (*random, of.ExtraTreesClassifier, of.ExtraTreesRegressor)


@dataclass(frozen=True, eq=False)
class Forest:
    """All trees of one or several forests; the answer is their mean.

    Both children of a leaf are the leaf itself. Values belong to leaves, in the order of nodes.

    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = np.repeat(np.eye(2), 6, axis=0), np.repeat(np.eye(2), 6, axis=0)
    >>> Forest.of([RandomForestRegressor(5).fit(X, y)]).probability(torch.eye(2)[:1])
    tensor([[1., 0.]])
    """

    feature: Tensor  # (nodes,)
    threshold: Tensor  # (nodes,) in float32: rows with x <= threshold go to the first child
    children: Tensor  # (nodes, 2): indices of nodes, larger than the node's, or its own for a leaf
    value: Tensor  # (leaves, k)
    roots: Tensor  # (trees,)

    layout: ClassVar[Layout] = {  # in the file of a stack
        "feature": (torch.int32, ("nodes",)),
        "threshold": (torch.float32, ("nodes",)),
        "children": (torch.int32, ("nodes", 2)),
        "value": (torch.float32, ("leaves", "k")),
        "roots": (torch.int32, ("trees",)),
    }

    @classmethod
    def of(cls, estimators: Sequence[Any], dtype: torch.dtype = torch.float32) -> Self:
        """Read fitted forests; with float64 values, one forest answers bit by bit the same."""
        trees = [tree.tree_ for estimator in estimators for tree in estimator.estimators_]
        ends = np.cumsum([tree.node_count for tree in trees])
        roots = ends - [tree.node_count for tree in trees]
        left, right, feature, threshold = (
            np.concatenate([getattr(tree, name) for tree in trees])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        start, nodes = np.repeat(roots, [tree.node_count for tree in trees]), np.arange(ends[-1])
        is_leaf = left < 0
        children = np.where(is_leaf, nodes, np.stack([left, right]) + start).T
        value = np.concatenate(
            [tree.value.reshape(tree.node_count, -1)[tree.children_left < 0] for tree in trees]
        )
        feature, threshold = (np.where(is_leaf, 0, x) for x in (feature, rounded_down(threshold)))
        arrays = (feature, threshold, children, value, roots)
        forest = cls(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
        return replace(forest, value=forest.value.to(dtype))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors as a file holds them."""
        if self.depth > DEEPEST:
            fault = f"a tree has more than {DEEPEST} levels"
            raise InputError(f"The model is not saved: {fault}. Set max_depth.")
        pairs = {field.name: getattr(self, field.name) for field in fields(self)}
        return {n: t if t.is_floating_point() else t.int() for n, t in pairs.items()}

    @classmethod
    def of_tensors(cls, tensors: dict[str, Tensor], width: int) -> Self:
        """Read finite tensors of the layout; raises ValueError unless they are trees."""
        forest = cls(**{n: t if t.is_floating_point() else t.long() for n, t in tensors.items()})
        node, children = torch.arange(len(forest.children)), forest.children
        inner = children[~forest.is_leaf]
        # each node is a root or the child of one node before it: no cycles, nothing is shared
        reached = torch.cat([inner.flatten(), forest.roots])
        links = torch.cat([children.flatten(), forest.roots])
        if links.min() < 0 or links.max() >= len(node):
            raise ValueError("its forest has links to nodes that are not there")
        rules = [
            bool((inner > node[~forest.is_leaf, None]).all()),
            torch.equal(reached.sort().values, node),
            bool((forest.tree[children] == forest.tree[:, None]).all()),
            len(forest.value) == int(forest.is_leaf.sum()),
            bool(((forest.feature >= 0) & (forest.feature < width)).all()),
            bool(((forest.value >= 0) & (forest.value <= 1 + 1e-6)).all()),  # medians sum to less
        ]
        if not all(rules) or forest.depth > DEEPEST:
            raise ValueError("the nodes of its forest are no trees, or its leaves no probabilities")
        return forest

    @cached_property
    def is_leaf(self) -> Tensor:
        nodes = torch.arange(len(self.children), device=self.children.device)
        return (self.children == nodes[:, None]).all(-1)

    @cached_property
    def leaf_number(self) -> Tensor:
        """The row of `value` of each node that is a leaf, (nodes,)."""
        return (self.is_leaf.cumsum(0) - 1).clamp(min=0)

    @cached_property
    def tree(self) -> Tensor:
        """The number of each node's tree, (nodes,): its nodes follow its root."""
        is_root = torch.zeros_like(self.feature)
        is_root[self.roots] = 1
        return is_root.cumsum(0) - 1

    @cached_property
    def depth(self) -> int:
        """Steps from a root to its farthest leaf, counted up to `DEEPEST` + 1."""
        nodes, depth = self.roots, 0
        while depth <= DEEPEST and not self.is_leaf[nodes].all():
            nodes, depth = self.children[nodes[~self.is_leaf[nodes]]].flatten(), depth + 1
        return depth

    def to(self, device: torch.device) -> Self:
        """A copy on a device."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))

    def probability(self, x: Tensor) -> Tensor:
        """The mean of the trees' answers for rows x (n, d), (n, k)."""
        pieces = torch.split(x.float(), max(256, AT_ONCE // len(self.roots)))
        return torch.cat([self._mean(piece.contiguous()) for piece in pieces])

    def _mean(self, x: Tensor) -> Tensor:
        count, children = len(self.roots), self.children.flatten()
        node = self.roots.repeat(len(x))  # (n * trees,)
        start = torch.arange(len(x), device=x.device).repeat_interleave(count) * x.shape[1]
        leaf, where = torch.empty_like(node), torch.arange(len(node), device=x.device)
        while len(where):
            for _ in range(LEVELS):  # a leaf leads to itself
                is_right = x.take(start + self.feature.take(node)) > self.threshold.take(node)
                node = children.take(2 * node + is_right)
            leaf[where] = node
            unfinished = (~self.is_leaf[node]).nonzero()[:, 0]
            where, node, start = where[unfinished], node[unfinished], start[unfinished]
        return embedding_bag(self.leaf_number[leaf].view(len(x), count), self.value, mode="mean")


def rounded_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 up to each threshold: x <= threshold stays true or false."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
