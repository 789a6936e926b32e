"""What the classifiers know of how far to trust them: recalibration, and decisions."""

import math
import warnings
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from robustpll.engine.data import Rows
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError, is_share, refuse_other_length, refuse_other_than_share
from robustpll.estimator.decision import LIKE_THESE, NEVER, Decision, Trial
from robustpll.estimator.novelty import MOST_ROWS, Reference
from robustpll.estimator.recalibration import Recalibration, Source
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

CONFIDENCE = 0.9  # of the bound on the error, if nobody says other
ROUNDING = 1e-5  # of distances, where rows have length 1 or features go from 0 to 1


class Trust:
    """The part of a classifier that says how sure is sure; it is fitted elsewhere."""

    classes_: NDArray[Any]
    fitted_: Fitted
    recalibration_: Recalibration | None
    """What `recalibrate` learned; None before."""
    trial_: Trial | None
    """The rows that `calibrate_decisions` was shown; None before."""
    reference_: Reference | None
    """Training rows that are kept to tell others from; None in files that kept none."""

    if TYPE_CHECKING:

        def _rows(self, X: Any) -> Rows: ...

    def recalibrate(self, X: Any, y: Any) -> Self:
        """Learn from other rows how sure to be; labels that are predicted stay as they are.

        Afterwards probabilities, beliefs and uncertainty are those with one factor on the evidence
        or the logits: see `recalibration_`, a `Recalibration`. It stays in the model file. What
        `calibrate_decisions` learned before is forgotten.

        Parameters
        ----------
        X : array, DataFrame or pictures
            Rows that were not trained on, some hundred or more.
        y : object
            Their true labels, or candidates in any form that `Candidates.of` accepts. Labels are
            worth more: candidates are taken as drawn without regard to which of them is true.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> generator = np.random.default_rng(0)
        >>> labels = np.repeat(["a", "b", "c"], 100)
        >>> X = np.repeat(np.eye(3), 100, axis=0) + 0.4 * generator.normal(size=(300, 3))
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[::2], labels[::2])
        >>> model.recalibrate(X[1::2], labels[1::2]).recalibration_
        Recalibration(evidence times ... by 150 labels, log loss 0... -> 0...)
        """
        candidates, _, opinion = self._shown(X, y)
        self.recalibration_ = Recalibration.of_rows(opinion, candidates.matrix)
        self.trial_ = None
        return self

    def calibrate_decisions(self, X: Any, y: Any, *, confidence: float | None = None) -> Self:
        """Fix by other rows what `decide` accepts, so that it looks at each row by itself.

        Parameters
        ----------
        X : array, DataFrame or pictures
            Rows that were not trained on, drawn like those to be decided.
        y : object
            True labels: then ``decide(X, error=0.05)`` keeps its promise with some confidence, if
            these rows were not used to recalibrate. Or candidates: then the error is estimated, by
            the probability of the predicted class among the candidates. That rests on sets which
            hold the true class and were drawn without regard to which member it is, and on
            probabilities that are right within the sets: recalibrate first.
        confidence : float, optional
            How sure the bound on the error is, 0.9 by default; with labels alone.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> generator = np.random.default_rng(0)
        >>> labels = np.repeat(["a", "b", "c"], 100)
        >>> X = np.repeat(np.eye(3), 100, axis=0) + 0.4 * generator.normal(size=(300, 3))
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[::2], labels[::2])
        >>> model.calibrate_decisions(X[1::2], labels[1::2]).trial_
        Trial(150 rows by labels, confidence 0.9)
        >>> model.decide([[1, 0, 0], [0.5, 0.5, 0], [9, 9, 9]], error=0.1).reason.tolist()
        ['accepted', 'ambiguous: a or b', 'unlike the training data']
        """
        candidates, rows, raw = self._shown(X, y)
        by_labels = bool((candidates.sizes == 1).all())
        if not by_labels and confidence is not None:
            raise InputError(
                "confidence is for labels: candidates in y give an estimate without one."
            )
        sure = CONFIDENCE if by_labels and confidence is None else confidence
        if sure is not None:
            refuse_other_than_share("confidence", sure)
        distance = self._distance(rows)
        limit = max(ROUNDING, float(np.quantile(distance, LIKE_THESE, method="higher")))
        opinion = self._recalibrated(raw)
        predicted, probability = opinion.predicted(), opinion.probability
        at = np.arange(len(predicted))
        certainty = probability[at, predicted]
        inside = np.where(candidates.matrix, probability, 0.0)
        right = inside[at, predicted] / np.maximum(inside.sum(-1), 1e-300)  # 0 / 0 is 0
        source: Source = "labels" if by_labels else "candidates"
        trial = Trial(np.where(distance > limit, NEVER, certainty), 1 - right, limit, source, sure)
        self.trial_ = trial.sorted()
        return self

    def decide(
        self, X: Any, *, coverage: float | None = None, error: float | None = None
    ) -> Decision:
        """Predict, and say which predictions to go by, and why not by the others.

        The more probable the predicted class, the sooner a row is accepted. A row unlike the
        training data is never accepted, even if the coverage then falls short: one farther from it
        than 99 % of the rows that `calibrate_decisions` was shown, or else than any training row
        that is kept from the others. A model from a file that kept none never
        says so.

        Parameters
        ----------
        X : array, DataFrame or pictures
            Rows of the same form as in training.
        coverage : float
            Accept this share of the rows, or as near to it as equally certain rows allow.
        error : float
            Accept as many as keep the share of wrong ones among them at this. Pass one of the two.

        Notes
        -----
        A bound on the error takes some labelled rows: 59 for an error of 0.05 with confidence 0.9,
        even if the model is right in all of them. If `calibrate_decisions` was shown fewer, a
        warning says so, and no row is accepted: its reason is "no promise can be made".

        Without `calibrate_decisions` both refer to X as a whole: `coverage` is a share of its rows,
        and the error is what the model expects, one minus the mean probability of the predicted
        classes. That is as true as the probabilities are: recalibrate first.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> X = np.repeat(np.eye(3), 20, axis=0)
        >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
        >>> model = RobustPLLClassifier(epochs=100, random_state=0).fit(X, y)
        >>> decision = model.decide([[1, 0, 0], [0, 1, 0], [0, 0.4, 0.6]], coverage=2 / 3)
        >>> decision, decision.reason.tolist()
        (Decision(2 of 3 rows accepted), ['accepted', 'accepted', 'ambiguous: c or b'])
        """
        _refuse_other_promises(coverage, error)
        check_is_fitted(self, "fitted_")
        rows, trial = self._rows(X), self.trial_
        opinion, distance = self._recalibrated(self._raw_opinion(rows)), self._distance(rows)
        predicted, probability = opinion.predicted(), opinion.probability
        if trial is None:
            limit = np.inf if self.reference_ is None else self.reference_.limit
            certainty = probability[np.arange(len(predicted)), predicted]
            tamed = np.where(distance > limit, NEVER, certainty)
            trial = Trial(tamed, 1 - certainty, limit).sorted()
        threshold = trial.threshold(coverage, error)
        if error is not None and not trial.can_promise(error):
            warnings.warn(_no_promise(trial, error), UserWarning, stacklevel=2)
        bounded = error is not None and trial.confidence is not None
        like, promised = distance <= trial.limit, not (bounded and math.isinf(threshold))
        return Decision.of(
            self.classes_, predicted, probability, like, threshold, promised=promised
        )

    def _shown(self, X: Any, y: Any) -> tuple[Candidates, Rows, Opinion]:
        """What is said of rows, the rows, and what the model first held of them."""
        check_is_fitted(self, "fitted_")
        candidates, rows = Candidates.of(y, classes=self.classes_), self._rows(X)
        refuse_other_length(len(rows), len(candidates))
        return candidates, rows, self._raw_opinion(rows)

    def _raw_opinion(self, rows: Rows, *attack: Any) -> Opinion:
        """Before any recalibration; with an attack and true labels after the attack."""
        return replace(self.fitted_.predict(rows, *attack)[0].numpy(), classes=self.classes_)

    def _recalibrated(self, opinion: Opinion) -> Opinion:
        return opinion if self.recalibration_ is None else self.recalibration_.opinion(opinion)

    def _distance(self, rows: Rows) -> NDArray[np.float64]:
        """From the training data, (n,); 0 where no training rows were kept."""
        if self.reference_ is None:
            return np.zeros(len(rows))
        return np.asarray(self.reference_.distance(self.fitted_, rows).cpu())


