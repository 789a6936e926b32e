"""Proden+AdvEns: an ensemble of Proden networks that also learn from attacked rows."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from robustpll.attacks.base import sign_of_gradient
from robustpll.engine.data import Batch
from robustpll.engine.layers import steady_statistics
from robustpll.methods.base import Number
from robustpll.methods.losses import normalize, weighted_ce
from robustpll.methods.proden_ens import ProdenEns


@dataclass(frozen=True)
class ProdenAdvEns(ProdenEns):
    """Proden+Ens with one attacked copy of each row (Lakshminarayanan et al., NeurIPS 2017).

    x' = x + epsilon sign(dL/dx), and the loss is that of x plus that of x' under the same label
    weights; these come from the unchanged row. ``ProdenAdvEns.paper()`` is the plain constructor.

    Parameters
    ----------
    epsilon : float or tuple with one for each member
        How far each scaled feature is moved.

    Examples
    --------
    >>> ProdenAdvEns().epsilon
    0.01
    """

    name: ClassVar[str] = "proden_adv_ens"
    title: ClassVar[str] = "Proden+AdvEns"
    step_cost: ClassVar[float] = 4.0
    epsilon: Number = 0.01

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x = batch.x
        with steady_statistics(net):
            rising = sign_of_gradient(lambda moved: weighted_ce(net(moved), batch.label_weights), x)
        logits = net(x)
        epsilon = self.epsilon.view(-1, *[1] * (x.ndim - 1))
        attacked = weighted_ce(net(x + epsilon * rising), batch.label_weights)
        weights = normalize(batch.candidates * logits.detach().softmax(-1), batch.label_weights)
        return weighted_ce(logits, batch.label_weights) + attacked, {"label_weights": weights}
