"""Reports on the probabilities and decisions of a fitted classifier, given true labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustpll.errors import InputError, refuse_other_length
from robustpll.estimator.abstention import NOVEL, Decision
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.labels.candidates import Candidates, is_label_vector
from robustpll.labels.parsing import items_of, refuse_odd_labels
from robustpll.measures.calibration import CalibrationReport, calibration_of


def calibration_report(model: Any, X: Any, y: Any, bins: int = 15) -> CalibrationReport:
    """Measure how well a fitted classifier's probabilities are calibrated.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X : array, DataFrame or pictures
        Rows that were not trained on.
    y : array of shape (n,)
        Their true labels.
    bins : int
        Number of bins of each `Reliability`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = calibration_report(model, np.eye(3), ["a", "b", "c"])
    >>> report.accuracy, report.error < 0.2
    (1.0, True)
    """
    if not isinstance(model, CandidateClassifier):
        raise InputError(
            "model must be a fitted classifier of this library, such as PLLClassifier; got "
            f"{type(model).__name__}. For probabilities of other models use calibration_of."
        )
    if not is_label_vector(y):
        raise InputError("y must hold one true label for each row; got candidate sets.")
    truth = Candidates.of(y, classes=model.classes_).matrix
    probability = model.predict_proba(X)
    refuse_other_length(len(probability), len(truth))
    return calibration_of(probability, truth.argmax(-1), bins)


@dataclass(frozen=True)
class DecisionReport:
    """Coverage and errors of a decision.

    Attributes
    ----------
    coverage : float
        Share of accepted rows.
    error : float or None
        Share of wrong predictions among accepted rows; None if there are none.
    rejected_error : float or None
        The same among rejected rows.
    unlike : float
        Share of rows rejected because they are novel.
    """

    coverage: float
    error: float | None
    rejected_error: float | None
    unlike: float


def decision_report(decision: Any, y: Any) -> DecisionReport:
    """Compare a decision with true labels.

    Parameters
    ----------
    decision : Decision
        The result of `decide`.
    y : array of shape (n,)
        True labels of the same rows.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> decision_report(model.decide(np.eye(3), coverage=1), ["a", "b", "b"])
    DecisionReport(coverage=1.0, error=0.333..., rejected_error=None, unlike=0.0)
    """
    if not isinstance(decision, Decision) or not is_label_vector(y):
        raise InputError(
            "decision_report needs a Decision and one true label for each of its rows; got "
            f"{type(decision).__name__} and {type(y).__name__}."
        )
    labels = items_of(y)
    refuse_odd_labels(labels)
    refuse_other_length(len(decision), len(labels))
    wrong, accepted = np.asarray(decision.label != labels), decision.accepted
    error, rejected_error = (
        float(part.mean()) if len(part) else None for part in (wrong[accepted], wrong[~accepted])
    )
    novel = float((decision.reason == NOVEL).mean())
    return DecisionReport(decision.coverage, error, rejected_error, novel)
