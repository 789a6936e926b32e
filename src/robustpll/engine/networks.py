"""What `network=` accepts: a name of NETWORK_NAMES, a module, or what builds one."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from robustpll.engine.data import Rows
from robustpll.engine.layers import BatchNorm, Dropout, Linear, Stack, seeded, steady_statistics
from robustpll.engine.modules import EMBEDDINGS, Unpacking, own_module
from robustpll.engine.random import Draws
from robustpll.errors import InputError

Shape = tuple[int, ...]
# A class or callable is called with (shape, k), or without arguments if it takes none.
Network = str | nn.Module | Callable[..., nn.Module]


def named_network(network: Network, shape: Shape, device: torch.device) -> Network:
    """Return what "auto" stands for: an MLP for rows, a convolutional network for pictures.

    On a CPU this is a narrow one, because resnet9 would take sixteen times as long.
    """
    if network != "auto":
        return network
    on_pictures = "resnet9" if device.type == "cuda" else "convnet"
    return "mlp" if len(shape) == 1 or min(shape[-2:]) < 16 else on_pictures


def build_network(
    network: Network, shape: Shape, k: int, draws: Draws, embedding: int = 0
) -> nn.Module:
    """Build M networks for rows of `shape` and k classes: (M, b, *shape) -> logits (M, b, k).

    With an embedding, logits are followed by so many numbers, in training; see `Embedded`.
    """
    network = named_network(network, shape, draws.device)
    if isinstance(network, str) and network in WITH_MODEL_AXIS:
        net = WITH_MODEL_AXIS[network](shape, k, draws)
        return _embedded(net, embedding, partial(Linear, draws=draws)) if embedding else net
    single = CONVOLUTIONAL[network] if isinstance(network, str) else partial(own_module, network)

    layout = network.layout if isinstance(network, Unpacking) else None

    def build() -> nn.Module:
        net = single(shape, k)
        if any(map(is_lazy, net.parameters())):  # a first pass makes them parameters
            net.to(dtype=draws.dtype, device=draws.device)
            rows = torch.zeros(2, *shape, dtype=draws.dtype, device=draws.device)
            # `try_network` says what is wrong with it
            with suppress(Exception), torch.no_grad(), steady_statistics(net):
                net(rows) if layout is None else layout.call(net, rows)
        return _embedded(net, embedding, nn.Linear) if embedding else net

    stack = Stack(build, draws, random=not isinstance(network, str), layout=layout)
    # channels last: tensor cores need this order of numbers
    if isinstance(network, str) and draws.device.type == "cuda":
        stack.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return stack


def try_network(method: Any, rows: Rows, k: int, *, is_scaled: bool) -> None:
    """Raise InputError unless a user's network has k outputs for each of a few of the rows.

    Of ids, these include the smallest and largest ones, which an embedding may not have.
    """
    network: Network = getattr(method, "network", "")
    if isinstance(network, str):
        return
    net: Any = build_network(network, rows.shape, k, Draws.of((0,), like=rows.shift))
    if any(isinstance(part, torch.jit.ScriptModule) for part in net.modules()):
        raise InputError(
            "network is a module of torch.jit, whose copies cannot be trained. Pass the module "
            "from which it was made."
        )
    layers = [part for part in net.modules() if not [*part.children()]]
    if is_scaled and net.layout is None and _embeds(net, layers, rows):
        raise InputError(
            "network embeds numbers of X as integers, but they would be scaled to the range from 0 "
            "to 1. Pass X as an array of integers, or as a dict or tuple of arrays, or fit with "
            "scale=None."
        )
    positions = torch.arange(2)
    if net.layout is not None:
        pool = rows.pool.cpu()
        extremes = torch.stack([pool.argmax(), pool.argmin()]) // pool.shape[1]
        positions = torch.cat([positions, extremes, pool.argmax(0)[:14], pool.argmin(0)[:14]])
    x, count = rows.x(positions[None]), len(positions)
    for mode in (False, True):  # ids are checked in evaluation mode
        try:
            with seeded(0, rows.device), torch.set_grad_enabled(mode):
                logits = net.train(mode)(x)[0]
        except (InputError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            shape = rows.shape if net.layout is None else net.layout.shape
            keys = ", with the keys of X as arguments" if isinstance(shape, dict) else ""
            raise InputError(
                f"network failed on a few rows of the shape {shape}: {type(error).__name__}: "
                f"{error}. Pass a module whose forward() takes such rows{keys}."
            ) from error
        learns = any(parameter.requires_grad for parameter in net.parameters())
        if logits.shape != (count, k) and learns:
            widths = [layer.in_features for layer in layers if isinstance(layer, nn.Linear)]
            raise InputError(
                f"network must return an output for each of {k} classes: for {count} rows, the "
                f"shape {(count, k)}. It returned {tuple(logits.shape)}. Replace its last layer by "
                f"nn.Linear({widths[-1] if widths else '...'}, {k})."
            )


def _embeds(net: Any, layers: list[nn.Module], rows: Rows) -> bool:
    """Whether an embedding looks up numbers of the rows; of positions, these are always the same.

    A vector quantizer, which looks up the nearest code, is taken for one, too.
    """
    embeddings = [layer for layer in layers if isinstance(layer, EMBEDDINGS)]
    if not embeddings or isinstance(layers[0], EMBEDDINGS):
        return bool(embeddings)
    ids: list[list[Tensor]] = []  # of each pass

    def recorded(layer: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Remember the ids, and let the layer find all of them: CUDA would stop the process."""
        ids[-1].extend(given[:1])
        return (*(part.clamp(0, layer.num_embeddings - 1) for part in given[:1]), *given[1:])

    hooks = [layer.register_forward_pre_hook(recorded) for layer in embeddings]
    x = rows.x(torch.zeros((1, 2), dtype=torch.long))
    for moved in (x, x + 1):
        ids.append([])
        with suppress(Exception), seeded(0, rows.device), torch.no_grad():
            net.eval()(moved)  # it may fail after the embedding was asked
    for hook in hooks:
        hook.remove()
    first, second = ids
    return any(not torch.equal(*pair) for pair in zip(first, second, strict=False))


