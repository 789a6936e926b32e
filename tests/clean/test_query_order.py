"""People are asked first where an answer settles most."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robustpll.clean.query_order import order_of_asking


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 1000))
def test_every_answer_is_the_one_worth_most_after_those_before(n: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    m = min(m, n - 1)
    near = np.array(
        [random.permutation([at for at in range(n) if at != row])[:m] for row in range(n)]
    )
    doubt = random.random(n)
    asked = random.permutation(n)[: n - 1]
    order, values = order_of_asking(doubt, near, asked)
    assert sorted(order) == sorted(asked)
    reach = np.zeros((n, n))  # what an answer in a row leaves of the doubt about another
    reach[np.repeat(np.arange(n), m), near.flatten()] = 1 / m
    np.fill_diagonal(reach, 1.0)
    left, waiting = doubt.copy(), set(asked.tolist())
    for row, value in zip(order.tolist(), values, strict=True):
        worth = left @ reach
        assert abs(value - worth[row]) < 1e-9
        assert worth[row] >= max(worth[other] for other in waiting) - 1e-9
        left *= 1 - reach[:, row]
        waiting.discard(row)


def test_a_row_in_a_doubtful_crowd_comes_before_a_doubtful_loner() -> None:
    near = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [5, 0], [4, 0]])
    doubt = np.array([0.5, 0.5, 0.5, 0.6, 0.0, 0.0])
    order, _ = order_of_asking(doubt, near, np.arange(4))
    assert order.tolist() == [0, 3, 1, 2]  # the others of the crowd are worth less then


def test_many_rows_are_ordered_in_seconds() -> None:
    random = np.random.default_rng(0)
    near = random.integers(30_000, size=(30_000, 5))
    start = time.process_time()
    order, values = order_of_asking(random.random(30_000), near, np.arange(30_000))
    assert time.process_time() - start < 10
    assert len(set(order.tolist())) == 30_000
    assert (np.diff(values) <= 1e-9).all()
