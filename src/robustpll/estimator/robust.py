"""The recommended classifier, with all parameters of its method."""

from dataclasses import dataclass
from typing import Any, Literal

from robustpll.engine.networks import Network
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.estimator.training import ClassWeight
from robustpll.methods import RobustPll, RobustPllAt

MAY_BE_NONE = ("kl_ceiling", "evidence", "kl_scale_large_k", "kl_per_class", "averaged")


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
