"""Weight averaging over the last epochs (Izmailov et al., UAI 2018)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from robustpll.engine.layers import tensors_of


class Average:
    """The mean of a network's parameters and BatchNorm statistics over the last epochs."""

    def __init__(self, net: nn.Module, share: float, epochs: int) -> None:
        self.live = [
            tensor
            for tensor, _ in tensors_of(net)
            if tensor.is_floating_point()
            if tensor.requires_grad or not isinstance(tensor, nn.Parameter)  # not frozen ones
        ]
        self.first = epochs - max(1, round(share * epochs)) if share else epochs
        self.means = [torch.zeros_like(tensor) for tensor in self.live] if share else []

    @torch.no_grad()
    def add(self, epoch: int) -> None:
        """Include the network as it is after this epoch (counted from 0)."""
        if epoch >= self.first:
            torch._foreach_lerp_(self.means, self.live, 1 / (epoch - self.first + 1))

    @contextmanager
    def applied(self, epoch: int) -> Iterator[None]:
        """Replace the network by the mean within the context, once there is one."""
        if epoch < self.first:
            yield
            return
        saved = [tensor.detach().clone() for tensor in self.live]
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.live, saved)

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the network by the mean, if there is one."""
        if self.means:
            torch._foreach_copy_(self.live, self.means)
