"""Prediction sets that hold the true class with a promised frequency (split conformal prediction).

Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World. 2005. For candidate sets instead of
labels see Javanmardi, Sale, Hofman, Hüllermeier: Conformal Prediction with Partially Labeled Data.
COPA 2023.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError, is_share, refuse_other_length
from robustpll.labels.candidates import Candidates

Hold = Literal["all", "any", "weighted"]


@dataclass(frozen=True, eq=False)
class ConformalSets:
    """A fitted classifier that answers with sets of classes; made by `ConformalSets.of`.

    A row's set holds the classes of at least some probability. Where probabilities are right no
    other rule has smaller sets on average (Sadinle, Lei, Wasserman, JASA 2019). A set may be empty,
    which says that no class fits the row.

    Attributes
    ----------
    classifier : object
        With `predict_proba` and `classes_`: one of this library's, or any of scikit-learn's.
    least : float
        The least probability of a class that belongs to a set.
    """

    classifier: Any
    least: float

    @classmethod
    def of(
        cls, classifier: Any, X: Any, y: Any, coverage: float = 0.9, *, hold: Hold = "all"
    ) -> Self:
        """Choose the least probability by rows that the classifier has not learned from.

        The guarantees hold if these rows and the later ones are exchangeable, such as independent
        draws from one source. They are averages over draws of these rows and of a later one, not
        for each class, nor for one choice of rows: with n rows whose probabilities differ, the
        share of later rows that are covered is distributed as Beta(m, n + 1 - m), where
        m = ceil((n + 1) coverage).

        Parameters
        ----------
        classifier : object
            Fitted, with `predict_proba` and `classes_`.
        X : array, DataFrame or pictures
            Rows, none of which is a training row.
        y : object
            Their true labels, or candidates in any form that `Candidates.of` accepts.
        coverage : float
            The promised share of sets that hold the true class.
        hold : {"all", "any", "weighted"}
            What a set promises where `y` holds candidate sets; for labels the three are one.
            "all": all candidates of a later row are in its set with at least the promised
            frequency, and so is the true class *if it is always a candidate*; if it is missing from
            a share e of the candidate sets, the promise sinks by at most e. It is cautious: wrong
            candidates make sets larger. "any": one candidate or more is in the set; nothing is
            promised of the true class. "weighted": each candidate counts by the classifier's
            probability for it, times the prior, within its row. The true class is covered about as
            promised if these weights are right, and less often if the classifier is too sure: an
            approximation, without a guarantee.

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
            msg = f"hold must be one of {', '.join(map(repr, get_args(Hold)))}; got {hold!r}."
            raise InputError(msg)
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

    One number a row counts, that of its least or most likely candidate; or all, weighted.

    >>> p = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    >>> y = Candidates.of([{0, 1}, {1}, {2, 0}], classes=[0, 1, 2])
    >>> [least_probability(p, y, 0.5, hold) for hold in ("all", "any", "weighted")]
    [0.3, 0.6, 0.5]
    """
    n, matrix = len(candidates), candidates.matrix
    if not (is_share(coverage) and 0 < coverage < 1):
        msg = f"coverage must be a number above 0 and below 1; got {coverage!r}."
        raise InputError(msg)
    place = math.ceil(round((n + 1) * coverage, 9))  # 0.9 of 10 rows is 9, whatever its last bit
    if place > n:
        fewest = math.ceil(round(coverage / (1 - coverage), 9))
        msg = (
            f"coverage={coverage} needs {fewest} rows or more to choose a threshold by; got {n}. "
            "Pass more rows, or ask for less coverage."
        )
        raise InputError(msg)
    if hold == "weighted":
        weights = probability * candidates.prior
        total = weights.sum(-1, keepdims=True)
        weights = np.where(total > 0, weights / np.where(total > 0, total, 1), candidates.prior)
        order = np.argsort(-probability, axis=None)
        mass = weights.ravel()[order].cumsum()
        at = int(np.searchsorted(mass, place - 1e-6))  # n rows weigh n, but for rounding
        return float(probability.ravel()[order[min(at, len(order) - 1)]])
    if hold == "all":
        of_row = probability.min(-1, where=matrix, initial=np.inf)
    else:
        of_row = probability.max(-1, where=matrix, initial=-np.inf)
    return float(np.partition(of_row, n - place)[n - place])
