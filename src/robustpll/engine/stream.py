"""Rows that exceed the memory: scratch files, and a task whose tensors hold a window of the rows.

Steps, methods and the training loop see only the window. Each window is a random sample of all
rows, drawn when the files are written.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.random import seed_of
from robustpll.errors import InputError
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.engine.train import Training

WINDOW_NUMBERS = 2**25  # of a window, 128 MiB: features, and what is computed for each class
MOST_ROWS = 10**9 - 1  # numpy draws no larger samples


class RowFile:
    """Rows of numbers in a file without a name, which the system removes when it is closed."""

    def __init__(self, folder: Path, dtype: Any, width: int) -> None:
        self.file: Any = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self.dtype, self.width = np.dtype(dtype), width
        self.lock = threading.Lock()  # of the file's position

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows from this position on."""
        content = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        with self.lock:
            self.file.seek(start * self.width * self.dtype.itemsize)
            while len(content):
                content = content[self.file.write(content) :]

    def read(self, start: int, count: int) -> NDArray[Any]:
        """Return so many rows from this position on, (count, width)."""
        rows = np.empty((count, self.width), self.dtype)
        content = rows.reshape(-1).view(np.uint8).data
        with self.lock:
            self.file.seek(start * self.width * self.dtype.itemsize)
            while len(content):
                content = content[self.file.readinto(content) :]
        return rows

    def mapped(self, count: int) -> NDArray[Any]:
        """Return all rows as a read-only memory map, which outlives this object."""
        return np.memmap(self.file, self.dtype, "r", shape=(count, self.width))


