"""What looks wrong in a table, which rows need a person, in which order, and why.

Each of `FINDINGS` gets a judgement, the line or row numbers (n,) in the source, and votes, if any.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from robustpll.clean.judge import Bools, Floats, Ints, Judgement, posterior_given_candidates
from robustpll.estimator.abstention import mean_threshold
from robustpll.evaluate.reports import suspicion
from robustpll.labels.parsing import moved_codes
from robustpll.labels.votes import Votes

UNLIKELY = 0.05  # candidates with a lower probability look wrong
NEAR = 0.1  # twins are closer than this share of the median distance to the nearest row
MAX_PAIRS = 1000  # of confused classes
MISTAKES = 3  # named of each annotator
UNSURE, UNSURE_QUANTILE = 0.5, 0.95  # a row differs if its uncertainty exceeds both


def candidates_that_look_wrong(judged: Judgement, rows: Ints, votes: Votes | None) -> pd.DataFrame:
    """Return improbable candidates, the least probable first, and who named them."""
    classes = judged.candidates.classes
    unlikely = judged.candidates.matrix & (judged.probability < UNLIKELY)
    row, label = np.nonzero(unlikely & ~judged.decided[:, None])
    columns: dict[str, Any] = {
        "row": rows[row],
        "candidate": classes[label],
        "probability": judged.probability[row, label],
        "more_likely": judged.labels[row],
        "confidence": judged.confidence[row],
    }
    if votes is not None:
        names, answers = answers_of(votes, judged)
        columns["annotators"] = ["|".join(names[m]) for m in answers[row] == label[:, None]]
    return pd.DataFrame(columns).sort_values("probability", kind="stable")


def answers_of(votes: Votes | None, judged: Judgement) -> tuple[NDArray[Any], Ints]:
    """Return annotators and the class index that each named, (n, annotators); -1 for none."""
    if votes is None:
        return np.empty(0, dtype=object), np.empty((len(judged.labels), 0), dtype=np.int64)
    names = np.array([str(name) for name in votes.annotators], dtype=object)
    return names, moved_codes(*votes.codes(), judged.candidates.classes)


def sets_that_miss_the_truth(judged: Judgement, rows: Ints, *_: Any) -> pd.DataFrame:
    """Return rows whose predicted class is not a candidate, the most suspicious first."""
    score = suspicion(judged.opinion, judged.candidates.matrix, "rival")
    suspects = np.flatnonzero((score > 0.5) & ~judged.decided)
    columns = {
        "row": rows[suspects],
        "candidates": candidate_names(judged, suspects),
        "looks_like": judged.candidates.classes[judged.best_outside[suspects]],
        "suspicion": score[suspects],
        "probability_missing": judged.missing[suspects],
    }
    return pd.DataFrame(columns).sort_values("suspicion", ascending=False, kind="stable")


def candidate_names(judged: Judgement, indices: Ints) -> list[str]:
    """Return the candidates of each row as one cell, such as `cat|dog`."""
    names = judged.candidates.classes.astype(str)
    return ["|".join(names[inside]) for inside in judged.candidates.matrix[indices]]


def twins(judged: Judgement, rows: Ints, *_: Any) -> pd.DataFrame:
    """Return pairs of nearly equal rows without a common candidate, the nearest first."""
    neighbour, distance = judged.near
    row, rank = np.nonzero(distance <= NEAR * np.median(distance[:, 0]))
    pairs = np.sort(np.stack([row, neighbour[row, rank]], 1), 1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    matrix = judged.candidates.matrix
    disjoint = ~(matrix[pairs[:, 0]] & matrix[pairs[:, 1]]).any(-1)
    one, other = pairs[disjoint].T
    columns = {
        "row": rows[one],
        "twin": rows[other],
        "distance": distance[row, rank][first[disjoint]],
        "candidates": candidate_names(judged, one),
        "twin_candidates": candidate_names(judged, other),
        "resolved_label": judged.labels[one],
        "twin_resolved_label": judged.labels[other],
    }
    return pd.DataFrame(columns).sort_values("distance", kind="stable")


def confused_pairs(judged: Judgement, *_: Any) -> pd.DataFrame:
    """Return pairs of classes, by the expected number of rows with one resolved as the other."""
    classes, matrix = judged.candidates.classes, judged.candidates.matrix.astype(np.float64)
    expected = np.zeros((len(classes), len(classes)))
    np.add.at(expected, judged.resolved, judged.probability)  # (resolved class, true class)
    one, other = np.triu_indices(len(classes), 1)
    confused = expected[one, other] + expected[other, one]
    total = expected[one, one] + expected[other, other] + confused
    columns = {
        "class": classes[one],
        "other_class": classes[other],
        "confused_rows": confused,
        "share": np.divide(confused, total, out=np.zeros_like(confused), where=total > 0),
        "rows_with_both_candidates": (matrix.T @ matrix)[one, other].astype(int),
    }
    frame = pd.DataFrame(columns).sort_values("confused_rows", ascending=False, kind="stable")
    return frame.head(MAX_PAIRS)


def annotators(judged: Judgement, _: Ints, votes: Any) -> pd.DataFrame:
    """Return how often each annotator agrees with the model and all others, and is right."""
    # `reliability` is estimated together with the classes of all rows; `most_confused` has up to
    # MISTAKES classes that an annotator takes for others, the most frequent mistake first.
    classes, model = judged.candidates.classes, np.asarray(judged.opinion.probability)
    counts = votes.counts(classes)
    rows, (names, answers) = [], answers_of(votes, judged)
    for name, answer in zip(names, answers.T, strict=True):
        answered = np.flatnonzero(answer >= 0)
        n, label = len(answered), answer[answered]
        others = counts[answered]
        others[np.arange(n), label] -= 1
        others[others.sum(-1) == 0] = 1  # nobody else answered: the model alone decides
        expected = posterior_given_candidates(
            model[answered], others / others.sum(-1, keepdims=True)
        ).argmax(-1)
        expected = np.where(judged.decided[answered], judged.resolved[answered], expected)
        agreed = int((expected == label).sum())
        interval = binomtest(agreed, n).proportion_ci(method="wilson") if n else (np.nan, np.nan)
        rows.append((name, n, agreed, agreed / n if n else np.nan, *interval))
    columns = ["annotator", "answers", "agreed", "agreement", "low", "high"]
    frame = pd.DataFrame(rows, columns=columns)
    if judged.crowd is not None:
        crowd = judged.crowd.crowd
        frame["reliability"] = np.where(frame["answers"] > 0, crowd.reliability, np.nan)
        if crowd.confusion is not None:
            shares = judged.probability.mean(0)  # of classes; rare ones are confused rarely
            wrong = (crowd.confusion * (1 - np.eye(crowd.k))).reshape(len(rows), -1)
            worst = np.argsort(-wrong * np.repeat(shares, crowd.k), axis=-1)[:, :MISTAKES]
            rates = np.take_along_axis(wrong, worst, -1)
            frame["most_confused"] = [
                "; ".join(
                    f"{classes[at // crowd.k]} taken for {classes[at % crowd.k]} ({rate:.0%})"
                    for at, rate in zip(places, shares, strict=True)
                    if number and rate >= 0.01
                )
                for places, shares, number in zip(worst, rates, frame["answers"], strict=True)
            ]
    # by the lower end of the interval, or else few answers would win
    return frame.sort_values("low", ascending=False, kind="stable")


FINDINGS = (candidates_that_look_wrong, sets_that_miss_the_truth, twins, confused_pairs, annotators)


def review(
    judged: Judgement,
    rows: Ints,
    twins: pd.DataFrame,
    error: float,
    *,
    closed: Bools | None = None,
    again: Mapping[int, tuple[str, str]] | None = None,
) -> pd.DataFrame:
    """Return the rows for a person to decide, in `query_order`; the index is the position.

    The other rows have an expected share of wrong labels of at most `error`, and no `twins`.
    Rows that are `closed` (n,) are not asked. Rows to ask `again` come first; for each of these
    positions, it has the kind of doubt and the reason.
    """
    confidence, again = judged.confidence, again or {}
    contrary = defaultdict(list)  # row number -> numbers of its twins
    for row, twin in zip(twins["row"].tolist(), twins["twin"].tolist(), strict=True):
        contrary[row].append(twin)
        contrary[twin].append(row)
    asked = below_threshold(confidence, error) | np.isin(rows, [*contrary])
    asked &= ~judged.decided & (True if closed is None else ~closed)
    asked[[*again]] = True
    order, value = query_order(1 - confidence, judged.near[0], np.flatnonzero(asked))
    first = np.argsort(~np.isin(order, [*again]), kind="stable")
    order, value = order[first], value[first]
    why = _reasons(judged, order, [contrary.get(int(row), []) for row in rows[order]])
    why = [dict([again[i]] if i in again else []) | w for i, w in zip(order, why, strict=True)]
    columns = {
        "row": rows[order],
        "value_of_asking": value,
        "why": [next(iter(reasons)) for reasons in why],
        "reason": ["; ".join(reasons.values()) for reasons in why],
        "resolved_label": judged.labels[order],
        "confidence": confidence[order],
        "candidates": candidate_names(judged, order),
    }
    return pd.DataFrame(columns, index=order)


def below_threshold(confidence: Floats, error: float) -> Bools:
    """Return which labels (n,) are too doubtful if a share `error` of the others may be wrong."""
    descending = np.sort(confidence)[::-1]
    return confidence < mean_threshold(descending, 1 - descending, error)


def _reasons(judged: Judgement, order: Ints, twins: Sequence[list[int]]) -> list[dict[str, str]]:
    """Return the reasons of each kind of doubt about each row, the main one first."""
    classes, confidence = judged.candidates.classes, judged.confidence
    uncertainty = np.asarray(judged.opinion.uncertainty)
    differs = uncertainty > max(UNSURE, float(np.quantile(uncertainty, UNSURE_QUANTILE)))
    suspect = suspicion(judged.opinion, judged.candidates.matrix, "rival") > 0.5
    suspect &= judged.missing > (1 - confidence) / 2
    others = judged.probability.copy()
    others[np.arange(len(others)), judged.resolved] = -1.0
    second = others.argmax(-1)  # the most probable class beside the label, as on the page
    why = []
    for index, twins_of in zip(order.tolist(), twins, strict=True):
        label, other = judged.labels[index], classes[second[index]]
        reasons = {}
        if suspect[index]:
            outside = classes[judged.best_outside[index]]
            seems = f"by its features alone it looks like {outside}"
            reasons["truth missing"] = f"{seems}, which is not a candidate"
        if twins_of:
            near = f"nearly equals row {', '.join(map(str, twins_of[:3]))}"
            reasons["contradicts twin"] = f"{near}, but shares no candidate with it"
        if differs[index]:
            reasons["unlike others"] = "differs from others, so the model knows little about it"
        if judged.candidates.matrix[index, second[index]]:
            reasons["ambiguous"] = f"{label} or {other}"
        elif not suspect[index]:
            reasons["ambiguous"] = f"{label}, or perhaps {other}, which is not a candidate"
        why.append(reasons)
    return why


def query_order(doubt: Floats, near: Ints, asked: Ints) -> tuple[Ints, Floats]:
    """Return the rows `asked` by the doubt that an answer removes, and this value."""
    # An answer removes the doubt (n,) about its row, and an m-th of the doubt about each row that
    # has it among its m nearest rows, `near` (n, m).
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
