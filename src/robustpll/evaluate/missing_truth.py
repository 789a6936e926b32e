"""Candidate sets that probably miss the true class."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing

from robustpll.errors import InputError, is_count, refuse_other_length
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

By = Literal["rival", "probability", "belief"]


def missing_truth_scores(
    classifier: Any, X: Any, y: Any, *, folds: int = 5, by: By = "rival", random_state: Any = None
) -> NDArray[np.float64]:
    """Score how likely each row's candidates miss its true class, (n,): higher is more suspect.

    Each row is scored out of fold, by a copy of the classifier that was fitted without it. A high
    score is a reason to look, not a proof: sort by it and check the first rows.

    Parameters
    ----------
    classifier : CandidateClassifier
        Fitted or not; it is cloned.
    X : array, DataFrame or pictures
        Rows.
    y : object
        Candidates in any form that `Candidates.of` accepts.
    folds : int
        Number of folds.
    by : {"rival", "probability", "belief"}
        As of `suspicion`.
    random_state : int, RandomState or None
        Seed of the folds.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> random = np.random.default_rng(0)
    >>> labels = random.integers(3, size=90)
    >>> X = random.normal(labels[:, None], 0.1, size=(90, 2))
    >>> y = (random.random((90, 3)) < 0.3) | np.eye(3, dtype=bool)[labels]
    >>> y[7] = ~np.eye(3, dtype=bool)[labels[7]]  # all but the truth
    >>> scores = missing_truth_scores(PLLClassifier("pl_knn"), X, y, random_state=0)
    >>> int(scores.argmax()), int((scores > 0.5).sum())
    (7, 1)
    """
    candidates = Candidates.of(y)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    refuse_other_length(rows, len(candidates))
    if not is_count(folds, least=2) or folds > rows // 2:
        raise InputError(
            f"folds must be an int of at least 2 and at most half of {rows} rows; got {folds!r}."
        )
    scores = np.empty(rows)
    splitter = KFold(folds, shuffle=True, random_state=random_state)
    for train, test in splitter.split(np.arange(rows)):
        model = clone(classifier).fit(_safe_indexing(X, train), candidates[train])
        opinion = model.predict_opinion(_safe_indexing(X, test))
        scores[test] = suspicion(opinion, candidates.matrix[test], by)
    return scores


def suspicion(opinion: Opinion, candidates: NDArray[np.bool_], by: By = "rival") -> Any:
    """Return how much an opinion supports classes outside the candidates (n, k), (n,).

    "rival" is the largest probability outside the candidates, divided by its sum with the largest
    among them; it exceeds 0.5 if the predicted class is not a candidate. "probability" is the total
    probability outside, "belief" the total belief there. These two add many small amounts, so that
    small sets score higher, most of all for uncertain opinions.

    >>> opinion = Opinion.of_evidence(np.array([[6.0, 0, 1], [0, 0, 0]]))
    >>> candidates = np.array([[False, True, True], [False, True, True]])
    >>> [suspicion(opinion, candidates, by).round(2) for by in ("rival", "probability", "belief")]
    [array([0.78, 0.5 ]), array([0.7 , 0.33]), array([0.6, 0. ])]
    """
    if by not in get_args(By):
        raise InputError(f"by must be one of {', '.join(map(repr, get_args(By)))}; got {by!r}.")
    if by == "rival":
        p = np.asarray(opinion.probability)
        outside, inside = (p * ~candidates).max(-1), (p * candidates).max(-1)
        return outside / (outside + inside)
    mass = np.asarray(opinion.belief if by == "belief" else opinion.probability)
    return (mass * ~candidates).sum(-1)