class Scratch(ExitStack):
    """Scaled rows and candidates in files, in windows that are random samples of all rows.

    Rows are added in order. Results are stored by window, too; `in_order` returns them by row. At
    the end of its context, the files are gone.
    """

    def __init__(self, shape: tuple[int, int, int], window: int, seed: int, folder: Path) -> None:
        n, d, k = shape  # rows, features, classes
        if n > MOST_ROWS:
            raise InputError(f"X has {n:,} rows, but at most {MOST_ROWS:,} can be streamed.")
        super().__init__()
        self.n, self.k, self.seed, self.folder = n, k, seed, folder
        self.sizes = window_sizes(n, window)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.chunks: list[int] = []
        self.left = self.sizes.copy()  # rows that the windows lack
        self.rows = self.file(np.float32, d)
        self.candidates = self.file(np.uint8, -(-k // 8))  # bits
        self.prior: RowFile | None = None  # uniform on the candidates
        self.label_weights = self.file(np.float32, k)
        self.predicted = self.file(np.int32, 1)

    def file(self, dtype: Any, width: int) -> RowFile:
        """Return a new file for rows of this width."""
        rows = RowFile(self.folder, dtype, width)
        self.enter_context(rows.file)
        return rows

    def add(self, rows: NDArray[Any], candidates: NDArray[Any], prior: Any = None) -> None:
        """Write the next rows (b, d), their candidates (b, k) and, if not uniform, their prior."""
        if len(rows) > self.left.sum():
            raise InputError("X has more rows than before: it changed while it was read.")
        bits = np.packbits(candidates, axis=1)
        if prior is not None and self.prior is None:
            self.prior = self.file(np.float32, self.k)
        for start, chosen in self._places(len(self.chunks), len(rows), self.left):
            self.rows.write(start, rows[chosen])
            self.candidates.write(start, bits[chosen])
            if self.prior is not None:
                self.prior.write(start, prior[chosen])
        self.chunks.append(len(rows))

    def _places(self, chunk: int, size: int, left: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
        """Return positions in the files, and which rows of a chunk are stored from there on.

        `left` is how many rows the windows lacked before, and is updated. A single window keeps the
        order; otherwise rows are assigned as a random permutation of all rows would do.
        """
        order, counts = np.arange(size), np.array([size])
        if len(self.sizes) > 1:
            random = np.random.default_rng(seed_of(self.seed, "chunk", chunk))
            counts = random.multivariate_hypergeometric(left, size)
            order = random.permutation(size)
        starts = (self.starts + self.sizes - left).tolist()
        left -= counts
        return [*zip(starts, np.split(order, np.cumsum(counts)[:-1]), strict=True)]

    def in_order(self, stored: RowFile, values: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return what was stored by window as a read-only memory map by row.

        With `values` (k,), the stored numbers are indices into them, and the map is (n,).
        """
        dtype = stored.dtype if values is None else values.dtype
        ordered, left, done = self.file(dtype, stored.width), self.sizes.copy(), 0
        for chunk, size in enumerate(self.chunks):
            rows = np.empty((size, stored.width), stored.dtype)
            for start, chosen in self._places(chunk, size, left):
                rows[chosen] = stored.read(start, len(chosen))
            ordered.write(done, rows if values is None else values[rows])
            done += size
        mapped = ordered.mapped(self.n)
        return mapped if values is None else mapped[:, 0]

    def read(self, window: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Return the rows of a window, their candidates, and their prior unless uniform."""
        place = (self.starts[window], self.sizes[window])
        bits = np.unpackbits(self.candidates.read(*place), axis=1, count=self.k)
        prior = None if self.prior is None else self.prior.read(*place)
        return self.rows.read(*place), bits.view(bool), prior

    def fill(self, task: Task, content: tuple[Any, Any, Any]) -> None:
        """Copy what `read` returned to the tensors of a task."""
        rows, matrix, prior = content
        candidates = torch.from_numpy(matrix)
        shares = candidates / candidates.sum(-1, keepdim=True) if prior is None else prior
        task.rows.pool[: len(rows)].copy_(torch.from_numpy(rows))
        task.candidates[:, : len(rows)] = candidates.to(task.candidates.device)
        task.prior[:, : len(rows)] = torch.as_tensor(shares).to(task.prior)


def window_sizes(n: int, window: int) -> NDArray[np.int64]:
    """Return the sizes of windows of n rows; a last one of one row joins the one before.

    >>> window_sizes(10, 4), window_sizes(9, 4), window_sizes(3, 4)
    (array([4, 4, 2]), array([4, 5]), array([3]))
    """
    sizes = [window] * (n // window) + [n % window] * (n % window > 0)
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [window + 1]
    return np.array(sizes)


@dataclass(frozen=True)
class WindowTask(Task):
    """A task of one run whose tensors hold a window of its rows; its length is that of all rows."""

    scratch: Any = None  # Scratch

    def __len__(self) -> int:
        return int(self.scratch.n)

    def sample(self) -> Task:
        """Return the rows of the first window as a task."""
        self.scratch.fill(self, self.scratch.read(0))
        whole = Task(self.rows, self.candidates, self.prior, self.weight, self.seeds)
        return whole.some_rows(torch.arange(self.scratch.sizes[0], device=self.prior.device))


class Stream:
    """Moves a training from window to window, and stores the state of its rows in files."""

    def __init__(self, training: "Training") -> None:
        self.training, self.task, self.state = training, training.task, training.state
        self.scratch: Scratch = training.task.scratch  # type: ignore[attr-defined]
        self.tensors = dict(self.state.rows)
        widths = {n: value[:, 0].numel() for n, value in self.tensors.items()}
        self.files = {n: self.scratch.file(np.float32, width) for n, width in widths.items()}
        self.seen: set[int] = set()  # windows whose rows have a state

    def windows(self, epoch: int) -> Iterator[int]:
        """Load all windows in a random order; yield the number of rows of each."""
        random = np.random.default_rng(seed_of(self.scratch.seed, "windows", epoch))
        for window in self._loaded(random.permutation(len(self.scratch.sizes))):
            size = int(self.scratch.sizes[window])
            yield size
            for name, tensor in self.tensors.items() if len(self.scratch.sizes) > 1 else ():
                self.files[name].write(self.scratch.starts[window], tensor[:, :size].cpu().numpy())

    def finish(self, results: Callable[[], tuple[Tensor, Opinion]]) -> tuple[Tensor, Opinion]:
        """Store the label weights and predictions of all windows; return `results` of the last."""
        for window in self._loaded(range(len(self.scratch.sizes))):
            start, size = self.scratch.starts[window], int(self.scratch.sizes[window])
            weights, opinion = results()
            self.state.rows.update(self.tensors)  # methods may replace them in the end
            weights, opinion = weights[:, :size], opinion[:, :size]
            self.scratch.label_weights.write(start, weights[0].cpu().numpy())
            self.scratch.predicted.write(start, opinion.predicted()[0].cpu().numpy())
        return weights, opinion

    def _loaded(self, order: Iterable[int]) -> Iterator[int]:
        """Load window after window; a thread reads the next one meanwhile."""
        if len(self.scratch.sizes) == 1 and self.seen:
            yield 0
            return
        windows = [*map(int, order)]
        with ThreadPoolExecutor(1, thread_name_prefix="read") as reader:
            pending = reader.submit(self._read, windows[0])
            for window, following in zip(windows, [*windows[1:], None], strict=True):
                self._fill(window, *pending.result())
                if following is not None:
                    pending = reader.submit(self._read, following)
                yield window

    def _read(self, window: int) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Return the content of a window, and the state of its rows if they have any."""
        place = (self.scratch.starts[window], self.scratch.sizes[window])
        files = self.files.items() if window in self.seen else ()
        return self.scratch.read(window), {name: file.read(*place) for name, file in files}

    def _fill(self, window: int, content: Any, state: dict[str, NDArray[Any]]) -> None:
        self.scratch.fill(self.task, content)
        if window not in self.seen:
            self.seen.add(window)
            for name, value in self.training.method.begin(self.task).rows.items():
                self.tensors[name].copy_(value)
        size = int(self.scratch.sizes[window])
        for name, values in state.items():
            tensor = self.tensors[name][:, :size]
            tensor.copy_(torch.from_numpy(values).view(tensor.shape))
