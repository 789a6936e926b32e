"""Several bundles at once, so that small ones fill a GPU."""

import contextvars
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from robustpll.engine.device import computing
from robustpll.engine.predict import Fitted
from robustpll.engine.task import Task
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

IN_FLIGHT = 8


def fit_all(
    bundles: Sequence[tuple["DeepMethod", Task]], in_flight: int = IN_FLIGHT
) -> list[Fitted]:
    """Fits bundles of (method, task), in this order; on CUDA several at once, each on a stream.

    Replaying a graph takes the host a few microseconds, and a small bundle leaves most of a GPU
    idle: so threads take turns on the host while their steps run side by side on the device. A
    bundle's result does not depend on the others. On a CPU they run one after the other.
    """
    if not bundles:
        return []
    device = bundles[0][1].prior.device
    if device.type != "cuda" or in_flight == 1:
        return [method.fit(task) for method, task in bundles]
    ready = torch.cuda.current_stream(device)

    def fit(bundle: tuple["DeepMethod", Task]) -> Fitted:
        method, task = bundle
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(ready)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            fitted = method.fit(task)
            stream.synchronize()
        return fitted

    # Settings are global, so they are set once here; within, each fit sets them to the same.
    precisions = {method.precision for method, _ in bundles}
    if len(precisions) > 1:
        msg = f"Bundles in flight must agree in precision; found {sorted(precisions)}."
        raise InputError(msg)
    with computing(precisions.pop(), device), ThreadPoolExecutor(in_flight) as pool:
        waiting = [pool.submit(contextvars.copy_context().run, fit, bundle) for bundle in bundles]
        return [one.result() for one in waiting]
