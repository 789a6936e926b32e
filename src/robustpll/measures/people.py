"""How well probabilities agree with the answers of many people about the same rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from robustpll._display import Displayed

Floats = NDArray[np.float64]
AGREED = 0.9  # share of the answers for one class, from which people agree
SMALLEST = 1e-6  # probabilities are stored to six decimals


@dataclass(frozen=True, eq=False, repr=False)
class People(Displayed):
    """Answers of people about some rows of a dataset."""

    rows: NDArray[np.int64]  # (m,): positions in the dataset
    counts: NDArray[np.int64]  # (m, k): how many named each class
    asked: NDArray[np.int64]  # (a,): the row, of 0 .. m-1, that another person was asked about
    possible: NDArray[np.bool_]  # (a, k): the classes that this person held possible


def agreement_with(people: People, probability: Floats) -> dict[str, float]:
    """Compare probabilities (m, k) of the rows with people's answers.

    The measures are the cross-entropy to the shares of answers; the rank correlation with these
    shares over all classes that somebody named; the AUROC of the entropy, as a sign that less than
    90 % of the people agree; and how often the predicted class was held possible.

    >>> counts = np.array([[9, 1], [5, 5], [0, 10]])
    >>> people = People(np.arange(3), counts, np.array([0]), np.array([[True, False]]))
    >>> p = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]])
    >>> {name: round(value, 3) for name, value in agreement_with(people, p).items()}
    {'cross_entropy': 0.394, 'rank_correlation': 0.975, 'disagreement': 1.0, 'possible': 1.0}
    """
    shares = people.counts / people.counts.sum(-1, keepdims=True)
    p = probability.clip(SMALLEST)
    entropy, named = -(p * np.log(p)).sum(-1), shares > 0
    disagree = shares.max(-1) < AGREED
    predicted = probability.argmax(-1)[people.asked]
    return {
        "cross_entropy": float(-(shares * np.log(p)).sum(-1).mean()),
        "rank_correlation": float(spearmanr(p[named], shares[named]).statistic),
        "disagreement": float(roc_auc_score(disagree, entropy)),
        "possible": float(people.possible[np.arange(len(predicted)), predicted].mean()),
    }
