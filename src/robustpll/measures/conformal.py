"""Split conformal prediction: sets that hold the true class with a chosen frequency.

Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World. 2005. For candidate sets instead of
labels: Javanmardi, Sale, Hofman, Hüllermeier: Conformal Prediction with Partially Labeled Data.
COPA 2023.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from robustpll._display import Displayed
from robustpll.errors import InputError, refuse_other_length, refuse_other_than_share
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import normalized

Hold = Literal["all", "any", "weighted"]


@dataclass(frozen=True, eq=False, repr=False)
class ConformalSets(Displayed):
    """A fitted classifier that predicts sets of classes; made by `ConformalSets.of`.

    A row's set holds the classes with at least a threshold probability, `least`. If the
    probabilities are right, no other rule has smaller sets on average (Sadinle, Lei, Wasserman,
    JASA 2019). An empty set means that no class fits the row.
    """

    classifier: Any
    least: float

    @classmethod
    def of(
        cls, classifier: Any, X: Any, y: Any, coverage: float = 0.9, *, hold: Hold = "all"
    ) -> Self:
        """Choose the threshold on calibration rows, which must not be training rows.

        The guarantees hold if calibration rows and later rows are exchangeable, such as independent
        draws from one source. They are averages over draws of both, not per class: with n rows of
        distinct probabilities, the covered share of later rows is distributed as
        Beta(m, n + 1 - m), where m = ceil((n + 1) coverage).

        Parameters
        ----------
        classifier : object
            Fitted, with `predict_proba` and `classes_`: of this library or of scikit-learn.
        X, y
            Calibration rows, and their true labels or candidates in any form.
        coverage : float
            The share of sets that should hold the true class.
        hold : {"all", "any", "weighted"}
            The guarantee if `y` holds candidate sets; for labels all three are equal.
            "all": a later row's set holds all its candidates with this frequency, and so the true
            class if it is always a candidate; if it is missing from a share e of the candidate
            sets, coverage falls by at most e. Wrong candidates make the sets larger.
            "any": a set holds at least one candidate; there is no guarantee for the true class.
            "weighted": each candidate counts by the classifier's probability times the prior. This
            is an approximation without a guarantee: overconfident classifiers cover less.

        Examples
        --------
        >>> from sklearn.linear_model import LogisticRegression
        >>> random = np.random.default_rng(0)
        >>> y = random.integers(3, size=400)
        >>> X = random.normal(y[:, None], 0.5)  # around 0, 1 and 2
        >>> model = LogisticRegression().fit(X[:200], y[:200])
        >>> sets = ConformalSets.of(model, X[200:], y[200:], coverage=0.9)
        >>> sets.predict([[0.0], [0.5], [2.0]]).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 0, 1]])
        >>> sets.predict_sets([[0.5]])
        [frozenset({0, 1})]
        """
        if hold not in get_args(Hold):
            raise InputError(f"hold must be one of {get_args(Hold)}; got {hold!r}.")
        candidates = Candidates.of(y, classes=classifier.classes_)
        probability = np.asarray(classifier.predict_proba(X))
        refuse_other_length(len(probability), len(candidates))
        return cls(classifier, least_probability(probability, candidates, coverage, hold))

    def predict(self, X: Any) -> NDArray[np.bool_]:
        """Which classes belong to each row's set, (n, k)."""
        return np.asarray(self.classifier.predict_proba(X)) >= self.least

    def predict_sets(self, X: Any) -> list[frozenset[Any]]:
        """The set of each row, by name."""
        classes = np.asarray(self.classifier.classes_)
        return [frozenset(classes[row].tolist()) for row in self.predict(X)]


def least_probability(
    probability: NDArray[Any], candidates: Candidates, coverage: float, hold: Hold
) -> float:
    """The m-th largest of n rows' probabilities (n, k), where m = ceil((n + 1) coverage).

    Each row counts by its least or most likely candidate, or by all of them, weighted.

    >>> p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    >>> y = Candidates.of([{0, 1}, {1}, {2, 0}], classes=[0, 1, 2])
    >>> [least_probability(p, y, 0.5, hold) for hold in ("all", "any", "weighted")]
    [0.3, 0.6, 0.5]
    """
    n, matrix = len(candidates), candidates.matrix
    refuse_other_than_share("coverage", coverage)
    place = math.ceil(round((n + 1) * coverage, 9))  # rounded, so that 0.9 of 10 rows is 9
    if place > n:
        fewest = math.ceil(round(coverage / (1 - coverage), 9))
        raise InputError(f"coverage={coverage} needs {fewest} rows or more; got {n}. Pass more.")
    if hold == "weighted":
        weights = normalized(probability * candidates.prior, candidates.prior)
        order = np.argsort(-probability, axis=None)
        mass = weights.ravel()[order].cumsum()
        index = int(np.searchsorted(mass, place - 1e-6))  # the slack is for rounding
        return float(probability.ravel()[order[min(index, len(order) - 1)]])
    if hold == "all":
        of_row = probability.min(-1, where=matrix, initial=np.inf)
    else:
        of_row = probability.max(-1, where=matrix, initial=-np.inf)
    return float(np.sort(of_row)[-place])
