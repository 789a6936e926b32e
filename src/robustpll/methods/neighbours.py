"""Exact nearest neighbours by blocks of matrix products, on whatever device the rows are."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from robustpll.methods.comparing import GROUP, Asked, Compiled, Found, compiled_comparison
from robustpll.methods.numba_utils import threads

NUMBERS_AT_ONCE = 2**25  # lower bounds of one block at the most; 128 MiB in float32
CACHED_AT_ONCE = 2**20  # on a CPU, 4 MiB, so that they stay in the cache,
FEWEST_AT_ONCE = 256  # but no fewer queries: the product would be slow
LARGE = 2**21  # pairs of rows from which on threads, and compiled code, are worth starting
GATHERED_AT_ONCE = 2**20  # numbers of rows in float64; 8 MiB, so that they stay in the cache
SPARE = 8  # references compared exactly beyond those asked for: lower bounds may misplace some
GROWTH = 8  # so many times more are compared where these were not enough
LEFT_OUT = 0.05  # share of the references' variance that leading directions need not hold
SAMPLED = 8  # references, for each feature, that show which directions lead
FEWEST_FEATURES = 256  # of fewer the product is short beside the search for its least numbers
WORTH = 500  # finding directions takes as long as the products of so many features squared

_Written = tuple[Tensor, Tensor, Tensor]  # rows of what is found: at, distance, sure


class Neighbours(NamedTuple):
    """The nearest references of each query, nearest first; of equally near ones the first."""

    at: Tensor  # (q, count)
    distance: Tensor  # (q, count) in float64


def nearest(queries: Tensor, references: Tensor, count: int, *, itself: bool = False) -> Tensor:
    """Where the `count` nearest references of each query are, (q, count); see `neighbours`.

    >>> rows = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    >>> nearest(rows, rows, 2, itself=True)
    tensor([[1, 2],
            [0, 2],
            [3, 1],
            [2, 1]])
    """
    return neighbours(queries, references, count, itself=itself).at


def neighbours(
    queries: Tensor, references: Tensor, count: int, *, itself: bool = False
) -> Neighbours:
    """The `count` nearest references (r, d) of each query (q, d), or all where there are fewer.

    With `itself` queries are the references, and none is its own neighbour; its duplicates may be.

    The result is that of comparing all distances in float64, mostly at the price of a matrix
    product in float32. The product gives a lower bound of each distance, rounding included. Some
    references with the least bounds are compared in float64. If what is found is nearer than the
    bounds of all others, it is right. Otherwise the product is done in float64, without duplicates
    of references, and if need be ever more references are compared: that is slow only for rows
    to which many different references are equally near. Of many features on a CPU, the product
    comes first in the few directions that the references differ in most.

    >>> rows = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    >>> neighbours(rows, rows, 2, itself=True).distance
    tensor([[1.0000, 3.0000],
            [1.0000, 2.0000],
            [0.5000, 2.0000],
            [0.5000, 2.5000]], dtype=torch.float64)
    """
    queries, references = (each.detach().contiguous() for each in (queries, references))
    n, rows = len(references), torch.arange(len(queries), device=queries.device)
    count = min(count, n - itself)
    own = rows if itself else torch.full_like(rows, -1)
    with torch.no_grad(), exact_products(queries.device):
        directions = _leading(references, len(queries))
        wide = 0 if directions is None else GROWTH * count
        some = min(count + itself + max(SPARE, wide), n)
        bounds = Bounds.of(references, torch.float32, directions)
        found, sure = _search(queries, bounds, count, some, own)
        left = rows[~sure]
        if len(left) and directions is not None:
            bounds, some = Bounds.of(references, torch.float32), min(count + itself + SPARE, n)
            again, sure[left] = _search(queries[left], bounds, count, some, own[left])
            found.at[left], found.distance[left] = again
            left = rows[~sure]
        if len(left):
            again = _among_distinct(queries[left], references, count, own[left])
            found.at[left], found.distance[left] = again
    return found


def weighted_sum(weights: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Sum over m of weights (q, m) times the rows of values (n, k) at (q, m), (q, k).

    >>> weighted_sum(torch.tensor([[1.0, 10]]), torch.eye(3), torch.tensor([[0, 2]]))
    tensor([[ 1.,  0., 10.]])
    """
    return embedding_bag(at, values, per_sample_weights=weights, mode="sum")  # keeps no (q, m, k)


