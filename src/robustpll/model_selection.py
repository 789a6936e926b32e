"""Cross-validation of rows with candidate labels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from robustpll.labels.candidates import Candidates

__all__ = ["CandidateKFold"]


class CandidateKFold(KFold):  # type: ignore[misc]
    """Shuffled folds that are stratified by the likeliest class of each row.

    It is a splitter of scikit-learn: pass it as ``cv``. The likeliest class is that of the highest
    prior, such as the share of votes; of equally likely candidates, one is drawn at random. Sizes
    of folds, and their numbers of rows of a class, differ by one at most. A class may have fewer
    rows than there are folds. Groups are ignored, with a warning.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2.
    random_state : int, RandomState or None
        Seed of the order of rows and of drawn classes.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(2), 10, axis=0), [{"a", "b"}, {"a"}] * 5 + [{"b"}] * 10
    >>> folds = CandidateKFold(5, random_state=0)
    >>> cross_val_score(PLLClassifier("pl_knn"), X, Candidates.of(y), cv=folds)
    array([1., 1., 1., 1., 1.])
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = None) -> None:
        super().__init__(n_splits, shuffle=True, random_state=random_state)

    def _iter_test_indices(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[NDArray[np.int64]]:
        random = check_random_state(self.random_state)
        strata = Candidates.of(y).likeliest(random)
        order = random.permutation(len(strata))
        order = order[np.argsort(strata[order], kind="stable")]
        return (order[fold :: self.n_splits] for fold in range(self.n_splits))
