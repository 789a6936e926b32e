"""How far annotators agree, beyond chance."""

import numpy as np
from numpy.typing import NDArray

from robustpll.errors import InputError


def fleiss_kappa(votes: NDArray[np.float64]) -> float:
    """Return Fleiss' kappa of the numbers of answers (n, k) for each class.

    1 is full agreement, 0 that of chance. Rows with fewer than two answers do not count; rows may
    have different numbers of answers. It is NaN if there is no such row, or only one class.

    >>> fleiss_kappa(np.array([[3, 0], [0, 3], [2, 1], [3, 0]])).__round__(2)
    0.63
    """
    votes, number = _pairable(votes)
    if not len(votes):
        return float("nan")
    agreement = (((votes * (votes - 1)).sum(-1)) / (number * (number - 1))).mean()
    chance = float(((votes / number[:, None]).mean(0) ** 2).sum())
    return float("nan") if chance == 1 else float((agreement - chance) / (1 - chance))


def krippendorff_alpha(votes: NDArray[np.float64]) -> float:
    """Return Krippendorff's alpha for classes without an order, of answers (n, k) as above.

    It counts each pair of answers equally, and corrects chance for few answers.

    >>> krippendorff_alpha(np.array([[3, 0], [0, 3], [2, 1], [3, 0]])).__round__(2)
    0.66
    """
    votes, number = _pairable(votes)
    total = votes.sum()
    if not len(votes):
        return float("nan")
    unlike = ((number**2 - (votes**2).sum(-1)) / (number - 1)).sum()
    expected = (total**2 - (votes.sum(0) ** 2).sum()) / (total - 1)
    return float("nan") if expected == 0 else float(1 - unlike / expected)


def _pairable(votes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows with two answers or more, and their numbers of answers."""
    votes = np.asarray(votes, dtype=np.float64)
    if not (votes >= 0).all():
        raise InputError("votes must be numbers of answers, 0 or more, for each class.")
    votes = votes[votes.sum(-1) >= 2]
    return votes, votes.sum(-1)
