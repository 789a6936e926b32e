"""Layers with a leading model axis: (M, b, in) -> (M, b, out), models never mix."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from robustpll.engine.random import Blank, Draws, seed_of


class Linear(nn.Module):
    """M independent linear maps, initialised as `torch.nn.Linear` does."""

    def __init__(self, inputs: int, outputs: int, draws: Draws) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter((2 * draws.uniform(inputs, outputs) - 1) * bound)
        self.bias = nn.Parameter((2 * draws.uniform(1, outputs) - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class BatchNorm(nn.Module):
    """Normalises each feature of each model over its own batch, as `torch.nn.BatchNorm1d` does."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, features: int, draws: Draws, momentum: float = 0.1, eps: float = 1e-5
    ) -> None:
        super().__init__()
        ones = torch.ones(draws.models, 1, features, device=draws.device, dtype=draws.dtype)
        self.weight = nn.Parameter(ones.clone())
        self.bias = nn.Parameter(torch.zeros_like(ones))
        self.register_buffer("running_mean", torch.zeros_like(ones))
        self.register_buffer("running_var", ones)
        self.momentum, self.eps = momentum, eps

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self._scaled(x, self.running_mean, self.running_var)
        x = x.to(self.weight.dtype)  # statistics of bfloat16 products in float32
        var, mean = torch.var_mean(x, dim=-2, correction=0, keepdim=True)  # (M, 1, features)
        if self.momentum:  # else they are to stay as they are
            with torch.no_grad():
                b = x.shape[-2]
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (b / (b - 1)), self.momentum)
        return self._scaled(x, mean, var)

    def _scaled(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean) * (self.weight * torch.rsqrt(var + self.eps)) + self.bias


class Dropout(nn.Module):
    """Zeroes features at a rate, by each model's own draws; the identity in evaluation mode.

    Which ones is drawn before a step, by `draw`: torch's compiler does not take a generator.
    """

    def __init__(self, rate: float, features: int, draws: Draws) -> None:
        super().__init__()
        self.rate, self.features, self.draws = rate, features, draws
        self.kept: Tensor | None = None  # (M, b, features)

    def draw(self, rows: int) -> None:
        self.kept = self.draws.uniform(rows, self.features) >= self.rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.kept is None:
            return x
        return x * self.kept / (1 - self.rate)


class Stack(nn.Module):
    """M copies of any torch module behind the face of one: (M, b, *shape) -> (M, b, k).

    Whatever a copy draws from torch's global generator, for its initial weights or in training
    mode, is drawn under a seed of its own, and the global generator is left as it was.

    What a module froze stays so: its parameters without gradient do not learn, and a part of which
    all parameters are frozen keeps to evaluation mode if it was built in it.
    """

    def __init__(
        self, build: Callable[[], nn.Module], draws: Draws, *, random: bool = True
    ) -> None:
        super().__init__()
        self.random = random  # whether a forward pass may draw numbers
        self.seeds = draws.seeds()
        self.calls = 0
        copies = []
        for seed in self.seeds:
            with _own_numbers(draws.device), draws.device:
                _set_seed(seed, draws.device)
                copies.append(_copied(build()).to(dtype=draws.dtype, device=draws.device))
        self.copies = nn.ModuleList(copies)
        self.frozen = [_frozen(module) for module in copies]  # names of parameters
        self.resting = [_resting(module) for module in copies]  # names of parts

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for module, names in zip(self.copies, self.resting, strict=True):
            for name in names:
                module.get_submodule(name).eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        super().requires_grad_(requires_grad)
        for module, names in zip(self.copies, self.frozen, strict=True):
            for name in names:
                module.get_parameter(name).requires_grad_(False)
        return self

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.random):
            return torch.stack([copy(rows) for copy, rows in zip(self.copies, x, strict=True)])
        self.calls += 1
        with _own_numbers(x.device):
            outputs = []
            for seed, copy, rows in zip(self.seeds, self.copies, x, strict=True):
                _set_seed(seed_of(seed, self.calls), x.device)
                outputs.append(copy(rows))
        return torch.stack(outputs)


def _copied(module: nn.Module) -> nn.Module:
    """A module of our own: one that a callable gives out again and again must not be trained."""
    try:
        return copy.deepcopy(module)
    except RuntimeError:  # it holds tensors that were computed, as by torch.nn.utils.weight_norm
        return module


def _frozen(module: nn.Module) -> list[str]:
    """Names of the parameters that are not to learn."""
    return [name for name, parameter in module.named_parameters() if not parameter.requires_grad]


