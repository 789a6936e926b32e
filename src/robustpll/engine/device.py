"""Device, precision and threads."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from robustpll.errors import InputError, count_of_variable


def chosen_device(name: str | torch.device) -> torch.device:
    """Return the device of that name; "auto" is CUDA if available, else the CPU."""
    has_cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?" if has_cuda else "cpu", str(name)):
        reason = "" if has_cuda else " (torch finds no CUDA device here)"
        raise InputError(f"device must be 'auto', 'cpu' or 'cuda'{reason}; got {name!r}.")
    return torch.device(name)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use this many CPU threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def float32_as(precision: str, *settings: Any) -> Iterator[None]:
    """Compute float32 products in this precision, "ieee" or "tf32", by some settings of torch."""
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = precision
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


@contextmanager
def computing(precision: str, device: torch.device) -> Iterator[None]:
    """Apply the library's torch settings within the context; "auto" uses TF32 on CUDA."""
    if device.type != "cuda":
        # Threads that spin at barriers are slower than one thread if other work shares the cores.
        passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        with threads(torch.get_num_threads() if passive else 1):
            yield
        return
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    product = "ieee" if precision == "float32" else "tf32"
    with float32_as(product, *settings), torch.cuda.device(device):  # makes its streams current
        yield


def room(device: torch.device) -> int:
    """Return the bytes that rows may take on a device; larger data stays on the host."""
    limit = count_of_variable("ROBUSTPLL_DEVICE_BYTES")
    if limit is None and device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2  # networks and steps use the rest
    return sys.maxsize if limit is None else limit


def _cpu_capabilities() -> Mapping[str, Any]:
    return torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}


def has_bf16(device: torch.device) -> bool:
    """Whether the device has hardware for bfloat16 products, so that they are fast."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(_cpu_capabilities().get("avx512_bf16") or _cpu_capabilities().get("amx_bf16"))


def device_name(device: torch.device) -> str:
    """Return the name of the device, for reports of measurements."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{_cpu_capabilities().get('cpu_name', 'CPU')}, {os.cpu_count()} cores"
