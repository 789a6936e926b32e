"""The scikit-learn classifiers of the library, with their parameters."""

import copy
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustpll.engine.augment import Augment
from robustpll.engine.checkpoint import Checkpoint, Start
from robustpll.engine.history import Callback
from robustpll.engine.modules import ParameterGroups
from robustpll.engine.networks import Network
from robustpll.errors import InputError, some_of
from robustpll.estimator.base import DEPRECATED, CandidateClassifier
from robustpll.estimator.features import Scale
from robustpll.estimator.fitting import ClassWeight, former_networks
from robustpll.estimator.loaders import pairs_of
from robustpll.methods import METHODS, Auto, Method, RobustPll, RobustPllAt


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
    callbacks : sequence of objects with `on_epoch_end`
        Called after every epoch with a `robustpll.callbacks.EpochState`. A true result stops the
        training. Methods without epochs call none.
    checkpoint : str, Path, `robustpll.callbacks.Checkpoint` or None
        A new folder in which `fit` stores the state of its trainings after every epoch, or as often
        as a `Checkpoint` says. ``fit(X, y, resume=FOLDER)`` goes on after an interruption.
    warm_start : bool
        Whether `fit` goes on from the present network, with the same scaling of features and no
        new classes. If the rows are the same, label weights go on, too, within the new candidates;
        otherwise they start with its predictions. For methods that train networks once.
    cluster : {None, "local", "ray"} or "ray://host:port"
        Where networks, and folds of other learners, are trained: None in this process; "local" in
        processes of this machine; else on a Ray cluster. Results are equal up to rounding.

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
    callbacks: Sequence[Callback] = ()
    checkpoint: str | Path | Checkpoint | None = None
    warm_start: bool = False
    cluster: str | None = None

    def resolved_method(self) -> Method:
        if isinstance(self.method, str) and self.method in METHODS:
            return METHODS[self.method]()
        if isinstance(self.method, Method):
            return self.method
        method: Any = self.method
        kind = method if isinstance(method, type) else type(method)
        if hasattr(kind, "fit"):  # a class of methods, or an estimator
            call = f"{kind.__name__}()" if issubclass(kind, Method) else f"Wrapped({method!r})"
            got = f"got {method!r}. Pass {call}"
            raise InputError(f"method must be a Method, such as robustpll.methods.Proden(); {got}.")
        raise InputError(
            f"method must be a Method or one of {', '.join(METHODS)}; got {self.method!r}. "
            "`robustpll methods` lists them."
        )

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train for one epoch on these rows, from the present network.

        It is the next of the method's epochs, or the last one again: schedule and stages of a
        method count them. Label weights start with the predictions of the present network.
        Networks are not averaged, and `watch` and `checkpoint` are not used. Afterwards
        ``labels_`` and the like are those of these rows. `decide` compares new rows with a sample
        of the rows of all calls. Features are scaled by the rows of the first call.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`; two rows or more.
        classes : array of shape (k,), optional
            All classes, in the first call; by default those of its `y`.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat(["a", "b", "c"], 20)
        >>> model = PLLClassifier("proden", random_state=0)
        >>> for _ in range(20):
        ...     for part in (slice(0, None, 2), slice(1, None, 2)):
        ...         model = model.partial_fit(X[part], y[part], classes=["a", "b", "c"])
        >>> model.predict(np.eye(3))
        array(['a', 'b', 'c'], dtype='<U1')
        """
        method: Any = self.resolved_method()
        X, y = pairs_of(X, y)
        fresh, former = copy.copy(self), former_networks(self, method, "partial_fit")
        losses: NDArray[Any] = np.empty(0) if former is None else self.history_["loss"]
        start = Start(None, min(len(losses), method.total_epochs - 1))
        if former is not None:
            names = self.classes_.tolist()
            if classes is not None and {*np.asarray(classes).tolist()} != {*names}:
                raise InputError(f"classes must be those of the first call: {some_of(names)}.")
            start.net = former.net
            if bool(former.method.momentum) == bool(method.momentum):  # the same optimizer
                start.optimizer = getattr(self, "optimizer_", {})
        fresh._fit(X, y, sample_weight, replace(method, averaged=0.0), start, classes=classes)
        fresh.optimizer_ = start.optimizer  # not part of a model file
        fresh.history_ = {"loss": np.append(losses, fresh.history_["loss"])}
        self.__dict__ = fresh.__dict__
        return self

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
    network : str, torch module, class or callable (shape, k) -> torch module
        "small" has two hidden layers of 256, "mlp" three of 300. For pictures there are "convnet",
        "resnet9", "resnet18", "wide_resnet", "lenet" and "resnet". "auto": see `Auto`. Each member
        is a copy of a module; a class or callable without arguments is called without.
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
    augment : {"auto", "weak", "strong"}, `Augmentation`, callable or None
        How pictures are changed at random in training. "auto": convolutional networks see them
        weakly and strongly changed. Pictures in colour are then mirrored, too, and predictions are
        means over both. If left and right matter, pass ``Augmentation(flip=False)`` of
        `robustpll.engine.augment`. None: not at all.
    parameter_groups : callable or None
        From a member's module to dicts as torch's optimizers take them: "params", "lr" (the peak of
        the one-cycle schedule), "weight_decay". Parameters in no group have those of above.
    text : sequence of str
        Columns of a DataFrame that hold texts. Each becomes 500 numbers or fewer: TF-IDF of its
        words, reduced by a truncated SVD. Gaps are empty texts.
    class_weight, random_state, device, verbose, callbacks, checkpoint, cluster
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
    augment: Augment = "auto"
    parameter_groups: ParameterGroups = None
    scale: Scale | None = "auto"
    text: Sequence[str] = ()
    class_weight: ClassWeight = None
    random_state: Any = None
    device: str = "auto"
    verbose: bool = False
    callbacks: Sequence[Callback] = ()
    checkpoint: str | Path | Checkpoint | None = None
    cluster: str | None = None
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
        params = self.get_params(deep=False)
        passed = {n: v for n, v in params.items() if not (isinstance(v, str) and v == DEPRECATED)}
        former = [name for name in FORMER_PARAMETERS if name in passed]
        if former:
            message = (
                f"{', '.join(former)} of RobustPLLClassifier will go in version 0.3. Use "
                "PLLClassifier(RobustPll(...)), or early_stopping instead of watch."
            )
            warnings.warn(message, DeprecationWarning, stacklevel=3)  # of the caller of `fit`
        chosen = {name: value for name, value in passed.items() if value is not None}
        chosen["augment"] = self.augment  # None has a meaning
        if not {*former} - {"watch"} and not isinstance(self.adversary, tuple):
            auto = {name: chosen[name] for name in Auto.field_names() if name in chosen}
            early_stopping = self.early_stopping or self.validation_share is not None
            if self.scale in ("standard", None):
                auto = {"adversary": 0.0} | auto
            return Auto(**auto | {"early_stopping": early_stopping})
        kind = RobustPll if self.adversary is None else RobustPllAt
        settings = {name: chosen[name] for name in kind.field_names() if name in chosen}
        return kind(**settings | ({"network": "mlp"} if self.network == "auto" else {}))

    def _scale_for(self, method: Method) -> Any:
        is_former = self.scale == "auto" and not isinstance(method, Auto)  # scaled as in 0.1
        return method.scale if is_former else self.scale


FORMER_PARAMETERS = [f.name for f in fields(RobustPLLClassifier) if f.default == DEPRECATED]