def _no_promise(trial: Trial, error: float) -> str:
    """Why a bound on the error cannot be kept, and what would help."""
    return (
        f"error={error:g} cannot be promised with confidence {trial.confidence:g} from "
        f"{len(trial.certainty)} labelled rows: it takes {trial.fewest(error)}, even if all are "
        "right. So no row is accepted. Pass more rows to calibrate_decisions, or allow a larger "
        "error."
    )


def _refuse_other_promises(coverage: float | None, error: float | None) -> None:
    if (coverage is None) == (error is None):
        raise InputError(
            "decide needs either coverage or error, and not both: "
            "decide(X, coverage=0.9) or decide(X, error=0.05)."
        )
    if coverage is not None and not (is_share(coverage) and coverage > 0):
        raise InputError(f"coverage must be a number above 0 and at most 1; got {coverage!r}.")
    if error is not None:
        refuse_other_than_share("error", error)


REFERENCE, TRIAL = "robustpll.reference", "robustpll.trial"  # names of tensors in a model file


def trust_to_file(model: Trust) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a model file's description and its tensors hold of this."""
    about: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    if model.reference_ is not None:
        tensors[REFERENCE] = model.reference_.rows.cpu()
    if model.recalibration_ is not None:
        about["recalibration"] = asdict(model.recalibration_)
    if model.trial_ is not None:
        trial = model.trial_
        tensors[TRIAL] = torch.from_numpy(np.stack([trial.certainty, trial.wrong]))
        about["trial"] = {
            "limit": trial.limit,
            "source": trial.source,
            "confidence": trial.confidence,
        }
    return about, tensors


