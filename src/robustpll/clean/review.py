"""Which rows need a person, in which order, and why."""

from collections import defaultdict
from heapq import heapify, heappop, heappush

import numpy as np
import pandas as pd

from robustpll.clean.findings import candidate_names
from robustpll.clean.judge import Floats, Ints, Judgement
from robustpll.estimator.abstention import mean_threshold
from robustpll.evaluate.missing_truth import suspicion

UNSURE = 0.5  # a row differs from the others if its uncertainty exceeds this and this quantile:
UNSURE_QUANTILE = 0.95


def review(judged: Judgement, rows: Ints, twins: pd.DataFrame, error: float) -> pd.DataFrame:
    """Return the rows for a person to decide, in `query_order`; the index is the position.

    They are as few as possible so that the expected share of wrong labels among the other rows is
    at most `error`; contradicting `twins` are always included. `rows` (n,) are line or row numbers.
    """
    doubt = 1 - judged.confidence
    descending = np.sort(judged.confidence)[::-1]
    asked = judged.confidence < mean_threshold(descending, 1 - descending, error)
    contrary = defaultdict(list)  # position of a row -> numbers of its twins
    position = {int(row): index for index, row in enumerate(rows)}
    for row, twin in zip(twins["row"].tolist(), twins["twin"].tolist(), strict=True):
        contrary[position[row]].append(twin)
        contrary[position[twin]].append(row)
    asked[list(contrary)] = True
    order, value = query_order(doubt, judged.near[0], np.flatnonzero(asked & ~judged.decided))
    uncertainty = np.asarray(judged.opinion.uncertainty)
    differs = uncertainty > max(UNSURE, float(np.quantile(uncertainty, UNSURE_QUANTILE)))
    suspect = suspicion(judged.opinion, judged.candidates.matrix, "rival") > 0.5
    suspect &= judged.missing > doubt / 2
    why = [
        _why(judged, row, bool(suspect[row]), contrary.get(row, []), bool(differs[row]))
        for row in order.tolist()
    ]
    return pd.DataFrame(
        {
            "row": rows[order],
            "value_of_asking": value,
            "why": [next(iter(reasons)) for reasons in why],
            "reason": ["; ".join(reasons.values()) for reasons in why],
            "resolved_label": judged.labels[order],
            "confidence": judged.confidence[order],
            "candidates": candidate_names(judged, order),
        },
        index=order,
    )


def _why(
    judged: Judgement, row: int, suspect: bool, twins: list[int], differs: bool
) -> dict[str, str]:
    """Return the kinds of doubt about a row and a reason for each, the main one first."""
    classes, inside = judged.candidates.classes, judged.candidates.matrix[row]
    label, outside = classes[judged.resolved[row]], classes[judged.best_outside[row]]
    reasons = {}
    if suspect:
        reasons["truth missing"] = f"looks like {outside}, which is not a candidate"
    if twins:
        others = ", ".join(map(str, twins[:3]))
        reasons["contradicts twin"] = f"nearly equals row {others}, but shares no candidate with it"
    if differs:
        reasons["unlike others"] = "differs from the other rows, so the model knows little about it"
    if inside.sum() > 1:
        rivals = np.where(inside, judged.probability[row], -1.0)
        rivals[judged.resolved[row]] = -1.0
        reasons["ambiguous"] = f"{label} or {classes[rivals.argmax()]}"
    elif not suspect:
        reasons["ambiguous"] = f"{label}, or perhaps {outside}, which is not a candidate"
    return reasons


def query_order(doubt: Floats, near: Ints, asked: Ints) -> tuple[Ints, Floats]:
    """Return the rows `asked` in the order of the value of asking, and that value.

    An answer removes the doubt (n,) about its row, and an m-th of the doubt about each row that has
    it among its m nearest rows, `near` (n, m). Its value is the doubt that it removes: the expected
    number of corrected labels, given the answers before.
    """
    n, m = near.shape
    left = doubt.astype(np.float64)
    grouped = np.argsort(near.flatten(), kind="stable") // m  # rows, grouped by their neighbour
    ends = np.cumsum(np.bincount(near.flatten(), minlength=n))
    around = np.split(grouped, ends[:-1])  # the rows that have a row among their nearest

    def value(row: int) -> float:
        return float(left[row] + left[around[row]].sum() / m)

    heap = [(-value(row), row) for row in asked.tolist()]  # values only fall: these are bounds
    heapify(heap)
    order, values = [], []
    while heap:
        _, row = heappop(heap)
        current = value(row)
        if heap and -current > heap[0][0]:
            heappush(heap, (-current, row))
            continue
        order.append(row)
        values.append(current)
        left[row] = 0.0
        left[around[row]] *= 1 - 1 / m
    return np.array(order, dtype=np.int64), np.array(values)
