"""How reliable annotators are, estimated from their answers."""

import numpy as np
from numpy.typing import NDArray

from robustpll.labels.votes import votes_for

Floats = NDArray[np.float64]
RIGHT, WRONG = 5.0, 2.0  # imagined answers of each annotator, so that few answers say little
ROUNDS = 50
STABLE = 1e-4  # largest change of a reliability after which rounds end


def reliabilities(answers: NDArray[np.int64], k: int, prior: Floats | None = None) -> Floats:
    """Estimate how often each annotator names the true class, (annotators,).

    The model of Dawid and Skene (1979) with one number per annotator, by expectation maximisation:
    wrong answers are equally likely. `answers` (n, annotators) are class indices, -1 for none;
    `prior` (n, k) is what else is known about the classes of each row.

    >>> answers = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 20)
    >>> reliabilities(answers, 2).round(2)
    array([0.98, 0.98, 0.23])
    """
    known = answers >= 0
    votes = votes_for(answers, k)
    posterior = votes / votes.sum(-1, keepdims=True).clip(min=1)
    reliable = np.full(answers.shape[1], RIGHT / (RIGHT + WRONG))
    for _ in range(ROUNDS):
        agreement = np.take_along_axis(posterior, answers.clip(min=0), 1) * known
        before = reliable
        reliable = (agreement.sum(0) + RIGHT) / (known.sum(0) + RIGHT + WRONG)
        if np.abs(reliable - before).max() < STABLE:
            break
        posterior = answer_likelihood(answers, k, reliable) * (1.0 if prior is None else prior)
        posterior /= posterior.sum(-1, keepdims=True).clip(min=1e-300)
    return reliable


def answer_likelihood(answers: NDArray[np.int64], k: int, reliable: Floats) -> Floats:
    """Return how likely each row's answers are for each true class, (n, k), scaled to sum to 1.

    Answers are independent given the class. A class that nobody named has a small likelihood, too.
    """
    sure = reliable.clip(1e-3, 1 - 1e-3)
    gain = np.log(sure) - np.log((1 - sure) / max(k - 1, 1))  # of an answer, over any other
    row, column = np.nonzero(answers >= 0)
    logs = np.zeros((len(answers), k))
    np.add.at(logs, (row, answers[row, column]), gain[column])
    likelihood = np.exp(logs - logs.max(-1, keepdims=True))
    return np.asarray(likelihood / likelihood.sum(-1, keepdims=True))
