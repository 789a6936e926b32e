"""Randomness that belongs to a model: what one draws never depends on its neighbours."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor


def seed_of(*key: object) -> int:
    """A seed that depends on all parts of a key and on nothing else.

    >>> seed_of(0, "proden") == seed_of(0, "proden"), seed_of(0, "proden") == seed_of(1, "proden")
    (True, False)
    """
    plain = tuple(int(part) if hasattr(part, "__index__") else part for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # 63 bits: a signed integer everywhere


@dataclass
class Draws:
    """One generator per model, on the CPU; numbers come out stacked, on the task's device.

    A captured step cannot ask the CPU: within it numbers for all models come from `in_step`.
    """

    generators: tuple[torch.Generator, ...]
    device: torch.device
    dtype: torch.dtype
    in_step: torch.Generator | None = None

    @classmethod
    def of(cls, seeds: Iterable[int], *purpose: object, like: Tensor) -> Self:
        """Generators for these seeds (M,) and this purpose; numbers of the kind of `like`."""
        generators = tuple(torch.Generator().manual_seed(seed_of(seed, *purpose)) for seed in seeds)
        return cls(generators, like.device, like.dtype)

    @classmethod
    def near(cls, seeds: Iterable[int], *purpose: object, like: Tensor) -> Self:
        """As `of`, with generators on the device of `like`: for many numbers, outside of training.

        A GPU draws others than a CPU, and others again where rows come in pieces of other sizes.
        """
        seeds = [seed_of(seed, *purpose) for seed in seeds]
        generators = tuple(torch.Generator(like.device).manual_seed(seed) for seed in seeds)
        return cls(generators, like.device, like.dtype)

    @property
    def models(self) -> int:
        return len(self.generators)

    def uniform(self, *shape: int) -> Tensor:
        """From [0, 1), (M, *shape)."""
        return self._drawn(torch.rand, shape)

    def normal(self, *shape: int) -> Tensor:
        """Of mean 0 and variance 1, (M, *shape)."""
        return self._drawn(torch.randn, shape)

    def _drawn(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        if self.in_step is not None:
            return draw(
                (self.models, *shape),
                generator=self.in_step,
                device=self.device,
                dtype=self.dtype,
            )
        drawn = [
            draw(shape, generator=g, device=g.device, dtype=self.dtype) for g in self.generators
        ]
        return torch.stack(drawn).to(self.device)

    def dirichlet(self, concentration: Tensor) -> Tensor:
        """A sample for each row of concentrations (M, b, k), with a gradient through them."""
        if self.in_step is not None:
            return _dirichlet(concentration, self.in_step)
        rows = zip(concentration.cpu(), self.generators, strict=True)
        return torch.stack([_dirichlet(each, g) for each, g in rows]).to(self.device)

    def order(self, n: int) -> Tensor:
        """A permutation of 0 .. n-1 for each model, (M, n), on the host."""
        drawn = torch.stack([torch.randperm(n, generator=g) for g in self.generators])
        # from pinned memory it can be copied while the device goes on
        return drawn.pin_memory() if self.device.type == "cuda" else drawn

    def seeds(self) -> list[int]:
        """A seed for each model, for code that only knows torch's global generator."""
        return [int(torch.randint(2**62, (), generator=g)) for g in self.generators]


def _dirichlet(concentration: Tensor, generator: torch.Generator) -> Tensor:
    drawn: Tensor = _Dirichlet.apply(concentration, generator)  # type: ignore[no-untyped-call]
    return drawn


class _Dirichlet(torch.autograd.Function):
    """Samples by a generator of one's own, which torch.distributions does not take."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch._sample_dirichlet(concentration, generator=generator)
        ctx.save_for_backward(drawn, concentration)
        return drawn

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """By implicit differentiation (Figurnov et al., NeurIPS 2018), as torch does it."""
        drawn, concentration = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand_as(concentration)
        slope = torch._dirichlet_grad(drawn, concentration, total)
        return slope * (gradient - (drawn * gradient).sum(-1, keepdim=True)), None


@dataclass
class Blank(Draws):
    """Shapes without numbers: lays out a network whose weights come from elsewhere."""

    count: int = 1

    @classmethod
    def models_of(cls, count: int, dtype: torch.dtype) -> Self:
        return cls((), torch.device("meta"), dtype, count=count)

    @property
    def models(self) -> int:
        return self.count

    def uniform(self, *shape: int) -> Tensor:
        return torch.empty((self.count, *shape), dtype=self.dtype, device=self.device)

    def seeds(self) -> list[int]:
        return [0] * self.count
