"""What `network=` accepts: a name of NETWORK_NAMES, or a callable (shape, k) -> module."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.layers import BatchNorm, Dropout, Linear, Stack
from robustpll.engine.random import Draws
from robustpll.errors import InputError

Shape = tuple[int, ...]
Network = str | Callable[[Shape, int], nn.Module]


def build_network(network: Network, shape: Shape, k: int, draws: Draws) -> nn.Module:
    """Build M networks for rows of `shape` and k classes: (M, b, *shape) -> logits (M, b, k)."""
    if isinstance(network, str) and network in WITH_MODEL_AXIS:
        return WITH_MODEL_AXIS[network](shape, k, draws)
    single = NETWORKS[network] if isinstance(network, str) else network
    return Stack(partial(single, shape, k), draws, random=not isinstance(network, str))


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


# Networks that are written with a model axis, and those of one model
WITH_MODEL_AXIS: dict[str, Callable[[Shape, int, Draws], nn.Module]] = {
    "mlp": mlp,
    "wide": wide,
    "small": partial(mlp, widths=(256, 256)),
}
NETWORKS: dict[str, Callable[[Shape, int], nn.Module]] = {"lenet": lenet, "resnet": resnet}
NETWORK_NAMES = (*WITH_MODEL_AXIS, *NETWORKS)


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


def _image(shape: Shape, name: str) -> tuple[int, int, int]:
    """Return channels, height and width, and refuse rows that are not pictures."""
    if len(shape) not in (2, 3) or min(shape[-2:]) < 4:
        raise InputError(
            f"network={name!r} needs pictures, X of shape (n, h, w) or (n, c, h, w) with h and w "
            f"at least 4; the rows of X have shape {shape}. Reshape X, or use network='mlp'."
        )
    return (1, *shape) if len(shape) == 2 else shape  # type: ignore[return-value]
