"""Nearest neighbours are those of comparing everything in float64, whatever the rows are like."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from robustpll.methods import neighbours as module
from robustpll.methods.comparing import compiled_comparison
from robustpll.methods.neighbours import neighbours, weighted_sum

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


WAYS = {"compiled": 0, "by torch alone": 2**60}  # pairs of rows from which on it is compiled


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_comparison() is not None, "numba is part of the tools for tests"
    monkeypatch.setattr(module, "LARGE", WAYS[request.param])


def outlier() -> Tensor:
    rows = 1e-3 * normal(400, 20)
    rows[7] = 1e8
    return rows


def two_clusters() -> Tensor:
    rows = normal(400, 20)
    rows[::2] += 1e6
    return rows


ROWS = {
    "random": normal(500, 30),
    "in float32": normal(500, 30).float(),
    "far from the origin": normal(500, 30) + 1e6,
    "far from the origin in float32": (normal(500, 30) + 1e6).float(),
    "of very different sizes": (5 * normal(500, 10)).exp(),
    "nearly the same": 1 + 1e-9 * normal(500, 10),
    "two clusters far apart": two_clusters(),
    "with an outlier": outlier(),
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


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("kind", ROWS)
def test_neighbours_are_those_of_comparing_everything(kind: str, itself: bool) -> None:
    rows = ROWS[kind]
    queries = rows if itself else rows[:50] + 0.1 * rows.std() * normal(*rows[:50].shape)
    at, distance = everything_compared(queries, rows, 10, itself)
    found = neighbours(queries, rows, 10, itself=itself)
    np.testing.assert_array_equal(found.at, at)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-12)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("kind", TIED)
def test_of_equally_near_rows_the_first_come_first(kind: str, itself: bool) -> None:
    rows = TIED[kind]
    at, distance = everything_compared(rows, rows, 10, itself)
    found = neighbours(rows, rows, 10, itself=itself)
    np.testing.assert_array_equal(found.at, at)
    np.testing.assert_array_equal(found.distance, distance)


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=2, max_size=60),
    count=st.integers(1, 12),
    shift=st.sampled_from([0, 1, 2**20, -(2**40)]),
)
def test_any_small_set_of_points_is_searched_right(
    rows: list[list[int]], count: int, shift: int
) -> None:
    points = torch.tensor(rows, dtype=torch.float64) + shift
    for itself, large in itertools.product((True, False), WAYS.values()):
        at, distance = everything_compared(points, points, count, itself)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "LARGE", large)
            found = neighbours(points, points, count, itself=itself)
        np.testing.assert_array_equal(found.at, at)
        np.testing.assert_array_equal(found.distance, distance)


@pytest.mark.usefixtures("way")
def test_neighbours_are_those_of_scikit_learn() -> None:
    rows, queries = normal(3000, 40), normal(200, 40)
    search = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(rows.numpy())
    distance, at = search.kneighbors(queries.numpy())
    found = neighbours(queries, rows, 7)
    np.testing.assert_array_equal(found.at, at)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_lower_bounds_are_below_every_distance_that_they_leave_out(
    kind: str, dtype: torch.dtype
) -> None:
    rows = (ROWS | TIED)[kind]
    some = len(rows) // 3
    if some == 0:
        return
    buffer = torch.empty(len(rows), len(rows), dtype=dtype)
    near, least = module.Bounds.of(rows, dtype).smallest(rows.double(), some, buffer)
    apart = torch.from_numpy(cdist(rows.double().numpy(), rows.double().numpy()))
    others = apart.scatter(1, near, torch.inf)
    assert (least <= others.amin(1)).all()
    assert not least.isnan().any()


def test_most_rows_are_settled_by_the_product_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the search would be right, but slow."""
    again = []
    whole = module._among_distinct
    monkeypatch.setattr(
        module, "_among_distinct", lambda *given: again.append(len(given[0])) or whole(*given)
    )
    rows = normal(4000, 50).float()
    nearest(rows, rows, 10, itself=True)
    assert sum(again) < 10
    grid = integers(3, 500, 4)
    nearest(grid, grid, 10, itself=True)
    assert sum(again) > 100  # ties do need the slow way


