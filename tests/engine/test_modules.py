"""A user's own modules: their forms, what they get and return, what is frozen, their groups."""

import copy
import json
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from robustpll import InputError, PLLClassifier, RobustPLLClassifier
from robustpll.engine.modules import Layout
from robustpll.engine.train import Training, one_cycle
from robustpll.methods import DeepMethod, Pico, Proden, RobustPll

RANDOM = np.random.default_rng(0)
LABELS = np.arange(60) % 3
X = RANDOM.normal(size=(60, 8)) + 4 * np.eye(8)[LABELS]
STEP = Training.step


class WithoutArguments(nn.Sequential):
    def __init__(self, width: int = 16) -> None:
        super().__init__(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))


class OfShape(nn.Sequential):
    def __init__(self, shape: tuple[int, ...], k: int) -> None:
        super().__init__(nn.Linear(shape[0], 16), nn.ReLU(), nn.Linear(16, k))


class Needy(nn.Linear):
    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__(inputs, outputs)


def fitted(network: Any, rows: Any = X, **settings: Any) -> Any:
    method = Proden(**{"network": network, "epochs": 30, "learning_rate": 0.01, **settings})
    return PLLClassifier(method, random_state=0).fit(rows, LABELS)


# Forms


@pytest.mark.parametrize(
    "network",
    [WithoutArguments(), WithoutArguments, OfShape, OfShape((8,), 3), lambda: OfShape((8,), 3)],
    ids=["instance", "class", "class of shape and k", "another instance", "callable"],
)
def test_a_module_a_class_and_a_callable_learn(network: Any) -> None:
    assert fitted(network).score(X, LABELS) > 0.9


def test_a_users_module_is_copied_for_each_member_and_never_changed() -> None:
    module = WithoutArguments().eval()
    module[0].requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    model = fitted(module, members=2)
    members = model.fitted_.net.copies
    assert not torch.equal(members[0][2].weight, members[1][2].weight)
    assert all(torch.equal(member[0].weight, before["0.weight"]) for member in members)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not module.training
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]
    assert model.method.network is module


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        (nn.Linear(8, 10), r"each of 3 classes.* \(2, 10\)\. .* last layer by nn.Linear\(8, 3\)"),
        (nn.Linear(9, 3), r"failed on a few rows of the shape \(8,\): RuntimeError.*forward\(\)"),
        (nn.Sequential(nn.Linear(8, 3), nn.Unflatten(1, (3, 1))), r"returned \(2, 3, 1\)"),
        (nn.Linear, r"Linear\(\(8,\), 3\) raised TypeError.*Pass a module, or a callable"),
        (Needy, r"without arguments; Needy\(inputs: int, .* takes others\. Pass a module"),
        (lambda shape, k: None, "must return a torch.nn.Module; <lambda> returned None"),
        (nn.MultiheadAttention(8, 2), r"missing 2 required positional arguments"),
        (nn.Embedding(5, 3), "embeds numbers of X as integers"),
    ],
)
def test_a_network_that_does_not_suit_is_refused_in_a_sentence(network: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        fitted(network)


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = nn.Linear(8, 3)
    module.computed = module.weight * 2  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"cannot be copied.*Pass a callable"):
        fitted(module)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_module_of_another_precision_is_trained_in_float32(dtype: torch.dtype) -> None:
    model = fitted(WithoutArguments().to(dtype))
    assert {p.dtype for p in model.fitted_.net.parameters()} == {torch.float32}
    assert model.score(X, LABELS) > 0.9


# Outputs, as torchvision, timm and Hugging Face have them


class Outputs(dict[str, Any]):
    """A dict whose entries are attributes, too."""

    __getattr__ = dict.__getitem__


class Answering(WithoutArguments):
    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        logits = super().forward(x)
        if self.form == "in training":  # as Inception of torchvision
            return Outputs(logits=logits, aux=None) if self.training else logits
        forms: dict[str, Any] = {"dict": {"loss": 0, "logits": logits}, "tuple": (logits, x)}
        forms["list"] = [logits, x]
        return forms.get(self.form, x.sum())


