"""Exact nearest neighbours by blocks of matrix products, on the device of the rows."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

GROUP = 16  # references whose smallest bound is examined first
BOUNDS_PER_BLOCK = 2**25  # 128 MiB in float32
BOUNDS_PER_CPU_BLOCK, FEWEST_QUERIES = (
    2**20,
    256,
)  # 4 MiB stay in the cache, but small products are slow
CPU_NUMBERS, GPU_NUMBERS = 2**17, 2**23  # of gathered rows in float64; 1 MiB stays in the cache
MANY_PAIRS = 2**21  # of queries and references: worth the start of threads
LEFT_OUT = 0.05  # share of the references' variance outside of the leading directions
FEWEST_FEATURES = (
    256  # with fewer, the product is cheap beside the selection of its smallest values
)
WORTH = 500  # finding directions takes as long as the products of WORTH * d**2 pairs


class Neighbours(NamedTuple):
    """The nearest references of each query, nearest first; ties are broken by index."""

    indices: Tensor  # (q, count)
    distance: Tensor  # (q, count) in float64


def neighbours(
    queries: Tensor, references: Tensor, count: int, *, itself: bool = False
) -> Neighbours:
    """Return the `count` nearest references (r, d) of each query (q, d), or all if there are fewer.

    With `itself`, queries are the references, and no row is its own neighbour.

    The result is that of all distances in float64. A product in float32 gives a lower bound of each
    distance, rounding included. Distances of a few references with small bounds limit that of the
    last neighbour, and all references with bounds below this limit are compared in float64. Queries
    with very many such references are searched again, with bounds in float64 and few of equal
    references. On a CPU, bounds of wide rows use only the directions of most variance.

    >>> rows = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    >>> neighbours(rows, rows, 2, itself=True).indices
    tensor([[1, 2],
            [0, 2],
            [3, 1],
            [2, 1]])
    """
    queries, references = queries.detach().contiguous(), references.detach().contiguous()
    n, rows = len(references), torch.arange(len(queries), device=queries.device)
    count = min(count, n - itself)
    excluded = rows if itself else torch.full_like(rows, -1)
    with torch.no_grad(), exact_products(queries.device):
        bounds = Bounds(references, torch.float32, _leading_directions(references, len(queries)))
        nearest, crowded = _search(queries, bounds, count, excluded, most=n // 32 + 64 * count)
        if crowded.any():
            few, skipped = queries[crowded], excluded[crowded]
            if len(few) > max(16, len(queries) // 256):
                again = _search_distinct(few, references, count, skipped)
            else:  # faster if all references are compared
                again, _ = _search(few, bounds, count, skipped, most=len(bounds.table))
            nearest.indices[crowded], nearest.distance[crowded] = again
    return nearest


def weighted_sum(weights: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Return the sum over m of weights (q, m) times rows of values (n, k) at indices (q, m).

    >>> weighted_sum(torch.tensor([[1.0, 10]]), torch.eye(3), torch.tensor([[0, 2]]))
    tensor([[ 1.,  0., 10.]])
    """
    return embedding_bag(indices, values, per_sample_weights=weights, mode="sum")  # no (q, m, k)


