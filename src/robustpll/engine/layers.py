"""Layers with a leading model axis: (M, b, in) -> (M, b, out), models never mix."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.modules import EMBEDDINGS, Layout, is_frozen, logits_in, refuse_ids
from robustpll.engine.random import Draws, seed_of

GENERATORS = threading.RLock()  # of torch, see `seeded`


class Linear(nn.Module):
    """M independent linear maps, initialized as in `torch.nn.Linear`."""

    def __init__(self, inputs: int, outputs: int, draws: Draws) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter((2 * draws.uniform(inputs, outputs) - 1) * bound)
        self.bias = nn.Parameter((2 * draws.uniform(1, outputs) - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_dynamo_compiling():
            weight: Tensor = self.weight
            if torch.is_autocast_enabled(x.device.type):  # which leaves such functions alone
                x, weight = x.bfloat16(), weight.bfloat16()
            product: Tensor = Product.apply(x, weight)  # type: ignore[no-untyped-call]
            return product + self.bias
        return torch.baddbmm(self.bias, x, self.weight)


class Product(torch.autograd.Function):
    """x W for compiled code, with the rows of each feature as neighbours in memory.

    The bias, ReLU and BatchNorm then are one kernel, and so are their gradients. Those of weights
    are in the order of weights, as optimizers need them.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return torch.bmm(weight.mT, x.mT).mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return torch.bmm(weight, gradient.mT).mT, torch.bmm(x.mT, gradient)


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
        mean, var = self.running_mean, self.running_var
        if self.training:
            x = x.to(self.weight.dtype)  # statistics of bfloat16 products in float32
            if x.device.type == "cpu":
                return self._one_by_one(x)
            var, mean = torch.var_mean(x, dim=-2, correction=0, keepdim=True)  # (M, 1, features)
            if self.momentum:  # 0 within `steady_statistics`
                with torch.no_grad():
                    b = x.shape[-2]
                    self.running_mean.lerp_(mean, self.momentum)
                    self.running_var.lerp_(var * (b / (b - 1)), self.momentum)
        return (x - mean) * (self.weight * torch.rsqrt(var + self.eps)) + self.bias

    def _one_by_one(self, x: Tensor) -> Tensor:
        """As `forward` in training, by a kernel for one model; on a CPU it takes a fifth."""
        tensors = (self.running_mean, self.running_var, self.weight, self.bias)
        arguments: Any = (x, *(tensor.squeeze(1) for tensor in tensors))
        rest: Any = (True, self.momentum, self.eps)
        if len(x) == 1:  # without a copy
            return F.batch_norm(*(argument.squeeze(0) for argument in arguments), *rest)[None]
        return torch.stack([F.batch_norm(*model, *rest) for model in zip(*arguments, strict=True)])


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

    Each copy has its own seed for what it draws from torch's global generator. A part whose
    parameters are frozen stays in evaluation mode if it was in it or has running statistics.
    """

    layout: Layout | None = None  # of rows that consist of several arrays, or of integers
    mirrored: bool = False  # outputs in evaluation mode are means over pictures and their mirrors
    run: Callable[[nn.Module, Tensor], Any]

    def __init__(
        self,
        build: Callable[[], nn.Module],
        draws: Draws,
        random: bool = True,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        self.random, self.layout = random, layout  # random: whether a pass may draw numbers
        self.run = pass_through  # compiled while a step is recorded
        self.seeds = draws.seeds()
        self.calls = 0
        self.copies = nn.ModuleList()
        for seed in self.seeds:
            with seeded(seed, draws.device), draws.device:
                self.copies.append(build().to(dtype=draws.dtype, device=draws.device))
        parts = [*self.copies[0].named_modules()]
        stopped = {n for n, part in parts if not part.training and [*part.parameters()]}
        stopped |= {n for n, part in parts if getattr(part, "running_mean", None) is not None}
        self.in_eval = [n for n, _ in parts if n in stopped and is_frozen(self.copies[0], n)]
        for part in self.modules() if layout is not None else ():
            if isinstance(part, EMBEDDINGS):
                part.register_forward_pre_hook(refuse_ids)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for module in self.copies:
            for name in self.in_eval:
                module.get_submodule(name).eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.random):
            pairs = zip(self.copies, x, strict=True)
            return torch.stack([self.logits(module, rows) for module, rows in pairs])
        self.calls += 1
        outputs = []
        for seed, module, rows in zip(self.seeds, self.copies, x, strict=True):
            with seeded(seed_of(seed, self.calls), x.device):
                outputs.append(self.logits(module, rows))
        return torch.stack(outputs)

    def logits(self, module: nn.Module, rows: Tensor) -> Tensor:
        """Return the logits (b, k) of one copy."""
        if self.layout is not None:
            return logits_in(self.layout.call(module, rows))
        logits = logits_in(self.run(module, rows))
        if self.mirrored and not self.training:
            logits = (logits + logits_in(self.run(module, rows.flip(-1)))) / 2
        return logits


def stacks_of(net: nn.Module) -> list[Stack]:
    """Return the parts of a network that are copies of a module."""
    return [part for part in net.modules() if isinstance(part, Stack)]


def pass_through(module: nn.Module, rows: Tensor) -> Any:
    """Return the module's outputs; compiled, modules of one kind share the code."""
    return module(rows)


