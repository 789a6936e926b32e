"""What a user's network froze stays as it was built; the rest learns."""

import numpy as np
import pytest
import torch
from torch import nn

from robustpll import InputError, PLLClassifier
from robustpll.methods import (
    CroSel,
    DeepMethod,
    Proden,
    ProdenAdvEns,
    ProdenEdl,
    ProdenL2,
    Rc,
    RobustPll,
    RobustPllAt,
    RobustPllEns,
)

WEIGHT = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
X = np.random.default_rng(0).normal(size=(60, 4))
SETS = [{row % 3, (row + row // 3) % 3} for row in range(60)]


def with_frozen_body(shape: tuple[int, ...], k: int) -> nn.Module:
    """A body of known numbers, of which one is a negative zero."""
    body = nn.Sequential(nn.Linear(shape[0], 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5))
    with torch.no_grad():
        body[0].weight.copy_(WEIGHT)
        body[0].bias.fill_(-0.0)
    return nn.Sequential(body.requires_grad_(False).eval(), nn.Linear(6, k))


METHODS_TRIED: list[DeepMethod] = [
    *(Proden(weight_decay=0.1, averaged=0.5), RobustPll(members=2, update="after")),
    *(RobustPllEns(), RobustPllAt(), ProdenAdvEns(), ProdenL2(decay="l2"), ProdenEdl()),
    *(CroSel(), Rc()),
]


@pytest.mark.parametrize("watch", [None, 0.2], ids=["all epochs", "best epoch"])
@pytest.mark.parametrize("method", METHODS_TRIED, ids=lambda method: method.name)
def test_frozen_layers_are_bit_by_bit_as_they_were_built(
    method: DeepMethod, watch: float | None
) -> None:
    model = PLLClassifier(method, random_state=0, watch=watch)
    model.set_params(method__network=with_frozen_body, method__epochs=3).fit(X, SETS)
    for copy in model.fitted_.net.copies:
        linear, norm = copy[0][0], copy[0][1]
        assert torch.equal(linear.weight, WEIGHT)
        assert torch.signbit(linear.bias).all()
        assert torch.equal(norm.running_mean, torch.zeros(6))  # it was built in evaluation mode
        assert torch.equal(norm.weight, torch.ones(6))
    assert np.isfinite(model.predict_proba(X)).all()


def test_layers_that_are_not_frozen_learn() -> None:
    methods = (Proden(epochs=epochs, network=with_frozen_body) for epochs in (1, 3))
    fits = [PLLClassifier(method, random_state=0).fit(X, SETS) for method in methods]
    once, longer = (model.fitted_.net.copies[0][1].weight for model in fits)
    assert (once != longer).any()


@pytest.mark.parametrize("module", [nn.Linear(4, 3).requires_grad_(False), nn.Flatten()])
def test_a_network_with_nothing_to_learn_is_refused(module: nn.Module) -> None:
    with pytest.raises(InputError, match=r"nothing to learn.* Leave at least one layer trainable"):
        PLLClassifier(Proden(network=lambda shape, k: module, epochs=1)).fit(X, SETS)


def test_a_module_that_a_callable_gives_out_each_time_is_not_changed() -> None:
    """Members share nothing, and a second fit begins where the first did."""
    shared = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    before = [parameter.clone() for parameter in shared.parameters()]
    method = Proden(epochs=2, members=2, network=lambda shape, k: shared)
    model = PLLClassifier(method, random_state=0)
    first = model.fit(X, SETS).predict_proba(X)
    assert all(map(torch.equal, before, shared.parameters()))
    assert all(parameter.requires_grad for parameter in shared.parameters())
    np.testing.assert_array_equal(model.fit(X, SETS).predict_proba(X), first)


def test_a_module_that_cannot_be_copied_is_trained_as_it_is() -> None:
    def build(shape: tuple[int, ...], k: int) -> nn.Module:
        module = nn.Linear(shape[0], k)
        module.computed = module.weight * 2  # type: ignore[assignment]  # refuses to be copied
        return module

    model = PLLClassifier(Proden(epochs=2, network=build)).fit(X, SETS)
    assert np.isfinite(model.predict_proba(X)).all()
