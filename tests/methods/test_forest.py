"""Forests as tensors: they answer as scikit-learn, and only trees are read from tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from torch import Tensor

from robustpll import InputError, PLLClassifier
from robustpll.engine.data import Rows
from robustpll.methods import Auto, forest
from robustpll.methods.forest import Forest, rounded_down
from robustpll.methods.wrapped import WrappedModels

RNG = np.random.default_rng(0)
LABELS = np.arange(150) % 3
X = RNG.normal(LABELS[:, None], 1.0, size=(150, 5)).astype(np.float32)
Tensors = dict[str, Tensor]


def grown(kind: Any, **options: Any) -> Any:
    is_classifier = "Classifier" in kind.__name__
    y = LABELS if is_classifier else RNG.dirichlet(np.ones(3), 150)
    return kind(7, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize(
    "kind",
    [RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor],
)
@pytest.mark.parametrize("options", [{}, {"max_leaf_nodes": 9}, {"max_depth": 1}])
def test_a_forest_answers_bit_by_bit_as_scikit_learn(kind: Any, options: Any) -> None:
    trees = grown(kind, **options)
    rows = np.concatenate([X, 3 * RNG.normal(size=(1000, 5)).astype(np.float32)])
    expected = getattr(trees, "predict_proba", trees.predict)(rows)
    exact = Forest.of([trees], torch.float64)
    np.testing.assert_array_equal(exact.probability(torch.from_numpy(rows)), expected)
    short = Forest.of([trees]).probability(torch.from_numpy(rows))
    np.testing.assert_allclose(short, expected, atol=1e-6)
    assert exact.depth == max(tree.tree_.max_depth for tree in trees.estimators_)


def test_rows_on_a_threshold_go_the_same_way() -> None:
    """Thresholds lie between two numbers of float32, and rows are at both of them."""
    near = np.float32(0.1)
    x = np.array([[near], [np.nextafter(near, np.float32(1))]] * 20)
    trees = RandomForestClassifier(5, random_state=0).fit(x, np.arange(40) % 2)
    answers = Forest.of([trees], torch.float64).probability(torch.from_numpy(x))
    np.testing.assert_array_equal(answers, trees.predict_proba(x))
    threshold = RNG.normal(size=1000)
    below = rounded_down(threshold)
    assert (below <= threshold).all()
    assert (np.nextafter(below, np.float32(np.inf)) > threshold).all()


def test_several_forests_have_the_mean_answer_and_rows_do_not_depend_on_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = [grown(RandomForestRegressor), grown(ExtraTreesRegressor)]
    trees, rows = Forest.of(both), torch.from_numpy(X)
    together = trees.probability(rows)
    mean = np.mean([each.predict(X) for each in both], axis=0)
    np.testing.assert_allclose(together, mean, atol=1e-6)
    alone = torch.cat([trees.probability(row[None]) for row in rows])
    assert torch.equal(alone, together)
    monkeypatch.setattr(forest, "AT_ONCE", 1)
    many = trees.probability(rows.repeat(3, 1))
    assert torch.equal(many, together.repeat(3, 1))
    assert trees.probability(rows[:0]).shape == (0, 3)


def test_the_default_method_holds_no_estimator() -> None:
    model = PLLClassifier(Auto(epochs=2, members=5, learner="trees"), random_state=0)
    trees = model.fit(X, LABELS).fitted_.runs[0].parts["trees"]
    assert isinstance(trees, WrappedModels)
    assert isinstance(trees.estimators[0], Forest)
    assert trees.part(slice(0, 1)).without_training_rows().forest is trees.forest
    probability = trees.predict(Rows.scaled(torch.rand(1, 20, 5))).probability
    assert probability.shape == (1, 20, 3)
    np.testing.assert_allclose(probability.sum(-1), 1.0)


def cycle(tensors: Tensors) -> None:
    tensors["children"][1] = torch.tensor([0, 0])


def shared(tensors: Tensors) -> None:
    inner = (tensors["children"][:, 0] != torch.arange(len(tensors["children"]))).nonzero()[:, 0]
    tensors["children"][inner[0], 0] = tensors["children"][inner[0], 1]


def setting(name: str, value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name][-1] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        cycle,
        shared,
        setting("children", 10**6),
        setting("children", -1),
        setting("roots", 10**6),
        setting("roots", -1),
        setting("roots", 0),
        setting("feature", 5),
        setting("feature", -1),
        setting("value", -0.5),
        setting("value", 1e30),
        lambda tensors: tensors.update(value=tensors["value"][1:]),
        lambda tensors: tensors.update(roots=tensors["roots"][1:]),
    ],
)
def test_tensors_that_are_no_trees_are_refused(change: Callable[[Tensors], None]) -> None:
    honest = Forest.of([grown(RandomForestClassifier)]).tensors()
    assert len(Forest.of_tensors(honest, 5).roots) == 7
    tensors = {name: tensor.clone() for name, tensor in honest.items()}
    change(tensors)
    with pytest.raises(ValueError, match="forest"):
        Forest.of_tensors(tensors, 5)


def test_a_chain_of_nodes_is_refused_at_once() -> None:
    """Each level takes time, so that a file must not have a million of them."""
    nodes = torch.arange(20_001)
    children = torch.stack([nodes + 1, nodes + 2], 1)
    children[1::2] = nodes[1::2, None]
    children[-1] = nodes[-1]
    leaves = int((children[:, 0] == nodes).sum())
    chain = Forest(
        torch.zeros_like(nodes), 1.0 * nodes, children, torch.ones(leaves, 1), torch.tensor([0])
    )
    with pytest.raises(ValueError, match="no trees"):
        Forest.of_tensors(
            {n: getattr(chain, n) for n in ("feature", "threshold", "children", "value", "roots")},
            1,
        )
    with pytest.raises(InputError, match="Set max_depth"):
        chain.tensors()
