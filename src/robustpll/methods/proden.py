"""Proden (Lv et al., ICML 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from robustpll.engine.data import Batch
from robustpll.methods.base import DeepMethod
from robustpll.methods.losses import normalize, weighted_ce


@dataclass(frozen=True)
class Proden(DeepMethod):
    """Progressive identification of the true labels.

    Cross-entropy against label weights, which are the network's own probabilities p restricted to
    the candidates S and renormalised: w_j = [j in S] p_j / sum_{S} p. ``Proden.paper()`` is the
    plain constructor.

    Examples
    --------
    >>> Proden(epochs=50)
    Proden(epochs=50, batch_size=256, learning_rate=0.001, weight_decay=0.0, members=1,
           network='mlp', precision='auto', averaged=0.0)
    """

    name: ClassVar[str] = "proden"
    title: ClassVar[str] = "Proden"
    citation: ClassVar[str] = (
        "Lv, Xu, Feng, Niu, Geng, Sugiyama: Progressive Identification of True Labels for "
        "Partial-Label Learning. ICML 2020"
    )

    def step(
        self,
        net: nn.Module,
        batch: Batch,
        progress: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits = net(batch.x)
        weights = normalize(batch.candidates * logits.detach().softmax(-1), batch.label_weights)
        return weighted_ce(logits, batch.label_weights), {"label_weights": weights}
