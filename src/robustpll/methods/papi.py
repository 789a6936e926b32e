"""PaPi (Xia et al., CVPR 2023)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task, pick
from robustpll.engine.networks import Shape, build_network
from robustpll.engine.random import Draws
from robustpll.methods.base import Number, Step
from robustpll.methods.views import (
    EMBEDDING,
    ViewMethod,
    draw_mixing,
    kl,
    mixed,
    moved_prototypes,
    restricted,
    split,
)

TEMPERATURE = 0.3  # of similarities to prototypes


@dataclass(frozen=True)
class Papi(ViewMethod):
    """Prototypes learn from the classifier: mixed pictures must be similar to those of its classes.

    The loss is the cross-entropy to the label weights, plus the divergence of similarities between
    mixed pictures and prototypes from mixed label weights. Label weights are a moving average of
    the predictions for weak views, within the candidates.

    What differs from the publication: the authors train ResNet-18 for 500 epochs, make strong views
    by AutoAugment, and pass each view alone through the network. Here one pass has all views, so
    that BatchNorm sees them together. Label weights move faster if there are fewer epochs.

    Parameters
    ----------
    alignment : float or tuple with one for each member
        Weight of the divergence, reached after 2 % of the training.
    """

    name = "papi"
    title = "PaPi"
    incremental = False
    citation = (
        "Xia, Lv, Xu, Niu, Geng: Towards Effective Visual Representations for Partial-Label "
        "Learning. CVPR 2023"
    )
    cost = 4.0
    moves_rows = True  # mixes them
    compilable = False  # compiled, gradients would be of the memory that the step has changed

    alignment: Number = 1.0

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return build_network(self.network, shape, k, draws, EMBEDDING)

    def begin(self, task: Task) -> State:
        state = State.of(task)
        state.memory["prototypes"] = task.prior.new_zeros(task.models, task.k, EMBEDDING)
        return state

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Any:
        return draw_mixing(rows, draws, concentration=8)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        k, (partner, share) = batch.candidates.shape[-1], batch.drawn
        views = [batch.views[name] for name in self.views]
        outputs = net(torch.cat(views + [mixed(view, partner, share) for view in views], 1))
        logits, embeddings = split(outputs, k)
        weak, strong, *_ = logits.chunk(4, 1)
        plain, blended = embeddings.chunk(2, 1)  # (M, 2 b, d) each, of both views
        prototypes = batch.memory["prototypes"]
        similarity = (blended @ prototypes.clone().mT / TEMPERATURE).log_softmax(-1).chunk(2, 1)
        inside = [restricted(view.detach(), batch.candidates) for view in (weak, strong)]
        keep, labels = self.kept(progress, 0.9, 0.4), torch.cat(inside, 1).argmax(-1)
        prototypes.copy_(moved_prototypes(prototypes, plain.detach(), labels, keep))
        weights = torch.lerp(inside[0], batch.label_weights, self.kept_weights(progress))
        loss = -(weights * weak.log_softmax(-1)).sum(-1)
        for part, owner in ((share, weights), (1 - share, pick(weights, partner))):
            divergence = kl(owner, similarity[0]) + kl(owner, similarity[1])
            loss = loss + self.alignment * (50 * progress).clamp(max=1) * part * divergence
        return loss, {"label_weights": weights}
