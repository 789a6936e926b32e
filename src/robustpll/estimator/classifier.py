"""The scikit-learn interface: validate, let a method learn, return numpy arrays."""

import copy
import warnings
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from robustpll.attacks import Attack
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.engine.networks import Network
from robustpll.engine.predict import Fitted, Networks
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share, refuse_other_length, some_of
from robustpll.estimator.abstention import AbstentionMixin
from robustpll.estimator.features import Features, finite, refuse_odd_table
from robustpll.estimator.novelty import Reference
from robustpll.labels.candidates import Candidates, classes_with, is_label_vector
from robustpll.labels.parsing import array_of, as_pandas, is_frame, items_of, refuse_odd_labels
from robustpll.methods import METHODS, Method, RobustPll, RobustPllAt
from robustpll.opinion import Opinion

ClassWeight = Mapping[Any, float] | str | None

MAY_BE_NONE = ("kl_ceiling", "evidence", "kl_scale_large_k", "kl_per_class", "averaged")

# Of `check_training`
SAMPLE, FEWEST = 1000, 100  # training rows to predict; fewer are too few for a warning
PASSES = 16  # of a method that predicts by random passes
TIED = 0.5  # share of rows with several classes in first place
RARELY = 0.1  # share of rows whose predicted class is a candidate
BY_CHANCE = 0.05  # the same for a class drawn at random


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


@dataclass(eq=False, repr=False, kw_only=True)
class RobustPLLClassifier(CandidateClassifier):
    """RobustPll: learns from candidate labels, and predicts with an uncertainty.

    Parameters
    ----------
    epochs, batch_size, learning_rate, weight_decay
        Of the training by Adam, with decoupled weight decay.
    members : int
        Number of networks whose opinions are averaged.
    network : {"mlp", "lenet", "resnet"} or callable (shape, k) -> torch module
        "mlp" has three hidden layers of 300; the other two need images.
    adversary : float, tuple with one for each member, or None
        Adversarial training (`RobustPllAt`): rows are moved by up to this share of each feature's
        range. The network withstands such changes better, and trains two to three times as long.
        With 0 no row is moved, but the settings are those of `RobustPllAt`.
    kl_ceiling : float, tuple with one for each member, or None
        How strongly evidence outside the candidates is removed.
    anneal, loss, update, evidence, kl_scale_large_k, kl_per_class, balance
        As for the method, `robustpll.methods.RobustPll`.
    averaged : float or None
        Share of the last epochs whose networks are averaged into the final one.
    precision : {"auto", "float32", "bf16"}
        "auto" lets CUDA use TF32 for matrix products; "bf16" computes them in bfloat16, on devices
        that have units for it.
    class_weight, random_state, device, watch, verbose
        As for `PLLClassifier`.

    None stands for the default of `RobustPll`, or with an adversary of `RobustPllAt`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = RobustPLLClassifier(epochs=100, random_state=0).fit(X, y)
    >>> model.predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    >>> bool((model.predict_opinion(np.eye(3)).uncertainty < 0.5).all())
    True
    """

    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    members: int = 1
    network: Network = "mlp"
    adversary: float | tuple[float, ...] | None = None
    kl_ceiling: float | tuple[float, ...] | None = None
    anneal: Literal["from-one", "from-zero"] = "from-one"
    loss: Literal["squared", "cross-entropy"] = "squared"
    update: Literal["before", "after"] = "before"
    evidence: Literal["relu", "softplus", "exp"] | None = None
    kl_scale_large_k: float | None = None
    kl_per_class: bool | None = None
    balance: float = 0.0
    averaged: float | None = None
    precision: Literal["auto", "float32", "bf16"] = "auto"
    class_weight: ClassWeight = None
    random_state: Any = None
    device: str = "auto"
    watch: float | None = None
    verbose: bool = False

    def resolved_method(self) -> RobustPll:
        kind = RobustPll if self.adversary is None else RobustPllAt
        params = self.get_params().items()
        unset = {name for name, value in params if value is None and name in MAY_BE_NONE}
        fields = set(kind.field_names()) - unset
        return kind(**{name: value for name, value in params if name in fields})


