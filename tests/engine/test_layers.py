"""Layers with a model axis do what torch's own do, one model at a time."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.layers import BatchNorm, Dropout, Linear, Stack
from robustpll.engine.random import Draws

DOUBLE = torch.empty(0, dtype=torch.float64)
MODELS, ROWS, INPUTS, OUTPUTS = 3, 16, 5, 4


def draws_of(*seeds: int) -> Draws:
    return Draws.of(seeds or range(MODELS), "layers", like=DOUBLE)


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (MODELS, ROWS, INPUTS)
    return [
        3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1 for _ in range(count)
    ]


def torch_twins(linear: Linear, norm: BatchNorm) -> list[nn.Sequential]:
    """The same models of torch's own layers, one by one."""
    twins = []
    for m in range(MODELS):
        twin = nn.Sequential(nn.Linear(INPUTS, OUTPUTS), nn.BatchNorm1d(OUTPUTS)).double()
        with torch.no_grad():
            twin[0].weight.copy_(linear.weight[m].T)
            twin[0].bias.copy_(linear.bias[m, 0])
            twin[1].weight.copy_(norm.weight[m, 0])
            twin[1].bias.copy_(norm.bias[m, 0])
        twins.append(twin)
    return twins


def test_linear_and_norm_train_and_evaluate_as_torch_does() -> None:
    draws = draws_of()
    linear, norm = Linear(INPUTS, OUTPUTS, draws), BatchNorm(OUTPUTS, draws)
    with torch.no_grad():
        norm.weight.copy_(draws.uniform(1, OUTPUTS))
        norm.bias.copy_(draws.uniform(1, OUTPUTS))
    ours = nn.Sequential(linear, norm)
    twins = torch_twins(linear, norm)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    others = torch.optim.SGD([p for twin in twins for p in twin.parameters()], lr=0.1)
    for x in batches(4):
        optimizer.zero_grad()
        others.zero_grad()
        found = ours(x)
        meant = torch.stack([twin(rows) for twin, rows in zip(twins, x, strict=True)])
        torch.testing.assert_close(found, meant, rtol=0, atol=1e-12)
        found.cos().sum().backward()
        meant.cos().sum().backward()
        optimizer.step()
        others.step()
    for m, twin in enumerate(twins):
        for name in ("running_mean", "running_var"):
            found, meant = getattr(norm, name)[m, 0], getattr(twin[1], name)
            torch.testing.assert_close(found, meant, rtol=0, atol=1e-12)
    (x,) = batches(1)
    ours.eval()
    meant = torch.stack([twin.eval()(rows) for twin, rows in zip(twins, x, strict=True)])
    torch.testing.assert_close(ours(x), meant, rtol=0, atol=1e-12)


def test_evaluation_changes_no_running_statistics() -> None:
    norm = BatchNorm(INPUTS, draws_of()).eval()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(batches(1)[0])
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_linear_starts_uniformly_within_its_bound() -> None:
    linear = Linear(100, 300, draws_of())
    for values in (linear.weight.detach(), linear.bias.detach()):
        spread = torch.tensor([one.abs().max() for one in values])
        assert (spread <= 0.1).all()
        assert (spread >= 0.098).all()
    n = linear.weight[0].numel()
    parts = torch.histc(linear.weight[0].detach(), bins=10, min=-0.1, max=0.1)
    assert ((parts - n / 10).abs() <= 4 * (n / 10) ** 0.5).all()


def test_models_start_differently_and_alone_as_in_a_bundle() -> None:
    bundle, alone = Linear(5, 4, draws_of(7, 8)), Linear(5, 4, draws_of(8))
    assert not torch.equal(bundle.weight[0], bundle.weight[1])
    assert torch.equal(bundle.weight[1], alone.weight[0])
    assert torch.equal(bundle.bias[1], alone.bias[0])


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.8])
def test_dropout_zeroes_at_its_rate_and_scales_the_rest(rate: float) -> None:
    x = torch.ones(2, 200, 100, dtype=torch.float64)
    layer = Dropout(rate, 100, draws_of(0, 1))
    layer.draw(200)
    y = layer(x)
    n = x[0].numel()
    dropped = (y == 0).sum((1, 2)).double() / n
    assert ((dropped - rate).abs() <= 4 * (rate * (1 - rate) / n) ** 0.5).all()
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)))


def test_dropout_is_the_identity_in_evaluation_and_at_rate_zero() -> None:
    x = batches(1)[0]
    layers = [Dropout(0.5, x.shape[-1], draws_of()).eval(), Dropout(0.0, x.shape[-1], draws_of())]
    for layer in layers:
        layer.draw(x.shape[1])
        assert torch.equal(layer(x), x)


def test_dropout_draws_for_each_model_alone() -> None:
    x = torch.ones(2, 30, 30, dtype=torch.float64)
    bundle, alone = Dropout(0.5, 30, draws_of(3, 4)), Dropout(0.5, 30, draws_of(4))
    for _ in range(2):
        bundle.draw(30)
        alone.draw(30)
        both = bundle(x)
        assert torch.equal(both[1], alone(x[1:])[0])
        agreement = ((both[0] > 0) == (both[1] > 0)).double().mean().item()
        assert agreement == pytest.approx(0.5, abs=0.07)


def small() -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, OUTPUTS), nn.BatchNorm1d(4)
    )


def test_stack_equals_its_separate_modules() -> None:
    stack = Stack(small, draws_of()).eval()
    x = batches(1)[0]
    assert torch.equal(stack(x)[1], stack.copies[1](x[1]))
    assert stack(x).dtype == torch.float64
    weights = [copy[0].weight for copy in stack.copies]
    assert not torch.equal(weights[0], weights[1])


def test_stack_leaves_the_global_generator_untouched() -> None:
    before = torch.get_rng_state()
    Stack(small, draws_of())(batches(1)[0])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("disturbance", [0, 5])
def test_a_copy_that_drops_out_gives_the_same_alone_and_in_a_bundle(disturbance: int) -> None:
    bundle, alone = Stack(small, draws_of(1, 2)), Stack(small, draws_of(2))
    masks = []
    for x in batches(3):
        both = bundle(x[:2])
        torch.rand(disturbance)
        assert torch.equal(both[1], alone(x[1:2])[0])
        masks.append(F.relu(both[1].detach()))
    assert not torch.equal(masks[0] > 0, masks[1] > 0)


def test_stack_draws_anew_in_each_call() -> None:
    stack = Stack(lambda: nn.Dropout(0.5), draws_of())
    x = torch.ones(MODELS, ROWS, INPUTS, dtype=torch.float64)
    assert not torch.equal(stack(x), stack(x))