@pytest.mark.parametrize("form", ["in training", "dict", "tuple", "list"])
def test_logits_are_taken_from_what_a_module_returns(form: str) -> None:
    plain, other = WithoutArguments(), Answering(form)
    other.load_state_dict(plain.state_dict())
    expected = fitted(plain).predict_proba(X)
    np.testing.assert_array_equal(fitted(other).predict_proba(X), expected)


def test_outputs_without_logits_are_refused() -> None:
    module = Answering()
    with pytest.raises(InputError, match=r"returned \(\)"):
        fitted(module)
    module.forward = lambda x: {"out": x}  # type: ignore[method-assign]
    with pytest.raises(InputError, match="must return logits: a tensor, an object or dict"):
        fitted(module)


# Frozen statistics


def test_norms_with_frozen_parameters_keep_their_statistics() -> None:
    def norms(affine: bool = True) -> nn.Sequential:
        options: Any = {"affine": affine, "track_running_stats": True}
        parts = [nn.Linear(8, 6), nn.BatchNorm1d(6, **options), nn.Unflatten(1, (2, 3))]
        return nn.Sequential(*parts, nn.InstanceNorm1d(2, **options), nn.Flatten())

    frozen = nn.Sequential(norms().requires_grad_(False), norms(False).requires_grad_(False))
    frozen[1][0] = nn.Linear(6, 6).requires_grad_(False)
    learning = nn.BatchNorm1d(6)
    module = nn.Sequential(frozen, learning, nn.Linear(6, 3))
    model = fitted(module, members=2, epochs=3)
    for member in model.fitted_.net.copies:
        for part in (member[0][body][layer] for body in (0, 1) for layer in (1, 3)):
            assert torch.equal(part.running_mean, torch.zeros_like(part.running_mean))
            assert int(part.num_batches_tracked) == 0
        assert member[1].running_mean.abs().min() > 0
    assert frozen[0][1].training  # the user's own


# Parameter groups


def rates_of(method: DeepMethod) -> tuple[list[dict[str, float]], Any]:
    """Learning rate and weight decay of each weight in each step, and the fitted model."""
    steps: list[dict[str, float]] = []

    def watched(self: Training, indices: torch.Tensor, stage: int) -> None:
        names = {id(p): name for name, p in self.net.named_parameters()}
        groups = self.optimizer.param_groups
        steps.append(
            {names[id(p)]: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
        )
        STEP(self, indices, stage)

    with patch.object(Training, "step", watched):
        model = PLLClassifier(method, random_state=0).fit(X, LABELS)
    return steps, model


def body_slowly(module: Any) -> list[dict[str, Any]]:
    return [
        {"params": module[0].parameters(), "lr": 1e-4},
        {"params": [module[2].weight], "weight_decay": 0.1},
    ]


@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["Adam", "SGD"])
def test_each_group_has_its_own_peak_in_all_members(momentum: float) -> None:
    method = Proden(
        network=WithoutArguments,
        members=2,
        epochs=4,
        batch_size=20,
        schedule="one-cycle",
        momentum=momentum,
        learning_rate=0.01,
        parameter_groups=body_slowly,
    )
    steps, _ = rates_of(method)
    assert len(steps) == 12
    for number, step in enumerate(steps):
        share = one_cycle(number, 12)
        for member in (0, 1):
            rates = [step[f"copies.{member}.{name}"] for name in ("0.weight", "0.bias")]
            assert rates == [(1e-4 * share, 0.0)] * 2
            assert step[f"copies.{member}.2.weight"] == (0.01 * share, 0.1)
            assert step[f"copies.{member}.2.bias"] == (0.01 * share, 0.0)  # in no group


def test_frozen_parameters_of_a_group_stay_frozen_and_a_rate_of_0_changes_nothing() -> None:
    module = WithoutArguments()
    module[0].weight.requires_grad_(False)
    method = Proden(
        network=module,
        epochs=2,
        parameter_groups=lambda m: [{"params": m[0].parameters(), "lr": 0}],
    )
    steps, model = rates_of(method)
    assert {*steps[0]} == {"copies.0.0.bias", "copies.0.2.weight", "copies.0.2.bias"}
    (trained,) = model.fitted_.net.copies
    assert torch.equal(trained[0].weight, module[0].weight)
    assert torch.equal(trained[0].bias, module[0].bias)
    assert not torch.equal(trained[2].bias, module[2].bias)


