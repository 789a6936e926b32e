"""What is odd in a table: candidates, sets, annotators, twins, and pairs of classes."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from robustpll.clean.judge import Judgement, posterior
from robustpll.evaluate.missing_truth import suspicion
from robustpll.labels.votes import Votes

if TYPE_CHECKING:
    import pandas as pd

UNLIKELY = 0.05  # candidates that are less probable look wrong
NEAR = 0.1  # of the median distance to the nearest row: as near as that are twins
PAIRS = 1000  # most confused pairs of classes that are listed


def candidates_that_look_wrong(
    judged: Judgement, rows: NDArray[np.int64], votes: Votes | None
) -> "pd.DataFrame":
    """Candidates that hardly are the true class, the least probable first."""
    import pandas as pd

    y = judged.candidates
    odd = y.matrix & (judged.probability < UNLIKELY) & ~judged.decided[:, None]
    at, label = np.nonzero(odd)
    probability = judged.probability[at, label]
    order = np.argsort(probability, kind="stable")
    at, label = at[order], label[order]
    found = pd.DataFrame(
        {
            "row": rows[at],
            "candidate": y.classes[label],
            "probability": probability[order],
            "more_likely": judged.labels[at],
            "confidence": judged.confidence[at],
        }
    )
    if votes is not None:
        voters = _voters(votes, y.classes)
        found["annotators"] = [
            "|".join(voters.get(pair, ())) for pair in zip(at.tolist(), label.tolist(), strict=True)
        ]
    return found


def _voters(votes: Votes, classes: NDArray[Any]) -> dict[tuple[int, int], list[str]]:
    """Who named a class (by number) in a row."""
    voters: dict[tuple[int, int], list[str]] = {}
    for name, label in _answers(votes, classes).items():
        for at in np.flatnonzero(label >= 0):
            voters.setdefault((int(at), int(label[at])), []).append(name)
    return voters


def _answers(votes: Votes, classes: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """For each annotator the class named in each row, by its number, (n,); -1 for no answer."""
    import pandas as pd

    index = pd.Index(classes)
    columns = votes.answers.items()
    return {str(name): np.asarray(index.get_indexer(column)) for name, column in columns}


def sets_that_miss_the_truth(judged: Judgement, rows: NDArray[np.int64]) -> "pd.DataFrame":
    """Rows whose predicted class is no candidate, the most suspect first."""
    import pandas as pd

    score = suspicion(judged.opinion, judged.candidates.matrix, "rival")
    suspect = np.flatnonzero((score > 0.5) & ~judged.decided)
    at = suspect[np.argsort(-score[suspect], kind="stable")]
    outside = judged.best_outside[at]
    return pd.DataFrame(
        {
            "row": rows[at],
            "candidates": [names(judged, each) for each in at],
            "looks_like": judged.candidates.classes[outside],
            "suspicion": score[at],
            "probability_missing": judged.missing[at],
        }
    )


def names(judged: Judgement, row: int) -> str:
    """The candidates of a row, as a cell of a table."""
    return "|".join(map(str, judged.candidates.classes[judged.candidates.matrix[row]]))


def annotators(judged: Judgement, votes: Votes) -> "pd.DataFrame":
    """How often each annotator agrees with what the model and all other annotators say.

    The annotator's own answer does not count in the label it is compared with. The interval is
    Wilson's, for 95 %; who has its highest lower end comes first, so that few answers do not win.
    """
    import pandas as pd

    classes = judged.candidates.classes
    answers, counts = _answers(votes, classes), votes.counts(classes)
    found = []
    for name, label in answers.items():
        at = np.flatnonzero(label >= 0)
        if not len(at):
            found.append((name, 0, 0, np.nan, np.nan, np.nan))
            continue
        others = counts[at]
        others[np.arange(len(at)), label[at]] -= 1
        others[others.sum(-1) == 0] = 1  # nobody else answered: the model alone speaks
        prior = others / others.sum(-1, keepdims=True)
        held = posterior(np.asarray(judged.opinion.probability)[at], prior)
        person = judged.decided[at]
        agreed = int((np.where(person, judged.resolved[at], held.argmax(-1)) == label[at]).sum())
        interval = binomtest(agreed, len(at)).proportion_ci(method="wilson")
        found.append((name, len(at), agreed, agreed / len(at), interval.low, interval.high))
    columns = ["annotator", "answers", "agreed", "agreement", "low", "high"]
    frame = pd.DataFrame(found, columns=columns)
    return frame.sort_values("low", ascending=False, kind="stable", ignore_index=True)


def twins(judged: Judgement, rows: NDArray[np.int64]) -> "pd.DataFrame":
    """Pairs of rows that are nearly the same, but have no candidate in common; the nearest first.

    Near is a tenth of the median distance of a row to the one nearest to it, in scaled features.
    """
    import pandas as pd

    at, distance = judged.near
    close = distance <= NEAR * np.median(distance[:, 0])
    one, place = np.nonzero(close)
    other, apart = at[one, place], distance[one, place]
    pairs, first = np.unique(np.sort(np.stack([one, other], 1), 1), axis=0, return_index=True)
    matrix = judged.candidates.matrix
    contrary = ~(matrix[pairs[:, 0]] & matrix[pairs[:, 1]]).any(-1)
    pairs, apart = pairs[contrary], apart[first][contrary]
    order = np.argsort(apart, kind="stable")
    one, other = pairs[order].T
    return pd.DataFrame(
        {
            "row": rows[one],
            "twin": rows[other],
            "distance": apart[order],
            "candidates": [names(judged, each) for each in one],
            "twin_candidates": [names(judged, each) for each in other],
            "resolved_label": judged.labels[one],
            "twin_resolved_label": judged.labels[other],
        }
    )


def confused_pairs(judged: Judgement) -> "pd.DataFrame":
    """Pairs of classes, by how many rows of one are expected to be resolved as the other."""
    import pandas as pd

    k = len(judged.candidates.classes)
    expected = np.zeros((k, k))
    np.add.at(expected, judged.resolved, judged.probability)  # resolved as a, but is b
    matrix = judged.candidates.matrix.astype(np.float64)
    together = matrix.T @ matrix
    one, other = np.triu_indices(k, 1)
    mixed = expected[one, other] + expected[other, one]
    rows = np.diag(expected)[one] + np.diag(expected)[other] + mixed
    classes = judged.candidates.classes
    frame = pd.DataFrame(
        {
            "class": classes[one],
            "other_class": classes[other],
            "confused_rows": mixed,
            "share": np.divide(mixed, rows, out=np.zeros_like(mixed), where=rows > 0),
            "rows_with_both_candidates": together[one, other].astype(int),
        }
    )
    frame = frame.sort_values("confused_rows", ascending=False, kind="stable", ignore_index=True)
    return frame.head(PAIRS)
