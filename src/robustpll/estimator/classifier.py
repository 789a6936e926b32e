"""The scikit-learn interface: classifiers that learn, predict, and decide what to accept."""

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from robustpll.attacks import Attack
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.engine.networks import Network
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share, refuse_other_length, some_of
from robustpll.estimator.abstention import CalibrationSample, Decision, Recalibration, Reference
from robustpll.estimator.checks import check_training
from robustpll.estimator.features import Features, Scale, finite, refuse_odd_table
from robustpll.estimator.loaders import is_loader, pairs_of, rows_of
from robustpll.estimator.streaming import StreamedRows, fit_streamed
from robustpll.labels.candidates import Candidates, candidates_with
from robustpll.labels.parsing import as_pandas, is_frame
from robustpll.methods import METHODS, Auto, Method, RobustPll, RobustPllAt
from robustpll.methods.auto import Stack
from robustpll.opinion import Opinion, each_part

ClassWeight = Mapping[Any, float] | str | None
DEPRECATED = "deprecated"  # the value of parameters that nobody passed
FORMER_PARAMETERS: tuple[str, ...] = (
    "kl_ceiling",
    "anneal",
    "loss",
    "update",
    "evidence",
    "kl_scale_large_k",
)
FORMER_PARAMETERS += ("kl_per_class", "balance", "averaged", "watch")


class CandidateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers of this library."""

    scale: Any  # the parameters that all of them have
    text: Sequence[str]
    class_weight: ClassWeight
    random_state: Any
    device: str
    verbose: bool

    @property
    def validation_share(self) -> float | None:
        """The share of rows that are held out for early stopping, if any."""
        return None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _scale_for(self, method: Method) -> Any:
        """How features are scaled for a method."""
        return method.scale if self.scale == "method" else self.scale

    def resolved_method(self) -> Method:
        """The method object that `fit` uses; raises if a parameter is illegal."""
        raise TypeError(f"{type(self).__name__} does not say which method it uses.")

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows and their candidate labels.

        Afterwards ``labels_`` (n,) are the resolved labels of the training rows, ``opinion_`` their
        opinions, and ``label_weights_`` (n, k) the distributions over their candidates, or over all
        classes if the default learns from votes. ``held_out_`` are opinions of models that did not
        see the row, if the method has them.
        ``history_`` has the ``"loss"`` of each epoch, if the method has epochs, and with `watch`
        the ``"covering_rate"`` of the validation rows.

        Parameters
        ----------
        X : array or sparse matrix (n, d), DataFrame, images, Dataset, DataLoader or `ParquetRows`
            Numbers in an array must be finite. Images have the shape (n, h, w), (n, c, h, w) or (n,
            h, w, c). With channels and of the type uint8, they are divided by 255, unless `scale`
            is "standard" or None. A DataFrame may hold numbers, categories, booleans and gaps, and
            texts if `text` names their columns. A sparse matrix of more than 500 columns is reduced
            by a truncated SVD with a fixed seed, to 500 numbers a row or half the number of rows,
            whichever is less. A narrower one is taken as an array. Tables may be of pandas, polars
            or pyarrow. A Dataset or DataLoader of PyTorch yields pairs of a row and its candidates,
            which are collected in memory in this order. `ParquetRows` are files of any size.
        y : object
            Candidates in any form that `Candidates.of` accepts; None if X yields them.
        sample_weight : array of shape (n,), optional
            Weight of each row in the loss. A row of weight 0 does not teach, but still takes
            part in the batch statistics.
        """
        fresh = copy.copy(self)  # an error or Ctrl-C leaves self unchanged
        if isinstance(X, StreamedRows):
            fit_streamed(fresh, X, y, sample_weight)
        else:
            X, y = pairs_of(X, y) if is_loader(X) else (X, y)
            fresh._fit(X, y, sample_weight)
        self.__dict__ = fresh.__dict__
        return self

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> None:
        method, device = self.resolved_method(), chosen_device(self.device)
        X = self._read(X, reset=True)
        refuse_unscaled_views(method, self._scale_for(method), np.ndim(X))
        candidates = Candidates.of(y)
        refuse_other_length(X.shape[0], len(candidates))
        weight = row_weights(candidates, self.class_weight, sample_weight)
        self.features_, rows = Features.fit_rows(X, device, self._scale_for(method), self.text)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        arrays = (candidates.matrix, candidates.prior, weight)
        matrix, prior, weights = (torch.tensor(array)[None] for array in arrays)
        answers = None if candidates.answers is None else torch.tensor(candidates.answers)[None]
        task = Task.of(rows, matrix, (seed,), prior, weights, answers=answers)
        with progress_bars() if self.verbose else nullcontext():
            share = None if isinstance(method, Auto) else self.validation_share
            fitted, weights, opinion = fit_early_stopping(method, task, share)
        check_training(fitted, task, weights, opinion, stopped_early=share is not None)
        self.classes_: NDArray[Any] = candidates.classes
        self.label_weights_: NDArray[np.float32] = weights.cpu().numpy()
        self.opinion_ = replace(opinion.numpy(), classes=self.classes_)
        self.labels_: NDArray[Any] = self.classes_[self.opinion_.predicted()]
        self.history_ = {"loss": fitted.history.loss.double().mean(-1).numpy()}
        if share is not None:
            self.history_["covering_rate"] = fitted.history.covering_rate.double().mean(-1).numpy()
        held_out: Opinion | None = getattr(fitted, "held_out", None)
        if held_out is not None:
            held_out = replace(held_out[0].numpy(), classes=self.classes_)
        self.held_out_ = held_out  # of the training rows, by models that did not see them
        self.fitted_ = fitted.without_training_rows()  # which need not stay on the device
        # None for files of version 0.1.0
        self.reference_: Reference | None = Reference.of(self.fitted_, task.rows, seed)
        self.recalibration_: Recalibration | None = None
        self.trial_: CalibrationSample | None = None  # of `calibrate_decisions`

    def predict_opinion(self, X: Any, attack: Any = None, labels: Any = None) -> Opinion:
        """Belief, prior and uncertainty for each row.

        With an `attack` such as ``PGD(0.1)``, the rows are changed first; `labels` (n,) are their
        true labels, for an attack that needs them.
        """
        check_is_fitted(self, "fitted_")
        if not isinstance(attack, Attack | None):
            raise InputError(f"attack must be an Attack such as PGD(0.1); got {attack!r}.")
        if attack is not None:
            self._refuse_attack()
        if labels is None:
            return self._joined([self._opinion(rows, attack) for rows in self._pieces(X)])
        rows, candidates = self._labelled_rows(X, labels)
        truth = torch.tensor(candidates.matrix.argmax(-1), device=self.fitted_.device)[None]
        return self._opinion(rows, attack, truth)

    def _refuse_attack(self) -> None:
        """Raise InputError if features are not scaled to the range in which attacks move them."""
        if self.scale in ("standard", None):
            raise InputError(
                f"Attacks move features between 0 and 1, but scale={self.scale!r} has another "
                "range. Fit with scale='auto', 'minmax' or 'quantile'."
            )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, k)."""
        return np.asarray(self.predict_opinion(X).probability)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,); the first of equally probable ones."""
        if isinstance(X, StreamedRows):  # without the opinions of all rows
            predicted = [self._opinion(rows).predicted() for rows in self._pieces(X)]
            return np.asarray(self.classes_[np.concatenate(predicted)])
        predicted = self.predict_opinion(X).predicted()  # first: it checks that self is fitted
        return np.asarray(self.classes_[predicted])

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy if `y` holds labels; covering rate if it holds candidate sets.

        The covering rate is the share of rows whose predicted class is a candidate. It needs no
        true label, so that parameter searches work without any.
        """
        X, y = pairs_of(X, y) if is_loader(X) else (X, y)
        predicted = self.predict_opinion(X).predicted()
        candidates = candidates_with(y, self.classes_)
        refuse_other_length(len(predicted), len(candidates))
        weight = row_weights(candidates, None, sample_weight)
        covered = candidates.matrix[np.arange(len(predicted)), predicted]
        return float(np.average(covered, weights=weight))

    def recalibrate(self, X: Any, y: Any = None) -> Self:
        """Calibrate probabilities and uncertainty by other rows; predicted classes do not change.

        Pass some hundred rows or more that were not trained on, with true labels or candidates.
        Labels are better: each member of a candidate set is assumed equally likely to be true. The
        result, `recalibration_`, is part of the model file. It resets `calibrate_decisions`.

        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, random_state=0)
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[:150], y[:150])
        >>> model.recalibrate(X[150:], y[150:]).recalibration_
        Recalibration(factor=..., of='evidence', source='labels', rows=150, before=0..., after=0...)
        """
        rows, candidates = self._labelled_rows(X, y)
        opinion = self.fitted_.predict(rows)[0].numpy()
        self.recalibration_ = Recalibration.of_rows(opinion, candidates.matrix)
        self.trial_ = None
        return self

    def calibrate_decisions(
        self, X: Any, y: Any = None, *, confidence: float | None = None
    ) -> Self:
        """Fix thresholds by other rows, so that `decide` treats each row independently.

        Parameters
        ----------
        X : array, DataFrame or images
            Rows that were not trained on, drawn like those to be decided.
        y : object
            With true labels, ``decide(X, error=0.05)`` bounds the error with some confidence, if
            these rows were not used to recalibrate. With candidates the error is only estimated: by
            the model's probabilities if `fit` calibrated them, else by the probability of the
            predicted class among the candidates; then recalibrate first.
        confidence : float, optional
            Of the bound on the error, 0.9 by default; only with labels.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, centers=[[1, 0], [0, 1]], cluster_std=0.4, random_state=0)
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[:150], y[:150])
        >>> model = model.calibrate_decisions(X[150:], y[150:])
        >>> model.decide([[1, 0], [0.5, 0.5], [9, 9]], error=0.1).reason.tolist()
        ['accepted', 'ambiguous: 0 or 1', 'unlike the training data']
        """
        rows, candidates = self._labelled_rows(X, y)
        by_labels = bool((candidates.sizes == 1).all())
        if by_labels and confidence is None:
            confidence = 0.9
        elif not by_labels and confidence is not None:
            raise InputError("confidence is for labels: candidates in y give only an estimate.")
        opinion = self._opinion(rows)
        source: str | None = "labels" if by_labels else "candidates"
        wrong: NDArray[np.float64] | None = None
        if not by_labels and self.is_calibrated:
            source = None  # sets may miss the truth; the probabilities are calibrated for that
        else:
            inside = np.where(candidates.matrix, opinion.probability, 0.0)
            right = inside[np.arange(len(rows)), opinion.predicted()]
            wrong = 1 - right / np.maximum(inside.sum(-1), 1e-300)  # 0 / 0 is 0
        about = {"source": source, "confidence": confidence}
        self.trial_ = CalibrationSample.of(opinion, self._distance(rows), wrong, **about)
        return self

    @property
    def is_calibrated(self) -> bool:
        """Whether `fit` calibrated the probabilities by held-out answers."""
        return isinstance(self.fitted_, Stack) and bool(self.fitted_.runs[0].powers)

    def decide(
        self, X: Any, *, coverage: float | None = None, error: float | None = None
    ) -> Decision:
        """Predict, and say which predictions to accept, and why not the others.

        The most probable predictions are accepted first. Novel rows are never accepted, even if
        the coverage then falls short. A row is novel if its distance to the training data exceeds
        the 99th percentile of the calibration distances, or, without calibration, the largest
        distance of a training row to the others. Models of version 0.1.0 find no row novel.

        Parameters
        ----------
        X : array, DataFrame or images
            Rows of the same form as in training.
        coverage : float
            The share of rows to accept, as nearly as ties allow; of X without calibration.
        error : float
            The share of wrong predictions to allow among accepted rows. Pass one of the two. If
            `calibrate_decisions` got too few labelled rows for a bound, no row is accepted. Without
            calibration, the error is estimated from the probabilities of X: recalibrate first.

        Examples
        --------
        >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
        >>> model = RobustPLLClassifier(epochs=100, random_state=0).fit(X, y)
        >>> model.decide([[1, 0, 0], [0, 1, 0], [0, 0.4, 0.6]], coverage=2 / 3).reason.tolist()
        ['accepted', 'accepted', 'ambiguous: c or b']
        """
        share = coverage if error is None else error
        one_of_them = (coverage is None) != (error is None)
        if not (one_of_them and is_share(share)) or share == 0 or error == 1:
            raise InputError(
                "Pass either coverage or error, a number between 0 and 1, such as decide(X, "
                f"coverage=0.9); got coverage={coverage!r} and error={error!r}."
            )
        check_is_fitted(self, "fitted_")
        parts = [(self._opinion(rows), self._distance(rows)) for rows in self._pieces(X)]
        opinion = self._joined([part for part, _ in parts])
        distance, sample = np.concatenate([part for _, part in parts]), self.trial_
        if sample is None:
            limit = math.inf if self.reference_ is None else self.reference_.limit
            sample = CalibrationSample.of(opinion, distance, None, limit=limit)
        return sample.decision(opinion, distance, coverage, error)

    def save(self, path: str | Path) -> None:
        """Write what predictions need to one file, to be read by `robustpll.load`."""
        from robustpll.estimator.model_file import save

        check_is_fitted(self, "fitted_")
        save(self, Path(path))

    def export_onnx(self, path: str | Path) -> None:
        """Write `predict_opinion` as an ONNX file: see `robustpll.estimator.onnx`."""
        from robustpll.estimator.onnx import export_onnx

        export_onnx(self, path)

    def _rows(self, X: Any) -> Rows:
        """Scaled rows, on the device of the model."""
        return self.features_.rows(self._read(X, reset=False), self.fitted_.device)

    def _pieces(self, X: Any) -> Iterator[Rows]:
        """Scaled rows as in `_rows`, in pieces if X is streamed."""
        check_is_fitted(self, "fitted_")
        yield from map(self._rows, X.frames(self) if isinstance(X, StreamedRows) else [X])

    def _joined(self, opinions: list[Opinion]) -> Opinion:
        """The opinions of pieces as one."""
        if len(opinions) == 1:
            return opinions[0]
        return each_part(lambda *parts: np.concatenate(parts), *opinions)

    def _labelled_rows(self, X: Any, y: Any) -> tuple[Rows, Candidates]:
        """Rows, and their candidates among the classes of the training."""
        check_is_fitted(self, "fitted_")
        X, y = pairs_of(X, y) if is_loader(X) else (X, y)
        candidates, rows = Candidates.of(y, classes=self.classes_), self._rows(X)
        refuse_other_length(len(rows), len(candidates))
        return rows, candidates

    def _opinion(self, rows: Rows, *attack: Any) -> Opinion:
        """The opinion, recalibrated if possible; `attack` is an attack and the true labels."""
        opinion = replace(self.fitted_.predict(rows, *attack)[0].numpy(), classes=self.classes_)
        return opinion if self.recalibration_ is None else self.recalibration_.opinion(opinion)

    def _distance(self, rows: Rows) -> NDArray[np.float64]:
        """Distances to the training data, (n,); 0 without reference rows."""
        if self.reference_ is None:
            return np.zeros(len(rows))
        return np.asarray(self.reference_.distance(self.fitted_, rows).cpu())

    def _read(self, X: Any, *, reset: bool) -> Any:
        """X as a DataFrame, a finite array or matrix; unless `reset`, of the form of the training.

        Arrays of numbers are not copied; sparse matrices become CSR.
        """
        least, X = 2 if reset else 1, rows_of(X) if is_loader(X) else as_pandas(X)
        if is_frame(X):
            refuse_odd_table(X, least)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        is_plain = isinstance(X, np.ndarray) and X.dtype.kind in "biuf"  # maybe a memory map
        dtype = None if is_plain else np.float64
        checks: Any = {"dtype": dtype, "ensure_min_samples": least, "ensure_all_finite": False}
        try:
            if sparse.issparse(X) or np.asarray(X).ndim <= 2:
                X = validate_data(self, X, reset=reset, accept_sparse="csr", **checks)
            else:
                X = check_array(X, allow_nd=True, **checks)
        except ValueError as error:
            raise InputError(
                f"{error} X must be an array of numbers, images of one shape, or a DataFrame."
            ) from error
        if not sparse.issparse(X) and (X.size == 0 or X.ndim > 4):
            raise InputError(f"X has shape {X.shape}, but images need (n, h, w) or (n, c, h, w).")
        if reset and X.ndim > 2:
            self.n_features_in_ = int(np.prod(X.shape[1:]))
            self.__dict__.pop("feature_names_in_", None)
        return finite(X)


@dataclass(eq=False, repr=False)
class PLLClassifier(CandidateClassifier):
    """A classifier that learns from candidate labels by any method of the library.

    Parameters
    ----------
    method : str or Method
        A name of `robustpll.METHODS`, or a method object such as ``Proden(epochs=50)``. Its fields
        are parameters too: ``set_params(method__epochs=50)``.
    scale : {"method", "auto", "minmax", "standard", "quantile"} or None
        "method" is "auto" for `Auto`, and "minmax" as published for all others. The rest is as for
        `RobustPLLClassifier`.
    text : sequence of str
        As for `RobustPLLClassifier`.
    class_weight : dict, "balanced" or None
        Weights of the classes. A row's weight is the mean of its candidates' weights under the
        prior.
    random_state : int, RandomState or None
        Seed of everything random.
    device : str
        "auto", "cpu" or "cuda".
    watch : float or None
        Early stopping: share of validation rows. The model is that of the epoch whose predictions
        for them are candidates most often. It needs no true label.
    verbose : bool
        Show a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> PLLClassifier("proden", random_state=0).fit(X, y).predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    """

    method: str | Method = "robust_pll"
    _: KW_ONLY
    scale: Scale | Literal["method"] | None = "method"
    text: Sequence[str] = ()
    class_weight: ClassWeight = None
    random_state: Any = None
    device: str = "auto"
    watch: float | None = None
    verbose: bool = False

    @property
    def validation_share(self) -> float | None:
        return self.watch

    def resolved_method(self) -> Method:
        if isinstance(self.method, str) and self.method in METHODS:
            return METHODS[self.method]()
        if isinstance(self.method, Method):
            return self.method
        raise InputError(
            f"method must be a Method or one of {', '.join(METHODS)}; got {self.method!r}. "
            "`robustpll methods` lists them."
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with `deep` the method's fields too, as ``method__epochs``."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            with suppress(InputError):  # `fit` refuses an unknown method
                method = self.resolved_method()
                names = method.field_names()
                params |= {f"method__{name}": getattr(method, name) for name in names}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those named ``method__...`` give a changed copy of the method."""
        inner = {name[8:]: params.pop(name) for name in list(params) if name.startswith("method__")}
        super().set_params(**params)
        if inner:
            method = self.resolved_method()
            if unknown := sorted(inner.keys() - set(method.field_names())):
                owner, names = f"method {method.name!r}", ", ".join(method.field_names())
                raise InputError(f"Invalid parameter {unknown[0]!r} for {owner}: it has {names}.")
            self.method = replace(method, **inner)  # type: ignore[type-var]
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class RobustPLLClassifier(CandidateClassifier):
    """The default: learns from candidate labels or votes, and says how sure it is.

    It needs no settings. `robustpll.methods.Auto` explains what it does: networks of RobustPll and
    a forest, weighted by how well they predict the answers of rows that they did not see. Its
    probabilities are calibrated without true labels. The published method is
    ``PLLClassifier(RobustPll())``; ``RobustPll.paper()`` reproduces the paper's tables.

    Parameters
    ----------
    learner : {"auto", "network", "trees"}
        Which learners to use; "auto" chooses by held-out answers.
    epochs : int or None
        Training epochs; None chooses by the number of rows and the form of the labels.
    batch_size, learning_rate, weight_decay
        Of the training by Adam, with decoupled weight decay. None: 0.003 and 0; for convolutional
        networks, which SGD trains, 0.2 and 0.0005.
    members : int or None
        Number of networks; None is 10 up to 5,000 rows, else 5.
    network : str or callable (shape, k) -> torch module
        "small" has two hidden layers of 256, "mlp" three of 300. For pictures there are "convnet",
        "resnet9", "resnet18", "wide_resnet", "lenet" and "resnet". "auto": see `Auto`.
    adversary : float or None
        Adversarial training: rows are moved by up to this share of each feature's range. None is
        0.02 for candidate sets (pictures: 0.05), and 0 for votes, if half of the rows have one
        candidate, from 50 classes on, and for convolutional networks.
    early_stopping : bool
        Keep the epoch in which most held-out predictions are candidates. Needs no true label.
    precision : {"auto", "float32", "bf16"}
        "auto" lets CUDA use TF32 for matrix products; "bf16" computes them in bfloat16, on devices
        that have units for it.
    scale : {"auto", "minmax", "standard", "quantile"} or None
        How features are scaled by the training rows. "minmax": to the range 0 to 1. "quantile":
        each column is then bent so that its quantiles are evenly spread. "auto": this is done to
        columns with outliers or skew, those with 90 % of their values in a fifth of their range.
        "standard": to mean 0 and standard deviation 1. None: not at all. With these two there are
        no adversaries, and the model cannot be attacked. Pictures are never bent.
    text : sequence of str
        Columns of a DataFrame that hold texts. Each becomes 500 numbers or fewer: TF-IDF of its
        words, reduced by a truncated SVD. Gaps are empty texts.
    class_weight, random_state, device, verbose
        As for `PLLClassifier`.
    kl_ceiling, anneal, loss, update, evidence, kl_scale_large_k, kl_per_class, balance, averaged
        Deprecated; they train the method of version 0.1. Use ``PLLClassifier(RobustPll(...))``.
    watch
        Deprecated. Use `early_stopping`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X, y)
    >>> bool((model.predict_opinion(np.eye(3)).uncertainty < 0.5).all())
    True
    """

    learner: Literal["auto", "network", "trees"] = "auto"
    epochs: int | None = None
    batch_size: int = 256
    learning_rate: float | None = None
    weight_decay: float | None = None
    members: int | None = None
    network: Network = "auto"
    adversary: float | tuple[float, ...] | None = None
    early_stopping: bool = False
    precision: Literal["auto", "float32", "bf16"] = "auto"
    scale: Scale | None = "auto"
    text: Sequence[str] = ()
    class_weight: ClassWeight = None
    random_state: Any = None
    device: str = "auto"
    verbose: bool = False
    kl_ceiling: Any = DEPRECATED
    anneal: Any = DEPRECATED
    loss: Any = DEPRECATED
    update: Any = DEPRECATED
    evidence: Any = DEPRECATED
    kl_scale_large_k: Any = DEPRECATED
    kl_per_class: Any = DEPRECATED
    balance: Any = DEPRECATED
    averaged: Any = DEPRECATED
    watch: Any = DEPRECATED

    def resolved_method(self) -> Method:
        passed = {name: getattr(self, name, None) for name in self.get_params(deep=False)}
        former = [
            name
            for name in FORMER_PARAMETERS
            if not (isinstance(passed[name], str) and passed[name] == DEPRECATED)
        ]
        if former:
            message = (
                f"{', '.join(former)} of RobustPLLClassifier will go in version 0.3. Use "
                "PLLClassifier(RobustPll(...)), or early_stopping instead of watch."
            )
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        chosen = {name: value for name, value in passed.items() if value is not None}
        if not {*former} - {"watch"} and not isinstance(self.adversary, tuple):
            auto = {name: chosen[name] for name in Auto.field_names() if name in chosen}
            early_stopping = self.early_stopping or self.validation_share is not None
            if self.scale in ("standard", None):
                auto = {"adversary": 0.0} | auto
            return Auto(**auto | {"early_stopping": early_stopping})
        kind = RobustPll if self.adversary is None else RobustPllAt
        unused = {*FORMER_PARAMETERS} - {*former}
        fields = {n: chosen[n] for n in kind.field_names() if n in chosen and n not in unused}
        return kind(**fields | ({"network": "mlp"} if self.network == "auto" else {}))

    def _scale_for(self, method: Method) -> Any:
        is_former = self.scale == "auto" and not isinstance(method, Auto)  # scaled as in 0.1
        return method.scale if is_former else self.scale

    @property
    def validation_share(self) -> float | None:
        """The share of validation rows of version 0.1."""
        return None if isinstance(self.watch, str) and self.watch == DEPRECATED else self.watch


