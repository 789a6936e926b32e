"""Where to compute, and how precisely."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from robustpll.errors import InputError


def chosen_device(name: str | torch.device) -> torch.device:
    """The device of that name; "auto" is CUDA where there is one, else the CPU.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        msg = f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}."
        raise InputError(msg) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        msg = f"device={name!r}, but torch finds no CUDA device here. Use device='auto' or 'cpu'."
        raise InputError(msg)
    if device.type not in ("cpu", "cuda"):
        msg = (
            f"device={name!r} is not supported: the library is tested on 'cpu' and 'cuda' only, "
            "and computes opinions in float64, which some devices lack. Use device='cpu'."
        )
        raise InputError(msg)
    return device


@contextmanager
def matmul_precision(precision: str, device: torch.device) -> Iterator[None]:
    """TF32 for matrix products on CUDA if "auto", full float32 if "float32"; restored after."""
    if device.type != "cuda":
        yield
        return
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [one.fp32_precision for one in settings]
    for one in settings:
        one.fp32_precision = "tf32" if precision == "auto" else "ieee"
    try:
        yield
    finally:
        for one, was in zip(settings, before, strict=True):
            one.fp32_precision = was
