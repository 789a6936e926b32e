"""What a model draws depends on its seed and purpose alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustpll.engine.random import Blank, Draws, seed_of

LIKE = torch.empty(0, dtype=torch.float64)
KEY = st.lists(st.one_of(st.integers(), st.text()), min_size=1, max_size=3)


@given(KEY, KEY)
def test_seeds_differ_exactly_where_keys_do(one: list[object], other: list[object]) -> None:
    assert (seed_of(*one) == seed_of(*other)) == (one == other)
    assert 0 <= seed_of(*one) < 2**63


def test_seeds_are_the_same_in_every_process() -> None:
    assert seed_of(0, "proden") == 3935966653241340632


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_a_numpy_integer_is_the_same_seed(kind: type) -> None:
    assert seed_of(kind(3), "proden") == seed_of(3, "proden")


def test_a_model_draws_the_same_alone_and_in_a_bundle() -> None:
    bundle, alone = Draws.of([5, 6, 7], "task", like=LIKE), Draws.of([6], "task", like=LIKE)
    assert bundle.models == 3
    assert torch.equal(bundle.uniform(4, 2)[1], alone.uniform(4, 2)[0])
    assert torch.equal(bundle.order(9)[1], alone.order(9)[0])
    assert bundle.seeds()[1] == alone.seeds()[0]


def test_seed_and_purpose_tell_draws_apart() -> None:
    rows = [
        *Draws.of([0, 1], "a", like=LIKE).uniform(5),
        *Draws.of([0], "b", like=LIKE).uniform(5),
        *Draws.of([0], like=LIKE).uniform(5),
    ]
    assert len({tuple(row.tolist()) for row in rows}) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_do_not_depend_on_how_they_are_split(dtype: torch.dtype) -> None:
    like = torch.empty(0, dtype=dtype)
    whole = Draws.of([0, 1], like=like).uniform(50, 3)
    draws = Draws.of([0, 1], like=like)
    pieces = torch.cat([draws.uniform(n, 3) for n in (1, 4, 40, 5)], 1)
    assert whole.dtype == dtype
    assert torch.equal(whole, pieces)


def test_uniform_numbers_fill_the_unit_interval() -> None:
    drawn = Draws.of(range(3), like=LIKE).uniform(20_000)
    assert ((drawn >= 0) & (drawn < 1)).all()
    deviation = (1 / 12 / 20_000) ** 0.5
    assert ((drawn.mean(-1) - 0.5).abs() <= 4 * deviation).all()


def test_orders_are_permutations() -> None:
    order = Draws.of([0, 1], like=LIKE).order(30)
    assert torch.equal(order.sort(-1).values, torch.arange(30).expand(2, -1))
    assert not torch.equal(order[0], order[1])


def test_drawing_leaves_the_global_generator_untouched() -> None:
    before = torch.get_rng_state()
    draws = Draws.of([0], like=LIKE)
    drawn = draws.uniform(3), draws.order(3), draws.seeds()
    assert len(drawn) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_blank_has_shapes_and_no_numbers() -> None:
    blank = Blank.models_of(3, torch.float64)
    assert blank.models == 3
    assert blank.uniform(4, 2).is_meta
    assert blank.uniform(4, 2).shape == (3, 4, 2)
    assert len(blank.seeds()) == 3
