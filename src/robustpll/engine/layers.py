"""Layers with a leading model axis: (M, b, in) -> (M, b, out), models never mix."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from robustpll.engine.random import Draws, seed_of


class Linear(nn.Module):
    """M independent linear maps, initialized as in `torch.nn.Linear`."""

    def __init__(self, inputs: int, outputs: int, draws: Draws) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter((2 * draws.uniform(inputs, outputs) - 1) * bound)
        self.bias = nn.Parameter((2 * draws.uniform(1, outputs) - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class BatchNorm(nn.Module):
    """Normalizes each feature of each model over its own batch, as `torch.nn.BatchNorm1d` does."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int, draws: Draws) -> None:
        super().__init__()
        ones = torch.ones(draws.models, 1, features, device=draws.device, dtype=draws.dtype)
        self.weight = nn.Parameter(ones.clone())
        self.bias = nn.Parameter(torch.zeros_like(ones))
        self.register_buffer("running_mean", torch.zeros_like(ones))
        self.register_buffer("running_var", ones)
        self.momentum, self.eps = 0.1, 1e-5

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self._scaled(x, self.running_mean, self.running_var)
        x = x.to(self.weight.dtype)  # statistics of bfloat16 products in float32
        var, mean = torch.var_mean(x, dim=-2, correction=0, keepdim=True)  # (M, 1, features)
        if self.momentum:  # 0 within `steady_statistics`
            with torch.no_grad():
                b = x.shape[-2]
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (b / (b - 1)), self.momentum)
        return self._scaled(x, mean, var)

    def _scaled(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return (x - mean) * (self.weight * torch.rsqrt(var + self.eps)) + self.bias


class Dropout(nn.Module):
    """Zeroes features at a rate, by each model's own draws; the identity in evaluation mode."""

    def __init__(self, rate: float, features: int, draws: Draws) -> None:
        super().__init__()
        self.rate, self.features, self.draws = rate, features, draws
        self.mask: Tensor | None = None  # (M, b, features)

    def draw(self, rows: int) -> None:
        """Draw the mask before a step: torch's compiler does not accept a generator."""
        self.mask = self.draws.uniform(rows, self.features) >= self.rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.mask is None:
            return x
        return x * self.mask / (1 - self.rate)


class Stack(nn.Module):
    """M copies of any torch module as one network: (M, b, *shape) -> (M, b, k).

    Each copy has its own seed for what it draws from torch's global generator, in its initial
    weights and in training mode. Frozen parameters stay frozen. A part in evaluation mode stays in
    it if all its parameters are frozen.
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
            with _restored_generators(draws.device), draws.device:
                _set_seed(seed, draws.device)
                copies.append(_copied(build()).to(dtype=draws.dtype, device=draws.device))
        self.copies = nn.ModuleList(copies)
        # Names of frozen parameters, and of parts that stay in evaluation mode, in every copy
        self.frozen = [name for name, p in copies[0].named_parameters() if not p.requires_grad]
        self.in_eval = [
            name
            for name, part in copies[0].named_modules()
            if not part.training and any(True for _ in part.parameters())
            if not any(parameter.requires_grad for parameter in part.parameters())
        ]

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for module in self.copies:
            for name in self.in_eval:
                module.get_submodule(name).eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        super().requires_grad_(requires_grad)
        for module in self.copies:
            for name in self.frozen:
                module.get_parameter(name).requires_grad_(False)
        return self

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.random):
            return torch.stack([copy(rows) for copy, rows in zip(self.copies, x, strict=True)])
        self.calls += 1
        outputs = []
        with _restored_generators(x.device):
            for seed, copy, rows in zip(self.seeds, self.copies, x, strict=True):
                _set_seed(seed_of(seed, self.calls), x.device)
                outputs.append(copy(rows))
        return torch.stack(outputs)


def _copied(module: nn.Module) -> nn.Module:
    """Copy a module, because the user's callable may return the same one every time."""
    try:
        return copy.deepcopy(module)
    except RuntimeError:  # it holds computed tensors, as with torch.nn.utils.weight_norm
        return module


def joined(first: nn.Module, second: nn.Module) -> nn.Module:
    """Return one network with the models of both, the first's first."""
    return _combined([first, second], torch.cat, lambda lists: [*lists[0], *lists[1]])


def some_models(net: nn.Module, models: slice) -> nn.Module:
    """Return a network of some of the models, which shares memory with the given one."""
    return _combined([net], lambda tensors: tensors[0][models], lambda lists: lists[0][models])


def _combined(
    nets: Sequence[nn.Module],
    tensors: Callable[[list[Tensor]], Tensor],
    lists: Callable[[list[list[Any]]], list[Any]],
) -> nn.Module:
    """Combine networks of equal structure: their stacked tensors, or the lists of a `Stack`."""
    combined = copy.copy(nets[0])
    if isinstance(combined, Stack):
        stacks: list[Any] = list(nets)
        combined.seeds = lists([stack.seeds for stack in stacks])
        copies = lists([list(stack.copies) for stack in stacks])
        combined._modules = {"copies": nn.ModuleList(copies)}
        return combined
    combined._parameters = combined._parameters | {
        name: nn.Parameter(tensors([net.get_parameter(name) for net in nets]), p.requires_grad)
        for name, p in combined.named_parameters(recurse=False)
    }
    combined._buffers = combined._buffers | {
        name: tensors([net.get_buffer(name) for net in nets])
        for name, _ in combined.named_buffers(recurse=False)
    }
    combined._modules = {
        name: part and _combined([net.get_submodule(name) for net in nets], tensors, lists)
        for name, part in combined._modules.items()
    }
    return combined


def tensors_of(net: nn.Module) -> list[tuple[Tensor, int | slice]]:
    """Return parameters and buffers, each with its models: all (a slice), or a single one."""
    if isinstance(net, Stack):
        return [
            (tensor, model)
            for model, copy in enumerate(net.copies)
            for tensor in (*copy.parameters(), *copy.buffers())
        ]
    tensors = (*net.parameters(recurse=False), *net.buffers(recurse=False))
    below = [pair for part in net.children() for pair in tensors_of(part)]
    return [*((tensor, slice(None)) for tensor in tensors), *below]


def folded(net: nn.Module) -> nn.Module:
    """Merge each BatchNorm into the Linear after it; the function in evaluation mode is the same.

    This halves the memory traffic. Networks that are not sequential are returned unchanged.
    """
    if not isinstance(net, nn.Sequential):
        return net
    layers: list[nn.Module] = []
    for layer in net:
        norm = layers[-1] if layers else None
        if isinstance(layer, Linear) and isinstance(norm, BatchNorm):
            layers[-1] = _merged(norm, layer)
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def _merged(norm: BatchNorm, linear: Linear) -> Linear:
    """(x s + t) W + b = x (s W) + (t W + b), in float64 because products may use TF32."""
    weight, dtype = linear.weight.double(), linear.weight.dtype
    scale = norm.weight.double() * torch.rsqrt(norm.running_var.double() + norm.eps)
    shift = norm.bias.double() - norm.running_mean.double() * scale  # (M, 1, features)
    merged = copy.deepcopy(linear)
    merged.weight = nn.Parameter((scale.mT * weight).to(dtype), requires_grad=False)
    bias = torch.baddbmm(linear.bias.double(), shift, weight)
    merged.bias = nn.Parameter(bias.to(dtype), requires_grad=False)
    return merged


class Autocast(nn.Module):
    """Computes matrix products in bfloat16; weights and outputs keep their type."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, *further: Any) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16, cache_enabled=False):
            logits: Tensor = self.net(x, *further)
        return logits.to(x.dtype)


@contextmanager
def steady_statistics(net: nn.Module) -> Iterator[None]:
    """Keep the running statistics of BatchNorm unchanged by passes in training mode."""
    norms: list[Any] = [part for part in net.modules() if hasattr(part, "running_mean")]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _restored_generators(device: torch.device) -> AbstractContextManager[None]:
    """Restore the global generators of the CPU and this device after the context."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _set_seed(seed: int, device: torch.device) -> None:
    """Seed the CPU's and this device's generator; torch.manual_seed would seed every device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