def test_groups_that_change_nothing_change_nothing() -> None:
    def same(module: Any) -> list[dict[str, Any]]:
        return [{"params": module.named_parameters(), "lr": 0.01}]

    expected = fitted(WithoutArguments).predict_proba(X)
    grouped = fitted(WithoutArguments, parameter_groups=same).predict_proba(X)
    np.testing.assert_array_equal(grouped, expected)


@pytest.mark.parametrize(
    "method",
    [
        RobustPll(parameter_groups=lambda net: [{"params": net.linear1.parameters(), "lr": 0}]),
        Pico(
            network=OfShape, parameter_groups=lambda m: [{"params": m.body.parameters(), "lr": 0}]
        ),
    ],
    ids=["named", "with an embedding"],
)
def test_named_networks_and_methods_with_embeddings_have_groups(method: Any) -> None:
    model = PLLClassifier(method, random_state=0).set_params(method__epochs=2).fit(X, LABELS)
    assert np.isfinite(model.predict_proba(X)).all()


def test_the_default_passes_groups_to_its_networks() -> None:
    settings: Any = {"network": WithoutArguments, "epochs": 2, "members": 2, "learner": "network"}
    model = RobustPLLClassifier(parameter_groups=body_slowly, **settings).fit(X, LABELS)
    (networks,) = model.fitted_.networks
    assert networks.method.parameter_groups is body_slowly


@pytest.mark.parametrize(
    ("groups", "fault"),
    [
        (lambda m: [{"params": m.parameters()}, {"params": m[0].weight}], "twice, or one that"),
        (
            lambda m: [{"params": WithoutArguments().parameters()}],
            "Use the parameters of the module",
        ),
        (lambda m: [{"params": m.parameters(), "learning_rate": 1}], "must return a list of dicts"),
        (lambda m: [{"params": m.parameters(), "lr": -1.0}], "must return a list of dicts"),
        (lambda m: {"params": m.parameters()}, "must return a list of dicts"),
        (lambda m: None, "must return a list of dicts.*got None"),
        ([{"params": []}], "'parameter_groups' of Proden must be None, or a function"),
    ],
)
def test_groups_that_cannot_be_meant_are_refused(groups: Any, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        fitted(WithoutArguments, parameter_groups=groups)


# Layouts


def test_a_layout_packs_and_unpacks_exactly_and_survives_json() -> None:
    X: Any = {
        "ids": np.array([[2**24 - 1, 1], [3, -(2**24) + 1]]),
        "pixels": RANDOM.normal(size=(2, 3, 2)).astype(np.float32),
        "mask": np.array([True, False]),
    }
    layout = Layout.of(X)
    assert Layout.from_json(json.loads(json.dumps(asdict(layout)))) == layout

    class Taking(nn.Module):
        def forward(self, **parts: torch.Tensor) -> Any:
            return parts

    parts = layout.call(Taking(), torch.from_numpy(layout.packed(X)))
    for name, part in X.items():
        np.testing.assert_array_equal(parts[name].numpy(), part)
    assert [part.dtype for part in parts.values()] == [torch.int64, torch.float32, torch.bool]
    assert layout.shape == {"ids": (2,), "pixels": (3, 2), "mask": ()}
    assert Layout.of((X["ids"], X["mask"])).shape == ((2,), ())
    assert Layout.of(X["ids"]).shape == (2,)


@pytest.mark.parametrize(
    "change",
    [
        {"form": "set"},
        {"types": ["int64"]},
        {"types": ["int64", "float16"]},
        {"shapes": [[2], [0]]},
        {"shapes": [[2], ["1"]]},
        {"shapes": [[2.0], [1]]},
        {"names": ["a", "a"]},
        {"names": []},
        {"form": "array"},
        {"form": "tuple", "names": [], "types": [], "shapes": []},
    ],
    ids=str,
)
def test_a_layout_of_a_file_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    sound = {"form": "dict", "names": ["a", "b"], "shapes": [[2], [1]], "types": ["int64"] * 2}
    Layout.from_json(sound)
    with pytest.raises((ValueError, TypeError, KeyError)):
        Layout.from_json(sound | change)
