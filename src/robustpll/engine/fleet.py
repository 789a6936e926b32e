"""Several bundles at once, so that small ones fill a GPU."""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from robustpll.engine.device import computing
from robustpll.engine.predict import Networks
from robustpll.engine.task import Task
from robustpll.engine.train import Epochs, epochs_of
from robustpll.errors import InputError

if TYPE_CHECKING:
    from robustpll.methods.base import DeepMethod

IN_FLIGHT = 8


def train_all(
    bundles: Sequence[tuple["DeepMethod", Task]], in_flight: int = IN_FLIGHT
) -> list[Networks]:
    """Trains bundles of (method, task), so many at a time, and gives them back in their order.

    A small bundle leaves most of a GPU idle. Steps only queue work there, so one thread takes the
    bundles in turn, a step each, and every bundle has a stream of its own: their steps run side by
    side. A bundle's result does not depend on the others.
    """
    if not bundles:
        return []
    precisions = {method.precision for method, _ in bundles}
    if len(precisions) > 1:
        msg = f"Bundles in flight must agree in precision; found {sorted(precisions)}."
        raise InputError(msg)
    device = bundles[0][1].prior.device
    done: dict[int, Networks] = {}
    waiting = deque(enumerate(bundles))
    flying: deque[tuple[int, Epochs, AbstractContextManager[Any]]] = deque()
    # Settings are global: they are set once here, and each training sets them to the same.
    with computing(precisions.pop(), device):
        while waiting or flying:
            while waiting and len(flying) < in_flight:
                number, (method, task) = waiting.popleft()
                flying.append((number, epochs_of(method, task), _own_stream(device)))
            number, steps, stream = flying.popleft()
            try:
                with stream:
                    next(steps)
                flying.append((number, steps, stream))
            except StopIteration as finished:
                done[number] = finished.value
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return [done[number] for number in range(len(bundles))]


def _own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Work queued within it has a stream of its own, behind what is queued now."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)
