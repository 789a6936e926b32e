"""Layers, networks, rows and draws: each model of a bundle is as it would be alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from robustpll.engine.data import Rows
from robustpll.engine.layers import BatchNorm, Dropout, Linear, Stack, steady_statistics
from robustpll.engine.networks import (
    CONVOLUTIONAL,
    NETWORK_NAMES,
    Residual,
    build_network,
    named_network,
)
from robustpll.engine.random import Draws, seed_of
from robustpll.errors import InputError

DOUBLE = torch.empty(0, dtype=torch.float64)
MODELS, ROWS, INPUTS, OUTPUTS = 3, 16, 5, 4
POOL = torch.tensor([[0.0, 2, 5, 0], [1, 2, 5, 0], [4, 2, 5, 0], [6, 8, -5, 3]])
KEY = st.lists(st.one_of(st.integers(), st.text()), min_size=1, max_size=3)


def draws_of(*seeds: int) -> Draws:
    return Draws.of(seeds or range(MODELS), "layers", like=DOUBLE)


def batches(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (count, MODELS, ROWS, INPUTS)
    return [*(3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 1)]


def scaled(rows: Rows) -> Tensor:
    return rows.x(rows.everything)


def built(network: object, shape: tuple[int, ...], k: int = 7) -> nn.Module:
    return build_network(network, shape, k, Draws.of((0, 1), like=torch.empty(0)))


# Layers


@pytest.mark.parametrize("momentum", [0.1, None])
def test_steady_statistics_do_not_count_passes(momentum: float | None) -> None:
    """With momentum None, running statistics are means over all batches that count."""
    norms = [nn.BatchNorm1d(INPUTS, momentum=momentum).double() for _ in range(2)]
    for batch in batches(4):
        for norm, passes in zip(norms, (0, 3), strict=True):
            with steady_statistics(norm):
                for _ in range(passes):
                    norm(100 * batch[0])
            norm(batch[0])
    for name in ("running_mean", "running_var"):
        assert torch.equal(norms[0].get_buffer(name), norms[1].get_buffer(name))


def test_linear_and_norm_train_and_evaluate_as_torch_does() -> None:
    draws = draws_of()
    linear, norm = Linear(INPUTS, OUTPUTS, draws), BatchNorm(OUTPUTS, draws)
    with torch.no_grad():
        norm.weight.copy_(draws.uniform(1, OUTPUTS))
        norm.bias.copy_(draws.uniform(1, OUTPUTS))
    ours, twins = nn.Sequential(linear, norm), []
    for m in range(MODELS):
        twin = nn.Sequential(nn.Linear(INPUTS, OUTPUTS), nn.BatchNorm1d(OUTPUTS)).double()
        parameters = (linear.weight[m].T, linear.bias[m, 0], norm.weight[m, 0], norm.bias[m, 0])
        with torch.no_grad():
            for target, source in zip(twin.parameters(), parameters, strict=True):
                target.copy_(source)
        twins.append(twin)

    def check(x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = ours(x)
        expected = torch.stack([twin(rows) for twin, rows in zip(twins, x, strict=True)])
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
        return outputs, expected

    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    others = torch.optim.SGD([p for twin in twins for p in twin.parameters()], lr=0.1)
    for x in batches(4):
        optimizer.zero_grad()
        others.zero_grad()
        for outputs in check(x):
            outputs.cos().sum().backward()
        optimizer.step()
        others.step()
    for module in (ours, *twins):
        module.eval()
    before = norm.running_mean.clone(), norm.running_var.clone()
    check(batches(1)[0])  # evaluation changes no running statistics
    assert torch.equal(before[0], norm.running_mean)
    assert torch.equal(before[1], norm.running_var)


def test_linear_starts_uniformly_within_its_bound_and_alone_as_in_a_bundle() -> None:
    linear, alone = Linear(100, 300, draws_of(7, 8)), Linear(100, 300, draws_of(8))
    for values in (linear.weight.detach(), linear.bias.detach()):
        spread = values.abs().flatten(1).amax(-1)
        assert ((spread <= 0.1) & (spread >= 0.098)).all()
    n = linear.weight[0].numel()
    parts = torch.histc(linear.weight[0].detach(), bins=10, min=-0.1, max=0.1)
    assert ((parts - n / 10).abs() <= 4 * (n / 10) ** 0.5).all()
    assert not torch.equal(linear.weight[0], linear.weight[1])
    assert torch.equal(linear.weight[1], alone.weight[0])
    assert torch.equal(linear.bias[1], alone.bias[0])


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_dropout_zeroes_at_its_rate_for_each_model_alone(rate: float) -> None:
    x = torch.ones(2, 200, 100, dtype=torch.float64)
    layer, alone = Dropout(rate, 100, draws_of(3, 4)), Dropout(rate, 100, draws_of(4))
    for _ in range(2):
        layer.draw(200)
        alone.draw(200)
        y = layer(x)
        assert torch.equal(y[1], alone(x[1:])[0])
        n = x[0].numel()
        dropped = (y == 0).sum((1, 2)).double() / n
        assert ((dropped - rate).abs() <= 4 * (rate * (1 - rate) / n) ** 0.5).all()
        torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)))
        agreement = ((y[0] > 0) == (y[1] > 0)).double().mean().item()
        assert agreement == pytest.approx(rate**2 + (1 - rate) ** 2, abs=0.02)
    for same in (layer.eval(), Dropout(0.0, 100, draws_of(0, 1))):
        same.draw(200)
        assert torch.equal(same(x), x)


def small() -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, OUTPUTS), nn.BatchNorm1d(4)
    )


def test_a_copy_in_a_stack_is_as_alone_and_leaves_the_global_generator() -> None:
    before = torch.get_rng_state()
    bundle, alone = Stack(small, draws_of(1, 2)), Stack(small, draws_of(2))
    for x in batches(3):
        both = bundle(x[:2])
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(5)
        before = torch.get_rng_state()
        assert torch.equal(both[1], alone(x[1:2])[0])
    assert not torch.equal(bundle(x[:2]), bundle(x[:2]))  # it drops out anew in each call
    bundle.eval()
    assert torch.equal(bundle(x[:2])[1], bundle.copies[1](x[1]))
    assert bundle(x[:2]).dtype == torch.float64
    assert not torch.equal(bundle.copies[0][0].weight, bundle.copies[1][0].weight)


# Networks


SHAPES = [(8, 8), (3, 32, 32), (28, 28), (4, 4), (1, 5, 9)]
LARGE = {"convnet", "resnet9", "resnet18", "wide_resnet"}  # for pictures of at least 8 x 8


@pytest.mark.parametrize(
    ("name", "shape"),
    [(n, shape) for n in NETWORK_NAMES for shape in SHAPES[: 3 if n in LARGE else 5]],
)
def test_every_network_maps_pictures_to_logits_and_learns_with_every_parameter(
    name: str, shape: tuple[int, ...]
) -> None:
    net = built(name, shape)
    logits = net(torch.rand(2, 4, *shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, 4, 7)
    assert torch.isfinite(logits).all()
    meta = torch.empty(0, device="meta")
    blank = build_network(name, shape, 7, Draws.of((0, 1), like=meta)).state_dict()
    assert all(value.is_meta for value in blank.values())  # laid out without numbers
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    assert {key: value.shape for key, value in blank.items()} == shapes
    if shape in ((8, 8), (3, 32, 32)):
        logits.square().sum().backward()
        gradients = {name: p.grad for name, p in net.named_parameters()}
        unused = [key for key, g in gradients.items() if g is None or not g.count_nonzero()]
        assert unused == []


@pytest.mark.parametrize("shape", [(64,), (3, 28), (28, 3), (2, 3, 8, 8), ()])
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_rows_that_are_no_pictures_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"network='{name}' needs pictures.*network='mlp'"):
        built(name, shape)


@pytest.mark.parametrize(
    ("name", "count"),
    # published numbers, and a bias of the last layer that ResNet-9 has not
    [("resnet9", 6_573_120 + 10), ("resnet18", 11_173_962), ("wide_resnet", 1_467_610)],
)
def test_networks_have_the_published_number_of_weights(name: str, count: int) -> None:
    one = Draws.of((0,), like=torch.empty(0, device="meta"))
    net = build_network(name, (3, 32, 32), 10, one)
    assert sum(parameter.numel() for parameter in net.parameters()) == count
    embedded = build_network(name, (3, 32, 32), 10, one, embedding=128)
    width = 128 if name == "wide_resnet" else 512
    added = width * (width + 1) + (width + 1) * 128
    assert sum(parameter.numel() for parameter in embedded.parameters()) == count + added


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_network_starts_with_evidence_for_every_class(name: str) -> None:
    """By ReLU, a class whose output is never above 0 could not learn."""
    logits = built(name, (16, 16))(torch.rand(2, 32, 16, 16))
    assert ((logits > 0).sum(1) > 0).all()
    with pytest.raises(InputError, match="h and w at least 8; the rows of X have shape \\(7, 20"):
        built(name, (7, 20))


def test_auto_is_an_mlp_for_rows_and_tiny_pictures_and_convolutions_for_others() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for shape in ((64,), (8, 8), (3, 15, 20)):
        assert named_network("auto", shape, cuda) == named_network("auto", shape, cpu) == "mlp"
    assert named_network("auto", (28, 28), cpu) == "convnet"
    assert named_network("auto", (3, 32, 32), cuda) == "resnet9"
    assert named_network("wide", (28, 28), cuda) == "wide"


@pytest.mark.parametrize("network", ["small", "convnet", None])
def test_embeddings_have_length_one_and_predictions_are_logits(network: str | None) -> None:
    def own(shape: tuple[int, ...], k: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, k))

    draws = Draws.of((0, 1), like=torch.empty(0))
    net, x = build_network(network or own, (8, 8), 7, draws, embedding=5), torch.rand(2, 9, 8, 8)
    outputs = net(x)
    assert outputs.shape == (2, 9, 12)
    torch.testing.assert_close(outputs[..., 7:].norm(dim=-1), torch.ones(2, 9))
    assert net.eval()(x).shape == (2, 9, 7)
    with pytest.raises(InputError, match=r"torch\.nn\.Sequential that ends in a linear layer"):
        build_network(lambda shape, k: nn.Flatten(), (8, 8), 7, draws, embedding=5)


def test_mlp_takes_rows_of_any_shape_and_a_callable_builds_a_model_per_seed() -> None:
    for shape in ((5,), (2, 3)):
        net = built("mlp", shape)
        assert net(torch.rand(2, 6, *shape)).shape == (2, 6, 7)
        names = [name for name, _ in net.named_children()]
        assert names[1:4] == ["linear1", "relu1", "norm1"]
        assert [net.get_submodule(f"linear{i}").weight.shape[-1] for i in (1, 2, 3)] == [300] * 3
    logits = built(lambda shape, k: nn.Linear(shape[0], k), (5,))(torch.ones(2, 6, 5))
    assert logits.shape == (2, 6, 7)
    assert not torch.equal(logits[0], logits[1])


def test_a_residual_block_that_adds_nothing_passes_every_other_pixel() -> None:
    block = Residual(2, 3, stride=2)
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(4, 2, 5, 5)
    y = block(x)
    assert torch.equal(y[:, :2], x[:, :, ::2, ::2])
    assert (y[:, 2:] == 0).all()


# Rows of one pool, scaled for each model by its own rows


def test_each_model_is_scaled_by_its_own_training_rows() -> None:
    rows = Rows.of(POOL, torch.tensor([[0, 1, 2], [1, 3, 1]]))
    assert (rows.models, len(rows)) == (2, 3)
    assert scaled(rows)[0].tolist() == [[0, 1, 1, 0], [0.25, 1, 1, 0], [1, 1, 1, 0]]
    assert scaled(rows)[1].tolist() == [[0, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]
    indices = torch.tensor([[2, 0], [1, 1]])  # each model's own
    assert torch.equal(
        rows.x(indices), scaled(rows).gather(1, indices[..., None].expand(-1, -1, 4))
    )
    many = rows.repeated(3)
    assert many.models == 6
    assert many.pool is rows.pool
    assert torch.equal(scaled(many), scaled(rows).repeat_interleave(3, 0))
    pictures = Rows.of(torch.arange(24.0).view(4, 2, 3), torch.tensor([[0, 1, 3], [2, 0, 1]]))
    assert pictures.shape == (2, 3)
    assert scaled(pictures)[0, :, 0, 0].tolist() == torch.tensor([0, 1 / 3, 1]).tolist()
    train = Rows.of(POOL.double(), torch.tensor([[0, 2], [0, 3]]))
    pool = torch.tensor([[2.0, 2, 5, 0], [8, 1, 10, 2]]).double()
    others = scaled(train.others(pool, torch.tensor([[1], [1]])))
    expected = torch.tensor([[[2, 0.5, 2, 2]], [[8 / 6, -1 / 6, 1.5, 2 / 3]]]).double()
    torch.testing.assert_close(others, expected, rtol=0, atol=1e-7)


@settings(max_examples=50)
@given(arrays(float, (4, 3), elements=st.floats(-1e6, 1e6)), st.permutations(range(4)))
def test_scaled_rows_span_zero_to_one_and_the_pool_stays(values: object, order: list[int]) -> None:
    pool = torch.tensor(values)
    before = pool.clone()
    rows = Rows.of(pool, torch.tensor([order, order[:2] * 2]))
    x = scaled(rows)
    x += 1  # what a reader does to its rows must not matter either
    x -= 1
    assert torch.equal(pool, before)
    assert rows.pool is pool
    low, high = x.amin(1), x.amax(1)
    assert ((low > -1e-9) & (high < 1 + 1e-9)).all()
    constant = pool[rows.indices].amin(1) == pool[rows.indices].amax(1)
    assert torch.equal(low == high, constant)
    assert (high[~constant] > 1 - 1e-9).all()


# What a model draws depends on its seed and purpose alone


@settings(max_examples=50)
@given(KEY, KEY)
def test_seeds_differ_exactly_where_keys_do(one: list[object], other: list[object]) -> None:
    assert (seed_of(*one) == seed_of(*other)) == (one == other)
    assert 0 <= seed_of(*one) < 2**63
    assert seed_of(0, "proden") == 3935966653241340632  # in every process
    assert seed_of(np.uint8(3), "proden") == seed_of(3, "proden")


def test_a_model_draws_by_seed_and_purpose_and_the_same_alone_and_in_a_bundle() -> None:
    before = torch.get_rng_state()
    bundle, alone = (Draws.of(seeds, "task", like=DOUBLE) for seeds in ([5, 6, 7], [6]))
    assert bundle.models == 3
    assert torch.equal(bundle.uniform(4, 2)[1], alone.uniform(4, 2)[0])
    order = bundle.order(9)
    assert torch.equal(order[1], alone.order(9)[0])
    assert torch.equal(order.sort(-1).values, torch.arange(9).expand(3, -1))
    assert not torch.equal(order[0], order[1])
    assert bundle.seeds()[1] == alone.seeds()[0]
    keys: list[tuple[list[int], tuple[str, ...]]] = [([0, 1], ("a",)), ([0], ("b",)), ([0], ())]
    rows = [row for seeds, key in keys for row in Draws.of(seeds, *key, like=DOUBLE).uniform(5)]
    assert len({tuple(row.tolist()) for row in rows}) == 4
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_fill_the_unit_interval_however_they_are_split(dtype: torch.dtype) -> None:
    whole, draws = (Draws.of([0, 1], like=torch.empty(0, dtype=dtype)) for _ in range(2))
    numbers = whole.uniform(20_000, 3)
    assert numbers.dtype == dtype
    assert torch.equal(numbers, torch.cat([draws.uniform(n, 3) for n in (1, 44, 19_955)], 1))
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert ((numbers.mean((1, 2)) - 0.5).abs() <= 4 * (1 / 12 / 60_000) ** 0.5).all()
