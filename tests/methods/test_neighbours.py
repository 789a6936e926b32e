"""Nearest neighbours are those of comparing everything in float64, whatever the rows are like."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from torch import Tensor

from robustpll.engine.device import float32_as
from robustpll.methods import neighbours as module
from robustpll.methods.neighbours import Bounds, neighbours, weighted_sum

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def integers(below: int, *shape: int) -> Tensor:
    return torch.randint(below, shape, generator=GENERATOR).double()


def everything_compared(
    queries: Tensor, references: Tensor, count: int, itself: bool
) -> tuple[np.ndarray, np.ndarray]:
    """By scipy, which neither expands the square nor leaves anything out."""
    apart = cdist(queries.double().numpy(), references.double().numpy())
    if itself:
        np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1, kind="stable")[:, : min(count, len(references) - itself)]
    return order, np.take_along_axis(apart, order, 1)


IS_EVEN = (torch.arange(400) % 2 == 0)[:, None]
ROWS = {
    "random": normal(500, 30),
    "in float32": normal(500, 30).float(),
    "far from the origin": normal(500, 30) + 1e6,
    "far from the origin in float32": (normal(500, 30) + 1e6).float(),
    "of very different sizes": (5 * normal(500, 10)).exp(),
    "nearly the same": 1 + 1e-9 * normal(500, 10),
    "two clusters far apart": normal(400, 20) + 1e6 * IS_EVEN,
    "with an outlier": torch.cat([1e-3 * normal(400, 20), torch.full((1, 20), 1e8)]),
    "too small for squares in float32": 1e-30 * normal(300, 5),
    "too large for squares in float32": 1e30 * normal(300, 5),
    "too small for squares beside one": torch.cat(
        [1e-22 * normal(300, 5), torch.eye(5), -torch.eye(5)]
    ),
    "too small for squares in float64": 1e-170 * normal(300, 5),
    "more features than rows": normal(60, 700),
    "two": normal(2, 3),
    "fewer than asked for": normal(6, 3),
}
# Distances are roots of integers, so that two ways of computing them agree to the last digit.
TIED = {
    "constant": torch.ones(300, 8, dtype=torch.float64),
    "zero": torch.zeros(40, 3),
    "duplicates": integers(9, 20, 6)[integers(20, 600).long()],
    "duplicates far from the origin": 1e6 + integers(9, 20, 6)[integers(20, 600).long()],
    "binary": integers(2, 500, 12),
    "grid": integers(4, 700, 3),
    "one column": integers(100, 300, 1),
    "all equally far": torch.eye(200),
}
# With few spare references, queries are searched again.
WAYS = {
    "as usual": {},
    "again and again": {"SPARE": 1},
    "in small blocks": {"BOUNDS_PER_BLOCK": 10_000, "CPU_NUMBERS": 3000},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_neighbours_are_those_of_comparing_everything_and_ties_are_broken_by_index(
    kind: str,
) -> None:
    rows = (ROWS | TIED)[kind]
    other = rows if kind in TIED else rows[:50] + 0.1 * rows.std() * normal(*rows[:50].shape)
    for queries, itself in ((rows, True), (other, False)):
        indices, distance = everything_compared(queries, rows, 10, itself)
        nearest = neighbours(queries, rows, 10, itself=itself)
        np.testing.assert_array_equal(nearest.indices, indices)
        np.testing.assert_allclose(nearest.distance, distance, rtol=0 if kind in TIED else 1e-12)


@settings(max_examples=30)
@given(
    rows=st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=2, max_size=60),
    count=st.integers(1, 12),
    shift=st.sampled_from([0, 1, 2**20, -(2**40)]),
    itself=st.booleans(),
)
def test_any_small_set_of_points_is_searched_right(
    rows: list[list[int]], count: int, shift: int, itself: bool
) -> None:
    points = torch.tensor(rows, dtype=torch.float64) + shift
    indices, distance = everything_compared(points, points, count, itself)
    nearest = neighbours(points, points, count, itself=itself)
    np.testing.assert_array_equal(nearest.indices, indices)
    np.testing.assert_array_equal(nearest.distance, distance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_no_bound_excludes_a_reference_within_the_limit(kind: str, dtype: torch.dtype) -> None:
    rows = (ROWS | TIED)[kind]
    n = len(rows)
    apart = torch.from_numpy(cdist(rows.double().numpy(), rows.double().numpy()))
    bounds = Bounds(rows, dtype)
    points = bounds.points(rows.double())
    lower = bounds.lower(points, bounds.table.new_empty(n, n))
    for rank in (0, n // 3, n - 1):
        distance = apart.sort().values[:, rank]
        limit = bounds.limit(points, distance)
        assert not ((apart <= distance[:, None]) & (lower > limit[:, None])).any()


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_short_products_that_torch_is_set_to_change_nothing(precision: str) -> None:
    rows = normal(1000, 200).float()
    expected = neighbours(rows, rows, 10, itself=True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        nearest = neighbours(rows, rows, 10, itself=True)
        assert torch.get_float32_matmul_precision() == precision
        backend = torch.backends.mkldnn.matmul
        assert backend.fp32_precision in ("tf32", "bf16")
        with float32_as("ieee", backend):
            assert backend.fp32_precision == "ieee"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(nearest.indices, expected.indices)
    assert torch.equal(nearest.distance, expected.distance)


def test_odd_rows_do_not_stop_the_search() -> None:
    rows = normal(300, 4)
    rows[5] = torch.nan
    indices = neighbours(rows, rows, 10, itself=True).indices
    assert ((indices >= 0) & (indices < 300)).all()
    nothing = neighbours(normal(0, 4), normal(30, 4), 10)
    assert nothing.indices.shape == nothing.distance.shape == (0, 10)


@pytest.mark.parametrize("n", [5, 300])
def test_a_row_is_not_its_own_neighbour_even_where_distances_overflow(n: int) -> None:
    rows = 1e200 * normal(n, 4)
    nearest = neighbours(rows, rows, 4, itself=True)
    assert nearest.distance.isinf().all()
    assert (nearest.indices != torch.arange(n)[:, None]).all()
    assert all(len(set(row)) == 4 for row in nearest.indices.tolist())


def test_a_weighted_sum_is_that_of_the_gathered_rows() -> None:
    weights, values = normal(30, 4), normal(50, 7)
    indices = torch.randint(50, (30, 4), generator=GENERATOR)
    expected = torch.einsum("qm,qmk->qk", weights, values[indices])
    torch.testing.assert_close(weighted_sum(weights, values, indices), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_a_gpu_finds_the_same(kind: str) -> None:
    rows = (ROWS | TIED)[kind]
    expected = neighbours(rows, rows, 10, itself=True)
    torch.set_float32_matmul_precision("high")
    try:
        nearest = neighbours(rows.cuda(), rows.cuda(), 10, itself=True)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(nearest.indices.cpu(), expected.indices)
