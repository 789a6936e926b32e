"""Several bundles at once, so that small ones fill a GPU."""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from robustpll.engine.data import Task
from robustpll.engine.device import computing
from robustpll.engine.predict import Networks
from robustpll.engine.train import Epochs, epochs_of, train
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
    precision = _agreed(bundles, in_flight)
    device = bundles[0][1].prior.device
    done: dict[int, Networks] = {}
    too_large: list[int] = []
    waiting = deque(enumerate(bundles))
    flying: deque[tuple[int, Epochs, AbstractContextManager[Any]]] = deque()
    # Settings are global: they are set once here, and each training sets them to the same.
    with computing(precision, device), ExitStack() as landing:
        free = [_own_stream(device) for _ in range(min(in_flight, len(bundles)))]
        while waiting or flying:
            while waiting and free:
                number, (method, task) = waiting.popleft()
                steps = landing.enter_context(closing(epochs_of(method, task)))
                flying.append((number, steps, free.pop()))
            number, steps, stream = flying.popleft()
            try:
                with stream:
                    next(steps)
            except StopIteration as finished:
                done[number] = finished.value
                free.append(stream)
            except torch.OutOfMemoryError:
                too_large.append(number)
                free.append(stream)
            else:
                flying.append((number, steps, stream))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        for number in too_large:  # alone, and in halves if need be
            done[number] = train(*bundles[number])
    return [done[number] for number in range(len(bundles))]


def _agreed(bundles: Sequence[tuple["DeepMethod", Task]], in_flight: int) -> str:
    """The precision of all bundles; refuses what cannot be in flight together."""
    twice = {method.title for method, _ in bundles if method.trains_twice}
    if twice:
        msg = f"{', '.join(sorted(twice))} trains twice, one after the other: call its fit alone."
        raise InputError(msg)
    precisions = {method.precision for method, _ in bundles}
    if len(precisions) > 1 or in_flight < 1:
        msg = (
            "Bundles in flight must agree in precision, and be 1 or more at a time; found "
            f"{sorted(precisions)} and in_flight={in_flight}."
        )
        raise InputError(msg)
    return precisions.pop()


def _own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """Work queued within it has a stream of its own, behind what is queued now."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)
