"""The scikit-learn interface: validate, let a method learn, return numpy arrays."""

import copy
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from robustpll.attacks.base import Attack
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.errors import InputError, refuse_other_length
from robustpll.estimator.abstention import AbstentionMixin
from robustpll.estimator.features import Features, finite, refuse_odd_table
from robustpll.estimator.novelty import Reference
from robustpll.estimator.training import (
    ClassWeight,
    check_training,
    fit_early_stopping,
    row_weights,
)
from robustpll.labels.candidates import Candidates, classes_with, is_label_vector
from robustpll.labels.parsing import array_of, as_pandas, is_frame, items_of, refuse_odd_labels
from robustpll.methods import METHODS, Method
from robustpll.opinion import Opinion


class CandidateClassifier(AbstentionMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers of this library."""

    random_state: Any
    device: str
    verbose: bool
    class_weight: ClassWeight
    watch: float | None

    classes_: NDArray[Any]
    """Names of the classes, (k,)."""
    label_weights_: NDArray[np.float32]
    """Final distribution over the candidates of each training row, (n, k)."""
    labels_: NDArray[Any]
    """The resolved label of each training row: the most probable one by `opinion_`, (n,)."""
    opinion_: Opinion
    """The opinion of the training rows."""
    history_: dict[str, NDArray[np.float64]]
    """``"loss"`` of each epoch, (epochs,), empty for methods without epochs; with `watch` also
    the ``"covering_rate"`` of the validation rows."""
    features_: Features
    """How rows become numbers."""
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    def resolved_method(self) -> Method:
        """The method object that `fit` uses; raises if a parameter is illegal."""
        raise TypeError(f"{type(self).__name__} does not say which method it uses.")

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows and their candidate labels.

        Parameters
        ----------
        X : array (n, d), DataFrame, or images (n, h, w) or (n, c, h, w)
            Numbers in an array must be finite. A DataFrame may hold numbers, categories, booleans
            and gaps.
        y : object
            Candidates in any form that `Candidates.of` accepts.
        sample_weight : array of shape (n,), optional
            Weight of each row in the loss. A row of weight 0 does not teach, but still takes
            part in the batch statistics.
        """
        fresh = copy.copy(self)  # an error or Ctrl-C leaves self unchanged
        fresh._fit(X, y, sample_weight)
        self.__dict__ = fresh.__dict__
        return self

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> None:
        method, device = self.resolved_method(), chosen_device(self.device)
        X = self._read(X, reset=True)
        candidates = Candidates.of(y)
        refuse_other_length(len(X), len(candidates))
        weight = row_weights(candidates, self.class_weight, sample_weight)
        self.features_, rows = Features.fit_rows(X, device)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        arrays = (candidates.matrix, candidates.prior, weight)
        matrix, prior, weights = (torch.tensor(array)[None] for array in arrays)
        task = Task.of(rows, matrix, (seed,), prior, weights)
        with progress_bars() if self.verbose else nullcontext():
            fitted, weights, opinion = fit_early_stopping(method, task, self.watch)
        check_training(fitted, task, weights, opinion, watched=self.watch is not None)
        self.classes_ = candidates.classes
        self.label_weights_ = weights.cpu().numpy()
        self.opinion_ = replace(opinion.numpy(), classes=self.classes_)
        self.labels_ = self.classes_[self.opinion_.predicted()]
        self.history_ = {"loss": fitted.history.loss.double().mean(-1).numpy()}
        if self.watch is not None:
            self.history_["covering_rate"] = fitted.history.covering_rate.double().mean(-1).numpy()
        self.fitted_ = fitted.without_training_rows()  # which need not stay on the device
        self.reference_ = Reference.of(self.fitted_, task.rows, seed)
        self.recalibration_ = self.trial_ = None

    def predict_opinion(
        self, X: Any, attack: Any = None, labels: ArrayLike | None = None
    ) -> Opinion:
        """Belief, prior and uncertainty for each row.

        Parameters
        ----------
        X : array, DataFrame or images
            Rows of the same form as in training.
        attack : Attack, optional
            Changes the rows first, such as ``PGD(0.1)``.
        labels : array of shape (n,), optional
            The true labels, for an attack that needs them.
        """
        check_is_fitted(self, "fitted_")
        if not isinstance(attack, Attack | None):
            raise InputError(f"attack must be an Attack such as PGD(0.1); got {attack!r}.")
        rows, truth = self._rows(X), None
        if labels is not None:
            matrix = Candidates.of(labels, classes=self.classes_).matrix
            refuse_other_length(len(rows), len(matrix))
            truth = torch.tensor(matrix.argmax(-1), device=self.fitted_.device)[None]
        return self._recalibrated(self._raw_opinion(rows, attack, truth))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probability of each class, (n, k)."""
        return np.asarray(self.predict_opinion(X).probability)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n,); the first of equally probable ones."""
        predicted = self.predict_opinion(X).predicted()
        return np.asarray(self.classes_[predicted])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy if `y` holds labels; covering rate if it holds candidate sets.

        The covering rate is the share of rows whose predicted class is a candidate. It needs no
        true label, so that parameter searches work without any.
        """
        predicted = self.predict_opinion(X).predicted()
        if is_label_vector(y):
            labels = items_of(y)
            refuse_odd_labels(labels)
            refuse_other_length(len(predicted), len(labels))
            if labels.dtype == object:  # it may hold integers
                labels = array_of(labels.tolist())
            named = self.classes_[predicted]
            return float(accuracy_score(labels, named, sample_weight=sample_weight))
        candidates = Candidates.of(y, classes=classes_with(y, self.classes_))  # ours come first
        refuse_other_length(len(predicted), len(candidates))
        weight = row_weights(candidates, None, sample_weight)
        covered = candidates.matrix[np.arange(len(predicted)), predicted]
        return float(np.average(covered, weights=weight))

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to one file, to be read by `robustpll.load`.

        It holds what predictions need, without ``label_weights_``, ``labels_`` and ``opinion_``.
        """
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

    def _read(self, X: Any, *, reset: bool) -> Any:
        """X as a DataFrame or a finite array; unless `reset`, of the same form as in training."""
        least, X = 2 if reset else 1, as_pandas(X)
        if is_frame(X):
            refuse_odd_table(X, least)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        checks = {"dtype": np.float64, "ensure_min_samples": least, "ensure_all_finite": False}
        try:
            if sparse.issparse(X) or np.asarray(X).ndim <= 2:
                return finite(validate_data(self, X, reset=reset, **checks))
            X = finite(check_array(X, allow_nd=True, **checks))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(
                f"{error} X must be an array of numbers, images of one shape, or a DataFrame."
            ) from error
        if X.size == 0 or X.ndim > 4:
            raise InputError(f"X has shape {X.shape}, but images need (n, h, w) or (n, c, h, w).")
        if reset:
            self.n_features_in_ = int(np.prod(X.shape[1:]))
            self.__dict__.pop("feature_names_in_", None)
        return X


@dataclass(eq=False, repr=False)
class PLLClassifier(CandidateClassifier):
    """A classifier that learns from candidate labels by any method of the library.

    Parameters
    ----------
    method : str or Method
        A name of `robustpll.METHODS`, or a method object such as ``Proden(epochs=50)``. Its fields
        are parameters too: ``set_params(method__epochs=50)``.
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
    >>> from robustpll.methods import Proden
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> model.predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    >>> model.score(X, y)
    1.0
    """

    method: str | Method = "robust_pll"
    _: KW_ONLY
    class_weight: ClassWeight = None
    random_state: Any = None
    device: str = "auto"
    watch: float | None = None
    verbose: bool = False

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
            unknown = sorted(set(inner) - set(method.field_names()))
            if unknown:
                raise InputError(
                    f"Invalid parameter {unknown[0]!r} for method {method.name!r}: it has "
                    f"{', '.join(method.field_names())}."
                )
            self.method = replace(method, **inner)  # type: ignore[type-var]
        return self
