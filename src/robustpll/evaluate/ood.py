"""How unlike the training data a row is, and how well that tells known rows from unknown ones.

All scores have one sign: higher is more unlike the training data. Out-of-distribution (OOD) rows
are what is looked for, the positives.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from robustpll.engine.device import computing
from robustpll.engine.predict import Fitted, Networks, logits_of
from robustpll.engine.rows import Rows
from robustpll.errors import InputError
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.estimator.novelty import representation
from robustpll.measures.metrics import Gamma, as_recorded, cdf_area, sample, signed_ks, signed_mmd
from robustpll.methods.neighbours import neighbours

if TYPE_CHECKING:
    import pandas as pd

Scores = dict[str, NDArray[np.float64]]  # name of a score -> (n,)


@dataclass(frozen=True)
class Separation:
    """How well a score tells OOD rows, the positives, from known ones.

    Attributes
    ----------
    auroc : float
        Probability that an OOD row scores higher than a known one; 0.5 is chance.
    aupr : float
        Mean precision in finding OOD rows; chance is their share.
    fpr95 : float
        Share of known rows that are flagged by the threshold that flags 95 % of OOD rows.
    """

    auroc: float
    aupr: float
    fpr95: float


def separation(known: ArrayLike, ood: ArrayLike) -> Separation:
    """How well scores of known rows (n,) and OOD rows (m,) are apart; higher is more unlike.

    >>> separation([0.1, 0.2, 0.3, 0.6], [0.5, 0.7, 0.8, 0.9])
    Separation(auroc=0.9375, aupr=0.95, fpr95=0.25)
    """
    k, o = sample(known, "known"), sample(ood, "ood")
    is_ood = np.repeat([0, 1], [len(k), len(o)])
    scores = np.concatenate([k, o])
    flagged = -(-95 * len(o) // 100)  # at least 95 % of them
    threshold = np.sort(o)[len(o) - flagged]
    return Separation(
        float(roc_auc_score(is_ood, scores)),
        float(average_precision_score(is_ood, scores)),
        float((k >= threshold).mean()),
    )


def energy(logits: Tensor) -> Tensor:
    """-ln sum_j exp(logit_j), (..., n, k) -> (..., n) (Liu et al., 2020).

    >>> energy(torch.tensor([[5.0, 0, 0], [0, 0, 0]]))
    tensor([-5.0134, -1.0986])
    """
    return -logits.logsumexp(-1)


@dataclass(frozen=True)
class Gaussians:
    """A normal distribution for each class, all with the same covariance (Lee et al., 2018).

    The covariance within classes is shrunk by the rule of Ledoit and Wolf, and gets at least a
    millionth of the features' variance in all directions: units that were silent in training have
    none of their own.

    Examples
    --------
    Classes are wide in the first direction and narrow in the second:

    >>> one = torch.cartesian_prod(torch.linspace(-10, 10, 21), torch.arange(3.0) - 1)
    >>> fitted = Gaussians.of(torch.cat([one, one + 100]), torch.arange(2).repeat_interleave(63))
    >>> fitted.distance(torch.tensor([[0.0, 0], [5, 0], [0, 5]])).round(decimals=1)
    tensor([0.0000, 0.8000, 5.2000], dtype=torch.float64)
    """

    whitening: Tensor  # (h, h): rows times this have the unit covariance
    centres: Tensor  # (classes, h), whitened

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> Self:
        """From rows (n, h) and their classes (n,), numbers from 0."""
        x = features.double()
        counts = labels.bincount()
        totals = x.new_zeros(len(counts), x.shape[1]).index_add_(0, labels, x)
        centres = totals / counts.clamp(min=1)[:, None]
        covariance = shrunk_covariance(x - centres[labels])
        least = 1e-6 * x.var(0, correction=0).mean()
        least = torch.where(least > 0, least, 1.0)  # all rows are equal: plain distances
        covariance.diagonal().add_(least)
        values, vectors = torch.linalg.eigh(covariance)
        whitening = vectors / values.sqrt()
        return cls(whitening, centres[counts > 0] @ whitening)

    def distance(self, features: Tensor) -> Tensor:
        """Mahalanobis distance of rows (q, h) to the nearest centre, (q,)."""
        whitened = features.double() @ self.whitening
        return neighbours(whitened, self.centres, 1).distance[:, 0]


def shrunk_covariance(x: Tensor) -> Tensor:
    """Of rows (n, h) whose mean is 0, by the rule of Ledoit and Wolf (2004), (h, h).

    The same as scikit-learn's, on the device of the rows, and without products of all squares: the
    sum over j and l of x_ij^2 x_il^2 is |x_i|^4.

    >>> shrunk_covariance(torch.tensor([[2.0, 0], [-2, 0], [0, 1], [0, -1]]).double())
    tensor([[1.2917, 0.0000],
            [0.0000, 1.2083]], dtype=torch.float64)
    """
    n, h = x.shape
    plain = x.T @ x / n
    mean = plain.diagonal().mean()
    square = plain.square().sum()
    noise = (x.square().sum(1).square().mean() - square) / n
    apart = square - h * mean.square()  # from a multiple of the identity
    share = torch.where(apart > 0, (noise / apart).clamp(0, 1), 0.0)
    shrunk = (1 - share) * plain
    shrunk.diagonal().add_(share * mean)
    return shrunk


@dataclass(frozen=True, eq=False)
class RunScorer:
    """Scores rows of R runs at once by how unlike the training data of each they are.

    The scores are those of `OodScorer`.
    """

    fitted: Fitted
    training: Tensor | None  # of the training rows, (M, n, h)
    gaussians: tuple[Gaussians, ...]  # one for each of M models, if there are training rows

    @classmethod
    def of(cls, fitted: Fitted, training: Rows | None = None) -> Self:
        """For what a method's fit returned, and the rows that it was fitted on.

        >>> from robustpll.engine.data import Task
        >>> from robustpll.methods import Proden
        >>> rows = Rows.of(torch.eye(3), torch.tensor([[0, 1, 2], [0, 1, 1]]))
        >>> fitted = Proden(epochs=1).fit(Task.of(rows, torch.eye(3).bool()[rows.at], (0, 1)))
        >>> RunScorer.of(fitted, rows).scores(rows)["row distance"]
        tensor([[0., 0., 0.],
                [0., 0., 0.]], dtype=torch.float64)
        """
        if training is None:
            return cls(fitted, None, ())
        with computing("float32", training.device):
            own = representation(fitted, training)
            predicted = fitted.predict(training).predicted()
        named = predicted.repeat_interleave(len(own) // len(predicted), 0)
        return cls(fitted, own, tuple(map(Gaussians.of, own, named)))

    @property
    def absent(self) -> dict[str, str]:
        """Scores that this model has not, and why."""
        fitted: Any = self.fitted
        method, found = fitted.method, {}
        if not isinstance(fitted, Networks):
            found["energy"] = f"{method.title} is no network, and has no logits"
        if not method.uncertain:
            found["uncertainty"] = f"{method.title} commits all mass, and leaves none uncertain"
        if self.training is None:
            missing = "needs the training rows; pass X_train"
            found |= {"class distance": missing, "row distance": missing}
        return found

    def scores(self, rows: Rows) -> dict[str, Tensor]:
        """By name, (R, n) each; higher is more unlike the training data."""
        absent = self.absent
        with computing("float32", rows.device):
            return {name: each for name, each in self._all(rows).items() if name not in absent}

    def _all(self, rows: Rows) -> dict[str, Tensor]:
        """Those included that say nothing."""
        fitted, runs = self.fitted, rows.models
        opinion = fitted.predict(rows)
        found = {"entropy": opinion.entropy, "uncertainty": opinion.uncertainty}
        found["missing probability"] = 1 - opinion.probability.amax(-1)
        if isinstance(fitted, Networks):
            logits = logits_of(fitted.method, fitted.net, rows.repeated(fitted.method.members))
            found["energy"] = _over_members(energy(logits), runs)
        if self.training is not None:
            own = representation(fitted, rows)
            near = [each.distance(x) for each, x in zip(self.gaussians, own, strict=True)]
            found["class distance"] = _over_members(torch.stack(near), runs)
            pairs = zip(own, self.training, strict=True)
            near = [neighbours(*pair, 1).distance[:, 0] for pair in pairs]
            found["row distance"] = _over_members(torch.stack(near), runs)
        return found


@dataclass(frozen=True, eq=False)
class OodScorer:
    """Scores rows by how unlike the training data they are; for a fitted classifier of any method.

    ========================  =====================================================================
    score                     what it is
    ========================  =====================================================================
    ``entropy``               of the probability, from 0 to 1
    ``uncertainty``           mass that is committed to no class, from 0 to 1
    ``missing probability``   1 - the largest probability
    ``energy``                -logsumexp of the logits
    ``class distance``        Mahalanobis distance to the nearest class of the training rows
    ``row distance``          distance to the nearest training row
    ========================  =====================================================================

    Distances are taken in the last hidden layer of networks "mlp" and "wide", where rows are
    brought to length 1 (Sun et al., 2022), and otherwise in the scaled features. Classes of the
    training rows are those the model predicts for them. In an ensemble energies and distances are
    means over the members.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import RobustPll
    >>> generator = np.random.default_rng(0)
    >>> X = np.repeat(np.eye(3), 20, axis=0) + 0.1 * generator.normal(size=(60, 3))
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(RobustPll(epochs=20), random_state=0).fit(X, y)
    >>> scores = OodScorer.of(model, X).scores([[1, 0, 0], [3, 3, 3]])
    >>> [name for name, each in scores.items() if each[1] > each[0]][-2:]
    ['class distance', 'row distance']
    """

    model: CandidateClassifier
    run: RunScorer  # of the model's one run

    @classmethod
    def of(cls, model: Any, X_train: Any = None) -> Self:
        """For a fitted classifier; without the training rows scores by distance are absent."""
        _refuse_unfitted(model)
        training = None if X_train is None else rows_of(model, X_train)
        return cls(model, RunScorer.of(model.fitted_, training))

    @property
    def absent(self) -> dict[str, str]:
        """Scores that this model has not, and why."""
        return self.run.absent

    def scores(self, X: Any) -> Scores:
        """Of rows X, by name, (n,) each; higher is more unlike the training data."""
        found = self.run.scores(rows_of(self.model, X))
        return {name: each[0].cpu().numpy() for name, each in found.items()}


@dataclass(frozen=True)
class OodReport:
    """How well a model tells known from OOD rows, by every score it has.

    Attributes
    ----------
    separations : dict of str to Separation
        By score; see `OodScorer`.
    absent : dict of str to str
        Scores that the model has not, and why.
    area, ks, mmd : float
        The published measures of the entropies; positive where OOD rows have higher ones.
    """

    separations: dict[str, Separation]
    absent: dict[str, str]
    area: float
    ks: float
    mmd: float

    def to_frame(self) -> "pd.DataFrame":
        """One row for each score; the published measures stand in that of the entropy."""
        import pandas as pd

        rows = {name: asdict(found) for name, found in self.separations.items()}
        rows["entropy"] |= {"area": self.area, "ks": self.ks, "mmd": self.mmd}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("score")


def ood_report(
    model: CandidateClassifier,
    X_known: Any,
    X_ood: Any,
    *,
    X_train: Any = None,
    gamma: Gamma = "pooled-mean",
) -> OodReport:
    """How well a fitted classifier tells rows of known classes from others.

    Parameters
    ----------
    model : PLLClassifier or its kind
        Fitted, by any method.
    X_known, X_ood : array, DataFrame or pictures
        Test rows, and rows of no known class; of the same form as in training.
    X_train : array, DataFrame or pictures, optional
        The training rows, for the two scores by distance.
    gamma : {"pooled-mean", "median"} or float
        Of `signed_mmd`.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = ood_report(model, X, 3 - 3 * X, X_train=X)
    >>> report.separations["row distance"]
    Separation(auroc=1.0, aupr=1.0, fpr95=0.0)
    >>> report.absent
    {'uncertainty': 'Proden commits all mass, and leaves none uncertain'}
    """
    scorer = OodScorer.of(model, X_train)
    known, ood = scorer.scores(X_known), scorer.scores(X_ood)
    entropies = as_recorded(known["entropy"]), as_recorded(ood["entropy"])
    return OodReport(
        {name: separation(known[name], ood[name]) for name in known},
        scorer.absent,
        cdf_area(*entropies),
        signed_ks(*entropies),
        signed_mmd(*entropies, gamma=gamma),
    )


def rows_of(model: CandidateClassifier, X: Any) -> Rows:
    """Rows as a fitted classifier reads them, scaled and on its device.

    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> model = PLLClassifier(Proden(epochs=1)).fit([[0, 4], [2, 8]], [{0}, {1}])
    >>> rows_of(model, [[1, 4]]).pool.tolist()
    [[0.5, 0.0]]
    """
    _refuse_unfitted(model)
    return model._rows(X)


def _refuse_unfitted(model: Any) -> None:
    if not isinstance(model, CandidateClassifier):
        msg = (
            "model must be a fitted classifier of this library, such as PLLClassifier; got "
            f"{type(model).__name__}."
        )
        raise InputError(msg)
    check_is_fitted(model, "fitted_")


def _over_members(each: Tensor, runs: int) -> Tensor:
    """The mean of neighbouring models, (M, n) -> (R, n)."""
    return torch.unflatten(each, 0, (runs, -1)).mean(1)