def blocks(count: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Yield slices of `count` rows whose numbers in float64 fit the cache."""
    size = max(1, (CPU_NUMBERS if device.type == "cpu" else GPU_NUMBERS) // numbers)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


@contextmanager
def threads(device: torch.device) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over parts of work that the threads of a CPU share; torch has one thread in each.

    >>> with threads(torch.device("cpu")) as thread_map:
    ...     list(thread_map(abs, [-1, 2, -3]))
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


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Compute products of float32 in float32, even if torch is set to a shorter type."""
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    before = backend.matmul.fp32_precision
    backend.matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.matmul.fp32_precision = before


class Bounds:
    """Lower bounds of the distances to references, from products in `dtype`.

    Relative to the centre of the references, |q - r|^2 - |q|^2 = |r|^2 - 2 q.r. For rows of w
    numbers, rounding moves this by less than slack (|q|^2 + |r|^2) / 2 with slack = (w + 16) eps.
    So |r|^2 (1 - slack) - 2 q.r as computed is at most t^2 - |q|^2 (1 - slack) if |q - r| <= t.

    With orthonormal directions (d, w), the distance along them takes the place of the distance.
    """

    def __init__(
        self, references: Tensor, dtype: torch.dtype, directions: Tensor | None = None
    ) -> None:
        self.references, self.directions = references, directions
        n, d = references.shape
        self.centre = references.mean(0, dtype=torch.float64)  # far from it, terms would cancel
        low, high = references.amin(0), references.amax(0)  # twice as fast as aminmax
        scale = torch.maximum(high - self.centre, self.centre - low).amax()
        self.scale = torch.where(scale > 0, scale, 1.0)  # then products do not overflow
        width = d if directions is None else directions.shape[1]
        self.slack = (width + 16) * torch.finfo(dtype).eps
        padded = GROUP * -(-n // GROUP)
        self.table = self.centre.new_zeros(padded, width, dtype=dtype)
        self.squares = self.table.new_full((padded,), torch.inf)
        for block in blocks(n, d, references.device):
            points = self.points(references[block].double())
            self.table[block] = points
            self.squares[block] = points.square().sum(1) * (1 - self.slack)

    def points(self, rows: Tensor) -> Tensor:
        """Return rows (b, d) relative to the centre and scaled, along the directions if any."""
        rows = (rows - self.centre) / self.scale
        return rows if self.directions is None else rows @ self.directions

    def lower(self, points: Tensor, buffer: Tensor) -> Tensor:
        """Return bounds minus |q|^2, (b, GROUP, s); reference m * s + g is at (m, g)."""
        out, points = buffer[: len(points)], points.to(self.table.dtype)
        torch.addmm(self.squares, points, self.table.T, alpha=-2, out=out)
        return torch.unflatten(out, 1, (GROUP, -1))

    def limit(self, queries: Tensor, points: Tensor, distance: Tensor) -> Tensor:
        """Return what `lower` cannot exceed for references within a distance (b,), (b,)."""
        width, d = self.table.shape[1], len(self.centre)
        product, exact = torch.finfo(self.table.dtype), torch.finfo(torch.float64)
        size = (queries - self.centre).norm(dim=1) / self.scale
        norm = points.norm(dim=1)
        distance = (distance + (d * exact.tiny) ** 0.5) / self.scale  # squares may have underflowed
        distance = distance + d**1.5 * exact.eps * (size + d**0.5)  # rounding of the points
        underflow = 8 * (width + 16) * product.tiny * (1 + norm)
        square = distance.square() * (1 + self.slack)
        limit: Tensor = square - norm.square() * (1 - self.slack) + underflow
        return limit.to(self.table.dtype)


def _leading_directions(references: Tensor, queries: int) -> Tensor | None:
    """Orthonormal directions (d, w) with most of the references' variance; None if not worth it."""
    n, d = references.shape
    short = d < FEWEST_FEATURES or queries * n < WORTH * d * d
    if short or references.device.type != "cpu":
        return None
    sample = references[:: max(1, n // (8 * d))].to(torch.float64, copy=True)
    sample -= sample.mean(0)
    sample /= sample.abs().amax()
    if not sample.isfinite().all():
        return None
    variance, directions = torch.linalg.eigh(sample.T @ sample)  # ascending
    dropped = int((variance.clamp(min=0).cumsum(0) <= LEFT_OUT * variance.sum()).sum())
    return directions[:, dropped:].contiguous() if 3 * (d - dropped) < d else None


def _search(
    queries: Tensor, bounds: Bounds, count: int, excluded: Tensor, most: int
) -> tuple[Neighbours, Tensor]:
    """The nearest references but the excluded one, and which queries (q,) were skipped.

    Queries are skipped if more than `most` references have to be compared.
    """
    n, device = len(bounds.references), queries.device
    indices = torch.empty(len(queries), count, dtype=torch.long, device=device)
    distance = torch.empty_like(indices, dtype=torch.float64)
    crowded = torch.zeros_like(excluded, dtype=torch.bool)
    size = max(1, (BOUNDS_PER_BLOCK if most < n else BOUNDS_PER_CPU_BLOCK) // n)
    if device.type == "cpu" and most < n:
        size = min(size, max(FEWEST_QUERIES, BOUNDS_PER_CPU_BLOCK // n))

    def search(part: range) -> None:
        buffer = bounds.table.new_empty(min(size, len(part)), len(bounds.table))
        for start in part[::size]:
            block = slice(start, min(start + size, part.stop))
            result = _search_block(
                queries[block].double(), excluded[block], bounds, buffer, count=count, most=most
            )
            indices[block], distance[block], crowded[block] = result

    every = range(len(queries))
    large = len(queries) * n >= MANY_PAIRS and device.type == "cpu"
    share = max(1, -(-len(queries) // (torch.get_num_threads() if large else 1)))
    with threads(device) if large else nullcontext(map) as thread_map:
        list(thread_map(search, [every[start : start + share] for start in every[::share]]))
    return Neighbours(indices, distance), crowded


def _search_block(
    queries: Tensor, excluded: Tensor, bounds: Bounds, buffer: Tensor, *, count: int, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices and distances (b, count), and whether a query (b,) was skipped; see `_search`."""
    b, n, device = len(queries), len(bounds.references), queries.device
    points = bounds.points(queries)
    lower = bounds.lower(points, buffer)
    minima = lower.amin(1)  # (b, s)
    limit = minima.new_full((b,), torch.inf)
    s = minima.shape[1]
    if s > count:  # one reference of each of the best groups
        group = minima.topk(count + 1, largest=False, sorted=False).indices  # (b, count + 1)
        member = lower.gather(2, group[:, None].expand(-1, GROUP, -1)).argmin(1)
        first = member * s + group
        row = torch.arange(b, device=device).repeat_interleave(count + 1)
        index = first.clamp(max=n - 1).flatten()
        apart = _distances(queries, bounds.references, row, index).view_as(first)
        apart.masked_fill_((first >= n) | (first == excluded[:, None]), torch.inf)
        limit = bounds.limit(queries, points, apart.sort().values[:, count - 1])
    # "not above" rather than "below": a bound that is NaN excludes nothing
    row, group = minima.gt(limit[:, None]).logical_not().nonzero().T
    pair, member = lower[row, :, group].gt(limit[row, None]).logical_not().nonzero().T
    row, index = row[pair], member * s + group[pair]
    crowded = row.bincount(minlength=b) > most
    valid = (index < n) & (index != excluded[row]) & ~crowded[row]
    row, index = row[valid], index[valid]
    apart = _distances(queries, bounds.references, row, index)
    order = index.argsort()
    order = order[apart[order].argsort(stable=True)]
    order = order[row[order].argsort(stable=True)]  # by query, distance, index
    sizes = row.bincount(minlength=b)
    starts = (sizes.cumsum(0) - sizes)[~crowded]
    chosen = order[starts[:, None] + torch.arange(count, device=device)]
    indices = torch.zeros(b, count, dtype=torch.long, device=device)
    distance = torch.zeros_like(indices, dtype=torch.float64)
    indices[~crowded], distance[~crowded] = index[chosen], apart[chosen]
    return indices, distance, crowded


def _distances(queries: Tensor, references: Tensor, row: Tensor, index: Tensor) -> Tensor:
    """Distances of pairs of a query and a reference, (p,) in float64 and without cancellation."""
    distance = torch.empty_like(row, dtype=torch.float64)
    for block in blocks(len(row), references.shape[1], row.device):
        near = references.index_select(0, index[block])
        apart = near.double().sub_(queries.index_select(0, row[block]))
        distance[block] = apart.norm(dim=1)
    return distance


def _search_distinct(
    queries: Tensor, references: Tensor, count: int, excluded: Tensor
) -> Neighbours:
    """As `neighbours`, by products in float64, with few of many equal references."""
    kind = torch.unique(references, dim=0, return_inverse=True)[1]  # (n,)
    order, sizes = kind.argsort(stable=True), kind.bincount()
    rank = torch.arange(len(kind), device=kind.device) - (sizes.cumsum(0) - sizes)[kind[order]]
    subset = order[rank <= count].sort().values  # the first count + 1 references of each kind
    place = torch.searchsorted(subset, excluded).clamp(max=len(subset) - 1)
    place = torch.where(subset[place] == excluded, place, -1)
    bounds = Bounds(references[subset], torch.float64)
    nearest, _ = _search(queries, bounds, count, place, most=len(bounds.table))
    return Neighbours(subset[nearest.indices], nearest.distance)