class Embedded(nn.Module):
    """A network whose outputs in training are logits and an embedding of length 1, (.., k + d)."""

    def __init__(self, body: nn.Module, head: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.body, self.head, self.projection = body, head, projection

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        logits: Tensor = self.head(features)
        if not self.training:
            return logits
        return torch.cat([logits, F.normalize(self.projection(features), dim=-1)], -1)


def _embedded(net: Any, size: int, linear: Callable[..., nn.Module]) -> Embedded:
    """Add a projection of the last hidden layer."""
    # a class derived from it may compute something else
    is_plain = isinstance(net, nn.Sequential) and type(net).forward is nn.Sequential.forward
    if not is_plain or not hasattr(net[-1], "weight"):
        raise InputError(
            "This method compares embeddings, the inputs of the last layer. Its network must be "
            "a name, or return a torch.nn.Sequential that ends in a linear layer."
        )
    head: Any = net[-1]
    width = head.in_features if isinstance(head, nn.Linear) else head.weight.shape[-2]
    projection = nn.Sequential(linear(width, width), nn.ReLU(), linear(width, size))
    body = nn.Sequential(OrderedDict([*net.named_children()][:-1]))
    return Embedded(body, head, projection)


def mlp(
    shape: Shape,
    k: int,
    draws: Draws,
    dropout: float = 0.0,
    *,
    widths: Sequence[int] = (300, 300, 300),
    norm: bool = True,
) -> nn.Sequential:
    """Linear, ReLU, BatchNorm (and Dropout) at each width, then Linear."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten(start_dim=2))
    inputs = torch.Size(shape).numel()
    for number, width in enumerate(widths, start=1):
        layers[f"linear{number}"] = Linear(inputs, width, draws)
        layers[f"relu{number}"] = nn.ReLU()
        if norm:
            layers[f"norm{number}"] = BatchNorm(width, draws)
        if dropout > 0:
            layers[f"dropout{number}"] = Dropout(dropout, width, draws)
        inputs = width
    layers["output"] = Linear(inputs, k, draws)
    return nn.Sequential(layers)


def wide(shape: Shape, k: int, draws: Draws) -> nn.Sequential:
    """Linear and ReLU three times at the width of the input, then Linear; no BatchNorm."""
    return mlp(shape, k, draws, widths=(torch.Size(shape).numel(),) * 3, norm=False)


def lenet(shape: Shape, k: int) -> nn.Module:
    """LeNet-5 with padded convolutions and BatchNorm after each ReLU, as in the MLP; one model."""
    channels, height, width = _image(shape, "lenet")
    layers: list[nn.Module] = [Channels()]
    for inputs, outputs in ((channels, 6), (6, 16)):
        layers += [nn.Conv2d(inputs, outputs, kernel_size=5, padding=2), nn.ReLU()]
        layers += [nn.BatchNorm2d(outputs), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for inputs, outputs in ((16 * (height // 4) * (width // 4), 120), (120, 84)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.BatchNorm1d(outputs)]
    return nn.Sequential(*layers, nn.Linear(84, k))


def resnet(shape: Shape, k: int) -> nn.Module:
    """The residual network for small pictures of He et al. (2016), 14 layers; for one model."""
    channels, _, _ = _image(shape, "resnet")
    return nn.Sequential(
        Channels(),
        nn.Conv2d(channels, 16, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(Residual(16, 16, 1), Residual(16, 16, 1)),
        *(Residual(16, 32, 2), Residual(32, 32, 1)),
        *(Residual(32, 64, 2), Residual(64, 64, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, k),
    )


def resnet9(shape: Shape, k: int, *, width: int = 64) -> nn.Module:
    """The nine-layer residual network of Page (2019), fast and accurate on small pictures."""
    narrow = width < 64  # for CPUs, and must save more
    channels, height, wide = _image(shape, "convnet" if narrow else "resnet9", least=8)
    early = narrow and min(height, wide) >= 16
    return nn.Sequential(
        Pixels(),
        *convolution(channels, width, pool=early),
        *convolution(width, 2 * width, pool=True),
        Added(*convolution(2 * width, 2 * width), *convolution(2 * width, 2 * width)),
        *convolution(2 * width, 4 * width, pool=True),
        *convolution(4 * width, 8 * width, pool=True),
        Added(*convolution(8 * width, 8 * width), *convolution(8 * width, 8 * width)),
        *(Largest(), nn.Flatten(), Head(8 * width, k, factor=0.125)),
    )


def resnet18(shape: Shape, k: int) -> nn.Module:
    """The residual network of He et al. (2016) with 18 layers, first one for small pictures."""
    channels, _, _ = _image(shape, "resnet18", least=8)
    blocks: list[nn.Module] = []
    for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
        blocks += [Block(inputs, outputs, outputs // inputs), Block(outputs, outputs, 1)]
    pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return _kaiming(
        nn.Sequential(Pixels(), *convolution(channels, 64), *blocks, *pool, Head(512, k))
    )


def wide_resnet(shape: Shape, k: int) -> nn.Module:
    """WRN-28-2 of Zagoruyko and Komodakis (2016): 28 layers, twice the usual width."""
    channels, _, _ = _image(shape, "wide_resnet", least=8)
    layers: list[nn.Module] = [Pixels(), nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
    for inputs, outputs in ((16, 32), (32, 64), (64, 128)):
        layers.append(PreActivated(inputs, outputs, 1 if inputs == 16 else 2))
        layers += [PreActivated(outputs, outputs, 1) for _ in range(3)]
    layers += [nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _kaiming(nn.Sequential(*layers, Head(128, k)))


# Networks that are written with a model axis, and those of one model
WITH_MODEL_AXIS: dict[str, Callable[[Shape, int, Draws], nn.Module]] = {
    "mlp": mlp,
    "wide": wide,
    "small": partial(mlp, widths=(256, 256)),
}
CONVOLUTIONAL: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet": lenet,
    "resnet": resnet,
    "convnet": partial(resnet9, width=16),
    "resnet9": resnet9,
    "resnet18": resnet18,
    "wide_resnet": wide_resnet,
}
MODERN = CONVOLUTIONAL.keys() - {"lenet", "resnet"}  # newer than version 0.1
NETWORK_NAMES = ("auto", *WITH_MODEL_AXIS, *CONVOLUTIONAL)


class Pixels(nn.Module):
    """Centres pictures (b, h, w) or (b, c, h, w) with pixels from 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        x = 4 * (x[:, None] if x.ndim == 3 else x) - 2
        # the order of numbers in memory that tensor cores need
        return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x


class Largest(nn.Module):
    """The largest value of each channel; `nn.AdaptiveMaxPool2d` has a slow gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax((-2, -1), keepdim=True)


class Head(nn.Linear):
    """The last layer. Its bias starts at 1, so that no output starts without evidence."""

    def __init__(self, inputs: int, outputs: int, *, factor: float = 1.0) -> None:
        super().__init__(inputs, outputs)
        nn.init.ones_(self.bias)
        self.factor = factor  # keeps first outputs small

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * F.linear(x, self.weight) + self.bias


def convolution(
    inputs: int, outputs: int, stride: int = 1, *, pool: bool = False
) -> tuple[nn.Module, ...]:
    """A 3x3 convolution with BatchNorm and ReLU; pooling comes before these, as it is faster."""
    conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    pooling = (nn.MaxPool2d(2),) if pool else ()
    return conv, *pooling, nn.BatchNorm2d(outputs), nn.ReLU()


class Added(nn.Sequential):
    """Layers whose output is added to their input."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, super().forward(x))  # type: ignore[no-untyped-call]


class Block(nn.Module):
    """Two 3x3 convolutions, and a shortcut that is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *convolution(inputs, outputs, stride), *convolution(outputs, outputs)[:2]
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(torch.add(self.layers(x), self.shortcut(x)))


class PreActivated(nn.Module):
    """As `Block`, with BatchNorm and ReLU before each convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        conv = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.layers = nn.Sequential(*convolution(inputs, outputs, stride), conv)
        self.shortcut = (
            nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if inputs != outputs else None
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.before(x)
        return torch.add(self.layers(h), x if self.shortcut is None else self.shortcut(h))


def _kaiming(net: nn.Module) -> nn.Module:
    """Initialize convolutions by the number of their outputs."""
    for part in net.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return net


class Channels(nn.Module):
    """Adds a channel axis to grey pictures (b, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, None] if x.ndim == 3 else x


class Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is subsampled and zero-padded where needed."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return F.relu(h + F.pad(shortcut, (0, 0, 0, 0, 0, self.added)))


def _image(shape: Shape, name: str, least: int = 4) -> tuple[int, int, int]:
    """Return channels, height and width, and refuse rows that are not pictures."""
    if len(shape) not in (2, 3) or min(shape[-2:]) < least:
        raise InputError(
            f"network={name!r} needs pictures, X of shape (n, h, w) or (n, c, h, w) with h and w "
            f"at least {least}; the rows of X have shape {shape}. Reshape X, or use network='mlp'."
        )
    return (1, *shape) if len(shape) == 2 else shape  # type: ignore[return-value]
