"""Reports on a classifier: calibration, decisions, scores without labels, missing true classes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from robustpll._display import Displayed
from robustpll.errors import InputError, is_count, refuse_other_length
from robustpll.estimator.abstention import NOVEL, Decision
from robustpll.estimator.base import refuse_unfitted, true_labels
from robustpll.estimator.features import is_sparse
from robustpll.estimator.loaders import pairs_of
from robustpll.labels.candidates import Candidates, candidates_with, label_vector
from robustpll.measures.calibration import CalibrationReport, calibration_of
from robustpll.opinion import Opinion

By = Literal["rival", "probability", "belief"]


def calibration_report(model: Any, X: Any, y: Any, bins: int = 15) -> CalibrationReport:
    """Measure how well a fitted classifier's probabilities are calibrated.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X, y
        Rows that were not trained on, and their true labels (n,).
    bins : int
        Number of bins of each `Reliability`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> calibration_report(PLLClassifier("pl_knn").fit(X, y), np.eye(3), ["a", "b", "b"]).error
    0.333...
    """
    refuse_unfitted(model)
    probability = model.predict_proba(X)
    return calibration_of(probability, true_labels(model, y, len(probability)), bins)


@dataclass(frozen=True, repr=False)
class DecisionReport(Displayed):
    """Coverage and errors of a decision.

    `coverage` is the share of accepted rows, `unlike` the share of rows rejected as novel. The
    errors are shares of wrong predictions among accepted and rejected rows; None without such rows.
    """

    coverage: float
    error: float | None
    rejected_error: float | None
    unlike: float


def decision_report(decision: Any, y: Any) -> DecisionReport:
    """Compare the result of `decide` with the true labels (n,) of the same rows.

    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> model = PLLClassifier("pl_knn").fit(X, y)
    >>> decision_report(model.decide(np.eye(3), coverage=1), ["a", "b", "b"])
    DecisionReport(coverage=1.0, error=0.333..., rejected_error=None, unlike=0.0)
    """
    labels = label_vector(y)
    if not isinstance(decision, Decision) or labels is None:
        rule = "decision_report needs a Decision and one true label for each of its rows"
        raise InputError(f"{rule}; got {type(decision).__name__} and {type(y).__name__}.")
    refuse_other_length(len(decision), len(labels))
    if (decision.label.dtype.kind == "U") != (labels.dtype.kind == "U"):
        first, other = labels.tolist()[0], decision.label.tolist()[0]
        fault = f"y holds labels such as {first!r}, but the decision such as {other!r}"
        raise InputError(f"{fault}. Pass the names of the classes.")
    wrong, accepted = np.asarray(decision.label != labels), decision.accepted
    error, rejected_error = (
        float(part.mean()) if len(part) else None for part in (wrong[accepted], wrong[~accepted])
    )
    novel = float((decision.reason == NOVEL).mean())
    return DecisionReport(decision.coverage, error, rejected_error, novel)


def covering_rate(probability: ArrayLike, candidates: ArrayLike) -> float:
    """Share of rows whose predicted class is a candidate; both arrays are (n, k).

    It is at least the accuracy if the true class is always a candidate.

    >>> covering_rate([[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]], [[1, 1, 0], [0, 1, 1]])
    0.5
    """
    return float((_share_of_predicted(probability, candidates) > 0).mean())


def approximated_accuracy(probability: ArrayLike, candidates: ArrayLike) -> float:
    """Expected accuracy if each row's true class is drawn from its candidates by probability.

    Both arrays are (n, k). It is at most the covering rate; overconfidence raises it.

    >>> approximated_accuracy([[0.5, 0.25, 0.25], [0.5, 0.3, 0.2]], [[1, 1, 1], [0, 1, 1]])
    0.25
    """
    return float(_share_of_predicted(probability, candidates).mean())


def _share_of_predicted(probability: ArrayLike, candidates: ArrayLike) -> NDArray[np.float64]:
    """The predicted class's share among the candidates, (n,); 0 if it is not one of them."""
    p, matrix = np.asarray(probability, dtype=np.float64), np.asarray(candidates, dtype=bool)
    if p.ndim != 2 or p.shape != matrix.shape or len(p) == 0:
        raise InputError(
            "probability and candidates must both have shape (n, k), with one row or more; got "
            f"{p.shape} and {matrix.shape}. Pass predict_proba(X) and Candidates.of(y).matrix."
        )
    predicted = np.arange(len(p)), Opinion.of_probability(p).predicted()
    total = np.where(matrix[predicted], (p * matrix).sum(-1), 1.0)
    return np.where(matrix[predicted], p[predicted] / total, 0.0)


@dataclass(frozen=True)
class LabelFreeScorer:
    """One of these measures as a scikit-learn scorer (Wang et al., ICLR 2025); see `SCORERS`.

    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> SCORERS["covering_rate"](PLLClassifier("pl_knn").fit(X, y), np.eye(3), ["a", "b", "b"])
    0.666...
    """

    measure: Callable[[ArrayLike, ArrayLike], float]

    def __call__(self, model: Any, X: Any, y: Any) -> float:
        """Score a model on candidates in any form; classes unknown to it count as mistakes."""
        probability = np.asarray(model.predict_proba(X))
        candidates = candidates_with(y, np.asarray(model.classes_))
        refuse_other_length(len(probability), len(candidates))
        return self.measure(probability, candidates.matrix[:, : probability.shape[1]])


MEASURES = (covering_rate, approximated_accuracy)
SCORERS = {measure.__name__: LabelFreeScorer(measure) for measure in MEASURES}


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
    X, y
        Rows, and candidates in any form that `Candidates.of` accepts.
    folds, by, random_state
        Number of folds, the score (see `suspicion`), and the seed that draws the folds.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(np.eye(3, dtype=bool), 20, axis=0)
    >>> y[7] = [False, True, True]  # all but the truth
    >>> int(missing_truth_scores(PLLClassifier("pl_knn"), X, y, random_state=0).argmax())
    7
    """
    X, y = pairs_of(X, y)
    X, candidates = X.tocsr() if is_sparse(X) else X, Candidates.of(y)
    rows = _num_samples(X)
    refuse_other_length(rows, len(candidates))
    _refuse_other_score(by)
    if not is_count(folds, least=2) or folds > rows // 2:
        rule = f"folds must be an int of at least 2 and at most half of {rows} rows"
        raise InputError(f"{rule}; got {folds!r}.")
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
    among them; it exceeds 0.5 if the predicted class is not a candidate. "probability" and "belief"
    are the totals outside, which are higher for small sets.

    >>> opinion = Opinion.of_evidence(np.array([[6.0, 0, 1]]))
    >>> suspicion(opinion, np.array([[False, True, True]]), "probability")
    array([0.7])
    """
    _refuse_other_score(by)
    if by == "rival":
        p = np.asarray(opinion.probability)
        outside, inside = (p * ~candidates).max(-1), (p * candidates).max(-1)
        return outside / (outside + inside)
    mass = np.asarray(opinion.belief if by == "belief" else opinion.probability)
    return (mass * ~candidates).sum(-1)


def _refuse_other_score(by: Any) -> None:
    if by not in get_args(By):
        raise InputError(f"by must be one of {', '.join(map(repr, get_args(By)))}; got {by!r}.")