def _resting(module: nn.Module) -> list[str]:
    """Names of the parts in evaluation mode that have parameters, all of them frozen."""
    return [
        name
        for name, part in module.named_modules()
        if not part.training and next(part.parameters(), None) is not None
        if not any(parameter.requires_grad for parameter in part.parameters())
    ]


def joined(first: nn.Module, second: nn.Module) -> nn.Module:
    """One network of the models of both, the first's before the second's; takes both over."""
    if isinstance(first, Stack) and isinstance(second, Stack):
        first.copies.extend(second.copies)
        first.seeds += second.seeds
        first.frozen += second.frozen
        first.resting += second.resting
        return first
    for mine, other in zip(first.children(), second.children(), strict=True):
        joined(mine, other)
    for name, tensor in list(first.named_parameters(recurse=False)):
        both = torch.cat([tensor.data, second.get_parameter(name).data])
        setattr(first, name, nn.Parameter(both, requires_grad=tensor.requires_grad))
    for name, buffer in list(first.named_buffers(recurse=False)):
        setattr(first, name, torch.cat([buffer, second.get_buffer(name)]))
    return first


def some_models(net: nn.Module, models: slice) -> nn.Module:
    """A network of some of the models, which shares its numbers with all of them."""
    own = copy.copy(net)
    if isinstance(net, Stack) and isinstance(own, Stack):
        own.seeds, own._modules = net.seeds[models], {"copies": net.copies[models]}
        own.frozen, own.resting = net.frozen[models], net.resting[models]
        return own
    own._parameters = {
        name: None if each is None else nn.Parameter(each[models], each.requires_grad)
        for name, each in net._parameters.items()
    }
    own._buffers = {
        name: None if each is None else each[models] for name, each in net._buffers.items()
    }
    own._modules = {
        name: None if each is None else some_models(each, models)
        for name, each in net._modules.items()
    }
    return own


def tensors_of(net: nn.Module) -> list[tuple[Tensor, int | slice]]:
    """Parameters and buffers, each with its models: all along its first axis, or a single one."""
    if isinstance(net, Stack):
        return [
            (tensor, model)
            for model, copy in enumerate(net.copies)
            for tensor in (*copy.parameters(), *copy.buffers())
        ]
    own = (*net.parameters(recurse=False), *net.buffers(recurse=False))
    below = [pair for part in net.children() for pair in tensors_of(part)]
    return [*((tensor, slice(None)) for tensor in own), *below]


def folded(net: nn.Module) -> nn.Module:
    """The same function in evaluation mode, with each BatchNorm as part of the Linear after it.

    Half as much memory is read and written. A network of other parts comes back as it is.
    """
    if not isinstance(net, nn.Sequential):
        return net
    layers: list[nn.Module] = []
    for layer in net:
        norm = layers[-1] if layers else None
        if isinstance(layer, Linear) and isinstance(norm, BatchNorm):
            layers[-1] = _after(norm, layer)
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def _after(norm: BatchNorm, linear: Linear) -> Linear:
    """(x s + t) W + b = x (s W) + (t W + b), in float64: products may be in TF32."""
    weight, kind = linear.weight.double(), linear.weight.dtype
    scale = norm.weight.double() * torch.rsqrt(norm.running_var.double() + norm.eps)
    shift = norm.bias.double() - norm.running_mean.double() * scale  # (M, 1, features)
    models, inputs, outputs = linear.weight.shape
    both = Linear(inputs, outputs, Blank.models_of(models, kind))
    both.weight = nn.Parameter((scale.mT * weight).to(kind), requires_grad=False)
    bias = torch.baddbmm(linear.bias.double(), shift, weight)
    both.bias = nn.Parameter(bias.to(kind), requires_grad=False)
    return both


class Autocast(nn.Module):
    """A network whose matrix products are computed in bfloat16; weights and outputs are not."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, *further: Any) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16, cache_enabled=False):
            logits: Tensor = self.net(x, *further)
        return logits.to(x.dtype)


@contextmanager
def steady_statistics(net: nn.Module) -> Iterator[None]:
    """Within it a pass in training mode leaves the running statistics of BatchNorm as they are."""
    norms: list[Any] = [part for part in net.modules() if hasattr(part, "running_mean")]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _own_numbers(device: torch.device) -> AbstractContextManager[None]:
    """Within it the global generators may be seeded; afterwards they are as before."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _set_seed(seed: int, device: torch.device) -> None:
    """Seeds the generators in use here alone; torch.manual_seed would touch every device's."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
