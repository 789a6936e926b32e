"""Error against coverage: what is gained by leaving the least certain rows to others."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.errors import InputError, refuse_other_length
from robustpll.estimator.abstention import NOVEL, Decision
from robustpll.labels.candidates import is_label_vector
from robustpll.labels.parsing import items_of, refuse_odd_labels
from robustpll.measures.metrics import accuracy, sample

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """How many of the surest rows are wrong, for every number of them.

    Attributes
    ----------
    coverage : array of shape (n,)
        Share of accepted rows, from 1 / n to 1.
    error : array of shape (n,)
        Share of wrong ones among them.
    """

    coverage: Floats
    error: Floats

    @property
    def area(self) -> float:
        """AURC, the mean error over all coverages; smaller is better."""
        return float(self.error.mean())

    @property
    def least_area(self) -> float:
        """The area if all right rows came before all wrong ones: what accuracy alone costs."""
        n = len(self.error)
        counts, right = np.arange(1, n + 1), round((1 - self.error[-1]) * n)
        return float((np.maximum(0, counts - right) / counts).mean())

    def coverage_at(self, error: float) -> float:
        """The largest coverage whose error is at most this; 0 if there is none."""
        sound = self.coverage[self.error <= error + 1e-12]
        return float(sound[-1]) if len(sound) else 0.0


def risk_coverage(certainty: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Of certainties (n,), higher is surer, and whether (0 or 1) predictions are right (n,).

    Rows of equal certainty come in any order: what is counted is the mean over these orders.

    Examples
    --------
    >>> found = risk_coverage([0.9, 0.8, 0.7, 0.7], [1, 0, 1, 0])
    >>> found.error.round(4)  # 0 of 1, 1 of 2, 1.5 of 3, 2 of 4
    array([0. , 0.5, 0.5, 0.5])
    >>> found.area, round(found.least_area, 4)
    (0.375, 0.2083)
    >>> found.coverage_at(0.1)
    0.25
    """
    sure, right = sample(certainty, "certainty"), sample(correct, "correct")
    if len(sure) != len(right):
        msg = f"certainty has {len(sure)} rows, but correct has {len(right)}: pass the same rows."
        raise InputError(msg)
    accuracy(right)  # 0 and 1 alone
    order = np.argsort(-sure, kind="stable")
    counts = np.arange(1, len(sure) + 1)
    ends = counts[np.append(np.diff(sure[order]) < 0, True)]
    wrong = np.cumsum(1 - right[order])[ends - 1]
    expected = np.interp(counts, [0, *ends], [0, *wrong])
    return RiskCoverage(counts / len(sure), expected / counts)


@dataclass(frozen=True)
class DecisionReport:
    """What a decision was worth.

    Attributes
    ----------
    coverage : float
        Share of accepted rows.
    error : float or None
        Share of wrong ones among accepted rows; None if there are none.
    rejected_error : float or None
        The same among rejected rows: how often the model was right not to decide.
    unlike : float
        Share of rows that were found unlike the training data.
    """

    coverage: float
    error: float | None
    rejected_error: float | None
    unlike: float


def decision_report(decision: Any, y: Any) -> DecisionReport:
    """Hold a decision against true labels.

    Parameters
    ----------
    decision : Decision
        As `decide` returned it.
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
        msg = (
            "decision_report needs a Decision and one true label for each of its rows; got "
            f"{type(decision).__name__} and {type(y).__name__}."
        )
        raise InputError(msg)
    labels = items_of(y)
    refuse_odd_labels(labels)
    refuse_other_length(len(decision), len(labels))
    wrong, accepted = np.asarray(decision.label != labels), decision.accepted
    unlike = float((decision.reason == NOVEL).mean())
    return DecisionReport(
        decision.coverage, _mean(wrong[accepted]), _mean(wrong[~accepted]), unlike
    )


def _mean(wrong: NDArray[np.bool_]) -> float | None:
    return float(wrong.mean()) if len(wrong) else None