@pytest.mark.parametrize(
    ("rows", "left"),
    [(normal(800, 20), 0), (integers(2, 800, 12), 0), (torch.ones(800, 3), 800)],
    ids=["random", "tied", "constant"],
)
def test_compiled_code_leaves_only_rows_to_the_slow_way_to_which_very_many_are_equally_near(
    rows: Tensor, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = []
    whole = module._among_distinct
    monkeypatch.setattr(
        module, "_among_distinct", lambda *given: again.append(len(given[0])) or whole(*given)
    )
    monkeypatch.setattr(module, "LARGE", 0)
    nearest(rows, rows, 10, itself=True)  # of 800 it compares 665 at the most
    assert sum(again) == left


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("left_out", [0.3, 0.9])
@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_looking_along_few_directions_first_changes_nothing(
    kind: str, itself: bool, left_out: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (ROWS | TIED)[kind]
    expected = neighbours(rows, rows, 10, itself=itself)
    for name, value in {"FEWEST_FEATURES": 1, "WORTH": 0, "LEFT_OUT": left_out}.items():
        monkeypatch.setattr(module, name, value)
    found = neighbours(rows, rows, 10, itself=itself)
    assert torch.equal(found.at, expected.at)
    assert torch.equal(found.distance, expected.distance)


@pytest.mark.parametrize("few", [0, 1, 3])
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_bounds_along_few_directions_are_below_every_distance_too(kind: str, few: int) -> None:
    rows = (ROWS | TIED)[kind]
    some = len(rows) // 3
    if some == 0:
        return
    directions = torch.linalg.qr(normal(rows.shape[1], min(few, rows.shape[1]))).Q
    bounds = module.Bounds.of(rows, torch.float32, directions)
    near, least = bounds.smallest(rows.double(), some, torch.empty(len(rows), len(rows)))
    apart = torch.from_numpy(cdist(rows.double().numpy(), rows.double().numpy()))
    assert (least <= apart.scatter(1, near, torch.inf).amin(1)).all()


def test_rows_that_differ_in_few_directions_are_settled_by_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = []
    whole = module._search
    monkeypatch.setattr(
        module,
        "_search",
        lambda *given: searched.append((given[1].table.shape[1], len(given[0]))) or whole(*given),
    )
    monkeypatch.setattr(module, "WORTH", 1)
    rows = normal(2000, 12) @ normal(12, 300) + 0.1 * normal(2000, 300)
    at, _ = everything_compared(rows, rows, 10, itself=True)
    np.testing.assert_array_equal(nearest(rows, rows, 10, itself=True), at)
    widths, queries = zip(*searched, strict=True)
    assert widths[0] <= 12 + 2
    assert queries[0] == 2000
    assert sum(queries[1:]) < 100


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_short_products_that_torch_is_set_to_change_nothing(precision: str) -> None:
    rows = normal(1000, 200).float()
    expected = neighbours(rows, rows, 10, itself=True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = neighbours(rows, rows, 10, itself=True)
        assert torch.get_float32_matmul_precision() == precision
        settings = torch.backends.mkldnn.matmul
        assert settings.fp32_precision in ("tf32", "bf16")
        with module.exact_products(torch.device("cpu")):
            assert settings.fp32_precision == "ieee"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found.at, expected.at)
    assert torch.equal(found.distance, expected.distance)


@pytest.mark.usefixtures("way")
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.cat([normal(300, 10), integers(2, 300, 10)])
    expected = neighbours(rows, rows, 5, itself=True)
    monkeypatch.setattr(module, "FEWEST_AT_ONCE", 7)
    monkeypatch.setattr(module, "CACHED_AT_ONCE", 3)
    monkeypatch.setattr(module, "GATHERED_AT_ONCE", 3)
    found = neighbours(rows, rows, 5, itself=True)
    assert torch.equal(found.at, expected.at)
    assert torch.equal(found.distance, expected.distance)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads: int) -> None:
    rows, before = torch.cat([normal(300, 10), integers(2, 301, 10)]), torch.get_num_threads()
    at, _ = everything_compared(rows, rows, 5, itself=True)
    torch.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(nearest(rows, rows, 5, itself=True), at)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("way")
def test_rows_that_are_no_numbers_do_not_stop_the_search() -> None:
    rows = normal(300, 4)
    rows[5] = torch.nan
    found = nearest(rows, rows, 10, itself=True)
    assert ((found >= 0) & (found < 300)).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("n", [5, 300])
def test_a_row_is_not_its_own_neighbour_even_where_distances_overflow(n: int) -> None:
    rows = 1e200 * normal(n, 4)
    found = neighbours(rows, rows, 4, itself=True)
    assert found.distance.isinf().all()
    assert (found.at != torch.arange(n)[:, None]).all()
    assert all(len(set(each)) == 4 for each in found.at.tolist())


@pytest.mark.usefixtures("way")
def test_no_queries_have_no_neighbours() -> None:
    found = neighbours(normal(0, 4), normal(30, 4), 10)
    assert found.at.shape == found.distance.shape == (0, 10)


@pytest.mark.usefixtures("way")
def test_searching_leaves_the_rows_unchanged() -> None:
    rows, queries = normal(50, 4), normal(20, 4)
    before = rows.clone(), queries.clone()
    neighbours(queries, rows, 3)
    assert torch.equal(rows, before[0])
    assert torch.equal(queries, before[1])


def test_a_weighted_sum_is_that_of_the_gathered_rows() -> None:
    weights, values = normal(30, 4), normal(50, 7)
    at = torch.randint(50, (30, 4), generator=GENERATOR)
    expected = torch.einsum("qm,qmk->qk", weights, values[at])
    torch.testing.assert_close(weighted_sum(weights, values, at), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*ROWS, *TIED])
def test_a_gpu_finds_the_same(kind: str) -> None:
    rows = (ROWS | TIED)[kind]
    expected = neighbours(rows, rows, 10, itself=True)
    torch.set_float32_matmul_precision("high")
    try:
        found = neighbours(rows.cuda(), rows.cuda(), 10, itself=True)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(found.at.cpu(), expected.at)
