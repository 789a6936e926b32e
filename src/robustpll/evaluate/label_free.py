"""Model selection without true labels: scores of a classifier by candidate sets.

Both measures are from Wang, Wu, Wang, Niu, Zhang, Sugiyama: Realistic Evaluation of Deep
Partial-Label Learning Algorithms. ICLR 2025.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, refuse_other_length
from robustpll.labels.candidates import candidates_with
from robustpll.opinion import Opinion


def covering_rate(probability: ArrayLike, candidates: ArrayLike) -> float:
    """Share of rows whose predicted class is a candidate; both arrays are (n, k).

    It is at least the accuracy if the true class is always a candidate. It does not see mistakes
    among the candidates.

    >>> probability = [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]]
    >>> candidates = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 1, 1]]
    >>> covering_rate(probability, candidates)
    0.75
    """
    return float((_weights_of_predicted(probability, candidates) > 0).mean())


def approximated_accuracy(probability: ArrayLike, candidates: ArrayLike) -> float:
    """Expected accuracy if each row's true class is drawn from its candidates by probability.

    A row counts by the predicted class's share of the probability of its candidates, or by 0 if
    that class is not a candidate; both arrays are (n, k). It is at most the covering rate, and high
    for any overconfident classifier.

    >>> probability = [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]]
    >>> candidates = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 1, 1]]
    >>> round(approximated_accuracy(probability, candidates), 4)  # (2/3 + 0 + 1 + 2/3) / 4
    0.5833
    """
    return float(_weights_of_predicted(probability, candidates).mean())


@dataclass(frozen=True)
class LabelFreeScorer:
    """One of these measures as a scikit-learn scorer, called with (model, X, y).

    `SCORERS` holds both. Pass one as `scoring`, or both with the name of one as `refit`.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from robustpll import Candidates, PLLClassifier
    >>> random = np.random.default_rng(0)
    >>> labels = random.integers(3, size=90)
    >>> X = random.normal(labels[:, None], 0.4, size=(90, 2))
    >>> y = Candidates.of((random.random((90, 3)) < 0.3) | np.eye(3, dtype=bool)[labels])
    >>> grid = {"method__neighbours": [1, 10, 70]}
    >>> search = GridSearchCV(
    ...     PLLClassifier("pl_knn"), grid, scoring=SCORERS, refit="approximated_accuracy"
    ... )
    >>> search.fit(X, y).best_params_
    {'method__neighbours': 10}
    """

    measure: Callable[[ArrayLike, ArrayLike], float]

    def __call__(self, model: Any, X: Any, y: Any) -> float:
        """Score a model on candidates in any form; classes unknown to it count as mistakes."""
        classes = np.asarray(model.classes_)
        matrix = candidates_with(y, classes).matrix[:, : len(classes)]
        probability = np.asarray(model.predict_proba(X))
        refuse_other_length(len(probability), len(matrix))
        return self.measure(probability, matrix)


SCORERS = {
    "covering_rate": LabelFreeScorer(covering_rate),
    "approximated_accuracy": LabelFreeScorer(approximated_accuracy),
}


def _weights_of_predicted(probability: ArrayLike, candidates: ArrayLike) -> NDArray[np.float64]:
    """The predicted class's share among the candidates, (n,); 0 if it is not one of them."""
    p, matrix = np.asarray(probability, dtype=np.float64), np.asarray(candidates, dtype=bool)
    if p.ndim != 2 or p.shape != matrix.shape or len(p) == 0:
        raise InputError(
            "probability and candidates must both have shape (n, k), with one row or more; got "
            f"{p.shape} and {matrix.shape}. Pass predict_proba(X) and Candidates.of(y).matrix."
        )
    predicted = np.arange(len(p)), Opinion.of_probability(p).predicted()
    covered = matrix[predicted]
    total = np.where(covered, (p * matrix).sum(-1), 1.0)
    return np.where(covered, p[predicted] / total, 0.0)
