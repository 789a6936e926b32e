"""The gradient of each model is clipped by its own norm."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from robustpll.engine.layers import clip_gradients, tensors_of
from robustpll.engine.train import train
from robustpll.methods import Proden, RobustPllAt, Valen

METHODS = {
    "layers": Proden(epochs=3, clip=0.1),
    "copies": Proden(epochs=3, clip=0.1, network=lambda shape, k: nn.Linear(shape[0], k)),
    "attacks": RobustPllAt(epochs=3, clip=0.05),
    "parts": Valen(epochs=2, clip=0.5),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_model_alone_equals_itself_in_a_bundle(name: str, task_of: Any) -> None:
    method = METHODS[name]
    bundle = train(method, task_of(3, 7, 4))
    alone = train(method, task_of(7))
    assert torch.equal(alone.label_weights[0], bundle.label_weights[1])
    theirs = [tensor[i : i + 1] for tensor, i in _of_model(bundle.net, 1)]
    ours = [tensor[i : i + 1] for tensor, i in _of_model(alone.net, 0)]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _of_model(net: nn.Module, model: int) -> list[tuple[Tensor, int]]:
    pairs = tensors_of(net)
    stacked = [(t, model) for t, index in pairs if isinstance(index, slice)]
    return stacked + [(t[None], 0) for t, index in pairs if index == model]


@pytest.mark.parametrize("name", METHODS)
def test_norms_are_at_most_the_limit_and_those_of_torch(name: str, task_of: Any) -> None:
    method, norms, scaled = METHODS[name], list[Tensor](), list[bool]()

    def watched(net: nn.Module, most: float, models: int) -> None:
        after = [p.grad for p in net.parameters() if p.grad is not None]  # changed in place
        before = [gradient.clone() for gradient in after]
        clip_gradients(net, most, models)
        norms.append(torch.stack([gradient.norm() for gradient in after]).norm())
        copies = [nn.Parameter(torch.zeros_like(g)) for g in before]
        for copied, gradient in zip(copies, before, strict=True):
            copied.grad = gradient
        torch.nn.utils.clip_grad_norm_(copies, most)
        for ours, theirs in zip(after, copies, strict=True):
            torch.testing.assert_close(ours, theirs.grad)
        scaled.append(not torch.equal(before[0], after[0]))

    with patch("robustpll.engine.train.clip_gradients", watched):
        train(method, task_of(0))
    assert max(norms) <= method.clip * (1 + 1e-5)
    assert any(scaled)


def test_without_a_limit_nothing_is_computed(task_of: Any) -> None:
    plain = train(Proden(epochs=2), task_of(0))
    with patch("robustpll.engine.train.clip_gradients", side_effect=AssertionError):
        again = train(Proden(epochs=2, clip=0), task_of(0))
    large = train(Proden(epochs=2, clip=1e9), task_of(0))
    assert torch.equal(plain.label_weights, again.label_weights)
    assert torch.equal(plain.label_weights, large.label_weights)
