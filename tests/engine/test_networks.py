"""Networks by name and by callable."""

import pytest
import torch
from torch import nn

from robustpll.engine.networks import NETWORK_NAMES, Residual, build_network
from robustpll.engine.random import Blank, Draws
from robustpll.errors import InputError

SHAPES = [(8, 8), (28, 28), (3, 32, 32)]
DRAWS = (0, 1)


def built(network: object, shape: tuple[int, ...], k: int = 7) -> nn.Module:
    return build_network(network, shape, k, Draws.of(DRAWS, like=torch.empty(0)))


@pytest.mark.parametrize("shape", [*SHAPES, (4, 4), (1, 5, 9)])
@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_every_network_maps_pictures_to_logits(name: str, shape: tuple[int, ...]) -> None:
    logits = built(name, shape)(torch.rand(2, 6, *shape))
    assert logits.shape == (2, 6, 7)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_gradient_reaches_every_parameter(name: str, shape: tuple[int, ...]) -> None:
    net = built(name, shape)
    x = torch.rand(2, 8, *shape, generator=torch.Generator().manual_seed(0))
    net(x).square().sum().backward()
    untouched = [
        name for name, p in net.named_parameters() if p.grad is None or not p.grad.count_nonzero()
    ]
    assert untouched == []


@pytest.mark.parametrize("shape", [(64,), (3, 28), (28, 3), (2, 3, 8, 8), ()])
@pytest.mark.parametrize("name", ["lenet", "resnet"])
def test_rows_that_are_no_pictures_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"network='{name}' needs pictures.*network='mlp'"):
        built(name, shape)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_mlp_takes_rows_of_any_shape(shape: tuple[int, ...]) -> None:
    net = built("mlp", shape)
    assert net(torch.rand(2, 6, *shape)).shape == (2, 6, 7)
    names = [name for name, _ in net.named_children()]
    assert names[1:4] == ["linear1", "relu1", "norm1"]
    assert [net.get_submodule(f"linear{i}").weight.shape[-1] for i in (1, 2, 3)] == [300] * 3


def test_a_callable_builds_one_model_of_each_seed() -> None:
    net = built(lambda shape, k: nn.Linear(shape[0], k), (5,))
    x = torch.rand(1, 6, 5).expand(2, -1, -1)
    logits = net(x)
    assert logits.shape == (2, 6, 7)
    assert not torch.equal(logits[0], logits[1])


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_a_network_is_laid_out_without_numbers(name: str) -> None:
    blank = build_network(name, (8, 8), 7, Blank.models_of(2, torch.float32))
    real = built(name, (8, 8)).state_dict()
    found = blank.state_dict()
    assert {key: value.shape for key, value in found.items()} == {
        key: value.shape for key, value in real.items()
    }
    assert all(value.is_meta for value in found.values())


def test_a_residual_block_that_adds_nothing_passes_every_other_pixel() -> None:
    block = Residual(2, 3, stride=2)
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(4, 2, 5, 5)
    found = block(x)
    assert torch.equal(found[:, :2], x[:, :, ::2, ::2])
    assert (found[:, 2:] == 0).all()
