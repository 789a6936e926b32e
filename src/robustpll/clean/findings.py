"""Tables of suspicious candidates, sets, annotators, twins and pairs of classes.

Each function gets a judgement, the line or row numbers (n,) in the source, and the votes, if any.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from robustpll.clean.judge import Ints, Judgement, posterior
from robustpll.evaluate.missing_truth import suspicion
from robustpll.labels.votes import Votes

UNLIKELY = 0.05  # candidates with a lower probability look wrong
NEAR = 0.1  # twins are closer than this share of the median distance to the nearest row
MAX_PAIRS = 1000  # of confused classes


def candidates_that_look_wrong(judged: Judgement, rows: Ints, votes: Votes | None) -> pd.DataFrame:
    """Return improbable candidates, the least probable first, and who named them."""
    classes = judged.candidates.classes
    unlikely = judged.candidates.matrix & (judged.probability < UNLIKELY)
    row, label = np.nonzero(unlikely & ~judged.decided[:, None])
    frame = pd.DataFrame(
        {
            "row": rows[row],
            "candidate": classes[label],
            "probability": judged.probability[row, label],
            "more_likely": judged.labels[row],
            "confidence": judged.confidence[row],
        }
    )
    if votes is not None:
        names, answers = _answers(votes, classes)
        voted = answers[row] == label[:, None]
        frame["annotators"] = ["|".join(names[mask]) for mask in voted]
    return frame.sort_values("probability", kind="stable")


def _answers(votes: Votes, classes: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Return annotators and the class index that each named, (n, annotators); -1 for none."""
    names = np.array([str(name) for name in votes.answers], dtype=object)
    index = pd.Index(classes)
    return names, np.stack([index.get_indexer(column) for _, column in votes.answers.items()], 1)


def sets_that_miss_the_truth(judged: Judgement, rows: Ints, *_: Any) -> pd.DataFrame:
    """Return rows whose predicted class is not a candidate, the most suspicious first."""
    score = suspicion(judged.opinion, judged.candidates.matrix, "rival")
    suspects = np.flatnonzero((score > 0.5) & ~judged.decided)
    frame = pd.DataFrame(
        {
            "row": rows[suspects],
            "candidates": candidate_names(judged, suspects),
            "looks_like": judged.candidates.classes[judged.best_outside[suspects]],
            "suspicion": score[suspects],
            "probability_missing": judged.missing[suspects],
        }
    )
    return frame.sort_values("suspicion", ascending=False, kind="stable")


def candidate_names(judged: Judgement, indices: Ints) -> list[str]:
    """Return the candidates of each row as one cell, such as `cat|dog`."""
    names = judged.candidates.classes.astype(str)
    return ["|".join(names[inside]) for inside in judged.candidates.matrix[indices]]


def twins(judged: Judgement, rows: Ints, *_: Any) -> pd.DataFrame:
    """Return pairs of nearly equal rows without a common candidate, the nearest first."""
    neighbour, distance = judged.near
    row, rank = np.nonzero(distance <= NEAR * np.median(distance[:, 0]))
    pairs = np.sort(np.stack([row, neighbour[row, rank]], 1), 1)
    (one, other), first = np.unique(pairs.T, axis=1, return_index=True)
    matrix = judged.candidates.matrix
    disjoint = ~(matrix[one] & matrix[other]).any(-1)
    one, other, first = one[disjoint], other[disjoint], first[disjoint]
    frame = pd.DataFrame(
        {
            "row": rows[one],
            "twin": rows[other],
            "distance": distance[row, rank][first],
            "candidates": candidate_names(judged, one),
            "twin_candidates": candidate_names(judged, other),
            "resolved_label": judged.labels[one],
            "twin_resolved_label": judged.labels[other],
        }
    )
    return frame.sort_values("distance", kind="stable")


def confused_pairs(judged: Judgement, *_: Any) -> pd.DataFrame:
    """Return pairs of classes, by the expected number of rows with one resolved as the other."""
    classes, matrix = judged.candidates.classes, judged.candidates.matrix.astype(np.float64)
    expected = np.zeros((len(classes), len(classes)))
    np.add.at(expected, judged.resolved, judged.probability)  # (resolved class, true class)
    one, other = np.triu_indices(len(classes), 1)
    confused = expected[one, other] + expected[other, one]
    total = expected[one, one] + expected[other, other] + confused
    frame = pd.DataFrame(
        {
            "class": classes[one],
            "other_class": classes[other],
            "confused_rows": confused,
            "share": np.divide(confused, total, out=np.zeros_like(confused), where=total > 0),
            "rows_with_both_candidates": (matrix.T @ matrix)[one, other].astype(int),
        }
    )
    return frame.sort_values("confused_rows", ascending=False, kind="stable").head(MAX_PAIRS)


def annotators(judged: Judgement, _: Ints, votes: Any) -> pd.DataFrame:
    """Return how often each annotator agrees with the model and all other annotators.

    Sorting by the lower end of Wilson's 95 % interval prevents that few answers win.
    """
    classes, model = judged.candidates.classes, np.asarray(judged.opinion.probability)
    counts = votes.counts(classes)
    names, answers = _answers(votes, classes)
    rows: list[tuple[Any, ...]] = []
    for name, answer in zip(names, answers.T, strict=True):
        answered = np.flatnonzero(answer >= 0)
        n, label = len(answered), answer[answered]
        others = counts[answered]
        others[np.arange(n), label] -= 1
        others[others.sum(-1) == 0] = 1  # nobody else answered: the model alone decides
        expected = posterior(model[answered], others / others.sum(-1, keepdims=True)).argmax(-1)
        expected = np.where(judged.decided[answered], judged.resolved[answered], expected)
        agreed = int((expected == label).sum())
        interval = binomtest(agreed, n).proportion_ci(method="wilson") if n else (np.nan, np.nan)
        rows.append((name, n, agreed, agreed / n if n else np.nan, *interval))
    columns = ["annotator", "answers", "agreed", "agreement", "low", "high"]
    return pd.DataFrame(rows, columns=columns).sort_values("low", ascending=False, kind="stable")


FINDINGS = (candidates_that_look_wrong, sets_that_miss_the_truth, twins, confused_pairs, annotators)
