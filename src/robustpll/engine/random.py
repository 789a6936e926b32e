"""Random numbers per model: what one model draws does not depend on the others."""

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions.dirichlet import _Dirichlet_backward

NOW = threading.local()  # .generator: of the Dirichlet samples that this thread draws


def seed_of(*key: object) -> int:
    """Return a seed that depends only on the parts of a key."""
    plain = tuple(int(part) if hasattr(part, "__index__") else part for part in key)
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # 63 bits: a signed integer everywhere


@dataclass
class Draws:
    """One CPU generator per model; numbers are stacked and moved to the task's device."""

    generators: tuple[torch.Generator, ...]
    device: torch.device
    dtype: torch.dtype
    in_step: torch.Generator | None = None  # of all models: a captured step cannot use the CPU

    @classmethod
    def of(
        cls, seeds: Iterable[int], *purpose: object, like: Tensor, on_device: bool = False
    ) -> Self:
        """Seed generators by seeds (M,) and purpose; `like` sets dtype and device."""
        where = like.device if on_device else "cpu"  # faster, but numbers depend on the device
        keys = (seed_of(seed, *purpose) for seed in seeds)
        generators = tuple(torch.Generator(where).manual_seed(key) for key in keys)
        return cls(generators, like.device, like.dtype)

    @property
    def models(self) -> int:
        return len(self.generators)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers from [0, 1), (M, *shape)."""
        return self._draw(torch.rand, shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, (M, *shape)."""
        return self._draw(torch.randn, shape)

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        if self.in_step is not None or self.device.type == "meta":  # "meta": shapes, no numbers
            size = (self.models, *shape)
            return draw(size, generator=self.in_step, device=self.device, dtype=self.dtype)
        numbers = [
            draw(shape, generator=g, device=g.device, dtype=self.dtype) for g in self.generators
        ]
        return torch.stack(numbers).to(self.device)

    def dirichlet(self, concentration: Tensor) -> Tensor:
        """Sample for each row of concentrations (M, b, k); gradients flow through the sample."""
        if self.in_step is not None:
            sample: Tensor = sample_dirichlet(concentration)  # by the generator of `begin_step`
            return sample
        samples = []
        for alpha, generator in zip(concentration.cpu(), self.generators, strict=True):
            NOW.generator = generator
            samples.append(sample_dirichlet(alpha))
        return torch.stack(samples).to(self.device)

    def begin_step(self) -> None:
        """Tell compiled code, which cannot name a generator, that of this step."""
        NOW.generator = self.in_step

    def order(self, n: int) -> Tensor:
        """A permutation of 0 .. n-1 for each model, (M, n), on the host."""
        order = torch.stack([torch.randperm(n, generator=g) for g in self.generators])
        # Pinned memory can be copied while the device computes.
        return order.pin_memory() if self.device.type == "cuda" else order

    def seeds(self) -> list[int]:
        """One seed per model, for code that uses torch's global generator."""
        return [int(torch.randint(2**62, (), generator=g)) for g in self.generators]


@torch.library.custom_op("robustpll::sample_dirichlet", mutates_args=())
def sample_dirichlet(concentration: Tensor) -> Tensor:
    """Sample with the generator of this thread; torch.distributions does not accept one."""
    return torch._sample_dirichlet(concentration, generator=NOW.generator)


@torch.library.custom_op("robustpll::dirichlet_gradient", mutates_args=())
def dirichlet_gradient(sample: Tensor, concentration: Tensor, gradient: Tensor) -> Tensor:
    result: Tensor = _Dirichlet_backward(sample, concentration, gradient)  # type: ignore[no-untyped-call]
    return result


def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs)


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    sample, concentration = ctx.saved_tensors
    result: Tensor = dirichlet_gradient(sample, concentration, gradient)
    return result


sample_dirichlet.register_fake(torch.empty_like)
dirichlet_gradient.register_fake(lambda sample, concentration, gradient: torch.empty_like(sample))
sample_dirichlet.register_autograd(_backward, setup_context=_keep)
