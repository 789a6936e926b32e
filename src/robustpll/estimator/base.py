"""What all classifiers share: they learn, predict, and decide what to accept."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from robustpll.attacks import Attack
from robustpll.engine.checkpoint import Checkpoint, Session, Start, checksum, going_on
from robustpll.engine.cluster import computing_on
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.distributed import current_process, refuse_unshared, same_seed
from robustpll.engine.history import Callback, progress_bars, reporting
from robustpll.engine.modules import Layout
from robustpll.engine.networks import try_network
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share, refuse_other_length, some_of
from robustpll.estimator.abstention import (
    CalibrationSample,
    Decision,
    Recalibration,
    Reference,
    sampled,
)
from robustpll.estimator.features import Features, finite, is_sparse, plain_array, refuse_odd_table
from robustpll.estimator.fitting import (
    ClassWeight,
    check_training,
    checked_callbacks,
    description_of,
    fit_early_stopping,
    former_networks,
    refuse_on_cluster,
    refuse_unscaled_views,
    row_weights,
    task_of,
    warn_of_other_order,
    with_layout,
)
from robustpll.estimator.loaders import pairs_of, rows_of
from robustpll.estimator.streaming import StreamedRows, fit_streamed
from robustpll.labels.candidates import Candidates, candidates_with, label_vector
from robustpll.labels.parsing import as_pandas, is_frame
from robustpll.methods import Auto, Method
from robustpll.methods.auto import Stack
from robustpll.opinion import Opinion, each_part

DEPRECATED = "deprecated"  # the value of parameters that nobody passed
MOST_ODD = 0.1  # share of candidate sets among labels that is probably a mistake


class CandidateClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers of this library."""

    features_: Features
    scale: Any  # the parameters that all of them have
    text: Sequence[str]
    class_weight: ClassWeight
    random_state: Any
    device: str
    verbose: bool
    watch: Any
    callbacks: Sequence[Callback]
    checkpoint: str | Path | Checkpoint | None
    cluster: str | None

    @property
    def validation_share(self) -> float | None:
        """The share of rows that are held out for early stopping, if any."""
        is_passed = not (isinstance(self.watch, str) and self.watch == DEPRECATED)
        return self.watch if is_passed else None

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

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        resume: str | Path | Checkpoint | None = None,
    ) -> Self:
        """Learn from rows and their candidate labels.

        Afterwards ``labels_`` (n,) are the resolved labels of the training rows, ``opinion_`` their
        opinions, and ``label_weights_`` (n, k) the distributions over their candidates, or over all
        classes if the default learns from votes. ``held_out_`` are opinions of models that did not
        see the row; None if the method has none, or too few `members` to leave out each row.
        ``history_`` has the ``"loss"`` of each epoch, if the method has epochs, and with `watch`
        the ``"covering_rate"`` of the validation rows.

        Parameters
        ----------
        X : array or sparse matrix (n, d), DataFrame, images, Dataset or DataLoader
            Numbers in an array must be finite. Images have the shape (n, h, w), (n, c, h, w) or (n,
            h, w, c). With channels and of the type uint8, they are divided by 255, unless `scale`
            is "standard" or None. A DataFrame may hold numbers, categories, booleans and gaps, and
            texts if `text` names their columns. A sparse matrix of more than 500 columns is reduced
            by a truncated SVD with a fixed seed, to 500 numbers a row or half the number of rows,
            whichever is less. A narrower one is taken as an array. A module as `network` also takes
            a dict or a tuple of arrays, as arguments of its ``forward``, unscaled. Tables may be of
            pandas, polars or pyarrow. A Dataset or DataLoader of PyTorch yields pairs of a row and
            its candidates, which are collected in memory in this order. `ParquetRows` are files of
            any size.
        y : object
            Candidates in any form that `Candidates.of` accepts; None if X yields them.
        sample_weight : array of shape (n,), optional
            Weight of each row in the loss. A row of weight 0 does not teach, but still takes
            part in the batch statistics.
        resume : str, Path or Checkpoint, optional
            The folder of a `checkpoint`, to go on from it; further ones are written there. Data and
            parameters must be those that it was begun with. On a CPU, the result equals that of an
            undisturbed fit bit for bit.
        """
        fresh = copy.copy(self)  # an error or Ctrl-C leaves self unchanged
        method = self.resolved_method()
        if isinstance(X, StreamedRows):
            passed = {"y": y, "sample_weight": sample_weight, "resume": resume}
            fit_streamed(fresh, method, X, passed)
        else:
            X, y = pairs_of(X, y)
            session = Session.of(self.checkpoint, resume)
            is_warm = getattr(self, "warm_start", False)
            former = former_networks(self, method, "warm_start") if is_warm else None
            start = None if former is None else Start(former.net)
            fresh._fit(X, y, sample_weight, method, start, session=session)
        self.__dict__ = fresh.__dict__
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        method: Method,
        start: Start | None,
        *,
        session: Session | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        is_new, device = start is None or start.net is None, chosen_device(self.device)
        is_partial = start is not None and start.epoch is not None
        if not is_new and self.trial_ is not None:
            message = (
                "The thresholds of calibrate_decisions are for the model as it was: decide only "
                "estimates errors now. Call calibrate_decisions again."
            )
            warnings.warn(message, UserWarning, stacklevel=3)  # where a user calls `fit`
        warn_of_other_order(X, y)
        method, layout = with_layout(method, X, y)
        elsewhere = self.cluster is not None
        refuse_unshared(method, has_files=session is not None, has_cluster=elsewhere)
        layout = layout if is_new else self.features_.layout
        X, scale = self._read(X, reset=is_new, least=2, layout=layout), self._scale_for(method)
        refuse_unscaled_views(method, scale, np.ndim(X))
        candidates = Candidates.of(y, classes=classes if is_new else self.classes_)
        refuse_other_length(X.shape[0], len(candidates))
        weight = row_weights(candidates, self.class_weight, sample_weight)
        if is_new:
            self.features_, rows = Features.fit_rows(X, device, scale, self.text, layout)
        else:
            rows = self.features_.rows(X, device)
        try_network(method, rows, len(candidates.classes), is_scaled=scale is not None)
        seed = same_seed(int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)))
        if session is not None and self.random_state is None:
            seed = session.seed(seed)
        if start is not None and start.epoch:  # another order of rows in each epoch
            seed = seed_of(seed, start.epoch)
        former, rows_before = None, self.__dict__.pop("_rows_before", "")
        if getattr(self, "warm_start", False) and not is_partial:
            self._rows_before = checksum("", {"pool": rows.pool, "indices": rows.indices})
        if not is_new and not is_partial and self._rows_before == rows_before:
            former = self.label_weights_
        elif not is_new:  # label weights are not known, or of other rows
            former = self.fitted_.predict(rows).probability[0].cpu().numpy()
        task = task_of(rows, candidates, weight, seed, former)
        self.classes_: NDArray[Any] = candidates.classes
        self._learn(method, task, start, session)
        trained, before = task.rows, self.__dict__.pop("_parts", None)
        if is_partial:
            self._parts = sampled(None if is_new else before, trained, seed)
            trained = Rows.scaled(self._parts[1][None])
        # None for files of version 0.1.0, and for ids without a hidden layer
        reference = Reference.of(self.fitted_, trained, seed, has_ids=layout is not None)
        if reference is not None and is_partial:
            reference = replace(reference, trained=0)  # not known, as rows may come again
        self.reference_: Reference | None = reference

    def _learn(
        self, method: Method, task: Task, start: Start | None, session: Session | None
    ) -> None:
        """Train, and set what was learned."""
        is_partial = start is not None and start.epoch is not None
        share = None if isinstance(method, Auto) or is_partial else self.validation_share
        if session is not None:
            session.begin(description_of(method, task, share, start))
        is_first = current_process().is_first
        callbacks = checked_callbacks(self.callbacks) if is_first else ()
        refuse_on_cluster(self.cluster, callbacks, session, start)
        bars = progress_bars() if self.verbose and is_first else nullcontext()
        there = computing_on(self.cluster, self.device)
        with bars, reporting(*callbacks), going_on(session, start), there:
            fitted, weights, opinion = fit_early_stopping(method, task, share)
        check_training(fitted, task, weights, opinion, stopped_early=share is not None)
        self.label_weights_: NDArray[np.float32] = weights.cpu().numpy()
        self.opinion_ = replace(opinion.numpy(), classes=self.classes_)
        self.labels_: NDArray[Any] = self.classes_[self.opinion_.predicted()]
        self._set_fitted(fitted)
        if share is not None:
            self.history_["covering_rate"] = fitted.history.covering_rate.double().mean(-1).numpy()
        held_out: Opinion | None = getattr(fitted, "held_out", None)
        if held_out is not None:
            held_out = replace(held_out[0].numpy(), classes=self.classes_)
        self.held_out_ = held_out  # of the training rows, by models that did not see them

    def _set_fitted(self, fitted: Fitted) -> None:
        """Set what predictions need, and drop what belongs to a former model."""
        self.fitted_ = fitted.without_training_rows()  # which need not stay on the device
        self.history_ = {"loss": fitted.history.loss.double().mean(-1).numpy()}
        self.recalibration_: Recalibration | None = None
        self.trial_: CalibrationSample | None = None  # of `calibrate_decisions`
        self.__dict__.pop("optimizer_", None)  # of `partial_fit`

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
            return joined(self._opinion(rows, attack) for rows in self._pieces(X))
        rows, candidates = self._labelled_rows(X, labels)
        if (candidates.sizes > 1).any():
            raise InputError("labels must hold one true label for each row; got candidate sets.")
        truth = torch.tensor(candidates.matrix.argmax(-1), device=self.fitted_.device)[None]
        return self._opinion(rows, attack, truth)

    def _refuse_attack(self) -> None:
        """Raise InputError if features are not scaled to the range in which attacks move them."""
        if self.features_.layout is not None:
            raise InputError("Attacks move scaled features; ids and several arrays have none.")
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
        if isinstance(X, StreamedRows) and y is None:
            raise InputError("score: y is None, and X is not read for candidates. Pass *X.read().")
        X, y = pairs_of(X, y)
        predicted = self.predict_opinion(X).predicted()
        candidates = candidates_with(y, self.classes_)
        refuse_other_length(len(predicted), len(candidates))
        if len(candidates) and not candidates.matrix[:, : len(self.classes_)].any():
            fault = f"score: y names none of the model's classes ({some_of(self.classes_)})"
            remedy = "so every prediction counts as wrong. Correct the names."
            warnings.warn(f"{fault}, {remedy}", UserWarning, stacklevel=2)
        weight = row_weights(candidates, None, sample_weight)
        covered = candidates.matrix[np.arange(len(predicted)), predicted]
        return float(np.average(covered, weights=weight))

    def recalibrate(self, X: Any, y: Any = None) -> Self:
        """Calibrate probabilities and uncertainty by other rows; predicted classes do not change.

        Pass some hundred rows or more that were not trained on, with true labels or candidates.
        Labels are better: each member of a candidate set is assumed equally likely to be true. The
        result, `recalibration_`, is part of the model file. It resets `calibrate_decisions`.

        >>> from robustpll import RobustPLLClassifier
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
            these rows were not used to recalibrate. If any row has several candidates, the error
            is only estimated: by the model's probabilities if `fit` calibrated them, else by the
            probability of the predicted class among the candidates; then recalibrate first.
        confidence : float, optional
            Of the bound on the error, 0.9 by default; only with labels.

        Examples
        --------
        >>> from robustpll import RobustPLLClassifier
        >>> from sklearn.datasets import make_blobs
        >>> X, y = make_blobs(300, centers=[[1, 0], [0, 1]], cluster_std=0.4, random_state=0)
        >>> model = RobustPLLClassifier(epochs=20, random_state=0).fit(X[:150], y[:150])
        >>> model = model.calibrate_decisions(X[150:], y[150:])
        >>> model.decide([[1, 0], [0.5, 0.5], [9, 9]], error=0.1).reason.tolist()
        ['accepted', 'ambiguous: 0 or 1', 'unlike the training data']
        """
        rows, candidates = self._labelled_rows(X, y)
        several = int((candidates.sizes > 1).sum())
        by_labels = several == 0
        if 0 < several <= MOST_ODD * len(rows) and candidates.answers is None:
            message = f"{several:,} of {len(rows):,} rows have several candidates, so the error of "
            message += "accepted rows is only estimated. Without these rows, it gets a bound."
            warnings.warn(message, UserWarning, stacklevel=2)
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
        about, distance = {"source": source, "confidence": confidence}, self._distance(rows)
        if self.reference_ is not None and self.reference_.has_seen(distance):
            fault = "X has training rows, so that decide would reject new rows as unlike them"
            warnings.warn(
                f"{fault}. Pass rows that were not trained on.", UserWarning, stacklevel=2
            )
        self.trial_ = CalibrationSample.of(opinion, distance, wrong, **about)
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
        >>> from robustpll import RobustPLLClassifier
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
        opinion = joined(part for part, _ in parts)
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
        X = self._read(X, reset=False, layout=self.features_.layout)
        return self.features_.rows(X, self.fitted_.device)

    def _pieces(self, X: Any) -> Iterator[Rows]:
        """Scaled rows as in `_rows`, in pieces if X is streamed."""
        check_is_fitted(self, "fitted_")
        yield from map(self._rows, X.frames(self) if isinstance(X, StreamedRows) else [X])

    def _labelled_rows(self, X: Any, y: Any) -> tuple[Rows, Candidates]:
        """Rows, and their candidates among the classes of the training."""
        check_is_fitted(self, "fitted_")
        X, y = pairs_of(X, y)
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

    def _read(self, X: Any, *, reset: bool, least: int = 1, layout: Layout | None = None) -> Any:
        """X as a DataFrame, a finite array or matrix; unless `reset`, of the form of the training.

        Arrays of numbers are not copied; sparse matrices become CSR.
        """
        if isinstance(X, StreamedRows):
            problem = f"{type(X).__name__} is read in pieces, but this needs all rows"
            raise InputError(f"{problem}. Pass X.read()[0].")
        X = rows_of(X)
        if layout is None and isinstance(X, Mapping) and not is_sparse(X):  # "dok" is a dict
            raise InputError("X is a dict, but this model takes a table: pass pd.DataFrame(X).")
        X = as_pandas(X) if layout is None else layout.packed(X)
        if is_frame(X):
            refuse_odd_table(X, least)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        try:
            X = np.asarray(X) if isinstance(X, Sequence) else X  # pictures of bytes stay bytes
            X = plain_array(X)
            is_plain = isinstance(X, np.ndarray) and X.dtype.kind in "biuf"  # maybe a memory map
            checks: Any = {"dtype": None if is_plain else np.float64}
            checks |= {"ensure_min_samples": least, "ensure_all_finite": False}
            if sparse.issparse(X) or np.asarray(X).ndim <= 2:
                X = validate_data(self, X, reset=reset, accept_sparse="csr", **checks)
            else:
                X = check_array(X, allow_nd=True, **checks)
        except ValueError as error:
            remedy = "X must be an array of numbers, images of one shape, or a DataFrame."
            if "string" in str(error):
                remedy += " Words need a DataFrame; texts also need its column, text=['review']."
            raise InputError(f"{str(error).rstrip('.')}. {remedy}") from error
        if not sparse.issparse(X) and (X.size == 0 or X.ndim > 4):
            raise InputError(f"X has shape {X.shape}, but images need (n, h, w) or (n, c, h, w).")
        if reset and X.ndim > 2:
            self.n_features_in_ = int(np.prod(X.shape[1:]))
            self.__dict__.pop("feature_names_in_", None)
        if not reset:
            self.features_.refuse_other_unit(X)
        return finite(X)


def joined(opinions: Iterable[Opinion]) -> Opinion:
    """The opinions about pieces of the rows as one."""
    first, *others = opinions
    return each_part(lambda *parts: np.concatenate(parts), first, *others) if others else first


def refuse_unfitted(model: Any) -> None:
    """Raise an error unless a model is a fitted classifier of this library."""
    if not isinstance(model, CandidateClassifier):
        raise InputError(
            "model must be a fitted classifier of this library, such as PLLClassifier; got "
            f"{type(model).__name__}. For probabilities of other models use calibration_of."
        )
    check_is_fitted(model, "fitted_")


def true_labels(model: CandidateClassifier, y: Any, rows: int) -> NDArray[np.int64]:
    """The class index of each of so many rows."""
    if label_vector(y) is None:
        raise InputError("y must hold one true label for each row; got candidate sets.")
    labels = Candidates.of(y, classes=model.classes_).matrix.argmax(-1)
    refuse_other_length(rows, len(labels))
    return np.asarray(labels)
