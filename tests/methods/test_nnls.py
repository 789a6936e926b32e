"""Non-negative least squares: as good as scipy's, whatever the columns are like."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from robustpll.methods import nnls as module
from robustpll.methods.nnls import compiled_solutions, nonnegative_weights

B, M, D = 500, 10, 15  # problems, columns, features
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


def duplicates() -> Tensor:
    columns = uniform(B, M, D)
    columns[:, 1], columns[:, 7] = columns[:, 0], columns[:, 3]
    return columns


def zeros() -> Tensor:
    return uniform(B, M, D) * (uniform(B, M, 1) < 0.5)


TARGET = uniform(B, D)
PROBLEMS = {
    "normal": (normal(B, M, D), normal(B, D)),
    "uniform": (uniform(B, M, D), TARGET),
    "near the target": (TARGET[:, None] + 0.05 * normal(B, M, D), TARGET),
    "very near the target": (TARGET[:, None] + 1e-3 * normal(B, M, D), TARGET),
    "far shorter than the target": (uniform(B, M, D), 1e6 * TARGET),
    "of very different lengths": (uniform(B, M, D) * 10 ** (4 * normal(B, M, 1)), TARGET),
    "more columns than features": (uniform(B, M, 3), uniform(B, 3)),
    "more columns than features, of any sign": (normal(B, M, 3), normal(B, 3)),
    "near the target, few features": (TARGET[:, None, :8] + 0.1 * normal(B, M, 8), TARGET[:, :8]),
    "duplicates": (duplicates(), TARGET),
    "zero vectors": (zeros(), TARGET),
    "nothing but zeros": (torch.zeros(B, M, D, dtype=torch.float64), TARGET),
    "all the same": (uniform(B, 1, D).expand(B, M, D), TARGET),
    "all the target itself": (TARGET[:, None].expand(B, M, D), TARGET),
    "collinear": (uniform(B, 1, D) * normal(B, M, 1), TARGET),
    "of rank 2": (normal(B, M, 2) @ normal(B, 2, D), normal(B, D)),
    "opposite": (torch.cat([duplicates()[:, :5], -duplicates()[:, :5]], 1), TARGET),
    "zero target": (uniform(B, M, D), torch.zeros(B, D, dtype=torch.float64)),
    "one column": (normal(B, 1, D), normal(B, D)),
    "one feature": (normal(B, M, 1), normal(B, 1)),
    "of zeros and ones": ((uniform(B, M, D) < 0.3).double(), (TARGET < 0.3).double()),
}


NEVER = 2**60
WAYS = {"compiled": 0, "by torch alone": NEVER, "by columns, as on a GPU": NEVER}  # MANY


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_solutions() is not None, "numba is part of the tools for tests"
    monkeypatch.setattr(module, "MANY", WAYS[request.param])
    if "GPU" in request.param:
        monkeypatch.setattr(module, "_solved", module.solved_by_columns)


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    return PROBLEMS[request.param]


def test_the_conditions_of_a_minimum_hold(problem: tuple[Tensor, Tensor]) -> None:
    """No column could shorten what is left over by more weight, those in use not by less either."""
    columns, target = problem
    weights = nonnegative_weights(columns, target)
    left_over = target - (weights[..., None] * columns).sum(1)
    gain = (columns @ left_over[..., None])[..., 0]
    size = columns.norm(dim=-1) * target.norm(dim=-1, keepdim=True)
    assert (weights >= 0).all()
    assert (gain <= 1e-8 * size).all()
    assert (gain[weights > 0].abs() <= 1e-8 * size[weights > 0]).all()


def test_no_more_is_left_over_than_by_scipy(problem: tuple[Tensor, Tensor]) -> None:
    columns, target = problem
    weights = nonnegative_weights(columns, target)
    left_over = (target - (weights[..., None] * columns).sum(1)).norm(dim=-1)
    for at in range(0, B, 10):
        _, least = nnls(columns[at].mT.numpy(), target[at].numpy())
        assert left_over[at] <= least + 1e-8 * target[at].norm()


def test_where_there_is_one_solution_it_is_scipys() -> None:
    columns, target = PROBLEMS["near the target"]
    found = nonnegative_weights(columns, target)
    expected = [nnls(c.mT.numpy(), t.numpy())[0] for c, t in zip(columns, target, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert (found == 0).any()
    assert ((found > 0).sum(-1) > 1).any()


def test_the_worked_numbers_are_met() -> None:
    columns = torch.tensor([[[1, 0], [0, 1], [-1, 0]]], dtype=torch.float64)
    found = nonnegative_weights(columns, torch.tensor([[0.6, 0.2]], dtype=torch.float64))
    np.testing.assert_allclose(found, [[0.6, 0.2, 0]], atol=1e-10)


def test_equal_columns_share_and_a_column_of_zeros_gets_nothing() -> None:
    columns = duplicates()
    columns[:, 5] = 0
    found = nonnegative_weights(columns, TARGET)
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=0.01)
    np.testing.assert_allclose(found[:, 3], found[:, 7], atol=0.01)
    assert (found[:, 0] > 0.1).any()
    assert (found[:, 5] == 0).all()


def test_problems_do_not_depend_on_each_other() -> None:
    columns, target = (
        torch.cat(parts)
        for parts in zip(
            PROBLEMS["duplicates"], PROBLEMS["zero vectors"], PROBLEMS["uniform"], strict=True
        )
    )
    together = nonnegative_weights(columns, target)
    for at in range(0, len(target), 37):
        alone = nonnegative_weights(columns[at : at + 1], target[at : at + 1])[0]
        np.testing.assert_allclose(together[at], alone, atol=1e-3)
        both = ((each[..., None] * columns[at]).sum(0) for each in (together[at], alone))
        np.testing.assert_allclose(*both, atol=1e-12)


def test_weights_grow_with_the_target_and_shrink_with_the_columns() -> None:
    columns, target = PROBLEMS["uniform"]
    found = nonnegative_weights(columns, target)
    np.testing.assert_allclose(nonnegative_weights(columns, 1e9 * target), 1e9 * found, rtol=1e-9)
    np.testing.assert_allclose(nonnegative_weights(1e9 * columns, target), 1e-9 * found, rtol=1e-9)
