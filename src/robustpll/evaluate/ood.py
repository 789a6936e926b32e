"""Out-of-distribution (OOD) scores, and how well they separate known from OOD rows.

All scores have one sign: higher means farther from the training data. OOD rows are the positives.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from robustpll._display import Displayed
from robustpll.engine.data import Rows
from robustpll.engine.device import computing
from robustpll.engine.predict import Fitted, logits_of
from robustpll.estimator import abstention
from robustpll.estimator.abstention import networks_of, representation
from robustpll.estimator.base import CandidateClassifier, refuse_unfitted
from robustpll.measures.metrics import Gamma, as_recorded, cdf_area, sample, signed_ks, signed_mmd
from robustpll.methods.neighbours import neighbours


@dataclass(frozen=True, repr=False)
class Separation(Displayed):
    """How well a score separates OOD rows (positives) from known rows.

    `auroc` is the probability that an OOD row scores higher than a known one; 0.5 is chance. `aupr`
    is the average precision in finding OOD rows; chance is their share. `fpr95` is the share of
    known rows above the threshold that finds 95 % of the OOD rows.
    """

    auroc: float
    aupr: float
    fpr95: float


def separation(known: ArrayLike, ood: ArrayLike) -> Separation:
    """Compute how well scores separate known rows (n,) from OOD rows (m,).

    >>> separation([0.1, 0.2, 0.3, 0.6], [0.5, 0.7, 0.8, 0.9])
    Separation(auroc=0.9375, aupr=0.95, fpr95=0.25)
    """
    k, o = sample(known, "known"), sample(ood, "ood")
    is_ood, scores = np.repeat([0, 1], [len(k), len(o)]), np.concatenate([k, o])
    threshold = np.sort(o)[5 * len(o) // 100]  # of the 95 % rounded up that score highest
    auroc, aupr = roc_auc_score(is_ood, scores), average_precision_score(is_ood, scores)
    return Separation(float(auroc), float(aupr), float((k >= threshold).mean()))


def energy(logits: Tensor) -> Tensor:
    """-ln sum_j exp(logit_j), (..., n, k) -> (..., n) (Liu et al., 2020)."""
    return -logits.logsumexp(-1)


@dataclass(frozen=True)
class Gaussians:
    """A normal distribution for each class, all with the same covariance (Lee et al., 2018)."""

    whitening: Tensor  # (h, h): rows times this have unit covariance
    centres: Tensor  # (classes, h), whitened

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> Self:
        """Fit to rows (n, h) and their class indices (n,)."""
        x, counts = features.double(), labels.bincount()
        totals = x.new_zeros(len(counts), x.shape[1]).index_add_(0, labels, x)
        centres = totals / counts.clamp(min=1)[:, None]
        covariance = shrunk_covariance(x - centres[labels])
        least = 1e-6 * x.var(0, correction=0).mean()  # some units may be constant in training
        least = torch.where(least > 0, least, 1.0)  # all rows are equal: Euclidean distances
        covariance.diagonal().add_(least)
        values, vectors = torch.linalg.eigh(covariance)
        whitening = vectors / values.sqrt()
        return cls(whitening, centres[counts > 0] @ whitening)

    def distance(self, features: Tensor) -> Tensor:
        """Mahalanobis distance of rows (q, h) to the nearest centre, (q,)."""
        return neighbours(features.double() @ self.whitening, self.centres, 1).distance[:, 0]


def shrunk_covariance(x: Tensor) -> Tensor:
    """Ledoit-Wolf covariance (2004) of rows (n, h) with mean 0, (h, h).

    Equal to scikit-learn's, but on the device of the rows and 3 to 6 times faster: the sum over j
    and l of x_ij^2 x_il^2 is |x_i|^4, so no second matrix product is needed.
    """
    n, h = x.shape
    plain = x.T @ x / n
    mean = plain.diagonal().mean()
    square = plain.square().sum()
    noise = (x.square().sum(1).square().mean() - square) / n
    spread = square - h * mean.square()  # squared distance from a multiple of the identity
    share = torch.where(spread > 0, (noise / spread).clamp(0, 1), 0.0)
    shrunk = (1 - share) * plain
    shrunk.diagonal().add_(share * mean)
    return shrunk


@dataclass(frozen=True, eq=False)
class RunScorer:
    """Computes the scores of `OodScorer` for R runs at once."""

    fitted: Fitted
    training: Tensor | None  # representation of the training rows, (M, n, h)
    gaussians: tuple[Gaussians, ...]  # one per model, if there are training rows

    @classmethod
    def of(cls, fitted: Fitted, training: Rows | None = None) -> Self:
        """Prepare scores for a fitted method and the rows that it was fitted on."""
        if training is None:
            return cls(fitted, None, ())
        with computing("float32", training.device):
            features = representation(fitted, training)
            predicted = fitted.predict(training).predicted()
        labels = predicted.repeat_interleave(len(features) // len(predicted), 0)
        return cls(fitted, features, tuple(map(Gaussians.of, features, labels)))

    @property
    def absent(self) -> dict[str, str]:
        """Scores that this model does not have, with reasons."""
        fitted: Any = self.fitted
        method, reasons = fitted.method, {}
        if not networks_of(fitted):
            reasons["energy"] = f"{method.title} is not a network and has no logits"
        if not method.uncertain:
            reasons["uncertainty"] = f"{method.title} has no uncertainty: it commits all mass"
        if self.training is None:
            missing = "needs the training rows; pass X_train"
            reasons |= {"class distance": missing, "row distance": missing}
        return reasons

    def scores(self, rows: Rows) -> dict[str, Tensor]:
        """Scores by name, (R, n) each; higher means farther from the training data."""
        fitted, by_member = self.fitted, {}  # (M, n) each
        with computing("float32", rows.device):
            opinion = fitted.predict(rows)
            if networks_of(fitted):
                by_member["energy"] = abstention.by_networks(
                    fitted, rows, lambda net, x: energy(logits_of(net.method, net.net, x))
                )
            if self.training is not None:
                x = representation(fitted, rows)
                of_classes = map(Gaussians.distance, self.gaussians, x)
                by_member["class distance"] = torch.stack(list(of_classes))
                by_member["row distance"] = abstention.nearest_distance(x, self.training)
        scores = {"entropy": opinion.entropy, "uncertainty": opinion.uncertainty}
        scores["missing probability"] = 1 - opinion.probability.amax(-1)
        for name, values in by_member.items():
            scores[name] = torch.unflatten(values, 0, (rows.models, -1)).mean(1)
        return {name: score for name, score in scores.items() if name not in self.absent}


@dataclass(frozen=True, eq=False)
class OodScorer:
    """Scores how far rows are from the training data, for a fitted classifier of any method.

    "entropy" of the probability and "uncertainty" (mass of no class), both from 0 to 1; "missing
    probability" (1 - the largest); "energy" (-logsumexp of the logits); "class distance"
    (Mahalanobis, to the nearest predicted class of the training rows); "row distance" (to the
    nearest training row). Distances use the last hidden layer of networks that end in a linear
    layer, with rows of length 1, and otherwise the scaled features. Ensembles average over members.

    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> scorer = OodScorer.of(PLLClassifier("pl_knn").fit(X, y), X)
    >>> scorer.scores([[1, 0, 0], [1, 0, 1]])["row distance"]
    array([0., 1.])
    """

    model: CandidateClassifier
    run: RunScorer  # of the model's one run

    @classmethod
    def of(cls, model: Any, X_train: Any = None) -> Self:
        """Prepare scores of a fitted classifier; without training rows there are no distances."""
        refuse_unfitted(model)
        training = None if X_train is None else rows_of(model, X_train)
        return cls(model, RunScorer.of(model.fitted_, training))

    def scores(self, X: Any) -> dict[str, NDArray[np.float64]]:
        """Scores of rows X by name, (n,) each; higher means farther from the training data."""
        scores = self.run.scores(rows_of(self.model, X))
        return {name: score[0].cpu().numpy() for name, score in scores.items()}


@dataclass(frozen=True, repr=False)
class OodReport(Displayed):
    """How well a model separates known from OOD rows, by every score it has; see `OodScorer`.

    `area`, `ks` and `mmd` are the published measures of the entropies; they are positive if OOD
    rows have higher ones. `absent` gives a reason for each score that the model does not have.
    """

    separations: dict[str, Separation]
    absent: dict[str, str]
    area: float
    ks: float
    mmd: float

    def to_frame(self) -> pd.DataFrame:
        """One row for each score; the published measures are in the row of the entropy."""
        rows = {name: asdict(result) for name, result in self.separations.items()}
        rows["entropy"] |= {"area": self.area, "ks": self.ks, "mmd": self.mmd}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("score")

    def _facts(self) -> str:
        return ", ".join(f"{name} {one.auroc:.3f}" for name, one in self.separations.items())

    def _table(self) -> pd.DataFrame:
        return self.to_frame().round(3)

    def _notes(self) -> list[str]:
        return [f"{name}: {reason}" for name, reason in self.absent.items()]


def ood_report(
    model: CandidateClassifier,
    X_known: Any,
    X_ood: Any,
    *,
    X_train: Any = None,
    gamma: Gamma = "pooled-mean",
) -> OodReport:
    """Measure how well a fitted classifier separates rows of known classes from others.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X_known, X_ood : array, DataFrame or images
        Test rows, and rows of no known class; of the same form as in training.
    X_train : array, DataFrame or images, optional
        The training rows, for the two distances.
    gamma : {"pooled-mean", "median"} or float
        As of `signed_mmd`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
    >>> report = ood_report(PLLClassifier("proden").fit(X, y), X, 3 - 3 * X, X_train=X)
    >>> report.separations["row distance"]
    Separation(auroc=1.0, aupr=1.0, fpr95=0.0)
    >>> report.absent
    {'uncertainty': 'Proden has no uncertainty: it commits all mass'}
    """
    scorer = OodScorer.of(model, X_train)
    known, ood = scorer.scores(X_known), scorer.scores(X_ood)
    entropies = as_recorded(known["entropy"]), as_recorded(ood["entropy"])
    separations = {name: separation(known[name], ood[name]) for name in known}
    measures = cdf_area(*entropies), signed_ks(*entropies), signed_mmd(*entropies, gamma=gamma)
    return OodReport(separations, scorer.run.absent, *measures)


def rows_of(model: CandidateClassifier, X: Any) -> Rows:
    """Convert X to rows as a fitted classifier reads them, scaled and on its device."""
    refuse_unfitted(model)
    return model._rows(X)
