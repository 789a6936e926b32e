"""Rows of one pool, scaled for each model by its own rows."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from robustpll.engine.data import Rows

POOL = torch.tensor([[0.0, 2, 5, 0], [1, 2, 5, 0], [4, 2, 5, 0], [6, 8, -5, 3]])


def scaled(rows: Rows) -> Tensor:
    return rows.x(rows.everything)


def test_worked_numbers() -> None:
    rows = Rows.of(POOL, torch.tensor([[0, 1, 2]]))
    assert scaled(rows).tolist() == [[[0, 1, 1, 0], [0.25, 1, 1, 0], [1, 1, 1, 0]]]


def test_each_model_is_scaled_by_its_own_rows() -> None:
    rows = Rows.of(POOL, torch.tensor([[0, 1, 2], [1, 3, 1]]))
    assert rows.models == 2
    assert len(rows) == 3
    assert scaled(rows)[0].tolist() == [[0, 1, 1, 0], [0.25, 1, 1, 0], [1, 1, 1, 0]]
    assert scaled(rows)[1].tolist() == [[0, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]


def test_positions_are_each_models_own() -> None:
    rows = Rows.of(POOL, torch.tensor([[0, 1, 2], [3, 2, 1]]))
    at = torch.tensor([[2, 0], [1, 1]])
    found = rows.x(at)
    assert found.shape == (2, 2, 4)
    assert torch.equal(found, scaled(rows).gather(1, at[..., None].expand(-1, -1, 4)))


def test_others_are_scaled_by_the_training_rows() -> None:
    train = Rows.of(POOL.double(), torch.tensor([[0, 2], [0, 3]]))
    pool = torch.tensor([[2.0, 2, 5, 0], [8, 1, 10, 2]]).double()
    found = scaled(train.others(pool, torch.tensor([[1], [1]])))
    expected = torch.tensor([[[2, 0.5, 2, 2]], [[8 / 6, -1 / 6, 1.5, 2 / 3]]]).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_repeated_rows_are_neighbours() -> None:
    rows = Rows.of(POOL, torch.tensor([[0, 1], [1, 3]]))
    many = rows.repeated(3)
    assert many.models == 6
    assert many.pool is rows.pool
    assert torch.equal(scaled(many), scaled(rows).repeat_interleave(3, 0))
    assert rows.repeated(1).models == 2


def test_pictures_keep_their_shape() -> None:
    pool = torch.arange(24.0).view(4, 2, 3)
    rows = Rows.of(pool, torch.tensor([[0, 1, 3], [2, 0, 1]]))
    assert rows.shape == (2, 3)
    assert scaled(rows).shape == (2, 3, 2, 3)
    assert scaled(rows)[0, :, 0, 0].tolist() == torch.tensor([0, 1 / 3, 1]).tolist()


@given(arrays(float, (4, 3), elements=st.floats(-1e6, 1e6)), st.permutations(range(4)))
def test_scaled_rows_span_zero_to_one_and_the_pool_stays(values: object, order: list[int]) -> None:
    pool = torch.tensor(values)
    before = pool.clone()
    rows = Rows.of(pool, torch.tensor([order, order[:2] * 2]))
    found = scaled(rows)
    found += 1  # what a reader does to its rows must not matter either
    found -= 1
    assert torch.equal(pool, before)
    assert rows.pool is pool
    low, high = found.amin(1), found.amax(1)
    assert ((low > -1e-9) & (high < 1 + 1e-9)).all()
    constant = pool[rows.at].amin(1) == pool[rows.at].amax(1)
    assert torch.equal(low == high, constant)
    assert (high[~constant] > 1 - 1e-9).all()
