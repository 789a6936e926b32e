"""Reports on the probabilities and decisions of a fitted classifier, given true labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustpll.errors import InputError, refuse_other_length
from robustpll.estimator.abstention import NOVEL, Decision
from robustpll.evaluate.ood import _refuse_unfitted, _true_labels
from robustpll.labels.candidates import label_vector
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
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = calibration_report(model, np.eye(3), ["a", "b", "c"])
    >>> report.accuracy, report.error < 0.2
    (1.0, True)
    """
    _refuse_unfitted(model)
    probability = model.predict_proba(X)
    return calibration_of(probability, _true_labels(model, y, len(probability)), bins)


@dataclass(frozen=True)
class DecisionReport:
    """Coverage and errors of a decision.

    `coverage` is the share of accepted rows, `unlike` the share of rows rejected as novel. The
    errors are shares of wrong predictions among accepted and rejected rows; None without such rows.
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
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> decision_report(model.decide(np.eye(3), coverage=1), ["a", "b", "b"])
    DecisionReport(coverage=1.0, error=0.333..., rejected_error=None, unlike=0.0)
    """
    labels = label_vector(y)
    if not isinstance(decision, Decision) or labels is None:
        raise InputError(
            "decision_report needs a Decision and one true label for each of its rows; got "
            f"{type(decision).__name__} and {type(y).__name__}."
        )
    refuse_other_length(len(decision), len(labels))
    wrong, accepted = np.asarray(decision.label != labels), decision.accepted
    error, rejected_error = (
        float(part.mean()) if len(part) else None for part in (wrong[accepted], wrong[~accepted])
    )
    novel = float((decision.reason == NOVEL).mean())
    return DecisionReport(decision.coverage, error, rejected_error, novel)
