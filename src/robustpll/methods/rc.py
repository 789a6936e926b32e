"""Rc and Cc (Feng et al., NeurIPS 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from robustpll.engine.data import Batch
from robustpll.methods.base import DeepMethod, Step, covering
from robustpll.methods.proden import Proden


@dataclass(frozen=True)
class Rc(Proden):
    """Risk-consistent learning: cross-entropy weighted by how likely each candidate is.

    As Proden, with label weights from the network after the optimiser's step.

    Parameters
    ----------
    normalise : bool
        Whether a row's weights sum to 1, or to the network's probability of its candidates.
    update : {"after", "before"}
        Whether weights come from one more forward pass after the step, or from the one before it.
    """

    name = "rc"
    title = "Rc"
    citation = (
        "Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama: Provably Consistent Partial-Label Learning. "
        "NeurIPS 2020"
    )
    final_weights = "normalised"
    paper_fields: ClassVar = {"normalise": False, "update": "before"}

    normalise: bool = True
    update: Literal["after", "before"] = "after"

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        if self.normalise:
            return super().reweigh(logits, batch)
        return {"label_weights": batch.candidates * logits.softmax(-1)}


@dataclass(frozen=True)
class Cc(DeepMethod):
    """Classifier-consistent learning: -ln of the probability of all candidates together.

    Parameters
    ----------
    stable : bool
        Whether the loss is computed by log-sum-exp. Otherwise, as in ``Cc.paper()``, it is
        -ln(c s + 1e-10), where s is that probability and c = 1 / (2^(k-1) - 1). From about 50
        classes on, the gradient is then too small to learn from; from 151 on it vanishes in
        float32.
    """

    name = "cc"
    title = "Cc"
    citation = Rc.citation
    by_row = True
    final_weights = "predicted"
    paper_fields: ClassVar = {"stable": False}

    stable: bool = True

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        return covering(net(batch.x), batch.candidates, stable=self.stable), {}
