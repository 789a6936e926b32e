"""The mean of the networks after each of the last epochs, which often errs less than the last."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from robustpll.engine.layers import tensors_of


class Average:
    """Keeps the mean of a network's numbers over the last epochs; the training is as without it.

    Running statistics of BatchNorm are averaged as weights are. After Izmailov et al. (UAI 2018).
    """

    def __init__(self, net: nn.Module, share: float, epochs: int) -> None:
        self.live = [
            tensor
            for tensor, _ in tensors_of(net)
            if tensor.is_floating_point()
            if tensor.requires_grad or not isinstance(tensor, nn.Parameter)  # not what is frozen
        ]
        self.first = epochs - max(1, round(share * epochs)) if share else epochs
        self.means = [torch.zeros_like(tensor) for tensor in self.live] if share else []

    @torch.no_grad()
    def add(self, epoch: int) -> None:
        """The network as it is now, after so many epochs and one."""
        if epoch >= self.first:
            torch._foreach_lerp_(self.means, self.live, 1 / (epoch - self.first + 1))

    @contextmanager
    def shown(self, epoch: int) -> Iterator[None]:
        """Within it the network is the mean, once there is one."""
        if epoch < self.first:
            yield
            return
        own = [tensor.detach().clone() for tensor in self.live]
        self.use()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.live, own)

    @torch.no_grad()
    def use(self) -> None:
        """The network becomes the mean, if there is one."""
        if self.means:
            torch._foreach_copy_(self.live, self.means)