def joined(nets: Sequence[nn.Module], models: slice = slice(None)) -> nn.Module:
    """Return all or some models of equal networks as one; one network alone shares its memory."""
    result = copy.copy(nets[0])
    if isinstance(result, Stack):
        stacks: list[Any] = list(nets)
        result.seeds = [seed for stack in stacks for seed in stack.seeds][models]
        copies = [module for stack in stacks for module in stack.copies]
        result._modules = {"copies": nn.ModuleList(copies[models])}
        return result

    def of_all(tensors: list[Tensor]) -> Tensor:
        return (torch.cat(tensors) if len(tensors) > 1 else tensors[0])[models]

    result._parameters = result._parameters | {
        name: nn.Parameter(of_all([net.get_parameter(name) for net in nets]), p.requires_grad)
        for name, p in result.named_parameters(recurse=False)
    }
    result._buffers = result._buffers | {
        name: of_all([net.get_buffer(name) for net in nets])
        for name, _ in result.named_buffers(recurse=False)
    }
    result._modules = {
        name: part and joined([net.get_submodule(name) for net in nets], models)
        for name, part in result._modules.items()
    }
    return result


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


@torch.no_grad()
def clip_gradients(net: nn.Module, most: float, models: int) -> None:
    """Scale the gradient of each of M models to at most this norm, without waiting for the device.

    >>> net = Linear(2, 3, Draws.of((0, 1), like=torch.zeros(())))
    >>> (net.weight.sum((1, 2)) * torch.tensor([1.0, 100.0])).sum().backward()
    >>> clip_gradients(net, 5.0, 2)
    >>> net.weight.grad.norm(dim=(1, 2))
    tensor([2.4495, 5.0000])
    """
    pairs = [(tensor.grad, models) for tensor, models in tensors_of(net) if tensor.grad is not None]
    squares = torch.zeros(models, dtype=pairs[0][0].dtype, device=pairs[0][0].device)
    for gradient, index in pairs:
        if isinstance(index, int):
            squares[index] += gradient.square().sum()
        elif gradient.is_cuda:
            squares += gradient.square().flatten(1).sum(-1)
        else:  # one by one, so that a model alone and in a bundle are equal bit for bit
            squares += torch.stack([of_model.square().sum() for of_model in gradient])
    factors = (most / (squares.sqrt() + 1e-6)).clamp(max=1)  # as in torch.nn.utils.clip_grad_norm_
    for gradient, index in pairs:
        shape = () if isinstance(index, int) else (-1, *[1] * (gradient.ndim - 1))
        gradient.mul_(factors[index].view(shape))


def folded(net: nn.Module) -> nn.Module:
    """Merge each BatchNorm of a sequential network into the Linear after it, for evaluation."""
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
    # Without a momentum, statistics are means over all batches, which are counted.
    counts = [norm.num_batches_tracked for norm in norms if norm.momentum is None]
    counts = [(count, count.clone()) for count in counts if count is not None]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for count, before in counts:
            count.copy_(before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators of the CPU and this device, and restore them after the context.

    All threads share these generators, so one waits for another.
    """
    on_cuda = device.type == "cuda"
    with GENERATORS, torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
        if on_cuda:
            torch.cuda.manual_seed(seed)
        yield
