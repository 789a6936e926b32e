"""How good a classifier is, judged by candidate sets: to choose parameters where no label is known.

Both measures are those of Wang, Wu, Wang, Niu, Zhang, Sugiyama: Realistic Evaluation of Deep
Partial-Label Learning Algorithms. ICLR 2025.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, refuse_other_length
from robustpll.labels.candidates import Candidates, classes_with, is_label_vector
from robustpll.labels.parsing import items_of
from robustpll.opinion import Opinion


def covering_rate(probability: ArrayLike, candidates: ArrayLike) -> float:
    """Share of rows whose predicted class is a candidate; both arrays are (n, k).

    It is at least the accuracy where the true class always is a candidate, and blind to mistakes
    among the candidates.

    >>> probability = [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]]
    >>> candidates = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 1, 1]]
    >>> covering_rate(probability, candidates)
    0.75
    """
    return float((_weights_of_predicted(probability, candidates) > 0).mean())


def approximated_accuracy(probability: ArrayLike, candidates: ArrayLike) -> float:
    """The accuracy to expect were each row's true class drawn from its candidates by probability.

    A row counts by the predicted class's share of the probability of its candidates, and by 0 where
    that class is none; both arrays are (n, k). It is at most the covering rate, and high for a
    classifier that is sure of itself, rightly or not.

    >>> probability = [[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]]
    >>> candidates = [[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 1, 1]]
    >>> round(approximated_accuracy(probability, candidates), 4)  # (2/3 + 0 + 1 + 2/3) / 4
    0.5833
    """
    return float(_weights_of_predicted(probability, candidates).mean())


@dataclass(frozen=True)
class LabelFreeScorer:
    """A measure of this file as scikit-learn's searches take it: called with (model, X, y).

    `SCORERS` holds both. Pass one as `scoring`, or both and the name of one as `refit`.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from robustpll import PLLClassifier
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
        """`y` holds candidates in any form; classes that the model does not know are mistakes."""
        classes = np.asarray(model.classes_)
        if is_label_vector(y):
            y = [{label} for label in items_of(y).tolist()]
        matrix = Candidates.of(y, classes=classes_with(y, classes)).matrix[:, : len(classes)]
        probability = np.asarray(model.predict_proba(X))
        refuse_other_length(len(probability), len(matrix))
        return self.measure(probability, matrix)


SCORERS = {
    "covering_rate": LabelFreeScorer(covering_rate),
    "approximated_accuracy": LabelFreeScorer(approximated_accuracy),
}


def _weights_of_predicted(probability: ArrayLike, candidates: ArrayLike) -> NDArray[np.float64]:
    """The predicted class's share among the candidates, (n,); 0 where it is none."""
    p, matrix = np.asarray(probability, dtype=np.float64), np.asarray(candidates, dtype=bool)
    if p.ndim != 2 or p.shape != matrix.shape or len(p) == 0:
        msg = (
            "probability and candidates must both have shape (n, k), with one row or more; got "
            f"{p.shape} and {matrix.shape}. Pass predict_proba(X) and Candidates.of(y).matrix."
        )
        raise InputError(msg)
    at = np.arange(len(p)), Opinion.of_probability(p).predicted()
    covered = matrix[at]
    total = np.where(covered, (p * matrix).sum(-1), 1.0)
    return np.where(covered, p[at] / total, 0.0)
