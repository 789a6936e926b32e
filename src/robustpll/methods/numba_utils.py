"""What makes work on the host faster: compiled loops, and threads that share it."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function | None:
    """A function as machine code, kept on disk for later processes; None without numba.

    It is written in the part of Python that numba compiles. Whoever asks keeps what is given.

    >>> def double(number: int) -> int:
    ...     return 2 * number
    >>> fast = compiled(double)
    >>> fast is None or fast(4) == 8
    True
    """
    try:
        import numba
    except ImportError:
        return None
    # Sums may be taken in any order, else they would not be vectorised; infinities stay what
    # they are.
    code: Any = partial(numba.njit, nogil=True, fastmath={"reassoc", "contract", "nsz"})
    try:
        found: Function = code(cache=True)(function)
    except RuntimeError:  # there is no folder that may be written to
        found = code()(function)
    return found


@contextmanager
def threads(device: torch.device) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over parts of work, which a CPU's threads share; torch has one thread in each.

    For what torch would divide into too small pieces, and what torch does not compute.

    >>> with threads(torch.device("cpu")) as each:
    ...     list(each(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    count = torch.get_num_threads() if device.type == "cpu" else 1
    if count == 1:
        yield map
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(count)
