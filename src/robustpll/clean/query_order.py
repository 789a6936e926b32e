"""In which order to ask people, if each answer also tells something of the rows around it."""

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def order_of_asking(doubt: Floats, near: Ints, asked: Ints) -> tuple[Ints, Floats]:
    """The rows to ask about, each time the one that is worth most, and what each is worth.

    An answer settles its own row, and of each row that has it among its m nearest ones an m-th
    of the doubt that is left. So its worth is the number of labels that it is expected to put
    right. Where rows are alike, the first answer takes most of what the others were worth.

    Worths only fall, so one that was computed earlier is an upper bound: a heap of these needs
    to look again at few rows for each answer.

    `doubt` (n,) is how likely each row's label is wrong, `near` (n, m) are the nearest other rows
    of each, and `asked` are the rows to put in order.

    Rows 0 and 1 are near each other, and rows 1 and 2 are near 3:

    >>> near = np.array([[1], [3], [3], [2]])
    >>> order_of_asking(np.array([0.3, 0.4, 0.4, 0.2]), near, np.arange(4))
    (array([3, 0, 1, 2]), array([1. , 0.3, 0. , 0. ]))
    """
    n, m = near.shape
    left = doubt.astype(np.float64)
    members: Ints = np.argsort(near.flatten(), kind="stable") // m  # by what they are near to
    ends = np.cumsum(np.bincount(near.flatten(), minlength=n))
    starts = np.concatenate([[0], ends[:-1]])

    def around(row: int) -> Ints:
        return np.asarray(members[starts[row] : ends[row]])

    def worth(row: int) -> float:
        return float(left[row] + left[around(row)].sum() / m)

    heap = [(-worth(int(row)), int(row)) for row in asked]
    heapify(heap)
    order, values = [], []
    while heap:
        _, row = heappop(heap)
        now = worth(row)
        if heap and -now > heap[0][0]:
            heappush(heap, (-now, row))
            continue
        order.append(row)
        values.append(now)
        left[row] = 0.0
        left[around(row)] *= 1 - 1 / m
    return np.array(order, dtype=np.int64), np.array(values)
