"""Exact nearest neighbours by blocks of matrix products, on whatever device the rows are."""

import torch
from torch import Tensor

NUMBERS_AT_ONCE = 2**25  # distances of one block; 128 MiB in float32
SPARE = 8  # neighbours found by the product beyond those asked for: its rounding may misplace some


def nearest(queries: Tensor, references: Tensor, count: int, *, itself: bool = False) -> Tensor:
    """The `count` nearest references (r, d) of each query (q, d), nearest first, (q, count).

    Distances come from |q|^2 + |r|^2 - 2 q.r; the best few are compared again in float64. With
    `itself` queries are the references, and none is its own neighbour; its duplicates may be.

    >>> rows = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    >>> nearest(rows, rows, 2, itself=True)
    tensor([[1, 2],
            [0, 2],
            [3, 1],
            [2, 1]])
    """
    centre = references.mean(0)  # far from the origin the products would cancel
    queries, references = queries - centre, references - centre
    squares = references.square().sum(-1)
    some = min(count + SPARE + itself, len(references))
    size = max(1, NUMBERS_AT_ONCE // len(references))
    found = []
    for start in range(0, len(queries), size):
        block = queries[start : start + size]
        rough = torch.addmm(squares, block, references.T, alpha=-2)
        at = rough.topk(some, largest=False).indices  # (b, some)
        exact = (block[:, None].double() - references[at].double()).square().sum(-1)
        if itself:
            own = torch.arange(start, start + len(block), device=at.device)[:, None]
            exact = exact.masked_fill(at == own, torch.inf)
        order = exact.argsort(dim=-1, stable=True)[:, :count]
        found.append(at.gather(1, order))
    return torch.cat(found)