def refuse_unscaled_views(method: Method, scale: Any, axes: int) -> None:
    """Raise InputError if strong views are asked of pictures whose pixels are not from 0 to 1."""
    augment = getattr(method, "augment", "auto")
    has_views = bool(getattr(method, "views", ())) or isinstance(method, Auto)
    is_strong = augment == "strong" or (has_views and augment == "auto")
    if axes == 4 and scale in ("standard", None) and is_strong:
        raise InputError(
            f"Views of pictures need pixels from 0 to 1; scale={scale!r} has another range. Fit "
            "with scale='auto' or 'minmax', or with augment=None."
        )


def row_weights(
    candidates: Candidates, class_weight: ClassWeight, sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Weights (n,) with mean 1; a row's class weight is the mean over its candidates' prior."""
    names: list[Any] = candidates.classes.tolist()
    of_class: Any = None  # all 1
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = candidates.prior.sum(0, dtype=np.float64)
        of_class = np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)
    elif isinstance(class_weight, Mapping) and class_weight.keys() <= set(names):
        of_class = [class_weight.get(name, 1.0) for name in names]
    elif class_weight is not None:
        raise InputError(
            "class_weight must be None, 'balanced', or a dict with a weight for some of the "
            f"classes {some_of(map(repr, names), 10)}; got {class_weight!r}."
        )
    rules: Any = {"dtype": np.float64, "ensure_non_negative": True}
    try:
        weight = _check_sample_weight(sample_weight, candidates.matrix, **rules)
        of_class = _check_sample_weight(of_class, candidates.matrix.T, **rules)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight or class_weight cannot be used: {error}") from error
    if class_weight is not None:
        weight = weight / weight.max() * (candidates.prior @ (of_class / of_class.max()))
    if not (weight.any() and np.isfinite(weight).all()):
        raise InputError(
            "sample_weight or class_weight gives all rows the weight 0, or one that is not finite."
        )
    weight = weight / weight.max()  # first, so that the mean of huge weights does not overflow
    return np.asarray(weight / weight.mean())


def fit_early_stopping(
    method: Method, task: Task, share: float | None
) -> tuple[Fitted, Tensor, Opinion]:
    """Fit one run; return the model, and the label weights and opinion of all rows.

    A share of the rows, if any, are validation rows: the training keeps the epoch that fits their
    candidates best. Their opinion is the model's prediction within their candidates.
    """
    if share is None:
        fitted = method.fit(task)
        return fitted, fitted.label_weights[0], fitted.opinion[0]
    training_rows, validation_rows = validation_split(len(task), share, task.seeds[0])
    validation = task.some_rows(validation_rows)
    fitted = method.fit(task.some_rows(training_rows), validation=validation)
    predicted = replace(fitted.predict(validation.rows), prior=validation.prior.double())
    predicted = predicted.within(validation.candidates)
    order = torch.cat([training_rows, validation_rows]).argsort().to(validation.prior.device)

    def all_rows(learned: Tensor, predicted: Tensor) -> Tensor:
        return torch.cat([learned[0].to(predicted), predicted[0]])[order]

    weights = all_rows(fitted.label_weights, predicted.probability).to(fitted.label_weights)
    return fitted, weights, each_part(all_rows, fitted.opinion, predicted)


def validation_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of training rows and of validation rows, drawn at random."""
    count = round(n * share) if is_share(share) else 0
    if not 1 <= count <= n - 2:
        raise InputError(
            "watch must be None, or the share of validation rows: a number between 0 and 1 that "
            f"leaves 2 rows to learn from and 1 to watch. Got {share!r} for {n} rows."
        )
    order = np.random.default_rng(seed_of(seed, "watch")).permutation(n)
    return torch.from_numpy(np.sort(order[count:])), torch.from_numpy(np.sort(order[:count]))