def row_weights(
    candidates: Candidates, class_weight: ClassWeight, sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Weights (n,) with mean 1; a row's class weight is the mean over its candidates' prior."""

    def checked(name: str, weights: Any, n: int) -> NDArray[np.float64]:
        kind = {"dtype": np.float64, "ensure_non_negative": True}
        try:
            return np.asarray(_check_sample_weight(weights, np.empty((n, 0)), **kind))
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} cannot be used: {error}") from error

    weight = checked("sample_weight", sample_weight, len(candidates))
    names = candidates.classes.tolist()
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = candidates.prior.sum(0, dtype=np.float64)
        of_class = np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)
    elif isinstance(class_weight, Mapping):
        unknown = [name for name in class_weight if name not in names]
        if unknown:  # scikit-learn would ignore them
            raise InputError(
                f"class_weight names unknown classes ({some_of(map(repr, unknown))}): the classes "
                f"are {some_of(map(repr, names), 10)}. Correct the names."
            )
        numbers = [class_weight.get(name, 1.0) for name in names]
        of_class = checked("class_weight", numbers, len(names))
    elif class_weight is not None:
        raise InputError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}.")
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
    training, validation = validation_split(len(task), share, task.seeds[0])
    aside = task.some_rows(validation)
    fitted = method.fit(task.some_rows(training), watch=aside)
    predicted = replace(fitted.predict(aside.rows), prior=aside.prior.double())
    predicted = predicted.within(aside.candidates)
    order = torch.cat([training, validation]).argsort().to(aside.prior.device)

    def all_rows(learned: Tensor, predicted: Tensor) -> Tensor:
        return torch.cat([learned[0].to(predicted), predicted[0]])[order]

    weights = all_rows(fitted.label_weights, predicted.probability).to(fitted.label_weights)
    belief, prior, uncertainty = (
        all_rows(getattr(fitted.opinion, name), getattr(predicted, name))
        for name in ("belief", "prior", "uncertainty")
    )
    return fitted, weights, Opinion(belief, prior, uncertainty)


def validation_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of training rows and of validation rows, drawn at random."""
    count = round(n * share) if is_share(share) else 0
    if not 1 <= count <= n - 2:
        raise InputError(
            "watch must be None, or the share of rows to set aside: a number between 0 and 1 that "
            f"leaves 2 rows to learn from and 1 to watch. Got {share!r} for {n} rows."
        )
    order = np.random.default_rng(seed_of(seed, "watch")).permutation(n)
    return torch.from_numpy(np.sort(order[count:])), torch.from_numpy(np.sort(order[:count]))


def check_training(
    fitted: Fitted, task: Task, weights: Tensor, opinion: Opinion, *, watched: bool
) -> None:
    """Raise InputError if a training diverged, and warn if its networks learned little.

    It diverged if weights, opinions or the last loss are not finite (with early stopping the last
    loss does not count). It learned little if half of the rows have several classes in first place
    and most predictions are no candidates, or if hardly any prediction among many classes is one.
    """
    numbers = [weights, opinion.belief, opinion.uncertainty]
    if isinstance(fitted, Networks):
        sample = task.some_rows(torch.arange(0, len(task), -(-len(task) // SAMPLE)))
        predicted = replace(fitted, method=fitted.method.with_passes(PASSES)).predict(sample.rows)
        numbers += [predicted.belief, predicted.uncertainty, *fitted.net.state_dict().values()]
        numbers += [] if watched else fitted.history.losses[-1:]
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        losses = fitted.history.loss  # (epochs, M)
        lost = (~losses.isfinite().all(-1)).nonzero().flatten().tolist()
        since = f" since epoch {lost[0] + 1} of {len(losses)}" if lost else ""
        raise InputError(
            f"Training diverged: the model has numbers that are not finite{since}. Fit again with "
            "a lower learning_rate, and look for rows of a far larger weight than others."
        )
    if not isinstance(fitted, Networks) or len(sample) < FEWEST:
        return
    labels = predicted.predicted()[..., None]
    weight = sample.weight / sample.weight.sum().clamp(min=1e-10)
    rate = float((sample.candidates.gather(-1, labels)[..., 0] * weight).sum())
    tied = float(predicted.guess.double().mean()) >= TIED and rate < 0.5
    rare = float(sample.candidates.double().mean()) < BY_CHANCE and rate < RARELY
    if tied or rare:
        remedy = "Train for more epochs, or try another learning_rate."
        if fitted.method.uncertain:
            remedy = 'Use "proden", or in Python kl_ceiling=0 or RobustPLLClassifier(adversary=0).'
        message = (
            f"{fitted.method.title} has learned little: in {rate:.1%} of its training rows the "
            f"predicted class is a candidate, and it predicts {len(labels.unique()):,} of "
            f"{task.k:,} classes. {remedy}"
        )
        warnings.warn(message, UserWarning, stacklevel=4)
