"""Where to compute, and how precisely."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from robustpll.errors import InputError, count_of_variable


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
def computing(precision: str, device: torch.device) -> Iterator[None]:
    """torch's settings for a computation of ours; the user's own are back afterwards.

    On CUDA "auto" lets matrix products use TF32. On a CPU threads that spin at barriers can be
    many times slower than one thread when other work shares the cores, so unless the environment
    says that they wait passively (OMP_WAIT_POLICY), one thread is used.
    """
    if device.type != "cuda":
        threads = torch.get_num_threads()
        if os.environ.get("OMP_WAIT_POLICY", "").lower() != "passive":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
        return
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [one.fp32_precision for one in settings]
    for one in settings:
        one.fp32_precision = "ieee" if precision == "float32" else "tf32"
    try:
        with torch.cuda.device(device):  # its streams, where there are several devices
            yield
    finally:
        for one, was in zip(settings, before, strict=True):
            one.fp32_precision = was


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch uses one thread on the CPU, so that it starts no others.

    A process whose pool of threads is running must not fork: a child that asks the pool for work
    waits for ever.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def room(device: torch.device) -> int:
    """Bytes that rows may take on a device; what is larger stays on the host.

    Half of what is free: the rest is for the networks and their steps. The environment variable
    ROBUSTPLL_DEVICE_BYTES sets another limit.
    """
    asked = count_of_variable("ROBUSTPLL_DEVICE_BYTES")
    if asked is not None:
        return asked
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else sys.maxsize


def has_bf16(device: torch.device) -> bool:
    """Whether products of bfloat16 are computed in units of their own, and so are fast."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capability = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capability.get("avx512_bf16") or capability.get("amx_bf16"))


def device_name(device: torch.device) -> str:
    """What a measurement was made on."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return f"{known.get('cpu_name', 'CPU')}, {os.cpu_count()} cores"