@dataclass(frozen=True)
class Bounds:
    """References, made ready for lower bounds of their distances by a product of some type.

    With q and r from the centre of the references, |q - r|^2 - |q|^2 = |r|^2 - 2 q.r. Rounding
    makes q.r wrong by no more than slack * |q| |r|, slack being w + 16 units in the last place for
    any order of summation of w numbers; one more column of the product, |q| times slack * |r|,
    allows for it.

    With directions, a row is what it is along them, and as one more number the length of the rest:
    points of so few numbers are no farther from each other than the rows are.
    """

    references: Tensor  # (n, d)
    table: Tensor  # (n, w + 1) in the type of the product
    squares: Tensor  # (n,): |r|^2, less what rounding may do to it
    centre: Tensor  # (d,) in float64
    scale: Tensor  # (): the largest number then is 1, so that no product overflows
    directions: Tensor | None  # (d, w - 1) in float64, orthonormal

    @classmethod
    def of(cls, references: Tensor, dtype: torch.dtype, directions: Tensor | None = None) -> Self:
        n, d = references.shape
        centre = references.mean(0, dtype=torch.float64)  # |r|^2 and 2 q.r cancel far from it
        # amax and amin are twice as fast as aminmax
        scale = torch.maximum(references.amax(0) - centre, centre - references.amin(0)).amax()
        scale = torch.where(scale > 0, scale, 1.0)
        width = d if directions is None else directions.shape[1] + 1
        eps = torch.finfo(dtype).eps
        table = centre.new_empty(n, width + 1, dtype=dtype)
        squares = centre.new_empty(n, dtype=dtype)
        made = cls(references, table, squares, centre, scale, directions)
        size = max(1, GATHERED_AT_ONCE // d)
        for start in range(0, n, size):
            part = slice(start, start + size)
            rows = made.points(references[part].double())
            norms = rows.norm(dim=1)
            table[part, :-1], table[part, -1] = rows, (width + 16) * eps * norms
            squares[part] = norms.square() * (1 - 4 * eps)
        return made

    def points(self, rows: Tensor) -> Tensor:
        """Rows (b, d) from the centre, scaled; along the directions if there are any, (b, w)."""
        rows = (rows - self.centre).div_(self.scale)
        if self.directions is None:
            return rows
        along = rows @ self.directions
        whole, known = (each.norm(dim=1, keepdim=True) for each in (rows, along))
        rest = whole.square() - known.square()
        return torch.cat([along, rest.clamp(min=0).sqrt()], 1)

    def smallest(self, queries: Tensor, some: int, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """Of queries (b, d): where `some` least bounds are, (b, some) in the order of references.

        Also what the distance to every other reference is at least, (b,). The bounds are written
        to the first rows of the buffer (b or more, n).
        """
        n = len(self.table)
        if some == n:
            everything = torch.arange(n, device=queries.device).expand(len(queries), n)
            return everything, torch.full_like(queries[:, 0], torch.inf)
        rough, norms = self.rough(queries, buffer)
        least, near = _smallest(rough, some)
        a, b, c = self.terms(norms).T
        return near.sort().values, ((least[:, -1] + c).clamp(min=0).sqrt() - a) / b

    def rough(self, queries: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of |q - r|^2 - |q|^2, (b, n), written to the buffer; |q| of the points, (b,)."""
        queries = self.points(queries)
        norms = queries.norm(dim=1)
        factors = torch.cat([queries, norms[:, None]], 1).to(self.table.dtype)
        rough = buffer[: len(queries)]
        return torch.addmm(self.squares, factors, self.table.T, alpha=-2, out=rough), norms

    def terms(self, norms: Tensor) -> Tensor:
        """Terms a, b, c, (b, 3): with the bound v one is at least (sqrt(v + c) - a) / b away.

        They allow for what rounding may do to this, and to (a + b t)^2 - c.
        """
        width, product = self.table.shape[1], torch.finfo(self.table.dtype)
        exact = torch.finfo(torch.float64)
        slack = 4 * (width + 16) * exact.eps  # of what is done in float64
        tiny = 8 * (width + 16) * product.tiny  # of products that underflow
        factor = (1 + 2 * slack) / self.scale
        offset = self._blur(norms) + (width * exact.tiny) ** 0.5 / self.scale
        square = norms.square()
        known = square - 4 * slack * square - tiny * (1 + norms)
        return torch.stack([(1 + 2 * slack) * offset, factor.expand_as(norms), known], 1)

    def _blur(self, norms: Tensor) -> Tensor:
        """What rounding may add to the distance of points of these norms (b,) and the references.

        It is the lengths of the rest that count: roots of differences. References are within 1 of
        the centre in each of d features.
        """
        d = len(self.centre)
        off = 0.0 if self.directions is None else math.sqrt(16 * d * torch.finfo(norms.dtype).eps)
        return off * (norms + math.sqrt(d))


def _leading(references: Tensor, queries: int) -> Tensor | None:
    """Orthonormal directions (d, p) that hold most of the references' variance, largest last.

    None where they are not worth their price, or not few.
    """
    n, d = references.shape
    short = d < FEWEST_FEATURES or queries * n < WORTH * d * d
    if short or references.device.type != "cpu":
        return None
    some = references[:: max(1, n // (SAMPLED * d))].to(torch.float64, copy=True)
    some -= some.mean(0)
    some /= some.abs().amax()
    if not some.isfinite().all():  # no numbers, or all the same
        return None
    variance, directions = torch.linalg.eigh(some.T @ some)  # the least first
    few = d - int((variance.clamp(min=0).cumsum(0) <= LEFT_OUT * variance.sum()).sum())
    return directions[:, d - few :].contiguous() if 3 * few < d else None


def _search(
    queries: Tensor, bounds: Bounds, count: int, some: int, own: Tensor
) -> tuple[Neighbours, Tensor]:
    """The nearest of `some` references, their own (q,) left out, and whether that is sure, (q,).

    On a CPU threads share the queries; compiled code compares as many references as it takes,
    within limits.
    """
    n, device = len(bounds.references), queries.device
    at = torch.empty(len(queries), count, dtype=torch.long, device=device)
    distance = torch.empty_like(at, dtype=torch.float64)
    sure = torch.ones_like(own, dtype=torch.bool)
    large = len(queries) * n >= LARGE and device.type == "cpu"
    fast = compiled_comparison() if large and bounds.table.dtype == torch.float32 else None
    size = max(1, NUMBERS_AT_ONCE // (n + 8 * some))
    if device.type == "cpu":
        size = min(size, max(FEWEST_AT_ONCE, CACHED_AT_ONCE // n))

    def search(part: range) -> None:
        buffer = bounds.table.new_empty(min(size, len(part)), n)  # once: fresh memory is slow
        for start in part[::size]:
            rows = slice(start, min(start + size, part.stop))
            asked = queries[rows].double(), own[rows]
            found = at[rows], distance[rows], sure[rows]
            if fast is None:
                _sort(asked, bounds, some, buffer, found)
            else:
                _compare(asked, bounds, fast, buffer, found)

    everything = range(len(queries))
    share = max(1, -(-len(queries) // (torch.get_num_threads() if large else 1)))
    with threads(device) if large else nullcontext(map) as each:
        list(each(search, [everything[start : start + share] for start in everything[::share]]))
    return Neighbours(at, distance), sure


def _sort(
    asked: tuple[Tensor, Tensor], bounds: Bounds, some: int, buffer: Tensor, found: _Written
) -> None:
    """A block of a search: queries (b, d) and their own (b,)."""
    (queries, own), (at, distance, sure) = asked, found
    near, least = bounds.smallest(queries, some, buffer)
    apart = _distances(queries, bounds.references, near)
    apart.masked_fill_(near == own[:, None], torch.nan)  # sorts last, even after inf
    order = apart.argsort(dim=-1, stable=True)[:, : at.shape[1]]
    at[:], distance[:] = near.gather(1, order), apart.gather(1, order)
    if some < len(bounds.references):
        sure[:] = distance[:, -1] < least


def _compare(
    asked: tuple[Tensor, Tensor], bounds: Bounds, fast: Compiled, buffer: Tensor, found: _Written
) -> None:
    """A block of a search, by compiled code."""
    (queries, own), count = asked, found[0].shape[1]
    rough, norms = bounds.rough(queries, buffer)
    n = rough.shape[1]
    whole = n - n % GROUP
    grouped = torch.unflatten(rough[:, :whole], 1, (GROUP, -1))
    minima = torch.cat([grouped.amin(1), rough[:, whole:]], 1)
    first = torch.empty(len(queries), min(count + 1, minima.shape[1]), dtype=torch.long)
    fast.least(minima.numpy(), first.numpy())
    known = (queries, own, rough, minima, first, bounds.terms(norms))
    most = n // 32 + 64 * count  # for more of them a more exact product is faster
    fast.compare(
        Asked(*(each.numpy() for each in known)),
        bounds.references.numpy(),
        most,
        Found(*(each.numpy() for each in found)),
    )


def _among_distinct(queries: Tensor, references: Tensor, count: int, own: Tensor) -> Neighbours:
    """As `neighbours`, by products in float64, with equal references looked at as one kind.

    The nearest references are among the first few of each of as many nearest kinds.
    """
    kind = torch.unique(references, dim=0, return_inverse=True)[1]  # (n,)
    members, sizes = kind.argsort(stable=True), kind.bincount()
    starts = sizes.cumsum(0) - sizes  # of each kind in members
    first, order = members[starts].sort()  # of equally near kinds the first comes first
    sizes, starts = sizes[order], starts[order]
    kinds = _surely(queries, Bounds.of(references[first], torch.float64), count + 1)
    few = torch.arange(count + 1, device=members.device)
    at = members[(starts[kinds.at][..., None] + few).clamp(max=len(members) - 1)].flatten(1)
    none = few >= sizes[kinds.at][..., None]  # (q, kinds, count + 1)
    distance = kinds.distance[..., None].masked_fill(none, torch.nan).flatten(1)
    distance.masked_fill_(at == own[:, None], torch.nan)
    at, order = at.sort()
    distance = distance.gather(1, order)
    order = distance.argsort(dim=-1, stable=True)[:, :count]
    return Neighbours(at.gather(1, order), distance.gather(1, order))


def _surely(queries: Tensor, bounds: Bounds, count: int) -> Neighbours:
    """The nearest references; ever more are compared until the result is sure."""
    n = len(bounds.references)
    count = min(count, n)
    none = torch.full_like(queries[:, 0], -1, dtype=torch.long)
    some = min(count + SPARE, n)
    found, sure = _search(queries, bounds, count, some, none)
    while not sure.all():
        left, some = (~sure).nonzero()[:, 0], min(GROWTH * some, n)
        again, sure[left] = _search(queries[left], bounds, count, some, none[left])
        found.at[left], found.distance[left] = again
    return found


def _smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As topk of values (b, n) from below, but on a CPU three times faster.

    The least numbers are in the groups whose minima are least.
    """
    n = values.shape[1]
    size = n // GROUP  # as many groups; each takes every size-th column
    if size < count:
        return values.topk(count, largest=False)
    grouped = torch.unflatten(values[:, : GROUP * size], 1, (GROUP, size))
    best = grouped.amin(1).topk(count, largest=False, sorted=False).indices  # (b, count)
    members = grouped.gather(2, best[:, None].expand(-1, GROUP, -1)).flatten(1)
    among = torch.cat([members, values[:, GROUP * size :]], 1)
    least, order = among.topk(count, largest=False)
    of_group = size * (order // count) + best.gather(1, order % count)
    single = order >= GROUP * count
    return least, torch.where(single, order + GROUP * (size - count), of_group)


def _distances(queries: Tensor, references: Tensor, at: Tensor) -> Tensor:
    """Of queries (b, d) to the references at (b, m), in float64 and without cancellation."""
    m, d = at.shape[1], references.shape[1]
    size = max(1, GATHERED_AT_ONCE // (m * d))
    buffer = references.new_empty(min(size, len(at)) * m, d)
    found = torch.empty_like(at, dtype=torch.float64)
    for start in range(0, len(at), size):
        part = slice(start, start + size)
        near = torch.index_select(references, 0, at[part].flatten(), out=buffer[: at[part].numel()])
        apart = near.view(-1, m, d).double()
        apart -= queries[part, None]
        found[part] = apart.norm(dim=-1)
    return found


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Products of float32 are not computed in a shorter type, whatever torch is set to."""
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    before = backend.matmul.fp32_precision
    backend.matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.matmul.fp32_precision = before
