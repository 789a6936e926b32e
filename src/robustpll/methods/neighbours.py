"""Exact nearest neighbours by blocks of matrix products, on the device of the rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from robustpll.engine.device import float32_as

SPARE = 10  # references that are compared in float64 at first, besides as many as asked for
BOUNDS_PER_BLOCK = 2**24  # 64 MiB in float32
CPU_NUMBERS, GPU_NUMBERS = 2**17, 2**23  # of gathered rows in float64; 1 MiB stays in the cache


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
    distance. References with the smallest bounds are compared in float64. They are enough if all
    other bounds exceed the distance of the last neighbour. Otherwise, the query is searched again:
    with bounds in float64, and more and more references to compare.

    >>> rows = torch.tensor([[0.0], [1.0], [3.0]])
    >>> neighbours(rows, rows, 1, itself=True).indices.flatten()
    tensor([1, 0, 1])
    """
    queries, references = queries.detach(), references.detach()
    n, remaining = len(references), torch.arange(len(queries), device=queries.device)
    count = min(count, n - itself)
    indices = remaining.new_empty(len(queries), count)
    distance = torch.empty_like(indices, dtype=torch.float64)
    compared, dtype = count + SPARE, torch.float32
    backend: Any = torch.backends.cuda if queries.is_cuda else torch.backends.mkldnn
    with torch.no_grad(), float32_as("ieee", backend.matmul):
        while len(remaining):
            bounds, uncertain = Bounds(references, dtype), []
            parts = torch.split(remaining, max(1, BOUNDS_PER_BLOCK // n))
            buffer = bounds.table.new_empty(len(parts[0]), n)
            for rows in parts:
                batch, out = queries[rows].double(), buffer[: len(rows)]
                excluded = rows if itself else None
                nearest, certain = bounds.search(batch, excluded, count, min(compared, n), out)
                indices[rows], distance[rows] = nearest
                uncertain.append(rows[~certain])
            remaining = torch.cat(uncertain)
            compared, dtype = 24 * compared, torch.float64
    return Neighbours(indices, distance)


def weighted_sum(weights: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Return the sum over m of weights (q, m) times rows of values (n, k) at indices (q, m)."""
    return embedding_bag(indices, values, per_sample_weights=weights, mode="sum")  # no (q, m, k)


def blocks(count: int, numbers: int, device: torch.device) -> Iterator[slice]:
    """Yield slices of `count` rows whose numbers in float64 fit the cache."""
    size = max(1, (CPU_NUMBERS if device.type == "cpu" else GPU_NUMBERS) // numbers)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


class Bounds:
    """Lower bounds of the distances to references, from products in `dtype`, and a search by them.

    Relative to the centre of the references, |q - r|^2 - |q|^2 = |r|^2 - 2 q.r. For rows of d
    numbers, rounding moves this by less than slack (|q|^2 + |r|^2) / 2 with slack = (d + 16) eps.
    So |r|^2 (1 - slack) - 2 q.r as computed is at most t^2 - |q|^2 (1 - slack) if |q - r| <= t.
    """

    def __init__(self, references: Tensor, dtype: torch.dtype) -> None:
        self.references = references
        n, d = references.shape
        self.centre = references.mean(0, dtype=torch.float64)  # far from it, terms would cancel
        low, high = references.amin(0), references.amax(0)
        scale = torch.maximum(high - self.centre, self.centre - low).amax()
        self.scale = torch.where(scale > 0, scale, 1.0)  # then products do not overflow
        self.slack = (d + 16) * torch.finfo(dtype).eps
        self.table = self.centre.new_empty(n, d, dtype=dtype)
        self.squares = self.table.new_empty(n)
        for block in blocks(n, d, references.device):
            points = self.points(references[block].double())
            self.table[block] = points
            self.squares[block] = points.square().sum(1) * (1 - self.slack)

    def points(self, rows: Tensor) -> Tensor:
        """Return rows (b, d) relative to the centre and scaled."""
        return (rows - self.centre) / self.scale

    def lower(self, points: Tensor, out: Tensor) -> Tensor:
        """Return bounds minus |q|^2, (b, n), in `out`: new memory would take longer."""
        points = points.to(self.table.dtype)
        return torch.addmm(self.squares, points, self.table.T, alpha=-2, out=out)

    def limit(self, points: Tensor, distance: Tensor) -> Tensor:
        """Return what `lower` cannot exceed for references within a distance (b,), (b,)."""
        d, norm = len(self.centre), points.norm(dim=1)
        product, exact = torch.finfo(self.table.dtype), torch.finfo(torch.float64)
        distance = (distance + (d * exact.tiny) ** 0.5) / self.scale  # squares may have underflowed
        distance = distance + d**1.5 * exact.eps * (norm + d**0.5)  # rounding of the points
        underflow = 8 * (d + 16) * product.tiny * (1 + norm)
        square = distance.square() * (1 + self.slack)
        limit: Tensor = square - norm.square() * (1 - self.slack) + underflow
        return limit.to(self.table.dtype)

    def search(
        self, queries: Tensor, excluded: Tensor | None, count: int, compared: int, out: Tensor
    ) -> tuple[Neighbours, Tensor]:
        """Return the nearest of the references that are compared, and whether they are right."""
        points = self.points(queries)
        lower, index = self.lower(points, out).topk(compared, largest=False, sorted=False)
        index = index.sort(1).values  # ties are broken by index
        apart = torch.empty_like(index, dtype=torch.float64)
        for block in blocks(len(queries), compared * queries.shape[1], queries.device):
            near = self.references[index[block]].double()  # (c, compared, d)
            apart[block] = (near - queries[block, None]).norm(dim=2)
        if excluded is not None:
            apart[index == excluded[:, None]] = torch.nan  # the last of all, even beside infinity
        apart, order = apart.sort(dim=1, stable=True)
        nearest = Neighbours(index.gather(1, order[:, :count]), apart[:, :count])
        # False if a bound is NaN: then nothing is excluded
        certain = lower.amax(1) > self.limit(points, apart[:, count - 1])
        return nearest, certain | (compared == len(self.references))