def trust_from_file(
    model: Trust, about: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> None:
    """Give a model what a file holds of this, taken out of its tensors; ValueError if it is odd.

    The description was checked against its schema before.
    """
    kept, trial = tensors.pop(REFERENCE, None), tensors.pop(TRIAL, None)
    model.reference_ = model.recalibration_ = model.trial_ = None
    if kept is not None:
        _refuse_odd_tensor(REFERENCE, kept, torch.float32, 3)
        if kept.shape[1] > MOST_ROWS:
            raise ValueError(f"it keeps {kept.shape[1]} training rows; {MOST_ROWS} are the most.")
        model.reference_ = Reference.of_rows(kept.to(device))
    if "recalibration" in about:
        model.recalibration_ = Recalibration(**about["recalibration"])
    if "trial" in about:
        if trial is None:
            raise ValueError("the rows of its trial are missing.")
        _refuse_odd_tensor(TRIAL, trial, torch.float64, 2)
        certainty, wrong = trial.numpy()
        if (certainty[1:] > certainty[:-1]).any() or abs(wrong - 0.5).max() > 0.5 + 1e-6:
            raise ValueError("the rows of its trial are not in order.")
        model.trial_ = Trial(certainty, wrong, **about["trial"])


def _refuse_odd_tensor(name: str, tensor: Tensor, dtype: torch.dtype, axes: int) -> None:
    if (tensor.dtype, tensor.ndim) != (dtype, axes) or 0 in tensor.shape:
        raise ValueError(f"tensor {name!r} is {tuple(tensor.shape)} of {tensor.dtype}.")
